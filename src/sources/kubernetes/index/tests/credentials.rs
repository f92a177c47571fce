//! Certificates that are looked for by name.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::source::settings;
use crate::kubernetes::fake::Fake;
use crate::kubernetes::index::credentials::{
    FoundCredentials, MAX_CREDENTIALS, WantedCredentials, credentials,
};

fn secret(namespace: &str, name: &str, (chain, key): &(String, String)) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace}, "type": "kubernetes.io/tls",
        "data": {
            "tls.crt": k8s_openapi::ByteString(chain.clone().into_bytes()),
            "tls.key": k8s_openapi::ByteString(key.clone().into_bytes()),
        },
    })
}

fn pair() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

struct Sought {
    running: JoinHandle<()>,
    wanted: watch::Sender<Arc<WantedCredentials>>,
    found: watch::Receiver<FoundCredentials>,
}

impl Drop for Sought {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Sought {
    fn start(fake: &Fake) -> Self {
        let (wanted, theirs) = watch::channel(Arc::default());
        let (to, found) = watch::channel(FoundCredentials::default());
        let running = tokio::spawn(credentials(fake.cluster(), settings().pace, theirs, to));
        Self {
            running,
            wanted,
            found,
        }
    }

    fn want(&self, names: &[&str]) {
        let all = names.iter().map(|name| {
            let (namespace, name) = name.split_once('/').unwrap();
            (namespace.into(), name.into())
        });
        self.wanted.send_replace(Arc::new(all.collect()));
    }

    async fn until(&mut self, what: impl FnMut(&FoundCredentials) -> bool) -> FoundCredentials {
        let found = timeout(Duration::from_secs(20), self.found.wait_for(what)).await;
        found.expect("not within 20 s").unwrap().clone()
    }
}

fn names(credentials: &FoundCredentials) -> Vec<String> {
    let all = credentials.all.keys();
    all.map(|(namespace, name)| format!("{namespace}/{name}"))
        .collect()
}

#[tokio::test]
async fn a_secret_is_found_by_its_name_changes_and_goes() {
    let fake = Fake::start().await;
    let (first, second) = (pair(), pair());
    for (namespace, name) in [("edge", "a"), ("edge", "other"), ("demo", "a")] {
        fake.put_in("secrets", secret(namespace, name, &first));
    }
    let mut sought = Sought::start(&fake);
    // Nobody asks for anything until something is wanted.
    assert!(fake.log().is_empty());
    sought.want(&["edge/a", "edge/missing"]);
    let credentials = sought
        .until(|credentials| credentials.resolved.len() == 2)
        .await;
    assert_eq!(names(&credentials), ["edge/a"]);
    let before = credentials.all.values().next().unwrap().clone();
    fake.put_in("secrets", secret("edge", "a", &second));
    sought
        .until(|credentials| credentials.all.values().next() != Some(&before))
        .await;
    // One whose key is another's stays as it was.
    let broken = (first.0.clone(), second.1.clone());
    fake.put_in("secrets", secret("edge", "a", &broken));
    fake.put_in("secrets", secret("edge", "missing", &first));
    let credentials = sought
        .until(|credentials| credentials.all.len() == 2 && !credentials.broken.is_empty())
        .await;
    let (key, cause) = credentials.broken.first_key_value().unwrap();
    assert_eq!((&*key.0, &*key.1), ("edge", "a"));
    assert!(cause.contains("does not match"), "{cause}");
    let stored = credentials.all.values().next().unwrap();
    assert_eq!(*stored.pair.as_ref().unwrap().1, *second.1.as_bytes());
    fake.delete_in("secrets", "edge/a");
    sought
        .until(|credentials| {
            names(credentials) == ["edge/missing"] && credentials.broken.is_empty()
        })
        .await;
    sought.want(&["demo/a"]);
    sought
        .until(|credentials| names(credentials) == ["demo/a"])
        .await;
    sought.want(&[]);
    sought
        .until(|credentials| *credentials == FoundCredentials::default())
        .await;
    // Each by its name and in its namespace, and nothing else.
    let (paths, queries) = (fake.paths(), fake.queries());
    assert!(
        paths
            .iter()
            .all(|path| path.contains("/namespaces/") && path.ends_with("/secrets")),
        "{paths:?}"
    );
    assert!(
        queries
            .iter()
            .all(|query| query.contains("fieldSelector=metadata.name%3D")),
        "{queries:?}"
    );
}

#[tokio::test]
async fn one_that_may_not_be_read_is_known_to_be_missing() {
    let fake = Fake::start().await;
    fake.forbid(&["secrets"]);
    let mut sought = Sought::start(&fake);
    sought.want(&["edge/a"]);
    let credentials = sought
        .until(|credentials| credentials.resolved.len() == 1)
        .await;
    assert!(credentials.all.is_empty());
}

#[tokio::test]
async fn so_many_are_looked_for_and_no_more() {
    let fake = Fake::start().await;
    let mut sought = Sought::start(&fake);
    let all: Vec<_> = (0..MAX_CREDENTIALS + 50)
        .map(|at| format!("edge/a{at}"))
        .collect();
    sought.want(&all.iter().map(|name| &**name).collect::<Vec<_>>());
    sought
        .until(|credentials| credentials.resolved.len() == all.len())
        .await;
    let mut asked = fake.queries();
    asked.retain(|query| !query.contains("watch=true"));
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len(), MAX_CREDENTIALS);
}
