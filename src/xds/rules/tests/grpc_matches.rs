//! Matches of VirtualServices for programs with gRPC in them.

use super::routes::{goes, matches};
use super::*;

/// The routes of such a program with these matches, each to `b`, before one of everything; and the messages about them.
fn of(written: &str) -> (Vec<String>, Vec<String>) {
    let mut world = world();
    let spec = format!(
        "hosts: [a]\nhttp: [{{match: [{written}], route: [{{destination: {{host: b}}}}]}}, {{route: [{{destination: {{host: a}}}}]}}]"
    );
    virtual_service(&mut world, "r", 1, &spec);
    let snapshot = snapshot(world);
    let mut client = (*node("demo", &[])).clone();
    client.grpc = true;
    let view = snapshot.view(&Arc::new(client));
    let name = "outbound|80||a.demo.svc.cluster.local";
    let routes = view.get(Type::Route, name).unwrap();
    let mut hosts = RouteConfiguration::decode(&*routes.body)
        .unwrap()
        .virtual_hosts;
    let mut routes = hosts.remove(0).routes;
    routes.retain(|route| !goes(route).contains("||a."));
    let routes = routes.iter().map(|route| {
        assert!(goes(route).contains("||b."), "{route:?}");
        matches(route.r#match.as_ref().unwrap())
    });
    let messages = snapshot.conflicts().into_iter();
    let messages = messages.map(|conflict| conflict.message);
    (routes.collect(), messages.collect())
}

/// Each call is a POST, and matchers of gRPC's do not see it.
#[test]
fn a_method_is_that_of_all_calls_or_of_none() {
    for (written, routes) in [
        ("{method: {exact: POST}}", vec!["/*"]),
        ("{method: {prefix: PO}, uri: {exact: /x}}", vec!["=/x"]),
        ("{method: {regex: 'GET|POST'}}", vec!["/*"]),
        ("{headers: {':method': {exact: POST}}}", vec!["/*"]),
        ("{method: {exact: GET}}", vec![]),
        ("{method: {regex: 'POS'}}", vec![]),
        ("{method: {exact: GET}}, {uri: {exact: /x}}", vec!["=/x"]),
        ("{withoutHeaders: {':method': {exact: GET}}}", vec!["/*"]),
        ("{withoutHeaders: {':method': {exact: POST}}}", vec![]),
    ] {
        let expected = routes.into_iter().map(str::to_owned).collect();
        assert_eq!(of(written), (expected, Vec::new()), "{written}");
    }
}

/// A matcher of gRPC's that is inverted wants its header to be there.
#[test]
fn a_call_without_the_header_is_one_without_its_text() {
    for (written, routes) in [
        (
            "{withoutHeaders: {x: {exact: y}}, headers: {z: {exact: w}}}",
            vec!["/*, z =w, !x there", "/*, z =w, !x =y"],
        ),
        ("{withoutHeaders: {x: {}}}", vec!["/*, !x there"]),
        (
            "{withoutHeaders: {x: {exact: y}, v: {prefix: w}}}",
            vec![
                "/*, !v there, !x there",
                "/*, !v there, !x =y",
                "/*, !v w*, !x there",
                "/*, !v w*, !x =y",
            ],
        ),
    ] {
        let expected = routes.into_iter().map(str::to_owned).collect();
        assert_eq!(of(written), (expected, Vec::new()), "{written}");
    }
    let many: Vec<_> = (0..5).map(|at| format!("x{at}: {{exact: y}}")).collect();
    let (routes, messages) = of(&format!("{{withoutHeaders: {{{}}}}}", many.join(", ")));
    assert_eq!(routes, Vec::<String>::new());
    let message = "VirtualService demo/r: a match with more than 4 withoutHeaders is left out for clients with gRPC in them";
    assert_eq!(messages, [message]);
    let (routes, messages) = of(&format!("{{withoutHeaders: {{{}}}}}", many[..4].join(", ")));
    assert_eq!((routes.len(), messages.len()), (16, 0));
}

/// A match that nothing can be made of is told, if the client is one of those that it is for.
#[test]
fn a_match_that_is_left_out_is_told_to_those_that_it_is_for() {
    let unread = "VirtualService demo/r: a match with a regular expression of methods that cannot be read is left out for clients with \
                  gRPC in them";
    let is_told = |written: &str| {
        let (_, messages) = of(written);
        messages
            .iter()
            .any(|message| message.ends_with("for clients with gRPC in them"))
    };
    // Envoy reads it, and the reader here would make megabytes of it; and a class that it has no tables for.
    for regex in ["(?:[A-Z]{1,30}){1,20}", "\\pL+"] {
        let written = format!("{{method: {{regex: '{regex}'}}}}");
        assert_eq!(of(&written), (vec![], vec![unread.to_owned()]), "{regex}");
        let written = format!("{{withoutHeaders: {{':method': {{regex: '{regex}'}}}}}}");
        assert_eq!(of(&written), (vec![], vec![unread.to_owned()]), "{regex}");
        let written = format!("{{method: {{regex: '{regex}'}}, gateways: [gw]}}");
        assert!(!is_told(&written), "{regex}");
    }
    let many: Vec<_> = (0..5).map(|at| format!("x{at}: {{exact: y}}")).collect();
    let many = many.join(", ");
    for left_out in ["gateways: [gw]", "port: 81"] {
        let written = format!("{{withoutHeaders: {{{many}}}, {left_out}}}");
        assert!(!is_told(&written), "{left_out}");
    }
}
