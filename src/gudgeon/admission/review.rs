//! An AdmissionReview: read with bounds, as far as it can be read, and answered in its own version.
//!
//! The answer's `uid` has to be the question's even when the question is broken half-way, so fields are taken as they come.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

/// Lists and objects within each other.
const MAX_DEPTH: usize = 128;
/// Texts, numbers, lists and objects, as in templates: each takes many times its bytes once it is read. A pod of the size
/// that etcd takes has some thousands.
const MAX_VALUES: usize = 100_000;
/// What the API server shows of warnings.
const WARNINGS: usize = 16;
const WARNING_BYTES: usize = 256;

/// What the API server asks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Question {
    api_version: String,
    kind: String,
    asked: bool,
    /// Nothing is taken in but texts.
    glance: bool,
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) dry_run: bool,
    operation: String,
    sub_resource: String,
    object_kind: Group,
    resource: Group,
    pub(crate) object: Value,
}

/// A GroupVersionKind or GroupVersionResource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Group {
    group: String,
    version: String,
    name: String,
}

impl Group {
    fn is(&self, name: &str) -> bool {
        *self == Self::default()
            || (self.group.is_empty() && self.version == "v1" && self.name == name)
    }
}

/// What the answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    Unchanged,
    Patch(Vec<u8>),
    Refused { code: u16, message: String },
}

impl Question {
    /// Reads a review; what was read of a broken one stays in the question.
    pub(crate) fn read(bytes: &[u8]) -> (Self, Result<(), String>) {
        let mut this = Self::default();
        if let Err(excess) = bounded(bytes) {
            // Its fields may still say who asks.
            let _as_far_as_it_goes = this.fill(bytes, true);
            return (this, Err(format!("cannot read review: {excess}")));
        }
        let read = this
            .fill(bytes, false)
            .map_err(|cause| format!("cannot read review: {cause}"))
            .and_then(|()| this.check());
        (this, read)
    }

    fn fill(&mut self, bytes: &[u8], glance: bool) -> Result<(), serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        if !glance {
            reader.disable_recursion_limit();
        }
        self.glance = glance;
        ReviewSeed(self).deserialize(&mut reader)?;
        reader.end()
    }

    fn check(&self) -> Result<(), String> {
        if self.kind != "AdmissionReview" {
            return Err(format!(
                "cannot answer kind {:?}: want AdmissionReview",
                self.kind
            ));
        }
        if !self.version_is_known() {
            return Err(format!(
                "cannot answer apiVersion {:?}: want admission.k8s.io/v1 or v1beta1",
                self.api_version
            ));
        }
        if !self.asked {
            return Err("cannot answer review: no request in it".to_owned());
        }
        Ok(())
    }

    fn version_is_known(&self) -> bool {
        matches!(
            self.api_version.as_str(),
            "admission.k8s.io/v1" | "admission.k8s.io/v1beta1"
        )
    }

    /// Why this is nothing to inject into, in the words of the metrics.
    pub(crate) fn passes_by(&self) -> Option<&'static str> {
        if !matches!(self.operation.as_str(), "" | "CREATE") {
            Some("operation")
        } else if !self.sub_resource.is_empty()
            || !self.object_kind.is("Pod")
            || !self.resource.is("pods")
        {
            Some("kind")
        } else if self.object.is_null() {
            Some("no object")
        } else {
            None
        }
    }

    /// The review's answer.
    pub(crate) fn answer(&self, says: &Says, warnings: &[String]) -> Vec<u8> {
        let mut response = Map::new();
        response.insert("uid".to_owned(), json!(self.uid));
        match says {
            Says::Unchanged => {
                response.insert("allowed".to_owned(), json!(true));
            }
            Says::Patch(patch) => {
                response.insert("allowed".to_owned(), json!(true));
                response.insert("patchType".to_owned(), json!("JSONPatch"));
                response.insert("patch".to_owned(), json!(STANDARD.encode(patch)));
            }
            Says::Refused { code, message } => {
                let reason = if *code < 500 {
                    "BadRequest"
                } else {
                    "InternalError"
                };
                response.insert("allowed".to_owned(), json!(false));
                response.insert(
                    "status".to_owned(),
                    json!({"message": message, "reason": reason, "code": code}),
                );
            }
        }
        if !warnings.is_empty() {
            let shown: Vec<&str> = warnings
                .iter()
                .take(WARNINGS)
                .map(|text| cut(text))
                .collect();
            response.insert("warnings".to_owned(), json!(shown));
        }
        let version = if self.version_is_known() {
            self.api_version.as_str()
        } else {
            "admission.k8s.io/v1"
        };
        json!({"apiVersion": version, "kind": "AdmissionReview", "response": response})
            .to_string()
            .into_bytes()
    }
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(WARNING_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// Whether JSON is within the bounds. What is skipped while it is parsed counts, too.
fn bounded(bytes: &[u8]) -> Result<(), String> {
    let (mut depth, mut values, mut quoted, mut escaped) = (0_usize, 1_usize, false, false);
    for byte in bytes {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b'{' | b'[' => {
                depth += 1;
                values += 1;
            }
            // Each begins another.
            b',' => values += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH}"));
        }
        if values > MAX_VALUES {
            return Err(format!("more than {MAX_VALUES} values"));
        }
    }
    Ok(())
}

/// Text; null is as good as absent.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Option::<String>::deserialize(from).map(|text| Self(text.unwrap_or_default()))
    }
}

struct ReviewSeed<'a>(&'a mut Question);

impl<'de> DeserializeSeed<'de> for ReviewSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ReviewSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an AdmissionReview")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "apiVersion" => self.0.api_version = map.next_value::<Text>()?.0,
                "kind" => self.0.kind = map.next_value::<Text>()?.0,
                "request" => map.next_value_seed(RequestSeed(self.0))?,
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

struct RequestSeed<'a>(&'a mut Question);

impl<'de> DeserializeSeed<'de> for RequestSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for RequestSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an AdmissionRequest")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let question = self.0;
        question.asked = true;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "uid" => question.uid = map.next_value::<Text>()?.0,
                "namespace" => question.namespace = map.next_value::<Text>()?.0,
                "name" => question.name = map.next_value::<Text>()?.0,
                "operation" => question.operation = map.next_value::<Text>()?.0,
                "subResource" => question.sub_resource = map.next_value::<Text>()?.0,
                "dryRun" => {
                    question.dry_run = map.next_value::<Option<bool>>()?.unwrap_or_default();
                }
                "kind" | "resource" | "object" if question.glance => {
                    _ = map.next_value::<IgnoredAny>()?;
                }
                "kind" => question.object_kind = group(&map.next_value()?, "kind")?,
                "resource" => question.resource = group(&map.next_value()?, "resource")?,
                "object" => question.object = map.next_value()?,
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

fn group<E: serde::de::Error>(value: &Value, last: &'static str) -> Result<Group, E> {
    let text = |key: &str| match value.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(E::custom(format_args!(
            "request.{last}.{key}: want a string"
        ))),
    };
    match value {
        Value::Null | Value::Object(_) => Ok(Group {
            group: text("group")?,
            version: text("version")?,
            name: text(last)?,
        }),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(E::custom(format_args!("request.{last}: want an object")))
        }
    }
}

#[cfg(test)]
mod tests;
