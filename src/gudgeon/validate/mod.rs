//! `gudgeon validate`: manifests held against the fields and rules of their kinds, without a cluster.
//!
//! ```text
//! -f ── named_files ──► texts ── source_file ──► findings with file and line ── report ──► stderr, stdout
//! ```

mod command;
mod glob;
mod report;
mod source_file;

pub(crate) use command::run;
