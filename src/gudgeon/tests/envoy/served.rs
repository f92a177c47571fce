//! The way of a rule: a directory that galley validates and serves, discovery as its sink, and Envoy, which applies the
//! rule.

use crate::backend::Backend;
use crate::galley::PeerGalley;
use crate::place::{Address, Place, entry, put, until};
use crate::proxy::{Proxy, in_sync, updates};

const PORT: u16 = 18110;

/// Case 40 of galley.
#[test]
fn envoy_receives_the_rules_of_galley_but_no_broken_one() {
    let ip = Address::new();
    let (first, second) = (Backend::new(ip.ip, "v1"), Backend::new(ip.ip, "v2"));
    let at = ip.ip.to_string();
    let rule = |name: &str, backend: &Backend| {
        let host = format!("{name}.demo.svc.cluster.local");
        entry(&host, PORT, "HTTP", &[(&at, backend.port)])
    };
    let config = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| put(config.path(), name, text);
    write("b.yaml", &rule("b", &first));
    // An address of its own: no other process takes the port while galley is away.
    let own = format!("{at}:9901");
    let serve = || PeerGalley::plain(config.path(), &format!("tcp://{own}"));
    let mut galley = serve();
    assert_eq!(galley.address(), own);
    let mesh = format!("enableTracing: false\nconfigSources: [{{address: 'mcp://{own}'}}]\n");
    let discovery = Place::new()
        .arg("--registries=MCP")
        .with("mesh", &mesh)
        .start();
    let proxy = Proxy::start(discovery.grpc);
    let ok = |body: &str| Some((200, body.to_owned()));
    let answers = |host: &str, body: &str| {
        until(&format!("{body} of {host}"), || {
            (proxy.get(host, PORT) == ok(body)).then_some(())
        });
    };
    assert_eq!(proxy.get("b", PORT), ok("v1"));

    // The rule would lead to the other version, by another name too, and is invalid in its ninth line.
    let next = rule("b", &second).replace("hosts: [", "hosts: [new.demo.svc.cluster.local, ");
    let broken = next.replace(&format!("number: {PORT}"), "number: 80800");
    assert_ne!(broken, next);
    write("b.yaml", &broken);
    let place = format!("{}:9: ", config.path().join("b.yaml").display());
    until("the refusal", || {
        let log = galley.log();
        let line = log.iter().find(|line| line.contains(&place))?;
        assert!(line.contains("port 80800 is not in 1..65535"), "{line}");
        Some(())
    });
    // c.yaml was written after the broken rule and has arrived: had galley served that rule, it would be here, too.
    write("c.yaml", &rule("c", &first));
    answers("c", "v1");
    assert_eq!(proxy.get("b", PORT), ok("v1"));
    let status = proxy.get("new", PORT).map(|(status, _)| status);
    assert_eq!(status, Some(502));

    write("b.yaml", &next);
    until("the other version", || {
        let (status, body) = proxy.get("b", PORT)?;
        assert_eq!(status, 200, "{body}");
        (body == "v2").then_some(())
    });
    answers("new", "v2");

    let source = |field: &str| discovery.json("/debug/sinkz")[0][field].clone();
    let before = in_sync(&discovery, "client-1");
    let (had, known) = (discovery.taken(), updates(&proxy));
    galley.signal("TERM");
    assert_eq!(galley.wait().code(), Some(0));
    until("the loss", || (source("state") == "broken").then_some(()));
    assert_eq!(proxy.get("b", PORT), ok("v2"));
    assert_eq!(discovery.get("/ready").0, 200);

    // Galley comes back with one change: nothing else is sent again, to any proxy.
    let _galley = serve();
    until("its return", || {
        (source("state") == "connected").then_some(())
    });
    assert_eq!(proxy.get("b", PORT), ok("v2"));
    write("c.yaml", &rule("c", &second));
    answers("c", "v2");
    assert_eq!(proxy.get("b", PORT), ok("v2"));
    assert_eq!(discovery.taken(), had + 1);
    let after = in_sync(&discovery, "client-1");
    for kind in ["cluster", "listener", "route"] {
        let sent = format!("{kind}_sent");
        assert_eq!(before[&sent], after[&sent], "{kind}");
    }
    assert_eq!(updates(&proxy), known);
}
