//! The certificate and the webhook configurations, for the status page.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use sources::reconcile::{ReconcileStatus, ReconcilerHandle};

use super::metrics::InjectorMetrics;
use super::readiness::InjectorReadiness;
use crate::log;
use crate::tls::{Current, Pair};

#[derive(Debug, Default)]
pub(crate) struct Status {
    pub(crate) revision: String,
    pub(crate) self_signed: bool,
    tls: Mutex<Value>,
    reconciler: Mutex<Option<ReconcilerHandle>>,
}

impl Status {
    pub(crate) fn new(revision: String, self_signed: bool) -> Self {
        Self {
            revision,
            self_signed,
            ..Self::default()
        }
    }

    /// The certificate that is served now.
    pub(crate) fn serves(&self, pair: &Pair) {
        let document = json!({
            "notAfter": log::stamp(pair.not_after),
            "names": pair.names,
            "selfSigned": self.self_signed,
        });
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = document;
    }

    pub(crate) fn tls(&self) -> Value {
        self.tls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Sets the reconciler of the CA bundles.
    pub(crate) fn set_reconciler(&self, handle: ReconcilerHandle) {
        *self
            .reconciler
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(handle);
    }

    /// Returns the status of each webhook configuration.
    pub(crate) fn reconcile_statuses(&self) -> Vec<ReconcileStatus> {
        let reconciler = self
            .reconciler
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        reconciler
            .as_ref()
            .map(ReconcilerHandle::statuses)
            .unwrap_or_default()
    }

    pub(crate) fn bundles(&self) -> Value {
        let document = |standing: &ReconcileStatus| {
            json!({
                "config": standing.configuration,
                "entries": standing.entries,
                "state": standing.state.as_str(),
                "error": standing.error,
            })
        };
        self.reconcile_statuses().iter().map(document).collect()
    }
}

/// The places that have to know a new certificate.
#[derive(Clone, Debug)]
pub(super) struct CertificateObservers {
    pub(super) tls: Arc<Current>,
    pub(super) metrics: Arc<InjectorMetrics>,
    pub(super) status: Arc<Status>,
    pub(super) readiness: Arc<InjectorReadiness>,
}

impl CertificateObservers {
    pub(super) fn serve(&self, pair: &Pair) {
        self.tls.set(pair);
        self.emit(pair);
    }

    /// Reports the pair that is served to metrics, status and readiness.
    pub(super) fn emit(&self, pair: &Pair) {
        self.metrics.serves_until(pair.not_after);
        self.status.serves(pair);
        self.readiness.ends(pair.not_after);
    }
}
