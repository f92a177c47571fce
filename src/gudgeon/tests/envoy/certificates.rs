//! Sidecars whose certificates come late: plain until then, and no request is lost on the way.

use std::fs;

use crate::backend::{Backend, Load};
use crate::place::{Place, documents, until};
use crate::proxy::{Address, Proxy, Setup, in_sync, rows};
use crate::secured::{Root, service};

/// Until the epoch that found certificates is the only one.
fn until_restarted(discovery: &crate::place::Discovery, proxy: &Proxy) {
    until("the second epoch", || {
        (proxy.stat("server.hot_restart_epoch") == 1).then_some(())
    });
    until("the end of the first", || {
        (rows(discovery, &proxy.name).len() == 1).then_some(())
    });
}

#[test]
fn certificates_that_come_late_make_mutual_tls_without_a_lost_request() {
    let (web, ip) = (Address::new(), Address::new());
    let application = Backend::new(ip.ip, "web");
    let root = Root::new();
    let place = Place::new();
    let volumes = ["web", "client-1"].map(|name| place.path("certs").join(name));
    for volume in &volumes {
        fs::create_dir_all(volume).unwrap();
    }
    let all = documents(&[
        service(
            "web",
            18080,
            "HTTP",
            &format!("{}:9080", web.ip),
            "web",
            true,
        ),
        format!(
            "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: web, namespace: demo}}\nspec:\n  \
             workloadSelector: {{labels: {{app: web}}}}\n  ingress:\n  - {{port: {{number: 9080, name: http, protocol: HTTP}}, \
             defaultEndpoint: '{}:{}'}}\n",
            ip.ip, application.port
        ),
    ]);
    let mesh = "enableTracing: false\nenableAutoMtls: true\naccessLogFile: /dev/stdout\n\
        accessLogFormat: \"%REQ(:AUTHORITY)% by <%DOWNSTREAM_PEER_URI_SAN%>\\n\"\n";
    let discovery = place
        .with("mesh", mesh)
        .with("config/all.yaml", &all)
        .start();
    let mut web = Setup::at("web", web, discovery.grpc)
        .label("app", "web")
        .secured(&volumes[0])
        .begin();
    let mut client = Setup::new("client-1", discovery.grpc)
        .secured(&volumes[1])
        .begin();
    web.until_ready();
    client.until_ready();
    // Plain, both ways, and nothing is refused.
    assert_eq!(client.get("web", 18080), Some((200, "web".to_owned())));
    until("a plain request", || {
        web.log().contains("web by <->").then_some(())
    });
    for proxy in [&web, &client] {
        assert!(
            proxy.log().contains("has no certificates"),
            "{}",
            proxy.log()
        );
        let row = in_sync(&discovery, &proxy.name);
        assert_eq!(row["errors"], serde_json::json!({}));
    }
    let (_, page) = discovery.get("/debug");
    assert_eq!(
        page.matches("no certificates: without mutual TLS").count(),
        2
    );

    // One after the other, the client first: it must not try what nobody answers yet.
    let load = Load::new(client.ip, "web", 18080);
    root.certify(&volumes[1], "client");
    until_restarted(&discovery, &client);
    assert_eq!(client.get("web", 18080), Some((200, "web".to_owned())));
    root.certify(&volumes[0], "web");
    until_restarted(&discovery, &web);
    until("a request by mutual TLS", || {
        let by = "web by <spiffe://cluster.local/ns/demo/sa/client>";
        web.log().contains(by).then_some(())
    });
    assert!(load.end() > 20);
    let (_, page) = discovery.get("/debug");
    assert!(!page.contains("no certificates: without mutual TLS"));
    for proxy in [&web, &client] {
        let row = in_sync(&discovery, &proxy.name);
        assert_eq!(row["errors"], serde_json::json!({}));
    }
}
