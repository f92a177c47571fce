//! A directory of YAML as a source: the objects of its files, in last good versions.
//!
//! ```text
//! bytes of each file ──► documents ──► objects ──► Contribution
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
use crate::known_files::{FileReader, FileScan, KnownFiles, walk_limits};
pub use message::Message;
use message::{message, name};
pub(super) use object::{FileObjectId, Item};
pub(super) use objects::FileObjects;

/// Bytes of one object, and of a request's body, at most.
pub(super) const MAX_BYTES: usize = 4 << 20;

/// A file may hold all objects of a cluster, as `kubectl get` writes them.
const LIMITS: Limits = document::COMMAND_LINE;

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

/// The reasons why the content of a file is not used.
#[derive(Debug, Default)]
struct FileFlaws {
    /// The error and its line, if the text is not YAML.
    malformed: Option<Malformed>,
    /// The reason why the file cannot be read at present.
    unread: Option<String>,
}

/// A directory.
#[derive(Debug)]
pub struct Files {
    known: KnownFiles,
    content: FilesContent,
}

/// The content of the files.
#[derive(Debug)]
struct FilesContent {
    flaws: BTreeMap<Arc<Path>, FileFlaws>,
    /// Directories that cannot be read at present.
    unread: BTreeMap<PathBuf, String>,
    objects: FileObjects,
}

impl Files {
    /// `kubernetes`: objects of Kubernetes are used. They are not where an API server has them.
    #[must_use]
    pub fn new(root: &Path, names: Names, kubernetes: bool) -> Self {
        Self {
            known: KnownFiles::new(root, walk_limits(LIMITS.bytes)),
            content: FilesContent {
                flaws: BTreeMap::new(),
                unread: BTreeMap::new(),
                objects: FileObjects::new(names, kubernetes),
            },
        }
    }

    /// Reads the directory.
    ///
    /// # Errors
    ///
    /// The directory itself cannot be read. The state stays as it was.
    pub fn read(&mut self) -> io::Result<Outcome> {
        let before = std::mem::take(&mut self.content.unread);
        match self.known.scan(&mut self.content) {
            Ok(scan) => Ok(self.content.outcome(scan)),
            Err(cause) => {
                self.content.unread = before;
                Err(cause)
            }
        }
    }

    /// Makes the next call of `read` read every file.
    pub fn forget_stamps(&mut self) {
        self.known.forget_stamps();
    }

    /// The mesh's trust domain is another one.
    pub fn set_trust_domain(&mut self, trust_domain: &str) -> Contribution {
        self.content.objects.set_trust_domain(trust_domain)
    }
}

impl FileReader for FilesContent {
    fn is_wanted(&self, below: &Path) -> bool {
        self.objects.has_room(below)
    }

    fn read(&mut self, below: &Arc<Path>, bytes: &[u8]) {
        match items(bytes, &Origin::file(name(below))) {
            Ok(items) => {
                self.flaws.remove(below);
                self.objects.put(below, items);
            }
            Err(malformed) => {
                let flaws = FileFlaws {
                    malformed: Some(malformed),
                    unread: None,
                };
                self.flaws.insert(Arc::clone(below), flaws);
            }
        }
    }

    fn unread(&mut self, below: &Arc<Path>, cause: String) {
        self.flaws.entry(Arc::clone(below)).or_default().unread = Some(cause);
    }

    fn unread_folder(&mut self, below: &Path, cause: String) {
        self.unread.insert(below.to_path_buf(), cause);
    }

    fn remove(&mut self, below: &Path) {
        self.flaws.remove(below);
        self.objects.remove(below);
    }
}

impl FilesContent {
    fn outcome(&mut self, scan: FileScan) -> Outcome {
        let unread_folders = self.unread.iter();
        let mut messages: Vec<_> = unread_folders
            .map(|(folder, cause)| unread(folder, cause))
            .collect();
        if let Some(cause) = &scan.left_out {
            messages.push(unread(Path::new(""), cause));
        }
        let mut written = Vec::new();
        let contribution = self.objects.outcome(&mut messages, &mut written);
        for (path, flaws) in &self.flaws {
            if let Some(malformed) = &flaws.malformed {
                messages.push(broken(path, malformed, self.objects.still_served(path)));
            }
            if let Some(cause) = &flaws.unread {
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
            folders: scan.folders,
            hangs: scan.hangs,
        }
    }
}

/// Builds the message for a file that is not YAML, `retained` objects of which stay.
fn broken(path: &Path, malformed: &Malformed, retained: usize) -> Message {
    let retained = match retained {
        0 => String::new(),
        1 => "; its object keeps its last good version".to_owned(),
        retained => format!("; its {retained} objects keep their last good version"),
    };
    let text = format!("cannot parse: {}{retained}", malformed.cause);
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
