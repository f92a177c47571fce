//! `transform`: Kubernetes' own kinds as configuration of the mesh. A Service becomes a ServiceEntry, an Ingress becomes a
//! Gateway and VirtualServices.
//!
//! The crate knows `api` and no other. Roles read the objects, and each encodes the results for its own protocol. It is
//! pure: no socket, no file, no clock and no runtime; equal objects give equal results in every order of arrival.
//!
//! # Dependencies
//!
//! ```text
//!  read ──► services     Services, endpoints, pods and nodes → ServiceEntries
//!           ingress      Ingresses → Gateways and VirtualServices
//! ```
//!
//! The objects are those of [`api::kubernetes`]; `read` refuses an object of which a part cannot be read. [`services`] and [`ingress`]
//! do not know each other: a caller lends [`ingress::transform`] the names of ports. `index` has the sets by key of both.
//! `rounds` has the order in which marks are worked off.

#![forbid(unsafe_code)]

mod index;
pub mod ingress;
mod read;
mod rounds;
pub mod services;

pub use read::{TransformSource, read};
pub use rounds::Rounds;

/// The settings of the mesh that a transform needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mesh {
    /// `cluster.local`.
    pub domain: String,
    pub trust_domain: String,
}

/// A namespace and a name in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Returns the key of an object; one without a namespace is in `default`.
    pub fn of(metadata: &api::kubernetes::ObjectMeta) -> Self {
        let namespace = match &*metadata.namespace {
            "" => "default",
            namespace => namespace,
        };
        Self::new(namespace, &*metadata.name)
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}/{}", self.namespace, self.name)
    }
}
