//! The reconciler of CA bundles: mending, replicas, an outage.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use sources::reconcile::{CaBundle, ReconcileState};

use crate::support::{
    TemporaryConfiguration, admin, apply, bundle, ca, configuration, keep, kubectl, own,
    repository, run, try_kubectl, until, version,
};

/// Without what a write changes by itself.
fn without_bundles(mut object: Value) -> Value {
    for webhook in object["webhooks"].as_array_mut().unwrap() {
        webhook["clientConfig"]
            .as_object_mut()
            .unwrap()
            .remove("caBundle");
    }
    let metadata = object["metadata"].as_object_mut().unwrap();
    for key in [
        "resourceVersion",
        "generation",
        "managedFields",
        "annotations",
    ] {
        metadata.remove(key);
    }
    object
}

/// Replaces the bundle of the first entry as a user would.
fn replace(name: &str, base64: &str) {
    let patch =
        json!([{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": base64}]);
    kubectl(&[
        "patch",
        "mutatingwebhookconfiguration",
        name,
        "--type=json",
        "-p",
        &patch.to_string(),
    ]);
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn a_bundle_replaced_by_hand_is_mended() {
    let name = TemporaryConfiguration::new("mended");
    let before = without_bundles(configuration(name.0));
    let file = ca("corporate");
    let reconciler = keep(
        admin().await,
        name.0,
        CaBundle::File(file.clone().into_bytes()),
    );
    until("the bundle is there", || reconciler.handle.is_in_sync()).await;
    assert_eq!(
        (bundle(name.0, 0), bundle(name.0, 2)),
        (file.clone(), file.clone())
    );
    assert_eq!(bundle(name.0, 1), "", "somebody else's entry");
    for wrong in ["", "Cg==", "bm90IHBlbQ=="] {
        replace(name.0, wrong);
        until("it is mended", || bundle(name.0, 0) == file).await;
    }
    // A GitOps tool applies its own again and again, which names no bundle.
    apply(&crate::support::webhooks(name.0));
    assert_eq!(bundle(name.0, 0), file);
    assert_eq!(without_bundles(configuration(name.0)), before);
    let status = &reconciler.handle.statuses()[0];
    assert_eq!(status.state, ReconcileState::Held);
    assert_eq!(
        status.attempts, 4,
        "one at the start, and one for each time"
    );
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn a_configuration_is_waited_for() {
    let reconciler = keep(admin().await, "late", own());
    until("it is missed", || {
        reconciler.handle.statuses()[0].state == ReconcileState::Missing
    })
    .await;
    let name = TemporaryConfiguration::new("late");
    until("the bundle is there", || reconciler.handle.is_in_sync()).await;
    drop(name);
    until("it is missed again", || {
        reconciler.handle.statuses()[0].state == ReconcileState::Missing
    })
    .await;
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn replicas_do_not_fight() {
    let name = TemporaryConfiguration::new("replicas");
    let corporate = ca("corporate");
    let first = keep(admin().await, name.0, CaBundle::Own(corporate.into_bytes()));
    until("a stranger's is there", || first.handle.is_in_sync()).await;
    drop(first);
    let mut replicas = Vec::new();
    for _ in 0..3 {
        replicas.push(keep(admin().await, name.0, own()));
    }
    until("all are there", || {
        replicas
            .iter()
            .all(|reconciler| reconciler.handle.is_in_sync())
    })
    .await;
    let count = || bundle(name.0, 0).matches("BEGIN CERTIFICATE").count();
    until("all four are in it", || count() == 4).await;
    let rests = version(name.0);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(version(name.0), rests, "somebody still writes");
    assert!(
        replicas
            .iter()
            .all(|reconciler| reconciler.handle.is_in_sync())
    );
    assert_eq!(bundle(name.0, 0), bundle(name.0, 2));
    // One goes, and another comes.
    drop(replicas.pop());
    replicas.push(keep(admin().await, name.0, own()));
    until("the new one is there", || {
        count() == 5 && replicas[2].handle.is_in_sync()
    })
    .await;
}

pub(crate) fn kube(verb: &str) {
    let done = Command::new(repository().join("build/kube"))
        .arg(verb)
        .arg(run())
        .arg("kube-apiserver")
        .status()
        .unwrap();
    assert!(done.success());
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn a_server_that_stops_and_starts() {
    let name = TemporaryConfiguration::new("outage");
    let (old, new) = (ca("old"), ca("new"));
    let reconciler = keep(
        admin().await,
        name.0,
        CaBundle::File(old.clone().into_bytes()),
    );
    until("the bundle is there", || reconciler.handle.is_in_sync()).await;
    kube("stop");
    until("it is noticed", || {
        reconciler.handle.statuses()[0].error.is_some()
    })
    .await;
    let status = &reconciler.handle.statuses()[0];
    assert_eq!(status.state, ReconcileState::Held, "as it was last seen");
    let error = status.error.clone().unwrap();
    assert!(error.starts_with("cannot "), "{error}");
    // The certificates are renewed while the server is away.
    reconciler
        .handle
        .set_bundle(CaBundle::File(new.clone().into_bytes()));
    until("it fails", || {
        reconciler.handle.statuses()[0].state == ReconcileState::Failing
    })
    .await;
    assert!(!reconciler.handle.is_in_sync());
    kube("start");
    until("the new one is there", || reconciler.handle.is_in_sync()).await;
    assert_eq!(bundle(name.0, 0), new);
    assert_eq!(reconciler.handle.statuses()[0].error, None);
    // The watch is alive: a later change is seen.
    replace(name.0, "");
    until("it is mended", || bundle(name.0, 0) == new).await;
    assert!(try_kubectl(&["get", "namespaces"], "").is_ok());
}
