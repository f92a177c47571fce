//! The files of a directory, or one file, as the places of a catalogue.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use api::config::ServedInstead;
use api::yaml::Malformed;

use super::known_files::{FileReader, FileScan, KnownFiles, walk_limits};
use super::tree::UnreadFile;
use crate::catalogue::source_catalogue::{Root, SourceCatalogue, SourceProblem, StoredForm};

/// The objects of files.
pub(crate) trait FilesObjects {
    type Version: StoredForm;

    fn catalogue(&self) -> &SourceCatalogue<Self::Version>;

    fn catalogue_mut(&mut self) -> &mut SourceCatalogue<Self::Version>;

    /// Replaces all objects of a file by those of its text.
    ///
    /// # Errors
    ///
    /// The text cannot be read; the objects stay as they were.
    fn put(&mut self, place: &Arc<str>, bytes: &[u8]) -> Result<(), Malformed>;

    /// A file is gone.
    fn remove(&mut self, place: &Arc<str>);
}

/// The files, and the objects read from them.
#[derive(Debug)]
pub(crate) struct ScannedFiles<O> {
    files: KnownFiles,
    pub(crate) objects: O,
}

/// The origins of a directory's objects: the path as its user gave it.
pub(crate) fn root_of(path: &Path) -> Root {
    Root::Directory(path.to_string_lossy().into())
}

impl<O: FilesObjects> ScannedFiles<O> {
    /// Reads nothing yet. `bytes`: of one file at most.
    pub(crate) fn new(path: &Path, bytes: usize, objects: O) -> Self {
        Self {
            files: KnownFiles::new(path, walk_limits(bytes)),
            objects,
        }
    }

    /// Reads the changes since the last scan.
    ///
    /// # Errors
    ///
    /// The directory cannot be read. The state stays as it was.
    pub(crate) fn scan(&mut self) -> io::Result<FileScan> {
        let mut scanning = Scanning {
            objects: &mut self.objects,
            problems: BTreeSet::new(),
        };
        let mut scan = self.files.scan(&mut scanning)?;
        if let Some(cause) = scan.left_out.take() {
            scanning.problem(Path::new(""), ServedInstead::Nothing, cause);
        }
        let problems = scanning.problems;
        self.objects.catalogue_mut().problems(problems);
        Ok(scan)
    }

    /// Makes the next scan read every file.
    pub(crate) fn forget_stamps(&mut self) {
        self.files.forget_stamps();
    }
}

/// One scan.
struct Scanning<'a, O> {
    objects: &'a mut O,
    /// Problems that concern neither an object nor a file.
    problems: BTreeSet<SourceProblem>,
}

impl<O: FilesObjects> Scanning<'_, O> {
    fn problem(&mut self, place: &Path, serving: ServedInstead, cause: String) {
        self.problems.insert(SourceProblem {
            place: place.to_string_lossy().into_owned(),
            serving,
            cause,
        });
    }

    /// Returns the place of a file; `None`, with a problem, if its name is not UTF-8.
    fn location(&mut self, below: &Path) -> Option<Arc<str>> {
        let place = below.to_str();
        if place.is_none() {
            let cause = "its name is not UTF-8".to_owned();
            self.problem(below, ServedInstead::Nothing, cause);
        }
        place.map(Into::into)
    }
}

impl<O: FilesObjects> FileReader for Scanning<'_, O> {
    fn must_read(&self, below: &Path) -> bool {
        // Problems are those of one scan.
        below
            .to_str()
            .is_none_or(|place| self.objects.catalogue().has_room(place))
    }

    fn read(&mut self, below: &Arc<Path>, bytes: &[u8]) {
        let Some(place) = self.location(below) else {
            return;
        };
        if let Err(Malformed { line, cause, .. }) = self.objects.put(&place, bytes) {
            let catalogue = self.objects.catalogue_mut();
            // Line 0 stands for an unknown line, and a text that cannot be parsed has a first one.
            catalogue.unread(&place, line.max(1), format!("cannot parse: {cause}"));
        }
    }

    fn unread(&mut self, below: &Arc<Path>, cause: UnreadFile) {
        if let Some(place) = self.location(below) {
            let catalogue = self.objects.catalogue_mut();
            match cause {
                UnreadFile::NotRegular => catalogue.refuse(&place, cause.to_string()),
                UnreadFile::Failed(cause) => {
                    catalogue.unread(&place, 0, format!("cannot read: {cause}"));
                }
            }
        }
    }

    fn unread_folder(&mut self, below: &Path, cause: String) {
        let cause = format!("cannot read: {cause}");
        self.problem(below, ServedInstead::Old, cause);
    }

    fn remove(&mut self, below: &Path) {
        if let Some(place) = below.to_str() {
            self.objects.remove(&place.into());
        }
    }
}
