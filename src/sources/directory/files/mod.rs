//! A directory of YAML as a source: the objects of its files, in last good versions.
//!
//! ```text
//! files ── config::scanned_files ──► config::text ──► FileVersion ──► Contribution
//! ```
//!
//! Files are read, and objects checked, as those of every other reader of a directory: only the form in which valid objects are
//! stored is this reader's own.
//!
//! Reading is one blocking step: the caller watches the directory and reads after an event, and from time to time. Each call
//! to the file system has a deadline. A file that has not changed is not read again, and one with the same bytes is not
//! parsed again.

mod object;
mod objects;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::config::document;
use api::yaml::Limits;

use super::scanned_files::{ScannedFiles, root_of};
use crate::catalogue::ConfigObject;
use crate::catalogue::{ConfigReport, Message};
use crate::contribution::Contribution;
use crate::kubernetes::Names;
#[cfg(test)]
pub(crate) use object::{FileVersion, stored};
pub use objects::CoreOrigin;
pub(crate) use objects::FileObjects;

/// Bytes of one object, and of a request's body, at most.
pub(crate) const MAX_BYTES: usize = 4 << 20;

/// A file may hold all objects of a cluster, as `kubectl get` writes them.
const LIMITS: Limits = document::COMMAND_LINE;

/// The content of the directory after a scan.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub contribution: Contribution,
    /// Objects that are not served as they are written, and files that cannot be read; the same pointer as before if nothing is
    /// new.
    pub report: Arc<ConfigReport>,
    /// Messages beside the report, by file and line.
    pub messages: Vec<Message>,
    /// The mesh's configuration, whether or not it is used, and files of which not all can be read.
    pub written: Vec<Arc<ConfigObject>>,
    /// The number of used objects, by kind.
    pub objects: BTreeMap<Arc<str>, usize>,
    /// The directories that were scanned, for a watch.
    pub folders: Vec<PathBuf>,
    /// A path does not answer: read again soon.
    pub hangs: bool,
}

impl Outcome {
    /// Iterates over the objects and files of which something is not used, by kind, and namespace and name or path.
    pub fn refused(&self) -> impl Iterator<Item = (Arc<str>, String)> {
        let refused = self.report.refused.iter().map(|one| {
            let (kind, name) = one.kind_and_name();
            (kind.into(), name.into_owned())
        });
        let messages = self.messages.iter();
        refused.chain(messages.filter_map(|message| message.object.clone()))
    }
}

/// A directory.
#[derive(Debug)]
pub struct Files {
    files: ScannedFiles<FileObjects>,
}

impl Files {
    #[must_use]
    pub fn new(root: &Path, names: Names, core_origin: CoreOrigin) -> Self {
        let objects = FileObjects::new(root_of(root), names, core_origin);
        Self {
            files: ScannedFiles::new(root, LIMITS.bytes, objects),
        }
    }

    /// Reads the directory.
    ///
    /// # Errors
    ///
    /// The directory itself cannot be read. The state stays as it was.
    pub fn read(&mut self) -> io::Result<Outcome> {
        let scan = self.files.scan()?;
        Ok(Outcome {
            folders: scan.folders,
            hangs: scan.hangs,
            ..self.files.objects.outcome()
        })
    }

    /// Makes the next call of `read` read every file.
    pub fn forget_stamps(&mut self) {
        self.files.forget_stamps();
    }

    /// The mesh's trust domain is another one.
    pub fn set_trust_domain(&mut self, trust_domain: &str) -> Contribution {
        self.files.objects.set_trust_domain(trust_domain)
    }
}
