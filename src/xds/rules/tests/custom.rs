//! Policies whose action is CUSTOM, by the filters that ask. What is asked, and what comes of answers, goes through the real
//! Envoy in gudgeon's tests.

use envoy_types::pb::envoy::config::core::v3::grpc_service::TargetSpecifier;
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, Listener, filter};
use envoy_types::pb::envoy::extensions::filters::http::ext_authz::v3::ExtAuthz;
use envoy_types::pb::envoy::extensions::filters::http::ext_authz::v3::ext_authz::Services;
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::Rbac;
use envoy_types::pb::envoy::extensions::filters::network::ext_authz::v3::ExtAuthz as NetworkExtAuthz;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, http_filter,
};
use envoy_types::pb::envoy::extensions::filters::network::rbac::v3::Rbac as NetworkRbac;
use envoy_types::pb::envoy::r#type::matcher::v3::ListStringMatcher;

use super::authorization::{policy, workload, workload_world};
use super::*;
use crate::snapshot::Conflict;

const HTTP: &str = "
- name: web
  envoyExtAuthzHttp:
    service: authz.demo.svc.cluster.local
    port: 80
    timeout: 2s
    pathPrefix: /check
    failOpen: true
    statusOnError: '503'
    clearRouteCache: true
    includeRequestHeadersInCheck: [cookie, 'x-*', '*-id']
    includeHeadersInCheck: [old]
    includeAdditionalHeadersInCheck: {b: '100%', a: x}
    includeRequestBodyInCheck: {maxRequestBytes: 10, allowPartialMessage: true}
    headersToUpstreamOnAllow: [x-user]
    headersToDownstreamOnDeny: [set-cookie]
    headersToDownstreamOnAllow: [x-seen]
";
const GRPC: &str = "
- name: calls
  envoyExtAuthzGrpc: {service: demo/authz.demo.svc.cluster.local, port: 90}
";

/// With providers, and a service that they may be.
fn with(providers: &str, policies: &[&str]) -> World {
    let mut world = workload_world();
    let text = format!("enableAutoMtls: true\nextensionProviders:{providers}");
    let mesh = mesh::parse_over(&mesh::discovery_defaults(), &text).unwrap();
    // Nothing is warned of but a provider that nobody can ask.
    let mut warnings = mesh.warnings.iter();
    assert!(
        warnings.all(|one| one.ends_with("deny all requests and connections")),
        "{:?}",
        mesh.warnings
    );
    world.mesh = Arc::new(mesh.config);
    service(
        &mut world,
        "authz.demo",
        &[(80, "HTTP"), (90, "GRPC")],
        &[("10.0.9.9", "v1")],
    );
    for (at, spec) in policies.iter().enumerate() {
        policy(&mut world, &format!("p{at}"), spec);
    }
    world
}

fn custom(provider: &str, rule: &str) -> String {
    format!("action: CUSTOM\nprovider: {{name: {provider}}}\nrules: [{{{rule}}}]")
}

/// Returns the filters that a port's listener has in front, of requests and of connections, and the conflicts.
fn made(world: World) -> (Vec<HttpFilter>, Vec<Filter>, Vec<Conflict>) {
    let snapshot = snapshot(world);
    let view = snapshot.view(&workload());
    let chain = |port: u16| {
        let name = format!("10.9.0.1_{port}");
        let listener: Listener = decoded(&*view, Type::Listener, &name);
        listener.filter_chains[0].filters.clone()
    };
    let manager: HttpConnectionManager = config(chain(9080).last().unwrap());
    (manager.http_filters, chain(9081), snapshot.conflicts())
}

fn config<M: Message + Default>(filter: &Filter) -> M {
    match &filter.config_type {
        Some(filter::ConfigType::TypedConfig(any)) => M::decode(&*any.value).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn http_config<M: Message + Default>(filter: &HttpFilter) -> M {
    match &filter.config_type {
        Some(http_filter::ConfigType::TypedConfig(any)) => M::decode(&*any.value).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn names(filters: &[HttpFilter]) -> Vec<&str> {
    let names = filters.iter().map(|one| one.name.as_str());
    names.map(|name| name.rsplit('.').next().unwrap()).collect()
}

fn patterns(list: Option<&ListStringMatcher>) -> Vec<String> {
    use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
    let all = list.iter().flat_map(|list| &list.patterns);
    all.map(|one| {
        assert!(one.ignore_case);
        match one.match_pattern.as_ref().unwrap() {
            MatchPattern::Exact(text) => text.clone(),
            MatchPattern::Prefix(text) => format!("{text}*"),
            MatchPattern::Suffix(text) => format!("*{text}"),
            other => panic!("{other:?}"),
        }
    })
    .collect()
}

#[test]
fn a_provider_is_asked_by_requests_about_what_a_policy_matches() {
    let rule = "to: [{operation: {paths: [/admin]}}]";
    let deny = "action: DENY\nrules: [{to: [{operation: {paths: [/no]}}]}]";
    let (http, tcp, conflicts) = made(with(HTTP, &[deny, &custom("web", rule)]));
    assert_eq!(conflicts, []);
    assert_eq!(names(&http)[..3], ["rbac", "ext_authz", "rbac"]);
    let shadow: Rbac = http_config(&http[0]);
    assert_eq!(
        (shadow.rules, &*shadow.shadow_rules_stat_prefix),
        (None, "ext_authz_web_")
    );
    let asked = shadow.shadow_rules.unwrap();
    assert_eq!(asked.action, 1);
    let asked: Vec<_> = asked.policies.keys().collect();
    assert_eq!(asked, ["ns[demo]-policy[p1]-rule[0]"]);
    let filter: ExtAuthz = http_config(&http[1]);
    let key = filter.filter_enabled_metadata.clone().unwrap();
    assert_eq!(key.filter, "envoy.filters.http.rbac");
    assert!(format!("{:?}", key.path).contains("ext_authz_web_shadow_engine_result"));
    assert!(filter.failure_mode_allow && filter.clear_route_cache);
    assert_eq!(filter.status_on_error.unwrap().code, 503);
    let body = filter.with_request_body.unwrap();
    assert_eq!(
        (body.max_request_bytes, body.allow_partial_message),
        (10, true)
    );
    let sent = patterns(filter.allowed_headers.as_ref());
    // The older field counts where the newer one is not written: what is taken out of that stays out.
    assert_eq!(sent, ["cookie", "x-*", "*-id"]);
    let Some(Services::HttpService(service)) = filter.services else {
        panic!("a service");
    };
    assert_eq!(service.path_prefix, "/check");
    let uri = service.server_uri.unwrap();
    assert_eq!(uri.uri, "http://authz.demo.svc.cluster.local:80");
    assert_eq!(uri.timeout.unwrap().seconds, 2);
    assert!(format!("{:?}", uri.http_upstream_type).contains("outbound|80||authz.demo"));
    let added = service.authorization_request.unwrap().headers_to_add;
    let added: Vec<_> = added.iter().map(|one| (&*one.key, &*one.value)).collect();
    assert_eq!(added, [("a", "x"), ("b", "100%%")]);
    let answer = service.authorization_response.unwrap();
    for (list, name) in [
        (&answer.allowed_upstream_headers, "x-user"),
        (&answer.allowed_client_headers, "set-cookie"),
        (&answer.allowed_client_headers_on_success, "x-seen"),
    ] {
        assert_eq!(patterns(list.as_ref()), [name]);
    }
    // It knows nothing of connections, and the rule asks for what only requests have.
    assert_eq!(tcp.len(), 2);
    let deny: NetworkRbac = config(&tcp[0]);
    let denied: Vec<_> = deny.rules.unwrap().policies.into_keys().collect();
    assert_eq!(denied, ["ns[demo]-policy[p0]-rule[0]"]);
}

#[test]
fn a_provider_is_asked_by_grpc_about_connections_too() {
    let (http, tcp, conflicts) = made(with(GRPC, &[&custom("calls", "")]));
    assert_eq!(conflicts, []);
    assert_eq!(names(&http)[..2], ["rbac", "ext_authz"]);
    let filter: ExtAuthz = http_config(&http[1]);
    assert!(!filter.failure_mode_allow && filter.status_on_error.is_none());
    let Some(Services::GrpcService(service)) = filter.services else {
        panic!("a service");
    };
    assert_eq!(service.timeout.unwrap().seconds, 600);
    let Some(TargetSpecifier::EnvoyGrpc(target)) = service.target_specifier else {
        panic!("a cluster");
    };
    assert_eq!(
        target.cluster_name,
        "outbound|90||authz.demo.svc.cluster.local"
    );
    assert_eq!(target.authority, "authz.demo.svc.cluster.local");
    let of_tcp: Vec<_> = tcp.iter().map(|one| one.name.as_str()).collect();
    let expected =
        ["rbac", "ext_authz", "tcp_proxy"].map(|name| format!("envoy.filters.network.{name}"));
    assert_eq!(of_tcp, expected);
    let shadow: NetworkRbac = config(&tcp[0]);
    assert_eq!((shadow.rules, &*shadow.stat_prefix), (None, "tcp."));
    assert_eq!(shadow.shadow_rules.unwrap().policies.len(), 1);
    let filter: NetworkExtAuthz = config(&tcp[1]);
    let key = filter.filter_enabled_metadata.unwrap();
    assert_eq!(key.filter, "envoy.filters.network.rbac");
    // Of connections there are no paths: the rule holds without.
    let (_, tcp, _) = made(with(
        GRPC,
        &[&custom("calls", "to: [{operation: {paths: [/a]}}]")],
    ));
    assert_eq!(tcp.len(), 3);
}

/// A provider that is asked by requests is not asked about connections. At a TCP port these are none; at a port without a protocol
/// they may be requests that the proxy does not read, and are denied.
#[test]
fn connections_without_a_protocol_are_denied_where_a_provider_checks_requests() {
    let policies = [custom("web", "to: [{operation: {paths: ['/admin*']}}]")];
    let mut world = with(HTTP, &policies.each_ref().map(String::as_str));
    world.sidecars = Arc::default();
    service(
        &mut world,
        "a.demo",
        &[(9080, "HTTP"), (9081, "TCP"), (9082, "")],
        &[("10.9.0.1", "v1")],
    );
    let key = ServiceKey::new("a.demo.svc.cluster.local", "demo");
    let services = Arc::make_mut(&mut world.services);
    Arc::make_mut(services.get_mut(&key).unwrap()).selector = labels(&[("app", "web")]);
    let snapshot = snapshot(world);
    let view = snapshot.view(&workload());
    let listener: Listener = decoded(&*view, Type::Listener, "virtualInbound");
    let chains = |port: u32| {
        let is_of_port = |chain: &&FilterChain| {
            let matching = chain.filter_chain_match.as_ref();
            let number = matching.and_then(|one| one.destination_port);
            number.is_some_and(|number| number.value == port)
        };
        let all: Vec<_> = listener.filter_chains.iter().filter(is_of_port).collect();
        assert!(!all.is_empty(), "{port}");
        all
    };
    let denies = |filter: &Filter| filter.name == "envoy.filters.network.rbac";
    assert!(
        !chains(9081)
            .iter()
            .any(|chain| chain.filters.iter().any(denies))
    );
    let unread = chains(9082);
    let (http, tcp): (Vec<&FilterChain>, Vec<&FilterChain>) = unread
        .into_iter()
        .partition(|chain| chain.filters.len() == 1);
    assert!(!http.is_empty() && !tcp.is_empty());
    assert!(
        tcp.iter().all(|chain| denies(&chain.filters[0])),
        "{tcp:#?}"
    );
    // So are those to a port that is no service's.
    let of_none = listener.filter_chains.iter().filter(|chain| {
        let matching = chain.filter_chain_match.as_ref();
        matching.is_some_and(|one| one.destination_port.is_none() && !one.prefix_ranges.is_empty())
    });
    let of_none: Vec<&FilterChain> = of_none.collect();
    assert!(!of_none.is_empty());
    assert!(
        of_none.iter().all(|chain| denies(&chain.filters[0])),
        "{of_none:#?}"
    );
    let told = snapshot.conflicts();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].message.contains("ports without a protocol"),
        "{told:?}"
    );
}

/// Tokens are read after the provider was asked: a header that is made of a claim is the client's own until then.
#[test]
fn a_policy_that_asks_by_a_header_made_of_claims_is_told() {
    let by_header = |name: &str| {
        custom(
            "calls",
            &format!("when: [{{key: 'request.headers[{name}]', values: [admin]}}]"),
        )
    };
    let policies = [by_header("X-Role"), by_header("x-other")];
    let mut world = with(GRPC, &policies.each_ref().map(String::as_str));
    let keys = r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AQAB","y":"AQAB"}]}"#;
    let rule = format!(
        "jwtRules: [{{issuer: i, jwks: '{keys}', outputClaimToHeaders: [{{header: x-role, claim: role}}]}}]"
    );
    tokens::policy(&mut world, "t", &rule);
    let (_, _, conflicts) = made(world);
    let told: Vec<_> = conflicts.iter().map(|one| one.message.as_str()).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("made of claims"), "{told:?}");
}

#[test]
fn several_providers_stand_in_the_order_of_their_names_and_before_tokens() {
    let both = format!("{HTTP}{GRPC}");
    let policies = [custom("web", ""), custom("calls", ""), custom("web", "")];
    let policies = policies.each_ref().map(String::as_str);
    let mut world = with(&both, &policies);
    let keys = r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AQAB","y":"AQAB"}]}"#;
    tokens::policy(
        &mut world,
        "t",
        &format!("jwtRules: [{{issuer: i, jwks: '{keys}'}}]"),
    );
    let (http, _, conflicts) = made(world.clone());
    assert_eq!(
        names(&http)[..5],
        ["rbac", "ext_authz", "rbac", "ext_authz", "jwt_authn"]
    );
    let prefix = |at: usize| http_config::<Rbac>(&http[at]).shadow_rules_stat_prefix;
    assert_eq!(
        [prefix(0), prefix(2)],
        ["ext_authz_calls_", "ext_authz_web_"]
    );
    let shadow: Rbac = http_config(&http[2]);
    assert_eq!(shadow.shadow_rules.unwrap().policies.len(), 2);
    // One of them cannot be asked about connections, and lets none in.
    assert_eq!(conflicts.len(), 2);
    let message = "spec.rules[0] denies connections: its provider checks requests only";
    assert!(conflicts[0].message.ends_with(message), "{conflicts:?}");
    let body = |world: &World| {
        let view = snapshot(world.clone()).view(&workload());
        view.get(Type::Listener, "virtualInbound")
            .unwrap()
            .body
            .clone()
    };
    let first = body(&world);
    assert!((0..5).all(|_| body(&world) == first));
}

/// Once it is told for a proxy it is still told once.
#[test]
fn a_provider_that_the_mesh_has_not_is_told_before_a_proxy_is_there() {
    let there =
        "\n- name: a\n  envoyExtAuthzHttp: {service: authz.demo.svc.cluster.local, port: 80}\n";
    for (spec, providers, is_told) in [
        (custom("a", ""), " []\n", true),
        (custom("a", ""), there, false),
        ("action: DENY\nrules: [{}]".to_owned(), " []\n", false),
    ] {
        let mut world = with(providers, &[&spec]);
        let snapshot = snapshot(world.clone());
        let told = || {
            let all = snapshot.conflicts().into_iter();
            let all = all.filter(|one| {
                one.message
                    .starts_with("denies all requests and connections")
            });
            let all = all.map(|one| format!("{} {}", one.objects[0], one.message));
            all.collect::<Vec<_>>()
        };
        let words = "AuthorizationPolicy demo/p0 denies all requests and connections: the mesh has no extensionProviders named \"a\"";
        let expected = Vec::from_iter(is_told.then_some(words));
        assert_eq!(told(), expected, "{spec}");
        drop(snapshot.view(&workload()).all(Type::Listener));
        assert_eq!(told(), expected, "{spec}");
        // A policy that is tried asks nobody.
        for policy in Arc::make_mut(&mut world.authorization_policies).values_mut() {
            Arc::make_mut(policy).dry_run = true;
        }
        let tried = Snapshot::new(world, Arc::new(Settings::default())).conflicts();
        let tells = |one: &Conflict| one.message.contains("denies all requests and connections");
        assert!(!tried.iter().any(tells));
    }
}

#[test]
fn a_provider_that_cannot_be_asked_lets_nothing_in_and_says_why() {
    let http = |rest: &str| format!("\n- name: a\n  envoyExtAuthzHttp: {{{rest}}}\n");
    let grpc = |rest: &str| format!("\n- name: a\n  envoyExtAuthzGrpc: {{{rest}}}\n");
    let place = "service: authz.demo.svc.cluster.local, port: 80";
    for (providers, why) in [
        (
            " []\n".to_owned(),
            "the mesh has no extensionProviders named \"a\"",
        ),
        (
            "\n- {name: a, zipkin: {service: b, port: 1}}\n".to_owned(),
            "provider \"a\": neither envoyExtAuthzHttp nor envoyExtAuthzGrpc is there",
        ),
        (
            http("service: none.demo.svc.cluster.local, port: 80"),
            "provider \"a\": the proxy sees no service \"none.demo.svc.cluster.local\" with port 80",
        ),
        (
            http("service: authz.demo.svc.cluster.local, port: 81"),
            "provider \"a\": the proxy sees no service \"authz.demo.svc.cluster.local\" with port 81",
        ),
        (
            http("service: other/authz.demo.svc.cluster.local, port: 80"),
            "provider \"a\": the proxy sees no service \"other/authz.demo.svc.cluster.local\" with port 80",
        ),
        (
            http("service: authz.demo.svc.cluster.local, port: 4294967295"),
            "provider \"a\": the proxy sees no service \"authz.demo.svc.cluster.local\" with port 4294967295",
        ),
        (
            grpc(place),
            "provider \"a\": port 80 speaks neither GRPC nor HTTP2",
        ),
        (
            http(&format!("{place}, statusOnError: '42'")),
            "provider \"a\": statusOnError \"42\" is no status",
        ),
        (
            http(&format!("{place}, pathPrefix: x")),
            "provider \"a\": pathPrefix does not begin with a slash",
        ),
        (
            http(&format!("{place}, includeRequestBodyInCheck: {{}}")),
            "provider \"a\": maxRequestBytes is 0",
        ),
        (
            http(&format!(
                "{place}, includeAdditionalHeadersInCheck: {{x: \"a\\nb\"}}"
            )),
            "provider \"a\": includeAdditionalHeadersInCheck has what is no header",
        ),
    ] {
        let (filters, tcp, conflicts) = made(with(&providers, &[&custom("a", "")]));
        let first: Rbac = http_config(&filters[0]);
        assert!(first.rules.unwrap().policies.is_empty(), "{why}");
        let first: NetworkRbac = config(&tcp[0]);
        assert!(first.rules.unwrap().policies.is_empty(), "{why}");
        let message = format!("denies all requests and connections: {why}");
        assert_eq!(conflicts[0].message, message);
    }
}

/// A policy that is tried decides nothing; what it would decide is counted in front of what does.
#[test]
fn a_policy_that_is_tried_stands_in_shadows_alone() {
    use api::security::AuthorizationPolicy;
    let tried = |specs: &[&str], enforced: &[&str]| {
        let mut world = with(HTTP, enforced);
        for (at, spec) in specs.iter().enumerate() {
            let mut object = object::<AuthorizationPolicy>(&format!("trial{at}"), 1, spec);
            Arc::make_mut(&mut object).dry_run = true;
            insert(&mut world.authorization_policies, object);
        }
        made(world)
    };
    let deny = "action: DENY\nrules: [{to: [{operation: {paths: [/a]}}]}]";
    let allow = "action: ALLOW\nrules: [{to: [{operation: {paths: [/b]}}]}]";
    let (filters, tcp, conflicts) = tried(&[deny, allow], &["action: DENY\nrules: [{}]"]);
    assert_eq!(conflicts, []);
    assert_eq!(names(&filters)[..3], ["rbac", "rbac", "rbac"]);
    let shadows: Vec<Rbac> = filters[..3].iter().map(http_config).collect();
    for (shadow, prefix, name) in [
        (
            &shadows[0],
            "istio_dry_run_deny_",
            "ns[demo]-policy[trial0]-rule[0]",
        ),
        (
            &shadows[1],
            "istio_dry_run_allow_",
            "ns[demo]-policy[trial1]-rule[0]",
        ),
    ] {
        assert!(shadow.rules.is_none(), "{shadow:?}");
        assert_eq!(shadow.shadow_rules_stat_prefix, prefix);
        let policies = &shadow.shadow_rules.as_ref().unwrap().policies;
        assert_eq!(policies.keys().collect::<Vec<_>>(), [name]);
    }
    let enforced = shadows[2].rules.as_ref().unwrap();
    assert_eq!(
        enforced.policies.keys().collect::<Vec<_>>(),
        ["ns[demo]-policy[p0]-rule[0]"]
    );
    // Of connections a rule for requests keeps out all, and lets in none.
    let shadow: NetworkRbac = config(&tcp[0]);
    assert!(shadow.rules.is_none() && shadow.stat_prefix == "tcp.");
    assert_eq!(shadow.shadow_rules.unwrap().policies.len(), 1);
    // Nothing is asked, and nothing is logged.
    let custom = custom("nobody", "");
    let (filters, tcp, conflicts) = tried(&[&custom, "action: AUDIT\nrules: [{}]"], &[]);
    assert!(!names(&filters).contains(&"rbac") && tcp.len() == 1);
    assert_eq!(conflicts, []);
    // One that is too large is left out, and closes nothing.
    let paths: Vec<_> = (0..30_000).map(|at| format!("/path-{at:05}")).collect();
    let large = format!(
        "action: DENY\nrules: [{{to: [{{operation: {{paths: [{}]}}}}]}}]",
        paths.join(", ")
    );
    let (filters, _, conflicts) = tried(&[&large], &[]);
    assert!(!names(&filters).contains(&"rbac"));
    assert!(
        conflicts[0].message.starts_with("no policy is tried: "),
        "{conflicts:?}"
    );
}
