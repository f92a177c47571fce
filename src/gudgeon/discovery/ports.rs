//! The listeners, bound before discovery serves: HTTP for administration, gRPC for proxies.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};
use tracing::{info, warn};

use crate::cli::{DiscoveryFlags, REVISION, VERSION};
use crate::exit::Failure;
use crate::serve::{Listener, bind, reserve};

/// Connections of each plain listener at a time.
const MAX_CONNECTIONS: usize = 64;

/// The bound listeners.
pub(super) struct Ports {
    /// HTTP listeners; true if every client may read `/debug` there.
    pub(super) http: Vec<(Listener, bool)>,
    pub(super) grpc: Option<TcpListener>,
    /// Closed until there are certificates.
    pub(super) secure: Vec<TcpSocket>,
}

impl Ports {
    pub(super) async fn bind(flags: &DiscoveryFlags) -> Result<Self, Failure> {
        let mut http = Vec::new();
        let plain = [
            ("httpAddr", Some(&flags.http_addr), false),
            ("monitoringAddr", Some(&flags.monitoring_addr), false),
            ("debugAddr", flags.debug_addr.as_ref(), true),
        ];
        for (flag, address, open) in plain {
            let Some(address) = address.filter(|address| !address.is_empty()) else {
                continue;
            };
            let listener = bind(flag, address).await?;
            let bound = Listener {
                listener,
                tls: None,
                max_connections: MAX_CONNECTIONS,
            };
            http.push((bound, open));
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
        for (bound, open) in &self.http {
            let address = at(bound.listener.local_addr());
            if *open {
                warn!("/debug is open to every client: listening on http://{address}");
            } else {
                info!("listening on http://{address}");
            }
        }
        if let Some(listener) = &self.grpc {
            info!("listening on grpc://{}", at(listener.local_addr()));
        }
        for socket in &self.secure {
            info!("listening on grpcs://{}", at(socket.local_addr()));
        }
    }
}
