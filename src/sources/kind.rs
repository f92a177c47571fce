//! A kind of object: its place in the API, and the fields that a role reads. The other fields are dropped on arrival,
//! because a control plane of a few megabytes cannot keep unread fields.

use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The place of a kind in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    /// The plural name, as in paths and roles.
    pub name: &'static str,
}

/// Kinds beyond the core group that several rooms read.
pub(crate) const ENDPOINT_SLICES: Resource = Resource {
    group: "discovery.k8s.io",
    version: "v1",
    name: "endpointslices",
};
pub(crate) const INGRESSES: Resource = Resource {
    group: "networking.k8s.io",
    version: "v1",
    name: "ingresses",
};

impl Resource {
    /// Returns a kind of the core group.
    #[must_use]
    pub const fn core(name: &'static str) -> Self {
        Self {
            group: "",
            version: "v1",
            name,
        }
    }

    /// Returns the path for all namespaces, or for one.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        let Self {
            group,
            version,
            name,
        } = self;
        let root = if group.is_empty() { "/api" } else { "/apis/" };
        match namespace {
            None => format!("{root}{group}/{version}/{name}"),
            Some(namespace) => format!("{root}{group}/{version}/namespaces/{namespace}/{name}"),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)?;
        if self.group.is_empty() {
            return Ok(());
        }
        write!(formatter, ".{}", self.group)
    }
}

/// An object's place among those of its kind. The namespace is empty where the kind has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: Box<str>,
    pub name: Box<str>,
}

impl Key {
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(formatter, "{}/", self.namespace)?;
        }
        formatter.write_str(&self.name)
    }
}

/// The state of an object's spec: another object of its name has another uid, a later spec a later generation. Unlike the
/// `resourceVersion` it stays the same while only a status is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision {
    pub uid: Box<str>,
    /// `metadata.generation`; 0 if unknown.
    pub generation: i64,
}

/// The metadata of every object. A kind that needs labels has them in a type of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub resource_version: Box<str>,
}

impl Metadata {
    #[must_use]
    pub fn key(&self) -> Key {
        Key {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }
}

/// The bytes of a kind, above any cluster's size: Kubernetes is made for 150,000 Pods. All of them take a fourth of the
/// memory of the smallest role. Objects beyond that are left out, of the namespaces that hold most: one tenant does not
/// crowd out all others.
const ROOM: usize = 64 << 20;

/// A kind of object, with the fields that are needed.
///
/// Equal objects are the same to every reader: a change between them is no change. A kind whose readers do not need the
/// `resourceVersion` leaves it out, and gets no changes of dropped fields.
pub trait Kind: DeserializeOwned + PartialEq + fmt::Debug + Send + Sync + 'static {
    const RESOURCE: Resource;

    fn key(&self) -> Key;

    /// Bytes that all objects of the kind may take together.
    const ROOM: usize = ROOM;

    /// Bytes that the object holds if its type does not bound them: a good estimate for the limit of a store.
    fn size(&self) -> usize {
        size_of::<Self>()
    }

    /// Returns true if readers may hold the version before this one instead of it: then it counts for as much as that one did.
    fn keeps_last_good(&self) -> bool {
        false
    }
}

/// Returns the bytes of texts, each with its pointer and length.
pub(crate) fn bytes<'a>(texts: impl IntoIterator<Item = &'a str>) -> usize {
    let texts = texts.into_iter();
    texts
        .map(|text| text.len().saturating_add(size_of::<Box<str>>()))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_has_a_path_and_a_name_in_roles() {
        let pods = Resource {
            group: "",
            version: "v1",
            name: "pods",
        };
        let slices = Resource {
            group: "discovery.k8s.io",
            version: "v1",
            name: "endpointslices",
        };
        assert_eq!(pods.path(None), "/api/v1/pods");
        assert_eq!(pods.path(Some("web")), "/api/v1/namespaces/web/pods");
        assert_eq!(
            slices.path(Some("web")),
            "/apis/discovery.k8s.io/v1/namespaces/web/endpointslices"
        );
        assert_eq!(slices.to_string(), "endpointslices.discovery.k8s.io");
        assert_eq!(pods.to_string(), "pods");
    }

    #[test]
    fn a_key_is_said_as_kubectl_says_it() {
        assert_eq!(Key::new("web", "a").to_string(), "web/a");
        assert_eq!(Key::new("", "a").to_string(), "a");
    }
}
