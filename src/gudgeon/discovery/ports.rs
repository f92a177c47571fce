//! The listeners, bound before discovery serves: HTTP for administration, gRPC for proxies.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};
use tracing::info;

use crate::cli::{DiscoveryFlags, REVISION, VERSION};
use crate::exit::Failure;
use crate::serve::{bind, reserve};
use crate::shared::AdminPort;

/// The bound listeners.
pub(super) struct Ports {
    pub(super) http: Vec<AdminPort>,
    pub(super) grpc: Option<TcpListener>,
    /// Closed until there are certificates.
    pub(super) secure: Vec<TcpSocket>,
}

impl Ports {
    pub(super) async fn bind(flags: &DiscoveryFlags) -> Result<Self, Failure> {
        let mut http = Vec::new();
        for address in &flags.admin_addresses() {
            http.push(AdminPort::bind(address).await?);
        }
        let grpc = match flags.grpc_addr.as_str() {
            "" => None,
            address => Some(bind("grpcAddr", address).await?),
        };
        let mut secure = Vec::new();
        for address in flags.secure_grpc_addr.split(',').map(str::trim) {
            if !address.is_empty() {
                // A port that is taken fails the start, although it opens only with the certificates.
                secure.push(reserve("secureGrpcAddr", address)?);
            }
        }
        Ok(Self { http, grpc, secure })
    }

    pub(super) fn announce(&self) {
        let at = |address: io::Result<SocketAddr>| {
            address.map_or_else(|_| "?".to_owned(), |address| address.to_string())
        };
        info!("gudgeon {VERSION} ({REVISION}) discovery");
        self.http.iter().for_each(AdminPort::announce);
        if let Some(listener) = &self.grpc {
            info!("listening on grpc://{}", at(listener.local_addr()));
        }
        for socket in &self.secure {
            info!("listening on grpcs://{}", at(socket.local_addr()));
        }
    }
}
