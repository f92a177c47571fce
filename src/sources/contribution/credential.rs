//! Secrets with certificates for routers. A proxy refuses an incomplete one, and with it all others of the same response; so
//! an incomplete one is not handed on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use api::model::Credential;
use k8s_openapi::ByteString;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde::Deserialize;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

/// As an API server writes one, and as people do.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawSecret {
    data: Option<BTreeMap<Box<str>, ByteString>>,
    string_data: Option<BTreeMap<Box<str>, Box<str>>>,
}

/// A Secret, as far as it has certificates in it.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(from = "RawSecret")]
pub(crate) struct SecretData(Option<Arc<Credential>>);

/// Secrets are left out.
impl fmt::Debug for SecretData {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

impl From<RawSecret> for SecretData {
    fn from(raw: RawSecret) -> Self {
        let (data, text) = (
            raw.data.unwrap_or_default(),
            raw.string_data.unwrap_or_default(),
        );
        let credential = Credential::of_data(|name| {
            // `stringData` overrides `data`, as an API server merges them.
            let text = text.get(name).map(|text| text.as_bytes());
            text.or_else(|| data.get(name).map(|bytes| bytes.0.as_slice()))
        });
        Self(credential.map(Arc::new))
    }
}

impl SecretData {
    /// Bytes of all of it.
    pub(crate) fn size(&self) -> usize {
        self.0.as_ref().map_or(0, |one| one.size())
    }

    /// Returns the certificates, if a proxy takes them. `None`: there is no certificate in it.
    ///
    /// # Errors
    ///
    /// Data that a proxy would refuse, in words that quote nothing of it.
    pub(crate) fn usable(&self) -> Result<Option<Arc<Credential>>, String> {
        let Some(one) = &self.0 else {
            return Ok(None);
        };
        if let Some((chain, key)) = &one.pair {
            check_pair(chain, key)?;
        }
        if let Some(root) = &one.root {
            certificates(root).map_err(|why| format!("the root {why}"))?;
        }
        Ok(Some(one.clone()))
    }
}

/// Returns the certificates of a Secret in JSON; `None`: it has none.
///
/// # Errors
///
/// Data that a proxy would refuse, in words that quote nothing of it.
pub fn credential_of(json: &str) -> Result<Option<Arc<Credential>>, String> {
    let read: SecretData = serde_json::from_str(json)
        .map_err(|_| "its data is not base64, or its stringData no text".to_owned())?;
    read.usable()
}

/// All certificates of a text; each is one.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_slice_iter(pem);
    let all: Result<Vec<_>, _> = all.collect();
    let all = all.map_err(|_| "is not PEM".to_owned())?;
    if all.is_empty() {
        return Err("has no certificate in it".to_owned());
    }
    match all
        .iter()
        .position(|one| Certificate::from_der(one).is_err())
    {
        Some(at) => Err(format!(
            "cannot be read: its CERTIFICATE block {} is not a certificate",
            at + 1
        )),
        None => Ok(all),
    }
}

fn check_pair(chain: &[u8], key: &[u8]) -> Result<(), String> {
    let chain = certificates(chain).map_err(|why| format!("the certificate {why}"))?;
    let key = PrivateKeyDer::from_pem_slice(key);
    let key = key.map_err(|_| "the key is not a private key in PEM".to_owned())?;
    let key = any_supported_type(&key);
    let key = key.map_err(|_| {
        "proxies do not accept the key: want RSA of 2048 bits or more, P-256, P-384 or Ed25519"
            .to_owned()
    })?;
    let pair = CertifiedKey::new(chain, key);
    pair.keys_match()
        .map_err(|_| "the key does not match the certificate".to_owned())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use serde_json::{Value, json};

    use super::*;

    fn made() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn read(data: &Value) -> Result<Option<Arc<Credential>>, String> {
        let secret: SecretData = serde_json::from_value(json!({"stringData": data})).unwrap();
        secret.usable()
    }

    #[test]
    fn certificates_that_envoy_refuses_are_reported_and_not_served() {
        let ((chain, key), (other, other_key)) = (made(), made());
        let with = |chain: &str, key: &str| json!({"tls.crt": chain, "tls.key": key});
        let both = format!("text\n{chain}\n{other}");
        let broken =
            format!("{chain}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        for (data, wrong) in [
            (with(&chain, &key), None),
            (with(&both, &key), None),
            (json!({"cert": chain, "key": key, "cacert": other}), None),
            (json!({"ca.crt": both}), None),
            (
                with(&other, &key),
                Some("the key does not match the certificate"),
            ),
            (
                with(&chain, &other_key),
                Some("the key does not match the certificate"),
            ),
            (
                with("x", &key),
                Some("the certificate has no certificate in it"),
            ),
            (
                with(&key, &key),
                Some("the certificate has no certificate in it"),
            ),
            (
                with(&broken, &key),
                Some(
                    "the certificate cannot be read: its CERTIFICATE block 2 is not a certificate",
                ),
            ),
            (
                with(&chain, "x"),
                Some("the key is not a private key in PEM"),
            ),
            (
                with(&chain, &chain),
                Some("the key is not a private key in PEM"),
            ),
            (
                json!({"tls.crt": chain, "tls.key": key, "ca.crt": "x"}),
                Some("the root has no certificate in it"),
            ),
        ] {
            let read = read(&data);
            assert_eq!(read.as_ref().err().map(String::as_str), wrong);
            assert!(wrong.is_some() || read.unwrap().is_some());
        }
        assert_eq!(read(&json!({"password": "x"})), Ok(None));
    }

    #[test]
    fn data_of_an_api_server_is_read_and_nothing_of_it_is_printed() {
        let (chain, key) = made();
        let encoded = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
        let secret = json!({"kind": "Secret", "type": "kubernetes.io/tls", "data": {"tls.crt": encoded(&chain), "tls.key": encoded(&key)}});
        let secret: SecretData = serde_json::from_value(secret).unwrap();
        let printed = format!("{secret:?} {:?}", secret.usable());
        assert!(
            printed.contains("pair: true") && printed.len() < 200,
            "{printed}"
        );
        for none in [
            json!({}),
            json!({"data": null, "stringData": null}),
            json!({"data": {}}),
        ] {
            let secret: SecretData = serde_json::from_value(none).unwrap();
            assert_eq!(secret.usable(), Ok(None));
        }
    }
}
