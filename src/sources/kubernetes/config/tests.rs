//! A server that is not one: what only a real one does is tried beside these.

use serde_json::{Value as Json, json};
use tokio::time::{Instant, timeout};

use super::*;
use crate::catalogue::{EntryChange, UsabilityCheck};
use crate::kubernetes::fake::{Fake, Fault};
use crate::kubernetes::watcher::WatchTiming;

const CRDS: &str = "customresourcedefinitions";
const VIRTUAL_SERVICES: &str = "virtualservices";
const GATEWAYS: &str = "gateways";

fn settings(services: bool) -> WatchSettings {
    let usable: UsabilityCheck = |_, json| match json.contains("unusable") {
        true => Err("not usable".to_owned()),
        false => Ok(()),
    };
    WatchSettings {
        pace: WatchTiming {
            first: Duration::from_millis(5),
            max: Duration::from_millis(100),
            request: Duration::from_secs(5),
            watch: Duration::from_secs(60),
            grace: Duration::from_secs(1),
            steady: Duration::from_millis(100),
        },
        recheck_interval: Duration::from_millis(50),
        ..WatchSettings::new(usable, services)
    }
}

fn definition(plural: &str, versions: &[&str], established: bool) -> Json {
    let versions: Vec<_> = versions
        .iter()
        .map(|name| json!({"name": name, "served": true}))
        .collect();
    let status = if established { "True" } else { "False" };
    json!({
        "metadata": {"name": format!("{plural}.networking.istio.io")},
        "spec": {"group": "networking.istio.io", "names": {"plural": plural}, "versions": versions},
        "status": {"acceptedNames": {}, "conditions": [{"type": "Established", "status": status}]},
    })
}

fn service(name: &str, host: &str) -> Json {
    json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "VirtualService",
        "metadata": {"name": name, "namespace": "n", "uid": name, "creationTimestamp": "1970-01-01T00:00:07Z"},
        "spec": {"hosts": [name], "http": [{"route": [{"destination": {"host": host}}]}]},
    })
}

fn gateway(name: &str) -> Json {
    let server =
        json!({"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["*"]});
    json!({"metadata": {"name": name, "namespace": "n"}, "spec": {"servers": [server]}})
}

/// A fake with two kinds in one version of a group.
async fn fake() -> Fake {
    let fake = Fake::start().await;
    fake.set_api_group("/apis/apiextensions.k8s.io/v1", &[CRDS]);
    fake.set_api_group("/apis/networking.k8s.io/v1", &["ingresses"]);
    fake.set_api_group(
        "/apis/networking.istio.io/v1beta1",
        &[VIRTUAL_SERVICES, GATEWAYS],
    );
    fake.put_in(
        CRDS,
        definition(VIRTUAL_SERVICES, &["v1alpha3", "v1beta1"], true),
    );
    fake
}

struct Play {
    server: ConfigWatcher,
    /// The last update.
    heard: Option<ServerUpdate>,
    /// All changes since the last call of `said`.
    changes: Vec<String>,
}

impl Play {
    fn new(fake: &Fake, services: bool) -> Self {
        Self {
            server: ConfigWatcher::start(fake.cluster(), settings(services)),
            heard: None,
            changes: Vec::new(),
        }
    }

    fn analysis(fake: &Fake) -> Self {
        Self::analysis_at(fake, settings(false).pace)
    }

    fn analysis_at(fake: &Fake, pace: WatchTiming) -> Self {
        let settings = WatchSettings {
            analysis: true,
            pace,
            ..settings(false)
        };
        Self {
            server: ConfigWatcher::start(fake.cluster(), settings),
            heard: None,
            changes: Vec::new(),
        }
    }

    /// Waits until an object's status has these messages.
    async fn until_written(&mut self, fake: &Fake, name: &str, wanted: &Json) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while messages(fake, name) != *wanted {
            let found = messages(fake, name);
            assert!(
                Instant::now() < deadline,
                "{name}: {found}: {:?}",
                fake.log()
            );
            let _heard = timeout(Duration::from_millis(5), self.server.changed()).await;
        }
    }

    async fn until(&mut self, what: impl Fn(&ServerUpdate, &ConfigWatcher) -> bool) {
        let found = timeout(Duration::from_secs(20), async {
            loop {
                let heard = self.server.changed().await;
                let word = |change: &EntryChange| match change {
                    EntryChange::Set(id, ..) => Some(id.to_string()),
                    EntryChange::Moved(..) => None,
                    EntryChange::Gone(id) => Some(format!("{id}-")),
                };
                self.changes.extend(heard.changes.iter().filter_map(word));
                let is_it = what(&heard, &self.server);
                self.heard = Some(heard);
                if is_it {
                    return;
                }
            }
        });
        found
            .await
            .unwrap_or_else(|_| panic!("not within 20 s: {:?}", self.changes));
    }

    async fn synced(&mut self) -> Vec<String> {
        self.until(|heard, _| heard.synced && heard.stale.is_none())
            .await;
        self.said()
    }

    fn said(&mut self) -> Vec<String> {
        let mut said = std::mem::take(&mut self.changes);
        said.sort();
        said
    }

    /// Until there was some change.
    async fn next(&mut self) -> Vec<String> {
        self.until(|heard, _| !heard.changes.is_empty()).await;
        self.said()
    }

    fn told(&self) -> Vec<String> {
        let report = &self.heard.as_ref().unwrap().report;
        report.refused.iter().map(ToString::to_string).collect()
    }

    fn served(&self) -> Vec<String> {
        self.server.all().map(|(id, _)| id.to_string()).collect()
    }
}

#[tokio::test]
async fn kinds_come_and_go_and_others_are_not_touched() {
    let fake = fake().await;
    fake.put_in(VIRTUAL_SERVICES, service("a", "x"));
    fake.put_in(GATEWAYS, gateway("g"));
    let mut play = Play::new(&fake, false);
    // A kind that is not installed is an empty one.
    assert_eq!(play.synced().await, ["VirtualService n/a"]);
    let Some((_, Entry::Object { object, created })) = play.server.all().next() else {
        panic!("another");
    };
    assert_eq!((object.full_name().as_str(), *created), ("n/a", Some(7)));
    fake.put_in(CRDS, definition(GATEWAYS, &["v1beta1"], false));
    fake.put_in(VIRTUAL_SERVICES, service("b", "x"));
    assert_eq!(play.next().await, ["VirtualService n/b"]);
    fake.put_in(CRDS, definition(GATEWAYS, &["v1beta1"], true));
    assert_eq!(play.next().await, ["Gateway n/g"]);
    assert!(play.heard.as_ref().unwrap().synced);
    let lists = fake
        .paths()
        .iter()
        .filter(|path| path.ends_with(VIRTUAL_SERVICES))
        .count();
    fake.delete_in(CRDS, "gateways.networking.istio.io");
    assert_eq!(play.next().await, ["Gateway n/g-"]);
    assert_eq!(play.served(), ["VirtualService n/a", "VirtualService n/b"]);
    // The kind was not listed again.
    let after = fake
        .paths()
        .iter()
        .filter(|path| path.ends_with(VIRTUAL_SERVICES))
        .count();
    assert_eq!(lists, after);
    // And again.
    fake.put_in(CRDS, definition(GATEWAYS, &["v1beta1"], true));
    assert_eq!(play.next().await, ["Gateway n/g"]);
}

#[tokio::test]
async fn a_cluster_that_begins_without_kinds_is_told_so() {
    for has_kinds in [true, false] {
        let fake = fake().await;
        if !has_kinds {
            fake.delete_in(CRDS, "virtualservices.networking.istio.io");
        }
        let mut play = Play::new(&fake, false);
        assert_eq!(play.server.began_without_kinds, None);
        play.synced().await;
        assert_eq!(play.server.began_without_kinds, Some(!has_kinds));
        // Kinds that come later are another matter.
        fake.put_in(CRDS, definition(GATEWAYS, &["v1beta1"], true));
        fake.put_in(GATEWAYS, gateway("g"));
        play.next().await;
        assert_eq!(play.server.began_without_kinds, Some(!has_kinds));
    }
}

#[tokio::test]
async fn another_version_of_a_kind_is_the_same_objects() {
    let fake = fake().await;
    fake.put_in(VIRTUAL_SERVICES, service("a", "x"));
    let mut play = Play::new(&fake, false);
    assert_eq!(play.synced().await, ["VirtualService n/a"]);
    fake.set_api_group("/apis/networking.istio.io/v1", &[VIRTUAL_SERVICES]);
    fake.put_in(CRDS, definition(VIRTUAL_SERVICES, &["v1beta1", "v1"], true));
    fake.put_in(VIRTUAL_SERVICES, service("b", "x"));
    assert_eq!(play.next().await, ["VirtualService n/b"]);
    let read = "/apis/networking.istio.io/v1/virtualservices".to_owned();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !fake.paths().contains(&read) {
        assert!(Instant::now() < deadline, "the newer version is not read");
        let heard = timeout(Duration::from_millis(20), play.server.changed()).await;
        assert!(heard.is_err() || heard.is_ok_and(|heard| heard.changes.is_empty()));
    }
    fake.delete_in(VIRTUAL_SERVICES, "n/a");
    assert_eq!(play.next().await, ["VirtualService n/a-"]);
}

/// The store of a watch that starts again is empty, and its first list a difference from that.
#[tokio::test]
async fn a_watch_that_starts_again_forgets_objects_that_are_gone() {
    let fake = fake().await;
    for name in ["a", "b", "c"] {
        fake.put_in(VIRTUAL_SERVICES, service(name, "x"));
    }
    let mut play = Play::new(&fake, false);
    assert_eq!(play.synced().await.len(), 3);
    let mut kinds = play.server.kinds.values();
    let kind = kinds.find(|kind| kind.resource.name == VIRTUAL_SERVICES);
    let number = kind.unwrap().number;
    let unlisted = Changes {
        changes: Vec::new(),
        whole: true,
        freshness: Freshness::default(),
    };
    let object: WatchedObject = serde_json::from_value(service("b", "x")).unwrap();
    let unreadable = BTreeMap::from([(Key::new("n", "c"), "why".into())]);
    let list = Changes {
        changes: vec![store::Change::Set(Key::new("n", "b"), Arc::new(object))],
        whole: false,
        freshness: Freshness {
            listed: true,
            unreadable: Arc::new(unreadable),
            ..Freshness::default()
        },
    };
    let mut apply = |changes| {
        play.server.queue_changes(number, changes);
        assert!(play.server.take_in());
        play.server.apply_queued();
        play.served()
    };
    assert_eq!(apply(unlisted).len(), 3);
    assert_eq!(apply(list), ["VirtualService n/b", "VirtualService n/c"]);
}

#[tokio::test]
async fn objects_stay_while_the_server_is_away() {
    let fake = fake().await;
    for name in ["a", "b", "c"] {
        fake.put_in(VIRTUAL_SERVICES, service(name, "x"));
    }
    let mut play = Play::new(&fake, false);
    assert_eq!(play.synced().await.len(), 3);
    fake.away(true);
    play.until(|heard, _| heard.stale.is_some()).await;
    let since = play.heard.as_ref().unwrap().stale.clone().unwrap().0;
    tokio::time::sleep(Duration::from_millis(300)).await;
    fake.put_in(VIRTUAL_SERVICES, service("b", "y"));
    fake.delete_in(VIRTUAL_SERVICES, "n/c");
    // A longer absence is one, since the first kind was missed.
    let again = timeout(Duration::from_millis(100), play.server.changed()).await;
    assert!(
        again.is_err()
            || again.is_ok_and(|heard| heard.stale.is_some_and(|(again, _)| again <= since))
    );
    assert_eq!(play.served().len(), 3);
    fake.away(false);
    play.until(|heard, server| heard.stale.is_none() && server.all().count() == 2)
        .await;
    // Only the difference is reported.
    assert_eq!(play.said(), ["VirtualService n/b", "VirtualService n/c-"]);
}

#[tokio::test]
async fn a_forgotten_version_is_a_list_again_and_a_difference() {
    let fake = fake().await;
    for at in 0..1200 {
        fake.put_in(VIRTUAL_SERVICES, service(&format!("s{at}"), "x"));
    }
    let mut play = Play::new(&fake, false);
    assert_eq!(play.synced().await.len(), 1200);
    assert!(
        fake.queries()
            .iter()
            .any(|query| query.contains("limit=500"))
    );
    assert_eq!(play.heard.as_ref().unwrap().checked, 1200);
    fake.put_without_event_in(VIRTUAL_SERVICES, service("s7", "y"));
    fake.forget();
    fake.end_watches();
    assert_eq!(play.next().await, ["VirtualService n/s7"]);
    // Equal objects are not validated again.
    assert_eq!(play.heard.as_ref().unwrap().checked, 1201);
}

#[tokio::test]
async fn broken_ones_keep_what_the_same_object_was() {
    let fake = fake().await;
    fake.put_in(VIRTUAL_SERVICES, service("a", "x"));
    let mut broken = service("b", "x");
    broken["spec"] = json!({"htp": []});
    fake.put_in(VIRTUAL_SERVICES, broken.clone());
    let mut play = Play::new(&fake, false);
    assert_eq!(play.synced().await, ["VirtualService n/a"]);
    let object = fake.get_in(VIRTUAL_SERVICES, "n/b");
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    let told = format!("Kubernetes/n/b@{version}: VirtualService n/b: refused: spec: ");
    assert!(play.told()[0].starts_with(&told), "{:?}", play.told());
    broken["metadata"] = json!({"name": "a", "namespace": "n", "uid": "a"});
    fake.put_in(VIRTUAL_SERVICES, broken.clone());
    play.until(|heard, _| heard.report.refused.len() == 2).await;
    assert_eq!(
        play.heard.as_ref().unwrap().report.refused[0].serving,
        ServedInstead::Old
    );
    assert_eq!(play.served(), ["VirtualService n/a"]);
    // The same is wrong with a later version.
    broken["metadata"]["generation"] = json!(7);
    broken["spec"]["htp"] = json!([1]);
    fake.put_in(VIRTUAL_SERVICES, broken.clone());
    play.until(|heard, _| heard.report.refused[0].revision.generation == 7)
        .await;
    assert_eq!(
        &*play.heard.as_ref().unwrap().report.refused[0].revision.uid,
        "a"
    );
    // Another object of its name.
    broken["metadata"]["uid"] = json!("other");
    fake.put_in(VIRTUAL_SERVICES, broken);
    assert_eq!(play.next().await, ["VirtualService n/a-"]);
    assert_eq!(
        play.heard.as_ref().unwrap().report.refused[0].serving,
        ServedInstead::Nothing
    );
    let deep = (0..300).fold(json!(1), |inner, _| json!([inner]));
    let mut object = service("c", "x");
    object["spec"] = deep;
    fake.put_in(VIRTUAL_SERVICES, object);
    fake.put_in(VIRTUAL_SERVICES, service("d", "x"));
    assert_eq!(play.next().await, ["VirtualService n/d"]);
    assert!(
        play.told()
            .iter()
            .any(|line| line.contains("n/c: refused: nested too deeply")),
        "{:?}",
        play.told()
    );
}

#[tokio::test]
async fn services_are_read_where_they_are_wanted() {
    for (is_new, expected) in [(true, "EndpointSlice n/s"), (false, "Endpoints n/e")] {
        let fake = fake().await;
        if is_new {
            fake.set_api_group("/apis/discovery.k8s.io/v1", &["endpointslices"]);
        }
        let named = |name: &str| json!({"metadata": {"name": name, "namespace": "n"}});
        for (kind, name) in [
            ("services", "a"),
            ("pods", "p"),
            ("endpoints", "e"),
            ("endpointslices", "s"),
            ("ingresses", "i"),
        ] {
            fake.put_in(kind, named(name));
        }
        fake.put_in("nodes", json!({"metadata": {"name": "m"}}));
        let mut play = Play::new(&fake, false);
        assert_eq!(play.synced().await, ["Ingress n/i"]);
        drop(play);
        let mut play = Play::new(&fake, true);
        assert_eq!(
            play.synced().await,
            [expected, "Ingress n/i", "Node m", "Pod n/p", "Service n/a"]
        );
        let mut broken = named("a");
        broken["spec"] = json!({"type": "unusable"});
        fake.put_in("services", broken);
        play.until(|heard, _| !heard.report.refused.is_empty())
            .await;
        let [told] = &play.told()[..] else {
            panic!("{:?}", play.told());
        };
        assert!(
            told.starts_with("Kubernetes/n/a@")
                && told.ends_with(": Service n/a: stale: not usable"),
            "{told}"
        );
    }
}

/// The role of an old chart has a right to Endpoints alone.
#[tokio::test]
async fn endpoints_stand_in_where_slices_are_forbidden() {
    let fake = fake().await;
    fake.set_api_group("/apis/discovery.k8s.io/v1", &["endpointslices"]);
    fake.forbid(&["endpointslices"]);
    let named = |name: &str| json!({"metadata": {"name": name, "namespace": "n"}});
    fake.put_in("endpoints", named("e"));
    fake.put_in("endpointslices", named("s"));
    let mut play = Play::new(&fake, true);
    assert_eq!(play.synced().await, ["Endpoints n/e"]);
}

#[tokio::test]
async fn an_old_server_has_no_ingresses_of_this_version() {
    let fake = fake().await;
    fake.set_api_group("/apis/networking.k8s.io/v1", &[]);
    fake.put_in(
        "ingresses",
        json!({"metadata": {"name": "i", "namespace": "n"}}),
    );
    let mut play = Play::new(&fake, false);
    assert_eq!(play.synced().await, Vec::<String>::new());
    fake.set_api_group("/apis/networking.k8s.io/v1", &["ingresses"]);
    assert_eq!(play.next().await, ["Ingress n/i"]);
}

#[tokio::test]
async fn without_the_right_to_a_kind_nothing_is_complete() {
    let fake = fake().await;
    fake.forbid(&["ingresses"]);
    let mut play = Play::new(&fake, false);
    play.until(|heard, _| {
        heard.stale.is_some() && heard.missing == ["ingresses.networking.k8s.io"]
    })
    .await;
    assert!(!play.heard.as_ref().unwrap().synced);
    fake.forbid(&[]);
    play.synced().await;
}

fn messages(fake: &Fake, name: &str) -> Json {
    fake.get_in(VIRTUAL_SERVICES, name)["status"]["validationMessages"].clone()
}

/// The messages for an object that has `spec.htp`.
fn said_of_htp() -> Json {
    json!([{"type": {"code": "IST0106", "name": "SchemaValidationError"}, "level": "ERROR",
        "path": "spec.htp", "message": "unknown field, did you mean \"http\"?"}])
}

#[tokio::test]
async fn a_failed_status_write_is_retried() {
    let fake = fake().await;
    let broken = |name: &str| {
        let mut broken = service(name, "x");
        broken["spec"]["htp"] = json!([]);
        broken
    };
    for name in ["a", "b", "c"] {
        fake.put_in(VIRTUAL_SERVICES, broken(name));
    }
    let status = |code| Fault::Status(code, 0);
    let faults = [
        status(500),
        status(503),
        Fault::Cut,
        status(500),
        status(429),
    ];
    fake.fail("patch", &faults);
    let mut play = Play::analysis(&fake);
    for name in ["n/a", "n/b", "n/c"] {
        play.until_written(&fake, name, &said_of_htp()).await;
    }
    assert_eq!(fake.count("patch"), 3 + faults.len());
    // Others write again and again, and then no longer.
    fake.fail("patch", &vec![status(409); 7]);
    fake.put_in(VIRTUAL_SERVICES, broken("d"));
    play.until_written(&fake, "n/d", &said_of_htp()).await;
    // Messages are removed, too.
    fake.fail("patch", &[status(502), status(500)]);
    let mut repaired = fake.get_in(VIRTUAL_SERVICES, "n/b");
    repaired["spec"] = service("b", "x")["spec"].clone();
    fake.put_in(VIRTUAL_SERVICES, repaired);
    play.until_written(&fake, "n/b", &Json::Null).await;
    // 403 is not retried for this object; another object may be writable.
    let before = fake.count("patch");
    fake.fail("patch", &[status(403), status(422)]);
    fake.put_in(VIRTUAL_SERVICES, broken("e"));
    fake.put_in(VIRTUAL_SERVICES, broken("f"));
    let deadline = Instant::now() + Duration::from_secs(20);
    while fake.count("patch") < before + 2 {
        assert!(Instant::now() < deadline, "{:?}", fake.log());
        let _heard = timeout(Duration::from_millis(5), play.server.changed()).await;
    }
    let _heard = timeout(Duration::from_millis(300), play.until(|_, _| false)).await;
    assert_eq!(fake.count("patch"), before + 2);
    let mut changed = broken("e");
    changed["spec"]["gateways"] = json!(["mesh"]);
    fake.put_in(VIRTUAL_SERVICES, changed);
    play.until_written(&fake, "n/e", &said_of_htp()).await;
    assert_eq!(messages(&fake, "n/f"), Json::Null);
}

/// In charts of Istio 1.1 to 1.3 the CustomResourceDefinitions have no status subresource: each write was refused, and nothing said so.
#[tokio::test]
async fn a_kind_without_a_status_subresource_is_asked_for_it_once() {
    let fake = fake().await;
    for name in ["a", "b", "c"] {
        let mut broken = service(name, "x");
        broken["spec"]["htp"] = json!([]);
        fake.put_in(VIRTUAL_SERVICES, broken);
    }
    fake.fail("patch", &[Fault::Status(404, 0)]);
    let mut play = Play::analysis(&fake);
    let deadline = Instant::now() + Duration::from_secs(20);
    while fake.count("get n/") == 0 {
        assert!(Instant::now() < deadline, "{:?}", fake.log());
        let _heard = timeout(Duration::from_millis(5), play.server.changed()).await;
    }
    let _heard = timeout(Duration::from_millis(300), play.until(|_, _| false)).await;
    assert_eq!(fake.count("patch"), 1, "{:?}", fake.log());
}

/// A tenant that made its own object anew used to stop the writes of all.
#[tokio::test]
async fn an_object_made_anew_says_nothing_of_its_kind() {
    fn make(fake: &Fake, name: &str, uid: &str) {
        let mut broken = service(name, "x");
        broken["metadata"]["uid"] = json!(uid);
        broken["spec"]["htp"] = json!([]);
        fake.put_in(VIRTUAL_SERVICES, broken);
    }
    let fake = fake().await;
    make(&fake, "a", "first");
    // It is gone when it is patched, and there again when it is looked for.
    let delete = Fault::Meanwhile(|fake| {
        fake.delete_in(VIRTUAL_SERVICES, "n/a");
        fake.fail("get", &[Fault::Meanwhile(|fake| make(fake, "a", "second"))]);
    });
    fake.fail("patch", &[delete]);
    let mut play = Play::analysis(&fake);
    let deadline = Instant::now() + Duration::from_secs(20);
    while fake.count("patch") < 2 {
        assert!(Instant::now() < deadline, "{:?}", fake.log());
        let _heard = timeout(Duration::from_millis(5), play.server.changed()).await;
    }
    play.until_written(&fake, "n/a", &said_of_htp()).await;
    make(&fake, "b", "b");
    play.until_written(&fake, "n/b", &said_of_htp()).await;
    assert_eq!(fake.count("get n/a"), 1, "{:?}", fake.log());
}

/// The writer used to sleep until the failed write was due again.
#[tokio::test]
async fn a_failing_status_delays_no_other() {
    let fake = fake().await;
    for name in ["a", "b"] {
        let mut broken = service(name, "x");
        broken["spec"]["htp"] = json!([]);
        fake.put_in(VIRTUAL_SERVICES, broken);
    }
    fake.fail("patch", &[Fault::Status(500, 0)]);
    let pace = WatchTiming {
        first: Duration::from_secs(60),
        max: Duration::from_secs(60),
        ..settings(false).pace
    };
    let mut play = Play::analysis_at(&fake, pace);
    play.until_written(&fake, "n/b", &said_of_htp()).await;
    assert_eq!(messages(&fake, "n/a"), Json::Null);
}

#[tokio::test]
async fn faults_are_written_where_they_are_and_only_when_they_differ() {
    let fake = fake().await;
    fake.put_in(VIRTUAL_SERVICES, service("a", "x"));
    let mut broken = service("b", "x");
    broken["spec"]["htp"] = json!([]);
    broken["status"] = json!({"conditions": [{"type": "Healthy", "status": "True"}]});
    fake.put_in(VIRTUAL_SERVICES, broken.clone());
    let mut play = Play::analysis(&fake);
    let said = said_of_htp();
    play.until_written(&fake, "n/b", &said).await;
    assert_eq!(fake.count("patch"), 1);
    let theirs = json!({"type": "Healthy", "status": "True"});
    let ours = json!({"type": "Accepted", "status": "False", "reason": "Invalid", "observedGeneration": "0",
        "message": "spec.htp: unknown field, did you mean \"http\"?"});
    let written = fake.get_in(VIRTUAL_SERVICES, "n/b")["status"]["conditions"].clone();
    assert_eq!(written, json!([theirs, ours]));
    // Istio's definitions let no more of it be.
    let mut dropped = fake.get_in(VIRTUAL_SERVICES, "n/b");
    dropped["status"]["validationMessages"] = json!([{"type": said[0]["type"], "level": "ERROR"}]);
    fake.put_in(VIRTUAL_SERVICES, dropped);
    // Another one that starts finds it there.
    let mut second = Play::analysis(&fake);
    second.synced().await;
    drop(second);
    assert_eq!(fake.count("patch"), 1);
    // A user repairs the object and keeps its status, while another client writes an unread field.
    let mut repaired = fake.get_in(VIRTUAL_SERVICES, "n/b");
    repaired["spec"] = service("b", "x")["spec"].clone();
    fake.put_in(VIRTUAL_SERVICES, repaired.clone());
    repaired["metadata"]["managedFields"] = json!([{}]);
    fake.put_in(VIRTUAL_SERVICES, repaired);
    play.until_written(&fake, "n/b", &Json::Null).await;
    assert_eq!(messages(&fake, "n/a"), Json::Null);
    let left = fake.get_in(VIRTUAL_SERVICES, "n/b")["status"]["conditions"].clone();
    assert_eq!(left, json!([theirs]));
    let patches = fake
        .log()
        .iter()
        .filter(|line| line.starts_with("patch"))
        .cloned()
        .collect::<BTreeSet<_>>();
    assert_eq!(
        patches.into_iter().collect::<Vec<_>>(),
        ["patch n/b/status"]
    );
}

/// Istiod, `kubectl edit --subresource=status` or a restored backup.
#[tokio::test]
async fn a_status_that_somebody_overwrites_is_repaired_and_the_object_is_not_checked_again() {
    let fake = fake().await;
    let mut broken = service("b", "x");
    broken["spec"]["htp"] = json!([]);
    fake.put_in(VIRTUAL_SERVICES, broken);
    let mut play = Play::analysis(&fake);
    let said = said_of_htp();
    play.until_written(&fake, "n/b", &said).await;
    play.until(|heard, _| heard.synced).await;
    let checked = play.heard.as_ref().unwrap().checked;
    let mut overwritten = fake.get_in(VIRTUAL_SERVICES, "n/b");
    overwritten["status"]["validationMessages"] = json!([{"by": "another"}]);
    fake.put_in(VIRTUAL_SERVICES, overwritten);
    play.until_written(&fake, "n/b", &said).await;
    assert_eq!(fake.count("patch"), 2);
    fake.put_in(VIRTUAL_SERVICES, service("c", "x"));
    play.until(|_, server| server.all().count() == 1).await;
    assert_eq!(play.heard.as_ref().unwrap().checked, checked + 1);
}

#[tokio::test]
async fn an_object_of_a_wrong_type_is_left_out_alone_or_stays() {
    let fake = fake().await;
    fake.put_in(VIRTUAL_SERVICES, service("a", "one"));
    let wrong = |name: &str| {
        let mut wrong = service(name, "one");
        wrong["metadata"]["uid"] = json!({"a": "secret"});
        wrong
    };
    fake.put_in(VIRTUAL_SERVICES, wrong("w"));
    let mut play = Play::new(&fake, false);
    let refused = |heard: &ServerUpdate| -> Vec<_> {
        let all = heard.report.refused.iter();
        let all = all.map(|one| format!("{} {}", one.origin, one.serving.as_str()));
        all.collect()
    };
    play.until(|heard, _| heard.synced && refused(heard).len() == 1)
        .await;
    let heard = play.heard.as_ref().unwrap();
    let place = "Kubernetes/n/w refused";
    assert_eq!(refused(heard), [place]);
    let words = &heard.report.refused[0].findings[0].message;
    assert!(
        words.starts_with("virtualservices.networking.istio.io cannot be read: a value is not"),
        "{words}"
    );
    assert_eq!(play.server.all().count(), 1);
    fake.put_in(VIRTUAL_SERVICES, wrong("a"));
    fake.put_in(VIRTUAL_SERVICES, service("w", "one"));
    play.until(|heard, server| server.all().count() == 2 && refused(heard).len() == 1)
        .await;
    let place = "Kubernetes/n/a stale";
    assert_eq!(refused(play.heard.as_ref().unwrap()), [place]);
}

/// A long object is checked on another thread, what comes after it waits, and nobody who waits for changes misses any by giving up.
#[tokio::test]
async fn long_objects_are_checked_beside_the_loop_and_in_order() {
    let fake = fake().await;
    let mut server = Play::new(&fake, false).server;
    let routes = |name: &str, count: usize| {
        let route = |at| json!({"match": [{"uri": {"prefix": format!("/{at}")}}], "route": [{"destination": {"host": "web"}}]});
        let mut long = service(name, "one");
        long["spec"]["http"] = (0..count).map(route).collect();
        long
    };
    for name in ["a", "b", "c"] {
        fake.put_in(VIRTUAL_SERVICES, routes(name, 3_000));
        fake.put_in(VIRTUAL_SERVICES, service(&format!("{name}-short"), "one"));
    }
    let mut were_beside = BTreeSet::new();
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.all().count() < 6 {
        let _changes = timeout(Duration::from_millis(1), server.changed()).await;
        let validating = server.validating.as_ref();
        were_beside.extend(validating.map(|one| one.key.name.clone()));
        assert!(Instant::now() < deadline, "{were_beside:?}");
    }
    assert_eq!(Vec::from_iter(were_beside), ["a", "b", "c"].map(Box::from));
    // The versions and the end of one object, in the order in which they come.
    for count in [3_100, 3_200] {
        fake.put_in(VIRTUAL_SERVICES, routes("a", count));
        fake.delete_in(VIRTUAL_SERVICES, "a");
        fake.put_in(VIRTUAL_SERVICES, service("a", "one"));
        fake.put_in(VIRTUAL_SERVICES, service(&format!("z{count}"), "one"));
    }
    while server.all().count() < 8 {
        assert!(
            timeout(Duration::from_secs(20), server.changed())
                .await
                .is_ok()
        );
    }
    let body = |name: &str| {
        let mut all = server.all();
        let (_, entry) = all.find(|(id, _)| id.name.ends_with(name)).unwrap();
        match entry {
            Entry::Object { object, .. } => object.body.len(),
            Entry::Core { .. } => 0,
        }
    };
    assert_eq!(body("/a"), body("/a-short") - 6);
}
