//! Galley: the validating webhook, and configuration over MCP.
//!
//! ```text
//!  sources, mesh ──► engine (session ──► processing ──► publisher) ──► snapshots
//!                       ▲
//!                       └── monitor: configz, page, metrics        readiness ──► probes
//! ```
//!
//! The engine's only output is its snapshots: it does not know their readers. Readiness is the sum of its parts: each part
//! reports what it waits for.

mod admin_state;
mod configz;
mod engine;
mod gauges;
mod generated;
mod mesh;
mod metrics;
mod monitor;
mod options;
mod page;
mod peers;
mod pending;
mod probes;
mod processing;
mod readiness;
mod sources;
mod start;
mod state_snapshot;
mod streams;
mod synthetic;
mod webhook;

pub(crate) use start::Galley;
