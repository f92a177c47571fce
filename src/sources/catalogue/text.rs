//! The one reader of texts: documents to objects that are checked, in the form in which its user stores them.

use std::collections::BTreeMap;

use api::config::document::{self, Part};
use api::config::{self, Finding};
use api::yaml::{Limits, Malformed, MalformedKind};
use serde_json::Value as Json;

use super::checked::{CheckedContent, CheckedObject, check_part};
use super::one_line::one_line_of;
use super::source_catalogue::{SourceEntry, StoredForm};

/// Objects at most, and documents of one text.
pub const MAX_OBJECTS: usize = 200_000;
/// Documents of one text that are no objects and get a finding each.
const MAX_NAMELESS: usize = 100;
/// Objects of one text that nothing here reads and pages show. Chosen: a page with more would not tell more.
const MAX_UNREAD: usize = 1000;
/// Bytes of values beyond those that were written: they stand for themselves, and not for an alias of many documents.
const SPARE_BYTES: usize = 4 << 20;

/// An object of a text, as it is written.
pub(crate) struct TextObject<'a> {
    pub(crate) part: &'a Part<'a>,
    pub(crate) value: Json,
}

impl TextObject<'_> {
    /// The line of the first error, or else the line at which the object begins.
    pub(crate) fn line(&self, findings: &[Finding]) -> usize {
        let first = findings.iter().find(|finding| finding.is_error());
        first.map_or_else(|| self.part.begin(), |first| self.part.line(&first.path))
    }
}

/// The objects of a text.
#[derive(Debug)]
pub(crate) struct TextObjects<V> {
    pub(crate) entries: Vec<SourceEntry<V>>,
    /// Objects of kinds that the user does not read: their number, by version and kind.
    pub(crate) foreign: BTreeMap<String, usize>,
    /// The first of them whose author may take them for read, each with its line: see [`config::unread_api`].
    pub(crate) unread: Vec<(usize, Json)>,
}

/// Reads and checks all objects of a text. `store` puts each into its form and may take
/// its value; `None`, with the value as it is: the kind is not read here.
///
/// # Errors
///
/// The first thing that cannot be read: then nothing of the text counts.
pub(crate) fn read<V: StoredForm>(
    bytes: &[u8],
    limits: Limits,
    store: impl FnMut(&mut TextObject<'_>, CheckedObject<CheckedContent>) -> Option<CheckedObject<V>>,
) -> Result<TextObjects<V>, Malformed> {
    let text = document::utf8(bytes)?;
    let mut reader = TextReader {
        store,
        objects: TextObjects {
            entries: Vec::new(),
            foreign: BTreeMap::new(),
            unread: Vec::new(),
        },
        nameless: UnnamedDocuments::default(),
        documents: 0,
        size: 0,
        // Values with their text: they are fewer than bytes, and an escape is at most half as long again as it was written. The
        // rest is for aliases, which are bounded in each document, and would not be in many.
        max_bytes: text.len().saturating_mul(3).saturating_add(SPARE_BYTES),
    };
    for document in document::documents_within(text, limits) {
        let document = document?;
        let parts = document.parts();
        // An empty document counts, too: a text of nothing but separators would have no bound.
        reader.documents = reader.documents.saturating_add(parts.len().max(1));
        if reader.documents > MAX_OBJECTS {
            let line = parts.first().map_or(0, Part::begin);
            let message = format!("more than {MAX_OBJECTS} documents: the rest is left out");
            let error = SourceEntry::error_at(line, &message);
            reader.objects.entries.push(error);
            break;
        }
        for part in &parts {
            reader.part(part)?;
        }
    }
    reader.objects.entries.extend(reader.nameless.rest());
    Ok(reader.objects)
}

struct TextReader<V, F> {
    store: F,
    objects: TextObjects<V>,
    nameless: UnnamedDocuments,
    documents: usize,
    /// Bytes that the values so far take, and may take.
    size: usize,
    max_bytes: usize,
}

impl<V, F> TextReader<V, F>
where
    V: StoredForm,
    F: FnMut(&mut TextObject<'_>, CheckedObject<CheckedContent>) -> Option<CheckedObject<V>>,
{
    fn part(&mut self, part: &Part<'_>) -> Result<(), Malformed> {
        self.size = self.size.saturating_add(part.size());
        if self.size > self.max_bytes {
            let max = self.max_bytes;
            return Err(Malformed {
                line: part.begin(),
                cause: format!("aliases of all documents stand for more than {max} bytes"),
                kind: MalformedKind::Other,
            });
        }
        let value = part.value();
        let mut object = TextObject { part, value };
        let checked = check_part(part, &object.value);
        let stored = checked.and_then(|checked| (self.store)(&mut object, checked));
        let Some(mut checked) = stored else {
            self.foreign(object.value, part.begin());
            return Ok(());
        };
        // The catalogue bounds objects with a name; documents without one are bounded here.
        let is_shown = checked.id.is_whole() || checked.written.is_some();
        if !is_shown && !self.nameless.has_own_finding(part.begin()) {
            return Ok(());
        }
        let mut findings = checked.findings.iter().chain(&checked.notes);
        let wrong = findings
            .clone()
            .find(|found| found.is_error())
            .or_else(|| findings.next());
        let wrong = wrong.map_or_else(|| part.begin(), |found| part.line(&found.path));
        for finding in checked.findings.iter_mut().chain(&mut checked.notes) {
            *finding = one_line_of(finding);
        }
        self.objects.entries.push(SourceEntry {
            line: part.begin(),
            wrong,
            checked,
            ..SourceEntry::default()
        });
        Ok(())
    }

    fn foreign(&mut self, value: Json, line: usize) {
        let text = |name| value.get(name).and_then(Json::as_str).unwrap_or_default();
        let is_unread = config::unread_api(text("apiVersion")).is_some();
        let kind = format!("{} {}", text("apiVersion"), text("kind"));
        let count = self.objects.foreign.entry(kind).or_default();
        *count = count.saturating_add(1);
        if is_unread && self.objects.unread.len() < MAX_UNREAD {
            self.objects.unread.push((line, value));
        }
    }
}

/// Documents that are no objects.
#[derive(Default)]
struct UnnamedDocuments {
    count: usize,
    /// Line of the first document that gets no finding of its own.
    line: usize,
}

impl UnnamedDocuments {
    /// Counts a document and returns true if it gets a finding of its own.
    fn has_own_finding(&mut self, line: usize) -> bool {
        self.count = self.count.saturating_add(1);
        if self.count == MAX_NAMELESS.saturating_add(1) {
            self.line = line;
        }
        self.count <= MAX_NAMELESS
    }

    fn rest<V: StoredForm>(&self) -> Option<SourceEntry<V>> {
        let more = self.count.checked_sub(MAX_NAMELESS);
        let more = more.filter(|more| *more > 0)?;
        let message = format!("and {more} more documents that are no objects");
        Some(SourceEntry::error_at(self.line, &message))
    }
}
