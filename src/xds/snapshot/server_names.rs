//! Clusters that TLS is led to by its server name.

use std::sync::Arc;

use crate::cluster_names;
use crate::common::service_ports::ServicePort;
use crate::finish::{ClusterParts, Draft};

/// Returns the cluster as TLS is led to it that does not end before it.
pub(super) fn by_server_name(
    mut draft: Draft<ClusterParts>,
    service_port: &ServicePort,
    subset: &str,
) -> Draft<ClusterParts> {
    let name: Arc<str> =
        cluster_names::by_server_name(service_port.port.number, subset, service_port.host()).into();
    let parts = &mut draft.message;
    let cluster = &mut parts.cluster;
    cluster.name = name.to_string();
    cluster.alt_stat_name = String::new();
    // TLS goes through as it is: the cluster neither begins TLS nor reads requests.
    cluster.transport_socket = None;
    cluster.transport_socket_matches = Vec::new();
    if let Some(eds) = &mut cluster.eds_cluster_config {
        eds.service_name = name.to_string();
    }
    if let Some(assignment) = &mut parts.endpoints.load_assignment {
        assignment.cluster_name = name.to_string();
    }
    parts.http = None;
    Draft { name, ..draft }
}
