//! The rules for objects beyond their types: one file for each kind, over places (`at`) and predicates that they share.
//!
//! Rules look at what was written, in canonical JSON: names of fields in camelCase, enums by name, durations in seconds.
//! All that is wrong is said, not only the first of it. Each costs time in proportion to the object.

pub(crate) mod access_log;
mod at;
mod authentication;
mod authorization;
mod client_tls;
mod context;
mod destination_rule;
mod envoy_filter;
mod gateway;
mod hosts;
mod http_action;
mod http_headers;
mod http_route;
mod locality;
pub(crate) mod mesh;
mod mixer;
mod parts;
mod pool;
mod predicates;
mod rbac;
mod regex;
mod security;
mod server_tls;
mod service_entry;
mod sidecar;
mod unicode;
mod virtual_service;
mod workload_entry;

use serde_json::Value;

use super::Object;
use crate::finding::Finding;
use at::Out;
use context::Context;
pub use gateway::served_host;
pub(super) use server_tls::is_cipher_suite;

type Rule = fn(&Context<'_>);

/// A kind without a row is checked by its types alone.
const RULES: [(&str, Rule); 20] = [
    ("VirtualService", virtual_service::check),
    ("DestinationRule", destination_rule::check),
    ("Gateway", gateway::check),
    ("ServiceEntry", service_entry::check),
    ("WorkloadEntry", workload_entry::check),
    ("Sidecar", sidecar::check),
    ("EnvoyFilter", envoy_filter::check),
    ("AuthorizationPolicy", authorization::check),
    ("PeerAuthentication", security::peer),
    ("RequestAuthentication", security::request),
    ("Policy", authentication::policy),
    ("MeshPolicy", authentication::mesh_policy),
    ("ServiceRole", rbac::role),
    ("ServiceRoleBinding", rbac::binding),
    ("RbacConfig", rbac::old_config),
    ("ClusterRbacConfig", rbac::config),
    ("HTTPAPISpec", mixer::api),
    ("HTTPAPISpecBinding", mixer::api_binding),
    ("QuotaSpec", mixer::quota),
    ("QuotaSpecBinding", mixer::quota_binding),
];

/// Checks an object by the rules of its kind: findings in no particular order, and none about values that could not be read.
#[must_use]
pub fn check(object: &Object) -> Vec<Finding> {
    check_rule(
        object.kind.kind,
        &object.namespace,
        &object.name,
        &object.spec,
    )
}

fn check_rule(kind: &str, namespace: &str, name: &str, spec: &Value) -> Vec<Finding> {
    let out = Out::default();
    if let Some((_, rule)) = RULES.iter().find(|(known, _)| *known == kind) {
        rule(&Context::new(namespace, name, spec, &out));
    }
    out.into_findings()
}

#[cfg(test)]
mod tests;
