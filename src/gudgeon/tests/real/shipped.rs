//! A role as it ships: its manifest applied, and its account with a token and no more permissions than the role's.

use serde_json::{Value, json};

use crate::server::{apply, kubectl, of_run, repository, run, try_kubectl, until};

pub(crate) const NAMESPACE: &str = "istio-system";

/// The file `build/kubernetes/NAME.yaml`, for a server as old as the one here.
pub(crate) fn manifest(name: &str) -> String {
    let file = repository().join(format!("build/kubernetes/{name}.yaml"));
    let text = std::fs::read_to_string(file).unwrap();
    // policy/v1 came with 1.21.
    text.replace("apiVersion: policy/v1\n", "apiVersion: policy/v1beta1\n")
}

/// Applies it, and leaves a kubeconfig with a token of its account.
pub(crate) fn shipped(name: &str, account: &str) -> String {
    kubectl(&["apply", "--validate=true", "-f", "-"], &manifest(name));
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600}});
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
    let answer = kubectl(&["create", "--raw", &path, "-f", "-"], &request.to_string());
    let token = answer.objects()[0]["status"]["token"].clone();
    let file = run().join(format!("{name}.kubeconfig"));
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": of_run("url").trim(), "certificate-authority": run().join("ca.crt")}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

/// (verb, group, resource, namespace, name): an empty namespace means all, an empty name any.
pub(crate) type AccessReview<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str);

/// Asserts that the account has exactly these permissions.
pub(crate) fn assert_rights(account: &str, asked: &[(AccessReview<'_>, bool)]) {
    let reviews: Vec<Value> = asked
        .iter()
        .map(|((verb, group, resource, namespace, name), _)| {
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
                "user": format!("system:serviceaccount:{NAMESPACE}:{account}"),
                "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{NAMESPACE}"), "system:authenticated"],
                "resourceAttributes": {"verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name}}})
        })
        .collect();
    // kubectl waits between more requests than that.
    let answers: Vec<Value> = reviews
        .chunks(10)
        .flat_map(|reviews| {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": reviews});
            kubectl(&["create", "-f", "-", "-o", "json"], &list.to_string()).objects()
        })
        .collect();
    assert_eq!(answers.len(), asked.len());
    for ((question, wanted), answer) in asked.iter().zip(&answers) {
        assert_eq!(answer["status"]["allowed"], *wanted, "{question:?}");
    }
}

/// A kind of networking.istio.io, until it is dropped.
pub(crate) struct Kind(String);

impl Kind {
    pub(crate) fn new(kind: &str, plural: &str, singular: &str) -> Self {
        let definition = format!("{plural}.networking.istio.io");
        apply(
            &json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": definition},
            "spec": {"group": "networking.istio.io", "scope": "Namespaced",
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}),
        );
        // Asked by its path: kubectl remembers for ten minutes which versions another test's definition had.
        let path = format!("/apis/networking.istio.io/v1/{plural}");
        until("the kind is served", || {
            try_kubectl(&["get", "--raw", &path], "").done
        });
        Self(definition)
    }
}

impl Drop for Kind {
    fn drop(&mut self) {
        let _gone = try_kubectl(&["delete", "customresourcedefinition", &self.0], "");
    }
}
