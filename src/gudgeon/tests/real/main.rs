//! The built program as the webhook of a real API server. `build/kube-test` starts one and runs these; without it they are
//! ignored.
//!
//! Kubernetes 1.20 with RBAC on. What it does not know (native sidecars, gRPC probes) it drops before anybody is asked: that is
//! shown without it.

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
mod cases;
mod coming;
mod goldens;
mod keeping;
mod second;
mod server;
#[path = "../support/mod.rs"]
mod support;
