//! A directory of YAML and JSON as a source, or one file.
//!
//! A scan reads the files that have changed since the last one; each call to the file system has a deadline. The caller
//! watches the directory and calls `scan` after an event.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::config::document::{self, LIMITS, Part};
use api::config::{Finding, ServedInstead};
use api::yaml::Malformed;

use super::catalogue::{ConfigCatalogue, Root, SourceEntry, SourceProblem};
use super::checked::{CheckOptions, CheckedObject, check_part};
use super::core_kind::UsabilityCheck;
use super::entry::{Entry, EntryChange, EntryId};
use super::report::ConfigReport;
use crate::known_files::{FileReader, KnownFiles, walk_limits};

/// Objects at most, and documents of one file.
pub const MOST_OBJECTS: usize = 200_000;
/// Documents of one file that are no objects and get a finding each.
const MOST_NAMELESS: usize = 100;

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

/// The source.
#[derive(Debug)]
pub struct Directory {
    files: KnownFiles,
    objects: DirectoryObjects,
}

/// The objects of the files.
#[derive(Debug)]
struct DirectoryObjects {
    options: CheckOptions,
    catalogue: ConfigCatalogue,
    /// Problems of the current scan.
    problems: BTreeSet<SourceProblem>,
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
        let place = Root::Directory(root.to_string_lossy().into());
        Self {
            files: KnownFiles::new(root, walk_limits(LIMITS.bytes)),
            objects: DirectoryObjects {
                options,
                catalogue: ConfigCatalogue::new(place, MOST_OBJECTS),
                problems: BTreeSet::new(),
            },
        }
    }

    /// Keeps all fields of Kubernetes' own kinds, for a reader that makes services of them.
    #[must_use]
    pub const fn with_whole_objects(mut self) -> Self {
        self.objects.options.is_whole = true;
        self
    }

    /// Reads the changes since the last scan. The first scan may take seconds: call it on a blocking thread.
    ///
    /// # Errors
    ///
    /// The directory cannot be read. The state stays as it was.
    pub fn scan(&mut self) -> io::Result<DirectoryScan> {
        let objects = &mut self.objects;
        objects.problems.clear();
        let scan = self.files.scan(objects)?;
        if let Some(cause) = scan.left_out {
            objects.problem(Path::new(""), ServedInstead::Nothing, cause);
        }
        let problems = std::mem::take(&mut objects.problems);
        objects.catalogue.problems(problems);
        let changes = objects.catalogue.reconcile();
        Ok(DirectoryScan {
            changes,
            report: objects.catalogue.report(),
            folders: scan.folders,
            files: scan.files,
            read: scan.read,
            hangs: scan.hangs,
        })
    }

    /// Makes the next scan read every file.
    pub fn forget_stamps(&mut self) {
        self.files.forget_stamps();
    }

    /// Iterates over the served entries, by name.
    pub fn all(&self) -> impl Iterator<Item = (&EntryId, &Entry)> {
        self.objects.catalogue.all()
    }
}

impl DirectoryObjects {
    fn problem(&mut self, place: &Path, serving: ServedInstead, cause: String) {
        self.problems.insert(SourceProblem {
            place: place.to_string_lossy().into_owned(),
            serving,
            cause,
        });
    }

    /// Returns the place of a file; `None`, with a problem, if its name is not UTF-8.
    fn place(&mut self, below: &Path) -> Option<Arc<str>> {
        let place = below.to_str();
        if place.is_none() {
            let cause = "its name is not UTF-8".to_owned();
            self.problem(below, ServedInstead::Nothing, cause);
        }
        place.map(Into::into)
    }
}

impl FileReader for DirectoryObjects {
    fn is_wanted(&self, below: &Path) -> bool {
        // Problems are those of one scan.
        below
            .to_str()
            .is_none_or(|place| self.catalogue.has_room(place))
    }

    fn read(&mut self, below: &Arc<Path>, bytes: &[u8]) {
        let Some(place) = self.place(below) else {
            return;
        };
        match entries(bytes, self.options) {
            Ok(entries) => self.catalogue.put(&place, entries),
            Err(Malformed { line, cause }) => self.catalogue.unread(&place, line.max(1), cause),
        }
    }

    fn unread(&mut self, below: &Arc<Path>, cause: String) {
        if let Some(place) = self.place(below) {
            let cause = format!("cannot read: {cause}");
            self.catalogue.unread(&place, 0, cause);
        }
    }

    fn unread_folder(&mut self, below: &Path, cause: String) {
        let cause = format!("cannot read: {cause}");
        self.problem(below, ServedInstead::Old, cause);
    }

    fn remove(&mut self, below: &Path) {
        if let Some(place) = below.to_str() {
            self.catalogue.remove(&place.into());
        }
    }
}

/// Decodes and validates all objects of a text.
fn entries(bytes: &[u8], options: CheckOptions) -> Result<Vec<SourceEntry>, Malformed> {
    let text = document::utf8(bytes)?;
    let mut entries = Vec::new();
    let (mut count, mut nameless) = (0_usize, Nameless::default());
    for document in document::documents(text) {
        let document = document?;
        let parts = document.parts();
        count = count.saturating_add(parts.len().max(1));
        if count > MOST_OBJECTS {
            let line = parts.first().map_or(0, Part::begin);
            let message = format!("more than {MOST_OBJECTS} documents: the rest is left out");
            entries.push(complaint(line, &message));
            break;
        }
        for part in parts {
            let Some(checked) = check_part(&part, options) else {
                continue;
            };
            if !checked.id.is_whole() && !nameless.is_told(part.begin()) {
                continue;
            }
            let mut findings = checked.findings.iter().chain(&checked.notes);
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
        let message = format!("and {more} more documents that are no objects");
        Some(complaint(self.line, &message))
    }
}

/// Builds a candidate without a name that carries an error of the file at a line.
fn complaint(line: usize, message: &str) -> SourceEntry {
    SourceEntry {
        checked: CheckedObject {
            findings: vec![Finding::error("", message)],
            ..CheckedObject::default()
        },
        line,
        wrong: line,
        ..SourceEntry::default()
    }
}

#[cfg(test)]
mod tests;
