//! What a CA bundle should be, from what it is. Pure: PEM in, PEM out, and the time is told.
//!
//! From a file the bundle is that file, to the byte. With certificates of our own it is shared with other replicas, each of
//! which has a CA of its own: what others put there stays, this program's is added, and of all that a replica of it made
//! those that expired go, and the oldest when there are too many. Replicas that look one after the other come to rest: each
//! finds its own there and changes nothing.

use std::collections::HashSet;
use std::time::SystemTime;

use pem::{EncodeConfig, LineEnding, Pem};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

/// The common name of the CAs that this program makes.
pub const OURS: &str = "gudgeon-self-signed-ca";
/// So many of this program's stay.
const MOST: usize = 8;
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// What is to be in the configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bundle {
    /// PEM that is written as it is.
    File(Vec<u8>),
    /// PEM of our own CAs: the one in use, and those before and after it.
    Own(Vec<u8>),
}

impl Bundle {
    /// What `present` must become, where it is not that already.
    #[must_use]
    pub fn wanted(&self, present: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        match self {
            Self::File(file) => (file != present).then(|| file.clone()),
            Self::Own(own) => shared(present, own, now),
        }
    }
}

/// A certificate of this program's: who is older goes first.
struct Ours {
    begins: SystemTime,
    ends: SystemTime,
}

fn shared(present: &[u8], own: &[u8], now: SystemTime) -> Option<Vec<u8>> {
    let before = certificates(present);
    let own = certificates(own);
    let mut seen = HashSet::new();
    let mut kept: Vec<(Vec<u8>, Option<Ours>)> = Vec::new();
    for der in before.iter().chain(&own) {
        let ours = ours(der);
        let expired = ours.as_ref().is_some_and(|ours| ours.ends <= now);
        if !expired && seen.insert(der.clone()) {
            kept.push((der.clone(), ours));
        }
    }
    // Our own are never given up: a replica that lives on while another starts again and again must not be pushed out.
    let mut others: Vec<(SystemTime, Vec<u8>)> = kept
        .iter()
        .filter(|(der, _)| !own.contains(der))
        .filter_map(|(der, ours)| Some((ours.as_ref()?.begins, der.clone())))
        .collect();
    let of_own = kept.iter().filter(|(der, _)| own.contains(der)).count();
    others.sort();
    let surplus = (others.len() + of_own)
        .saturating_sub(MOST)
        .min(others.len());
    let gone: HashSet<Vec<u8>> = others
        .into_iter()
        .take(surplus)
        .map(|(_, der)| der)
        .collect();
    kept.retain(|(der, _)| !gone.contains(der));
    let kept: Vec<Vec<u8>> = kept.into_iter().map(|(der, _)| der).collect();
    // By their certificates, not their bytes: another release may break lines elsewhere, and the two would never rest.
    (kept != before).then(|| encode(kept))
}

/// The certificates in a text, as DER. What is none is passed over, as the API server does when it uses a bundle.
fn certificates(text: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(text);
    // One by one: a broken one in between does not hide the others.
    text.split(BEGIN)
        .skip(1)
        .filter_map(|section| {
            let (base64, _) = section.split_once(END)?;
            let pem = pem::parse(format!("{BEGIN}{base64}{END}")).ok()?;
            Some(pem.into_contents())
        })
        .collect()
}

fn encode(certificates: Vec<Vec<u8>>) -> Vec<u8> {
    let lines = EncodeConfig::new().set_line_ending(LineEnding::LF);
    certificates
        .into_iter()
        .map(|der| pem::encode_config(&Pem::new("CERTIFICATE", der), lines))
        .collect::<String>()
        .into_bytes()
}

/// Whether a replica of this program made it. A certificate that cannot be read is somebody else's.
fn ours(der: &[u8]) -> Option<Ours> {
    let certificate = Certificate::from_der(der).ok()?;
    let certificate = certificate.tbs_certificate();
    let name = certificate.subject().common_name().ok()??;
    let validity = certificate.validity();
    (name.value() == OURS).then(|| Ours {
        begins: validity.not_before.to_system_time(),
        ends: validity.not_after.to_system_time(),
    })
}

#[cfg(test)]
mod tests;
