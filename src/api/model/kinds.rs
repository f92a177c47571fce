//! The kinds that discovery acts on: the type of each, and its field in the structs that hold objects of all kinds. One line
//! declares both for the [`World`](super::World) and for the sources, with the code that sets and reads them.

pub use crate::istio::networking::v1alpha3::*;
pub use crate::istio::security::v1beta1::*;

/// Passes the kinds that discovery acts on to a macro: the type of each in [`model::kinds`](crate::model::kinds), and its field.
/// Services are made of the first; the [`World`](crate::model::World) has the others.
#[macro_export]
macro_rules! discovery_kinds {
    ($for_each:ident) => {
        $for_each! {
            services {
                ServiceEntry service_entries;
                WorkloadEntry workload_entries;
            }
            world {
                Sidecar sidecars;
                Gateway gateways;
                VirtualService virtual_services;
                DestinationRule destination_rules;
                EnvoyFilter envoy_filters;
                AuthorizationPolicy authorization_policies;
                PeerAuthentication peer_authentications;
                RequestAuthentication request_authentications;
            }
        }
    };
}
