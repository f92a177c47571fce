//! Containers that a template makes beside the proxy: `istio-init` has the pod's network in its hands, `enable-core-dump` the
//! node. A container of the user that bears the name of one does not get them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::pod::{self, PROXY, PodList, SERVICE_ACCOUNT};
use crate::warnings::Warnings;

/// Settings that are the template's in each of them.
const TEMPLATES: [&str; 5] = [
    "image",
    "command",
    "args",
    "securityContext",
    "volumeMounts",
];

/// Settings that stay the user's beside rights. All others decide which programs run there, and with which files: an exec of a probe or
/// hook, a variable that a shell or the loader reads, a device, a restart policy that makes hooks possible.
const HARMLESS: [&str; 4] = ["name", "resources", "imagePullPolicy", "resizePolicy"];

/// Containers that have rights wherever there is one.
const RIGHTFUL: [&str; 3] = ["istio-init", "istio-validation", "enable-core-dump"];

/// The degree to which a container belongs to the template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protection {
    /// The template chooses the image that runs before the application, and grants it no privileges.
    Image,
    /// The container has privileges.
    Rights,
}

/// Containers of templates, by name. An application's container, to which a template only adds fields, is the user's.
#[derive(Debug, Default)]
pub(crate) struct ProtectedContainers(BTreeMap<String, Protection>);

impl ProtectedContainers {
    pub(crate) fn of(layers: &[Value]) -> Self {
        let mut protected = BTreeMap::new();
        for list in PodList::OF_CONTAINERS {
            // The settings of all templates for a container count together.
            let mut settings: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
            for container in layers.iter().flat_map(|layer| pod::list(layer, list)) {
                let (image, rights) = settings.entry(pod::name(container)).or_default();
                *image |= container.get("image").is_some_and(|image| !image.is_null());
                *rights |= has_rights(container);
            }
            for (name, (image, rights)) in settings.into_iter().filter(|(name, _)| *name != PROXY) {
                let protection = match (image, rights) {
                    _ if RIGHTFUL.contains(&name) => Protection::Rights,
                    (true, true) => Protection::Rights,
                    (true, false) if list == PodList::InitContainers => Protection::Image,
                    _ => continue,
                };
                let strongest = protected.entry(name.to_owned()).or_insert(protection);
                // A name may be in both lists: the stronger protection counts.
                *strongest = protection.max(*strongest);
            }
        }
        Self(protected)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Protection> {
        self.0.get(name).copied()
    }

    /// Removes the template's fields from a user's container; returns the names of the removed ones.
    pub(crate) fn take(&self, container: &mut Value) -> Vec<String> {
        let Some(protection) = self.get(pod::name(container)) else {
            return Vec::new();
        };
        let mut gone = Vec::new();
        if let Some(fields) = container.as_object_mut() {
            fields.retain(|key, value| {
                let stays = protection.leaves(key);
                if !stays && !value.is_null() {
                    gone.push(key.clone());
                }
                stays
            });
        }
        gone
    }

    /// Removes the template's fields from all containers of the pod, as [`Self::take`] does; adds a warning for each that lost one.
    pub(crate) fn take_all(&self, pod: &mut Value, warnings: &mut Warnings) {
        for list in PodList::OF_CONTAINERS {
            for container in pod::existing_list_mut(pod, list).into_iter().flatten() {
                let gone = self.take(container);
                if !gone.is_empty() {
                    warnings.push(|| {
                        format!(
                            "container {:?} is the template's: the pod's {} is not used",
                            pod::name(container),
                            gone.join(", ")
                        )
                    });
                }
            }
        }
    }
}

impl Protection {
    fn leaves(self, key: &str) -> bool {
        match self {
            Self::Image => !TEMPLATES.contains(&key),
            Self::Rights => HARMLESS.contains(&key),
        }
    }
}

/// Returns true if a template grants a container privileges: capabilities, another user, files, secrets.
fn has_rights(container: &Value) -> bool {
    let is_filled = |value: &Value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    let files = ["volumeMounts", "volumeDevices", "envFrom"];
    let mut files = files.iter().filter_map(|key| container.get(*key));
    let variables = container.get("env").and_then(Value::as_array);
    let mut variables = variables.into_iter().flatten();
    files.any(is_filled)
        || variables.any(|variable| variable.get("valueFrom").is_some())
        || pod::object(container, "securityContext").is_some_and(is_privileged)
}

/// Returns true if a setting grants a privilege; a setting that only restricts, or is empty, does not.
fn is_privileged(context: &Map<String, Value>) -> bool {
    context.iter().any(|(key, value)| match key.as_str() {
        "privileged" | "allowPrivilegeEscalation" => {
            value != &Value::Bool(false) && !value.is_null()
        }
        "runAsUser" | "runAsGroup" => value.as_i64() == Some(0),
        "capabilities" => value
            .get("add")
            .and_then(Value::as_array)
            .is_some_and(|add| !add.is_empty()),
        "readOnlyRootFilesystem" | "runAsNonRoot" | "seccompProfile" => false,
        _ => !value.is_null(),
    })
}

/// Returns true if `existing` runs the same programs as `made` and no others, defaults of API servers apart. An element of an
/// earlier pass is known by an annotation that any author can write.
pub(crate) fn runs_the_same(
    existing: &Value,
    made: &Value,
    is_same: impl Fn(&str, &Value, &Value) -> bool,
) -> bool {
    let Some(fields) = existing.as_object() else {
        return false;
    };
    let null = Value::Null;
    fields.iter().all(|(key, value)| {
        let wanted = made.get(key).unwrap_or(&null);
        match key.as_str() {
            // Servers fill these in, or they run nothing; their values were compared already.
            "terminationMessagePath" | "terminationMessagePolicy" | "ports" => true,
            _ if HARMLESS.contains(&key.as_str()) => true,
            "livenessProbe" | "readinessProbe" | "startupProbe" => {
                value.is_null() || !wanted.is_null()
            }
            "lifecycle" => all_in(value, wanted),
            "env" => elements_in(value, wanted, "name", None),
            "volumeMounts" => elements_in(value, wanted, "mountPath", Some(SERVICE_ACCOUNT)),
            _ => is_same(key, wanted, value),
        }
    })
}

fn all_in(existing: &Value, wanted: &Value) -> bool {
    let fields = existing.as_object().into_iter().flatten();
    let mut fields = fields.filter(|(_, value)| !value.is_null());
    fields.all(|(key, _)| wanted.get(key).is_some_and(|wanted| !wanted.is_null()))
}

fn elements_in(existing: &Value, wanted: &Value, key: &str, beside: Option<&str>) -> bool {
    let known = wanted.as_array().into_iter().flatten();
    let known: std::collections::HashSet<_> = known.map(|one| pod::identity(one, key)).collect();
    let elements = existing.as_array().into_iter().flatten();
    let mut elements = elements.map(|one| pod::identity(one, key));
    // Kubernetes uses the last of two elements with one name, and only one was compared.
    let mut seen = std::collections::HashSet::new();
    elements.all(|one| {
        let is_known = Some(one.as_str()) == beside || known.contains(&one);
        is_known && seen.insert(one)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn containers_with_privileges_are_protected() {
        let protection = |container: Value| {
            let layer = json!({"spec": {"initContainers": [container]}});
            ProtectedContainers::of(&[layer]).get("a")
        };
        let rows = [
            (json!({"name": "a"}), None),
            (
                json!({"name": "a", "env": [{"name": "X", "valueFrom": {}}]}),
                None,
            ),
            (json!({"name": "a", "image": "i"}), Some(Protection::Image)),
            (
                json!({"name": "a", "image": "i", "securityContext": {"privileged": false, "runAsUser": 1337, "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true, "runAsNonRoot": true, "seccompProfile": {}}}),
                Some(Protection::Image),
            ),
            (
                json!({"name": "a", "image": "i", "securityContext": {"privileged": true}}),
                Some(Protection::Rights),
            ),
            (
                json!({"name": "a", "image": "i", "securityContext": {"runAsUser": 0}}),
                Some(Protection::Rights),
            ),
            (
                json!({"name": "a", "image": "i", "securityContext": {"capabilities": {"add": ["NET_RAW"]}}}),
                Some(Protection::Rights),
            ),
            (
                json!({"name": "a", "image": "i", "securityContext": {"procMount": "Unmasked"}}),
                Some(Protection::Rights),
            ),
            (
                json!({"name": "a", "image": "i", "volumeMounts": [{"mountPath": "/x"}]}),
                Some(Protection::Rights),
            ),
            (
                json!({"name": "a", "image": "i", "env": [{"name": "X", "valueFrom": {}}]}),
                Some(Protection::Rights),
            ),
        ];
        for (container, wanted) in rows {
            assert_eq!(protection(container.clone()), wanted, "{container}");
        }
        let layer = json!({"spec": {"containers": [{"name": "a", "image": "i"}]}});
        assert_eq!(ProtectedContainers::of(&[layer]).get("a"), None);
        for name in RIGHTFUL {
            let layer = json!({"spec": {"containers": [{"name": name}]}});
            assert_eq!(
                ProtectedContainers::of(&[layer]).get(name),
                Some(Protection::Rights)
            );
        }
        let layer = json!({"spec": {"containers": [{"name": PROXY, "image": "i", "securityContext": {"privileged": true}}]}});
        assert_eq!(ProtectedContainers::of(&[layer]).get(PROXY), None);
    }

    #[test]
    fn fields_that_a_template_omits_stay_the_users() {
        let user = json!({"name": "a", "image": "i", "command": ["c"], "args": ["b"], "securityContext": {}, "volumeMounts": [], "env": [],
            "lifecycle": {}, "resources": {"limits": {"cpu": "1"}}, "future": null});
        for (template, stays) in [
            (
                json!({"name": "a", "image": "x"}),
                json!({"name": "a", "env": [], "lifecycle": {}, "resources": {"limits": {"cpu": "1"}}, "future": null}),
            ),
            (
                json!({"name": "a", "image": "x", "securityContext": {"privileged": true}}),
                json!({"name": "a", "resources": {"limits": {"cpu": "1"}}}),
            ),
            (json!({"name": "b", "image": "x"}), user.clone()),
        ] {
            let protected =
                ProtectedContainers::of(&[json!({"spec": {"initContainers": [template]}})]);
            let mut pod = json!({"spec": {"initContainers": [user.clone()]}});
            let mut warnings = Warnings::default();
            protected.take_all(&mut pod, &mut warnings);
            assert_eq!(pod["spec"]["initContainers"][0], stays);
            let warnings = warnings.into_vec();
            assert_eq!(warnings.is_empty(), stays == user, "{warnings:?}");
        }
    }
}
