//! Builds of snapshots: a panic ends the build of one, and is counted.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::discovery::metrics::DiscoveryMetrics;

/// Builds a snapshot; `None` if the build panicked, which is counted.
pub(super) fn catch_panic<T>(metrics: &DiscoveryMetrics, build: impl FnOnce() -> T) -> Option<T> {
    let built = catch_unwind(AssertUnwindSafe(build));
    if built.is_err() {
        metrics.count_snapshot_error();
    }
    built.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::metrics::Gauges;
    use crate::exposition::ExpositionFormat;

    #[test]
    fn a_snapshot_whose_build_panics_is_counted() {
        let metrics = DiscoveryMetrics::new();
        assert_eq!(catch_panic(&metrics, || 7), Some(7));
        let counted = |count: u64| {
            let text = metrics.text(&Gauges::default(), ExpositionFormat::Text);
            let line = format!("\npilot_xds_push_context_errors {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        };
        counted(0);
        assert_eq!(
            catch_panic(&metrics, || -> u8 { panic!("a mistake") }),
            None
        );
        counted(1);
    }
}
