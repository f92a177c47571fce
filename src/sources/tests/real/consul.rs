//! A real Consul agent: its responses are decoded, and its limit of connections is respected.

use std::time::Duration;

use api::model::{Health, Protocol, ServiceKey};
use serde_json::{Value, json};
use sources::consul::{Consul, ConsulUpdate};
use sources::contribution::SyncState;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::support::run;

/// In which a change must be seen.
const SOON: Duration = Duration::from_secs(1);

fn url() -> String {
    let url = std::fs::read_to_string(run().join("consul.url"));
    url.expect("an agent: KUBE_CONSUL=1").trim().to_owned()
}

/// Sends a request as an operator.
async fn tell(method: &str, path: &str, body: &Value) {
    let url = url();
    let host = url.strip_prefix("http://").unwrap();
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let length = body.len();
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    // All connections may be taken for a moment; the agent closes one more without a response.
    for _ in 0..100 {
        let mut agent = TcpStream::connect(host).await.unwrap();
        let mut answer = String::new();
        if agent.write_all(text.as_bytes()).await.is_ok()
            && agent.read_to_string(&mut answer).await.is_ok()
            && !answer.is_empty()
        {
            assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
            return;
        }
        tokio::time::sleep(SOON / 10).await;
    }
    panic!("{path}: the agent takes no connection");
}

async fn register(name: &str, id: &str, address: &str, tags: &[&str]) {
    let instance = json!({
        "Name": name, "ID": id, "Address": address, "Port": 8080, "Tags": tags, "Meta": {"protocol": "http"},
        "Check": {"CheckID": format!("check-{id}"), "TTL": "10m", "Status": "passing"},
    });
    tell("PUT", "/v1/agent/service/register", &instance).await;
}

async fn deregister(id: &str) {
    let path = format!("/v1/agent/service/deregister/{id}");
    tell("PUT", &path, &Value::Null).await;
}

async fn maintenance(id: &str, enabled: bool) {
    let path = format!("/v1/agent/service/maintenance/{id}?enable={enabled}");
    tell("PUT", &path, &Value::Null).await;
}

fn start() -> watch::Receiver<ConsulUpdate> {
    let consul = Consul::new(url().parse().unwrap(), None, "west".into());
    let (to, updates) = watch::channel(ConsulUpdate::default());
    // Ends with the runtime of its test.
    tokio::spawn(consul.run(to));
    updates
}

async fn until(
    updates: &mut watch::Receiver<ConsulUpdate>,
    within: Duration,
    what: &str,
    is_so: impl FnMut(&ConsulUpdate) -> bool,
) {
    let came = tokio::time::timeout(within, updates.wait_for(is_so)).await;
    drop(
        came.unwrap_or_else(|_| panic!("{what}: not within {within:?}"))
            .unwrap(),
    );
}

/// Addresses of a service, the ready ones.
fn ready(update: &ConsulUpdate, name: &str) -> Vec<String> {
    let key = ServiceKey::new(&format!("{name}.service.consul"), "default");
    let endpoints = update.contribution.endpoints.get(&key);
    let ready = endpoints.into_iter().flat_map(|endpoints| endpoints.iter());
    ready
        .filter(|endpoint| endpoint.health == Health::Ready)
        .map(|endpoint| endpoint.address.to_string())
        .collect()
}

fn has(update: &ConsulUpdate, name: &str) -> bool {
    let key = ServiceKey::new(&format!("{name}.service.consul"), "default");
    update.contribution.services.contains_key(&key)
}

#[tokio::test]
#[ignore = "takes Consul: build/kube-test"]
async fn instances_come_and_go_and_their_checks_count() {
    let mut updates = start();
    until(&mut updates, SOON * 5, "synced", |update| {
        update.sync_state == SyncState::Synced
    })
    .await;
    assert!(
        has(&updates.borrow(), "consul"),
        "it is a service like others"
    );
    register("web", "web-1", "10.1.0.1", &["version|v1", "plain"]).await;
    until(&mut updates, SOON * 2, "the first", |update| {
        ready(update, "web") == ["10.1.0.1"]
    })
    .await;
    {
        let update = updates.borrow();
        let key = ServiceKey::new("web.service.consul", "default");
        let service = &update.contribution.services[&key];
        assert_eq!(service.ports.len(), 1);
        assert_eq!(service.ports[0].protocol, Protocol::Http);
        let endpoint = &update.contribution.endpoints[&key][0];
        assert_eq!(endpoint.locality.region(), "dc1");
        assert_eq!(endpoint.labels.len(), 1);
    }
    register("web", "web-2", "10.1.0.2", &[]).await;
    until(&mut updates, SOON, "the second", |update| {
        ready(update, "web") == ["10.1.0.1", "10.1.0.2"]
    })
    .await;
    tell("PUT", "/v1/agent/check/fail/check-web-2", &Value::Null).await;
    until(&mut updates, SOON, "a critical check", |update| {
        ready(update, "web") == ["10.1.0.1"]
    })
    .await;
    tell("PUT", "/v1/agent/check/pass/check-web-2", &Value::Null).await;
    until(&mut updates, SOON, "it passes", |update| {
        ready(update, "web").len() == 2
    })
    .await;
    maintenance("web-1", true).await;
    until(&mut updates, SOON, "maintenance", |update| {
        ready(update, "web") == ["10.1.0.2"]
    })
    .await;
    maintenance("web-1", false).await;
    until(&mut updates, SOON, "no maintenance", |update| {
        ready(update, "web").len() == 2
    })
    .await;

    // Another order of tags raises the index, and is no change.
    updates.borrow_and_update();
    register("web", "web-1", "10.1.0.1", &["plain", "version|v1"]).await;
    tokio::time::sleep(SOON * 2).await;
    assert!(!updates.has_changed().unwrap());

    deregister("web-1").await;
    deregister("web-2").await;
    until(&mut updates, SOON * 2, "it is gone", |update| {
        !has(update, "web")
    })
    .await;
}

/// The agent accepts 200 connections of one client by default.
#[tokio::test]
#[ignore = "takes Consul: build/kube-test"]
async fn more_services_than_the_agent_takes_connections() {
    const SERVICES: usize = 300;
    let name = |at: usize| format!("crowd-{at:03}");
    for at in 0..SERVICES {
        register(&name(at), &name(at), "10.2.0.1", &[]).await;
    }
    let mut updates = start();
    let all = |update: &ConsulUpdate| (0..SERVICES).all(|at| ready(update, &name(at)).len() == 1);
    let synced = |update: &ConsulUpdate| update.sync_state == SyncState::Synced && all(update);
    until(&mut updates, SOON * 20, "all of them", synced).await;
    // One that is waited for, and one that is read in turn.
    for at in [0, SERVICES - 1] {
        register(&name(at), &name(at), "10.2.0.2", &[]).await;
    }
    let moved = |update: &ConsulUpdate, at| ready(update, &name(at)) == ["10.2.0.2"];
    until(&mut updates, SOON * 13, "both moved", |update| {
        moved(update, 0) && moved(update, SERVICES - 1)
    })
    .await;
    assert_eq!(updates.borrow().sync_state, SyncState::Synced);
    for at in 0..SERVICES {
        deregister(&name(at)).await;
    }
    until(&mut updates, SOON * 5, "all gone", |update| {
        !has(update, &name(0))
    })
    .await;
}
