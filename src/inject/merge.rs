//! Merges a partial pod over a pod, as Kubernetes' strategic merge does: maps merge, lists with keys merge by them, null
//! deletes, `$patch` has the directives.
//!
//! It differs in two points where the original makes a pod that no server accepts: of exclusive fields (a variable's `value`
//! and `valueFrom`, the handlers of a probe) only the upper layer's stays, and an element of a list with `$patch: replace`
//! replaces that element, not its neighbours.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use serde_json::{Map, Value};

use crate::output_error::OutputError;
use crate::pod::{self, PodList, merge_key};
use crate::schema::Kind;

/// The key of an object's directive.
const DIRECTIVE: &str = "$patch";

/// The author of the upper layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    /// Nulls delete, and directives are directives.
    Template,
    /// Nulls count as absent, and there are no directives.
    User,
}

/// Keys that exclude each other.
const VALUES: [&str; 2] = ["value", "valueFrom"];
const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

/// Lays `over` over the object `under`.
pub(crate) fn lay(under: &mut Value, over: Value, kind: Kind, layer: Layer) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => object(under, over, kind, layer),
        (under, over) => {
            if let Some(over) = clean(over, layer) {
                *under = over;
            }
        }
    }
}

fn object(under: &mut Map<String, Value>, over: Map<String, Value>, kind: Kind, layer: Layer) {
    if has_directive(&over, "replace", layer) {
        under.clear();
    }
    give_way(under, &over, kind);
    for (key, value) in over {
        if layer == Layer::Template && key.starts_with('$') {
            continue;
        }
        if value.is_null() {
            if layer == Layer::Template {
                under.shift_remove(&key);
            }
            continue;
        }
        let below = kind.below(&key).unwrap_or(Kind::Any);
        match (under.get_mut(&key), value) {
            (_, Value::Object(over)) if has_directive(&over, "delete", layer) => {
                under.shift_remove(&key);
            }
            (Some(Value::Object(under)), Value::Object(over)) => object(under, over, below, layer),
            (Some(Value::Array(under)), Value::Array(over)) => {
                list(&key, under, over, below, layer);
            }
            (_, value) => {
                if let Some(value) = clean(value, layer) {
                    under.insert(key, value);
                }
            }
        }
    }
}

/// Removes from `under` the keys that a key of `over` excludes.
fn give_way(under: &mut Map<String, Value>, over: &Map<String, Value>, kind: Kind) {
    let Kind::Object(record) = kind else { return };
    let group: &[&str] = match record.name() {
        "EnvVar" => &VALUES,
        "Probe" | "LifecycleHandler" => &HANDLERS,
        _ => return,
    };
    let is_set = |key: &str| over.get(key).is_some_and(|value| !value.is_null());
    if group.iter().any(|key| is_set(key)) {
        for key in group.iter().filter(|key| !is_set(key)) {
            under.shift_remove(*key);
        }
    }
}

fn has_directive(entries: &Map<String, Value>, directive: &str, layer: Layer) -> bool {
    layer == Layer::Template && entries.get(DIRECTIVE).and_then(Value::as_str) == Some(directive)
}

/// Returns true for an element that consists of the directive to replace the list.
fn is_marker(element: &Value) -> bool {
    element.as_object().is_some_and(|entries| {
        entries.len() == 1 && has_directive(entries, "replace", Layer::Template)
    })
}

fn list(name: &str, under: &mut Vec<Value>, mut over: Vec<Value>, kind: Kind, layer: Layer) {
    let Some(key) = merge_key(name) else {
        *under = over
            .into_iter()
            .filter_map(|element| clean(element, layer))
            .collect();
        return;
    };
    let element = kind.of_elements();
    if layer == Layer::Template {
        if over.iter().any(is_marker) {
            under.clear();
        }
        // An element without the key does not match one with an empty key.
        let identity = |element: &Value| element.get(key).map(|_| pod::identity(element, key));
        let mut gone = HashSet::new();
        over.retain(|element| {
            let entries = element.as_object();
            let goes = entries.is_some_and(|entries| has_directive(entries, "delete", layer));
            if goes {
                gone.insert(identity(element));
            }
            !goes && !is_marker(element)
        });
        if !gone.is_empty() {
            under.retain(|element| !gone.contains(&identity(element)));
        }
    }
    // The nth of a key is laid over the nth: a list may hold a key twice.
    let mut places: HashMap<String, VecDeque<usize>> = HashMap::new();
    for (place, element) in under.iter().enumerate() {
        let identity = pod::identity(element, key);
        places.entry(identity).or_default().push_back(place);
    }
    for upper in over {
        let place = places
            .get_mut(&pod::identity(&upper, key))
            .and_then(VecDeque::pop_front);
        match place.and_then(|place| under.get_mut(place)) {
            // A volume has one source: two merged ones would have both, which API servers refuse.
            Some(lower) if name != "volumes" => lay(lower, upper, element, layer),
            lower => {
                let upper = clean(upper, layer);
                match (lower, upper) {
                    (Some(lower), Some(upper)) => *lower = upper,
                    (None, upper) => under.extend(upper),
                    (Some(_), None) => {}
                }
            }
        }
    }
}

/// Returns a value without directives and nulls, for an empty place, where there is nothing to delete.
pub(crate) fn clean(mut value: Value, layer: Layer) -> Option<Value> {
    if goes(&value, layer) {
        return None;
    }
    tidy(&mut value, layer);
    Some(value)
}

/// Returns true if the value changes nothing where the pod has no value.
fn goes(value: &Value, layer: Layer) -> bool {
    match value {
        Value::Null => true,
        Value::Object(entries) => has_directive(entries, "delete", layer),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
    }
}

fn tidy(value: &mut Value, layer: Layer) {
    match value {
        Value::Object(entries) => {
            let is_left = |key: &String, value: &Value| {
                (layer == Layer::User || !key.starts_with('$')) && !goes(value, layer)
            };
            if !entries.iter().all(|(key, value)| is_left(key, value)) {
                entries.retain(|key, value| is_left(key, value));
            }
            entries.values_mut().for_each(|value| tidy(value, layer));
        }
        Value::Array(items) => {
            items.retain(|item| !goes(item, layer) && (layer == Layer::User || !is_marker(item)));
            items.iter_mut().for_each(|item| tidy(item, layer));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns true if an element of a list adds something: it is neither a deletion nor a marker.
pub(crate) fn adds(element: &Value) -> bool {
    let deletes = element
        .as_object()
        .is_some_and(|entries| has_directive(entries, "delete", Layer::Template));
    !deletes && !is_marker(element)
}

/// Checks that every element of a template's list has a name, and that names of added elements are unique.
pub(crate) fn check_names(list: PodList, elements: &[Value]) -> Result<(), OutputError> {
    let list = list.name();
    let mut seen = BTreeSet::new();
    for (index, element) in elements.iter().enumerate() {
        let name = pod::name(element);
        // Directives alone are the marker that replaces the list, and it needs no name.
        if element.as_object().is_some_and(|fields| {
            fields.keys().all(|key| key.starts_with('$')) && !fields.is_empty()
        }) {
            continue;
        }
        if name.is_empty() {
            return Err(format!("{list}[{index}]: no name").into());
        }
        if adds(element) && !seen.insert(name) {
            return Err(OutputError::Duplicate {
                list: list.to_owned(),
                index,
                name: name.to_owned(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;
    use serde_json::json;

    fn laid(under: Value, over: Value, layer: Layer) -> Value {
        let mut merged = under;
        let spec = Kind::Object(schema::object("PodSpec").unwrap());
        lay(&mut merged, over, spec, layer);
        merged
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table")]
    fn a_template_over_a_pod() {
        let rows = [
            (
                "maps merge, lists without keys are replaced",
                json!({"nodeSelector": {"a": "1", "b": "2"}, "tolerations": [{"key": "x"}]}),
                json!({"nodeSelector": {"b": "3", "c": "4"}, "tolerations": [{"key": "y"}]}),
                json!({"nodeSelector": {"a": "1", "b": "3", "c": "4"}, "tolerations": [{"key": "y"}]}),
            ),
            (
                "null deletes",
                json!({"nodeSelector": {"a": "1", "b": "2"}, "hostname": "h"}),
                json!({"nodeSelector": {"b": null, "z": null}, "hostname": null, "subdomain": null}),
                json!({"nodeSelector": {"a": "1"}}),
            ),
            (
                "containers and env by name, ports by number, mounts by path",
                json!({"containers": [{"name": "a", "image": "i", "env": [{"name": "X", "value": "1"}, {"name": "Y"}],
                    "ports": [{"containerPort": 80, "name": "http"}], "volumeMounts": [{"mountPath": "/m", "name": "v"}]}]}),
                json!({"containers": [{"name": "b"}, {"name": "a", "env": [{"name": "Z"}, {"name": "X", "value": "2"}],
                    "ports": [{"containerPort": 80, "protocol": "UDP"}, {"containerPort": 81}], "volumeMounts": [{"mountPath": "/m", "readOnly": true}]}]}),
                json!({"containers": [{"name": "a", "image": "i", "env": [{"name": "X", "value": "2"}, {"name": "Y"}, {"name": "Z"}],
                    "ports": [{"containerPort": 80, "name": "http", "protocol": "UDP"}, {"containerPort": 81}],
                    "volumeMounts": [{"mountPath": "/m", "name": "v", "readOnly": true}]}, {"name": "b"}]}),
            ),
            (
                "a volume is replaced whole",
                json!({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w"}]}),
                json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}, "x": null}]}),
                json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}, {"name": "w"}]}),
            ),
            (
                "an element is deleted",
                json!({"containers": [{"name": "a"}, {"name": "b"}]}),
                json!({"containers": [{"name": "a", "$patch": "delete"}, {"name": "c", "$patch": "delete"}]}),
                json!({"containers": [{"name": "b"}]}),
            ),
            (
                "an element is replaced",
                json!({"containers": [{"name": "a", "image": "i", "tty": true}, {"name": "b"}]}),
                json!({"containers": [{"name": "a", "image": "j", "$patch": "replace"}]}),
                json!({"containers": [{"name": "a", "image": "j"}, {"name": "b"}]}),
            ),
            (
                "a list is replaced",
                json!({"containers": [{"name": "a"}, {"name": "b"}]}),
                json!({"containers": [{"$patch": "replace"}, {"name": "c", "tty": null}]}),
                json!({"containers": [{"name": "c"}]}),
            ),
            (
                "an object is replaced, or deleted",
                json!({"securityContext": {"fsGroup": 1, "runAsUser": 2}, "dnsConfig": {"searches": []}}),
                json!({"securityContext": {"$patch": "replace", "runAsUser": 3}, "dnsConfig": {"$patch": "delete"}}),
                json!({"securityContext": {"runAsUser": 3}}),
            ),
            (
                "what is put where nothing was has neither nulls nor directives",
                json!({}),
                json!({"containers": [{"$patch": "replace"}, {"name": "a", "image": null, "env": [{"name": "X", "$patch": "delete"}, {"name": "Y", "value": null}],
                    "securityContext": {"$patch": "replace", "runAsUser": 1}}], "$setElementOrder/containers": [{"name": "a"}]}),
                json!({"containers": [{"name": "a", "env": [{"name": "Y"}], "securityContext": {"runAsUser": 1}}]}),
            ),
            (
                "what excludes each other does not stay beside each other",
                json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}], "readinessProbe": {"tcpSocket": {"port": 1}, "periodSeconds": 3},
                    "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}]}),
                json!({"containers": [{"name": "a", "env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "f"}}}], "readinessProbe": {"httpGet": {"port": 2}},
                    "lifecycle": {"preStop": {"exec": {"command": ["x"]}}}}]}),
                json!({"containers": [{"name": "a", "env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "f"}}}],
                    "readinessProbe": {"httpGet": {"port": 2}, "periodSeconds": 3}, "lifecycle": {"preStop": {"exec": {"command": ["x"]}}}}]}),
            ),
            (
                "a key twice",
                json!({"containers": [{"name": "a", "ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}]}]}),
                json!({"containers": [{"name": "a", "ports": [{"containerPort": 53, "name": "u"}, {"containerPort": 53, "name": "t"}, {"containerPort": 53, "name": "s"}]}]}),
                json!({"containers": [{"name": "a", "ports": [{"containerPort": 53, "protocol": "UDP", "name": "u"},
                    {"containerPort": 53, "protocol": "TCP", "name": "t"}, {"containerPort": 53, "name": "s"}]}]}),
            ),
        ];
        for (what, under, over, wanted) in rows {
            assert_eq!(laid(under, over, Layer::Template), wanted, "{what}");
        }
    }

    #[test]
    fn directives_of_users_delete_nothing() {
        assert_eq!(
            laid(
                json!({"hostname": "h", "nodeSelector": {"a": "1"}}),
                json!({"hostname": null, "nodeSelector": {"$patch": "delete", "b": "2"}}),
                Layer::User
            ),
            json!({"hostname": "h", "nodeSelector": {"a": "1", "$patch": "delete", "b": "2"}})
        );
    }
}
