//! Kubernetes: Services, EndpointSlices (or Endpoints), Pods, Nodes and Namespaces become services, endpoints and workloads.
//!
//! [`Objects`] is one cluster as a state machine: it takes objects, in any order, and computes a contribution. It does no
//! I/O, and does not know whether the objects come from an API server or from files.
//!
//! ```text
//! Node ──┐
//! Namespace ──┼──► workload (of a Pod) ──┐
//! Pod ───┘                               ├──► endpoints of one Service
//! EndpointSlice, Endpoints, Service ─────┘
//! ```
//!
//! [`run`] reads one API server into it, [`remotes`] those that Secrets name.
//!
//! Each result records the objects that it was computed from (`links`), so a change recomputes only the results that depend
//! on it.

mod cluster_state;
mod credentials;
mod custom;
mod debug_view;
mod documents;
mod effectless;
mod endpoints;
mod ingresses;
mod installed;
mod links;
mod names;
mod objects;
mod remote;
mod restart;
mod source;
mod stored_kind;
mod tables;
#[cfg(test)]
mod tests;
mod wire;
mod workload;

pub use cluster_state::ClusterUpdate;
pub use credentials::{
    BrokenCredentials, FoundCredentials, MAX_CREDENTIALS, WantedCredentials, credentials,
};
pub use custom::Origins;
#[cfg(test)]
pub(crate) use debug_view::as_served;
pub use documents::usable;
pub use effectless::EffectlessObjects;
pub use ingresses::ingresses;
pub(crate) use ingresses::trimmed;
pub use names::Names;
pub use objects::{Event, Objects, Problem};
pub use remote::{Remotes, remotes};
pub use source::{ClusterSettings, run};
pub use stored_kind::StoredKind;
pub use wire::{EndpointSlice, Endpoints, Namespace, Node, Pod, Service};
