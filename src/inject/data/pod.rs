//! A part of a pod as Go's struct: fields by Go's names, and what is unset has Go's zero value.

use std::sync::{Arc, OnceLock};

use gotmpl::{TemplateError, Value};
use serde_json::Value as Json;

use super::unknown;
use crate::schema::{Field, Kind, Object as Record};
use crate::template::{self, Object, object, strings_of_json};

/// A part of the pod; `null` is an empty one.
pub(crate) fn part(json: Json, record: Record) -> Value {
    object(Part {
        json: Arc::new(json),
        record,
        annotations: OnceLock::new(),
        labels: OnceLock::new(),
    })
}

struct Part {
    json: Arc<Json>,
    record: Record,
    /// Asked for again and again, and large.
    annotations: OnceLock<Value>,
    labels: OnceLock<Value>,
}

/// Structs that Go holds by value, so that their fields can be reached when nothing is set.
const BY_VALUE: [&str; 4] = [
    "ObjectMeta",
    "PodSpec",
    "ResourceRequirements",
    "VolumeResourceRequirements",
];

impl Object for Part {
    fn walk(&self, names: &[&str]) -> Result<(Value, usize), TemplateError> {
        if let [name @ ("Annotations" | "Labels"), ..] = names {
            let (cell, key) = if *name == "Annotations" {
                (&self.annotations, "annotations")
            } else {
                (&self.labels, "labels")
            };
            if let Some(found) = cell.get() {
                return Ok((found.clone(), 1));
            }
            if self.record.field(key).is_some() {
                let made = strings_of_json(self.json.get(key))?;
                return Ok((cell.get_or_init(|| made).clone(), 1));
            }
        }
        let mut record = self.record;
        let mut json = Some(self.json.as_ref());
        let mut walked = 0;
        for name in names {
            walked += 1;
            let Some(field) = record.go_field(name) else {
                return Err(unknown(name, record.name()));
            };
            json = json
                .and_then(|json| json.get(field.name))
                .filter(|json| !json.is_null());
            match field.kind {
                Kind::Object(inner) if json.is_none() && !is_by_value(field, inner) => {
                    // What is below nothing is an error, which the chain has to say.
                    return match names.get(walked) {
                        None => Ok((Value::Nil, walked)),
                        Some(next) => Err(TemplateError::Exec(format!(
                            "nil pointer evaluating *{}.{next}",
                            inner.name()
                        ))),
                    };
                }
                Kind::Object(inner) if walked < names.len() => record = inner,
                kind => return value(json, kind).map(|value| (value, walked)),
            }
        }
        Err(unknown("", record.name()))
    }

    fn json(&self) -> Json {
        self.json.as_ref().clone()
    }
}

fn is_by_value(field: &Field, inner: Record) -> bool {
    field.required || BY_VALUE.contains(&inner.name())
}

fn value(json: Option<&Json>, kind: Kind) -> Result<Value, TemplateError> {
    Ok(match (kind, json) {
        (Kind::Text | Kind::Quantity, None) => Value::from(""),
        (Kind::Boolean, None) => Value::Bool(false),
        (Kind::Integer | Kind::IntegerOrText, None) => Value::Int(0),
        (Kind::Number, None) => Value::Float(0.0),
        (Kind::Any, None) => Value::Nil,
        (Kind::List(_), None) => Value::from(Vec::<Value>::new()),
        (Kind::Quantity, Some(Json::Number(number))) => Value::from(number.to_string()),
        (Kind::Map(element), _) if matches!(element.kind(), Kind::Text | Kind::Quantity) => {
            strings_of_json(json)?
        }
        (Kind::Map(_), None) => Value::from(std::collections::BTreeMap::<String, Value>::new()),
        (Kind::List(element), Some(Json::Array(items))) => {
            template::charge(items.len())?;
            Value::from(
                items
                    .iter()
                    .map(|item| value(Some(item), element.kind()))
                    .collect::<Result<Vec<_>, _>>()?,
            )
        }
        (Kind::Object(record), json) => part(json.cloned().unwrap_or_default(), record),
        (_, Some(json)) => template::of_json(json),
    })
}
