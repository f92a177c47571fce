//! What the page says beside files and decisions: the certificate, and the webhook configurations.

use std::sync::{Mutex, PoisonError};

use cluster::{Handle, Standing};
use serde_json::{Value, json};

use crate::log;
use crate::tls::Pair;

#[derive(Debug, Default)]
pub(crate) struct Status {
    pub(crate) revision: String,
    pub(crate) self_signed: bool,
    tls: Mutex<Value>,
    keeper: Mutex<Option<Handle>>,
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
        let shown = json!({
            "notAfter": log::stamp(pair.not_after),
            "names": pair.names,
            "selfSigned": self.self_signed,
        });
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    }

    pub(crate) fn tls(&self) -> Value {
        self.tls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// By whom the CA bundles are kept.
    pub(crate) fn kept_by(&self, handle: Handle) {
        *self.keeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
    }

    /// How it stands with each webhook configuration.
    pub(crate) fn standings(&self) -> Vec<Standing> {
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        keeper.as_ref().map(Handle::standings).unwrap_or_default()
    }

    pub(crate) fn bundles(&self) -> Value {
        let shown = |standing: &Standing| {
            json!({
                "config": standing.configuration,
                "entries": standing.entries,
                "state": standing.state.as_str(),
                "error": standing.error,
            })
        };
        self.standings().iter().map(shown).collect()
    }
}
