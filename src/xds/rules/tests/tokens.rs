//! RequestAuthentications: filters that read tokens, by their messages. Tokens themselves go through the real Envoy in gudgeon's
//! tests.

use api::networking::Sidecar;
use api::security::{JwksSource, KeySet, RequestAuthentication};
use envoy_types::pb::envoy::config::core::v3::data_source;
use envoy_types::pb::envoy::config::listener::v3::{Listener, filter};
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3::jwt_provider::JwksSourceSpecifier;
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3::jwt_requirement::RequiresType;
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3::requirement_rule::RequirementType;
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3::{
    JwtAuthentication, JwtProvider,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, http_filter,
};
use envoy_types::pb::envoy::r#type::matcher::v3::metadata_matcher::path_segment;
use envoy_types::pb::envoy::r#type::matcher::v3::value_matcher;

use super::authorization::{self, workload, workload_world};
use super::*;
use crate::snapshot::Conflict;

const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AQAB","y":"AQAB"}]}"#;

pub(super) fn policy(world: &mut World, name: &str, spec: &str) {
    let object = object::<RequestAuthentication>(name, 1, spec);
    insert(&mut world.request_authentications, object);
}

/// The filters of requests at the workload's port.
fn filters(view: &dyn View) -> Vec<HttpFilter> {
    http_filters(&decoded(view, Type::Listener, "10.9.0.1_9080"))
}

fn http_filters(listener: &Listener) -> Vec<HttpFilter> {
    let filter = listener.filter_chains[0].filters.last().unwrap().clone();
    let Some(filter::ConfigType::TypedConfig(any)) = filter.config_type else {
        panic!("{filter:?}");
    };
    HttpConnectionManager::decode(&*any.value)
        .unwrap()
        .http_filters
}

/// The one that reads tokens, the first of all.
fn tokens(view: &dyn View) -> Option<JwtAuthentication> {
    let first = filters(view).into_iter().next()?;
    if first.name != "envoy.filters.http.jwt_authn" {
        return None;
    }
    Some(read(first))
}

fn read(filter: HttpFilter) -> JwtAuthentication {
    match filter.config_type {
        Some(http_filter::ConfigType::TypedConfig(any)) => {
            JwtAuthentication::decode(&*any.value).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the filter that reads tokens, and the conflicts.
fn made(world: World) -> (Option<JwtAuthentication>, Vec<Conflict>) {
    let snapshot = snapshot(world);
    let view = snapshot.view(&workload());
    let found = tokens(&*view);
    (found, snapshot.conflicts())
}

fn provider(rule: &str) -> (JwtProvider, Vec<Conflict>) {
    let mut world = workload_world();
    policy(&mut world, "p", &format!("jwtRules: [{{{rule}}}]"));
    let (found, conflicts) = made(world);
    let name = "ns[demo]-policy[p]-rule[0]";
    (found.unwrap().providers.remove(name).unwrap(), conflicts)
}

fn keys(provider: &JwtProvider) -> &str {
    match &provider.jwks_source_specifier {
        Some(JwksSourceSpecifier::LocalJwks(source)) => match &source.specifier {
            Some(data_source::Specifier::InlineString(text)) => text,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Returns the tokens that a request must have: names of providers, `-` for nothing.
fn ways(filter: &JwtAuthentication) -> Vec<String> {
    let [rule] = &filter.rules[..] else {
        panic!("{filter:?}");
    };
    let Some(RequirementType::Requires(requires)) = &rule.requirement_type else {
        panic!("{rule:?}");
    };
    let one = |requires: &Option<RequiresType>| match requires.as_ref().unwrap() {
        RequiresType::ProviderName(name) => name.clone(),
        RequiresType::AllowMissing(_) => "-".to_owned(),
        other => panic!("{other:?}"),
    };
    match requires.requires_type.as_ref().unwrap() {
        RequiresType::RequiresAny(any) => {
            let all = any.requirements.iter();
            all.map(|each| one(&each.requires_type)).collect()
        }
        _ => vec![one(&requires.requires_type)],
    }
}

#[test]
fn a_rule_says_whose_tokens_count_and_where_they_are() {
    let (plain, conflicts) = provider(&format!("issuer: i, jwks: '{KEYS}'"));
    assert_eq!(conflicts, []);
    assert_eq!(plain.issuer, "i");
    assert_eq!(plain.payload_in_metadata, "payload");
    assert!(!plain.forward && plain.from_headers.is_empty() && plain.from_params.is_empty());
    assert!(keys(&plain).starts_with(&KEYS[..KEYS.len() - 2]));
    let lists = |provider: &JwtProvider| {
        let normalize = provider.normalize_payload_in_metadata.clone();
        normalize.unwrap().space_delimited_claims
    };
    assert_eq!(lists(&plain), ["scope", "permission"]);
    let (full, conflicts) = provider(&format!(
        "issuer: i, audiences: [a, b], jwks: '{KEYS}', fromHeaders: [{{name: x, prefix: 'T '}}, {{name: y}}], fromParams: [p], \
         fromCookies: [c], outputPayloadToHeader: x-payload, forwardOriginalToken: true, \
         outputClaimToHeaders: [{{header: x-sub, claim: sub}}], spaceDelimitedClaims: [roles]"
    ));
    assert_eq!(conflicts, []);
    assert_eq!(full.audiences, ["a", "b"]);
    let headers = full.from_headers.iter();
    let headers: Vec<_> = headers
        .map(|one| (one.name.as_str(), one.value_prefix.as_str()))
        .collect();
    assert_eq!(headers, [("x", "T "), ("y", "")]);
    assert_eq!(full.from_params, ["p"]);
    assert_eq!(full.from_cookies, ["c"]);
    assert_eq!(full.forward_payload_header, "x-payload");
    assert!(full.forward);
    let claims = full.claim_to_headers.iter();
    let claims: Vec<_> = claims
        .map(|one| (one.header_name.as_str(), one.claim_name.as_str()))
        .collect();
    assert_eq!(claims, [("x-sub", "sub")]);
    assert_eq!(lists(&full), ["scope", "permission", "roles"]);
    // A part of a request line is no header to write to.
    let (path, _) = provider(&format!(
        "issuer: i, jwks: '{KEYS}', outputPayloadToHeader: ':path'"
    ));
    assert_eq!(path.forward_payload_header, "");
}

#[test]
fn keys_are_written_or_fetched_and_tokens_without_any_are_refused() {
    let uri = "https://keys.example/jwks";
    let world = |sets: &[(&str, &str)]| {
        let mut world = workload_world();
        policy(
            &mut world,
            "p",
            &format!("jwtRules: [{{issuer: i, jwksUri: '{uri}'}}]"),
        );
        let sets = sets.iter().map(|(uri, keys)| {
            (
                JwksSource::Set((*uri).into()),
                KeySet::published(keys).unwrap(),
            )
        });
        world.key_sets = Arc::new(sets.collect());
        world
    };
    let nobody = KeySet::of_nobody();
    let of = |filter: Option<JwtAuthentication>| {
        let providers = filter.unwrap().providers;
        keys(providers.values().next().unwrap()).to_owned()
    };
    let (fetched, conflicts) = made(world(&[(uri, KEYS)]));
    assert_eq!(of(fetched), KeySet::published(KEYS).unwrap().json());
    assert_eq!(conflicts, []);
    let (missing, conflicts) = made(world(&[("https://other.example", KEYS)]));
    assert_eq!(of(missing), nobody.json());
    let [conflict] = &conflicts[..] else {
        panic!("{conflicts:?}");
    };
    assert_eq!(conflict.metric, "gudgeon_policies_not_enforced_as_written");
    let message = "spec.jwtRules[0]: tokens are refused: no keys were fetched from jwksUri yet";
    assert_eq!(conflict.message, message);
    assert_eq!(
        conflict.objects[0].to_string(),
        "RequestAuthentication demo/p"
    );
    let (none, conflicts) = provider("issuer: i");
    assert_eq!(keys(&none), nobody.json());
    assert!(
        conflicts[0]
            .message
            .ends_with("neither jwks nor jwksUri says a key, and the issuer is no URL")
    );
    // What is written comes first.
    let (both, conflicts) = provider(&format!("jwks: '{KEYS}', jwksUri: '{uri}'"));
    assert!(keys(&both).contains("AQAB") && conflicts.is_empty());
    // Of a change those hear whose policies use the keys.
    let older = snapshot(world(&[("https://other.example", KEYS)]));
    for (sets, concerns) in [
        (vec![(uri, KEYS)], true),
        (vec![], false),
        (vec![("https://another.example", KEYS)], false),
    ] {
        let next = older.next(world(&sets), None, None);
        assert_eq!(next.concerns(&workload()), concerns, "{sets:?}");
        assert!(!next.concerns(&node("other", &[])));
    }
}

#[test]
fn all_policies_of_a_workload_count_together() {
    let mut world = workload_world();
    let rule = |issuer: &str| format!("{{issuer: {issuer}, jwks: '{KEYS}'}}");
    let two = format!("jwtRules: [{}, {}]", rule("i"), rule("j"));
    policy(&mut world, "istio-system/mesh", &two);
    policy(&mut world, "all", &format!("jwtRules: [{}]", rule("i")));
    let selector = |app: &str| {
        format!(
            "selector: {{matchLabels: {{app: {app}}}}}\njwtRules: [{}]",
            rule("k")
        )
    };
    policy(&mut world, "own", &selector("web"));
    policy(&mut world, "not", &selector("other"));
    policy(
        &mut world,
        "other/all",
        &format!("jwtRules: [{}]", rule("l")),
    );
    policy(
        &mut world,
        "service",
        &format!(
            "targetRef: {{kind: Service, group: core, name: a}}\njwtRules: [{}]",
            rule("m")
        ),
    );
    authorization::policy(&mut world, "deny", "action: DENY\nrules: [{}]");
    let all = snapshot(world.clone());
    let view = all.view(&workload());
    let names: Vec<_> = filters(&*view).into_iter().map(|one| one.name).collect();
    let first = ["envoy.filters.http.jwt_authn", "envoy.filters.http.rbac"];
    assert_eq!(names[..2], first);
    let names = [
        "ns[demo]-policy[all]-rule[0]",
        "ns[demo]-policy[own]-rule[0]",
        "ns[istio-system]-policy[mesh]-rule[0]",
        "ns[istio-system]-policy[mesh]-rule[1]",
    ];
    let found = tokens(&*view).unwrap();
    let mut expected: Vec<_> = names.map(str::to_owned).into();
    expected.push("-".to_owned());
    assert_eq!(ways(&found), expected);
    assert_eq!(found.providers.len(), 4);
    let resource = view.get(Type::Listener, "virtualInbound").unwrap();
    let from: Vec<_> = resource.from.iter().map(ToString::to_string).collect();
    let kinds = ["mesh", "all", "own"].map(|name| {
        let namespace = if name == "mesh" {
            "istio-system"
        } else {
            "demo"
        };
        format!("RequestAuthentication {namespace}/{name}")
    });
    assert_eq!(from[..3], kinds);
    for _ in 0..5 {
        let again = snapshot(world.clone()).view(&workload());
        let again = again.get(Type::Listener, "virtualInbound").unwrap();
        assert_eq!(again.body, resource.body);
    }
}

/// A request without the required token does not pass.
#[test]
fn a_token_may_be_required() {
    let mut world = workload_world();
    let rule = format!("{{issuer: i, jwks: '{KEYS}'}}");
    policy(&mut world, "all", &format!("jwtRules: [{rule}, {rule}]"));
    policy(
        &mut world,
        "required",
        &format!("jwtRules: [{{issuer: n, jwks: '{KEYS}', presence: REQUIRED}}]"),
    );
    let (found, _) = made(world);
    let ways = ways(&found.unwrap());
    assert!(
        ways.len() == 3 && !ways.contains(&"-".to_owned()),
        "{ways:?}"
    );
    let mut alone = workload_world();
    policy(
        &mut alone,
        "p",
        &format!("jwtRules: [{{issuer: n, jwks: '{KEYS}', presence: REQUIRED}}]"),
    );
    let (found, _) = made(alone);
    let found = found.unwrap();
    assert_eq!(self::ways(&found), ["ns[demo]-policy[p]-rule[0]"]);
    // Without a rule nothing is read.
    let mut empty = workload_world();
    policy(&mut empty, "p", "{}");
    assert_eq!(made(empty), (None, Vec::new()));
}

#[test]
fn tokens_are_not_looked_for_elsewhere_where_their_places_are_none() {
    let mut world = workload_world();
    policy(
        &mut world,
        "p",
        &format!("jwtRules: [{{issuer: i, jwks: '{KEYS}', fromHeaders: [{{name: \"a\\nb\"}}]}}]"),
    );
    let (found, conflicts) = made(world);
    assert_eq!(found, None);
    let message = "spec.jwtRules[0]: no token is read: fromHeaders has no valid header";
    assert!(conflicts[0].message.ends_with(message), "{conflicts:?}");
    let (left, _) = provider(&format!(
        "issuer: i, jwks: '{KEYS}', fromHeaders: [{{name: \"a\\nb\"}}, {{name: x}}], fromCookies: [c]"
    ));
    assert_eq!((left.from_headers.len(), left.from_cookies.len()), (1, 1));
}

#[test]
fn tokens_of_a_workload_have_a_bound() {
    let mut world = workload_world();
    let audiences: Vec<_> = (0..10_000).map(|at| format!("audience-{at:050}")).collect();
    let rule = format!(
        "issuer: i, jwks: '{KEYS}', audiences: [{}]",
        audiences.join(", ")
    );
    policy(&mut world, "p", &format!("jwtRules: [{{{rule}}}]"));
    let snapshot = snapshot(world);
    let view = snapshot.view(&workload());
    let names: Vec<_> = filters(&*view).into_iter().map(|one| one.name).collect();
    assert_eq!(names[0], "envoy.filters.http.rbac");
    assert!(!names.contains(&"envoy.filters.http.jwt_authn".to_owned()));
    let conflicts = snapshot.conflicts();
    assert_eq!(conflicts[0].metric, "gudgeon_rules_too_large");
    assert!(
        conflicts[0].message.starts_with("denies all requests: "),
        "{conflicts:?}"
    );
}

/// A workload without a port that carries HTTP has nothing to read.
#[test]
fn connections_have_no_tokens() {
    let mut world = workload_world();
    world.sidecars = Arc::default();
    let sidecar = "ingress: [{port: {number: 9081, protocol: TCP, name: tcp}, defaultEndpoint: '127.0.0.1:81'}]";
    insert(&mut world.sidecars, object::<Sidecar>("web", 1, sidecar));
    policy(
        &mut world,
        "p",
        &format!("jwtRules: [{{issuer: i, jwks: '{KEYS}'}}]"),
    );
    let view = snapshot(world).view(&workload());
    let listener: Listener = decoded(&*view, Type::Listener, "10.9.0.1_9081");
    for chain in listener.filter_chains {
        assert_eq!(chain.filters.len(), 1);
    }
}

/// Claims that routes of the router `edge` ask for: their paths, `!` where it must not be so, and what of them.
#[test]
fn routes_of_routers_ask_for_claims_that_the_filter_left() {
    let mut world = workload_world();
    let servers = "selector: {istio: edge}\nservers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]";
    gateways::gateway(&mut world, "g", 1, servers);
    let to = "route: [{destination: {host: web, port: {number: 9080}}}]";
    let spec = format!(
        "hosts: [x.example]\ngateways: [g]\nhttp:\n\
         - {{match: [{{headers: {{'@request.auth.claims.groups': {{exact: admin}}, x-a: {{exact: b}}}}}}], {to}}}\n\
         - {{match: [{{headers: {{'@request.auth.claims[a.b][c]': {{prefix: de}}}}}}], {to}}}\n\
         - {{match: [{{withoutHeaders: {{'@Request.Auth.Claims.sub': {{}}, x-c: {{}}}}}}], {to}}}\n\
         - {{match: [{{withoutHeaders: {{'@request.auth.claims.sub': {{exact: bob}}}}}}], {to}}}\n\
         - {{{to}}}\n"
    );
    virtual_service(&mut world, "v", 1, &spec);
    policy(
        &mut world,
        "p",
        &format!("jwtRules: [{{issuer: i, jwks: '{KEYS}'}}]"),
    );
    let snapshot = snapshot(world);
    let view = snapshot.view(&gateways::router("demo"));
    let routes = routes_of(&*view, "http.80", "x.example:80");
    let asked: Vec<_> = routes
        .iter()
        .map(|route| {
            let matching = route.r#match.as_ref().unwrap();
            let headers = matching.headers.iter().map(|one| one.name.clone());
            let claims = matching.dynamic_metadata.iter().map(|one| {
                assert_eq!(one.filter, "envoy.filters.http.jwt_authn");
                let path = one.path.iter().map(|one| match &one.segment {
                    Some(path_segment::Segment::Key(key)) => &**key,
                    None => panic!("{one:?}"),
                });
                let path = path.collect::<Vec<_>>().join(" ");
                let sign = if one.invert { "!" } else { "" };
                let value = match one.value.as_ref().unwrap().match_pattern.as_ref().unwrap() {
                    value_matcher::MatchPattern::PresentMatch(true) => "any",
                    value_matcher::MatchPattern::OrMatch(both) => {
                        // A list that has it, and it.
                        assert_eq!(both.value_matchers.len(), 2);
                        "text"
                    }
                    other => panic!("{other:?}"),
                };
                format!("{sign}{path}: {value}")
            });
            headers.chain(claims).collect::<Vec<_>>().join(", ")
        })
        .collect();
    let want = [
        "x-a, payload groups: text",
        "payload a.b c: text",
        "x-c, !payload sub: any",
        "!payload sub: text",
        "",
    ];
    assert_eq!(asked, want);
    // Routes are chosen anew behind the filter, and at a sidecar there is no need.
    let listener: Listener = decoded(&*view, Type::Listener, "0.0.0.0_80");
    let first = http_filters(&listener).remove(0);
    assert_eq!(cleared(&read(first)), [true]);
    let view = snapshot.view(&workload());
    assert_eq!(cleared(&tokens(&*view).unwrap()), [false]);
}

fn cleared(filter: &JwtAuthentication) -> Vec<bool> {
    let all = filter.providers.values();
    all.map(|one| one.clear_route_cache).collect()
}
