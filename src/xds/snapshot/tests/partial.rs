//! Endpoints that are pushed while other changes wait.

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
