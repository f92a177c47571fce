//! Objects of rules as users write them: their kinds, the findings about their fields, and the bytes that a resource carries.
//!
//! ```text
//! JSON or YAML ── read ──► Object { spec in one spelling, body } + findings ── rules ──► more findings
//! ```
//!
//! All other modules read the table `kinds`; `fields` checks a text against the table of its message. No kind
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
pub use envelope::{MAX_BYTES, MAX_DEPTH};
pub(crate) use kinds::row;
pub use kinds::{
    Check, EARLIER, Effect, KINDS, Kind, LATER, Role, SelectorField, dry_run_note, is_ours, kind,
    limited_notes_of, named, notes, notes_of, unread_api, unread_kind, without_effect,
};
pub use status::{ObjectStatus, ServedInstead};
pub use validation::{check_received, check_rules, refuse_unknown_numbers};

/// An object of a known kind.
#[derive(Clone, Debug)]
pub struct Object {
    pub kind: &'static Kind,
    /// Empty for an object of the whole cluster.
    pub namespace: String,
    /// Empty where the API server will make one.
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Proto JSON in one spelling: lowerCamelCase, enumerations by name, durations as `1.500s`, 64-bit integers as text. The
    /// order is that of the text, and written defaults stay. A `null` stands for an unreadable value, which has a finding.
    pub spec: Json,
    /// The body of the resource; empty if there is an error.
    pub body: Bytes,
}

impl Object {
    /// `NAMESPACE/NAME`, or `NAME` for an object of the whole cluster.
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
            let value = Json::Object(wire::decode_struct(&body)?);
            Walker::new().message(kind.message, &value)
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

/// Reads an object, with all findings about its fields, in the order of the text. `None`: the kind is unknown or unused, or the
/// object is unreadable. Rules and the limit of findings are those of [`check`] alone.
#[must_use]
pub fn read(value: &Json) -> (Option<Object>, Vec<Finding>) {
    envelope::read(value)
}

/// Checks an object: returns it with the findings about fields and rules, in the order of the text, at most a hundred: see [`limit`].
#[must_use]
pub fn check(value: &Json) -> (Option<Object>, Vec<Finding>) {
    validation::check(value)
}

/// As [`check`], with all findings and in no order: for a caller that adds findings, and then calls [`document::Part::sort`]
/// and [`limit`].
#[must_use]
pub fn check_all(value: &Json) -> (Option<Object>, Vec<Finding>) {
    validation::check_all(value)
}

/// Findings of one object.
const MAX_FINDINGS: usize = 100;

/// Leaves a hundred findings, and a last one of each severity that counts those left out. Warnings are left out first: the author
/// of a refused object needs the errors. Where all of a severity are left out, the last finding says that, too.
pub fn limit(findings: &mut Vec<Finding>) {
    if findings.len() <= MAX_FINDINGS {
        return;
    }
    let count = |severity: Severity| -> usize {
        let alike = findings
            .iter()
            .filter(|finding| finding.severity == severity);
        alike.map(Finding::count).sum()
    };
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    findings.retain(|finding| !matches!(finding.kind, FindingKind::Omitted(_)));
    let for_warnings = MAX_FINDINGS.saturating_sub(errors);
    let (mut room, mut room_for_warnings) = (MAX_FINDINGS, for_warnings);
    findings.retain(|finding| {
        let room = match finding.severity {
            Severity::Error => &mut room,
            Severity::Warning => &mut room_for_warnings,
        };
        let is_kept = *room > 0;
        *room = room.saturating_sub(1);
        is_kept
    });
    if let Some(more @ 1..) = errors.checked_sub(MAX_FINDINGS) {
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

/// Reads a message alone: returns its JSON in one spelling, and the findings. `unknown` is the severity of unknown fields.
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
