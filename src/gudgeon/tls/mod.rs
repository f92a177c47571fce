//! TLS of the webhook: a certificate that can be exchanged while connections go on, from files or made in memory.

mod client;
pub(crate) mod expiry;
mod files;
mod own;
mod pair;
mod renew;

use std::sync::{Arc, Mutex, PoisonError};

use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};

pub(crate) use client::{Secure, client};
#[cfg(test)]
pub(crate) use files::HALF_WAY;
pub(crate) use files::{BundleFile, BundleRead, PairFiles, utf8};
pub(crate) use own::{Authority, LeafNames, Publication};
pub(crate) use pair::{Pair, PairError, certificates, is_bundle, names_of, uris_of};
pub(crate) use renew::renew;

/// The certificate of the next handshake. Open connections keep theirs.
#[derive(Debug)]
pub(crate) struct Current(Mutex<Option<Arc<CertifiedKey>>>);

impl Current {
    /// Creates an empty slot: handshakes fail until there is a pair.
    pub(crate) fn empty() -> Arc<Self> {
        Arc::new(Self(Mutex::new(None)))
    }

    pub(crate) fn new(pair: &Pair) -> Arc<Self> {
        let this = Self::empty();
        this.set(pair);
        this
    }

    pub(crate) fn set(&self, pair: &Pair) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&pair.key));
    }

    fn get(&self) -> Option<Arc<CertifiedKey>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.get()
    }
}

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, no client certificates, and no resumption: each handshake shows the certificate
/// that is current, and no session takes memory.
///
/// # Errors
/// None but a mistake in this build: the provider lacks a version of TLS.
pub(crate) fn server(current: Arc<Current>) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(current);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The roots of peers' certificates.
///
/// # Errors
/// The error in the file.
pub(crate) fn roots(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for root in certificates(pem)? {
        roots.add(root).map_err(|cause| cause.to_string())?;
    }
    Ok(roots)
}

/// HTTP/2 with this pair, for clients whose certificates chain to one of the roots.
///
/// # Errors
/// The error in the roots.
pub(crate) fn server_of_clients(
    pair: &Pair,
    roots: RootCertStore,
) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|cause| cause.to_string())?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|cause| cause.to_string())?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Current::new(pair));
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
