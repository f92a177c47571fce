//! VirtualServices that leave routes to others (discovery.md §14).

use super::routes::{goes, matches};
use super::*;

/// Routes of `a` in words, where its rule is this and its delegate `demo/d` that; and what was left out.
fn of(root: &str, leaf: &str) -> (Vec<String>, Vec<String>) {
    let mut world = world();
    virtual_service(&mut world, "r", 1, &format!("hosts: [a]\nhttp: {root}"));
    virtual_service(&mut world, "d", 1, &format!("http: {leaf}"));
    seen(world)
}

fn seen(world: World) -> (Vec<String>, Vec<String>) {
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    let routes = routes_of(&*view, "80", "a.demo.svc.cluster.local:80");
    let texts = routes.iter().map(|route| {
        let matching = matches(route.r#match.as_ref().unwrap());
        let to = goes(route).replace(".svc.cluster.local", "");
        format!("{}: {matching} -> {to}", route.name)
    });
    let conflicts = snapshot.conflicts().into_iter();
    let conflicts = conflicts.filter(|one| one.metric == "gudgeon_delegates_left_out");
    (texts.collect(), conflicts.map(|one| one.message).collect())
}

const ANSWER: &str = "directResponse: {status: 418}";

#[test]
fn routes_of_a_delegate_stand_where_it_is_named() {
    let (routes, conflicts) = of(
        "[{name: first, match: [{uri: {exact: /}}], directResponse: {status: 200}}, \
          {name: left, match: [{uri: {prefix: /b}}], delegate: {name: d, namespace: demo}}, \
          {name: last, directResponse: {status: 404}}]",
        "[{name: one, match: [{uri: {exact: /b/1}}], route: [{destination: {host: b}}]}, \
          {match: [{name: m, headers: {x: {exact: y}}}], directResponse: {status: 201}}, {directResponse: {status: 202}}]",
    );
    assert_eq!(
        routes,
        [
            "first: =/ -> answer 200",
            "left-one: =/b/1 -> outbound|80||b.demo",
            "left.m: /b*, x =y -> answer 201",
            "left: /b* -> answer 202",
            "last: /* -> answer 404",
        ]
    );
    assert_eq!(conflicts, [""; 0]);
}

#[test]
fn matches_are_combined_where_they_do_not_contradict() {
    let none: Option<&str> = None;
    for (root, leaf, wanted) in [
        ("{}", "{uri: {exact: /a}}", Some("=/a")),
        ("{uri: {prefix: /a}}", "{}", Some("/a*")),
        (
            "{uri: {prefix: /a}}",
            "{uri: {prefix: /a/b}}",
            Some("/a/b*"),
        ),
        ("{uri: {prefix: /a}}", "{uri: {exact: /a/b}}", Some("=/a/b")),
        (
            "{uri: {prefix: /a/b}}",
            "{uri: {prefix: /a}}",
            Some("/a/b*"),
        ),
        ("{uri: {prefix: /a}}", "{uri: {exact: /b}}", none),
        ("{uri: {exact: /a}}", "{uri: {exact: /a}}", Some("=/a")),
        ("{uri: {exact: /a}}", "{uri: {exact: /b}}", none),
        ("{uri: {exact: /a/f}}", "{uri: {prefix: /a}}", Some("=/a/f")),
        ("{uri: {regex: '/a.*'}}", "{uri: {prefix: /a}}", none),
        ("{uri: {prefix: /a}}", "{uri: {regex: '/a.*'}}", none),
        (
            "{uri: {regex: '/a.*'}}",
            "{uri: {regex: '/a.*'}}",
            Some("~/a.*"),
        ),
        (
            "{uri: {prefix: /A}, ignoreUriCase: true}",
            "{uri: {exact: /a}}",
            Some("=/a"),
        ),
        (
            "{uri: {prefix: /A}, ignoreUriCase: true}",
            "{uri: {prefix: /a/b}, ignoreUriCase: true}",
            Some("/a/b*, case false"),
        ),
        (
            "{uri: {prefix: /a}}",
            "{uri: {exact: /a/b}, ignoreUriCase: true}",
            none,
        ),
        (
            "{uri: {prefix: /a}, ignoreUriCase: true}",
            "{port: 80}",
            Some("/a*, case false"),
        ),
        ("{method: {exact: GET}}", "{method: {exact: PUT}}", none),
        (
            "{method: {exact: GET}}",
            "{scheme: {exact: http}}",
            Some("/*, :method =GET, :scheme =http"),
        ),
        (
            "{headers: {x: {exact: a}}}",
            "{headers: {y: {exact: b}}}",
            Some("/*, x =a, y =b"),
        ),
        (
            "{headers: {x: {exact: a}}}",
            "{headers: {x: {exact: b}}}",
            none,
        ),
        (
            "{headers: {x: {}}}",
            "{headers: {x: {exact: b}}}",
            Some("/*, x =b"),
        ),
        (
            "{headers: {x: {exact: b}}}",
            "{headers: {x: {}}}",
            Some("/*, x =b"),
        ),
        (
            "{withoutHeaders: {x: {exact: a}}}",
            "{withoutHeaders: {x: {exact: b}}}",
            none,
        ),
        (
            "{queryParams: {q: {exact: a}}}",
            "{queryParams: {q: {exact: a}}}",
            Some("/*, ?q =a"),
        ),
        (
            "{queryParams: {q: {exact: a}}}",
            "{queryParams: {q: {exact: b}}}",
            none,
        ),
        ("{port: 80}", "{port: 80}", Some("/*")),
        ("{port: 80}", "{port: 81}", none),
        ("{sourceNamespace: demo}", "{sourceNamespace: other}", none),
        (
            "{sourceNamespace: demo}",
            "{sourceNamespace: demo}",
            Some("/*"),
        ),
        ("{sourceLabels: {a: b}}", "{sourceLabels: {a: c}}", none),
    ] {
        let (routes, conflicts) = of(
            &format!(
                "[{{match: [{root}], delegate: {{name: d}}}}, {{directResponse: {{status: 404}}}}]"
            ),
            &format!("[{{match: [{leaf}], {ANSWER}}}]"),
        );
        let found = routes.iter().find(|one| one.ends_with("418"));
        let found = found.map(|one| {
            one.trim_start_matches(": ")
                .trim_end_matches(" -> answer 418")
        });
        assert_eq!(found, wanted, "{root} {leaf}");
        assert_eq!(
            conflicts.len(),
            usize::from(wanted.is_none()),
            "{conflicts:?}"
        );
    }
    assert!(
        of(
            "[{match: [{uri: {regex: '/a.*'}}], delegate: {name: d}}]",
            &format!("[{{match: [{{uri: {{prefix: /a}}}}], {ANSWER}}}]")
        )
        .1[0]
            .ends_with("or no one match says which do")
    );
}

/// As Istio has it: a match beside them that fits none is no reason to serve the others.
#[test]
fn each_match_of_a_delegate_fits_one_of_its_rule() {
    let matching = |uris: &[&str]| {
        let matches = uris.iter().map(|uri| format!("{{uri: {{exact: {uri}}}}}"));
        let matches: Vec<_> = matches.collect();
        let (routes, conflicts) = of(
            "[{match: [{uri: {prefix: /a}}, {uri: {prefix: /b}}], delegate: {name: d}}]",
            &format!("[{{match: [{}], {ANSWER}}}]", matches.join(", ")),
        );
        (routes.join(" "), conflicts.join(" "))
    };
    let (routes, conflicts) = matching(&["/a/1", "/b/1"]);
    assert_eq!(routes, ": =/a/1 -> answer 418 : =/b/1 -> answer 418");
    assert_eq!(conflicts, "");
    let (routes, conflicts) = matching(&["/a/1", "/c", "/b/1"]);
    assert_eq!(routes, "default: /* -> outbound|80||a.demo");
    assert!(
        conflicts.contains("http[0] of demo/d is left out: no request meets both its match[1] and a match of http[0]"),
        "{conflicts}"
    );
}

/// Both lists hold, and a name without a namespace is one of its own rule's.
#[test]
fn gateways_of_both_are_those_that_both_have() {
    let served = |root: &str, leaf: &str| {
        let mut world = world();
        let rule = format!(
            "hosts: [a]\ngateways: [mesh, g, other/g]\nhttp: [{{match: [{{gateways: [{root}]}}], delegate: {{name: d, namespace: other}}}}, {{directResponse: {{status: 404}}}}]"
        );
        virtual_service(&mut world, "r", 1, &rule);
        let leaf = format!("http: [{{match: [{{gateways: [{leaf}]}}], {ANSWER}}}]");
        virtual_service(&mut world, "other/d", 1, &leaf);
        for name in ["g", "other/g"] {
            let port = if name == "g" { 81 } else { 82 };
            let spec = format!(
                "selector: {{istio: edge}}\nservers: [{{port: {{number: {port}, name: http, protocol: HTTP}}, hosts: ['*']}}]"
            );
            let object = object::<api::networking::Gateway>(name, 1, &spec);
            insert(&mut world.gateways, object);
        }
        let snapshot = snapshot(world);
        let has = |view: &dyn View, configuration: &str, host: &str| {
            let routes = routes_of(view, configuration, host);
            routes.iter().any(|route| goes(route) == "answer 418")
        };
        let router = snapshot.view(&gateways::router("edge"));
        let mut found = Vec::new();
        let host = "a.demo.svc.cluster.local";
        if has(
            &*snapshot.view(&node("demo", &[])),
            "80",
            &format!("{host}:80"),
        ) {
            found.push("mesh");
        }
        for (port, name) in [(81, "demo/g"), (82, "other/g")] {
            if has(&*router, &format!("http.{port}"), &format!("{host}:{port}")) {
                found.push(name);
            }
        }
        let conflicts = snapshot.conflicts().into_iter();
        let conflicts = conflicts.filter(|one| one.metric == "gudgeon_delegates_left_out");
        (found.join(" "), conflicts.count())
    };
    for (root, leaf, found) in [
        ("", "", "mesh demo/g other/g"),
        ("g", "", "demo/g"),
        ("", "g", "other/g"),
        ("", "mesh", "mesh"),
        ("g, mesh", "demo/g", "demo/g"),
        ("other/g, mesh", "g", "other/g"),
        ("g", "g", ""),
        ("g", "mesh", ""),
    ] {
        let wanted = (found.to_owned(), usize::from(found.is_empty()));
        assert_eq!(served(root, leaf), wanted, "[{root}] [{leaf}]");
    }
}

#[test]
fn a_delegate_inherits_the_fields_of_its_rule() {
    let mut world = world();
    virtual_service(
        &mut world,
        "r",
        1,
        "hosts: [a]\nhttp: [{timeout: 1s, headers: {request: {set: {x: root}}}, delegate: {name: d, namespace: other}}]",
    );
    virtual_service(
        &mut world,
        "other/d",
        1,
        "http: [{timeout: 2s, match: [{uri: {exact: /own}}], route: [{destination: {host: c}}]}, {route: [{destination: {host: c}}]}]",
    );
    let view = view(world);
    let routes = routes_of(&*view, "80", "a.demo.svc.cluster.local:80");
    let fields: Vec<_> = routes
        .iter()
        .map(|route| {
            let Some(envoy_types::pb::envoy::config::route::v3::route::Action::Route(action)) =
                &route.action
            else {
                panic!("a route");
            };
            let header = route.request_headers_to_add[0].header.as_ref().unwrap();
            (
                // A host without a dot is one of the delegate's namespace.
                goes(route),
                action.timeout.unwrap().seconds,
                header.value.clone(),
            )
        })
        .collect();
    let c = || "outbound|80||c.other.svc.cluster.local".to_owned();
    let root = || "root".to_owned();
    assert_eq!(fields, [(c(), 2, root()), (c(), 1, root())]);
    let from = view.get(Type::Route, "80").unwrap().from.clone();
    let from: Vec<_> = from.iter().map(ToString::to_string).collect();
    assert_eq!(from, ["VirtualService demo/r", "VirtualService other/d"]);
}

#[test]
fn a_delegate_must_be_there_for_the_rule() {
    let root = "hosts: [a]\nhttp: [{delegate: {name: d, namespace: other}}, {directResponse: {status: 404}}]";
    let answer = format!("http: [{{{ANSWER}}}]");
    for (leaf, serves, part) in [
        (answer.clone(), true, None),
        (format!("{answer}\nexportTo: ['*']"), true, None),
        (format!("{answer}\nexportTo: [demo]"), true, None),
        (
            format!("{answer}\nexportTo: ['.']"),
            false,
            Some("is not exported"),
        ),
        (
            format!("{answer}\nexportTo: [third]"),
            false,
            Some("is not exported"),
        ),
        (
            format!("hosts: [b]\n{answer}"),
            false,
            Some("without hosts"),
        ),
    ] {
        let mut world = world();
        virtual_service(&mut world, "r", 1, root);
        virtual_service(&mut world, "other/d", 1, &leaf);
        let (routes, conflicts) = seen(world);
        assert_eq!(routes[0].ends_with("418"), serves, "{leaf}");
        assert_eq!(
            conflicts.len(),
            usize::from(part.is_some()),
            "{conflicts:?}"
        );
        for (conflict, part) in conflicts.iter().zip(part) {
            assert!(conflict.contains(part), "{conflict}");
        }
    }
    let mut world = world();
    virtual_service(&mut world, "r", 1, root);
    let (routes, conflicts) = seen(world);
    assert_eq!(routes, [": /* -> answer 404"]);
    assert!(
        conflicts[0].contains("no VirtualService other/d"),
        "{conflicts:?}"
    );
}

/// Proxies that see the rule are told when its delegate changes, or comes.
#[test]
fn a_change_of_a_delegate_concerns_those_who_see_the_rule() {
    let mut before = world();
    virtual_service(
        &mut before,
        "r",
        1,
        "hosts: [a]\nexportTo: ['.']\nhttp: [{delegate: {name: d, namespace: other}}]",
    );
    let first = snapshot(before.clone());
    let mut after = before;
    virtual_service(
        &mut after,
        "other/d",
        1,
        &format!("exportTo: [demo]\nhttp: [{{{ANSWER}}}]"),
    );
    let next = first.next(after, None, None);
    assert!(next.concerns(&node("demo", &[])));
    assert!(!next.concerns(&node("third", &[])));
}

/// Two rules of a megabyte must not become a terabyte.
#[test]
fn routes_of_delegates_are_bounded() {
    let many = |count: usize, rest: &str| {
        let all =
            (0..count).map(|at| format!("- {{match: [{{uri: {{prefix: /{at}}}}}], {rest}}}\n"));
        all.collect::<String>()
    };
    let mut world = world();
    let to = "delegate: {name: d}";
    for at in 0..20 {
        let spec = format!("hosts: [h{at}.example]\nhttp:\n{}", many(500, to));
        virtual_service(&mut world, &format!("r{at}"), 1, &spec);
    }
    let leaves = (0..500).map(|at| {
        let body = "x".repeat(1000);
        format!("- {{match: [{{headers: {{x: {{exact: '{at}'}}}}}}], directResponse: {{status: 200, body: {{string: {body}}}}}}}\n")
    });
    let leaves: String = leaves.collect();
    virtual_service(&mut world, "d", 1, &format!("http:\n{leaves}"));
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    let routes = view.get(Type::Route, "80").unwrap();
    assert!(routes.body.len() < 8 << 20, "{}", routes.body.len());
    let conflicts = snapshot.conflicts();
    let conflicts = conflicts
        .iter()
        .filter(|one| one.metric == "gudgeon_rules_too_large");
    assert!(conflicts.count() >= 20);
}
