//! `gudgeon analyze`: what objects say of each other, and what is not there: of files, and of a cluster
//! as its API server has it.
//!
//! ```text
//! -f ── named_files, cluster ──► objects ──► inventory ──► analyzers ──► messages ── report ──► stdout
//! ```
//!
//! Each object by itself is judged by `api::config`, with the words of `validate`; what is found here is about two and more. The codes
//! are those of `istioctl analyze` where it has one for the same thing.

mod analyzers;
mod audience;
mod claims;
mod cluster;
mod codes;
mod command;
mod destination_rule_idle_policies;
mod destination_rules;
mod duplicates;
mod envoy_filters;
mod gateway_ports;
mod gateway_server;
mod gateways;
mod ingresses;
mod inventory;
mod mesh;
mod messages;
mod objects;
mod peer_authentications;
mod ports;
mod references;
mod report;
mod running_proxy;
mod secrets;
mod server_index;
mod sidecars;
mod suppressed;
#[cfg(test)]
mod tests;
mod user_id;
mod virtual_service_hosts;
mod virtual_service_idle_routes;
mod workload_index;
mod workloads;

pub(crate) use command::{analyze, run};
pub(crate) use messages::Located;
