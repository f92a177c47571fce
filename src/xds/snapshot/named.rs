//! What a proxy is given by name: assignments, and all that a program with gRPC in it asks for.

use std::sync::Arc;

use api::model::{Locality, Resolution};

use super::proxy::ProxyView;
use crate::resources::endpoints::{self, Names, Viewer};
use crate::resources::locality::Preference;
use crate::resources::{clusters, grpc};
use crate::view::{Resource, Type};

impl ProxyView {
    pub(super) fn assignment(&self, name: &str) -> Option<Arc<Resource>> {
        let snapshot = &self.snapshot;
        let outlet = snapshot.base.outlets.by_name(name)?;
        if clusters::resolution(outlet, &self.client) != Resolution::Static {
            return None;
        }
        let networks = snapshot.networks();
        let preference = self.preference(outlet);
        let viewer = Viewer {
            families: self.proxy.families,
            network: networks.map_or_else(|| "".into(), |_| self.proxy.network.clone()),
            locality: match preference {
                Preference::None => Locality::default(),
                Preference::Near(..) | Preference::Shares(_) => self.proxy.locality.clone(),
            },
        };
        let key = (outlet.name.clone(), viewer.clone());
        Some(snapshot.assignments.get(key, || {
            let endpoints = snapshot.world.endpoints_of(&outlet.service.key);
            let groups = endpoints::groups(
                outlet,
                endpoints,
                &viewer,
                Names::LeftOut,
                networks,
                &preference,
            );
            Arc::new(endpoints::assignment(outlet, groups))
        }))
    }

    pub(super) fn grpc(&self, kind: Type, name: &str) -> Option<Arc<Resource>> {
        let outlets = &self.snapshot.base.outlets;
        match kind {
            Type::Cluster => {
                let outlet = outlets.by_name(name)?;
                Some(Arc::new(self.cluster(outlet)))
            }
            Type::Listener => {
                let outlet = grpc::target(name, outlets, &self.proxy.node.domain)?;
                let listener = grpc::listener(&name.into(), outlet, self.mesh());
                Some(Arc::new(listener))
            }
            Type::Endpoint => self.assignment(name),
            Type::Route => self.route(name),
        }
    }
}
