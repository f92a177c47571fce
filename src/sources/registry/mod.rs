//! Registries: from the objects of many sources to one [`api::model::World`].
//!
//! ```text
//!  files ─┐
//!  Kubernetes, one per cluster ─┤
//!  Consul ─┼──► Contribution ──► Registries ──► World + Changes
//!  memory ─┘
//! ```
//!
//! After each change a source sends all its objects, as a [`Contribution`]. Unchanged objects are the same pointers in it,
//! so that sending all is cheap and no history is needed. [`Registries`] merges the contributions to one world, and reports
//! what each step changed, by kind and name: an object that another source has in its place changes nothing.

mod configuration;
pub mod consul;
mod contribution;
mod credential;
mod files;
pub mod kubernetes;
mod memory;
mod received;
mod refusal;
#[cfg(test)]
mod rule_rows_tests;
mod store;

pub use crate::written_object::WrittenObject;
pub use configuration::{AnyConfigured, Configuration, ObjectKey};
use configuration::{ConfigurationKind, EachKind};
pub use contribution::{Contribution, Ingresses, SourceId, SyncState};
pub use credential::credential_of;
pub use files::{Files, Outcome};
pub use memory::{Memory, Put};
pub use received::ReceivedObjects;
pub use refusal::Refusal;
pub use store::{Registries, Report, Settings, SourceStatus};
