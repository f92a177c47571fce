//! The desired CA bundle, computed from the present one. Pure: PEM in, PEM out, and time is an argument.
//!
//! From a file the bundle is that file, to the byte. With self-signed certificates the bundle is shared with other replicas,
//! each of which has its own CA: certificates of other programs stay, this replica's are added, and of all replicas'
//! certificates the expired ones are removed, and the oldest when there are too many. Replicas that reconcile one after the
//! other converge: each finds its own certificate and changes nothing.

use std::collections::HashSet;
use std::time::SystemTime;

use pem::{EncodeConfig, LineEnding, Pem};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

/// The common name of the CAs that this program makes.
pub const OWN_CA_NAME: &str = "gudgeon-self-signed-ca";
/// The certificates of replicas in a bundle: many more than replicas live, so that no repair evicts one in use. They
/// are about 20 KiB of the object, in each entry.
const LIMITS: BundleLimits = BundleLimits {
    certificates: 64,
    bytes: 48 << 10,
};
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The bundle that the configurations are to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaBundle {
    /// PEM that is written as it is.
    File(Vec<u8>),
    /// PEM of this replica's CAs: the one in use, and those before and after it.
    Own(Vec<u8>),
}

impl CaBundle {
    /// Returns the bundle that must replace `present`; `None` if `present` is right.
    #[must_use]
    pub fn replacement(&self, present: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        match self {
            Self::File(file) => (file != present).then(|| file.clone()),
            Self::Own(own) => shared(present, own, now, LIMITS),
        }
    }
}

/// Bounds for the certificates of all replicas in a bundle.
#[derive(Clone, Copy, Debug)]
struct BundleLimits {
    certificates: usize,
    /// Bytes of their DER.
    bytes: usize,
}

/// The issuer of a certificate: a replica of this program, or any other, whose certificates are left alone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CertificateIssuer {
    ByOthers,
    ByReplica,
    /// By a replica, and its time is over.
    Expired,
}

fn shared(present: &[u8], own: &[u8], now: SystemTime, limits: BundleLimits) -> Option<Vec<u8>> {
    let before = certificates(present);
    let own = certificates(own);
    let mut seen = HashSet::new();
    let mut retained: Vec<(&Vec<u8>, CertificateIssuer)> = before
        .iter()
        .chain(&own)
        .map(|der| (der, issuer(der, now)))
        .filter(|(der, issuer)| *issuer != CertificateIssuer::Expired && seen.insert(*der))
        .collect();
    let by_replicas = retained
        .iter()
        .filter(|(_, issuer)| *issuer == CertificateIssuer::ByReplica);
    let lengths = by_replicas.map(|(der, _)| der.len());
    let (mut count, mut bytes) =
        lengths.fold((0, 0), |(count, bytes), length| (count + 1, bytes + length));
    // The oldest by position goes first: a live replica that was evicted appends its own again, so only certificates that no
    // replica renews disappear. By age, two old ones would evict each other while newer ones of dead replicas stay. This
    // replica's own are never evicted.
    retained.retain(|(der, issuer)| {
        let is_surplus = count > limits.certificates || bytes > limits.bytes;
        let gone = is_surplus && *issuer == CertificateIssuer::ByReplica && !own.contains(der);
        if gone {
            count -= 1;
            bytes -= der.len();
        }
        !gone
    });
    // By their certificates, not their bytes: another release may break lines elsewhere, and the two would never rest.
    let same = retained.iter().map(|(der, _)| *der).eq(&before);
    (!same).then(|| encode(retained.into_iter().map(|(der, _)| der)))
}

/// The certificates in a text, as DER. Any other text is skipped, as the API server does when it uses a bundle.
fn certificates(text: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(text);
    // Each certificate is parsed by itself: a broken one does not hide the others.
    text.split(BEGIN)
        .skip(1)
        .filter_map(|section| {
            let (base64, _) = section.split_once(END)?;
            let pem = pem::parse(format!("{BEGIN}{base64}{END}")).ok()?;
            Some(pem.into_contents())
        })
        .collect()
}

fn encode<'a>(certificates: impl Iterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    let lines = EncodeConfig::new().set_line_ending(LineEnding::LF);
    certificates
        .map(|der| pem::encode_config(&Pem::new("CERTIFICATE", der.clone()), lines))
        .collect::<String>()
        .into_bytes()
}

/// An unreadable certificate counts as issued elsewhere.
fn issuer(der: &[u8], now: SystemTime) -> CertificateIssuer {
    let Ok(certificate) = Certificate::from_der(der) else {
        return CertificateIssuer::ByOthers;
    };
    let certificate = certificate.tbs_certificate();
    let name = certificate.subject().common_name().ok().flatten();
    if name.is_none_or(|name| name.value() != OWN_CA_NAME) {
        CertificateIssuer::ByOthers
    } else if certificate.validity().not_after.to_system_time() <= now {
        CertificateIssuer::Expired
    } else {
        CertificateIssuer::ByReplica
    }
}

#[cfg(test)]
mod tests;
