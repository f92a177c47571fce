//! What must hold of values, whatever their bytes are. Asked by the fuzzer, and by a test with its examples.

use inject::{Configuration, Parameters, SourceKind, Sources};
use serde_json::json;

use crate::injection;

/// A template that looks into the values in every way.
const CONFIG: &str = "templates: {sidecar: \"spec: {containers: [{name: istio-proxy, image: {{ .ProxyImage | toJson }}, \
    args: [{{ .Values | toJson | toJson }}, {{ toYaml .Values | toJson }}, {{ ((.Values.global).proxy).image | toString | toJson }}]}]}\"}";

pub(crate) fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let sources = Sources {
        config: Some(CONFIG),
        values: Some(&text),
        mesh: None,
    };
    match Configuration::load(sources, Parameters::default()) {
        Ok((configuration, _)) => injection::check(
            &configuration,
            &json!({"metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}}, "spec": {"containers": [{"name": "a", "livenessProbe": {"httpGet": {"port": 1}}}], "volumes": [{"name": "v"}]}}),
        ),
        Err(broken) => assert!(broken.source == SourceKind::Values && !broken.cause.is_empty()),
    }
}
