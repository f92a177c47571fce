//! The directories that a path goes through, with the names in each that decide where it leads.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use sources::each_lookup;

/// Adds what `path` goes through, up to its file or the first thing that is missing.
pub(super) fn walk(path: &Path, names_by_folder: &mut BTreeMap<PathBuf, BTreeSet<OsString>>) {
    each_lookup(path, |name| {
        if let (Some(folder), Some(last)) = (name.parent(), name.file_name()) {
            let names = names_by_folder.entry(folder.to_path_buf()).or_default();
            names.insert(last.to_owned());
        }
        fs::symlink_metadata(name).is_ok()
    });
}
