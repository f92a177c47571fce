//! The server that `build/kube up` started, kubectl, and injectors that it asks.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::program::within;
use crate::support::{Injector, InjectorPlace};

/// The folder of the run.
pub(crate) fn run() -> PathBuf {
    std::env::var_os("KUBE_RUN")
        .expect("run by build/kube-test")
        .into()
}

pub(crate) fn of_run(name: &str) -> String {
    std::fs::read_to_string(run().join(name)).unwrap()
}

pub(crate) fn repository() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Stops the server, or starts it again.
pub(crate) fn kube(verb: &str) {
    let done = Command::new(repository().join("build/kube"))
        .args([verb, run().to_str().unwrap(), "kube-apiserver"])
        .status()
        .unwrap();
    assert!(done.success());
}

/// A duration in seconds: with `KUBE_WHOLE` in the environment the promised one, else a short form of it.
pub(crate) fn lasting(short: u64, whole: u64) -> Duration {
    let is_whole = std::env::var_os("KUBE_WHOLE").is_some();
    Duration::from_secs(if is_whole { whole } else { short })
}

/// Waits longer than elsewhere, since backoffs take seconds.
pub(crate) fn until(what: &str, mut check: impl FnMut() -> bool) {
    within(Duration::from_secs(60), what, || check().then_some(()));
}

/// The result of a kubectl command.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) done: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// The objects that it printed, lists opened.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let printed = serde_json::Deserializer::from_str(&self.out).into_iter::<Value>();
        printed
            .map(|object| object.unwrap_or_else(|cause| panic!("{cause}: {self:?}")))
            .flat_map(|object| match object["items"].as_array() {
                Some(items) => items.clone(),
                None => vec![object],
            })
            .collect()
    }

    pub(crate) fn warnings(&self) -> Vec<&str> {
        let mut warnings: Vec<&str> = self
            .err
            .lines()
            .filter_map(|line| line.strip_prefix("Warning: "))
            .collect();
        warnings.sort_unstable();
        warnings.dedup();
        warnings
    }
}

pub(crate) fn try_kubectl(arguments: &[&str], stdin: &str) -> Said {
    let mut child = Command::new("kubectl")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(stdin.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    Said {
        done: output.status.success(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

pub(crate) fn kubectl(arguments: &[&str], stdin: &str) -> Said {
    let answer = try_kubectl(arguments, stdin);
    assert!(answer.done, "{arguments:?}: {answer:?}");
    answer
}

pub(crate) fn apply(object: &Value) {
    kubectl(&["apply", "-f", "-"], &object.to_string());
}

/// Creates a pod, and returns it as the server has stored it.
pub(crate) fn create(pod: &Value, more: &[&str]) -> Said {
    let mut arguments = vec!["create", "-f", "-", "-o", "json", "--validate=false"];
    arguments.extend(more);
    try_kubectl(&arguments, &pod.to_string())
}

/// The pod that the server keeps.
pub(crate) fn stored_pod(namespace: &str, name: &str) -> Value {
    kubectl(&["get", "pod", name, "-n", namespace, "-o", "json"], "").objects()[0].clone()
}

/// A namespace whose pods go to the webhooks of the same name.
pub(crate) fn namespace(name: &str, hook: &str) {
    apply(
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"hook": hook}}}),
    );
}

pub(crate) fn pod(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "web", "image": "web:1"}]}})
}

/// Files of an injector that serves the run's own certificate.
pub(crate) fn place(config: &str) -> InjectorPlace {
    let place = InjectorPlace::new();
    place.write("config", config);
    // A client that trusts this file's certificates trusts the CA.
    place.write("chain.pem", &(of_run("webhook.crt") + &of_run("ca.crt")));
    place.write("key.pem", &of_run("webhook.key"));
    place
}

/// Adds a container and an init container, and rewrites probes.
pub(crate) const TEMPLATE: &str = r#"
template: |
  rewriteAppHTTPProbe: true
  initContainers:
  - name: istio-init
    image: init:1
    args: ["-p", [[ .MeshConfig.ProxyListenPort ]]]
    restartPolicy: Always
  containers:
  - name: istio-proxy
    image: [[ annotation .ObjectMeta `sidecar.istio.io/proxyImage` "proxy:1" ]]
    args: [proxy, sidecar, --statusPort, 15020]
    resources: {requests: {cpu: 0.1}}
    volumeMounts: [{name: istio-envoy, mountPath: /etc/istio/proxy}]
  volumes:
  - name: istio-envoy
    emptyDir: {medium: Memory}
probers: current
"#;

/// One entry of a webhook configuration.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) port: u16,
    pub(crate) path: &'a str,
    /// PEM; `None` if the injector is to write it.
    pub(crate) ca: Option<&'a str>,
    /// Label `hook` of the namespaces.
    pub(crate) hook: &'a str,
}

/// A webhook configuration, gone at the end.
pub(crate) struct Hook(String);

impl Hook {
    pub(crate) fn new(name: &str, entries: &[Entry<'_>]) -> Self {
        let entries: Vec<Value> = entries
            .iter()
            .map(|entry| {
                let mut client = json!({"url": format!("https://127.0.0.1:{}{}", entry.port, entry.path)});
                if let Some(ca) = entry.ca {
                    client["caBundle"] = json!(base64(ca));
                }
                json!({"name": entry.name, "clientConfig": client, "sideEffects": "None",
                    "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
                    "failurePolicy": "Fail", "timeoutSeconds": 5, "reinvocationPolicy": "IfNeeded",
                    "matchPolicy": "Equivalent", "admissionReviewVersions": ["v1", "v1beta1"],
                    "namespaceSelector": {"matchLabels": {"hook": entry.hook}}})
            })
            .collect();
        apply(
            &json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name}, "webhooks": entries}),
        );
        Self(name.to_owned())
    }

    /// A configuration that another client created.
    pub(crate) fn existing(name: &str) -> Self {
        Self(name.to_owned())
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        let _there_or_not = try_kubectl(&["delete", "mutatingwebhookconfiguration", &self.0], "");
    }
}

pub(crate) fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// The CA bundle of an entry, as it is now.
pub(crate) fn bundle(configuration: &str, entry: usize) -> String {
    use base64::Engine as _;
    let arguments = [
        "get",
        "mutatingwebhookconfiguration",
        configuration,
        "-o",
        "json",
    ];
    let object = kubectl(&arguments, "").objects()[0].clone();
    let bundle = object["webhooks"][entry]["clientConfig"]["caBundle"]
        .as_str()
        .unwrap_or_default();
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(bundle)
        .unwrap();
    String::from_utf8(bytes).unwrap()
}

/// An injector that the server asks about pods of one namespace, which has the name of the hook.
pub(crate) struct Asked {
    pub(crate) injector: Injector,
    _hook: Hook,
}

impl Asked {
    pub(crate) fn new(name: &str, config: &str) -> Self {
        Self::with(name, place(config).start(&[]), "/inject")
    }

    pub(crate) fn with(name: &str, injector: Injector, path: &str) -> Self {
        namespace(name, name);
        let ca = of_run("ca.crt");
        let entry = format!("{name}.sidecar-injector.istio.io");
        let hook = Hook::new(
            name,
            &[Entry {
                name: &entry,
                port: injector.port,
                path,
                ca: Some(&ca),
                hook: name,
            }],
        );
        let this = Self {
            injector,
            _hook: hook,
        };
        // The server takes a moment to know it.
        until("the injector is asked", || {
            create(&pod(name, "first"), &["--dry-run=server"]);
            this.requests() > 0.0
        });
        this
    }

    pub(crate) fn requests(&self) -> f64 {
        self.injector
            .metric("sidecar_injection_requests_total")
            .unwrap()
    }

    /// Reviews that were answered with a patch, and without.
    pub(crate) fn answered(&self) -> (f64, f64) {
        let metric = |name| self.injector.metric(name).unwrap();
        (
            metric("sidecar_injection_success_total"),
            metric("sidecar_injection_skip_total"),
        )
    }
}

/// The containers' names.
pub(crate) fn names(pod: &Value, list: &str) -> Vec<String> {
    let list = pod["spec"][list].as_array().into_iter().flatten();
    list.map(|item| item["name"].as_str().unwrap().to_owned())
        .collect()
}
