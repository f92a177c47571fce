//! The resources of one proxy at one moment: the seam between the rooms that make resources and the streams that carry them.
//!
//! A view is made of a snapshot, which never changes, so a view does not either: a name that is asked for twice gives the same
//! bytes. Resources are shared: proxies that see the same hold the same `Arc`, encoded once.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use api::model::{ObjectRef, ServiceKey};
use bytes::Bytes;
use prost::Message;

use crate::resource_names::ResourceNames;
use crate::version::Version;

/// The types of resources, in the order in which they go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Type {
    Cluster,
    Endpoint,
    Listener,
    Route,
    /// Certificates with their keys, and roots.
    Secret,
}

impl Type {
    pub const ALL: [Self; 5] = [
        Self::Cluster,
        Self::Endpoint,
        Self::Listener,
        Self::Route,
        Self::Secret,
    ];

    /// The type URL in requests and responses.
    pub const fn url(self) -> &'static str {
        match self {
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoint => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Self::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        }
    }

    pub fn from_url(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.url() == url)
    }

    /// The short name in metrics and pages: `cds`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "cds",
            Self::Endpoint => "eds",
            Self::Listener => "lds",
            Self::Route => "rds",
            Self::Secret => "sds",
        }
    }

    /// Returns true if a response of state of the world holds all resources of this type: one that is missing in it is gone.
    pub const fn is_complete(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener)
    }

    /// Returns true if a name of which there is nothing has an empty resource.
    pub(crate) const fn has_empty(self) -> bool {
        matches!(self, Self::Endpoint | Self::Route)
    }
}

/// One message of Envoy, encoded.
#[derive(Clone, PartialEq, Eq)]
pub struct Resource {
    pub name: Arc<str>,
    pub version: Version,
    pub body: Bytes,
    /// Rules that had a part in it; they are named where Envoy refuses it.
    pub from: Arc<[ObjectRef]>,
}

/// The listeners that every sidecar has whose traffic is intercepted. Both always have a port of their own.
pub(crate) const VIRTUAL_OUTBOUND: &str = "virtualOutbound";
pub(crate) const VIRTUAL_INBOUND: &str = "virtualInbound";

/// Prefix of the name of a certificate in files of the client.
pub(crate) const PAIR: &str = "file-cert:";
/// Prefix of the name of a root in a file of the client.
pub(crate) const ROOT: &str = "file-root:";

/// Bytes of such a name. One that is gone may still be asked for, and no stream takes a longer one of nothing.
pub(crate) const MAX_FILE_NAME_BYTES: usize = 512;

/// The name of a secret in files, so that no other files have it: paths have no `~` in it.
pub(crate) fn name_in_files(prefix: &str, paths: &[&str]) -> String {
    let escaped = paths
        .iter()
        // `%` comes first: the escape of `~` has one.
        .map(|path| path.replace('%', "%25").replace('~', "%7E"));
    let name = prefix.to_owned() + &escaped.collect::<Vec<_>>().join("~");
    match name.len() > MAX_FILE_NAME_BYTES {
        // The prefix stays in front of the hash: [`Resource::is_sent_alone`] goes by it.
        true => format!("{prefix}{}", Version::of(name.as_bytes())),
        false => name,
    }
}

/// The first field of an assignment and of a route configuration.
#[derive(Clone, PartialEq, Message)]
struct NamedMessage {
    #[prost(string, tag = "1")]
    name: String,
}

/// The field of a listener that says whether it has a port of its own.
#[derive(Clone, PartialEq, Message)]
struct Binding {
    #[prost(message, optional, tag = "26")]
    bind_to_port: Option<bool>,
}

/// The mark in the version of a listener of this name that has a port of its own; others have none.
pub(crate) fn mark_of_bound(name: &str) -> u32 {
    // 0 is the mark of listeners without a port.
    Version::of(name.as_bytes()).mark().max(1)
}

impl Resource {
    /// A listener. Its version says whether it has a port of its own, to a server that does not know its content, too.
    pub(crate) fn listener(name: impl Into<Arc<str>>, body: impl Into<Bytes>) -> Self {
        let one = Self::new(name, body);
        let binding = Binding::decode(&*one.body).unwrap_or_default();
        let mark = match binding.bind_to_port {
            Some(false) => 0,
            // Envoy binds a listener that does not say.
            Some(true) | None => mark_of_bound(&one.name),
        };
        Self {
            version: one.version.marked(mark),
            ..one
        }
    }

    /// Returns true if a listener has a port of its own; `None` if its version is none of a listener's.
    pub(crate) fn binds(&self) -> Option<bool> {
        match self.version.mark() {
            0 => Some(false),
            mark if mark == mark_of_bound(&self.name) => Some(true),
            _ => None,
        }
    }

    /// Returns true if the client may refuse it for a reason that is its own: Envoy takes nothing of a response behind what it
    /// refuses.
    pub(crate) fn is_sent_alone(&self) -> bool {
        [PAIR, ROOT].iter().any(|kind| self.name.starts_with(kind))
    }

    /// The memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.body.len()
    }

    pub fn new(name: impl Into<Arc<str>>, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        Self {
            name: name.into(),
            version: Version::of(&body),
            body,
            from: Arc::default(),
        }
    }

    /// A name with a version and no content.
    pub(crate) fn without_body(name: Arc<str>, version: Version) -> Self {
        Self {
            name,
            version,
            body: Bytes::new(),
            from: Arc::default(),
        }
    }

    /// The resource of a name of endpoints or routes that does not exist: an assignment without endpoints, a route configuration
    /// without virtual hosts. Both are a message with nothing but its name, which is the first field of both.
    pub fn empty(name: &Arc<str>) -> Self {
        let message = NamedMessage {
            name: name.to_string(),
        };
        Self::new(name.clone(), message.encode_to_vec())
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}@{}", self.name, self.version)
    }
}

/// Resources of one type, each name once, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    members: Vec<Arc<Resource>>,
    version: Version,
    /// The sum of its members'.
    bytes: usize,
}

impl Set {
    pub fn new(members: impl IntoIterator<Item = Arc<Resource>>) -> Self {
        let mut members: Vec<_> = members.into_iter().collect();
        members.sort_by(|one, other| one.name.cmp(&other.name));
        // Of a name that is there twice the first counts.
        members.dedup_by(|later, first| later.name == first.name);
        let version = members.iter().map(|member| member.version).sum();
        let bytes = members.iter().map(|member| member.bytes()).sum();
        Self {
            members,
            version,
            bytes,
        }
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        let at = self
            .members
            .binary_search_by(|member| (*member.name).cmp(name));
        at.ok().and_then(|at| self.members.get(at))
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Arc<Resource>> {
        self.members.iter()
    }

    pub fn members(&self) -> &[Arc<Resource>] {
        &self.members
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// The memory that its members take. Other sets may have some of them, too.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<'a> IntoIterator for &'a Set {
    type Item = &'a Arc<Resource>;
    type IntoIter = std::slice::Iter<'a, Arc<Resource>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FromIterator<Arc<Resource>> for Set {
    fn from_iter<I: IntoIterator<Item = Arc<Resource>>>(members: I) -> Self {
        Self::new(members)
    }
}

/// The resources of one proxy.
///
/// Clusters and listeners are asked for as a whole or by name, endpoints and routes by name. All that `all` has, `get` has.
/// A cluster whose endpoints come by EDS has its assignment under the cluster's own name, empty at worst: that is how a stream
/// knows which clusters wait for one.
pub trait View: Any + fmt::Debug + Send + Sync {
    /// All resources of a type. The same `Arc` each time, and between views that do not differ in it: that is what makes a
    /// push that changes nothing cheap.
    fn all(&self, kind: Type) -> Arc<Set>;

    /// One resource, made when it is asked for. `None`: this proxy is not to have it.
    fn get(&self, kind: Type, name: &str) -> Option<Arc<Resource>>;

    /// The string that all share who have this name, if there is something of it: nothing is made for that.
    fn name(&self, kind: Type, name: &str) -> Option<Arc<str>> {
        self.get(kind, name).map(|resource| resource.name.clone())
    }

    /// The work that is left for these names of a type, in ports of services and their endpoints. A caller that must not stop for
    /// long has it done elsewhere.
    fn unbuilt(&self, _kind: Type, _names: &ResourceNames) -> usize {
        0
    }

    /// Builds these resources ahead, so that later requests find them.
    fn make_ahead(&self, _kind: Type, _names: &ResourceNames) {}

    /// Returns the services that a resource is about, where its name says which.
    fn services_of(&self, _kind: Type, _name: &str) -> Vec<ServiceKey> {
        Vec::new()
    }

    /// Returns true unless this proxy is a sidecar whose workload belongs to no service.
    fn serves(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str, body: &'static str) -> Arc<Resource> {
        Arc::new(Resource::new(name, body))
    }

    #[test]
    fn types_go_out_in_order_and_are_known_by_their_urls() {
        assert!(Type::ALL.is_sorted());
        for kind in Type::ALL {
            assert_eq!(Type::from_url(kind.url()), Some(kind));
        }
        assert_eq!(
            Type::from_url("type.googleapis.com/envoy.api.v2.Cluster"),
            None
        );
    }

    #[test]
    fn a_set_is_the_same_in_any_order() {
        let [a, b, c] = ["a", "b", "c"].map(|name| resource(name, "body"));
        let set = Set::new([b.clone(), c.clone(), a.clone()]);
        assert_eq!(set, [a.clone(), b, c].into_iter().collect());
        assert_eq!(set.get("a"), Some(&a));
        assert_eq!(set.get("d"), None);
        assert_eq!(set.len(), 3);
    }

    #[test]
    fn no_two_pairs_of_files_have_one_name() {
        let name = |paths: &[&str]| name_in_files(PAIR, paths);
        assert_eq!(
            name(&["/a/tls.crt", "/a/tls.key"]),
            "file-cert:/a/tls.crt~/a/tls.key"
        );
        let all = [
            ["/a~/b", "/c"],
            ["/a", "/b~/c"],
            ["/a%7E/b", "/c"],
            ["/a", "/b%7E/c"],
        ];
        let names: std::collections::BTreeSet<_> = all.iter().map(|pair| name(pair)).collect();
        assert_eq!(names.len(), all.len(), "{names:?}");
        let long = "/x".repeat(MAX_FILE_NAME_BYTES);
        let [one, other] = ["1", "2"].map(|end| name(&[&long, &format!("{long}{end}")]));
        assert!(one != other && one.len() < MAX_FILE_NAME_BYTES && one.starts_with(PAIR));
    }

    #[test]
    fn a_name_counts_once() {
        let [first, second] = ["1", "2"].map(|body| resource("a", body));
        let set = Set::new([first.clone(), second]);
        assert_eq!(set.members(), [first]);
        assert_eq!(set.version(), Version::of(b"1"));
    }

    #[test]
    fn a_listener_says_whether_it_has_a_port() {
        use envoy_types::pb::envoy::config::listener::v3::Listener;
        use envoy_types::pb::google::protobuf::BoolValue;

        for (bind_to_port, binds) in [(None, true), (Some(false), false), (Some(true), true)] {
            let listener = Listener {
                name: "a".to_owned(),
                bind_to_port: bind_to_port.map(|value| BoolValue { value }),
                ..Listener::default()
            };
            let resource = Resource::listener("a", listener.encode_to_vec());
            assert_eq!(resource.binds(), Some(binds));
            let known = |version| Resource::without_body("a".into(), version);
            assert_eq!(known(resource.version).binds(), Some(binds));
        }
        let strange = Version::of(b"of another server");
        assert_eq!(Resource::without_body("a".into(), strange).binds(), None);
    }

    /// Checked with the messages themselves, which this file does not know.
    #[test]
    fn the_empty_resource_is_a_message_with_a_name() {
        use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
        use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;

        let empty = Resource::empty(&"outbound|80||a.b".into());
        let assignment = ClusterLoadAssignment {
            cluster_name: "outbound|80||a.b".to_owned(),
            ..ClusterLoadAssignment::default()
        };
        let routes = RouteConfiguration {
            name: "outbound|80||a.b".to_owned(),
            ..RouteConfiguration::default()
        };
        assert_eq!(empty.body, assignment.encode_to_vec());
        assert_eq!(empty.body, routes.encode_to_vec());
    }
}
