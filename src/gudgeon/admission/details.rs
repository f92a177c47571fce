//! The details of a refusal, by which a client can name its object.

use serde_json::{Map, Value, json};

use super::group::Group;
use api::text::cut;

use super::review::AdmissionRequest;

/// Bytes of a kind, a group or a name (a DNS subdomain name, RFC 1123).
const NAME_BYTES: usize = 253;

impl AdmissionRequest {
    /// Builds the `details` of a Status, by which kubectl names the object: without them it can only report an invalid
    /// object.
    pub(super) fn details(&self, causes: Vec<Value>) -> Value {
        let text = |path: &str| self.object.pointer(path).and_then(Value::as_str);
        let first = |all: [Option<&str>; 3]| {
            let there = all.into_iter().flatten().find(|text| !text.is_empty());
            cut(there.unwrap_or_default(), NAME_BYTES).to_owned()
        };
        let version = text("/apiVersion").and_then(|version| version.split_once('/'));
        let Group { group, name, .. } = &self.object_kind;
        let all = [
            ("kind", first([Some(name.as_str()), text("/kind"), None])),
            (
                "group",
                first([Some(group.as_str()), version.map(|(group, _)| group), None]),
            ),
            (
                "name",
                first([
                    Some(&self.name),
                    text("/metadata/name"),
                    text("/metadata/generateName"),
                ]),
            ),
        ];
        let present = all.into_iter().filter(|(_, text)| !text.is_empty());
        let mut details: Map<String, Value> = present
            .map(|(key, text)| (key.to_owned(), json!(text)))
            .collect();
        details.insert("causes".to_owned(), Value::Array(causes));
        Value::Object(details)
    }
}
