//! Checks a real server's responses to the script of the unit tests' fake. With `KUBE_RECORD=1` the responses are recorded.

use std::process::Command;
use std::time::Duration;

use kube::config::{AuthInfo, Config, KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::support::{TemporaryConfiguration, apply, kubectl, run, try_kubectl};

#[path = "../../kubernetes/fake/script.rs"]
pub(crate) mod script;

/// Removed at the end, and before: an earlier run may have been aborted.
struct Leftovers;

impl Leftovers {
    fn remove() {
        for kind in ["mutatingwebhookconfiguration", "crd"] {
            let arguments = ["delete", kind, "-l", "cluster-recorded=yes"];
            let _there_or_not = try_kubectl(&arguments, "");
        }
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        Self::remove();
    }
}

/// A kind that begins now: what the server knows of its changes begins now too.
fn define() {
    apply(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "recordings.recorded.example.com", "labels": {"cluster-recorded": "yes"}},
        "spec": {
            "group": "recorded.example.com", "scope": "Cluster",
            "names": {"kind": "Recording", "plural": "recordings", "singular": "recording", "listKind": "RecordingList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    }));
    let name = "crd/recordings.recorded.example.com";
    kubectl(&["wait", "--for=condition=Established", name]);
    // An established kind may be unknown to this path of the server for a moment.
    let path = "/apis/recorded.example.com/v1/recordings";
    let there = (0..100).any(|_| try_kubectl(&["get", "--raw", path], "").is_ok());
    assert!(there, "{path}");
}

/// Compacts etcd, as the server itself does every five minutes.
fn compact() {
    let list = kubectl(&["get", "--raw", "/api/v1/nodes?limit=1"]);
    let list: Value = serde_json::from_str(&list).unwrap();
    let command = std::fs::read_to_string(run().join("etcd.command")).unwrap();
    let mut arguments = command.split('\0');
    arguments
        .find(|word| *word == "--advertise-client-urls")
        .unwrap();
    let url = format!("{}/v3/kv/compaction", arguments.next().unwrap());
    let body = json!({"revision": list["metadata"]["resourceVersion"]}).to_string();
    let curl = ["-sf", "--noproxy", "*", "-o", "/dev/null", "-d", &body];
    let done = Command::new("curl").args(curl).arg(url).status().unwrap();
    assert!(done.success(), "{body}");
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn the_fake_was_told_the_truth() {
    Leftovers::remove();
    let _leftovers = Leftovers;
    let read = Kubeconfig::read_from(run().join("kubeconfig")).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(read, &options).await;
    let mut config = config.unwrap();
    config.proxy_url = None;
    // Refusals must be visible, so there are no retries.
    config.default_retry = false;
    let mut denied = config.clone();
    // RBAC grants this user nothing.
    let user: AuthInfo = serde_json::from_value(json!({"token": "user-token"})).unwrap();
    denied.auth_info = user;
    let client = kube::Client::try_from(config).unwrap();
    let denied = kube::Client::try_from(denied).unwrap();
    let before = |step: &str| match step {
        // Other objects change, which the script does not select.
        "bookmark has begun" => drop(TemporaryConfiguration::new("unrecorded")),
        "expired page" => compact(),
        "expired watch" => define(),
        _ => {}
    };
    let played = script::play(&client, &denied, before);
    let played = tokio::time::timeout(Duration::from_secs(120), played).await;
    let played = played.unwrap();
    if std::env::var_os("KUBE_RECORD").is_some_and(|value| value == "1") {
        // A step in a line, so that a difference is one.
        let steps = played.as_array().unwrap().iter();
        let lines: Vec<_> = steps.map(ToString::to_string).collect();
        let text = format!("[\n{}\n]\n", lines.join(",\n"));
        std::fs::write(script::FILE, text).unwrap();
    }
    script::compare(&played);
}
