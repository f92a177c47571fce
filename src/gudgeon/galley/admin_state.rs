//! The parts of the role that pages and metrics read.

use std::sync::Arc;

use prometheus_client::registry::Registry;

use super::engine::GalleyEngine;
use super::metrics::GalleyMetrics;
use super::readiness::Readiness;
use super::webhook::ValidationWebhook;
use crate::exposition::ExpositionFormat;
use crate::file_states::FileStates;
use crate::mcp::Peers;

/// The parts that pages and metrics read.
#[derive(Debug)]
pub(super) struct AdminState {
    /// `None`: no configuration is served.
    pub(super) engine: Option<Arc<GalleyEngine>>,
    pub(super) peers: Arc<Peers>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) registry: Registry,
    pub(super) metrics: Arc<GalleyMetrics>,
    /// Files besides those of the webhook.
    pub(super) files: Arc<FileStates>,
    /// `None`: there is no webhook for rules.
    pub(super) webhook: Option<Arc<ValidationWebhook>>,
    /// The path below which the pages are.
    pub(super) base: &'static str,
}

impl AdminState {
    /// Renders all metrics.
    pub(super) fn text(&self, format: ExpositionFormat) -> String {
        if let Some(webhook) = &self.webhook {
            webhook.count();
        }
        let engine = self.engine.as_deref();
        self.metrics
            .text(&self.registry, engine, &self.files, format)
    }
}
