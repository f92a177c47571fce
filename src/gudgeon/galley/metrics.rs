//! Metrics of sources, sessions and publishes, under Galley's names where it has them.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::exposition::{self, GaugeFamily, up_to};
use crate::file_states::FileMetrics;
use crate::process;

/// Changes in one publish.
const BUCKETS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 32.0, 128.0, 1024.0, 8192.0];

#[derive(Debug)]
pub(super) struct GalleyMetrics {
    events: Counter,
    checked: Counter,
    broken: Counter,
    published: Counter,
    in_one: Histogram,
    pub(super) instances: GaugeFamily<1>,
    pub(super) refused: GaugeFamily<2>,
    pub(super) warnings: GaugeFamily<1>,
    pub(super) without_effect: GaugeFamily<1>,
    pub(super) session: GaugeFamily<1>,
    pub(super) lost_lines: Counter,
    pub(super) resident: Gauge,
    pub(super) files: FileMetrics,
}

impl GalleyMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let this = Self {
            events: Counter::default(),
            checked: Counter::default(),
            broken: Counter::default(),
            published: Counter::default(),
            in_one: Histogram::new(BUCKETS),
            instances: GaugeFamily::default(),
            refused: GaugeFamily::default(),
            warnings: GaugeFamily::default(),
            without_effect: GaugeFamily::default(),
            session: GaugeFamily::default(),
            lost_lines: Counter::default(),
            resident: Gauge::default(),
            files: FileMetrics::default(),
        };
        exposition::register_build(registry);
        this.register(registry);
        this
    }

    fn register(&self, registry: &mut Registry) {
        let processor = "galley_runtime_processor_";
        let panics = process::panics();
        // Counters of the original are registered by their whole name, gudgeon's without their `_total`.
        let counters = [
            (
                format!("{processor}events_processed_total"),
                "Updates received from sources",
                &self.events,
            ),
            (
                format!("{processor}snapshots_published_total"),
                "Snapshots published",
                &self.published,
            ),
            (
                "galley_source_kube_event_success_total".to_owned(),
                "Valid objects of the cluster",
                &self.checked,
            ),
            (
                "galley_source_kube_event_error_total".to_owned(),
                "Invalid objects of the cluster",
                &self.broken,
            ),
            ("gudgeon_panics".to_owned(), "Panics", &panics),
            (
                "gudgeon_log_lines_lost".to_owned(),
                "Log lines dropped because their reader was too slow",
                &self.lost_lines,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        registry.register(
            format!("{processor}snapshot_events_total"),
            "Changes in one snapshot",
            self.in_one.clone(),
        );
        self.register_state_gauges(registry);
        self.files.register(registry);
        self.files.register_ends(registry);
    }

    /// Registers the gauges that are set from the state at each scrape.
    fn register_state_gauges(&self, registry: &mut Registry) {
        let families = [
            (
                "galley_runtime_state_type_instances_total",
                "Resources by collection",
                &self.instances,
            ),
            (
                "gudgeon_config_warnings",
                "Warnings of objects by collection",
                &self.warnings,
            ),
            (
                "gudgeon_objects_without_effect",
                "Objects of kinds without effect in gudgeon discovery of this release",
                &self.without_effect,
            ),
            (
                "gudgeon_galley_session",
                "1 for the current state of the session",
                &self.session,
            ),
        ];
        for (name, help, family) in families {
            registry.register(name, help, family.clone());
        }
        registry.register(
            "gudgeon_config_rejected",
            "Objects not served as written",
            self.refused.clone(),
        );
        registry.register(
            "process_resident_memory_bytes",
            "Resident memory, in bytes",
            self.resident.clone(),
        );
    }

    pub(super) fn processed(&self, changes: usize) {
        self.events.inc_by(changes as u64);
    }

    /// Counts the objects of a cluster so far.
    pub(super) fn count_checked(&self, checked: u64, broken: u64) {
        up_to(&self.checked, checked.saturating_sub(broken));
        up_to(&self.broken, broken);
    }

    /// Counts a snapshot with so many changes.
    #[expect(clippy::cast_precision_loss, reason = "nobody makes so many changes")]
    pub(super) fn published(&self, changes: u64) {
        self.published.inc();
        self.in_one.observe(changes as f64);
    }
}
