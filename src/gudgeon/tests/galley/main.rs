//! The program as galley, over a directory: served and refused objects, pages, start and shutdown.

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

#[path = "../support/mcp.rs"]
#[allow(dead_code, reason = "the library's tests have it, too")]
mod client;
mod crowded;
mod environment;
mod files;
mod life;
mod mesh;
mod pages;
mod place;
mod rules;
mod slow;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod webhook;
