//! Directories of YAML and JSON: the objects of their files, each checked, in its last good version.
//!
//! ```text
//!                                              ┌─ entries ──► EntryChange, ConfigReport
//!  tree ── known_files ── scanned_files ───────┤
//!                                              └─ files ──► Contribution, ConfigReport
//! ```
//!
//! There is one reader of files: `tree` walks a directory, `known_files` knows which files have changed, and `scanned_files`
//! puts their objects into a catalogue. `entries` yields them as galley serves them, `files` as discovery acts on them.
//!
//! # Usage
//!
//! [`Directory`] does not watch by itself. [`Directory::scan`] reads changed files and returns a [`DirectoryScan`]: the
//! [`EntryChange`](crate::catalogue::EntryChange)s by name, the [`ConfigReport`](crate::catalogue::ConfigReport) of objects that
//! are not served as written, and the directories to watch. The first scan returns all objects. It blocks on the disk: move the
//! directory into `spawn_blocking` and back. Debounce events by 100 ms of quiet, 500 ms at most; kubelet's exchange of a volume
//! is one scan then. [`Directory::all`] is for a new session, which needs all objects again. [`Directory::forget_stamps`] is for
//! SIGUSR1: the next scan reads every file.
//!
//! ```text
//! let (directory, scan) = spawn_blocking(move || { let scan = directory.scan(); (directory, scan) }).await?;
//! folders.follow(&scan.folders);                       // and scan again where that was new
//! for change in scan.changes { session.object(number, id, entry) }
//! for line in scan.report.new_lines(&before).0 { warn!("{line}") }
//! ```
//!
//! Limits: 100,000 files, 64 directories within each other, and those of the catalogue. Objects beyond them are refused and
//! reported.

mod entries;
mod files;
mod known_files;
#[cfg(test)]
pub(crate) mod rule_rows_tests;
pub(crate) mod scanned_files;
mod tree;
mod unread_kinds;

pub use entries::{Directory, DirectoryScan};
pub use files::{CoreOrigin, Files, Outcome};
pub(crate) use files::{FileObjects, MAX_BYTES};
#[cfg(test)]
pub(crate) use files::{FileVersion, stored};
