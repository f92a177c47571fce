//! The inbound side of a sidecar: a cluster, a chain and a listener for each port of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::istio::networking::v1alpha3::{ConnectionPoolSettings, ServerTlsSettings};
use api::model::{Credentials, EndpointAddress, ObjectRef, Protocol, ServiceKey};
use envoy_types::pb::envoy::config::core::v3::{self as core, TrafficDirection};
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, Listener};

use super::chain::{self, Match};
use super::{Frame, INBOUND_PORT, Inspect, ListenAddress, is_proxys, name};
use crate::common::conflict::{Conflict, INBOUND_LISTENER, INVALID_LISTENER, REJECTED_CONFIG};
use crate::common::{tls, wire};
use crate::finish::{ClusterParts, Draft};
use crate::resources::filters::{self, Extras, HttpOptions, ListenerClass, RouteSpecifier};
use crate::resources::instances::Instance;
use crate::resources::mesh::Mesh;
use crate::resources::proxy::Proxy;
use crate::resources::{clusters, routes};
use crate::rules::authorization_policy::Filters;
use crate::rules::destination_rule;
use crate::rules::gateway::secrets::ProxySecrets;
use crate::rules::gateway::tls::RouterCertificates;
use crate::rules::gateway::{self, ServerHandling};
use crate::rules::peer_authentication::{MtlsMode, MtlsModes};

/// The end of the name of a listener that is bound in the place of one that was only intercepted.
const BOUND: &str = "_inbound";

/// One port that the proxy takes for its application.
#[derive(Clone, Debug)]
pub(crate) struct InboundPort {
    /// The address on which connections come in.
    pub(crate) bind: IpAddr,
    pub(crate) port: u16,
    /// A real port; else what is intercepted only.
    pub(crate) bound: bool,
    pub(crate) protocol: Protocol,
    /// `inbound|PORT|PORTNAME|HOST`.
    pub(crate) cluster: Arc<str>,
    pub(crate) host: Arc<str>,
    /// The port in the names of requests: the service's, where no Sidecar has another.
    pub(crate) service_port: u16,
    /// The port of the service whose pool counts here.
    pub(crate) pool_port: u16,
    /// The address and the port of the application.
    pub(crate) place: (EndpointAddress, u16),
    pub(crate) alt_stat_name: String,
    /// TLS that it ends besides the mesh's; it accepts no plain text then.
    pub(crate) tls: Option<Arc<ServerTlsSettings>>,
    /// Limits of what goes on to the application.
    pub(crate) pool: Option<Arc<ConnectionPoolSettings>>,
    /// Rules that have a part in it.
    pub(crate) from: Vec<ObjectRef>,
}

/// All inbound ports, with what a listener of them needs.
pub(crate) struct InboundParameters<'a> {
    pub(crate) proxy: &'a Proxy,
    pub(crate) mesh: &'a Mesh,
    pub(crate) inbound_ports: &'a [InboundPort],
    /// Filters of the policies for requests and connections that come in.
    pub(crate) filters: &'a Filters,
    /// The modes of mutual TLS of its ports.
    pub(crate) mtls_modes: &'a MtlsModes,
}

pub(crate) fn cluster_name(port: u16, port_name: &str, host: &str) -> Arc<str> {
    format!("inbound|{port}|{port_name}|{host}").into()
}

/// Keeps the inbound ports that lead to an application. One to where the proxy itself listens would open its admin page to the
/// network, or lead in a circle, no matter who asked for it. `lost`: the conflicts of those left out.
pub(crate) fn to_applications(
    inbound_ports: Vec<InboundPort>,
    proxy: &Proxy,
    mesh: &Mesh,
    lost: &mut Vec<Conflict>,
) -> Vec<InboundPort> {
    let bound: BTreeSet<(IpAddr, u16)> = inbound_ports
        .iter()
        .filter(|inbound_port| inbound_port.bound)
        .map(|inbound_port| (inbound_port.bind, inbound_port.port))
        .collect();
    let takes = |address: IpAddr, port| {
        // A port that is bound on all addresses is taken on this one, too.
        let (all, all6) = (IpAddr::from([0; 4]), IpAddr::from([0u16; 8]));
        [address, all, all6]
            .iter()
            .any(|bind| bound.contains(&(*bind, port)))
    };
    let is_proxys = |inbound_port: &InboundPort| match &inbound_port.place {
        (EndpointAddress::Ip(address), port) => {
            is_proxys(*port, &proxy.node, mesh) || takes(*address, *port)
        }
        (EndpointAddress::Pipe(_) | EndpointAddress::Name(_), _) => false,
    };
    let (refused, accepted): (Vec<_>, Vec<_>) = inbound_ports.into_iter().partition(is_proxys);
    lost.extend(refused.iter().map(|inbound_port| {
        let (address, port) = &inbound_port.place;
        let message = format!(
            "{} is left out: the proxy itself listens on port {port} of {address}",
            inbound_port.cluster
        );
        let conflict = Conflict::new(INVALID_LISTENER, &*inbound_port.cluster, message);
        // A proxy's own services are those of its namespace.
        let service = ServiceKey::new(&inbound_port.host, &proxy.node.namespace);
        match inbound_port.from.first() {
            Some(sidecar) => conflict.because_of(sidecar),
            None => conflict.of_service(&service),
        }
    }));
    accepted
}

/// The inbound ports of services that the proxy's workload is one of.
pub(crate) fn of_instances(
    instances: &[Instance],
    proxy: &Proxy,
    mesh: &Mesh,
    sniffs: bool,
) -> Vec<InboundPort> {
    let mut known = BTreeSet::new();
    instances
        .iter()
        // The first of two services with one pair of ports has the cluster (discovery.md §10.1).
        .filter(|instance| known.insert((instance.port.number, instance.target)))
        .map(|instance| {
            let service = &instance.service;
            let port = &instance.port;
            InboundPort {
                bind: proxy.address,
                port: instance.target,
                bound: false,
                protocol: declared(port.protocol, sniffs),
                cluster: cluster_name(port.number, &port.name, &service.key.hostname),
                host: service.key.hostname.clone(),
                service_port: port.number,
                pool_port: port.number,
                place: (
                    EndpointAddress::Ip(proxy.families.loopback()),
                    instance.target,
                ),
                alt_stat_name: clusters::stat_name(
                    &mesh.inbound_stat,
                    service,
                    (&port.name, port.number),
                    "",
                ),
                tls: None,
                pool: None,
                from: Vec::new(),
            }
        })
        .collect()
}

/// Conflicts of protocols that one service tells.
const MAX_PER_SERVICE: usize = 20;

/// The conflicts of services whose protocol is not that of a service before them, at one of these ports of the workload.
pub(crate) fn other_protocols(
    instances: &[Instance],
    inbound_ports: &[InboundPort],
    sniffs: bool,
) -> Vec<Conflict> {
    let ports: BTreeSet<u16> = inbound_ports.iter().map(|one| one.port).collect();
    let mut first: BTreeMap<u16, &Instance> = BTreeMap::new();
    let mut lost = Vec::new();
    let mut of_services: BTreeMap<&ServiceKey, usize> = BTreeMap::new();
    for instance in instances
        .iter()
        .filter(|instance| ports.contains(&instance.target))
    {
        let winner = *first.entry(instance.target).or_insert(instance);
        let [own, winning] = [instance, winner].map(|one| declared(one.port.protocol, sniffs));
        // A port that says none asks for none.
        if own != winning && !instance.port.protocol.is_auto() {
            let key = &instance.service.key;
            let of_service = of_services.entry(key).or_default();
            *of_service += 1;
            if *of_service <= MAX_PER_SERVICE {
                lost.push(other_protocol(instance, winner));
            }
        }
    }
    lost
}

fn other_protocol(instance: &Instance, winner: &Instance) -> Conflict {
    let authority = |one: &Instance| format!("{}:{}", one.service.key.hostname, one.port.number);
    let describe = |one: &Instance| match one.port.protocol {
        protocol if protocol.is_auto() => "no protocol",
        protocol => protocol.as_str(),
    };
    let message = format!(
        "{} of {} has no effect on port {} of its workloads: {} {}, and says {}",
        describe(instance),
        authority(instance),
        instance.target,
        authority(winner),
        winner.service.why_first(&instance.service),
        describe(winner)
    );
    let (port, key) = (&instance.port, &instance.service.key);
    let name = cluster_name(port.number, &port.name, &key.hostname);
    Conflict::new(INBOUND_LISTENER, &*name, message).of_service(key)
}

pub(crate) const fn declared(protocol: Protocol, sniffs: bool) -> Protocol {
    if protocol.is_auto() && !sniffs {
        return Protocol::Tcp;
    }
    protocol
}

impl InboundParameters<'_> {
    pub(crate) fn clusters(&self) -> Vec<(&InboundPort, Draft<ClusterParts>)> {
        let mut known = BTreeSet::new();
        self.inbound_ports
            .iter()
            .filter(|inbound_port| known.insert(inbound_port.cluster.clone()))
            .map(|inbound_port| {
                let place: core::Address = match &inbound_port.place {
                    (EndpointAddress::Ip(address), port) => wire::address(*address, *port),
                    (EndpointAddress::Pipe(path) | EndpointAddress::Name(path), _) => {
                        wire::pipe(path, 0)
                    }
                };
                let draft = clusters::inbound(
                    &inbound_port.cluster,
                    self.mesh,
                    inbound_port.protocol,
                    place,
                    inbound_port.alt_stat_name.clone(),
                );
                (inbound_port, draft)
            })
            .collect()
    }

    /// Returns one inbound port for each address and port; of two services on one the first.
    fn listening(&self) -> Vec<&InboundPort> {
        let mut known = BTreeSet::new();
        self.inbound_ports
            .iter()
            .filter(|inbound_port| known.insert((inbound_port.bind, inbound_port.port)))
            .collect()
    }

    /// Names of those that are bound.
    pub(crate) fn bound(&self) -> impl Iterator<Item = String> {
        let inbound_ports = self
            .inbound_ports
            .iter()
            .filter(|inbound_port| inbound_port.bound);
        inbound_ports.map(|inbound_port| name(inbound_port.bind, inbound_port.port))
    }

    /// `is_intercepted`: whether there is a listener of that name for connections that are only intercepted.
    pub(crate) fn listeners(&self, is_intercepted: impl Fn(&str) -> bool) -> Vec<Draft<Listener>> {
        self.listening()
            .into_iter()
            .map(|inbound_port| {
                let sniffs = inbound_port.protocol.is_auto();
                let chains = self.filter_chains_by_mtls_mode(inbound_port, None);
                let mut name = name(inbound_port.bind, inbound_port.port);
                // Envoy 1.40 dies of a listener that is bound where it was not, under one name. A stream removes one that it knows
                // before (`stream::rebinding`); one that came by another stream is told apart by its name.
                if inbound_port.bound && is_intercepted(&name) {
                    name.push_str(BOUND);
                }
                let frame = Frame {
                    name,
                    address: ListenAddress::Port(inbound_port.bind, None, inbound_port.port),
                    direction: TrafficDirection::Inbound,
                    bound: inbound_port.bound,
                    inspect: Inspect {
                        tls: sniffs
                            || inbound_port.tls.is_some()
                            || self.mtls_mode(Some(inbound_port.port)) != MtlsMode::Disable,
                        http: sniffs,
                    },
                    chains,
                    default: None,
                };
                self.draft(frame.listener(self.mesh))
            })
            .collect()
    }

    /// Returns the draft of a listener, with the rules that it is made by.
    pub(crate) fn draft(&self, listener: Listener) -> Draft<Listener> {
        let of_ports = self
            .inbound_ports
            .iter()
            .flat_map(|inbound_port| &inbound_port.from);
        let mut from = self.filters.from.clone();
        for one in of_ports.chain(self.mtls_modes.from()) {
            if !from.contains(one) {
                from.push(one.clone());
            }
        }
        Draft {
            from,
            ..super::draft(listener)
        }
    }

    /// The chains of all ports that are intercepted, each with its port; an address counts no more there. No application is
    /// behind the port where they are caught.
    pub(crate) fn intercepted(&self) -> Vec<FilterChain> {
        let mut known = BTreeSet::new();
        self.inbound_ports
            .iter()
            .filter(|inbound_port| {
                !inbound_port.bound
                    && inbound_port.port != INBOUND_PORT
                    && known.insert(inbound_port.port)
            })
            .flat_map(|inbound_port| {
                self.filter_chains_by_mtls_mode(inbound_port, Some(inbound_port.port))
            })
            .collect()
    }

    /// Returns true if [`Self::intercepted`] has chains for a port.
    pub(crate) fn intercepts(&self, port: u16) -> bool {
        let mut inbound_ports = self.inbound_ports.iter();
        inbound_ports.any(|inbound_port| !inbound_port.bound && inbound_port.port == port)
    }

    pub(crate) fn sniffs(&self) -> bool {
        self.inbound_ports
            .iter()
            .any(|inbound_port| !inbound_port.bound && inbound_port.protocol.is_auto())
    }

    /// The mode of a port; `None`: any port without a policy of its own. A permissive port of a proxy without certificates takes
    /// plain text alone, which loses nothing.
    pub(crate) fn mtls_mode(&self, port: Option<u16>) -> MtlsMode {
        let mode = self.mtls_modes.of_server(port);
        if mode == MtlsMode::Permissive && self.proxy.node.without_certificates {
            return MtlsMode::Disable;
        }
        mode
    }

    fn filter_chains_by_mtls_mode(
        &self,
        inbound_port: &InboundPort,
        port: Option<u16>,
    ) -> Vec<FilterChain> {
        let matching = Match::any().port(port);
        let policies = if inbound_port.protocol.is_auto() {
            &self.filters.unread
        } else {
            &self.filters.tcp
        };
        let pool = inbound_port.pool.as_deref();
        let tcp = || self.tcp_of(policies, &inbound_port.cluster, pool);
        let mode = self.mtls_mode(Some(inbound_port.port));
        let takes_both = mode == MtlsMode::Permissive;
        let plain = || {
            if inbound_port.protocol.is_http() {
                vec![matching.clone().chain(self.http(inbound_port))]
            } else if inbound_port.protocol.is_auto() {
                chain::sniffed(&matching, self.http(inbound_port), tcp())
            } else if takes_both {
                // Beside the mesh's TLS the application's own is taken as it is.
                vec![
                    matching.clone().tls().chain_of(tcp()),
                    matching.clone().chain_of(tcp()),
                ]
            } else {
                vec![matching.clone().chain_of(tcp())]
            }
        };
        let http = inbound_port.protocol.is_http();
        let secured = |matching: Match| {
            let filters = if http {
                vec![self.http(inbound_port)]
            } else {
                tcp()
            };
            let socket = tls::server(&self.proxy.node.server, http, self.mesh.oldest_tls);
            chain::secured(matching.chain_of(filters), socket)
        };
        if let Some(settings) = &inbound_port.tls
            // Under STRICT the mesh's TLS is the only one; `lost_tls` tells it at the Sidecar.
            && mode != MtlsMode::Strict
        {
            let filters = if http {
                vec![self.http(inbound_port)]
            } else {
                tcp()
            };
            let own = self.own_tls(settings, http, &matching, filters);
            let of_mesh = takes_both.then(|| secured(matching.clone().mesh_tls()));
            return of_mesh.into_iter().chain([own]).collect();
        }
        match mode {
            MtlsMode::Strict => vec![secured(matching.clone().tls())],
            MtlsMode::Permissive => {
                // ALPN `istio` tells the mesh's TLS from the application's own, which goes on as it is.
                let mut chains = vec![secured(matching.clone().mesh_tls())];
                chains.extend(plain());
                chains
            }
            MtlsMode::Disable => plain(),
        }
    }

    fn own_socket(
        &self,
        settings: &ServerTlsSettings,
        ends: ServerHandling,
    ) -> Result<core::TransportSocket, String> {
        let own = RouterCertificates {
            files: &self.proxy.node.server,
            are_missing: self.proxy.node.without_certificates,
            // A Sidecar names files alone.
            secrets: ProxySecrets {
                all: &Credentials::new(),
                namespace: &self.proxy.node.namespace,
                is_trusted: false,
            },
            initial_fetch_timeout: self.mesh.initial_fetch_timeout,
        };
        gateway::tls::socket(settings, ends, own)
    }

    /// The conflicts of policies with ports without a protocol, whose bytes may be requests that no filter of requests sees. Connections
    /// to ports that are no service's have the same filters, and every proxy takes them: that is not reported.
    pub(crate) fn unread_requests(&self) -> Vec<Conflict> {
        let mut listening = self.listening().into_iter();
        if listening.any(|inbound_port| inbound_port.protocol.is_auto()) {
            self.filters.of_unread.clone()
        } else {
            Vec::new()
        }
    }

    /// The conflicts of TLS that a Sidecar wants to end and does not.
    pub(crate) fn lost_tls(&self) -> Vec<Conflict> {
        let all = self.inbound_ports.iter();
        let all = all.filter_map(|inbound_port| {
            Some((
                inbound_port,
                inbound_port.tls.as_ref()?,
                inbound_port.from.first()?,
            ))
        });
        let lost = all.filter_map(|(inbound_port, settings, from)| {
            let why = match self.mtls_mode(Some(inbound_port.port)) {
                MtlsMode::Strict => {
                    "has no effect: a policy requires mutual TLS of the mesh there".to_owned()
                }
                MtlsMode::Permissive | MtlsMode::Disable => {
                    let why = self.own_socket(settings, ServerHandling::Tls).err()?;
                    format!("denies all connections: {why}")
                }
            };
            let message = format!("the tls of {from} on {} {why}", inbound_port.port);
            let key = format!("{} tls", inbound_port.cluster);
            Some(Conflict::new(REJECTED_CONFIG, key, message).because_of(from))
        });
        lost.collect()
    }

    /// TLS that a Sidecar ends for clients that are not of the mesh. If it cannot, the chain lets no client in.
    fn own_tls(
        &self,
        settings: &ServerTlsSettings,
        http: bool,
        matching: &Match,
        filters: Vec<Filter>,
    ) -> FilterChain {
        let ends = if http {
            ServerHandling::Https
        } else {
            ServerHandling::Tls
        };
        match self.own_socket(settings, ends) {
            Ok(socket) => chain::secured(matching.clone().tls().chain_of(filters), socket),
            Err(_) => matching
                .clone()
                .chain(filters::tcp(self.mesh, clusters::BLACK_HOLE)),
        }
    }

    /// Builds the filters for connections to ports that are no service's, where nothing reads requests.
    pub(crate) fn passed_through(&self, cluster: &str) -> Vec<Filter> {
        self.tcp_of(&self.filters.unread, cluster, None)
    }

    fn tcp_of(
        &self,
        policies: &[Filter],
        cluster: &str,
        pool: Option<&ConnectionPoolSettings>,
    ) -> Vec<Filter> {
        let mut filters = policies.to_vec();
        let mut proxy = filters::tcp_proxy_to(self.mesh, cluster, &[(cluster.into(), 0)]);
        destination_rule::limit_connections(&mut proxy, pool);
        filters.push(filters::tcp_filter(&proxy));
        filters
    }

    fn http(&self, inbound_port: &InboundPort) -> Filter {
        let options = HttpOptions {
            idle_timeout: self.proxy.node.idle_timeout,
            http10: self.proxy.node.http10,
        };
        let routes = routes::inbound(
            &inbound_port.cluster,
            &inbound_port.host,
            inbound_port.service_port,
        );
        filters::http(
            self.mesh,
            options,
            format!("inbound_{}", name(inbound_port.bind, inbound_port.port)),
            RouteSpecifier::Inside(Box::new(routes)),
            Extras {
                first: &self.filters.http,
                grpc_web: inbound_port.protocol == Protocol::GrpcWeb,
                grpc_stats: inbound_port.protocol == Protocol::Grpc,
                class: ListenerClass::SidecarInbound,
                ..Extras::default()
            },
        )
    }
}
