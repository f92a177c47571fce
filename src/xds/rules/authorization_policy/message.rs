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
pub(super) struct Rules {
    #[prost(enumeration = "rbac::Action", tag = "1")]
    pub(super) action: i32,
    #[prost(btree_map = "string, message", tag = "2")]
    pub(super) policies: BTreeMap<String, Policy>,
}

/// `envoy.extensions.filters.http.rbac.v3.RBAC`.
#[derive(Clone, PartialEq, Message)]
struct HttpRbac {
    #[prost(message, optional, tag = "1")]
    rules: Option<Rules>,
}

/// `envoy.extensions.filters.network.rbac.v3.RBAC`.
#[derive(Clone, PartialEq, Message)]
struct NetworkRbac {
    #[prost(message, optional, tag = "1")]
    rules: Option<Rules>,
    #[prost(string, tag = "3")]
    stat_prefix: String,
}

pub(super) fn http(rules: Rules) -> HttpFilter {
    let filter = HttpRbac { rules: Some(rules) };
    let any = wire::any_of(Http::type_url(), &filter);
    wire::http_filter("envoy.filters.http.rbac", any)
}

pub(super) fn tcp(rules: Rules) -> Filter {
    let filter = NetworkRbac {
        rules: Some(rules),
        stat_prefix: "tcp.".to_owned(),
    };
    let any = wire::any_of(Network::type_url(), &filter);
    wire::filter_of("envoy.filters.network.rbac", any)
}
