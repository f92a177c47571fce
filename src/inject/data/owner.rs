//! The owner of a pod, by the pod's references and labels.

use serde_json::Value;

use crate::interface::{Origin, Request};
use crate::pod;

/// Kind, version and name of the workload. The name may be empty: a bare pod's is given by the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Owner {
    pub(crate) kind: String,
    pub(crate) api_version: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
}

impl Owner {
    pub(crate) fn of(pod: &Value, request: &Request, namespace: &str) -> Self {
        match &request.origin {
            // A bare pod in a manifest names its owner as one in the API server does.
            Origin::Manifest(outer) if outer.kind != "Pod" => Self {
                kind: outer.kind.clone(),
                api_version: outer.api_version.clone(),
                name: outer.name.clone(),
                namespace: if outer.namespace.is_empty() {
                    namespace.to_owned()
                } else {
                    outer.namespace.clone()
                },
            },
            Origin::Manifest(_) | Origin::Webhook => Self::of_pod(pod, namespace),
        }
    }

    fn of_pod(pod: &Value, namespace: &str) -> Self {
        let metadata = |key: &str| pod.get("metadata").and_then(|metadata| metadata.get(key));
        let text =
            |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let bare = Self {
            kind: "Pod".to_owned(),
            api_version: "v1".to_owned(),
            name: text(metadata("name")),
            namespace: namespace.to_owned(),
        };
        // As in Istio: only a generated name leads to the controller.
        if text(metadata("generateName")).is_empty() {
            return bare;
        }
        let references = metadata("ownerReferences")
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        let Some(controller) = references
            .iter()
            .find(|reference| reference.get("controller").and_then(Value::as_bool) == Some(true))
        else {
            return bare;
        };
        let direct = Self {
            kind: text(controller.get("kind")),
            api_version: text(controller.get("apiVersion")),
            name: text(controller.get("name")),
            namespace: namespace.to_owned(),
        };
        direct.behind(pod)
    }

    /// Returns the owner's owner, if a name or a label reveals it.
    fn behind(self, pod: &Value) -> Self {
        match self.kind.as_str() {
            "ReplicaSet" => {
                if let Some(hash) = pod::label(pod, "rollouts-pod-template-hash")
                    && let Some(name) = without(&self.name, hash)
                {
                    return Self {
                        kind: "Rollout".to_owned(),
                        api_version: "v1alpha1".to_owned(),
                        name,
                        ..self
                    };
                }
                if let Some(hash) = pod::label(pod, "pod-template-hash")
                    && let Some(name) = without(&self.name, hash)
                {
                    return Self {
                        kind: "Deployment".to_owned(),
                        name,
                        ..self
                    };
                }
                self
            }
            "ReplicationController" => match pod::label(pod, "deploymentconfig") {
                Some(name) => Self {
                    kind: "DeploymentConfig".to_owned(),
                    name: name.to_owned(),
                    ..self
                },
                None => self,
            },
            // A CronJob's Jobs end in the time: minutes since 1970, or seconds from older clusters.
            "Job" => match self.name.rsplit_once('-') {
                Some((name, digits))
                    if !name.is_empty()
                        && (8..=10).contains(&digits.len())
                        && digits.bytes().all(|digit| digit.is_ascii_digit()) =>
                {
                    Self {
                        kind: "CronJob".to_owned(),
                        api_version: "batch/v1".to_owned(),
                        name: name.to_owned(),
                        ..self
                    }
                }
                _ => self,
            },
            _ => self,
        }
    }
}

fn without(name: &str, hash: &str) -> Option<String> {
    if hash.is_empty() {
        return None;
    }
    name.strip_suffix(hash)?
        .strip_suffix('-')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table")]
    fn owners() {
        let pod = |kind: &str, version: &str, name: &str, labels: Value, generate: &str| {
            json!({"metadata": {"name": "n", "generateName": generate, "labels": labels, "ownerReferences": [
                {"kind": "Other", "apiVersion": "x/v1", "name": "no"}, {"kind": kind, "apiVersion": version, "name": name, "controller": true}]}})
        };
        let rows = [
            (json!({"metadata": {"name": "n"}}), ("Pod", "v1", "n")),
            (
                json!({"metadata": {"generateName": "n-"}}),
                ("Pod", "v1", ""),
            ),
            (json!({}), ("Pod", "v1", "")),
            (
                pod("StatefulSet", "apps/v1", "s", json!({}), ""),
                ("Pod", "v1", "n"),
            ),
            (
                pod("StatefulSet", "apps/v1", "s", json!({}), "s-"),
                ("StatefulSet", "apps/v1", "s"),
            ),
            (
                pod(
                    "ReplicaSet",
                    "apps/v1",
                    "web-abc",
                    json!({"pod-template-hash": "abc"}),
                    "w-",
                ),
                ("Deployment", "apps/v1", "web"),
            ),
            (
                pod(
                    "ReplicaSet",
                    "apps/v1",
                    "web-abd",
                    json!({"pod-template-hash": "abc"}),
                    "w-",
                ),
                ("ReplicaSet", "apps/v1", "web-abd"),
            ),
            (
                pod("ReplicaSet", "apps/v1", "web", json!({}), "w-"),
                ("ReplicaSet", "apps/v1", "web"),
            ),
            (
                pod(
                    "ReplicaSet",
                    "apps/v1",
                    "web-abc",
                    json!({"rollouts-pod-template-hash": "abc", "pod-template-hash": "abc"}),
                    "w-",
                ),
                ("Rollout", "v1alpha1", "web"),
            ),
            (
                pod(
                    "ReplicationController",
                    "v1",
                    "web-3",
                    json!({"deploymentconfig": "web"}),
                    "w-",
                ),
                ("DeploymentConfig", "v1", "web"),
            ),
            (
                pod("ReplicationController", "v1", "web-3", json!({}), "w-"),
                ("ReplicationController", "v1", "web-3"),
            ),
            (
                pod("Job", "batch/v1", "nightly-1589471520", json!({}), "w-"),
                ("CronJob", "batch/v1", "nightly"),
            ),
            (
                pod("Job", "batch/v1beta1", "nightly-26491192", json!({}), "w-"),
                ("CronJob", "batch/v1", "nightly"),
            ),
            (
                pod("Job", "batch/v1", "nightly-1234567", json!({}), "w-"),
                ("Job", "batch/v1", "nightly-1234567"),
            ),
            (
                pod("Job", "batch/v1", "nightly-12345678901", json!({}), "w-"),
                ("Job", "batch/v1", "nightly-12345678901"),
            ),
        ];
        for (pod, (kind, version, name)) in rows {
            let owner = Owner::of(&pod, &Request::default(), "ns");
            assert_eq!(
                (
                    owner.kind.as_str(),
                    owner.api_version.as_str(),
                    owner.name.as_str(),
                    owner.namespace.as_str()
                ),
                (kind, version, name, "ns"),
                "{pod}"
            );
        }
    }
}
