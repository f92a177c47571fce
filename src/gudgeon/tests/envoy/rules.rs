//! VirtualServices and DestinationRules, each by a request that shows its effect.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use crate::backend::{Backend, Load};
use crate::place::{Address, Discovery, Place, SOON, documents, until};
use crate::proxy::{Proxy, Setup};

const PORT: u16 = 18120;

/// A service with an endpoint for each version.
fn service(name: &str, ip: Ipv4Addr, versions: &[(&str, u16)]) -> String {
    let endpoints: String = versions
        .iter()
        .map(|(version, port)| {
            format!(
                "  - {{address: {ip}, ports: {{main: {port}}}, labels: {{version: {version}}}}}\n"
            )
        })
        .collect();
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: demo}}\nspec:\n  \
         hosts: [{name}.demo.svc.cluster.local]\n  location: MESH_INTERNAL\n  resolution: STATIC\n  \
         ports: [{{number: {PORT}, name: main, protocol: HTTP}}]\n  endpoints:\n{endpoints}"
    )
}

pub fn rule(kind: &str, name: &str, spec: &str) -> String {
    let spec: String = spec.lines().map(|line| format!("  {line}\n")).collect();
    format!(
        "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: demo}}\nspec:\n{spec}"
    )
}

/// The rule of the host `a`.
fn routes(http: &str) -> String {
    rule("VirtualService", "a", &format!("hosts: [a]\nhttp:\n{http}"))
}

const SUBSETS: &str =
    "host: a\nsubsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]";

/// An answer: its status, its headers in lower case, its body.
#[derive(Debug)]
struct RoutedResponse {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

/// A request through the proxy to the host `a`, with these lines in its head.
fn ask(proxy: &Proxy, method: &str, path: &str, lines: &[&str]) -> RoutedResponse {
    let mut stream = proxy.connect(proxy.ip, PORT).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut head = head.lines();
    let status = head.next().unwrap().split(' ').nth(1).unwrap();
    RoutedResponse {
        status: status.parse().unwrap(),
        headers: head
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect(),
        body: body.to_owned(),
    }
}

/// Writes rules, and waits until the route of this name is served.
fn takes(proxy: &Proxy, discovery: &Discovery, name: &str, config: &[String]) {
    discovery
        .place
        .write("config/rules.yaml", &documents(config));
    until(name, || {
        proxy.knows(&format!("\"name\": \"{name}\"")).then_some(())
    });
}

#[test]
fn requests_go_where_a_virtual_service_says() {
    let ip = Address::new();
    let (v1, v2, b) = (
        Backend::new(ip.ip, "v1"),
        Backend::new(ip.ip, "v2"),
        Backend::new(ip.ip, "b"),
    );
    let services = documents(&[
        service("a", ip.ip, &[("v1", v1.port), ("v2", v2.port)]),
        service("b", ip.ip, &[("v1", b.port)]),
    ]);
    let discovery = Place::new().with("config/services.yaml", &services).start();
    // Envoy keeps what it counts for routes where the annotation says so, as in Istio.
    let annotations = r#"{"sidecar.istio.io/statsInclusionPrefixes": "vhost"}"#;
    let proxy = Setup::new("client-1", discovery.grpc)
        .env("ISTIO_METAJSON_ANNOTATIONS", annotations)
        .start();
    let http = "\
- {match: [{uri: {exact: /exact}, statPrefix: counted}], route: [{destination: {host: a, subset: v1}}]}
- {match: [{uri: {prefix: /case}, ignoreUriCase: true}], route: [{destination: {host: a, subset: v2}}]}
- {match: [{uri: {regex: '/number/[0-9]+'}}], route: [{destination: {host: b}}]}
- {match: [{headers: {x-who: {exact: me}}}], route: [{destination: {host: b}}]}
- {match: [{headers: {x-pre: {prefix: ab}}}], route: [{destination: {host: b}}]}
- {match: [{headers: {x-any: {}}}], route: [{destination: {host: b}}]}
- {match: [{uri: {exact: /without}, withoutHeaders: {x-not: {exact: y}}}], route: [{destination: {host: b}}]}
- {match: [{method: {exact: PUT}}], directResponse: {status: 202}}
- {match: [{queryParams: {q: {exact: z}}}], route: [{destination: {host: b}}]}
- {match: [{uri: {exact: /other-port}, port: 1}], route: [{destination: {host: b}}]}
- {match: [{uri: {exact: /labels}, sourceLabels: {app: other}}], route: [{destination: {host: b}}]}
- {match: [{uri: {exact: /namespace}, sourceNamespace: other}], route: [{destination: {host: b}}]}
- {match: [{uri: {exact: /own}, sourceNamespace: demo}], route: [{destination: {host: b}}]}
- {match: [{uri: {prefix: /redirect}}], redirect: {uri: '%PREFIX()%/to', authority: new.example, redirectCode: 308}}
- {match: [{uri: {prefix: /moved}}], redirect: {uri: /here, scheme: https, port: 8443}}
- {match: [{uri: {exact: /closed}}], directResponse: {status: 503, body: {string: closed today}}}
- {match: [{uri: {prefix: /rewrite}}], rewrite: {uri: /written, authority: name.example}, route: [{destination: {host: b}}]}
- {match: [{uri: {prefix: /regex}}], rewrite: {uriRegexRewrite: {match: '^/regex/(.*)$', rewrite: '/found/\\1'}}, route: [{destination: {host: b}}]}
- {match: [{uri: {exact: /headers}}], headers: {request: {set: {x-set: one}, add: {x-add: two}, remove: [x-gone]}, response: {add: {x-back: three}}}, route: [{destination: {host: b}}]}
- {match: [{uri: {exact: /abort}}], fault: {abort: {httpStatus: 418, percentage: {value: 100}}}, route: [{destination: {host: b}}]}
- {match: [{uri: {exact: /delay}}], fault: {delay: {fixedDelay: 300ms, percentage: {value: 100}}}, route: [{destination: {host: b}}]}
- {match: [{uri: {exact: /cors}}], corsPolicy: {allowOrigins: [{exact: 'https://page.example'}], allowMethods: [GET], maxAge: 60s}, route: [{destination: {host: b}}]}
- {match: [{uri: {exact: /mirror}}], mirror: {host: a, subset: v2}, route: [{destination: {host: b}}]}
- {match: [{uri: {exact: /gone}}], route: [{destination: {host: gone.example}}]}
- {match: [{uri: {exact: /no-subset}}], route: [{destination: {host: a, subset: v3}}]}
- {match: [{uri: {exact: /weights}}], route: [{destination: {host: a, subset: v1}, weight: 100}, {destination: {host: a, subset: v2}, weight: 0}]}
- {name: all-routes, match: [{uri: {exact: /last}}], directResponse: {status: 200, body: {string: last}}}";
    let config = [rule("DestinationRule", "a", SUBSETS), routes(http)];
    takes(&proxy, &discovery, "all-routes", &config);

    let get = |path: &str, lines: &[&str]| {
        let answer = ask(&proxy, "GET", path, lines);
        (answer.status, answer.body)
    };
    let is = |path: &str, lines: &[&str], status: u16, body: &str| {
        assert_eq!(
            get(path, lines),
            (status, body.to_owned()),
            "{path} {lines:?}"
        );
    };
    is("/exact", &[], 200, "v1");
    is("/exact/more", &[], 404, "");
    // Envoy counts requests of a match by its own name, and no others.
    let counted = format!("vhost.a.demo.svc.cluster.local:{PORT}.route.counted.upstream_rq_2xx");
    until("the count", || (proxy.stat(&counted) == 1).then_some(()));
    is("/CASE/x", &[], 200, "v2");
    is("/number/12", &[], 200, "b");
    is("/number/x", &[], 404, "");
    is("/", &["X-Who: me"], 200, "b");
    is("/", &["X-Who: you"], 404, "");
    is("/", &["X-Pre: abc"], 200, "b");
    is("/", &["X-Any: 1"], 200, "b");
    is("/without", &[], 200, "b");
    is("/without", &["X-Not: y"], 404, "");
    assert_eq!(ask(&proxy, "PUT", "/", &[]).status, 202);
    is("/?q=z", &[], 200, "b");
    is("/?q=y", &[], 404, "");
    is("/other-port", &[], 404, "");
    is("/labels", &[], 404, "");
    is("/namespace", &[], 404, "");
    is("/own", &[], 200, "b");
    is("/closed", &[], 503, "closed today");
    is("/weights", &[], 200, "v1");
    is("/last", &[], 200, "last");
    let place = |path: &str| {
        let answer = ask(&proxy, "GET", path, &[]);
        (answer.status, answer.headers["location"].clone())
    };
    assert_eq!(
        place("/redirect/x"),
        (308, "http://new.example/to/x".to_owned())
    );
    assert_eq!(place("/moved"), (301, "https://a:8443/here".to_owned()));
    is("/rewrite/x", &[], 200, "b");
    let head = b.seen.last().1.to_ascii_lowercase();
    assert!(
        head.starts_with("get /written/x ") && head.contains("host: name.example\r\n"),
        "{head}"
    );
    is("/regex/x", &[], 200, "b");
    assert!(b.seen.last().1.starts_with("GET /found/x "));
    let answer = ask(&proxy, "GET", "/headers", &["X-Gone: 1", "X-Set: 0"]);
    assert_eq!(answer.headers["x-back"], "three");
    let head = b.seen.last().1.to_ascii_lowercase();
    assert!(
        head.contains("x-set: one\r\n") && head.contains("x-add: two\r\n"),
        "{head}"
    );
    assert!(
        !head.contains("x-gone") && !head.contains("x-set: 0"),
        "{head}"
    );
    is("/abort", &[], 418, "fault filter abort");
    let begun = Instant::now();
    is("/delay", &[], 200, "b");
    // Envoy's clock and ours are two.
    assert!(begun.elapsed() >= Duration::from_millis(250));
    let origin = |page: &str| ask(&proxy, "GET", "/cors", &[&format!("Origin: {page}")]).headers;
    let allowed = origin("https://page.example");
    assert_eq!(
        allowed["access-control-allow-origin"],
        "https://page.example"
    );
    assert!(!origin("https://other.example").contains_key("access-control-allow-origin"));
    is("/mirror", &[], 200, "b");
    until("the copy", || {
        v2.seen.last().1.starts_with("GET /mirror ").then_some(())
    });
    // These destinations do not exist yet: 503 until they do.
    assert_eq!((get("/gone", &[]).0, get("/no-subset", &[]).0), (503, 503));
}

/// Starts an application that answers so many requests with 503.
fn failing(ip: Ipv4Addr, body: &'static str, times: usize, slow: Duration) -> u16 {
    let listener = TcpListener::bind((ip, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for (at, stream) in listener.incoming().flatten().enumerate() {
            thread::spawn(move || {
                let mut stream = stream;
                let _head = stream.read(&mut [0; 4096]);
                thread::sleep(slow);
                let status = if at < times { "503 No" } else { "200 OK" };
                let length = body.len();
                let _sent = write!(
                    stream,
                    "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
                );
            });
        }
    });
    port
}

#[test]
fn requests_have_time_and_are_tried_again_as_a_rule_says() {
    let ip = Address::new();
    let twice = failing(ip.ip, "at last", 2, Duration::ZERO);
    let slow = failing(ip.ip, "slow", 0, Duration::from_secs(5));
    let services = documents(&[
        service("a", ip.ip, &[("v1", twice)]),
        service("b", ip.ip, &[("v1", slow)]),
    ]);
    let discovery = Place::new().with("config/services.yaml", &services).start();
    let proxy = Proxy::start(discovery.grpc);
    let http = "\
- {match: [{uri: {exact: /once}}], retries: {attempts: 0}, route: [{destination: {host: a}}]}
- {match: [{uri: {exact: /again}}], retries: {attempts: 3, retryOn: '503', retryIgnorePreviousHosts: false}, route: [{destination: {host: a}}]}
- {match: [{uri: {exact: /slow}}], timeout: 200ms, route: [{destination: {host: b}}]}
- {name: times, match: [{uri: {exact: /last}}], directResponse: {status: 200}}";
    takes(&proxy, &discovery, "times", &[routes(http)]);
    assert_eq!(ask(&proxy, "GET", "/once", &[]).status, 503);
    let again = ask(&proxy, "GET", "/again", &[]);
    assert_eq!((again.status, &*again.body), (200, "at last"));
    assert_eq!(ask(&proxy, "GET", "/slow", &[]).status, 504);
}

#[test]
fn endpoints_that_fail_are_left_out_and_requests_of_one_user_stay_together() {
    let ip = Address::new();
    let bad = failing(ip.ip, "bad", usize::MAX, Duration::ZERO);
    let (one, two) = (Backend::new(ip.ip, "one"), Backend::new(ip.ip, "two"));
    let services = documents(&[
        service("a", ip.ip, &[("v1", one.port), ("v2", two.port)]),
        service("b", ip.ip, &[("v1", one.port), ("v2", bad)]),
    ]);
    let discovery = Place::new().with("config/services.yaml", &services).start();
    let proxy = Proxy::start(discovery.grpc);
    // One of two is more than the 10 % of `maxEjectionPercent`.
    let detection = "host: b\ntrafficPolicy: {outlierDetection: {consecutive5xxErrors: 1, interval: 100ms, \
                     baseEjectionTime: 60s}}";
    let hash = "host: a\ntrafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x-user}}}";
    let http = "\
- {match: [{uri: {exact: /b}}], retries: {attempts: 0}, route: [{destination: {host: b}}]}
- {name: together, route: [{destination: {host: a}}]}";
    let config = [
        rule("DestinationRule", "b", detection),
        rule("DestinationRule", "a", hash),
        routes(http),
    ];
    takes(&proxy, &discovery, "together", &config);
    until("the failing one is out", || {
        let all = (0..6).all(|_| ask(&proxy, "GET", "/b", &[]).status == 200);
        all.then_some(())
    });
    let who = |user: &str| ask(&proxy, "GET", "/", &[&format!("X-User: {user}")]).body;
    let mut answered = std::collections::BTreeSet::new();
    for user in 0..20 {
        let user = format!("user-{user}");
        let first = who(&user);
        for _ in 0..3 {
            assert_eq!(who(&user), first, "{user}");
        }
        answered.insert(first);
    }
    assert_eq!(answered.len(), 2, "both have users");
}

/// Subset and route arrive together, and the old subset goes with the same change: no request is lost by it.
#[test]
fn weights_move_and_subsets_are_exchanged_without_a_lost_request() {
    let ip = Address::new();
    let (v1, v2) = (Backend::new(ip.ip, "v1"), Backend::new(ip.ip, "v2"));
    let services = service("a", ip.ip, &[("v1", v1.port), ("v2", v2.port)]);
    let discovery = Place::new().with("config/services.yaml", &services).start();
    let proxy = Proxy::start(discovery.grpc);
    let step = |name: &str, subsets: &[&str], route: &str| {
        let subsets: Vec<_> = subsets
            .iter()
            .map(|one| {
                let (subset, version) = one.split_once('=').unwrap();
                format!("{{name: {subset}, labels: {{version: {version}}}}}")
            })
            .collect();
        let policy = format!("host: a\nsubsets: [{}]", subsets.join(", "));
        let config = [
            rule("DestinationRule", "a", &policy),
            routes(&format!("- {{name: {name}, route: [{route}]}}")),
        ];
        takes(&proxy, &discovery, name, &config);
    };
    let to = |subset: &str, weight: u32| {
        format!("{{destination: {{host: a, subset: {subset}}}, weight: {weight}}}")
    };
    step("begin", &["old=v1", "new=v2"], &to("old", 100));
    until("the first subset", || {
        (ask(&proxy, "GET", "/", &[]).body == "v1").then_some(())
    });
    let load = Load::new(proxy.ip, "a", PORT);
    for percent in [10, 50, 90, 100] {
        let route = format!("{}, {}", to("old", 100 - percent), to("new", percent));
        step(&format!("at-{percent}"), &["old=v1", "new=v2"], &route);
    }
    // A subset that was not there, and the one before it goes.
    for (name, subset) in [("third", "one"), ("fourth", "two"), ("fifth", "three")] {
        step(name, &[&format!("{subset}=v2")], &to(subset, 100));
    }
    until("the old subset is gone", || {
        (!proxy.knows(&format!("outbound|{PORT}|old|a.demo.svc.cluster.local"))).then_some(())
    });
    load.end_after(50);
    assert_eq!(ask(&proxy, "GET", "/", &[]).body, "v2");
}
