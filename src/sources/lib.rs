//! `sources`: the sources of objects. The one crate that talks to the Kubernetes API server and to
//! Consul, and that reads directories of YAML.
//!
//! It knows `api`, and no role: it yields changes and takes desired states, and does not know their users.
//!
//! # Map
//!
//! From the ground upwards; each room uses only rooms above it.
//!
//! * `offload`: long work, off the event loop.
//! * `error_text`: texts of errors, for logs.
//! * `interim_limit`: requests to servers, with a bound on the interim responses before the response.
//! * [`panics`]: work that ends as failed after a panic, or starts again.
//! * `disk`: the file system on a thread of its own, with deadlines. The connection to an API server begins with
//!   files, too, so that it is a room of its own.
//! * `kind`: a [`Kind`] of Kubernetes' objects, its place in the API and the fields that a role reads; keys and revisions.
//! * [`catalogue`]: objects of configuration, checked, each once in its last good version, with findings, statuses and reports.
//! * [`contribution`]: all objects of a source at one moment, in the form in which sources are merged.
//! * [`aggregate`]: the contributions of all sources as one [`World`](api::model::World), with the
//!   [`Changes`](api::model::Changes) of each step.
//! * [`kubernetes`]: API servers: connections, lists, watches and stores, and the contribution and the configuration of a cluster.
//! * [`reconcile`]: webhook configurations and the `status` of objects, kept in the state that a role desires; by every replica,
//!   without leader election.
//! * [`consul`]: the contribution of a Consul catalog.
//! * [`directory`]: the objects of directories and files.
//! * [`memory`]: objects that a client sends: a request for an experiment, or a server of MCP.

#![forbid(unsafe_code)]

pub mod aggregate;
pub mod catalogue;
pub mod consul;
pub mod contribution;
#[cfg(test)]
#[path = "../../tests/support/corpus.rs"]
mod corpus;
pub mod directory;
mod disk;
mod error_text;
#[cfg(test)]
#[path = "../../tests/support/examples.rs"]
mod examples;
#[cfg(test)]
#[path = "../api/tests/support/growth.rs"]
mod growth;
mod interim_limit;
mod kind;
pub mod kubernetes;
#[cfg(test)]
#[path = "../api/tests/support/loop_stretch.rs"]
mod loop_stretch;
pub mod memory;
mod offload;
pub mod panics;
#[cfg(any(test, fuzzing))]
pub mod properties;
pub mod reconcile;

pub use disk::{Disk, each_lookup, open_regular};
pub use kind::{Key, Kind, Metadata, Resource, Revision};
