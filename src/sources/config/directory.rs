//! A directory of YAML and JSON as a source, or one file.
//!
//! A scan reads the files that have changed since the last one; each call to the file system has a deadline. The caller
//! watches the directory and calls `scan` after an event.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::config::Finding;
use api::config::document::{self, LIMITS, Part};
use api::yaml::Malformed;

use super::catalogue::{ConfigCatalogue, Root, SourceEntry, SourceProblem};
use super::checked::{CheckOptions, CheckedObject, check_part};
use super::core_kind::UsabilityCheck;
use super::entry::{Entry, EntryChange, EntryId};
use super::report::{ConfigReport, ErrorEffect};
use crate::tree::{FoundFile, Limits, Stamp, Visit, Walker};

/// Files at most.
pub const MOST_FILES: usize = 100_000;
/// Objects at most, and documents of one file.
pub const MOST_OBJECTS: usize = 200_000;
/// Documents of one file that are no objects and get a finding each.
const MOST_NAMELESS: usize = 100;

const WALK: Limits = Limits {
    depth: 64,
    files: MOST_FILES,
    names: 400_000,
    bytes: LIMITS.bytes,
    // Files are read one at a time and not kept, so their sum is unbounded.
    total: usize::MAX,
};

/// The result of one scan of the directory.
#[derive(Clone, Debug, Default)]
pub struct DirectoryScan {
    /// Changes by name. A rewritten object with equal content is no change but of its origin, if it has another.
    pub changes: Vec<EntryChange>,
    /// The same pointer as before if nothing is new.
    pub report: Arc<ConfigReport>,
    /// Directories to watch for the next change, without those below them. Watch the path itself, too: it may be removed, or
    /// come to lead elsewhere.
    pub folders: Vec<PathBuf>,
    /// The number of files, and of those that were read in this scan.
    pub files: usize,
    pub read: usize,
    /// A path does not answer: scan again soon.
    pub hangs: bool,
}

/// A file as it was last read.
#[derive(Debug, Default)]
struct KnownFile {
    /// The length and the hash of the file's bytes.
    content: Option<(usize, u64)>,
    /// The stamp with which the file is not read again.
    stamp: Option<Stamp>,
    /// The number of the last scan that saw the file.
    seen: u64,
}

/// The source.
#[derive(Debug)]
pub struct Directory {
    walker: Walker,
    options: CheckOptions,
    catalogue: ConfigCatalogue,
    known: BTreeMap<Arc<str>, KnownFile>,
    scans: u64,
    read: usize,
    problems: BTreeSet<SourceProblem>,
    /// Directories that could not be read.
    unread: Vec<String>,
}

impl Directory {
    /// Creates a source of a directory. Reads nothing yet.
    #[must_use]
    pub fn new(root: &Path, usable: UsabilityCheck) -> Self {
        let options = CheckOptions {
            usable,
            is_server: false,
            is_whole: false,
        };
        Self {
            walker: Walker::new(root),
            options,
            catalogue: ConfigCatalogue::new(
                Root::Directory(root.to_string_lossy().into()),
                MOST_OBJECTS,
            ),
            known: BTreeMap::new(),
            scans: 0,
            read: 0,
            problems: BTreeSet::new(),
            unread: Vec::new(),
        }
    }

    /// Keeps all fields of Kubernetes' own kinds, for a reader that makes services of them.
    #[must_use]
    pub const fn with_whole_objects(mut self) -> Self {
        self.options.is_whole = true;
        self
    }

    /// Reads the changes since the last scan. The first scan may take seconds: call it on a blocking thread.
    ///
    /// # Errors
    ///
    /// The directory cannot be read. The state stays as it was.
    pub fn scan(&mut self) -> io::Result<DirectoryScan> {
        self.scans = self.scans.saturating_add(1);
        self.read = 0;
        self.problems.clear();
        self.unread.clear();
        let mut walker = std::mem::take(&mut self.walker);
        let walked = walker.walk(WALK, self);
        self.walker = walker;
        let walked = walked?;
        if walked.left_out > 0 {
            let cause = format!(
                "more than {MOST_FILES} files: {} are left out",
                walked.left_out
            );
            self.problem("", ErrorEffect::Refused, cause);
        }
        self.forget();
        self.catalogue.problems(std::mem::take(&mut self.problems));
        let changes = self.catalogue.reconcile();
        Ok(DirectoryScan {
            changes,
            report: self.catalogue.report(),
            folders: walked.folders.into_iter().collect(),
            files: self.known.len(),
            read: self.read,
            hangs: walked.hangs,
        })
    }

    /// Makes the next scan read every file.
    pub fn forget_stamps(&mut self) {
        for known in self.known.values_mut() {
            known.stamp = None;
            known.content = None;
        }
    }

    /// Iterates over the served entries, by name.
    pub fn all(&self) -> impl Iterator<Item = (&EntryId, &Entry)> {
        self.catalogue.all()
    }

    /// Drops files that are gone. Files below an unreadable directory may still exist.
    fn forget(&mut self) {
        let is_hidden = |place: &str| {
            let mut unread = self.unread.iter();
            unread.any(|folder| {
                let below = place.strip_prefix(&**folder);
                folder.is_empty() || below.is_some_and(|below| below.starts_with('/'))
            })
        };
        let gone = |(place, known): &(&Arc<str>, &mut KnownFile)| {
            known.seen != self.scans && !is_hidden(place)
        };
        let gone: Vec<Arc<str>> = self
            .known
            .iter_mut()
            .filter(gone)
            .map(|(place, _)| Arc::clone(place))
            .collect();
        for place in gone {
            self.known.remove(&place);
            self.catalogue.remove(&place);
        }
    }

    fn problem(&mut self, place: &str, state: ErrorEffect, cause: String) {
        self.problems.insert(SourceProblem {
            place: place.to_owned(),
            state,
            cause,
        });
    }

    fn take(&mut self, place: &Arc<str>, bytes: &[u8]) {
        match entries(bytes, self.options) {
            Ok(entries) => self.catalogue.put(place, entries),
            Err(Malformed { line, cause }) => self.catalogue.unread(place, line.max(1), cause),
        }
    }
}

impl Visit for Directory {
    fn known(&self, below: &Path) -> Option<Stamp> {
        let place = below.to_str()?;
        let stamp = self.known.get(place)?.stamp?;
        (!self.catalogue.has_room(place)).then_some(stamp)
    }

    fn file(&mut self, below: &Path, found: Result<FoundFile, String>) {
        let Some(place) = below.to_str() else {
            let cause = "its name is not UTF-8".to_owned();
            return self.problem(&below.to_string_lossy(), ErrorEffect::Refused, cause);
        };
        let place = match self.known.get_key_value(place) {
            Some((place, _)) => Arc::clone(place),
            None => place.into(),
        };
        let known = self.known.entry(Arc::clone(&place)).or_default();
        known.seen = self.scans;
        match found {
            Ok(FoundFile::Same) => {}
            Ok(FoundFile::Read { bytes, stamp }) => {
                self.read = self.read.saturating_add(1);
                known.stamp = stamp;
                let content = Some((bytes.len(), hash(&bytes)));
                if known.content != content || self.catalogue.has_room(&place) {
                    known.content = content;
                    self.take(&place, &bytes);
                }
            }
            Err(cause) => {
                // Any content of a file that becomes readable again is a change.
                *known = KnownFile {
                    seen: self.scans,
                    ..KnownFile::default()
                };
                let cause = format!("cannot read: {cause}");
                self.catalogue.unread(&place, 0, cause);
            }
        }
    }

    fn unread(&mut self, below: &Path, cause: String) {
        let place = below.to_string_lossy().into_owned();
        self.problem(&place, ErrorEffect::Stale, format!("cannot read: {cause}"));
        self.unread.push(place);
    }
}

/// Decodes and validates all objects of a text.
fn entries(bytes: &[u8], options: CheckOptions) -> Result<Vec<SourceEntry>, Malformed> {
    let text = document::utf8(bytes)?;
    let mut entries = Vec::new();
    let (mut seen, mut nameless) = (0_usize, Nameless::default());
    for document in document::documents(text) {
        let document = document?;
        let parts = document.parts();
        seen = seen.saturating_add(parts.len().max(1));
        if seen > MOST_OBJECTS {
            let line = parts.first().map_or(0, Part::begin);
            let words = format!("more than {MOST_OBJECTS} documents: the rest is left out");
            entries.push(complaint(line, &words));
            break;
        }
        for part in parts {
            let Some(checked) = check_part(&part, options) else {
                continue;
            };
            if !checked.id.is_whole() && !nameless.is_told(part.begin()) {
                continue;
            }
            let mut findings = checked.findings.iter();
            let wrong = findings
                .clone()
                .find(|found| found.is_error())
                .or_else(|| findings.next());
            entries.push(SourceEntry {
                line: part.begin(),
                wrong: wrong.map_or_else(|| part.begin(), |found: &Finding| part.line(&found.path)),
                checked,
                ..SourceEntry::default()
            });
        }
    }
    entries.extend(nameless.rest());
    Ok(entries)
}

/// Documents that are no objects.
#[derive(Default)]
struct Nameless {
    count: usize,
    /// Line of the first document that gets no finding of its own.
    line: usize,
}

impl Nameless {
    /// Counts a document and returns true if it gets a finding of its own.
    fn is_told(&mut self, line: usize) -> bool {
        self.count = self.count.saturating_add(1);
        if self.count == MOST_NAMELESS.saturating_add(1) {
            self.line = line;
        }
        self.count <= MOST_NAMELESS
    }

    fn rest(self) -> Option<SourceEntry> {
        let more = self
            .count
            .checked_sub(MOST_NAMELESS)
            .filter(|more| *more > 0)?;
        let words = format!("and {more} more documents that are no objects");
        Some(complaint(self.line, &words))
    }
}

/// Builds a candidate without a name that carries an error of the file at a line.
fn complaint(line: usize, words: &str) -> SourceEntry {
    SourceEntry {
        checked: CheckedObject {
            findings: vec![Finding::error("", words)],
            ..CheckedObject::default()
        },
        line,
        wrong: line,
        ..SourceEntry::default()
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests;
