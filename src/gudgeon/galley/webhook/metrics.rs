//! Metrics of reviews, of the certificate and of the webhook configuration, under Galley's names.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use sources::reconcile::ReconcileStatus;

use crate::admission::Group;
use crate::config_file::FileCounters;
use crate::exposition::up_to;
use crate::file_states::{FileMetrics, ReloadResult};

use super::check::Reason;

/// Seconds: a sixteenth of a millisecond to a second.
const BUCKETS: [f64; 9] = [
    0.000_062_5,
    0.000_125,
    0.000_25,
    0.000_5,
    0.001,
    0.005,
    0.025,
    0.1,
    1.0,
];

type CounterFamily<const LABELS: usize> = Family<[(&'static str, String); LABELS], Counter>;

#[derive(Debug)]
pub(super) struct WebhookMetrics {
    files: FileMetrics,
    passed: CounterFamily<3>,
    failed: CounterFamily<4>,
    http_errors: CounterFamily<1>,
    seconds: Histogram,
    pair_updates: Counter,
    pair_errors: Counter,
    configuration_updates: Counter,
    configuration_errors: CounterFamily<1>,
    loads: Counter,
    load_errors: CounterFamily<1>,
}

impl WebhookMetrics {
    /// `files`: the metrics of the role's files, which are registered elsewhere.
    pub(super) fn new(registry: &mut Registry, files: FileMetrics) -> Self {
        let this = Self {
            files,
            passed: CounterFamily::default(),
            failed: CounterFamily::default(),
            http_errors: CounterFamily::default(),
            seconds: Histogram::new(BUCKETS),
            pair_updates: Counter::default(),
            pair_errors: Counter::default(),
            configuration_updates: Counter::default(),
            configuration_errors: CounterFamily::default(),
            loads: Counter::default(),
            load_errors: CounterFamily::default(),
        };
        this.register(registry);
        this
    }

    fn register(&self, registry: &mut Registry) {
        let counters = [
            (
                "galley_validation_cert_key_updates",
                "Certificates loaded",
                &self.pair_updates,
            ),
            (
                "galley_validation_cert_key_update_errors",
                "Certificate changes that failed to load",
                &self.pair_errors,
            ),
            (
                "galley_validation_config_updates",
                "Writes of the webhook configuration",
                &self.configuration_updates,
            ),
            (
                "galley_validation_config_load",
                "Loads of the template of the webhook configuration",
                &self.loads,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        let families = [
            (
                "galley_validation_http_error",
                "Reviews ended by an HTTP error",
                &self.http_errors,
            ),
            (
                "galley_validation_config_update_error",
                "Failed writes of the webhook configuration",
                &self.configuration_errors,
            ),
            (
                "galley_validation_config_load_error",
                "Failed loads of the template of the webhook configuration",
                &self.load_errors,
            ),
        ];
        for (name, help, family) in families {
            registry.register(name, help, family.clone());
        }
        registry.register(
            "galley_validation_passed",
            "Valid objects reviewed",
            self.passed.clone(),
        );
        registry.register(
            "galley_validation_failed",
            "Invalid objects reviewed",
            self.failed.clone(),
        );
        registry.register(
            "gudgeon_galley_validation_seconds",
            "Seconds from the end of a review's body to its response",
            self.seconds.clone(),
        );
    }

    pub(super) fn decided(&self, asked: &Group, reason: Option<Reason>, took: Duration) {
        let [group, version, resource] = labels(asked);
        match reason {
            None => self.passed.get_or_create(&[group, version, resource]).inc(),
            Some(reason) => {
                let reason = ("reason", reason.as_str().to_owned());
                let labels = [group, version, resource, reason];
                self.failed.get_or_create(&labels).inc()
            }
        };
        self.seconds.observe(took.as_secs_f64());
    }

    pub(super) fn http_error(&self, status: u16) {
        let label = [("status", status.to_string())];
        self.http_errors.get_or_create(&label).inc();
    }

    pub(super) fn new_pair(&self) {
        self.pair_updates.inc();
    }

    /// The CA, or the file of the webhook configuration.
    pub(super) fn loaded(&self, what: &'static str, is_good: bool) {
        match is_good {
            true => self.loads.inc(),
            false => self
                .load_errors
                .get_or_create(&[("reason", what.to_owned())])
                .inc(),
        };
    }

    /// Copies the counters of the webhook configuration's reconciler.
    pub(super) fn show(&self, status: &ReconcileStatus) {
        up_to(&self.configuration_updates, status.written);
        for (reason, count) in &status.refusals {
            let label = [("reason", (*reason).to_owned())];
            up_to(&self.configuration_errors.get_or_create(&label), *count);
        }
    }
}

/// Files of the certificate.
impl FileCounters for WebhookMetrics {
    fn reloaded(&self, flag: &'static str, result: ReloadResult) {
        self.files.reloaded(flag, result);
        if result == ReloadResult::Broken {
            self.pair_errors.inc();
        }
    }
}

/// Returns labels of the resource if its kind is known: a client may send any number of other names.
fn labels(asked: &Group) -> [(&'static str, String); 3] {
    let (now, later) = (api::config::KINDS.iter(), api::config::LATER);
    let mut kinds = now.chain(later).chain(api::config::EARLIER);
    let is_known = kinds.any(|kind| kind.group == asked.group && kind.plural == asked.name)
        && matches!(
            asked.version.as_str(),
            "v1" | "v1beta1" | "v1alpha1" | "v1alpha2" | "v1alpha3"
        );
    let [group, version, resource] = match is_known {
        true => [&asked.group, &asked.version, &asked.name].map(String::clone),
        false => ["", "", "unknown"].map(str::to_owned),
    };
    [
        ("group", group),
        ("version", version),
        ("resource", resource),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::ExpositionFormat;

    fn text(registry: &Registry) -> String {
        ExpositionFormat::Text.text(registry)
    }

    fn group(group: &str, version: &str, name: &str) -> Group {
        Group {
            group: group.to_owned(),
            version: version.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn galleys_names_and_labels() {
        let mut registry = Registry::default();
        let files = FileMetrics::default();
        files.register(&mut registry);
        let metrics = WebhookMetrics::new(&mut registry, files);
        let took = Duration::from_micros(200);
        let gateways = group("networking.istio.io", "v1alpha3", "gateways");
        metrics.decided(&gateways, None, took);
        metrics.decided(&gateways, Some(Reason::Invalid), took);
        for version in 0..100 {
            let name = format!("x{version}");
            let other = group("networking.istio.io", &name, "gateways");
            metrics.decided(&other, Some(Reason::UnknownType), took);
        }
        metrics.http_error(415);
        metrics.new_pair();
        metrics.reloaded("tlsCertFile", ReloadResult::Used);
        metrics.reloaded("tlsCertFile", ReloadResult::Broken);
        metrics.loaded("ca_certificates", true);
        metrics.loaded("ca_certificates", false);
        let mut status = ReconcileStatus::default();
        status.written = 3;
        status.refusals.insert("Forbidden", 2);
        metrics.show(&status);
        metrics.show(&status);
        let text = text(&registry);
        for line in [
            "# TYPE galley_validation_passed counter",
            "galley_validation_passed{group=\"networking.istio.io\",version=\"v1alpha3\",resource=\"gateways\"} 1",
            "galley_validation_failed{group=\"networking.istio.io\",version=\"v1alpha3\",resource=\"gateways\",reason=\"invalid_resource\"} 1",
            "galley_validation_failed{group=\"\",version=\"\",resource=\"unknown\",reason=\"unknown_type\"} 100",
            "galley_validation_http_error{status=\"415\"} 1",
            "galley_validation_cert_key_updates 1",
            "galley_validation_cert_key_update_errors 1",
            "gudgeon_config_valid{file=\"tlsCertFile\"} 0",
            "gudgeon_config_reloads_total{file=\"tlsCertFile\",result=\"broken\"} 1",
            "gudgeon_config_reloads_total{file=\"tlsCertFile\",result=\"ok\"} 1",
            "galley_validation_config_updates 3",
            "galley_validation_config_update_error{reason=\"Forbidden\"} 2",
            "galley_validation_config_load 1",
            "galley_validation_config_load_error{reason=\"ca_certificates\"} 1",
            "gudgeon_galley_validation_seconds_count 102",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
    }
}
