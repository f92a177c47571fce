//! Names and descriptions of all that is counted.

use prometheus_client::metrics::gauge::Gauge;
use xds::view::Type;

use super::{DiscoveryMetrics, GaugeFamily};
use crate::cli::VERSION;
use crate::exposition;
use crate::process;

/// Gauges that conflicts are counted in.
const CONFLICTS: [(&str, &str); 15] = [
    (
        "pilot_conflict_outbound_listener_tcp_over_current_tcp",
        "TCP ports that conflict with another TCP port",
    ),
    (
        "pilot_conflict_outbound_listener_tcp_over_current_http",
        "TCP ports that conflict with an HTTP port",
    ),
    (
        "pilot_conflict_outbound_listener_http_over_current_tcp",
        "HTTP ports that conflict with a TCP port",
    ),
    (
        "pilot_conflict_outbound_listener_http_over_https",
        "HTTP and undeclared ports without an address, refused on port 443",
    ),
    (
        "pilot_conflict_inbound_listener",
        "Ports whose protocol conflicts with another service's at the same port of its workloads",
    ),
    (
        "gudgeon_network_gateways_without_address",
        "Gateways between networks that have a name and no address",
    ),
    (
        "pilot_invalid_out_listeners",
        "Ports that are the proxy's own",
    ),
    ("pilot_duplicate_envoy_clusters", "Duplicate cluster names"),
    (
        "pilot_vservice_dup_domain",
        "Duplicate domains of virtual hosts",
    ),
    (
        "gudgeon_policies_not_enforced_as_written",
        "Policies that deny more than written, name a Service that does not exist or selects no workloads, or select routers alone",
    ),
    (
        "gudgeon_mutual_tls_conflicts",
        "Ports of services that clients call by mutual TLS, or without, against what their workloads accept",
    ),
    (
        "gudgeon_rules_too_large",
        "Routes, subsets and patches left out because of limits",
    ),
    (
        "gudgeon_envoy_filter_patches_not_applied",
        "EnvoyFilter patches not applied as written",
    ),
    (
        "gudgeon_envoy_filter_patches_without_match",
        "EnvoyFilter patches that match nothing of the connected proxies that they are for",
    ),
    (
        "gudgeon_delegates_left_out",
        "Routes whose delegate VirtualService is missing or contradicts",
    ),
];

impl DiscoveryMetrics {
    pub(super) fn register_pushes(&mut self) {
        let r = &mut self.registry;
        let families = [
            (
                "pilot_xds_pushes",
                "Responses by type, and failures to build or send one",
                &self.pushes,
            ),
            ("pilot_push_triggers", "Pushes by cause", &self.triggers),
            (
                "pilot_total_xds_rejects",
                "Responses rejected by clients (NACK)",
                &self.nacks,
            ),
            (
                "pilot_xds_expired_nonce",
                "Requests with an expired nonce",
                &self.expired,
            ),
            (
                "pilot_inbound_updates",
                "Updates received from sources",
                &self.updates,
            ),
        ];
        for (name, help, family) in families {
            r.register(name, help, family.clone());
        }
        let counters = [
            (
                "pilot_xds_write_timeout",
                "Responses not read for five seconds",
                &self.write_timeouts,
            ),
            (
                "pilot_total_xds_internal_errors",
                "Panics: each ended a stream, or left out one type of resources of a push",
                &self.internal,
            ),
            (
                "pilot_xds_push_context_errors",
                "Snapshots that failed to build",
                &self.contexts,
            ),
        ];
        for (name, help, counter) in counters {
            r.register(name, help, counter.clone());
        }
        let time = "Seconds to build and encode one response";
        r.register("pilot_xds_push_time", time, self.push_time.clone());
        let queue = "Seconds from a snapshot to the start of its push";
        r.register("pilot_proxy_queue_time", queue, self.queue_time.clone());
        let convergence = "Seconds from a change until a proxy was sent all of it";
        r.register(
            "pilot_proxy_convergence_time",
            convergence,
            self.convergence.clone(),
        );
    }

    pub(super) fn register_state_gauges(&mut self) {
        let r = &mut self.registry;
        for kind in Type::ALL {
            let type_name = kind.as_str();
            let current = GaugeFamily::default();
            let name = format!("pilot_xds_{type_name}_reject");
            r.register(name, "Rejected resources (current)", current.clone());
            self.current_nacks.insert(type_name, current);
        }
        for (name, help) in CONFLICTS {
            let gauge = Gauge::default();
            r.register(name, help, gauge.clone());
            self.conflicts.insert(name, gauge);
        }
        let events = "Events of objects of API servers";
        r.register("pilot_k8s_reg_events", events, self.events.clone());
        let ever = "Endpoints seen before their pods";
        r.register(
            "pilot_k8s_endpoints_with_no_pods",
            ever,
            self.ever_podless.clone(),
        );
        let podless = "Endpoints of unknown pods";
        r.register("endpoint_no_pod", podless, self.podless.clone());
        let homeless = "Sidecars without a known service instance";
        r.register("pilot_no_ip", homeless, self.homeless.clone());
        let info = GaugeFamily::<1>::default();
        info.get_or_create(&[("version", VERSION.to_owned())])
            .set(1);
        r.register("pilot_info", "Version of discovery, always 1", info);
        exposition::register_build(r);
        r.register("pilot_xds", "Streams", self.streams.clone());
        r.register("pilot_services", "Services", self.services.clone());
        r.register("pilot_virt_services", "VirtualServices", self.rules.clone());
        let empty = "EDS clusters without an endpoint";
        r.register("pilot_eds_no_instances", empty, self.no_instances.clone());
        let instances = "Localities with endpoints by cluster";
        r.register("pilot_xds_eds_instances", instances, self.instances.clone());
        let localities = "Endpoints of all localities by cluster";
        r.register(
            "pilot_xds_eds_all_locality_endpoints",
            localities,
            self.all_locality_endpoints.clone(),
        );
        let rejected = "Invalid objects";
        r.register(
            "pilot_total_rejected_configs",
            rejected,
            self.rejected_configs.clone(),
        );
    }

    pub(super) fn register_own(&mut self) {
        let panics = process::panics();
        let r = &mut self.registry;
        let counters = [
            (
                "gudgeon_unknown_type_requests",
                "Requests for types that are not served",
                &self.unknown,
            ),
            (
                "gudgeon_tls_handshakes_failed",
                "Failed TLS handshakes",
                &self.handshakes,
            ),
            (
                "gudgeon_connections_refused",
                "Connections closed because their address reached its limit",
                &self.refused_connections,
            ),
            ("gudgeon_panics", "Panics", &panics),
            (
                "gudgeon_log_lines_lost",
                "Log lines dropped because their reader was too slow",
                &self.lost_lines,
            ),
        ];
        for (name, help, counter) in counters {
            r.register(name, help, counter.clone());
        }
        let refused = "Streams refused because of their client's identity or node";
        let streams = self.refused_streams.clone();
        r.register("gudgeon_streams_refused", refused, streams);
        let debounce = "Seconds from the first change to its snapshot";
        r.register("gudgeon_debounce_seconds", debounce, self.debounce.clone());
        let snapshots = "Seconds to build a snapshot";
        r.register(
            "gudgeon_snapshot_seconds",
            snapshots,
            self.snapshots.clone(),
        );
        let bytes = "Bytes of the resources sent to streams, each counted once";
        r.register("gudgeon_snapshot_bytes", bytes, self.snapshot_bytes.clone());
        let pending = "Streams with a push in flight";
        r.register("gudgeon_streams_pending", pending, self.pending.clone());
        let shared = "Resources that more than one stream has, encoded once";
        r.register("gudgeon_resources_shared", shared, self.shared.clone());
        let stale = "Seconds since a source was lost";
        r.register("gudgeon_source_stale_seconds", stale, self.stale.clone());
        let without_effect = "Objects of kinds without effect in this release";
        r.register(
            "gudgeon_objects_without_effect",
            without_effect,
            self.without_effect.clone(),
        );
        let fetches = "JWKS fetches of RequestAuthentications";
        r.register("gudgeon_jwks_fetches", fetches, self.jwks.clone());
        let keyless = "JWKS without keys: their tokens are refused";
        r.register("gudgeon_jwks_without_keys", keyless, self.keyless.clone());
        let resident = "Resident memory, in bytes";
        r.register(
            "process_resident_memory_bytes",
            resident,
            self.resident.clone(),
        );
    }
}
