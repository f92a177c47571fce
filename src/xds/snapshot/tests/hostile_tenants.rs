//! Limits on the objects of one namespace with regard to the proxies of another, and on all objects with regard to any proxy:
//! none leads the network to where the proxy itself listens.

use api::model::Locality;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;

use super::*;

/// As its tenant has it, in `demo`, with one port that its application has.
fn victim(text: &str) -> World {
    let mut world = world(text);
    let web = service("web", &[(80, "HTTP")], Resolution::Static);
    let place = endpoint("10.0.0.1", 8080, "p80");
    add(&mut world, web, vec![place]);
    world
}

/// A service of the namespace `attacker`.
fn foreign(name: &str, ports: &[(u16, &str)]) -> Service {
    let mut service = service(&format!("{name}.attacker"), ports, Resolution::Static);
    service.key = ServiceKey::new(&format!("{name}.attacker"), "attacker");
    service
}

fn inbound(view: &dyn View) -> Vec<String> {
    let all = view.all(Type::Cluster);
    let names = all.iter().map(|cluster| cluster.name.to_string());
    names.filter(|name| name.starts_with("inbound|")).collect()
}

/// A proxy of that namespace.
const TENANT: &str = "sidecar~10.0.0.3~c-1.attacker~x";
const OWN: &str = "inbound|80|p80|web.demo.svc.cluster.local";

#[test]
fn another_namespace_opens_no_port_of_a_proxy() {
    let mut world = victim("");
    let before = Snapshot::new(world.clone(), Arc::new(Settings::default()));
    let ports = [(15000, "HTTP"), (8099, "HTTP"), (9000, "TCP"), (9001, "")];
    for resolution in [Resolution::Static, Resolution::Dns, Resolution::None] {
        let mut service = foreign(&format!("{resolution:?}").to_lowercase(), &ports);
        service.resolution = resolution;
        let places = ports.map(|(port, _)| {
            let mut place = endpoint("10.0.0.1", port, &format!("p{port}"));
            place.locality = Locality::new("attacker", "", "");
            place.network = Some("attacker".into());
            place
        });
        let places = places.into_iter().chain(ports.map(|(port, _)| {
            // By the name of the victim's pod, too.
            let mut place = endpoint("10.0.0.1", port, &format!("p{port}"));
            place.pod = Some("demo/a-1".into());
            place
        }));
        add(&mut world, service, places.collect());
    }
    let after = Snapshot::new(world, Arc::new(Settings::default()));
    for mode in ["REDIRECT", "TPROXY", "NONE"] {
        let [before, after] = [&before, &after].map(|snapshot| {
            let view = snapshot.view(&node(FIRST, mode));
            let listener = view.get(Type::Listener, "virtualInbound");
            (inbound(&*view), listener, view.serves())
        });
        assert_eq!(before, after, "{mode}");
        let own = if mode == "NONE" { vec![] } else { vec![OWN] };
        assert_eq!(before.0, own, "{mode}");
    }
}

/// Places and networks are said by the namespace's own entries alone.
#[test]
fn another_namespace_moves_no_proxy() {
    let place = |locality: &str| {
        let mut place = endpoint("10.0.0.1", 80, "p80");
        place.locality = Locality::new(locality, "", "");
        place.network = Some(locality.into());
        place
    };
    let mut world = world("");
    add(
        &mut world,
        foreign("evil", &[(80, "TCP")]),
        vec![place("attacker")],
    );
    let of = |world: &World| {
        let directory = Directory::new(world);
        let node = node(FIRST, "REDIRECT");
        let locality = directory.locality(&node, world);
        (locality, directory.network(&node, world))
    };
    assert_eq!(of(&world), (None, None));
    let own = service("own", &[(80, "TCP")], Resolution::Static);
    add(&mut world, own, vec![place("own")]);
    let own = (Some(Locality::new("own", "", "")), Some("own".into()));
    assert_eq!(of(&world), own);
}

/// The node of a proxy that says where it listens.
fn saying(ports: &[u16]) -> Arc<Node> {
    let mut node = (*node(FIRST, "REDIRECT")).clone();
    node.ports = ports.to_vec();
    Arc::new(node)
}

#[test]
fn no_target_is_a_port_of_the_proxys_own() {
    let text = "proxyListenPort: 16001\nproxyHttpPort: 16002\ndefaultConfig: {proxyAdminPort: 16003, statusPort: 16004}\n";
    let mut world = victim(text);
    let targets = [
        15000, 15001, 15006, 15020, 15021, 15090, 16001, 16002, 16003, 16004, 16005,
    ];
    for target in targets {
        let name = format!("t{target}");
        // By a service that selects it, by an entry with its address.
        let mut service = service(&name, &[(81, "HTTP"), (82, "TCP")], Resolution::Static);
        service.ports[0].target = Target::Number(target);
        service.selector = [("app".into(), "a".into())].into();
        let place = endpoint("10.0.0.1", target, "p82");
        add(&mut world, service, vec![place]);
    }
    let mut says = (*saying(&[16005])).clone();
    says.labels = Arc::new([("app".into(), "a".into())].into());
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let view = snapshot.view(&Arc::new(says.clone()));
    assert_eq!(inbound(&*view), [OWN]);
    let left_out = invalid(&snapshot);
    for target in targets {
        for port in [81, 82] {
            let key = format!("inbound|{port}|p{port}|t{target}.demo.svc.cluster.local");
            let message = format!(
                "{key} is left out: the proxy itself listens on port {target} of 127.0.0.1"
            );
            let found = left_out.iter().find(|(of, ..)| *of == key);
            assert_eq!(found.map(|one| &one.1), Some(&message));
        }
    }
    // A port that one proxy has is another's application's.
    says.ports.clear();
    let view = snapshot.view(&Arc::new(says));
    let other = "inbound|81|p81|t16005.demo.svc.cluster.local".to_owned();
    assert!(inbound(&*view).contains(&other));
}

#[test]
fn no_ingress_leads_to_the_proxy_itself() {
    let item = |number: u16, to: &str, more: &str| {
        format!(
            "- {{port: {{number: {number}, protocol: TCP, name: a}}, defaultEndpoint: '{to}'{more}}}\n"
        )
    };
    let bound = |address: &str| format!(", captureMode: NONE, bind: '{address}'");
    let items = [
        item(9000, "127.0.0.1:15000", ""),
        item(9001, ":15020", ""),
        item(9002, "127.0.0.7:15090", &bound("10.0.0.1")),
        item(9003, "[::1]:16005", ""),
        // To itself, to another one, and to where the application is.
        item(9004, "127.0.0.1:9004", &bound("0.0.0.0")),
        item(9005, "127.0.0.1:9006", ""),
        item(9006, "127.0.0.1:8080", &bound("127.0.0.1")),
        item(9007, "127.0.0.1:9007", &bound("10.0.0.1")),
        item(9008, "unix:///run/app", ""),
    ];
    let mut world = world("");
    sidecar(&mut world, &format!("ingress:\n{}", items.concat()));
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let view = snapshot.view(&saying(&[16005]));
    let expected = [9006, 9007, 9008].map(|port| format!("inbound|{port}|a|inbound.demo"));
    assert_eq!(inbound(&*view), expected);
    let lost_keys: Vec<_> = invalid(&snapshot)
        .into_iter()
        .map(|(key, ..)| key)
        .collect();
    let lost =
        [9000, 9001, 9002, 9003, 9004, 9005].map(|port| format!("inbound|{port}|a|inbound.demo"));
    assert_eq!(lost_keys, lost);
    // Its author is told, and nobody else: there may be no such service.
    for one in snapshot.conflicts() {
        let objects: Vec<_> = one.objects.iter().map(ToString::to_string).collect();
        assert_eq!(objects, ["Sidecar demo/inbound"], "{}", one.message);
        assert!(one.services.is_empty(), "{:?}", one.services);
    }
}

/// Without interception services share the proxy's loopback with its application, which was there first.
#[test]
fn no_service_is_bound_where_the_application_is() {
    let mut world = world("");
    add(
        &mut world,
        foreign("evil", &[(80, "HTTP"), (81, "HTTP")]),
        vec![],
    );
    let ingress = "ingress:\n- {port: {number: 8080, protocol: HTTP, name: a}, defaultEndpoint: '127.0.0.1:80'}\n";
    sidecar(&mut world, ingress);
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let view = snapshot.view(&node(FIRST, "NONE"));
    assert_eq!(names(&*view, Type::Listener), "10.0.0.1_8080 127.0.0.1_81");
    let message = "listener 127.0.0.1_80 of services is left out: the proxy's application is there";
    let expected = (
        "127.0.0.1_80".to_owned(),
        message.to_owned(),
        "10.0.0.1".to_owned(),
    );
    assert_eq!(invalid(&snapshot), [expected]);
    let conflicts = snapshot.conflicts();
    let services = conflicts.iter().flat_map(|one| &one.services);
    let services: Vec<_> = services.map(|one| &*one.hostname).collect();
    assert_eq!(services, ["evil.attacker"], "{conflicts:?}");
    // Others have it.
    let view = snapshot.view(&node("sidecar~10.0.0.2~b-1.other~x", "NONE"));
    assert_eq!(names(&*view, Type::Listener), "127.0.0.1_80 127.0.0.1_81");
}

/// By rules of releases before 1.3 what comes in is looked for among the listeners of services.
#[test]
fn no_service_has_the_address_of_the_proxy() {
    let mut world = victim("");
    let mut evil = foreign("evil", &[(8099, "TCP"), (8080, "TCP"), (9001, "")]);
    at(&mut evil, &["10.0.0.1", "10.9.0.1"]);
    add(&mut world, evil, vec![]);
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let view = snapshot.view(&node(FIRST, "REDIRECT"));
    assert_eq!(
        names(&*view, Type::Listener),
        "0.0.0.0_80 10.0.0.1_80 10.0.0.1_8080 10.9.0.1_8080 10.9.0.1_8099 10.9.0.1_9001 virtualInbound virtualOutbound"
    );
    assert_eq!(
        direction(&*view, "10.0.0.1_8080"),
        TrafficDirection::Inbound
    );
    let keys: Vec<_> = invalid(&snapshot)
        .into_iter()
        .map(|(key, ..)| key)
        .collect();
    assert_eq!(keys, ["10.0.0.1_8080", "10.0.0.1_8099", "10.0.0.1_9001"]);
    let view = snapshot.view(&node("sidecar~10.0.0.2~b-1.other~x", "REDIRECT"));
    assert!(view.get(Type::Listener, "10.0.0.1_8099").is_some());
}

/// An endpoint on loopback is whoever calls it: no service leads each proxy to its own pages.
#[test]
fn no_endpoint_is_every_proxys_own() {
    let mut world = world("");
    let mut places: Vec<_> = [
        "127.0.0.1",
        "127.1.2.3",
        "::1",
        "::ffff:127.0.0.1",
        "0.0.0.0",
        "::",
    ]
    .iter()
    .map(|address| endpoint(address, 15000, "p80"))
    .collect();
    places.push(endpoint("127.0.0.1", 8080, "p80"));
    places.push(endpoint("10.0.0.2", 15000, "p80"));
    add(&mut world, foreign("evil", &[(80, "TCP")]), places);
    let mut named = foreign("named", &[(80, "TCP")]);
    named.resolution = Resolution::Dns;
    let places = ["localhost", "x.LOCALHOST.", "other"].map(|name| endpoint(name, 15020, "p80"));
    add(&mut world, named, places.to_vec());
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let view = snapshot.view(&node(FIRST, "REDIRECT"));
    assert_eq!(
        super::places(&*view, "outbound|80||evil.attacker"),
        ["10.0.0.2 -"]
    );
    // A tenant's own may lead its own proxies beside them.
    let tenant = snapshot.view(&node(TENANT, "REDIRECT"));
    assert_eq!(
        super::places(&*tenant, "outbound|80||evil.attacker"),
        ["10.0.0.2 -", "127.0.0.1 -"]
    );
    let named = view
        .get(Type::Cluster, "outbound|80||named.attacker")
        .unwrap();
    let text = String::from_utf8_lossy(&named.body).to_lowercase();
    assert!(text.contains("other") && !text.contains("localhost"));
    let keys: BTreeSet<_> = invalid(&snapshot)
        .into_iter()
        .map(|(key, ..)| key)
        .collect();
    let both = ["evil", "named"].map(|name| format!("{name}.attacker"));
    assert_eq!(keys, both.into());
}

/// A conflict for each endpoint of one tenant took the place of those of all others.
#[test]
fn a_thousand_endpoints_that_are_every_proxys_own_are_one_conflict() {
    let mut world = world("");
    let places = (0..1000).map(|at| {
        let address = format!("127.0.{}.{}", at / 250, at % 250 + 1);
        endpoint(&address, 15000, "p80")
    });
    add(
        &mut world,
        foreign("evil", &[(80, "TCP")]),
        places.collect(),
    );
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    // It is told before a proxy comes: every replica tells the same.
    let all = snapshot.conflicts_of_world();
    assert_eq!(snapshot.conflicts(), all);
    let [conflict] = &*all else {
        panic!("not one: {all:?}");
    };
    assert_eq!(
        conflict.message,
        "the endpoint 127.0.0.1, port 15000, and 999 more, of attacker/evil.attacker is left out: each proxy itself listens there"
    );
    assert_eq!(conflict.occurrences, 1000);
    let evil = ServiceKey::new("evil.attacker", "attacker");
    assert_eq!(conflict.services, [evil]);
}

/// The proxy that was the first to have shared clusters left, and what was found with them was told of none that stayed.
#[test]
fn a_conflict_of_shared_clusters_is_told_as_long_as_a_proxy_has_them() {
    let mut world = world("");
    let beside = endpoint("127.0.0.1", 8080, "p80");
    add(&mut world, foreign("evil", &[(80, "TCP")]), vec![beside]);
    let earlier = Snapshot::new(world.clone(), Arc::new(Settings::default()));
    assert_eq!(invalid(&earlier).len(), 0, "no proxy of another namespace");
    let second = "sidecar~10.0.0.2~b-1.demo~demo.svc.cluster.local";
    let views = [FIRST, second].map(|id| earlier.view(&node(id, "REDIRECT")));
    views.iter().for_each(|view| drop(view.all(Type::Cluster)));
    assert_eq!(invalid(&earlier).len(), 1);
    let next = earlier.next(world.clone(), None, None).snapshot;
    next.take_over_conflicts(&earlier, |proxy| proxy == second);
    assert_eq!(invalid(&next).len(), 1, "the second proxy rests");
    let last = next.next(world, None, None).snapshot;
    last.take_over_conflicts(&next, |_| false);
    assert_eq!(invalid(&last).len(), 0);
}

/// Messages about the endpoints of a service are about those that it has.
#[test]
fn endpoints_that_come_to_be_refused_are_told() {
    let mut world = world("");
    let evil = foreign("evil", &[(80, "TCP")]);
    let place = |address: &str| endpoint(address, 15000, "p80");
    add(&mut world, evil.clone(), vec![place("127.0.0.1")]);
    let mut current = Snapshot::new(world.clone(), Arc::new(Settings::default()));
    let hosts = BTreeSet::from(["evil.attacker".into()]);
    for (addresses, count) in [(&["127.0.0.1", "127.0.0.2"][..], 1), (&["10.0.0.2"], 0)] {
        let places = addresses.iter().map(|address| place(address)).collect();
        add(&mut world, evil.clone(), places);
        let next = current.next(world.clone(), Some(&hosts), None);
        assert!(next.full);
        current = next.snapshot;
        assert_eq!(current.conflicts().len(), count);
    }
}

/// An entry that names no endpoints resolves its own name, which may be every proxy's loopback.
#[test]
fn no_name_of_an_entry_is_every_proxys_own() {
    let mut world = world("");
    let hosts = ["localhost", "x.localhost", "127.0.0.9"];
    for host in hosts {
        let mut entry = foreign("x", &[(80, "TCP"), (81, "TCP")]);
        entry.resolution = Resolution::Dns;
        entry.key = ServiceKey::new(host, "attacker");
        entry.ports[0].target = Target::Number(15000);
        entry.ports[1].target = Target::Number(8099);
        Arc::make_mut(&mut world.services).insert(entry.key.clone(), Arc::new(entry));
    }
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    for (proxy, expected) in [(FIRST, [0, 0]), (TENANT, [0, 1])] {
        let view = snapshot.view(&node(proxy, "REDIRECT"));
        for host in hosts {
            let counts = [80, 81].map(|port| {
                let name = format!("outbound|{port}||{host}");
                let cluster = view.get(Type::Cluster, &name).unwrap();
                let places = Cluster::decode(&*cluster.body).unwrap().load_assignment;
                places.map_or(0, |places| places.endpoints.len())
            });
            assert_eq!(counts, expected, "{host} for {proxy}");
        }
    }
}

/// An endpoint that comes to be beside its proxies later is for those of its namespace alone, too.
#[test]
fn an_endpoint_that_comes_to_be_beside_a_proxy_is_for_its_namespace() {
    let mut world = world("");
    let evil = foreign("evil", &[(80, "TCP")]);
    let name = "outbound|80||evil.attacker";
    add(
        &mut world,
        evil.clone(),
        vec![endpoint("10.0.0.2", 80, "p80")],
    );
    let mut snapshot = Snapshot::new(world.clone(), Arc::new(Settings::default()));
    let proxies = [FIRST, TENANT].map(|id| node(id, "REDIRECT"));
    for proxy in &proxies {
        assert_eq!(places(&*snapshot.view(proxy), name), ["10.0.0.2 -"]);
    }
    let hosts = BTreeSet::from(["evil.attacker".into()]);
    for beside in ["127.0.0.1", "unix:///run/docker.sock"] {
        add(
            &mut world,
            evil.clone(),
            vec![endpoint(beside, 8099, "p80")],
        );
        snapshot = snapshot.next(world.clone(), Some(&hosts), None).snapshot;
        let has = proxies.each_ref().map(|proxy| {
            let view = snapshot.view(proxy);
            let body = view.get(Type::Endpoint, name).unwrap().body.clone();
            let place = beside.trim_start_matches("unix://");
            String::from_utf8_lossy(&body).contains(place)
        });
        assert_eq!(has, [false, true], "{beside}");
    }
}

/// A ServiceEntry may be older than any Service: by its name, by a domain or by its address it took the Service's requests.
#[test]
fn an_older_service_entry_takes_nothing_from_a_service_of_kubernetes() {
    use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
    const SERVICE: &str = "k.demo.svc.cluster.local";
    for squat in [SERVICE, "k.demo", "k.demo.svc", "x.attacker"] {
        let mut world = world("");
        let ports = [(80, "HTTP"), (90, "TCP")];
        let mut own = service("k", &ports, Resolution::Static);
        own.registry = Registry::Kubernetes;
        own.created = Some(2);
        at(&mut own, &["10.1.0.1"]);
        add(
            &mut world,
            own.clone(),
            vec![
                endpoint("10.2.0.1", 8080, "p80"),
                endpoint("10.2.0.1", 9090, "p90"),
            ],
        );
        let mut other = service(squat, &ports, Resolution::Static);
        other.key = ServiceKey::new(squat, "attacker");
        other.created = Some(1);
        at(&mut other, &["10.1.0.1"]);
        let theirs = ["p80", "p90"].map(|port| endpoint("6.6.6.6", 80, port));
        add(&mut world, other.clone(), theirs.into());
        let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
        let view = snapshot.view(&node(FIRST, "REDIRECT"));
        for port in [80, 90] {
            let name = format!("outbound|{port}||{SERVICE}");
            let assignment = view.get(Type::Endpoint, &name).unwrap();
            let bytes = String::from_utf8_lossy(&assignment.body).into_owned();
            assert!(
                bytes.contains("10.2.0.1") && !bytes.contains("6.6.6.6"),
                "{squat}"
            );
        }
        let listener = view.get(Type::Listener, "10.1.0.1_90").unwrap();
        let bytes = String::from_utf8_lossy(&listener.body).into_owned();
        assert!(
            bytes.contains(&format!("outbound|90||{SERVICE}")),
            "{squat}"
        );
        let routes = view.get(Type::Route, "80").unwrap();
        let routes = RouteConfiguration::decode(&*routes.body).unwrap();
        for domain in ["k.demo", "k.demo:80", SERVICE, "10.1.0.1", "10.1.0.1:80"] {
            let mut hosts = routes.virtual_hosts.iter();
            let host = hosts.find(|host| host.domains.iter().any(|one| one == domain));
            assert_eq!(
                host.unwrap().name,
                format!("{SERVICE}:80"),
                "{squat}: {domain}"
            );
        }
        // It is told at the one that lost.
        let conflicts = snapshot.conflicts();
        assert!(
            conflicts
                .iter()
                .any(|one| one.services.contains(&other.key)),
            "{squat}: {conflicts:?}"
        );
        assert!(
            conflicts.iter().all(|one| !one.services.contains(&own.key)),
            "{squat}: {conflicts:?}"
        );
        let older = conflicts.iter().find(|one| one.message.contains("older"));
        assert_eq!(older, None, "{squat}");
    }
}

/// Any Service may have any port, with HTTP or without an address: it takes none that an older ServiceEntry shares with others.
#[test]
fn a_service_of_kubernetes_takes_no_shared_port_from_an_older_service_entry() {
    for protocol in ["HTTP", "TCP"] {
        let mut world = world("");
        let mut entry = service("db.example", &[(5432, "TCP")], Resolution::Static);
        entry.key = ServiceKey::new("db.example", "demo");
        entry.created = Some(1);
        entry.addresses.clear();
        add(&mut world, entry, vec![endpoint("10.2.0.1", 5432, "p5432")]);
        let mut other = service("k", &[(5432, protocol)], Resolution::Static);
        other.registry = Registry::Kubernetes;
        other.created = Some(2);
        other.addresses.clear();
        add(
            &mut world,
            other.clone(),
            vec![endpoint("6.6.6.6", 80, "p5432")],
        );
        let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
        let view = snapshot.view(&node(FIRST, "REDIRECT"));
        let listener = view.get(Type::Listener, "0.0.0.0_5432").unwrap();
        let bytes = String::from_utf8_lossy(&listener.body).into_owned();
        assert!(bytes.contains("outbound|5432||db.example"), "{protocol}");
        let conflicts = snapshot.conflicts();
        let lost = conflicts
            .iter()
            .find(|one| one.services.contains(&other.key));
        let lost = lost.unwrap_or_else(|| panic!("{protocol}: {conflicts:?}"));
        assert!(
            lost.message.contains("db.example:5432 is older"),
            "{lost:?}"
        );
    }
}
