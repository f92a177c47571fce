//! The server that `build/kube up` started, kubectl, and reconcilers.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::Value;
use sources::kubernetes::{Access, Cluster, WatchTiming};
use sources::reconcile::{
    CaBundle, DesiredState, OWN_CA_NAME, ReconcilerHandle, WebhookReconciler,
};
use tokio::task::JoinHandle;

use crate::recording::script;

/// The folder of the run.
pub(crate) fn run() -> PathBuf {
    std::env::var_os("KUBE_RUN")
        .expect("run by build/kube-test")
        .into()
}

pub(crate) fn repository() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Runs kubectl; returns its output, or its error.
pub(crate) fn try_kubectl(arguments: &[&str], stdin: &str) -> Result<String, String> {
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
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8(output.stderr).unwrap())
    }
}

pub(crate) fn kubectl(arguments: &[&str]) -> String {
    try_kubectl(arguments, "").unwrap()
}

pub(crate) fn apply(object: &Value) {
    try_kubectl(&["apply", "-f", "-"], &object.to_string()).unwrap();
}

pub(crate) fn configuration(name: &str) -> Value {
    let text = kubectl(&["get", "mutatingwebhookconfiguration", name, "-o", "json"]);
    serde_json::from_str(&text).unwrap()
}

pub(crate) fn version(name: &str) -> String {
    configuration(name)["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// The bundle of an entry, as it is.
pub(crate) fn bundle(name: &str, entry: usize) -> String {
    let configuration = configuration(name);
    let bundle = configuration["webhooks"][entry]["clientConfig"]["caBundle"].clone();
    if bundle.is_null() {
        return String::new();
    }
    let bytes: k8s_openapi::ByteString = serde_json::from_value(bundle).unwrap();
    String::from_utf8(bytes.0).unwrap()
}

/// Two entries of ours, and one between them that is not.
pub(crate) fn webhooks(name: &str) -> Value {
    let entries = [
        "a.sidecar-injector.istio.io",
        "validation.example.com",
        "sidecar-injector.istio.io",
    ];
    script::webhooks(name, "cluster-test", &entries)
}

/// Removed at the end, so that tests do not meet.
pub(crate) struct TemporaryConfiguration(pub(crate) &'static str);

impl TemporaryConfiguration {
    pub(crate) fn new(name: &'static str) -> Self {
        apply(&webhooks(name));
        Self(name)
    }
}

impl Drop for TemporaryConfiguration {
    fn drop(&mut self) {
        let _there_or_not = try_kubectl(&["delete", "mutatingwebhookconfiguration", self.0], "");
    }
}

pub(crate) async fn open(kubeconfig: PathBuf) -> Cluster {
    let access = Access::Kubeconfig {
        file: Some(kubeconfig),
        context: None,
    };
    Cluster::open(&access).await.unwrap()
}

pub(crate) async fn admin() -> Cluster {
    open(run().join("kubeconfig")).await
}

/// Ended when it is dropped.
pub(crate) struct RunningReconciler {
    task: JoinHandle<()>,
    pub(crate) handle: ReconcilerHandle,
}

impl Drop for RunningReconciler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn keep(cluster: Cluster, configuration: &str, bundle: CaBundle) -> RunningReconciler {
    let order = DesiredState {
        configurations: vec![configuration.to_owned()],
        entry: "sidecar-injector.istio.io".to_owned(),
    };
    let (reconciler, handle) = WebhookReconciler::new(order, WatchTiming::default());
    handle.set_bundle(bundle);
    RunningReconciler {
        task: tokio::spawn(reconciler.run(cluster)),
        handle,
    }
}

/// A CA as a replica makes it.
pub(crate) fn ca(name: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().pem()
}

pub(crate) fn own() -> CaBundle {
    CaBundle::Own(ca(OWN_CA_NAME).into_bytes())
}

pub(crate) async fn until(what: &str, mut came: impl FnMut() -> bool) {
    for _ in 0..600 {
        if came() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what}: not within a minute");
}

/// Returns the shipped manifest for this server, which lacks policy/v1 (new in 1.21).
pub(crate) fn manifest() -> String {
    let file = repository().join("build/kubernetes/injector.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    assert_eq!(text.matches("apiVersion: policy/v1\n").count(), 1);
    text.replace("apiVersion: policy/v1\n", "apiVersion: policy/v1beta1\n")
}
