//! Consul as a source, against an agent that does what a real one does only now and then.

mod fake;
#[path = "../../../../tests/fuzz-gudgeon/properties/consul.rs"]
mod property;

use std::time::Duration;

use api::model::{Health, ServiceKey};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::fake::{ConsulFault, FakeConsul};
use super::{Address, Consul, ConsulUpdate, Token, convert, wire};
use crate::contribution::SyncState;

/// Requests within two seconds, with one service that is invalid.
const ASKED: usize = 16;
/// In which a change must be seen.
const SOON: Duration = Duration::from_secs(1);

/// A source that runs until it is dropped.
struct Source {
    task: JoinHandle<()>,
    updates: watch::Receiver<ConsulUpdate>,
}

impl Drop for Source {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Source {
    fn of(fake: &FakeConsul) -> Self {
        let address: Address = format!("http://{}", fake.address()).parse().unwrap();
        let consul = Consul::new(address, Token::new("sesame"), "west".into());
        let (to, updates) = watch::channel(ConsulUpdate::default());
        let task = tokio::spawn(async move {
            consul.run(to).await;
        });
        Self { task, updates }
    }

    async fn until(
        &mut self,
        within: Duration,
        what: &str,
        is_so: impl FnMut(&ConsulUpdate) -> bool,
    ) {
        let came = timeout(within, self.updates.wait_for(is_so)).await;
        let _update = came
            .unwrap_or_else(|_| panic!("{what}: not within {within:?}"))
            .unwrap();
    }

    async fn synced(fake: &FakeConsul) -> Self {
        let mut source = Self::of(fake);
        source
            .until(SOON * 5, "synced", |update| {
                update.sync_state == SyncState::Synced
            })
            .await;
        source
    }
}

/// `address:port health` of a service, by name.
fn endpoints(update: &ConsulUpdate, name: &str) -> Vec<String> {
    let key = ServiceKey::new(&format!("{name}.service.consul"), "default");
    let endpoints = update.contribution.endpoints.get(&key);
    let drawn = |endpoint: &api::model::Endpoint| {
        let ready = if endpoint.health == Health::Ready {
            ""
        } else {
            " out"
        };
        format!("{}:{}{ready}", endpoint.address, endpoint.port)
    };
    endpoints.map_or_else(Vec::new, |endpoints| endpoints.iter().map(drawn).collect())
}

#[tokio::test]
async fn registered_services_are_served_and_changes_arrive_soon() {
    let fake = FakeConsul::start().await;
    fake.set("web", &[("web-1", "10.0.0.1", 80, "passing")]);
    let mut source = Source::synced(&fake).await;
    assert_eq!(endpoints(&source.updates.borrow(), "web"), ["10.0.0.1:80"]);
    let both = [
        ("web-1", "10.0.0.1", 80, "passing"),
        ("web-2", "10.0.0.2", 80, "warning"),
    ];
    fake.set("web", &both);
    source
        .until(SOON, "a second instance", |update| {
            endpoints(update, "web") == ["10.0.0.1:80", "10.0.0.2:80"]
        })
        .await;
    fake.set("web", &[both[0], ("web-2", "10.0.0.2", 80, "critical")]);
    source
        .until(SOON, "a critical check", |update| {
            endpoints(update, "web") == ["10.0.0.1:80", "10.0.0.2:80 out"]
        })
        .await;
    fake.set("db", &[("db-1", "10.0.0.3", 5432, "passing")]);
    source
        .until(SOON * 2, "a second service", |update| {
            endpoints(update, "db") == ["10.0.0.3:5432"]
        })
        .await;
    fake.remove("web");
    source
        .until(SOON, "no first service", |update| {
            endpoints(update, "web").is_empty() && update.contribution.services.len() == 1
        })
        .await;
    assert!(fake.log().iter().all(|line| line.ends_with(" sesame")));
}

#[tokio::test]
async fn while_idle_there_is_nothing_but_waiting() {
    let fake = FakeConsul::start().await;
    for name in ["a", "b", "c"] {
        fake.set(name, &[(name, "10.0.0.1", 80, "passing")]);
    }
    let mut source = Source::synced(&fake).await;
    fake.until("all wait", |fake| fake.waiting() == 4).await;
    source.updates.borrow_and_update();
    let before = fake.log().len();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(fake.log().len(), before);
    // Another order of tags and of instances raises the index, and is no change.
    let first = ("a", "10.0.0.1", 80, "passing");
    fake.set("a", &[first, ("a2", "10.0.0.2", 80, "passing")]);
    source
        .until(SOON, "two", |update| endpoints(update, "a").len() == 2)
        .await;
    source.updates.borrow_and_update();
    let before = fake.log().len();
    fake.set("a", &[("a2", "10.0.0.2", 80, "passing"), first]);
    fake.turn_tags();
    fake.until("it is read", |fake| {
        fake.log().len() > before && fake.waiting() == 4
    })
    .await;
    assert!(!source.updates.has_changed().unwrap());
}

#[tokio::test]
async fn an_index_that_goes_back_is_followed() {
    let fake = FakeConsul::start().await;
    fake.set("web", &[("web-1", "10.0.0.1", 80, "passing")]);
    let mut source = Source::synced(&fake).await;
    fake.until("all wait", |fake| fake.waiting() == 2).await;
    // As after the restore of a backup.
    fake.restore(5);
    fake.set("web", &[("web-1", "10.0.0.9", 80, "passing")]);
    source
        .until(SOON, "the restored one", |update| {
            endpoints(update, "web") == ["10.0.0.9:80"]
        })
        .await;
    let asked_anew = |line: &String| line.starts_with("/v1/health/service/web?index=0&");
    fake.until("it begins anew", |fake| {
        fake.log().iter().filter(|line| asked_anew(line)).count() > 1
    })
    .await;
    fake.until("and waits", |fake| fake.waiting() == 2).await;
}

#[tokio::test]
async fn without_the_right_to_checks_there_are_instances() {
    let fake = FakeConsul::start().await;
    fake.set("web", &[("web-1", "10.0.0.1", 80, "critical")]);
    fake.fault("/v1/health/", ConsulFault::Status(403));
    let mut source = Source::synced(&fake).await;
    // Without checks the instance counts as healthy.
    assert_eq!(endpoints(&source.updates.borrow(), "web"), ["10.0.0.1:80"]);
    fake.set("web", &[("web-1", "10.0.0.2", 80, "passing")]);
    source
        .until(SOON, "a change", |update| {
            endpoints(update, "web") == ["10.0.0.2:80"]
        })
        .await;
    assert_eq!(source.updates.borrow().sync_state, SyncState::Synced);
}

/// A malformed or endless response keeps the last state, and is logged.
#[tokio::test]
async fn a_hostile_agent_changes_nothing() {
    let faults = [
        ConsulFault::Endless,
        ConsulFault::EndlessHead,
        ConsulFault::Says("[[["),
        ConsulFault::Says("{\"Node\":1}"),
        ConsulFault::Cut,
        ConsulFault::Status(429),
        ConsulFault::Status(500),
    ];
    let mut all = tokio::task::JoinSet::new();
    for fault in faults {
        all.spawn(suffers(fault));
    }
    while let Some(one) = all.join_next().await {
        one.unwrap();
    }
}

async fn suffers(fault: ConsulFault) {
    let fake = FakeConsul::start().await;
    fake.set("a", &[("a-1", "10.0.0.1", 80, "passing")]);
    fake.set("b", &[("b-1", "10.0.0.2", 80, "passing")]);
    let mut source = Source::synced(&fake).await;
    fake.fault("/v1/health/service/a", fault);
    fake.set("a", &[("a-1", "10.0.0.3", 80, "passing")]);
    fake.set("b", &[("b-1", "10.0.0.4", 80, "passing")]);
    let is_stale = |update: &ConsulUpdate| {
        let SyncState::Stale { error } = &update.sync_state else {
            return false;
        };
        assert!(
            error.contains("service a") || error.contains("/a of http"),
            "{error}"
        );
        assert!(!error.contains("sesame"));
        true
    };
    source.until(SOON * 10, "stale", is_stale).await;
    // The other questions are answered, and this one is not asked the faster for it.
    let before = fake.log().len();
    tokio::time::sleep(SOON * 2).await;
    let asked = fake.log().split_off(before);
    assert!(asked.len() <= ASKED, "{fault:?}: {asked:?}");
    assert_eq!(
        endpoints(&source.updates.borrow(), "a"),
        ["10.0.0.1:80"],
        "{fault:?}"
    );
    fake.mend();
    let is_well = |update: &ConsulUpdate| {
        update.sync_state == SyncState::Synced
            && endpoints(update, "a") == ["10.0.0.3:80"]
            && endpoints(update, "b") == ["10.0.0.4:80"]
    };
    source.until(SOON * 10, "well again", is_well).await;
}

/// The agent sends no byte; the clock advances by the query's deadline only.
#[tokio::test(start_paused = true)]
async fn silence_is_an_error_in_the_end() {
    let fake = FakeConsul::start().await;
    fake.fault("/v1/", ConsulFault::Silence);
    let source = Source::of(&fake);
    let begun = tokio::time::Instant::now();
    fake.until("asked again", |fake| fake.log().len() > 1).await;
    assert!(begun.elapsed() >= super::client::EXCHANGE);
    assert_eq!(source.updates.borrow().sync_state, SyncState::Syncing);
}

#[tokio::test]
async fn many_services_do_not_open_more_connections_than_the_agent_takes() {
    let fake = FakeConsul::start().await;
    fake.allow(50);
    for at in 0..120 {
        let name = format!("s{at:03}");
        fake.set(&name, &[(&name, "10.0.0.1", 80, "passing")]);
    }
    let mut source = Source::synced(&fake).await;
    assert_eq!(source.updates.borrow().contribution.services.len(), 120);
    // One that waits, and one in turn.
    fake.set("s000", &[("x", "10.0.0.2", 80, "passing")]);
    fake.set("s119", &[("x", "10.0.0.2", 80, "passing")]);
    source
        .until(SOON * 12, "both", |update| {
            ["s000", "s119"].map(|name| endpoints(update, name))
                == [["10.0.0.2:80"], ["10.0.0.2:80"]]
        })
        .await;
    assert_eq!(source.updates.borrow().sync_state, SyncState::Synced);
}

#[test]
fn names_without_a_valid_query_are_left_out() {
    let text = json!({"web": [], "a b": null, "": [], "../x": ["t"], "a..b": [], "Web_2": ["k|v"]})
        .to_string();
    let catalog = wire::catalog(text.as_bytes()).unwrap();
    let names: Vec<_> = catalog.names.iter().map(|name| &**name).collect();
    assert_eq!(names, ["Web_2", "web"]);
    assert_eq!(catalog.warnings.len(), 1);
    assert!(catalog.warnings[0].contains("of 4 such"), "{catalog:?}");
}

#[test]
fn entries_have_a_bound() {
    let names = (0..=wire::NAMES).map(|at| format!("\"s{at}\":[]"));
    let text = format!("{{{}}}", names.collect::<Vec<_>>().join(","));
    let error = wire::catalog(text.as_bytes()).unwrap_err();
    assert!(error.contains("more than 20000 services"), "{error}");
    let text = format!("[{}]", vec!["{}"; wire::INSTANCES + 1].join(","));
    let error = wire::instances(text.as_bytes()).unwrap_err();
    assert!(error.contains("more than 20000 entries"), "{error}");
}

#[test]
fn a_value_of_the_wrong_type_is_not_quoted() {
    let text = r#"[{"Node": {}, "Service": {"Meta": {"protocol": "http"}, "Port": "hunter2"}}]"#;
    let error = wire::health(text.as_bytes()).unwrap_err();
    assert!(error.starts_with("a value is not i64"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn kept_answers() {
    crate::corpus::replay("consul", property::check);
}

/// The examples that fuzzing begins with, without a fuzzer.
#[test]
fn examples_of_answers() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/fuzz/consul");
    let mut found = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        property::check(&bytes);
        for cut in 0..bytes.len() {
            property::check(&bytes[..cut]);
        }
        found += 1;
    }
    assert!(found > 3, "there are no examples");
}
