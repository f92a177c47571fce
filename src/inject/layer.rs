//! One layer of an overlay: the typed output of a template, the names of its elements, and its effect on a pod's lists.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::merge;
use crate::native_sidecar;
use crate::output_error::OutputError;
use crate::output_types::{self, TypingOptions, TypingReport};
use crate::pod::{self, ByList, PROXY, PodList};
use crate::release::Release;
use crate::schema::{self, Kind};
use crate::yaml::{Node, Value as Tree};

const READING: TypingOptions = TypingOptions {
    drop_restart_policy: false,
    nulls: true,
    directives: true,
};

/// The output of one template, typed: `metadata` with labels and annotations, and `spec`.
pub(crate) fn read(node: &Node, report: &mut TypingReport) -> Result<Value, OutputError> {
    let Tree::Map(entries) = &node.value else {
        return Err("the template's output is not an object".to_owned().into());
    };
    let mut layer = Map::new();
    for (key, node) in entries {
        let value = report.below(layer.len(), |report| part(key, node, report))?;
        // A valid pod has each of these, so null has nothing to delete.
        layer.extend(
            value
                .filter(|value| !value.is_null())
                .map(|value| (key.clone(), value)),
        );
    }
    if let Some(spec) = layer.get("spec") {
        for list in PodList::ALL {
            let elements = spec.get(list.name()).and_then(Value::as_array);
            merge::check_names(list, elements.map_or(&[], Vec::as_slice))?;
        }
    }
    Ok(Value::Object(layer))
}

fn part(key: &str, node: &Node, report: &mut TypingReport) -> Result<Option<Value>, String> {
    match (key, &node.value) {
        ("metadata", Tree::Map(entries)) => metadata(entries, report).map(Some),
        ("spec", _) => typed(node, schema::object("PodSpec"), key, report),
        ("metadata", _) => typed(node, schema::object("ObjectMeta"), key, report),
        _ => {
            report.pruned.push(key.to_owned());
            Ok(None)
        }
    }
}

fn typed(
    node: &Node,
    kind: Option<schema::ObjectType>,
    path: &str,
    report: &mut TypingReport,
) -> Result<Option<Value>, String> {
    let kind = kind.map_or(Kind::Any, Kind::Object);
    output_types::typed(node, kind, path, READING, report).map_err(|mistake| mistake.to_string())
}

fn metadata(entries: &[(String, Node)], report: &mut TypingReport) -> Result<Value, String> {
    let mut metadata = Map::new();
    for (key, node) in entries {
        let path = format!("metadata.{key}");
        let field = schema::object("ObjectMeta").and_then(|object| object.field(key));
        let Some(field) = field.filter(|_| matches!(key.as_str(), "labels" | "annotations")) else {
            report.pruned.push(path);
            continue;
        };
        let value = report.below(metadata.len(), |report| {
            output_types::typed(node, field.kind, &path, READING, report)
        });
        let value = value.map_err(|mistake| mistake.to_string())?;
        metadata.extend(value.map(|value| (key.clone(), value)));
    }
    Ok(Value::Object(metadata))
}

/// Returns the names of the elements that the templates add, in their order, each once.
pub(crate) fn element_names(layers: &[Value]) -> ByList<Vec<String>> {
    ByList::from_fn(|list| {
        let mut names: Vec<String> = Vec::new();
        let mut seen = BTreeSet::new();
        let elements = layers.iter().flat_map(|layer| pod::list(layer, list));
        for element in elements.filter(|element| merge::adds(element)) {
            let name = pod::name(element);
            if !name.is_empty() && seen.insert(name) {
                names.push(name.to_owned());
            }
        }
        names
    })
}

/// Checks that no application's container has the name of an init container that the templates make: no pod has both, and the
/// application's would lose its image. The proxy is the same in either list.
pub(crate) fn check_application_names(
    pod: &Value,
    of_templates: &ByList<Vec<String>>,
) -> Result<(), String> {
    let init = of_templates.init_containers.iter();
    let init = init.filter(|name| *name != PROXY && !of_templates.containers.contains(*name));
    let init: BTreeSet<&str> = init.map(String::as_str).collect();
    let names = pod::list(pod, PodList::Containers).iter().map(pod::name);
    match names.enumerate().find(|(_, name)| init.contains(name)) {
        Some((at, name)) => Err(format!(
            "spec.containers[{at}]: {name} is an init container of the template: want another name"
        )),
        None => Ok(()),
    }
}

/// Init containers of stock templates that prepare the pod, and end.
const PREPARING: [&str; 3] = ["istio-init", "istio-validation", native_sidecar::CORE_DUMP];

/// Removes `restartPolicy` from the init containers that prepare the pod: overlays of 1.9 to 1.17 set it, for servers that
/// did not know the field; since Kubernetes 1.28 it makes sidecars of them, which never end.
pub(crate) fn end_what_must_end(layer: &mut Value) {
    let init = pod::existing_list_mut(layer, PodList::InitContainers);
    for container in init.into_iter().flatten() {
        if PREPARING.contains(&pod::name(container))
            && let Some(fields) = container.as_object_mut()
        {
            fields.shift_remove("restartPolicy");
        }
    }
}

/// Returns the release of the templates' proxy.
pub(crate) fn proxy_release(layers: &[Value]) -> Release {
    let lists = layers
        .iter()
        // The image of the upper layer wins in the merge.
        .rev()
        .flat_map(|layer| PodList::OF_CONTAINERS.map(|list| pod::list(layer, list)));
    Release::of_proxy(lists.flatten())
}

/// Returns true if a template makes the proxy's container.
pub(crate) fn makes_proxy(layer: &Value) -> bool {
    proxies(layer).next().is_some()
}

/// Returns true if a template gives the proxy its image.
pub(crate) fn has_proxy_image(layer: &Value) -> bool {
    proxies(layer).any(|proxy| proxy.get("image").is_some_and(Value::is_string))
}

fn proxies(layer: &Value) -> impl Iterator<Item = &Value> {
    let all = PodList::OF_CONTAINERS
        .into_iter()
        .flat_map(|list| pod::list(layer, list));
    all.filter(|one| pod::name(one) == PROXY)
}

/// The proxy may be a container here and an init container there: it is one, and that is the latter. Returns true if the layer's
/// became one.
pub(crate) fn align(pod: &mut Value, layer: &mut Value) -> bool {
    let has = |of: &Value, list| {
        pod::list(of, list)
            .iter()
            .any(|one| pod::name(one) == PROXY)
    };
    if has(pod, PodList::Containers) && has(layer, PodList::InitContainers) {
        to_init(pod);
    }
    let moves = has(layer, PodList::Containers) && has(pod, PodList::InitContainers);
    if moves {
        to_init(layer);
        // An empty list would create the field in a pod without it.
        if pod::list(layer, PodList::Containers).is_empty()
            && let Some(spec) = layer.get_mut("spec").and_then(Value::as_object_mut)
        {
            spec.shift_remove("containers");
        }
    }
    moves
}

fn to_init(of: &mut Value) {
    let Some(containers) = pod::existing_list_mut(of, PodList::Containers) else {
        return;
    };
    let Some(place) = containers.iter().position(|one| pod::name(one) == PROXY) else {
        return;
    };
    let proxy = containers.remove(place);
    if let Some(init) = pod::list_mut(of, PodList::InitContainers) {
        init.push(proxy);
    }
}
