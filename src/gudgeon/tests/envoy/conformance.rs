//! The examples of the documentation of each kind, as files in `tests/rules`: each with the requests that show its effect.
//!
//! One discovery and three proxies serve all files, one after the other: the sidecar of a client, that of a workload with
//! certificates, and a router. `row.rs` describes the requests.

mod answer;
mod application;
pub mod examples;
pub mod fields;
mod row;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::application::Application;
use self::row::{Ask, Row};
use crate::gateways::{of_tls, own_certificate, secret};
use crate::place::{Discovery, Place, SOON, documents, workspace};
use crate::policies::{Clients, doors};
use crate::proxy::{Address, Proxy, Setup, rows};
use crate::secured::Root;
use crate::signer::{Signer, now, set};

/// Services with their port, protocol and versions.
const SERVICES: [(&str, u16, &str, &[&str]); 10] = [
    ("productpage", 9080, "HTTP", &["v1"]),
    ("reviews", 9080, "HTTP", &["v1", "v2", "v3"]),
    ("ratings", 9080, "HTTP", &["v1", "v2"]),
    ("details", 9080, "HTTP", &["v1"]),
    ("mongo", 27017, "TCP", &["v1", "v2"]),
    ("backup", 27018, "TCP", &["v1"]),
    ("login", 9443, "TLS", &["v1"]),
    ("pay", 9443, "TLS", &["v1"]),
    ("secure", 9444, "HTTP", &["v1"]),
    ("extra", 9081, "HTTP", &["v1"]),
];
/// Applications that objects of files name by `${NAME}`.
const APPLICATIONS: [&str; 4] = ["one", "two", "bad", "tls"];
/// Statistics that Envoy keeps for `counts=`.
const COUNTED: &str = r#"{"sidecar.istio.io/statsInclusionPrefixes": "cluster,http,tcp"}"#;

/// The processes that stay while files come and go.
struct Scene {
    discovery: Discovery,
    client: Proxy,
    web: Proxy,
    edge: Proxy,
    clients: Clients,
    applications: BTreeMap<String, Application>,
    /// Words in files, by their names.
    variables: BTreeMap<String, String>,
    mark: usize,
}

fn service(name: &str, port: u16, protocol: &str, endpoints: &[String]) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: demo}}\nspec:\n  \
         hosts: [{name}.demo.svc.cluster.local]\n  location: MESH_INTERNAL\n  resolution: STATIC\n  \
         ports: [{{number: {port}, name: main, protocol: {protocol}}}]\n  endpoints: [{}]\n",
        endpoints.join(", ")
    )
}

/// Certificates for routers and clients: files by their names, and Secrets.
fn certificates(place: &Place) -> (BTreeMap<String, (String, String)>, Vec<String>) {
    let names = ["bookinfo.example", "other.example", "user.example"];
    let made = names.map(|name| (name.to_owned(), own_certificate(name)));
    for (name, (chain, key)) in &made {
        for (what, text) in [("crt", chain), ("key", key)] {
            fs::write(place.path("certs").join(format!("{name}.{what}")), text).unwrap();
        }
    }
    let made = BTreeMap::from(made);
    let secrets = vec![
        of_tls("bookinfo-credential", &made["bookinfo.example"]),
        of_tls("other-credential", &made["other.example"]),
        secret(
            "other-credential-cacert",
            &[("cacert", &made["user.example"].0)],
        ),
        secret(
            "client-credential",
            &[
                ("tls.crt", &made["user.example"].0),
                ("tls.key", &made["user.example"].1),
                ("ca.crt", &made["other.example"].0),
            ],
        ),
    ];
    (made, secrets)
}

/// The services, their applications, and the words by which files name them.
fn world(
    web: &Address,
    variables: &mut BTreeMap<String, String>,
) -> (BTreeMap<String, Application>, Vec<String>) {
    let mut applications = BTreeMap::new();
    let mut all = Vec::new();
    for (name, port, protocol, versions) in SERVICES {
        let mut endpoints = Vec::new();
        for version in versions {
            let application = Application::start(&format!("{name}-{version}"), name == "secure");
            endpoints.push(format!(
                "{{address: 127.0.0.1, ports: {{main: {}}}, labels: {{version: {version}, app: {name}}}}}",
                application.port
            ));
            applications.insert(format!("{name}-{version}"), application);
        }
        all.push(service(name, port, protocol, &endpoints));
    }
    let at = |port: u16| {
        format!(
            "{{address: {}, ports: {{main: {port}}}, serviceAccount: web, labels: {{app: web, security.istio.io/tlsMode: istio}}}}",
            web.ip
        )
    };
    all.push(service("web", 9080, "HTTP", &[at(9080)]));
    all.push(service("line", 9082, "TCP", &[at(9081)]));
    let own = Application::start("web", false);
    all.push(doors("door", SocketAddr::from(([127, 0, 0, 1], own.port))));
    applications.insert("web".to_owned(), own);
    for name in APPLICATIONS {
        let application = Application::start(name, name == "tls");
        variables.insert(name.to_owned(), application.port.to_string());
        applications.insert(name.to_owned(), application);
    }
    (applications, all)
}

fn scene() -> Scene {
    let (client, web, edge) = (Address::new(), Address::new(), Address::new());
    let mut variables = BTreeMap::new();
    for (name, address) in [("client", &client), ("web", &web), ("edge", &edge)] {
        variables.insert(name.to_owned(), address.ip.to_string());
    }
    let (applications, mut all) = world(&web, &mut variables);
    let (signer, other) = (Signer::rsa("one"), Signer::curve("two"));
    variables.insert("keys".to_owned(), set(&[&signer]));
    variables.insert("other-keys".to_owned(), set(&[&other]));
    let claims = |issuer: &str, group: &str, exp: u64| json!({"iss": issuer, "sub": "alice", "aud": ["bookstore"], "groups": [group], "roles": "reader writer", "exp": exp});
    let soon = now() + 1000;
    for (name, signer, claims) in [
        ("token", &signer, claims("issuer-foo", "admin", soon)),
        ("other-token", &other, claims("issuer-bar", "guest", soon)),
        (
            "old-token",
            &signer,
            claims("issuer-foo", "admin", now() - 1000),
        ),
    ] {
        variables.insert(name.to_owned(), signer.token(&claims));
    }
    let place = Place::new();
    let (certificates, secrets) = certificates(&place);
    variables.insert(
        "certs".to_owned(),
        place.path("certs").display().to_string(),
    );
    all.extend(secrets);
    let root = Root::new();
    let volumes = ["client", "web", "edge"].map(|account| {
        let volume = place.path("certs").join(account);
        root.certify(&volume, account);
        volume
    });
    let discovery = place
        .env("PILOT_DEBOUNCE_AFTER", "20ms")
        .with("mesh", "enableTracing: false\nenableAutoMtls: true\n")
        .with("config/world.yaml", &documents(&all))
        .start();
    let mut client = Setup::at("client-1", client, discovery.grpc)
        .label("app", "client")
        .label("env", "prod")
        .label("istio-locality", "us-west.zone1")
        .env("ISTIO_META_ISTIO_VERSION", "1.5.10")
        .env("ISTIO_METAJSON_ANNOTATIONS", COUNTED)
        .secured(&volumes[0])
        .begin();
    let mut web = Setup::at("web", web, discovery.grpc)
        .label("app", "web")
        .env("ISTIO_METAJSON_ANNOTATIONS", COUNTED)
        .secured(&volumes[1])
        .begin();
    let mut edge = Setup::at("edge-1", edge, discovery.grpc)
        .role("router")
        .label("istio", "edge")
        .env("ISTIO_META_ROUTER_MODE", "sni-dnat")
        .secured(&volumes[2])
        .begin();
    for proxy in [&mut client, &mut web, &mut edge] {
        proxy.until_ready();
    }
    Scene {
        discovery,
        client,
        web,
        edge,
        clients: Clients::new(root).with_certificates(certificates),
        applications,
        variables,
        mark: 0,
    }
}

/// An EnvoyFilter that shows, in every listener and route, that the file has come.
fn mark(name: &str) -> String {
    format!(
        "---\napiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {{name: mark, namespace: istio-system}}\nspec:\n  \
         configPatches:\n  - {{applyTo: LISTENER, patch: {{operation: MERGE, value: {{stat_prefix: {name}}}}}}}\n  \
         - {{applyTo: ROUTE_CONFIGURATION, patch: {{operation: MERGE, value: {{response_headers_to_add: [{{header: {{key: x-mark, value: {name}}}}}]}}}}}}\n"
    )
}

/// A body that came in chunks, as a whole.
fn unchunked(text: &str) -> String {
    let mut rest = text;
    let mut whole = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    whole
}

/// Returns true if all listeners and routes of a proxy are those of this mark.
fn has_taken(proxy: &Proxy, mark: &str) -> bool {
    let dump = |what: &str| -> Vec<Value> {
        let text = proxy.ask(&format!("/config_dump?resource={what}"));
        let dump: Value = serde_json::from_str(&unchunked(&text)).unwrap();
        dump["configs"].as_array().cloned().unwrap_or_default()
    };
    let listeners = dump("dynamic_listeners").iter().all(|one| {
        let is_going = one["active_state"].is_null() && !one["draining_state"].is_null();
        is_going
            || one["warming_state"].is_null()
                && one["active_state"]["listener"]["stat_prefix"] == mark
    });
    listeners
        && dump("dynamic_route_configs").iter().all(|one| {
            let added = &one["route_config"]["response_headers_to_add"];
            added[0]["header"]["value"] == mark
        })
}

impl Scene {
    fn proxies(&self) -> [&Proxy; 3] {
        [&self.client, &self.web, &self.edge]
    }

    /// Exchanges the last file for this one.
    fn takes(&mut self, text: &str) -> Result<(), String> {
        self.mark += 1;
        let mark_name = format!("mark-{}", self.mark);
        let mut text = text.to_owned();
        for (name, value) in &self.variables {
            text = text.replace(&format!("${{{name}}}"), value);
        }
        text.push_str(&mark(&mark_name));
        self.discovery.place.write("config/rule.yaml", &text);
        let end = Instant::now() + SOON;
        let is_taken = || {
            let mut proxies = self.proxies().into_iter();
            let taken = proxies.all(|one| has_taken(one, &mark_name) && one.serves_its_listeners());
            // A router without a Gateway has nothing that could bear the mark.
            let known = self.discovery.json("/debug/configz?kind=EnvoyFilter");
            taken && known.to_string().contains(&mark_name) && self.is_in_sync()
        };
        while !is_taken() {
            if Instant::now() > end {
                return Err("the proxies do not take it".to_owned());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Returns true if each proxy has acknowledged what was sent last.
    fn is_in_sync(&self) -> bool {
        self.proxies().iter().all(|proxy| {
            let found = rows(&self.discovery, &proxy.name);
            found.iter().all(|row| {
                let mut kinds = ["cluster", "endpoint", "listener", "route", "secret"].iter();
                kinds.all(|kind| row[format!("{kind}_sent")] == row[format!("{kind}_acked")])
            })
        })
    }

    /// Objects of the file that are not in force, and refusals of Envoy's.
    fn complaints(&self) -> Vec<String> {
        let all = self.discovery.json("/debug/configz");
        let refused = all.as_array().unwrap().iter().filter(|one| {
            one["source"].to_string().contains("rule.yaml") && one["status"]["accepted"] != true
        });
        let mut complaints: Vec<String> = refused.map(|one| one["status"].to_string()).collect();
        for proxy in self.proxies() {
            for row in rows(&self.discovery, &proxy.name) {
                if row["errors"] != json!({}) {
                    complaints.push(format!("{}: {}", proxy.name, row["errors"]));
                }
            }
        }
        complaints
    }

    /// All that is told of the objects of the file.
    fn messages(&self) -> Value {
        let all = self.discovery.json("/debug/configz");
        let all = all.as_array().unwrap().iter();
        all.filter(|one| one["source"].to_string().contains("rule.yaml"))
            .map(|one| one["status"]["messages"].clone())
            .collect()
    }

    /// Why a row does not hold, if it does not.
    fn fails(&mut self, row: &Row) -> Option<String> {
        let proxy = match row.who.as_str() {
            "client" => &self.client,
            "web" => &self.web,
            "edge" => &self.edge,
            other => panic!("no proxy {other}"),
        };
        let mut ask = Ask {
            proxy,
            clients: &mut self.clients,
            variables: &self.variables,
            applications: &self.applications,
            mark: &format!("mark-{}", self.mark),
        };
        if !row.is_eventual {
            return ask.fails(row);
        }
        let end = Instant::now() + SOON;
        loop {
            let failed = ask.fails(row)?;
            if Instant::now() > end {
                return Some(failed);
            }
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => all.push(path),
        }
    }
    all.sort();
    all
}

/// Runs all files; `GUDGEON_RULE=NAME` picks those whose path has that part.
#[test]
fn the_examples_of_each_kind_do_what_its_documentation_says() {
    let folder = workspace().join("tests/rules");
    let wanted = std::env::var("GUDGEON_RULE").unwrap_or_default();
    let all = files(&folder);
    let mut scene = scene();
    let (mut wrong, mut count) = (Vec::new(), 0);
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let all: BTreeSet<_> = all
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .collect();
    for path in &all {
        let name = path.strip_prefix(&folder).unwrap().display().to_string();
        if !name.contains(&wanted) {
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        let found = row::rows(&text);
        assert!(!found.is_empty(), "{name} shows nothing");
        let mut complaints: Vec<String> = scene.takes(&text).err().into_iter().collect();
        complaints.extend(scene.complaints());
        if !complaints.is_empty() {
            wrong.push(format!("{name}: {}", complaints.join("; ")));
        }
        for row in &found {
            if let Some(failed) = scene.fails(row) {
                eprintln!("{name}: {}", scene.messages());
                wrong.push(format!("{name}:{}: {}: {failed}", row.line, row.text));
            }
        }
        let kind = name.split('/').next().unwrap().to_owned();
        *kinds.entry(kind).or_default() += 1;
        count += found.len();
    }
    eprintln!("{count} rows of {kinds:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(!wanted.is_empty() || (kinds.len() >= 10 && count > 200));
}
