//! Checks JSON against the table of a message: returns the same JSON in one spelling, and all findings.
//!
//! A value that could not be read is `null` in the outcome, so that rules can tell it from an absent one, and items of lists stay
//! where they were.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

use super::path::Path;
use super::scalars;
use super::{Finding, FindingKind, Severity};
use crate::did_you_mean::near;
use crate::finding::{Findings, quoted};
use crate::schema::{Field, FieldKind, Key, Message, Shape};
use crate::text::first_letters;

/// Findings before an unknown field for which the nearest known one is searched. Chosen: twice as many as are shown.
const MAX_SEARCHES: usize = 200;
/// Maximum number of unknown fields that are named where all of them are one warning.
const MAX_NAMED: usize = 16;

/// Digits of a number in a message.
const MAX_SHOWN: usize = 64;

/// The field whose null is no absence: releases to 1.3 wrote mutual TLS so.
const NULL_IS_EMPTY: (&str, &str) = (
    "istio.authentication.v1alpha1.PeerAuthenticationMethod",
    "mtls",
);

/// Goes through a value with the table beside it.
pub(super) struct Walker {
    pub(super) path: Path,
    pub(super) findings: Findings,
    pub(super) unknown: UnknownFieldPolicy,
}

/// The treatment of fields that the table lacks.
pub(super) enum UnknownFieldPolicy {
    /// Each is a finding of this severity.
    Report(Severity),
    /// Their paths are collected.
    Collect(UnknownFields),
}

/// Fields that a table lacks.
#[derive(Debug, Default)]
pub(crate) struct UnknownFields {
    /// The paths of the first.
    pub(crate) named: Vec<String>,
    /// The number of the others.
    pub(crate) others: usize,
}

impl Walker {
    pub(super) fn new() -> Self {
        Self {
            path: Path::default(),
            findings: Findings::default(),
            unknown: UnknownFieldPolicy::Report(Severity::Error),
        }
    }

    pub(super) fn error(&mut self, message: impl Into<String>) {
        self.push_finding(Severity::Error, message.into());
    }

    pub(super) fn push_finding(&mut self, severity: Severity, message: String) {
        self.findings.add(severity, || Finding {
            severity,
            ..Finding::warning(self.path.as_str(), message)
        });
    }

    fn deprecated(&mut self, instead: &str) {
        self.findings.add(Severity::Warning, || {
            Finding::deprecated(self.path.as_str(), instead)
        });
    }

    /// The same one step below.
    pub(super) fn error_at(&mut self, name: &str, message: impl Into<String>) {
        let length = self.path.enter(name);
        self.error(message);
        self.path.back(length);
    }

    pub(super) fn message(&mut self, message: &'static Message, value: &Json) -> Json {
        let Json::Object(written) = value else {
            self.error(mismatch("an object", value));
            return Json::Null;
        };
        let known_fields: Vec<_> = written
            .iter()
            .map(|(name, value)| (name, message.field(name), value))
            .collect();
        self.oneofs(
            message,
            known_fields
                .iter()
                .filter_map(|(_, field, value)| Some(((*field)?, value)))
                .filter(|(field, value)| !value.is_null() || null_is_empty(message, field))
                .map(|(field, _)| field),
        );
        let empty = Json::Object(Map::new());
        let mut out = Map::new();
        for (name, field, value) in known_fields {
            let Some(field) = field else {
                self.unknown(message, name);
                continue;
            };
            let value = match value.is_null() {
                true if null_is_empty(message, field) => &empty,
                true => continue,
                false => value,
            };
            let length = self.path.enter(field.json);
            // A field may be written by its JSON name and by its name in the .proto.
            if out.contains_key(field.json) {
                self.error("written twice");
            } else {
                if field.deprecated {
                    self.deprecated("only releases up to 1.5 have it");
                }
                let value = self.field(field, value);
                out.insert(field.json.to_owned(), value);
            }
            self.path.back(length);
        }
        Json::Object(out)
    }

    /// Allows one member of each oneof. Messages name the members as the table has them.
    fn oneofs(&mut self, message: &'static Message, there: impl Iterator<Item = &'static Field>) {
        let numbers: BTreeSet<u32> = there
            .filter(|field| field.oneof.is_some())
            .map(|field| field.number)
            .collect();
        // Most messages have at most one such field: the table is walked for the others alone.
        if numbers.len() < 2 {
            return;
        }
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for field in message.fields {
            let Some(group) = field.oneof.filter(|_| numbers.contains(&field.number)) else {
                continue;
            };
            match groups.iter_mut().find(|(known, _)| *known == group) {
                Some((_, members)) => members.push(field.json),
                None => groups.push((group, vec![field.json])),
            }
        }
        for (_, members) in groups.iter().filter(|(_, members)| members.len() > 1) {
            self.findings.add(Severity::Error, || {
                let message = format!("only one of {} may be set", members.join(", "));
                let finding = Finding::error(self.path.as_str(), message);
                finding.of_kind(FindingKind::OneofConflict)
            });
        }
    }

    fn unknown(&mut self, message: &'static Message, name: &str) {
        let length = self.path.enter(name);
        match &mut self.unknown {
            UnknownFieldPolicy::Report(severity) => {
                let severity = *severity;
                // A search takes as long as a hundred fields, and few findings are shown.
                let is_searched = self.findings.count(severity) < MAX_SEARCHES;
                let nearest = is_searched.then(|| nearest_field(message, name)).flatten();
                self.push_finding(severity, unknown_field(nearest));
            }
            UnknownFieldPolicy::Collect(unknown) if unknown.named.len() < MAX_NAMED => {
                unknown.named.push(self.path.as_str().to_owned());
            }
            UnknownFieldPolicy::Collect(unknown) => unknown.others += 1,
        }
        self.path.back(length);
    }

    fn field(&mut self, field: &'static Field, value: &Json) -> Json {
        match field.shape {
            Shape::One => self.one(field.kind, value),
            Shape::List => {
                let Json::Array(items) = value else {
                    self.error(mismatch("a list", value));
                    return Json::Null;
                };
                let mut out = Vec::with_capacity(items.len());
                for (at, item) in items.iter().enumerate() {
                    let length = self.path.enter_item(at);
                    out.push(self.part(field.kind, item));
                    self.path.back(length);
                }
                Json::Array(out)
            }
            Shape::Map(by) => self.map(by, field.kind, value),
        }
    }

    pub(super) fn map(&mut self, by: Key, kind: FieldKind, value: &Json) -> Json {
        let Json::Object(entries) = value else {
            self.error(mismatch("an object", value));
            return Json::Null;
        };
        let mut out = Map::new();
        for (name, value) in entries {
            let length = self.path.enter(name);
            match key(by, name) {
                Some(key) if out.contains_key(&key) => self.error("written twice"),
                Some(key) => {
                    let value = self.part(kind, value);
                    out.insert(key, value);
                }
                None => self.error(format!("the key is not in 0..{}", u32::MAX)),
            }
            self.path.back(length);
        }
        // A map none of whose keys can be read is broken, and not empty.
        match out.is_empty() && !entries.is_empty() {
            true => Json::Null,
            false => Json::Object(out),
        }
    }

    /// An item of a list or the value of a key: it cannot be absent.
    fn part(&mut self, kind: FieldKind, value: &Json) -> Json {
        match (kind, value) {
            (FieldKind::String | FieldKind::Enum(_), Json::Null) => {
                self.error("expected a string, got null");
                Json::Null
            }
            (_, Json::Null) => {
                self.error("must not be null");
                Json::Null
            }
            (kind, value) => self.one(kind, value),
        }
    }

    fn one(&mut self, kind: FieldKind, value: &Json) -> Json {
        match kind {
            FieldKind::Message(message) => self.message(message, value),
            // Proto JSON writes a wrapper as its bare value.
            FieldKind::Wrapper(kind) => self.one(*kind, value),
            FieldKind::Struct if !value.is_object() => {
                self.error(mismatch("an object", value));
                Json::Null
            }
            FieldKind::Struct => self.free(value),
            FieldKind::Any => {
                self.error("cannot be written as text");
                Json::Null
            }
            FieldKind::String
            | FieldKind::Bytes
            | FieldKind::Bool
            | FieldKind::Int32
            | FieldKind::Int64
            | FieldKind::Uint32
            | FieldKind::Uint64
            | FieldKind::Float
            | FieldKind::Double
            | FieldKind::Enum(_)
            | FieldKind::Duration
            | FieldKind::Timestamp => match scalars::read(kind, value) {
                Ok(value) => value,
                Err(message) => {
                    self.error(message);
                    Json::Null
                }
            },
        }
    }

    /// A value that no table describes. Its numbers are doubles.
    fn free(&mut self, value: &Json) -> Json {
        match value {
            Json::Null | Json::Bool(_) | Json::String(_) => value.clone(),
            Json::Number(_) => match scalars::read(FieldKind::Double, value) {
                Ok(Json::Number(number)) => scalars::integer_if_exact(&number),
                Ok(_) => Json::Null,
                Err(message) => {
                    self.error(message);
                    Json::Null
                }
            },
            Json::Array(items) => {
                let mut out = Vec::with_capacity(items.len());
                for (at, item) in items.iter().enumerate() {
                    let length = self.path.enter_item(at);
                    out.push(self.free(item));
                    self.path.back(length);
                }
                Json::Array(out)
            }
            Json::Object(entries) => {
                let mut out = Map::new();
                for (name, value) in entries {
                    let length = self.path.enter(name);
                    let value = self.free(value);
                    out.insert(name.clone(), value);
                    self.path.back(length);
                }
                Json::Object(out)
            }
        }
    }
}

/// The message for a value of a wrong type, in the words of the API server.
pub(super) fn mismatch(what: &str, value: &Json) -> String {
    let got = match value {
        Json::Null => "null".to_owned(),
        Json::Bool(value) => value.to_string(),
        Json::Number(number) => first_letters(&number.to_string(), MAX_SHOWN).to_owned(),
        Json::String(text) => quoted(text),
        Json::Array(_) => "a list".to_owned(),
        Json::Object(_) => "an object".to_owned(),
    };
    format!("want {what}, got {got}")
}

fn null_is_empty(message: &Message, field: &Field) -> bool {
    (message.name, field.name) == NULL_IS_EMPTY
}

/// The field that a wrong name comes near to.
fn nearest_field(message: &'static Message, name: &str) -> Option<&'static str> {
    message
        .fields
        .iter()
        .filter_map(|field| {
            let far = [field.json, field.name]
                .into_iter()
                .filter_map(|known| near(name, known))
                .min()?;
            Some((far, field.json))
        })
        .min_by_key(|(far, _)| *far)
        .map(|(_, known)| known)
}

pub(super) fn unknown_field(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "unknown field".to_owned(),
        |nearest| format!("unknown field, did you mean \"{nearest}\"?"),
    )
}

/// A key as it is written back.
fn key(by: Key, name: &str) -> Option<String> {
    match by {
        Key::String => Some(name.to_owned()),
        Key::Uint32 => Some(name)
            .filter(|name| name.bytes().all(|digit| digit.is_ascii_digit()))
            .and_then(|name| name.parse::<u32>().ok())
            // `7` and `007` are one key.
            .map(|number| number.to_string()),
    }
}
