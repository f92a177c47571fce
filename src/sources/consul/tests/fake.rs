//! A fake agent of Consul on loopback: blocking queries with an index, and faults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A fault that replaces a response.
#[derive(Clone, Copy, Debug)]
pub(super) enum ConsulFault {
    Status(u16),
    /// Not a byte.
    Silence,
    /// A body without an end.
    Endless,
    /// Headers without an end.
    EndlessHead,
    /// This text, as the whole body.
    Says(&'static str),
    /// The connection closes in the middle of the answer.
    Cut,
}

/// Id, address, port, status of its check.
pub(super) type HealthEntry<'a> = (&'a str, &'a str, u16, &'a str);

#[derive(Debug, Default)]
struct State {
    index: u64,
    /// Each with the index of its last change.
    services: BTreeMap<String, (u64, Vec<Value>)>,
    faults: Vec<(String, ConsulFault)>,
    tags_turned: bool,
    log: Vec<String>,
    waiting: usize,
    open: usize,
    max: usize,
}

#[derive(Clone, Debug)]
pub(super) struct FakeConsul {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
    address: SocketAddr,
}

impl FakeConsul {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            state: Arc::default(),
            changed: watch::Sender::new(0),
            address: listener.local_addr().unwrap(),
        };
        *fake.state() = State {
            index: 100,
            max: usize::MAX,
            ..State::default()
        };
        let serving = fake.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let fake = serving.clone();
                tokio::spawn(async move {
                    // One too many is closed without a word.
                    if fake.enter() {
                        fake.serve(connection).await;
                        fake.state().open -= 1;
                    }
                });
            }
        });
        fake
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Takes a connection's slot; returns true if one was free.
    fn enter(&self) -> bool {
        let mut state = self.state();
        let has_room = state.open < state.max;
        state.open += usize::from(has_room);
        has_room
    }

    fn change(&self, change: impl FnOnce(&mut State, u64)) {
        let mut state = self.state();
        state.index += 1;
        let index = state.index;
        change(&mut state, index);
        drop(state);
        self.changed.send_modify(|count| *count += 1);
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn set(&self, name: &str, instances: &[HealthEntry<'_>]) {
        let entry = |&(id, address, port, status): &HealthEntry<'_>| {
            json!({
                "Node": {"Node": "n", "Address": "10.9.9.9", "Datacenter": "dc1"},
                "Service": {"ID": id, "Service": name, "Address": address, "Port": port,
                            "Tags": ["a|1", "b|2"], "Meta": {"protocol": "http"}},
                "Checks": [{"CheckID": "c", "Status": status}],
            })
        };
        let entries = instances.iter().map(entry).collect();
        self.change(|state, index| {
            state.services.insert(name.to_owned(), (index, entries));
        });
    }

    pub(super) fn remove(&self, name: &str) {
        self.change(|state, _| {
            state.services.remove(name);
        });
    }

    pub(super) fn turn_tags(&self) {
        self.change(|state, index| {
            state.tags_turned = true;
            for (changed, _) in state.services.values_mut() {
                *changed = index;
            }
        });
    }

    /// All is of an index long ago.
    pub(super) fn restore(&self, to: u64) {
        self.change(|state, _| {
            state.index = to;
            for (changed, _) in state.services.values_mut() {
                *changed = to;
            }
        });
    }

    /// Sets the fault of paths with this prefix, for blocked queries, too.
    pub(super) fn fault(&self, path: &str, fault: ConsulFault) {
        self.change(|state, _| state.faults.push((path.to_owned(), fault)));
    }

    pub(super) fn mend(&self) {
        self.change(|state, _| state.faults.clear());
    }

    /// Limits the number of connections.
    pub(super) fn allow(&self, connections: usize) {
        self.state().max = connections;
    }

    /// Paths that were asked, each with its token.
    pub(super) fn log(&self) -> Vec<String> {
        self.state().log.clone()
    }

    pub(super) fn waiting(&self) -> usize {
        self.state().waiting
    }

    pub(super) async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..5000 {
            if is_so(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{what}: not in time");
    }

    async fn serve(&self, mut connection: TcpStream) {
        let mut read = Vec::new();
        loop {
            while !read.windows(4).any(|end| end == b"\r\n\r\n") {
                let mut bytes = [0; 4096];
                match connection.read(&mut bytes).await {
                    Ok(count) if count > 0 => read.extend_from_slice(&bytes[..count]),
                    _ => return,
                }
            }
            let mut headers = [httparse::EMPTY_HEADER; 16];
            let mut request = httparse::Request::new(&mut headers);
            let length = request.parse(&read).unwrap().unwrap();
            let path = request.path.unwrap().to_owned();
            let token = request
                .headers
                .iter()
                .find(|header| header.name == "x-consul-token");
            let token = String::from_utf8_lossy(token.unwrap().value).into_owned();
            read.drain(..length);
            self.state().log.push(format!("{path} {token}"));
            let answer = tokio::select! {
                answer = self.answer(&path) => answer,
                // The client has cancelled the query.
                _ = connection.read_u8() => return,
            };
            let written = match answer {
                Ok((index, body)) => {
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nX-Consul-Index: {index}\r\nContent-Length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    connection.write_all(head.as_bytes()).await
                }
                Err(fault) => misbehave(&mut connection, fault).await,
            };
            if written.is_err() || answer_ends(&self.state(), &path) {
                return;
            }
        }
    }

    /// Waits for a newer index than the path's.
    async fn answer(&self, path: &str) -> Result<(u64, String), ConsulFault> {
        let mut changed = self.changed.subscribe();
        let asked: u64 = path
            .split_once("index=")
            .and_then(|(_, rest)| rest.split('&').next()?.parse().ok())
            .unwrap_or(0);
        let mut counted = Waiting(None);
        loop {
            changed.borrow_and_update();
            if let Some(now) = self.now(path, asked) {
                return now;
            }
            if counted.0.is_none() {
                self.state().waiting += 1;
                counted = Waiting(Some(self.clone()));
            }
            changed.changed().await.unwrap();
        }
    }

    fn now(&self, path: &str, asked: u64) -> Option<Result<(u64, String), ConsulFault>> {
        let state = self.state();
        if let Some((_, fault)) = state
            .faults
            .iter()
            .find(|(start, _)| path.starts_with(start.as_str()))
        {
            return Some(Err(*fault));
        }
        let bare = path.split('?').next().unwrap_or(path);
        let (index, body) = if bare == "/v1/catalog/services" {
            let names: serde_json::Map<String, Value> = state
                .services
                .keys()
                .map(|name| (name.clone(), json!([])))
                .collect();
            (state.index, Value::from(names))
        } else {
            let name = bare.rsplit('/').next().unwrap();
            let (index, mut entries) = state
                .services
                .get(name)
                .cloned()
                .unwrap_or((state.index, Vec::new()));
            if state.tags_turned {
                for entry in &mut entries {
                    entry["Service"]["Tags"] = json!(["b|2", "a|1"]);
                }
            }
            if bare.starts_with("/v1/catalog/") {
                entries = entries.iter().map(flat).collect();
            }
            (index, Value::from(entries))
        };
        // A query with an index in the future is answered at once.
        (index != asked).then(|| Ok((index, body.to_string())))
    }
}

/// Counts a query that waits for as long as it does.
struct Waiting(Option<FakeConsul>);

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(fake) = &self.0 {
            fake.state().waiting -= 1;
        }
    }
}

fn flat(entry: &Value) -> Value {
    json!({
        "Node": entry["Node"]["Node"], "Address": entry["Node"]["Address"], "Datacenter": entry["Node"]["Datacenter"],
        "ServiceID": entry["Service"]["ID"], "ServiceAddress": entry["Service"]["Address"],
        "ServicePort": entry["Service"]["Port"], "ServiceTags": entry["Service"]["Tags"],
        "ServiceMeta": entry["Service"]["Meta"],
    })
}

/// After most faults the connection is of no use.
fn answer_ends(state: &State, path: &str) -> bool {
    state
        .faults
        .iter()
        .any(|(start, _)| path.starts_with(start.as_str()))
}

async fn misbehave(connection: &mut TcpStream, fault: ConsulFault) -> std::io::Result<()> {
    const FILL: [u8; 1 << 14] = [b' '; 1 << 14];
    match fault {
        ConsulFault::Status(code) => {
            let head =
                format!("HTTP/1.1 {code} No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
            connection.write_all(head.as_bytes()).await
        }
        ConsulFault::Silence => std::future::pending().await,
        ConsulFault::Endless => {
            let head = b"HTTP/1.1 200 OK\r\nX-Consul-Index: 999\r\n\r\n[";
            connection.write_all(head).await?;
            loop {
                connection.write_all(&FILL).await?;
            }
        }
        ConsulFault::EndlessHead => {
            connection.write_all(b"HTTP/1.1 200 OK\r\nX-Fill: ").await?;
            loop {
                connection.write_all(&FILL).await?;
            }
        }
        ConsulFault::Says(text) => {
            let head = format!(
                "HTTP/1.1 200 OK\r\nX-Consul-Index: 999\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
                text.len()
            );
            connection.write_all(head.as_bytes()).await
        }
        ConsulFault::Cut => {
            let head = b"HTTP/1.1 200 OK\r\nX-Consul-Index: 999\r\nContent-Length: 9999\r\n\r\n[";
            connection.write_all(head).await
        }
    }
}
