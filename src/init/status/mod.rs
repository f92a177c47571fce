//! The status port: probes, metrics and what the agent is doing.

#![forbid(unsafe_code)]

mod readiness;
mod view;

pub(crate) use readiness::{Api, Facts, Heard, Plan, Readiness, Stage, Updates};
pub(crate) use view::View;
