//! Sources over the network, a galley at the other end: with certificates, from either side, and as a registry of services.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;

use crate::authority::Authority;
use crate::client::*;
use crate::galley::PeerGalley;
use crate::place::{Discovery, Place, put, until};
use crate::sinks::{A, a, address, mesh};
use crate::support::apart;

const KNOWN: &str = "spiffe://cluster.local/ns/istio-system/sa/known";
const OTHER: &str = "spiffe://cluster.local/ns/istio-system/sa/other";

/// Writes a certificate with this identity and its key to a folder.
fn identity(place: &Place, folder: &str, root: &Authority, id: &str) {
    let folder = place.path(folder);
    std::fs::create_dir_all(&folder).unwrap();
    root.write(&folder, &root.client(id));
}

/// `/etc` of the program is empty but for this, which is a folder of the place.
fn mounted(place: Place, folder: &str, to: &str) -> Place {
    let from = place.path(folder);
    std::fs::create_dir(&from).unwrap();
    let shell = format!(
        "set -e; mount -t tmpfs none /etc; mkdir {to}; mount --bind {} {to};",
        from.display()
    );
    let place = place.env("PATH", &std::env::var("PATH").unwrap());
    place.by(move || apart("-Urm", &shell))
}

/// Returns galley's flags for a folder's files.
fn files(folder: &Path) -> [String; 3] {
    let path = |name: &str| folder.join(name).display().to_string();
    [
        format!("--tlsCertFile={}", path("cert-chain.pem")),
        format!("--tlsKeyFile={}", path("key.pem")),
        format!("--caCertFile={}", path("root-cert.pem")),
    ]
}

/// Waits until a field of a source is such.
fn stands(discovery: &Discovery, source: usize, field: &str, text: &str) {
    until(&format!("{source}: {field} {text}"), || {
        let value = discovery.json("/debug/sinkz")[source][field].to_string();
        value.contains(text).then_some(())
    });
}

fn served(discovery: &Discovery) -> Option<String> {
    address(&discovery.json("/debug/endpointz"))
}

#[test]
fn a_source_with_certificates_is_dialled_with_those_of_the_mesh_or_of_its_settings() {
    let root = Authority::new();
    let config = tempfile::tempdir().unwrap();
    put(config.path(), "a.yaml", &a("10.0.0.1"));
    let place = Place::new().arg("--registries=MCP");
    let place = mounted(place, "mesh-certs", "/etc/certs");
    let server = place.path("server");
    std::fs::create_dir(&server).unwrap();
    root.write(&server, &root.server());
    place.write("list", &format!("allowed: [\"{KNOWN}\"]"));
    let list = format!("--accessListFile={}", place.path("list").display());
    let pair = files(&server);
    let mut flags = vec!["--server-address=tcp://127.0.0.1:0", &list];
    flags.extend(pair.iter().map(String::as_str));
    let mut galley = PeerGalley::start(config.path(), &flags);
    let at = galley.address();
    for (folder, id) in [("known", KNOWN), ("other", OTHER)] {
        identity(&place, folder, &root, id);
    }
    let path = |name: &str| place.path(name).display().to_string();
    let mutual = |folder: &str, more: &str| {
        format!(
            "{{address: 'mcp://{at}', tlsSettings: {{mode: MUTUAL, clientCertificate: '{0}/cert-chain.pem', \
             privateKey: '{0}/key.pem', caCertificates: '{0}/root-cert.pem'{more}}}}}",
            path(folder)
        )
    };
    let simple = format!(
        "{{address: 'mcp://{at}', tlsSettings: {{mode: SIMPLE, caCertificates: '{}/root-cert.pem'}}}}",
        path("known")
    );
    let named = mutual("known", ", subjectAltNames: [other.example, localhost]");
    let all = format!("configSources: [{{address: 'mcps://{at}'}}, {named}]\n");
    place.write("mesh", &all);
    let wrong = [
        mutual("other", ""),
        mutual("known", ", subjectAltNames: [other.example]"),
        simple,
    ];
    let wrong = format!("configSources: [{}]\n", wrong.join(", "));

    // The mesh's own are not there yet: they are waited for.
    let discovery = place.begin();
    stands(&discovery, 1, "state", "connected");
    stands(&discovery, 1, "synced", "true");
    stands(&discovery, 0, "error", "/etc/certs/root-cert.pem");
    assert_eq!(discovery.get("/ready").0, 503);
    root.write(&discovery.place.path("mesh-certs"), &root.client(KNOWN));
    stands(&discovery, 0, "synced", "true");
    until("readiness", || {
        (discovery.get("/ready").0 == 200).then_some(())
    });
    assert_eq!(served(&discovery).as_deref(), Some("10.0.0.1"));
    put(config.path(), "a.yaml", &a("10.0.0.2"));
    until("a change", || {
        (served(&discovery)? == "10.0.0.2").then_some(())
    });

    // An identity that the list lacks, a server with another name, no certificate: the served objects stay.
    discovery.place.write("mesh", &wrong);
    stands(&discovery, 0, "error", "identities are not allowed");
    stands(&discovery, 1, "state", "broken");
    stands(&discovery, 2, "state", "broken");
    assert_eq!(served(&discovery).as_deref(), Some("10.0.0.2"));
    assert_eq!(discovery.json("/debug/sinkz")[3]["leaving"], true);
}

#[test]
fn galley_dials_a_discovery_that_takes_with_certificates_and_by_its_list() {
    let root = Authority::new();
    let config = tempfile::tempdir().unwrap();
    put(config.path(), "a.yaml", &a("10.0.0.1"));
    let place = Place::new()
        .arg("--registries=MCP")
        .arg("--mcpSinkAddr=127.0.0.1:0");
    let place = mounted(place, "lists", "/etc/config");
    root.write(&place.path("certs"), &root.server());
    for (folder, id) in [("known", KNOWN), ("other", OTHER)] {
        identity(&place, folder, &root, id);
    }
    let mut discovery = place.begin();
    let port = discovery.port_after("listening on mcps://");
    // A source controls all proxies: without a list none is accepted, and the pages give the reason.
    let why = "no client may connect: there is no access list at /etc/config/accesslist.yaml";
    let (status, ready) = discovery.get("/ready");
    assert_eq!(status, 503);
    assert!(ready.contains(why), "{ready}");
    stands(&discovery, 0, "error", why);
    assert!(discovery.get("/debug").1.contains(why));
    // A client without TLS gets no answer, so the log must give the reason.
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\n").unwrap();
    until("the line of the handshake", || {
        (discovery.logged("no TLS with 127.0.0.1") == 1).then_some(())
    });
    let dial = |folder: &str| {
        let address = format!("--sinkAddress=127.0.0.1:{port}");
        let pair = files(&discovery.place.path(folder));
        let mut flags = vec![
            "--insecure",
            "--server-address=tcp://127.0.0.1:0",
            "--sinkAuthMode=MUTUAL_TLS",
            "--sinkMeta=cluster=one",
            &address,
        ];
        flags.extend(pair.iter().map(String::as_str));
        PeerGalley::start(config.path(), &flags)
    };
    let refused = "Unauthenticated: the certificate's identities are not allowed";
    let early = dial("known");
    until("the refusal", || (early.logged(refused) > 0).then_some(()));
    drop(early);
    let list = format!("allowed: [\"{KNOWN}\"]");
    discovery.place.write("lists/accesslist.yaml", &list);
    until("the list is seen", || {
        (!discovery.get("/ready").1.contains("nobody")).then_some(())
    });
    let stranger = dial("other");
    until("the refusal", || {
        (stranger.logged(refused) > 0).then_some(())
    });
    until("its line", || {
        let message = "that the access list does not allow";
        (discovery.logged(message) == 1).then_some(())
    });
    assert_eq!(discovery.json("/debug/sinkz")[0]["synced"], false);
    let galley = dial("known");
    until("readiness", || {
        (discovery.get("/ready").0 == 200).then_some(())
    });
    assert_eq!(discovery.get("/ready").1.trim(), "ok");
    assert_eq!(served(&discovery).as_deref(), Some("10.0.0.1"));
    put(config.path(), "a.yaml", &a("10.0.0.2"));
    until("a change", || {
        (served(&discovery)? == "10.0.0.2").then_some(())
    });
    let source = discovery.json("/debug/sinkz")[0].clone();
    assert_eq!(source["state"], "listening");
    // Galley's trigger is no collection: its NACK is harmless.
    let requests = source["requests"].as_array().unwrap();
    let refused = requests.iter().find(|one| one["outcome"] == "nack 12");
    assert_eq!(refused.unwrap()["collection"], "$triggerCollection");
    assert_eq!(discovery.logged("refused a response"), 0);
    // The list is deleted: no source stays, and its objects are still served.
    // It may have been refused before the list named it.
    let refused = galley.logged("identities are not allowed");
    std::fs::remove_file(discovery.place.path("lists/accesslist.yaml")).unwrap();
    until("the end of its stream", || {
        (galley.logged("identities are not allowed") > refused).then_some(())
    });
    put(config.path(), "a.yaml", &a("10.0.0.3"));
    let (status, ready) = discovery.get("/ready");
    assert_eq!(status, 200);
    assert!(ready.contains(why), "{ready}");
    assert_eq!(served(&discovery).as_deref(), Some("10.0.0.2"));
}

/// Over a file, which is the same after a restart.
#[test]
fn a_discovery_that_was_restarted_is_dialled_again() {
    let config = tempfile::tempdir().unwrap();
    put(config.path(), "a.yaml", &a("10.0.0.1"));
    let place = Place::new().arg("--registries=MCP");
    let socket = format!("unix://{}", place.path("sink").display());
    let place = place.arg(&format!("--mcpSinkAddr={socket}"));
    let mut discovery = place.begin();
    let flags = ["--insecure", "--server-address=tcp://127.0.0.1:0"];
    let address = format!("--sinkAddress={socket}");
    let _galley = PeerGalley::start(config.path(), &[flags[0], flags[1], &address]);
    until("readiness", || {
        (discovery.get("/ready").0 == 200).then_some(())
    });
    discovery.kill();
    discovery.again();
    assert_eq!(served(&discovery).as_deref(), Some("10.0.0.1"));
    put(config.path(), "a.yaml", &a("10.0.0.2"));
    until("a change", || {
        (served(&discovery)? == "10.0.0.2").then_some(())
    });
}

/// A Service with its endpoints, as a cluster has them.
fn service(endpoint: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: shop}}\nspec: {{clusterIP: 10.9.0.1, \
         ports: [{{name: http, port: 80, protocol: TCP}}]}}\n---\napiVersion: v1\nkind: Endpoints\n\
         metadata: {{name: web, namespace: shop}}\nsubsets: [{{addresses: [{{ip: {endpoint}}}], \
         ports: [{{name: http, port: 8080}}]}}]\n"
    )
}

#[tokio::test]
async fn synthetic_entries_of_galley_are_a_registry() {
    const WEB: &str = "outbound|80||web.shop.svc.cluster.local";
    let config = tempfile::tempdir().unwrap();
    put(config.path(), "web.yaml", &service("10.0.0.1"));
    put(config.path(), "a.yaml", &a("10.0.0.3"));
    let flags = ["--insecure", "--server-address=tcp://127.0.0.1:0"];
    let discovers = [flags[0], flags[1], "--enableServiceDiscovery"];
    let mut galley = PeerGalley::start(config.path(), &discovers);
    let at = galley.address();
    let place = Place::new().arg("--registries=MCP");
    // A sink that does not subscribe to services gets none.
    place.write("mesh", &mesh(&[format!("mcp://{at}")]));
    let discovery = place.start();
    let mut client = Sotw::open(discovery.grpc).await;
    client.ask(CDS, &[]);
    let clusters = client.hear(CDS).await;
    client.ack(&clusters, &[]);
    let has = |names: &[String], name: &str| names.iter().any(|one| one == name);
    let before = names_of(&clusters);
    assert!(has(&before, A) && !has(&before, WEB), "{before:?}");
    let asked = format!(
        "configSources: [{{address: 'mcp://{at}', subscribedResources: [SERVICE_REGISTRY]}}]\n"
    );
    discovery.place.write("mesh", &asked);
    let clusters = loop {
        let clusters = client.hear(CDS).await;
        client.ack(&clusters, &[]);
        if has(&names_of(&clusters), WEB) {
            break names_of(&clusters);
        }
    };
    assert!(has(&clusters, A), "{clusters:?}");
    client.ask(EDS, &[WEB]);
    let first = client.hear(EDS).await;
    client.ack(&first, &[WEB]);
    assert_eq!(endpoints(&first, WEB), ["10.0.0.1:8080"]);
    let count = || {
        let collections = discovery.json("/debug/sinkz")[0]["collections"].clone();
        collections["istio/networking/v1alpha3/synthetic/serviceentries"]["count"].clone()
    };
    assert_eq!(count(), 1);
    let registries = discovery.json("/debug/registryz").to_string();
    assert!(
        registries.contains("web.shop.svc.cluster.local"),
        "{registries}"
    );
    put(config.path(), "web.yaml", &service("10.0.0.2"));
    let second = client.hear(EDS).await;
    client.ack(&second, &[WEB]);
    assert_eq!(endpoints(&second, WEB), ["10.0.0.2:8080"]);
    std::fs::remove_file(config.path().join("web.yaml")).unwrap();
    let clusters = client.hear(CDS).await;
    assert!(!has(&names_of(&clusters), WEB));
    soon("nothing of it is left", || count() == 0).await;
}
