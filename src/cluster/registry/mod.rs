//! Registries: from the objects of many sources to one [`api::model::World`].
//!
//! ```text
//!  files ─┐
//!  Kubernetes, one per cluster ─┤
//!  Consul ─┼──► Contribution ──► Registries ──► World + Effect
//!  memory ─┘
//! ```
//!
//! A source says after each change all that it has now, as a [`Contribution`]. What did not change is the same pointer in
//! it, so that saying all costs little and nobody has to keep the books of who said what when. [`Registries`] makes one world
//! of what all of them said, and says what that changed for proxies.

mod configuration;
pub mod consul;
mod contribution;
mod credential;
mod files;
pub mod kubernetes;
mod memory;
mod refusal;
#[cfg(test)]
mod rows;
mod store;
mod written;

pub use configuration::{AnyConfigured, Configuration, EachKind, ObjectKey, Spec};
pub use contribution::{Contribution, SourceId, Standing};
pub use files::{Files, Message, Outcome};
pub use memory::{Memory, Put};
pub use refusal::Refusal;
pub use store::{Effect, Registries, Report, Settings, Status};
pub use written::Written;
