//! VirtualServices of which something is for no port that there is.

use api::networking::Gateway;

use super::*;

const TO_A: &str = "route: [{destination: {host: a, port: {number: 80}}}]";

fn told(world: World) -> Vec<String> {
    let all = snapshot(world).conflicts().into_iter();
    let all = all.filter(|one| one.metric == "pilot_total_rejected_configs");
    all.map(|one| format!("{}: {}", one.objects[0], one.message))
        .collect()
}

/// `a` has ports of HTTP and TCP, `b` of HTTP, `t` of TCP, `s` of TLS, `u` of no protocol; `g` serves port 443.
fn five_services() -> World {
    let mut world = world();
    for (name, port) in [
        ("t.demo", (91, "TCP")),
        ("s.demo", (92, "TLS")),
        ("u.demo", (93, "")),
    ] {
        service(&mut world, name, &[port], &[]);
    }
    let spec = "{selector: {app: g}, servers: [{port: {number: 443, name: a, protocol: HTTP}, hosts: ['*']}]}";
    insert(&mut world.gateways, object::<Gateway>("g", 1, spec));
    world
}

fn with(spec: &str) -> Vec<String> {
    let mut world = five_services();
    virtual_service(&mut world, "v", 1, spec);
    told(world)
}

#[test]
fn routes_without_a_port_of_their_kind_are_told() {
    let sidecars = |kind: &str, protocols: &str| {
        format!(
            "no {kind} route of it applies to sidecars: no service with one of its hosts has a port of {protocols}"
        )
    };
    let never = |place: &str, why: &str| format!("spec.{place} never matches: {why}");
    let no_port = |port: u16, protocols: &str| {
        format!("no service with one of its hosts has a port {port} of {protocols}")
    };
    let tls = "match: [{sniHosts: [s.demo.svc.cluster.local]}]";
    let other = "none of its gateways is one of spec.gateways".to_owned();
    let no_server = "none of its gateways has a server on port 80".to_owned();
    for (spec, message) in [
        (
            format!("hosts: [t]\nhttp: [{{{TO_A}}}]"),
            sidecars("http", "HTTP"),
        ),
        (
            format!("hosts: [s, t]\nhttp: [{{{TO_A}}}]"),
            sidecars("http", "HTTP"),
        ),
        (
            format!("hosts: [b]\ntcp: [{{{TO_A}}}]"),
            sidecars("tcp", "TCP"),
        ),
        (
            format!("hosts: [b]\ngateways: [mesh, g]\ntcp: [{{{TO_A}}}]"),
            sidecars("tcp", "TCP"),
        ),
        (
            format!("hosts: [s.demo.svc.cluster.local, t]\ntls: [{{{tls}, {TO_A}}}]")
                .replace("s.demo", "b.demo"),
            sidecars("tls", "HTTPS or TLS"),
        ),
        (
            format!("hosts: [a]\ntcp: [{{match: [{{port: 90}}, {{port: 9999}}], {TO_A}}}]"),
            never("tcp[0].match[1]", &no_port(9999, "TCP")),
        ),
        (
            format!("hosts: [a]\nhttp: [{{match: [{{port: 90}}], {TO_A}}}, {{{TO_A}}}]"),
            never("http[0].match[0]", &no_port(90, "HTTP")),
        ),
        (
            format!("hosts: [a]\ngateways: [g]\nhttp: [{{match: [{{gateways: [mesh]}}], {TO_A}}}]"),
            never("http[0].match[0]", &other),
        ),
        (
            format!("hosts: [a]\ngateways: [g]\nhttp: [{{match: [{{port: 80}}], {TO_A}}}]"),
            never("http[0].match[0]", &no_server),
        ),
        (
            format!(
                "hosts: [b]\ngateways: [demo/g, mesh]\nhttp: [{{match: [{{port: 9}}], {TO_A}}}]"
            ),
            never(
                "http[0].match[0]",
                &format!(
                    "{}, and {}",
                    no_port(9, "HTTP"),
                    no_server.replace("80", "9")
                ),
            ),
        ),
    ] {
        let expected = format!("VirtualService demo/v: {message}");
        assert_eq!(with(&spec), [expected], "{spec}");
    }
}

#[test]
fn routes_that_some_port_is_for_are_not_told() {
    for spec in [
        format!("hosts: [a, t]\nhttp: [{{{TO_A}}}]"),
        format!("hosts: [u]\nhttp: [{{{TO_A}}}]\ntcp: [{{{TO_A}}}]"),
        // At the ports of its destinations a host stands by itself.
        format!("hosts: [t, x.example]\nhttp: [{{match: [{{port: 80}}], {TO_A}}}]"),
        format!("hosts: ['*.demo.svc.cluster.local']\nhttp: [{{match: [{{port: 9}}], {TO_A}}}]"),
        format!("hosts: ['*.demo.svc.cluster.local']\ntcp: [{{match: [{{port: 91}}], {TO_A}}}]"),
        format!("hosts: [t]\ngateways: [g]\nhttp: [{{match: [{{port: 443}}], {TO_A}}}]"),
        format!("hosts: [t]\ngateways: [mesh, g]\nhttp: [{{match: [{{gateways: [g]}}], {TO_A}}}]"),
        // What is not there may have any port.
        format!("hosts: [t]\ngateways: [none]\nhttp: [{{match: [{{port: 9}}], {TO_A}}}]"),
        format!(
            "hosts: [a]\ngateways: [mesh, g]\nhttp: [{{match: [{{port: 443}}, {{port: 80}}], {TO_A}}}]"
        ),
    ] {
        assert_eq!(with(&spec), [""; 0], "{spec}");
    }
}

/// It is the state of the mesh that is told, and no fault of a rule.
#[test]
fn a_port_that_appears_ends_what_is_told() {
    let mut world = five_services();
    virtual_service(
        &mut world,
        "v",
        1,
        &format!("hosts: [t]\nhttp: [{{{TO_A}}}]"),
    );
    assert_eq!(told(world.clone()).len(), 1);
    service(&mut world, "t.demo", &[(91, "TCP"), (80, "HTTP")], &[]);
    assert_eq!(told(world), [""; 0]);
}

/// Its routes are for those gateways of the root that it names.
#[test]
fn matches_of_a_delegate_are_for_gateways_of_its_root() {
    let mut world = five_services();
    let root = "hosts: [x.example]\ngateways: [g]\nhttp: [{delegate: {name: leaf}}]";
    virtual_service(&mut world, "root", 1, root);
    let leaf = format!("http: [{{match: [{{gateways: [g], uri: {{prefix: /a}}}}], {TO_A}}}]");
    virtual_service(&mut world, "leaf", 2, &leaf);
    assert_eq!(told(world), [""; 0]);
}

/// A Sidecar may say that requests to a service of HTTP are connections, for which `tcp` is then asked.
#[test]
fn connections_that_a_sidecar_declares_end_what_is_told() {
    let mut world = five_services();
    let spec = format!("hosts: [b]\ntcp: [{{{TO_A}}}]");
    virtual_service(&mut world, "v", 1, &spec);
    assert_eq!(told(world.clone()).len(), 1);
    let requests = "{egress: [{port: {number: 80, name: a, protocol: HTTP}, hosts: ['./*']}]}";
    let connections = requests.replace("HTTP", "TCP");
    for (declared, count) in [(requests, 1), (&*connections, 0)] {
        sidecars::sidecar(&mut world, "s", 1, declared);
        assert_eq!(told(world.clone()).len(), count, "{declared}");
    }
}

/// However many rules there are, and however many ports their hosts have.
#[test]
fn many_rules_for_many_ports_are_looked_at_within_bounds() {
    let mut world = five_services();
    let ports: Vec<_> = (1..=900).map(|number| (number, "TCP")).collect();
    service(&mut world, "many.demo", &ports, &[]);
    for number in 0..200 {
        let spec = format!("hosts: [many]\nhttp: [{{{TO_A}}}]");
        virtual_service(&mut world, &format!("v{number:03}"), number, &spec);
    }
    assert_eq!(told(world).len(), 50_000 / 900);
}
