//! A kept connection: TLS, then HTTP/1.1 or one stream's share of HTTP/2.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{Failure, Sent};

pub(crate) enum Connection {
    Http1(http1::SendRequest<Sent>),
    Http2(http2::SendRequest<Sent>),
}

impl Connection {
    /// Opens so many handles: each a connection, or all of one HTTP/2 connection.
    pub(crate) async fn open(
        address: SocketAddr,
        trust: &[u8],
        count: usize,
        http2: bool,
    ) -> Result<Vec<Self>, Failure> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(trust) {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![if http2 {
            b"h2".to_vec()
        } else {
            b"http/1.1".to_vec()
        }];
        let tls = TlsConnector::from(Arc::new(config));
        let mut open = Vec::with_capacity(count);
        if http2 {
            let io = TokioIo::new(handshake(&tls, address).await?);
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
            tokio::spawn(connection);
            open.resize_with(count, || Self::Http2(sender.clone()));
            return Ok(open);
        }
        for _ in 0..count {
            let io = TokioIo::new(handshake(&tls, address).await?);
            let (sender, connection) = http1::handshake(io).await?;
            tokio::spawn(connection);
            open.push(Self::Http1(sender));
        }
        Ok(open)
    }

    pub(crate) const fn is_http2(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    /// One request, and the whole answer to it.
    pub(crate) async fn ask(
        &mut self,
        request: Request<Sent>,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let answer: Response<Incoming> = match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Self::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        let status = answer.status();
        Ok((status, answer.into_body().collect().await?.to_bytes()))
    }
}

async fn handshake(
    tls: &TlsConnector,
    address: SocketAddr,
) -> Result<TlsStream<TcpStream>, Failure> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(tls
        .connect(ServerName::try_from("localhost")?, stream)
        .await?)
}
