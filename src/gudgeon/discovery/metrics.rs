//! Counters of discovery, under the names that pilot-discovery has where it has them.

mod register;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::model::{PushRequest, TriggerReason};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use xds::view::Type;

use super::push_record::Pushed;
use super::refused_streams::RefusalReason;
use super::source_facts::{Object, Totals};
use crate::cli::VERSION;
use crate::exposition::{ExpositionFormat, GaugeFamily, up_to};
use crate::file_states::{FileMetrics, FileState};
use crate::mcp::Peers;
use crate::{log, process};

/// Seconds.
const BUCKETS: [f64; 11] = [0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0];
/// Values of the label `node`; beyond them it is left out.
const NODES: usize = 1000;

type LabelledCounter = Family<[(&'static str, String); 1], Counter>;

/// Metrics that are counted as events happen.
#[derive(Debug)]
pub(crate) struct DiscoveryMetrics {
    registry: Registry,
    /// Metrics of sources of configuration.
    mcp: Arc<Peers>,
    pushes: LabelledCounter,
    push_time: Family<[(&'static str, String); 1], Histogram>,
    queue_time: Histogram,
    convergence: Histogram,
    triggers: LabelledCounter,
    nacks: LabelledCounter,
    current_nacks: BTreeMap<&'static str, GaugeFamily<2>>,
    expired: LabelledCounter,
    write_timeouts: Counter,
    internal: Counter,
    contexts: Counter,
    updates: LabelledCounter,
    rejected_configs: GaugeFamily<2>,
    conflicts: BTreeMap<&'static str, Gauge>,
    instances: GaugeFamily<1>,
    all_locality_endpoints: GaugeFamily<1>,
    no_instances: Gauge,
    streams: GaugeFamily<1>,
    services: Gauge,
    rules: Gauge,
    without_effect: GaugeFamily<1>,
    jwks: LabelledCounter,
    keyless: Gauge,
    debounce: Histogram,
    snapshots: Histogram,
    snapshot_bytes: Gauge,
    pending: Gauge,
    shared: Gauge,
    homeless: Gauge,
    podless: Gauge,
    ever_podless: Counter,
    events: Family<[(&'static str, String); 2], Counter>,
    stale: GaugeFamily<1>,
    unknown: Counter,
    refused_streams: LabelledCounter,
    handshakes: Counter,
    refused_connections: Counter,
    lost_lines: Counter,
    resident: Gauge,
    files: FileMetrics,
}

/// The endpoints of a cluster that get requests.
#[derive(Debug)]
pub(crate) struct EdsCluster {
    pub(crate) name: String,
    pub(crate) localities: usize,
    pub(crate) endpoints: usize,
}

/// Values that are read off the state for each scrape.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) streams: usize,
    pub(crate) pending: usize,
    pub(crate) services: usize,
    /// By metric.
    pub(crate) conflicts: BTreeMap<&'static str, usize>,
    /// (`lds`, node, words).
    pub(crate) current_nacks: Vec<(&'static str, String, String)>,
    /// Clusters whose endpoints are asked for, without one that is used.
    pub(crate) empty: usize,
    /// Endpoints by cluster, if they are wanted.
    pub(crate) instances: Vec<EdsCluster>,
    /// Seconds by source.
    pub(crate) stale: Vec<(String, u64)>,
    /// (kind, name).
    pub(crate) refused: BTreeSet<Object>,
    /// VirtualServices.
    pub(crate) routes: usize,
    /// Objects without an effect, by kind.
    pub(crate) without_effect: Vec<(&'static str, usize)>,
    pub(crate) snapshot_bytes: usize,
    /// Resources that more than one stream has.
    pub(crate) shared: usize,
    /// Places of keys that none were fetched from.
    pub(crate) keyless: usize,
    /// Sidecars of no service.
    pub(crate) homeless: usize,
    /// Endpoints of unknown pods.
    pub(crate) podless: usize,
    pub(crate) totals: Totals,
    pub(crate) files: BTreeMap<&'static str, FileState>,
}

impl DiscoveryMetrics {
    pub(crate) fn new() -> Self {
        let histogram = || Histogram::new(BUCKETS);
        let mut this = Self {
            registry: Registry::default(),
            mcp: Peers::new("pilot"),
            pushes: LabelledCounter::default(),
            push_time: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            queue_time: histogram(),
            convergence: histogram(),
            triggers: LabelledCounter::default(),
            nacks: LabelledCounter::default(),
            current_nacks: BTreeMap::new(),
            expired: LabelledCounter::default(),
            write_timeouts: Counter::default(),
            internal: Counter::default(),
            contexts: Counter::default(),
            updates: LabelledCounter::default(),
            rejected_configs: GaugeFamily::default(),
            conflicts: BTreeMap::new(),
            instances: GaugeFamily::default(),
            all_locality_endpoints: GaugeFamily::default(),
            no_instances: Gauge::default(),
            streams: GaugeFamily::default(),
            services: Gauge::default(),
            rules: Gauge::default(),
            without_effect: GaugeFamily::default(),
            jwks: LabelledCounter::default(),
            keyless: Gauge::default(),
            debounce: histogram(),
            snapshots: histogram(),
            snapshot_bytes: Gauge::default(),
            pending: Gauge::default(),
            shared: Gauge::default(),
            homeless: Gauge::default(),
            podless: Gauge::default(),
            ever_podless: Counter::default(),
            events: Family::default(),
            stale: GaugeFamily::default(),
            unknown: Counter::default(),
            refused_streams: LabelledCounter::default(),
            handshakes: Counter::default(),
            refused_connections: Counter::default(),
            lost_lines: Counter::default(),
            resident: Gauge::default(),
            files: FileMetrics::default(),
        };
        // Each reason is shown from the start, at 0.
        for reason in RefusalReason::ALL {
            drop(this.refused_streams.get_or_create(&by(reason)));
        }
        this.register_pushes();
        this.register_state_gauges();
        this.register_own();
        this.mcp.register(&mut this.registry);
        this.files.register(&mut this.registry);
        this.files.register_ends(&mut this.registry);
        this
    }

    /// Streams to sources of configuration.
    pub(crate) fn mcp(&self) -> &Arc<Peers> {
        &self.mcp
    }

    fn count(family: &LabelledCounter, value: &str) {
        family.get_or_create(&[("type", value.to_owned())]).inc();
    }

    /// Counts a response, and the time that it took.
    pub(crate) fn sent(&self, kind: Type, took: Duration) {
        Self::count(&self.pushes, kind.as_str());
        self.push_time
            .get_or_create(&[("type", kind.as_str().to_owned())])
            .observe(took.as_secs_f64());
    }

    /// Counts a response whose client went before it was sent.
    pub(crate) fn unsent(&self, kind: Type) {
        Self::count(&self.pushes, &format!("{}_senderr", kind.as_str()));
    }

    pub(crate) fn queued(&self, time: Duration) {
        self.queue_time.observe(time.as_secs_f64());
    }

    pub(crate) fn converged(&self, time: Duration) {
        self.convergence.observe(time.as_secs_f64());
    }

    pub(crate) fn nacked(&self, kind: Type) {
        Self::count(&self.nacks, kind.as_str());
    }

    pub(crate) fn expired(&self, kind: Type) {
        Self::count(&self.expired, kind.as_str());
    }

    pub(crate) fn write_timed_out(&self) {
        self.write_timeouts.inc();
    }

    pub(crate) fn unknown_type(&self) {
        self.unknown.inc();
    }

    /// Counts a connection that was closed at once.
    pub(crate) fn connection_refused(&self) {
        self.refused_connections.inc();
    }

    /// Counts a refused stream.
    pub(crate) fn stream_refused(&self, reason: RefusalReason) {
        self.refused_streams.get_or_create(&by(reason)).inc();
    }

    pub(crate) fn handshake_failed(&self) {
        self.handshakes.inc();
    }

    /// Counts a stream that a panic has ended.
    pub(crate) fn panicked(&self) {
        self.internal.inc();
    }

    /// Counts a type of which a resource could not be built for a stream.
    pub(crate) fn count_build_error(&self, kind: Type) {
        Self::count(&self.pushes, &format!("{}_builderr", kind.as_str()));
        self.internal.inc();
    }

    /// Counts a snapshot that could not be built.
    pub(crate) fn count_snapshot_error(&self) {
        self.contexts.inc();
    }

    /// Keys of an issuer were fetched, or why not.
    pub(crate) fn jwks_fetched(&self, result: &'static str) {
        let label = [("result", result.to_owned())];
        self.jwks.get_or_create(&label).inc();
    }

    pub(crate) fn pushed(&self, pushed: &Pushed) {
        for reason in pushed.reasons.iter() {
            Self::count(&self.triggers, reason.as_str());
        }
        self.debounce.observe(pushed.waited.as_secs_f64());
        self.snapshots.observe(pushed.build_time.as_secs_f64());
    }

    /// Counts an update of a source.
    pub(crate) fn updated(&self, request: &PushRequest) {
        let label = match request {
            // Endpoints decide more than assignments for some services; the source has sent the same.
            PushRequest::Endpoints(_) | PushRequest::Full(TriggerReason::Endpoint) => "eds",
            PushRequest::Full(TriggerReason::Service) => "svc",
            PushRequest::Full(_) | PushRequest::Proxy(_) => "config",
        };
        Self::count(&self.updates, label);
    }

    fn show(&self, gauges: &Gauges) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.streams
            .get_or_create(&[("version", VERSION.to_owned())])
            .set(number(gauges.streams));
        self.pending.set(number(gauges.pending));
        self.services.set(number(gauges.services));
        self.no_instances.set(number(gauges.empty));
        self.snapshot_bytes.set(number(gauges.snapshot_bytes));
        self.shared.set(number(gauges.shared));
        self.homeless.set(number(gauges.homeless));
        self.keyless.set(number(gauges.keyless));
        self.podless.set(number(gauges.podless));
        self.files.show(&gauges.files);
        let totals = &gauges.totals;
        up_to(&self.ever_podless, totals.ever_podless);
        for ((kind, event), count) in &totals.events {
            let label = [
                ("type", original(kind).to_owned()),
                ("event", event.as_str().to_owned()),
            ];
            up_to(&self.events.get_or_create(&label), *count);
        }
        for (name, gauge) in &self.conflicts {
            gauge.set(number(
                gauges.conflicts.get(name).copied().unwrap_or_default(),
            ));
        }
        self.set_nacks(&gauges.current_nacks);
        self.rules.set(number(gauges.routes));
        self.without_effect.clear();
        for (kind, count) in &gauges.without_effect {
            let label = [("kind", (*kind).to_owned())];
            self.without_effect
                .get_or_create(&label)
                .set(number(*count));
        }
        self.set_instances(&gauges.instances);
        self.rejected_configs.clear();
        for (kind, name) in gauges.refused.iter().take(NODES) {
            let label = [("type", kind.to_string()), ("name", name.clone())];
            self.rejected_configs.get_or_create(&label).set(1);
        }
        self.stale.clear();
        for (source, seconds) in &gauges.stale {
            let label = [("source", source.clone())];
            let seconds = i64::try_from(*seconds).unwrap_or(i64::MAX);
            self.stale.get_or_create(&label).set(seconds);
        }
    }

    /// Sets the current NACKs, by type, node and error: those beyond the limit share one series without node and error.
    fn set_nacks(&self, nacks: &[(&'static str, String, String)]) {
        for gauge in self.current_nacks.values() {
            gauge.clear();
        }
        for (at, (kind, node, err)) in nacks.iter().enumerate() {
            let (node, err) = match at < NODES {
                true => (node.clone(), err.clone()),
                false => Default::default(),
            };
            if let Some(gauge) = self.current_nacks.get(kind) {
                gauge.get_or_create(&[("node", node), ("err", err)]).set(1);
            }
        }
    }

    fn set_instances(&self, clusters: &[EdsCluster]) {
        self.instances.clear();
        self.all_locality_endpoints.clear();
        for cluster in clusters {
            let label = [("cluster", cluster.name.clone())];
            let counts = [
                (&self.instances, cluster.localities),
                (&self.all_locality_endpoints, cluster.endpoints),
            ];
            for (family, count) in counts {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                family.get_or_create(&label).set(count);
            }
        }
    }

    /// Renders all metrics as text.
    pub(crate) fn text(&self, gauges: &Gauges, format: ExpositionFormat) -> String {
        self.show(gauges);
        if let Some(bytes) = process::resident() {
            self.resident.set(bytes);
        }
        up_to(&self.lost_lines, log::lost_lines());
        format.text(&self.registry)
    }
}

fn by(reason: RefusalReason) -> [(&'static str, String); 1] {
    [("reason", reason.as_str().to_owned())]
}

/// The name of a kind in Istio's metrics.
const fn original(kind: &'static str) -> &'static str {
    match kind.as_bytes() {
        b"Service" => "Services",
        b"Pod" => "Pods",
        b"Node" => "Nodes",
        b"Namespace" => "Namespaces",
        _ => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sources::kubernetes::Event;

    #[test]
    fn the_originals_names_and_our_own() {
        let metrics = DiscoveryMetrics::new();
        metrics.sent(Type::Cluster, Duration::from_millis(2));
        metrics.nacked(Type::Listener);
        metrics.write_timed_out();
        metrics.count_build_error(Type::Listener);
        metrics.updated(&PushRequest::Endpoints(BTreeSet::new()));
        // Of a service whose listeners or whose names depend on them.
        metrics.updated(&PushRequest::Full(TriggerReason::Endpoint));
        let gauges = Gauges {
            streams: 2,
            services: 3,
            conflicts: BTreeMap::from([("pilot_vservice_dup_domain", 4)]),
            current_nacks: vec![("lds", "sidecar~x".to_owned(), "no".to_owned())],
            totals: Totals {
                events: BTreeMap::from([(("Pod", Event::Add), 3)]),
                ever_podless: 5,
            },
            podless: 2,
            homeless: 1,
            shared: 6,
            ..Gauges::default()
        };
        // Counters do not count twice what they are shown twice.
        metrics.text(&gauges, ExpositionFormat::Text);
        let text = metrics.text(&gauges, ExpositionFormat::Text);
        for line in [
            "# HELP pilot_xds_pushes Responses by type, and failures to build or send one.",
            "# TYPE pilot_xds_pushes counter",
            "pilot_xds_pushes{type=\"cds\"} 1",
            "pilot_xds_pushes{type=\"lds_builderr\"} 1",
            "pilot_total_xds_rejects{type=\"lds\"} 1",
            "pilot_k8s_reg_events{type=\"Pods\",event=\"add\"} 3",
            "pilot_k8s_endpoints_with_no_pods 5",
            "endpoint_no_pod 2",
            "pilot_no_ip 1",
            "gudgeon_resources_shared 6",
            "pilot_xds_push_time_bucket{le=\"0.01\",type=\"cds\"} 1",
            "pilot_xds_write_timeout 1",
            "pilot_total_xds_internal_errors 1",
            "pilot_inbound_updates{type=\"eds\"} 2",
            "pilot_services 3",
            "pilot_vservice_dup_domain 4",
            "pilot_xds_lds_reject{node=\"sidecar~x\",err=\"no\"} 1",
            "# HELP gudgeon_panics_total Panics.",
            "# TYPE gudgeon_panics_total counter",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
        assert!(text.contains("pilot_info{version=") && !text.contains("# EOF"));
        let text = metrics.text(&Gauges::default(), ExpositionFormat::Text);
        assert!(!text.contains("node="), "{text}");
    }
}
