//! The migration page for users of Istio: runs its commands that read from a cluster.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::server::{apply, kubectl, repository, until};
use crate::support::{InjectorPlace, gudgeon, image_in, pod, review, run};

const MESH: &str = "# Who comes has comments.\ndefaultConfig:\n  drainDuration: 7s\n";
const VALUES: &str = "{\"global\": {\"hub\": \"example.com\"}}";
const CONFIG: &str = "policy: enabled
template: |
  containers:
  - name: istio-proxy
    image: \"[[ .Values.global.hub ]]/proxyv2:1\"
    args: [--drainDuration, [[ formatDuration .ProxyConfig.DrainDuration ]]]
";

/// The block of the page that asks the cluster.
fn block(page: &str) -> &str {
    let (_, after) = page.split_once("\n```sh\n").unwrap();
    let (block, _) = after.split_once("\n```").unwrap();
    assert_eq!(block.matches("kubectl ").count(), 3, "{block}");
    block
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn the_page_fetches_what_istio_has() {
    let page = repository().join("build/kubernetes/coming-from-istio.md");
    let page = fs::read_to_string(page).unwrap();
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}});
    apply(&namespace);
    let map = |name: &str, data: serde_json::Value| {
        apply(
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "istio-system"},
                "data": data}),
        );
    };
    map(
        "istio-sidecar-injector",
        json!({"config": CONFIG, "values": VALUES}),
    );
    map("istio", json!({"mesh": MESH}));

    let place = InjectorPlace::new();
    let done = Command::new("/bin/sh")
        .args(["-ec", block(&page)])
        .current_dir(place.root.path())
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    for (file, text) in [("config", CONFIG), ("values", VALUES), ("mesh", MESH)] {
        assert_eq!(place.read(file), text, "{file}");
    }
    by_both_steps_at_once(&page, &place);
    kubectl(
        &[
            "delete",
            "configmap",
            "-n",
            "istio-system",
            "istio-sidecar-injector",
            "istio",
        ],
        "",
    );
}

/// The same as by the files that were fetched.
fn by_both_steps_at_once(page: &str, place: &InjectorPlace) {
    place.write(
        "pod.yaml",
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a}]}}\n",
    );
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let by_files = run(&[
        "inject",
        "-f",
        &path("pod.yaml"),
        "--injectConfigFile",
        &path("config"),
        "--valuesFile",
        &path("values"),
        "--meshConfigFile",
        &path("mesh"),
    ]);
    let maps = "--injectConfigMapName istio-sidecar-injector --meshConfigMapName istio";
    assert!(page.contains(&format!("`gudgeon inject {maps} -f deployment.yaml`")));
    let kubeconfig = std::env::var("KUBECONFIG").unwrap();
    let pod = path("pod.yaml");
    let mut arguments = vec!["inject", "-f", &pod, "--kubeconfig", &kubeconfig];
    arguments.extend(maps.split(' '));
    let at_once = run(&arguments);
    let stderr_of =
        |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        by_files.status.success() && at_once.status.success(),
        "{}{}",
        stderr_of(&by_files),
        stderr_of(&at_once)
    );
    let text = String::from_utf8(at_once.stdout).unwrap();
    assert!(
        text.contains("image: example.com/proxyv2:1\n") && text.contains("- 7s\n"),
        "{text}"
    );
    assert_eq!(text.as_bytes(), by_files.stdout);
}

/// OpenShift is recognized by its annotations alone, which its API server writes and any server accepts.
#[test]
#[ignore = "takes an API server: build/kube-test"]
fn the_proxy_runs_as_a_user_of_its_openshift_namespace() {
    let namespace = |range: &str| {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ranges",
            "annotations": {"openshift.io/sa.scc.uid-range": range,
                "openshift.io/sa.scc.supplemental-groups": "2000/50,9000/9"}}})
    };
    apply(&namespace("1000680000/10000"));
    let place = InjectorPlace::new();
    place.write(
        "config",
        "policy: enabled\ntemplate: |\n  containers:\n  - name: istio-proxy\n    image: p:[[ .ProxyUID ]]-[[ .ProxyGID ]]\n",
    );
    let kubeconfig = std::env::var("KUBECONFIG").unwrap();
    let mut arguments = place.arguments();
    arguments.push("--kubeconfig".to_owned());
    arguments.push(kubeconfig);
    arguments.push("--reconcileWebhookConfig=false".to_owned());
    let mut command = gudgeon();
    command.env("PLATFORM", "openshift");
    let injector = place.start_as(command, &arguments);
    let asked = |namespace: &str| {
        let mut asked = review(&pod("web"));
        asked["request"]["namespace"] = namespace.into();
        asked["request"]["object"]["metadata"]["namespace"] = namespace.into();
        injector.client().review(&asked).unwrap()
    };
    let image = |namespace: &str| image_in(&asked(namespace));
    until("the namespace is known", || {
        image("ranges") == "p:1000689999-2049"
    });
    apply(&namespace("500-599"));
    until("its change", || image("ranges") == "p:599-2049");
    // A namespace without a range, and an unknown one.
    assert_eq!(image("default"), "p:1337-1337");
    let warnings = asked("nobody")["response"]["warnings"].to_string();
    assert!(
        warnings.contains("namespace nobody is not known yet"),
        "{warnings}"
    );
    kubectl(&["delete", "namespace", "ranges", "--wait=false"], "");
}
