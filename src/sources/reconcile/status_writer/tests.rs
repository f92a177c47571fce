//! Writes to an API server that fails, refuses or changes meanwhile.

use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::kubernetes::fake::{Fake, Fault, Lie};

const PACE: WatchTiming = WatchTiming {
    first: Duration::from_millis(5),
    max: Duration::from_millis(40),
    request: Duration::from_secs(5),
    watch: Duration::from_secs(20),
    grace: Duration::from_secs(1),
    steady: Duration::from_millis(100),
};

const GROUP: &str = "networking.istio.io";
const SERVICES: &str = "virtualservices";
const GATEWAYS: &str = "gateways";

/// A writer to a fake server that has two kinds. It ends with this.
struct Writing {
    fake: Fake,
    to: watch::Sender<DesiredMessages>,
    running: JoinHandle<()>,
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn fake() -> Fake {
    let fake = Fake::start().await;
    fake.set_api_group("/apis/networking.istio.io/v1", &[SERVICES, GATEWAYS]);
    fake
}

/// `NAMESPACE/NAME`, or the name of one in `n`.
fn key(name: &str) -> Key {
    let (namespace, name) = name.split_once('/').unwrap_or(("n", name));
    Key::new(namespace, name)
}

fn path(name: &str) -> String {
    let key = key(name);
    format!("{}/{}", key.namespace, key.name)
}

fn put(fake: &Fake, kind: &str, name: &str, generation: i64) {
    let key = key(name);
    let metadata =
        json!({"name": &*key.name, "namespace": &*key.namespace, "generation": generation});
    fake.put_in(kind, json!({"metadata": metadata, "spec": {}}));
}

/// `KIND NAME`, the content and the messages of each.
type Telling<'a> = &'a [(&'static str, &'a str, u64, &'a [&'a str])];

fn desired(all: Telling<'_>) -> DesiredMessages {
    let all = all.iter().map(|(plural, name, content, messages)| {
        let subject = Subject {
            group: GROUP,
            plural,
            key: key(name),
        };
        let wanted = ObjectMessages {
            content: *content,
            generation: None,
            messages: messages
                .iter()
                .map(|text| json!({"message": text}))
                .collect(),
        };
        (subject, wanted)
    });
    Arc::new(all.collect())
}

impl Writing {
    fn start(fake: Fake, first: Telling<'_>) -> Self {
        let kinds = api::config::KINDS.iter();
        let kinds =
            kinds.filter(|kind| kind.group == GROUP && [SERVICES, GATEWAYS].contains(&kind.plural));
        let kinds: Vec<_> = kinds.collect();
        assert_eq!(kinds.len(), 2);
        let (to, desired_messages) = watch::channel(desired(first));
        let running = tokio::spawn(write_statuses(
            fake.cluster(),
            kinds,
            PACE,
            desired_messages,
        ));
        Self { fake, to, running }
    }

    fn tell(&self, all: Telling<'_>) {
        self.to.send_replace(desired(all));
    }

    /// The messages of a status, and the generation that they are about.
    fn status(&self, kind: &str, name: &str) -> String {
        let object = self.fake.get_in(kind, &path(name));
        let status = &object["status"];
        let messages = status["validationMessages"].as_array().cloned();
        let texts = messages.unwrap_or_default();
        let texts = texts.iter().map(|one| one["message"].as_str().unwrap());
        let generation = status["observedGeneration"].as_str().unwrap_or_default();
        format!("{generation}:{}", texts.collect::<Vec<_>>().join(","))
    }

    async fn until(&self, kind: &str, name: &str, status: &str) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.status(kind, name) != status {
            let now = self.status(kind, name);
            assert!(Instant::now() < deadline, "{name} says {now}, not {status}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn asked(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}: {:?}", self.fake.log());
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for an object that is told of last, and is written after what was told before.
    async fn settled(&self, before: Telling<'_>) {
        let last = format!("last-{}", self.fake.log().len());
        put(&self.fake, GATEWAYS, &last, 1);
        let mut all = before.to_vec();
        all.push((GATEWAYS, &last, 1, &["last"]));
        self.tell(&all);
        self.until(GATEWAYS, &last, "1:last").await;
    }

    fn writes_of(&self, name: &str) -> usize {
        self.fake.count(&format!("patch {}/status", path(name)))
    }

    fn version(&self, kind: &str, name: &str) -> Value {
        let object = self.fake.get_in(kind, &format!("n/{name}"));
        object["metadata"]["resourceVersion"].clone()
    }
}

#[tokio::test]
async fn a_status_is_written_once_whatever_the_server_answers_first() {
    for verb in ["list", "patch"] {
        for fault in [
            Fault::Status(401, 0),
            Fault::Status(409, 0),
            Fault::Status(429, 1),
            Fault::Status(500, 0),
            Fault::Status(503, 0),
            Fault::Says("no JSON"),
            Fault::Cut,
            Fault::Lost,
        ] {
            let fake = fake().await;
            put(&fake, SERVICES, "a", 3);
            let all: Telling<'_> = &[(SERVICES, "a", 1, &["x"])];
            let writing = Writing::start(fake, &[]);
            writing.settled(&[]).await;
            writing.fake.fail(verb, &[fault.clone(), fault.clone()]);
            let begun = Instant::now();
            writing.tell(all);
            writing.until(SERVICES, "a", "3:x").await;
            if matches!(fault, Fault::Status(429, _)) {
                assert!(
                    begun.elapsed() >= Duration::from_secs(2),
                    "{verb} {fault:?}"
                );
            }
            let version = writing.version(SERVICES, "a");
            writing.settled(all).await;
            assert_eq!(writing.version(SERVICES, "a"), version, "{verb} {fault:?}");
            let tries = match (verb, &fault) {
                ("list", _) => 1,
                // What was carried out is seen, and not done again.
                (_, Fault::Lost) => 1,
                _ => 3,
            };
            assert_eq!(writing.writes_of("a"), tries, "{verb} {fault:?}");
        }
    }
}

#[tokio::test]
async fn a_deleted_object_is_skipped_until_it_has_new_messages() {
    let fake = fake().await;
    put(&fake, SERVICES, "a", 1);
    put(&fake, SERVICES, "b", 1);
    fake.fail(
        "patch",
        &[Fault::Meanwhile(|fake| fake.delete_in(SERVICES, "n/a"))],
    );
    let first: Telling<'_> = &[(SERVICES, "a", 1, &["x"]), (SERVICES, "b", 1, &["y"])];
    let writing = Writing::start(fake, first);
    writing.until(SERVICES, "b", "1:y").await;
    writing.settled(first).await;
    assert_eq!(writing.writes_of("a"), 1);
    // It is made anew, and the same is told of it.
    put(&writing.fake, SERVICES, "a", 1);
    writing.tell(&[(SERVICES, "a", 2, &["x"]), (SERVICES, "b", 1, &["z"])]);
    writing.until(SERVICES, "a", "1:x").await;
    writing.until(SERVICES, "b", "1:z").await;
    assert_eq!(writing.writes_of("a"), 2);
}

#[tokio::test]
async fn an_object_that_always_fails_holds_up_no_other() {
    let fake = fake().await;
    for name in ["a", "b", "c"] {
        put(&fake, SERVICES, name, 1);
    }
    fake.breaks(&["n/a"]);
    let all: Telling<'_> = &[
        (SERVICES, "a", 1, &["x"]),
        (SERVICES, "b", 1, &["x"]),
        (SERVICES, "c", 1, &["x"]),
    ];
    let writing = Writing::start(fake, all);
    writing.until(SERVICES, "b", "1:x").await;
    writing.until(SERVICES, "c", "1:x").await;
    writing.settled(all).await;
    assert_eq!(writing.status(SERVICES, "a"), ":");
    assert_eq!((writing.writes_of("b"), writing.writes_of("c")), (1, 1));
    writing.fake.breaks(&[]);
    writing.until(SERVICES, "a", "1:x").await;
}

#[tokio::test]
async fn refused_writes_are_not_retried_at_each_turn() {
    let no_right = "virtualservices.networking.istio.io \"a\" is forbidden: User \"g\" cannot patch resource \
                    \"virtualservices/status\" in API group \"networking.istio.io\" in the namespace \"n\"";
    let denied =
        "admission webhook \"w.example\" denied the request: a status cannot be without a team";
    for (fault, of_others) in [
        (Fault::Forbids(no_right), ":"),
        (Fault::Forbids(denied), "1:x"),
        (Fault::Status(422, 0), "1:x"),
    ] {
        let fake = fake().await;
        for name in ["a", "b", "other/a"] {
            put(&fake, SERVICES, name, 1);
        }
        fake.fail("patch", std::slice::from_ref(&fault));
        let all: Telling<'_> = &[
            (SERVICES, "a", 1, &["x"]),
            (SERVICES, "b", 1, &["x"]),
            (SERVICES, "other/a", 1, &["x"]),
        ];
        let writing = Writing::start(fake, all);
        writing
            .asked("the first write", || writing.writes_of("a") == 1)
            .await;
        for _ in 0..3 {
            writing.settled(all).await;
            writing.tell(all);
        }
        writing.settled(all).await;
        assert_eq!(writing.status(SERVICES, "a"), ":", "{fault:?}");
        // Without the right nothing of the kind is written in that namespace, and in others it is.
        assert_eq!(writing.status(SERVICES, "b"), of_others, "{fault:?}");
        assert_eq!(writing.status(SERVICES, "other/a"), "1:x", "{fault:?}");
        assert_eq!(writing.writes_of("a"), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_kind_without_a_status_subresource_is_asked_for_it_once() {
    let fake = fake().await;
    for name in ["a", "other/a"] {
        put(&fake, SERVICES, name, 1);
    }
    fake.fail("patch", &[Fault::Status(404, 0)]);
    let writing = Writing::start(fake, &[(SERVICES, "a", 1, &["x"])]);
    writing
        .asked("the first write", || writing.writes_of("a") == 1)
        .await;
    for content in 2..4 {
        // A kind that has a status is written.
        writing
            .settled(&[
                (SERVICES, "a", content, &["y"]),
                (SERVICES, "other/a", 1, &["x"]),
            ])
            .await;
    }
    assert_eq!(writing.writes_of("a"), 1);
    assert_eq!(writing.writes_of("other/a"), 0);
}

/// A tenant that made its own object anew used to stop the writes of all.
#[tokio::test]
async fn an_object_made_anew_says_nothing_of_its_kind() {
    fn make(fake: &Fake, uid: &str) {
        let metadata = json!({"name": "a", "namespace": "n", "uid": uid, "generation": 1});
        fake.put_in(SERVICES, json!({"metadata": metadata, "spec": {}}));
    }
    let fake = fake().await;
    make(&fake, "first");
    let writing = Writing::start(fake, &[]);
    writing.settled(&[]).await;
    let delete = Fault::Meanwhile(|fake| fake.delete_in(SERVICES, "n/a"));
    writing.fake.fail("patch", &[delete]);
    // The first list is before the write, and the second one after it.
    let make_anew = Fault::Meanwhile(|fake| make(fake, "second"));
    let faults = [Fault::Meanwhile(|_| ()), make_anew];
    writing.fake.fail("list", &faults);
    writing.tell(&[(SERVICES, "a", 1, &["x"])]);
    writing
        .asked("the first write", || writing.writes_of("a") == 1)
        .await;
    put(&writing.fake, SERVICES, "other/b", 1);
    writing.tell(&[(SERVICES, "a", 2, &["x"]), (SERVICES, "other/b", 1, &["x"])]);
    writing.until(SERVICES, "other/b", "1:x").await;
    writing.until(SERVICES, "a", "1:x").await;
}

#[tokio::test]
async fn malformed_statuses_of_others_hold_up_no_write() {
    let fake = fake().await;
    put(&fake, SERVICES, "a", 1);
    for (name, status) in [
        (
            "b",
            json!({"validationMessages": "none", "observedGeneration": [1]}),
        ),
        ("c", json!(5)),
    ] {
        let metadata = json!({"name": name, "namespace": "n", "generation": 1});
        fake.put_in(
            SERVICES,
            json!({"metadata": metadata, "spec": {}, "status": status}),
        );
    }
    let writing = Writing::start(
        fake,
        &[(SERVICES, "a", 1, &["x"]), (SERVICES, "b", 1, &["x"])],
    );
    writing.until(SERVICES, "a", "1:x").await;
    writing.until(SERVICES, "b", "1:x").await;
}

#[tokio::test]
async fn a_kind_that_cannot_be_listed_holds_no_other_up() {
    let fake = fake().await;
    put(&fake, GATEWAYS, "old", 1);
    put(&fake, SERVICES, "a", 1);
    let ours = json!([{"manager": MANAGER, "subresource": "status",
        "fieldsV1": {"f:status": {"f:validationMessages": {}, "f:observedGeneration": {}}}}]);
    let mut old = fake.get_in(GATEWAYS, "n/old");
    old["metadata"]["managedFields"] = ours;
    old["status"] = json!({"validationMessages": [{"message": "old"}], "observedGeneration": "1"});
    fake.put_in(GATEWAYS, old);
    fake.lies("list", GATEWAYS, Some(Lie::Status(500)));
    let all: Telling<'_> = &[(GATEWAYS, "old", 1, &[]), (SERVICES, "a", 1, &["x"])];
    let writing = Writing::start(fake, all);
    writing.until(SERVICES, "a", "1:x").await;
    assert_eq!(writing.status(GATEWAYS, "old"), "1:old");
    // What an earlier process has written goes as soon as it is found.
    writing.fake.lies("list", GATEWAYS, None);
    writing.until(GATEWAYS, "old", ":").await;
    writing.settled(all).await;
    assert_eq!((writing.writes_of("old"), writing.writes_of("a")), (1, 1));
}

#[tokio::test]
async fn messages_of_one_generation_are_not_written_to_another() {
    let fake = fake().await;
    put(&fake, SERVICES, "a", 2);
    let tell = |generation| {
        let mut all = (*desired(&[(SERVICES, "a", 1, &["x"])])).clone();
        all.values_mut()
            .for_each(|messages| messages.generation = Some(generation));
        Arc::new(all)
    };
    let writing = Writing::start(fake, &[]);
    writing.to.send_replace(tell(1));
    // The list of all, and that of the object.
    writing
        .asked("a look at it", || writing.fake.request_count(SERVICES) >= 2)
        .await;
    writing.to.send_replace(tell(2));
    writing.until(SERVICES, "a", "2:x").await;
    assert_eq!(writing.writes_of("a"), 1);
    // The same is wrong with a later version.
    put(&writing.fake, SERVICES, "a", 3);
    writing.to.send_replace(tell(3));
    writing.until(SERVICES, "a", "3:x").await;
    assert_eq!(writing.writes_of("a"), 2);
}

#[tokio::test]
async fn withdrawn_messages_leave_the_fields_of_others() {
    for others in [json!({}), json!({"loadBalancer": {"ip": "10.0.0.1"}})] {
        let fake = fake().await;
        let metadata = json!({"name": "a", "namespace": "n", "generation": 1});
        fake.put_in(
            SERVICES,
            json!({"metadata": metadata, "spec": {}, "status": others}),
        );
        let writing = Writing::start(fake, &[(SERVICES, "a", 1, &["x"])]);
        writing.until(SERVICES, "a", "1:x").await;
        let none: Telling<'_> = &[(SERVICES, "a", 1, &[])];
        writing.tell(none);
        writing.until(SERVICES, "a", ":").await;
        let mut left = others;
        left["validationMessages"] = json!([]);
        assert_eq!(writing.fake.get_in(SERVICES, "n/a")["status"], left);
        // It is not ours any more: a restart does not write again.
        writing.settled(none).await;
        assert_eq!(writing.writes_of("a"), 2);
        let fake = writing.fake.clone();
        drop(writing);
        let writing = Writing::start(fake, none);
        writing.settled(none).await;
        assert_eq!(writing.writes_of("a"), 2);
    }
}

#[tokio::test]
async fn a_list_without_an_end_is_given_up() {
    let fake = fake().await;
    put(&fake, SERVICES, "a", 1);
    fake.lies("list", GATEWAYS, Some(Lie::SamePage));
    let writing = Writing::start(fake, &[(SERVICES, "a", 1, &["x"])]);
    writing.until(SERVICES, "a", "1:x").await;
}
