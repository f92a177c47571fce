//! PeerAuthentications: what ports take, and what clients are told of them.

use api::model::TlsMode;
use api::networking::Sidecar;
use api::security::PeerAuthentication;
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener};

use super::*;

const PORTS: [u16; 3] = [9080, 9081, 7];

/// The namespace of a policy, and its spec.
pub(super) type Policy<'a> = (&'a str, &'a str);

pub(super) fn peer_world(mesh: &str, policies: &[Policy<'_>]) -> World {
    let config = mesh::parse_over(&mesh::discovery_defaults(), mesh).unwrap();
    let mut world = World::new(Arc::new(config.config));
    let ports = [(9080, "HTTP"), (9081, "TCP")];
    service(&mut world, "web.demo", &ports, &[("10.9.0.1", "v1")]);
    let key = ServiceKey::new("web.demo.svc.cluster.local", "demo");
    let endpoints = ports.map(|(number, _)| {
        let address = EndpointAddress::read("10.9.0.1");
        let mut one = Endpoint::new(address, number, &format!("p{number}"));
        one.labels = Arc::new(labels(&LABELS));
        one.tls = TlsMode::Istio;
        one
    });
    let shards = EndpointShards::from([("Kubernetes".into(), endpoints.into())]);
    Arc::make_mut(&mut world.endpoints).insert(key, Arc::new(shards));
    let sidecar = "ingress: [{port: {number: 9080, protocol: HTTP, name: http}, defaultEndpoint: '127.0.0.1:80'}, \
                   {port: {number: 9081, protocol: TCP, name: tcp}, defaultEndpoint: '127.0.0.1:81'}]";
    insert(&mut world.sidecars, object::<Sidecar>("web", 1, sidecar));
    world.peer_authentications = objects(policies);
    world
}

pub(super) fn objects(policies: &[Policy<'_>]) -> Arc<Objects<PeerAuthentication>> {
    let mut all = Arc::default();
    for (at, (namespace, spec)) in policies.iter().enumerate() {
        let created = i64::try_from(at).unwrap();
        let name = format!("{namespace}/p{at}");
        insert(&mut all, object::<PeerAuthentication>(&name, created, spec));
    }
    all
}

pub(super) const LABELS: [(&str, &str); 2] =
    [("app", "web"), ("security.istio.io/tlsMode", "istio")];

/// Returns the kind of traffic that each port takes: `p`lain, mutual `t`ls or both; and whether clients speak mutual TLS to
/// those of the service.
fn taken(world: World) -> String {
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &LABELS));
    let listener: Listener = decoded(&*view, Type::Listener, "virtualInbound");
    let of = |port: Option<u16>| {
        let chains = listener.filter_chains.iter().filter(|chain| {
            let matching = chain.filter_chain_match.as_ref();
            let number = matching.and_then(|one| one.destination_port);
            number.map(|number| number.value) == port.map(u32::from)
        });
        chains.collect::<Vec<_>>()
    };
    let kinds = |chains: Vec<&FilterChain>| {
        let is_secured = |chain: &&FilterChain| chain.transport_socket.is_some();
        let secured = chains.iter().any(is_secured);
        let plain = chains.iter().any(|chain| !is_secured(chain));
        format!(
            "{}{}",
            if plain { "p" } else { "" },
            if secured { "t" } else { "" }
        )
    };
    let mut letters: Vec<_> = PORTS
        .iter()
        .map(|port| match of(Some(*port)) {
            chains if chains.is_empty() => kinds(of(None)),
            chains => kinds(chains),
        })
        .collect();
    for port in [9080, 9081] {
        let name = format!("outbound|{port}||web.demo.svc.cluster.local");
        let matches = cluster(&*view, &name).transport_socket_matches.len();
        let assignment: ClusterLoadAssignment = decoded(&*view, Type::Endpoint, &name);
        let says_tls_mode = format!("{assignment:?}").contains("tlsMode");
        letters.push(
            (if says_tls_mode && matches > 0 {
                "t"
            } else {
                "p"
            })
            .to_owned(),
        );
    }
    letters.join(" ")
}

const OFF: &str = "";
const AUTO: &str = "enableAutoMtls: true";
const ALL: &str = "authPolicy: MUTUAL_TLS";

#[test]
fn the_policy_that_is_nearest_to_a_port_says_what_it_takes() {
    let selected = |rest: &str| format!("selector: {{matchLabels: {{app: web}}}}\n{rest}");
    let strict = "mtls: {mode: STRICT}";
    let permissive = "mtls: {mode: PERMISSIVE}";
    let disable = "mtls: {mode: DISABLE}";
    let unset = "mtls: {mode: UNSET}";
    let root = "istio-system";
    let web_strict = selected(strict);
    let web_disable = selected(disable);
    let by_port = selected(
        "mtls: {mode: STRICT}\nportLevelMtls: {9081: {mode: DISABLE}, 7: {mode: PERMISSIVE}}",
    );
    let inherits = selected("portLevelMtls: {9081: {mode: STRICT}, 9080: {mode: UNSET}}");
    let others = "selector: {matchLabels: {app: other}}\nmtls: {mode: STRICT}";
    for (mesh, policies, expected) in [
        (OFF, vec![], "p p p p p"),
        (AUTO, vec![], "pt pt p t t"),
        (ALL, vec![], "t t t t t"),
        (OFF, vec![(root, strict)], "t t t t t"),
        (OFF, vec![(root, permissive)], "pt pt pt t t"),
        (ALL, vec![(root, disable)], "p p p p p"),
        (AUTO, vec![(root, disable)], "p p p p p"),
        (AUTO, vec![(root, unset)], "pt pt p t t"),
        (
            OFF,
            vec![(root, strict), ("demo", permissive)],
            "pt pt pt t t",
        ),
        (OFF, vec![(root, strict), ("demo", unset)], "t t t t t"),
        (OFF, vec![(root, strict), ("other", disable)], "t t t t t"),
        (OFF, vec![("other", strict)], "p p p p p"),
        (
            OFF,
            vec![(root, strict), ("demo", permissive), ("demo", &web_disable)],
            "p p p p p",
        ),
        // Of two for one the older.
        (
            OFF,
            vec![("demo", &web_strict), ("demo", &web_disable)],
            "t t t t t",
        ),
        (
            OFF,
            vec![("demo", permissive), ("demo", strict)],
            "pt pt pt t t",
        ),
        (OFF, vec![("demo", others)], "p p p p p"),
        (OFF, vec![("demo", &by_port)], "t p pt t p"),
        (
            OFF,
            vec![("demo", permissive), ("demo", &inherits)],
            "pt t pt t t",
        ),
        (ALL, vec![("demo", &inherits)], "t t t t t"),
        // In the root namespace one for some workloads is for those of that namespace.
        (OFF, vec![(root, &web_strict)], "p p p p p"),
        (
            OFF,
            vec![(root, &web_strict), ("demo", &web_disable)],
            "p p p p p",
        ),
    ] {
        let taken = taken(peer_world(mesh, &policies));
        assert_eq!(taken, expected, "{mesh} {policies:?}");
    }
}

/// Envoy refuses a listener whose certificates are missing: the policy that asks for them is named beside its words.
#[test]
fn listeners_name_the_policy_that_they_are_secured_by() {
    let snapshot = snapshot(peer_world(OFF, &[("demo", "mtls: {mode: STRICT}")]));
    let view = snapshot.view(&node("demo", &LABELS));
    let listener = view.get(Type::Listener, "virtualInbound").unwrap();
    let from: Vec<_> = listener.from.iter().map(ToString::to_string).collect();
    assert!(
        from.contains(&"PeerAuthentication demo/p0".to_owned()),
        "{from:?}"
    );
}

/// Servers come first, and nobody is left without a way.
#[test]
fn a_change_has_a_while_in_which_both_count() {
    let strict = [("demo", "mtls: {mode: STRICT}")];
    let permissive = [("demo", "mtls: {mode: PERMISSIVE}")];
    for (before, now, expected) in [
        (&[][..], &permissive[..], "pt pt pt p p"),
        (&[], &strict, "pt pt pt p p"),
        (&permissive, &strict, "t t t t t"),
        (&strict, &permissive, "pt pt pt t t"),
        (&strict, &[], "pt pt pt p p"),
        (&permissive, &[], "pt pt pt p p"),
    ] {
        let mut world = peer_world(OFF, now);
        world.earlier_peer_authentications = vec![objects(before)];
        assert_eq!(taken(world), expected, "{before:?} {now:?}");
    }
}

/// Mutual TLS ends at the proxy; TLS that is the application's own goes on, and so does the rest.
#[test]
fn a_port_of_no_service_takes_both_where_a_policy_says_so() {
    let spec = "selector: {matchLabels: {app: web}}\nportLevelMtls: {7: {mode: PERMISSIVE}}";
    let snapshot = snapshot(peer_world(OFF, &[("demo", spec)]));
    let view = snapshot.view(&node("demo", &LABELS));
    let listener: Listener = decoded(&*view, Type::Listener, "virtualInbound");
    let chains = listener.filter_chains.iter().filter_map(|chain| {
        let matching = chain.filter_chain_match.as_ref()?;
        let is_it = matching.destination_port.as_ref()?.value == 7;
        let protocols = matching.application_protocols.join(" ");
        let transport = matching.transport_protocol.as_str();
        let ends = chain.transport_socket.is_some();
        is_it.then(|| format!("{transport} {protocols} {ends}"))
    });
    let expected = ["tls istio true", "tls  false", "  false"];
    assert_eq!(chains.collect::<Vec<_>>(), expected);
}

/// A proxy without certificates takes plain text where both are taken, and its clients know.
#[test]
fn a_proxy_without_certificates_is_plain_unless_it_must_not() {
    for (mode, is_secured) in [("PERMISSIVE", false), ("STRICT", true)] {
        let spec = format!("mtls: {{mode: {mode}}}");
        let mut world = peer_world(OFF, &[("demo", &spec)]);
        world.plaintext = Arc::new([std::net::IpAddr::from([10, 9, 0, 1])].into());
        let mut node = (*node("demo", &LABELS)).clone();
        node.without_certificates = true;
        let snapshot = snapshot(world);
        let node = Arc::new(node);
        assert!(snapshot.is_plain(&node));
        let view = snapshot.view(&node);
        let listener: Listener = decoded(&*view, Type::Listener, "virtualInbound");
        let secured = |chain: &FilterChain| chain.transport_socket.is_some();
        let mut chains = listener.filter_chains.iter();
        assert_eq!(chains.any(secured), is_secured, "{mode}");
        let name = "outbound|9080||web.demo.svc.cluster.local";
        let assignment: ClusterLoadAssignment = decoded(&*view, Type::Endpoint, name);
        let says_tls_mode = format!("{assignment:?}").contains("tlsMode");
        assert_eq!(says_tls_mode, is_secured, "{mode}");
    }
}

/// Clients offer the mesh's name alone: where servers of requests agreed on it, Envoy would take HTTP/2 for HTTP/1.
#[test]
fn servers_of_requests_leave_the_protocol_to_the_first_bytes() {
    use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::DownstreamTlsContext;
    for policy in ["mtls: {mode: STRICT}", "mtls: {mode: PERMISSIVE}"] {
        let world = peer_world(AUTO, &[("demo", policy)]);
        let view = snapshot(world).view(&node("demo", &LABELS));
        let listener: Listener = decoded(&*view, Type::Listener, "virtualInbound");
        let alpn = |port: u32| {
            let of_port = |chain: &&FilterChain| {
                let matching = chain.filter_chain_match.as_ref();
                matching
                    .and_then(|one| one.destination_port)
                    .map(|one| one.value)
                    == Some(port)
            };
            let mut chains = listener.filter_chains.iter().filter(of_port);
            let socket = chains
                .find_map(|chain| chain.transport_socket.clone())
                .unwrap();
            let Some(core::transport_socket::ConfigType::TypedConfig(any)) = socket.config_type
            else {
                panic!("a context");
            };
            let context = DownstreamTlsContext::decode(&*any.value).unwrap();
            context.common_tls_context.unwrap().alpn_protocols
        };
        assert_eq!(alpn(9080), ["h2", "http/1.1"], "{policy}");
        assert_eq!(alpn(9081), ["istio"], "{policy}");
    }
}

/// Connections of endpoints that a policy lets go are made anew, also where it stays for others.
#[test]
fn a_cluster_differs_with_what_its_policy_selects() {
    let version = |spec: &str| {
        let world = peer_world(AUTO, &[("demo", spec)]);
        let view = snapshot(world).view(&node("demo", &LABELS));
        let name = "outbound|9080||web.demo.svc.cluster.local";
        view.get(Type::Cluster, name).unwrap().version
    };
    let labels = "security.istio.io/tlsMode: istio";
    let all = version("mtls: {mode: DISABLE}");
    let web = version("selector: {matchLabels: {app: web}}\nmtls: {mode: DISABLE}");
    let some = version(&format!(
        "selector: {{matchLabels: {{app: web, {labels}}}}}\nmtls: {{mode: DISABLE}}"
    ));
    let none = version("selector: {matchLabels: {app: other}}\nmtls: {mode: DISABLE}");
    let different = std::collections::BTreeSet::from([all, web, some, none]);
    assert_eq!(different.len(), 4);
}

/// A mesh without mutual TLS, with `web` and `line` in `demo` and `other` elsewhere, all by their labels ready for mutual TLS.
fn three_services(policies: &[Policy<'_>]) -> World {
    let mut world = peer_world(OFF, policies);
    for (name, app) in [("line.demo", "line"), ("other.else", "other")] {
        service(&mut world, name, &[(9080, "HTTP")], &[("10.9.1.1", "v1")]);
        let (host, namespace) = name.split_once('.').unwrap();
        let key = ServiceKey::new(&format!("{host}.{namespace}.svc.cluster.local"), namespace);
        let mut one = Endpoint::new(EndpointAddress::read("10.9.1.1"), 9080, "p9080");
        one.labels = Arc::new(labels(&[("app", app), LABELS[1]]));
        one.tls = TlsMode::Istio;
        let shards = EndpointShards::from([("Kubernetes".into(), [one].into())]);
        Arc::make_mut(&mut world.endpoints).insert(key, Arc::new(shards));
    }
    world
}

/// Clusters of the services with which a client may speak mutual TLS, and the policies that these were made from.
fn secured_clusters(world: World) -> Vec<String> {
    let view = snapshot(world).view(&node("client", &[]));
    let clusters = view.all(Type::Cluster);
    let secured = clusters.iter().filter(|one| {
        let cluster = Cluster::decode(&*one.body).unwrap();
        !cluster.transport_socket_matches.is_empty()
    });
    let words = secured.map(|one| {
        let host = one.name.rsplit('|').next().unwrap();
        let port = one.name.split('|').nth(1).unwrap();
        let from: Vec<_> = one.from.iter().map(ToString::to_string).collect();
        format!(
            "{} {port} by {}",
            host.split('.').next().unwrap(),
            from.join(", ")
        )
    });
    words.collect()
}

/// A policy of one tenant asks the proxies of no other one for certificates.
#[test]
fn clients_speak_mutual_tls_to_services_whose_workloads_accept_it() {
    let of = |app: &str, rest: &str| format!("selector: {{matchLabels: {{app: {app}}}}}\n{rest}");
    let permissive = "mtls: {mode: PERMISSIVE}";
    let strict = "mtls: {mode: STRICT}";
    let (nobody, web) = (of("nobody", strict), of("web", strict));
    let (no_port, one_port) = (
        of("web", "portLevelMtls: {9: {mode: STRICT}}"),
        of("web", "portLevelMtls: {9081: {mode: STRICT}}"),
    );
    let of_web = |policy: &str| [9080, 9081].map(|port| format!("web {port} by {policy}"));
    let line = |policy: &str| format!("line 9080 by {policy}");
    for (policies, expected) in [
        (vec![("empty", permissive)], vec![]),
        (vec![("demo", &*nobody)], vec![]),
        (vec![("demo", &*no_port)], vec![]),
        (vec![("demo", "mtls: {mode: DISABLE}")], vec![]),
        (
            vec![("demo", &*web)],
            of_web("PeerAuthentication demo/p0").into(),
        ),
        (
            vec![("demo", &*one_port)],
            of_web("PeerAuthentication demo/p0").into(),
        ),
        // Those are named that say it.
        (
            vec![("demo", permissive), ("demo", &*no_port), ("empty", strict)],
            [
                &[line("PeerAuthentication demo/p0")][..],
                &of_web("PeerAuthentication demo/p0"),
            ]
            .concat(),
        ),
        (
            vec![("demo", permissive), ("demo", &*web)],
            [
                &[line("PeerAuthentication demo/p0")][..],
                &of_web("PeerAuthentication demo/p1"),
            ]
            .concat(),
        ),
        (
            vec![
                ("istio-system", permissive),
                ("demo", "mtls: {mode: DISABLE}"),
            ],
            vec!["other 9080 by PeerAuthentication istio-system/p0".to_owned()],
        ),
    ] {
        let secured = secured_clusters(three_services(&policies));
        assert_eq!(secured, expected, "{policies:?}");
    }
    // Workloads without a proxy accept none.
    let mut world = peer_world(OFF, &[("demo", permissive)]);
    for shards in Arc::make_mut(&mut world.endpoints).values_mut() {
        for shard in Arc::make_mut(shards).values_mut() {
            *shard = shard
                .iter()
                .cloned()
                .map(|one| Endpoint {
                    tls: TlsMode::Disabled,
                    ..one
                })
                .collect();
        }
    }
    assert_eq!(secured_clusters(world), [""; 0]);
}

/// The first workload that accepts mutual TLS makes the clusters of its service others, and those alone.
#[test]
fn an_endpoint_that_turns_mutual_tls_on_is_more_than_its_assignment() {
    let web = "selector: {matchLabels: {app: web}}\nmtls: {mode: STRICT}";
    let key = ServiceKey::new("line.demo.svc.cluster.local", "demo");
    let hosts = std::collections::BTreeSet::from([key.hostname.clone()]);
    let with = |app: &str| {
        let mut world = three_services(&[("demo", web)]);
        let mut one = Endpoint::new(EndpointAddress::read("10.9.1.1"), 9080, "p9080");
        one.labels = Arc::new(labels(&[("app", app), LABELS[1]]));
        one.tls = TlsMode::Istio;
        let shards = EndpointShards::from([("Kubernetes".into(), [one].into())]);
        Arc::make_mut(&mut world.endpoints).insert(key.clone(), Arc::new(shards));
        world
    };
    let before = snapshot(with("line"));
    let clusters = |snapshot: &Arc<Snapshot>| {
        let all = snapshot.view(&node("client", &[])).all(Type::Cluster);
        let all: Vec<_> = all
            .iter()
            .map(|one| (one.name.clone(), one.version))
            .collect();
        all
    };
    let older = clusters(&before);
    let other = before.next(with("third"), Some(&hosts), None);
    assert!(!other.full);
    let on = other.snapshot.next(with("web"), Some(&hosts), None);
    assert!(on.full && on.concerns(&node("client", &[])));
    let differing: Vec<_> = std::iter::zip(&older, &clusters(&on.snapshot))
        .filter(|(one, other)| one != other)
        .map(|(one, _)| one.0.to_string())
        .collect();
    assert_eq!(differing, ["outbound|9080||line.demo.svc.cluster.local"]);
    let off = on.snapshot.next(with("line"), Some(&hosts), None);
    assert!(off.full);
    assert_eq!(clusters(&off.snapshot), older);
}

/// Bytes may stay the same while another policy is to blame for them.
#[test]
fn clusters_name_the_policy_of_now() {
    let strict = "mtls: {mode: STRICT}";
    let web = "selector: {matchLabels: {app: web}}\nmtls: {mode: STRICT}";
    let before = snapshot(peer_world(OFF, &[("demo", strict)]));
    let from = |snapshot: &Arc<Snapshot>| {
        let clusters = snapshot.view(&node("client", &[])).all(Type::Cluster);
        let one = clusters.get("outbound|9080||web.demo.svc.cluster.local");
        one.unwrap()
            .from
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(from(&before), ["PeerAuthentication demo/p0"]);
    let next = before.next(
        peer_world(OFF, &[("demo", strict), ("demo", web)]),
        None,
        None,
    );
    assert_eq!(from(&next.snapshot), ["PeerAuthentication demo/p1"]);
}

/// Names that clients resolve have endpoints of the mesh, too.
#[test]
fn a_service_of_names_is_called_by_what_its_workloads_accept() {
    let selected = "selector: {matchLabels: {app: web}}\nmtls: {mode: PERMISSIVE}";
    for (policies, expected) in [
        (vec![("empty", "mtls: {mode: STRICT}")], false),
        (vec![("demo", selected)], true),
    ] {
        let mut world = peer_world(OFF, &policies);
        for service in Arc::make_mut(&mut world.services).values_mut() {
            Arc::make_mut(service).resolution = Resolution::Dns;
        }
        assert_eq!(
            !secured_clusters(world).is_empty(),
            expected,
            "{policies:?}"
        );
    }
}

/// Gateways between networks take nothing but mutual TLS: they stand for what clients speak that to.
#[test]
fn gateways_stand_for_services_whose_workloads_accept_mutual_tls() {
    let web = "selector: {matchLabels: {app: web}}\nmtls: {mode: STRICT}";
    let mut world = three_services(&[("demo", web)]);
    let text = "networks: {far: {endpoints: [{fromCidr: 10.9.0.0/16}], gateways: [{address: 9.9.9.9, port: 15443}]}}";
    world.networks = Arc::new(mesh::parse_networks(text).unwrap().config);
    let mut client = (*node("client", &[])).clone();
    client.network = Some("near".into());
    let view = snapshot(world).view(&Arc::new(client));
    let name = |host: &str| format!("outbound|9080||{host}.svc.cluster.local");
    assert_eq!(addresses(&*view, &name("web.demo")), ["9.9.9.9"]);
    assert_eq!(addresses(&*view, &name("line.demo")), ["10.9.1.1"]);
}
