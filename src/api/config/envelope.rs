//! The envelope of an object, which all kinds share: apiVersion, kind and metadata, and the limits that hold before the spec is
//! read.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value as Json};

use super::fields::{Walker, mismatch, unknown_field};
use super::kinds::{self, Check, Kind};
use super::{Finding, Object, Severity};
use crate::did_you_mean::nearest;
use crate::finding::quoted;
use crate::names::{MAX_NAME_LENGTH, is_label};
use crate::schema::{FieldKind as Of, Key};
use crate::wire;

/// An object as JSON.
pub const MAX_BYTES: usize = 1_536 * 1024;

/// Lists and objects within each other, the object itself included.
pub const MAX_DEPTH: usize = 64;

const FIELDS: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// The namespace of those that name none.
const DEFAULT_NAMESPACE: &str = "default";

/// Checks an object against [`MAX_BYTES`] and [`MAX_DEPTH`]; parts that are deeper are not walked.
pub(super) fn measure(value: &Json) -> Result<(), &'static str> {
    let mut bytes = 0_usize;
    add(value, 1, &mut bytes)?;
    if bytes > MAX_BYTES {
        return Err("object is too large");
    }
    Ok(())
}

/// Adds the approximate length as text; the exact number of escapes is not worth a second pass.
fn add(value: &Json, depth: usize, bytes: &mut usize) -> Result<(), &'static str> {
    if depth > MAX_DEPTH && (value.is_array() || value.is_object()) {
        return Err("nested too deeply");
    }
    *bytes += match value {
        Json::Null | Json::Bool(true) => 4,
        Json::Bool(false) => 5,
        Json::Number(number) => number.to_string().len(),
        Json::String(text) => text.len() + 2,
        Json::Array(items) => {
            for item in items {
                add(item, depth + 1, bytes)?;
            }
            items.len() + 1
        }
        Json::Object(fields) => {
            for (name, value) in fields {
                *bytes += name.len() + 3;
                add(value, depth + 1, bytes)?;
            }
            fields.len() + 1
        }
    };
    Ok(())
}

pub(super) fn read(value: &Json) -> (Option<Object>, Vec<Finding>) {
    let mut walker = Walker::new();
    let object = read_object(value, &mut walker);
    (object, walker.findings.into_vec())
}

fn read_object(value: &Json, walker: &mut Walker) -> Option<Object> {
    if let Err(message) = measure(value) {
        walker.error(message);
        return None;
    }
    let Json::Object(fields) = value else {
        walker.error("expected an object");
        return None;
    };
    let kind = kind(fields, walker)?;
    let mut metadata = Metadata::default();
    let mut spec = Json::Object(Map::new());
    if fields.get("metadata").is_none_or(Json::is_null) {
        let length = walker.path.enter("metadata");
        walker.error_at("name", "is required");
        walker.path.back(length);
    }
    for (name, value) in fields {
        let length = walker.path.enter(name);
        match name.as_str() {
            "apiVersion" | "kind" | "status" => {}
            "metadata" | "spec" if value.is_null() => {}
            "metadata" => metadata = Metadata::read(value, kind, walker),
            "spec" => spec = walker.message(kind.message, value),
            name => walker.error(unknown_field(nearest(name, FIELDS))),
        }
        walker.path.back(length);
    }
    // A null in the spec stands for an unreadable value: encoded, the field would be absent.
    let body = if walker.findings.has_errors() {
        Bytes::new()
    } else if kind.verbatim {
        let as_written = fields.get("spec").and_then(Json::as_object);
        as_written
            .map(wire::encode_struct)
            .unwrap_or_default()
            .into()
    } else {
        wire::encode(kind.message, &spec).into()
    };
    let namespace = match metadata.namespace {
        namespace if namespace.is_empty() && !kind.cluster => DEFAULT_NAMESPACE.to_owned(),
        namespace => namespace,
    };
    Some(Object {
        kind,
        namespace,
        name: metadata.name,
        labels: metadata.labels,
        annotations: metadata.annotations,
        spec,
        body,
    })
}

/// The row of the table; a finding where there is none to check by.
fn kind(fields: &Map<String, Json>, walker: &mut Walker) -> Option<&'static Kind> {
    let api_version = required_string(fields, "apiVersion", walker);
    let name = required_string(fields, "kind", walker);
    match kinds::kind(api_version?, name?) {
        Ok(row) if row.check == Check::Unused => {
            let message = kinds::unchecked(row);
            let length = walker.path.enter("kind");
            walker.push_finding(Severity::Warning, message);
            walker.path.back(length);
            None
        }
        Ok(row) => Some(row),
        Err(finding) => {
            walker.findings.add(finding.severity, || finding);
            None
        }
    }
}

fn required_string<'json>(
    fields: &'json Map<String, Json>,
    name: &str,
    walker: &mut Walker,
) -> Option<&'json str> {
    match fields.get(name) {
        Some(Json::String(text)) if !text.is_empty() => return Some(text),
        None | Some(Json::Null | Json::String(_)) => walker.error_at(name, "is required"),
        Some(_) => walker.error_at(name, "expected a string; quote the value"),
    }
    None
}

/// Metadata used by rules and by the resource name.
#[derive(Default)]
struct Metadata {
    name: String,
    namespace: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl Metadata {
    fn read(value: &Json, kind: &Kind, walker: &mut Walker) -> Self {
        let mut metadata = Self::default();
        let Json::Object(fields) = value else {
            walker.error(mismatch("an object", value));
            return metadata;
        };
        let is_there = |name| {
            fields
                .get(name)
                .is_some_and(|value| !value.is_null() && value != "")
        };
        if !is_there("name") && !is_there("generateName") {
            walker.error_at("name", "is required");
        }
        for (name, value) in fields {
            if value.is_null() {
                continue;
            }
            let length = walker.path.enter(name);
            match name.as_str() {
                "name" => metadata.name = text(value, is_dns_name, "a DNS name", walker),
                // The API server completes the name, and judges the result.
                "generateName" => drop(text(value, |_| true, "", walker)),
                // That of an object of the whole cluster is dropped.
                "namespace" if kind.cluster => {}
                "namespace" => metadata.namespace = text(value, is_label, "a DNS label", walker),
                "labels" => metadata.labels = texts(value, walker),
                "annotations" => metadata.annotations = texts(value, walker),
                _ => {}
            }
            walker.path.back(length);
        }
        metadata
    }
}

/// Checks the full name of a resource, whose metadata was not read.
pub(super) fn misnamed(kind: &Kind, full_name: &str) -> Vec<Finding> {
    let (namespace, name) = match (kind.cluster, full_name.split_once('/')) {
        (true, _) => (None, full_name),
        (false, Some((namespace, name))) => (Some(namespace), name),
        (false, None) => (Some(""), full_name),
    };
    let mut findings = Vec::new();
    if !is_dns_name(name) {
        let message = format!("{} is not a DNS name", quoted(name));
        findings.push(Finding::error("metadata.name", message));
    }
    if let Some(namespace) = namespace.filter(|namespace| !is_label(namespace)) {
        let message = format!("{} is not a DNS label", quoted(namespace));
        findings.push(Finding::error("metadata.namespace", message));
    }
    findings
}

/// Text of which a predicate holds, where there is any.
fn text(value: &Json, is_one: fn(&str) -> bool, what: &str, walker: &mut Walker) -> String {
    match super::scalars::read(Of::String, value) {
        Ok(Json::String(text)) => {
            if !text.is_empty() && !is_one(&text) {
                walker.error(format!("{} is not {what}", quoted(&text)));
            }
            text
        }
        Ok(_) => String::new(),
        Err(message) => {
            walker.error(message);
            String::new()
        }
    }
}

fn texts(value: &Json, walker: &mut Walker) -> BTreeMap<String, String> {
    let Json::Object(entries) = walker.map(Key::String, Of::String, value) else {
        return BTreeMap::new();
    };
    entries
        .into_iter()
        .filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())))
        .collect()
}

/// Returns true for a name of a Kubernetes object: labels of DNS, which may be longer than 63 bytes, with dots between.
fn is_dns_name(name: &str) -> bool {
    name.len() <= MAX_NAME_LENGTH
        && name.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|letter| letter.is_ascii_alphanumeric() || letter == b'-')
        })
}
