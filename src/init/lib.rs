//! pintle: PID 1 for Envoy.
#![deny(unsafe_code)]

pub mod bootstrap;
pub mod cli;
pub mod config;
pub mod fingerprint;
pub mod log;
pub mod supervisor;
pub mod sys;
pub mod watcher;
