//! Clusters that Secrets name.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::source::{endpoints, fake, settings};
use crate::contribution::{Contribution, SyncState};
use crate::kubernetes::fake::{Fake, Fault};
use crate::kubernetes::index::remote::{Remotes, remotes};

fn kubeconfig(fake: &Fake) -> String {
    let address = fake.cluster().address().to_owned();
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": address}}], "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    })
    .to_string()
}

fn secret(name: &str, clusters: &[(&str, String)]) -> Value {
    let data: serde_json::Map<String, Value> = clusters
        .iter()
        .map(|(id, text)| {
            (
                (*id).to_owned(),
                json!(ByteString(text.clone().into_bytes())),
            )
        })
        .collect();
    json!({
        "metadata": {"name": name, "namespace": "istio-system", "labels": {"istio/multiCluster": "true"}}, "data": data,
    })
}

struct Source {
    running: JoinHandle<()>,
    updates: watch::Receiver<Remotes>,
    known: watch::Receiver<bool>,
    _trust_domain: watch::Sender<Arc<str>>,
}

impl Drop for Source {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Source {
    fn start(local: &Fake) -> Self {
        let (trust_domain, theirs) = watch::channel("td".into());
        let (to, updates) = watch::channel(Remotes::new());
        let namespace = "istio-system".to_owned();
        let (knows, known) = watch::channel(false);
        let local = local.cluster();
        let running = tokio::spawn(remotes(local, namespace, settings(), theirs, to, knows));
        Self {
            running,
            updates,
            known,
            _trust_domain: trust_domain,
        }
    }

    async fn until(&mut self, what: impl FnMut(&Remotes) -> bool) -> Remotes {
        let found = timeout(Duration::from_secs(20), self.updates.wait_for(what)).await;
        found.expect("not within 20 s").unwrap().clone()
    }
}

fn serves(all: &Remotes, id: &str, wanted: &str) -> bool {
    let found = all.get(id).map(|update| endpoints(update, "a"));
    found.is_some_and(|found| found == [format!("{wanted} -")])
}

#[tokio::test]
async fn clusters_come_change_and_go() {
    let (local, east, west) = (
        Fake::start().await,
        fake("10.1.0.1").await,
        fake("10.2.0.1").await,
    );
    let mut source = Source::start(&local);
    local.put_in("secrets", secret("s", &[("east", kubeconfig(&east))]));
    let all = source.until(|all| serves(all, "east", "10.1.0.1")).await;
    assert_eq!(all["east"].sync_state, SyncState::Synced);
    let place = super::place("a");
    assert_eq!(
        all["east"].contribution.services[&place].cluster,
        "east".into()
    );
    local.put_in("secrets", secret("t", &[("west", kubeconfig(&west))]));
    let all = source.until(|all| serves(all, "west", "10.2.0.1")).await;
    assert!(serves(&all, "east", "10.1.0.1"));
    assert!(
        Fake::count(&east, "get") > 0 && east.paths().iter().all(|path| !path.contains("istio.io"))
    );
    // Secrets are listed by their label only.
    let queries = local.queries();
    assert!(
        queries
            .iter()
            .all(|query| query.contains("labelSelector=istio%2FmultiCluster%3Dtrue")),
        "{queries:?}"
    );
    // One goes with its key, the other one with its Secret.
    local.put_in("secrets", secret("s", &[]));
    let all = source.until(|all| !all.contains_key("east")).await;
    assert!(serves(&all, "west", "10.2.0.1"));
    local.delete_in("secrets", "istio-system/t");
    source.until(Remotes::is_empty).await;
}

#[tokio::test]
async fn which_clusters_there_are_is_known_when_it_was_said() {
    let local = Fake::start().await;
    local.put_in("secrets", secret("s", &[("east", "{".to_owned())]));
    local.fail("list", &[Fault::Status(500, 0), Fault::Status(500, 0)]);
    let mut source = Source::start(&local);
    assert!(!*source.known.borrow());
    source.known.wait_for(|known| *known).await.unwrap();
    // The clusters are listed by then, though none has been synced.
    assert!(source.updates.borrow().contains_key("east"));
    assert!(local.count("list") > 2);

    for deaf in [false, true] {
        let local = Fake::start().await;
        if deaf {
            local.fail("list", &[Fault::Silence]);
        } else {
            local.forbid(&["secrets"]);
        }
        let mut source = Source::start(&local);
        let known = timeout(
            Duration::from_secs(20),
            source.known.wait_for(|known| *known),
        );
        assert!(known.await.is_ok(), "deaf: {deaf}");
        assert!(source.updates.borrow().is_empty());
    }
}

#[tokio::test]
async fn another_kubeconfig_loses_nothing_meanwhile() {
    let (local, old, new) = (
        Fake::start().await,
        fake("10.1.0.1").await,
        fake("10.2.0.1").await,
    );
    let mut source = Source::start(&local);
    local.put_in("secrets", secret("s", &[("east", kubeconfig(&old))]));
    source.until(|all| serves(all, "east", "10.1.0.1")).await;
    new.away(true);
    local.put_in("secrets", secret("s", &[("east", kubeconfig(&new))]));
    let all = source.until(|all| all["east"].error.is_some()).await;
    assert!(serves(&all, "east", "10.1.0.1"));
    assert!(matches!(all["east"].sync_state, SyncState::Stale { .. }));
    // The old cluster is no longer watched.
    old.put_in(
        "endpointslices",
        super::slice("a-1", "a", json!([super::at("10.9.9.9", "p")])),
    );
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(serves(&source.updates.borrow(), "east", "10.1.0.1"));
    new.away(false);
    let all = source.until(|all| !serves(all, "east", "10.1.0.1")).await;
    assert!(serves(&all, "east", "10.2.0.1"));
}

#[tokio::test]
async fn one_that_cannot_be_reached_is_not_waited_for() {
    let (local, east) = (Fake::start().await, fake("10.1.0.1").await);
    east.away(true);
    let mut source = Source::start(&local);
    local.put_in("secrets", secret("s", &[("east", kubeconfig(&east))]));
    let all = source.until(|all| all.contains_key("east")).await;
    assert_eq!(all["east"].sync_state, SyncState::Syncing);
    let late = |all: &Remotes| matches!(all["east"].sync_state, SyncState::Stale { .. });
    let all = source.until(late).await;
    let error = all["east"].error.as_deref().unwrap_or_default();
    assert!(error.contains(" of cluster east: "), "{error}");
    assert_eq!(all["east"].contribution, Contribution::default());
    east.away(false);
    let all = source.until(|all| serves(all, "east", "10.1.0.1")).await;
    assert_eq!(all["east"].sync_state, SyncState::Synced);
}

#[tokio::test]
async fn a_bad_kubeconfig_is_said_and_the_others_work() {
    let (local, east) = (Fake::start().await, fake("10.1.0.1").await);
    let mut source = Source::start(&local);
    let program = kubeconfig(&east).replace(
        r#""token":"secret""#,
        r#""exec":{"command":"touch","args":["/tmp/x"]}"#,
    );
    let file = kubeconfig(&east).replace(r#""token":"secret""#, r#""tokenFile":"/etc/passwd""#);
    assert!(program.contains("exec") && file.contains("tokenFile"));
    let newline = kubeconfig(&east).replace(r#""token":"secret""#, r#""token":"secret\n""#);
    let nowhere = kubeconfig(&east).replace(east.cluster().address(), "/nowhere");
    let clusters = [
        ("bad", "{".to_owned()),
        ("empty", String::new()),
        ("file", file),
        ("here", kubeconfig(&east)),
        ("newline", newline),
        ("nowhere", nowhere),
        ("program", program),
    ];
    local.put_in("secrets", secret("a", &clusters));
    // The first Secret has it.
    local.put_in("secrets", secret("b", &[("east", kubeconfig(&east))]));
    local.put_in("secrets", secret("c", &[("east", "{".to_owned())]));
    let all = source
        .until(|all| {
            serves(all, "east", "10.1.0.1")
                && all.len() == 7
                && all
                    .values()
                    .all(|update| update.sync_state != SyncState::Syncing)
        })
        .await;
    assert_eq!(all["east"].error, None);
    assert!(!all.contains_key("here"));
    let error = |id: &str| all[id].error.as_deref().unwrap_or_default().to_owned();
    assert!(
        error("bad").starts_with("cannot use the kubeconfig"),
        "{}",
        error("bad")
    );
    assert!(
        error("empty").starts_with("cannot use the kubeconfig"),
        "{}",
        error("empty")
    );
    let of_token = error("newline");
    assert!(of_token.ends_with(": the token has characters that no header can have"));
    assert_eq!(
        error("nowhere"),
        "cannot use the kubeconfig: the server is neither a URL nor a host:port pair: \"/nowhere\""
    );
    assert_eq!(
        error("program"),
        "cannot use the kubeconfig: exec is not allowed here"
    );
    assert_eq!(
        error("file"),
        "cannot use the kubeconfig: tokenFile is not allowed here"
    );
}
