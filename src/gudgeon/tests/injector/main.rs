//! The program as the injector and as a command: over TLS, with its files, with manifests, at its limits.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test may panic, starts programs and reads files"
)]
#![forbid(unsafe_code)]

mod analyze;
mod builtin;
mod cluster;
mod coming;
mod commands;
mod hostile;
mod https;
mod kinds;
mod large;
mod life;
mod manifests;
mod reload;
mod secrets;
mod start;
#[path = "../support/mod.rs"]
mod support;
mod surroundings;
mod validate;
