//! Addresses that one namespace's objects may not take from services of another.

use api::model::{Address, Network};
use envoy_types::pb::envoy::config::listener::v3::Listener;

use super::*;

/// The service `a` of Kubernetes at an address, and another one of a namespace `x` with these addresses and endpoints.
fn with(registry: Registry, protocol: &str, addresses: &[&str], endpoint: &str) -> World {
    let mut world = world();
    service(&mut world, "t.x", &[(80, protocol)], &[(endpoint, "v1")]);
    let services = Arc::make_mut(&mut world.services);
    let mut set = |name: &str, places: Vec<Address>| {
        let key = services.keys().find(|key| key.hostname.starts_with(name));
        let key = key.unwrap().clone();
        let service = Arc::make_mut(services.get_mut(&key).unwrap());
        service.addresses.insert("Kubernetes".into(), places);
        service.created = Some(if name == "a." { 1 } else { 2 });
        if name == "t." {
            service.registry = registry;
            if addresses.is_empty() {
                service.resolution = Resolution::None;
            }
        }
    };
    set("a.", vec![Address::Plain("10.96.0.1".parse().unwrap())]);
    let of_other = addresses.iter().map(|written| match written.parse() {
        Ok(address) => Address::Plain(address),
        Err(_) => Address::Range(written.parse::<Network>().unwrap()),
    });
    set("t.", of_other.collect());
    world
}

fn told(snapshot: &Snapshot) -> Vec<String> {
    let all = snapshot.conflicts().into_iter();
    all.map(|one| one.message).collect()
}

#[test]
fn an_address_of_a_service_with_requests_has_no_listener_of_another() {
    for registry in [Registry::External, Registry::Kubernetes] {
        for protocol in ["TCP", "TLS", ""] {
            let snapshot = snapshot(with(registry, protocol, &["10.96.0.1"], "10.6.6.6"));
            let view = snapshot.view(&node("demo", &[]));
            assert!(
                view.get(Type::Listener, "10.96.0.1_80").is_none(),
                "{registry:?} {protocol}"
            );
            let told = told(&snapshot);
            let words = "t.x.svc.cluster.local:80 is left out: a.demo.svc.cluster.local has it";
            assert!(told.iter().any(|one| one.starts_with(words)), "{told:?}");
        }
    }
    // Elsewhere it has its own.
    let view = view(with(Registry::External, "TCP", &["10.96.0.2"], "10.6.6.6"));
    assert!(view.get(Type::Listener, "10.96.0.2_80").is_some());
}

#[test]
fn an_endpoint_at_an_address_of_a_service_has_no_listener() {
    let view = view(with(Registry::Kubernetes, "TCP", &[], "10.96.0.1"));
    assert!(view.get(Type::Listener, "10.96.0.1_80").is_none());
}

#[test]
fn a_range_leaves_the_addresses_in_it_their_requests() {
    let view = view(with(
        Registry::External,
        "TCP",
        &["10.96.0.0/12"],
        "10.6.6.6",
    ));
    let listener: Listener = decoded(&*view, Type::Listener, "0.0.0.0_80");
    let chains = listener.filter_chains.iter().filter_map(|chain| {
        let ranges = &chain.filter_chain_match.as_ref()?.prefix_ranges;
        let range = ranges.first()?;
        let bits = range.prefix_len.unwrap().value;
        let filter = chain.filters[0].name.rsplit('.').next()?;
        Some(format!("{}/{bits} {filter}", range.address_prefix))
    });
    let chains: Vec<_> = chains.collect();
    assert_eq!(
        chains,
        [
            "10.96.0.0/12 tcp_proxy",
            "10.96.0.1/32 http_connection_manager"
        ]
    );
}

#[test]
fn a_rule_of_another_namespace_takes_no_address_of_a_service() {
    let host = |namespace: &str| {
        let mut world = with(Registry::External, "TCP", &["10.96.0.9"], "10.6.6.6");
        let spec = "hosts: ['10.96.0.1']\nhttp: [{directResponse: {status: 418}}]";
        virtual_service(&mut world, &format!("{namespace}/r"), 1, spec);
        let view = view(world);
        let routes: RouteConfiguration = decoded(&*view, Type::Route, "80");
        let mut hosts = routes.virtual_hosts.into_iter();
        let it = hosts.find(|host| host.domains.iter().any(|one| one == "10.96.0.1"));
        it.unwrap().name
    };
    assert_eq!(host("x"), "a.demo.svc.cluster.local:80");
    assert_eq!(host("demo"), "10.96.0.1:80");
}
