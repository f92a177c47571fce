//! One push: its making, what is remembered of it, and the names that an endpoints-only one is about.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use api::model::World;
use xds::reason::Reasons;

use super::metrics::Metrics;

/// One push, for the page.
#[derive(Clone, Debug)]
pub(crate) struct Pushed {
    pub(crate) at: Duration,
    /// From the first change to the snapshot.
    pub(crate) waited: Duration,
    pub(crate) made_in: Duration,
    pub(crate) full: bool,
    pub(crate) reasons: Reasons,
    pub(crate) streams: usize,
}

/// A snapshot; `None`: a mistake of this program kept it from being made, and is counted.
pub(super) fn made<T>(metrics: &Metrics, make: impl FnOnce() -> T) -> Option<T> {
    let made = catch_unwind(AssertUnwindSafe(make));
    if made.is_err() {
        metrics.unmade_snapshot();
    }
    made.ok()
}

/// Names of the assignments that these services have.
pub(super) fn assignments(world: &World, hosts: &BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
    if hosts.is_empty() {
        return BTreeSet::new();
    }
    let services = world.services.values();
    services
        .filter(|service| hosts.contains(&service.key.hostname))
        .flat_map(|service| {
            let host = &service.key.hostname;
            service
                .ports
                .iter()
                .map(move |port| format!("outbound|{}||{host}", port.number).into())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::metrics::Seen;
    use crate::exposition::Format;

    #[test]
    fn a_snapshot_that_cannot_be_made_is_counted() {
        let metrics = Metrics::new();
        assert_eq!(made(&metrics, || 7), Some(7));
        let counted = |count: u64| {
            let text = metrics.text(&Seen::default(), Format::Text);
            for metric in ["pilot_xds_push_context_errors", "gudgeon_panics_total"] {
                let line = format!("\n{metric} {count}\n");
                assert!(text.contains(&line), "{line}{text}");
            }
        };
        counted(0);
        assert_eq!(made(&metrics, || -> u8 { panic!("a mistake") }), None);
        counted(1);
    }
}
