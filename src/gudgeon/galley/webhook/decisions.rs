//! The last decisions, for the page. No object is in them, and no secret of one.

use std::time::{Duration, SystemTime};

use api::text::cut;
use serde_json::{Value, json};

use crate::admission::{AdmissionRequest, MESSAGE_BYTES, Recent, TEXT_BYTES, micros};
use crate::log;

use super::check::ValidationOutcome;

#[derive(Clone, Debug)]
pub(crate) struct ValidationDecision {
    pub(crate) time: SystemTime,
    pub(crate) uid: String,
    pub(crate) operation: String,
    /// `networking.istio.io/v1 VirtualService`.
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) dry_run: bool,
    pub(crate) allowed: bool,
    /// The reason; empty if the object is valid.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) warnings: usize,
    pub(crate) took: Duration,
}

impl ValidationDecision {
    pub(super) fn new(
        request: &AdmissionRequest,
        outcome: &ValidationOutcome,
        took: Duration,
    ) -> Self {
        let field = |path: &str| {
            let text = request.object.pointer(path).and_then(Value::as_str);
            text.filter(|text| !text.is_empty())
        };
        let short = |text: &str| cut(text, TEXT_BYTES).to_owned();
        let kind = match (field("/apiVersion"), field("/kind")) {
            (Some(version), Some(kind)) => format!("{} {}", short(version), short(kind)),
            _ => {
                let asked = &request.object_kind;
                let (group, version) = (short(&asked.group), short(&asked.version));
                format!("{group}/{version} {}", short(&asked.name))
            }
        };
        let name = match (field("/metadata/name"), field("/metadata/generateName")) {
            (Some(name), _) => short(name),
            (None, Some(begin)) => format!("{}*****", short(begin)),
            (None, None) => short(&request.name),
        };
        let namespace = field("/metadata/namespace").unwrap_or(&request.namespace);
        Self {
            time: SystemTime::now(),
            uid: short(&request.uid),
            operation: short(&request.operation),
            kind,
            namespace: short(namespace),
            name,
            dry_run: request.dry_run,
            allowed: outcome.is_allowed(),
            reason: outcome.reason.map_or("", super::check::Reason::as_str),
            message: cut(&outcome.log_message, MESSAGE_BYTES).to_owned(),
            warnings: outcome.warnings.len(),
            took,
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "time": log::stamp(self.time),
            "uid": self.uid,
            "operation": self.operation,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "dryRun": self.dry_run,
            "allowed": self.allowed,
            "reason": self.reason,
            "message": self.message,
            "warnings": self.warnings,
            "micros": micros(self.took),
        })
    }
}

/// Decisions that are remembered.
pub(crate) type ValidationDecisions = Recent<ValidationDecision, 100>;
