//! Clusters that TLS is led to by its server name, and the names that clients of the mesh say.

use std::sync::Arc;

use crate::common::service_ports::ServicePort;
use crate::finish::{ClusterParts, Draft};

/// In front of the name of a cluster that TLS is led to by its server name.
const BY_SERVER_NAME: &str = "outbound_.";

/// The server name that clients of the mesh say to a port of a service, or to a subset of its endpoints.
fn server_name(service_port: &ServicePort, subset: &str) -> Arc<str> {
    let (port, host) = (service_port.port.number, service_port.host());
    format!("{BY_SERVER_NAME}{port}_.{subset}_.{host}").into()
}

/// The port, the subset and the host that such a name means.
pub(super) fn of_server_name(name: &str) -> Option<(u16, &str, &str)> {
    let mut parts = name.strip_prefix(BY_SERVER_NAME)?.splitn(3, "_.");
    let port = parts.next()?.parse().ok()?;
    Some((port, parts.next()?, parts.next()?))
}

/// Returns the cluster as TLS is led to it that does not end before it.
pub(super) fn by_server_name(
    mut draft: Draft<ClusterParts>,
    service_port: &ServicePort,
    subset: &str,
) -> Draft<ClusterParts> {
    let name = server_name(service_port, subset);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_name_means_a_cluster() {
        for (name, cluster) in [
            ("outbound_.80_._.a.demo", Some((80, "", "a.demo"))),
            ("outbound_.80_.v1_.a.demo", Some((80, "v1", "a.demo"))),
            ("outbound|80||a.demo", None),
            ("outbound_.x_._.a.demo", None),
            ("outbound_.80_.a.demo", None),
            ("a.demo", None),
        ] {
            assert_eq!(of_server_name(name), cluster, "{name}");
        }
    }
}
