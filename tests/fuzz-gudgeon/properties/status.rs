//! What an earlier injection is said to have left: status and overrides, a line `---` between them. Asked by the fuzzer, and by a test with its examples.

use inject::Configuration;
use serde_json::json;

use crate::injection;

thread_local! {
    static LOADED: Vec<Configuration> = injection::CONFIGURATIONS.map(injection::load).into();
}

pub(crate) fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (status, overrides) = text.split_once("\n---\n").unwrap_or((&text, ""));
    let pod = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"sidecar.istio.io/status": status, "proxy.istio.io/overrides": overrides}},
        "spec": {"initContainers": [{"name": "istio-init"}], "containers": [{"name": "a"}, {"name": "istio-proxy"}], "volumes": [{"name": "istio-envoy"}], "imagePullSecrets": [{"name": "s"}]}});
    LOADED.with(|all| all.iter().for_each(|one| injection::check(one, &pod)));
}
