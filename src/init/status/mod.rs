//! The status port: probes, metrics and what the agent is doing.

#![forbid(unsafe_code)]

mod json;
mod page;
mod readiness;
#[cfg(test)]
mod stories;
mod text;
mod view;

pub(crate) use readiness::{Api, Facts, Heard, Plan, Readiness, Stage, Updates};
pub(crate) use view::View;
