//! Snapshots that cannot be made: a panic ends the making of one, and is counted.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::discovery::metrics::DiscoveryMetrics;

/// A snapshot; `None` if building it panicked, which is counted.
pub(super) fn made<T>(metrics: &DiscoveryMetrics, make: impl FnOnce() -> T) -> Option<T> {
    let made = catch_unwind(AssertUnwindSafe(make));
    if made.is_err() {
        metrics.unmade_snapshot();
    }
    made.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::metrics::Gauges;
    use crate::exposition::ExpositionFormat;

    #[test]
    fn a_snapshot_that_cannot_be_made_is_counted() {
        let metrics = DiscoveryMetrics::new();
        assert_eq!(made(&metrics, || 7), Some(7));
        let counted = |count: u64| {
            let text = metrics.text(&Gauges::default(), ExpositionFormat::Text);
            let line = format!("\npilot_xds_push_context_errors {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        };
        counted(0);
        assert_eq!(made(&metrics, || -> u8 { panic!("a mistake") }), None);
        counted(1);
    }
}
