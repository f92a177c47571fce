//! The validating webhook for rules.
//!
//! ```text
//! API server ── service ── check ──► the answer, decisions for the page, metrics
//!                  │
//!             certificate (files, or made here) ──► CA ──► reconcile ──► the webhook configuration
//! ```

mod certificate;
mod check;
mod decisions;
mod metrics;
mod page;
mod reconcile;
mod service;

use std::sync::Arc;

use prometheus_client::registry::Registry;
use sources::reconcile::{ReconcileStatus, ReconcilerHandle};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tracing::info;

use super::readiness::Readiness;
use crate::cli::GalleyFlags;
use crate::exit::Failure;
use crate::file_states::FileMetrics;
use crate::serve::{Listener, everywhere};
use crate::shared::Shared;
use crate::tls;

use certificate::Certificate;
use metrics::WebhookMetrics;
use reconcile::Reconciliation;
pub(super) use service::Reviews;

/// Connections at a time.
const MAX_CONNECTIONS: usize = 512;

/// The webhook as others see it.
#[derive(Debug)]
pub(super) struct ValidationWebhook {
    pub(super) reviews: Arc<Reviews>,
    /// `None`: no webhook configuration is kept.
    reconciler: Option<ReconcilerHandle>,
}

/// A webhook whose configuration is not reconciled yet.
pub(super) struct PreparedWebhook {
    webhook: Arc<ValidationWebhook>,
    /// `None`: the process has one listener for all webhooks.
    listener: Option<Listener>,
    reconciliation: Option<Reconciliation>,
}

impl PreparedWebhook {
    fn new(
        reviews: Arc<Reviews>,
        listener: Option<Listener>,
        reconciler: Option<(Reconciliation, ReconcilerHandle)>,
    ) -> Self {
        let (reconciliation, reconciler) = reconciler.unzip();
        Self {
            webhook: Arc::new(ValidationWebhook {
                reviews,
                reconciler,
            }),
            listener,
            reconciliation,
        }
    }

    /// Starts to reconcile the webhook configuration.
    pub(super) fn reconcile(
        self,
        loops: &mut JoinSet<()>,
    ) -> (Arc<ValidationWebhook>, Option<Listener>) {
        if let Some(reconciliation) = self.reconciliation {
            loops.spawn(reconciliation.run());
        }
        (self.webhook, self.listener)
    }
}

impl ValidationWebhook {
    /// Prepares the webhook: its listener, unless the process has one for all webhooks, and the watches of files.
    ///
    /// # Errors
    /// The flags contradict each other, or the port is taken.
    pub(super) async fn prepare(
        shared: &Shared,
        flags: &GalleyFlags,
        readiness: &Arc<Readiness>,
        registry: &mut Registry,
        files: FileMetrics,
        loops: &mut JoinSet<()>,
    ) -> Result<PreparedWebhook, Failure> {
        let clusters = shared.clusters();
        if let Some(shared) = shared.webhooks().filter(|_| flags.webhook.port.is_none()) {
            let metrics = WebhookMetrics::new(registry, files);
            let reconciler = reconcile::prepare(clusters, flags, &shared.into(), &metrics, loops)?;
            let reviews = Reviews::new(api::config::check, reconcile::service(flags), metrics);
            return Ok(PreparedWebhook::new(Arc::new(reviews), None, reconciler));
        }
        let certificate = Certificate::new(flags)?;
        let config = tls::server(Arc::clone(&certificate.current))
            .map_err(|cause| Failure::system(format!("cannot set up TLS: {cause}")))?;
        let mut bound =
            everywhere("validation-port", flags.webhook.port(), MAX_CONNECTIONS).await?;
        bound.tls = Some(TlsAcceptor::from(config));
        let metrics = WebhookMetrics::new(registry, files);
        let reconciler = reconcile::prepare(clusters, flags, &certificate.ca, &metrics, loops)?;
        let reviews = Reviews::new(api::config::check, reconcile::service(flags), metrics);
        let reviews = Arc::new(reviews);
        certificate.run_reload_loop(Arc::clone(&reviews), Arc::clone(readiness), loops);
        let address = bound.listener.local_addr();
        let address = address.map_or_else(|_| "?".to_owned(), |address| address.to_string());
        info!("validation on https://{address}");
        Ok(PreparedWebhook::new(reviews, Some(bound), reconciler))
    }

    /// Returns the status of the webhook configuration, if it is reconciled.
    fn reconcile_status(&self) -> Option<ReconcileStatus> {
        self.reconciler.as_ref()?.statuses().pop()
    }

    /// Returns the reason why the failure policy is still `Ignore`, after the time for it has passed.
    pub(super) fn overdue(&self) -> Option<String> {
        let status = self.reconcile_status().filter(|status| status.overdue)?;
        let waits = status.waits.unwrap_or_default();
        let name = status.configuration;
        Some(format!(
            "webhook: failurePolicy of {name} is still Ignore: {waits}"
        ))
    }

    /// Copies the counters that are kept elsewhere.
    pub(super) fn count(&self) {
        if let Some(standing) = self.reconcile_status() {
            self.reviews.metrics.show(&standing);
        }
    }
}
