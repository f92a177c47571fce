//! As much of an API server as the program asks for, over plain HTTP: one webhook configuration, two ConfigMaps, a version.

use std::io::{BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::plain;

#[derive(Debug, Default)]
struct State {
    /// The bundle in the one entry.
    bundle: String,
    version: u64,
    patches: usize,
    minor: String,
    asked_for_version: bool,
}

/// A fake API server, which runs until the test ends.
#[derive(Debug, Clone)]
pub struct Server {
    port: u16,
    state: Arc<Mutex<State>>,
}

impl Server {
    pub fn new(minor: &str) -> Self {
        let on = |port| Self {
            port,
            state: Arc::default(),
        };
        let this = plain::serve(on, Self::serve);
        minor.clone_into(&mut this.state.lock().unwrap().minor);
        this
    }

    /// Leaves a kubeconfig that leads here.
    pub fn kubeconfig(&self, path: &Path) {
        std::fs::write(path, plain::kubeconfig(self.port)).unwrap();
    }

    /// The bundle as it is now, PEM.
    pub fn bundle(&self) -> String {
        let bundle = self.state.lock().unwrap().bundle.clone();
        String::from_utf8(STANDARD.decode(bundle).unwrap()).unwrap()
    }

    pub fn patches(&self) -> usize {
        self.state.lock().unwrap().patches
    }

    pub fn asked_for_version(&self) -> bool {
        self.state.lock().unwrap().asked_for_version
    }

    /// Overwrites the bundle as another user.
    pub fn overwrite(&self, pem: &str) {
        let mut state = self.state.lock().unwrap();
        state.bundle = STANDARD.encode(pem);
        state.version += 1;
    }

    fn object(state: &State) -> Value {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "istio-sidecar-injector", "uid": "u", "resourceVersion": state.version.to_string()},
            "webhooks": [{"name": "namespace.sidecar-injector.istio.io", "clientConfig": {"caBundle": state.bundle}}]})
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        while let Some((line, body)) = plain::asked(&mut reader) {
            if line.contains("watch=true") {
                return self.watch(&mut stream, &line);
            }
            let (status, answer) = self.answer(&line, &body);
            plain::answer(&mut stream, status, &answer.to_string())?;
        }
        Ok(())
    }

    fn answer(&self, line: &str, body: &[u8]) -> (u16, Value) {
        let mut state = self.state.lock().unwrap();
        let path = line.split(' ').nth(1).unwrap_or_default();
        if line.starts_with("PATCH ") {
            let patch: Value = serde_json::from_slice(body).unwrap();
            let wanted = patch["metadata"]["resourceVersion"].as_str().unwrap();
            if wanted != state.version.to_string() {
                return (
                    409,
                    json!({"kind": "Status", "code": 409, "message": "it was changed"}),
                );
            }
            patch["webhooks"][0]["clientConfig"]["caBundle"]
                .as_str()
                .unwrap()
                .clone_into(&mut state.bundle);
            state.version += 1;
            state.patches += 1;
            return (200, Self::object(&state));
        }
        match path.split('?').next().unwrap_or_default() {
            "/version" => {
                state.asked_for_version = true;
                (200, json!({"major": "1", "minor": state.minor}))
            }
            "/api/v1/namespaces/istio-system/configmaps/istio" => {
                (200, json!({"data": {"mesh": "ingressClass: x\n"}}))
            }
            "/api/v1/namespaces/istio-system/configmaps/istio-sidecar-injector" => (
                200,
                json!({"data": {"config": super::TEMPLATE.replace("proxy:1", "proxy:map"), "values": "{}"}}),
            ),
            list if list.ends_with("/mutatingwebhookconfigurations") => {
                let metadata = json!({"resourceVersion": state.version.to_string()});
                (
                    200,
                    json!({"metadata": metadata, "items": [Self::object(&state)]}),
                )
            }
            one if one.contains("/mutatingwebhookconfigurations/") => (200, Self::object(&state)),
            _ => (
                404,
                json!({"kind": "Status", "code": 404, "message": "not found"}),
            ),
        }
    }

    /// Sends an event for each version since the one that is asked for, until the peer disconnects.
    fn watch(&self, stream: &mut TcpStream, line: &str) -> std::io::Result<()> {
        let mut words = line.split(['?', '&', ' ']);
        let from = words.find_map(|word| word.strip_prefix("resourceVersion="));
        let mut sent: u64 = from.unwrap().parse().unwrap();
        stream.write_all(plain::WATCH_HEAD)?;
        loop {
            let news = {
                let state = self.state.lock().unwrap();
                let news = state.version != sent;
                sent = state.version;
                news.then(|| json!({"type": "MODIFIED", "object": Self::object(&state)}))
            };
            if let Some(news) = news {
                plain::event(stream, &news)?;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
