//! API servers of Kubernetes, from the connection to the objects that the roles use.
//!
//! From the wire upwards; each module uses only modules above it.
//!
//! * `failure`: errors of requests, in the operator's words. `answer`: responses, bounded in bytes and time. `line_buffer`: lines of
//!   a watch, bounded. `page_progress`: the bounds of a list that comes in pages.
//! * `connect`: a [`Cluster`], by the pod's own account or by a kubeconfig; TLS and tokens. `fake`: an API server for tests.
//! * `list`: all objects of a kind, read once. `served_kinds`: the kinds that an API server has.
//! * `status_queue`: pending writes of statuses, with their order, backoff and refusals, for patches of any form.
//! * `fair_room`: objects that share a room by their namespaces.
//! * `store`: the objects of one source. One [`Writer`], many [`Reader`]s; a reader gets [`Changes`], and a relist is one of them.
//! * `watcher`: a [`Watcher`], an [`ObjectSource`] that lists an API server's objects in pages and then watches them.
//! * [`config`]: an API server's configuration as entries of the catalogue, for galley.
//! * `index`: a cluster's services, workloads, rules and credentials as a contribution, for discovery.

mod answer;
pub mod config;
mod connect;
mod failure;
mod fair_room;
#[cfg(test)]
pub(crate) mod fake;
mod index;
mod line_buffer;
mod list;
mod page_progress;
mod served_kinds;
pub(crate) mod status_queue;
mod store;
mod watcher;

/// The first mistake of a new cluster: without these kinds kubectl refuses every rule.
const NO_KINDS: &str = "no Istio kinds are installed in this cluster: it can hold no rules before it has their CustomResourceDefinitions";

pub(crate) use connect::REQUEST;
pub use connect::{Access, CannotConnect, Cluster, Version};
pub use failure::{Action, Cause, Failure};
#[cfg(test)]
pub(crate) use index::as_served;
pub(crate) use index::trimmed;
pub use index::{
    BrokenCredentials, ClusterSettings, ClusterUpdate, EffectlessObjects, EndpointSlice, Endpoints,
    Event, FoundCredentials, MAX_CREDENTIALS, Names, Namespace, Node, Objects, Origins, Pod,
    Problem, Remotes, Service, StoredKind, WantedCredentials, credentials, ingresses, remotes, run,
    usable,
};
pub use list::ListedPart;
pub(crate) use served_kinds::{MaxAge, ServedKinds};
pub use status_queue::Subject;
pub use store::{Change, Changes, Freshness, Reader, WithoutRoom, Writer, store};
#[cfg(any(test, fuzzing))]
pub(crate) use watcher::properties::check as check_watch;
pub use watcher::{ObjectSource, Selection, WatchTiming, Watcher};
