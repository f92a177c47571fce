//! Configuration as objects in Kubernetes' form: what may be written, and what is wrong with it.

mod finding;

pub use finding::{Finding, Severity, push_index, push_key, quoted};
