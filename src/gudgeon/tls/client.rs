//! TLS towards a server: verification of its identity, and the client certificate.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::SingleCertAndKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::pair::{Pair, names_of};

/// The trust in a server, and the identity that is shown to it.
#[derive(Debug)]
pub(crate) struct Secure {
    /// CAs to which the server's certificate must chain; `None`: any certificate is accepted.
    pub(crate) roots: Option<RootCertStore>,
    /// Names of which the server's certificate must have one; empty: the dialled name.
    pub(crate) names: Vec<String>,
    pub(crate) pair: Option<Pair>,
}

/// TLS 1.2 or newer, HTTP/2.
///
/// # Errors
/// The set of roots is empty.
pub(crate) fn client(secure: Secure) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let roots = secure.roots.map(Arc::new);
    let usual = match &roots {
        Some(roots) => Some(
            WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(&provider))
                .build()
                .map_err(|cause| cause.to_string())?,
        ),
        None => None,
    };
    let verifier = Verifier {
        provider: Arc::clone(&provider),
        roots,
        usual,
        names: secure.names,
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|cause| cause.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match secure.pair {
        Some(pair) => {
            let resolver = SingleCertAndKey::from((*pair.key).clone());
            builder.with_client_cert_resolver(Arc::new(resolver))
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    // Each connection has a configuration of its own, in which no earlier session could be found.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    roots: Option<Arc<RootCertStore>>,
    usual: Option<Arc<WebPkiServerVerifier>>,
    names: Vec<String>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let (Some(roots), Some(usual)) = (&self.roots, &self.usual) else {
            return Ok(ServerCertVerified::assertion());
        };
        if self.names.is_empty() {
            return usual.verify_server_cert(leaf, between, name, stapled, now);
        }
        // The dialled name does not count here: the certificate needs one of `names`.
        let parsed = ParsedCertificate::try_from(leaf)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, roots, between, now, algorithms)?;
        if names_of(leaf).iter().any(|name| self.names.contains(name)) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::InvalidCertificate(CertificateError::NotValidForName))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, leaf, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, leaf, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
