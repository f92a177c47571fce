//! Rules as large as they may be: served, or left out with a reason, and never in the place of what others have.

use std::collections::BTreeSet;

use api::model::{Health, Workload, WorkloadKey};
use api::networking::EnvoyFilter;

use super::*;
use crate::resource_names::ResourceNames;
use crate::snapshot::Conflict;

/// A route that takes about 4 kB.
fn large_route() -> String {
    let value = "x".repeat(4000);
    format!(
        "{{match: [{{headers: {{h: {{exact: {value}}}}}}}], route: [{{destination: {{host: a.demo.svc.cluster.local}}}}]}}"
    )
}

fn too_large(snapshot: &Snapshot) -> Vec<Conflict> {
    let conflicts = snapshot.conflicts().into_iter();
    conflicts
        .filter(|one| one.metric == "gudgeon_rules_too_large")
        .collect()
}

fn namespaces(conflicts: &[Conflict]) -> BTreeSet<String> {
    let objects = conflicts.iter().flat_map(|one| &one.objects);
    objects.map(|one| one.namespace.to_string()).collect()
}

/// The same spec under other names: one is read, the others share it.
fn many(world: &mut World, namespace: &str, count: usize, routes: usize) {
    let large = object::<VirtualService>(
        "demo/x",
        1,
        &format!("hosts: [x]\nhttp: [{}]", large_route()),
    );
    for number in 0..count {
        let mut spec = large.spec.clone();
        spec.hosts = vec![format!("h{number}.{namespace}.example")];
        spec.http = vec![spec.http[0].clone(); routes];
        let one = Configured {
            name: format!("v{number}").as_str().into(),
            namespace: namespace.into(),
            spec,
            ..(*large).clone()
        };
        insert(&mut world.virtual_services, Arc::new(one));
    }
}

#[test]
fn routes_of_one_tenant_leave_others_theirs() {
    let mut world = world();
    // First in order and older than others': as much as fits three times over.
    many(&mut world, "aa", 25, 950);
    let rule = "hosts: [z.example, c.other.svc.cluster.local]\nhttp: [{route: [{destination: {host: b.demo.svc.cluster.local}}], name: own}]";
    virtual_service(&mut world, "zz/victim", 100, rule);
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    for host in ["z.example:80", "c.other.svc.cluster.local:80"] {
        assert_eq!(routes_of(&*view, "80", host)[0].name, "own", "{host}");
    }
    let bytes = view.get(Type::Route, "80").unwrap().body.len();
    assert!((8 << 20..16 << 20).contains(&bytes), "{bytes}");
    assert_eq!(namespaces(&too_large(&snapshot)), ["aa".to_owned()].into());
}

#[test]
fn subsets_of_one_tenant_leave_others_theirs() {
    let mut world = world();
    let subsets: Vec<_> = (0..1000)
        .map(|number| format!("{{name: s{number}, labels: {{version: v1}}}}"))
        .collect();
    let subsets = subsets.join(", ");
    for number in 0..12 {
        let host = format!("a{number}.aa");
        service(&mut world, &host, &[(80, "HTTP")], &[]);
        let spec = format!("host: a{number}\nsubsets: [{subsets}]");
        destination_rule(&mut world, &format!("aa/d{number}"), 1, &spec);
    }
    let spec =
        "host: z\nsubsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]";
    service(&mut world, "z.zz", &[(80, "HTTP")], &[]);
    destination_rule(&mut world, "zz/d", 100, spec);
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    for subset in ["v1", "v2"] {
        cluster(
            &*view,
            &format!("outbound|80|{subset}|z.zz.svc.cluster.local"),
        );
    }
    let all = view.all(Type::Cluster);
    assert!((5_000..10_100).contains(&all.len()), "{}", all.len());
    assert_eq!(namespaces(&too_large(&snapshot)), ["aa".to_owned()].into());
}

#[test]
fn chains_of_one_tenant_leave_others_theirs() {
    let mut world = world();
    let names: Vec<_> = (0..1000)
        .map(|at| format!("{0}.{0}.{0}.h{at}.aa.example", "n".repeat(60)))
        .collect();
    let sni = names.join(", ");
    let route = "route: [{destination: {host: a.demo.svc.cluster.local, port: {number: 90}}}]";
    let spec = format!("hosts: [x]\ntls: [{{match: [{{sniHosts: [{sni}]}}], {route}}}]");
    let large = object::<VirtualService>("demo/x", 1, &spec.replace("[x]", "['*.aa.example', x]"));
    for number in 0..10 {
        let host = format!("t{number}.aa");
        service(&mut world, &host, &[(443, "TLS")], &[]);
        let mut spec = large.spec.clone();
        spec.hosts[1] = format!("t{number}");
        let matching = spec.tls[0].r#match[0].clone();
        spec.tls[0].r#match = vec![matching; 18];
        let one = Configured {
            name: format!("v{number}").as_str().into(),
            namespace: "aa".into(),
            spec,
            ..(*large).clone()
        };
        insert(&mut world.virtual_services, Arc::new(one));
    }
    service(&mut world, "z.zz", &[(443, "TLS")], &[]);
    let spec = format!(
        "hosts: [z, z.zz.svc.cluster.local]\ntls: [{{match: [{{sniHosts: [z.zz.svc.cluster.local]}}], {route}}}]"
    );
    virtual_service(&mut world, "zz/v", 100, &spec);
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    let listeners = view.all(Type::Listener);
    let leads = |cluster: &str| {
        let all = listeners.iter();
        all.filter(|one| one.name.contains("443"))
            .any(|one| String::from_utf8_lossy(&one.body).contains(cluster))
    };
    // The rule sends it to another cluster than the service's own.
    assert!(leads("outbound|90||a.demo"), "{:?}", too_large(&snapshot));
    let lost = namespaces(&too_large(&snapshot));
    assert!(!lost.contains("zz"), "{lost:?}");
}

/// Served as they are written: 1,000 routes, 10,000 hosts; a rule that is larger than a proxy is given is told with its reason.
#[test]
fn large_rules_are_served_or_refused_with_a_reason() {
    let mut world = world();
    let routes: Vec<_> = (0..1000)
        .map(|at| {
            format!(
                "{{match: [{{uri: {{exact: /p{at}}}}}], route: [{{destination: {{host: b}}}}]}}"
            )
        })
        .collect();
    let spec = format!("hosts: [a]\nhttp: [{}]", routes.join(", "));
    virtual_service(&mut world, "routes", 1, &spec);
    let hosts: Vec<_> = (0..10_000).map(|at| format!("n{at}.example")).collect();
    let spec = format!(
        "hosts: [{}]\nhttp: [{{route: [{{destination: {{host: b}}}}]}}]",
        hosts.join(", ")
    );
    virtual_service(&mut world, "hosts", 2, &spec);
    // The same hosts once more: told, but not ten thousand times.
    virtual_service(&mut world, "again", 3, &spec);
    many(&mut world, "large", 1, 1100);
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    let all: RouteConfiguration = decoded(&*view, Type::Route, "80");
    let of = |host: &str| all.virtual_hosts.iter().find(|one| one.name == host);
    assert_eq!(
        of("a.demo.svc.cluster.local:80").unwrap().routes.len(),
        1000
    );
    let hosts = all.virtual_hosts.iter();
    assert_eq!(
        hosts.filter(|one| one.name.starts_with('n')).count(),
        10_000
    );
    assert!(of("h0.large.example:80").is_none());
    let lost = too_large(&snapshot);
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert!(lost[0].message.contains("4 MiB"), "{lost:?}");
    let conflicts = snapshot.conflicts();
    let twice = conflicts.iter();
    let twice = twice.filter(|one| one.metric == "pilot_vservice_dup_domain");
    let twice: Vec<_> = twice.collect();
    assert_eq!(twice.len(), 21);
    let is_rest = |one: &&&Conflict| one.message.starts_with("9980 more conflicts of ");
    assert_eq!(twice.iter().filter(is_rest).count(), 1, "{twice:?}");
}

/// Each port has a configuration of its own, and a host that no service has is in those of all ports of its destinations.
#[test]
fn hosts_of_one_rule_share_its_room_among_all_ports() {
    let bytes = |hosts: usize| {
        let mut world = world();
        let ports: Vec<_> = (0..30).map(|at| (8000 + at, "HTTP")).collect();
        service(&mut world, "many.demo", &ports, &[]);
        let hosts: Vec<_> = (0..hosts).map(|at| format!("n{at}.example")).collect();
        let route = large_route().replace("a.demo", "many.demo");
        let spec = format!("hosts: [{}, 192.0.2.1]\nhttp: [{route}]", hosts.join(", "));
        virtual_service(&mut world, "v", 1, &spec);
        let snapshot = snapshot(world);
        let view = snapshot.view(&node("demo", &[]));
        let all = view.all(Type::Route);
        let bytes = all.iter().map(|one| one.body.len()).sum::<usize>();
        (bytes, too_large(&snapshot))
    };
    let (few, lost) = bytes(20);
    assert!(few > 20 * 30 * 4000 && lost.is_empty(), "{few} {lost:?}");
    let (many, lost) = bytes(1000);
    assert!(many < 5 << 20, "{many}");
    // Once at each port.
    assert_eq!(lost.len(), 30);
    assert!(lost[0].message.contains("at all ports together"));
}

/// Each rule, and each configuration, has room for them: 700 kB of hosts and ports came to 260 MB for each view of the mesh.
#[test]
fn rules_of_one_namespace_share_its_room_among_all_ports() {
    let mut world = world();
    let ports: Vec<_> = (0..40).map(|at| (8000 + at, "HTTP")).collect();
    service(&mut world, "many.aa", &ports, &[]);
    for number in 0..12 {
        let hosts: Vec<_> = (0..200)
            .map(|at| format!("n{at}.v{number}.example"))
            .collect();
        let spec = format!(
            "hosts: [{}]\nhttp: [{{route: [{{destination: {{host: many}}}}]}}]",
            hosts.join(", ")
        );
        virtual_service(&mut world, &format!("aa/v{number}"), number, &spec);
    }
    let rule =
        "hosts: [z.example]\nhttp: [{route: [{destination: {host: many.aa.svc.cluster.local}}]}]";
    virtual_service(&mut world, "zz/v", 100, rule);
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    let all = view.all(Type::Route);
    let bytes = all.iter().map(|one| one.body.len()).sum::<usize>();
    assert!((10 << 20..20 << 20).contains(&bytes), "{bytes}");
    let routes: RouteConfiguration = decoded(&*view, Type::Route, "8039");
    let has = |host: &str| routes.virtual_hosts.iter().any(|one| one.name == host);
    assert!(has("z.example:8039") && has("n199.v0.example:8039"));
    assert!(!has("n0.v11.example:8039"));
    let lost = too_large(&snapshot);
    assert_eq!(namespaces(&lost), ["aa".to_owned()].into());
    let is_of_oldest = |one: &Conflict| one.objects.iter().any(|rule| *rule.name == *"v0");
    assert!(!lost.iter().any(is_of_oldest));
    assert!(lost[0].message.contains("16 MiB at all ports"), "{lost:?}");
}

/// A rule of 100 kB for a wildcard came to half a gigabyte of clusters.
#[test]
fn tls_settings_of_one_tenant_leave_others_theirs() {
    let mut world = world();
    let ports: Vec<_> = (0..100).map(|at| (8000 + at, "HTTP")).collect();
    for number in 0..8 {
        service(&mut world, &format!("a{number}.aa"), &ports, &[]);
    }
    let names: Vec<_> = (0..2000).map(|at| format!("san{at}.aa.example")).collect();
    let tls = |names: &str| {
        format!("trafficPolicy: {{tls: {{mode: SIMPLE, subjectAltNames: [{names}]}}}}")
    };
    let spec = format!("host: '*.aa.svc.cluster.local'\n{}", tls(&names.join(", ")));
    destination_rule(&mut world, "aa/d", 1, &spec);
    service(&mut world, "z.zz", &[(80, "HTTP")], &[]);
    destination_rule(&mut world, "zz/d", 100, &format!("host: z\n{}", tls("z")));
    let snapshot = snapshot(world);
    let view = snapshot.view(&node("demo", &[]));
    let all = view.all(Type::Cluster);
    let bytes = all.iter().map(|one| one.body.len()).sum::<usize>();
    assert!((10 << 20..20 << 20).contains(&bytes), "{bytes}");
    cluster(&*view, "outbound|80||z.zz.svc.cluster.local");
    cluster(&*view, "outbound|8000||a0.aa.svc.cluster.local");
    // Without its settings a client would speak plain text.
    assert!(all.get("outbound|8099||a7.aa.svc.cluster.local").is_none());
    let lost = too_large(&snapshot);
    assert_eq!(namespaces(&lost), ["aa".to_owned()].into());
    let mut messages = lost.iter().map(|one| &one.message);
    assert!(
        messages.any(|message| message.contains("TLS settings")),
        "{lost:?}"
    );
}

/// A filter for each workload of a namespace must not make as much for each as one for all makes.
#[test]
fn filters_for_many_workloads_share_what_they_may_add() {
    let bytes = |filters: usize| {
        let mut world = world();
        let long = "x".repeat(10_000);
        for number in 0..40 {
            let host = format!("s{number}.demo");
            service(&mut world, &host, &[(80, "HTTP")], &[]);
        }
        for number in 0..filters {
            let patch = format!(
                "workloadSelector: {{labels: {{app: a{number}}}}}\nconfigPatches:\n- applyTo: HTTP_ROUTE\n  match: {{context: SIDECAR_OUTBOUND}}\n  \
                 patch: {{operation: INSERT_FIRST, value: {{match: {{path: /{long}}}, direct_response: {{status: 200}}}}}}\n"
            );
            let filter = object::<EnvoyFilter>(&format!("f{number}"), 1, &patch);
            insert(&mut world.envoy_filters, filter);
        }
        let snapshot = snapshot(world);
        let all = (0..filters).map(|number| {
            let node = node("demo", &[("app", &format!("a{number}"))]);
            snapshot
                .view(&node)
                .get(Type::Route, "80")
                .unwrap()
                .body
                .len()
        });
        (all.sum::<usize>(), too_large(&snapshot))
    };
    let (few, lost) = bytes(4);
    assert!(few > 4 * 40 * 10_000 && lost.is_empty(), "{few} {lost:?}");
    // Ten times as many come to no more than those that have all there is.
    let (many, lost) = bytes(700);
    assert!(many < 256 << 20, "{many}");
    assert!(!lost.is_empty());
}

/// One workload may meet many selectors, each in its own way.
#[test]
fn filters_that_workloads_meet_in_many_ways_share_it_too() {
    let mut world = world();
    for number in 0..400_usize {
        let pairs: Vec<_> = (0..9)
            .map(|bit| (format!("l{bit}"), (number >> bit & 1).to_string()))
            .collect();
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let key = WorkloadKey {
            cluster: "Kubernetes".into(),
            namespace: "demo".into(),
            name: format!("w{number}").as_str().into(),
        };
        let workload = Workload {
            key: key.clone(),
            addresses: Vec::new(),
            labels: Arc::new(labels(&pairs)),
            locality: Locality::default(),
            network: None,
            account: None,
            ports: std::collections::BTreeMap::new(),
            owner: None,
            health: Health::Ready,
        };
        Arc::make_mut(&mut world.workloads).insert(key, Arc::new(workload));
    }
    let long = "x".repeat(90_000);
    for bit in 0..9 {
        let patch = format!(
            "workloadSelector: {{labels: {{l{bit}: '1'}}}}\nconfigPatches:\n- applyTo: HTTP_ROUTE\n  match: {{context: SIDECAR_OUTBOUND}}\n  \
             patch: {{operation: INSERT_FIRST, value: {{match: {{path: /{long}}}, direct_response: {{status: 200}}}}}}\n"
        );
        let filter = object::<EnvoyFilter>(&format!("f{bit}"), 1, &patch);
        insert(&mut world.envoy_filters, filter);
    }
    for at in 0..20 {
        service(&mut world, &format!("s{at}.demo"), &[(80, "HTTP")], &[]);
    }
    let snapshot = snapshot(world);
    let node = node("demo", &[("l0", "1"), ("l1", "1")]);
    let one = snapshot
        .view(&node)
        .get(Type::Route, "80")
        .unwrap()
        .body
        .len();
    // 32 MiB for each of eight: a four hundredth of that is 671 kB, for 20 services and those that are there.
    assert!(one < 1 << 20, "{one}");
    assert!(!too_large(&snapshot).is_empty());
}

/// Work of this size runs beside the event loop, so rules count, too: ten of them with 10,000 hosts each stopped it for seconds.
#[test]
fn the_size_of_a_world_counts_its_rules() {
    let few = world();
    let mut many = world();
    let hosts: Vec<_> = (0..10_000).map(|at| format!("h{at}.example")).collect();
    let route = "http: [{route: [{destination: {host: a}}]}]";
    let spec = format!("hosts: [{}]\n{route}", hosts.join(", "));
    virtual_service(&mut many, "many", 1, &spec);
    assert!(Snapshot::size(&few) < 200);
    assert!(Snapshot::size(&many) > 10_000);
    let unbuilt = |world: World| {
        let view = view(world);
        let names = ResourceNames::default();
        let unbuilt = [Type::Cluster, Type::Listener].map(|kind| view.unbuilt(kind, &names));
        for kind in [Type::Cluster, Type::Listener] {
            view.make_ahead(kind, &names);
        }
        let made = [Type::Cluster, Type::Listener].map(|kind| view.unbuilt(kind, &names));
        assert_eq!(made, [0, 0]);
        unbuilt
    };
    assert!(unbuilt(few).iter().all(|size| *size < 200));
    assert!(unbuilt(many).iter().all(|size| *size > 10_000));
}
