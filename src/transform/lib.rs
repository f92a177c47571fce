//! `transform`: Kubernetes' own kinds as configuration of the mesh. A Service becomes a ServiceEntry, an Ingress becomes a
//! Gateway and VirtualServices.
//!
//! The crate knows `api` and no other. Roles read the objects, and each encodes the results for its own protocol. It is
//! pure: no socket, no file, no clock and no runtime; equal objects give equal results, in whatever order they came.
//!
//! # Dependencies
//!
//! ```text
//!  kubernetes ──┬──► services     Services, endpoints, pods and nodes → ServiceEntries
//!               └──► ingress      Ingresses → Gateways and VirtualServices
//! ```
//!
//! [`kubernetes`] holds the objects, with the fields that a transform reads; [`services`] and [`ingress`] know it, and do
//! not know each other: a caller lends [`ingress::transform`] the names of ports.

#![forbid(unsafe_code)]

pub mod ingress;
pub mod kubernetes;
pub mod services;

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
    pub fn of(metadata: &kubernetes::Metadata) -> Self {
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
