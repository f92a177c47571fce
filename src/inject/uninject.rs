//! The removal of an earlier injection.

use std::collections::HashSet;

use serde_json::Value;

use crate::fragment;
use crate::metrics;
use crate::overrides::Overrides;
use crate::pod::{self, CONTAINERS, LISTS};
use crate::probes::{self, OriginalProbes};
use crate::replaced_values;
use crate::status::{OVERRIDES, STATUS, Status};
use crate::template_names::TemplateNames;

/// What a removal found out.
#[derive(Debug, Default)]
pub(crate) struct Removal {
    /// The originals of rewritten probes that the earlier injection had stored.
    pub(crate) originals: OriginalProbes,
    /// Elements that are no template's: what the annotations hold of them is not put back, and the pod's own stay.
    pub(crate) withheld: TemplateNames,
}

impl Removal {
    /// Warnings for the pod's author.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        let lists = [
            (OVERRIDES, "container", &self.withheld.containers),
            (STATUS, "volume", &self.withheld.volumes),
        ];
        lists.into_iter().flat_map(|(annotation, kind, names)| {
            names.iter().map(move |name| {
                format!("annotation {annotation}: no template makes the {kind} {name:?}, so that the pod's own stays")
            })
        })
    }
}

/// Removes an earlier injection for a fragment, which adds its names whatever the pod has: the names of early Istios go from
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
    let mut originals = probes::restore(pod, earlier);
    if earlier.version != version {
        originals.clear();
    }
    let metrics = metrics::originals(pod, earlier);
    let mut kept = Overrides::stored(pod, earlier);
    let mut volumes = replaced_values::volumes(pod, earlier, &names.volumes);
    let withheld = TemplateNames {
        containers: kept.withhold(&names.containers),
        volumes: std::mem::take(&mut volumes.withheld),
    };
    let mut kept = kept.into_pending();
    for list in LISTS {
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
            let stays = match list {
                "volumes" => volumes.staying.contains(name) || withheld.volumes.contains(name),
                _ => CONTAINERS.contains(&list) && withheld.containers.contains(name),
            };
            if stays {
                return true;
            }
            // The user's version of it comes back to its place.
            let own = match list {
                "volumes" => volumes.restored.remove(name),
                _ => kept.take(list, name),
            };
            own.map(|own| *element = own).is_some()
        });
        // Fields that came with the first element go with the last.
        if elements.is_empty()
            && before > 0
            && let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut)
        {
            spec.shift_remove(list);
        }
    }
    kept.put_back(pod);
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
