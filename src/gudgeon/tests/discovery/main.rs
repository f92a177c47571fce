//! The program as discovery: its streams, its pages, its shutdown.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::too_many_lines,
    dead_code,
    unreachable_pub,
    reason = "a test may panic, starts programs and reads files"
)]
#![forbid(unsafe_code)]

mod apiserver;
#[path = "../support/authority.rs"]
mod authority;
mod client;
mod clusters;
mod commands;
mod edge;
mod farewell;
mod faults;
mod figures;
mod galley;
mod hostile_tenants;
mod inert;
mod issuer;
mod jwks;
mod limits;
mod links;
mod looks;
mod own;
mod place;
mod recipes;
#[path = "../envoy/relay.rs"]
mod relay;
mod scopes;
mod secrets;
mod shipped;
mod sinks;
mod streams;
mod subsets;
#[path = "../support/mod.rs"]
mod support;
mod surroundings;
#[path = "../support/mcp.rs"]
mod talk;
mod tls;
mod together;
mod told;
mod unserved;
mod variables;
