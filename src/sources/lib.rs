//! `sources`: the sources of objects. The one crate that talks to the Kubernetes API server and to
//! Consul, and that reads directories of YAML.
//!
//! It knows `api`, and no role: it yields changes and takes desired states, and does not know their users.
//!
//! # Map
//!
//! From the wire upwards; each room uses only rooms above it.
//!
//! * `offload`: work on long texts, off the event loop.
//! * `error_text`: texts of errors, for logs.
//! * `failure`: errors of requests, in the operator's words. `answer`: responses, bounded in bytes and time. `line_buffer`: lines of
//!   a watch, bounded.
//! * `page_progress`: the bounds of a list that comes in pages.
//! * `kind`: a [`Kind`], its place in the API and the fields that a role reads.
//! * `connect`: a [`Cluster`], by the pod's own account or by a kubeconfig; TLS and tokens. `fake`: an API server for tests.
//! * `fair_room`: objects that share a room by their namespaces.
//! * `store`: the objects of one source. One [`Writer`], many [`Reader`]s; a reader gets [`Changes`], and a relist is one of them.
//! * `watcher`: a [`Watcher`], an [`ObjectSource`] that lists an API server's objects in pages and then watches them.
//!   `served_kinds`: the kinds that an API server has.
//! * `disk`: the file system on a thread of its own, with deadlines. `tree`: the files of a directory, bounded. `known_files`: those
//!   that have changed since they were read.
//! * `catalogue`: each object once, in its last good version, with its [`Origin`], and the status of each object that claims its
//!   name.
//! * `written_object`: an object as it is written, for pages.
//! * `status_condition`: messages about an object as a condition of its `status`.
//! * [`config`]: configuration from directories and API servers, checked, with findings.
//! * [`registry`]: services and rules of API servers, directories, Consul and memory as one [`World`](api::model::World), with the
//!   [`Changes`](api::model::Changes) of each step.
//! * `probe_token`: the token by which a refusal of this program is told from another's.
//! * `webhook`: webhook configurations. `ca_bundle`: the CA bundle that they are to have. `ca_bundle_patch`: the patch that one
//!   needs. `validation`: the configuration of the webhook that checks rules. `reconcile_status`: the state of each of them.
//!   `webhook_reconciler`: the [`WebhookReconciler`] that keeps them.
//! * `list`: all objects of a kind, read once.
//! * `status_writer`: what is told of objects, written into their `status`.

#![forbid(unsafe_code)]

mod answer;
mod ca_bundle;
mod ca_bundle_patch;
mod catalogue;
pub mod config;
mod connect;
mod disk;
mod error_text;
#[cfg(test)]
#[path = "../../tests/support/examples.rs"]
mod examples;
mod failure;
mod fair_room;
#[cfg(test)]
mod fake;
mod kind;
mod known_files;
mod line_buffer;
mod list;
mod offload;
mod page_progress;
mod probe_token;
mod reconcile_status;
pub mod registry;
mod served_kinds;
mod status_condition;
mod status_writer;
mod store;
mod tree;
mod validation;
mod watcher;
mod webhook;
mod webhook_reconciler;
mod written_object;

/// The first mistake of a new cluster: without these kinds kubectl refuses every rule.
const NO_KINDS: &str = "no Istio kinds are installed in this cluster: it can hold no rules before it has their CustomResourceDefinitions";

pub use ca_bundle::{CaBundle, OWN_CA_NAME};
pub use catalogue::Origin;
pub use connect::{Access, CannotConnect, Cluster, Version};
pub use disk::{Disk, each_lookup, open_regular};
pub use failure::{Action, Cause, Failure};
pub use kind::{Key, Kind, Metadata, Resource, Revision};
pub use probe_token::ProbeToken;
pub use reconcile_status::{ReconcileFailure, ReconcileState, ReconcileStatus};
pub use status_writer::{DesiredMessages, ObjectMessages, Subject, write_statuses};
pub use store::{Change, Changes, Freshness, Reader, WithoutRoom, Writer, store};
pub use validation::{ServiceReference, Validation};
pub use watcher::{ObjectSource, Selection, WatchTiming, Watcher};
pub use webhook::{Webhook, WebhookConfiguration};
pub use webhook_reconciler::{DesiredState, ReconcilerHandle, WebhookReconciler};
