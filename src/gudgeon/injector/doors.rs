//! The listeners, bound: HTTPS for the API server, plain HTTP for whoever looks in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use crate::cli::{InjectorFlags, REVISION, VERSION};
use crate::exit::Failure;
use crate::serve::{Door, bind};
use crate::tls;

/// Connections of the webhook at a time.
const PLACES: usize = 512;
/// Of each plain listener.
const MONITORING_PLACES: usize = 64;
/// The bound listeners.
pub(super) struct Doors {
    pub(super) webhook: Door,
    pub(super) monitoring: Option<Door>,
    pub(super) debug: Option<Door>,
}

impl Doors {
    pub(super) async fn bind(
        flags: &InjectorFlags,
        current: Arc<tls::Current>,
    ) -> Result<Self, Failure> {
        let config = tls::server(current)
            .map_err(|cause| Failure::system(format!("cannot set up TLS: {cause}")))?;
        let mut webhook = everywhere("port", flags.port, PLACES).await?;
        webhook.tls = Some(TlsAcceptor::from(config));
        let monitoring = match u16::try_from(flags.monitoring_port) {
            Ok(port) => Some(everywhere("monitoringPort", port, MONITORING_PLACES).await?),
            Err(_off) => None,
        };
        let debug = match &flags.debug_addr {
            Some(address) => Some(Door {
                listener: bind("debugAddr", address).await?,
                tls: None,
                places: MONITORING_PLACES,
            }),
            None => None,
        };
        Ok(Self {
            webhook,
            monitoring,
            debug,
        })
    }

    pub(super) fn announce(&self) {
        let at = |door: &Door| {
            door.listener
                .local_addr()
                .map_or_else(|_| "?".to_owned(), |address| address.to_string())
        };
        info!(
            "gudgeon {VERSION} ({REVISION}) injector: listening on https://{}",
            at(&self.webhook)
        );
        if let Some(door) = &self.monitoring {
            info!("monitoring on http://{}", at(door));
        }
        if let Some(door) = &self.debug {
            warn!("anybody who reaches http://{} may read /debug", at(door));
        }
    }
}

/// A port on all addresses, of both kinds where the host has both.
async fn everywhere(flag: &str, port: u16, places: usize) -> Result<Door, Failure> {
    let six = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
    let four = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
    let bound = match TcpListener::bind(six).await {
        // A host without IPv6.
        Err(cause) if matches!(cause.raw_os_error(), Some(97 | 99)) => {
            TcpListener::bind(four).await
        }
        bound => bound,
    };
    let listener = bound
        .map_err(|cause| Failure::system(format!("cannot listen on --{flag} {port}: {cause}")))?;
    Ok(Door {
        listener,
        tls: None,
        places,
    })
}
