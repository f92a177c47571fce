//! The injector: the webhook, its files, its page, from the start to the end.
//!
//! The order of the start: read and check all files, bind, write the health file, become ready, and only then connect to the
//! cluster, which may be away for any time.

mod ca_out_file;
mod decision;
mod engine;
mod files;
mod health;
mod kubernetes;
mod listeners;
mod metrics;
mod monitor;
mod namespaces;
mod page;
mod path_pairs;
mod readiness;
mod secrets;
mod start;
mod status;
mod webhook;

pub(crate) use engine::ActiveConfiguration;
pub(crate) use health::probe;
pub(crate) use kubernetes::native_for;
pub(crate) use start::{Injector, native};
