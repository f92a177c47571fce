//! Sidecars whose proxies listen at sockets (discovery.md §17): what is behind one, and which files no listener is in the place of.

use std::collections::BTreeSet;

use api::networking::Sidecar;
use envoy_types::pb::envoy::config::core::v3::address::Address;
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, Listener, filter};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_connection_manager::RouteSpecifier,
};
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::{
    TcpProxy, tcp_proxy::ClusterSpecifier,
};
use prost::Name;

use super::*;

fn sidecar(world: &mut World, spec: &str) {
    let object = object::<Sidecar>("s", 1, spec);
    insert(&mut world.sidecars, object);
}

/// The target of a filter: routes, or a cluster.
fn leads(filter: &Filter) -> String {
    let Some(filter::ConfigType::TypedConfig(any)) = &filter.config_type else {
        panic!("{filter:?}");
    };
    if any.type_url == HttpConnectionManager::type_url() {
        let manager = HttpConnectionManager::decode(&*any.value).unwrap();
        let Some(RouteSpecifier::Rds(rds)) = manager.route_specifier else {
            panic!("{manager:?}");
        };
        return format!("http {}", rds.route_config_name);
    }
    match TcpProxy::decode(&*any.value).unwrap().cluster_specifier {
        Some(ClusterSpecifier::Cluster(cluster)) => cluster,
        other => panic!("{other:?}"),
    }
}

/// All of it, each chain with what it is for.
fn listener_text(listener: &Listener) -> String {
    let of = |chain: &FilterChain| {
        let matched = chain.filter_chain_match.clone().unwrap_or_default();
        let names = matched.server_names.join(",");
        let text = [&*names, &matched.transport_protocol].concat();
        let sniffed = matched.application_protocols.first().map(String::as_str);
        let text = [&*text, sniffed.unwrap_or_default()].concat();
        let to = leads(chain.filters.last().unwrap());
        match &*text {
            "" => to,
            text => format!("{text}: {to}"),
        }
    };
    let all = listener
        .filter_chains
        .iter()
        .chain(&listener.default_filter_chain);
    all.map(of).collect::<Vec<_>>().join("; ")
}

fn mesh() -> World {
    let mut world = world();
    let places = [("10.0.4.1", "v1")];
    service(&mut world, "x.example", &[(443, "TLS")], &places);
    service(&mut world, "y.example", &[(8443, "HTTPS")], &places);
    service(&mut world, "t.other", &[(7000, "TCP")], &places);
    world
}

/// The listener at a socket, where there is one, and what is told.
fn at(world: &World, spec: &str, path: &str) -> (Option<Listener>, Vec<String>) {
    let mut world = world.clone();
    sidecar(&mut world, spec);
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    let all = view.all(Type::Listener);
    let found = all.iter().find(|one| one.name.starts_with("unix://"));
    if let Some(found) = found {
        assert_eq!(*found.name, *format!("unix://{path}_0"));
        assert_eq!(found.from[0].to_string(), "Sidecar demo/s");
    }
    let listener = found.map(|one| Listener::decode(&*one.body).unwrap());
    let conflicts = snapshot.conflicts().into_iter();
    let conflicts = conflicts.map(|one| {
        let objects: Vec<_> = one.objects.iter().map(ToString::to_string).collect();
        format!("{}: {}", objects.join(" "), one.message)
    });
    (listener, conflicts.collect())
}

#[test]
fn a_socket_leads_to_all_that_its_listener_imports() {
    let a = "outbound|90||a.demo.svc.cluster.local";
    let nothing = "Sidecar demo/s: the egress listener on unix:///run/app of Sidecar demo/s is left out: no service that it \
                   imports speaks what the listener does";
    let alone = |oldest: &str, more: usize| {
        format!(
            "Sidecar demo/s: unix:///run/app_0 routes connections to {oldest} only: it cannot distinguish those to {more} more service ports"
        )
    };
    for (protocol, hosts, wanted, expected) in [
        ("HTTP", "'*/*'", "http local", None),
        ("GRPC", "./*", "http local", None),
        ("HTTP_PROXY", "./*", "http local", None),
        (
            "HTTP",
            "other/t.other.svc.cluster.local",
            "",
            Some(nothing.to_owned()),
        ),
        ("TCP", "./a.demo.svc.cluster.local", a, None),
        // What declares requests is carried as it is where there is nothing else.
        (
            "TCP",
            "./b.demo.svc.cluster.local",
            "outbound|80||b.demo.svc.cluster.local",
            None,
        ),
        (
            "TCP",
            "'*/*'",
            a,
            Some(alone("a.demo.svc.cluster.local:90", 3)),
        ),
        (
            "TLS",
            "./*",
            "x.example: outbound|443||x.example; y.example: outbound|8443||y.example; BlackHoleCluster",
            None,
        ),
        ("TLS", "other/*", "", Some(nothing.to_owned())),
        (
            "",
            "./a.demo.svc.cluster.local",
            &format!("http/1.0: http local; tls: {a}; {a}"),
            None,
        ),
        ("", "./b.demo.svc.cluster.local", "http local", None),
        (
            "",
            "other/t.other.svc.cluster.local",
            "outbound|7000||t.other.svc.cluster.local",
            None,
        ),
    ] {
        for capture in ["", "captureMode: NONE, "] {
            let spec = format!(
                "egress: [{{port: {{number: 0, name: local, protocol: {protocol:?}}}, bind: 'unix:///run/app', {capture}hosts: \
                 [{hosts}]}}, {{hosts: ['~/*']}}]"
            );
            let (listener, conflicts) = at(&mesh(), &spec, "/run/app");
            let found = listener.as_ref().map(listener_text).unwrap_or_default();
            assert_eq!(found, wanted, "{spec}");
            assert_eq!(
                conflicts,
                expected.clone().into_iter().collect::<Vec<_>>(),
                "{spec}"
            );
            let Some(listener) = listener else { continue };
            assert_eq!(listener.bind_to_port, None, "it is there for applications");
            let address = listener.address.unwrap().address;
            assert_eq!(
                address,
                Some(Address::Pipe(core::Pipe {
                    path: "/run/app".to_owned(),
                    mode: 0o666
                }))
            );
        }
    }
}

#[test]
fn requests_at_a_socket_have_the_routes_of_all_ports_by_the_name_of_the_port() {
    let mut world = mesh();
    service(&mut world, "d.demo", &[(8080, "HTTP")], &[]);
    virtual_service(
        &mut world,
        "v",
        1,
        "hosts: [b.demo.svc.cluster.local]\nhttp: [{directResponse: {status: 299}}]",
    );
    let names = |egress: &str| {
        let mut world = world.clone();
        sidecar(&mut world, &format!("egress: [{egress}]"));
        let view = view(world);
        let all = view.all(Type::Route);
        let names: Vec<_> = all.iter().map(|one| one.name.to_string()).collect();
        for name in &names {
            assert!(
                view.get(Type::Route, name).is_some() && view.name(Type::Route, name).is_some()
            );
        }
        (view, names)
    };
    let socket = |name: &str, path: &str, hosts: &str| {
        format!(
            "{{port: {{number: 0, name: {name:?}, protocol: HTTP}}, bind: 'unix://{path}', hosts: [{hosts}]}}"
        )
    };
    let (own, none) = (socket("local", "/run/a", "./*"), "{hosts: ['~/*']}");
    let (view, found) = names(&format!("{own}, {none}"));
    assert_eq!(found, ["local"]);
    let routes: RouteConfiguration = decoded(&*view, Type::Route, "local");
    let hosts = routes.virtual_hosts.iter().map(|host| {
        let first = host.domains.first().unwrap();
        format!("{} {first}", host.name)
    });
    // Ports other than 80 are asked for with their number, as behind `http_proxy`.
    assert_eq!(
        hosts.collect::<Vec<_>>(),
        [
            "a.demo.svc.cluster.local:80 a.demo.svc.cluster.local",
            "b.demo.svc.cluster.local:80 b.demo.svc.cluster.local",
            "d.demo.svc.cluster.local:8080 d.demo.svc.cluster.local:8080",
            // Nothing says where an unknown one wanted to go.
            "block_all *",
        ]
    );
    let b = routes_of(&*view, "local", "b.demo.svc.cluster.local:80");
    assert!(
        format!("{b:?}").contains("status: 299"),
        "rules count there"
    );

    // Each has its own services, and routes of its own name: that of the bind where another has the name of the port.
    let other = socket("local", "/run/b", "other/*");
    let (view, found) = names(&format!("{own}, {other}, {none}"));
    assert_eq!(found, ["local", "unix:///run/b"]);
    let routes: RouteConfiguration = decoded(&*view, Type::Route, "unix:///run/b");
    assert_eq!(
        routes.virtual_hosts[0].name, "c.other.svc.cluster.local:80",
        "of the second alone"
    );
    for name in ["80", ""] {
        let own = socket(name, "/run/a", "./b.demo.svc.cluster.local");
        let (view, found) = names(&format!("{own}, {{hosts: ['./*']}}"));
        // The catch-all has all services on their ports still.
        assert_eq!(found, ["80", "8080", "unix:///run/a"], "{name:?}");
        let of_port: RouteConfiguration = decoded(&*view, Type::Route, "80");
        assert_eq!(of_port.virtual_hosts.len(), 3, "a, b, and the rest");
    }
}

/// Envoy removes what is where it is to listen, and refuses what is no place for a socket.
#[test]
fn no_listener_is_in_the_place_of_a_file() {
    let spec = |path: &str, more: &str| {
        format!(
            "{more}egress: [{{port: {{number: 0, name: local, protocol: HTTP}}, bind: 'unix://{path}', hosts: ['./*']}}]"
        )
    };
    for path in ["/run/app", "@app", "/run/certs", "/var/run/app/s"] {
        let (listener, conflicts) = at(&mesh(), &spec(path, ""), path);
        assert_eq!(conflicts, [""; 0], "{path}");
        let address = listener.unwrap().address.unwrap().address;
        let mode = if path.starts_with('@') { 0 } else { 0o666 };
        let path = path.to_owned();
        assert_eq!(address, Some(Address::Pipe(core::Pipe { path, mode })));
    }
    // Notes of the object, wherever it is used.
    for path in [
        "/etc/certs/key.pem",
        "/var/run/sds/uds_path",
        "/run//app",
        "/run/x/../app",
        "@envoy_domain_socket_parent_0",
    ] {
        assert_eq!(
            at(&mesh(), &spec(path, ""), path),
            (None, Vec::new()),
            "{path}"
        );
        let limits = api::yaml::Limits {
            bytes: 1000,
            depth: 30,
            nodes: 100,
        };
        let written = api::yaml::read(&spec(path, ""), limits).unwrap().unwrap();
        let kind = api::config::named("networking.istio.io", "Sidecar").unwrap();
        let notes = api::config::notes(kind, &written.to_json());
        assert_eq!(notes[0].path, "spec.egress[0].bind", "{path}");
        assert!(notes[0].message.starts_with("is not served: "), "{path}");
    }
    // Files of one proxy: its application's socket, and the log of the mesh.
    let message = |why: &str, path: &str| {
        format!("Sidecar demo/s: listener unix://{path}_0 of services is left out: {why}")
    };
    let application = "ingress: [{port: {number: 8080, name: a, protocol: HTTP}, defaultEndpoint: 'unix:///run/app/s'}]\n";
    for path in ["/run/app/s", "/run/app"] {
        let found = at(&mesh(), &spec(path, application), path);
        let why = message("the proxy's application is there", path);
        assert_eq!(found, (None, vec![why]), "{path}");
    }
    let mut world = mesh();
    Arc::make_mut(&mut world.mesh).access_log_file = "/var/log/access".to_owned();
    for path in ["/var/log/access", "/var/log"] {
        let found = at(&world, &spec(path, ""), path);
        let why = message("a file of the proxy's own is there", path);
        assert_eq!(found, (None, vec![why]), "{path}");
    }
    assert!(at(&world, &spec("/var/lo", ""), "/var/lo").0.is_some());
}

/// The application's own socket, which a ServiceEntry names for those that call it.
#[test]
fn no_listener_is_in_the_place_of_an_endpoint() {
    let spec = |path: &str| {
        format!(
            "egress: [{{port: {{number: 0, name: local, protocol: HTTP}}, bind: 'unix://{path}', hosts: ['./*']}}]"
        )
    };
    let with = |host: &str, address: &str| {
        let mut world = mesh();
        service(&mut world, host, &[(9000, "HTTP")], &[(address, "v1")]);
        world
    };
    let message = |path: &str, of: &str| {
        format!(
            "Sidecar demo/s: listener unix://{path}_0 of services is left out: unix:///run/app/s is an endpoint of {of}, and Envoy \
             would remove it"
        )
    };
    let world = with("app.demo", "unix:///run/app/s");
    for path in ["/run/app/s", "/run/app"] {
        let found = at(&world, &spec(path), path);
        assert_eq!(
            found,
            (None, vec![message(path, "app.demo.svc.cluster.local")]),
            "{path}"
        );
    }
    for path in ["/run/app/so", "/run/app/s/t", "/run/ap"] {
        assert!(at(&world, &spec(path), path).0.is_some(), "{path}");
    }
    // Endpoints of another namespace are for other proxies.
    let world = with("app.other", "unix:///run/app/s");
    assert!(at(&world, &spec("/run/app/s"), "/run/app/s").0.is_some());
}

/// Endpoints that change alone are a push of more than assignments where the listener comes or goes by it.
#[test]
fn a_listener_goes_with_the_endpoint_that_takes_its_place() {
    let mut before = mesh();
    let spec = "egress: [{port: {number: 0, name: local, protocol: HTTP}, bind: 'unix:///run/s', hosts: ['./*']}]";
    sidecar(&mut before, spec);
    let addresses = ["10.0.9.1", "unix:///run/s", "10.0.9.1"];
    let worlds = addresses.map(|address| {
        let mut world = before.clone();
        service(
            &mut world,
            "app.demo",
            &[(9000, "HTTP")],
            &[(address, "v1")],
        );
        world
    });
    let [first, rest @ ..] = worlds;
    let mut current = snapshot(first);
    let hosts = BTreeSet::from(["app.demo.svc.cluster.local".into()]);
    for (world, is_there) in rest.into_iter().zip([false, true]) {
        let next = current.next(world, Some(&hosts), None);
        assert!(next.full);
        current = next.snapshot;
        let all = current.view(&node("demo", &[])).all(Type::Listener);
        assert_eq!(all.get("unix:///run/s_0").is_some(), is_there);
    }
}
