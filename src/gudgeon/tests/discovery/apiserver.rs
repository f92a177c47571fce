//! A fake API server, with the requests that discovery sends, over plain HTTP: lists and watches of any kind. It can be
//! away, and compact its history.
//!
//! The tests of the crate `sources` have a larger one (`src/sources/kubernetes/fake.rs`), which depends on private parts of that crate.

use std::collections::BTreeMap;
use std::io::{BufReader, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::place::Place;
use crate::support::plain;

/// Longer than the quiet after which changes are pushed together (`PILOT_DEBOUNCE_AFTER`, 100 ms).
const WHILE: Duration = Duration::from_millis(500);

const SLICES: &str = "/apis/discovery.k8s.io/v1";
const EXTENSIONS: &str = "/apis/apiextensions.k8s.io/v1/";
const RULES: &str = "/apis/networking.istio.io/v1/";
const DEFINITIONS: &str = "customresourcedefinitions";
const SECURITY: &str = "/apis/security.istio.io/v1";
const GATEWAY_API: &str = "/apis/gateway.networking.k8s.io/v1";
/// Policies' kinds that are installed, once there are any.
const POLICIES: [&str; 3] = [
    "authorizationpolicies",
    "peerauthentications",
    "requestauthentications",
];

#[derive(Default)]
struct State {
    version: u64,
    /// Watches from versions before this one get 410.
    forgotten: u64,
    away: bool,
    /// Lists of this kind take a while.
    slow: Option<&'static str>,
    /// By kind, and by namespace and name.
    objects: BTreeMap<(&'static str, String), Value>,
    /// With the version and the kind.
    events: Vec<(u64, &'static str, Value)>,
    /// It has the kinds of the Gateway API.
    has_gateway_api: bool,
    /// Watches that were begun, by kind.
    watches: BTreeMap<String, usize>,
}

/// A fake API server, which runs until the test ends.
#[derive(Clone)]
pub struct ApiServer {
    port: u16,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl ApiServer {
    pub fn new() -> Self {
        let on = |port| Self {
            port,
            state: Arc::default(),
        };
        let this = plain::serve(on, Self::serve);
        this.change(|state| state.version = 10);
        this
    }

    pub fn kubeconfig(&self) -> String {
        plain::kubeconfig(self.port)
    }

    /// Discovery as it reads this one.
    pub fn place(&self) -> Place {
        let place = Place::new().with("kubeconfig", &self.kubeconfig());
        let kubeconfig = place.path("kubeconfig");
        let registries = place.arg("--registries=Kubernetes");
        registries.arg(&format!("--kubeconfig={}", kubeconfig.display()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.state.1.notify_all();
    }

    /// Returns the number of watches of each kind.
    pub fn watches(&self) -> BTreeMap<String, usize> {
        self.lock().watches.clone()
    }

    /// Installs a kind of `networking.istio.io`.
    pub fn define(&self, kind: &str, plural: &str) {
        let names = json!({"plural": plural, "kind": kind});
        let versions = json!([{"name": "v1", "served": true}]);
        let spec = json!({"group": "networking.istio.io", "names": &names, "versions": versions});
        let established = json!([{"type": "Established", "status": "True"}]);
        self.put(
            DEFINITIONS,
            json!({
                "metadata": {"name": format!("{plural}.networking.istio.io")}, "spec": spec,
                "status": {"acceptedNames": names, "conditions": established},
            }),
        );
    }

    /// Installs the kinds of the Gateway API.
    pub fn define_gateway_api(&self) {
        self.change(|state| state.has_gateway_api = true);
    }

    /// Drops requests and breaks watches; or ends the outage.
    pub fn away(&self, away: bool) {
        self.change(|state| state.away = away);
    }

    /// From now on lists of this kind come later than others.
    pub fn is_slow_with(&self, kind: &'static str) {
        self.change(|state| state.slow = Some(kind));
    }

    /// As after a compaction.
    pub fn forget(&self) {
        self.change(|state| {
            state.version += 1;
            state.forgotten = state.version;
        });
    }

    /// Creates or replaces an object.
    pub fn put(&self, kind: &'static str, mut object: Value) {
        let metadata = &object["metadata"];
        let name = format!("{}/{}", metadata["namespace"], metadata["name"]);
        self.change(|state| {
            state.version += 1;
            object["metadata"]["resourceVersion"] = json!(state.version.to_string());
            let old = state.objects.insert((kind, name), object.clone());
            let what = if old.is_some() { "MODIFIED" } else { "ADDED" };
            let event = json!({"type": what, "object": object});
            state.events.push((state.version, kind, event));
        });
    }

    pub fn delete(&self, kind: &'static str, namespace: &str, name: &str) {
        self.change(|state| {
            state.version += 1;
            let name = format!("{}/{}", json!(namespace), json!(name));
            let mut object = state.objects.remove(&(kind, name)).unwrap();
            object["metadata"]["resourceVersion"] = json!(state.version.to_string());
            let event = json!({"type": "DELETED", "object": object});
            state.events.push((state.version, kind, event));
        });
    }

    /// A service of namespace `demo` with the port 80.
    pub fn service(&self, name: &str, address: &str) {
        let metadata = json!({"name": name, "namespace": "demo"});
        let ports = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
        let spec = json!({"clusterIP": address, "ports": ports});
        self.put("services", json!({"metadata": metadata, "spec": spec}));
    }

    /// Its endpoints.
    pub fn endpoints(&self, service: &str, addresses: &[&str]) {
        let labels = json!({"kubernetes.io/service-name": service});
        let endpoints: Vec<_> = addresses
            .iter()
            .map(|address| json!({"addresses": [address], "conditions": {"ready": true}}))
            .collect();
        self.put("endpointslices", json!({
            "metadata": {"name": format!("{service}-1"), "namespace": "demo", "labels": labels}, "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints,
        }));
    }

    /// Puts a Secret that names these servers as remote clusters, by their IDs.
    pub fn knows(&self, clusters: &[(&str, &Self)]) {
        let data: serde_json::Map<_, _> = clusters
            .iter()
            .map(|(id, server)| {
                (
                    (*id).to_owned(),
                    STANDARD.encode(server.kubeconfig()).into(),
                )
            })
            .collect();
        let labels = json!({"istio/multiCluster": "true"});
        let metadata = json!({"name": "clusters", "namespace": "istio-system", "labels": labels});
        self.put("secrets", json!({"metadata": metadata, "data": data}));
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        while let Some((line, _)) = plain::asked(&mut reader) {
            if self.lock().away {
                return Ok(());
            }
            let asked = line.split(' ').nth(1).unwrap();
            let (path, query) = asked.split_once('?').unwrap_or((asked, ""));
            let kind = path.rsplit('/').next().unwrap();
            let is_there = path.starts_with("/api/v1/")
                || path.starts_with(&format!("{SLICES}/"))
                || path.starts_with(&format!("{SECURITY}/"));
            let has_policies = self
                .lock()
                .events
                .iter()
                .any(|(_, kind, _)| POLICIES.contains(kind));
            let has_definitions = self
                .lock()
                .events
                .iter()
                .any(|(_, kind, _)| *kind == DEFINITIONS);
            let is_there = is_there
                || has_definitions && (path.starts_with(EXTENSIONS) || path.starts_with(RULES));
            if is_there && query.contains("watch=true") {
                *self.lock().watches.entry(kind.to_owned()).or_default() += 1;
                return self.watch(&mut stream, kind, query);
            }
            let is_slow = self.lock().slow == Some(kind);
            if is_slow {
                std::thread::sleep(WHILE);
            }
            let (status, body) = if path == SLICES {
                let resources = json!([{"name": "endpointslices"}]);
                (
                    200,
                    json!({"kind": "APIResourceList", "resources": resources}).to_string(),
                )
            } else if path == GATEWAY_API && self.lock().has_gateway_api {
                let resources = json!([{"name": "httproutes"}]);
                let list = json!({"kind": "APIResourceList", "resources": resources});
                (200, list.to_string())
            } else if path == SECURITY && has_policies {
                let resources = POLICIES.map(|name| json!({"name": name}));
                let list = json!({"kind": "APIResourceList", "resources": resources});
                (200, list.to_string())
            } else if is_there {
                (200, self.list(kind, query))
            } else {
                (404, "404 page not found\n".to_owned())
            };
            plain::answer(&mut stream, status, &body)?;
        }
        Ok(())
    }

    fn list(&self, kind: &str, query: &str) -> String {
        let state = self.lock();
        let all = state.objects.iter().filter(|((of, _), _)| *of == kind);
        let items = all.map(|(_, object)| object);
        let items: Vec<_> = items.filter(|one| is_selected(one, kind, query)).collect();
        json!({"metadata": {"resourceVersion": state.version.to_string()}, "items": items})
            .to_string()
    }

    /// Sends an event for each change, until either side disconnects.
    fn watch(&self, stream: &mut TcpStream, kind: &str, query: &str) -> std::io::Result<()> {
        let mut pairs = query.split('&');
        let from = pairs.find_map(|pair| pair.strip_prefix("resourceVersion="));
        let mut sent: u64 = from.unwrap().parse().unwrap();
        stream.write_all(plain::WATCH_HEAD)?;
        let mut state = self.lock();
        while !state.away {
            let expired = sent < state.forgotten;
            let news = if expired {
                let status = json!({"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410});
                Some(json!({"type": "ERROR", "object": status}))
            } else {
                let mut events = state.events.iter();
                let next = events.find(|(version, of, event)| {
                    *version > sent && *of == kind && is_selected(&event["object"], kind, query)
                });
                next.map(|(version, _, event)| {
                    sent = *version;
                    event.clone()
                })
            };
            let Some(news) = news else {
                state = self.state.1.wait(state).unwrap();
                continue;
            };
            drop(state);
            plain::event(stream, &news)?;
            if expired {
                return stream.write_all(b"0\r\n\r\n");
            }
            state = self.lock();
        }
        Ok(())
    }
}

/// Secrets are asked for by a label, which those of clusters have, or by a name.
fn is_selected(object: &Value, kind: &str, query: &str) -> bool {
    let has_labels = object["metadata"]["labels"].is_object();
    kind != "secrets" || has_labels == query.contains("labelSelector")
}
