//! Values of the user that an injection replaced: its status records them, and its removal restores them while the pod still has
//! the injection's values.
//!
//! The record has four maps of the pod, by their names, and of each key `{"was": VALUE, "is": VALUE}`: before and after the
//! injection, absent where the pod had no value. Keys of labels and annotations that the pod had not are in the status already.
//! So it is with volumes, by name: an overlay's takes the place of the user's.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::json_eq::{changed, json_eq, present};
use crate::labels;
use crate::metrics;
use crate::output_types;
use crate::pod::{self, PodList};
use crate::reinject;
use crate::schema::{self, Kind};
use crate::status::Status;
use crate::yaml_safe;

/// The maps, each with the type and the field of its object. Any author can write a record, and in other fields of the spec it could undo
/// the work of other webhooks.
const MAPS: [(&str, &str, &str); 4] = [
    ("metadata", "ObjectMeta", "labels"),
    ("metadata", "ObjectMeta", "annotations"),
    ("spec", "PodSpec", "dnsConfig"),
    ("spec", "PodSpec", "securityContext"),
];

/// The fields of a pod's `securityContext` that templates of Istio set. No record has others: a pod's author could write a record that
/// takes `runAsNonRoot` back, which another webhook has set.
const OF_SECURITY: [&str; 2] = ["fsGroup", "fsGroupChangePolicy"];

/// The gateway template's list takes the place of the user's.
const SYSCTLS: &str = "sysctls";

/// The sysctls that a record may restore: the safe ones of Kubernetes, as its Pod Security Standards list them.
const SAFE_SYSCTLS: [&str; 10] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
];

/// The domain of Istio's annotations whose values may be recorded.
const OF_TRAFFIC: &str = "traffic.sidecar.istio.io";

/// Returns true if a record may have this entry of a map. Decisions read Istio's annotations from the pod as it was sent, but for that of
/// the revision: the API server chooses injectors by labels alone.
fn may_have(map: &str, key: &str, entry: &Value) -> bool {
    match map {
        "securityContext" if key == SYSCTLS => {
            let was = entry.get(WAS).and_then(Value::as_array);
            let mut was = was.into_iter().flatten();
            was.all(|one| SAFE_SYSCTLS.contains(&pod::name(one)))
        }
        "securityContext" => OF_SECURITY.contains(&key),
        "annotations" => {
            let domain = key.split_once('/').map_or("", |(domain, _)| domain);
            let is_istios = domain == "istio.io" || domain.ends_with(".istio.io");
            !is_istios || domain == OF_TRAFFIC || key == labels::REVISION
        }
        _ => true,
    }
}

/// The keys of an entry of a record.
const WAS: &str = "was";
const IS: &str = "is";

/// The longest record, in bytes: the API server accepts 256 KiB of annotations in all. Longer values are not recorded.
const MAX_RECORD_BYTES: usize = 16 << 10;

/// The list beside the maps.
const VOLUMES: &str = PodList::Volumes.name();

/// Returns the maps and volumes of a pod before an injection, in a pod without anything else.
pub(crate) fn outline(pod: &Value) -> Value {
    let mut outline = Value::Object(Map::new());
    let volumes = pod::list(pod, PodList::Volumes);
    if let (false, Some(list)) = (
        volumes.is_empty(),
        pod::list_mut(&mut outline, PodList::Volumes),
    ) {
        list.extend_from_slice(volumes);
    }
    for (part, _, map) in MAPS {
        let entries = entries(pod, part, map);
        if let (Some(entries), Some(part)) = (entries, pod::object_mut(&mut outline, part)) {
            part.insert(map.to_owned(), entries.clone().into());
        }
    }
    outline
}

fn entries<'a>(pod: &'a Value, part: &str, map: &str) -> Option<&'a Map<String, Value>> {
    pod::object(pod.get(part)?, map)
}

/// Records in the status the values that an injection added to these maps, and those that it replaced.
pub(crate) fn note(status: &mut Status, before: &Value, after: &Value) {
    status.note_metadata(before.get("metadata"), after);
    let mut room = MAX_RECORD_BYTES;
    let mut replaced = Map::new();
    for (part, _, map) in MAPS {
        let mut record = record(entries(before, part, map), entries(after, part, map));
        record.retain(|key, entry| {
            // A status with control characters is refused the next time.
            may_have(map, key, entry)
                && (part != "metadata" || entry.get(WAS).is_some())
                && yaml_safe::strings(entry).is_ok()
        });
        if map == "annotations" && !record.is_empty() {
            // The variable of the proxy has these.
            for (key, text) in metrics::originals(after, status) {
                let was = record.get(&key).and_then(|entry| entry.get(WAS)?.as_str());
                if was == Some(text.as_str()) {
                    record.shift_remove(&key);
                }
            }
        }
        limit(&mut record, &mut room);
        if !record.is_empty() {
            replaced.insert(map.to_owned(), record.into());
        }
    }
    let mut record = replaced_volumes(status, before, after);
    limit(&mut record, &mut room);
    if !record.is_empty() {
        replaced.insert(VOLUMES.to_owned(), record.into());
    }
    status.replaced = replaced;
}

/// Drops the entries that the rest of the room does not hold.
fn limit(record: &mut Map<String, Value>, room: &mut usize) {
    record.retain(|key, entry| {
        let left = room.checked_sub(key.len().saturating_add(entry.to_string().len()));
        *room = left.unwrap_or(*room);
        left.is_some()
    });
}

/// The user's volumes that an overlay's took the place of. A fragment's are appended.
fn replaced_volumes(status: &Status, before: &Value, after: &Value) -> Map<String, Value> {
    let names = status.names(PodList::Volumes);
    if status.revision.is_none() || names.is_empty() {
        return Map::new();
    }
    let by_name = |pod| {
        let volumes = pod::list(pod, PodList::Volumes).iter();
        let volumes = volumes.map(|volume| (pod::name(volume).to_owned(), volume.clone()));
        let volumes = volumes.filter(|(name, _)| names.contains(name.as_str()));
        volumes.collect::<Map<String, Value>>()
    };
    let mut record = record(Some(&by_name(before)), Some(&by_name(after)));
    record.retain(|_, entry| {
        [WAS, IS].iter().all(|key| entry.get(key).is_some()) && yaml_safe::strings(entry).is_ok()
    });
    record
}

/// The volumes that an earlier injection replaced, by name, and their fate.
#[derive(Debug, Default)]
pub(crate) struct ReplacedVolumes {
    /// The user's, which come back to their places.
    pub(crate) restored: BTreeMap<String, Value>,
    /// The values that were changed since.
    pub(crate) staying: BTreeSet<String>,
    /// Those that are no template's.
    pub(crate) withheld: BTreeSet<String>,
}

/// Reads the recorded volumes of which `of_templates` has the name. Values that are no volume of that name are no record.
pub(crate) fn volumes(
    pod: &Value,
    earlier: &Status,
    of_templates: &BTreeSet<String>,
) -> ReplacedVolumes {
    let mut replaced = ReplacedVolumes::default();
    let Some(Value::Object(record)) = earlier.replaced.get(VOLUMES) else {
        return replaced;
    };
    let kind = schema::element_of(VOLUMES);
    let names = earlier.names(PodList::Volumes);
    for (name, entry) in record {
        let (Some(was), Some(is)) = (entry.get(WAS), entry.get(IS)) else {
            continue;
        };
        if !names.contains(name.as_str())
            || pod::name(was) != name
            || output_types::shape(was, kind, VOLUMES).is_err()
        {
            continue;
        }
        let mut now = pod::list(pod, PodList::Volumes).iter();
        let now = now.find(|volume| pod::name(volume) == name);
        if !of_templates.contains(name) {
            replaced.withheld.insert(name.clone());
        } else if now.is_some_and(|now| reinject::contains(now, is, kind)) {
            replaced.restored.insert(name.clone(), was.clone());
        } else {
            replaced.staying.insert(name.clone());
        }
    }
    replaced
}

/// The entries that differ, each with its two values.
fn record(
    before: Option<&Map<String, Value>>,
    after: Option<&Map<String, Value>>,
) -> Map<String, Value> {
    let none = Map::new();
    let (before, after) = (before.unwrap_or(&none), after.unwrap_or(&none));
    let entries = changed(before, after, &[]).into_iter().map(|key| {
        let values = [(WAS, before), (IS, after)].into_iter();
        let values = values.filter_map(|(name, map)| {
            let value = present(map.get(key))?;
            Some((name.to_owned(), value.clone()))
        });
        (key.to_owned(), Value::Object(values.collect()))
    });
    entries.collect()
}

/// Returns the recorded values, by [`MAPS`], of the entries that are unchanged since; null where there was none. Values of other
/// types than the map's are no record.
pub(crate) fn unchanged(pod: &Value, earlier: &Status) -> [Map<String, Value>; 4] {
    MAPS.map(|(part, holder, map)| {
        let Some(Value::Object(record)) = earlier.replaced.get(map) else {
            return Map::new();
        };
        let entries = entries(pod, part, map);
        let values = record.iter().filter_map(|(key, entry)| {
            let entry =
                Some(entry).filter(|entry| entry.is_object() && may_have(map, key, entry))?;
            let now = present(entries.and_then(|entries| entries.get(key)));
            let is_unchanged = match (now, present(entry.get(IS))) {
                (Some(now), Some(left)) => json_eq(now, left),
                (now, left) => now.is_none() && left.is_none(),
            };
            is_unchanged.then(|| (key.clone(), entry.get(WAS).cloned().unwrap_or_default()))
        });
        let values = Value::Object(values.collect());
        let field = schema::object(holder).and_then(|holder| holder.field(map));
        let kind = field.map_or(Kind::Any, |field| field.kind);
        match (output_types::shape(&values, kind, map), values) {
            (Ok(()), Value::Object(values)) => values,
            _ => Map::new(),
        }
    })
}

/// Restores such values.
pub(crate) fn restore(pod: &mut Value, values: &[Map<String, Value>; 4]) {
    for ((part, _, map), values) in MAPS.into_iter().zip(values) {
        if !values.is_empty()
            && let Some(holder) = pod::object_mut(pod, part)
        {
            set(holder, map, values);
        }
    }
}

/// Sets entries of the map at `key`, which goes with its last entry.
fn set(holder: &mut Map<String, Value>, key: &str, values: &Map<String, Value>) {
    let map = holder.entry(key).or_insert(Value::Null);
    if !map.is_object() {
        *map = Value::Object(Map::new());
    }
    let Some(entries) = map.as_object_mut() else {
        return;
    };
    // Null: the pod had no value there.
    entries.retain(|key, _| !values.get(key).is_some_and(Value::is_null));
    let values = values.iter().filter(|(_, value)| !value.is_null());
    entries.extend(values.map(|(key, value)| (key.clone(), value.clone())));
    if entries.is_empty() {
        holder.shift_remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::ByList;
    use serde_json::json;

    fn noted(before: &Value, after: &Value) -> Status {
        let mut status = Status::default();
        note(&mut status, &outline(before), after);
        status
    }

    fn restored(pod: &Value, status: &Status) -> Value {
        let mut restored = pod.clone();
        restore(&mut restored, &unchanged(pod, status));
        restored
    }

    fn recorded(replaced: &Value) -> Status {
        Status {
            replaced: replaced.as_object().unwrap().clone(),
            ..Status::default()
        }
    }

    #[test]
    fn recorded_values_are_restored() {
        let rows = [
            (
                json!({"metadata": {"annotations": {"a": "1", "b": "2"}, "labels": {"l": "m"}}}),
                json!({"metadata": {"annotations": {"a": "3", "c": "4"}, "labels": {"l": "m"}}}),
                json!({"annotations": {"a": {"was": "1", "is": "3"}, "b": {"was": "2"}}}),
            ),
            (
                json!({"spec": {"securityContext": {"fsGroup": 7, "runAsUser": 1}}}),
                json!({"spec": {"securityContext": {"fsGroup": 1337, "runAsUser": 1}}}),
                json!({"securityContext": {"fsGroup": {"was": 7, "is": 1337}}}),
            ),
            (
                json!({"spec": {"dnsConfig": {"searches": ["a"], "options": [{"name": "x"}]}}}),
                json!({"spec": {}}),
                json!({"dnsConfig": {"options": {"was": [{"name": "x"}]}, "searches": {"was": ["a"]}}}),
            ),
            (
                json!({"spec": {}}),
                json!({"spec": {"securityContext": {"fsGroup": 1337}, "hostname": "h"}}),
                json!({"securityContext": {"fsGroup": {"is": 1337}}}),
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
            let made = restored(&after, &status);
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
        let made = json!({"spec": {"securityContext": {"fsGroup": 1337, "runAsNonRoot": true}}});
        assert_eq!(
            restored(&made, &status),
            json!({"spec": {"securityContext": {"runAsNonRoot": true}}})
        );
    }

    /// An overlay replaces a volume of the same name whole.
    #[test]
    fn volumes_that_were_replaced_come_back() {
        let mine = json!({"name": "istiod-ca-cert", "configMap": {"name": "mine"}});
        let made = json!({"name": "istiod-ca-cert", "configMap": {"name": "istio-ca-root-cert"}});
        let others = json!({"name": "other", "emptyDir": {}});
        let pod = |volumes: &[&Value]| json!({"spec": {"volumes": volumes}});
        let noted = |before: &Value, after: &Value, revision: Option<String>| {
            let mut status = Status {
                revision,
                lists: ByList {
                    volumes: vec!["istiod-ca-cert".to_owned()],
                    ..ByList::default()
                },
                ..Status::default()
            };
            note(&mut status, &outline(before), after);
            status
        };
        let before = pod(&[&mine, &others]);
        let after = pod(&[&made, &others]);
        let fragments = noted(&before, &after, None);
        assert!(fragments.replaced.is_empty(), "{:?}", fragments.replaced);
        let new = noted(&pod(&[&others]), &after, Some("r".to_owned()));
        assert!(new.replaced.is_empty(), "{:?}", new.replaced);
        let status = noted(&before, &after, Some("r".to_owned()));
        let wanted = json!({"volumes": {"istiod-ca-cert": {"was": mine, "is": made}}});
        assert_eq!(Value::Object(status.replaced.clone()), wanted);

        let stock = BTreeSet::from(["istiod-ca-cert".to_owned()]);
        let mut stored = after.clone();
        stored["spec"]["volumes"][0]["configMap"]["defaultMode"] = json!(420);
        for now in [&after, &stored] {
            let replaced = volumes(now, &status, &stock);
            assert_eq!(replaced.restored["istiod-ca-cert"], mine);
            assert!(replaced.staying.is_empty() && replaced.withheld.is_empty());
        }
        let replaced = volumes(&before, &status, &stock);
        assert_eq!((replaced.restored.len(), &replaced.staying), (0, &stock));
        // Any author can write a record.
        let replaced = volumes(&after, &status, &BTreeSet::new());
        assert_eq!((replaced.restored.len(), &replaced.withheld), (0, &stock));
        for was in [
            json!({"name": "other"}),
            json!({"name": "istiod-ca-cert", "emptyDir": 7}),
            json!(7),
        ] {
            let mut status = status.clone();
            status.replaced["volumes"]["istiod-ca-cert"]["was"] = was;
            let replaced = volumes(&after, &status, &stock);
            assert_eq!((replaced.restored.len(), replaced.withheld.len()), (0, 0));
        }
    }

    /// Another webhook's later value stays, and so does what it removed.
    #[test]
    fn values_that_others_changed_stay() {
        const PORTS: &str = "traffic.sidecar.istio.io/excludeInboundPorts";
        let pod = |ports: Value, context: Value, dns: Value| json!({"metadata": {"annotations": {PORTS: ports}}, "spec": {"securityContext": context, "dnsConfig": dns}});
        let before = pod(json!("81"), json!({}), json!({"searches": ["a"]}));
        let after = pod(
            json!("81,15020"),
            json!({"fsGroup": 1337}),
            json!({"searches": ["b"]}),
        );
        let status = noted(&before, &after);
        let later = pod(
            json!("81,15020,8200"),
            json!({"fsGroup": 2000}),
            json!({"nameservers": ["192.0.2.7"]}),
        );
        assert_eq!(restored(&later, &status), later);
        let same = restored(&after, &status);
        assert_eq!(same["metadata"], before["metadata"]);
        assert_eq!(same["spec"], json!({"dnsConfig": {"searches": ["a"]}}));
    }

    /// The engine reads Istio's other annotations from the pod as it was sent.
    #[test]
    fn decisions_are_neither_recorded_nor_restored() {
        for key in [
            "istio.io/reroute-virtual-interfaces",
            "proxy.istio.io/config",
            "inject.istio.io/templates",
            "sidecar.istio.io/status",
            "prometheus.istio.io/merge-metrics",
            "status.sidecar.istio.io/port",
        ] {
            let pod = |value: &str| json!({"metadata": {"annotations": {key: value}}});
            assert!(noted(&pod("a"), &pod("b")).replaced.is_empty(), "{key}");
            let status = recorded(&json!({"annotations": {key: {"was": "a", "is": "b"}}}));
            assert_eq!(restored(&pod("b"), &status), pod("b"));
        }
        for key in [
            "istio.io/rev",
            "traffic.sidecar.istio.io/includeInboundPorts",
            "example.com/istio.io",
            "notistio.io/a",
            "istio.io",
        ] {
            let pod = |value: &str| json!({"metadata": {"annotations": {key: value}}});
            assert_eq!(
                restored(&pod("b"), &noted(&pod("a"), &pod("b"))),
                pod("a"),
                "{key}"
            );
        }
    }

    /// Nobody else would take them back, and a record could bring unsafe ones that another webhook has taken out.
    #[test]
    fn sysctls_go_with_the_gateway() {
        let pod = |sysctls: Value| json!({"spec": {"securityContext": {"sysctls": sysctls}}});
        let gateways = json!([{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]);
        let after = pod(gateways.clone());
        let status = noted(&json!({"spec": {}}), &after);
        assert_eq!(restored(&after, &status), json!({"spec": {}}));
        let safe = pod(json!([{"name": "net.ipv4.tcp_syncookies", "value": "1"}]));
        assert_eq!(restored(&after, &noted(&safe, &after)), safe);
        let unsafe_one = json!([{"name": "kernel.msgmax", "value": "1"}]);
        assert!(noted(&pod(unsafe_one.clone()), &after).replaced.is_empty());
        let record = json!({"securityContext": {"sysctls": {"was": unsafe_one, "is": gateways}}});
        assert_eq!(restored(&after, &recorded(&record)), after);
    }

    /// An author writes the status, too, and a webhook before this one may have made the pod safer.
    #[test]
    fn a_record_takes_no_protection_back() {
        let context = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}, "fsGroup": 1337});
        let pod = json!({"spec": {"securityContext": context}});
        let record = json!({"securityContext": {
            "runAsNonRoot": {"is": true}, "seccompProfile": {"is": {"type": "RuntimeDefault"}}, "runAsUser": {"was": 0},
            "fsGroup": {"was": 7, "is": 1337},
        }});
        let mut wanted = pod.clone();
        wanted["spec"]["securityContext"]["fsGroup"] = 7.into();
        assert_eq!(restored(&pod, &recorded(&record)), wanted);
    }

    #[test]
    fn long_values_are_not_recorded() {
        let long = "x".repeat(MAX_RECORD_BYTES);
        let before = json!({"metadata": {"annotations": {"a": "1", "b": long, "c": "3"}}});
        let after = json!({"metadata": {"annotations": {"a": "", "b": "", "c": ""}}});
        let wanted =
            json!({"annotations": {"a": {"was": "1", "is": ""}, "c": {"was": "3", "is": ""}}});
        assert_eq!(Value::Object(noted(&before, &after).replaced), wanted);
    }

    #[test]
    fn values_with_line_breaks_are_not_recorded() {
        let before = json!({"metadata": {"annotations": {"a": "b\nc", "d": "e"}}});
        let after = json!({"metadata": {"annotations": {"a": "x", "d": "x"}}});
        let wanted = json!({"annotations": {"d": {"was": "e", "is": "x"}}});
        assert_eq!(Value::Object(noted(&before, &after).replaced), wanted);
    }

    #[test]
    fn malformed_records_are_ignored() {
        for replaced in [
            json!({"annotations": 7, "labels": ["a"], "securityContext": "x"}),
            json!({"annotations": {"a": "c"}, "securityContext": {"fsGroup": null}}),
            json!({"annotations": {"a": {"was": 1, "is": "b"}}, "securityContext": {"fsGroup": {"was": [], "is": 1}}}),
            json!({"dnsConfig": {"searches": {"was": [{}]}}, "labels": {"a": {"was": {}}}}),
            json!({"containers": [{"name": "a"}], "hostNetwork": {"was": true}, "spec": {"hostPID": {"was": true}}}),
        ] {
            let pod = json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"securityContext": {"fsGroup": 1}}});
            assert_eq!(restored(&pod, &recorded(&replaced)), pod, "{replaced}");
        }
    }
}
