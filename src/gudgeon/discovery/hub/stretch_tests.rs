//! The loop does not work for long at a stretch where an update changes thousands of endpoints, or rules are made of many Ingresses.

use std::time::Duration;

use api::model::{Endpoint, EndpointAddress, Locality, Registry, Service, ServiceKey};
use serde_json::json;
use sources::contribution::{Contribution, Ingresses, SyncState};

use super::*;
use crate::discovery::testing::{self, hub};
use crate::growth::cpu_time;
use crate::loop_stretch::LoopStretches;

const SERVICES: usize = 3000;
const ENDPOINTS: usize = 10;
const INGRESSES: usize = 1000;

fn service(number: usize) -> Service {
    let host = format!("s{number}.demo.svc.cluster.local");
    testing::service(ServiceKey::new(&host, "demo"))
}

/// Endpoints in the region, of services that are the same in each.
fn contribution(services: &Contribution, region: &str) -> Contribution {
    let endpoints = services.services.keys().enumerate().map(|(number, key)| {
        let all = (0..ENDPOINTS).map(|one| {
            let address = format!("10.{}.{}.{one}", number >> 8, number & 255);
            let address = EndpointAddress::read(&address);
            let mut endpoint = Endpoint::new(address, 80, "http");
            endpoint.locality = Locality::new(region, "", "");
            endpoint
        });
        (key.clone(), all.collect())
    });
    Contribution {
        endpoints: Arc::new(endpoints.collect()),
        ..services.clone()
    }
}

/// Waits for the push after these.
async fn pushed(hub: &Hub, before: usize) {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while hub.pushes.all().len() == before {
        assert!(std::time::Instant::now() < deadline, "no push");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Each change of a node, which moves endpoints of all services, stopped streams and probes for 50 ms and more.
#[test]
fn endpoints_of_all_services_do_not_stop_the_loop() {
    let id = SourceId {
        registry: Registry::Kubernetes,
        cluster: "Kubernetes".into(),
    };
    let services = (0..SERVICES).map(|number| {
        let service = service(number);
        (service.key.clone(), Arc::new(service))
    });
    let services = Contribution {
        services: Arc::new(services.collect()),
        ..Contribution::default()
    };
    let [older, newer] = ["r1", "r2"].map(|region| contribution(&services, region));
    let here = hub();
    here.apply(|registries| registries.put(&id, older.clone()));
    here.serve(Snapshot::new(
        here.world(),
        Arc::clone(&here.options.settings),
    ));
    let begun = cpu_time();
    here.apply(|registries| registries.put(&id, newer.clone()));
    let work = cpu_time().saturating_sub(begun);
    LoopStretches::block_on(async |stretches| {
        let hub = hub();
        let _running = tokio::spawn(Arc::clone(&hub).run());
        hub.put(&id, older);
        hub.set_sync_state(&id, SyncState::Synced);
        pushed(&hub, 0).await;
        stretches.reset();
        hub.put(&id, newer);
        pushed(&hub, 1).await;
        let longest = stretches.longest();
        assert!(longest * 2 < work, "{longest:?} of {work:?}");
    });
}

fn ingresses() -> Ingresses {
    let ingress = |number: usize| {
        let name = format!("i{number}");
        let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
        let path = json!({"path": "/a", "pathType": "Prefix", "backend": backend});
        let host = format!("{name}.example");
        let ingress = json!({
            "metadata": {"name": name, "namespace": "shop", "annotations": {"kubernetes.io/ingress.class": "istio"}},
            "spec": {"rules": [{"host": host, "http": {"paths": [path]}}]},
        });
        (("shop".into(), name.into()), ingress.to_string().into())
    };
    (0..INGRESSES).map(ingress).collect()
}

/// Ingresses that came later than all else were made rules of while streams and probes waited.
#[test]
fn rules_of_a_thousand_ingresses_do_not_stop_the_loop() {
    let all = Arc::new(ingresses());
    let here = hub();
    let begun = cpu_time();
    let (world, _) = here.complete(WorldInputs {
        world: here.world(),
        ingresses: vec![Arc::clone(&all)],
        size: 0,
    });
    let work = cpu_time().saturating_sub(begun);
    assert_eq!(world.virtual_services.len(), INGRESSES);
    LoopStretches::block_on(async |stretches| {
        let hub = hub();
        let _running = tokio::spawn(Arc::clone(&hub).run());
        stretches.reset();
        hub.update(|registries| registries.set_ingresses(all));
        pushed(&hub, 0).await;
        let longest = stretches.longest();
        assert!(longest * 2 < work, "{longest:?} of {work:?}");
        let snapshot = hub.snapshot().unwrap();
        assert_eq!(snapshot.world().virtual_services.len(), INGRESSES);
    });
}
