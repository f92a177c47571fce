//! VirtualServices as routes: each row of discovery.md §14 that requests go by.

use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use envoy_types::pb::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use envoy_types::pb::envoy::config::route::v3::redirect_action::{
    PathRewriteSpecifier, SchemeRewriteSpecifier,
};
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::{
    ClusterSpecifier, HostRewriteSpecifier,
};
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::config::route::v3::{RetryPolicy, RouteAction, RouteMatch};
use envoy_types::pb::envoy::extensions::filters::http::cors::v3::CorsPolicy;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::HttpFault;
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};
use envoy_types::pb::google::protobuf::Duration;

use super::*;

const HOST: &str = "a.demo.svc.cluster.local:80";

/// Routes of the service `a`, where this is its `http`.
fn of(http: &str) -> Vec<Route> {
    let mut world = world();
    let spec = format!("hosts: [a]\nhttp: {http}");
    virtual_service(&mut world, "r", 1, &spec);
    routes_of(&*view(world), "80", HOST)
}

fn text(matcher: &StringMatcher) -> String {
    match matcher.match_pattern.as_ref().unwrap() {
        MatchPattern::Exact(text) => format!("={text}"),
        MatchPattern::Prefix(text) => format!("{text}*"),
        MatchPattern::SafeRegex(regex) => format!("~{}", regex.regex),
        other => panic!("{other:?}"),
    }
}

/// A match in words: the path, headers with `!` where they must not match, query parameters with `?`.
pub(super) fn matches(matching: &RouteMatch) -> String {
    let mut parts = vec![match matching.path_specifier.as_ref().unwrap() {
        PathSpecifier::Prefix(prefix) => format!("{prefix}*"),
        PathSpecifier::Path(path) => format!("={path}"),
        PathSpecifier::SafeRegex(regex) => format!("~{}", regex.regex),
        other => panic!("{other:?}"),
    }];
    parts.extend(
        matching
            .case_sensitive
            .map(|one| format!("case {}", one.value)),
    );
    parts.extend(matching.headers.iter().map(|header| {
        let not = if header.invert_match { "!" } else { "" };
        let what = match header.header_match_specifier.as_ref().unwrap() {
            HeaderMatchSpecifier::StringMatch(matcher) => text(matcher),
            HeaderMatchSpecifier::PresentMatch(true) => "there".to_owned(),
            other => panic!("{other:?}"),
        };
        let missing = if header.treat_missing_header_as_empty {
            " or missing"
        } else {
            ""
        };
        format!("{not}{} {what}{missing}", header.name)
    }));
    parts.extend(matching.query_parameters.iter().map(|query| {
        let what = match query.query_parameter_match_specifier.as_ref().unwrap() {
            QueryParameterMatchSpecifier::StringMatch(matcher) => text(matcher),
            QueryParameterMatchSpecifier::PresentMatch(true) => "there".to_owned(),
            other => panic!("{other:?}"),
        };
        format!("?{} {what}", query.name)
    }));
    parts.join(", ")
}

/// Returns the destination of a request.
pub(super) fn goes(route: &Route) -> String {
    match route.action.as_ref().unwrap() {
        Action::Route(action) => match action.cluster_specifier.as_ref().unwrap() {
            ClusterSpecifier::Cluster(cluster) => cluster.clone(),
            ClusterSpecifier::WeightedClusters(weighted) => {
                let all = weighted.clusters.iter();
                let all = all.map(|one| format!("{} {}", one.weight.unwrap().value, one.name));
                all.collect::<Vec<_>>().join(" + ")
            }
            other => panic!("{other:?}"),
        },
        Action::Redirect(redirect) => {
            let path = match &redirect.path_rewrite_specifier {
                Some(PathRewriteSpecifier::PathRedirect(path)) => path.clone(),
                Some(PathRewriteSpecifier::PrefixRewrite(prefix)) => format!("prefix {prefix}"),
                None => "same".to_owned(),
                other => panic!("{other:?}"),
            };
            let scheme = match &redirect.scheme_rewrite_specifier {
                Some(SchemeRewriteSpecifier::SchemeRedirect(scheme)) => scheme.as_str(),
                _ => "same",
            };
            format!(
                "redirect {} {scheme} {:?} {} {path}",
                redirect.response_code, redirect.host_redirect, redirect.port_redirect
            )
        }
        Action::DirectResponse(response) => format!("answer {}", response.status),
        other => panic!("{other:?}"),
    }
}

fn route_texts(http: &str) -> Vec<String> {
    let routes = of(http);
    let texts = routes.iter().map(|route| {
        format!(
            "{}: {} -> {}",
            route.name,
            matches(route.r#match.as_ref().unwrap()),
            goes(route)
        )
    });
    texts.collect()
}

fn action(http: &str) -> RouteAction {
    match of(http).remove(0).action {
        Some(Action::Route(action)) => action,
        other => panic!("{other:?}"),
    }
}

const TO_B: &str = "route: [{destination: {host: b}}]";
const B: &str = "outbound|80||b.demo.svc.cluster.local";

#[test]
fn requests_are_told_apart_by_what_matches() {
    for (condition, wanted) in [
        ("uri: {exact: /x}", "=/x"),
        ("uri: {prefix: /x}", "/x*"),
        ("uri: {regex: '/x.*'}", "~/x.*"),
        ("uri: {prefix: /x}, ignoreUriCase: true", "/x*, case false"),
        (
            "headers: {one: {exact: a}, two: {prefix: b}}",
            "/*, one =a, two b*",
        ),
        (
            "headers: {one: {regex: 'a+'}, two: {}}",
            "/*, one ~a+, two there",
        ),
        (
            "withoutHeaders: {one: {exact: a}}",
            "/*, !one =a or missing",
        ),
        ("withoutHeaders: {one: {}}", "/*, !one there"),
        (
            "method: {exact: GET}, scheme: {exact: http}",
            "/*, :method =GET, :scheme =http",
        ),
        ("authority: {prefix: a.}", "/*, :authority a.*"),
        ("queryParams: {one: {exact: a}}", "/*, ?one =a"),
        ("port: 80, uri: {prefix: /x}", "/x*"),
        ("gateways: [mesh], uri: {prefix: /x}", "/x*"),
    ] {
        let texts = route_texts(&format!("[{{match: [{{{condition}}}], {TO_B}}}]"));
        assert_eq!(texts, [format!(": {wanted} -> {B}")], "{condition}");
    }
    for condition in [
        "port: 81",
        "gateways: [other]",
        "sourceNamespace: other",
        "sourceLabels: {app: y}",
    ] {
        let texts = route_texts(&format!("[{{match: [{{{condition}}}], {TO_B}}}]"));
        // It is as if there were no rule.
        let usual = "default: /* -> outbound|80||a.demo.svc.cluster.local";
        assert_eq!(texts, [usual], "{condition}");
    }
}

#[test]
fn each_match_is_a_route_in_order_and_nothing_gets_past_one_of_everything() {
    let texts = route_texts(&format!(
        "[{{name: first, match: [{{name: one, uri: {{exact: /x}}}}, {{uri: {{exact: /y}}}}], {TO_B}}},\
          {{match: [{{name: two, uri: {{prefix: /z}}}}], directResponse: {{status: 418}}}},\
          {{name: all, {TO_B}}}, {{name: never, {TO_B}}}]"
    ));
    assert_eq!(
        texts,
        [
            format!("first.one: =/x -> {B}"),
            format!("first: =/y -> {B}"),
            ".two: /z* -> answer 418".to_owned(),
            format!("all: /* -> {B}"),
        ]
    );
}

#[test]
fn requests_go_to_one_destination_or_to_several_by_weight() {
    for (route, wanted) in [
        ("[{destination: {host: b}}]", B),
        (
            "[{destination: {host: b.demo.svc.cluster.local, port: {number: 81}}}]",
            "outbound|81||b.demo.svc.cluster.local",
        ),
        // It has two ports: the one that requests come to.
        (
            "[{destination: {host: a, subset: v1}}]",
            "outbound|80|v1|a.demo.svc.cluster.local",
        ),
        (
            "[{destination: {host: c.other.svc.cluster.local}}]",
            "outbound|80||c.other.svc.cluster.local",
        ),
        // Nobody knows it: it is answered 503 until it is there.
        (
            "[{destination: {host: gone.example}}]",
            "outbound|80||gone.example",
        ),
        (
            "[{destination: {host: a, subset: v1}, weight: 90}, {destination: {host: a, subset: v2}, weight: 10}]",
            "90 outbound|80|v1|a.demo.svc.cluster.local + 10 outbound|80|v2|a.demo.svc.cluster.local",
        ),
        (
            "[{destination: {host: a}, weight: 100}, {destination: {host: b}, weight: 0}]",
            "100 outbound|80||a.demo.svc.cluster.local",
        ),
    ] {
        let texts = route_texts(&format!("[{{route: {route}}}]"));
        assert_eq!(texts, [format!(": /* -> {wanted}")], "{route}");
    }
}

#[test]
fn requests_are_redirected_and_answered() {
    for (redirect, wanted) in [
        ("uri: /x", "redirect 0 same \"\" 0 /x"),
        (
            "authority: d.example, redirectCode: 302",
            "redirect 1 same \"d.example\" 0 same",
        ),
        (
            "uri: '%PREFIX()%/y', redirectCode: 308",
            "redirect 4 same \"\" 0 prefix /y",
        ),
        (
            "scheme: https, port: 8443, redirectCode: 307",
            "redirect 3 https \"\" 8443 same",
        ),
        (
            "scheme: https, derivePort: FROM_REQUEST_PORT, redirectCode: 303",
            "redirect 2 https \"\" 80 same",
        ),
        // A usual port is not written, where no other one could stand in its place.
        ("scheme: https, port: 443", "redirect 0 https \"\" 443 same"),
        (
            "scheme: https, port: 443, authority: d.example",
            "redirect 0 https \"d.example\" 0 same",
        ),
        (
            "scheme: https, port: 80, authority: d.example",
            "redirect 0 https \"d.example\" 80 same",
        ),
        (
            "scheme: http, derivePort: FROM_REQUEST_PORT, authority: d.example",
            "redirect 0 http \"d.example\" 0 same",
        ),
        (
            "scheme: https, derivePort: FROM_PROTOCOL_DEFAULT",
            "redirect 0 https \"\" 0 same",
        ),
    ] {
        let texts = route_texts(&format!("[{{redirect: {{{redirect}}}}}]"));
        assert_eq!(texts, [format!(": /* -> {wanted}")], "{redirect}");
    }
    // Envoy has no such redirect: nobody is sent anywhere by it.
    assert_eq!(
        route_texts("[{redirect: {uri: /x, redirectCode: 304}}]"),
        [""; 0]
    );
    let routes = of("[{directResponse: {status: 503, body: {string: closed}}}]");
    let Some(Action::DirectResponse(response)) = &routes[0].action else {
        panic!("an answer");
    };
    let body = response.body.as_ref().unwrap().specifier.as_ref().unwrap();
    assert!(matches!(body, core::data_source::Specifier::InlineString(text) if text == "closed"));
}

const fn seconds(seconds: i64) -> Option<Duration> {
    Some(Duration { seconds, nanos: 0 })
}

#[test]
fn requests_have_time_and_are_tried_again() {
    let usual = action(&format!("[{{{TO_B}}}]"));
    assert_eq!(usual.timeout, seconds(0));
    let retries = usual.retry_policy.unwrap();
    assert_eq!(
        (
            retries.num_retries.unwrap().value,
            &*retries.retriable_status_codes
        ),
        (2, &[503][..])
    );

    let written = action(&format!("[{{timeout: 5s, {TO_B}}}]"));
    assert_eq!(written.timeout, seconds(5));
    // Envoy would take no notice of the timeout.
    assert_eq!(written.max_stream_duration, None);

    let policy = |retries: &str| -> Option<RetryPolicy> {
        action(&format!("[{{retries: {{{retries}}}, {TO_B}}}]")).retry_policy
    };
    assert_eq!(policy("attempts: 0"), None);
    let one =
        policy("attempts: 5, perTryTimeout: 2s, retryOn: 'gateway-error, 404,409', backoff: 1s")
            .unwrap();
    assert_eq!(one.num_retries.unwrap().value, 5);
    assert_eq!(one.per_try_timeout, seconds(2));
    assert_eq!(one.retry_on, "gateway-error,retriable-status-codes");
    assert_eq!(one.retriable_status_codes, [404, 409]);
    assert_eq!(one.retry_back_off.unwrap().base_interval, seconds(1));
    assert_eq!(one.retry_host_predicate.len(), 1);
    let other = policy("attempts: 1, retryRemoteLocalities: true, retryIgnorePreviousHosts: false")
        .unwrap();
    assert_eq!(
        other.retry_priority.unwrap().name,
        "envoy.retry_priorities.previous_priorities"
    );
    assert!(other.retry_host_predicate.is_empty());
    assert_eq!(other.retry_on, retries.retry_on);
}

#[test]
fn requests_are_changed_on_their_way() {
    let rewritten = action(&format!(
        "[{{match: [{{uri: {{prefix: /x}}}}], rewrite: {{uri: /y, authority: d.example}}, {TO_B}}}]"
    ));
    assert_eq!(rewritten.prefix_rewrite, "/y");
    let host = HostRewriteSpecifier::HostRewriteLiteral("d.example".to_owned());
    assert_eq!(rewritten.host_rewrite_specifier, Some(host));
    let regex = action(&format!(
        "[{{rewrite: {{uriRegexRewrite: {{match: '^/(.*)$', rewrite: '/v1/\\1'}}}}, {TO_B}}}]"
    ));
    let regex = regex.regex_rewrite.unwrap();
    assert_eq!(
        (&*regex.pattern.unwrap().regex, &*regex.substitution),
        ("^/(.*)$", "/v1/\\1")
    );

    let headers = "{request: {set: {one: a, ':authority': e.example}, add: {two: b}, remove: [three]}, response: {add: {four: c}}}";
    let routes = of(&format!("[{{headers: {headers}, {TO_B}}}]"));
    let added: Vec<_> = routes[0]
        .request_headers_to_add
        .iter()
        .map(|one| {
            let header = one.header.as_ref().unwrap();
            format!("{} {} {}", one.append_action, header.key, header.value)
        })
        .collect();
    assert_eq!(added, ["2 one a", "0 two b"]);
    assert_eq!(routes[0].request_headers_to_remove, ["three"]);
    assert_eq!(routes[0].response_headers_to_add.len(), 1);
    let Some(Action::Route(changed)) = &routes[0].action else {
        panic!("a route");
    };
    let host = HostRewriteSpecifier::HostRewriteLiteral("e.example".to_owned());
    assert_eq!(changed.host_rewrite_specifier, Some(host));

    // Of one destination they are added to those of the route.
    let routes = of(
        "[{headers: {request: {set: {one: a}}}, route: [{destination: {host: b}, \
                     headers: {request: {add: {two: b, host: f.example}}, response: {remove: [three]}}}]}]",
    );
    let added = routes[0].request_headers_to_add.iter();
    let added: Vec<_> = added
        .map(|one| one.header.as_ref().unwrap().key.clone())
        .collect();
    assert_eq!(
        (added, &routes[0].response_headers_to_remove[..]),
        (
            vec!["one".to_owned(), "two".to_owned()],
            &["three".to_owned()][..]
        )
    );
    let Some(Action::Route(changed)) = &routes[0].action else {
        panic!("a route");
    };
    let host = HostRewriteSpecifier::HostRewriteLiteral("f.example".to_owned());
    assert_eq!(changed.host_rewrite_specifier, Some(host));

    // Of each destination its own.
    let weighted = format!(
        "[{{route: [{{destination: {{host: a}}, weight: 50, headers: {headers}}}, {{destination: {{host: b}}, weight: 50}}]}}]"
    );
    let Some(ClusterSpecifier::WeightedClusters(weighted)) = action(&weighted).cluster_specifier
    else {
        panic!("weights");
    };
    assert_eq!(weighted.clusters[0].request_headers_to_add.len(), 2);
    assert!(weighted.clusters[0].host_rewrite_specifier.is_some());
    assert!(weighted.clusters[1].request_headers_to_add.is_empty());
}

#[test]
fn headers_are_changed_by_the_fields_of_istio_1_1() {
    let headers =
        |added: &[envoy_types::pb::envoy::config::core::v3::HeaderValueOption]| -> Vec<String> {
            let all = added.iter().map(|one| {
                let header = one.header.as_ref().unwrap();
                format!("{} {} {}", one.append_action, header.key, header.value)
            });
            all.collect()
        };
    let old = "appendHeaders: {one: a}, appendRequestHeaders: {two: b}, removeRequestHeaders: [three], \
               appendResponseHeaders: {four: c}, removeResponseHeaders: [five]";
    let all = of(&format!("[{{{old}, {TO_B}}}]"));
    assert_eq!(
        headers(&all[0].request_headers_to_add),
        ["0 one a", "0 two b"]
    );
    assert_eq!(all[0].request_headers_to_remove, ["three"]);
    assert_eq!(headers(&all[0].response_headers_to_add), ["0 four c"]);
    assert_eq!(all[0].response_headers_to_remove, ["five"]);
    // Beside the newer field, which counts where both name a header.
    let new = "headers: {request: {add: {one: x}, set: {six: y}}}";
    let both = of(&format!("[{{{new}, {old}, {TO_B}}}]"));
    let added = headers(&both[0].request_headers_to_add);
    assert_eq!(added, ["2 six y", "0 one x", "0 two b"]);
    let of_destination = "appendRequestHeaders: {one: a}, removeResponseHeaders: [two]";
    let weighted = of(&format!(
        "[{{route: [{{destination: {{host: a}}, weight: 50, {of_destination}}}, {{destination: {{host: b}}, weight: 50}}]}}]"
    ));
    let Some(Action::Route(action)) = &weighted[0].action else {
        panic!("a route");
    };
    let Some(ClusterSpecifier::WeightedClusters(weighted)) = &action.cluster_specifier else {
        panic!("weights");
    };
    let first = &weighted.clusters[0];
    assert_eq!(headers(&first.request_headers_to_add), ["0 one a"]);
    assert_eq!(first.response_headers_to_remove, ["two"]);
}

#[test]
fn requests_are_copied() {
    let mirrors = |http: &str| -> Vec<String> {
        let action = action(&format!("[{{{http}, {TO_B}}}]"));
        let all = action.request_mirror_policies.iter();
        all.map(|mirror| {
            let share = mirror.runtime_fraction.as_ref();
            let share = share.map(|share| share.default_value.unwrap().numerator);
            format!("{} {share:?}", mirror.cluster)
        })
        .collect()
    };
    let a = "outbound|80||a.demo.svc.cluster.local";
    assert_eq!(mirrors("mirror: {host: a}"), [format!("{a} None")]);
    assert_eq!(
        mirrors("mirror: {host: a}, mirrorPercentage: {value: 0.5}"),
        [format!("{a} Some(5000)")]
    );
    assert_eq!(
        mirrors(
            "mirrors: [{destination: {host: a}, percentage: {value: 10}}, {destination: {host: c.other.svc.cluster.local}}]"
        ),
        [
            format!("{a} Some(100000)"),
            "outbound|80||c.other.svc.cluster.local None".to_owned()
        ]
    );
}

fn filter<M: Message + Default>(route: &Route, name: &str) -> M {
    let any = route
        .typed_per_filter_config
        .get(name)
        .unwrap_or_else(|| panic!("{name}"));
    M::decode(&*any.value).unwrap()
}

#[test]
fn requests_fail_where_they_are_meant_to() {
    use envoy_types::pb::envoy::extensions::filters::http::fault::v3::fault_abort::ErrorType;
    let fault = |written: &str| -> HttpFault {
        let routes = of(&format!("[{{fault: {{{written}}}, {TO_B}}}]"));
        filter(&routes[0], "envoy.filters.http.fault")
    };
    let delay = fault("delay: {fixedDelay: 3s, percentage: {value: 0.1}}")
        .delay
        .unwrap();
    assert_eq!(delay.percentage.unwrap().numerator, 1000);
    let abort = fault("abort: {httpStatus: 555, percentage: {value: 100}}")
        .abort
        .unwrap();
    assert_eq!(abort.error_type, Some(ErrorType::HttpStatus(555)));
    assert_eq!(abort.percentage.unwrap().numerator, 1_000_000);
    let abort = fault("abort: {grpcStatus: UNAVAILABLE, percentage: {value: 1}}")
        .abort
        .unwrap();
    assert_eq!(abort.error_type, Some(ErrorType::GrpcStatus(14)));
    // Nobody says how many: none.
    assert_eq!(
        fault("abort: {httpStatus: 500}")
            .abort
            .unwrap()
            .percentage
            .unwrap()
            .numerator,
        0
    );
}

#[test]
fn browsers_are_told_who_may_ask() {
    let routes = of(&format!(
        "[{{corsPolicy: {{allowOrigins: [{{exact: 'https://d.example'}}, {{regex: '.*'}}], allowMethods: [GET, PUT], \
          allowHeaders: [one], exposeHeaders: [two], maxAge: 24h, allowCredentials: true}}, {TO_B}}}]"
    ));
    let cors: CorsPolicy = filter(&routes[0], "envoy.filters.http.cors");
    let origins: Vec<_> = cors.allow_origin_string_match.iter().map(text).collect();
    assert_eq!(origins, ["=https://d.example", "~.*"]);
    assert_eq!(
        (
            &*cors.allow_methods,
            &*cors.allow_headers,
            &*cors.expose_headers,
            &*cors.max_age
        ),
        ("GET,PUT", "one", "two", "86400")
    );
    assert!(cors.allow_credentials.unwrap().value);
}

#[test]
fn a_host_that_no_service_has_is_served_on_the_ports_of_its_destinations() {
    let mut world = world();
    virtual_service(
        &mut world,
        "r",
        1,
        "hosts: [shop.example, '*.wild.example']\nhttp: [{route: [{destination: {host: b}}]}]",
    );
    virtual_service(
        &mut world,
        "s",
        1,
        "hosts: [old.example]\nhttp: [{redirect: {authority: new.example}}]",
    );
    let view = view(world);
    let routes: RouteConfiguration = decoded(&*view, Type::Route, "80");
    let host = |name: &str| {
        routes
            .virtual_hosts
            .iter()
            .find(|host| host.name == name)
            .unwrap()
    };
    assert_eq!(
        host("shop.example:80").domains,
        ["shop.example", "shop.example:80"]
    );
    assert_eq!(
        host("*.wild.example:80").domains,
        ["*.wild.example", "*.wild.example:80"]
    );
    assert_eq!(goes(&host("shop.example:80").routes[0]), B);
    assert_eq!(
        goes(&host("old.example:80").routes[0]),
        "redirect 0 same \"new.example\" 0 same"
    );
    assert!(view.get(Type::Route, "90").is_none());
}

#[test]
fn the_most_specific_of_several_hosts_of_one_service_counts() {
    let mut world = world();
    let answer = |hosts: &str, status: u16| {
        format!("hosts: ['{hosts}']\nhttp: [{{directResponse: {{status: {status}}}}}]")
    };
    virtual_service(&mut world, "wild", 1, &answer("*.svc.cluster.local", 401));
    virtual_service(
        &mut world,
        "near",
        2,
        &answer("*.demo.svc.cluster.local", 402),
    );
    virtual_service(&mut world, "own", 3, &answer("a", 403));
    let view = view(world);
    for (host, wanted) in [
        (HOST, "answer 403"),
        ("b.demo.svc.cluster.local:80", "answer 402"),
        ("c.other.svc.cluster.local:80", "answer 401"),
    ] {
        assert_eq!(goes(&routes_of(&*view, "80", host)[0]), wanted, "{host}");
    }
}

#[test]
fn the_older_of_two_rules_for_one_host_wins_and_the_other_is_told() {
    let mut world = world();
    virtual_service(
        &mut world,
        "x",
        2,
        "hosts: [a]\nhttp: [{directResponse: {status: 402}}]",
    );
    virtual_service(
        &mut world,
        "y",
        1,
        "hosts: [a, b]\nhttp: [{directResponse: {status: 401}}]",
    );
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    assert_eq!(goes(&routes_of(&*view, "80", HOST)[0]), "answer 401");
    let conflicts = snapshot.conflicts();
    let [conflict] = &conflicts[..] else {
        panic!("{conflicts:?}");
    };
    assert_eq!(conflict.metric, "pilot_vservice_dup_domain");
    assert_eq!(conflict.key, "a.demo.svc.cluster.local");
    assert_eq!(
        conflict.message,
        "http of VirtualService demo/x is left out at sidecars that see VirtualService demo/y, too, which is older"
    );
    assert_eq!(conflict.objects[0].to_string(), "VirtualService demo/x");
}

/// A wildcard stands for itself, also where its endpoints are known.
#[test]
fn a_wildcard_leads_to_its_endpoints() {
    let mut world = world();
    let ports = [(80, "HTTP"), (443, "TLS")];
    service(&mut world, "w.example", &ports, &[("10.0.8.1", "v1")]);
    let old = ServiceKey::new("w.example", "demo");
    let new = ServiceKey::new("*.wild.example", "demo");
    let services = Arc::make_mut(&mut world.services);
    let mut service = (*services.remove(&old).unwrap()).clone();
    service.key = new.clone();
    services.insert(new.clone(), Arc::new(service));
    let endpoints = Arc::make_mut(&mut world.endpoints);
    let places = endpoints.remove(&old).unwrap();
    endpoints.insert(new, places);
    let view = view(world);
    assert_eq!(
        addresses(&*view, "outbound|443||*.wild.example"),
        ["10.0.8.1"]
    );
    let routes: RouteConfiguration = decoded(&*view, Type::Route, "80");
    let mut hosts = routes.virtual_hosts.iter();
    let host = hosts.find(|host| host.name == "*.wild.example:80").unwrap();
    assert_eq!(host.domains, ["*.wild.example", "*.wild.example:80"]);
    let listener = view.get(Type::Listener, "0.0.0.0_443").unwrap();
    assert!(String::from_utf8_lossy(&listener.body).contains("*.wild.example"));
}

/// A rule for the address of a service comes before what the service has there, on its ports.
#[test]
fn a_rule_for_an_address_has_it() {
    let mut world = world();
    let key = ServiceKey::new("b.demo.svc.cluster.local", "demo");
    let services = Arc::make_mut(&mut world.services);
    let b = Arc::make_mut(services.get_mut(&key).unwrap());
    let place = "10.96.0.1".parse().unwrap();
    b.addresses.insert("Kubernetes".into(), vec![place]);
    let snapshot = |spec: &str| {
        let mut world = world.clone();
        virtual_service(&mut world, "v", 1, spec);
        snapshot(world)
    };
    let seen = |spec: &str, name: &str| {
        let view = snapshot(spec).view(&node("demo", &[]));
        let routes: RouteConfiguration = decoded(&*view, Type::Route, name);
        let hosts = routes.virtual_hosts.into_iter();
        let hosts = hosts.filter(|host| host.name != "allow_any" && host.name != "block_all");
        hosts
            .map(|host| (host.name, host.domains.join(" ")))
            .filter(|(name, domains)| domains.contains("10.96") || name.contains("2001"))
            .map(|(name, domains)| format!("{name}: {domains}"))
            .collect::<Vec<_>>()
    };
    let to = |port: &str| {
        format!("hosts: [10.96.0.1]\nhttp: [{{route: [{{destination: {{host: a{port}}}}}]}}]")
    };
    assert_eq!(
        seen(&to(", port: {number: 80}"), "80"),
        ["10.96.0.1:80: 10.96.0.1 10.96.0.1:80"]
    );
    assert_eq!(snapshot(&to("")).conflicts(), []);
    // On another port it is the service's.
    let of_service = seen(&to(", port: {number: 90}"), "80");
    assert!(of_service[0].starts_with("b.demo") && of_service[0].ends_with("10.96.0.1:80"));
    let v6 =
        "hosts: ['2001:0DB8::1']\nhttp: [{route: [{destination: {host: a, port: {number: 80}}}]}]";
    assert!(
        seen(v6, "80")
            .contains(&"2001:db8::1:80: 2001:db8::1 [2001:db8::1] [2001:db8::1]:80".to_owned())
    );
}

#[test]
fn routes_know_what_they_were_made_from() {
    let mut world = world();
    virtual_service(
        &mut world,
        "r",
        1,
        "hosts: [a]\nhttp: [{route: [{destination: {host: b}}]}]",
    );
    destination_rule(
        &mut world,
        "d",
        1,
        "host: b\ntrafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: user}}}",
    );
    let view = view(world);
    let from = view.get(Type::Route, "80").unwrap().from.clone();
    let from: Vec<_> = from.iter().map(ToString::to_string).collect();
    assert_eq!(from, ["DestinationRule demo/d", "VirtualService demo/r"]);
    let Some(Action::Route(action)) = &routes_of(&*view, "80", HOST)[0].action else {
        panic!("a route");
    };
    assert_eq!(action.hash_policy.len(), 1);
    // Also where no rule says where requests go.
    let Some(Action::Route(action)) =
        &routes_of(&*view, "80", "b.demo.svc.cluster.local:80")[0].action
    else {
        panic!("a route");
    };
    assert_eq!(action.hash_policy.len(), 1);
}

#[test]
fn statistics_of_a_match_have_its_prefix() {
    let mut world = world();
    virtual_service(
        &mut world,
        "r",
        1,
        "hosts: [a]\nhttp: [{match: [{uri: {exact: /x}, statPrefix: x.y}, {uri: {exact: /y}}], route: [{destination: {host: b}}]}, \
         {route: [{destination: {host: a}}]}]",
    );
    let routes = routes_of(&*view(world), "80", "a.demo.svc.cluster.local:80");
    let prefixes: Vec<_> = routes.iter().map(|route| &*route.stat_prefix).collect();
    assert_eq!(prefixes, ["x.y", "", ""]);
}
