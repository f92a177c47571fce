//! Ingresses of an API server.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::source::settings;
use crate::kubernetes::fake::Fake;
use crate::kubernetes::index::ingresses::ingresses;

fn ingress(name: &str, host: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "shop", "labels": {"a": "b"}, "managedFields": [{}],
            "annotations": {"kubernetes.io/ingress.class": "istio", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
        },
        "spec": {"rules": [{"host": host}]}, "status": {"loadBalancer": {}},
    })
}

#[tokio::test]
async fn ingresses_come_change_and_go() {
    let fake = Fake::start().await;
    fake.set_api_group("/apis/networking.k8s.io/v1", &["ingresses"]);
    let (to, mut found) = watch::channel(None);
    let running = tokio::spawn(ingresses(fake.cluster(), None, settings().pace, to));
    let mut until = async |expected: &[(&str, &str)]| {
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, host)| {
                let object = json!({
                    "metadata": {
                        "name": name, "namespace": "shop", "creationTimestamp": null,
                        "annotations": {"kubernetes.io/ingress.class": "istio"},
                    },
                    "spec": {"rules": [{"host": host}]},
                });
                ((*name).to_owned(), object)
            })
            .collect();
        let is_it = |known: &Option<std::sync::Arc<crate::contribution::Ingresses>>| {
            let Some(known) = known else {
                return false;
            };
            let all = known.iter().map(|((_, name), json)| {
                (
                    name.to_string(),
                    serde_json::from_str::<Value>(json).unwrap(),
                )
            });
            all.collect::<Vec<_>>() == expected
        };
        let is_found = timeout(Duration::from_secs(20), found.wait_for(is_it))
            .await
            .is_ok_and(|found| found.is_ok());
        assert!(
            is_found,
            "not within 20 s: {:?}, want {expected:?}",
            found.borrow()
        );
    };
    until(&[]).await;
    fake.put_in("ingresses", ingress("a", "a.example"));
    until(&[("a", "a.example")]).await;
    fake.put_in("ingresses", ingress("b", "b.example"));
    fake.put_in("ingresses", ingress("a", "c.example"));
    until(&[("a", "c.example"), ("b", "b.example")]).await;
    fake.delete_in("ingresses", "shop/a");
    until(&[("b", "b.example")]).await;
    running.abort();
}

#[tokio::test]
async fn ingresses_that_may_not_be_read_are_an_empty_list() {
    let fake = Fake::start().await;
    fake.forbid(&["ingresses"]);
    let (to, mut found) = watch::channel(None);
    let running = tokio::spawn(ingresses(fake.cluster(), None, settings().pace, to));
    let waited = timeout(Duration::from_secs(20), found.wait_for(Option::is_some)).await;
    assert!(
        waited
            .expect("not within 20 s")
            .unwrap()
            .as_ref()
            .unwrap()
            .is_empty()
    );
    running.abort();
}
