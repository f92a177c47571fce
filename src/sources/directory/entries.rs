//! A directory of YAML and JSON as a source, or one file.
//!
//! A scan reads the files that have changed since the last one; each call to the file system has a deadline. The caller
//! watches the directory and calls `scan` after an event.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::config::document::LIMITS;
use api::yaml::Malformed;

use super::scanned_files::{FilesObjects, ScannedFiles, root_of};
use super::unread_kinds::UnreadKinds;
use crate::catalogue::MAX_OBJECTS;
use crate::catalogue::config_catalogue::ConfigCatalogue;
use crate::catalogue::entry_form::{ConfigVersion, EntryForm, of_transforms};
use crate::catalogue::source_catalogue::SourceCatalogue;
use crate::catalogue::text::read;
use crate::catalogue::{
    ConfigReport, CoreKind, Entry, EntryChange, EntryId, Message, UsabilityCheck,
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

/// The source.
#[derive(Debug)]
pub struct Directory {
    files: ScannedFiles<DirectoryObjects>,
}

/// The objects of the files.
#[derive(Debug)]
struct DirectoryObjects {
    form: EntryForm,
    catalogue: ConfigCatalogue,
    unread: UnreadKinds,
}

impl Directory {
    /// Creates a source of a directory. Reads nothing yet.
    #[must_use]
    pub fn new(root: &Path, usable: UsabilityCheck) -> Self {
        let form = EntryForm {
            usable,
            keeps_created: false,
            is_whole: false,
            wanted: of_transforms,
        };
        let objects = DirectoryObjects {
            form,
            catalogue: ConfigCatalogue::new(root_of(root), MAX_OBJECTS),
            unread: UnreadKinds::default(),
        };
        Self {
            files: ScannedFiles::new(root, LIMITS.bytes, objects),
        }
    }

    /// Keeps all fields of Kubernetes' own kinds, for a reader that makes services of them, and creation times, by which discovery
    /// orders rules.
    #[must_use]
    pub const fn with_all_fields(mut self) -> Self {
        self.files.objects.form.is_whole = true;
        self.files.objects.form.keeps_created = true;
        self.files.objects.form.wanted = |_| true;
        self
    }

    /// As [`Self::with_all_fields`], without the kinds that discovery makes nothing of. `has_cluster`: without any of Kubernetes'
    /// own kinds, because an API server has their objects.
    #[must_use]
    pub const fn with_services(mut self, has_cluster: bool) -> Self {
        self.files.objects.form.is_whole = true;
        self.files.objects.form.keeps_created = true;
        self.files.objects.form.wanted = match has_cluster {
            true => |_| false,
            false => |kind| !matches!(kind, CoreKind::IngressClass),
        };
        self
    }

    /// Messages of discovery about objects of kinds that are not read.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        let DirectoryObjects {
            catalogue, unread, ..
        } = &self.files.objects;
        unread.messages(|place| catalogue.objects.origin(place, ""))
    }

    /// Reads the changes since the last scan. The first scan may take seconds: call it on a blocking thread.
    ///
    /// # Errors
    ///
    /// The directory cannot be read. The state stays as it was.
    pub fn scan(&mut self) -> io::Result<DirectoryScan> {
        let scan = self.files.scan()?;
        let catalogue = &mut self.files.objects.catalogue;
        let changes = catalogue.reconcile();
        Ok(DirectoryScan {
            changes,
            report: catalogue.report(),
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
        self.files.objects.catalogue.all()
    }
}

impl FilesObjects for DirectoryObjects {
    type Version = ConfigVersion;

    fn catalogue(&self) -> &SourceCatalogue<ConfigVersion> {
        &self.catalogue.objects
    }

    fn catalogue_mut(&mut self) -> &mut SourceCatalogue<ConfigVersion> {
        &mut self.catalogue.objects
    }

    fn put(&mut self, place: &Arc<str>, bytes: &[u8]) -> Result<(), Malformed> {
        let form = self.form;
        let read = read(bytes, LIMITS, |object, checked| {
            form.stored(checked, &object.value)
        })?;
        self.catalogue.objects.put(place, read.entries);
        self.unread.put(place, read.foreign);
        Ok(())
    }

    fn remove(&mut self, place: &Arc<str>) {
        self.catalogue.objects.remove(place);
        self.unread.remove(place);
    }
}

#[cfg(test)]
mod tests;
