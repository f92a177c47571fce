//! Endpoints that are pushed while other changes wait.

use api::model::Health;

use super::*;

fn hosts(names: &[&str]) -> BTreeSet<Arc<str>> {
    let names = names.iter();
    names
        .map(|name| format!("{name}.demo.svc.cluster.local").as_str().into())
        .collect()
}

/// The services `a`, `b` and, if it is there, `c`, whose endpoints end in these numbers.
fn mesh(tls: &str, port: u16, a: &[u8], c: Option<&[u8]>) -> World {
    let mut world = world(tls);
    let services = [("a", 80, Some(a)), ("b", port, Some(a)), ("c", 80, c)];
    for (name, port, all) in services {
        let Some(all) = all else { continue };
        let of = all.iter().map(|last| Endpoint {
            account: Some(format!("sa-{last}").as_str().into()),
            ..endpoint(&format!("10.0.0.{last}"), 80, "p80")
        });
        add(
            &mut world,
            service(name, &[(port, "HTTP")], Resolution::Static),
            of.collect(),
        );
    }
    world
}

fn endpoint_texts(world: &World) -> Vec<String> {
    let services = world.services.values();
    services
        .map(|service| {
            let ports = service.ports.iter().map(|port| port.number);
            let ports: Vec<_> = ports.collect();
            let endpoints = world.endpoints_of(&service.key);
            let endpoints: Vec<_> = endpoints.map(|(_, one)| one.address.to_string()).collect();
            let name = service.key.hostname.split('.').next().unwrap();
            format!("{name} {ports:?} {}", endpoints.join(" "))
        })
        .collect()
}

/// `a` loses an endpoint; `b` has another port meanwhile, and `c` is gone: those wait.
#[test]
fn endpoints_of_a_service_that_is_as_it_was_go_ahead() {
    let before = mesh("", 80, &[1, 2], Some(&[3]));
    let later = mesh("", 81, &[1], None);
    let snapshot = Snapshot::new(before, Arc::new(Settings::default()));
    let all = hosts(&["a", "b", "c", "unknown"]);
    let partly = snapshot.world_with_endpoints(&later, &all);
    assert_eq!(
        endpoint_texts(&partly),
        [
            "a [80] 10.0.0.1",
            "b [80] 10.0.0.1 10.0.0.2",
            "c [80] 10.0.0.3"
        ]
    );
    let next = snapshot.next(partly, Some(&all), None);
    assert!(!next.full);
    let rest = next.snapshot.next(later.clone(), None, None);
    assert!(rest.full);
    assert_eq!(
        endpoint_texts(rest.snapshot.world()),
        endpoint_texts(&later)
    );
    // Only those that were asked for.
    let partly = snapshot.world_with_endpoints(&later, &hosts(&["b"]));
    assert_eq!(endpoint_texts(&partly), endpoint_texts(snapshot.world()));
}

/// The cluster says which endpoints may answer: endpoints that change that wait with it.
#[test]
fn endpoints_that_change_who_may_answer_wait() {
    let before = mesh("enableAutoMtls: true\n", 80, &[1, 2], None);
    let later = mesh("enableAutoMtls: true\n", 80, &[1], None);
    let snapshot = Snapshot::new(before, Arc::new(Settings::default()));
    let partly = snapshot.world_with_endpoints(&later, &hosts(&["a"]));
    assert_eq!(endpoint_texts(&partly), endpoint_texts(snapshot.world()));
}

/// A push of endpoints costs a proxy little but the assignments that it is sent.
#[test]
fn a_view_takes_over_what_endpoints_do_not_change() {
    let inputs = |view: &Arc<dyn View>| {
        let view: &dyn Any = &**view;
        let view = view.downcast_ref::<proxy::ProxyView>();
        view.unwrap().inputs.clone()
    };
    let id = "sidecar~10.0.0.1~a-1.demo~demo.svc.cluster.local";
    let (node, other) = (node(id, "REDIRECT"), node(id, "REDIRECT"));
    let snapshot = Snapshot::new(mesh("", 80, &[1, 2], None), Arc::new(Settings::default()));
    let view = snapshot.view(&node);
    let name = "outbound|80||a.demo.svc.cluster.local";
    let before = view.get(Type::Endpoint, name);
    for (a, is_same) in [(&[1, 3][..], true), (&[1], true), (&[2, 3], false)] {
        let later = mesh("", 80, a, None);
        let next = snapshot.next(later, Some(&hosts(&["a", "b"])), None);
        assert!(!next.full, "{a:?}");
        let after = next.snapshot.view_after(&view, &node);
        assert_eq!(
            Arc::ptr_eq(&inputs(&after), &inputs(&view)),
            is_same,
            "{a:?}"
        );
        let fresh = next.snapshot.view(&node);
        let assignment = after.get(Type::Endpoint, name);
        assert_eq!(assignment, fresh.get(Type::Endpoint, name), "{a:?}");
        assert_ne!(assignment, before, "{a:?}");
        for kind in Type::ALL {
            assert_eq!(after.all(kind), fresh.all(kind), "{a:?} {kind:?}");
        }
        // The inputs are those of one node.
        let after = next.snapshot.view_after(&view, &other);
        assert!(!Arc::ptr_eq(&inputs(&after), &inputs(&view)), "{a:?}");
    }
    let next = snapshot.next(mesh("", 81, &[1, 2], None), None, None);
    let after = next.snapshot.view_after(&view, &node);
    assert!(!Arc::ptr_eq(&inputs(&after), &inputs(&view)));
}

/// A push of endpoints alone is for services of which nothing else has endpoints in it.
#[test]
fn what_endpoints_change_is_said_by_the_service() {
    let with = |tls: &str, kind: &str, endpoints: &str| {
        let (protocol, resolution) = match kind {
            "dns" => ("HTTP", Resolution::Dns),
            "static" => ("HTTP", Resolution::Static),
            of_headless => (of_headless, Resolution::None),
        };
        let mut a = service("a", &[(80, protocol)], resolution);
        a.registry = Registry::Kubernetes;
        let endpoints = endpoints.split_whitespace().map(|text| Endpoint {
            health: match text.get(1..) {
                Some("!") => Health::NotReady,
                _ => Health::Ready,
            },
            account: text.contains('=').then(|| "spiffe://x".into()),
            ..endpoint(&format!("10.0.0.{}", &text[..1]), 80, "p80")
        });
        let mut world = world(tls);
        add(&mut world, a, endpoints.collect());
        world
    };
    let (auto, strict) = ("enableAutoMtls: true", "authPolicy: MUTUAL_TLS");
    for (tls, kind, was, is, only_assignments) in [
        ("", "static", "1", "1 2", true),
        ("", "static", "1", "", true),
        ("", "static", "1", "1=", true),
        // The cluster names the accounts that may answer.
        (auto, "static", "1", "1=", false),
        (strict, "static", "1", "1=", false),
        (auto, "static", "1=", "2=", true),
        // The cluster holds them itself.
        ("", "dns", "1", "2", false),
        // Each has a listener at its address.
        ("", "TCP", "1", "2", false),
        ("", "TCP", "1", "1!", true),
        ("", "HTTP", "1", "2", true),
    ] {
        let later = with(tls, kind, is);
        let snapshot = Snapshot::new(with(tls, kind, was), Arc::new(Settings::default()));
        let key = ServiceKey::new("a.demo.svc.cluster.local", "demo");
        let row = format!("{tls} {kind} {was} {is}");
        assert_eq!(
            snapshot.changes_only_assignments(&later, &key),
            only_assignments,
            "{row}"
        );
        let next = snapshot.next(later, Some(&hosts(&["a"])), None);
        assert_eq!(next.full, !only_assignments, "{row}");
    }
}
