//! The built program as the webhook of a real API server, and discovery with that server and a real Consul as its sources.
//! `build/kube-test` starts them and runs these; without it they are ignored.
//!
//! Kubernetes 1.20 with RBAC on. It drops fields that it does not know (native sidecars, gRPC probes) before it calls
//! webhooks: those are tested without it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test may panic, wait and say what it left out"
)]
#![forbid(unsafe_code)]

mod admission;
mod analyzed;
mod cases;
mod coming;
mod discovery;
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "galley's own tests use the rest"
)]
#[path = "../galley/place.rs"]
mod galley_place;
mod goldens;
mod keeping;
mod many;
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "discovery's own tests use the rest"
)]
#[path = "../discovery/place.rs"]
mod place;
mod role;
mod second;
mod served;
mod server;
mod shipped;
mod statuses;
#[path = "../support/mod.rs"]
mod support;
mod webhook;
