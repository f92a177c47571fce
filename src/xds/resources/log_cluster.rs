//! The cluster of the service that access logs go to. Proxies take loggers of a cluster that they do not know, and lose every
//! line; nothing in their bootstrap knows this one.

use std::net::IpAddr;

use api::istio::networking::v1alpha3::client_tls_settings::TlSmode;
use api::model::Protocol;
use envoy_types::pb::envoy::config::cluster::v3::cluster::DiscoveryType;
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, UpstreamConnectionOptions};
use envoy_types::pb::envoy::config::core::v3 as core;

use super::clusters::{self, ClusterParameters};
use super::endpoints;
use super::log_service::{LogService, NAME};
use super::mesh::Mesh;
use crate::common::tls::{self, Root};
use crate::common::wire::{
    self, ClusterLoadAssignment, ClusterTail, EndpointMessage, LbEndpoint, LocalityLbEndpoints,
};
use crate::common::{keepalive, upstream_http};
use crate::finish::{ClusterParts, Draft};
use crate::rules::destination_rule::client_files;

impl LogService {
    pub(crate) fn cluster(&self, mesh: &Mesh, client: &ClusterParameters) -> Draft<ClusterParts> {
        let (kind, place) = match self.host.parse::<IpAddr>() {
            Ok(address) => (DiscoveryType::Static, wire::address(address, self.port)),
            Err(_) => (
                DiscoveryType::StrictDns,
                endpoints::named(&self.host, self.port),
            ),
        };
        let mut cluster = Cluster {
            circuit_breakers: clusters::unlimited(),
            transport_socket: self.transport_socket(mesh, client),
            ..clusters::base(NAME, mesh, kind)
        };
        if let Some(keepalive) = &self.given.tcp_keepalive {
            cluster.upstream_connection_options = Some(UpstreamConnectionOptions {
                tcp_keepalive: Some(keepalive::keepalive(keepalive)),
                ..UpstreamConnectionOptions::default()
            });
        }
        if kind == DiscoveryType::StrictDns {
            clusters::resolve(&mut cluster, mesh, client, false);
        }
        let peer = LbEndpoint {
            endpoint: Some(EndpointMessage {
                address: Some(place),
            }),
            ..LbEndpoint::default()
        };
        let endpoints = ClusterTail {
            load_assignment: Some(ClusterLoadAssignment {
                cluster_name: NAME.to_owned(),
                endpoints: vec![LocalityLbEndpoints {
                    lb_endpoints: vec![peer],
                    ..LocalityLbEndpoints::default()
                }],
            }),
        };
        let http = upstream_http::options(Protocol::Grpc);
        let parts = ClusterParts {
            cluster,
            http,
            endpoints,
        };
        Draft::new(NAME, parts)
    }

    /// None: in clear.
    fn transport_socket(
        &self,
        mesh: &Mesh,
        client: &ClusterParameters,
    ) -> Option<core::TransportSocket> {
        let settings = self.given.tls_settings.as_ref()?;
        match settings.mode() {
            TlSmode::Disable => None,
            TlSmode::Simple | TlSmode::Mutual => {
                let (pair, root) = client_files(settings);
                let names = (pair.map(|pair| pair.name()), root.map(|root| root.name()));
                let timeout = mesh.initial_fetch_timeout;
                let socket = tls::service_by_name(settings, &names.0, &names.1, timeout, &["h2"]);
                Some(socket)
            }
            TlSmode::IstioMutual => {
                let files = &client.files;
                Some(tls::service(
                    settings,
                    Some((&files.chain, &files.key)),
                    Root::File(&files.root),
                    &["h2"],
                ))
            }
        }
    }
}
