//! PeerAuthentications, by how a client and a workload speak to each other.

use std::fs;

use crate::backend::{self, Backend, Load};
use crate::place::{Place, documents, until};
use crate::policies::policy;
use crate::proxy::{Address, Setup, in_sync, in_sync_with};
use crate::secured::{Root, service, sidecar};

#[test]
fn mutual_tls_is_switched_by_policies_under_load_without_a_lost_request() {
    let (web, ip) = (Address::new(), Address::new());
    let application = Backend::new(ip.ip, "web");
    let root = Root::new();
    let place = Place::new();
    let volumes = ["web", "client-1"].map(|name| place.path("certs").join(name));
    for (volume, account) in volumes.iter().zip(["web", "client"]) {
        root.certify(volume, account);
    }
    let (http, tcp) = (format!("{}:9080", web.ip), format!("{}:9081", web.ip));
    let to = format!("{}:{}", ip.ip, application.port);
    let all = documents(&[
        service("web", 18080, "HTTP", &http, "web", true),
        service("line", 18081, "TCP", &tcp, "web", true),
        sidecar(&to),
    ]);
    let mesh = "enableTracing: false\naccessLogFile: /dev/stdout\n\
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
    in_sync(&discovery, "client-1");
    let ok = || Some((200, "web".to_owned()));
    until("the first answer", || {
        (client.get("web", 18080) == ok()).then_some(())
    });
    // The peer of the last request through the client, as the workload saw it.
    let seen_by = |peer: &str| {
        let last = || {
            let log = web.log();
            let mut lines = log.lines().filter(|line| line.starts_with("web by <"));
            lines.next_back().map(str::to_owned)
        };
        until(peer, || {
            (last().as_deref() == Some(&*format!("web by <{peer}>"))).then_some(())
        });
    };
    let load = Load::new(client.ip, "web", 18080);
    let identity = "spiffe://cluster.local/ns/demo/sa/client";
    let says = |spec: &str| {
        let written = policy("PeerAuthentication", "demo", "default", spec);
        discovery.place.write("config/peers.yaml", &written);
    };
    let stranger = || web.get("stranger", 9080);
    seen_by("-");
    says("{mtls: {mode: PERMISSIVE}}");
    seen_by(identity);
    assert_eq!(stranger(), ok());
    says("{mtls: {mode: STRICT}}");
    until("strictness", || stranger().is_none().then_some(()));
    seen_by(identity);
    let line = || backend::say(client.connect(client.ip, 18081).unwrap(), "hello");
    assert_eq!(line().as_deref(), Some("web hello"));
    let direct = |port| backend::say(web.connect(web.ip, port).unwrap(), "hello");
    until("strictness of the other port", || {
        direct(9081).is_none().then_some(())
    });
    // And back.
    says("{mtls: {mode: PERMISSIVE}}");
    until("both", || (stranger() == ok()).then_some(()));
    seen_by(identity);
    says("{mtls: {mode: DISABLE}}");
    seen_by("-");
    assert_eq!(stranger(), ok());
    // From no policy to strict mutual TLS, while port 9081 stays plain text.
    says(
        "{selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}, portLevelMtls: {9081: {mode: DISABLE}}}",
    );
    // The labels tell that its endpoints have a proxy.
    let file = fs::read_to_string(discovery.place.path("config/all.yaml")).unwrap();
    let labelled = file.replace(
        "{security.istio.io/tlsMode: istio}",
        "{app: web, security.istio.io/tlsMode: istio}",
    );
    discovery.place.write("config/all.yaml", &labelled);
    seen_by(identity);
    until("strictness", || stranger().is_none().then_some(()));
    assert_eq!(direct(9081).as_deref(), Some("web hello"));
    assert_eq!(line().as_deref(), Some("web hello"));
    for name in ["web", "client-1"] {
        in_sync_with(&discovery, name, |row| {
            row["errors"] == serde_json::json!({})
        });
    }
    load.end_after(50);
}
