//! TLS to a server that nobody has to trust: like kubelet, a probe takes any certificate. The certificate's key is not
//! asked to prove itself either: it would prove nothing about a certificate that anybody may have made, and old or odd
//! certificates (X.509 version 1, a key of a kind that our provider does not know) would fail for nothing.

#![forbid(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::deadline::Deadline;
use crate::failure::Failure;

/// The protocols that we speak: HTTP/1.1 first, as pilot-agent did, and HTTP/2 for a server that prefers it or has nothing
/// else.
const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// The two versions of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

/// An encrypted connection, and what is spoken in it.
#[derive(Debug)]
pub(crate) struct Encrypted {
    pub(crate) stream: Lenient,
    pub(crate) version: Version,
}

/// Negotiates TLS; `host` is named to the server if it is a name.
pub(crate) async fn negotiate(
    stream: TcpStream,
    (address, host): (SocketAddr, &str),
    deadline: Deadline,
) -> Result<Encrypted, Failure> {
    let step = format!("negotiate TLS with {address}");
    let config = config().map_err(|error| Failure::of(&step, &error))?;
    let name = match ServerName::try_from(host.to_owned()) {
        Ok(name @ ServerName::DnsName(_)) => name,
        // Of an IP address nothing is sent (RFC 6066 §3).
        _ => ServerName::from(address.ip()),
    };
    let connector = TlsConnector::from(Arc::new(config));
    let stream = deadline.run(&step, connector.connect(name, stream)).await?;
    let version = match stream.get_ref().1.alpn_protocol() {
        Some(HTTP2) => Version::Http2,
        // A server without ALPN is older than HTTP/2.
        _ => Version::Http1,
    };
    Ok(Encrypted {
        stream: Lenient(stream),
        version,
    })
}

fn config() -> Result<ClientConfig, Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider()?))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer))
        .with_no_client_auth();
    config.alpn_protocols = vec![HTTP1.to_vec(), HTTP2.to_vec()];
    // There is no second connection.
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Runs on every processor, and needs a C compiler: on `x86_64` there is one wherever Rust is.
#[cfg(target_arch = "x86_64")]
#[expect(clippy::unnecessary_wraps, reason = "the other provider may refuse")]
fn provider() -> Result<CryptoProvider, Error> {
    Ok(rustls::crypto::ring::default_provider())
}

/// Needs no C compiler, and a processor with AES and SHA-2: it would panic without.
#[cfg(not(target_arch = "x86_64"))]
fn provider() -> Result<CryptoProvider, Error> {
    let able = ["aes", "pmull", "sha2"];
    let able = able.into_iter().zip([
        std::arch::is_aarch64_feature_detected!("aes"),
        std::arch::is_aarch64_feature_detected!("pmull"),
        std::arch::is_aarch64_feature_detected!("sha2"),
    ]);
    for (feature, present) in able {
        if !present {
            return Err(Error::General(format!("this processor has no {feature}")));
        }
    }
    Ok(rustls_graviola::default_provider())
}

/// Takes every certificate.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        // All there are: what is not verified needs no support.
        vec![
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ECDSA_NISTP384_SHA384,
            SignatureScheme::ECDSA_NISTP521_SHA512,
            SignatureScheme::ED25519,
            SignatureScheme::ED448,
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PSS_SHA384,
            SignatureScheme::RSA_PSS_SHA512,
            SignatureScheme::RSA_PKCS1_SHA256,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::RSA_PKCS1_SHA512,
            SignatureScheme::ECDSA_SHA1_Legacy,
            SignatureScheme::RSA_PKCS1_SHA1,
        ]
    }
}

/// A stream whose end need not be announced: many servers close without TLS's `close_notify`. Where HTTP says how long a
/// body is, a cut one is noticed all the same.
#[derive(Debug)]
pub(crate) struct Lenient(TlsStream<TcpStream>);

impl AsyncRead for Lenient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.0).poll_read(cx, buffer)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            read => Poll::Ready(read),
        }
    }
}

impl AsyncWrite for Lenient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
