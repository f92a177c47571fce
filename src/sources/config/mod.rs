//! Sources of configuration: objects of the mesh's kinds, validated on arrival, each once and in its last good version.
//!
//! ```text
//!  files ── scanned_files ── text ─┐                       ┌─ entry_form ── catalogue ──► EntryChange, ConfigReport
//!                                  ├─ checked ── a form ───┤
//!  API server ─────── Server ──────┘                       └─ that of registry::files ──► Contribution, ConfigReport
//! ```
//!
//! There is one reader of files: `scanned_files` reads them, `text` makes objects of their documents, `checked` judges each, and
//! `source_catalogue` keeps it in its last good version, with the report. A valid object is stored in the form that its user asks for:
//! galley stores what it serves, discovery what it acts on.
//!
//! # Usage
//!
//! [`Directory`] does not watch by itself. [`Directory::scan`] reads changed files and returns a [`DirectoryScan`]: the [`EntryChange`]s by
//! name, the [`ConfigReport`] of objects that are not served as written, and the directories to watch. The first scan returns all
//! objects. It blocks on the disk: move the directory into `spawn_blocking` and back. Debounce events by 100 ms of quiet, 500 ms
//! at most; kubelet's exchange of a volume is one scan then. [`Directory::all`] is for a new session, which needs all objects
//! again. [`Directory::forget_stamps`] is for SIGUSR1: the next scan reads every file.
//!
//! ```text
//! let (directory, scan) = spawn_blocking(move || { let scan = directory.scan(); (directory, scan) }).await?;
//! folders.follow(&scan.folders);                       // and scan again where that was new
//! for change in scan.changes { session.object(number, id, entry) }
//! for line in scan.report.new_lines(&before).0 { warn!("{line}") }
//! ```
//!
//! [`Server`] watches by itself: [`Server::start`] needs a runtime, [`Server::changed`] waits for the next [`ServerUpdate`], and
//! [`Server::all`] is as above. Publish nothing before it is `synced`; while it is `stale`, keep serving its objects.
//!
//! With [`WatchSettings::analysis`] an object's findings are written into its `status.validationMessages`, too.
//!
//! An [`Entry`] is an object of the mesh with the body of its resource, or one of Kubernetes' own kinds as JSON with what
//! transforms read of it. The transforms check the latter by a [`UsabilityCheck`]; an object that fails is rejected like any other
//! invalid object. An object of a kind that nothing here uses is no entry: the report lists it.
//!
//! Limits: a file [`LIMITS`](api::config::document::LIMITS), 100,000 files, 64 directories within each other, [`MOST_OBJECTS`]. Objects
//! beyond them are refused and reported.

mod catalogue;
pub(crate) mod checked;
mod core_kind;
mod directory;
mod entry;
mod entry_form;
mod message;
pub(crate) mod one_line;
mod report;
#[cfg(test)]
pub(crate) mod rule_rows_tests;
pub(crate) mod scanned_files;
mod server;
pub(crate) mod source_catalogue;
pub(crate) mod text;
pub(crate) mod unread_kinds;

pub use checked::created_finding;
pub use core_kind::{CoreKind, UsabilityCheck};
pub use directory::{Directory, DirectoryScan};
pub use entry::{Entry, EntryChange, EntryId, UncheckedObject};
pub use message::Message;
pub use report::{ConfigReport, FILE, Refused, Warned};
pub use server::{Server, ServerUpdate, WatchSettings};
pub use text::MOST_OBJECTS;
