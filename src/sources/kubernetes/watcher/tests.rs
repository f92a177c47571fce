use super::*;
use crate::kind::{Key, Metadata, Resource};
use crate::kubernetes::fair_room::MIN_BYTES;
use crate::kubernetes::fake::{Fake, Fault};
use crate::kubernetes::store::{Change, Changes, Reader, store};
use crate::offload::LONG_BYTES;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// At the path that the fake serves.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Thing {
    metadata: Metadata,
    #[serde(default)]
    value: u32,
}

impl Kind for Thing {
    const RESOURCE: Resource = Resource {
        group: "admissionregistration.k8s.io",
        version: "v1",
        name: "mutatingwebhookconfigurations",
    };

    fn key(&self) -> Key {
        self.metadata.key()
    }
}

const PACE: WatchTiming = WatchTiming {
    first: Duration::from_millis(5),
    max: Duration::from_millis(40),
    request: Duration::from_millis(300),
    watch: Duration::from_secs(20),
    grace: Duration::from_secs(1),
    steady: Duration::from_millis(100),
};

fn thing(name: &str, value: u32) -> Value {
    json!({"metadata": {"name": name, "labels": {"dropped": "x"}}, "value": value})
}

/// Ended when it is dropped.
struct Running(JoinHandle<Infallible>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn run(fake: &Fake, selection: Selection, timing: WatchTiming) -> (Running, Reader<Thing>) {
    let (writer, reader) = store();
    let source = Watcher::new(fake.cluster(), selection, timing);
    (Running(tokio::spawn(source.run(writer))), reader)
}

async fn next_changes(reader: &mut Reader<Thing>) -> Changes<Thing> {
    let changes = timeout(Duration::from_secs(10), reader.changed()).await;
    changes.expect("nothing changed for 10 s").unwrap()
}

/// The next changes that are any, as `a=1` and `-a`.
async fn next(reader: &mut Reader<Thing>) -> Vec<String> {
    loop {
        let changes = next_changes(reader).await;
        if !changes.changes.is_empty() {
            let say = |change: &Change<Thing>| match change {
                Change::Set(key, thing) => format!("{key}={}", thing.value),
                Change::Gone(key) => format!("-{key}"),
            };
            return changes.changes.iter().map(say).collect();
        }
    }
}

/// An object of the name `panics` cannot be read without a mistake of the program.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(from = "Thing")]
struct Panicking(Thing);

impl From<Thing> for Panicking {
    fn from(thing: Thing) -> Self {
        assert_ne!(&*thing.metadata.name, "panics", "a mistake");
        Self(thing)
    }
}

impl Kind for Panicking {
    const RESOURCE: Resource = Thing::RESOURCE;

    fn key(&self) -> Key {
        self.0.key()
    }
}

/// Whose watch it is: each keeps what it has, says why it is stale, and starts again.
#[tokio::test]
async fn a_panic_is_a_failed_try_and_objects_stay() {
    let fake = Fake::start().await;
    fake.put(thing("a", 1));
    let (writer, mut reader) = store::<Panicking>();
    let source = Watcher::new(fake.cluster(), Selection::default(), PACE);
    let _running = Running(tokio::spawn(source.run(writer)));
    let name = |name| Key::new("", name);
    let until = async |reader: &mut Reader<Panicking>,
                       what: &dyn Fn(&Changes<Panicking>) -> bool| {
        let within = async { while !what(&reader.changed().await.unwrap()) {} };
        timeout(Duration::from_secs(10), within)
            .await
            .expect("not within 10 s");
    };
    until(&mut reader, &|changes| changes.freshness.listed).await;
    // An event, and then each list.
    fake.put(thing("panics", 1));
    until(&mut reader, &|changes| changes.freshness.stale.is_some()).await;
    let (_, why) = reader.freshness().stale.unwrap();
    let expected = "the watch of mutatingwebhookconfigurations.admissionregistration.k8s.io panicked, see the log";
    assert_eq!(why, expected);
    assert!(reader.get(&name("a")).is_some());
    fake.delete("panics");
    fake.delete("a");
    fake.put(thing("b", 1));
    until(&mut reader, &|changes| changes.freshness.stale.is_none()).await;
    assert!(reader.get(&name("a")).is_none() && reader.get(&name("b")).is_some());
}

/// Waits for the store to be stale, and returns the reason.
async fn stale(reader: &mut Reader<Thing>) -> String {
    loop {
        if let Some((_, why)) = next_changes(reader).await.freshness.stale {
            return why;
        }
    }
}

async fn until(what: impl Fn() -> bool) {
    for _ in 0..1000 {
        if what() {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not come to that within 10 s");
}

#[tokio::test]
async fn objects_are_listed_in_pages_and_appear_at_once() {
    let fake = Fake::start().await;
    for n in 0..250 {
        fake.put(thing(&format!("t{n:03}"), n));
    }
    let (_running, mut reader) = run(&fake, Selection::default(), PACE);
    assert!(next_changes(&mut reader).await.changes.is_empty());
    assert_eq!(next_changes(&mut reader).await.changes.len(), 250);
    assert_eq!(fake.log()[..3], ["list", "list 100", "list 200"]);
    fake.put(thing("t000", 7));
    assert_eq!(next(&mut reader).await, ["t000=7"]);
    fake.delete("t001");
    assert_eq!(next(&mut reader).await, ["-t001"]);
    assert_eq!(fake.log()[3..], ["watch 260"]);
}

#[tokio::test]
async fn one_object_is_asked_for_by_its_name() {
    let fake = Fake::start().await;
    fake.put(thing("a", 1));
    fake.put(thing("b", 1));
    let selection = Selection {
        name: Some("a".to_owned()),
        labels: Some("app=web".to_owned()),
        namespace: None,
    };
    let (_running, mut reader) = run(&fake, selection, PACE);
    assert_eq!(next(&mut reader).await, ["a=1"]);
    fake.put(thing("b", 2));
    fake.put(thing("a", 2));
    assert_eq!(next(&mut reader).await, ["a=2"]);
    for query in fake.queries() {
        assert!(query.contains("fieldSelector=metadata.name%3Da"), "{query}");
        assert!(query.contains("labelSelector=app%3Dweb"), "{query}");
    }
    assert!(fake.queries()[1].contains("allowWatchBookmarks=true"));
}

#[tokio::test]
async fn a_watch_whose_time_is_up_goes_on_where_it_was() {
    let fake = Fake::start().await;
    fake.put(thing("a", 1));
    let timing = WatchTiming {
        watch: Duration::from_secs(1),
        ..PACE
    };
    let (_running, mut reader) = run(&fake, Selection::default(), timing);
    assert_eq!(next(&mut reader).await, ["a=1"]);
    until(|| fake.count("watch") == 1).await;
    fake.bookmark();
    until(|| fake.count("watch") == 2).await;
    fake.put(thing("a", 2));
    assert_eq!(next(&mut reader).await, ["a=2"]);
    until(|| fake.count("watch") == 3).await;
    assert_eq!(fake.log(), ["list", "watch 11", "watch 12", "watch 13"]);
}

#[tokio::test]
async fn a_watch_that_ends_early_is_a_list() {
    let fake = Fake::start().await;
    fake.put(thing("a", 1));
    fake.put(thing("b", 1));
    let (_running, mut reader) = run(&fake, Selection::default(), PACE);
    assert_eq!(next(&mut reader).await, ["a=1", "b=1"]);
    until(|| fake.count("watch") == 1).await;
    fake.put_without_event(thing("a", 2));
    fake.put_without_event(thing("c", 1));
    fake.end_watches();
    // Missed events arrive as one change.
    assert_eq!(next(&mut reader).await, ["a=2", "c=1"]);
    assert_eq!(fake.count("list"), 2);
}

#[tokio::test]
async fn gone_is_a_list_and_no_fault() {
    let fake = Fake::start().await;
    fake.put(thing("a", 1));
    fake.fail("watch", &[Fault::Status(410, 0)]);
    let (_running, mut reader) = run(&fake, Selection::default(), PACE);
    assert_eq!(next(&mut reader).await, ["a=1"]);
    until(|| fake.count("watch") == 2).await;
    assert_eq!(fake.count("list"), 2);
    assert_eq!(reader.freshness().stale, None);
    // As an event within a watch, too.
    let timing = WatchTiming {
        watch: Duration::from_secs(1),
        ..PACE
    };
    let (_running, mut reader) = run(&fake, Selection::default(), timing);
    assert_eq!(next(&mut reader).await, ["a=1"]);
    let lists = fake.count("list");
    fake.forget();
    fake.put_without_event(thing("a", 2));
    assert_eq!(next(&mut reader).await, ["a=2"]);
    assert_eq!(fake.count("list"), lists + 1);
    assert_eq!(reader.freshness().stale, None);
}

#[tokio::test]
async fn a_server_that_refuses_is_asked_again_more_and_more_slowly() {
    let fake = Fake::start().await;
    fake.put(thing("a", 1));
    fake.fail("list", &vec![Fault::Status(500, 0); 6]);
    let begin = Instant::now();
    let (_running, mut reader) = run(&fake, Selection::default(), PACE);
    assert_eq!(
        stale(&mut reader).await,
        "cannot list mutatingwebhookconfigurations.admissionregistration.k8s.io: the fake says 500 (500)"
    );
    assert_eq!(next(&mut reader).await, ["a=1"]);
    // 5 + 10 + 20 + 40 + 40 + 40 ms, a fifth less at the least.
    assert!(
        begin.elapsed() > Duration::from_millis(120),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(reader.freshness().stale, None);
}

#[tokio::test]
async fn retry_after_delays_the_next_request() {
    let fake = Fake::start().await;
    fake.fail("list", &[Fault::Status(429, 1)]);
    let begin = Instant::now();
    let (_running, _reader) = run(&fake, Selection::default(), PACE);
    until(|| fake.count("list") == 2).await;
    assert!(
        begin.elapsed() > Duration::from_millis(900),
        "{:?}",
        begin.elapsed()
    );
}

#[tokio::test]
async fn forbidden_says_which_verb_on_what() {
    let fake = Fake::start().await;
    fake.fail("watch", &[Fault::Status(403, 0)]);
    let selection = Selection {
        name: Some("a".to_owned()),
        ..Selection::default()
    };
    let (_running, mut reader) = run(&fake, selection, PACE);
    assert_eq!(
        stale(&mut reader).await,
        "cannot watch mutatingwebhookconfigurations.admissionregistration.k8s.io a: \
         the account has no right to the verb \"watch\" on \
         \"mutatingwebhookconfigurations.admissionregistration.k8s.io\": the fake says 403 (403)"
    );
}

#[tokio::test]
async fn a_watch_that_may_not_begin_is_not_asked_for_without_a_pause() {
    let fake = Fake::start().await;
    fake.fail("watch", &vec![Fault::Status(403, 0); 1000]);
    let (_running, _reader) = run(&fake, Selection::default(), PACE);
    sleep(Duration::from_millis(500)).await;
    // Each list succeeds, which is no reason to begin from the shortest wait.
    assert!(fake.count("list") < 25, "{}", fake.count("list"));
}

#[tokio::test]
async fn silence_has_an_end() {
    let fake = Fake::start().await;
    fake.put(thing("a", 1));
    fake.fail("list", &[Fault::Silence]);
    let (_running, mut reader) = run(&fake, Selection::default(), PACE);
    let why = stale(&mut reader).await;
    assert!(why.ends_with("no data for 0.3 s"), "{why}");
    assert_eq!(next(&mut reader).await, ["a=1"]);
    // The watch neither sends anything nor ends.
    let timing = WatchTiming {
        watch: Duration::from_millis(500),
        grace: Duration::from_millis(200),
        ..PACE
    };
    let fake = Fake::start().await;
    fake.put(thing("a", 1));
    let (_running, mut reader) = run(&fake, Selection::default(), timing);
    assert_eq!(next(&mut reader).await, ["a=1"]);
    fake.put_without_event(thing("a", 2));
    assert_eq!(next(&mut reader).await, ["a=2"]);
    assert!(fake.count("list") >= 2);
}

#[tokio::test]
async fn an_endless_response_is_cut_off() {
    let fake = Fake::start().await;
    fake.put(thing("a", 1));
    fake.fail("list", &[Fault::Endless]);
    let timing = WatchTiming {
        request: Duration::from_secs(20),
        ..PACE
    };
    let (_running, mut reader) = run(&fake, Selection::default(), timing);
    let why = stale(&mut reader).await;
    assert!(
        why.ends_with("the response exceeds 16777216 bytes"),
        "{why}"
    );
    assert_eq!(next(&mut reader).await, ["a=1"]);
    // Smaller pages from then on.
    assert!(
        fake.queries()[1].contains("limit=50"),
        "{:?}",
        fake.queries()
    );
    fake.fail("watch", &[Fault::Endless]);
    fake.end_watches();
    let why = stale(&mut reader).await;
    assert!(why.ends_with("the response exceeds 4194304 bytes"), "{why}");
    fake.put(thing("a", 2));
    assert_eq!(next(&mut reader).await, ["a=2"]);
}

#[tokio::test]
async fn a_malformed_response_is_requested_again() {
    let fake = Fake::start().await;
    fake.put(thing("a", 1));
    fake.fail(
        "list",
        &[
            Fault::Says("not json"),
            Fault::Says("{}"),
            Fault::Says(r#"{"metadata":{"resourceVersion":"1"},"items":7}"#),
            Fault::Cut,
        ],
    );
    let (_running, mut reader) = run(&fake, Selection::default(), PACE);
    let why = stale(&mut reader).await;
    assert!(why.contains("cannot parse the response"), "{why}");
    assert_eq!(next(&mut reader).await, ["a=1"]);
    assert_eq!(fake.count("list"), 5);
    // Within a watch: causes a relist, and the objects stay until then.
    for event in [
        json!("not an event"),
        json!({"type": "MODIFIED", "object": {"metadata": 7, "value": 1}}),
        json!({"type": "ERROR", "object": {"message": "too old", "code": 500}}),
    ] {
        let lists = fake.count("list");
        until(|| fake.count("watch") == lists - 4).await;
        fake.send(event);
        until(|| fake.count("list") == lists + 1).await;
        assert!(reader.get(&Key::new("", "a")).is_some());
    }
    // An unknown type of event is ignored.
    let lists = fake.count("list");
    fake.send(json!({"type": "NEWS", "object": {"metadata": {}}}));
    fake.put(thing("a", 2));
    assert_eq!(next(&mut reader).await, ["a=2"]);
    assert_eq!(fake.count("list"), lists);
}

#[tokio::test]
async fn a_watch_that_has_lasted_resumes_where_it_broke() {
    let fake = Fake::start().await;
    fake.put(thing("a", 1));
    let timing = WatchTiming {
        steady: Duration::ZERO,
        ..PACE
    };
    let (_running, mut reader) = run(&fake, Selection::default(), timing);
    assert_eq!(next(&mut reader).await, ["a=1"]);
    until(|| fake.count("watch") == 1).await;
    for (watches, value) in [(2, 2), (3, 3)] {
        fake.end_watches();
        until(|| fake.count("watch") == watches).await;
        fake.put(thing("a", value));
        assert_eq!(next(&mut reader).await, [format!("a={value}")]);
        assert_eq!(whole_lists(&fake), 1);
    }
    // A server that refuses the version is asked for all.
    fake.fail("watch", &[Fault::Status(500, 0)]);
    fake.end_watches();
    fake.put_without_event(thing("a", 4));
    assert_eq!(next(&mut reader).await, ["a=4"]);
    assert_eq!(whole_lists(&fake), 2);
    // One that was restored from a backup would accept it, and wait.
    fake.put(thing("b", 1));
    assert_eq!(next(&mut reader).await, ["b=1"]);
    fake.restore_without("b", 11);
    assert_eq!(next(&mut reader).await, ["-b"]);
    assert_eq!(whole_lists(&fake), 3);
}

/// Lists of all objects: before a watch resumes, the server's version is read off a list of one.
fn whole_lists(fake: &Fake) -> usize {
    let mut queries = fake.queries();
    queries.retain(|query| !query.contains("watch=true") && !query.ends_with("limit=1"));
    queries.len()
}

#[tokio::test]
async fn a_list_of_nothing_is_a_list() {
    let fake = Fake::start().await;
    fake.fail(
        "list",
        &[Fault::Says(
            r#"{"metadata":{"resourceVersion":"10"},"items":null}"#,
        )],
    );
    let (_running, mut reader) = run(&fake, Selection::default(), PACE);
    while !next_changes(&mut reader).await.freshness.listed {}
    fake.put(thing("a", 1));
    assert_eq!(next(&mut reader).await, ["a=1"]);
}

#[tokio::test]
async fn one_recovered_watch_wakes_the_others() {
    let fake = Fake::start().await;
    let recovery = ServerRecovery::default();
    let run = |first| {
        let (writer, reader) = store();
        let timing = WatchTiming {
            first,
            max: Duration::from_secs(600),
            ..PACE
        };
        let source = Watcher::<Thing>::new(fake.cluster(), Selection::default(), timing);
        let source = source.beside(recovery.clone());
        (Running(tokio::spawn(source.run(writer))), reader)
    };
    fake.put(thing("a", 1));
    let (_quick, mut quick) = run(PACE.first);
    let (_slow, mut slow) = run(Duration::from_secs(600));
    assert_eq!(
        (next(&mut quick).await, next(&mut slow).await),
        (vec!["a=1".to_owned()], vec!["a=1".to_owned()])
    );
    fake.away(true);
    stale(&mut quick).await;
    stale(&mut slow).await;
    fake.put(thing("a", 2));
    fake.away(false);
    assert_eq!(next(&mut slow).await, ["a=2"]);
}

/// A look-up of kinds waits for no more than what is heard of the server.
#[tokio::test]
async fn one_recovered_watch_wakes_look_ups() {
    let fake = Fake::start().await;
    let recovery = ServerRecovery::default();
    let (writer, mut reader) = store();
    let source = Watcher::<Thing>::new(fake.cluster(), Selection::default(), PACE);
    let running = source.beside(recovery.clone()).run(writer);
    let _running = Running(tokio::spawn(running));
    fake.put(thing("a", 1));
    assert_eq!(next(&mut reader).await, ["a=1"]);
    let slow = WatchTiming {
        first: Duration::from_secs(600),
        max: Duration::from_secs(600),
        ..PACE
    };
    let cluster = fake.cluster();
    fake.fail("get", &[Fault::Cut]);
    let asking = tokio::spawn(async move {
        let has = cluster.has(Thing::RESOURCE, slow, &recovery).await;
        has && cluster.may_list(Thing::RESOURCE, slow, &recovery).await
    });
    until(|| fake.count("get") == 1).await;
    fake.away(true);
    stale(&mut reader).await;
    fake.away(false);
    let answered = timeout(Duration::from_secs(20), asking).await;
    answered.expect("it waits for its own pause").unwrap();
}

#[tokio::test]
async fn one_of_a_wrong_type_is_left_out_alone_or_stays_as_it_was() {
    let fake = Fake::start().await;
    let wrong = |name: &str| json!({"metadata": {"name": name}, "value": "a secret"});
    fake.put(thing("a", 1));
    fake.put(wrong("b"));
    fake.put(thing("c", 1));
    let (_running, mut reader) = run(&fake, Selection::default(), PACE);
    assert_eq!(next(&mut reader).await, ["a=1", "c=1"]);
    let unreadable = |reader: &Reader<Thing>| {
        let all = reader.freshness().unreadable;
        let all = all.iter().map(|(key, why)| format!("{key}: {why}"));
        all.collect::<Vec<_>>()
    };
    let of_b = "b: a value is not u32 at line 1 column ";
    let messages = unreadable(&reader);
    assert!(
        messages.len() == 1 && messages[0].starts_with(of_b),
        "{messages:?}"
    );
    assert!(!messages[0].contains("secret"), "{messages:?}");
    assert_eq!(reader.freshness().stale, None);
    // By a watch: the last version stays, and other objects are updated.
    until(|| fake.count("watch") == 1).await;
    fake.put(wrong("a"));
    fake.put(thing("c", 2));
    assert_eq!(next(&mut reader).await, ["c=2"]);
    until(|| unreadable(&reader).len() == 2).await;
    assert_eq!(reader.get(&Key::new("", "a")).unwrap().value, 1);
    // By a list, too.
    fake.end_watches();
    until(|| fake.count("watch") == 2).await;
    assert_eq!(reader.get(&Key::new("", "a")).unwrap().value, 1);
    // The object is valid again, and another is deleted.
    fake.put(thing("b", 3));
    assert_eq!(next(&mut reader).await, ["b=3"]);
    fake.delete("a");
    assert_eq!(next(&mut reader).await, ["-a"]);
    assert_eq!(unreadable(&reader), Vec::<String>::new());
}

#[tokio::test]
async fn peers_do_not_wake_each_other_again_and_again() {
    let fake = Fake::start().await;
    fake.put(thing("a", 1));
    fake.fail("watch", &vec![Fault::Cut; 10_000]);
    let recovery = ServerRecovery::default();
    let timing = WatchTiming {
        first: Duration::from_millis(100),
        max: Duration::from_secs(60),
        ..PACE
    };
    let both = [(); 2].map(|()| {
        let (writer, reader) = store();
        let source = Watcher::<Thing>::new(fake.cluster(), Selection::default(), timing);
        let source = source.beside(recovery.clone());
        (Running(tokio::spawn(source.run(writer))), reader)
    });
    sleep(Duration::from_millis(1000)).await;
    drop(both);
    // 100, 200, 400, 800 ms, and one try more of each because of the other.
    assert!(fake.count("list") <= 12, "{:?}", fake.log());
}

/// Returns the names of the present objects.
fn names(reader: &Reader<Thing>) -> String {
    let there = |name: &&str| reader.get(&Key::new("", name)).is_some();
    ["a", "b", "c", "d", "e", "f", "g"]
        .into_iter()
        .filter(there)
        .collect()
}

/// Returns the names of objects without room.
fn left_out(reader: &Reader<Thing>) -> String {
    let fresh = reader.freshness();
    assert_eq!(fresh.more_left_out, 0);
    fresh.left_out.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn objects_without_room_are_left_out_alone() {
    let fake = Fake::start().await;
    for name in ["a", "b", "c", "d", "e"] {
        fake.put(thing(name, 1));
    }
    let (writer, mut reader) = store();
    // No list but those that are meant.
    let timing = WatchTiming {
        request: Duration::from_secs(10),
        ..PACE
    };
    let mut source = Watcher::<Thing>::new(fake.cluster(), Selection::default(), timing);
    source.room = 3 * MIN_BYTES;
    let _running = Running(tokio::spawn(source.in_pages_of(4).run(writer)));
    assert_eq!(next(&mut reader).await, ["a=1", "b=1", "c=1"]);
    let fresh = reader.freshness();
    assert!(fresh.listed && fresh.stale.is_none(), "{fresh:?}");
    assert_eq!(left_out(&reader), "de");
    // By a watch: existing objects change, and new ones are left out until they fit.
    until(|| fake.count("watch") == 1).await;
    fake.put(thing("f", 1));
    fake.put(thing("a", 2));
    assert_eq!(next(&mut reader).await, ["a=2"]);
    until(|| left_out(&reader) == "def").await;
    fake.delete("b");
    fake.put(thing("g", 1));
    until(|| names(&reader) == "acg").await;
    // Another list has the first ones.
    let lists = fake.count("list");
    fake.end_watches();
    until(|| names(&reader) == "acd").await;
    assert!(fake.count("list") > lists);
    until(|| fake.count("watch") == 2).await;
    fake.delete("e");
    fake.delete("f");
    fake.delete("g");
    until(|| left_out(&reader).is_empty()).await;
    assert_eq!(names(&reader), "acd");
}

/// A tenant with many large objects takes no policy of another one away, whether both are listed or one comes later.
#[tokio::test]
async fn one_namespace_leaves_room_for_others() {
    let of = |namespace: &str, name: &str, value| json!({"metadata": {"namespace": namespace, "name": name}, "value": value});
    let fake = Fake::start().await;
    for at in 0..5 {
        fake.put(of("aaa", &format!("t{at}"), 1));
    }
    fake.put(of("payments", "deny-all", 1));
    let (writer, mut reader) = store();
    let mut source = Watcher::<Thing>::new(fake.cluster(), Selection::default(), PACE);
    source.room = 4 * MIN_BYTES;
    let _running = Running(tokio::spawn(source.run(writer)));
    let listed = ["aaa/t0=1", "aaa/t1=1", "aaa/t2=1", "payments/deny-all=1"];
    assert_eq!(next(&mut reader).await, listed);
    assert_eq!(left_out(&reader), "aaa/t3aaa/t4");
    until(|| fake.count("watch") == 1).await;
    fake.put(of("payments", "deny-more", 1));
    assert_eq!(next(&mut reader).await, ["-aaa/t2", "payments/deny-more=1"]);
    assert_eq!(left_out(&reader), "aaa/t2aaa/t3aaa/t4");
}

/// Long texts are decoded on another thread, and yet in the order in which they came.
#[tokio::test]
async fn long_and_short_events_keep_their_order() {
    let fake = Fake::start().await;
    let (_running, mut reader) = run(&fake, Selection::default(), PACE);
    until(|| fake.count("watch") == 1).await;
    let long = |value| {
        let mut object = thing("a", value);
        object["spec"] = "x".repeat(2 * LONG_BYTES).into();
        object
    };
    for round in 0..10 {
        fake.put(long(2 * round));
        fake.put(thing("a", 2 * round + 1));
    }
    fake.put(thing("b", 1));
    while reader.get(&Key::new("", "b")).is_none() {
        next_changes(&mut reader).await;
    }
    assert_eq!(reader.get(&Key::new("", "a")).unwrap().value, 19);
    fake.put(long(20));
    fake.delete("a");
    until(|| reader.get(&Key::new("", "a")).is_none()).await;
}

#[tokio::test]
async fn a_watch_that_ends_in_time_lists_again_what_had_no_room() {
    let fake = Fake::start().await;
    fake.put(thing("a", 1));
    fake.put(thing("b", 1));
    let timing = WatchTiming {
        watch: Duration::from_secs(1),
        ..PACE
    };
    let (writer, reader) = store();
    let mut source = Watcher::<Thing>::new(fake.cluster(), Selection::default(), timing);
    source.room = MIN_BYTES;
    let _running = Running(tokio::spawn(source.run(writer)));
    until(|| names(&reader) == "a").await;
    until(|| fake.count("watch") == 1).await;
    fake.delete("a");
    until(|| names(&reader) == "b").await;
}

/// The watch goes on for 20 s.
#[tokio::test]
async fn an_object_without_room_is_listed_again_once_another_is_deleted() {
    let fake = Fake::start().await;
    fake.put(thing("a", 1));
    fake.put(thing("b", 1));
    let (writer, reader) = store();
    let mut source = Watcher::<Thing>::new(fake.cluster(), Selection::default(), PACE);
    source.room = MIN_BYTES;
    source.between_lists = Duration::from_millis(100);
    let _running = Running(tokio::spawn(source.run(writer)));
    until(|| names(&reader) == "a").await;
    until(|| fake.count("watch") == 1).await;
    fake.delete("a");
    until(|| names(&reader) == "b").await;
    assert_eq!(fake.count("list"), 2);
}
