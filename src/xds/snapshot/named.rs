//! What a proxy is given by name: assignments, and all that a program with gRPC in it asks for.

use std::sync::Arc;

use api::model::{Locality, Resolution};

use super::Assignments;
use super::proxy::{ProxyView, network};
use crate::resources::endpoints::{self, Names, Viewer};
use crate::resources::grpc::{self, Asker, Target};
use crate::resources::locality::Preference;
use crate::resources::outlets::Outlet;
use crate::resources::{clusters, routes};
use crate::view::{Resource, Type};

impl ProxyView {
    /// Where the assignment of a port is, for all who see the same.
    fn assignments_of(&self, outlet: &Outlet) -> &Assignments {
        match self.preference(outlet) {
            Preference::None => &self.parts.assignments,
            Preference::Near(..) | Preference::Shares(_) => &self.parts.near,
        }
    }

    /// Ports and endpoints of which no assignment was made yet.
    pub(super) fn unmade_assignments(&self, names: &[String]) -> usize {
        let snapshot = &self.snapshot;
        let outlets = names
            .iter()
            .filter_map(|name| snapshot.base.outlets.by_name(name));
        outlets
            .filter(|outlet| !self.assignments_of(outlet).has(&outlet.name))
            .map(|outlet| {
                let key = &outlet.service.key;
                let endpoints = snapshot
                    .by_port()
                    .count(&snapshot.world, key, &outlet.port.name);
                endpoints.saturating_add(1)
            })
            .sum()
    }

    /// Ports of all services, with what each of them has that makes more of it: addresses, and names of who may answer. Where
    /// endpoints have listeners of their own, those, too.
    pub(super) fn unmade_of_services(&self) -> usize {
        let snapshot = &self.snapshot;
        let outlets = &snapshot.base.outlets;
        let headless = snapshot.settings.headless.listeners;
        let headless = outlets
            .all
            .iter()
            .filter(|outlet| headless && outlet.has_listeners());
        let endpoints = headless.map(|outlet| {
            let (key, port) = (&outlet.service.key, &outlet.port.name);
            snapshot.by_port().count(&snapshot.world, key, port)
        });
        outlets.size.saturating_add(endpoints.sum())
    }

    pub(super) fn assignment(&self, name: &str) -> Option<Arc<Resource>> {
        let snapshot = &self.snapshot;
        let outlet = snapshot.base.outlets.by_name(name)?;
        if clusters::resolution(outlet, &self.client) != Resolution::Static {
            return None;
        }
        let preference = self.preference(outlet);
        let locality = match preference {
            Preference::None => Locality::default(),
            Preference::Near(..) | Preference::Shares(_) => self.proxy.locality.clone(),
        };
        Some(self.assignments_of(outlet).get(outlet.name.clone(), || {
            let viewer = Viewer {
                families: self.proxy.families,
                network: network(snapshot, &self.proxy, &self.client),
                locality,
                beside: self.client.beside.clone(),
            };
            let groups = endpoints::groups(
                outlet,
                self.endpoints(outlet).into_iter(),
                &viewer,
                Names::LeftOut,
                snapshot.places(),
                &preference,
            );
            Arc::new(endpoints::assignment(&outlet.name, groups).finish())
        }))
    }

    /// A listener has one name of those that a client may write for it.
    pub(super) fn grpc_name(&self, kind: Type, name: &str) -> Option<Arc<str>> {
        let outlets = &self.snapshot.base.outlets;
        if kind != Type::Listener {
            return outlets.by_name(name).map(|outlet| outlet.name.clone());
        }
        Target::read(name)?.is_written(name).then_some(())?;
        self.grpc(kind, name).map(|listener| listener.name.clone())
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
                Type::Listener => grpc::listener(&name, outlet, self.mesh()).finish(),
                Type::Route => routes::grpc(&outlet.name).finish(),
            })
        };
        // What a client could write in any number of ways is not remembered.
        if !usual {
            return Some(make());
        }
        let key = (kind, name.clone(), outlet.name.clone());
        Some(self.parts.clusters.named.get(key, make))
    }
}
