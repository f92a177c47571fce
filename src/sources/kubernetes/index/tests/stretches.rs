//! The loop does not work for long at a stretch where a change has a part in thousands of objects.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime;

use super::source::{Source, settings};
use super::{at, node, objects, place, plain, pod, set, slice};
use crate::growth::cpu_time;
use crate::kubernetes::fake::Fake;
use crate::loop_stretch::LoopStretches;

const SERVICES: usize = 100;
/// Endpoints of each service, whose pods all run on one node.
const ENDPOINTS: usize = 60;

/// Calls a function with the plural and each object: services with their slices, and the pods of these.
fn each_object(mut found: impl FnMut(&str, Value)) {
    for number in 0..SERVICES {
        let name = format!("s{number}");
        let all = (0..ENDPOINTS).map(|one| {
            let pod = format!("{name}-{one}");
            (format!("10.1.{number}.{one}"), pod)
        });
        let all: Vec<_> = all.collect();
        found("services", plain(&name));
        let places = all.iter().map(|(address, name)| at(address, name));
        found(
            "endpointslices",
            slice(&format!("{name}-a"), &name, places.collect()),
        );
        for (address, name) in all {
            let mut pod = pod(&name, &address, json!({"app": name}));
            pod["spec"]["nodeName"] = json!("n");
            found("pods", pod);
        }
    }
}

fn located(region: &str) -> Value {
    node("n", json!({"topology.kubernetes.io/region": region}))
}

/// The time that the change of the node's place takes by itself.
fn work_of_the_change() -> Duration {
    let mut objects = objects();
    each_object(|_, object| set(&mut objects, object));
    set(&mut objects, located("r1"));
    drop(objects.contribution());
    let begun = cpu_time();
    set(&mut objects, located("r2"));
    drop(objects.contribution());
    cpu_time().saturating_sub(begun)
}

/// A node that came, or whose place changed, stopped all streams and probes while thousands of endpoints moved.
#[test]
fn a_node_with_thousands_of_pods_does_not_stop_the_loop() {
    // The server has a thread of its own, so that its work is not the loop's.
    let beside = runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let fake = beside.block_on(Fake::start());
    fake.set_api_group("/apis/discovery.k8s.io/v1", &["endpointslices"]);
    each_object(|kind, object| fake.put_in(kind, object));
    fake.put_in("nodes", located("r1"));
    let work = work_of_the_change();
    LoopStretches::block_on(async |stretches| {
        let mut source = Source::start(&fake, settings());
        source.synced().await;
        stretches.reset();
        fake.put_in("nodes", located("r2"));
        source
            .until(|update| {
                let endpoints = update.contribution.endpoints.get(&place("s99"));
                endpoints.is_some_and(|all| all[0].locality.region() == "r2")
            })
            .await;
        // The stretch of the update ends.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let longest = stretches.longest();
        assert!(longest * 2 < work, "{longest:?} of {work:?}");
    });
}
