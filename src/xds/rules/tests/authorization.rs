//! AuthorizationPolicies by what they decide: the filters that are made are asked about requests and connections, as Envoy
//! would ask them. The same rows go through the real Envoy in gudgeon's tests.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::model::Network;
use api::networking::Sidecar;
use api::security::AuthorizationPolicy;
use envoy_types::pb::envoy::config::core::v3::CidrRange;
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, Listener, filter};
use envoy_types::pb::envoy::config::rbac::v3::{
    Permission, Principal, Rbac, permission::Rule, principal::Identifier, rbac::Action,
};
use envoy_types::pb::envoy::config::route::v3::HeaderMatcher;
use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_filter,
};
use envoy_types::pb::envoy::extensions::filters::network::rbac::v3::Rbac as NetworkRbac;
use envoy_types::pb::envoy::r#type::matcher::v3::{
    StringMatcher, path_matcher, string_matcher::MatchPattern,
};

use super::*;
use crate::snapshot::Conflict;

const ROWS: &str = include_str!("../../../../tests/data/authorization.rows");
const HTTP: u16 = 9080;
const TCP: u16 = 9081;

/// A request or connection that comes in.
#[derive(Debug, Default)]
struct Incoming {
    port: u16,
    identity: Option<String>,
    peer: Option<IpAddr>,
    server_name: String,
    /// In lower case; none: no request.
    headers: BTreeMap<String, String>,
}

impl Incoming {
    /// From a row, up to its arrow.
    fn read(row: &str) -> Self {
        let mut fields = row.split_whitespace();
        let is_http = fields.next().unwrap() == "http";
        let mut one = Self {
            port: if is_http { HTTP } else { TCP },
            peer: Some([127, 0, 0, 1].into()),
            ..Self::default()
        };
        let mut rest = Vec::new();
        for word in fields {
            match word.split_once('=') {
                Some(("as", id)) => one.identity = Some(format!("spiffe://{id}")),
                Some(("from", address)) => one.peer = Some(address.parse().unwrap()),
                Some(("sni", name)) => one.server_name = name.to_owned(),
                _ => rest.push(word),
            }
        }
        if let [method, path, headers @ ..] = &rest[..] {
            // As the connection manager does it.
            let path = path.replace("/x/../", "/");
            let pseudo = [
                (":method", *method),
                (":path", &*path),
                (":authority", "web"),
            ];
            one.headers = pseudo
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into();
            for header in headers {
                let (name, value) = header.split_once(':').unwrap();
                let name = match name.to_ascii_lowercase().as_str() {
                    "host" => ":authority".to_owned(),
                    other => other.to_owned(),
                };
                one.headers.insert(name, value.to_owned());
            }
        }
        assert_eq!(is_http, !one.headers.is_empty(), "{row}");
        one
    }

    fn remote(&self) -> IpAddr {
        let named = self.headers.get("x-forwarded-for");
        named.map_or_else(|| self.peer.unwrap(), |named| named.parse().unwrap())
    }

    fn permits(&self, permission: &Permission) -> bool {
        match permission.rule.as_ref().unwrap() {
            Rule::AndRules(all) => all.rules.iter().all(|one| self.permits(one)),
            Rule::OrRules(all) => all.rules.iter().any(|one| self.permits(one)),
            Rule::Any(any) => *any,
            Rule::Header(header) => self.has(header),
            Rule::UrlPath(path) => {
                let Some(path_matcher::Rule::Path(matcher)) = &path.rule else {
                    panic!("{path:?}");
                };
                let path = self.headers.get(":path");
                path.is_some_and(|path| is(matcher, path.split('?').next().unwrap()))
            }
            Rule::DestinationIp(range) => contains(range, [127, 0, 0, 1].into()),
            Rule::DestinationPort(port) => *port == u32::from(self.port),
            Rule::NotRule(one) => !self.permits(one),
            Rule::RequestedServerName(matcher) => is(matcher, &self.server_name),
            other => panic!("{other:?}"),
        }
    }

    fn is_meant_by(&self, principal: &Principal) -> bool {
        match principal.identifier.as_ref().unwrap() {
            Identifier::AndIds(all) => all.ids.iter().all(|one| self.is_meant_by(one)),
            Identifier::OrIds(all) => all.ids.iter().any(|one| self.is_meant_by(one)),
            Identifier::Any(any) => *any,
            Identifier::DirectRemoteIp(range) => contains(range, self.peer.unwrap()),
            Identifier::RemoteIp(range) => contains(range, self.remote()),
            Identifier::Header(header) => self.has(header),
            Identifier::NotId(one) => !self.is_meant_by(one),
            // No filter has left any.
            Identifier::SourcedMetadata(_) => false,
            Identifier::Authenticated(one) => {
                let matcher = one.principal_name.as_ref().unwrap();
                self.identity.as_ref().is_some_and(|id| is(matcher, id))
            }
            other => panic!("{other:?}"),
        }
    }

    fn has(&self, header: &HeaderMatcher) -> bool {
        let value = self.headers.get(&header.name.to_ascii_lowercase());
        match header.header_match_specifier.as_ref().unwrap() {
            HeaderMatchSpecifier::PresentMatch(present) => value.is_some() == *present,
            HeaderMatchSpecifier::StringMatch(matcher) => {
                value.is_some_and(|value| is(matcher, value))
            }
            other => panic!("{other:?}"),
        }
    }

    fn passes(&self, rules: &Rbac) -> bool {
        let mut policies = rules.policies.values();
        let found = policies.any(|policy| {
            policy.permissions.iter().any(|one| self.permits(one))
                && policy.principals.iter().any(|one| self.is_meant_by(one))
        });
        match rules.action() {
            Action::Allow => found,
            Action::Deny => !found,
            Action::Log => true,
        }
    }
}

fn contains(range: &CidrRange, address: IpAddr) -> bool {
    let prefix = u8::try_from(range.prefix_len.unwrap().value).unwrap();
    let network = Network::new(range.address_prefix.parse().unwrap(), prefix).unwrap();
    network.contains(address)
}

fn is(matcher: &StringMatcher, text: &str) -> bool {
    let lower = |text: &str| match matcher.ignore_case {
        true => text.to_lowercase(),
        false => text.to_owned(),
    };
    let text = lower(text);
    match matcher.match_pattern.as_ref().unwrap() {
        MatchPattern::Exact(exact) => text == lower(exact),
        MatchPattern::Prefix(prefix) => text.starts_with(&lower(prefix)),
        MatchPattern::Suffix(suffix) => text.ends_with(&lower(suffix)),
        MatchPattern::Contains(part) => text.contains(&lower(part)),
        MatchPattern::SafeRegex(regex) => expression(&regex.regex, &text),
        other => panic!("{other:?}"),
    }
}

/// The few expressions that policies are made into: letters, `.` and `[^/]`, each once, or as often as `*` or `+` say; and
/// escapes in either case.
fn expression(pattern: &str, text: &str) -> bool {
    if pattern.is_empty() {
        return text.is_empty();
    }
    if let Some(rest) = pattern.strip_prefix("(?i:") {
        let (escape, rest) = rest.split_once(')').unwrap();
        return text
            .split_at_checked(escape.len())
            .is_some_and(|(first, text)| {
                first.eq_ignore_ascii_case(escape) && expression(rest, text)
            });
    }
    let (letter, rest): (Option<char>, &str) = match pattern.strip_prefix("[^/]") {
        Some(rest) => (None, rest),
        None => {
            let mut letters = pattern.chars();
            let first = letters.next().unwrap();
            let escaped = (first == '\\').then(|| letters.next().unwrap());
            let letter = escaped.or_else(|| (first != '.').then_some(first));
            (letter, letters.as_str())
        }
    };
    let is_class = pattern.starts_with("[^/]");
    let fits = |one: char| letter.map_or(!is_class || one != '/', |letter| letter == one);
    let (min, max, rest) = match rest.chars().next() {
        Some('*') => (0, usize::MAX, &rest[1..]),
        Some('+') => (1, usize::MAX, &rest[1..]),
        _ => (1, 1, rest),
    };
    let fitting = text.chars().take_while(|one| fits(*one)).count().min(max);
    (min..=fitting).rev().any(|count| {
        let after: String = text.chars().skip(count).collect();
        expression(rest, &after)
    })
}

/// The decisions of a port, in order, of requests or of connections.
fn decisions(view: &dyn View, port: u16) -> Vec<Rbac> {
    let listener: Listener = decoded(view, Type::Listener, "virtualInbound");
    let of_port = |chain: &&FilterChain| {
        let matching = chain.filter_chain_match.as_ref();
        let number = matching.and_then(|one| one.destination_port);
        number.is_some_and(|number| number.value == u32::from(port))
    };
    let all: Vec<_> = listener.filter_chains.iter().filter(of_port).collect();
    assert!(!all.is_empty(), "{port}");
    let first = of_chain(&all[0].filters);
    // Behind TLS and before it the same holds.
    for chain in &all {
        assert_eq!(of_chain(&chain.filters), first);
    }
    first
}

fn of_chain(filters: &[Filter]) -> Vec<Rbac> {
    let any = |filter: &Filter| match &filter.config_type {
        Some(filter::ConfigType::TypedConfig(any)) => any.value.clone(),
        other => panic!("{other:?}"),
    };
    let (last, before) = filters.split_last().unwrap();
    if last.name != "envoy.filters.network.http_connection_manager" {
        let rbac = before.iter().map(|filter| {
            assert_eq!(filter.name, "envoy.filters.network.rbac");
            NetworkRbac::decode(&*any(filter)).unwrap().rules.unwrap()
        });
        return rbac.collect();
    }
    assert!(before.is_empty());
    let manager = HttpConnectionManager::decode(&*any(last)).unwrap();
    let filters = manager.http_filters.iter();
    let rbac = filters.take_while(|filter| filter.name == "envoy.filters.http.rbac");
    rbac.map(|filter| match &filter.config_type {
        Some(http_filter::ConfigType::TypedConfig(any)) => {
            HttpRbac::decode(&*any.value).unwrap().rules.unwrap()
        }
        other => panic!("{other:?}"),
    })
    .collect()
}

pub(super) fn workload_world() -> World {
    let mesh = "enableAutoMtls: true\ntrustDomainAliases: [old.domain]";
    let config = mesh::parse_over(&mesh::discovery_defaults(), mesh).unwrap();
    let mut world = World::new(Arc::new(config.config));
    let sidecar = "ingress: [{port: {number: 9080, protocol: HTTP, name: http}, defaultEndpoint: '127.0.0.1:80'}, \
                   {port: {number: 9081, protocol: TCP, name: tcp}, defaultEndpoint: '127.0.0.1:81'}]";
    let sidecar = object::<Sidecar>("web", 1, sidecar);
    insert(&mut world.sidecars, sidecar);
    world
}

pub(super) fn policy(world: &mut World, name: &str, spec: &str) {
    let object = object::<AuthorizationPolicy>(name, 1, spec);
    insert(&mut world.authorization_policies, object);
}

pub(super) fn workload() -> Arc<Node> {
    node(
        "demo",
        &[
            ("app", "web"),
            ("tier", "front"),
            ("security.istio.io/tlsMode", "istio"),
        ],
    )
}

/// Policies that hold together, each with its namespace, and the rows behind them with their lines.
type Group<'a> = (Vec<(&'a str, &'a str)>, Vec<(usize, &'a str)>);

fn groups(text: &str) -> Vec<Group<'_>> {
    let mut all: Vec<Group<'_>> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.strip_prefix("policy ") {
            Some(policy) => {
                if all.last().is_none_or(|(_, rows)| !rows.is_empty()) {
                    all.push((Vec::new(), Vec::new()));
                }
                let (policies, _) = all.last_mut().unwrap();
                policies.push(policy.split_once(' ').unwrap());
            }
            None => all.last_mut().unwrap().1.push((at + 1, line)),
        }
    }
    all
}

#[test]
fn policies_decide_as_the_rows_say() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (policies, rows) in groups(ROWS) {
        let mut world = workload_world();
        for (at, (namespace, spec)) in policies.iter().enumerate() {
            policy(&mut world, &format!("{namespace}/p{at}"), spec);
        }
        let snapshot = snapshot(world);
        let view = snapshot.view(&workload());
        for (line, row) in rows {
            let (incoming, expected) = row.split_once(" => ").unwrap();
            let incoming = Incoming::read(incoming);
            let all = decisions(&*view, incoming.port);
            let passes = all.iter().all(|rules| incoming.passes(rules));
            if passes != (expected == "yes") {
                wrong.push(format!("line {line}: {row}: {policies:?}"));
            }
            count += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 200, "{count}");
}

/// Returns the conflicts of a workload's policies, and the decision of each port.
fn conflicts_and_decisions(policies: &[&str]) -> (Vec<Conflict>, [Vec<Rbac>; 2]) {
    let mut world = workload_world();
    for (at, spec) in policies.iter().enumerate() {
        policy(&mut world, &format!("p{at}"), spec);
    }
    let snapshot = snapshot(world);
    let view = snapshot.view(&workload());
    let decisions = [HTTP, TCP].map(|port| decisions(&*view, port));
    (snapshot.conflicts(), decisions)
}

#[test]
fn filters_stand_in_order_and_each_once() {
    let rule = "rules: [{to: [{operation: {ports: ['9080']}}]}]";
    let specs = ["AUDIT", "ALLOW", "DENY"].map(|action| format!("action: {action}\n{rule}"));
    let specs: Vec<_> = specs.iter().map(String::as_str).collect();
    let (conflicts, all) = conflicts_and_decisions(&specs);
    assert_eq!(conflicts, []);
    for decisions in all {
        let actions: Vec<_> = decisions.iter().map(Rbac::action).collect();
        assert_eq!(actions, [Action::Deny, Action::Allow, Action::Log]);
        let names = |rules: &Rbac| rules.policies.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&decisions[0]), ["ns[demo]-policy[p2]-rule[0]"]);
    }
}

#[test]
fn one_that_is_not_enforced_as_written_keeps_out_and_says_so() {
    let long = format!("a{}", "x".repeat(50_000));
    let closed = |decisions: &[Rbac]| {
        decisions.len() == 1
            && decisions[0].action() == Action::Allow
            && decisions[0].policies.is_empty()
    };
    let custom = "action: CUSTOM\nprovider: {name: a}\nrules: [{}]";
    let (conflicts, [http, tcp]) = conflicts_and_decisions(&["rules: [{}]", custom]);
    assert!(closed(&http) && closed(&tcp));
    assert_eq!(conflicts.len(), 1);
    let conflict = &conflicts[0];
    assert_eq!(conflict.metric, "gudgeon_policies_not_enforced_as_written");
    assert_eq!(
        conflict.objects[0].to_string(),
        "AuthorizationPolicy demo/p1"
    );
    assert_eq!(conflict.key, "AuthorizationPolicy demo/p1");
    let message =
        "denies all requests and connections: the mesh has no extensionProviders named \"a\"";
    assert_eq!(conflict.message, message);
    // Too long for a proxy: a rule that lets in is none, and one that keeps out denies everything.
    let of = |action: &str| {
        format!("action: {action}\nrules: [{{from: [{{source: {{namespaces: ['{long}*']}}}}]}}]")
    };
    let (conflicts, [http, _]) = conflicts_and_decisions(&[&of("ALLOW")]);
    assert!(closed(&http));
    assert!(
        conflicts[0]
            .message
            .contains("spec.rules[0] matches nothing: a value is too long")
    );
    let (conflicts, [http, _]) = conflicts_and_decisions(&[&of("DENY")]);
    let anybody = Incoming::read("http GET /");
    assert!(!anybody.passes(&http[0]));
    assert!(
        conflicts[0]
            .message
            .contains("spec.rules[0] denies everything: a value is too long")
    );
    // Issuers and subjects without end.
    let slashes = format!(
        "rules: [{{from: [{{source: {{requestPrincipals: ['{}']}}}}]}}]",
        "a/".repeat(33)
    );
    let (conflicts, [http, tcp]) = conflicts_and_decisions(&[&slashes]);
    assert!(closed(&http) && closed(&tcp));
    assert!(
        conflicts[0].message.contains("has more than 32 slashes"),
        "{conflicts:?}"
    );
}

#[test]
fn policies_of_a_workload_have_a_bound() {
    let paths: Vec<_> = (0..30_000).map(|at| format!("/path-{at:05}")).collect();
    let spec = format!(
        "action: DENY\nrules: [{{to: [{{operation: {{paths: [{}]}}}}]}}]",
        paths.join(", ")
    );
    let (conflicts, all) = conflicts_and_decisions(&[&spec]);
    for decisions in all {
        assert!(decisions.len() == 1 && decisions[0].policies.is_empty());
    }
    let [conflict] = &conflicts[..] else {
        panic!("{conflicts:?}")
    };
    assert_eq!(conflict.metric, "gudgeon_rules_too_large");
    assert!(
        conflict.message.starts_with("denies everything: "),
        "{conflict:?}"
    );
    let small = format!(
        "action: DENY\nrules: [{{to: [{{operation: {{paths: [{}]}}}}]}}]",
        paths[..1000].join(", ")
    );
    let (conflicts, _) = conflicts_and_decisions(&[&small]);
    assert_eq!(conflicts, []);
}

#[test]
fn a_listener_names_its_policies_and_equal_worlds_have_equal_bytes() {
    let make = || {
        let mut world = workload_world();
        for at in 0..20 {
            let spec = format!("rules: [{{to: [{{operation: {{paths: [/{at}]}}}}]}}, {{}}]");
            policy(&mut world, &format!("p{at}"), &spec);
        }
        let view = snapshot(world).view(&workload());
        view.get(Type::Listener, "virtualInbound").unwrap()
    };
    let first = make();
    assert_eq!(first.from.len(), 21);
    assert_eq!(first.from[0].to_string(), "AuthorizationPolicy demo/p0");
    // By its Sidecar it has its ports.
    assert_eq!(first.from[20].kind, "Sidecar");
    for _ in 0..5 {
        assert_eq!(make().body, first.body);
    }
}

/// Ports of no service lead to the application, too.
#[test]
fn passthrough_chains_enforce_the_same_policies() {
    let mut world = workload_world();
    policy(&mut world, "p", "{}");
    let view = snapshot(world).view(&workload());
    let listener: Listener = decoded(&*view, Type::Listener, "virtualInbound");
    let passing = listener.filter_chains.iter().filter(|chain| {
        let last = chain.filters.last().unwrap();
        format!("{last:?}").contains("Passthrough")
            || String::from_utf8_lossy(&match &last.config_type {
                Some(filter::ConfigType::TypedConfig(any)) => any.value.clone(),
                other => panic!("{other:?}"),
            })
            .contains("InboundPassthrough")
    });
    let all: Vec<_> = passing.map(|chain| of_chain(&chain.filters)).collect();
    assert_eq!(all.len(), 1);
    assert!(all[0].len() == 1 && all[0][0].policies.is_empty());
}
