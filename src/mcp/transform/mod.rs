//! What is made of objects that nobody wrote for the mesh: configuration of a cluster's own kinds. What a transform needs of
//! them is read here; where they come from is nobody's business.

pub mod ingress;
pub mod kubernetes;
pub mod services;

/// What a transform is told of the mesh.
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

    /// Of an object; what has no namespace is in `default`.
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
