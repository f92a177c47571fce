//! Discovery: services and rules from registries and files, resources for proxies over xDS.
//!
//! ```text
//!  sources, mesh ──► hub ──► session ◄── conversation ◄── grpc
//!                     ▲         ▲         (one task for each stream)
//!                     └── monitor, page ──┘
//! ```
//!
//! Keys that tokens are signed with come from issuers (`jwks`), whom no push waits for.
//!
//! What a stream is owed is decided in `xds`; here are sockets, tasks and clocks. The hub alone knows all streams, and puts
//! its mail into each; nobody waits for anybody's client.

mod certificates;
mod conversation;
mod debug;
mod facts;
mod grpc;
mod health;
mod hub;
mod identity;
mod inert;
mod jwks;
mod kinds;
mod lines;
mod mesh;
mod metrics;
mod monitor;
mod options;
mod page;
mod pieces;
mod ports;
mod proxy_status;
mod pushed;
mod reflection;
mod refused;
mod request;
mod session;
mod sight;
mod sources;
mod start;
#[cfg(test)]
mod testing;
mod told_conflicts;
mod wire;

pub(crate) use proxy_status::proxy_status;
pub(crate) use request::request;
pub(crate) use start::Discovery;
