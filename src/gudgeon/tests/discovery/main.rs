//! The program as discovery: what its streams carry, what it shows, how it ends.

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

#[path = "../support/authority.rs"]
mod authority;
mod client;
mod commands;
mod faults;
mod galley;
mod limits;
mod links;
mod looks;
mod place;
mod sinks;
mod streams;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/mcp.rs"]
mod talk;
mod tls;
