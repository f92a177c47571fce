//! Registries: from the objects of many sources to one [`api::model::World`].
//!
//! ```text
//!  files ─┐
//!  Kubernetes, one per cluster ─┤
//!  Consul ─┼──► Contribution ──► (merged) ──► World + Change
//!  memory ─┘
//! ```
//!
//! A source says after each change all that it has now, as a [`Contribution`]. What did not change is the same pointer in
//! it, so that saying all costs little and nobody has to keep the books of who said what when.

mod contribution;
pub mod kubernetes;

pub use contribution::{Contribution, SourceId, Standing};
