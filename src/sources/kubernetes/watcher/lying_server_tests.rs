//! A server that lies about one kind, in all known ways: its watcher backs off, stays within its limits, and the kind beside
//! it goes on. When the server is honest again, the watcher recovers.

use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::kubernetes::fake::{Fake, Lie};
use crate::kubernetes::page_progress::SHORT_PAGES;
use crate::kubernetes::store::{Reader, store};

const LYING: &str = "mutatingwebhookconfigurations";
const HONEST: Resource = Resource {
    group: "admissionregistration.k8s.io",
    version: "v1",
    name: "validatingwebhookconfigurations",
};

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Thing {
    metadata: crate::kind::Metadata,
    value: u32,
}

impl Kind for Thing {
    const RESOURCE: Resource = Resource {
        name: LYING,
        ..HONEST
    };

    fn key(&self) -> Key {
        self.metadata.key()
    }
}

const PACE: WatchTiming = WatchTiming {
    first: Duration::from_millis(50),
    max: Duration::from_secs(1),
    request: Duration::from_millis(500),
    watch: Duration::from_secs(60),
    grace: Duration::from_secs(1),
    steady: Duration::from_secs(30),
};
/// The duration of each lie.
const WHILE: Duration = Duration::from_millis(1000);
/// Requests within that time: after 50, 100, 200 and 400 ms, each a fifth less, a list and a watch each time; and one more
/// of both.
const REQUESTS: usize = 12;
const SOON: Duration = Duration::from_secs(20);

fn thing(name: &str, value: u32) -> serde_json::Value {
    json!({"metadata": {"name": name}, "value": value})
}

async fn until_it_has(reader: &mut Reader<Thing>, name: &str, value: u32, lie: &str) {
    let key = Key::new("", name);
    let has = async {
        while reader.get(&key).is_none_or(|thing| thing.value != value) {
            reader.changed().await.unwrap();
        }
    };
    let had = timeout(SOON, has).await;
    assert!(
        had.is_ok(),
        "{lie}: {name}={value} does not come: {:?}",
        reader.freshness()
    );
}

struct Both {
    fake: Fake,
    lying: Reader<Thing>,
    honest: Reader<Thing>,
    tasks: tokio::task::JoinSet<Infallible>,
}

impl Both {
    async fn start() -> Self {
        let fake = Fake::start().await;
        let mut tasks = tokio::task::JoinSet::new();
        let recovery = ServerRecovery::default();
        let mut run = |resource| {
            let (writer, reader) = store();
            let source = Watcher::<Thing>::new(fake.cluster(), Selection::default(), PACE);
            let source = source.of(resource).beside(recovery.clone());
            tasks.spawn(source.run(writer));
            reader
        };
        let (lying, honest) = (run(Thing::RESOURCE), run(HONEST));
        fake.put(thing("a", 1));
        fake.put_in(HONEST.name, thing("a", 1));
        Self {
            fake,
            lying,
            honest,
            tasks,
        }
    }
}

async fn lie(verb: &'static str, lie: Lie) {
    let name = format!("{verb} {lie:?}");
    let mut both = Both::start().await;
    until_it_has(&mut both.lying, "a", 1, &name).await;
    until_it_has(&mut both.honest, "a", 1, &name).await;
    let fake = both.fake.clone();
    fake.lies(verb, LYING, Some(lie));
    let before = fake.request_count(LYING);
    sleep(WHILE / 2).await;
    // The other kind goes on meanwhile.
    fake.put_in(HONEST.name, thing("a", 2));
    until_it_has(&mut both.honest, "a", 2, &name).await;
    sleep(WHILE / 2).await;
    let asked = fake.request_count(LYING) - before;
    // Pages of one list have a bound of their own.
    let is_pages = matches!(lie, Lie::Pages(_));
    let pages = SHORT_PAGES as usize * REQUESTS / 2;
    let max = REQUESTS + if is_pages { pages } else { 0 };
    assert!(asked <= max, "{name}: {asked} requests");
    // The objects listed before stay.
    assert!(
        both.lying.get(&Key::new("", "a")).is_some() || says_nothing(lie),
        "{name}"
    );
    fake.lies(verb, LYING, None);
    fake.put(thing("a", 3));
    until_it_has(&mut both.lying, "a", 3, &name).await;
    assert!(both.tasks.try_join_next().is_none(), "{name}");
}

/// Runs each lie in a cluster of its own, in parallel.
async fn all(verb: &'static str, lies: &[Lie]) {
    let mut tasks = tokio::task::JoinSet::new();
    for one in lies {
        tasks.spawn(lie(verb, *one));
    }
    while let Some(one) = tasks.join_next().await {
        one.unwrap();
    }
}

/// An empty list cannot be told from the truth.
fn says_nothing(lie: Lie) -> bool {
    matches!(lie, Lie::Says(text) if text.contains("items"))
}

const UNKNOWN: &str = r#"{"type":"NEWS","object":{"metadata":{}}}"#;
const BOOKMARK: &str = r#"{"type":"BOOKMARK","object":{"metadata":{}}}"#;
const BARE: &str = r#"{"type":"BOOKMARK","object":{}}"#;
const GONE: &str = r#"{"type":"ERROR","object":{"code":410,"message":"gone"}}"#;
const GOOD: &str =
    r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"11"},"value":1}}"#;
const WRONG: &str = r#"{"type":"MODIFIED","object":{"metadata":{"name":"a"},"value":"x"}}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_list_harms_no_other_watch() {
    let html = "<html><body>502 Bad Gateway</body></html>";
    let lies = [
        Lie::Status(403),
        Lie::Status(410),
        Lie::Status(429),
        Lie::Status(500),
        Lie::Says(html),
        Lie::Says("null"),
        Lie::Says(r#"{"metadata":{},"items":[]}"#),
        Lie::Says(r#"{"metadata":{"resourceVersion":"10"},"items":null}"#),
        Lie::Says(r#"{"metadata":{"resourceVersion":"10"},"items":{}}"#),
        Lie::Cut,
        Lie::Silence,
        Lie::Endless,
        Lie::Compressed,
        Lie::Pages(0),
        Lie::Pages(1),
        Lie::SamePage,
        Lie::WrongItem,
        Lie::Twice,
    ];
    assert!(!lies.iter().any(|one| one.is_of_watches()));
    all("list", &lies).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_watch_harms_no_other() {
    let lies = [
        Lie::Status(403),
        Lie::Status(410),
        Lie::Status(429),
        Lie::Status(500),
        Lie::Says("<html></html>"),
        Lie::Cut,
        Lie::Silence,
        Lie::Endless,
        Lie::Compressed,
        Lie::Ends,
        Lie::Line("garbage"),
        Lie::Line("{}"),
        Lie::Line(GONE),
        Lie::Line(GOOD),
        Lie::Line(UNKNOWN),
        Lie::Line(BARE),
        Lie::Line(WRONG),
        Lie::Lines(UNKNOWN),
        Lie::Lines(BOOKMARK),
        Lie::Lines(WRONG),
        Lie::Lines(""),
        Lie::Trickle,
        Lie::Back,
    ];
    all("watch", &lies).await;
}
