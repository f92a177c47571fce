//! Envoy's messages of its RBAC filters, with policies in order: `envoy-types` holds them in a hash map.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::listener::v3::Filter;
use envoy_types::pb::envoy::config::rbac::v3::{Policy, rbac};
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::Rbac as Http;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use envoy_types::pb::envoy::extensions::filters::network::rbac::v3::Rbac as Network;
use prost::{Message, Name as _};

use crate::common::wire;

/// `envoy.config.rbac.v3.RBAC`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Rbac {
    #[prost(enumeration = "rbac::Action", tag = "1")]
    pub(super) action: i32,
    #[prost(btree_map = "string, message", tag = "2")]
    pub(super) policies: BTreeMap<String, Policy>,
}

/// `envoy.extensions.filters.http.rbac.v3.RBAC`.
#[derive(Clone, PartialEq, Message)]
struct HttpRbac {
    #[prost(message, optional, tag = "1")]
    rules: Option<Rbac>,
    #[prost(message, optional, tag = "2")]
    shadow_rules: Option<Rbac>,
    #[prost(string, tag = "3")]
    shadow_rules_stat_prefix: String,
}

/// `envoy.extensions.filters.network.rbac.v3.RBAC`.
#[derive(Clone, PartialEq, Message)]
struct NetworkRbac {
    #[prost(message, optional, tag = "1")]
    rules: Option<Rbac>,
    #[prost(message, optional, tag = "2")]
    shadow_rules: Option<Rbac>,
    #[prost(string, tag = "3")]
    stat_prefix: String,
    #[prost(string, tag = "5")]
    shadow_rules_stat_prefix: String,
}

/// The names of both filters: what they leave beside requests and connections is under them.
pub(super) const HTTP: &str = "envoy.filters.http.rbac";
pub(super) const TCP: &str = "envoy.filters.network.rbac";

pub(super) fn http(rules: Rbac) -> HttpFilter {
    of_http(&HttpRbac {
        rules: Some(rules),
        ..HttpRbac::default()
    })
}

pub(super) fn tcp(rules: Rbac) -> Filter {
    of_tcp(NetworkRbac {
        rules: Some(rules),
        ..NetworkRbac::default()
    })
}

/// Builds a filter that denies nothing, and records its decision under keys with this prefix.
pub(super) fn http_shadow(rules: Rbac, prefix: &str) -> HttpFilter {
    of_http(&HttpRbac {
        shadow_rules: Some(rules),
        shadow_rules_stat_prefix: prefix.to_owned(),
        ..HttpRbac::default()
    })
}

/// The dry-run filter of connections.
pub(super) fn tcp_shadow(rules: Rbac, prefix: &str) -> Filter {
    of_tcp(NetworkRbac {
        shadow_rules: Some(rules),
        shadow_rules_stat_prefix: prefix.to_owned(),
        ..NetworkRbac::default()
    })
}

fn of_http(filter: &HttpRbac) -> HttpFilter {
    wire::http_filter(HTTP, wire::any_of(Http::type_url(), filter))
}

fn of_tcp(filter: NetworkRbac) -> Filter {
    let filter = NetworkRbac {
        stat_prefix: "tcp.".to_owned(),
        ..filter
    };
    wire::filter_of(TCP, wire::any_of(Network::type_url(), &filter))
}
