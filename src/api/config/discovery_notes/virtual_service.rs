//! Routes of a VirtualService that are not served, or otherwise than they say.

use serde_json::Value as Json;

use super::{headers, is_one_line, is_parameter, items, unserved_regex};
use crate::config::Finding;
use crate::names::is_host_pattern;

/// Returns true if proxies can match SNI against this name: a wildcard is the first label, and stands for any number of them.
#[must_use]
pub fn is_server_name(name: &str) -> bool {
    let rest = name.strip_prefix("*.").unwrap_or(name);
    !rest.is_empty() && !rest.contains('*')
}

pub(in crate::config) fn notes(spec: &Json) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut gateways = items(spec, "gateways").peekable();
    let at_sidecars = gateways.peek().is_none() || gateways.any(|(_, one)| one == "mesh");
    hosts(spec, at_sidecars, &mut findings);
    server_names(spec, at_sidecars, &mut findings);
    sources_at_gateways(spec, at_sidecars, &mut findings);
    for (at, route) in items(spec, "http") {
        http_route(&format!("spec.http[{at}]"), route, &mut findings);
    }
    findings
}

fn hosts(spec: &Json, at_sidecars: bool, findings: &mut Vec<Finding>) {
    let is_empty = |field: &str| items(spec, field).next().is_none();
    for (at, host) in items(spec, "hosts") {
        let host = host.as_str().unwrap_or_default();
        // Gateways have no services to tell apart.
        let is_served = host == "*" && !at_sidecars;
        let is_address = host.parse::<std::net::IpAddr>().is_ok();
        let has_connections = !is_empty("tcp") || !is_empty("tls");
        if is_address && at_sidecars && has_connections {
            let how = "is served for requests alone: connections are told by the services that they are to";
            findings.push(Finding::warning(format!("spec.hosts[{at}]"), how));
        }
        if !is_host_pattern(host) && !is_served && !is_address {
            let how =
                "is served for hosts that no service has: a wildcard of services is \"*.\" alone";
            findings.push(Finding::warning(format!("spec.hosts[{at}]"), how));
        }
    }
}

fn server_names(spec: &Json, at_sidecars: bool, findings: &mut Vec<Finding>) {
    for (at, route) in items(spec, "tls") {
        for (of, one) in items(route, "match") {
            for (name_at, name) in items(one, "sniHosts") {
                let name = name.as_str().unwrap_or_default();
                if !is_server_name(name) && (at_sidecars || name != "*") {
                    let path = format!("spec.tls[{at}].match[{of}].sniHosts[{name_at}]");
                    let why = "is not served: a wildcard of server names is \"*.\" alone";
                    findings.push(Finding::warning(path, why));
                }
            }
        }
    }
}

/// `at`: the path of the route.
fn http_route(at: &str, route: &Json, findings: &mut Vec<Finding>) {
    let path = |field: &str| format!("{at}.{field}");
    check_single_line(at, route, findings);
    headers::notes(|| at.to_owned(), route, findings);
    for (to, destination) in items(route, "route") {
        headers::notes(|| path(&format!("route[{to}]")), destination, findings);
    }
    if route
        .get("websocketUpgrade")
        .is_some_and(|asked| *asked == true)
    {
        let why = "has no effect: every connection becomes a websocket that its client asks for";
        findings.push(Finding::warning(path("websocketUpgrade"), why));
    }
    let code = route.pointer("/redirect/redirectCode");
    if code
        .and_then(Json::as_u64)
        .is_some_and(|code| !is_redirect(code))
    {
        let why = "is not served: proxies redirect with 301, 302, 303, 307 and 308 alone";
        findings.push(Finding::warning(path("redirect.redirectCode"), why));
    }
    for fault in ["delay", "abort"] {
        let setting = route.get("fault").and_then(|all| all.get(fault));
        let has = |name: &str| setting.is_some_and(|fault| fault.get(name).is_some());
        if setting.is_some() && !has("percentage") && !has("percent") {
            let why = "has no effect: it says no percentage of requests";
            findings.push(Finding::warning(path(&format!("fault.{fault}")), why));
        }
    }
}

/// Sources of matches that are for gateways alone.
fn sources_at_gateways(spec: &Json, at_sidecars: bool, findings: &mut Vec<Finding>) {
    for list in ["http", "tls", "tcp"] {
        for (at, route) in items(spec, list) {
            for (of, one) in items(route, "match") {
                let place = || format!("spec.{list}[{at}].match[{of}]");
                let route = RouteFacts {
                    is_http: list == "http",
                    at_sidecars,
                };
                sources_of_match(place, one, route, findings);
            }
        }
    }
}

/// The facts about a route that the notes on its matches need.
#[derive(Clone, Copy)]
struct RouteFacts {
    /// It routes requests, not connections.
    is_http: bool,
    /// The rule of the route is for sidecars, too.
    at_sidecars: bool,
}

/// Sources of one match.
fn sources_of_match(
    place: impl Fn() -> String,
    one: &Json,
    route: RouteFacts,
    findings: &mut Vec<Finding>,
) {
    let mut own = items(one, "gateways").peekable();
    let names_gateways = own.peek().is_some();
    let is_for_sidecars = match names_gateways {
        true => own.any(|(_, one)| one == "mesh"),
        false => route.at_sidecars,
    };
    if is_for_sidecars {
        return;
    }
    for name in ["sourceLabels", "sourceNamespace"] {
        let is_written = one.get(name).is_some_and(|value| {
            let labels = value.as_object();
            !value.is_null() && *value != "" && labels.is_none_or(|labels| !labels.is_empty())
        });
        if is_written {
            // As in Istio: `route.go`, sourceMatchHTTP, and `gateway.go`, l4SingleMatch.
            let why = match route.is_http && !names_gateways {
                true => {
                    "is compared with the gateways' own workloads: they do not know those of their clients"
                }
                false => "has no effect: gateways do not know the workloads of their clients",
            };
            findings.push(Finding::warning(format!("{}.{name}", place()), why));
        }
    }
}

/// The regular expressions of a match.
fn regexes(one: &Json) -> impl Iterator<Item = &str> {
    let fields = one
        .as_object()
        .into_iter()
        .flat_map(|fields| fields.values());
    let texts = fields.flat_map(|field| {
        let below = field
            .as_object()
            .into_iter()
            .flat_map(|fields| fields.values());
        std::iter::once(field).chain(below)
    });
    texts.filter_map(|text| text.get("regex")?.as_str())
}

/// Texts of an `http` entry that make it none where proxies do not take them.
fn check_single_line(path: &str, http: &Json, findings: &mut Vec<Finding>) {
    for pointer in [
        "/rewrite/uri",
        "/rewrite/authority",
        "/rewrite/uriRegexRewrite/rewrite",
        "/redirect/uri",
        "/redirect/authority",
        "/redirect/prefixRewrite",
    ] {
        let text_value = http.pointer(pointer);
        if !text_value.and_then(Json::as_str).is_none_or(is_one_line) {
            let why = "is not served: it is more than one line";
            let field = pointer.replace('/', ".");
            findings.push(Finding::warning(format!("{path}{field}"), why));
        }
    }
    let pattern = http.pointer("/rewrite/uriRegexRewrite/match");
    if let Some(why) = pattern.and_then(Json::as_str).and_then(unserved_regex) {
        let path = format!("{path}.rewrite.uriRegexRewrite.match");
        findings.push(Finding::warning(path, why));
    }
    let cors = http.get("corsPolicy");
    for (at, origin) in cors
        .into_iter()
        .flat_map(|cors| items(cors, "allowOrigins"))
    {
        let pattern = origin.get("regex").and_then(Json::as_str);
        if let Some(why) = pattern.and_then(unserved_regex) {
            let path = format!("{path}.corsPolicy.allowOrigins[{at}].regex");
            findings.push(Finding::warning(path, why));
        }
    }
    for (at, one) in items(http, "match") {
        if let Some(why) = regexes(one).find_map(unserved_regex) {
            let path = format!("{path}.match[{at}]");
            findings.push(Finding::warning(path, why));
        }
        let names = one.get("queryParams").and_then(Json::as_object);
        if names.is_some_and(|names| !names.keys().all(|name| is_parameter(name))) {
            let path = format!("{path}.match[{at}].queryParams");
            let why = "is not served: proxies take names of 1 to 1024 bytes";
            findings.push(Finding::warning(path, why));
        }
    }
}

/// Returns true if proxies redirect with this code; 0 is the usual one.
const fn is_redirect(code: u64) -> bool {
    matches!(code, 0 | 301 | 302 | 303 | 307 | 308)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::discovery_notes::noted;
    use serde_json::json;

    #[test]
    fn a_note_names_fields_of_a_virtual_service_without_effect() {
        let of = |spec: Json| noted("VirtualService", &spec);
        let route = json!([{"destination": {"host": "b"}}]);
        assert_eq!(
            of(json!({"hosts": ["a"], "gateways": ["mesh"], "http": [{"route": route}]})),
            [""; 0]
        );
        assert_eq!(
            of(json!({"hosts": ["a"], "gateways": ["g", "mesh"]})),
            [""; 0]
        );
        let wild = "spec.hosts[0]: is served for hosts that no service has: a wildcard of services is \"*.\" alone";
        assert_eq!(of(json!({"hosts": ["*-a.example"]})), [wild]);
        // An address is no wildcard.
        for address in ["10.0.0.1", "2001:db8::1"] {
            assert_eq!(of(json!({"hosts": [address], "http": []})), [""; 0]);
            let alone = "spec.hosts[0]: is served for requests alone: connections are told by the services that they are to";
            assert_eq!(of(json!({"hosts": [address], "tcp": [{}]})), [alone]);
        }
        // As bookinfo has it.
        assert_eq!(of(json!({"hosts": ["*"], "gateways": ["g"]})), [""; 0]);
        assert_eq!(
            of(json!({"hosts": ["*"], "gateways": ["g", "mesh"]})),
            [wild]
        );
        assert_eq!(of(json!({"hosts": ["*"]})), [wild]);
        let http = |http: Json| of(json!({"hosts": ["a"], "http": [http]}));
        assert_eq!(http(json!({"delegate": {"name": "d"}})), [""; 0]);
        assert_eq!(
            http(json!({"redirect": {"uri": "/", "redirect_code": 304}})),
            [
                "spec.http[0].redirect.redirectCode: is not served: proxies redirect with 301, 302, 303, 307 and 308 alone"
            ]
        );
        assert_eq!(
            http(json!({"websocketUpgrade": true, "route": route})),
            [
                "spec.http[0].websocketUpgrade: has no effect: every connection becomes a websocket that its client asks for"
            ]
        );
        assert_eq!(
            http(json!({"websocketUpgrade": false, "route": route})),
            [""; 0]
        );
        let fault = json!({"delay": {"fixedDelay": "1s"}, "abort": {"httpStatus": 500, "percentage": {"value": 1}}});
        assert_eq!(
            http(json!({"fault": fault, "route": route})),
            ["spec.http[0].fault.delay: has no effect: it says no percentage of requests"]
        );
    }

    #[test]
    fn a_note_names_sources_that_gateways_do_not_know() {
        let of = |gateways: Json, list: &str, matching: Json| {
            let route = json!([{"destination": {"host": "b"}}]);
            let mut spec = json!({"hosts": ["a.b"], "gateways": gateways});
            spec[list] = json!([{"match": [{}, matching], "route": route}]);
            noted("VirtualService", &spec)
        };
        let own =
            "is compared with the gateways' own workloads: they do not know those of their clients";
        let none = "has no effect: gateways do not know the workloads of their clients";
        let labels = json!({"sourceLabels": {"app": "x"}});
        let both = json!({"sourceLabels": {"app": "x"}, "sourceNamespace": "n", "gateways": ["g"]});
        let at =
            |list: &str, field: &str, why: &str| format!("spec.{list}[0].match[1].{field}: {why}");
        assert_eq!(
            of(json!(["g"]), "http", labels.clone()),
            [at("http", "sourceLabels", own)]
        );
        for list in ["tls", "tcp"] {
            assert_eq!(
                of(json!(["g"]), list, labels.clone()),
                [at(list, "sourceLabels", none)]
            );
        }
        for gateways in [json!(["g"]), json!(["g", "mesh"])] {
            assert_eq!(
                of(gateways, "http", both.clone()),
                [
                    at("http", "sourceLabels", none),
                    at("http", "sourceNamespace", none)
                ]
            );
        }
        for (gateways, matching) in [
            (json!([]), labels.clone()),
            (json!(["mesh", "g"]), labels),
            (
                json!(["g"]),
                json!({"sourceLabels": {}, "sourceNamespace": ""}),
            ),
            (
                json!(["g", "mesh"]),
                json!({"sourceNamespace": "n", "gateways": ["g", "mesh"]}),
            ),
        ] {
            assert_eq!(of(gateways, "http", matching), [""; 0]);
        }
    }

    #[test]
    fn a_part_of_a_server_name_is_said_to_be_none() {
        let of = |gateways: &[&str]| {
            let tls = json!([{"match": [{"sniHosts": ["a.b", "*.b"]}, {"sniHosts": ["*b", "*"]}]}]);
            let spec = json!({"hosts": ["a.b"], "gateways": gateways, "tls": tls});
            noted("VirtualService", &spec)
        };
        let said = |at: usize| {
            format!(
                "spec.tls[0].match[1].sniHosts[{at}]: is not served: a wildcard of server names is \"*.\" alone"
            )
        };
        assert_eq!(of(&[]), [said(0), said(1)]);
        assert_eq!(of(&["g"]), [said(0)]);
    }

    #[test]
    fn a_note_names_routes_that_envoy_refuses() {
        let route = json!([{"destination": {"host": "b"}}]);
        let http = |mut http: Json| {
            if http.get("redirect").is_none() {
                http["route"] = route.clone();
            }
            let notes = noted("VirtualService", &json!({"hosts": ["a"], "http": [http]}));
            notes.join("; ")
        };
        let line = "is not served: it is more than one line";
        for (written, note) in [
            (json!({"rewrite": {"uri": "a\nb"}}), format!("spec.http[0].rewrite.uri: {line}")),
            (json!({"redirect": {"authority": "a\rb"}}), format!("spec.http[0].redirect.authority: {line}")),
            (json!({"redirect": {"uri": "/x"}}), String::new()),
            (json!({"match": [{"uri": {"regex": "/α[^/]\\xff"}}]}), String::new()),
            (json!({"match": [{"withoutHeaders": {"x": {"regex": "*"}}}]}), String::new()),
            (
                json!({"match": [{"headers": {"x": {"regex": "[^\\x00-\\x{10FFFF}]"}}}]}),
                "spec.http[0].match[0]: is not served: proxies match bytes, and refuse a regular expression with a number \
                 above \\xff or a name beyond ASCII"
                    .to_owned(),
            ),
            (
                json!({"match": [{"queryParams": {"": {"exact": "x"}}}]}),
                "spec.http[0].match[0].queryParams: is not served: proxies take names of 1 to 1024 bytes".to_owned(),
            ),
            (
                json!({"headers": {"request": {"set": {"x": "%NO(x)%", "y": "%REQ(x)%"}}}}),
                "spec.http[0].headers.request.set.x: is not served: it is too long, or has an operator that proxies do not take".to_owned(),
            ),
            (
                json!({"headers": {"response": {"remove": ["x", "a\nb"]}}}),
                "spec.http[0].headers.response.remove[1]: is not served: a name of a header is one line, and not longer than 16384 bytes".to_owned(),
            ),
        ] {
            assert_eq!(http(written.clone()), note, "{written}");
        }
        let many: serde_json::Map<_, _> = (0..=super::super::MAX_HEADERS)
            .map(|at| (format!("x{at}"), json!("a")))
            .collect();
        assert_eq!(
            http(json!({"headers": {"request": {"add": many}}})),
            "spec.http[0].headers.request: is served in part: proxies take 1000 headers there"
        );
        let policy = json!({"loadBalancer": {"consistentHash": {"httpHeaderName": ""}}, "tls": {"mode": "SIMPLE", "sni": "a\0"}});
        let rule = json!({"host": "a", "trafficPolicy": {"portLevelSettings": [policy]}, "subsets": [{"trafficPolicy": policy}]});
        assert_eq!(noted("DestinationRule", &rule).len(), 4);
    }
}
