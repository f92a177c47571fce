//! The plain listeners: metrics, readiness, version, and recent decisions.

use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::decision::{InjectionDecision, InjectionDecisions};
use super::engine::ActiveConfiguration;
use super::page;
use super::status::Status;
use super::webhook::Webhook;
use crate::exposition::ExpositionFormat;
use crate::serve::{as_json, full, to_page};
use crate::shared::{AdminRequest, AdminResource, Endpoint, Inspect};

/// The pages of the role.
#[derive(Debug)]
pub(crate) struct InjectorMonitor<E> {
    pub(crate) webhook: Arc<Webhook<E>>,
    pub(crate) status: Arc<Status>,
}

impl<E: ActiveConfiguration> InjectorMonitor<E> {
    /// A copy: reviews wait for the lock.
    fn last_decisions(&self) -> InjectionDecisions {
        let decisions = self.webhook.decisions.lock();
        decisions.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn decisions(&self) -> Value {
        self.last_decisions()
            .newest()
            .map(InjectionDecision::json)
            .collect()
    }

    fn config(&self) -> Value {
        let mut config = self.webhook.served.engine().describe();
        if let Value::Object(config) = &mut config {
            config.insert("revision".to_owned(), json!(self.status.revision));
            config.insert("files".to_owned(), self.webhook.served.report().into());
            config.insert("caBundle".to_owned(), self.status.bundles());
            config.insert("tls".to_owned(), self.status.tls());
        }
        config
    }

    fn draw<T>(&self, draw: impl FnOnce(&page::PageContent<'_>) -> T) -> T {
        let now = SystemTime::now();
        let config = self.config();
        let why_not = self.webhook.readiness.why_not_ready();
        let decisions = self.last_decisions();
        draw(&page::PageContent {
            now,
            why_not,
            config: &config,
            decisions: &decisions,
        })
    }
}

impl<E: ActiveConfiguration> Inspect for InjectorMonitor<E> {
    fn name(&self) -> &'static str {
        "injector"
    }

    fn readiness(&self) -> Result<String, String> {
        match self.webhook.readiness.why_not_ready() {
            None => Ok("ok".to_owned()),
            Some(why) => Err(why),
        }
    }

    fn metrics(&self, format: ExpositionFormat) -> String {
        let metrics = &self.webhook.metrics;
        metrics.set_reconcile_statuses(&self.status.reconcile_statuses());
        metrics.text(format)
    }

    fn sections(&self, page: &mut String) {
        self.draw(|content| page::sections(page, content));
    }

    fn style(&self) -> &'static str {
        page::STYLE
    }
    fn endpoint(self: Arc<Self>, request: &AdminRequest) -> Option<Endpoint> {
        let path = request.path.clone();
        Some(Endpoint::Resource(match &*path {
            "/" => AdminResource::Fixed(to_page()),
            "/ready" => AdminResource::Readiness,
            "/healthz" => AdminResource::Liveness,
            "/metrics" => AdminResource::Metrics,
            "/version" => AdminResource::Version,
            "/debug" | "/debug/" => {
                return Some(Endpoint::document(path, move || {
                    let page = self.draw(page::draw);
                    full(StatusCode::OK, "text/html; charset=utf-8", page.into())
                }));
            }
            "/debug/inject" => {
                return Some(Endpoint::document(path, move || as_json(&self.decisions())));
            }
            "/debug/config" => {
                return Some(Endpoint::document(path, move || as_json(&self.config())));
            }
            _ => return None,
        }))
    }
}
