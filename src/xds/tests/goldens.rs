//! The resources of each kind of proxy, written down for a reader: one line for each cluster, chain, host and endpoint.
//!
//! `GOLDENS=write cargo test -p gudgeon-xds --test goldens` writes them anew.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    deprecated,
    reason = "a test may panic, and reads files"
)]

mod support;

use std::fmt::Write as _;
use std::path::Path;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType, LbPolicy,
};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, lb_endpoint};
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener, filter};
use envoy_types::pb::envoy::config::route::v3::{Route, RouteConfiguration, route, route_action};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_connection_manager::RouteSpecifier,
};
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy};
use envoy_types::pb::google::protobuf::value::Kind;
use prost::Message;
use xds::snapshot::Snapshot;
use xds::view::{Type, View};

fn place(address: Option<&core::Address>) -> String {
    match address.and_then(|address| address.address.as_ref()) {
        Some(core::address::Address::SocketAddress(socket)) => {
            let Some(core::socket_address::PortSpecifier::PortValue(port)) = socket.port_specifier
            else {
                panic!("a port");
            };
            format!("{}:{port}", socket.address)
        }
        Some(core::address::Address::Pipe(pipe)) => pipe.path.clone(),
        _ => String::new(),
    }
}

fn endpoints(text: &mut String, assignment: &ClusterLoadAssignment) {
    for group in &assignment.endpoints {
        let locality = group.locality.as_ref().map_or_else(String::new, |at| {
            format!(" {}/{}/{}", at.region, at.zone, at.sub_zone)
        });
        let weight = group.load_balancing_weight.map_or(0, |weight| weight.value);
        writeln!(
            text,
            "  group{locality} priority {} weight {weight}",
            group.priority
        )
        .unwrap();
        for endpoint in &group.lb_endpoints {
            let Some(lb_endpoint::HostIdentifier::Endpoint(at)) = &endpoint.host_identifier else {
                panic!("an endpoint");
            };
            let weight = endpoint
                .load_balancing_weight
                .map_or(0, |weight| weight.value);
            let mut known: Vec<String> = Vec::new();
            for (filter, object) in endpoint
                .metadata
                .iter()
                .flat_map(|metadata| &metadata.filter_metadata)
            {
                for (name, value) in &object.fields {
                    let Some(Kind::StringValue(value)) = &value.kind else {
                        panic!("text");
                    };
                    known.push(format!(" {filter}.{name}={value}"));
                }
            }
            known.sort();
            writeln!(
                text,
                "    {} weight {weight}{}",
                place(at.address.as_ref()),
                known.concat()
            )
            .unwrap();
        }
    }
}

/// Returns the way in which it chooses among endpoints, where rules say so.
fn balancing(cluster: &Cluster) -> Vec<String> {
    let balancer = LbPolicy::try_from(cluster.lb_policy).unwrap();
    let usual = matches!(balancer, LbPolicy::RoundRobin | LbPolicy::ClusterProvided);
    let balancer = (!usual).then(|| balancer.as_str_name().to_owned());
    let detection = cluster.outlier_detection.as_ref();
    let detection = detection.map(|_| "ejects".to_owned());
    balancer.into_iter().chain(detection).collect()
}

fn cluster(text: &mut String, cluster: &Cluster) {
    let Some(ClusterDiscoveryType::Type(kind)) = cluster.cluster_discovery_type else {
        panic!("a type");
    };
    let kind = DiscoveryType::try_from(kind).unwrap().as_str_name();
    let mut notes: Vec<String> = Vec::new();
    if !cluster.typed_extension_protocol_options.is_empty() {
        let any = cluster
            .typed_extension_protocol_options
            .values()
            .next()
            .unwrap();
        let options =
            envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions::decode(
                any.value.as_slice(),
            );
        let printed = format!("{:?}", options.unwrap().upstream_protocol_options.unwrap());
        notes.push(printed.split('(').next().unwrap().to_owned());
    }
    notes.extend(balancing(cluster));
    if !cluster.alt_stat_name.is_empty() {
        notes.push(format!("stat={}", cluster.alt_stat_name));
    }
    if let Some(source) = cluster
        .upstream_bind_config
        .as_ref()
        .and_then(|bind| bind.source_address.as_ref())
    {
        notes.push(format!("from={}", source.address));
    }
    if cluster.dns_refresh_rate.is_some() {
        notes.push(format!("family={}", cluster.dns_lookup_family));
    }
    notes.extend(
        cluster
            .transport_socket_matches
            .iter()
            .map(|one| one.name.clone()),
    );
    notes.extend(
        cluster
            .common_lb_config
            .is_some()
            .then(|| "weighted".to_owned()),
    );
    notes.extend(
        cluster
            .upstream_connection_options
            .is_some()
            .then(|| "keepalive".to_owned()),
    );
    notes.extend(
        cluster
            .circuit_breakers
            .is_none()
            .then(|| "limited".to_owned()),
    );
    notes.extend(cluster.transport_socket.as_ref().map(|_| "TLS".to_owned()));
    writeln!(text, "{} {kind} {}", cluster.name, notes.join(" ")).unwrap();
    if let Some(assignment) = &cluster.load_assignment {
        endpoints(text, assignment);
    }
}

/// Returns the destination of a connection.
fn does(chain: &FilterChain) -> String {
    let (only, before) = chain.filters.split_last().unwrap();
    let before = before
        .iter()
        .map(|filter| filter.name.rsplit('.').next().unwrap());
    let before: String = before.map(|name| format!("{name}, ")).collect();
    let Some(filter::ConfigType::TypedConfig(any)) = &only.config_type else {
        panic!("a filter");
    };
    if only.name.ends_with("tcp_proxy") {
        let proxy = TcpProxy::decode(any.value.as_slice()).unwrap();
        let cluster = match proxy.cluster_specifier.unwrap() {
            tcp_proxy::ClusterSpecifier::Cluster(cluster) => cluster,
            tcp_proxy::ClusterSpecifier::WeightedClusters(all) => {
                let all = all.clusters.iter();
                let all = all.map(|one| format!("{} {}", one.weight, one.name));
                all.collect::<Vec<_>>().join(" + ")
            }
        };
        format!(
            "{before}tcp {cluster}{}",
            if proxy.access_log.is_empty() {
                ""
            } else {
                " logged"
            }
        )
    } else {
        let manager = HttpConnectionManager::decode(any.value.as_slice()).unwrap();
        let filters: Vec<_> = manager
            .http_filters
            .iter()
            .map(|filter| filter.name.rsplit('.').next().unwrap())
            .collect();
        let routes = match manager.route_specifier {
            Some(RouteSpecifier::Rds(rds)) => format!("rds {}", rds.route_config_name),
            Some(RouteSpecifier::RouteConfig(routes)) => format!("routes {}", routes.name),
            other => panic!("{other:?}"),
        };
        let logged = if manager.access_log.is_empty() {
            ""
        } else {
            " logged"
        };
        let traced = if manager.tracing.is_some() {
            " traced"
        } else {
            ""
        };
        format!(
            "http {routes} as {} {}{logged}{traced}",
            manager.stat_prefix,
            filters.join(",")
        )
    }
}

fn chain(text: &mut String, word: &str, chain: &FilterChain) {
    let mut wants = Vec::new();
    if let Some(matching) = &chain.filter_chain_match {
        wants.extend(
            matching
                .destination_port
                .map(|port| format!("port {}", port.value)),
        );
        for range in &matching.prefix_ranges {
            wants.push(format!(
                "{}/{}",
                range.address_prefix,
                range.prefix_len.unwrap().value
            ));
        }
        wants.extend(
            matching
                .server_names
                .iter()
                .map(|name| format!("sni {name}")),
        );
        if !matching.transport_protocol.is_empty() {
            wants.push(matching.transport_protocol.clone());
        }
        wants.extend(
            (!matching.application_protocols.is_empty())
                .then(|| format!("{:?}", matching.application_protocols)),
        );
    }
    let does = does(chain);
    let secured = if chain.transport_socket.is_some() {
        "TLS "
    } else {
        ""
    };
    writeln!(text, "  {word}{} -> {secured}{does}", wants.join(" ")).unwrap();
}

fn listener(text: &mut String, listener: &Listener) {
    let mut notes = vec![place(listener.address.as_ref())];
    notes.extend(
        listener
            .additional_addresses
            .iter()
            .map(|more| place(more.address.as_ref())),
    );
    notes.push(
        core::TrafficDirection::try_from(listener.traffic_direction)
            .unwrap()
            .as_str_name()
            .to_owned(),
    );
    let bound = listener.bind_to_port.is_none_or(|bound| bound.value);
    notes.extend(bound.then(|| "bound".to_owned()));
    notes.extend(listener.use_original_dst.map(|_| "original_dst".to_owned()));
    notes.extend(listener.transparent.map(|_| "transparent".to_owned()));
    notes.extend(
        listener
            .listener_filters
            .iter()
            .map(|one| one.name.rsplit('.').next().unwrap().to_owned()),
    );
    writeln!(text, "{} {}", listener.name, notes.join(" ")).unwrap();
    for one in &listener.filter_chains {
        chain(text, "", one);
    }
    if let Some(default) = &listener.default_filter_chain {
        chain(text, "else", default);
    }
}

fn goes(one: &Route) -> String {
    match &one.action {
        Some(route::Action::Route(action)) => match &action.cluster_specifier {
            Some(route_action::ClusterSpecifier::Cluster(cluster)) => cluster.clone(),
            Some(route_action::ClusterSpecifier::WeightedClusters(weighted)) => {
                let all = weighted.clusters.iter();
                let all = all.map(|one| format!("{} {}", one.weight.unwrap().value, one.name));
                all.collect::<Vec<_>>().join(" + ")
            }
            other => panic!("{other:?}"),
        },
        Some(route::Action::DirectResponse(response)) => response.status.to_string(),
        Some(route::Action::Redirect(redirect)) => format!("redirect {}", redirect.host_redirect),
        other => panic!("{other:?}"),
    }
}

fn routes(text: &mut String, routes: &RouteConfiguration) {
    writeln!(text, "{}", routes.name).unwrap();
    for host in &routes.virtual_hosts {
        let domains = host.domains.join(" ");
        if let [only] = host.routes.as_slice() {
            writeln!(text, "  {} -> {}: {domains}", host.name, goes(only)).unwrap();
            continue;
        }
        writeln!(text, "  {}: {domains}", host.name).unwrap();
        for one in &host.routes {
            let matching = one.r#match.as_ref().unwrap();
            let path = matching.path_specifier.as_ref().unwrap();
            let mut filters: Vec<_> = one.typed_per_filter_config.keys().collect();
            filters.sort();
            writeln!(
                text,
                "    {} {path:?} headers {} -> {} {filters:?}",
                one.name,
                matching.headers.len(),
                goes(one)
            )
            .unwrap();
        }
    }
}

fn decoded<M: Message + Default>(view: &dyn View, kind: Type) -> Vec<M> {
    let set = view.all(kind);
    set.iter()
        .map(|resource| M::decode(&*resource.body).unwrap())
        .collect()
}

fn summary(snapshot: &Snapshot, view: &dyn View) -> String {
    let mut text = "# Clusters\n".to_owned();
    for one in decoded::<Cluster>(view, Type::Cluster) {
        cluster(&mut text, &one);
    }
    text.push_str("\n# Endpoints\n");
    for one in decoded::<ClusterLoadAssignment>(view, Type::Endpoint) {
        writeln!(text, "{}", one.cluster_name).unwrap();
        endpoints(&mut text, &one);
    }
    text.push_str("\n# Listeners\n");
    for one in decoded::<Listener>(view, Type::Listener) {
        listener(&mut text, &one);
    }
    text.push_str("\n# Routes\n");
    for one in decoded::<RouteConfiguration>(view, Type::Route) {
        routes(&mut text, &one);
    }
    text.push_str("\n# Left out\n");
    for conflict in snapshot.conflicts() {
        writeln!(
            text,
            "{} {}: {}",
            conflict.metric, conflict.key, conflict.message
        )
        .unwrap();
    }
    text
}

#[test]
fn every_kind_of_proxy_is_given_what_is_written_down() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    let write = std::env::var_os("GOLDENS").is_some_and(|word| word == "write");
    let mut wrong = Vec::new();
    for row in support::rows("/etc/certs") {
        let snapshot = Snapshot::new(row.world, support::settings());
        let found = summary(&snapshot, &*snapshot.view(&row.node));
        let path = folder.join(format!("{}.txt", row.name));
        if write {
            std::fs::write(&path, &found).unwrap();
            continue;
        }
        let wanted = std::fs::read_to_string(&path).unwrap();
        if wanted != found {
            let line = wanted
                .lines()
                .zip(found.lines())
                .position(|(one, other)| one != other);
            wrong.push(format!(
                "{}: line {:?}\n{found}",
                row.name,
                line.map(|line| line + 1)
            ));
        }
    }
    assert!(!write, "written: read them, and run again");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
