//! The directories that a path goes through, with the names in each that decide where it leads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Links that the kernel follows at most (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// Adds what `path` goes through, up to its file or the first thing that is missing.
pub(super) fn walk(path: &Path, found: &mut BTreeMap<PathBuf, BTreeSet<OsString>>) {
    // Without a working directory a relative path cannot be resolved.
    let Ok(path) = std::path::absolute(path) else {
        return;
    };
    let mut folder = PathBuf::from("/");
    let mut rest = names(&path);
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            folder.pop();
            continue;
        }
        found
            .entry(folder.clone())
            .or_default()
            .insert(name.clone());
        let next = folder.join(&name);
        let Ok(kind) = fs::symlink_metadata(&next).map(|data| data.file_type()) else {
            return;
        };
        if !kind.is_symlink() {
            folder = next;
            continue;
        }
        links += 1;
        let Ok(target) = fs::read_link(&next) else {
            return;
        };
        if links > MAX_LINKS {
            return;
        }
        if target.is_absolute() {
            folder = PathBuf::from("/");
        }
        let mut ahead = names(&target);
        ahead.append(&mut rest);
        rest = ahead;
    }
}

fn names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}
