//! The catalogue of configuration: objects are checked on arrival, and each is kept once, in its last good version, with its
//! findings and its status.
//!
//! ```text
//!  files ── text ─┐                       ┌─ entry_form ── config_catalogue ──► EntryChange, ConfigReport
//!                 ├─ checked ── a form ───┤
//!  API server ────┘                       └─ that of directory::files ──► Contribution, ConfigReport
//! ```
//!
//! `text` makes objects of documents, `checked` judges each, and `source_catalogue` keeps it in its last good version, with the
//! report. A valid object is stored in the form that its user asks for: galley stores resources, discovery its own types.
//! `last_good` decides which version of an object is served.
//!
//! An [`Entry`] is an object of the mesh with the body of its resource, or one of Kubernetes' own kinds as JSON with the
//! fields that transforms read. The transforms check the latter by a [`UsabilityCheck`]; an object that fails is refused like any other
//! invalid object. An object of a kind that nothing here uses is no entry: the report lists it.
//!
//! Limits: a file [`LIMITS`](api::config::document::LIMITS), [`MAX_OBJECTS`]. Objects beyond them are refused and reported.

pub(crate) mod checked;
pub(crate) mod config_catalogue;
mod config_object;
mod core_kind;
mod entry;
pub(crate) mod entry_form;
mod last_good;
mod message;
pub(crate) mod one_line;
mod origin;
mod report;
pub(crate) mod source_catalogue;
pub(crate) mod status_condition;
pub(crate) mod text;

pub use checked::created_finding;
pub use config_object::ConfigObject;
pub use core_kind::{CoreKind, UsabilityCheck};
pub use entry::{Entry, EntryChange, EntryId, UncheckedObject};
pub(crate) use last_good::{Candidate, Catalogue, CatalogueChange, Content, Status};
pub use message::Message;
pub use origin::Origin;
pub use report::{ConfigReport, FILE, Refused, Warned};
pub use text::MAX_OBJECTS;
