//! Kubernetes: Services, EndpointSlices (or Endpoints), Pods, Nodes and Namespaces become services, endpoints and workloads.
//!
//! [`Objects`] is one cluster as a state machine: it is told of objects, in any order, and says what they come to. It neither
//! waits nor asks, and does not know whether they come from an API server or from files.
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
//! What was computed remembers what it looked at (`links`), so that a change computes only what looked at it.

mod credentials;
mod custom;
mod documents;
mod endpoints;
mod heard;
mod held;
mod ingresses;
mod installed;
mod links;
mod objects;
mod others;
mod remote;
mod shown;
mod source;
#[cfg(test)]
mod tests;
mod wire;
mod workload;

pub use credentials::{FoundCredentials, MOST_CREDENTIALS, WantedCredentials, credentials};
pub use documents::usable;
pub use heard::Told;
pub use held::Held;
pub(in crate::registry) use ingresses::trimmed;
pub use ingresses::{Ingresses, ingresses};
pub use objects::{Event, Names, Objects, Problem};
pub use others::Others;
pub use remote::{Remotes, remotes};
#[cfg(test)]
pub(super) use shown::judged;
pub use source::{Settings, run};
pub use wire::{Endpoints, Namespace, Node, Pod, Service, Slice};
