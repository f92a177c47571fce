//! What a proxy of an earlier injection is said to know: probes and, after a line `---`, metrics. Asked by the fuzzer, and by a test with its examples.

use inject::Configuration;
use serde_json::json;

use crate::injection;

thread_local! {
    static LOADED: Vec<Configuration> = injection::CONFIGURATIONS.map(injection::load).into();
}

pub(crate) fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (probers, metrics) = text.split_once("\n---\n").unwrap_or((&text, ""));
    let status =
        json!({"containers": ["istio-proxy"], "annotations": ["prometheus.io/path"]}).to_string();
    let pod = json!({"metadata": {"annotations": {"sidecar.istio.io/status": status, "prometheus.io/port": "15020"}},
        "spec": {"containers": [
            {"name": "a", "livenessProbe": {"httpGet": {"path": "/app-health/a/livez", "port": 15020}}, "readinessProbe": {"httpGet": {"path": "/app-health/a/readyz", "port": 15020}},
             "lifecycle": {"preStop": {"httpGet": {"path": "/app-lifecycle/a/prestopz", "port": 15020}}}},
            {"name": "istio-proxy", "env": [{"name": "ISTIO_KUBE_APP_PROBERS", "value": probers}, {"name": "ISTIO_PROMETHEUS_ANNOTATIONS", "value": metrics}]}]}});
    LOADED.with(|all| all.iter().for_each(|one| injection::check(one, &pod)));
}
