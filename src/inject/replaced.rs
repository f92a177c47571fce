//! Values of the user that an injection replaced: its status records them, and its removal restores them.
//!
//! The record is a JSON Merge Patch (RFC 7386) of four maps of the pod, by their names: null where the pod had no value. Keys of
//! labels and annotations that the pod had not are in the status already.

use serde_json::{Map, Value};

use crate::json_eq::{changed, present};
use crate::metrics;
use crate::pod;
use crate::schema::{self, Kind};
use crate::status::Status;
use crate::typing;

/// The maps, with type and field of what holds them. Any author can write a record, and in other fields of the spec it could undo
/// the work of other webhooks.
const MAPS: [(&str, &str, &str); 4] = [
    ("metadata", "ObjectMeta", "labels"),
    ("metadata", "ObjectMeta", "annotations"),
    ("spec", "PodSpec", "dnsConfig"),
    ("spec", "PodSpec", "securityContext"),
];

/// The longest record, in bytes: the API server accepts 256 KiB of annotations in all. Longer values are not recorded.
const LONGEST: usize = 16 << 10;

/// Returns the maps of a pod before an injection, in a pod without anything else.
pub(crate) fn outline(pod: &Value) -> Value {
    let mut made = Value::Object(Map::new());
    for (part, _, map) in MAPS {
        let found = entries(pod, part, map);
        if let (Some(found), Some(part)) = (found, pod::object_mut(&mut made, part)) {
            part.insert(map.to_owned(), found.clone().into());
        }
    }
    made
}

fn entries<'a>(pod: &'a Value, part: &str, map: &str) -> Option<&'a Map<String, Value>> {
    pod::object(pod.get(part)?, map)
}

/// Notes in the status what an injection added to these maps, and what it replaced in them.
pub(crate) fn note(status: &mut Status, before: &Value, after: &Value) {
    status.note_metadata(before.get("metadata"), after);
    let mut room = LONGEST;
    let mut replaced = Map::new();
    for (part, _, map) in MAPS {
        let mut record = undo(entries(before, part, map), entries(after, part, map));
        if part == "metadata" {
            record.retain(|_, value| !value.is_null());
        }
        if map == "annotations" && !record.is_empty() {
            // The variable of the proxy has these.
            for (key, text) in metrics::originals(after, status) {
                if record.get(&key).and_then(Value::as_str) == Some(text.as_str()) {
                    record.shift_remove(&key);
                }
            }
        }
        record.retain(|key, value| {
            let left = room.checked_sub(key.len().saturating_add(value.to_string().len()));
            room = left.unwrap_or(room);
            left.is_some()
        });
        if !record.is_empty() {
            replaced.insert(map.to_owned(), record.into());
        }
    }
    status.replaced = replaced;
}

/// The merge patch from `after` to `before`. It has the keys of an added map one by one, since others may add to it, too.
fn undo(
    before: Option<&Map<String, Value>>,
    after: Option<&Map<String, Value>>,
) -> Map<String, Value> {
    let none = Map::new();
    let (before, after) = (before.unwrap_or(&none), after.unwrap_or(&none));
    let entries = changed(before, after, &[]).into_iter().map(|key| {
        let (had, has) = (present(before.get(key)), present(after.get(key)));
        let value = match (had, has) {
            (None, Some(Value::Object(has))) => undo(None, Some(has)).into(),
            (Some(Value::Object(had)), Some(Value::Object(has))) => {
                undo(Some(had), Some(has)).into()
            }
            _ => had.cloned().unwrap_or_default(),
        };
        (key.to_owned(), value)
    });
    entries.collect()
}

/// Restores the recorded values; a map of another type than the pod's is no record.
pub(crate) fn restore(pod: &mut Value, earlier: &Status) {
    for (part, holder, map) in MAPS {
        let Some(record @ Value::Object(entries)) = earlier.replaced.get(map) else {
            continue;
        };
        let field = schema::object(holder).and_then(|holder| holder.field(map));
        let kind = field.map_or(Kind::Any, |field| field.kind);
        if typing::shape(record, kind, map).is_ok()
            && let Some(part) = pod::object_mut(pod, part)
        {
            merge(part, map, entries);
        }
    }
}

/// Merges a patch into the map at `key`, which goes with its last entry.
fn merge(holder: &mut Map<String, Value>, key: &str, patch: &Map<String, Value>) {
    let entry = holder.entry(key).or_insert(Value::Null);
    if !entry.is_object() {
        *entry = Value::Object(Map::new());
    }
    let Some(entries) = entry.as_object_mut() else {
        return;
    };
    entries.retain(|key, _| !patch.get(key).is_some_and(Value::is_null));
    for (key, value) in patch {
        match value {
            Value::Null => {}
            Value::Object(patch) => merge(entries, key, patch),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                entries.insert(key.clone(), value.clone());
            }
        }
    }
    if entries.is_empty() {
        holder.shift_remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn noted(before: &Value, after: &Value) -> Status {
        let mut status = Status::default();
        note(&mut status, &outline(before), after);
        status
    }

    #[test]
    fn what_is_recorded_is_restored() {
        let rows = [
            (
                json!({"metadata": {"annotations": {"a": "1", "b": "2"}, "labels": {"l": "m"}}}),
                json!({"metadata": {"annotations": {"a": "3", "c": "4"}, "labels": {"l": "m"}}}),
                json!({"annotations": {"a": "1", "b": "2"}}),
            ),
            (
                json!({"spec": {"securityContext": {"fsGroup": 7, "runAsUser": 1}}}),
                json!({"spec": {"securityContext": {"fsGroup": 1337, "runAsUser": 1, "seLinuxOptions": {"level": "s0"}}}}),
                json!({"securityContext": {"fsGroup": 7, "seLinuxOptions": {"level": null}}}),
            ),
            (
                json!({"spec": {"dnsConfig": {"searches": ["a"], "options": [{"name": "x"}]}}}),
                json!({"spec": {}}),
                json!({"dnsConfig": {"options": [{"name": "x"}], "searches": ["a"]}}),
            ),
            (
                json!({"spec": {}}),
                json!({"spec": {"securityContext": {"fsGroup": 1337}, "hostname": "h"}}),
                json!({"securityContext": {"fsGroup": null}}),
            ),
            (
                json!({"metadata": {"labels": {"a": null}}}),
                json!({"metadata": {"labels": {"a": "b"}}}),
                json!({}),
            ),
        ];
        for (before, after, wanted) in rows {
            let status = noted(&before, &after);
            assert_eq!(Value::Object(status.replaced.clone()), wanted);
            let mut made = after.clone();
            restore(&mut made, &status);
            assert_eq!(noted(&made, &after).replaced, status.replaced, "{made}");
            for (part, _, map) in MAPS {
                let maps = [&before, &made].map(|pod| pod[part][map].clone());
                let [had, mut has] = maps;
                // The status names them.
                if let Some(has) = has.as_object_mut() {
                    has.retain(|key, _| {
                        had.get(key).is_some_and(|value| !value.is_null()) || part == "spec"
                    });
                }
                let had = if had == json!({"a": null}) {
                    json!({})
                } else {
                    had
                };
                assert_eq!(has, had, "{map}");
            }
        }
    }

    /// Another webhook's field stays beside those of the injection.
    #[test]
    fn fields_of_others_stay() {
        let after = json!({"spec": {"securityContext": {"fsGroup": 1337}}});
        let status = noted(&json!({"spec": {}}), &after);
        let mut made =
            json!({"spec": {"securityContext": {"fsGroup": 1337, "runAsNonRoot": true}}});
        restore(&mut made, &status);
        assert_eq!(
            made,
            json!({"spec": {"securityContext": {"runAsNonRoot": true}}})
        );
    }

    #[test]
    fn what_is_too_long_is_not_recorded() {
        let long = "x".repeat(LONGEST);
        let before = json!({"metadata": {"annotations": {"a": "1", "b": long, "c": "3"}}});
        let after = json!({"metadata": {"annotations": {"a": "", "b": "", "c": ""}}});
        let wanted = json!({"annotations": {"a": "1", "c": "3"}});
        assert_eq!(Value::Object(noted(&before, &after).replaced), wanted);
    }

    #[test]
    fn what_cannot_be_a_record_is_none() {
        for replaced in [
            json!({"annotations": 7, "labels": ["a"], "securityContext": "x"}),
            json!({"annotations": {"a": 1}, "securityContext": {"fsGroup": []}, "dnsConfig": {"searches": [{}]}}),
            json!({"containers": [{"name": "a"}], "hostNetwork": true, "spec": {"hostPID": true}}),
        ] {
            let status = Status {
                replaced: replaced.as_object().unwrap().clone(),
                ..Status::default()
            };
            let pod = json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"securityContext": {"fsGroup": 1}}});
            let mut made = pod.clone();
            restore(&mut made, &status);
            assert_eq!(made, pod, "{replaced}");
        }
    }
}
