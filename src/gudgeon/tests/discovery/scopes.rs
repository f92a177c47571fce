//! The scope of a push: streams of proxies that see a part of the change.

use serde_json::{Value, json};

use crate::client::*;
use crate::place::{Discovery, Place, documents};

const PORT: u16 = 8080;

fn service_of(namespace: &str, name: &str, address: &str, export: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  \
         hosts: [{name}.{namespace}.svc.cluster.local]\n  location: MESH_INTERNAL\n  resolution: STATIC\n  exportTo: ['{export}']\n  \
         ports: [{{number: {PORT}, name: main, protocol: HTTP}}]\n  endpoints: [{{address: {address}}}]\n"
    )
}

fn sidecar_of(namespace: &str, hosts: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: default, namespace: {namespace}}}\n\
         spec: {{egress: [{{hosts: [{hosts}]}}]}}\n"
    )
}

/// A stream of a sidecar of this namespace, which has all its clusters.
async fn clusters_of(discovery: &Discovery, namespace: &str) -> (Sotw, Vec<String>) {
    let mut stream = Sotw::open(discovery.grpc).await;
    let id = format!("sidecar~127.0.0.1~{namespace}-1.{namespace}~{namespace}.svc.cluster.local");
    stream.ask_as(node_of(&id), CDS, &[]);
    let cds = stream.hear(CDS).await;
    stream.ack(&cds, &[]);
    (stream, services(&names_of(&cds)))
}

/// Picks the services' short names from names of clusters.
fn services(names: &[String]) -> Vec<String> {
    let of_services = names
        .iter()
        .filter_map(|name| name.strip_prefix("outbound|8080||"));
    let mut short: Vec<_> = of_services
        .map(|host| host.trim_end_matches(".svc.cluster.local").to_owned())
        .collect();
    short.sort();
    short
}

/// Returns the number of streams of the last push, as the page shows it, and the number of CDS responses.
fn last_streams(discovery: &Discovery) -> (String, f64) {
    let (_, page) = discovery.get("/debug");
    // The newest row comes first, and how many they were is its last column.
    let rows = page.split_once(" ms<td>");
    let last = rows.and_then(|(_, row)| row.split_once("</tr>"));
    let (last, _) = last.unwrap_or_default();
    let sent = discovery.metric("pilot_xds_pushes{type=\"cds\"}");
    (last.to_owned(), sent)
}

/// Types that the last push of a stream sent.
fn last_push(discovery: &Discovery, namespace: &str) -> Value {
    let all = discovery.json("/debug/adsz");
    let of = |row: &&Value| {
        row["proxy"]
            .as_str()
            .unwrap()
            .contains(&format!("~{namespace}-1."))
    };
    let row = all.as_array().unwrap().iter().find(of);
    row.unwrap()["last_push"]["types"].clone()
}

/// Three namespaces: one sees its own services, one all but the private ones of others, one what a fourth has.
#[tokio::test]
async fn a_change_goes_to_the_streams_that_see_it() {
    let mut config = vec![
        service_of("demo", "a", "10.0.0.1", "*"),
        service_of("demo", "private", "10.0.0.2", "."),
        service_of("other", "c", "10.0.0.3", "*"),
        sidecar_of("demo", "'./*'"),
        sidecar_of("third", "'other/*'"),
    ];
    let discovery = Place::new()
        .with("config/a.yaml", &documents(&config))
        .start();
    let (mut demo, of_demo) = clusters_of(&discovery, "demo").await;
    let (mut other, of_other) = clusters_of(&discovery, "other").await;
    let (mut third, of_third) = clusters_of(&discovery, "third").await;
    assert_eq!(of_demo, ["a.demo", "private.demo"]);
    assert_eq!(of_other, ["a.demo", "c.other"]);
    assert_eq!(of_third, ["c.other"]);
    assert_eq!(last_streams(&discovery).1, 3.0);

    // Only its own namespace sees the new service.
    config.push(service_of("demo", "more", "10.0.0.4", "."));
    discovery.place.write("config/a.yaml", &documents(&config));
    let cds = demo.hear(CDS).await;
    demo.ack(&cds, &[]);
    assert_eq!(
        services(&names_of(&cds)),
        ["a.demo", "more.demo", "private.demo"]
    );
    other.is_quiet().await;
    third.is_quiet().await;
    assert_eq!(last_streams(&discovery), ("1".to_owned(), 4.0));
    for namespace in ["other", "third"] {
        assert_eq!(last_push(&discovery, namespace), Value::Null, "{namespace}");
    }
    assert_eq!(last_push(&discovery, "demo"), json!(["CDS"]));

    // The other two streams see this service.
    config.push(service_of("other", "d", "10.0.0.5", "*"));
    discovery.place.write("config/a.yaml", &documents(&config));
    for stream in [&mut other, &mut third] {
        let cds = stream.hear(CDS).await;
        stream.ack(&cds, &[]);
        assert!(services(&names_of(&cds)).contains(&"d.other".to_owned()));
    }
    demo.is_quiet().await;
    assert_eq!(last_streams(&discovery), ("2".to_owned(), 6.0));

    // Another Sidecar is a matter of its own namespace.
    let at = config
        .iter()
        .position(|one| one.contains("namespace: third"));
    config[at.unwrap()] = sidecar_of("third", "'demo/*'");
    discovery.place.write("config/a.yaml", &documents(&config));
    let cds = third.hear(CDS).await;
    assert!(services(&names_of(&cds)).contains(&"a.demo".to_owned()));
    third.ack(&cds, &[]);
    // Clusters that go are sent once more without them.
    let cds = third.hear(CDS).await;
    assert_eq!(services(&names_of(&cds)), ["a.demo"]);
    third.ack(&cds, &[]);
    demo.is_quiet().await;
    other.is_quiet().await;
    assert_eq!(last_streams(&discovery).0, "1");
}
