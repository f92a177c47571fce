//! Lists in pages and watches, as the injector's successor will use them.

use serde_json::json;
use sources::Key;
use sources::kubernetes::{
    Change, ObjectSource as _, Reader, Selection, WatchTiming, Watcher, store,
};
use sources::reconcile::WebhookConfiguration;
use std::time::Duration;
use tokio::time::timeout;

use crate::support::{TemporaryConfiguration, admin, kubectl, try_kubectl, webhooks};

/// More than a page.
const OBJECTS: usize = 130;

async fn next(reader: &mut Reader<WebhookConfiguration>) -> Vec<Change<WebhookConfiguration>> {
    loop {
        let changes = timeout(Duration::from_secs(30), reader.changed()).await;
        let changes = changes.expect("nothing changed for 30 s").unwrap();
        if !changes.changes.is_empty() {
            return changes.changes;
        }
    }
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn pages_and_changes() {
    let items: Vec<_> = (0..OBJECTS)
        .map(|n| webhooks(&format!("page-{n:03}")))
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    try_kubectl(&["create", "-f", "-"], &list.to_string()).unwrap();
    let selection = Selection {
        labels: Some("cluster-test=yes".to_owned()),
        ..Selection::default()
    };
    let (writer, mut reader) = store();
    let source =
        Watcher::<WebhookConfiguration>::new(admin().await, selection, WatchTiming::default());
    let running = tokio::spawn(source.run(writer));
    // Two pages, and they appear at once.
    assert_eq!(next(&mut reader).await.len(), OBJECTS);
    let key = Key::new("", "page-007");
    let before = reader.get(&key).unwrap();
    kubectl(&[
        "annotate",
        "mutatingwebhookconfiguration",
        "page-007",
        "a=b",
    ]);
    let changes = next(&mut reader).await;
    assert!(matches!(&changes[..], [Change::Set(changed, _)] if *changed == key));
    let after = reader.get(&key).unwrap();
    assert_ne!(
        before.metadata.resource_version,
        after.metadata.resource_version
    );
    assert_eq!(before.webhooks, after.webhooks);
    // One that loses the label is gone from here, and one without it was never there.
    let unlabelled = TemporaryConfiguration::new("page-000");
    kubectl(&[
        "label",
        "mutatingwebhookconfiguration",
        "page-000",
        "cluster-test-",
    ]);
    let changes = next(&mut reader).await;
    assert!(matches!(&changes[..], [Change::Gone(gone)] if *gone == Key::new("", "page-000")));
    drop(unlabelled);
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let all = format!("{path}?labelSelector=cluster-test%3Dyes");
    kubectl(&["delete", "--raw", &all]);
    let mut gone = 0;
    while gone < OBJECTS - 1 {
        gone += next(&mut reader).await.len();
    }
    running.abort();
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn it_says_which_kubernetes_it_is() {
    let version = admin().await.version().await.unwrap();
    assert_eq!((version.major, version.minor), (1, 20));
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn a_config_map_is_read() {
    kubectl(&[
        "create",
        "configmap",
        "mesh",
        "--from-literal=mesh=trustDomain: here",
    ]);
    let cluster = admin().await;
    let data = cluster.config_map("default", "mesh").await.unwrap();
    assert_eq!(data["mesh"], "trustDomain: here");
    let failure = cluster.config_map("default", "absent").await.unwrap_err();
    assert_eq!(
        failure.to_string(),
        "cannot get configmaps default/absent: configmaps \"absent\" not found (404)"
    );
    kubectl(&["delete", "configmap", "mesh"]);
}
