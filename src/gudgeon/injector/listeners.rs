//! The listeners, bound: HTTPS for the API server, plain HTTP for status pages and metrics.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tracing::info;

use crate::cli::{DebugAccess, InjectorFlags, REVISION, VERSION};
use crate::exit::Failure;
use crate::serve::{Listener, bind, everywhere};
use crate::shared::AdminPort;
use crate::tls;

/// Connections of the webhook at a time.
const MAX_CONNECTIONS: usize = 512;

/// The bound listeners.
pub(super) struct Listeners {
    pub(super) webhook: Listener,
    /// Plain listeners.
    pub(super) admin: Vec<AdminPort>,
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
        let mut admin = Vec::new();
        // A negative port: the listener is off.
        if let Ok(port) = u16::try_from(flags.monitoring_port) {
            let local = DebugAccess::Local;
            admin.push(AdminPort::everywhere("monitoringPort", port, local).await?);
        }
        if let Some(address) = &flags.debug_addr {
            let listener = bind("debugAddr", address).await?;
            admin.push(AdminPort::new(listener, DebugAccess::Open));
        }
        Ok(Self { webhook, admin })
    }

    pub(super) fn announce(&self) {
        let webhook = self.webhook.listener.local_addr();
        let webhook = webhook.map_or_else(|_| "?".to_owned(), |address| address.to_string());
        info!("gudgeon {VERSION} ({REVISION}) injector: listening on https://{webhook}");
        for port in &self.admin {
            match port.access {
                DebugAccess::Local => info!("monitoring on http://{}", port.address()),
                DebugAccess::Open => port.announce(),
            }
        }
    }
}
