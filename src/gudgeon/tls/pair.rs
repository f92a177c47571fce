//! A certificate chain and its key, out of PEM.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Certificates in one file at most.
const MAX_CERTIFICATES: usize = 1000;

/// The served chain and key.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) key: Arc<CertifiedKey>,
    pub(crate) not_after: SystemTime,
    /// Subject alternative names of the leaf.
    pub(crate) names: Vec<String>,
}

/// The reasons why files are no valid pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PairError {
    /// The chain's file is at fault.
    Chain(String),
    /// The key's file is.
    Key(String),
    /// Certificate and key are valid, but do not match: read in the middle of a rotation.
    Mismatch,
}

impl PairError {
    /// Renders the error, with the files at fault.
    pub(crate) fn of_files(&self, chain: &Path, key: &Path) -> String {
        let (chain, key) = (chain.display(), key.display());
        match self {
            Self::Chain(cause) => format!("{chain}: {cause}"),
            Self::Key(cause) => format!("{key}: {cause}"),
            Self::Mismatch => format!("{chain} and {key} do not match"),
        }
    }
}

impl Pair {
    /// Reads and checks both.
    ///
    /// # Errors
    /// The error of the chain, of the key, or of both together.
    pub(crate) fn parse(chain: &[u8], key: &[u8]) -> Result<Self, PairError> {
        let chain = certificates(chain).map_err(PairError::Chain)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|cause| PairError::Key(format!("no private key in it: {}", fault(&cause))))?;
        Self::of(chain, &key)
    }

    pub(super) fn of(
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKeyDer<'_>,
    ) -> Result<Self, PairError> {
        let leaf = chain
            .first()
            .ok_or_else(|| PairError::Chain("no certificate in it".to_owned()))?;
        let leaf = Certificate::from_der(leaf)
            .map_err(|cause| PairError::Chain(format!("the certificate is not valid: {cause}")))?;
        let not_after = UNIX_EPOCH
            + leaf
                .tbs_certificate()
                .validity()
                .not_after
                .to_unix_duration();
        let names = names(&leaf);
        let signer = any_supported_type(key)
            .map_err(|cause| PairError::Key(format!("cannot use the key: {cause}")))?;
        let key = CertifiedKey::new(chain, signer);
        match key.keys_match() {
            // Providers without public keys return "Unknown"; this one has them.
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(Error::InconsistentKeys(_)) => return Err(PairError::Mismatch),
            Err(cause) => {
                return Err(PairError::Chain(format!(
                    "the certificate is not valid: {cause}"
                )));
            }
        }
        Ok(Self {
            key: Arc::new(key),
            not_after,
            names,
        })
    }
}

/// Describes an error of PEM without the lines that it quotes: a key whose lines were joined is one of them.
const fn fault(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no END line of its own",
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line does not end with -----",
        pem::Error::Base64Decode(_) => "a section is not base64",
        pem::Error::NoItemsFound => "there is no such section",
        pem::Error::Io(_) | pem::Error::SectionTooLarge | _ => "a section cannot be read",
    }
}

/// The certificates of a PEM file, at least one.
///
/// # Errors
/// The error in it.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        certificates.push(certificate.map_err(|cause| format!("not PEM: {}", fault(&cause)))?);
        if certificates.len() > MAX_CERTIFICATES {
            return Err(format!("more than {MAX_CERTIFICATES} certificates in it"));
        }
    }
    if certificates.is_empty() {
        return Err("no certificate in it".to_owned());
    }
    Ok(certificates)
}

/// Checks that the file is a bundle that a webhook configuration accepts.
///
/// # Errors
/// The error in the file.
pub(crate) fn is_bundle(pem: &[u8]) -> Result<(), String> {
    for certificate in certificates(pem)? {
        Certificate::from_der(&certificate)
            .map_err(|cause| format!("a certificate in it is not valid: {cause}"))?;
    }
    Ok(())
}

/// The subject alternative names of a certificate, if it is one.
pub(crate) fn names_of(leaf: &CertificateDer<'_>) -> Vec<String> {
    Certificate::from_der(leaf).map_or_else(|_| Vec::new(), |leaf| names(&leaf))
}

/// Returns the URIs among the subject alternative names.
pub(crate) fn uris_of(leaf: &CertificateDer<'_>) -> Vec<String> {
    let Ok(leaf) = Certificate::from_der(leaf) else {
        return Vec::new();
    };
    let mut uris = Vec::new();
    for name in alternatives(&leaf) {
        if let GeneralName::UniformResourceIdentifier(uri) = name {
            uris.push(uri.to_string());
        }
    }
    uris
}

fn alternatives(leaf: &Certificate) -> Vec<GeneralName> {
    match leaf.tbs_certificate().get_extension::<SubjectAltName>() {
        Ok(Some((_, found))) => found.0,
        Ok(None) | Err(_) => Vec::new(),
    }
}

fn names(leaf: &Certificate) -> Vec<String> {
    let mut names = Vec::new();
    for name in alternatives(leaf) {
        match name {
            GeneralName::DnsName(name) => names.push(name.to_string()),
            GeneralName::UniformResourceIdentifier(uri) => names.push(uri.to_string()),
            GeneralName::IpAddress(address) => {
                let bytes = address.as_bytes();
                if let Ok(four) = <[u8; 4]>::try_from(bytes) {
                    names.push(std::net::Ipv4Addr::from(four).to_string());
                } else if let Ok(sixteen) = <[u8; 16]>::try_from(bytes) {
                    names.push(std::net::Ipv6Addr::from(sixteen).to_string());
                }
            }
            GeneralName::OtherName(_)
            | GeneralName::Rfc822Name(_)
            | GeneralName::DirectoryName(_)
            | GeneralName::EdiPartyName(_)
            | GeneralName::RegisteredId(_) => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};

    use super::*;

    fn made() -> (String, String) {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let params =
            CertificateParams::new(vec!["a.example".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[test]
    fn a_pair_is_read_and_described() {
        let (chain, key) = made();
        let pair = Pair::parse(chain.as_bytes(), key.as_bytes()).unwrap();
        assert_eq!(pair.names, ["a.example", "127.0.0.1"]);
        assert!(pair.not_after > SystemTime::now());
    }

    #[test]
    fn an_error_names_the_file_at_fault() {
        let (chain, key) = made();
        let (_, other) = made();
        let (chain, key, other) = (chain.as_bytes(), key.as_bytes(), other.as_bytes());
        assert_eq!(Pair::parse(chain, other).unwrap_err(), PairError::Mismatch);
        for (a, b, is_chain) in [
            (&b"x"[..], key, true),
            (key, key, true),
            (chain, &b"x"[..], false),
            (chain, chain, false),
            (&chain[..chain.len() / 2], key, true),
        ] {
            let error = Pair::parse(a, b).unwrap_err();
            assert_eq!(matches!(error, PairError::Chain(_)), is_chain, "{error:?}");
        }
    }

    #[test]
    fn an_error_quotes_no_line() {
        let (chain, key) = made();
        let (joined_chain, joined_key) = (chain.replace('\n', ""), key.replace('\n', ""));
        let of =
            |chain: &str, key: &str| Pair::parse(chain.as_bytes(), key.as_bytes()).unwrap_err();
        let no_end = "a section has no END line of its own";
        assert_eq!(
            of(&chain, &joined_key),
            PairError::Key(format!("no private key in it: {no_end}"))
        );
        assert_eq!(
            of(&joined_chain, &key),
            PairError::Chain(format!("not PEM: {no_end}"))
        );
        let (cut, _) = joined_key.split_once("-----END").unwrap();
        let no_begin = "a BEGIN line does not end with -----";
        assert_eq!(
            of(&chain, cut),
            PairError::Key(format!("no private key in it: {no_begin}"))
        );
    }

    #[test]
    fn a_bundle_holds_certificates() {
        let (chain, key) = made();
        assert_eq!(is_bundle(chain.as_bytes()), Ok(()));
        assert!(is_bundle(key.as_bytes()).is_err());
        assert!(is_bundle(b"").is_err());
        let forged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(is_bundle(forged.as_bytes()).is_err());
    }
}
