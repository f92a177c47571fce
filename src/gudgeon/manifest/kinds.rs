//! Finds the pod in an object, by its kind.

use inject::OuterObject;
use serde_json::{Map, Value};

/// The place of the pod in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodLocation {
    Nothing,
    /// A list, whose items are searched.
    List,
    /// The keys that lead to metadata and spec of the pod.
    Template(&'static [&'static str]),
}

const APPS: &[&str] = &[
    "apps/v1",
    "apps/v1beta2",
    "apps/v1beta1",
    "extensions/v1beta1",
];
const BATCH: &[&str] = &["batch/v1", "batch/v1beta1", "batch/v2alpha1"];
const OPENSHIFT: &[&str] = &["apps.openshift.io/v1", "v1"];
const CORE: &[&str] = &["v1"];

const TEMPLATE: &[&str] = &["spec", "template"];
const JOB_TEMPLATE: &[&str] = &["spec", "jobTemplate", "spec", "template"];

/// Kind, its versions, and where the pod is.
const KINDS: [(&str, &[&str], &[&str]); 9] = [
    ("Pod", CORE, &[]),
    ("ReplicationController", CORE, TEMPLATE),
    ("Deployment", APPS, TEMPLATE),
    ("DaemonSet", APPS, TEMPLATE),
    ("ReplicaSet", APPS, TEMPLATE),
    ("StatefulSet", APPS, TEMPLATE),
    ("Job", BATCH, TEMPLATE),
    ("CronJob", BATCH, JOB_TEMPLATE),
    ("DeploymentConfig", OPENSHIFT, TEMPLATE),
];

/// Finds the pod of an object.
pub(super) fn find(object: &Value) -> PodLocation {
    let (kind, version) = (text(object, "kind"), text(object, "apiVersion"));
    if kind == "List" && version == "v1" {
        return PodLocation::List;
    }
    KINDS
        .iter()
        .find(|(name, versions, _)| *name == kind && versions.contains(&version))
        .map_or(PodLocation::Nothing, |(_, _, path)| {
            PodLocation::Template(path)
        })
}

/// The object at the end of the path.
///
/// # Errors
/// The part of the path that is missing.
pub(super) fn template<'a>(
    object: &'a mut Value,
    path: &'static [&'static str],
) -> Result<&'a mut Map<String, Value>, String> {
    let mut here = object;
    for key in path {
        here = here
            .get_mut(key)
            .filter(|value| value.is_object())
            .ok_or_else(|| format!("cannot find {}", path.join(".")))?;
    }
    here.as_object_mut()
        .ok_or_else(|| "cannot find an object".to_owned())
}

/// `Deployment ns/name`, for messages.
pub(super) fn named(object: &Value) -> String {
    let kind = text(object, "kind");
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    let generated = text(metadata, "generateName");
    let name = match text(metadata, "name") {
        "" if !generated.is_empty() => format!("{generated}*****"),
        name => name.to_owned(),
    };
    match text(metadata, "namespace") {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

/// The outer object, for the template.
pub(super) fn outer(object: &Value) -> OuterObject {
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    let map = |key| {
        let map = metadata.get(key).and_then(Value::as_object);
        map.cloned().unwrap_or_default()
    };
    OuterObject {
        api_version: text(object, "apiVersion").to_owned(),
        kind: text(object, "kind").to_owned(),
        name: text(metadata, "name").to_owned(),
        namespace: text(metadata, "namespace").to_owned(),
        labels: map("labels"),
        annotations: map("annotations"),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_in_every_version() {
        let mut known = 0;
        for (kind, versions, path) in KINDS {
            for version in versions {
                assert_eq!(
                    find(&json!({"kind": kind, "apiVersion": version})),
                    PodLocation::Template(path)
                );
                known += 1;
            }
        }
        assert_eq!(known, 26);
        assert_eq!(
            find(&json!({"kind": "List", "apiVersion": "v1"})),
            PodLocation::List
        );
        for (kind, version) in [
            ("Service", "v1"),
            ("Deployment", "v1"),
            ("Pod", "v2"),
            ("Job", "apps/v1"),
            ("ReplicationController", "apps/v1"),
            ("", ""),
        ] {
            assert_eq!(
                find(&json!({"kind": kind, "apiVersion": version})),
                PodLocation::Nothing,
                "{kind} {version}"
            );
        }
        assert_eq!(find(&json!({"kind": 7})), PodLocation::Nothing);
    }

    #[test]
    fn a_missing_template_is_named() {
        let mut object = json!({"kind": "CronJob", "metadata": {"name": "c", "namespace": "n"}, "spec": {"jobTemplate": {}}});
        assert_eq!(
            template(&mut object, JOB_TEMPLATE).unwrap_err(),
            "cannot find spec.jobTemplate.spec.template"
        );
        assert_eq!(named(&object), "CronJob n/c");
    }
}
