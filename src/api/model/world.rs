//! The input of one snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use prost::Message as _;

use super::{ClusterId, Credentials, Endpoint, Service, ServiceKey, Workload, WorkloadKey, kinds};
use crate::istio::mesh::v1alpha1::{MeshConfig, MeshNetworks};
use crate::security::{JwksSource, KeySet};

/// The endpoints of one service, by the cluster that knows them. A cluster that goes takes its part with it.
pub type EndpointShards = BTreeMap<ClusterId, Arc<[Endpoint]>>;

/// An object of configuration: its identity, and its spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configured<T> {
    pub name: Arc<str>,
    pub namespace: Arc<str>,
    /// Seconds since 1970; `None` is oldest.
    pub created: Option<i64>,
    /// Endpoints near the client come first: an annotation says so.
    pub prefers_close: bool,
    /// An annotation says that a policy is tried and not enforced.
    pub dry_run: bool,
    pub spec: T,
}

/// The annotation of a service that says which of its endpoints come first.
pub const DISTRIBUTION: &str = "networking.istio.io/traffic-distribution";

/// Words that want the endpoints near the client. Those of its own node are in its zone.
const NEAR: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];

/// Returns true if that annotation wants the endpoints near the client. Like Istio, it ignores the case.
#[must_use]
pub fn is_near(annotation: Option<&str>) -> bool {
    annotation.is_some_and(|value| NEAR.iter().any(|near| value.eq_ignore_ascii_case(near)))
}

/// Returns true if the field of a Service does.
#[must_use]
pub fn is_near_by_field(field: Option<&str>) -> bool {
    field.is_some_and(|value| NEAR.contains(&value))
}

/// The annotation of a policy that is tried and not enforced.
pub const DRY_RUN: &str = "istio.io/dry-run";

/// Returns true if that annotation says so, in a word that Go reads as true.
#[must_use]
pub fn is_dry_run(annotation: Option<&str>) -> bool {
    matches!(annotation, Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// Objects of one kind, by namespace and name.
pub type Objects<T> = BTreeMap<(Arc<str>, Arc<str>), Arc<Configured<T>>>;

macro_rules! world {
    (services { $($_kind:ident $_field:ident;)* } world { $($kind:ident $field:ident;)* }) => {
        /// The input of one snapshot, at one moment. Cloning copies pointers; a registry changes its own with
        /// [`Arc::make_mut`] and gives clones away.
        ///
        /// The order of arrival leaves no trace: equal state makes an equal world.
        #[derive(Clone, Debug, PartialEq)]
        pub struct World {
            pub services: Arc<BTreeMap<ServiceKey, Arc<Service>>>,
            /// Endpoints of the services. A service without any may be missing here, and endpoints without a service are not
            /// served.
            pub endpoints: Arc<BTreeMap<ServiceKey, Arc<EndpointShards>>>,
            pub workloads: Arc<BTreeMap<WorkloadKey, Arc<Workload>>>,
            pub mesh: Arc<MeshConfig>,
            pub networks: Arc<MeshNetworks>,
            $(pub $field: Arc<Objects<kinds::$kind>>,)*
            /// Certificates and keys that are complete: a proxy refuses others.
            pub credentials: Arc<Credentials>,
            /// PeerAuthentications that some proxies may still go by, a moment after changes. Servers take every protocol
            /// that one of them lets clients speak, and clients speak the one that all of them take.
            pub earlier_peer_authentications: Vec<Arc<Objects<kinds::PeerAuthentication>>>,
            /// Keys that were fetched. A place that is missing here has none yet.
            pub key_sets: Arc<BTreeMap<JwksSource, KeySet>>,
            /// Addresses of proxies that have no certificates: their endpoints take no mutual TLS, in spite of their labels.
            pub plaintext: Arc<BTreeSet<IpAddr>>,
        }

        impl World {
            /// Returns a world without objects.
            #[must_use]
            pub fn new(mesh: Arc<MeshConfig>) -> Self {
                Self {
                    services: Arc::default(),
                    endpoints: Arc::default(),
                    workloads: Arc::default(),
                    mesh,
                    networks: Arc::default(),
                    $($field: Arc::default(),)*
                    credentials: Arc::default(),
                    earlier_peer_authentications: Vec::new(),
                    key_sets: Arc::default(),
                    plaintext: Arc::default(),
                }
            }

            /// The bytes of each rule, encoded.
            pub fn rule_sizes(&self) -> impl Iterator<Item = usize> {
                let none = std::iter::empty();
                none$(.chain(self.$field.values().map(|rule| rule.spec.encoded_len())))*
            }
        }
    };
}

crate::discovery_kinds!(world);

impl World {
    /// The endpoints of a service, cluster by cluster.
    pub fn endpoints_of(&self, key: &ServiceKey) -> impl Iterator<Item = (&ClusterId, &Endpoint)> {
        self.endpoints
            .get(key)
            .into_iter()
            .flat_map(|shards| shards.iter())
            .flat_map(|(cluster, shard)| shard.iter().map(move |endpoint| (cluster, endpoint)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::EndpointAddress;

    fn endpoint(last: u8) -> Endpoint {
        Endpoint::new(EndpointAddress::Ip([10, 0, 0, last].into()), 80, "http")
    }

    #[test]
    fn endpoints_come_cluster_by_cluster() {
        let key = ServiceKey::new("a.demo.svc.cluster.local", "demo");
        let mut world = World::new(Arc::new(MeshConfig::default()));
        assert_eq!(world.endpoints_of(&key).count(), 0);
        let shards = EndpointShards::from([
            ("west".into(), Arc::from([endpoint(3)])),
            ("east".into(), Arc::from([endpoint(1), endpoint(2)])),
        ]);
        let before = world.clone();
        Arc::make_mut(&mut world.endpoints).insert(key.clone(), Arc::new(shards));
        assert_ne!(world, before);
        assert_eq!(before.endpoints_of(&key).count(), 0);
        let seen: Vec<_> = world
            .endpoints_of(&key)
            .map(|(cluster, endpoint)| format!("{cluster} {}", endpoint.address))
            .collect();
        assert_eq!(seen, ["east 10.0.0.1", "east 10.0.0.2", "west 10.0.0.3"]);
    }
}
