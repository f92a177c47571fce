//! The facts of a resource that a proxy checks. Equal bytes are decoded once for all proxies: the server is expected to send
//! equal ones.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use bytes::Bytes;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use envoy_types::pb::envoy::config::core::v3::{address, socket_address};
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, lb_endpoint};
use envoy_types::pb::envoy::config::listener::v3::{Filter, Listener, filter};
use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, route, route_action};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_connection_manager::RouteSpecifier,
};
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{
    TcpProxy, tcp_proxy::ClusterSpecifier,
};
use prost::Message;

/// The types, in the order in which they go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Cluster,
    Endpoint,
    Listener,
    Route,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Cluster, Self::Endpoint, Self::Listener, Self::Route];

    pub(crate) const fn url(self) -> &'static str {
        match self {
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoint => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        }
    }

    pub(crate) fn of(url: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.url() == url);
        found.ok_or_else(|| format!("a response of type {url:?}"))
    }
}

/// The facts of one resource.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) name: String,
    /// A cluster whose endpoints come by EDS.
    pub(crate) eds: bool,
    /// `address:port` of an assignment.
    pub(crate) endpoints: BTreeSet<String>,
    /// Clusters that a listener or a route configuration sends to.
    pub(crate) clusters: BTreeSet<String>,
    /// Route configurations that a listener asks for.
    pub(crate) routes: BTreeSet<String>,
    /// Names of the routes of a configuration.
    pub(crate) route_names: BTreeSet<String>,
}

/// Facts by bytes.
#[derive(Debug, Default)]
pub(crate) struct Library {
    known: HashMap<(Kind, Bytes), Rc<Facts>>,
}

impl Library {
    pub(crate) fn read(&mut self, kind: Kind, bytes: Bytes) -> Result<Rc<Facts>, String> {
        let key = (kind, bytes);
        if let Some(facts) = self.known.get(&key) {
            return Ok(facts.clone());
        }
        let facts = Facts::of(kind, &key.1).map_err(|error| format!("{kind:?}: {error}"))?;
        let facts = Rc::new(facts);
        self.known.insert(key, facts.clone());
        Ok(facts)
    }

    /// Returns the number of different resources.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }
}

impl Facts {
    fn of(kind: Kind, bytes: &[u8]) -> Result<Self, prost::DecodeError> {
        match kind {
            Kind::Cluster => Cluster::decode(bytes).map(|cluster| Self {
                eds: cluster.cluster_discovery_type
                    == Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
                name: cluster.name,
                ..Self::default()
            }),
            Kind::Endpoint => ClusterLoadAssignment::decode(bytes).map(|assignment| Self {
                endpoints: endpoints(&assignment),
                name: assignment.cluster_name,
                ..Self::default()
            }),
            Kind::Listener => {
                let listener = Listener::decode(bytes)?;
                let mut facts = Self::default();
                let chains = listener
                    .filter_chains
                    .iter()
                    .chain(&listener.default_filter_chain);
                for filter in chains.flat_map(|chain| &chain.filters) {
                    facts.look_at(filter)?;
                }
                facts.name = listener.name;
                Ok(facts)
            }
            Kind::Route => {
                let routes = RouteConfiguration::decode(bytes)?;
                let mut facts = Self::default();
                facts.follow(&routes);
                facts.name = routes.name;
                Ok(facts)
            }
        }
    }

    fn look_at(&mut self, filter: &Filter) -> Result<(), prost::DecodeError> {
        let Some(filter::ConfigType::TypedConfig(config)) = &filter.config_type else {
            return Ok(());
        };
        if config.type_url.ends_with(".HttpConnectionManager") {
            match HttpConnectionManager::decode(&*config.value)?.route_specifier {
                Some(RouteSpecifier::Rds(rds)) => {
                    self.routes.insert(rds.route_config_name);
                }
                Some(RouteSpecifier::RouteConfig(routes)) => self.follow(&routes),
                Some(RouteSpecifier::ScopedRoutes(_)) | None => {}
            }
        } else if config.type_url.ends_with(".TcpProxy")
            && let Some(ClusterSpecifier::Cluster(name)) =
                TcpProxy::decode(&*config.value)?.cluster_specifier
        {
            self.clusters.insert(name);
        }
        Ok(())
    }

    fn follow(&mut self, routes: &RouteConfiguration) {
        let all = routes.virtual_hosts.iter().flat_map(|host| &host.routes);
        let names = all.clone().map(|route| &route.name);
        self.route_names.extend(names.cloned());
        for action in all.filter_map(|route| route.action.as_ref()) {
            if let route::Action::Route(action) = action
                && let Some(route_action::ClusterSpecifier::Cluster(name)) =
                    &action.cluster_specifier
            {
                self.clusters.insert(name.clone());
            }
        }
    }
}

fn endpoints(assignment: &ClusterLoadAssignment) -> BTreeSet<String> {
    let all = assignment
        .endpoints
        .iter()
        .flat_map(|group| &group.lb_endpoints);
    all.filter_map(|endpoint| {
        let lb_endpoint::HostIdentifier::Endpoint(endpoint) = endpoint.host_identifier.as_ref()?
        else {
            return None;
        };
        let address::Address::SocketAddress(at) = endpoint.address.as_ref()?.address.as_ref()?
        else {
            return None;
        };
        let Some(socket_address::PortSpecifier::PortValue(port)) = at.port_specifier else {
            return None;
        };
        Some(format!("{}:{port}", at.address))
    })
    .collect()
}
