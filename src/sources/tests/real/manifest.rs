//! Applies the shipped manifest; the injector must work with its role's permissions alone.

use std::time::Duration;

use serde_json::{Value, json};
use sources::kubernetes::{Cluster, ObjectSource as _, Selection, WatchTiming, Watcher, store};
use sources::reconcile::{CaBundle, ReconcileState, WebhookConfiguration};

use crate::support::{
    TemporaryConfiguration, bundle, ca, configuration, keep, manifest, open, own, run, try_kubectl,
    until, webhooks,
};

const NAME: &str = "istio-sidecar-injector";
const ACCOUNT: &str = "system:serviceaccount:istio-system:istio-sidecar-injector";

/// Applied, and away at the end.
struct Shipped;

impl Shipped {
    fn new() -> Self {
        try_kubectl(&["apply", "-f", "-"], &manifest()).unwrap();
        Self
    }
}

impl Drop for Shipped {
    fn drop(&mut self) {
        // The namespace stays: no controller runs that would end it.
        let _there_or_not = try_kubectl(&["delete", "mutatingwebhookconfiguration", NAME], "");
    }
}

/// By a token of the account that ships.
async fn injector() -> Cluster {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600}});
    let path = format!("/api/v1/namespaces/istio-system/serviceaccounts/{NAME}/token");
    let answer = try_kubectl(&["create", "--raw", &path, "-f", "-"], &request.to_string()).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let token = answer["status"]["token"].as_str().unwrap();
    let url = std::fs::read_to_string(run().join("url")).unwrap();
    let ca = run().join("ca.crt");
    let file = run().join("injector.kubeconfig");
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url.trim(), "certificate-authority": ca}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    open(file).await
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn the_role_is_enough() {
    let _shipped = Shipped::new();
    let file = ca("corporate");
    let reconciler = keep(
        injector().await,
        NAME,
        CaBundle::File(file.clone().into_bytes()),
    );
    until("all four have it", || reconciler.handle.is_in_sync()).await;
    assert_eq!(reconciler.handle.statuses()[0].entries.len(), 4);
    for entry in 0..4 {
        assert_eq!(bundle(NAME, entry), file);
    }
    // Applied again, as it was or with a change elsewhere: the bundles are not touched.
    let generation = || configuration(NAME)["metadata"]["generation"].clone();
    let before = generation();
    try_kubectl(&["apply", "-f", "-"], &manifest()).unwrap();
    assert_eq!(generation(), before);
    let ignore = manifest().replace("failurePolicy: Fail", "failurePolicy: Ignore");
    try_kubectl(&["apply", "-f", "-"], &ignore).unwrap();
    assert_ne!(generation(), before);
    assert_eq!(bundle(NAME, 3), file);
    // Replaced by an empty object: the watch that the role allows reports it.
    let manifest = manifest();
    let configuration = manifest.split("\n---\n").last().unwrap();
    try_kubectl(&["replace", "-f", "-"], configuration).unwrap();
    until("all four have it again", || {
        (0..4).all(|entry| bundle(NAME, entry) == file)
    })
    .await;
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn the_role_is_for_one_name() {
    let _shipped = Shipped::new();
    let other = TemporaryConfiguration::new("somebody-elses");
    let reconciler = keep(injector().await, other.0, own());
    until("it is refused", || {
        reconciler.handle.statuses()[0].error.is_some()
    })
    .await;
    let status = &reconciler.handle.statuses()[0];
    assert_eq!(status.state, ReconcileState::Waiting);
    let error = status.error.clone().unwrap();
    assert!(
        error.starts_with(
            "cannot list mutatingwebhookconfigurations.admissionregistration.k8s.io somebody-elses: \
             the account has no right to the verb \"list\" on"
        ),
        "{error}"
    );
    assert_eq!(bundle(other.0, 0), "");
    // A list without a name is forbidden.
    let (writer, mut reader) = store::<WebhookConfiguration>();
    let all = Watcher::new(
        injector().await,
        Selection::default(),
        WatchTiming::default(),
    );
    let running = tokio::spawn(all.run(writer));
    let refused = async {
        loop {
            if let Some((_, why)) = reader.changed().await.unwrap().freshness.stale {
                return why;
            }
        }
    };
    let why = tokio::time::timeout(Duration::from_secs(30), refused)
        .await
        .unwrap();
    running.abort();
    assert!(why.contains("no right to the verb \"list\""), "{why}");
}

/// (verb, group, resource, name): whether the account may.
fn may(asked: &[(&str, &str, &str, &str)]) -> Vec<bool> {
    let reviews: Vec<Value> = asked
        .iter()
        .map(|(verb, group, resource, name)| {
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
                "user": ACCOUNT, "groups": ["system:serviceaccounts", "system:authenticated"],
                "resourceAttributes": {"verb": verb, "group": group, "resource": resource, "name": name, "namespace": "istio-system"}}})
        })
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": reviews});
    let text = try_kubectl(&["create", "-f", "-", "-o", "json"], &list.to_string()).unwrap();
    let answers: Vec<Value> = serde_json::Deserializer::from_str(&text)
        .into_iter::<Value>()
        .flat_map(|answer| {
            let answer = answer.unwrap();
            match answer["items"].as_array() {
                Some(items) => items.clone(),
                None => vec![answer],
            }
        })
        .collect();
    assert_eq!(answers.len(), asked.len());
    answers
        .iter()
        .map(|answer| answer["status"]["allowed"].as_bool().unwrap())
        .collect()
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn the_role_is_no_more_than_that() {
    let _shipped = Shipped::new();
    let verbs = [
        "get",
        "list",
        "watch",
        "patch",
        "update",
        "create",
        "delete",
        "deletecollection",
    ];
    let admission = "admissionregistration.k8s.io";
    let own: Vec<_> = verbs
        .iter()
        .map(|verb| (*verb, admission, "mutatingwebhookconfigurations", NAME))
        .collect();
    assert_eq!(
        may(&own),
        [true, true, true, true, false, false, false, false]
    );
    let mut others = Vec::new();
    for verb in verbs {
        for (group, resource, name) in [
            (admission, "mutatingwebhookconfigurations", "somebody-elses"),
            (admission, "mutatingwebhookconfigurations", ""),
            (admission, "validatingwebhookconfigurations", NAME),
            ("", "configmaps", NAME),
            ("", "secrets", NAME),
            ("", "pods", ""),
            ("", "pods", "web"),
            ("", "services", ""),
            ("", "endpoints", ""),
            ("", "namespaces", ""),
            ("", "nodes", ""),
            ("", "serviceaccounts", NAME),
            ("", "events", ""),
            ("apps", "deployments", ""),
            ("coordination.k8s.io", "leases", NAME),
            ("rbac.authorization.k8s.io", "clusterroles", ""),
            ("certificates.k8s.io", "certificatesigningrequests", ""),
        ] {
            others.push((verb, group, resource, name));
        }
    }
    for (asked, allowed) in others.iter().zip(may(&others)) {
        assert!(!allowed, "{asked:?}");
    }
}

#[tokio::test]
#[ignore = "takes an API server: build/kube-test"]
async fn every_line_is_understood() {
    let _shipped = Shipped::new();
    // Validated by the server's own schema: a field that it does not know would be refused by kubectl.
    try_kubectl(
        &["apply", "--validate=true", "--dry-run=server", "-f", "-"],
        &manifest(),
    )
    .unwrap();
    let deployment = try_kubectl(
        &[
            "get",
            "deployment",
            NAME,
            "-n",
            "istio-system",
            "-o",
            "json",
        ],
        "",
    )
    .unwrap();
    let deployment: Value = serde_json::from_str(&deployment).unwrap();
    let template = &deployment["spec"]["template"];
    let container = &template["spec"]["containers"][0];
    assert_eq!(deployment["spec"]["replicas"], 2);
    assert_eq!(
        template["metadata"]["labels"]["sidecar.istio.io/inject"],
        "false"
    );
    assert_eq!(
        template["spec"]["priorityClassName"],
        "system-cluster-critical"
    );
    assert_eq!(template["spec"]["securityContext"]["runAsNonRoot"], true);
    assert_eq!(
        template["spec"]["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    assert_eq!(
        container["securityContext"],
        json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}})
    );
    assert_eq!(
        container["resources"],
        json!({"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}})
    );
    let entries = configuration(NAME)["webhooks"].clone();
    for entry in entries.as_array().unwrap() {
        assert_eq!(entry["failurePolicy"], "Fail");
        assert_eq!(entry["reinvocationPolicy"], "IfNeeded");
        assert_eq!(entry["matchPolicy"], "Equivalent");
        assert_eq!(entry["sideEffects"], "None");
        assert_eq!(entry["timeoutSeconds"], 5);
        assert_eq!(entry["admissionReviewVersions"], json!(["v1", "v1beta1"]));
    }
    assert_ne!(entries, webhooks("x")["webhooks"]);
}
