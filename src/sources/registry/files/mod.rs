//! A directory of YAML as a source: the objects of its files, in last good versions.
//!
//! ```text
//! tree ──► bytes of each file ──► documents ──► objects ──► Contribution
//! ```
//!
//! Reading is one blocking step: the caller watches the directory and reads after an event, and from time to time. Each call
//! to the file system has a deadline. A file that has not changed is not read again, and one with the same bytes is not
//! parsed again.

mod message;
mod object;
mod objects;
mod one_line;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::config::document;
use api::yaml::{Limits, Malformed};

use super::kubernetes::Names;
use super::{Contribution, WrittenObject};
use crate::catalogue::Origin;
use crate::config::MOST_OBJECTS;
use crate::tree::{FoundFile, Stamp, Walker};
pub use message::Message;
use message::{message, name};
pub(super) use object::{FileObjectId, Item};
pub(super) use objects::FileObjects;
use tree::Tree;

/// Bytes of one object, and of a request's body, at most.
pub(super) const MAX_BYTES: usize = 4 << 20;

/// Bytes of all files together at most, hence also of a single file.
const TOTAL: usize = 64 << 20;

const LIMITS: Limits = Limits {
    bytes: TOTAL,
    ..document::LIMITS
};

/// Messages about one file at most.
const MAX_MESSAGES: usize = 20;

/// The content of the directory after a scan.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub contribution: Contribution,
    /// All messages, by file and line.
    pub messages: Vec<Message>,
    /// The mesh's configuration, whether or not it is used, and files of which not all can be read.
    pub written: Vec<Arc<WrittenObject>>,
    /// The number of used objects, by kind.
    pub objects: BTreeMap<Arc<str>, usize>,
    /// The directories that were scanned, for a watch.
    pub folders: Vec<PathBuf>,
    /// A path does not answer: read again soon.
    pub hangs: bool,
}

/// A file as last read.
#[derive(Debug, Default)]
struct LastFile {
    /// The length and the hash of the file's bytes.
    content: Option<(usize, u64)>,
    /// The file with these bytes; while it has it, it is not read again.
    stamp: Option<Stamp>,
    /// The error and its line, if the text is not YAML.
    malformed: Option<Malformed>,
    /// The reason why the file cannot be read at present.
    unread: Option<String>,
}

/// A directory.
#[derive(Debug)]
pub struct Files {
    walker: Walker,
    known: BTreeMap<Arc<Path>, LastFile>,
    /// Directories that cannot be read at present.
    unread: BTreeMap<PathBuf, String>,
    folders: Vec<PathBuf>,
    hangs: bool,
    objects: FileObjects,
}

impl Files {
    /// `kubernetes`: objects of Kubernetes are used. They are not where an API server has them.
    #[must_use]
    pub fn new(root: &Path, names: Names, kubernetes: bool) -> Self {
        Self {
            walker: Walker::new(root),
            known: BTreeMap::new(),
            unread: BTreeMap::new(),
            folders: Vec::new(),
            hangs: false,
            objects: FileObjects::new(names, kubernetes),
        }
    }

    /// Reads the directory.
    ///
    /// # Errors
    ///
    /// The directory itself cannot be read. The state stays as it was.
    pub fn read(&mut self) -> io::Result<Outcome> {
        let known = |path: &Path| self.known.get(path)?.stamp;
        let tree = tree::read(&mut self.walker, &known)?;
        Ok(self.take(tree))
    }

    /// Makes the next call of `read` read every file.
    pub fn forget_stamps(&mut self) {
        for known in self.known.values_mut() {
            known.stamp = None;
        }
    }

    /// The mesh's trust domain is another one.
    pub fn set_trust_domain(&mut self, trust_domain: &str) -> Contribution {
        self.objects.set_trust_domain(trust_domain)
    }

    fn take(&mut self, tree: Tree) -> Outcome {
        self.folders = tree.folders;
        self.hangs = tree.hangs;
        let hides = |folder: &Path, path: &Path| path.starts_with(folder) && path != folder;
        self.known.retain(|path, _| {
            // Files below an unreadable directory may still exist.
            let mut unread = tree.unread.keys();
            let is_there =
                unread.any(|folder| hides(folder, path)) || tree.files.contains_key(&**path);
            if !is_there {
                self.objects.remove(path);
            }
            is_there
        });
        self.unread = tree.unread;
        for (path, read) in tree.files {
            match read {
                Ok(FoundFile::Same) => self.known(&path).1.unread = None,
                Ok(FoundFile::Read { bytes, stamp }) => {
                    self.read_file(&path, &bytes);
                    self.known(&path).1.stamp = stamp;
                }
                Err(cause) => self.known(&path).1.unread = Some(cause),
            }
        }
        self.outcome()
    }

    fn known(&mut self, path: &Path) -> (Arc<Path>, &mut LastFile) {
        let path = match self.known.get_key_value(path) {
            Some((path, _)) => Arc::clone(path),
            None => path.into(),
        };
        (Arc::clone(&path), self.known.entry(path).or_default())
    }

    fn read_file(&mut self, path: &Path, bytes: &[u8]) {
        let (path, known) = self.known(path);
        known.unread = None;
        let content = Some((bytes.len(), hash(bytes)));
        if known.content == content {
            return;
        }
        known.content = content;
        known.malformed = None;
        match items(bytes, &Origin::file(name(&path))) {
            Ok(items) => self.objects.put(&path, items),
            Err(malformed) => known.malformed = Some(malformed),
        }
    }

    fn outcome(&mut self) -> Outcome {
        let mut messages: Vec<_> = self
            .unread
            .iter()
            .map(|(folder, cause)| unread(folder, cause))
            .collect();
        let mut written = Vec::new();
        let contribution = self.objects.outcome(&mut messages, &mut written);
        for (path, known) in &self.known {
            if let Some(malformed) = &known.malformed {
                messages.push(broken(path, malformed, self.objects.still_served(path)));
            }
            if let Some(cause) = &known.unread {
                messages.push(unread(path, cause));
            }
        }
        messages.sort();
        written.extend(message::files(&messages));
        written.sort_by(|one, other| {
            let key = |one: &WrittenObject| {
                let place = (one.kind.clone(), one.namespace.clone(), one.name.clone());
                (place, !one.accepted, one.origin.clone())
            };
            key(one).cmp(&key(other))
        });
        Outcome {
            contribution,
            messages,
            written,
            objects: self.objects.counts().clone(),
            folders: self.folders.clone(),
            hangs: self.hangs,
        }
    }
}

/// Builds the message for a file that is not YAML, `kept` objects of which stay.
fn broken(path: &Path, malformed: &Malformed, kept: usize) -> Message {
    let kept = match kept {
        0 => String::new(),
        1 => "; its object keeps its last good version".to_owned(),
        kept => format!("; its {kept} objects keep their last good version"),
    };
    let text = format!("cannot parse: {}{kept}", malformed.cause);
    message(path, malformed.line.max(1), &text).of_file()
}

fn unread(path: &Path, cause: &str) -> Message {
    message(path, 0, &format!("cannot read: {cause}")).of_file()
}

/// The objects in some text; `origin`: that of the text.
pub(super) fn items(bytes: &[u8], origin: &Origin) -> Result<Vec<Item>, Malformed> {
    let text = document::utf8(bytes)?;
    // Values with their text: they are fewer than bytes, and an escape is at most half as long again as it was written. The rest
    // is for aliases, which are bounded in each document, and would not be in many.
    let most = text.len().saturating_mul(3).saturating_add(MAX_BYTES);
    let (mut items, mut size) = (Vec::new(), 0_usize);
    for document in document::documents_within(text, LIMITS) {
        for part in document?.parts() {
            let wrong = |cause| Malformed {
                line: part.begin(),
                cause,
            };
            if items.len() == MOST_OBJECTS {
                return Err(wrong(format!("more than {MOST_OBJECTS} documents")));
            }
            size = size.saturating_add(part.size());
            if size > most {
                let cause = format!("aliases of all documents stand for more than {most} bytes");
                return Err(wrong(cause));
            }
            items.push(object::item(&part, origin));
        }
    }
    Ok(items)
}

fn hash(bytes: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hasher as _};
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
