//! Hostile tenants, by the size of their results: lists that multiply, beside a client of another tenant's service.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::client::*;
use crate::place::{Place, documents, run, until};

/// An entry with so many hosts, ports and endpoints.
fn many(name: &str, hosts: usize, ports: usize, endpoints: usize) -> String {
    let mut text = format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: attacker}}\nspec:\n  \
         resolution: STATIC\n  hosts: ["
    );
    for host in 0..hosts {
        write!(text, "h{host}.{name}.example,").unwrap();
    }
    text.push_str("]\n  ports: [");
    for port in 1..=ports {
        write!(text, "{{number: {port}, name: p{port}, protocol: HTTP}},").unwrap();
    }
    text.push_str("]\n  endpoints: [");
    for endpoint in 0..endpoints {
        let (high, low) = (endpoint / 250, endpoint % 250 + 1);
        write!(text, "{{address: 10.1.{high}.{low}}},").unwrap();
    }
    text.push_str("]\n");
    text
}

/// 37 kB used to become 55 MB for every proxy, and 100 kB used to block all tasks for seconds.
#[tokio::test]
async fn an_entry_that_multiplies_is_refused_alone() {
    let discovery = Place::new()
        .with("config/b.yaml", &service("b", &["10.0.0.1"]))
        .start();
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.settle(&[B], &["8080"]).await;
    for (name, entry, cause) in [
        (
            "pairs",
            many("pairs", 600, 600, 0),
            "600 hosts with 600 ports are 360000 ports of services, more than 4096: split the entry",
        ),
        (
            "places",
            many("places", 10, 200, 200),
            "10 hosts with 200 ports and 200 endpoints are 400000 places, more than 100000: split the entry",
        ),
    ] {
        let file = format!("config/{name}.yaml");
        discovery.place.write(&file, &entry);
        let status = until("it is refused", || {
            let all = discovery.json("/debug/configz?kind=ServiceEntry");
            let mut all = all.as_array()?.iter();
            let one = all.find(|object| object["metadata"]["name"] == name)?;
            Some(one["status"].clone())
        });
        assert_eq!(status["accepted"], false, "{status}");
        assert!(status["messages"].to_string().contains(cause), "{status}");
        let path = discovery.place.path(&file);
        let validated = run(&["validate", "-f", path.to_str().unwrap()]);
        let output =
            String::from_utf8_lossy(&validated.stderr) + String::from_utf8_lossy(&validated.stdout);
        assert!(
            !validated.status.success() && output.contains(cause),
            "{output}"
        );
    }
    stream.is_quiet().await;
    discovery
        .place
        .write("config/b.yaml", &service("b", &["10.0.0.2"]));
    let eds = stream.hear(EDS).await;
    assert_eq!(names_of(&eds), [B]);
}

/// As much as may be, made beside the loop: others are served, and get theirs.
#[tokio::test]
async fn a_tenant_at_its_limits_holds_up_no_other() {
    let discovery = Place::new()
        .with("config/b.yaml", &service("b", &["10.0.0.1"]))
        .start();
    let mut stream = Sotw::open(discovery.grpc).await;
    let [_, eds, ..] = stream.settle(&[B], &["8080"]).await;
    let entries: Vec<_> = (0..4)
        .map(|at| many(&format!("large{at}"), 40, 100, 25))
        .collect();
    discovery
        .place
        .write("config/large.yaml", &documents(&entries));
    let cds = stream.hear(CDS).await;
    assert_eq!(names_of(&cds).len(), 3 + 4 * 4000);
    let names = names_of(&cds);
    let names: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| name.starts_with("outbound|"))
        .collect();
    stream.ack(&cds, &[]);
    stream.ack(&eds, &names);
    let begun = Instant::now();
    let mut asked = 0;
    let mut last = 0;
    let mut longest = Duration::ZERO;
    // All but the one that it has.
    while last + 1 < names.len() {
        // Beside it the page for kubelet answers.
        let before = Instant::now();
        let (status, _) = discovery.get("/ready");
        assert_eq!(status, 200);
        longest = longest.max(before.elapsed());
        asked += 1;
        if let Some(response) = stream.next(Duration::from_millis(1)).await {
            let response = response.unwrap();
            if response.type_url == EDS {
                last = last.max(response.resources.len());
                stream.ack(&response, &names);
            } else {
                stream.ack(&response, &[]);
            }
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{last} after {asked}"
        );
    }
    assert!(longest < Duration::from_secs(2), "{longest:?}, of {asked}");
}
