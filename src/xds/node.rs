//! The node that opens a stream: an id of four parts, and metadata that may be malformed.

mod dns;
mod memory;
mod metadata;
mod pairs;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::model::{ClusterId, Labels, Locality, Workload, WorkloadKey};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::google::protobuf::value::Kind as Json;
use prost::Message;

pub use dns::Dns;
use metadata::{NodeMetadata, labels};
pub use pairs::MetadataPairs;

/// The role of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    SidecarProxy,
    /// At the edge of the mesh; `ingress` is one, too.
    Router,
}

/// The way in which traffic is intercepted by a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    Redirect,
    Tproxy,
    /// No interception: applications name the proxy.
    None,
}

/// A certificate with its key, and the root that others are checked against: names of files where the proxy is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Files {
    pub chain: Arc<str>,
    pub key: Arc<str>,
    pub root: Arc<str>,
}

/// A node that has no place in the mesh; the text says which part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadNode {
    Malformed(String),
    /// Beyond one of the bounds below.
    TooLarge(String),
}

impl fmt::Display for BadNode {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Malformed(message) | Self::TooLarge(message)) = self;
        to.write_str(message)
    }
}

/// Longest id, and longest string of those that have a meaning here (discovery.md §9). A name of Kubernetes has 253 bytes, an id
/// has two of them and a domain; a path rarely has more than a few hundred. Strings without a meaning here, such as the
/// annotations that an injector may put into metadata, have no bound but [`MAX_METADATA_BYTES`]: they are not kept.
pub const MAX_STRING_BYTES: usize = 1 << 10;
/// Labels of a node (discovery.md §9).
pub const LABELS: usize = 256;
/// Longest metadata, encoded (discovery.md §9).
pub const MAX_METADATA_BYTES: usize = 64 << 10;

/// Keys of metadata that have a meaning here, or are shown.
const KEYS: [&str; 26] = [
    "CERTIFICATES",
    "CLUSTER_ID",
    "CONFIG_NAMESPACE",
    "EXCHANGE_KEYS",
    "GENERATOR",
    "HTTP10",
    "IDLE_TIMEOUT",
    "INSTANCE_IPS",
    "INTERCEPTION_MODE",
    "ISTIO_PROXY_VERSION",
    "ISTIO_VERSION",
    "MESH_ID",
    "NAME",
    "NAMESPACE",
    "NETWORK",
    "OWNER",
    "ROUTER_MODE",
    "SERVICE_ACCOUNT",
    "TLS_CLIENT_CERT_CHAIN",
    "TLS_CLIENT_KEY",
    "TLS_CLIENT_ROOT_CERT",
    "TLS_SERVER_CERT_CHAIN",
    "TLS_SERVER_KEY",
    "TLS_SERVER_ROOT_CERT",
    "WORKLOAD_NAME",
    "istio",
];

impl std::error::Error for BadNode {}

/// A proxy, as its node describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The id as received.
    pub id: Arc<str>,
    pub kind: Kind,
    /// The type of the proxy in the id: `sidecar`, `router`, `ingress`.
    pub proxy_type: &'static str,
    /// The primary one first, without link-local ones and without duplicates.
    pub addresses: Vec<IpAddr>,
    /// The name of its pod.
    pub name: Arc<str>,
    pub namespace: Arc<str>,
    /// The domain that completes short names, `demo.svc.cluster.local`.
    pub domain: Arc<str>,
    /// `None`: the local one.
    pub cluster: Option<ClusterId>,
    pub network: Option<Arc<str>>,
    /// Stand in for the labels of its pod while that is not known.
    pub labels: Arc<Labels>,
    pub locality: Locality,
    pub mode: Mode,
    /// Ports that it listens on for itself, as far as it says: its admin page, its status, its metrics.
    pub ports: Vec<u16>,
    pub server: Files,
    pub client: Files,
    /// The proxy says that it has no certificates (metadata `CERTIFICATES: none`).
    pub without_certificates: bool,
    /// The idle timeout of HTTP connections.
    pub idle_timeout: Option<Duration>,
    pub http10: bool,
    pub router: RouterTraits,
    /// No Envoy, but a program with gRPC in it.
    pub grpc: bool,
    /// The part of a cluster in which it expects DNS options.
    pub dns: Dns,
    /// The version of the control plane that it was injected by.
    pub version: Arc<str>,
    /// The version of the proxy itself.
    pub proxy_version: Arc<str>,
    pub account: Option<Arc<str>>,
    pub metadata: MetadataPairs,
    /// Metadata that was not understood, for the log.
    pub warnings: Vec<String>,
}

/// Parts that routers have beyond sidecars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterTraits {
    /// TLS that does not end at it is led to services by its server name (metadata `ROUTER_MODE: sni-dnat`).
    pub leads_by_server_name: bool,
    /// True if the server has verified that it is of its namespace, so that it may have secrets of that. No node can claim this
    /// itself.
    pub may_have_secrets: bool,
    /// Proxies in front of it whose word on the client's address counts (`gatewayTopology.numTrustedProxies` of its own
    /// configuration).
    pub trusted_proxies: Option<u32>,
}

impl RouterTraits {
    fn of(kind: Kind, metadata: &NodeMetadata<'_>) -> Self {
        let mode = metadata.text("ROUTER_MODE");
        Self {
            leads_by_server_name: kind == Kind::Router && mode.as_deref() == Some("sni-dnat"),
            may_have_secrets: false,
            trusted_proxies: metadata.trusted_proxies(),
        }
    }
}

/// Bytes to which a proxy's text is cut in a log line, a metric, a page or a response header (discovery.md §9).
pub const CLIPPED_BYTES: usize = 256;

/// Returns the first [`CLIPPED_BYTES`] of a proxy's text, cut at the border of a character.
#[must_use]
pub fn clipped(text: &str) -> &str {
    api::text::cut(text, CLIPPED_BYTES)
}

impl Node {
    /// Returns true for a proxy beside an application.
    pub(crate) const fn is_sidecar(&self) -> bool {
        matches!(self.kind, Kind::SidecarProxy)
    }

    /// # Errors
    ///
    /// An id that is not `TYPE~IP~NAME~DOMAIN`, or no namespace anywhere.
    pub fn read(node: Option<&core::Node>) -> Result<Self, BadNode> {
        let Some(node) = node else {
            let message = "the first request has no node";
            return Err(BadNode::Malformed(message.to_owned()));
        };
        bounded(node)?;
        let bad =
            |part: &str| BadNode::Malformed(format!("node id {:?}: {part}", clipped(&node.id)));
        let parts: Vec<&str> = node.id.split('~').collect();
        let &[proxy_type, ip, full, domain] = parts.as_slice() else {
            return Err(bad("want four parts, TYPE~IP~NAME~DOMAIN"));
        };
        let (kind, proxy_type) = match proxy_type {
            "sidecar" => (Kind::SidecarProxy, "sidecar"),
            "router" => (Kind::Router, "router"),
            "ingress" => (Kind::Router, "ingress"),
            other => {
                return Err(bad(&format!(
                    "want the type sidecar, router or ingress, got {:?}",
                    clipped(other)
                )));
            }
        };
        let address: IpAddr = ip
            .parse()
            .map_err(|_| bad(&format!("want an IP address, got {:?}", clipped(ip))))?;
        let metadata = NodeMetadata::of(node);
        // The name of a pod may have dots, and a namespace has none.
        let (pod, after) = full.rsplit_once('.').unwrap_or((full, ""));
        let namespace = metadata
            .namespace()
            .or_else(|| (!after.is_empty()).then(|| after.into()))
            .ok_or_else(|| {
                bad(&format!(
                    "no namespace, neither in metadata nor in {:?}",
                    clipped(full)
                ))
            })?;
        if pod.is_empty() {
            return Err(bad("want the name POD.NAMESPACE, got \"\""));
        }
        let mut warnings = Vec::new();
        Ok(Self {
            id: node.id.as_str().into(),
            kind,
            proxy_type,
            addresses: addresses(address, &metadata.list("INSTANCE_IPS")),
            name: metadata.text("NAME").unwrap_or_else(|| pod.into()),
            namespace,
            domain: domain.into(),
            cluster: metadata.text("CLUSTER_ID").map(|id| ClusterId::from(&*id)),
            network: metadata.text("NETWORK"),
            labels: Arc::new(labels(&metadata, proxy_type)),
            locality: locality(node.locality.as_ref()),
            mode: metadata.mode(&mut warnings),
            ports: metadata.ports(),
            server: metadata.files("SERVER"),
            client: metadata.files("CLIENT"),
            without_certificates: metadata.text("CERTIFICATES").as_deref() == Some("none"),
            idle_timeout: metadata.duration("IDLE_TIMEOUT", &mut warnings),
            http10: matches!(metadata.text("HTTP10").as_deref(), Some("1" | "true")),
            router: RouterTraits::of(kind, &metadata),
            grpc: is_grpc(node, &metadata),
            dns: dns(node, &metadata),
            version: metadata.text("ISTIO_VERSION").unwrap_or_default(),
            proxy_version: metadata
                .text("ISTIO_PROXY_VERSION")
                .unwrap_or_else(|| agent(node)),
            account: metadata.text("SERVICE_ACCOUNT"),
            metadata: metadata.pairs(),
            warnings,
        })
    }

    /// The key of its workload. `local`: the cluster of a proxy that says none.
    #[must_use]
    pub fn workload_key(&self, local: &ClusterId) -> WorkloadKey {
        WorkloadKey {
            cluster: self.cluster.as_ref().unwrap_or(local).clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// The labels of its workload. While that is not known, those of the node stand in for them (discovery.md §5.1).
    pub(crate) fn labels_of<'a>(&'a self, workload: Option<&'a Arc<Workload>>) -> &'a Arc<Labels> {
        workload.map_or(&self.labels, |workload| &workload.labels)
    }
}

/// Checks the texts of a node against the bounds, before any of them is kept.
fn bounded(node: &core::Node) -> Result<(), BadNode> {
    let within = |what: &str, text: &str| match text.len() {
        0..=MAX_STRING_BYTES => Ok(()),
        length => Err(BadNode::TooLarge(format!(
            "node {what}: {length} bytes, {MAX_STRING_BYTES} are allowed: {:?}",
            clipped(text)
        ))),
    };
    within("id", &node.id)?;
    within("cluster", &node.cluster)?;
    within("user agent", &node.user_agent_name)?;
    within("user agent", &agent(node))?;
    if let Some(locality) = &node.locality {
        for part in [&locality.region, &locality.zone, &locality.sub_zone] {
            within("locality", part)?;
        }
    }
    let Some(metadata) = &node.metadata else {
        return Ok(());
    };
    let length = metadata.encoded_len();
    if length > MAX_METADATA_BYTES {
        return Err(BadNode::TooLarge(format!(
            "node metadata: {length} bytes, {MAX_METADATA_BYTES} are allowed"
        )));
    }
    let of = |key: &str| metadata.fields.get(key)?.kind.as_ref();
    for key in KEYS {
        match of(key) {
            Some(Json::StringValue(text)) => within(key, text)?,
            Some(Json::ListValue(list)) => {
                let length: usize = list.values.iter().map(Message::encoded_len).sum();
                if length > MAX_STRING_BYTES {
                    let message =
                        format!("node {key}: {length} bytes, {MAX_STRING_BYTES} are allowed");
                    return Err(BadNode::TooLarge(message));
                }
            }
            _ => {}
        }
    }
    let Some(Json::StructValue(labels)) = of("LABELS") else {
        return Ok(());
    };
    if labels.fields.len() > LABELS {
        let count = labels.fields.len();
        let message = format!("node LABELS: {count} labels, {LABELS} are allowed");
        return Err(BadNode::TooLarge(message));
    }
    for (name, value) in &labels.fields {
        within("LABELS", name)?;
        if let Some(Json::StringValue(text)) = &value.kind {
            within("LABELS", text)?;
        }
    }
    Ok(())
}

/// Returns the place of DNS options by the version of Envoy: `ISTIO_PROXY_VERSION` is a number of Istio's. gRPC knows the fields alone.
fn dns(node: &core::Node, metadata: &NodeMetadata<'_>) -> Dns {
    match is_grpc(node, metadata) {
        true => Dns::Fields,
        false => Dns::of(&agent(node)),
    }
}

/// Returns true if the client is a program with gRPC in it, by its metadata (`GENERATOR: grpc`) or by its user agent.
fn is_grpc(node: &core::Node, metadata: &NodeMetadata<'_>) -> bool {
    metadata.text("GENERATOR").as_deref() == Some("grpc")
        || node.user_agent_name.starts_with("gRPC")
}

/// The version of the program that asks, as far as it says one.
fn agent(node: &core::Node) -> Arc<str> {
    use core::node::UserAgentVersionType::{UserAgentBuildVersion, UserAgentVersion};
    match &node.user_agent_version_type {
        Some(UserAgentVersion(version)) => version.as_str().into(),
        Some(UserAgentBuildVersion(build)) => build.version.as_ref().map_or_else(
            || "".into(),
            |version| {
                let (major, minor) = (version.major_number, version.minor_number);
                format!("{major}.{minor}.{}", version.patch).into()
            },
        ),
        None => "".into(),
    }
}

fn addresses(primary: IpAddr, others: &[String]) -> Vec<IpAddr> {
    let mut addresses = vec![primary];
    for address in others.iter().filter_map(|text| text.parse().ok()) {
        if !is_link_local(address) && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn locality(locality: Option<&core::Locality>) -> Locality {
    locality.map_or_else(Locality::default, |locality| {
        Locality::new(&locality.region, &locality.zone, &locality.sub_zone)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use envoy_types::pb::google::protobuf::{ListValue, Struct, Value};
    use std::collections::HashMap;

    fn value(json: Json) -> Value {
        Value { kind: Some(json) }
    }

    fn text(text: &str) -> Value {
        value(Json::StringValue(text.to_owned()))
    }

    fn object(fields: Vec<(&str, Value)>) -> Struct {
        Struct {
            fields: fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        }
    }

    fn node(id: &str, metadata: Vec<(&str, Value)>) -> core::Node {
        core::Node {
            id: id.to_owned(),
            metadata: Some(object(metadata)),
            ..core::Node::default()
        }
    }

    const ID: &str = "sidecar~10.0.0.1~b-1.demo~demo.svc.cluster.local";

    #[test]
    fn a_bad_id_is_quoted_with_the_part_that_is_wrong() {
        for (id, cause) in [
            ("a~b", "want four parts, TYPE~IP~NAME~DOMAIN"),
            ("", "want four parts, TYPE~IP~NAME~DOMAIN"),
            (
                "sidecar~10.0.0.1~b.demo~d~e",
                "want four parts, TYPE~IP~NAME~DOMAIN",
            ),
            (
                "x~10.0.0.1~b.demo~d",
                "want the type sidecar, router or ingress, got \"x\"",
            ),
            ("sidecar~host~b.demo~d", "want an IP address, got \"host\""),
            ("sidecar~~b.demo~d", "want an IP address, got \"\""),
            (
                "sidecar~10.0.0.1~b~d",
                "no namespace, neither in metadata nor in \"b\"",
            ),
            (
                "sidecar~10.0.0.1~.demo~d",
                "want the name POD.NAMESPACE, got \"\"",
            ),
        ] {
            let error = Node::read(Some(&node(id, Vec::new()))).unwrap_err();
            assert_eq!(error.to_string(), format!("node id {id:?}: {cause}"));
        }
        let error = Node::read(None).unwrap_err();
        assert_eq!(error.to_string(), "the first request has no node");
        let long = "~".repeat(1000);
        let error = Node::read(Some(&node(&long, Vec::new()))).unwrap_err();
        assert!(error.to_string().len() < 400);
    }

    #[test]
    fn one_word_says_that_there_are_no_certificates() {
        for (says, without) in [("none", true), ("some", false), ("", false)] {
            let metadata = vec![("CERTIFICATES", text(says))];
            let node = Node::read(Some(&node(ID, metadata))).unwrap();
            assert_eq!(node.without_certificates, without, "{says}");
        }
    }

    #[test]
    fn fields_of_a_node_are_bounded() {
        let long = |length: usize| text(&"é".repeat(length / 2));
        let labels = |count: usize, value: &Value| {
            let labels = (0..count).map(|at| (format!("l{at}"), value.clone()));
            value_of(labels.collect())
        };
        fn value_of(fields: HashMap<String, Value>) -> Value {
            value(Json::StructValue(Struct { fields }))
        }
        let list = |length: usize| {
            let values = vec![long(100); length / 100];
            value(Json::ListValue(ListValue { values }))
        };
        for (metadata, beyond) in [
            (vec![("TLS_CLIENT_KEY", long(1024))], None),
            (
                vec![("TLS_CLIENT_KEY", long(1026))],
                Some("node TLS_CLIENT_KEY: 1026 bytes"),
            ),
            (
                vec![("CLUSTER_ID", long(500_000))],
                Some("node metadata: 500"),
            ),
            (
                vec![("INSTANCE_IPS", list(2000))],
                Some("node INSTANCE_IPS: "),
            ),
            // Annotations of the pod.
            (
                vec![(
                    "kubectl.kubernetes.io/last-applied-configuration",
                    long(60_000),
                )],
                None,
            ),
            (
                vec![("a", long(40_000)), ("b", long(40_000))],
                Some("node metadata: 800"),
            ),
            (vec![("LABELS", labels(256, &text("x")))], None),
            (
                vec![("LABELS", labels(257, &text("x")))],
                Some("node LABELS: 257 labels"),
            ),
            (
                vec![("LABELS", labels(1, &long(1026)))],
                Some("node LABELS: 1026 bytes"),
            ),
        ] {
            let read = Node::read(Some(&node(ID, metadata)));
            match (read, beyond) {
                (Ok(_), None) => {}
                (Err(BadNode::TooLarge(cause)), Some(expected)) => {
                    assert!(cause.starts_with(expected) && cause.len() < 400, "{cause}");
                }
                (read, beyond) => panic!("{beyond:?}: {read:?}"),
            }
        }
        let domain = "d".repeat(1024);
        let read = Node::read(Some(&node(&format!("{ID}{domain}"), Vec::new())));
        assert!(matches!(read, Err(BadNode::TooLarge(_))), "{read:?}");
        let mut asks = node(ID, Vec::new());
        asks.locality = Some(core::Locality {
            sub_zone: "s".repeat(1025),
            ..core::Locality::default()
        });
        let read = Node::read(Some(&asks));
        assert!(matches!(read, Err(BadNode::TooLarge(_))), "{read:?}");
    }

    #[test]
    fn an_id_alone_is_enough() {
        let read = Node::read(Some(&core::Node {
            id: "ingress~10.0.0.1~gw.0.edge~edge.svc.cluster.local".to_owned(),
            ..core::Node::default()
        }))
        .unwrap();
        assert_eq!((read.kind, read.proxy_type), (Kind::Router, "ingress"));
        assert_eq!((&*read.name, &*read.namespace), ("gw.0", "edge"));
        assert_eq!(&*read.domain, "edge.svc.cluster.local");
        assert_eq!(read.mode, Mode::Redirect);
        assert_eq!(&*read.server.chain, "/etc/certs/cert-chain.pem");
        assert_eq!(&*read.client.root, "/etc/certs/root-cert.pem");
        assert_eq!(read.cluster, None);
        assert!(!read.grpc && !read.http10 && read.locality.is_unknown());
    }

    #[test]
    fn the_proxys_version_is_its_own() {
        use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType::{
            UserAgentBuildVersion, UserAgentVersion,
        };
        use envoy_types::pb::envoy::r#type::v3::SemanticVersion;
        let version = SemanticVersion {
            major_number: 1,
            minor_number: 40,
            patch: 2,
        };
        let build = core::BuildVersion {
            version: Some(version),
            metadata: None,
        };
        let own = ("ISTIO_PROXY_VERSION", text("1.2.3"));
        for (metadata, agent, version) in [
            (vec![], None, ""),
            (vec![], Some(UserAgentBuildVersion(build.clone())), "1.40.2"),
            (vec![], Some(UserAgentVersion("1.39".to_owned())), "1.39"),
            (vec![own], Some(UserAgentBuildVersion(build)), "1.2.3"),
        ] {
            let mut asks = node(ID, metadata);
            asks.user_agent_version_type = agent;
            let read = Node::read(Some(&asks)).unwrap();
            assert_eq!((&*read.proxy_version, &*read.version), (version, ""));
        }
    }

    #[test]
    fn the_namespace_is_looked_for_in_three_places() {
        for (metadata, namespace) in [
            (
                vec![("NAMESPACE", text("a")), ("CONFIG_NAMESPACE", text("b"))],
                "a",
            ),
            (
                vec![("NAMESPACE", text("")), ("CONFIG_NAMESPACE", text("b"))],
                "b",
            ),
            (vec![], "demo"),
        ] {
            let read = Node::read(Some(&node(ID, metadata))).unwrap();
            assert_eq!(&*read.namespace, namespace);
        }
    }

    #[test]
    fn metadata_is_understood_in_both_spellings() {
        let ips = |ips: Value| {
            let read = Node::read(Some(&node(ID, vec![("INSTANCE_IPS", ips)]))).unwrap();
            let ips: Vec<_> = read.addresses.iter().map(IpAddr::to_string).collect();
            ips.join(" ")
        };
        let all = "10.0.0.1,fe80::1, 2001:db8::1,169.254.0.1,x,10.0.0.1,10.0.0.2";
        assert_eq!(ips(text(all)), "10.0.0.1 2001:db8::1 10.0.0.2");
        let list = all.split(',').map(|part| text(part.trim())).collect();
        let list = value(Json::ListValue(ListValue { values: list }));
        assert_eq!(ips(list), "10.0.0.1 2001:db8::1 10.0.0.2");
        for (http10, on) in [
            (text("1"), true),
            (text("true"), true),
            (value(Json::NumberValue(1.0)), true),
            (value(Json::BoolValue(true)), true),
            (text("0"), false),
            (text("yes"), false),
        ] {
            let read = Node::read(Some(&node(ID, vec![("HTTP10", http10)]))).unwrap();
            assert_eq!(read.http10, on);
        }
    }

    #[test]
    fn labels_are_strings_and_the_rest_is_left_out() {
        let labels = object(vec![
            ("app", text("b")),
            ("number", value(Json::NumberValue(1.0))),
            ("empty", text("")),
        ]);
        let metadata = vec![("LABELS", value(Json::StructValue(labels)))];
        let read = Node::read(Some(&node(ID, metadata))).unwrap();
        let labels: Vec<_> = read
            .labels
            .iter()
            .map(|(name, text)| format!("{name}={text}"))
            .collect();
        assert_eq!(labels, ["app=b", "empty="]);
        let read = Node::read(Some(&node(ID, vec![("LABELS", text("app=b"))]))).unwrap();
        assert!(read.labels.is_empty());
    }

    #[test]
    fn a_proxy_says_where_it_listens_for_itself() {
        let config = object(vec![
            ("proxyAdminPort", value(Json::NumberValue(16000.0))),
            ("statusPort", text("16020")),
            ("proxyHttpPort", value(Json::NumberValue(1.0))),
        ]);
        let config = ("PROXY_CONFIG", value(Json::StructValue(config)));
        let of = |key, port| (key, value(Json::NumberValue(port)));
        for (metadata, ports) in [
            (vec![], &[][..]),
            (vec![config.clone()], &[16000, 16020]),
            (
                vec![
                    config,
                    of("ENVOY_STATUS_PORT", 1.0),
                    of("ENVOY_PROMETHEUS_PORT", 2.0),
                ],
                &[16000, 16020, 1, 2],
            ),
            (vec![of("ENVOY_STATUS_PORT", 0.0)], &[]),
            (vec![of("ENVOY_STATUS_PORT", 70000.0)], &[]),
            (vec![("PROXY_CONFIG", text("{}"))], &[]),
        ] {
            let read = Node::read(Some(&node(ID, metadata))).unwrap();
            assert_eq!(read.ports, ports);
        }
    }

    #[test]
    fn unknown_metadata_becomes_a_warning() {
        let metadata = vec![
            ("INTERCEPTION_MODE", text("OTHER")),
            ("IDLE_TIMEOUT", text("soon")),
        ];
        let read = Node::read(Some(&node(ID, metadata))).unwrap();
        assert_eq!(read.mode, Mode::Redirect);
        assert_eq!(read.idle_timeout, None);
        assert_eq!(
            read.warnings,
            [
                "INTERCEPTION_MODE: want REDIRECT, TPROXY or NONE, got \"OTHER\": REDIRECT",
                "IDLE_TIMEOUT: want a duration, got \"soon\": ignored",
            ]
        );
        let metadata = vec![
            ("INTERCEPTION_MODE", text("NONE")),
            ("IDLE_TIMEOUT", text("1m30s")),
            ("TLS_CLIENT_KEY", text("/k.pem")),
            ("GENERATOR", text("grpc")),
            ("CLUSTER_ID", text("east")),
        ];
        let read = Node::read(Some(&node(ID, metadata))).unwrap();
        assert_eq!(read.mode, Mode::None);
        assert_eq!(read.idle_timeout, Some(Duration::from_secs(90)));
        assert_eq!(&*read.client.key, "/k.pem");
        assert_eq!(&*read.server.key, "/etc/certs/key.pem");
        assert_eq!(read.cluster, Some("east".into()));
        assert!(read.grpc);
        let mut grpc = node(ID, Vec::new());
        grpc.user_agent_name = "gRPC Python".to_owned();
        assert!(Node::read(Some(&grpc)).unwrap().grpc);
    }
}
