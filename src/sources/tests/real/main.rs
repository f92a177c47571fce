//! Tests with a real API server. `build/kube-test` starts one and runs these; without it they are ignored.
//!
//! Kubernetes 1.20: a conflict at the right moment, silence, and features newer than 1.20 are tested with the fake of the
//! unit tests instead. `recording` shows that the fake answers as this server does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod configuration;
mod consul;
mod manifest;
mod objects;
mod reconciler;
mod recording;
mod registry;
mod rows;
mod selectors;
mod support;
