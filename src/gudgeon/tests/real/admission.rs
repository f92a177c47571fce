//! Admission as kubectl shows it: warnings, refusals, a dry run, another webhook, and the same by `gudgeon inject`.

use serde_json::{Value, json};

use crate::second;
use crate::server::{
    Asked, Entry, Hook, TEMPLATE, create, kubectl, names, of_run, place, pod, run, stored_pod,
    try_kubectl, until,
};
use crate::support::gudgeon;

fn status(pod: &Value) -> Value {
    let status = pod["metadata"]["annotations"]["sidecar.istio.io/status"].as_str();
    serde_json::from_str(status.unwrap_or("null")).unwrap()
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn a_pod_gets_its_proxy() {
    let asked = Asked::new("proxy", TEMPLATE);
    let mut web = pod("proxy", "web");
    web["spec"]["containers"][0]["livenessProbe"] =
        json!({"httpGet": {"path": "/live", "port": 8080}});
    // A controller's pod has no name yet.
    web["metadata"]["generateName"] = json!("web-");
    web["metadata"].as_object_mut().unwrap().remove("name");
    let answer = create(&web, &[]);
    assert!(answer.done, "{answer:?}");
    assert_eq!(answer.err, "", "nothing to warn about");
    let made = &answer.objects()[0];
    let found = stored_pod("proxy", made["metadata"]["name"].as_str().unwrap());
    assert_eq!(names(&found, "containers"), ["web", "istio-proxy"]);
    assert_eq!(names(&found, "initContainers"), ["istio-init"]);
    assert_eq!(names(&found, "volumes"), ["istio-envoy"]);
    let proxy = &found["spec"]["containers"][1];
    assert_eq!(
        proxy["args"],
        json!([
            "proxy",
            "sidecar",
            "--statusPort",
            "15020",
            "--concurrency",
            "1"
        ])
    );
    assert_eq!(
        found["spec"]["containers"][0]["livenessProbe"]["httpGet"],
        json!({"path": "/app-health/web/livez", "port": 15020, "scheme": "HTTP"})
    );
    assert_eq!(status(&found)["containers"], json!(["istio-proxy"]));
    // Sent again as the server has stored it, under another name: no change.
    let before = asked.answered();
    let mut copy = found.clone();
    copy["metadata"] = json!({"name": "copy", "namespace": "proxy", "annotations": found["metadata"]["annotations"]});
    let answer = create(&copy, &[]);
    assert!(answer.done, "{answer:?}");
    assert_eq!(asked.answered(), (before.0, before.1 + 1.0));
    let page = asked.injector.get("/debug/inject").json();
    assert_eq!(page[0]["reason"], "unchanged");
    assert_eq!(page[1]["name"], "web-*****");
    assert_eq!(page[1]["decision"], "injected");
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn warnings_and_refusals_reach_kubectl() {
    let asked = Asked::new("words", TEMPLATE);
    let mut odd = pod("words", "odd");
    odd["metadata"]["labels"] = json!({"sidecar.istio.io/inject": "maybe"});
    let answer = create(&odd, &[]);
    assert!(answer.done, "{answer:?}");
    assert_eq!(
        answer.warnings(),
        [
            "label sidecar.istio.io/inject: \"maybe\" is not understood and means no; say true or false"
        ]
    );
    assert_eq!(names(&stored_pod("words", "odd"), "containers"), ["web"]);
    let mut none = pod("words", "none");
    none["spec"]["dnsPolicy"] = json!("Default");
    let answer = create(&none, &[]);
    assert_eq!(answer.warnings().len(), 1, "{answer:?}");
    assert!(
        answer.warnings()[0].starts_with("dnsPolicy \"Default\""),
        "{answer:?}"
    );
    let mut bad = pod("words", "bad");
    bad["metadata"]["annotations"] =
        json!({"sidecar.istio.io/interceptionMode": "MAYBE", "status.sidecar.istio.io/port": "x"});
    let answer = create(&bad, &[]);
    assert!(!answer.done);
    for text in [
        "Error from server (BadRequest)",
        "admission webhook \"words.sidecar-injector.istio.io\" denied the request: invalid value 'MAYBE' for annotation",
        "invalid value 'x' for annotation 'status.sidecar.istio.io/port': statusPort invalid",
    ] {
        assert!(answer.err.contains(text), "{text}: {answer:?}");
    }
    assert!(!try_kubectl(&["get", "pod", "bad", "-n", "words"], "").done);
    // The configuration is at fault.
    asked
        .injector
        .place
        .write("config", "template: '{containers: [{image: x}]}'\n");
    until("the template is in use", || {
        create(&pod("words", "broken"), &["--dry-run=server"])
            .err
            .contains("Error from server (InternalError)")
    });
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn a_dry_run_shows_and_keeps_nothing() {
    let asked = Asked::new("dry", TEMPLATE);
    let answer = create(&pod("dry", "web"), &["--dry-run=server"]);
    assert!(answer.done, "{answer:?}");
    assert_eq!(
        names(&answer.objects()[0], "containers"),
        ["web", "istio-proxy"]
    );
    assert!(!try_kubectl(&["get", "pod", "web", "-n", "dry"], "").done);
    let page = asked.injector.get("/debug/inject").json();
    assert_eq!(
        (&page[0]["dryRun"], &page[0]["name"]),
        (&json!(true), &json!("web"))
    );
    create(&pod("dry", "web"), &[]);
    let page = asked.injector.get("/debug/inject").json();
    assert_eq!(page[0]["dryRun"], json!(false));
    // Requests that create no pod do not reach the webhook.
    let before = asked.requests();
    kubectl(&["label", "pod", "web", "-n", "dry", "a=b"], "");
    kubectl(&["delete", "pod", "web", "-n", "dry", "--wait=false"], "");
    assert_eq!(asked.requests(), before);
}

/// A container with a probe more, as another team's webhook adds it.
fn helper(pod: &Value) -> Value {
    let there = names(pod, "containers").iter().any(|name| name == "helper");
    if there {
        return json!([]);
    }
    json!([{"op": "add", "path": "/spec/containers/0", "value": {"name": "helper", "image": "helper:1",
        "ports": [{"name": "admin", "containerPort": 9000}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "admin"}}}}])
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn reinvocation_covers_the_changes_of_another_webhook() {
    let asked = Asked::new("again", TEMPLATE);
    let ca = of_run("ca.crt");
    let entry = Entry {
        name: "helper.example.com",
        port: second::serve(helper),
        path: "/",
        ca: Some(&ca),
        hook: "again",
    };
    let _hook = Hook::new("later", &[entry]);
    until("the other is asked", || {
        let answer = create(&pod("again", "first"), &["--dry-run=server"]);
        answer
            .objects()
            .first()
            .is_some_and(|pod| names(pod, "containers").len() == 3)
    });
    let before = asked.answered();
    let mut web = pod("again", "web");
    web["spec"]["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": 80}});
    assert!(create(&web, &[]).done);
    assert_eq!(
        asked.answered(),
        (before.0 + 2.0, before.1),
        "asked twice, and twice there was something to do"
    );
    let found = stored_pod("again", "web");
    assert_eq!(names(&found, "initContainers"), ["istio-init"]);
    assert_eq!(names(&found, "volumes"), ["istio-envoy"]);
    let containers = found["spec"]["containers"].as_array().unwrap();
    let of = |name: &str| {
        let mut named = containers
            .iter()
            .filter(|container| container["name"] == name);
        let one = named.next().unwrap().clone();
        assert!(named.next().is_none(), "{name} twice");
        one
    };
    assert_eq!(containers.len(), 3);
    for (name, path) in [
        ("helper", "/app-health/helper/readyz"),
        ("web", "/app-health/web/readyz"),
    ] {
        let get = &of(name)["readinessProbe"]["httpGet"];
        assert_eq!((&get["path"], &get["port"]), (&json!(path), &json!(15020)));
    }
    let env = of("istio-proxy")["env"].clone();
    assert_eq!(env.as_array().unwrap().len(), 1);
    let probers: Value = serde_json::from_str(env[0]["value"].as_str().unwrap()).unwrap();
    assert_eq!(
        probers,
        json!({"/app-health/helper/readyz": {"httpGet": {"path": "/ready", "port": 9000, "scheme": "HTTP"}, "timeoutSeconds": 1},
            "/app-health/web/readyz": {"tcpSocket": {"port": 80}, "timeoutSeconds": 1}})
    );
}

/// With nothing but a certificate: the built-in template, and a path with parameters.
#[test]
#[ignore = "takes an API server: build/kube-test"]
fn the_built_in_template_and_a_path() {
    let place = place("policy: enabled\n");
    let asked = Asked::with(
        "paths",
        place.start(&[]),
        "/inject/cluster/east/net/n--slash--1/color/blue",
    );
    let mut web = pod("paths", "web");
    web["spec"]["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": 80}});
    let answer = create(&web, &[]);
    // The path's network is no label's value.
    let warning = "Warning: label topology.istio.io/network is left out, ";
    assert!(answer.done && answer.err.starts_with(warning), "{answer:?}");
    assert_eq!(answer.err.lines().count(), 1, "{answer:?}");
    let found = stored_pod("paths", "web");
    assert_eq!(names(&found, "containers"), ["web", "istio-proxy"]);
    assert_eq!(names(&found, "initContainers"), ["istio-init"]);
    assert_eq!(names(&found, "volumes"), ["istio-envoy", "istio-certs"]);
    let env = found["spec"]["containers"][1]["env"].as_array().unwrap();
    let of = |name: &str| env.iter().find(|entry| entry["name"] == name).unwrap()["value"].clone();
    for (name, value) in [
        ("ISTIO_META_CLUSTER_ID", "east"),
        ("ISTIO_META_NETWORK", "n/1"),
        ("COLOR", "blue"),
    ] {
        assert_eq!(of(name), json!(value), "{name}");
    }
    // Sent again as the server has stored it: no change.
    let before = asked.answered();
    let mut copy = found.clone();
    copy["metadata"] = json!({"name": "web", "namespace": "paths", "labels": found["metadata"]["labels"],
        "annotations": found["metadata"]["annotations"]});
    let answer = create(&copy, &["--dry-run=server"]);
    // The name is taken, which is found out after the webhooks were asked.
    assert!(
        answer.done || answer.err.contains("already exists"),
        "{answer:?}"
    );
    let page = asked.injector.get("/debug/inject").json();
    assert_eq!(
        asked.answered(),
        (before.0, before.1 + 1.0),
        "{answer:?} {}",
        page[0]
    );
}

/// The server's plugins run again for the containers of the injection, and not once more after the second pass.
#[test]
#[ignore = "takes an API server: build/kube-test"]
fn the_defaults_of_a_limit_range_stay() {
    let place = place("policy: enabled\n");
    let _asked = Asked::with("limits", place.start(&[]), "/inject");
    let limits = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "most", "namespace": "limits"},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}});
    kubectl(&["create", "-f", "-"], &limits.to_string());
    let limit = |pod: &Value, at: usize| {
        pod["spec"]["containers"][at]["resources"]["limits"]["cpu"].clone()
    };
    // A server without the range in its cache takes any pod, and one with it refuses a container without a limit.
    until("the range holds", || {
        let answer = create(&pod("limits", "first"), &["--dry-run=server"]);
        assert!(answer.done, "{answer:?}");
        limit(&answer.objects()[0], 0) == "2"
    });
    assert!(create(&pod("limits", "web"), &[]).done);
    let found = stored_pod("limits", "web");
    assert_eq!(names(&found, "containers"), ["web", "istio-proxy"]);
    assert_eq!(limit(&found, 1), "2");
}

/// The same engine by the command line, with the configuration from the cluster.
#[test]
#[ignore = "takes an API server: build/kube-test"]
fn manifests_by_the_clusters_configuration() {
    let place = place(TEMPLATE);
    place.write("mesh", "proxyListenPort: 15011\n");
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let _there = try_kubectl(&["create", "namespace", "mesh-config"], "");
    for (name, file) in [("injector", "config"), ("mesh", "mesh")] {
        let file = format!("--from-file={}={}", file, path(file));
        kubectl(
            &["create", "configmap", name, "-n", "mesh-config", &file],
            "",
        );
    }
    place.write(
        "web.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: manifests}\nspec:\n  \
         selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      \
         containers: [{name: web, image: web}]\n",
    );
    let kubeconfig = run().join("kubeconfig");
    let arguments = [
        "inject",
        "-f",
        &path("web.yaml"),
        "--injectConfigMapName=injector",
        "--meshConfigMapName=mesh",
        "-i",
        "mesh-config",
        "-c",
        kubeconfig.to_str().unwrap(),
    ];
    let output = gudgeon().args(arguments).output().unwrap();
    let (out, err) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert!(output.status.success(), "{err}");
    // The server takes it, and every field of it.
    let _there = try_kubectl(&["create", "namespace", "manifests"], "");
    let answer = kubectl(&["create", "-f", "-", "-o", "json"], &out);
    let template = answer.objects()[0]["spec"]["template"].clone();
    assert_eq!(names(&template, "containers"), ["web", "istio-proxy"]);
    assert_eq!(
        template["spec"]["initContainers"][0]["args"],
        json!(["-p", "15011"])
    );
    let absent = gudgeon()
        .args([
            "inject",
            "-f",
            &path("web.yaml"),
            "--injectConfigMapName=absent",
            "-c",
            kubeconfig.to_str().unwrap(),
        ])
        .output()
        .unwrap();
    assert_eq!(absent.status.code(), Some(78));
    let err = String::from_utf8(absent.stderr).unwrap();
    assert!(err.contains("configmaps istio-system/absent"), "{err}");
}
