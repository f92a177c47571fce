//! The injector's metrics: Istio's names where Istio has them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use sources::reconcile::{ReconcileFailure, ReconcileStatus};

use super::decision::InjectionOutcome;
use crate::config_file::FileCounters;
use crate::exposition::{self, ExpositionFormat, up_to};
use crate::file_states::{FileMetrics, ReloadResult};
use crate::{log, process};

/// Seconds: a quarter of a millisecond to five seconds.
const BUCKETS: [f64; 14] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
];

type FamilyByOneLabel<V> = Family<[(&'static str, String); 1], V>;
type FamilyByTwoLabels = Family<[(&'static str, String); 2], Counter>;

#[derive(Debug)]
pub(crate) struct InjectorMetrics {
    registry: Registry,
    requests: Counter,
    injected: Counter,
    skipped: Counter,
    failed: Counter,
    time: Histogram,
    decisions: FamilyByTwoLabels,
    pruned: Counter,
    files: FileMetrics,
    not_after: Gauge,
    resident: Gauge,
    lost_lines: Counter,
    patch_attempts: FamilyByOneLabel<Counter>,
    patch_retries: FamilyByOneLabel<Counter>,
    patch_failures: FamilyByTwoLabels,
}

impl InjectorMetrics {
    pub(crate) fn new(started: SystemTime) -> Self {
        let mut this = Self {
            registry: Registry::default(),
            requests: Counter::default(),
            injected: Counter::default(),
            skipped: Counter::default(),
            failed: Counter::default(),
            time: Histogram::new(BUCKETS),
            decisions: FamilyByTwoLabels::default(),
            pruned: Counter::default(),
            files: FileMetrics::default(),
            not_after: Gauge::default(),
            resident: Gauge::default(),
            lost_lines: Counter::default(),
            patch_attempts: FamilyByOneLabel::default(),
            patch_retries: FamilyByOneLabel::default(),
            patch_failures: FamilyByTwoLabels::default(),
        };
        this.register_counters();
        this.register_families();
        this.register_others(started);
        this
    }

    fn register_counters(&mut self) {
        let panics = process::panics();
        let counters = [
            (
                "sidecar_injection_requests_total",
                "Reviews received",
                &self.requests,
            ),
            (
                "sidecar_injection_success_total",
                "Reviews answered with a patch",
                &self.injected,
            ),
            (
                "sidecar_injection_skip_total",
                "Reviews answered without a patch",
                &self.skipped,
            ),
            (
                "sidecar_injection_failure_total",
                "Reviews refused, and HTTP errors",
                &self.failed,
            ),
            (
                "gudgeon_injector_pruned_fields",
                "Unknown fields of templates, left out",
                &self.pruned,
            ),
            ("gudgeon_panics", "Panics", &panics),
            (
                "gudgeon_log_lines_lost",
                "Log lines dropped because their reader was too slow",
                &self.lost_lines,
            ),
        ];
        let r = &mut self.registry;
        for (name, help, counter) in counters {
            r.register(name, help, counter.clone());
        }
    }

    fn register_families(&mut self) {
        let r = &mut self.registry;
        let pairs = [
            (
                "gudgeon_injector_decisions",
                "Decisions by their reason",
                &self.decisions,
            ),
            (
                "webhook_patch_failures_total",
                "Failed patches of objects",
                &self.patch_failures,
            ),
        ];
        for (name, help, family) in pairs {
            r.register(name, help, family.clone());
        }
        let singles = [
            (
                "webhook_patch_attempts_total",
                "Patches of webhook configurations",
                &self.patch_attempts,
            ),
            (
                "webhook_patch_retries_total",
                "Retried patches of webhook configurations",
                &self.patch_retries,
            ),
        ];
        for (name, help, family) in singles {
            r.register(name, help, family.clone());
        }
        self.files.register(r);
    }

    fn register_others(&mut self, started: SystemTime) {
        let start: Gauge = Gauge::default();
        start.set(seconds(started));
        let gauges = [
            (
                "gudgeon_tls_not_after_seconds",
                "End of the served certificate, in seconds since 1970",
                &self.not_after,
            ),
            (
                "process_resident_memory_bytes",
                "Resident memory, in bytes",
                &self.resident,
            ),
            (
                "process_start_time_seconds",
                "Start time, in seconds since 1970",
                &start,
            ),
        ];
        let r = &mut self.registry;
        for (name, help, gauge) in gauges {
            r.register(name, help, gauge.clone());
        }
        let time = "Seconds from the end of a review's body to its response";
        r.register("sidecar_injection_time_seconds", time, self.time.clone());
        exposition::register_build(r);
    }

    pub(crate) fn review_received(&self) {
        self.requests.inc();
    }

    /// A request that was asked for ends, with a decision or with an HTTP error.
    pub(crate) fn decided(&self, outcome: InjectionOutcome, reason: &'static str) {
        match outcome {
            InjectionOutcome::Injected => &self.injected,
            InjectionOutcome::Skipped => &self.skipped,
            InjectionOutcome::Failed => &self.failed,
        }
        .inc();
        self.decisions
            .get_or_create(&[
                ("decision", outcome.as_str().to_owned()),
                ("reason", reason.to_owned()),
            ])
            .inc();
    }

    pub(crate) fn took(&self, time: Duration) {
        self.time.observe(time.as_secs_f64());
    }

    pub(crate) fn pruned(&self, fields: usize) {
        self.pruned.inc_by(fields as u64);
    }

    pub(crate) fn serves_until(&self, not_after: SystemTime) {
        self.not_after.set(seconds(not_after));
    }

    /// Copies the counters of each webhook configuration's reconciler.
    pub(crate) fn set_reconcile_statuses(&self, statuses: &[ReconcileStatus]) {
        for standing in statuses {
            let name = || ("name", standing.configuration.clone());
            up_to(
                &self.patch_attempts.get_or_create(&[name()]),
                standing.attempts,
            );
            up_to(
                &self.patch_retries.get_or_create(&[name()]),
                standing.retries,
            );
            for failed in ReconcileFailure::ALL {
                let labels = [name(), ("reason", failed.as_str().to_owned())];
                up_to(
                    &self.patch_failures.get_or_create(&labels),
                    standing.failures(failed),
                );
            }
        }
    }

    /// Renders all metrics as text.
    pub(crate) fn text(&self, format: ExpositionFormat) -> String {
        if let Some(bytes) = process::resident() {
            self.resident.set(bytes);
        }
        up_to(&self.lost_lines, log::lost_lines());
        format.text(&self.registry)
    }
}

impl FileCounters for InjectorMetrics {
    fn reloaded(&self, flag: &'static str, result: ReloadResult) {
        self.files.reloaded(flag, result);
    }
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn istios_names_and_our_own() {
        let metrics = InjectorMetrics::new(UNIX_EPOCH + Duration::from_secs(7));
        metrics.review_received();
        metrics.decided(InjectionOutcome::Skipped, "policy");
        metrics.reloaded("injectConfig", ReloadResult::Broken);
        metrics.took(Duration::from_millis(2));
        let text = metrics.text(ExpositionFormat::Text);
        for line in [
            "# HELP sidecar_injection_requests_total Reviews received.",
            "# TYPE sidecar_injection_requests_total counter",
            "sidecar_injection_requests_total 1",
            "sidecar_injection_skip_total 1",
            "sidecar_injection_success_total 0",
            "sidecar_injection_failure_total 0",
            "sidecar_injection_time_seconds_bucket{le=\"0.0025\"} 1",
            "gudgeon_injector_decisions_total{decision=\"skipped\",reason=\"policy\"} 1",
            "gudgeon_config_valid{file=\"injectConfig\"} 0",
            "gudgeon_config_reloads_total{file=\"injectConfig\",result=\"broken\"} 1",
            "process_start_time_seconds 7",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
        assert!(text.contains("gudgeon_build_info{version=") && !text.contains("# EOF"));
    }
}
