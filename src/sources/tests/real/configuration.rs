//! Configuration: kinds that are installed, get another version and go while they are read; objects that are written badly; an
//! outage.

use std::time::Duration;

use api::config::ServedInstead;
use serde_json::{Value, json};
use sources::catalogue::EntryChange;
use sources::kubernetes::config::{ConfigWatcher, ServerUpdate, WatchSettings};
use tokio::time::timeout;

use crate::reconciler::kube;
use crate::support::{admin, apply, kubectl, try_kubectl};

const NAMESPACE: &str = "configuration";

/// Removed at the end, with all their objects.
struct Definitions;

impl Drop for Definitions {
    fn drop(&mut self) {
        for plural in ["gateways", "virtualservices"] {
            let name = format!("{plural}.networking.istio.io");
            let _there_or_not = try_kubectl(&["delete", "crd", &name], "");
        }
        let _there_or_not = try_kubectl(&["delete", "ingress", "--all", "-n", NAMESPACE], "");
    }
}

/// A status as Istio's definitions describe it since 1.24: messages have no text, and no levels but these.
fn status() -> Value {
    let message = json!({"type": "object", "properties": {
        "type": {"type": "object", "properties": {"code": {"type": "string"}, "name": {"type": "string"}}},
        "level": {"type": "string", "enum": ["UNKNOWN", "ERROR", "WARNING", "INFO"]},
        "documentationUrl": {"type": "string"},
    }});
    let generation = json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true});
    let condition = json!({"type": "object", "properties": {
        "type": {"type": "string"}, "status": {"type": "string"}, "reason": {"type": "string"},
        "message": {"type": "string"}, "observedGeneration": generation,
    }});
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
        "conditions": {"type": "array", "items": condition},
        "observedGeneration": generation,
        "validationMessages": {"type": "array", "items": message},
    }})
}

fn define(kind: &str, plural: &str, versions: &[&str]) {
    let version = |name: &&str| {
        json!({
            "name": name, "served": true, "storage": *name == "v1alpha3", "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"status": status()}}},
        })
    };
    let versions: Vec<_> = versions.iter().map(version).collect();
    apply(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.networking.istio.io")},
        "spec": {
            "group": "networking.istio.io", "scope": "Namespaced", "versions": versions,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
        },
    }));
    let name = format!("crd/{plural}.networking.istio.io");
    kubectl(&["wait", "--for=condition=Established", &name]);
}

async fn write(kind: &str, name: &str, spec: &Value) {
    let object = json!({
        "apiVersion": "networking.istio.io/v1alpha3", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    });
    // An established kind may be unknown to this path of the server for a moment.
    let mut tries = 0;
    while let Err(cause) = try_kubectl(&["apply", "-f", "-"], &object.to_string()) {
        tries += 1;
        assert!(tries < 60, "{cause}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn route(host: &str) -> Value {
    json!({"hosts": ["web"], "http": [{"route": [{"destination": {"host": host}}]}]})
}

fn servers() -> Value {
    json!({"servers": [{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["*"]}]})
}

struct Play {
    server: ConfigWatcher,
    changes: Vec<String>,
}

impl Play {
    async fn new() -> Self {
        let _there_or_not = try_kubectl(&["create", "namespace", NAMESPACE], "");
        Self {
            server: ConfigWatcher::start(admin().await, WatchSettings::new(|_, _| Ok(()), false)),
            changes: Vec::new(),
        }
    }

    async fn until(
        &mut self,
        awaited: &str,
        what: impl Fn(&ServerUpdate, &ConfigWatcher) -> bool,
    ) -> ServerUpdate {
        let found = timeout(Duration::from_secs(60), async {
            loop {
                let update = self.server.changed().await;
                let word = |change: &EntryChange| match change {
                    EntryChange::Set(id, ..) => Some(id.to_string()),
                    EntryChange::Moved(..) => None,
                    EntryChange::Gone(id) => Some(format!("{id}-")),
                };
                self.changes.extend(update.changes.iter().filter_map(word));
                if what(&update, &self.server) {
                    return update;
                }
            }
        });
        let found = found.await;
        found.unwrap_or_else(|_| panic!("{awaited}: not within a minute: {:?}", self.changes))
    }

    /// Returns the changes since the last call.
    fn take_changes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.changes)
    }

    async fn next(&mut self, awaited: &str) -> Vec<String> {
        self.until(awaited, |update, _| !update.changes.is_empty())
            .await;
        self.take_changes()
    }
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn kinds_come_change_and_go() {
    let mut play = Play::new().await;
    let definitions = Definitions;
    play.until("nothing is installed", |update, _| update.synced)
        .await;
    assert!(play.take_changes().is_empty());
    define("VirtualService", "virtualservices", &["v1alpha3"]);
    write("VirtualService", "a", &route("x")).await;
    assert_eq!(
        play.next("the first").await,
        ["VirtualService configuration/a"]
    );
    define("Gateway", "gateways", &["v1alpha3"]);
    write("Gateway", "g", &servers()).await;
    assert_eq!(
        play.next("the second kind").await,
        ["Gateway configuration/g"]
    );
    // A newer version has the same objects, and is read from now on.
    define(
        "VirtualService",
        "virtualservices",
        &["v1alpha3", "v1beta1", "v1"],
    );
    write("VirtualService", "b", &route("x")).await;
    assert_eq!(
        play.next("of a new version").await,
        ["VirtualService configuration/b"]
    );
    // The last good version stays; an object that never was valid is absent.
    write("VirtualService", "a", &json!({"hosts": ["web"], "htp": []})).await;
    write("VirtualService", "c", &json!({"hosts": ["web"], "htp": []})).await;
    let update = play
        .until("both", |update, _| update.report.refused.len() == 2)
        .await;
    let states: Vec<_> = update
        .report
        .refused
        .iter()
        .map(|one| one.serving)
        .collect();
    assert_eq!(states, [ServedInstead::Old, ServedInstead::Nothing]);
    assert_eq!(play.server.all().count(), 3);
    assert!(play.take_changes().is_empty());
    // A change of status is another version of the object, and no change of what it says.
    let path =
        format!("/apis/networking.istio.io/v1/namespaces/{NAMESPACE}/virtualservices/b/status");
    let text = kubectl(&["get", "--raw", path.trim_end_matches("/status")]);
    let mut object: Value = serde_json::from_str(&text).unwrap();
    object["status"] = json!({"observedGeneration": 1});
    try_kubectl(&["replace", "--raw", &path, "-f", "-"], &object.to_string()).unwrap();
    kubectl(&["delete", "virtualservice", "a", "-n", NAMESPACE]);
    play.until("gone", |_, server| server.all().count() == 2)
        .await;
    assert_eq!(play.take_changes(), ["VirtualService configuration/a-"]);
    kubectl(&["delete", "crd", "virtualservices.networking.istio.io"]);
    play.until("the kind is gone", |_, server| server.all().count() == 1)
        .await;
    assert_eq!(play.take_changes(), ["VirtualService configuration/b-"]);
    play.until("no fault", |update, _| {
        update.stale.is_none() && update.report.refused.is_empty()
    })
    .await;
    drop(definitions);
    assert_eq!(
        play.next("all kinds are gone").await,
        ["Gateway configuration/g-"]
    );
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn an_outage_of_the_server_changes_nothing() {
    let _definitions = Definitions;
    define("Gateway", "gateways", &["v1alpha3"]);
    let mut play = Play::new().await;
    write("Gateway", "g", &servers()).await;
    apply(&json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i", "namespace": NAMESPACE},
        "spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}},
    }));
    play.until("all is read", |update, server| {
        update.synced && server.all().count() == 2
    })
    .await;
    play.take_changes();
    kube("stop");
    let update = play.until("lost", |update, _| update.stale.is_some()).await;
    assert!(update.synced && play.server.all().count() == 2);
    kube("start");
    play.until("back", |update, _| update.stale.is_none()).await;
    assert!(play.take_changes().is_empty());
    write("Gateway", "h", &servers()).await;
    assert_eq!(play.next("it goes on").await, ["Gateway configuration/h"]);
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn configuration_faults_are_written_into_the_status() {
    let _definitions = Definitions;
    define("VirtualService", "virtualservices", &["v1alpha3"]);
    let mut play = Play::new().await;
    let settings = WatchSettings {
        analysis: true,
        ..WatchSettings::new(|_, _| Ok(()), false)
    };
    play.server = ConfigWatcher::start(admin().await, settings.clone());
    let mut bad = route("x");
    bad["htp"] = json!([]);
    write("VirtualService", "a", &bad).await;
    let get = || -> Value {
        let text = kubectl(&["get", "virtualservice", "a", "-n", NAMESPACE, "-o", "json"]);
        serde_json::from_str(&text).unwrap()
    };
    let until = async |play: &mut Play, wanted: &Value| {
        for _ in 0..600 {
            if get()["status"]["validationMessages"] == *wanted {
                return;
            }
            let _update = timeout(Duration::from_millis(100), play.server.changed()).await;
        }
        panic!("not within a minute: {}", get());
    };
    let wanted =
        json!([{"type": {"code": "IST0106", "name": "SchemaValidationError"}, "level": "ERROR"}]);
    until(&mut play, &wanted).await;
    let condition = get()["status"]["conditions"][0].clone();
    let text = "spec.htp: unknown field, did you mean \"http\"?";
    assert_eq!(
        (&condition["status"], &condition["message"]),
        (&json!("False"), &json!(text))
    );
    // A replica finds the messages there, and writes nothing.
    let before = get()["metadata"]["resourceVersion"].clone();
    let mut second = ConfigWatcher::start(admin().await, settings);
    while second.changed().await.report.refused.is_empty() {}
    let _silence = timeout(Duration::from_secs(1), second.changed()).await;
    assert_eq!(get()["metadata"]["resourceVersion"], before);
    drop(second);
    let mut good = get();
    good["spec"] = route("x");
    try_kubectl(&["replace", "-f", "-"], &good.to_string()).unwrap();
    until(&mut play, &Value::Null).await;
    assert_eq!(get()["status"]["conditions"], Value::Null);
}
