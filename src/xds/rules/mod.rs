//! Rules, applied to Envoy's messages, one file for each kind: pure functions of a message and a rule.
//!
//! ```text
//! resources ── Draft ──► destination_rule (clusters)       ──► finish
//!                    ──► virtual_service  (routes, and what destinations want of them)
//!                    ──► gateway          (servers of routers: who has which port, and how TLS ends)
//!                    ──► authorization_policy (filters of what comes in)
//!                    ──► request_authentication (whose tokens count there)
//!                    ──► peer_authentication  (whether that is mutual TLS)
//!                    ──► envoy_filter         (whatever users patch, last of all)
//! ```
//!
//! [`scope`](crate::scope) says which rules hold for a proxy.

pub(crate) mod authorization_policy;
pub(crate) mod destination_rule;
pub(crate) mod envoy_filter;
pub(crate) mod file_secrets;
pub(crate) mod gateway;
pub(crate) mod peer_authentication;
pub(crate) mod request_authentication;
pub(crate) mod virtual_service;

#[cfg(test)]
mod tests;
