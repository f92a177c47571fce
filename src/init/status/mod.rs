//! The status port: probes, metrics and what the agent is doing.

#![forbid(unsafe_code)]

mod exposition;
mod metrics;
mod readiness;
mod scrape;
mod usage;
mod view;

pub(crate) use metrics::render as render_metrics;
pub(crate) use readiness::{Api, Facts, Heard, Plan, Readiness, Stage, Updates};
pub(crate) use scrape::Lines;
pub(crate) use usage::Usage;
pub(crate) use view::View;
