//! The walk: requests by a service's name, an endpoint more, a server that comes back.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::backend::Backend;
use crate::place::{Place, entry, until};
use crate::proxy::{Address, Proxy, Setup, in_sync, updates};

const HOST: &str = "b.demo.svc.cluster.local";

#[test]
fn a_request_by_a_services_name_and_a_second_endpoint_by_eds_alone() {
    let ip = Address::new();
    let (one, two) = (Backend::new(ip.ip, "one"), Backend::new(ip.ip, "two"));
    let at = ip.ip.to_string();
    let discovery = Place::new()
        .with(
            "config/b.yaml",
            &entry(HOST, 18080, "HTTP", &[(&at, one.port)]),
        )
        .start();
    let proxy = Proxy::start(discovery.grpc);
    for host in ["b", "b.demo", "b.demo.svc", HOST, "b:18080"] {
        assert_eq!(
            proxy.get(host, 18080),
            Some((200, "one".to_owned())),
            "{host}"
        );
    }
    // Without interception an unserved address is refused.
    assert_eq!(
        proxy.get("nobody", 18080).map(|(status, _)| status),
        Some(502)
    );

    let before = in_sync(&discovery, "client-1");
    assert_eq!(before["proxy_type"], "sidecar");
    assert_eq!(before["endpoint_percent"], 100);
    let both = [(&*at, one.port), (&*at, two.port)];
    discovery
        .place
        .write("config/b.yaml", &entry(HOST, 18080, "HTTP", &both));
    let mut answered = BTreeSet::new();
    until("both endpoints", || {
        let (status, body) = proxy.get("b", 18080)?;
        assert_eq!(status, 200);
        answered.insert(body);
        (answered.len() == 2).then_some(())
    });
    let after = in_sync(&discovery, "client-1");
    for kind in ["cluster", "listener", "route"] {
        let sent = format!("{kind}_sent");
        assert_eq!(before[&sent], after[&sent], "{kind}");
    }
    assert_ne!(before["endpoint_sent"], after["endpoint_sent"]);
    // The content was updated, not only its version.
    assert_eq!(updates(&proxy), [1, 1]);
}

#[test]
fn a_server_that_comes_back_sends_nothing_again() {
    let ip = Address::new();
    let backend = Backend::new(ip.ip, "one");
    let at = ip.ip.to_string();
    // An address of its own: no other process takes the port while the server is away.
    let own = SocketAddr::from((ip.ip, 15010));
    let start = || {
        Place::new()
            .with(
                "config/b.yaml",
                &entry(HOST, 18081, "HTTP", &[(&at, backend.port)]),
            )
            .arg(&format!("--grpcAddr={own}"))
            .start()
    };
    let discovery = start();
    let proxy = Setup::new("client-1", discovery.grpc).of(own).start();
    let before = in_sync(&discovery, "client-1");
    drop(discovery);
    assert_eq!(proxy.get("b", 18081), Some((200, "one".to_owned())));
    let discovery = start();
    let after = until("the proxy's return", || {
        let rows = discovery.json("/debug/syncz");
        let row = rows.as_array().unwrap().first()?.clone();
        row["route_acked"].is_string().then_some(row)
    });
    for kind in ["cluster", "endpoint", "listener", "route"] {
        let (sent, acked) = (format!("{kind}_sent"), format!("{kind}_acked"));
        assert_eq!(before[&sent], after[&sent], "{kind}");
        assert_eq!(after[&sent], after[&acked], "{kind}");
    }
    for kind in ["cds", "lds"] {
        let sent = discovery.metric(&format!("pilot_xds_pushes{{type=\"{kind}\"}}"));
        assert_eq!(sent, 0.0, "{kind}");
    }
    assert_eq!(proxy.get("b", 18081), Some((200, "one".to_owned())));
}
