//! The removal of an earlier injection.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::fragment;
use crate::metrics;
use crate::output_types;
use crate::overrides::Overrides;
use crate::pod::{self, PodList};
use crate::probes::{self, OriginalProbes};
use crate::reinject;
use crate::replaced_values;
use crate::schema::{self, Kind};
use crate::status::{OVERRIDES, STATUS, Status};
use crate::template_names::TemplateNames;

/// The findings of a removal.
#[derive(Debug, Default)]
pub(crate) struct Removal {
    /// The originals of rewritten probes that the earlier injection had stored.
    pub(crate) originals: OriginalProbes,
    /// Elements that are no template's: their entries in the annotations are not restored, and the pod's own stay.
    pub(crate) withheld: TemplateNames,
    /// Those of which the annotations hold more or less than the pod has.
    mismatched: TemplateNames,
}

impl Removal {
    /// Warnings for the pod's author.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        let lists = [
            (
                OVERRIDES,
                "container",
                &self.mismatched.containers,
                ", but for variables and ports that the annotation does not have",
            ),
            (STATUS, "volume", &self.mismatched.volumes, ""),
        ];
        lists.into_iter().flat_map(|(annotation, kind, names, but)| {
            names.iter().map(move |name| {
                format!("annotation {annotation}: no template makes the {kind} {name:?}, so that the pod's own stays{but}")
            })
        })
    }
}

/// Lists to which a template adds without any right: its elements in an application's container are removed again.
const ADDED: [&str; 2] = ["env", "ports"];

/// Removes the elements that an earlier injection added to a container that is no template's; returns true if the pod's container
/// has all elements recorded as the user's own, probes apart, which may have their ports as numbers.
fn trim(element: &mut Value, own: &Value) -> bool {
    let kind = schema::element_of("containers");
    let Some(fields) = element.as_object_mut() else {
        return false;
    };
    let empty = Value::Array(Vec::new());
    for list in ADDED {
        let below = kind.below(list).unwrap_or(Kind::Any);
        let only =
            |value: &Value| Value::Object(Map::from_iter([(list.to_owned(), value.clone())]));
        let (has, had) = (fields.get(list), own.get(list).unwrap_or(&empty));
        // As fields, so that elements are found by their keys.
        let is_there = has.is_some_and(|has| reinject::contains(&only(has), &only(had), kind));
        if !is_there || output_types::shape(had, below, list).is_err() {
            continue;
        }
        if own.get(list).is_some() {
            fields.insert(list.to_owned(), had.clone());
        } else {
            fields.shift_remove(list);
        }
    }
    let mut own = own.clone();
    if let Some(fields) = own.as_object_mut() {
        fields.retain(|key, _| !key.ends_with("Probe") && key != "lifecycle");
    }
    reinject::contains(element, &own, kind)
}

/// Removes an earlier injection for a fragment, which adds its names even if the pod has them: the names of early Istios go from
/// the pod that an overlay was laid over, as from a pod without a status.
pub(crate) fn uninject_for_fragment(pod: &mut Value, earlier: &Status, version: &str) -> Removal {
    let names = TemplateNames::stock();
    let removal = uninject(pod, earlier, version, &names);
    if earlier.revision.is_some() {
        uninject(pod, &Status::legacy(), version, &names);
    }
    removal
}

/// Removes an earlier injection from `pod`, and restores the rewritten probes and the user's elements of `names`. Returns the
/// originals that it had stored if it was of `version`: those of another may be of another kind.
pub(crate) fn uninject(
    pod: &mut Value,
    earlier: &Status,
    version: &str,
    names: &TemplateNames,
) -> Removal {
    // The proxy's variables hold the probes and the annotations: both are read before it is taken out.
    let mut originals = probes::restore(pod, earlier);
    if earlier.version != version {
        originals.clear();
    }
    let metrics = metrics::originals(pod, earlier);
    let (withheld, mismatched) = take_out(pod, earlier, names);
    // As the injection left them: the proxy's variable may have other values of the same annotations.
    let replaced = replaced_values::unchanged(pod, earlier);
    let metrics = metrics
        .into_iter()
        .map(|(key, value)| (key, Value::from(value)));
    fragment::set_annotations(pod, metrics);
    replaced_values::restore(pod, &replaced);
    let removal = Removal {
        originals,
        withheld,
        mismatched,
    };
    let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) else {
        return removal;
    };
    let added = [STATUS, OVERRIDES];
    for (map, keys, added) in [
        ("labels", &earlier.labels, &[][..]),
        ("annotations", &earlier.annotations, &added[..]),
    ] {
        let Some(entries) = metadata.get_mut(map).and_then(Value::as_object_mut) else {
            continue;
        };
        let before = entries.len();
        let keys: HashSet<&str> = keys.iter().map(String::as_str).collect();
        entries.retain(|key, _| !keys.contains(key.as_str()) && !added.contains(&key.as_str()));
        if entries.is_empty() && before > 0 {
            metadata.shift_remove(map);
        }
    }
    removal
}

/// Removes the elements of an earlier injection, and puts the user's of `names` back. Returns the others that the annotations hold,
/// and those of them of which they hold more or less than the pod has.
fn take_out(
    pod: &mut Value,
    earlier: &Status,
    names: &TemplateNames,
) -> (TemplateNames, TemplateNames) {
    let mut stored = Overrides::stored(pod, earlier);
    let mut volumes = replaced_values::volumes(pod, earlier, &names.volumes);
    let others = stored.withhold(&names.containers);
    let withheld = TemplateNames {
        containers: others.keys().cloned().collect(),
        volumes: std::mem::take(&mut volumes.withheld),
    };
    let mut differing = withheld.clone();
    let mut pending = stored.into_pending();
    for list in PodList::ALL {
        let Some(elements) = pod::existing_list_mut(pod, list) else {
            continue;
        };
        let before = elements.len();
        let mut put_in = earlier.put_in(list, elements).into_iter();
        elements.retain_mut(|element| {
            if put_in.next() != Some(true) {
                return true;
            }
            let name = pod::name(element);
            let other = others.get(name).filter(|_| list.has_containers());
            if let Some(own) = other {
                let name = name.to_owned();
                let before = element.clone();
                if trim(element, own) && *element == before {
                    differing.containers.remove(&name);
                }
                return true;
            }
            let is_volume = list == PodList::Volumes;
            if is_volume && (volumes.staying.contains(name) || withheld.volumes.contains(name)) {
                return true;
            }
            // The user's version of it comes back to its place.
            let own = if is_volume {
                volumes.restored.remove(name)
            } else {
                pending.take(list, name)
            };
            own.map(|own| *element = own).is_some()
        });
        // Fields that came with the first element go with the last.
        if elements.is_empty()
            && before > 0
            && let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut)
        {
            spec.shift_remove(list.name());
        }
    }
    pending.put_back(pod);
    (withheld, differing)
}
