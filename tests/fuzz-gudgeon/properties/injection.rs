//! What must hold of every injection, for the properties beside this file.

use inject::{Configuration, NativeSidecars, Outcome, Parameters, Request, Sources};
use serde_json::Value;

/// A fragment and an overlay that use what an earlier injection left, and the built-in template.
pub(crate) const CONFIGURATIONS: [Option<&str>; 3] = [
    None,
    Some(
        "template: |\n  rewriteAppHTTPProbe: true\n  initContainers: [{name: istio-init, args: ['[[ toJSON .ObjectMeta.Labels ]]']}]\n  \
         containers: [{name: istio-proxy, args: [--statusPort, 15020], resources: {limits: {cpu: 1}}}]\n  volumes: [{name: istio-envoy}]\n",
    ),
    Some(
        "rewriteAppHTTPProbe: true\ntemplates:\n  sidecar: |\n    metadata: {labels: {a: b}}\n    spec:\n      \
         containers: [{name: istio-proxy, image: p}, {name: a, env: [{name: X, value: y}]}]\n      volumes: [{name: v, emptyDir: {}}]\n      imagePullSecrets: [{name: s}]\n",
    ),
];

pub(crate) fn load(config: Option<&str>) -> Configuration {
    let sources = Sources {
        config,
        ..Sources::default()
    };
    let loaded = Configuration::load(sources, Parameters::default());
    loaded.expect("these are valid").0
}

pub(crate) fn request(native: NativeSidecars) -> Request {
    Request {
        namespace: "ns".to_owned(),
        proxy_envs: vec![("cluster".to_owned(), "c".to_owned())],
        native,
        ..Request::default()
    }
}

/// The patch applies, to what was promised, and nothing in it is null; the same again, byte for byte.
pub(crate) fn check(configuration: &Configuration, pod: &Value) {
    for native in [NativeSidecars::Off, NativeSidecars::On] {
        let request = request(native);
        let outcome = configuration.inject(&request, pod);
        assert!(
            outcome == configuration.inject(&request, pod),
            "equal input, other output"
        );
        let Outcome::Injected(injected) = outcome else {
            continue;
        };
        let patch: Value = serde_json::from_slice(&injected.patch).expect("a patch is JSON");
        for operation in patch.as_array().expect("a patch is a list") {
            assert!(operation.get("value").is_none_or(|value| !value.is_null()));
        }
        let patch: json_patch::Patch = serde_json::from_value(patch).expect("it is a patch");
        assert_eq!(patch.len(), injected.operations);
        let mut applied = pod.clone();
        json_patch::patch(&mut applied, &patch).expect("a patch applies");
        assert!(
            stripped(&applied) == stripped(&injected.pod),
            "{applied}\n{}",
            injected.pod
        );
        for warning in &injected.warnings {
            assert!(warning.len() <= 256);
        }
        drop(configuration.inject(&request, &applied));
    }
}

/// A null is as good as absent.
fn stripped(value: &Value) -> Value {
    match value {
        Value::Object(entries) => {
            let kept = entries.iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                kept.map(|(key, value)| (key.clone(), stripped(value)))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(stripped).collect()),
        other => other.clone(),
    }
}
