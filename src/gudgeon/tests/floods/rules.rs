//! The same at the webhook for rules: strangers that are slow, and objects that are as large as their authors can make them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::{Value, json};

use super::strangers::{Target, attacked};
use super::{HEALTH, REVIEW, alone, most_resident};
use crate::rule_place::{Galley, GalleyPlace};
use crate::support::beside::Beside;
use crate::support::program::{request, until};
use crate::support::{Client, JSON, pair};

/// The memory limit of the shipped manifest, in MiB.
const LIMIT_MIB: u64 = 256;
/// Authors at a time.
const AUTHORS: usize = 8;

/// The webhook of a galley that runs.
struct Webhook {
    galley: Galley,
    target: Target,
}

impl Webhook {
    fn new() -> Self {
        let (chain, key) = pair();
        let place = GalleyPlace::new()
            .with("chain.pem", &chain)
            .with("key.pem", &key)
            .arg("--validation-port=0");
        let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
        let (cert, key) = (path("chain.pem"), path("key.pem"));
        let place = place.arg("--tlsCertFile").arg(&cert);
        let galley = place.arg("--tlsKeyFile").arg(&key).start();
        let port: u16 = until("its port", || {
            let log = galley.log();
            let mut lines = log.iter();
            let parts = lines.find_map(|line| line.split_once("validation on https://"))?;
            parts.1.rsplit(':').next()?.parse().ok()
        });
        Self {
            target: Target {
                address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
                trust: chain,
                path: "/validate",
                review: review(&good()).to_string(),
            },
            galley,
        }
    }

    fn client(&self) -> Client {
        Client::connect(self.target.address, &self.target.trust)
    }

    fn beside(&self) -> [(Beside, Duration); 2] {
        let mut established = self.client();
        let body = self.target.review.clone();
        allowed(&mut established, &body);
        let reviews = Beside::start("review", move || allowed(&mut established, &body));
        let monitoring = self.galley.monitoring;
        let health = Beside::start("health", move || {
            let answer = request(monitoring, "GET", "/healthz");
            assert_eq!(answer.map(|(status, _)| status), Some(200));
        });
        [(reviews, REVIEW), (health, HEALTH)]
    }

    fn ends(mut self, beside: [(Beside, Duration); 2]) {
        for (one, bound) in beside {
            one.was_answered_within(bound);
        }
        let max = most_resident(&self.galley);
        assert!(max < LIMIT_MIB, "{max} MiB");
        assert_eq!(self.galley.metric("gudgeon_panics_total"), Some(0.0));
        self.galley.signal("TERM");
        assert_eq!(self.galley.wait().code(), Some(0));
    }
}

fn good() -> Value {
    json!({"apiVersion": "networking.istio.io/v1", "kind": "Sidecar", "metadata": {"name": "a"},
        "spec": {"egress": [{"hosts": ["./*"]}]}})
}

fn review(object: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "CREATE", "namespace": "shop",
        "resource": {"group": "networking.istio.io", "version": "v1", "resource": "sidecars"},
        "object": object}})
}

fn allowed(client: &mut Client, body: &str) {
    let answer = client.request("POST", "/validate", JSON, body.as_bytes());
    assert_eq!(answer.unwrap().json()["response"]["allowed"], true);
}

#[test]
fn slow_bodies_of_strangers_hold_up_no_kept_connection() {
    let _alone = alone();
    let webhook = Webhook::new();
    let beside = webhook.beside();
    let body = &webhook.target.review;
    attacked(&webhook.target, || allowed(&mut webhook.client(), body));
    let before = webhook.galley.anonymous();
    attacked(&webhook.target, || allowed(&mut webhook.client(), body));
    until("memory is back", || {
        (webhook.galley.anonymous() <= before * 6 / 5).then_some(())
    });
    webhook.ends(beside);
}

/// Objects of 1.5 MiB and of 8 MiB, of the smallest values there are: one of them took more than 200 MB.
fn large() -> Vec<String> {
    let of = |bytes: usize, item: &str| {
        let mut object = good();
        object["spec"] = json!("MUCH");
        let items = vec![item; bytes / (item.len() + 1)].join(",");
        let text = review(&object).to_string();
        text.replace("\"MUCH\"", &format!("{{\"egress\":[{items}]}}"))
    };
    let sizes = [300 << 10, 1500 << 10, (8 << 20) - 2000];
    let all = sizes.map(|bytes| [r#"{"a":1}"#, "[]", "1"].map(|item| of(bytes, item)));
    all.concat()
}

#[test]
fn large_objects_cost_their_authors_alone() {
    let _alone = alone();
    let webhook = Webhook::new();
    let all = large();
    for body in &all {
        let answer = webhook
            .client()
            .request("POST", "/validate", JSON, body.as_bytes());
        assert_eq!(answer.unwrap().json()["response"]["allowed"], false);
        let max = most_resident(&webhook.galley);
        assert!(max < LIMIT_MIB, "{max} MiB");
    }
    let beside = webhook.beside();
    let authors: Vec<_> = (0..AUTHORS)
        .map(|author| {
            let (target, all) = (webhook.target.clone(), all.clone());
            std::thread::spawn(move || {
                for round in 0..all.len() {
                    let mut client = Client::connect(target.address, &target.trust);
                    let wait = Some(Duration::from_secs(60));
                    client.stream.sock.set_read_timeout(wait).unwrap();
                    let body = &all[(author + round) % all.len()];
                    let answer = client.request("POST", "/validate", JSON, body.as_bytes());
                    let status = answer.map(|answer| answer.status);
                    assert!(matches!(status, None | Some(200 | 429)), "{status:?}");
                }
            })
        })
        .collect();
    for author in authors {
        author.join().unwrap();
    }
    webhook.ends(beside);
}
