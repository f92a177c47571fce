//! Ports on which the proxy itself listens, and who else wants them.

use super::*;
use crate::common::conflict::HTTP_OVER_HTTPS;

const MODES: [&str; 2] = ["REDIRECT", "TPROXY"];

fn keys(snapshot: &Snapshot) -> Vec<String> {
    invalid(snapshot).into_iter().map(|(key, ..)| key).collect()
}

/// Envoy compares addresses whether a listener is bound or not: one of a service in the place of a listener of the proxy's own
/// would take all interception away. What has an address of its own, and what nobody else has, is served.
#[test]
fn no_service_shares_a_port_of_envoys_own_listeners() {
    let mut world = world("proxyListenPort: 16001\n");
    let own = [15001, 15006, 15090, 16001];
    let of_all = |word: &'static str| own.map(|port| (port, word));
    for (name, word, addresses) in [
        ("http", "HTTP", &["10.9.0.1"][..]),
        ("range", "TCP", &["10.8.0.0/16"]),
        ("tls", "TLS", &["10.7.0.0/16"]),
        ("bare", "TCP", &[]),
        ("auto", "", &[]),
    ] {
        let mut service = service(name, &of_all(word), Resolution::Static);
        at(&mut service, addresses);
        add(&mut world, service, Vec::new());
    }
    let mut plain = service("plain", &of_all("TCP"), Resolution::Static);
    at(&mut plain, &["10.9.0.2"]);
    add(&mut world, plain, Vec::new());
    let mut both = service("both", &[(15006, "TCP")], Resolution::Static);
    at(&mut both, &["10.9.0.3", "10.6.0.0/16"]);
    add(&mut world, both, Vec::new());
    let others = [(15000, "HTTP"), (15020, "HTTP"), (15021, "TCP")];
    add(
        &mut world,
        service("others", &others, Resolution::Static),
        Vec::new(),
    );
    let mut left_out: Vec<_> = ["auto", "bare", "http", "range", "tls"]
        .iter()
        .flat_map(|name| own.map(|port| format!("outbound|{port}||{name}.demo.svc.cluster.local")))
        .chain(["outbound|15006||both.demo.svc.cluster.local".to_owned()])
        .collect();
    left_out.sort();
    for mode in MODES {
        let snapshot = Snapshot::new(world.clone(), Arc::new(Settings::default()));
        let view = snapshot.view(&node(FIRST, mode));
        assert_eq!(
            names(&*view, Type::Listener),
            "0.0.0.0_15000 0.0.0.0_15020 0.0.0.0_15021 10.0.0.1_15000 10.0.0.1_15020 10.0.0.1_15021 \
             10.9.0.2_15001 10.9.0.2_15006 10.9.0.2_15090 10.9.0.2_16001 10.9.0.3_15006 virtualInbound virtualOutbound",
            "{mode}"
        );
        assert_eq!(keys(&snapshot), left_out, "{mode}");
    }
}

/// A port that is only intercepted has no place on all addresses: it would be in that of the services of its port, or of the
/// listener where traffic is caught.
#[test]
fn an_ingress_that_is_not_bound_is_not_on_all_addresses() {
    for bind in ["0.0.0.0", "'::'"] {
        let mut world = world("");
        let b = service("b", &[(80, "HTTP")], Resolution::Static);
        add(&mut world, b, Vec::new());
        let bind = format!(", bind: {bind}");
        let inbound_ports = [80, 15001, 15006, 15090].map(|number| inbound_port(number, &bind));
        sidecar(&mut world, &format!("ingress:\n{}", inbound_ports.concat()));
        for mode in MODES {
            let snapshot = Snapshot::new(world.clone(), Arc::new(Settings::default()));
            let view = snapshot.view(&node(FIRST, mode));
            assert_eq!(
                names(&*view, Type::Listener),
                "0.0.0.0_80 10.0.0.1_15001 10.0.0.1_15006 10.0.0.1_15090 10.0.0.1_80 virtualInbound virtualOutbound"
            );
            assert_eq!(direction(&*view, "0.0.0.0_80"), TrafficDirection::Outbound);
            assert_eq!(direction(&*view, "10.0.0.1_80"), TrafficDirection::Inbound);
            assert_eq!(invalid(&snapshot), []);
        }
    }
    // What is bound is where somebody wants it.
    let mut world = world("");
    let everywhere = inbound_port(9080, ", bind: 0.0.0.0, captureMode: NONE");
    sidecar(&mut world, &format!("ingress:\n{everywhere}"));
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    for (id, mode) in [(FIRST, "REDIRECT"), (CLIENT, "NONE")] {
        let view = snapshot.view(&node(id, mode));
        assert!(view.get(Type::Listener, "0.0.0.0_9080").is_some(), "{mode}");
    }
}

/// Envoy 1.40 dies where a listener of one name turns from outbound and not bound to inbound and bound.
#[test]
fn an_ingress_that_is_bound_takes_the_place_of_services_under_another_name() {
    let mut world = world("");
    for (name, port) in [("b", 85), ("c", 86)] {
        let mut service = service(name, &[(port, "HTTP")], Resolution::Static);
        if name == "c" {
            service = self::service(name, &[(port, "TCP")], Resolution::Static);
            at(&mut service, &["10.9.0.1"]);
        }
        add(&mut world, service, Vec::new());
    }
    let bound = |number: u16, bind: &str| {
        inbound_port(number, &format!(", bind: {bind}, captureMode: NONE"))
    };
    let inbound_ports = [
        bound(85, "0.0.0.0"),
        bound(86, "10.9.0.1"),
        bound(87, "0.0.0.0"),
    ];
    sidecar(&mut world, &format!("ingress:\n{}", inbound_ports.concat()));
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let view = snapshot.view(&node(FIRST, "REDIRECT"));
    assert_eq!(
        names(&*view, Type::Listener),
        "0.0.0.0_85_inbound 0.0.0.0_87 10.9.0.1_86_inbound virtualInbound virtualOutbound"
    );
    let message = |name: &str| {
        format!("listener {name} of services is left out: the proxy has one of its own there")
    };
    let messages: Vec<_> = snapshot
        .conflicts()
        .into_iter()
        .map(|one| one.message)
        .collect();
    assert_eq!(messages, [message("0.0.0.0_85"), message("10.9.0.1_86")]);
    // Where nothing is intercepted those of services are bound, too.
    let view = snapshot.view(&node(CLIENT, "NONE"));
    assert!(view.get(Type::Listener, "0.0.0.0_85").is_some());
}

/// By its name in TLS a service is told where it has no address; one of the other family is an address.
#[test]
fn a_service_with_an_address_of_the_other_family_is_not_told_by_its_name() {
    let mut world = world("");
    for (name, port, addresses) in [
        ("far", 443, &["2001:db8::1"][..]),
        ("near", 444, &["10.9.0.1", "2001:db8::2"]),
        ("range", 445, &["10.8.0.0/16"]),
        ("beside", 446, &["10.8.0.0/16", "2001:db8::3"]),
        ("none", 447, &[]),
    ] {
        let mut service = service(name, &[(port, "HTTPS")], Resolution::Static);
        at(&mut service, addresses);
        add(&mut world, service, Vec::new());
    }
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let view = snapshot.view(&node(FIRST, "REDIRECT"));
    assert_eq!(
        names(&*view, Type::Listener),
        "0.0.0.0_445 0.0.0.0_446 0.0.0.0_447 10.0.0.1_445 10.0.0.1_446 10.0.0.1_447 10.9.0.1_444 virtualInbound \
         virtualOutbound"
    );
    let names_of = |name: &str| -> Vec<String> {
        let listener = view.get(Type::Listener, name).unwrap();
        let listener = Listener::decode(&*listener.body).unwrap();
        let chains = listener.filter_chains.into_iter();
        chains
            .filter_map(|chain| chain.filter_chain_match)
            .flat_map(|matching| matching.server_names)
            .collect()
    };
    assert_eq!(names_of("0.0.0.0_445"), ["range.demo.svc.cluster.local"]);
    assert_eq!(names_of("0.0.0.0_446"), [""; 0]);
    assert_eq!(names_of("0.0.0.0_447"), ["none.demo.svc.cluster.local"]);
    assert!(snapshot.conflicts().is_empty());
    // Whoever has that family has a listener of the address.
    let view = snapshot.view(&node(
        "sidecar~2001:db8::a~c.demo~demo.svc.cluster.local",
        "REDIRECT",
    ));
    assert!(view.get(Type::Listener, "2001:db8::1_443").is_some());
    assert!(view.get(Type::Listener, "::_443").is_none());
}

/// One listener on all addresses would take every proxy's TLS connections to that port, wherever they go.
#[test]
fn port_443_of_all_addresses_is_left_to_tls() {
    // Protocol, addresses, listeners besides the proxy's own, whether it is told; and the listener where nothing is caught.
    let rows: [(&str, &[&str], &str, bool, &str); 12] = [
        ("HTTP", &[], "", true, ""),
        ("HTTP2", &[], "", true, ""),
        ("GRPC", &[], "", true, ""),
        ("GRPC-WEB", &[], "", true, ""),
        ("", &[], "", true, ""),
        ("HTTP", &["0.0.0.0"], "", true, ""),
        // Its own address is nobody else's.
        (
            "HTTP",
            &["10.9.0.1"],
            "10.9.0.1_443",
            false,
            "127.0.0.2_443",
        ),
        (
            "GRPC",
            &["10.8.0.0/16"],
            "0.0.0.0_443",
            false,
            "127.0.0.2_443",
        ),
        ("", &["10.9.0.1"], "10.9.0.1_443", false, "127.0.0.2_443"),
        // That says what it is.
        ("HTTPS", &[], "0.0.0.0_443", false, "127.0.0.2_443"),
        ("TLS", &[], "0.0.0.0_443", false, "127.0.0.2_443"),
        ("TCP", &[], "0.0.0.0_443", false, "127.0.0.2_443"),
    ];
    for (word, addresses, intercepted, is_reported, bound) in rows {
        for (id, mode, expected) in [(FIRST, "REDIRECT", intercepted), (CLIENT, "NONE", bound)] {
            for blocks in [true, false] {
                let mut world = world("");
                let mut b = service("api.example", &[(443, word)], Resolution::Dns);
                at(&mut b, addresses);
                add(&mut world, b, Vec::new());
                let settings = Settings {
                    block_http_on_443: blocks,
                    ..Settings::default()
                };
                let snapshot = Snapshot::new(world, Arc::new(settings));
                let view = snapshot.view(&node(id, mode));
                let all = names(&*view, Type::Listener);
                let is_own =
                    |name: &str| name.starts_with("virtual") || name.starts_with("10.0.0.1_");
                let listeners: Vec<_> = all.split(' ').filter(|name| !is_own(name)).collect();
                let conflicts: Vec<_> = snapshot
                    .conflicts()
                    .into_iter()
                    .map(|conflict| (conflict.metric, conflict.key))
                    .collect();
                let row = format!("{word:?} {addresses:?} {mode} {blocks}");
                if blocks {
                    assert_eq!(listeners.join(" "), expected, "{row}");
                    let metric = "pilot_conflict_outbound_listener_http_over_https";
                    let one = (metric, "api.example".to_owned());
                    assert_eq!(
                        conflicts,
                        Vec::from_iter(is_reported.then_some(one)),
                        "{row}"
                    );
                } else {
                    assert_eq!((listeners.len(), conflicts.len()), (1, 0), "{row}");
                }
            }
        }
    }
}

/// The registry of ServiceEntries tells it at the entry, whether or not a proxy asks.
#[test]
fn a_port_443_that_is_left_to_tls_is_told_at_its_entry_once() {
    for (registry, is_told_here) in [(Registry::External, false), (Registry::Kubernetes, true)] {
        let mut world = world("");
        let mut b = service("api.example", &[(443, "")], Resolution::Dns);
        b.registry = registry;
        add(&mut world, b, Vec::new());
        let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
        drop(snapshot.view(&node(FIRST, "REDIRECT")).all(Type::Listener));
        let [conflict] = &*snapshot.conflicts() else {
            panic!("not one: {:?}", snapshot.conflicts());
        };
        assert_eq!(conflict.metric, HTTP_OVER_HTTPS);
        assert_eq!(!conflict.services.is_empty(), is_told_here, "{registry:?}");
    }
}

/// Requests have the routes of the port where a service has its own addresses there, and all else goes its way.
#[test]
fn requests_to_an_address_on_port_443_find_their_routes() {
    for (address, name) in [("10.9.0.1", "10.9.0.1_443"), ("10.8.0.0/16", "0.0.0.0_443")] {
        let mut world = world("");
        let mut b = service("api.example", &[(443, "HTTP")], Resolution::Dns);
        at(&mut b, &[address]);
        add(&mut world, b, Vec::new());
        let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
        let view = snapshot.view(&node(FIRST, "REDIRECT"));
        assert_eq!(names(&*view, Type::Route), "443");
        let listener = view.get(Type::Listener, name).unwrap();
        let listener = Listener::decode(&*listener.body).unwrap();
        let [chain] = listener.filter_chains.as_slice() else {
            panic!("one chain: {listener:?}");
        };
        assert_eq!(
            chain.filters[0].name,
            "envoy.filters.network.http_connection_manager"
        );
        let is_range = address.contains('/');
        assert_eq!(chain.filter_chain_match.is_some(), is_range);
        assert_eq!(listener.default_filter_chain.is_some(), is_range);
    }
}

/// A workload takes one protocol at a port: what another service of it says there has no effect, and that is told.
#[test]
fn two_protocols_at_one_port_of_a_workload_are_told() {
    let conflicts_of = |word: &str, target: u16| {
        let mut world = world("");
        for (name, port, word, target) in [("s1", 80, "TCP", 8080), ("s2", 81, word, target)] {
            let mut one = service(name, &[(port, word)], Resolution::Static);
            one.ports[0].target = Target::Number(target);
            let place = endpoint("10.0.0.1", target, &format!("p{port}"));
            add(&mut world, one, vec![place]);
        }
        let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
        drop(snapshot.view(&node(FIRST, "REDIRECT")).all(Type::Listener));
        let all = snapshot.conflicts().into_iter();
        let all = all.filter(|one| one.metric == "pilot_conflict_inbound_listener");
        all.map(|one| {
            assert_eq!((&*one.proxy, one.objects.len()), (FIRST, 0));
            let services: Vec<_> = one.services.iter().map(|key| &*key.hostname).collect();
            assert_eq!(services, ["s2.demo.svc.cluster.local"]);
            (one.key, one.message)
        })
        .collect::<Vec<_>>()
    };
    let key = "inbound|81|p81|s2.demo.svc.cluster.local";
    let message = "HTTP of s2.demo.svc.cluster.local:81 has no effect on port 8080 of its workloads: \
                   s1.demo.svc.cluster.local:80 is older, and says TCP";
    assert_eq!(
        conflicts_of("HTTP", 8080),
        [(key.to_owned(), message.to_owned())]
    );
    assert_eq!(conflicts_of("TCP", 8080), [], "they agree");
    assert_eq!(conflicts_of("HTTP", 8081), [], "another port");
    assert_eq!(conflicts_of("", 8080), [], "no protocol is asked for");
}
