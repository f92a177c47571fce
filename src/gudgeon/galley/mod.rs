//! Galley: configuration is checked at the door and served to whoever needs it.
//!
//! ```text
//!  sources, mesh ──► engine (session ──► processing ──► publisher) ──► snapshots
//!                       ▲
//!                       └── monitor: configz, page, metrics        readiness ──► probes
//! ```
//!
//! What is served is known by its snapshots alone: who takes them, and how, is no business of the engine. What is ready is
//! known by its parts: each says for itself what it waits for.

mod configz;
mod engine;
mod mesh;
mod metrics;
mod moment;
mod monitor;
mod options;
mod page;
mod peers;
mod probes;
mod processing;
mod readiness;
mod sources;
mod start;
mod streams;
mod webhook;

pub(crate) use start::Galley;
