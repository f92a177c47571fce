//! A pod as JSON: how its parts are reached, and which lists have keys.

use serde_json::{Map, Value};

/// The lists that hold containers.
pub(crate) const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// The lists of a pod that an injection adds to, in the order in which they are patched.
pub const LISTS: [&str; 4] = [
    "initContainers",
    "containers",
    "volumes",
    "imagePullSecrets",
];

/// Returns the merge key of a list, if it has one.
#[must_use]
pub fn merge_key(list: &str) -> Option<&'static str> {
    match list {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "imagePullSecrets"
        | "env" => Some("name"),
        "ports" => Some("containerPort"),
        "volumeMounts" => Some("mountPath"),
        "volumeDevices" => Some("devicePath"),
        "hostAliases" => Some("ip"),
        _ => None,
    }
}

/// The identity of an element in its list: the text of its key's value.
#[must_use]
pub fn identity(element: &Value, key: &str) -> String {
    match element.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => format!("={other}"),
        None => String::new(),
    }
}

/// Returns the object at `key`; null and other types are no object.
#[must_use]
pub fn object<'a>(value: &'a Value, key: &str) -> Option<&'a Map<String, Value>> {
    value.get(key).and_then(Value::as_object)
}

/// Returns the object at `key`; creates it if it is missing.
pub fn object_mut<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    let entry = value.as_object_mut()?.entry(key).or_insert(Value::Null);
    if entry.is_null() {
        *entry = Value::Object(Map::new());
    }
    entry.as_object_mut()
}

/// The elements of a list of the spec.
#[must_use]
pub fn list<'a>(pod: &'a Value, name: &str) -> &'a [Value] {
    pod.get("spec")
        .and_then(|spec| spec.get(name))
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Returns a list of the spec; creates it if it is missing.
pub fn list_mut<'a>(pod: &'a mut Value, name: &str) -> Option<&'a mut Vec<Value>> {
    let entry = object_mut(pod, "spec")?.entry(name).or_insert(Value::Null);
    if entry.is_null() {
        *entry = Value::Array(Vec::new());
    }
    entry.as_array_mut()
}

/// A list of the spec where there is one.
pub fn existing_list_mut<'a>(pod: &'a mut Value, name: &str) -> Option<&'a mut Vec<Value>> {
    pod.get_mut("spec")?.get_mut(name)?.as_array_mut()
}

/// The name of an element.
#[must_use]
pub fn name(element: &Value) -> &str {
    element
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[must_use]
pub fn annotation<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    metadata(pod, "annotations", name)
}

#[must_use]
pub fn label<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    metadata(pod, "labels", name)
}

fn metadata<'a>(pod: &'a Value, map: &str, name: &str) -> Option<&'a str> {
    pod.get("metadata")?.get(map)?.get(name)?.as_str()
}

/// The container that is the proxy, wherever it is: native sidecars are init containers.
#[must_use]
pub fn proxy(pod: &Value) -> Option<&Value> {
    ["containers", "initContainers"]
        .into_iter()
        .flat_map(|name| list(pod, name))
        .find(|container| name(container) == PROXY)
}

/// Linux's limit for one variable or argument (`MAX_ARG_STRLEN`), with a variable's name, `=` and the byte at its end.
pub(crate) const LONGEST_VARIABLE: usize = 128 << 10;

/// The containers that run as a user, with their list and place in it: a container's own user takes precedence over its pod's.
/// Containers whose names Istio's templates use are left out.
pub fn containers_of_user(
    pod: &Value,
    user: i64,
) -> impl Iterator<Item = (&'static str, usize, &str)> {
    let user_of = |of: &Value| of.get("securityContext")?.get("runAsUser")?.as_i64();
    let of_pod = pod.get("spec").and_then(user_of);
    CONTAINERS.into_iter().flat_map(move |field| {
        let all = list(pod, field).iter().enumerate();
        all.filter(move |(_, container)| user_of(container).or(of_pod) == Some(user))
            .map(move |(at, container)| (field, at, name(container)))
            .filter(|(_, _, name)| !name.starts_with("istio-"))
    })
}

/// The directory at which API servers mount a pod's service account.
pub(crate) const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The proxy's container.
pub const PROXY: &str = "istio-proxy";
