//! `cluster`: the sources of objects. The one crate that talks to the Kubernetes API server and to
//! Consul, and that reads directories of YAML.
//!
//! It knows `api`, and no role: it yields changes and takes desired states, and does not know their users.
//!
//! From the wire upwards:
//!
//! * [`Cluster`]: an API server, by the pod's own account or by a kubeconfig. Its answers are read with a bound on
//!   bytes and on time.
//! * [`ObjectSource`]: a source of objects of one [`Kind`]. [`Watcher`] is the API server: listed in pages, then watched.
//! * `store`: the objects of a source. One[`Writer`], many [`Reader`]s; a reader gets [`Changes`], and a list that
//!   was read anew is one of them.
//! * `catalogue`: each object of a source once, in its last good version, and the status of each that is written.
//! * [`config`]: sources of configuration (files, API servers), checked, in last good versions, with findings.
//! * [`registry`]: sources of services (API servers, files, Consul, memory) as one
//!   [`World`](api::model::World), with the effect of each change on proxies.
//! * [`Reconciler`]: reconciles webhook configurations, or the CA bundle in them. Nothing else is ever written.

#![forbid(unsafe_code)]

mod answer;
mod backoff;
mod bundle;
mod catalogue;
pub mod config;
mod connect;
mod decide;
mod disk;
#[cfg(test)]
#[path = "../../tests/support/examples.rs"]
mod examples;
mod failure;
#[cfg(test)]
mod fake;
mod kind;
mod line_buffer;
mod log_limiter;
mod reconcile_status;
mod reconciler;
pub mod registry;
mod served;
mod store;
mod tree;
mod validation;
mod watcher;
mod webhook;

/// The first mistake of a new cluster: without these kinds kubectl refuses every rule.
const NO_KINDS: &str = "no Istio kinds are installed in this cluster: it can hold no rules before it has their CustomResourceDefinitions";

pub use bundle::{Bundle, OWN_CA_NAME};
pub use connect::{Access, CannotConnect, Cluster, Version};
pub use disk::Disk;
pub use failure::{Action, Cause, Failure};
pub use kind::{Key, Kind, Metadata, Resource};
pub use reconcile_status::{ReconcileFailure, ReconcileState, ReconcileStatus};
pub use reconciler::{DesiredState, Reconciler, ReconcilerHandle};
pub use store::{Change, Changes, Freshness, Reader, Writer, store};
pub use validation::{Service, Validation};
pub use watcher::{ObjectSource, Pace, Selection, Watcher};
pub use webhook::{Webhook, WebhookConfiguration};
