//! A part of a pod as Go's struct: fields by Go's names; an unset field has Go's zero value.

use std::sync::{Arc, OnceLock};

use gotmpl::{TemplateError, Value};
use serde_json::Value as Json;

use super::unknown;
use crate::schema::{Field, Kind, ObjectType};
use crate::value::{ObjectValue, charged_of_json, copied, first, object, session, strings_of_json};

/// A part of the pod; `null` is an empty one.
pub(crate) fn part(json: Json, record: ObjectType) -> Value {
    Part::value(Arc::new(json), Vec::new(), record, Vec::new())
}

/// Returns the value at `key` of a shared pod; `overrides` replace the fields of that name.
pub(crate) fn part_of(
    pod: &Arc<Json>,
    key: &'static str,
    record: ObjectType,
    overrides: Vec<(&'static str, String)>,
) -> Value {
    Part::value(Arc::clone(pod), vec![Step::Key(key)], record, overrides)
}

/// A step into a pod.
#[derive(Debug, Clone, Copy)]
enum Step {
    Key(&'static str),
    Index(usize),
}

/// The position of a part in its pod. Containers are large, so a lookup copies none.
struct Part {
    root: Arc<Json>,
    path: Vec<Step>,
    record: ObjectType,
    overrides: Vec<(&'static str, String)>,
    /// Asked for again and again, and large.
    annotations: OnceLock<Value>,
    labels: OnceLock<Value>,
}

impl Part {
    fn value(
        root: Arc<Json>,
        path: Vec<Step>,
        record: ObjectType,
        overrides: Vec<(&'static str, String)>,
    ) -> Value {
        object(Self {
            root,
            path,
            record,
            overrides,
            annotations: OnceLock::new(),
            labels: OnceLock::new(),
        })
    }

    fn here(&self) -> Option<&Json> {
        let mut steps = self.path.iter();
        steps.try_fold(self.root.as_ref(), |json, step| match step {
            Step::Key(key) => json.get(key),
            Step::Index(index) => json.get(index),
        })
    }

    fn override_of(&self, field: &str) -> Option<&str> {
        let entry = self.overrides.iter().find(|(name, _)| *name == field);
        entry.map(|(_, value)| value.as_str())
    }

    /// Annotations and labels, which are made once.
    fn map(&self, key: &str, cell: &OnceLock<Value>) -> Result<(Value, usize), TemplateError> {
        if let Some(strings) = cell.get() {
            return Ok((strings.clone(), 1));
        }
        let made = strings_of_json(self.here().and_then(|here| here.get(key)))?;
        Ok((cell.get_or_init(|| made).clone(), 1))
    }
}

/// Bytes of a part, behind the two pointers of a value: an estimate.
const PART_BYTES: usize = 256;

/// Structs that Go holds by value, so that their fields can be reached when they are unset.
const BY_VALUE: [&str; 4] = [
    "ObjectMeta",
    "PodSpec",
    "ResourceRequirements",
    "VolumeResourceRequirements",
];

impl ObjectValue for Part {
    fn walk(&self, names: &[Value]) -> Result<(Value, usize), TemplateError> {
        match first(names) {
            "Annotations" if self.record.field("annotations").is_some() => {
                return self.map("annotations", &self.annotations);
            }
            "Labels" if self.record.field("labels").is_some() => {
                return self.map("labels", &self.labels);
            }
            _ => {}
        }
        let mut record = self.record;
        let mut json = self.here();
        let mut path = self.path.clone();
        let mut walked = 0;
        for name in names {
            let name = name.as_str().unwrap_or_default();
            let Some(field) = record.go_field(name) else {
                return Err(unknown(name, record.name()));
            };
            if let (0, Some(text)) = (walked, self.override_of(field.name)) {
                return Ok((Value::from(text), 1));
            }
            walked += 1;
            path.push(Step::Key(field.name));
            json = json
                .and_then(|json| json.get(field.name))
                .filter(|json| !json.is_null());
            match field.kind {
                Kind::Object(inner) if json.is_none() && !is_by_value(field, inner) => {
                    // A field below nil is an error, which the chain has to return.
                    return match names.get(walked).and_then(Value::as_str) {
                        None => Ok((Value::Nil, walked)),
                        Some(next) => Err(TemplateError::Exec(format!(
                            "nil pointer evaluating *{}.{next}",
                            inner.name()
                        ))),
                    };
                }
                Kind::Object(inner) if walked < names.len() => record = inner,
                kind => {
                    return value(json, kind, &self.root, &mut path).map(|value| (value, walked));
                }
            }
        }
        Err(unknown("", record.name()))
    }

    fn json(&self) -> Result<Json, TemplateError> {
        let mut json = self.here().map(copied).transpose()?;
        let json = json.get_or_insert_default();
        if !self.overrides.is_empty() && json.is_null() {
            *json = Json::Object(serde_json::Map::new());
        }
        for (name, value) in &self.overrides {
            if let Some(fields) = json.as_object_mut() {
                fields.insert((*name).to_owned(), Json::from(value.as_str()));
            }
        }
        // A name that is empty or null is not set, and is left out.
        if let Some(fields) = json.as_object_mut() {
            let is_unset = |name: &str, value: &Json| {
                value.is_null() || self.override_of(name).is_some_and(str::is_empty)
            };
            fields.retain(|name, value| !is_unset(name, value));
        }
        Ok(std::mem::take(json))
    }

    fn has(&self, key: &str) -> Result<bool, TemplateError> {
        Ok(match self.override_of(key) {
            Some(text) => !text.is_empty(),
            None => {
                let value = self.here().and_then(|here| here.get(key));
                value.is_some_and(|value| !value.is_null())
            }
        })
    }
}

fn is_by_value(field: &Field, inner: ObjectType) -> bool {
    field.required || BY_VALUE.contains(&inner.name())
}

/// The value at `path`, which is `json`.
fn value(
    json: Option<&Json>,
    kind: Kind,
    root: &Arc<Json>,
    path: &mut Vec<Step>,
) -> Result<Value, TemplateError> {
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
            // A part of the pod for each, with its way from the pod.
            session::charge_elements(items.len(), PART_BYTES)?;
            let mut values = Vec::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                path.push(Step::Index(index));
                values.push(value(Some(item), element.kind(), root, path)?);
                path.pop();
            }
            Value::from(values)
        }
        (Kind::Object(record), Some(_)) => {
            Part::value(Arc::clone(root), path.clone(), record, Vec::new())
        }
        (Kind::Object(record), None) => part(Json::Null, record),
        (_, Some(json)) => charged_of_json(json)?,
    })
}
