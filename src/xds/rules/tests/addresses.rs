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

fn conflict_texts(snapshot: &Snapshot) -> Vec<String> {
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
            let conflicts = conflict_texts(&snapshot);
            let prefix = "t.x.svc.cluster.local:80 is left out: a.demo.svc.cluster.local has it";
            assert!(
                conflicts.iter().any(|one| one.starts_with(prefix)),
                "{conflicts:?}"
            );
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
            "10.96.0.1/32 http_connection_manager",
            "10.96.0.0/12 tcp_proxy"
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

/// A ServiceEntry's addresses are its author's choice: a younger one takes none of an older rule.
#[test]
fn a_rule_for_an_address_keeps_it_from_younger_service_entries() {
    let of = |created: i64| {
        let mut world = world();
        let entry = Written {
            name: "t.x",
            registry: Registry::External,
            created,
            port: (80, "HTTP"),
            addresses: &["10.50.0.1"],
        };
        with_addresses(&mut world, &entry);
        let spec = "hosts: ['10.50.0.1']\nhttp: [{directResponse: {status: 418}}]";
        virtual_service(&mut world, "shop/r", 5, spec);
        let snapshot = snapshot(world);
        let view = snapshot.view(&node("demo", &[]));
        let routes: RouteConfiguration = decoded(&*view, Type::Route, "80");
        let mut hosts = routes.virtual_hosts.into_iter();
        let it = hosts.find(|host| host.domains.iter().any(|one| one == "10.50.0.1"));
        (it.unwrap().name, conflict_texts(&snapshot))
    };
    let (entry, rule) = ("t.x.svc.cluster.local:80", "VirtualService shop/r");
    assert_eq!(
        of(9),
        (
            "10.50.0.1:80".to_owned(),
            ["10.50.0.1", "10.50.0.1:80"]
                .map(|_| format!("{entry} is left out: {rule} has it"))
                .to_vec()
        )
    );
    let lost = format!("10.50.0.1 is left out: {entry} has it");
    for created in [1, 5] {
        assert_eq!(of(created), (entry.to_owned(), vec![lost.clone()]));
    }
}

/// A service of a world: its registry, its age, its port, and its addresses or, where it is headless, those of its endpoints.
struct Written<'a> {
    name: &'a str,
    registry: Registry,
    created: i64,
    port: (u16, &'a str),
    addresses: &'a [&'a str],
}

fn headless(world: &mut World, written: &Written<'_>) {
    let endpoints: Vec<_> = written.addresses.iter().map(|one| (*one, "v1")).collect();
    service(world, written.name, &[written.port], &endpoints);
    let service = named(world, written);
    service.resolution = Resolution::None;
}

fn with_addresses(world: &mut World, written: &Written<'_>) {
    service(world, written.name, &[written.port], &[]);
    let service = named(world, written);
    let addresses = written.addresses.iter().map(|one| one.parse().unwrap());
    service
        .addresses
        .insert("Kubernetes".into(), addresses.collect());
}

fn named<'a>(world: &'a mut World, written: &Written<'_>) -> &'a mut Service {
    let services = Arc::make_mut(&mut world.services);
    let (name, namespace) = written.name.split_once('.').unwrap();
    let host = format!("{name}.{namespace}.svc.cluster.local");
    let service = Arc::make_mut(
        services
            .get_mut(&ServiceKey::new(&host, namespace))
            .unwrap(),
    );
    service.registry = written.registry;
    service.created = Some(written.created);
    service
}

/// Looks at addresses and ranges that the listeners of a proxy cost.
fn looks_at_listeners(world: World) -> usize {
    let view = view(world);
    crate::common::steps::steps(|| drop(view.all(Type::Listener)))
}

/// The statistics of connections to a listener, which are those of its cluster.
fn leads_to(view: &dyn View, name: &str) -> Option<String> {
    use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
    let resource = view.get(Type::Listener, name)?;
    let listener = Listener::decode(&*resource.body).unwrap();
    let filter = &listener.filter_chains.last().unwrap().filters[0];
    let Some(envoy_types::pb::envoy::config::listener::v3::filter::ConfigType::TypedConfig(any)) =
        &filter.config_type
    else {
        panic!("a filter");
    };
    match filter.name.ends_with("tcp_proxy") {
        true => Some(TcpProxy::decode(any.value.as_slice()).unwrap().stat_prefix),
        false => Some("requests".to_owned()),
    }
}

#[test]
fn an_endpoint_of_a_headless_service_is_no_service_entrys() {
    for created in [1, 9] {
        let mut world = world();
        let (pod, port) = (&["10.1.0.7"][..], (9092, "TCP"));
        let kafka = Written {
            name: "kafka.shop",
            registry: Registry::Kubernetes,
            created: 5,
            port,
            addresses: pod,
        };
        headless(&mut world, &kafka);
        let entry = Written {
            name: "t.x",
            registry: Registry::External,
            created,
            ..kafka
        };
        with_addresses(&mut world, &entry);
        let snapshot = snapshot(world);
        let view = snapshot.view(&node("demo", &[]));
        assert_eq!(
            leads_to(&*view, "10.1.0.7_9092").as_deref(),
            Some("outbound|9092||kafka.shop.svc.cluster.local"),
            "{created}"
        );
        assert_eq!(
            conflict_texts(&snapshot),
            [
                "t.x.svc.cluster.local:9092 is left out: kafka.shop.svc.cluster.local has it, which is of Kubernetes"
            ]
        );
    }
}

/// A tenant may write any address into its endpoints, also that of a Service of Kubernetes.
#[test]
fn an_endpoint_takes_no_address_of_a_service_of_kubernetes() {
    for (created, protocol, why) in [
        (1, "TCP", "and here it is an endpoint's"),
        (9, "TCP", "which is older"),
        (1, "HTTP", "and here it is an endpoint's"),
        (9, "HTTP", "which is older"),
    ] {
        let mut world = world();
        let victim = Written {
            name: "v.shop",
            registry: Registry::Kubernetes,
            created: 5,
            port: (9092, protocol),
            addresses: &["10.96.0.7"],
        };
        with_addresses(&mut world, &victim);
        let other = Written {
            name: "h.x",
            created,
            port: (9092, "TCP"),
            ..victim
        };
        headless(&mut world, &other);
        let snapshot = snapshot(world);
        let view = snapshot.view(&node("demo", &[]));
        let own = (protocol == "TCP").then_some("outbound|9092||v.shop.svc.cluster.local");
        assert_eq!(leads_to(&*view, "10.96.0.7_9092").as_deref(), own);
        let message = format!(
            "h.x.svc.cluster.local:9092 is left out: v.shop.svc.cluster.local has it, {why}"
        );
        assert_eq!(conflict_texts(&snapshot), [message]);
    }
}

/// A pod of a headless service `h` with requests, and a ServiceEntry `t` with these addresses.
fn beside_a_pod(registry: Registry, pods: &[&str], addresses: &[&str]) -> World {
    let mut world = world();
    let pods = Written {
        name: "h.shop",
        registry: Registry::Kubernetes,
        created: 5,
        port: (80, "HTTP"),
        addresses: pods,
    };
    headless(&mut world, &pods);
    let other = Written {
        name: "t.x",
        registry,
        created: 1,
        port: (80, "TCP"),
        addresses,
    };
    with_addresses(&mut world, &other);
    world
}

#[test]
fn a_pod_of_a_headless_service_keeps_its_requests() {
    let snapshot = snapshot(beside_a_pod(
        Registry::External,
        &["10.1.0.9"],
        &["10.1.0.9", "10.1.0.10"],
    ));
    let view = snapshot.view(&node("demo", &[]));
    assert!(view.get(Type::Listener, "10.1.0.9_80").is_none());
    assert!(view.get(Type::Listener, "10.1.0.10_80").is_some());
    assert_eq!(
        conflict_texts(&snapshot),
        [
            "t.x.svc.cluster.local:80 is left out: an endpoint of h.shop.svc.cluster.local has it, which is of Kubernetes"
        ]
    );
    let ranges = beside_a_pod(Registry::External, &["10.1.0.9"], &["10.1.0.0/16"]);
    assert_eq!(
        ranges_of(&*super::view(ranges), "0.0.0.0_80"),
        [
            "10.1.0.9/32 http_connection_manager",
            "10.1.0.0/16 tcp_proxy"
        ]
    );
    // A Service of Kubernetes loses its address to nobody's endpoints.
    let world = beside_a_pod(Registry::Kubernetes, &["10.96.0.9"], &["10.96.0.9"]);
    let view = super::view(world);
    assert!(view.get(Type::Listener, "10.96.0.9_80").is_some());
}

/// A service that would come behind stands in front of no pod.
#[test]
fn a_younger_service_at_a_pod_hides_it_from_no_other() {
    let beside = |addresses: &[&str]| {
        let mut world = beside_a_pod(Registry::External, &["10.1.0.9"], addresses);
        let decoy = Written {
            name: "d.x",
            registry: Registry::External,
            created: 9,
            port: (80, "HTTP"),
            addresses: &["10.1.0.9"],
        };
        with_addresses(&mut world, &decoy);
        view(world)
    };
    assert!(
        beside(&["10.1.0.9"])
            .get(Type::Listener, "10.1.0.9_80")
            .is_none()
    );
    let ranges = ranges_of(&*beside(&["10.1.0.0/16"]), "0.0.0.0_80");
    assert!(
        ranges.contains(&"10.1.0.9/32 http_connection_manager".to_owned()),
        "{ranges:?}"
    );
}

/// Endpoints move without a change of their service: what they are held against is made anew.
#[test]
fn a_pod_that_moves_keeps_its_requests() {
    for (addresses, is_full) in [
        (["10.1.0.9", "10.1.0.10"], true),
        (["10.1.0.0/16", "10.2.0.0/16"], true),
        (["10.3.0.9", "10.3.0.10"], false),
    ] {
        let mut world = beside_a_pod(Registry::External, &["10.1.0.9"], &addresses);
        let snapshot = snapshot(world.clone());
        let view = snapshot.view(&node("demo", &[]));
        let before = view.all(Type::Listener).version();
        let key = ServiceKey::new("h.shop.svc.cluster.local", "shop");
        let place = Endpoint::new(EndpointAddress::read("10.1.0.10"), 80, "p80");
        let shards = EndpointShards::from([("Kubernetes".into(), vec![place].into())]);
        Arc::make_mut(&mut world.endpoints).insert(key, Arc::new(shards));
        let changed = std::collections::BTreeSet::from(["h.shop.svc.cluster.local".into()]);
        let after = snapshot.next(world, Some(&changed), None);
        assert_eq!(after.full, is_full, "{addresses:?}");
        let view = after.snapshot.view(&node("demo", &[]));
        let version = view.all(Type::Listener).version();
        assert_eq!(version != before, is_full, "{addresses:?}");
    }
}

/// Each chain of ranges: the first range, and its filter.
fn ranges_of(view: &dyn View, name: &str) -> Vec<String> {
    let listener: Listener = decoded(view, Type::Listener, name);
    let chains = listener.filter_chains.iter().filter_map(|chain| {
        let ranges = &chain.filter_chain_match.as_ref()?.prefix_ranges;
        let range = ranges.first()?;
        let bits = range.prefix_len.unwrap().value;
        let filter = chain.filters[0].name.rsplit('.').next()?;
        Some(format!("{}/{bits} {filter}", range.address_prefix))
    });
    chains.collect()
}

#[test]
fn a_rule_for_ranges_leaves_the_addresses_in_them_their_requests() {
    let of = |subnets: &str, addresses: &[&str]| {
        let mut world = with(Registry::External, "TCP", addresses, "10.6.6.6");
        let spec = format!(
            "hosts: [t.x.svc.cluster.local]\ntcp: [{{match: [{{destinationSubnets: [{subnets}], sourceSubnet: 10.0.0.0/8}}], \
             route: [{{destination: {{host: t.x.svc.cluster.local}}}}]}}]"
        );
        virtual_service(&mut world, "x/r", 1, &spec);
        let snapshot = snapshot(world);
        let view = snapshot.view(&node("demo", &[]));
        (ranges_of(&*view, "0.0.0.0_80"), conflict_texts(&snapshot))
    };
    let own_chain = "10.96.0.1/32 http_connection_manager";
    let (chains, conflicts) = of("10.96.0.1/32", &["240.0.0.0/24"]);
    assert_eq!(chains, ["240.0.0.0/24 tcp_proxy"]);
    assert!(
        conflicts[0].starts_with("1 destinationSubnets of VirtualService x/r are left out"),
        "{conflicts:?}"
    );
    let (chains, conflicts) = of("10.96.0.0/24", &["240.0.0.0/24"]);
    assert_eq!(chains[0], own_chain, "{chains:?}");
    assert_eq!(conflicts, [""; 0]);
    // Its own range says so once.
    let (chains, _) = of("10.96.0.0/24", &["10.96.0.0/12"]);
    assert_eq!(chains.iter().filter(|one| **one == own_chain).count(), 1);
}

/// Many hosts with the same addresses, and many ranges over addresses of others, cost linear work.
#[test]
fn addresses_that_many_hosts_have_are_looked_at_once_for_each() {
    let looks = |hosts: usize, addresses: usize, ranges: usize| {
        let mut world = world();
        let all: Vec<_> = (0..addresses)
            .map(|at| format!("10.7.{}.{}", at / 250, at % 250))
            .collect();
        let all: Vec<_> = all.iter().map(String::as_str).collect();
        let wide: Vec<_> = (0..ranges)
            .map(|at| format!("10.{}.0.0/{}", at % 8, 8 + at % 17))
            .collect();
        let wide: Vec<_> = wide.iter().map(String::as_str).collect();
        for (at, protocol) in (0..hosts).zip(["TCP", "HTTP"].into_iter().cycle()) {
            let one = Written {
                name: &format!("s{at}.x"),
                registry: Registry::External,
                created: 5,
                port: (80, protocol),
                addresses: &all,
            };
            with_addresses(&mut world, &one);
        }
        for at in 0..hosts {
            let one = Written {
                name: &format!("h{at}.x"),
                registry: Registry::Kubernetes,
                created: 5,
                port: (80, "TCP"),
                addresses: &all,
            };
            headless(&mut world, &one);
        }
        let one = Written {
            name: "r.x",
            registry: Registry::External,
            created: 9,
            port: (80, "TCP"),
            addresses: &wide,
        };
        with_addresses(&mut world, &one);
        looks_at_listeners(world)
    };
    let base = looks(4, 100, 20);
    assert!(base > 100, "{base}");
    for (more, what) in [
        (looks(8, 100, 20), "hosts"),
        (looks(4, 200, 20), "addresses"),
        (looks(4, 100, 40), "ranges"),
    ] {
        assert!(more <= 2 * base + 100, "{what}: {base} {more}");
    }
}

#[test]
fn addresses_in_a_range_of_many_services_are_looked_at_once() {
    let looks = |entries: usize| {
        let mut world = world();
        for at in 0..entries {
            let one = Written {
                name: &format!("r{at}.x"),
                registry: Registry::External,
                created: 1,
                port: (80, "TCP"),
                addresses: &["10.0.0.0/8"],
            };
            with_addresses(&mut world, &one);
        }
        let all: Vec<_> = (0..200).map(|at| format!("10.1.0.{at}")).collect();
        let all: Vec<_> = all.iter().map(String::as_str).collect();
        let one = Written {
            name: "h.x",
            registry: Registry::External,
            created: 9,
            port: (80, "HTTP"),
            addresses: &all,
        };
        with_addresses(&mut world, &one);
        looks_at_listeners(world)
    };
    let [some, more] = [20, 40].map(looks);
    assert!(some > 200 && more < some + 200, "{some} {more}");
}
