//! What must hold of an injection's configuration, whatever its bytes are. Asked by the fuzzer, and by a test with its examples.

use inject::{Configuration, Parameters, SourceKind, Sources};
use serde_json::json;

use crate::injection;

pub(crate) fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let sources = Sources {
        config: Some(&text),
        ..Sources::default()
    };
    match Configuration::load(sources, Parameters::default()) {
        Ok((configuration, warnings)) => {
            // Unknown keys, templates that pods cannot choose, an agent that is guessed.
            assert!(warnings.len() <= 3);
            assert!(
                configuration
                    .describe()
                    .templates
                    .iter()
                    .all(|(_, version)| version.len() == 64)
            );
            injection::check(
                &configuration,
                &json!({"metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}}, "spec": {"containers": [{"name": "a", "livenessProbe": {"httpGet": {"port": 1}}}], "volumes": [{"name": "v"}]}}),
            );
        }
        Err(broken) => assert!(broken.source == SourceKind::Config && !broken.cause.is_empty()),
    }
}
