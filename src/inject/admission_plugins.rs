//! Settings that the API server's admission plugins give to the containers of an injection.
//!
//! The API server runs its plugins again after the webhooks, and then calls the webhooks again, but it does not run the plugins a
//! third time before it judges the pod. A second pass that took these settings away would have the pod refused.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::pod::{self, PodList, SERVICE_ACCOUNT};

/// The annotation in which `LimitRanger` lists the defaults that it has set.
const LIMIT_RANGER: &str = "kubernetes.io/limit-ranger";

/// This text begins that list.
const LISTS: &str = "LimitRanger plugin set: ";

/// The facts of a pod by which settings of plugins are told from those of an earlier injection.
pub(crate) struct AdmissionPlugins<'a> {
    limit_ranger: &'a str,
    volumes: HashSet<String>,
}

impl<'a> AdmissionPlugins<'a> {
    /// `sent` is the pod as the API server sends it, `wanted` as it shall be.
    pub(crate) fn of(sent: &'a Value, wanted: &Value) -> Self {
        let listed = pod::annotation(sent, LIMIT_RANGER).and_then(|text| text.strip_prefix(LISTS));
        let volumes = pod::list(wanted, PodList::Volumes).iter();
        Self {
            limit_ranger: listed.unwrap_or_default(),
            volumes: volumes.map(|volume| pod::name(volume).to_owned()).collect(),
        }
    }

    /// Keeps what plugins have set in `existing`, a container of an earlier pass, in `made`, which takes its place.
    pub(crate) fn keep(&self, existing: &Value, made: &mut Value) {
        let Value::Object(made) = made else {
            return;
        };
        keep_pull_policy(existing, made);
        keep_dropped_capabilities(existing, made);
        self.keep_account(existing, made);
        self.keep_limits(existing, made);
    }

    /// `ServiceAccount` mounts the account where a container has no mount for it.
    fn keep_account(&self, existing: &Value, made: &mut Map<String, Value>) {
        let is_of_account = |mount: &&Value| {
            mount.get("mountPath").and_then(Value::as_str) == Some(SERVICE_ACCOUNT)
        };
        let mounts = existing.get("volumeMounts").and_then(Value::as_array);
        let mount = mounts.and_then(|mounts| mounts.iter().find(is_of_account));
        let Some(mount) = mount.filter(|mount| self.volumes.contains(pod::name(mount))) else {
            return;
        };
        let mounts = made.entry("volumeMounts").or_insert_with(|| json!([]));
        if let Some(mounts) = mounts.as_array_mut()
            && !mounts.iter().any(|mount| is_of_account(&mount))
        {
            mounts.push(mount.clone());
        }
    }

    /// `LimitRanger` sets the defaults of the namespace, and refuses a container without a limit where there is a maximum.
    fn keep_limits(&self, existing: &Value, made: &mut Map<String, Value>) {
        let name = pod::name(existing);
        for entry in self.limit_ranger.split("; ") {
            let Some((names, list)) = set_for(entry, name) else {
                continue;
            };
            for resource in names.split(", ") {
                let quantity = existing
                    .get("resources")
                    .and_then(|resources| resources.get(list)?.get(resource));
                let Some(quantity) = quantity else {
                    continue;
                };
                let resources = made.entry("resources").or_insert_with(|| json!({}));
                if let Some(quantities) = pod::object_mut(resources, list) {
                    quantities
                        .entry(resource)
                        .or_insert_with(|| quantity.clone());
                }
            }
        }
    }
}

/// Returns the resources' names of an entry such as `cpu, memory limit for init container istio-init`, and the list that has them, if
/// the entry is of this container.
fn set_for<'t>(entry: &'t str, name: &str) -> Option<(&'t str, &'static str)> {
    let entry = entry.strip_suffix(name)?;
    let entry = entry
        .strip_suffix(" for container ")
        .or_else(|| entry.strip_suffix(" for init container "))?;
    let (names, kind) = entry.rsplit_once(' ')?;
    match kind {
        "limit" => Some((names, "limits")),
        "request" => Some((names, "requests")),
        _ => None,
    }
}

/// `AlwaysPullImages` sets the policy, and refuses any other.
fn keep_pull_policy(existing: &Value, made: &mut Map<String, Value>) {
    let always = json!("Always");
    if existing.get("imagePullPolicy") == Some(&always) {
        made.insert("imagePullPolicy".to_owned(), always);
    }
}

/// The plugins of security policies (OpenShift's `SecurityContextConstraint`, `PodSecurityPolicy` before Kubernetes 1.25) drop
/// capabilities beside those of the container, and refuse a container that has these.
fn keep_dropped_capabilities(existing: &Value, made: &mut Map<String, Value>) {
    let dropped = |container: &Value| {
        let capabilities = container.get("securityContext")?.get("capabilities")?;
        capabilities.get("drop")?.as_array().cloned()
    };
    let Some(stored) = dropped(existing) else {
        return;
    };
    let wanted = made
        .get_mut("securityContext")
        .and_then(|context| context.get_mut("capabilities")?.get_mut("drop"));
    if let Some(Value::Array(wanted)) = wanted
        && wanted.iter().all(|capability| stored.contains(capability))
    {
        *wanted = stored;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A container of an earlier pass, the same as it is made anew, and as it is then with the settings of plugins.
    type Case = (Value, Value, Value);

    fn kept(limit_ranger: &str, (existing, made, wanted): Case) {
        let sent = json!({"metadata": {"annotations": {LIMIT_RANGER: limit_ranger}}});
        let pod = json!({"spec": {"volumes": [{"name": "kube-api-access"}]}});
        let mut found = made.clone();
        AdmissionPlugins::of(&sent, &pod).keep(&existing, &mut found);
        assert_eq!(found, wanted, "{existing}");
    }

    #[test]
    fn pull_policies_and_accounts_are_kept() {
        let mount = |name: &str| json!({"name": name, "mountPath": SERVICE_ACCOUNT});
        let (own, other) = (
            mount("kube-api-access"),
            json!({"name": "x", "mountPath": "/x"}),
        );
        for case in [
            (
                json!({"imagePullPolicy": "Always"}),
                json!({"imagePullPolicy": "IfNotPresent"}),
                json!({"imagePullPolicy": "Always"}),
            ),
            (
                json!({"imagePullPolicy": "Always"}),
                json!({}),
                json!({"imagePullPolicy": "Always"}),
            ),
            (
                json!({"imagePullPolicy": "IfNotPresent"}),
                json!({"imagePullPolicy": "Never"}),
                json!({"imagePullPolicy": "Never"}),
            ),
            (
                json!({"volumeMounts": [other, own]}),
                json!({}),
                json!({"volumeMounts": [own]}),
            ),
            (
                json!({"volumeMounts": [own]}),
                json!({"volumeMounts": [other]}),
                json!({"volumeMounts": [other, own]}),
            ),
            (
                json!({"volumeMounts": [own]}),
                json!({"volumeMounts": [mount("y")]}),
                json!({"volumeMounts": [mount("y")]}),
            ),
            // Without its volume the mount would be refused.
            (
                json!({"volumeMounts": [mount("gone")]}),
                json!({}),
                json!({}),
            ),
        ] {
            kept("", case);
        }
    }

    #[test]
    fn dropped_capabilities_are_kept() {
        let drop = |drop: &[&str]| json!({"securityContext": {"capabilities": {"drop": drop}}});
        for (existing, made, wanted) in [
            (&["ALL", "KILL"][..], &["ALL"][..], &["ALL", "KILL"][..]),
            (&["KILL"], &["ALL"], &["ALL"]),
        ] {
            kept("", (drop(existing), drop(made), drop(wanted)));
        }
        kept("", (drop(&["ALL"]), json!({}), json!({})));
    }

    #[test]
    fn the_defaults_of_a_limit_range_are_kept() {
        let resources = |resources: Value| json!({"name": "istio-proxy", "resources": resources});
        let existing = resources(
            json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "10m", "memory": "9Mi"}}),
        );
        let made = resources(json!({"requests": {"cpu": "20m"}}));
        let both = "LimitRanger plugin set: memory request for container istio-proxy; cpu, memory limit for container istio-proxy";
        for (limit_ranger, wanted) in [
            (
                both,
                json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "20m", "memory": "9Mi"}}),
            ),
            (
                "LimitRanger plugin set: cpu, memory limit for init container istio-proxy",
                json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "20m"}}),
            ),
            (
                "LimitRanger plugin set: cpu request for container istio-proxy",
                json!({"requests": {"cpu": "20m"}}),
            ),
            (
                "LimitRanger plugin set: cpu limit for container other-istio-proxy; cpu limit",
                json!({"requests": {"cpu": "20m"}}),
            ),
            ("", json!({"requests": {"cpu": "20m"}})),
        ] {
            kept(
                limit_ranger,
                (existing.clone(), made.clone(), resources(wanted)),
            );
        }
    }
}
