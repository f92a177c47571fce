//! The core.
#![forbid(unsafe_code)]
mod policy;
pub use policy::{CleanExit, Policy};
