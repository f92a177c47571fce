//! The statuses that discovery writes into objects.

use serde_json::{Value, json};

use crate::place::{Discovery, Place};
use crate::server::{apply, kubectl, repository, run, try_kubectl, until};

const NAMESPACE: &str = "statuses";
const DEFINITION: &str = "virtualservices.networking.istio.io";

/// VirtualServices, until it is dropped.
struct Kind;

impl Kind {
    /// As `build/kubernetes/crds.yaml` defines them.
    fn shipped() -> Self {
        let file = repository().join("build/kubernetes/crds.yaml");
        let shipped = std::fs::read_to_string(file).unwrap();
        let mut shipped = shipped.split("\n---\n");
        let name = format!("  name: {DEFINITION}\n");
        let definition = shipped.find(|one| one.contains(&name)).unwrap();
        Self::define(definition)
    }

    /// With a status as Istio's definitions describe it since 1.24: messages have no text, and no levels but these.
    fn of_istio() -> Self {
        let message = json!({"type": "object", "properties": {
            "type": {"type": "object", "properties": {"code": {"type": "string"}, "name": {"type": "string"}}},
            "level": {"type": "string", "enum": ["UNKNOWN", "ERROR", "WARNING", "INFO"]},
        }});
        let generation = json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true});
        let text = json!({"type": "string"});
        let condition = json!({"type": "object", "properties": {
            "type": text, "status": text, "reason": text, "message": text, "observedGeneration": generation,
        }});
        let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "conditions": {"type": "array", "items": condition},
            "observedGeneration": generation,
            "validationMessages": {"type": "array", "items": message},
        }});
        let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": DEFINITION},
            "spec": {
                "group": "networking.istio.io", "scope": "Namespaced",
                "names": {"kind": "VirtualService", "listKind": "VirtualServiceList", "plural": "virtualservices", "singular": "virtualservice"},
                "versions": [{"name": "v1alpha3", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}}}],
            },
        });
        Self::define(&definition.to_string())
    }

    fn define(definition: &str) -> Self {
        until("an earlier one is gone", || {
            !try_kubectl(&["get", "customresourcedefinition", DEFINITION], "").done
        });
        kubectl(&["apply", "-f", "-"], definition);
        until("the kind is served", || {
            try_kubectl(&["get", "--raw", &path("")], "").done
        });
        Self
    }
}

impl Drop for Kind {
    fn drop(&mut self) {
        let _gone = try_kubectl(&["delete", "customresourcedefinition", DEFINITION], "");
    }
}

fn path(name: &str) -> String {
    format!(
        "/apis/networking.istio.io/v1alpha3/namespaces/{NAMESPACE}/virtualservices{}{name}",
        if name.is_empty() { "" } else { "/" }
    )
}

fn write(name: &str, timeout: &str) {
    write_of(&["web"], name, timeout);
}

fn write_of(hosts: &[&str], name: &str, timeout: &str) {
    let object = json!({
        "apiVersion": "networking.istio.io/v1alpha3", "kind": "VirtualService",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"hosts": hosts, "http": [{"timeout": timeout, "route": [{"destination": {"host": "web"}}]}]},
    });
    apply(&object);
}

fn read(name: &str) -> Value {
    kubectl(&["get", "--raw", &path(name)], "").objects()[0].clone()
}

/// The levels of all messages.
fn levels(name: &str) -> Vec<String> {
    let object = read(name);
    let messages = object["status"]["validationMessages"].as_array().cloned();
    let messages = messages.unwrap_or_default();
    let level = |message: &Value| message["level"].as_str().unwrap().to_owned();
    messages.iter().map(level).collect()
}

fn start() -> Discovery {
    let kubeconfig = run().join("kubeconfig");
    Place::of_a_cluster(kubeconfig.to_str().unwrap())
        .env("PILOT_ENABLE_STATUS", "true")
        .start()
}

/// Waits until discovery knows this version of the object.
fn until_known(discovery: &Discovery, accepted: bool) {
    until("the object", || {
        let all = discovery.json("/debug/configz?kind=VirtualService");
        let mut all = all.as_array().unwrap().iter();
        all.any(|one| one["metadata"]["name"] == "broken" && one["status"]["accepted"] == accepted)
    });
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn messages_of_an_object_are_in_its_status_until_their_cause_ends() {
    apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}));
    let _kind = Kind::shipped();
    write("broken", "0s");
    write("good", "5s");
    let discovery = start();
    until("its status", || levels("broken") == ["ERROR"]);
    let object = read("broken");
    let status = &object["status"];
    assert_eq!(status["observedGeneration"], "1", "{status}");
    let message = status["validationMessages"][0]["message"].as_str().unwrap();
    assert!(message.contains("timeout"), "{status}");
    let version = object["metadata"]["resourceVersion"].clone();
    assert!(read("good")["status"].is_null());

    // Neither what it has written itself, nor another replica, nor a restart makes it write again.
    let other = start();
    until_known(&other, false);
    write("third", "0s");
    until("a later one", || levels("third") == ["ERROR"]);
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(read("broken")["metadata"]["resourceVersion"], version);

    // The same is wrong with a newer version; then nothing is.
    write_of(&["web", "more"], "broken", "0s");
    until("the newer version", || {
        read("broken")["status"]["observedGeneration"] == "2"
    });
    write("broken", "5s");
    until("nothing is wrong", || levels("broken").is_empty());

    // What is mended while nobody looks is seen at the next start.
    write("broken", "0s");
    until("its status", || levels("broken") == ["ERROR"]);
    drop((discovery, other));
    write("broken", "5s");
    assert_eq!(levels("broken"), ["ERROR"]);
    let discovery = start();
    until("nothing is wrong", || levels("broken").is_empty());

    // Who may not write says so once.
    assert_eq!(discovery.logged("status is not written"), 0);
}

/// Galley reads the rules there, and discovery used to say that files have no status.
#[test]
#[ignore = "takes an API server: build/kube-test"]
fn all_roles_in_one_process_write_statuses() {
    apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}));
    let _kind = Kind::shipped();
    write("broken", "0s");
    write("good", "5s");
    let kubeconfig = run().join("kubeconfig");
    let all = Place::together_of_a_cluster(kubeconfig.to_str().unwrap())
        .arg("--reconcileWebhookConfig=false")
        .arg("--enable-reconcileWebhookConfiguration=false")
        .env("PILOT_ENABLE_STATUS", "true")
        .start();
    until("its status", || levels("broken") == ["ERROR"]);
    let object = read("broken");
    let status = &object["status"];
    assert_eq!(status["observedGeneration"], "1", "{status}");
    let message = status["validationMessages"][0]["message"].as_str().unwrap();
    assert!(message.contains("timeout"), "{status}");
    assert!(read("good")["status"].is_null());
    write("broken", "5s");
    until("nothing is wrong", || levels("broken").is_empty());
    assert_eq!(all.logged("PILOT_ENABLE_STATUS"), 0, "{:?}", all.log());
    assert_eq!(all.logged("status is not written"), 0, "{:?}", all.log());
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn a_definition_without_texts_has_them_in_a_condition() {
    apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}));
    let _kind = Kind::of_istio();
    write("broken", "0s");
    let _discovery = start();
    until("its status", || levels("broken") == ["ERROR"]);
    let object = read("broken");
    let status = &object["status"];
    assert!(
        status["validationMessages"][0]["message"].is_null(),
        "{status}"
    );
    let condition = &status["conditions"][0];
    let text = condition["message"].as_str().unwrap();
    assert!(text.contains("timeout"), "{status}");
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("Accepted"), &json!("False"))
    );
    // Another replica finds it there.
    let other = start();
    until_known(&other, false);
    write("third", "0s");
    until("a later one", || levels("third") == ["ERROR"]);
    assert_eq!(
        read("broken")["metadata"]["resourceVersion"],
        object["metadata"]["resourceVersion"]
    );
    write("broken", "5s");
    until("nothing is wrong", || {
        read("broken")["status"] == json!({"validationMessages": []})
    });
}
