//! Whether a proxy and services agree about mutual TLS, and the policies that hold for it.

use api::networking::Sidecar;
use api::security::AuthorizationPolicy;

use super::*;
use crate::node::Mode;
use crate::snapshot::{Agreement, PortSecurity};

/// Host, port, policies, rule, servers, client, and whether they agree.
fn row(port: &PortSecurity) -> String {
    let joined = |names: Vec<String>| names.join("|");
    format!(
        "{}{}{}:{} {} {} {} {} {:?}",
        port.host.split('.').next().unwrap(),
        if port.subset.is_empty() { "" } else { "/" },
        port.subset,
        port.port,
        joined(port.policies.iter().map(ToString::to_string).collect()),
        port.rule
            .as_ref()
            .map(|rule| rule.name.to_string())
            .unwrap_or_default(),
        joined(port.servers.iter().map(ToString::to_string).collect()),
        port.client.unwrap_or("-"),
        port.agreement,
    )
}

fn rows(mesh: &str, policies: &[(&str, &str)], change: impl Fn(&mut World)) -> Vec<String> {
    let mut world = world();
    let config = mesh::parse_over(&mesh::discovery_defaults(), mesh).unwrap();
    world.mesh = Arc::new(config.config);
    world.peer_authentications = peers::objects(policies);
    change(&mut world);
    let snapshot = snapshot(world);
    let all = snapshot.port_security(&node("demo", &[]));
    let of_a = all.iter().filter(|one| one.host.starts_with("a."));
    of_a.map(row).collect()
}

#[test]
fn a_client_and_its_servers_agree_or_not() {
    let none = |_: &mut World| {};
    assert_eq!(
        rows("", &[], none),
        ["a:80   DISABLE - Agree", "a:90   DISABLE - Agree"]
    );
    let auto = "enableAutoMtls: true";
    assert_eq!(rows(auto, &[], none)[0], "a:80   DISABLE - Auto");
    let strict = [("demo", "mtls: {mode: STRICT}")];
    let policy = "PeerAuthentication demo/p0";
    assert_eq!(
        rows(auto, &strict, none)[0],
        format!("a:80 {policy}  STRICT - Auto")
    );
    let rule = |mode: &'static str| {
        move |world: &mut World| {
            let spec = format!(
                "host: a\ntrafficPolicy: {{tls: {{mode: {mode}}}}}\nsubsets: [{{name: v1, labels: {{version: v1}}, \
                 trafficPolicy: {{tls: {{mode: DISABLE}}}}}}]"
            );
            destination_rule(world, "d", 1, &spec);
        }
    };
    let all = rows(auto, &strict, rule("ISTIO_MUTUAL"));
    assert_eq!(all[0], format!("a:80 {policy} d STRICT ISTIO_MUTUAL Agree"));
    assert_eq!(
        all[1],
        format!("a/v1:80 {policy} d STRICT DISABLE Conflict")
    );
    assert_eq!(all.len(), 4);
    for (server, client, agreement) in [
        ("PERMISSIVE", "DISABLE", Agreement::Agree),
        ("PERMISSIVE", "ISTIO_MUTUAL", Agreement::Agree),
        ("PERMISSIVE", "SIMPLE", Agreement::Conflict),
        ("STRICT", "DISABLE", Agreement::Conflict),
        ("DISABLE", "DISABLE", Agreement::Agree),
        ("DISABLE", "ISTIO_MUTUAL", Agreement::Conflict),
    ] {
        let spec = format!("mtls: {{mode: {server}}}");
        let all = rows(auto, &[("demo", &spec)], rule(client));
        let expected = format!("a:80 {policy} d {server} {client} {agreement:?}");
        assert_eq!(all[0], expected);
    }
    // Workloads of one service may differ.
    let own = "selector: {matchLabels: {version: v2}}\nmtls: {mode: DISABLE}";
    let all = rows(auto, &[strict[0], ("demo", own)], rule("ISTIO_MUTUAL"));
    let both = format!("{policy}|PeerAuthentication demo/p1");
    assert_eq!(
        all[0],
        format!("a:80 {both} d DISABLE|STRICT ISTIO_MUTUAL Conflict")
    );
}

/// The stock rule of 1.1 to 1.4 for a mesh whose policy nobody enforces any more: all calls fail, and the rule says why.
#[test]
fn a_rule_that_workloads_do_not_agree_with_is_told() {
    let conflicts_of = |mesh: &str, policies: &[peers::Policy<'_>], rule: &str| {
        let mut world = peers::peer_world(mesh, policies);
        destination_rule(&mut world, "istio-system/default", 1, rule);
        let all = snapshot(world).conflicts().into_iter();
        let of_rule = all.filter(|one| one.metric == "gudgeon_mutual_tls_conflicts");
        let texts = of_rule.map(|one| {
            let rule = one.objects.first().unwrap().to_string();
            assert_eq!(rule, "DestinationRule istio-system/default");
            one.message.split(": ").nth(1).unwrap().to_owned()
        });
        texts.collect::<Vec<_>>()
    };
    let mutual = "host: '*.local'\ntrafficPolicy: {tls: {mode: ISTIO_MUTUAL}}";
    let plain = "host: '*.local'\ntrafficPolicy: {tls: {mode: DISABLE}}";
    let (auto, off) = ("enableAutoMtls: true\n", "enableAutoMtls: false\n");
    let strict = [("demo", "mtls: {mode: STRICT}")];
    let message = |client: &str, port: u16, servers: &str| {
        format!(
            "DestinationRule istio-system/default has them speak {client} to web.demo.svc.cluster.local:{port}, and workloads \
             of it {servers}"
        )
    };
    let none = [9080, 9081].map(|port| message("mutual TLS", port, "accept none"));
    let alone = [9080, 9081].map(|port| message("plain text", port, "accept mutual TLS alone"));
    assert_eq!(conflicts_of(off, &[], mutual), none);
    assert_eq!(conflicts_of(auto, &[], mutual), [""; 0]);
    assert_eq!(conflicts_of(off, &strict, mutual), [""; 0]);
    assert_eq!(conflicts_of(auto, &strict, plain), alone);
    assert_eq!(conflicts_of(auto, &[], plain), [""; 0]);
    assert_eq!(conflicts_of(off, &[], "host: '*.local'"), [""; 0]);
}

#[test]
fn policies_in_force_are_those_of_the_workload() {
    let mut world = world();
    authorization::policy(&mut world, "a", "{}");
    authorization::policy(&mut world, "b", "selector: {matchLabels: {app: web}}");
    authorization::policy(&mut world, "other/c", "{}");
    authorization::policy(&mut world, "istio-system/d", "{}");
    tokens::policy(&mut world, "t", "{}");
    let snapshot = snapshot(world);
    let of = |labels: &[(&str, &str)]| {
        let all = snapshot.policies_in_force(&node("demo", labels));
        let names = all.authorization.iter().map(|one| one.name.to_string());
        let names: Vec<_> = names.collect();
        (names.join(" "), all.requests.len())
    };
    assert_eq!(of(&[]), ("d a".to_owned(), 1));
    assert_eq!(of(&[("app", "web")]), ("d a b".to_owned(), 1));
}

/// Discovery tells policies as not enforced if a proxy has none of its workload's connections.
#[test]
fn policies_of_a_proxy_that_intercepts_nothing_are_told() {
    let unenforced = |mode: Mode, ingress: bool| {
        let mut world = world();
        service(
            &mut world,
            "own.demo",
            &[(80, "HTTP")],
            &[("10.9.0.1", "v1")],
        );
        let deny = object::<AuthorizationPolicy>("deny", 1, "action: DENY\nrules: [{}]");
        insert(&mut world.authorization_policies, deny);
        world.peer_authentications = peers::objects(&[("demo", "mtls: {mode: STRICT}")]);
        if ingress {
            let listener = "{port: {number: 80, protocol: HTTP, name: h}, bind: 127.0.0.7, defaultEndpoint: '127.0.0.1:8080'}";
            let spec = format!("ingress: [{listener}]");
            insert(&mut world.sidecars, object::<Sidecar>("s", 1, &spec));
        }
        let mut own = (*node("demo", &[])).clone();
        own.mode = mode;
        let snapshot = snapshot(world);
        drop(snapshot.view(&Arc::new(own)).all(Type::Listener));
        let all = snapshot.conflicts().into_iter();
        let all = all.filter(|one| one.message.contains("intercepts nothing"));
        all.map(|one| one.key).collect::<Vec<_>>()
    };
    let both = [
        "AuthorizationPolicy demo/deny",
        "PeerAuthentication demo/p0",
    ];
    assert_eq!(unenforced(Mode::None, false), both);
    assert_eq!(unenforced(Mode::None, true), [""; 0]);
    assert_eq!(unenforced(Mode::Redirect, false), [""; 0]);
}

/// A page is not the proxy: nothing is told of it, and no stream's patches are taken for others.
#[test]
fn looking_at_the_security_of_a_proxy_reports_nothing() {
    let mut world = world();
    let sidecar = object::<Sidecar>(
        "s",
        1,
        "ingress:\n- port: {number: 8080, protocol: HTTP, name: http}\n  defaultEndpoint: 127.0.0.1:15001\n",
    );
    insert(&mut world.sidecars, sidecar);
    let (snapshot, node) = (snapshot(world), node("demo", &[]));
    let _ports = snapshot.port_security(&node);
    let _policies = snapshot.policies_in_force(&node);
    assert_eq!(snapshot.conflicts(), []);
    let _view = snapshot.view(&node);
    assert_ne!(snapshot.conflicts(), [], "the proxy itself finds one");
}
