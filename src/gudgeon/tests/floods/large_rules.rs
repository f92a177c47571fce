//! Rules as large as their authors can make them, one after the other: beside them a proxy has its updates, and health answers.

#![allow(
    clippy::await_holding_lock,
    reason = "each test has a runtime of its own, and one runs at a time"
)]

use std::time::Duration;

use serde_json::Value;

use crate::alone;
use crate::client::{CDS, RDS, Sotw, node_of};
use crate::place::Discovery;
use crate::proxies::{WellBehaved, mesh};
use crate::support::program::until;

/// An update waits for a file that was written before it: the program that ships reads one of four megabytes in 80 ms, the one
/// under test in seconds.
const PROMPT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 15 } else { 2 });

fn rule(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: {name}, namespace: evil}}\nspec: {spec}\n"
    )
}

/// Returns the status of a rule, as the page of configuration shows it.
fn status(discovery: &Discovery, name: &str) -> Value {
    until("the rule's status", || {
        let rows = discovery.json("/debug/configz?kind=VirtualService");
        let mut rows = rows.as_array()?.iter();
        let row = rows.find(|row| row["metadata"]["name"] == name)?;
        Some(row["status"].clone())
    })
}

#[tokio::test]
async fn large_rules_hold_up_no_client() {
    let _alone = alone();
    let discovery = mesh(200).start();
    let mut good = WellBehaved::of(&discovery).await;
    good.prompt = PROMPT;
    let to = "route: [{destination: {host: b.demo.svc.cluster.local}}]";
    let routes: Vec<_> = (0..1000)
        .map(|at| format!("{{match: [{{uri: {{exact: /p{at}}}}}], {to}}}"))
        .collect();
    let routes = rule(
        "routes",
        &format!(
            "{{exportTo: ['.'], hosts: [r.example], http: [{}]}}",
            routes.join(", ")
        ),
    );
    let hosts: Vec<_> = (0..10_000).map(|at| format!("h{at}.example")).collect();
    let hosts = format!(
        "{{exportTo: ['.'], hosts: [{}], http: [{{{to}}}]}}",
        hosts.join(", ")
    );
    let value = "x".repeat(2000);
    let large = |name: &str, count: usize| {
        let one = format!("{{match: [{{headers: {{x: {{exact: {value}}}}}}}], {to}}}");
        let all = vec![one; count].join(", ");
        rule(
            name,
            &format!("{{exportTo: ['.'], hosts: [{name}.example], http: [{all}]}}"),
        )
    };
    // One of 1,000 routes, one of 10,000 hosts, that again, three of a megabyte each, one of four.
    let mut all = vec![
        ("routes".to_owned(), routes),
        ("hosts".to_owned(), rule("hosts", &hosts)),
        ("again".to_owned(), rule("again", &hosts)),
    ];
    all.extend((0..3).map(|number| {
        let name = format!("large{number}");
        (name.clone(), large(&name, 450))
    }));
    all.push(("huge".to_owned(), large("huge", 1900)));
    // What it loses is told while somebody sees it.
    let id = "sidecar~10.9.0.2~evil-2.evil~evil.svc.cluster.local";
    let seeing = Sotw::open(discovery.grpc).await;
    seeing.ask_as(node_of(id), CDS, &[]);
    let mut made = 0;
    for (name, text) in &all {
        discovery.place.write(&format!("config/{name}.yaml"), text);
        status(&discovery, name);
        // A proxy of that namespace has all of it made.
        let mut own = Sotw::open(discovery.grpc).await;
        let id = "sidecar~10.9.0.1~evil-1.evil~evil.svc.cluster.local";
        own.ask_as(node_of(id), RDS, &["8080"]);
        good.has_an_update(&discovery).await;
        let answer = own.next(Duration::from_secs(20)).await;
        // What is larger than its client takes ends its own stream.
        made += usize::from(answer.is_some_and(|answer| answer.is_ok()));
    }
    assert!(made >= 3, "{made}");
    assert_eq!(status(&discovery, "routes")["accepted"], true);
    let messages = status(&discovery, "hosts")["messages"].to_string();
    assert!(messages.contains("is older"), "{messages}");
    assert!(messages.len() < 10_000, "{}", messages.len());
    let huge = status(&discovery, "huge");
    assert_eq!(huge["accepted"], false, "{huge}");
    assert!(huge["messages"].to_string().contains("too large"), "{huge}");
    for (name, _) in &all {
        std::fs::remove_file(discovery.place.path(&format!("config/{name}.yaml"))).unwrap();
    }
    good.has_an_update(&discovery).await;
    good.ends(discovery);
}

/// Bodies of four megabytes for `/debug/memory`, one after the other.
#[tokio::test]
async fn large_bodies_for_memory_hold_up_no_client() {
    let _alone = alone();
    let discovery = mesh(10).arg("--registries=mock").start();
    let mut good = WellBehaved::of(&discovery).await;
    good.prompt = PROMPT;
    let of = |count: usize| {
        let rules = (0..count).map(|at| {
            let to = "http: [{route: [{destination: {host: b.demo.svc.cluster.local}}]}]";
            rule(
                &format!("r{at}"),
                &format!("{{exportTo: ['.'], hosts: [h{at}.example], {to}}}"),
            )
        });
        rules.collect::<Vec<_>>().join("---\n")
    };
    let body = of((4 << 20) / of(10).len() * 9);
    assert!(body.len() < 4 << 20, "{}", body.len());
    for _ in 0..3 {
        let (status, answer) = discovery.put_memory(&body);
        assert_eq!(status, 200, "{answer}");
        good.has_an_update(&discovery).await;
    }
    assert_eq!(discovery.put_memory("---").0, 200);
    good.ends(discovery);
}
