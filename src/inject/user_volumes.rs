//! Volumes and mounts that a pod asks for by annotations, and that templates add to it: a map by name, or a list.

use std::collections::BTreeSet;

use api::text::first_letters;
use serde_json::{Map, Value};

use crate::output_error::OutputError;
use crate::output_types::{self, TypingOptions, TypingReport};
use crate::pod;
use crate::schema::{self, Kind};
use crate::yaml;
use crate::yaml_safe;

pub(crate) const USER_VOLUME: &str = "sidecar.istio.io/userVolume";
pub(crate) const USER_VOLUME_MOUNT: &str = "sidecar.istio.io/userVolumeMount";

/// Volumes, or mounts, of one annotation. Chosen: a pod has a few, and each is checked, rendered and patched.
const MAX_ENTRIES: usize = 500;

/// Characters of a path that an error shows.
const MAX_SHOWN: usize = 64;

/// Reads a map by name, or a list, whose elements have their names in them.
fn entries(value: &str) -> Result<Map<String, Value>, String> {
    let too_many = |count: usize| format!("{count} entries, {MAX_ENTRIES} at most");
    let items = match serde_json::from_str::<Value>(value) {
        Ok(Value::Object(entries)) if entries.len() > MAX_ENTRIES => {
            return Err(too_many(entries.len()));
        }
        Ok(Value::Object(entries)) => return Ok(entries),
        Ok(Value::Array(items)) => items,
        Ok(_) => return Err("want a JSON object or list".to_owned()),
        Err(error) => return Err(format!("want a JSON object or list: {error}")),
    };
    if items.len() > MAX_ENTRIES {
        return Err(too_many(items.len()));
    }
    let mut by_name = Map::new();
    for (index, item) in items.into_iter().enumerate() {
        let Value::Object(mut fields) = item else {
            return Err(format!("[{index}]: want an object"));
        };
        let name = match fields.shift_remove("name") {
            Some(Value::String(name)) if !name.is_empty() => name,
            _ => return Err(format!("[{index}]: want a name")),
        };
        // Templates range over a map of them.
        if by_name.contains_key(&name) {
            return Err(format!("[{index}]: the name {name:?} twice"));
        }
        by_name.insert(name, Value::Object(fields));
    }
    Ok(by_name)
}

/// The annotations of a pod that hold lists of objects, as the maps that templates range over.
pub(crate) fn lists_by_name(pod: &Value) -> Vec<(String, Value)> {
    let keys = [USER_VOLUME, USER_VOLUME_MOUNT].into_iter();
    keys.filter_map(|name| {
        let value = pod::annotation(pod, name)?;
        let is_list = value.trim_start().starts_with('[');
        let entries = entries(value).ok().filter(|_| is_list)?;
        let text = yaml::json(&Value::Object(entries));
        Some((name.to_owned(), Value::from(text)))
    })
    .collect()
}

/// The first key of a directive of a strategic merge, at any depth: it would change other volumes of the pod than the annotation's own.
fn directive(value: &Value) -> Option<&str> {
    match value {
        Value::Object(entries) => entries.iter().find_map(|(key, value)| {
            let own = key.starts_with('$').then_some(key.as_str());
            own.or_else(|| directive(value))
        }),
        Value::Array(items) => items.iter().find_map(directive),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Checks a map, or a list, whose entries a template turns into elements of `kind`. They are typed here as they will be
/// there, so that an error names the annotation.
pub(crate) fn check(value: &str, kind: &str) -> Result<(), String> {
    let entries = entries(value)?;
    for (name, value) in &entries {
        if name.contains(yaml_safe::is_control) {
            return Err(format!("{name:?}: {}", yaml_safe::CONTROL));
        }
        yaml_safe::strings(value).map_err(|cause| format!("{name:?}: {cause}"))?;
        if let Some(key) = directive(value) {
            return Err(format!(
                "{name:?}: {key:?}: a directive, which templates alone may have"
            ));
        }
    }
    let kind = schema::object(kind).map_or(Kind::Any, Kind::Object);
    let reading = TypingOptions {
        nulls: true,
        ..TypingOptions::default()
    };
    entries.iter().try_for_each(|(name, value)| {
        if name.is_empty() {
            return Err("want a name before each object".to_owned());
        }
        if !value.is_object() {
            return Err(format!("{name:?}: want an object"));
        }
        let node = yaml::read(&yaml::json(value)).map_err(|error| error.to_string())?;
        let node = node.ok_or_else(|| format!("{name:?}: want an object"))?;
        output_types::typed(&node, kind, "", reading, &mut TypingReport::default())
            .map(drop)
            .map_err(|mistake| format!("{name:?}: {mistake}"))
    })
}

/// Returns the reason for which no API server takes the proxy of the pod: two mounts at one path, as the pod's annotations or the mesh
/// configuration may have them made.
pub(crate) fn mounted_twice(pod: &Value) -> Option<String> {
    let mounts = pod::proxy(pod)?.get("volumeMounts")?.as_array()?;
    let mut paths = mounts
        .iter()
        .filter_map(|mount| mount.get("mountPath")?.as_str());
    let mut seen = BTreeSet::new();
    let path = paths.find(|path| !seen.insert(*path))?;
    let path = first_letters(path, MAX_SHOWN);
    Some(format!(
        "{} would have two mounts at {path:?}, which API servers refuse: want another configPath in proxy.istio.io/config, or another mountPath in {USER_VOLUME_MOUNT}",
        pod::PROXY
    ))
}

/// Explains a duplicate volume if the pod's annotation names a volume of the template.
pub(crate) fn volume_twice(pod: &Value, error: &OutputError) -> Option<String> {
    let OutputError::Duplicate { list, name, .. } = error else {
        return None;
    };
    let value = pod::annotation(pod, USER_VOLUME).filter(|_| list == "volumes")?;
    entries(value).ok()?.get(name)?;
    Some(format!(
        "invalid value '{value}' for annotation '{USER_VOLUME}': userVolume invalid: the template has a volume {name:?} itself"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_has_no_directives() {
        for (text, key) in [
            (r#"[{"name": "v", "$patch": "delete"}]"#, "$patch"),
            (r#"{"v": {"$patch": "replace"}}"#, "$patch"),
            (
                r#"{"v": {"emptyDir": {"$retainKeys": ["medium"]}}}"#,
                "$retainKeys",
            ),
            (
                r#"[{"name": "v", "projected": {"sources": [{"$setElementOrder/a": []}]}}]"#,
                "$setElementOrder/a",
            ),
        ] {
            let wanted = format!("\"v\": \"{key}\": a directive, which templates alone may have");
            assert_eq!(check(text, "Volume"), Err(wanted), "{text}");
        }
        let fine = r#"{"$v": {"configMap": {"name": "$a"}}}"#;
        assert_eq!(check(fine, "Volume"), Ok(()));
    }

    #[test]
    fn an_annotation_has_a_bounded_number_of_entries() {
        let map = |count: usize| {
            let all: Vec<_> = (0..count).map(|at| format!("\"v{at}\": {{}}")).collect();
            format!("{{{}}}", all.join(", "))
        };
        let list = |count: usize| {
            let all: Vec<_> = (0..count)
                .map(|at| format!("{{\"name\": \"v{at}\"}}"))
                .collect();
            format!("[{}]", all.join(", "))
        };
        for text in [map(MAX_ENTRIES), list(MAX_ENTRIES)] {
            assert_eq!(check(&text, "Volume"), Ok(()));
        }
        for text in [map(MAX_ENTRIES + 1), list(MAX_ENTRIES + 1)] {
            let cause = check(&text, "Volume").unwrap_err();
            assert_eq!(cause, "501 entries, 500 at most");
        }
    }
}
