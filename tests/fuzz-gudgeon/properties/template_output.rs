//! What must hold of whatever a template prints. Asked by the fuzzer, and by a test with its examples.

use inject::{Configuration, Parameters, Sources};
use serde_json::json;

use crate::injection;

pub(crate) fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let delimiters = ["<%%%<", ">%%%>"];
    let pod = json!({"metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}}, "spec": {"containers": [{"name": "a", "livenessProbe": {"httpGet": {"port": 1}}}], "volumes": [{"name": "v"}]}});
    for config in [
        json!({"template": text, "delimiters": delimiters}),
        json!({"templates": {"sidecar": text}, "delimiters": delimiters}),
    ] {
        let config = config.to_string();
        let sources = Sources {
            config: Some(&config),
            ..Sources::default()
        };
        if let Ok((configuration, _)) = Configuration::load(sources, Parameters::default()) {
            injection::check(&configuration, &pod);
            injection::check(&configuration, &json!({}));
        }
    }
}
