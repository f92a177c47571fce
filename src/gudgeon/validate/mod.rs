//! `gudgeon validate`: manifests held against the fields and rules of their kinds, without a cluster.
//!
//! ```text
//! -f ── files ──► texts ── sheet ──► findings with file and line ── report ──► stderr, stdout
//! ```

mod command;
pub(crate) mod files;
mod report;
mod source_file;

pub(crate) use command::run;
pub(crate) use source_file::place;
