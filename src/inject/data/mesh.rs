//! Messages of the mesh: fields and getters by Go's names, from the tables that are generated with the types.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use api::schema::{Field, FieldKind, ISTIO_MESH_V1ALPHA1_MESHCONFIG, Message, Shape};
use gotmpl::{TemplateError, Value};
use serde_json::{Map, Value as Json};

use super::unknown;
use crate::value::{ObjectValue, charged_of_json, copied, first, object, strings_of_json};

/// The field of a duration that prints as Go does. No template can name it.
pub(crate) const GO_DURATION: &str = " go";

/// Makes a message of its proto JSON. `printed` is the output of `protoToJSON`, if it has fewer fields.
pub(crate) fn message(
    kind: &'static Message,
    fields: Map<String, Json>,
    printed: Option<Map<String, Json>>,
) -> Value {
    object(Fields {
        kind,
        fields: Arc::new(fields),
        printed,
    })
}

struct Fields {
    kind: &'static Message,
    fields: Arc<Map<String, Json>>,
    printed: Option<Map<String, Json>>,
}

impl ObjectValue for Fields {
    fn walk(&self, names: &[Value]) -> Result<(Value, usize), TemplateError> {
        let mut kind = self.kind;
        let mut fields = Some(self.fields.as_ref());
        let mut walked = 0;
        for name in names {
            let name = name.as_str().unwrap_or_default();
            walked += 1;
            let field = field(kind, name).ok_or_else(|| unknown(name, short(kind)))?;
            let json = fields
                .and_then(|fields| fields.get(field.json))
                .filter(|json| !json.is_null());
            if let (FieldKind::Struct, Shape::One) = (field.kind, field.shape) {
                let (value, further) = free(json, names.get(walked..).unwrap_or_default())?;
                return Ok((value, walked + further));
            }
            let (FieldKind::Message(inner), Shape::One) = (field.kind, field.shape) else {
                return value(json, field).map(|value| (value, walked));
            };
            fields = json.and_then(Json::as_object);
            match names.get(walked).and_then(Value::as_str) {
                None => return value(json, field).map(|value| (value, walked)),
                // A getter works on nil, too.
                Some(next) if fields.is_none() && !next.starts_with("Get") => {
                    return Err(TemplateError::Exec(format!(
                        "nil pointer evaluating *{}.{next}",
                        short(inner)
                    )));
                }
                Some(_) => kind = inner,
            }
        }
        Err(unknown("", short(kind)))
    }

    fn json(&self) -> Result<Json, TemplateError> {
        let fields = self.printed.as_ref().unwrap_or(&self.fields);
        let entries = fields.iter();
        let entries = entries.map(|(key, json)| Ok((key.clone(), copied(json)?)));
        entries.collect::<Result<_, _>>().map(Json::Object)
    }
}

fn short(kind: &Message) -> &'static str {
    kind.name.rsplit('.').next().unwrap_or_default()
}

/// The field that a name, or the name of its getter, is.
fn field(kind: &'static Message, name: &str) -> Option<&'static Field> {
    let plain = |name: &str| kind.fields.iter().find(|field| field.go == name);
    plain(name).or_else(|| plain(name.strip_prefix("Get")?))
}

/// Walks along names below a message without a table: fields are found by Go's names and by their own, and a getter works on
/// nil, too.
fn free(json: Option<&Json>, names: &[Value]) -> Result<(Value, usize), TemplateError> {
    let mut here = json;
    let mut walked = 0;
    for name in names {
        let name = name.as_str().unwrap_or_default();
        let getter = name.strip_prefix("Get");
        match here {
            Some(Json::Object(fields)) => {
                let plain = getter.unwrap_or(name);
                let lower = plain.get(..1).unwrap_or_default().to_lowercase();
                let of_go = lower + plain.get(1..).unwrap_or_default();
                let found = fields.get(name).or_else(|| fields.get(of_go.as_str()));
                here = found.filter(|json| !json.is_null());
            }
            None if getter.is_some() => {}
            None | Some(_) => break,
        }
        walked += 1;
    }
    let value = here.map_or(Ok(Value::Nil), charged_of_json)?;
    Ok((value, walked))
}

fn value(json: Option<&Json>, field: &'static Field) -> Result<Value, TemplateError> {
    match (field.shape, json) {
        (Shape::One, json) => single(json, field.kind),
        (Shape::List, Some(Json::Array(items))) => Ok(Value::from(
            items
                .iter()
                .map(|item| single(Some(item), field.kind))
                .collect::<Result<Vec<_>, _>>()?,
        )),
        (Shape::List, _) => Ok(Value::from(Vec::<Value>::new())),
        (Shape::Map(_), json) if matches!(field.kind, FieldKind::String) => strings_of_json(json),
        (Shape::Map(_), Some(Json::Object(entries))) => {
            let entries = entries
                .iter()
                .map(|(key, item)| Ok((Arc::from(key.as_str()), single(Some(item), field.kind)?)));
            Ok(Value::from(
                entries.collect::<Result<BTreeMap<Arc<str>, Value>, TemplateError>>()?,
            ))
        }
        (Shape::Map(_), _) => Ok(Value::from(BTreeMap::<String, Value>::new())),
    }
}

fn single(json: Option<&Json>, kind: FieldKind) -> Result<Value, TemplateError> {
    Ok(match (kind, json) {
        (FieldKind::Wrapper(inner), json) => single(json, *inner)?,
        (kind, None) => zero(kind),
        (FieldKind::Message(inner), Some(json @ Json::Object(_))) => match copied(json)? {
            Json::Object(fields) => message(inner, fields, None),
            _ => Value::Nil,
        },
        (FieldKind::Duration, Some(Json::String(text))) => duration(text),
        // Proto JSON writes integers of 64 bits as text.
        (FieldKind::Int64 | FieldKind::Uint64, Some(Json::String(text))) => text
            .parse()
            .map_or_else(|_| Value::from(text.as_str()), Value::Int),
        (_, Some(json)) => charged_of_json(json)?,
    })
}

fn zero(kind: FieldKind) -> Value {
    match kind {
        FieldKind::String | FieldKind::Bytes => Value::from(""),
        FieldKind::Bool => Value::Bool(false),
        FieldKind::Int32 | FieldKind::Int64 | FieldKind::Uint32 | FieldKind::Uint64 => {
            Value::Int(0)
        }
        FieldKind::Float | FieldKind::Double => Value::Float(0.0),
        FieldKind::Enum(names) => names
            .values
            .first()
            .map_or(Value::Nil, |(name, _)| Value::from(*name)),
        FieldKind::Wrapper(inner) => zero(*inner),
        FieldKind::Message(_)
        | FieldKind::Duration
        | FieldKind::Timestamp
        | FieldKind::Struct
        | FieldKind::Any => Value::Nil,
    }
}

/// The zero value of a field, which a getter gives on an absent message whose type is no longer known.
pub(crate) fn absent(name: &str) -> Option<Value> {
    static ZEROS: LazyLock<BTreeMap<&'static str, ZeroValue>> = LazyLock::new(zeros);
    let field = name.strip_prefix("Get")?;
    if field == "Value" {
        return Some(Value::Bool(false));
    }
    ZEROS
        .get(field)
        .map(|ZeroValue(field)| value(None, field).unwrap_or(Value::Nil))
}

struct ZeroValue(&'static Field);

/// Collects the zero values of all fields of all messages below the mesh configuration.
fn zeros() -> BTreeMap<&'static str, ZeroValue> {
    let mut zeros = BTreeMap::new();
    let mut seen: Vec<&str> = Vec::new();
    let mut waiting: Vec<&'static Message> = vec![&ISTIO_MESH_V1ALPHA1_MESHCONFIG];
    while let Some(message) = waiting.pop() {
        // Messages may hold each other.
        if seen.contains(&message.name) {
            continue;
        }
        seen.push(message.name);
        for field in message.fields {
            zeros.entry(field.go).or_insert(ZeroValue(field));
            if let FieldKind::Message(inner) = field.kind {
                waiting.push(inner);
            }
        }
    }
    zeros
}

struct Length(api::google::protobuf::Duration);

fn duration(text: &str) -> Value {
    api::duration::parse(text).map_or(Value::Nil, |length| object(Length(length)))
}

impl ObjectValue for Length {
    fn walk(&self, names: &[Value]) -> Result<(Value, usize), TemplateError> {
        let value = match first(names) {
            GO_DURATION | "String" => Value::from(api::duration::go(&self.0)),
            "Seconds" | "GetSeconds" => Value::Int(self.0.seconds),
            "Nanos" | "GetNanos" => Value::Int(i64::from(self.0.nanos)),
            name => return Err(unknown(name, "Duration")),
        };
        Ok((value, 1))
    }

    fn json(&self) -> Result<Json, TemplateError> {
        Ok(Json::from(api::duration::proto(&self.0)))
    }
}
