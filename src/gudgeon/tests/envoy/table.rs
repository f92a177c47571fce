//! The table of features and of the tests that show them. Each name must exist, and each test here must be listed.
//!
//! Not shown by a request, because none can show it: circuit breakers without a limit, keep-alive of TCP, decorators and
//! samples of traces, `validate_clusters`, the uid in an endpoint's metadata, duplicate names of clusters. Those are written
//! down in `src/xds/tests/goldens` and in `tests/discovery/defaults.rs`, and Envoy takes all of them
//! (`envoy_takes_what_every_kind_of_proxy_is_given`).

use std::collections::BTreeSet;
use std::fs;

use crate::conformance::{examples, fields};
use crate::place::workspace;

/// Features, each with the tests that show it: `FILE TEST`, below `src`; a name alone is a test of this directory.
type Rows = &'static [(&'static str, &'static [&'static str])];

const WALK: &str = "walk.rs a_request_by_a_services_name_and_a_second_endpoint_by_eds_alone";
const BACK: &str = "walk.rs a_server_that_comes_back_sends_nothing_again";
const PORTS: &str = "bare.rs each_kind_of_port_is_reached_by_its_number";
const NEAR: &str = "bare.rs localities_are_preferred_and_passed_over";
const KINDS: &str = "kinds.rs services_of_every_kind_are_reached_by_their_names";
const UNSNIFFED: &str = "kinds.rs without_sniffing_bytes_pass_as_they_are";
const SHARES: &str =
    "locality.rs shares_are_those_that_the_mesh_names_and_a_service_may_prefer_the_near";
const NETWORKS: &str = "locality.rs another_network_is_reached_by_its_gateways";
const LOGGED: &str = "logged.rs access_logs_reach_the_service_that_the_mesh_names";
const INGRESS: &str = "inbound_listeners.rs a_sidecar_takes_what_its_ingress_says_and_logs_it";
const ROUTER: &str = "inbound_listeners.rs a_router_lives_without_listeners_and_so_does_an_ingress";
const CAUGHT: &str = "redirect.rs redirected_traffic_reaches_its_destination";
const BOTH: &str = "redirect.rs the_other_family_is_redirected_too";
const ALONE: &str = "families.rs a_proxy_of_the_other_family_alone_sees_nothing_of_the_first";
const STRICT: &str = "redirect.rs strict_mutual_tls_closes_every_port";
const HTTP2: &str = "redirect.rs http2_passes_mutual_tls_beside_a_websocket";
const TPROXY: &str = "redirect.rs tproxy_connections_are_accepted_and_forwarded";
const TLS: &str = "secured.rs mutual_tls_by_endpoint_and_certificates_that_rotate_under_load";
const GOES_ON: &str = "shutdown.rs envoy_goes_on_to_another_server_and_is_sent_nothing_again";
const KILLED: &str = "kills.rs envoy_gets_well_wherever_the_server_ends";
const FIRST: &str = "kills.rs envoy_becomes_ready_wherever_the_server_ends_at_first";
const SERVED: &str = "served.rs envoy_receives_the_rules_of_galley_but_no_broken_one";
const INJECTED: &str = "injected.rs redirected_connections_reach_their_destination";
const ROUTED: &str = "rules.rs requests_go_where_a_virtual_service_says";
const TIMES: &str = "rules.rs requests_have_time_and_are_tried_again_as_a_rule_says";
const EJECTED: &str =
    "rules.rs endpoints_that_fail_are_left_out_and_requests_of_one_user_stay_together";
const MOVED: &str = "rules.rs weights_move_and_subsets_are_exchanged_without_a_lost_request";
const AWAY: &str = "away.rs rules_that_change_while_the_server_is_away_lose_no_request";
const ENDURED: &str = "endurance.rs a_hundred_changes_a_minute_with_hot_restarts_lose_no_request";
const PEERS: &str = "peers.rs mutual_tls_is_switched_by_policies_under_load_without_a_lost_request";
const TRIED: &str = "policies.rs dry_run_policies_deny_nothing_and_are_logged";
const POLICIES: &str = "policies.rs authorization_policies_decide_which_clients_come_in";
const AT_ROUTERS: &str = "gateways.rs requests_go_by_the_host_that_they_ask_for";
const AT_ROUTERS_TLS: &str = "gateways.rs tls_ends_at_a_router_or_goes_on_by_its_name";
const SECRETS: &str = "gateways.rs certificates_come_by_name_and_rotate_without_a_lost_request";
const INGRESSES: &str = "gateways.rs ingresses_are_served_by_the_role_of_that_name";
const HELD: &str =
    "gateways.rs a_certificate_that_a_router_does_not_have_holds_back_its_own_server";
const TOKENS: &str = "tokens.rs request_authentications_decide_which_tokens_are_accepted";
const CLAIMS: &str =
    "tokens.rs applications_receive_the_claims_of_a_token_and_none_that_a_client_puts_in_its_place";
const KEYS: &str = "tokens.rs keys_of_an_issuer_are_exchanged_without_a_lost_request";
const AT_EDGE: &str = "edge_security.rs tokens_admit_and_askers_decide_at_a_router";
const BY_CLAIMS: &str = "edge_security.rs routes_of_a_router_go_by_claims_of_tokens";
const ASKED: &str = "custom.rs services_of_the_mesh_are_asked_about_what_a_custom_policy_matches";
const PATCHED: &[&str] = &[
    "patches.rs filters_routes_clusters_and_listeners_are_as_patches_say",
    "patches.rs a_filter_comes_and_goes_under_load_without_a_lost_request",
    "patches.rs a_nack_is_reported_at_its_envoy_filters_and_others_stay_in_use",
];
const SCOPED: &str = "scopes.rs a_proxy_reaches_what_it_sees_where_it_listens";
const LED: &str = "scopes.rs connections_and_delegated_requests_go_where_rules_say";
const BELOW: &str = "scopes.rs a_rule_for_a_host_below_a_wildcard_counts_on_the_wildcards_ports";
const CARRIED: &str = "traffic.rs connections_pass_through_tunnels_and_end_when_idle";
const INSIDE: &str = "traffic.rs a_sidecar_ends_tls_and_limits_what_comes_in";
const PRESENTED: &str = "traffic.rs clients_present_certificates_that_rules_name";
const UNKNOWN_SERVER: &str = "traffic.rs a_server_that_no_root_knows_is_not_called";
const PROVED: &str = "traffic.rs tls_says_the_host_of_requests_and_has_it_proved";
const LEVELS: &str = "traffic.rs endpoints_are_preferred_by_labels_and_left_out_by_statuses";
const EXAMPLES: &str = "conformance.rs the_examples_of_each_kind_do_what_its_documentation_says";
const AT_SOCKETS: &str = "sockets.rs applications_call_services_through_a_socket";
const MISSING: &str = "missing_files.rs files_that_are_missing_close_their_own_server";
const ROTATED: &str = "rotation.rs certificates_rotate_around_hot_restarts_without_a_lost_request";
const REBOUND: &str = "rebinding.rs a_listener_that_gets_or_loses_its_port_kills_no_envoy";
const REBOUND_LATER: &str =
    "rebinding.rs a_port_that_comes_or_goes_while_the_server_is_away_kills_no_envoy";
const UNNAMED: &str = "redirect.rs ports_of_no_service_take_what_policies_say";
const SEEN: &str = "injected.rs tproxy_keeps_the_addresses_of_connections";

/// Resources, by their effect.
const RESOURCES: Rows = &[
    ("examples of each kind's documentation", &[EXAMPLES]),
    // Rules of the edge and of security.
    ("hosts, redirects and conflicts of Gateways", &[AT_ROUTERS]),
    ("TLS of Gateways in each mode", &[AT_ROUTERS_TLS]),
    ("certificates of Gateways in files", &[MISSING, ROTATED]),
    ("certificates by SDS", &[SECRETS, ROTATED]),
    ("Ingresses", &[INGRESSES, HELD]),
    ("tokens", &[TOKENS, CLAIMS]),
    ("routes by claims of tokens", &[BY_CLAIMS]),
    ("keys that are fetched", &[KEYS]),
    ("policies with the action CUSTOM", &[ASKED, AT_EDGE]),
    ("policies that are tried", &[TRIED]),
    // Clusters.
    ("outbound, endpoints by EDS", &[WALK]),
    ("outbound, names one by one", &[PORTS, KINDS]),
    ("outbound, one name of many addresses", &[PORTS]),
    (
        "outbound, to where a connection wanted to go",
        &[CAUGHT, INJECTED],
    ),
    ("outbound, the same where nothing is intercepted", &[KINDS]),
    ("outbound, for routers", &[ROUTER]),
    ("inbound", &[CAUGHT, INGRESS]),
    ("inbound, two services with one port", &[INJECTED]),
    ("black hole", &[CAUGHT, INJECTED]),
    ("pass-through", &[CAUGHT, INJECTED]),
    ("inbound pass-through of both families", &[CAUGHT, BOTH]),
    ("an application on the other loopback", &[ALONE]),
    ("names of statistics", &[INJECTED]),
    ("connect timeout, changed", &[KILLED]),
    ("HTTP/2 upstream", &[PORTS, INGRESS]),
    ("upstream as the client speaks", &[PORTS, CAUGHT]),
    // Endpoints.
    ("weights", &[PORTS]),
    ("sockets in the file system", &[PORTS, INGRESS]),
    ("TLS by endpoint", &[TLS]),
    ("gateways of other networks", &[NETWORKS]),
    ("priorities by locality", &[NEAR]),
    ("a service that prefers the near", &[SHARES]),
    ("shares by locality", &[SHARES]),
    ("endpoints that a selector finds", &[KINDS]),
    // Routes.
    ("domains, short and long, with ports", &[WALK]),
    ("domains of addresses", &[CAUGHT, BOTH]),
    ("domains of headless services", &[CAUGHT, KINDS]),
    ("domains of wildcards", &[INJECTED, BELOW]),
    ("all ports by one proxy port", &[PORTS]),
    ("a sniffed port of one service", &[CAUGHT]),
    ("domains that two services have", &[PORTS]),
    ("retries", &[PORTS]),
    ("whatever nobody serves passes", &[CAUGHT]),
    ("whatever nobody serves is refused", &[WALK, CAUGHT]),
    ("inbound routes", &[INGRESS]),
    // Listeners.
    ("HTTP", &[WALK, CAUGHT]),
    ("TCP with addresses", &[CAUGHT, BOTH]),
    ("TCP with a range", &[CAUGHT]),
    ("TCP without an address", &[CAUGHT, INJECTED]),
    ("HTTPS and TLS by name", &[PORTS, CAUGHT, BELOW]),
    ("undeclared, with an address", &[CAUGHT]),
    ("undeclared, without an address", &[PORTS]),
    ("undeclared, with nobody who looks", &[UNSNIFFED]),
    ("headless, not HTTP", &[CAUGHT]),
    ("who is declared is not looked into", &[PORTS, INJECTED]),
    ("conflicts", &[PORTS, INJECTED]),
    (
        "ports that the proxy has itself",
        &[
            PORTS,
            "gudgeon/tests/discovery/own.rs listeners_at_the_proxys_own_ports_are_counted_and_reported",
        ],
    ),
    ("virtualOutbound", &[CAUGHT, TPROXY]),
    ("virtualInbound", &[CAUGHT, TPROXY]),
    (
        "inbound by address, as rules of 1.1 send it",
        &[
            CAUGHT,
            "hostile_tenants.rs a_stranger_calls_no_service_through_a_pod",
        ],
    ),
    (
        "ports of the proxy themselves",
        &[
            CAUGHT,
            BOTH,
            "occupied_ports.rs ports_of_envoys_own_listeners_are_not_taken_from_it",
            "hostile_tenants.rs a_tenant_cannot_open_a_proxys_own_ports",
            "hostile_tenants.rs a_port_that_the_proxy_names_is_its_own",
        ],
    ),
    ("nothing intercepted", &[PORTS, INGRESS]),
    // Filters.
    ("WebSocket", &[PORTS]),
    ("idle connections and HTTP/1.0", &[INGRESS]),
    ("gRPC-Web", &[KINDS]),
    ("access log, text and JSON", &[INGRESS, CAUGHT]),
    ("access log, a service", &[LOGGED]),
    ("access log of intercepted addresses", &[SEEN]),
    ("tracing, taken by Envoy", &[INGRESS]),
    // The rest.
    ("rules that galley checked", &[SERVED]),
    (
        "a virtual service: matches, redirects, answers, rewrites, headers, faults, CORS, copies",
        &[ROUTED],
    ),
    ("a virtual service: timeouts and retries", &[TIMES]),
    ("a virtual service: weights", &[MOVED, ENDURED]),
    ("a destination rule: subsets", &[ROUTED, MOVED, AWAY]),
    ("an authorization policy", &[POLICIES]),
    ("a peer authentication", &[PEERS, UNNAMED]),
    ("patches of an EnvoyFilter", PATCHED),
    (
        "a destination rule: outlier detection and consistent hashes",
        &[EJECTED],
    ),
    ("a destination rule: certificates by name", &[PRESENTED]),
    (
        "a destination rule: servers that no root knows",
        &[UNKNOWN_SERVER, PROVED],
    ),
    (
        "a destination rule: tunnels, idle and old connections",
        &[CARRIED],
    ),
    ("a destination rule: labels, zones and statuses", &[LEVELS]),
    ("a virtual service: connections and delegates", &[LED]),
    ("a sidecar's ingress", &[INGRESS, CAUGHT]),
    ("a sidecar's own TLS and limits", &[INSIDE]),
    ("a sidecar's egress, and exports of services", &[SCOPED]),
    ("a sidecar's egress at sockets", &[AT_SOCKETS]),
    (
        "listeners that get or lose a port",
        &[REBOUND, REBOUND_LATER],
    ),
    ("mutual TLS, automatic", &[TLS]),
    ("mutual TLS, strict", &[TLS, STRICT, HTTP2]),
];

/// The cases, by their numbers.
const CASES: Rows = &[
    (
        "1",
        &[
            WALK,
            "gudgeon/tests/discovery/streams.rs a_sidecar_is_given_four_types",
        ],
    ),
    ("2", &[WALK]),
    (
        "3",
        &[
            "gudgeon/tests/discovery/streams.rs many_changes_are_one_push",
            "gudgeon/tests/discovery/limits.rs changes_without_end_are_pushed_after_ten_seconds_and_endpoints_after_one",
        ],
    ),
    (
        "4",
        &["gudgeon/tests/discovery/streams.rs names_come_and_go"],
    ),
    (
        "5",
        &[
            INGRESS,
            "gudgeon/tests/discovery/streams.rs a_nack_is_reported_and_nothing_is_sent_again",
        ],
    ),
    (
        "6",
        &["gudgeon/tests/discovery/streams.rs an_old_nonce_changes_nothing"],
    ),
    (
        "7",
        &[
            BACK,
            "gudgeon/tests/discovery/streams.rs a_client_that_returns_with_current_versions_is_sent_nothing",
        ],
    ),
    (
        "8",
        &[
            KILLED,
            FIRST,
            "gudgeon/tests/discovery/streams.rs endpoints_alone_are_answered_in_full",
        ],
    ),
    ("9", &[KILLED]),
    (
        "10",
        &[
            "gudgeon/tests/discovery/streams.rs another_replica_has_the_same_versions",
            "xds/tests/worlds.rs equal_worlds_give_equal_bytes",
        ],
    ),
    ("11", &[TLS]),
    (
        "12",
        &["gudgeon/tests/discovery/streams.rs two_streams_of_one_node_are_two"],
    ),
    (
        "13",
        &["gudgeon/tests/discovery/streams.rs bad_nodes_are_refused_by_the_part"],
    ),
    (
        "14",
        &["gudgeon/tests/discovery/streams.rs a_client_that_does_not_read_delays_no_other"],
    ),
    (
        "15",
        &[
            "gudgeon/tests/discovery/streams.rs new_resources_are_sent_before_old_ones_are_removed",
            "gudgeon/tests/discovery/streams.rs without_acks_each_step_comes_after_two_seconds",
            AWAY,
            "away.rs rules_that_change_while_clusters_warm_lose_no_request",
            "away.rs rules_that_change_while_the_first_assignments_are_awaited_lose_no_request",
        ],
    ),
    (
        "16",
        &["gudgeon/tests/discovery/streams.rs delta_sends_what_is_not_there"],
    ),
    ("17", &[ROUTER]),
    ("18", &[PORTS, CAUGHT]),
    ("19", &[CAUGHT]),
    ("20", &[PORTS, INJECTED]),
    ("21", &[CAUGHT]),
    ("22", &[CAUGHT]),
    ("23", &[TPROXY, SEEN]),
    ("24", &[PORTS, INGRESS]),
    ("25", &[TLS, STRICT]),
    ("26", &[TLS]),
    // A client of its own language: `build/ci/proxyless-test`.
    (
        "27",
        &[
            "xds/stream/tests/rollouts.rs grpc_is_led_over_too",
            "xds/snapshot/tests.rs grpc_gets_what_it_names_and_nothing_else",
        ],
    ),
    (
        "28",
        &[
            "sources/kubernetes/index/tests/services.rs names_of_ports_say_what_they_speak",
            "sources/kubernetes/index/tests/services.rs app_protocol_wins_and_what_no_proxy_carries_is_dropped",
        ],
    ),
    (
        "29",
        &["sources/kubernetes/index/tests/places.rs an_endpoint_is_served_before_its_pod_is_known"],
    ),
    (
        "30",
        &[
            "sources/kubernetes/index/tests/places.rs pods_of_one_host_are_told_apart_by_their_names",
            "xds/snapshot/tests.rs a_pod_on_the_hosts_address_is_told_by_its_name",
        ],
    ),
    (
        "31",
        &[
            "sources/kubernetes/index/tests/places.rs terminating_endpoints_differ_from_unready_ones",
        ],
    ),
    (
        "32",
        &[
            BOTH,
            ALONE,
            "sources/kubernetes/index/tests/services.rs a_service_has_its_addresses_in_their_order_and_its_balancers_apart",
        ],
    ),
    (
        "33",
        &[
            KINDS,
            "sources/kubernetes/index/tests/services.rs an_external_name_is_resolved_by_the_proxy",
        ],
    ),
    (
        "34",
        &[
            "sources/kubernetes/index/tests/pods.rs a_place_is_said_by_the_pod_then_by_its_node_then_by_the_slice",
        ],
    ),
    (
        "35",
        &[
            "gudgeon/tests/discovery/clusters.rs a_server_that_is_away_changes_nothing_and_its_return_is_one_push",
            "sources/kubernetes/index/tests/source.rs an_outage_changes_nothing_and_what_was_missed_is_told_once",
            "sources/kubernetes/index/tests/source.rs an_expired_version_is_listed_again",
        ],
    ),
    (
        "36",
        &[
            "sources/consul/tests/mod.rs registered_services_are_served_and_changes_arrive_soon",
            "sources/consul/tests/mod.rs while_idle_there_is_nothing_but_waiting",
            "sources/consul/tests/mod.rs an_index_that_goes_back_is_followed",
        ],
    ),
    (
        "37",
        &[
            "gudgeon/tests/discovery/clusters.rs a_cluster_that_is_removed_takes_its_endpoints_with_it_at_once",
            "sources/kubernetes/index/tests/remote.rs clusters_come_change_and_go",
            "sources/aggregate/tests.rs clusters_share_their_services_and_take_their_endpoints_with_them",
        ],
    ),
    (
        "38",
        &[
            NETWORKS,
            "gudgeon/tests/discovery/clusters.rs endpoints_of_a_cluster_in_another_network_are_reached_by_its_gateways",
            "xds/tests/goldens.rs every_kind_of_proxy_is_given_what_is_written_down",
        ],
    ),
    (
        "39",
        &[
            "sources/directory/files/tests.rs a_broken_file_keeps_what_it_had",
            "sources/directory/files/tests.rs the_first_of_two_by_path_counts",
            "sources/directory/files/tests.rs a_volume_is_exchanged_as_a_whole",
            "sources/directory/files/tests.rs files_say_objects_and_no_longer",
        ],
    ),
    ("40", &[PORTS]),
    ("41", &[CAUGHT]),
    (
        "42",
        &[
            "gudgeon/tests/discovery/tls.rs a_certificate_is_wanted_and_speaks_for_its_own",
            "gudgeon/tests/discovery/tls.rs the_port_opens_when_certificates_come",
        ],
    ),
    (
        "43",
        &[
            BACK,
            GOES_ON,
            "gudgeon/tests/discovery/shutdown.rs a_client_that_moves_to_another_server_is_sent_nothing_again",
            "gudgeon/tests/discovery/commands.rs at_the_end_it_is_not_ready_and_then_streams_are_closed",
        ],
    ),
    // With figures, of the memory and of what the others of a namespace cost: `build/promises discovery`.
    (
        "44",
        &[
            "gudgeon/tests/discovery/scopes.rs a_change_goes_to_the_streams_that_see_it",
            "xds/rules/tests/changes.rs a_push_concerns_those_whose_scope_holds_what_changed",
            "xds/tests/worlds.rs two_proxies_that_see_the_same_share_it",
        ],
    ),
    // Field by field: `conformance/fields.rs`.
    (
        "45",
        &[
            EXAMPLES,
            "gudgeon/tests/discovery/reports.rs conflicts_of_one_key_are_all_on_the_page",
        ],
    ),
];

/// Fails if what shows something does not exist: files of `tests/rules` and tests (`FILE TEST`) with commas between them, or `not
/// served: WHY`.
pub fn exists(what: &str, coverage: &str) {
    if let Some(why) = coverage.strip_prefix("not served: ") {
        assert!(!why.is_empty(), "{what}");
        return;
    }
    for one in coverage.split(", ") {
        match one.split_once(' ') {
            Some(_) => has_test(what, one),
            None => {
                let file = workspace().join("tests/rules").join(one);
                let text = fs::read_to_string(&file);
                let text = text.unwrap_or_else(|error| panic!("{what}: {one}: {error}"));
                assert!(text.contains("\n#> "), "{what}: {one} shows nothing");
            }
        }
    }
}

/// Fails if there is no such test.
fn has_test(what: &str, test: &str) {
    let (file, name) = test.split_once(' ').unwrap();
    let path = match file.contains('/') {
        true => file.to_owned(),
        false => format!("gudgeon/tests/envoy/{file}"),
    };
    let text = fs::read_to_string(workspace().join("src").join(&path))
        .unwrap_or_else(|error| panic!("{what}: {path}: {error}"));
    let found = text.contains(&format!("fn {name}("));
    assert!(found, "{what}: {path} has no {name}");
}

#[test]
fn the_table_names_tests_that_exist() {
    let sources = workspace().join("src");
    let here = "gudgeon/tests/envoy";
    let mut named = BTreeSet::new();
    for (what, tests) in RESOURCES.iter().chain(CASES) {
        assert!(!tests.is_empty(), "{what}");
        for test in *tests {
            has_test(what, test);
            let (file, name) = test.split_once(' ').unwrap();
            if !file.contains('/') {
                named.insert(name);
            }
        }
    }
    assert_eq!(examples::check(), 103, "examples of the documentation");
    fields::check();
    let numbers: Vec<String> = (1..=45).map(|number| number.to_string()).collect();
    let cases: Vec<&str> = CASES.iter().map(|(number, _)| *number).collect();
    assert_eq!(cases, numbers);

    let folder = sources.join(here);
    let of_conformance = fs::read_dir(folder.join("conformance")).unwrap();
    for file in fs::read_dir(&folder).unwrap().chain(of_conformance) {
        let path = file.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        for after in text.split("#[test]\nfn ").skip(1) {
            let (name, _) = after.split_once('(').unwrap();
            let own = "the_table_names_tests_that_exist";
            assert!(named.contains(name) || name == own, "{name} has no place");
        }
    }
}
