//! A tree that was read, against the table of a message: out comes proto JSON in its canonical spelling, or the path of what
//! is wrong.
//!
//! Field names are taken in both spellings, durations in both forms; a field that the table lacks is remembered by its path
//! and left out. Rules beyond types (a port, an address) belong to fields and come with the message.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value as Json};

use crate::duration;
use crate::schema::{Enum, Field, Kind, Message, Shape};
use crate::yaml::{Malformed, Node, Plain, Scalar, Value};

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// `defaultConfig.drainDuration`, empty for the text as a whole.
    pub path: String,
    /// Where it begins; 0: nowhere in particular.
    pub line: usize,
    pub cause: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(to, "line {}: ", self.line)?;
        }
        if !self.path.is_empty() {
            write!(to, "{}: ", self.path)?;
        }
        write!(to, "{}", self.cause)
    }
}

impl std::error::Error for Invalid {}

impl From<Malformed> for Invalid {
    fn from(malformed: Malformed) -> Self {
        Self {
            path: String::new(),
            line: malformed.line,
            cause: malformed.cause,
        }
    }
}

/// What a field must be beyond its type: the cause where it is not.
pub(crate) type Rule = fn(&Json) -> Result<(), String>;

/// The rules of a package: message, field and rule.
pub(crate) type Rules = &'static [(&'static str, &'static str, Rule)];

/// So much of a key is shown in a path.
const SHOWN: usize = 128;

/// So many unknown fields are named.
const NAMED: usize = 16;

/// Goes through a tree with the table beside it.
pub(crate) struct Reader {
    rules: Rules,
    /// Where it is.
    path: String,
    unknown: Vec<String>,
    unnamed: usize,
}

impl Reader {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            path: String::new(),
            unknown: Vec::new(),
            unnamed: 0,
        }
    }

    /// All unknown fields in one.
    pub(crate) fn warning(&self) -> Option<String> {
        if self.unknown.is_empty() {
            return None;
        }
        let more = match self.unnamed {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = self.unknown.join(", ");
        Some(format!("unknown fields are ignored: {named}{more}"))
    }

    pub(crate) fn message(
        &mut self,
        message: &'static Message,
        node: &Node,
    ) -> Result<Map<String, Json>, Invalid> {
        let Value::Map(entries) = &node.value else {
            return Err(self.wrong(node, "an object"));
        };
        let mut out = Map::new();
        let mut groups: Vec<(&str, &str)> = Vec::new();
        for (name, node) in entries {
            let Some(field) = message.field(name) else {
                self.ignore(name);
                continue;
            };
            if node.is_null() {
                continue;
            }
            let length = self.enter(field.json);
            let value = self.field(field, node)?;
            for (_, _, rule) in self
                .rules
                .iter()
                .filter(|(of, name, _)| *of == message.name && *name == field.name)
            {
                rule(&value).map_err(|cause| self.invalid(node, cause))?;
            }
            if let Some(group) = field.oneof {
                if let Some((_, other)) = groups.iter().find(|(of, _)| *of == group) {
                    return Err(self.invalid(node, format!("not beside {other}")));
                }
                groups.push((group, field.json));
            }
            if out.insert(field.json.to_owned(), value).is_some() {
                return Err(self.invalid(node, "given twice, in both spellings".to_owned()));
            }
            self.path.truncate(length);
        }
        Ok(out)
    }

    /// The same, as its type.
    pub(crate) fn typed<T: DeserializeOwned>(
        &mut self,
        message: &'static Message,
        node: &Node,
    ) -> Result<T, Invalid> {
        let fields = self.message(message, node)?;
        serde_json::from_value(Json::Object(fields)).map_err(|error| Invalid {
            path: String::new(),
            line: node.line,
            cause: error.to_string(),
        })
    }

    fn field(&mut self, field: &'static Field, node: &Node) -> Result<Json, Invalid> {
        match field.shape {
            Shape::One => self.one(field.kind, node),
            Shape::List => {
                let Value::List(items) = &node.value else {
                    return Err(self.wrong(node, "a list"));
                };
                let mut out = Vec::new();
                for (at, item) in items.iter().enumerate() {
                    let length = self.path.len();
                    self.path.push_str(&format!("[{at}]"));
                    out.push(self.one(field.kind, item)?);
                    self.path.truncate(length);
                }
                Ok(Json::Array(out))
            }
            Shape::Map(_) => {
                let Value::Map(entries) = &node.value else {
                    return Err(self.wrong(node, "an object"));
                };
                let mut out = Map::new();
                for (key, value) in entries {
                    let length = self.enter(key);
                    out.insert(key.clone(), self.one(field.kind, value)?);
                    self.path.truncate(length);
                }
                Ok(Json::Object(out))
            }
        }
    }

    fn one(&mut self, kind: Kind, node: &Node) -> Result<Json, Invalid> {
        match kind {
            Kind::Message(message) => self.message(message, node).map(Json::Object),
            Kind::Struct if matches!(node.value, Value::Map(_)) => self.any(node),
            Kind::Struct | Kind::Any => Err(self.wrong(node, wanted(kind))),
            Kind::Wrapper(kind) => self.one(*kind, node),
            Kind::String
            | Kind::Bytes
            | Kind::Bool
            | Kind::Int32
            | Kind::Int64
            | Kind::Uint32
            | Kind::Uint64
            | Kind::Float
            | Kind::Double
            | Kind::Enum(_)
            | Kind::Duration
            | Kind::Timestamp => {
                let Value::Scalar(scalar) = &node.value else {
                    return Err(self.wrong(node, wanted(kind)));
                };
                let value = value(kind, scalar);
                value.map_err(|wanted| self.wrong(node, &wanted))
            }
        }
    }

    /// What has no table stays as it is.
    fn any(&mut self, node: &Node) -> Result<Json, Invalid> {
        Ok(match &node.value {
            Value::Scalar(scalar) => match scalar.plain() {
                Plain::Null => Json::Null,
                Plain::Bool(value) => Json::Bool(value),
                Plain::Int(whole) => Number::from_i128(whole)
                    .map(Json::Number)
                    .ok_or_else(|| self.wrong(node, "a number"))?,
                Plain::Float(value) => Number::from_f64(value)
                    .map(Json::Number)
                    .ok_or_else(|| self.wrong(node, "a number"))?,
                Plain::Text => Json::String(scalar.text.clone()),
            },
            Value::List(items) => Json::Array(
                items
                    .iter()
                    .map(|item| self.any(item))
                    .collect::<Result<_, _>>()?,
            ),
            Value::Map(entries) => Json::Object(
                entries
                    .iter()
                    .map(|(key, value)| Ok((key.clone(), self.any(value)?)))
                    .collect::<Result<_, Invalid>>()?,
            ),
        })
    }

    /// One step down; the length to go back to.
    fn enter(&mut self, name: &str) -> usize {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        if name.len() <= SHOWN && !name.contains(char::is_control) {
            self.path.push_str(name);
        } else {
            let shown: String = name.chars().take(SHOWN).collect();
            self.path.push_str(&format!("{shown:?}"));
        }
        length
    }

    fn ignore(&mut self, name: &str) {
        if self.unknown.len() >= NAMED {
            self.unnamed += 1;
            return;
        }
        let length = self.enter(name);
        self.unknown.push(self.path.clone());
        self.path.truncate(length);
    }

    fn wrong(&self, node: &Node, wanted: &str) -> Invalid {
        let got = match &node.value {
            Value::Scalar(scalar) => scalar.to_string(),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "an object".to_owned(),
        };
        self.invalid(node, format!("want {wanted}, got {got}"))
    }

    fn invalid(&self, node: &Node, cause: String) -> Invalid {
        Invalid {
            path: self.path.clone(),
            line: node.line,
            cause,
        }
    }
}

/// A scalar as proto JSON, or what would have been right.
fn value(kind: Kind, scalar: &Scalar) -> Result<Json, String> {
    let wrong = || wanted(kind).to_owned();
    match kind {
        Kind::Bool => scalar.boolean().map(Json::Bool).ok_or_else(wrong),
        Kind::Int32 => integer(scalar, i32::MIN.into(), i32::MAX.into()),
        Kind::Int64 => integer(scalar, i64::MIN.into(), i64::MAX.into()),
        Kind::Uint32 => integer(scalar, 0, u32::MAX.into()),
        Kind::Uint64 => integer(scalar, 0, u64::MAX.into()),
        Kind::Float | Kind::Double => float(scalar)
            .and_then(Number::from_f64)
            .map(Json::Number)
            .ok_or_else(wrong),
        Kind::Enum(kinds) => choice(kinds, scalar),
        Kind::Duration => Some(scalar)
            .filter(|scalar| scalar.plain() == Plain::Text)
            .and_then(|scalar| duration::parse(&scalar.text))
            .map(|read| Json::String(duration::proto(&read)))
            .ok_or_else(wrong),
        Kind::String | Kind::Bytes | Kind::Timestamp => match scalar.plain() {
            Plain::Text => Ok(Json::String(scalar.text.clone())),
            Plain::Null | Plain::Bool(_) | Plain::Int(_) | Plain::Float(_) => Err(wrong()),
        },
        Kind::Wrapper(kind) => value(*kind, scalar),
        Kind::Message(_) | Kind::Struct | Kind::Any => Err(wrong()),
    }
}

fn wanted(kind: Kind) -> &'static str {
    match kind {
        Kind::String => "a string",
        Kind::Bytes => "base64",
        Kind::Bool => "true or false",
        Kind::Int32 | Kind::Int64 | Kind::Uint32 | Kind::Uint64 | Kind::Float | Kind::Double => {
            "a number"
        }
        Kind::Enum(_) => "a name",
        Kind::Message(_) | Kind::Struct | Kind::Any => "an object",
        Kind::Duration => "a duration such as 1.5s or 1m0s",
        Kind::Timestamp => "a time",
        Kind::Wrapper(kind) => wanted(*kind),
    }
}

/// Proto JSON takes numbers as strings, too, and `1e3` for 1000.
fn numeric(scalar: &Scalar) -> Option<Plain> {
    if scalar.plain {
        return Some(scalar.plain());
    }
    crate::yaml::number(&scalar.text)
}

fn integer(scalar: &Scalar, least: i128, most: i128) -> Result<Json, String> {
    /// Up to here a float holds every whole number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = match numeric(scalar) {
        Some(Plain::Int(whole)) => Some(whole),
        Some(Plain::Float(value)) if value.fract() == 0.0 && value.abs() <= EXACT => {
            format!("{value:.0}").parse().ok()
        }
        _ => return Err("a whole number".to_owned()),
    };
    whole
        .filter(|whole| (least..=most).contains(whole))
        .and_then(Number::from_i128)
        .map(Json::Number)
        .ok_or_else(|| format!("a number from {least} to {most}"))
}

fn float(scalar: &Scalar) -> Option<f64> {
    match numeric(scalar)? {
        Plain::Int(whole) => whole.to_string().parse().ok(),
        Plain::Float(value) => Some(value),
        Plain::Null | Plain::Bool(_) | Plain::Text => None,
    }
}

/// An enumeration by name, or by number.
fn choice(kinds: &Enum, scalar: &Scalar) -> Result<Json, String> {
    let named = kinds.values.iter().find(|(name, _)| *name == scalar.text);
    let numbered = || match scalar.plain() {
        Plain::Int(number) => kinds
            .values
            .iter()
            .find(|(_, known)| i128::from(*known) == number),
        Plain::Null | Plain::Bool(_) | Plain::Float(_) | Plain::Text => None,
    };
    named
        .or_else(numbered)
        .map(|(name, _)| Json::String((*name).to_owned()))
        .ok_or_else(|| {
            let names: Vec<_> = kinds.values.iter().map(|(name, _)| *name).collect();
            format!("one of {}", names.join(", "))
        })
}
