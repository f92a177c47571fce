//! A second pass over a pod that the API server has stored: the defaults that it filled in are no change.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::Value;

use crate::admission_plugins::AdmissionPlugins;
use crate::metrics;
use crate::pod::{self, PROXY, PodList, merge_key};
use crate::probes;
use crate::protected_containers;
use crate::quantity;
use crate::schema::{self, Kind};
use crate::status::Status;

/// Elements that an earlier pass put in and that are written anew: by list, and by their place in the pod that was sent.
pub(crate) type ReplacedElements = HashSet<(PodList, usize)>;

/// The place of elements of an earlier pass that have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Elements are changed in place.
    InPlace,
    /// Elements are removed, and added again at the end.
    AtEnd,
}

/// Keeps elements of an earlier pass of the same version in `sent` if they contain all that `wanted` would write.
///
/// Kept elements keep their places; new ones follow. A container that is written anew keeps the settings of admission plugins.
pub(crate) fn reinject(
    sent: &Value,
    wanted: &mut Value,
    earlier: &Status,
    now: &Status,
    placement: Placement,
) -> ReplacedElements {
    let mut replaced_elements = ReplacedElements::new();
    let same_version = earlier.version == now.version;
    let plugins = AdmissionPlugins::of(sent, wanted);
    for list in PodList::ALL {
        let kind = schema::element_of(list.name());
        let before = pod::list(sent, list);
        let Some(elements) = pod::existing_list_mut(wanted, list) else {
            continue;
        };
        let was_put_in = earlier.put_in(list, before);
        let is_put_in = if was_put_in.is_empty() {
            Vec::new()
        } else {
            now.put_in(list, elements)
        };
        // The first of each name.
        let mut first_by_name: HashMap<&str, (usize, &Value)> = HashMap::new();
        let put_in = before.iter().zip(&was_put_in).enumerate();
        for (place, (element, _)) in put_in.filter(|(_, (_, put))| **put) {
            first_by_name
                .entry(pod::name(element))
                .or_insert((place, element));
        }
        for (made, _) in elements.iter_mut().zip(is_put_in).filter(|(_, put)| *put) {
            let stored = first_by_name.get(pod::name(made));
            if let Some((_, existing)) = stored.filter(|_| same_version && list.has_containers()) {
                plugins.keep(existing, made);
            }
            match stored {
                Some((_, existing)) if same_version && stays(list, existing, made, kind) => {
                    *made = (*existing).clone();
                }
                Some((place, _)) if placement == Placement::AtEnd => {
                    replaced_elements.insert((list, *place));
                }
                Some(_) | None => {}
            }
        }
        *elements = ordered(before, std::mem::take(elements), |place| {
            replaced_elements.contains(&(list, place))
        });
    }
    if same_version {
        for list in [PodList::InitContainers, PodList::Containers] {
            reinject_probes(pod::list(sent, list), pod::existing_list_mut(wanted, list));
        }
    }
    replaced_elements
}

/// Returns true if an element of an earlier pass may stay where `made` would be written.
///
/// Only an annotation says that there was an earlier pass, and any author can write it: so a container other than the
/// proxy's must run the same as `made`, with the same rights.
fn stays(list: PodList, existing: &Value, made: &Value, kind: Kind) -> bool {
    let is_guarded = list.has_containers() && pod::name(made) != PROXY;
    let is_same = |key: &str, wanted: &Value, existing: &Value| {
        contains(wanted, existing, kind.below(key).unwrap_or(Kind::Any))
    };
    contains(existing, made, kind)
        && !drops_agent_variable(existing, made)
        && (!is_guarded || protected_containers::runs_the_same(existing, made, is_same))
}

/// Returns true if an earlier pass gave the agent a variable that this one does not: the same template, by a configuration
/// that has changed.
fn drops_agent_variable(existing: &Value, made: &Value) -> bool {
    let has = |element: &Value, name: &str| {
        let env = element.get("env").and_then(Value::as_array);
        env.is_some_and(|env| env.iter().any(|variable| pod::name(variable) == name))
    };
    let mut ours = [metrics::VARIABLE, probes::VARIABLE].into_iter();
    ours.any(|name| has(existing, name) && !has(made, name))
}

/// Elements that were there first, in their order, then the others in theirs.
fn ordered(before: &[Value], elements: Vec<Value>, is_fresh: impl Fn(usize) -> bool) -> Vec<Value> {
    // The nth of a name in the one is the nth in the other.
    let mut places: HashMap<String, VecDeque<usize>> = HashMap::new();
    for (place, element) in elements.iter().enumerate() {
        let name = pod::name(element).to_owned();
        places.entry(name).or_default().push_back(place);
    }
    let mut waiting: Vec<Option<Value>> = elements.into_iter().map(Some).collect();
    let mut reordered = Vec::with_capacity(waiting.len());
    for (place, old) in before.iter().enumerate() {
        if is_fresh(place) {
            continue;
        }
        let waiting_element = places
            .get_mut(pod::name(old))
            .and_then(VecDeque::pop_front)
            .and_then(|place| waiting.get_mut(place));
        reordered.extend(waiting_element.and_then(Option::take));
    }
    reordered.extend(waiting.into_iter().flatten());
    reordered
}

/// A rewritten probe that contains all that would be written stays as it is.
fn reinject_probes(sent: &[Value], wanted: Option<&mut Vec<Value>>) {
    let Some(probe) = schema::object("Container")
        .and_then(|container| container.field("livenessProbe"))
        .map(|field| field.kind)
    else {
        return;
    };
    let mut first: HashMap<&str, &Value> = HashMap::new();
    for element in sent {
        first.entry(pod::name(element)).or_insert(element);
    }
    for wanted_container in wanted.into_iter().flatten() {
        let Some(existing) = first.get(pod::name(wanted_container)) else {
            continue;
        };
        for place in probes::PROBE_FIELDS {
            if let (Some(existing), Some(made)) =
                (place.get(existing), place.get_mut(wanted_container))
                && existing != made
                && contains(existing, made, probe)
            {
                *made = existing.clone();
            }
        }
    }
}

/// Returns true if `existing` has all of `wanted`: further fields are allowed, an empty value may be absent, a quantity may
/// be written in another unit, and elements of lists with keys are found by them.
pub(crate) fn contains(existing: &Value, wanted: &Value, kind: Kind) -> bool {
    match (existing, wanted) {
        (_, Value::Null) => true,
        (Value::Object(existing), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| match existing.get(key) {
                Some(Value::Null) | None => is_empty(wanted),
                Some(_) if is_default(kind, key, wanted) => true,
                Some(existing) => {
                    let below = kind.below(key).unwrap_or(Kind::Any);
                    match (existing, wanted, merge_key(key)) {
                        (Value::Array(existing), Value::Array(wanted), Some(merge)) => {
                            by_key(existing, wanted, merge, below)
                        }
                        _ => contains(existing, wanted, below),
                    }
                }
            })
        }
        (Value::Array(existing), Value::Array(wanted)) => {
            let element = kind.of_elements();
            existing.len() == wanted.len()
                && existing
                    .iter()
                    .zip(wanted)
                    .all(|(existing, wanted)| contains(existing, wanted, element))
        }
        (Value::String(a), Value::String(b)) if kind == Kind::Quantity => quantity::equal(a, b),
        _ => existing == wanted,
    }
}

/// Returns true for a 0 in a number of a probe, which the server replaces by the default; not for `initialDelaySeconds`,
/// whose default is 0.
fn is_default(kind: Kind, key: &str, wanted: &Value) -> bool {
    let numbers = [
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ];
    matches!(kind, Kind::Object(record) if record.name() == "Probe")
        && numbers.contains(&key)
        && wanted.as_i64() == Some(0)
}

fn by_key(existing: &[Value], wanted: &[Value], key: &str, kind: Kind) -> bool {
    let element = kind.of_elements();
    let mut by_key: HashMap<String, Vec<&Value>> = HashMap::new();
    for existing in existing {
        let identity = pod::identity(existing, key);
        by_key.entry(identity).or_default().push(existing);
    }
    let mut tries = existing
        .len()
        .saturating_add(wanted.len())
        .saturating_mul(TRIES);
    wanted.iter().all(|wanted| {
        let of_key = by_key.get(&pod::identity(wanted, key));
        let mut of_key = of_key.into_iter().flatten();
        of_key.any(|existing| {
            tries = tries.saturating_sub(1);
            tries > 0 && contains(existing, wanted, element)
        })
    })
}

/// Elements may share a key, as two ports of a number do; of a thousand that do, most are not compared with each other.
const TRIES: usize = 8;

/// Returns true if the API server drops such a value.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_are_no_change() {
        let container = Kind::Object(schema::object("Container").unwrap());
        let wanted = json!({"name": "p", "args": ["a"], "env": [{"name": "B", "value": ""}], "ports": [{"containerPort": 80}], "tty": false,
            "resources": {"limits": {"cpu": "1000m"}}, "readinessProbe": {"httpGet": {"path": "/", "port": 1}}});
        let stored = json!({"name": "p", "args": ["a"], "env": [{"name": "A", "value": "x"}, {"name": "B"}], "ports": [{"containerPort": 80, "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "1"}}, "readinessProbe": {"httpGet": {"path": "/", "port": 1, "scheme": "HTTP"}, "timeoutSeconds": 1},
            "terminationMessagePath": "/dev/termination-log"});
        assert!(contains(&stored, &wanted, container));
        let mut unset = wanted.clone();
        unset["readinessProbe"]["timeoutSeconds"] = json!(0);
        assert!(contains(&stored, &unset, container));
        for (key, value) in [
            ("args", json!(["a", "b"])),
            ("args", json!([])),
            ("image", json!("x")),
            ("env", json!([{"name": "B", "value": "y"}])),
            ("tty", json!(true)),
            ("resources", json!({"limits": {"cpu": "999m"}})),
            ("env", json!([{"name": "C"}])),
        ] {
            let mut other = wanted.clone();
            other[key] = value;
            assert!(!contains(&stored, &other, container), "{other}");
        }
    }
}
