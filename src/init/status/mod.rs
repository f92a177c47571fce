//! The status port: probes, metrics and what the agent is doing.

#![forbid(unsafe_code)]

mod metrics;
mod readiness;
mod scrape;
mod view;

#[allow(unused_imports, reason = "wired by the status server next")]
pub(crate) use metrics::{Usage, render as render_metrics};
pub(crate) use readiness::{Api, Facts, Heard, Plan, Readiness, Stage, Updates};
#[allow(unused_imports, reason = "wired by the status server next")]
pub(crate) use scrape::Lines;
pub(crate) use view::View;
