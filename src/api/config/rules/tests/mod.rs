//! Every row of rules: what breaks it and in which words, and the nearest that does not.
//!
//! A test is a row, by its name; [`every_row_has_what_breaks_it_and_what_does_not`] says which row has none.

use std::collections::BTreeSet;

use crate::config::document::documents;
use crate::config::{KINDS, check};

/// Returns the findings of an object, in the order of its text.
fn finding_texts(kind: &str, name: &str, spec: &str) -> Vec<String> {
    if kind == "MeshConfig" {
        return mesh_finding_texts(spec);
    }
    let row = KINDS.iter().find(|row| row.kind == kind).unwrap();
    let version = format!("{}/{}", row.group, row.versions[0]);
    let text = format!(
        "{{apiVersion: {version}, kind: {kind}, metadata: {{name: {name}, namespace: ns}}, spec: {spec}}}"
    );
    let document = documents(&text).next().unwrap();
    let document = document.unwrap_or_else(|cause| panic!("{spec}: {cause}"));
    let part = &document.parts()[0];
    let value = part.value();
    let (_, findings) = check(&value);
    for finding in &findings {
        let leads = properties::leads_to_a_place(part, &finding.path);
        assert!(leads, "{kind} {spec}: {finding}");
    }
    let same: BTreeSet<_> = findings.iter().map(ToString::to_string).collect();
    let (_, turned) = check(&properties::turned(&value));
    let turned: BTreeSet<_> = turned.iter().map(ToString::to_string).collect();
    assert_eq!(turned, same, "{kind} {spec}: keys backwards");
    findings
        .into_iter()
        .map(|finding| {
            let warning = if finding.is_error() { "" } else { "warning: " };
            format!("{warning}{}: {}", finding.path, finding.message)
        })
        .collect()
}

/// The first of what is wrong with a mesh configuration, or its warnings.
fn mesh_finding_texts(text: &str) -> Vec<String> {
    match crate::mesh::parse_served(text) {
        Ok(read) => {
            let warnings = read.warnings.iter();
            let warnings = warnings.map(|warning| warning.replace("line 1: ", "warning: "));
            warnings.collect()
        }
        Err(invalid) => vec![format!("{}: {}", invalid.path, invalid.cause)],
    }
}

fn good(kind: &str, name: &str, spec: &str) {
    assert_eq!(
        finding_texts(kind, name, spec),
        Vec::<String>::new(),
        "{kind} {spec}"
    );
}

fn bad(kind: &str, name: &str, spec: &str, expected: &[&str]) {
    assert_eq!(finding_texts(kind, name, spec), expected, "{kind} {spec}");
}

/// Rows of one kind: a test for each, with what passes and what does not.
macro_rules! rows {
    ($kind:literal $name:literal $($row:ident { $(+ $good:expr;)+ $(- $bad:expr => $findings:expr;)+ })*) => {
        pub(in crate::config::rules::tests) const ROWS: &[(&str, &str)] = &[$(($kind, stringify!($row))),*];

        pub(in crate::config::rules::tests) fn rows() -> Vec<crate::config::rules::tests::written::Row> {
            use crate::config::rules::tests::written::Row;
            vec![$(
                $(Row::new($kind, $name, $good, &[""; 0]),)+
                $(Row::new($kind, $name, $bad, &$findings),)+
            )*]
        }

        $(
            #[test]
            fn $row() {
                $(crate::config::rules::tests::good($kind, $name, &$good.to_string());)+
                $(crate::config::rules::tests::bad($kind, $name, &$bad.to_string(), &$findings);)+
            }
        )*
    };
}

mod destination_rule;
mod edge;
mod mesh;
mod old;
mod policy;
mod predicates;
mod properties;
mod security;
mod sidecar;
mod virtual_service;
mod virtual_service_http;
mod written;

/// In the place of a kind: what several share.
const PREDICATES: &str = "predicates";

/// The rows of the rules, kind by kind.
const WANTED: &[(&str, &[&str])] = &[
    (
        PREDICATES,
        &[
            "port",
            "label",
            "fqdn",
            "wild",
            "ip",
            "cidr",
            "uds",
            "dur",
            "pct",
            "percent",
            "labels",
            "selector",
            "gwname",
            "export",
            "proto",
            "regex",
            "hdr",
            "string_match",
            "targets",
        ],
    ),
    (
        "VirtualService",
        &[
            "hosts_empty",
            "hosts_each",
            "hosts_overlap",
            "gateways_each",
            "export_to",
            "one_of_http_tls_tcp",
            "http_one_action",
            "http_mirrors",
            "http_timeout",
            "http_match",
            "http_route",
            "route_weights",
            "dest",
            "http_headers",
            "http_redirect",
            "http_rewrite",
            "http_direct_response",
            "http_retries",
            "http_fault",
            "http_cors_policy",
            "tls_each",
            "tcp_each",
            "never_reached",
        ],
    ),
    (
        "DestinationRule",
        &[
            "host",
            "subsets",
            "export_to",
            "workload_selector",
            "traffic_policy",
            "connection_pool",
            "outlier_detection",
            "load_balancer",
            "locality_lb_setting",
            "tls",
            "tunnel",
        ],
    ),
    (
        "Gateway",
        &[
            "servers",
            "servers_hosts",
            "servers_port",
            "servers_bind",
            "servers_tls",
            "tls_by_mode",
            "tls_warnings",
        ],
    ),
    (
        "ServiceEntry",
        &[
            "hosts",
            "addresses",
            "ports",
            "workload_selector",
            "resolution_none",
            "resolution_static",
            "too_much",
            "resolution_dns",
            "resolution_dynamic_dns",
            "endpoints",
            "several_hosts",
            "export_to",
        ],
    ),
    ("WorkloadEntry", &["workload_entry"]),
    (
        "Sidecar",
        &[
            "workload_selector",
            "one_part",
            "ingress",
            "ingress_tls",
            "egress_port",
            "egress_hosts",
            "egress_proxy",
        ],
    ),
    (
        "EnvoyFilter",
        &[
            "workload_selector",
            "without_patches",
            "filters",
            "config_patches",
            "config_patches_match",
            "filter_chain_filter",
            "patch_value",
        ],
    ),
    ("PeerAuthentication", &["selector", "port_level_mtls"]),
    (
        "RequestAuthentication",
        &["selector_and_targets", "jwt_rules"],
    ),
    (
        "AuthorizationPolicy",
        &[
            "selector_and_targets",
            "rules",
            "rules_each",
            "from_source",
            "to_operation",
            "when",
            "deny_of_tcp",
        ],
    ),
    ("Policy", &["policy"]),
    ("MeshPolicy", &["mesh_policy"]),
    ("ServiceRole", &["service_role"]),
    ("ServiceRoleBinding", &["service_role_binding"]),
    ("ClusterRbacConfig", &["cluster_rbac_config"]),
    ("RbacConfig", &["rbac_config"]),
    ("HTTPAPISpec", &["http_api_spec"]),
    ("HTTPAPISpecBinding", &["http_api_spec_binding"]),
    ("QuotaSpecBinding", &["quota_spec_binding"]),
    ("QuotaSpec", &["quota_spec"]),
    (
        "MeshConfig",
        &[
            "ports",
            "status_port",
            "connect_timeout",
            "protocol_detection_timeout",
            "not_empty",
            "drain_duration",
            "addresses",
            "lightstep_access_token",
            "locality_lb_setting",
            "trust_domain",
            "fields",
        ],
    ),
];

#[test]
fn every_row_has_what_breaks_it_and_what_does_not() {
    let wanted: BTreeSet<_> = WANTED
        .iter()
        .flat_map(|(kind, rows)| rows.iter().map(|row| (*kind, *row)))
        .collect();
    let there: BTreeSet<_> = [
        predicates::ROWS,
        virtual_service::ROWS,
        virtual_service_http::ROWS,
        destination_rule::ROWS,
        edge::gateway::ROWS,
        edge::service_entry::ROWS,
        edge::workload_entry::ROWS,
        mesh::ROWS,
        sidecar::listeners::ROWS,
        sidecar::patches::ROWS,
        security::peer::ROWS,
        security::request::ROWS,
        policy::ROWS,
        old::policy::ROWS,
        old::mesh_policy::ROWS,
        old::role::ROWS,
        old::binding::ROWS,
        old::cluster_config::ROWS,
        old::config::ROWS,
        old::api::ROWS,
        old::api_binding::ROWS,
        old::quota_binding::ROWS,
        old::quota::ROWS,
    ]
    .into_iter()
    .flatten()
    .copied()
    .collect();
    let missing: Vec<_> = wanted.difference(&there).collect();
    assert!(missing.is_empty(), "rows without a test: {missing:?}");
    let unknown: Vec<_> = there.difference(&wanted).collect();
    assert!(unknown.is_empty(), "tests without a row: {unknown:?}");
    // No objects: they have no row among the rules of kinds.
    let kinds = KINDS.iter().filter(|kind| kind.rule.is_some());
    let kinds = kinds.map(|kind| kind.kind);
    let kinds: BTreeSet<_> = kinds.chain([PREDICATES, "MeshConfig"]).collect();
    assert_eq!(kinds, WANTED.iter().map(|(kind, _)| *kind).collect());
}
