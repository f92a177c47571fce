//! Reviews that are as large as their author can make them, one and eight at a time.

use std::time::Duration;

use serde_json::{Value, json};

use super::{LIMIT_MIB, alone, beside, ends, most_resident, within_its_limit};
use crate::support::{Client, Injector, JSON, pod, review};

/// At a time.
const AUTHORS: usize = 8;
/// Rounds of each flood.
const ROUNDS: usize = 2;

/// About 0.8 MB each.
fn pods() -> Vec<Value> {
    let with = |field: &str, value: Vec<Value>| {
        let mut pod = pod("web");
        pod["spec"][field] = value.into();
        pod
    };
    let volumes = (0..30_000).map(|at| json!({"name": format!("volume-{at}")}));
    let tolerations = (0..45_000).map(|at| json!({"key": format!("a{at}")}));
    let mut annotations = pod("web");
    annotations["metadata"]["annotations"] = json!({"note": "x".repeat(800_000)});
    let mut environment = pod("web");
    let variables = (0..30_000).map(|at| json!({"name": format!("NAME_{at}"), "value": "1"}));
    environment["spec"]["containers"][0]["env"] = variables.collect();
    vec![
        with("volumes", volumes.collect()),
        with("tolerations", tolerations.collect()),
        annotations,
        environment,
    ]
}

/// The status; `None` where the connection was closed before all was sent.
fn post(client: &mut Client, review: &str) -> Option<u16> {
    let answer = client.request("POST", "/inject", JSON, review.as_bytes())?;
    if answer.status == 200 {
        assert_eq!(answer.json()["response"]["uid"], "5b7c");
    }
    Some(answer.status)
}

#[test]
fn large_reviews_cost_their_authors_alone() {
    let _alone = alone();
    let injector = Injector::new();
    let reviews: Vec<String> = pods().iter().map(|pod| review(pod).to_string()).collect();
    for review in &reviews {
        assert_eq!(post(&mut injector.client(), review), Some(200));
        let max = most_resident(&injector);
        assert!(max < LIMIT_MIB, "{max} MiB");
    }
    let beside = beside(&injector);
    let authors: Vec<_> = (0..AUTHORS)
        .map(|author| {
            let mut client = injector.client();
            let wait = Some(Duration::from_secs(60));
            client.stream.sock.set_read_timeout(wait).unwrap();
            let trust = injector.trust();
            let (address, reviews) = (injector.address(), reviews.clone());
            std::thread::spawn(move || {
                for round in 0..ROUNDS * reviews.len() {
                    let status = post(&mut client, &reviews[(author + round) % reviews.len()]);
                    assert!(matches!(status, None | Some(200 | 429)), "{status:?}");
                    if status != Some(200) {
                        client = Client::connect(address, &trust);
                    }
                }
            })
        })
        .collect();
    for author in authors {
        author.join().unwrap();
    }
    for (one, bound) in beside {
        one.was_answered_within(bound);
    }
    within_its_limit(&injector);
    ends(injector);
}
