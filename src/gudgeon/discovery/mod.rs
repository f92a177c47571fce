//! Discovery: services and rules from registries and files, resources for proxies over xDS.
//!
//! ```text
//!  sources, mesh ──► hub ──► session ◄── ads_protocol ◄── ads_stream ◄── grpc
//!                     ▲         ▲         (one task for each stream, in grpc's loop)
//!                     └── monitor, debug ─┘
//! ```
//!
//! Keys that tokens are signed with come from issuers (`jwks`), whom no push waits for.
//!
//! The crate `xds` decides what a stream is owed; here are sockets, tasks and clocks. The hub alone knows all streams, and puts a
//! pending push into each; no stream waits for another one's client.

mod ads_protocol;
mod ads_stream;
mod certificates;
mod conflict_log;
mod debug;
mod destination_rule_index;
mod encoded_pieces;
mod gauges;
mod grpc;
mod health;
mod hub;
mod identity;
mod jwks;
mod jwks_loop;
mod kinds;
mod log_rate_limiters;
mod logged_conflicts;
mod mesh;
mod mesh_fields;
mod metrics;
mod monitor;
mod object_status;
mod options;
mod ports;
mod proxy_status;
mod push_record;
mod readiness;
mod reflection;
mod refused_streams;
mod request;
mod request_reader;
mod rules_without_effect;
mod session;
mod source_facts;
mod sources;
mod start;
#[cfg(test)]
mod testing;
mod wire;

pub(crate) use proxy_status::proxy_status;
pub(crate) use request::request;
pub(crate) use start::Discovery;
