//! Configuration as objects in Kubernetes' form: what may be written, and what is wrong with it.

pub mod document;
mod finding;
pub mod rules;

pub use finding::{Finding, Severity, push_index, push_key, quoted};
