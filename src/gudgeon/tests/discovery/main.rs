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
mod calls;
mod client;
mod clusters;
mod commands;
mod defaults;
mod edge;
mod effectless;
mod environment;
mod faults;
mod figures;
mod galley;
mod hostile_tenants;
mod issuer;
mod jwks;
mod limits;
mod links;
mod own;
mod pages;
mod place;
mod recipes;
#[path = "../envoy/relay.rs"]
mod relay;
mod reports;
mod scopes;
mod secrets;
mod shipped;
mod shutdown;
mod sinks;
mod streams;
mod subsets;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/mcp.rs"]
mod talk;
mod tls;
mod together;
mod unserved;
mod variables;
