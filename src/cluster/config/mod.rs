//! Where configuration comes from: objects of the mesh's kinds, checked as they arrive, each once and in its last good version.
//!
//! ```text
//!  files ────── Directory ─┐
//!                          ├─ judged ──► ledger (catalogue) ──► Change, Report
//!  API server ─── Server ──┘
//! ```
//!
//! # For those who use it
//!
//! [`Directory`] is pure of watching. [`Directory::look`] reads what has changed and gives a [`Look`]: the [`Change`]s by
//! name, the [`Report`] of all that is not served as it is written, and the directories to watch. The first look gives all.
//! It blocks on the disk: move the directory into `spawn_blocking` and back. After an event 100 ms should be quiet, 500 ms are
//! enough in any case; kubelet's exchange of a volume is one look then. [`Directory::all`] is for a new session, which wants
//! everything again. [`Directory::forget_stamps`] is for SIGUSR1: the next look reads every file.
//!
//! ```text
//! let (directory, look) = spawn_blocking(move || { let look = directory.look(); (directory, look) }).await?;
//! folders.follow(&look.folders);                       // and look again where that was new
//! for change in look.changes { session.object(number, id, entry) }
//! for line in look.report.news(&before).0 { warn!("{line}") }
//! ```
//!
//! [`Server`] watches by itself: [`Server::start`] needs a runtime, [`Server::changed`] waits for the next [`Heard`], and
//! [`Server::all`] is as above. Nothing of it is to be published before it is `synced`; while it is `stale` all is served on.
//!
//! With [`Settings::analysis`] what is wrong with an object is written into its `status.validationMessages`, too.
//!
//! An [`Entry`] is an object of the mesh with the body of its resource, or one of Kubernetes' own kinds as JSON with what
//! transforms read of it. Whether the latter can be used is known by those who make something of it: they give a
//! [`Usable`], and what is not usable is rejected like any other broken object.
//!
//! Limits: a file [`LIMITS`](api::config::document::LIMITS), [`MOST_FILES`], [`MOST_OBJECTS`]. What is beyond is refused and
//! reported.

mod directory;
mod entry;
mod judged;
mod ledger;
mod plain;
mod report;
mod server;

pub use directory::{Directory, Look, MOST_FILES, MOST_OBJECTS};
pub use entry::{Change, Entry, Id};
pub use plain::{Plain, Usable};
pub use report::{Rejected, Report, State, Warned};
pub use server::{Heard, Server, Settings};
