//! The rules for objects beyond their types: one file for each kind, over places (`at`) and predicates that they share.
//!
//! Rules read canonical JSON: names of fields in camelCase, enums by name, durations in seconds. They report all findings, not
//! only the first one. Each takes time in proportion to the object.

pub(crate) mod access_log;
mod address;
pub(super) mod authentication;
pub(super) mod authorization;
mod client_tls;
mod context;
mod cursor;
pub(super) mod destination_rule;
pub(super) mod envoy_filter;
mod extension_providers;
pub(super) mod gateway;
mod hosts;
mod http_action;
mod http_headers;
mod http_route;
mod locality;
pub(crate) mod mesh;
pub(super) mod mixer;
mod parts;
mod pool;
mod predicates;
pub(super) mod rbac;
pub(super) mod regex;
pub(super) mod security;
mod server_tls;
pub(super) mod service_entry;
pub(super) mod sidecar;
mod stat_name;
mod unicode;
pub(super) mod virtual_service;
pub(super) mod workload_entry;

use serde_json::Value;

use crate::finding::Finding;
pub use address::is_agent_address;
use context::Context;
use cursor::FindingCollector;
pub use gateway::served_host;
pub(super) use server_tls::is_cipher_suite;

/// The rules of one kind.
pub(super) type Rule = fn(&Context<'_>);

/// Checks a spec by the rules of a kind: findings in no particular order, and none about values that could not be read.
pub(super) fn check(rule: Rule, namespace: &str, name: &str, spec: &Value) -> Vec<Finding> {
    let out = FindingCollector::default();
    rule(&Context::new(namespace, name, spec, &out));
    out.into_findings()
}

#[cfg(test)]
mod tests;
