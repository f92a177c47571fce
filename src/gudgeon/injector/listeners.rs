//! The listeners, bound: HTTPS for the API server, plain HTTP for status pages and metrics.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use crate::cli::{InjectorFlags, REVISION, VERSION};
use crate::exit::Failure;
use crate::serve::{Listener, bind, everywhere};
use crate::tls;

/// Connections of the webhook at a time.
const MAX_CONNECTIONS: usize = 512;
/// Connections of each plain listener.
const MAX_MONITORING_CONNECTIONS: usize = 64;
/// The bound listeners.
pub(super) struct Listeners {
    pub(super) webhook: Listener,
    pub(super) monitoring: Option<Listener>,
    pub(super) debug: Option<Listener>,
}

impl Listeners {
    pub(super) async fn bind(
        flags: &InjectorFlags,
        current: Arc<tls::Current>,
    ) -> Result<Self, Failure> {
        let config = tls::server(current)
            .map_err(|cause| Failure::system(format!("cannot set up TLS: {cause}")))?;
        let mut webhook = everywhere("port", flags.port, MAX_CONNECTIONS).await?;
        webhook.tls = Some(TlsAcceptor::from(config));
        let monitoring = match u16::try_from(flags.monitoring_port) {
            Ok(port) => Some(everywhere("monitoringPort", port, MAX_MONITORING_CONNECTIONS).await?),
            Err(_off) => None,
        };
        let debug = match &flags.debug_addr {
            Some(address) => Some(Listener {
                listener: bind("debugAddr", address).await?,
                tls: None,
                max_connections: MAX_MONITORING_CONNECTIONS,
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
        let at = |bound: &Listener| {
            bound
                .listener
                .local_addr()
                .map_or_else(|_| "?".to_owned(), |address| address.to_string())
        };
        info!(
            "gudgeon {VERSION} ({REVISION}) injector: listening on https://{}",
            at(&self.webhook)
        );
        if let Some(bound) = &self.monitoring {
            info!("monitoring on http://{}", at(bound));
        }
        if let Some(bound) = &self.debug {
            warn!(
                "/debug is open to every client: listening on http://{}",
                at(bound)
            );
        }
    }
}
