//! Objects of rules as people write them: which kind they are of, everything that is wrong with their fields, and the bytes
//! that a resource carries.
//!
//! ```text
//! JSON or YAML ── read ──► Object { spec in one spelling, body } + findings ── rules ──► more findings
//! ```
//!
//! `kinds` is the table that everything else reads, `fields` holds what was written against the table of its message. No kind
//! has code of its own here.

mod claims;
pub mod collections;
#[cfg(test)]
#[path = "crds/tests.rs"]
mod crds;
pub mod discovery_notes;
pub mod document;
mod enum_numbers;
mod envelope;
mod fields;
mod grpc_status;
mod kinds;
mod path;
#[cfg(test)]
#[path = "read_fields/tests.rs"]
mod read_fields;
pub mod regex_size;
pub mod rules;
mod scalars;
mod status;
#[cfg(test)]
#[allow(
    clippy::needless_pass_by_value,
    reason = "values are made where they are wanted"
)]
mod tests;
mod validation;

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value as Json;

use crate::schema::Message;
use crate::wire::{self, DecodeError};
use fields::{UnknownFieldPolicy, UnknownFields, Walker};

pub use crate::finding::{
    Finding, FindingKind, FindingList, Severity, push_index, push_key, quoted,
};
pub use envelope::{MOST_BYTES, MOST_DEPTH};
pub(crate) use kinds::row;
pub use kinds::{
    Check, EARLIER, Effect, KINDS, Kind, LATER, Role, dry_run_note, is_ours, kind,
    limited_notes_of, named, notes, notes_of, unread_api, unread_kind, without_effect,
};
pub use status::{ObjectStatus, ServedInstead};
pub use validation::{check_received, check_rules, refuse_unknown_numbers};

/// An object of a known kind.
#[derive(Clone, Debug)]
pub struct Object {
    pub kind: &'static Kind,
    /// Empty for what belongs to the whole cluster.
    pub namespace: String,
    /// Empty where the API server will make one.
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Proto JSON in one spelling: lowerCamelCase, enumerations by name, durations as `1.500s`, 64-bit integers as text. As
    /// written otherwise: in the same order, and what is written with its default is there. A `null` in it could not be
    /// read, which a finding says already.
    pub spec: Json,
    /// The body of the resource; empty if there is an error.
    pub body: Bytes,
}

impl Object {
    /// `NAMESPACE/NAME`, or `NAME` of what belongs to the whole cluster.
    #[must_use]
    pub fn full_name(&self) -> String {
        if self.namespace.is_empty() {
            return self.name.clone();
        }
        format!("{}/{}", self.namespace, self.name)
    }

    /// Checks the name that a resource carries, with the findings that the object's metadata would get.
    #[must_use]
    pub fn misnamed(kind: &Kind, full_name: &str) -> Vec<Finding> {
        envelope::misnamed(kind, full_name)
    }

    /// An object as a resource carries it, by its full name.
    ///
    /// # Errors
    ///
    /// A body that is not of the kind's message.
    pub fn of_resource(
        kind: &'static Kind,
        full_name: &str,
        body: Bytes,
    ) -> Result<Self, DecodeError> {
        // Without a slash it is the name of an object of the whole cluster.
        let (namespace, name) = full_name.split_once('/').unwrap_or(("", full_name));
        // A verbatim body is a Struct with the keys as they were written; rules want them in one spelling.
        let spec = if kind.verbatim {
            let written = Json::Object(wire::decode_struct(&body)?);
            Walker::new().message(kind.message, &written)
        } else {
            wire::decode(kind.message, &body)?
        };
        Ok(Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            spec,
            body,
        })
    }
}

/// An object, and all that is wrong with its fields, in the order of what was written. No object where its kind is not known or
/// not used, or nothing of it can be read. Rules are not asked here, and nothing is left out for its number: see [`check`].
#[must_use]
pub fn read(value: &Json) -> (Option<Object>, Vec<Finding>) {
    envelope::read(value)
}

/// An object, and what is wrong with it, fields and rules, in the order of the text. At most a hundred are kept, see [`limit`].
#[must_use]
pub fn check(value: &Json) -> (Option<Object>, Vec<Finding>) {
    validation::check(value)
}

/// As [`check`], with all findings and in no order: for one who adds some, and then calls [`document::Part::sort`] and
/// [`limit`].
#[must_use]
pub fn check_all(value: &Json) -> (Option<Object>, Vec<Finding>) {
    validation::check_all(value)
}

/// Findings of one object.
const MOST: usize = 100;

/// A hundred, and last one of each severity that says how many more there are. Warnings are left out first: whoever is
/// refused wants to read why. Where all are left out, the last is not about more, and says so.
pub fn limit(findings: &mut Vec<Finding>) {
    if findings.len() <= MOST {
        return;
    }
    let count = |severity: Severity| -> usize {
        let alike = findings.iter().filter(|found| found.severity == severity);
        alike.map(Finding::count).sum()
    };
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    findings.retain(|found| !matches!(found.kind, FindingKind::Omitted(_)));
    let for_warnings = MOST.saturating_sub(errors);
    let (mut room, mut room_for_warnings) = (MOST, for_warnings);
    findings.retain(|found| {
        let room = match found.severity {
            Severity::Error => &mut room,
            Severity::Warning => &mut room_for_warnings,
        };
        let is_kept = *room > 0;
        *room = room.saturating_sub(1);
        is_kept
    });
    if let Some(more @ 1..) = errors.checked_sub(MOST) {
        findings.push(Finding::omitted(Severity::Error, more));
    }
    if let Some(more @ 1..) = warnings.checked_sub(for_warnings) {
        let summary = Finding::omitted(Severity::Warning, more);
        let message = match for_warnings {
            0 if more == 1 => "1 warning is not shown".to_owned(),
            0 => format!("{more} warnings are not shown"),
            _ => summary.message,
        };
        findings.push(Finding { message, ..summary });
    }
    // They live as long as their object.
    findings.shrink_to_fit();
}

/// A message alone: its JSON in one spelling, and what is wrong with it. `unknown`: how bad an unknown field is.
#[must_use]
pub fn read_message(
    message: &'static Message,
    value: &Json,
    unknown: Severity,
) -> (Json, Vec<Finding>) {
    let (read, walker) = walk(message, value, UnknownFieldPolicy::Report(unknown));
    (read, walker.findings.into_vec())
}

/// The same with unknown fields aside.
pub(crate) fn read_known(
    message: &'static Message,
    value: &Json,
) -> (Json, Vec<Finding>, UnknownFields) {
    let unknown = UnknownFieldPolicy::Collect(UnknownFields::default());
    let (read, walker) = walk(message, value, unknown);
    let findings = walker.findings.into_vec();
    match walker.unknown {
        UnknownFieldPolicy::Collect(unknown) => (read, findings, unknown),
        UnknownFieldPolicy::Report(_) => (read, findings, UnknownFields::default()),
    }
}

fn walk(message: &'static Message, value: &Json, unknown: UnknownFieldPolicy) -> (Json, Walker) {
    let mut walker = Walker::new();
    walker.unknown = unknown;
    // Before the walk, which goes as deep as the value does.
    if let Err(wrong) = envelope::measure(value) {
        walker.error(wrong);
        return (Json::Null, walker);
    }
    let read = walker.message(message, value);
    (read, walker)
}
