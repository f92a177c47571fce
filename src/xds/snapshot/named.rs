//! What a proxy is given by name: assignments, and all that a program with gRPC in it asks for.

use std::sync::Arc;

use api::model::{Locality, Resolution};

use super::proxy::ProxyView;
use crate::resources::endpoints::{self, Names, Viewer};
use crate::resources::grpc::{self, Asker, Target};
use crate::resources::locality::Preference;
use crate::resources::{clusters, routes};
use crate::view::{Resource, Type};

impl ProxyView {
    pub(super) fn assignment(&self, name: &str) -> Option<Arc<Resource>> {
        let snapshot = &self.snapshot;
        let outlet = snapshot.base.outlets.by_name(name)?;
        if clusters::resolution(outlet, &self.client) != Resolution::Static {
            return None;
        }
        let preference = self.preference(outlet);
        let viewer = Viewer {
            families: self.proxy.families,
            network: snapshot.replaces().then(|| self.proxy.network.clone()),
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
                &snapshot.base.networks,
                &preference,
            );
            Arc::new(endpoints::assignment(outlet, groups))
        }))
    }

    pub(super) fn grpc(&self, kind: Type, name: &str) -> Option<Arc<Resource>> {
        let outlets = &self.snapshot.base.outlets;
        let (outlet, usual) = match kind {
            Type::Endpoint => return self.assignment(name),
            Type::Cluster | Type::Route => (outlets.by_name(name)?, true),
            Type::Listener => {
                let target = Target::read(name)?;
                let asker = Asker {
                    domain: &self.proxy.node.domain,
                    cluster: self.proxy.cluster.as_str(),
                    families: self.proxy.families,
                };
                (target.outlet(outlets, &asker)?, target.is_written(name))
            }
        };
        let name: Arc<str> = name.into();
        let make = || {
            Arc::new(match kind {
                Type::Cluster | Type::Endpoint => self.cluster(outlet),
                Type::Listener => grpc::listener(&name, outlet, self.mesh()),
                Type::Route => routes::grpc(&outlet.name),
            })
        };
        // What a client could write in any number of ways is not remembered.
        if !usual {
            return Some(make());
        }
        let client = (self.client.clone(), self.locality_of_clusters());
        let key = (kind, name.clone(), outlet.name.clone(), client);
        let made = self.snapshot.made.named.get(key, make);
        Some(made)
    }
}
