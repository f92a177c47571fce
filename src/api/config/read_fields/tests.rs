//! Each field of a kind that discovery acts on is read there, or an object with it gets a finding that says what becomes of it:
//! a field that is accepted and does nothing is worse than one that is refused.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value as Json, json};

use super::{Effect, KINDS, Kind, check_all, notes_of};
use crate::schema::{Field, FieldKind, Key, Message, Shape};

/// The code that reads a message: files below `src`, each with a function, or with the name and the dot of a value, where a file
/// reads other messages with fields of the same names.
type Readers = &'static [(&'static str, &'static str)];

/// The files and functions that read the fields of each message.
const READERS: &[(&str, Readers)] = &[
    (
        "VirtualService",
        &[
            ("xds/scope/exported.rs", ""),
            ("xds/scope/visibility.rs", ""),
            ("xds/rules/virtual_service.rs", ""),
            ("xds/rules/virtual_service/connections.rs", "connections"),
        ],
    ),
    (
        "HTTPRoute",
        &[
            ("xds/rules/virtual_service.rs", ""),
            ("xds/rules/virtual_service/action.rs", "route_action"),
            ("xds/rules/virtual_service/action.rs", "rewrite"),
            ("xds/rules/virtual_service/action.rs", "mirrored"),
            ("xds/rules/virtual_service/filters.rs", "of_route"),
            ("xds/rules/virtual_service/filters.rs", "add"),
            ("xds/scope/virtual_service_delegates.rs", ""),
        ],
    ),
    ("TCPRoute", CONNECTIONS),
    ("TLSRoute", CONNECTIONS),
    ("L4MatchAttributes", CONNECTIONS),
    ("TLSMatchAttributes", CONNECTIONS),
    ("RouteDestination", CONNECTIONS),
    (
        "HTTPMatchRequest",
        &[
            ("xds/rules/virtual_service.rs", ""),
            ("xds/rules/virtual_service/matching.rs", ""),
        ],
    ),
    (
        "HTTPRouteDestination",
        &[
            ("xds/rules/virtual_service.rs", "action"),
            ("xds/rules/virtual_service/action.rs", "route_action"),
            ("xds/rules/virtual_service/filters.rs", "of_destination"),
        ],
    ),
    (
        "HTTPRedirect",
        &[
            ("xds/rules/virtual_service/action.rs", "redirect"),
            ("xds/rules/virtual_service/action.rs", "port_redirect"),
        ],
    ),
    (
        "HTTPRewrite",
        &[("xds/rules/virtual_service/action.rs", "rewrite")],
    ),
    (
        "RegexRewrite",
        &[("xds/rules/virtual_service/action.rs", "rewrite")],
    ),
    (
        "HTTPRetry",
        &[("xds/rules/virtual_service/action.rs", "retry_policy")],
    ),
    (
        "HTTPFaultInjection",
        &[("xds/rules/virtual_service/filters.rs", "fault")],
    ),
    (
        "HTTPFaultInjection.Delay",
        &[("xds/rules/virtual_service/filters.rs", "delay")],
    ),
    (
        "HTTPFaultInjection.Abort",
        &[("xds/rules/virtual_service/filters.rs", "abort")],
    ),
    (
        "Destination",
        &[
            ("xds/rules/virtual_service.rs", "destination"),
            ("xds/scope/virtual_service_hosts.rs", "destination_port"),
        ],
    ),
    (
        "PortSelector",
        &[("xds/scope/virtual_service_hosts.rs", "destination_port")],
    ),
    (
        "CorsPolicy",
        &[("xds/rules/virtual_service/filters.rs", "cors")],
    ),
    (
        "Headers",
        &[("xds/rules/virtual_service/filters.rs", "mutations")],
    ),
    (
        "Headers.HeaderOperations",
        &[("xds/rules/virtual_service/filters.rs", "mutations")],
    ),
    ("Percent", &[("xds/rules/virtual_service/percent.rs", "")]),
    (
        "Delegate",
        &[("xds/scope/virtual_service_delegates.rs", "")],
    ),
    (
        "HTTPDirectResponse",
        &[("xds/rules/virtual_service/action.rs", "direct_response")],
    ),
    (
        "HTTPBody",
        &[("xds/rules/virtual_service/action.rs", "direct_response")],
    ),
    (
        "HTTPMirrorPolicy",
        &[("xds/rules/virtual_service/action.rs", "mirrored")],
    ),
    (
        "StringMatch",
        &[("xds/rules/virtual_service/matching.rs", "text")],
    ),
    (
        "DestinationRule",
        &[
            ("xds/rules/destination_rule.rs", ""),
            ("xds/scope/exported.rs", ""),
            ("xds/scope/visibility.rs", ""),
        ],
    ),
    ("Subset", &[("xds/rules/destination_rule.rs", "")]),
    ("TrafficPolicy", &[("xds/rules/destination_rule.rs", "add")]),
    (
        "TrafficPolicy.PortTrafficPolicy",
        &[("xds/rules/destination_rule.rs", "add")],
    ),
    (
        "TrafficPolicy.TunnelSettings",
        &[("xds/rules/destination_rule/tcp_proxy.rs", "tunnel")],
    ),
    (
        "TrafficPolicy.ProxyProtocol",
        &[("xds/rules/destination_rule/tls.rs", "announce")],
    ),
    (
        "TrafficPolicy.RetryBudget",
        &[("xds/rules/destination_rule/pool.rs", "budget")],
    ),
    (
        "LoadBalancerSettings",
        &[
            ("xds/rules/destination_rule.rs", ""),
            ("xds/rules/destination_rule/balancer.rs", "slow_start"),
        ],
    ),
    (
        "LoadBalancerSettings.ConsistentHashLB",
        &[
            ("xds/rules/destination_rule/balancer.rs", "consistent_hash"),
            ("xds/rules/destination_rule/balancer.rs", "hash_policy"),
        ],
    ),
    (
        "LoadBalancerSettings.ConsistentHashLB.HTTPCookie",
        &[("xds/rules/destination_rule/balancer.rs", "hash_policy")],
    ),
    (
        "LoadBalancerSettings.ConsistentHashLB.HTTPCookie.Attribute",
        &[("xds/rules/destination_rule/balancer.rs", "attribute")],
    ),
    (
        "LoadBalancerSettings.ConsistentHashLB.RingHash",
        &[("xds/rules/destination_rule/balancer.rs", "consistent_hash")],
    ),
    (
        "LoadBalancerSettings.ConsistentHashLB.MagLev",
        &[("xds/rules/destination_rule/balancer.rs", "consistent_hash")],
    ),
    (
        "LocalityLoadBalancerSetting",
        &[("xds/resources/locality.rs", "preference")],
    ),
    (
        "LocalityLoadBalancerSetting.Distribute",
        &[("xds/resources/locality.rs", "")],
    ),
    (
        "LocalityLoadBalancerSetting.Failover",
        &[("xds/resources/locality.rs", "preference")],
    ),
    (
        "ZoneAwareLoadBalancerSetting",
        &[
            ("xds/resources/locality.rs", "of_zones"),
            ("xds/rules/destination_rule/balancer.rs", "by_zones"),
        ],
    ),
    (
        "ZoneAwareLoadBalancerSetting.Failover",
        &[("xds/resources/locality.rs", "of_zones")],
    ),
    (
        "WarmupConfiguration",
        &[("xds/rules/destination_rule/balancer.rs", "slow_start")],
    ),
    (
        "ConnectionPoolSettings",
        &[("xds/rules/destination_rule/pool.rs", "limit")],
    ),
    (
        "ConnectionPoolSettings.TCPSettings",
        &[
            ("xds/rules/destination_rule/pool.rs", "tcp"),
            (
                "xds/rules/destination_rule/tcp_proxy.rs",
                "limit_connections",
            ),
        ],
    ),
    (
        "ConnectionPoolSettings.TCPSettings.TcpKeepalive",
        &[("xds/common/keepalive.rs", "")],
    ),
    (
        "ConnectionPoolSettings.HTTPSettings",
        &[
            ("xds/rules/destination_rule/pool.rs", "requests"),
            ("xds/rules/destination_rule/pool.rs", "http"),
        ],
    ),
    (
        "ConnectionPoolSettings.HTTPSettings.ConnectionKeepalive",
        &[("xds/rules/destination_rule/pool.rs", "http")],
    ),
    (
        "OutlierDetection",
        &[("xds/rules/destination_rule/detection.rs", "detect")],
    ),
    (
        "ClientTLSSettings",
        &[
            ("xds/common/tls.rs", "of_names"),
            ("xds/common/tls.rs", "to_service"),
            ("xds/rules/destination_rule/credentials.rs", ""),
            ("xds/rules/destination_rule/tls.rs", ""),
        ],
    ),
    (
        "Gateway",
        &[("xds/rules/gateway.rs", ""), ("xds/scope/gateways.rs", "")],
    ),
    ("Server", &[("xds/rules/gateway.rs", "server.")]),
    ("Port", &[("xds/rules/gateway.rs", "port.")]),
    (
        "ServerTLSSettings",
        &[
            ("xds/rules/gateway.rs", ""),
            ("xds/rules/gateway/secrets.rs", ""),
            ("xds/rules/gateway/tls.rs", ""),
        ],
    ),
    (
        "ServerTLSSettings.TLSCertificate",
        &[
            ("xds/rules/gateway/tls.rs", "file_pairs"),
            ("xds/rules/gateway/tls.rs", "pair_roots"),
        ],
    ),
    ("ServiceEntry", SERVICES),
    ("ServicePort", SERVICES),
    ("WorkloadEntry", SERVICES),
    (
        "WorkloadSelector",
        &[
            ("xds/scope.rs", ""),
            ("sources/aggregate/service_entry.rs", ""),
        ],
    ),
    (
        "Sidecar",
        &[
            ("xds/resources/sidecar_ingress.rs", ""),
            ("xds/scope/sidecar.rs", ""),
            ("xds/scope/visibility.rs", ""),
            ("xds/snapshot/proxy_inputs.rs", "add_pool"),
        ],
    ),
    (
        "IstioIngressListener",
        &[("xds/resources/sidecar_ingress.rs", "inbound_port")],
    ),
    (
        "IstioEgressListener",
        &[
            ("xds/scope/sidecar.rs", ""),
            ("xds/scope/visibility.rs", ""),
        ],
    ),
    (
        "SidecarPort",
        &[
            ("xds/resources/sidecar_ingress.rs", "inbound_port"),
            ("xds/scope/sidecar.rs", "new"),
        ],
    ),
    ("OutboundTrafficPolicy", &[("xds/scope/sidecar.rs", "")]),
    ("EnvoyFilter", &[("xds/scope/envoy_filters.rs", "")]),
    (
        "EnvoyFilter.EnvoyConfigObjectPatch",
        &[("xds/scope/envoy_filters.rs", "")],
    ),
    (
        "EnvoyFilter.EnvoyConfigObjectMatch",
        &[("xds/scope/envoy_filters.rs", ""), MATCHING],
    ),
    ("EnvoyFilter.Patch", &[("xds/scope/envoy_filters.rs", "")]),
    (
        "EnvoyFilter.ProxyMatch",
        &[("xds/scope/envoy_filters.rs", "")],
    ),
    (
        "EnvoyFilter.ListenerMatch",
        &[MATCHING, ("xds/rules/envoy_filter/listeners.rs", "")],
    ),
    (
        "EnvoyFilter.ListenerMatch.FilterChainMatch",
        &[
            ("xds/rules/envoy_filter/matching.rs", "fits"),
            ("xds/rules/envoy_filter/matching.rs", "filter_name"),
        ],
    ),
    ("EnvoyFilter.ListenerMatch.FilterMatch", &[MATCHING]),
    (
        "EnvoyFilter.ListenerMatch.SubFilterMatch",
        &[("xds/rules/envoy_filter/matching.rs", "sub_filter_name")],
    ),
    (
        "EnvoyFilter.RouteConfigurationMatch",
        &[
            ("xds/rules/envoy_filter/matching.rs", "are_routes"),
            ("xds/rules/envoy_filter/matching.rs", "of_host"),
        ],
    ),
    (
        "EnvoyFilter.RouteConfigurationMatch.VirtualHostMatch",
        &[
            ("xds/rules/envoy_filter/matching.rs", "is_host"),
            ("xds/rules/envoy_filter/matching.rs", "of_route"),
        ],
    ),
    (
        "EnvoyFilter.RouteConfigurationMatch.RouteMatch",
        &[("xds/rules/envoy_filter/matching.rs", "is_route")],
    ),
    (
        "EnvoyFilter.ClusterMatch",
        &[("xds/rules/envoy_filter/matching.rs", "is_cluster")],
    ),
    (
        "AuthorizationPolicy",
        &[
            ("xds/rules/authorization_policy.rs", ""),
            ("xds/scope/policies.rs", ""),
        ],
    ),
    (
        "AuthorizationPolicy.ExtensionProvider",
        &[("xds/rules/authorization_policy/custom.rs", "")],
    ),
    ("Rule", &[("xds/rules/authorization_policy.rs", "")]),
    ("Rule.From", &[("xds/rules/authorization_policy.rs", "")]),
    ("Rule.To", &[("xds/rules/authorization_policy.rs", "")]),
    (
        "Source",
        &[("xds/rules/authorization_policy/source.rs", "")],
    ),
    (
        "Operation",
        &[("xds/rules/authorization_policy/operation.rs", "")],
    ),
    (
        "Condition",
        &[("xds/rules/authorization_policy/conditions.rs", "")],
    ),
    (
        "PeerAuthentication",
        &[
            ("xds/rules/peer_authentication.rs", ""),
            ("xds/scope/policies.rs", ""),
        ],
    ),
    (
        "PeerAuthentication.MutualTLS",
        &[("xds/rules/peer_authentication.rs", "")],
    ),
    (
        "RequestAuthentication",
        &[
            ("xds/rules/request_authentication.rs", ""),
            ("xds/scope/policies.rs", ""),
        ],
    ),
    (
        "JWTRule",
        &[
            ("xds/rules/request_authentication.rs", ""),
            ("api/security/jwks_source.rs", ""),
            ("gudgeon/discovery/jwks/mod.rs", ""),
            ("gudgeon/discovery/jwks/request_authentications.rs", ""),
        ],
    ),
    ("JWTHeader", &[("xds/rules/request_authentication.rs", "")]),
    (
        "ClaimToHeader",
        &[("xds/rules/request_authentication.rs", "")],
    ),
    ("PolicyTargetReference", &[("xds/scope/policies.rs", "")]),
];

const CONNECTIONS: Readers = &[("xds/rules/virtual_service/connections.rs", "")];
const SERVICES: Readers = &[("sources/aggregate/service_entry.rs", "")];
const MATCHING: (&str, &str) = ("xds/rules/envoy_filter/matching.rs", "");

/// Fields that their reader skips where a kind has the message.
const SKIPPED: [(&str, &str, &str); 1] = [(
    "Sidecar",
    "ConnectionPoolSettings.HTTPSettings",
    "h2UpgradePolicy",
)];

/// Parts of a finding that says of a field that nothing comes of it.
const UNUSED: [&str; 6] = [
    "has no effect",
    "is not served",
    "is not applied",
    "not allowed",
    "not supported",
    "is not looked at",
];

/// Fields without which a message is not looked at, by message.
fn beside(message: &str) -> Json {
    match message {
        "EnvoyFilter.EnvoyConfigObjectPatch" => {
            json!({"applyTo": "CLUSTER", "patch": {"operation": "MERGE", "value": {}}})
        }
        "EnvoyFilter.Patch" => json!({"operation": "MERGE", "value": {}}),
        "HTTPRoute" => json!({"route": [{"destination": {"host": "b"}}]}),
        _ => json!({}),
    }
}

/// The name of a message behind its package.
fn short(message: &Message) -> &'static str {
    let versions = [".v1alpha3.", ".v1beta1."];
    let mut parts = versions.iter();
    let found = parts.find_map(|version| message.name.split_once(version));
    found.unwrap().1
}

/// As Rust writes the name of a field.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

/// As Rust writes the variant of a oneof.
fn variant(name: &str) -> String {
    let parts = name.split('_').map(|part| {
        let (first, rest) = part.split_at(1);
        first.to_uppercase() + rest
    });
    parts.collect()
}

/// The code of a file, or of its functions of a name, without comments and tests.
#[allow(
    clippy::disallowed_methods,
    reason = "the test reads the sources of the repository"
)]
fn code((file, function): (&str, &str)) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|cause| panic!("{file}: {cause}"));
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = text.lines();
    let lines = lines.filter(|line| !line.trim_start().starts_with("//"));
    if function.is_empty() {
        return lines.map(|line| format!("{}\n", line.trim())).collect();
    }
    if function.ends_with('.') {
        let all: String = lines.map(|line| format!("{}\n", line.trim())).collect();
        return fields_of(&all.replace("\n.", "."), function);
    }
    let is_it = |line: &&str| {
        let rest = line.split_once("fn ").map(|(_, rest)| rest);
        let rest = rest.and_then(|rest| rest.strip_prefix(function));
        rest.is_some_and(|rest| rest.starts_with(['(', '<']))
    };
    let (mut found, mut end) = (String::new(), None);
    for line in lines {
        if end.is_none() && is_it(&line) {
            let margin = line.len() - line.trim_start().len();
            end = Some(format!("{}}}", &line[..margin]));
        }
        if end.is_some() {
            found.push_str(line.trim());
            found.push('\n');
        }
        end = end.filter(|end| line != end);
    }
    assert!(!found.is_empty(), "{file}: {function}");
    found
}

/// The fields and accessors of a value.
fn fields_of(code: &str, value: &str) -> String {
    let found = code
        .match_indices(value)
        .filter(|(at, _)| !code[..*at].ends_with(is_part));
    let fields = found.map(|(at, _)| {
        let behind = &code[at + value.len()..];
        let name = behind.split(|letter| !is_part(letter)).next().unwrap();
        let call = behind[name.len()..].strip_prefix("()").map_or("", |_| "()");
        format!(".{name}{call}\n")
    });
    fields.collect()
}

fn is_part(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Returns true if code reads a field of a message: by its name, as a variant, or where it takes the message apart.
fn reads(code: &str, message: &str, field: &Field) -> bool {
    if field.oneof.is_some() {
        let variant = format!("::{}(", variant(field.name));
        let mut found = code.match_indices(&variant);
        return found.any(|(at, _)| !code[at + variant.len()..].starts_with("_)"));
    }
    let name = snake(field.name);
    let is_read = |before: &str| {
        let wanted = format!(".{before}{name}");
        code.match_indices(&wanted).any(|(at, _)| {
            let behind = &code[at + wanted.len()..];
            match behind.strip_prefix('(') {
                Some(rest) => matches!(field.kind, FieldKind::Enum(_)) && rest.starts_with(')'),
                None => !behind.starts_with(is_part),
            }
        })
    };
    is_read("") || is_read("r#") || takes_apart(code, message, &name)
}

fn takes_apart(code: &str, message: &str, field: &str) -> bool {
    let last = message.rsplit('.').next().unwrap();
    code.match_indices(" {").any(|(at, _)| {
        let word = code[..at].rsplit(|letter| !is_part(letter)).next().unwrap();
        let inside = code[at..].split(['}', ';']).next().unwrap();
        let mut parts = inside.split(|letter| !is_part(letter));
        word.eq_ignore_ascii_case(last) && parts.any(|part| part == field)
    })
}

/// A value of a field that is not its default.
fn sample(field: &Field) -> Json {
    fn one(kind: FieldKind) -> Json {
        match kind {
            FieldKind::String => json!("x"),
            FieldKind::Bytes => json!("QQ=="),
            FieldKind::Bool => json!(true),
            FieldKind::Int32
            | FieldKind::Int64
            | FieldKind::Uint32
            | FieldKind::Uint64
            | FieldKind::Float
            | FieldKind::Double => json!(1),
            FieldKind::Enum(values) => json!(values.values.last().unwrap().0),
            FieldKind::Message(message) => beside(short(message)),
            FieldKind::Duration => json!("1s"),
            FieldKind::Timestamp => json!("2020-01-01T00:00:00Z"),
            FieldKind::Wrapper(kind) => one(*kind),
            FieldKind::Struct | FieldKind::Any => json!({"a": "b"}),
        }
    }
    in_shape(field, one(field.kind))
}

/// A value as a field has it.
fn in_shape(field: &Field, value: Json) -> Json {
    match field.shape {
        Shape::One => value,
        Shape::List => json!([value]),
        Shape::Map(Key::String) => json!({"x": value}),
        Shape::Map(Key::Uint32) => json!({"1": value}),
    }
}

/// A field below a kind's spec: the messages and fields on the way to it, itself included.
type Way = Vec<(&'static Message, &'static Field)>;

/// The path of a field in findings.
fn place(way: &Way) -> String {
    let mut place = "spec".to_owned();
    for (at, (_, field)) in way.iter().enumerate() {
        place.push('.');
        place.push_str(field.json);
        if at + 1 < way.len() {
            place.push_str(match field.shape {
                Shape::One => "",
                Shape::List => "[0]",
                Shape::Map(Key::String) => "[x]",
                Shape::Map(Key::Uint32) => "[1]",
            });
        }
    }
    place
}

/// A spec with one field.
fn spec(way: &Way) -> Json {
    let mut inside: Option<Json> = None;
    for (message, field) in way.iter().rev() {
        let value = match inside {
            Some(inside) => in_shape(field, inside),
            None => sample(field),
        };
        let mut fields = beside(short(message));
        match (fields.get_mut(field.json), value) {
            (Some(Json::Object(known)), Json::Object(more)) => known.extend(more),
            (_, value) => fields[field.json] = value,
        }
        inside = Some(fields);
    }
    inside.unwrap()
}

/// Returns true if an object with this field gets a finding that says that nothing comes of it.
fn is_told(kind: &Kind, way: &Way) -> bool {
    let version = kind.versions.last().unwrap();
    let object = json!({
        "apiVersion": format!("{}/{version}", kind.group), "kind": kind.kind,
        "metadata": {"name": "a", "namespace": "n"}, "spec": spec(way),
    });
    let (object, mut findings) = check_all(&object);
    findings.extend(object.iter().flat_map(notes_of));
    let place = place(way);
    findings.iter().any(|finding| {
        let rest = finding.path.strip_prefix(&place);
        let is_its = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
        is_its && UNUSED.iter().any(|words| finding.message.contains(words))
    })
}

fn is_read(kind: &Kind, message: &Message, field: &Field) -> bool {
    let message = short(message);
    let readers = READERS.iter().find(|(name, _)| *name == message);
    let is_skipped = SKIPPED.contains(&(kind.kind, message, field.json));
    !is_skipped
        && readers.is_some_and(|(_, all)| all.iter().any(|at| reads(&code(*at), message, field)))
}

/// Fields below a message that are neither read nor told.
fn silent(
    kind: &'static Kind,
    message: &'static Message,
    way: &mut Way,
    found: &mut BTreeSet<String>,
    seen: &mut BTreeSet<&'static str>,
) {
    for field in message.fields {
        way.push((message, field));
        if is_read(kind, message, field) {
            seen.insert(short(message));
            if let FieldKind::Message(below) = field.kind {
                silent(kind, below, way, found, seen);
            }
        } else if !is_told(kind, way) {
            found.insert(format!("{} {}", kind.kind, place(way)));
        }
        way.pop();
    }
}

#[test]
fn each_field_of_a_rule_is_read_or_told() {
    let (mut found, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let acted_on = KINDS.iter().filter(|kind| kind.effect != Effect::None);
    for kind in acted_on {
        silent(kind, kind.message, &mut Way::new(), &mut found, &mut seen);
    }
    let found: Vec<_> = found.into_iter().collect();
    assert!(
        found.is_empty(),
        "neither read nor told: {}",
        found.join("\n")
    );
    for (message, _) in READERS {
        assert!(seen.contains(message), "no kind has {message}");
    }
}

#[test]
fn a_reader_is_told_from_a_namesake() {
    let message = KINDS[0].message;
    let field = |name: &str| message.field(name).unwrap();
    let http = field("http");
    for text in [
        "a.http;",
        "spec\n.http\n",
        "let VirtualService { http, .. } = a",
    ] {
        assert!(reads(text, "VirtualService", http), "{text}");
    }
    for text in [
        "a.https;",
        "a.http()",
        "let Gateway { http, .. } = a",
        "http",
    ] {
        assert!(!reads(text, "VirtualService", http), "{text}");
    }
    let code = "server\n.tls; my_server.bind; f(&server.hosts, server.mode(), server.port.number)";
    let fields = fields_of(&code.replace("\n.", "."), "server.");
    assert_eq!(fields, ".tls\n.hosts\n.mode()\n.port\n");
    assert_eq!(variant("http2_error"), "Http2Error");
    assert_eq!(snake("targetRefs"), "target_refs");
}
