//! Metrics of proxy and application at one address: the application's scrape annotations go to the agent, which scrapes it
//! and answers for both.

use std::collections::{BTreeMap, HashMap, HashSet};

use api::proxy_ports::{LISTENED, OF_OTHER_AGENTS};
use serde_json::{Map, Value, json};

use crate::annotations;
use crate::pod;
use crate::status::Status;

/// The variable of the proxy that holds the pod's annotations.
pub(crate) const VARIABLE: &str = "ISTIO_PROMETHEUS_ANNOTATIONS";

/// The annotations that a pod may have, by the variable's keys.
const SCRAPE_ANNOTATIONS: [(&str, &str); 3] = [
    ("scrape", "prometheus.io/scrape"),
    ("path", "prometheus.io/path"),
    ("port", "prometheus.io/port"),
];

/// Several places to ask instead of one, and their annotation: `PORT:PATH`, separated by commas.
const TARGETS: (&str, &str) = ("targets", "prometheus.istio.io/scrape-targets");

/// The path that Prometheus scrapes.
const PATH: &str = "/stats/prometheus";

/// A name with any separators: scrapers are configured for each of them.
fn is_form(name: &str, of: &str) -> bool {
    let plain = |letter: u8| {
        if letter.is_ascii_alphanumeric() {
            letter
        } else {
            b'_'
        }
    };
    name.len() == of.len()
        && name
            .bytes()
            .zip(of.bytes())
            .all(|(a, b)| plain(a) == plain(b))
}

/// The pod's value of an annotation in any of its forms; Kubernetes' own form comes first.
fn annotation_value<'a>(
    annotations: Option<&'a Map<String, Value>>,
    name: &str,
) -> Option<&'a str> {
    let annotations = annotations?;
    let exact = annotations.get(name).and_then(Value::as_str);
    exact.or_else(|| {
        let forms = annotations.iter().filter(|(key, _)| is_form(key, name));
        let entry = forms.min_by_key(|(key, _)| *key)?;
        entry.1.as_str()
    })
}

/// The key of the pod's original annotations, if a name is spelled otherwise than Kubernetes does: the agent ignores it, but
/// removing an injection restores them.
const FORMS: &str = "forms";

fn is_target_form(name: &str) -> bool {
    is_form(name, TARGETS.1)
}

fn is_scrape_form(name: &str) -> bool {
    SCRAPE_ANNOTATIONS
        .iter()
        .any(|(_, usual)| is_form(name, usual))
}

/// The targets that the agent takes at most (`init::config::scrape`).
const MAX_TARGETS: usize = 16;

/// A page of the application's metrics.
#[derive(Debug, PartialEq)]
struct Target {
    port: u16,
    path: String,
}

/// An application's port, as a text.
fn port(text: &str, status_port: u16) -> Result<u16, String> {
    let port = text.parse().ok().filter(|port| *port != 0);
    let port = port.ok_or_else(|| format!("port {text:?} is not in 1..65535"))?;
    // No application can listen there: a scrape of one could come round to the proxy again.
    let mut reserved = LISTENED.iter().chain(&OF_OTHER_AGENTS);
    if port == status_port || reserved.any(|reserved| *reserved == port) {
        return Err(format!("port {port} is the proxy's own"));
    }
    Ok(port)
}

/// Tells why the agent cannot ask the one place that the annotations name.
fn doubt(annotations: &[(&str, Option<String>)], status_port: u16) -> Option<String> {
    let value_of = |key| {
        let (_, value) = annotations.iter().find(|(name, _)| *name == key)?;
        value.as_deref()
    };
    let text = value_of("port").unwrap_or_default();
    let path = value_of("path").unwrap_or_default();
    let (name, cause) = match port(text, status_port) {
        Err(cause) if !text.is_empty() => ("port", cause),
        _ if path.contains(|letter: char| letter.is_ascii_control()) => {
            ("path", "it holds control characters".to_owned())
        }
        _ => return None,
    };
    Some(format!(
        "annotation prometheus.io/{name} has no effect: {cause}"
    ))
}

fn targets(text: &str, status_port: u16) -> Result<Vec<Target>, String> {
    let entries = text.split(',').map(str::trim);
    let entries = entries.filter(|entry| !entry.is_empty());
    let read = entries.map(|entry| {
        let (port, path) = entry.split_once(':').unwrap_or((entry, ""));
        let path = path.trim();
        let port = self::port(port.trim(), status_port)?;
        let path = if path.is_empty() { "/metrics" } else { path };
        Ok(Target {
            port,
            path: path.to_owned(),
        })
    });
    let read: Vec<Target> = read.collect::<Result<_, String>>()?;
    if read.len() > MAX_TARGETS {
        return Err(format!("it has more than {MAX_TARGETS} targets"));
    }
    Ok(read)
}

/// Renders targets of the variable as their annotation.
fn target_text(list: &[Value]) -> String {
    let text = |target: &Value, key: &str| {
        let text = target.get(key).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let entries = list.iter().map(|target| {
        let (port, path) = (text(target, "port"), text(target, "path"));
        format!("{port}:{path}")
    });
    entries.collect::<Vec<_>>().join(",")
}

/// Sends Prometheus to the proxy, and the proxy to the application. Invalid targets stay as they are, and the cause is
/// returned.
pub(crate) fn merge(pod: &mut Value, port: u16) -> Option<String> {
    let annotations = pod
        .get("metadata")
        .and_then(|metadata| pod::object(metadata, "annotations"));
    let scrape_annotations = SCRAPE_ANNOTATIONS
        .map(|(key, name)| (key, annotation_value(annotations, name).map(str::to_owned)));
    let [(_, scrape), _, (_, at)] = &scrape_annotations;
    let unwanted = scrape.as_deref().and_then(annotations::boolean) == Some(false);
    // Annotations that name the agent's port lead to it already.
    if unwanted || at.as_deref().and_then(|at| at.parse().ok()) == Some(port) {
        return None;
    }
    let list = annotation_value(annotations, TARGETS.1).map(|text| (text, targets(text, port)));
    let (list, warning) = match list {
        None => (None, None),
        Some((text, Ok(list))) => ((!list.is_empty()).then_some((text, list)), None),
        Some((_, Err(cause))) => {
            let name = TARGETS.1;
            (
                None,
                Some(format!("annotation {name} has no effect: {cause}")),
            )
        }
    };
    let has_targets = list.is_some();
    let warning = warning.or_else(|| doubt(&scrape_annotations, port).filter(|_| !has_targets));
    let is_set = |value: &Option<String>| value.as_ref().is_some_and(|value| !value.is_empty());
    if has_targets || scrape_annotations.iter().any(|(_, value)| is_set(value)) {
        let text = variable_text(annotations, &scrape_annotations, list);
        set_variable(pod, VARIABLE, &text);
    }
    point_at_agent(pod, port, has_targets);
    warning
}

/// Returns the value of the variable: the annotations of the scrape, and the targets with the text of their annotation.
fn variable_text(
    annotations: Option<&Map<String, Value>>,
    scrape_annotations: &[(&str, Option<String>); 3],
    list: Option<(&str, Vec<Target>)>,
) -> String {
    let pairs = scrape_annotations.iter();
    let mut text: Map<String, Value> = pairs
        .map(|(key, value)| {
            (
                (*key).to_owned(),
                json!(value.as_deref().unwrap_or_default()),
            )
        })
        .collect();
    let has_targets = list.is_some();
    let mut is_stated = true;
    if let Some((annotation, list)) = list {
        // Agents without support for several targets scrape the first.
        if let Some(first) = list.first() {
            text.insert("path".to_owned(), json!(first.path));
            text.insert("port".to_owned(), json!(first.port.to_string()));
        }
        let list = list.iter();
        let list: Vec<Value> = list
            .map(|one| json!({"port": one.port.to_string(), "path": one.path}))
            .collect();
        // The variable has the first target's port and path now: the pod's own are lost unless `FORMS`
        // keeps them.
        let [_, (_, path), (_, port)] = scrape_annotations;
        is_stated = path.is_none() && port.is_none() && target_text(&list) == annotation;
        text.insert(TARGETS.0.to_owned(), list.into());
    }
    let forms = forms(annotations, has_targets, is_stated);
    text.extend(forms.map(|forms| (FORMS.to_owned(), forms)));
    Value::Object(text).to_string()
}

/// Replaces the annotations of a scrape by those of the agent's port. The forms that are not the usual ones go: the variable has
/// them.
fn point_at_agent(pod: &mut Value, port: u16, has_targets: bool) {
    if pod::object_mut(pod, "metadata").is_none() {
        return;
    }
    let metadata = pod.get_mut("metadata");
    let Some(annotations) = metadata.and_then(|metadata| pod::object_mut(metadata, "annotations"))
    else {
        return;
    };
    annotations.retain(|key, _| {
        let is_usual = SCRAPE_ANNOTATIONS.iter().any(|(_, name)| key == name);
        is_usual || !(is_scrape_form(key) || has_targets && is_target_form(key))
    });
    let values = ["true".to_owned(), PATH.to_owned(), port.to_string()];
    for ((_, name), value) in SCRAPE_ANNOTATIONS.iter().zip(values) {
        annotations.insert((*name).to_owned(), json!(value));
    }
}

/// Collects the pod's Prometheus annotations in every form; `None` if the variable has them all, and each name is the usual
/// one.
fn forms(
    annotations: Option<&Map<String, Value>>,
    has_targets: bool,
    is_in_variable: bool,
) -> Option<Value> {
    let is_ours = |key: &str| is_scrape_form(key) || has_targets && is_target_form(key);
    let all = annotations.into_iter().flatten();
    let all = all.filter(|(key, value)| value.is_string() && is_ours(key));
    // Sorted, so that a second pass writes them in the same order.
    let all: BTreeMap<&String, &Value> = all.collect();
    let is_usual = |key: &&String| {
        let mut usual = SCRAPE_ANNOTATIONS.iter().chain([&TARGETS]);
        usual.any(|(_, name)| name == *key)
    };
    (!is_in_variable || !all.keys().all(is_usual)).then(|| json!(all))
}

/// Adds a variable to the proxy, or replaces the one of that name.
pub(crate) fn set_variable(pod: &mut Value, name: &str, value: &str) {
    set_variables(pod, &[(name.to_owned(), value.to_owned())]);
}

/// Sets several variables; the last one of a name wins.
pub(crate) fn set_variables(pod: &mut Value, variables: &[(String, String)]) {
    if variables.is_empty() {
        return;
    }
    for proxy in pod::proxies_mut(pod) {
        let Some(fields) = proxy.as_object_mut() else {
            continue;
        };
        let env = fields.entry("env").or_insert(Value::Null);
        if !env.is_array() {
            *env = json!([]);
        }
        let Some(env) = env.as_array_mut() else {
            continue;
        };
        let mut places: HashMap<String, usize> = HashMap::new();
        for (place, known) in env.iter().enumerate() {
            // Of two variables of one name a container has the later one.
            places.insert(pod::name(known).to_owned(), place);
        }
        for (name, value) in variables {
            let variable = json!({"name": name, "value": value});
            match places.get(name).and_then(|place| env.get_mut(*place)) {
                Some(known) => *known = variable,
                None => {
                    places.insert(name.clone(), env.len());
                    env.push(variable);
                }
            }
        }
    }
}

/// The annotations that an earlier injection replaced.
pub(crate) fn originals(pod: &Value, earlier: &Status) -> Vec<(String, String)> {
    let Some(entries) = earlier.stored_variable(pod, VARIABLE) else {
        return Vec::new();
    };
    let stored: Vec<(String, Value)> = match entries.get(FORMS) {
        Some(Value::Object(forms)) => {
            let forms = forms.clone().into_iter();
            // A user may have written any value there.
            forms
                .filter(|(name, _)| is_scrape_form(name) || is_target_form(name))
                .collect()
        }
        _ => {
            let targets = entries.get(TARGETS.0).and_then(Value::as_array);
            let targets = targets.map(|list| (TARGETS.1.to_owned(), json!(target_text(list))));
            let names = SCRAPE_ANNOTATIONS.iter();
            let scrape = names
                .filter_map(|(key, name)| Some(((*name).to_owned(), entries.get(*key)?.clone())));
            scrape.chain(targets).collect()
        }
    };
    let added = earlier.annotations.iter().map(String::as_str);
    let added: HashSet<&str> = added.collect();
    // The status names the annotations that the pod had not: an empty text means none, and any other was the
    // configuration's.
    stored
        .into_iter()
        .filter(|(name, _)| !added.contains(name.as_str()))
        .filter_map(|(name, text)| Some((name, text.as_str()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::{ByList, PROXY};

    fn pod(annotations: &Value) -> Value {
        json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": PROXY}]}})
    }

    #[test]
    fn annotations_move_to_the_agent() {
        let rows = [
            (
                json!({"prometheus.io/scrape": "true", "prometheus.io/path": "/m", "prometheus.io/port": "80", "x": "y"}),
                Some(r#"{"scrape":"true","path":"/m","port":"80"}"#),
            ),
            (
                json!({"prometheus_io_port": "80", "prometheus-io-port": "81"}),
                Some(
                    r#"{"scrape":"","path":"","port":"81","forms":{"prometheus-io-port":"81","prometheus_io_port":"80"}}"#,
                ),
            ),
            (
                json!({"prometheus_io_scrape": "true", "prometheus.io/port": "80", "prometheus.io.port": "81"}),
                Some(
                    r#"{"scrape":"true","path":"","port":"80","forms":{"prometheus.io.port":"81","prometheus.io/port":"80","prometheus_io_scrape":"true"}}"#,
                ),
            ),
            (
                json!({"prometheus.io/scrape": "true", "prometheus.istio.io/scrape-targets": "8080:/m,9100:/n"}),
                Some(
                    r#"{"scrape":"true","path":"/m","port":"8080","targets":[{"port":"8080","path":"/m"},{"port":"9100","path":"/n"}]}"#,
                ),
            ),
            (
                json!({"prometheus.io/port": "80", "prometheus.istio.io/scrape-targets": "8080"}),
                Some(
                    r#"{"scrape":"","path":"/metrics","port":"8080","targets":[{"port":"8080","path":"/metrics"}],"forms":{"prometheus.io/port":"80","prometheus.istio.io/scrape-targets":"8080"}}"#,
                ),
            ),
            (json!({}), None),
        ];
        for (annotations, variable) in rows {
            let mut pod = pod(&annotations);
            assert_eq!(merge(&mut pod, 15020), None);
            let env = pod
                .pointer("/spec/containers/0/env/0/value")
                .and_then(Value::as_str);
            assert_eq!(env, variable);
            let left = pod["metadata"]["annotations"].as_object().unwrap();
            assert_eq!(left["prometheus.io/port"], "15020");
            assert_eq!(left["prometheus.io/path"], PATH);
            assert_eq!(left["prometheus.io/scrape"], "true");
            assert_eq!(
                left.len(),
                if annotations.get("x").is_some() { 4 } else { 3 }
            );
        }
    }

    #[test]
    fn originals_come_back_as_they_were() {
        for annotations in [
            json!({"prometheus.io/scrape": "true", "prometheus.io/path": "/m", "prometheus.io/port": "80"}),
            json!({"prometheus.io/scrape": "true", "prometheus.io/path": "", "prometheus.io/port": "80"}),
            json!({"prometheus.io/path": "/m"}),
            json!({"prometheus-io-port": "81", "prometheus_io_port": ""}),
            json!({"prometheus.io.port": "81", "prometheus.io/path": "/m", "prometheus.io/port": "80"}),
            json!({"prometheus.istio.io/scrape-targets": "8080:/m,9100:/n"}),
            json!({"prometheus.io/path": "/p", "prometheus.istio.io/scrape-targets": "8080:/m"}),
            json!({"prometheus.istio.io_scrape_targets": " 8080 ,, 9100: /n"}),
            json!({"prometheus.io/scrape": "true", "prometheus.istio.io/scrape-targets": "8080:"}),
            json!({}),
        ] {
            let mut pod = pod(&annotations);
            assert_eq!(merge(&mut pod, 15020), None);
            let names = SCRAPE_ANNOTATIONS.map(|(_, name)| name).into_iter();
            let added = names.filter(|name| annotations.get(name).is_none());
            let earlier = Status {
                lists: ByList {
                    containers: vec![PROXY.to_owned()],
                    ..ByList::default()
                },
                annotations: added.map(str::to_owned).collect(),
                ..Status::default()
            };
            let found = originals(&pod, &earlier).into_iter();
            let found: Map<String, Value> = found.map(|(name, text)| (name, json!(text))).collect();
            assert_eq!(Value::Object(found), annotations);
        }
    }

    /// The status notes what was replaced.
    #[test]
    fn an_agent_gets_no_variable_without_a_value() {
        for annotations in [
            json!({"prometheus.io/port": ""}),
            json!({"prometheus.io/scrape": "", "prometheus.io/path": "", "prometheus.io/port": ""}),
            json!({"prometheus_io_port": ""}),
        ] {
            let mut pod = pod(&annotations);
            assert_eq!(merge(&mut pod, 15020), None);
            assert_eq!(pod.pointer("/spec/containers/0/env"), None, "{annotations}");
            let left = pod["metadata"]["annotations"].as_object().unwrap();
            assert_eq!(
                (left.len(), &left["prometheus.io/port"]),
                (3, &json!("15020"))
            );
        }
    }

    /// Kubernetes gives a container the later one.
    #[test]
    fn the_later_of_two_variables_of_one_name_is_replaced() {
        let env = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
        let mut pod = json!({"spec": {"containers": [{"name": PROXY, "env": env}]}});
        set_variable(&mut pod, "A", "3");
        assert_eq!(
            pod["spec"]["containers"][0]["env"],
            json!([{"name": "A", "value": "1"}, {"name": "A", "value": "3"}])
        );
    }

    #[test]
    fn targets_that_cannot_be_asked_stay_and_are_told_of() {
        for (targets, cause) in [
            ("x:/m", r#"port "x" is not in 1..65535"#),
            ("80,:/m", r#"port "" is not in 1..65535"#),
            ("0", r#"port "0" is not in 1..65535"#),
            ("8080:/m,15090:/n", "port 15090 is the proxy's own"),
            ("15999", "port 15999 is the proxy's own"),
        ] {
            let mut pod = pod(&json!({"prometheus.istio.io/scrape-targets": targets}));
            let warning = merge(&mut pod, 15999).unwrap();
            let wanted =
                format!("annotation prometheus.istio.io/scrape-targets has no effect: {cause}");
            assert_eq!(warning, wanted);
            let left = pod["metadata"]["annotations"].as_object().unwrap();
            assert_eq!(left["prometheus.istio.io/scrape-targets"], targets);
            assert_eq!(pod.pointer("/spec/containers/0/env"), None);
        }
    }

    /// The agent has a warning for it that nobody sees who writes annotations.
    #[test]
    fn a_place_that_cannot_be_asked_is_told_of() {
        for (path, port, wanted) in [
            (
                "",
                "http",
                r#"port has no effect: port "http" is not in 1..65535"#,
            ),
            (
                "/m",
                "15090",
                "port has no effect: port 15090 is the proxy's own",
            ),
            (
                "/a\nb",
                "",
                "path has no effect: it holds control characters",
            ),
        ] {
            let mut annotations = json!({"prometheus.io/path": path, "prometheus.io/port": port});
            let warning = ["annotation prometheus.io/", wanted].concat();
            assert_eq!(merge(&mut pod(&annotations), 15020), Some(warning));
            annotations["prometheus.istio.io/scrape-targets"] = json!("8080");
            assert_eq!(
                merge(&mut pod(&annotations), 15020),
                None,
                "it does not count"
            );
        }
    }

    #[test]
    fn pods_that_refuse_scraping_stay_as_they_are() {
        for annotations in [
            json!({"prometheus.io/scrape": "false", "prometheus.io/port": "80"}),
            json!({"prometheus.io.scrape": "F"}),
            json!({"prometheus.io/port": "15020"}),
        ] {
            let mut merged = pod(&annotations);
            assert_eq!(merge(&mut merged, 15020), None);
            assert_eq!(merged, pod(&annotations));
        }
    }
}
