//! One API server, as a source.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::{at, place, plain, pod, slice};
use crate::contribution::SyncState;
use crate::kubernetes::fake::Fake;
use crate::kubernetes::index::cluster_state::ClusterUpdate;
use crate::kubernetes::index::names::Names;
use crate::kubernetes::index::source::{ClusterSettings, run};
use crate::kubernetes::watcher::WatchTiming;

const ISTIO: &str = "/apis/networking.istio.io/v1beta1";

pub(super) fn settings() -> ClusterSettings {
    ClusterSettings {
        pace: WatchTiming {
            first: Duration::from_millis(5),
            max: Duration::from_secs(20),
            request: Duration::from_secs(5),
            watch: Duration::from_secs(60),
            grace: Duration::from_secs(1),
            steady: Duration::from_millis(100),
        },
        patience: Duration::from_millis(300),
        late: Duration::from_millis(300),
        recheck_interval: Duration::from_millis(300),
        gone: Duration::from_millis(300),
        ..ClusterSettings::new(Names {
            cluster: "here".into(),
            domain: "cluster.local".into(),
            trust_domain: "td".into(),
        })
    }
}

/// One that has slices, and a service with an endpoint.
pub(super) async fn fake(address: &str) -> Fake {
    let fake = Fake::start().await;
    fake.set_api_group("/apis/discovery.k8s.io/v1", &["endpointslices"]);
    fake.put_in("services", plain("a"));
    fake.put_in(
        "endpointslices",
        slice("a-1", "a", json!([at(address, "p")])),
    );
    fake
}

pub(super) struct Source {
    running: JoinHandle<()>,
    pub(super) updates: watch::Receiver<ClusterUpdate>,
    trust_domain: watch::Sender<Arc<str>>,
}

impl Drop for Source {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Source {
    pub(super) fn start(fake: &Fake, settings: ClusterSettings) -> Self {
        let cluster = fake.cluster();
        Self::of(|trust_domain, to| run(cluster, settings, trust_domain, to))
    }

    pub(super) fn of<F: Future<Output = ()> + Send + 'static>(
        run: impl FnOnce(watch::Receiver<Arc<str>>, watch::Sender<ClusterUpdate>) -> F,
    ) -> Self {
        let (trust_domain, theirs) = watch::channel("td".into());
        let (to, updates) = watch::channel(ClusterUpdate::default());
        let running = tokio::spawn(run(theirs, to));
        Self {
            running,
            updates,
            trust_domain,
        }
    }

    pub(super) async fn until(
        &mut self,
        what: impl FnMut(&ClusterUpdate) -> bool,
    ) -> ClusterUpdate {
        let found = timeout(Duration::from_secs(20), self.updates.wait_for(what)).await;
        found.expect("not within 20 s").unwrap().clone()
    }

    pub(super) async fn synced(&mut self) -> ClusterUpdate {
        self.until(|update| update.sync_state == SyncState::Synced)
            .await
    }

    /// Asserts that nothing is emitted for 100 ms.
    async fn is_silent(&mut self) {
        self.updates.mark_unchanged();
        let long = Duration::from_millis(100);
        assert!(
            timeout(long, self.updates.changed()).await.is_err(),
            "{:?}",
            *self.updates.borrow()
        );
    }
}

/// `ADDRESS POD` of each.
pub(super) fn endpoints(update: &ClusterUpdate, name: &str) -> Vec<String> {
    let all = update.contribution.endpoints.get(&place(name));
    let say = |one: &api::model::Endpoint| {
        format!("{} {}", one.address, one.pod.as_deref().unwrap_or("-"))
    };
    all.iter().flat_map(|all| all.iter()).map(say).collect()
}

#[tokio::test]
async fn all_is_told_at_once_and_then_what_changes() {
    let fake = fake("10.0.0.1").await;
    for n in 0..250 {
        fake.put_in("pods", pod(&format!("other-{n}"), "10.9.9.9", json!({})));
    }
    let mut source = Source::start(&fake, settings());
    let first = source
        .until(|update| *update != ClusterUpdate::default())
        .await;
    assert_eq!(first.sync_state, SyncState::Synced);
    assert_eq!(first.contribution.workloads.len(), 250);
    assert_eq!(
        (
            first.counts["Service"],
            first.counts["EndpointSlice"],
            first.counts["Pod"]
        ),
        (1, 1, 250)
    );
    assert_eq!(endpoints(&first, "a"), ["10.0.0.1 -"]);
    // The pod comes later: only what names it is different.
    fake.put_in("pods", pod("p", "10.0.0.1", json!({"app": "a"})));
    let second = source
        .until(|update| endpoints(update, "a") == ["10.0.0.1 demo/p"])
        .await;
    assert!(Arc::ptr_eq(
        &first.contribution.services,
        &second.contribution.services
    ));
    source.is_silent().await;
    // An update without effect emits nothing.
    let mut same = plain("a");
    same["metadata"]["labels"] = json!({"x": "y"});
    fake.put_in("services", same);
    source.is_silent().await;
    source.trust_domain.send("new".into()).unwrap();
    source
        .until(|update| {
            update.contribution.endpoints[&place("a")][0]
                .account
                .as_deref()
                == Some("spiffe://new/ns/demo/sa/p")
        })
        .await;
    fake.delete_in("endpointslices", "demo/a-1");
    let last = source
        .until(|update| endpoints(update, "a").is_empty())
        .await;
    assert!(last.contribution.services.contains_key(&place("a")));
    assert!(fake.log().iter().all(|line| !line.contains("patch")));
}

#[tokio::test]
async fn a_server_without_slices_has_endpoints() {
    let fake = Fake::start().await;
    fake.put_in("services", plain("a"));
    let object = json!({
        "metadata": {"name": "a", "namespace": "demo"},
        "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"name": "http", "port": 8080}]}],
    });
    fake.put_in("endpoints", object);
    let mut source = Source::start(&fake, settings());
    let update = source.synced().await;
    assert_eq!(endpoints(&update, "a"), ["10.0.0.1 -"]);
    assert_eq!(update.counts["Endpoints"], 1);
}

#[tokio::test]
async fn an_outage_changes_nothing_and_what_was_missed_is_told_once() {
    let fake = fake("10.0.0.1").await;
    let mut source = Source::start(&fake, settings());
    let before = source.synced().await;
    fake.away(true);
    let lost = source
        .until(|update| update.sync_state != SyncState::Synced)
        .await;
    assert!(matches!(lost.sync_state, SyncState::Stale { .. }) && lost.error.is_some());
    assert_eq!(lost.contribution, before.contribution);
    assert!(Arc::ptr_eq(
        &lost.contribution.services,
        &before.contribution.services
    ));
    // Missed, and forgotten by the server, too.
    fake.put_in("services", plain("b"));
    fake.put_in(
        "endpointslices",
        slice("b-1", "b", json!([at("10.0.0.3", "r")])),
    );
    fake.put_in(
        "endpointslices",
        slice("a-1", "a", json!([at("10.0.0.2", "q")])),
    );
    fake.put_in("pods", pod("q", "10.0.0.2", json!({})));
    fake.put_in("pods", pod("r", "10.0.0.3", json!({})));
    fake.forget();
    // Long enough for pauses of its sources to be far apart.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut contributions = vec![source.updates.borrow_and_update().contribution.clone()];
    assert_eq!(contributions[0], before.contribution);
    fake.away(false);
    loop {
        let changed = timeout(Duration::from_secs(30), source.updates.changed()).await;
        changed.expect("not within 30 s").unwrap();
        let update = source.updates.borrow_and_update().clone();
        if update.contribution != contributions[contributions.len() - 1] {
            contributions.push(update.contribution.clone());
        }
        if update.sync_state == SyncState::Synced {
            assert_eq!(endpoints(&update, "a"), ["10.0.0.2 demo/q"]);
            assert_eq!(endpoints(&update, "b"), ["10.0.0.3 demo/r"]);
            assert_eq!(update.error, None);
            break;
        }
    }
    assert_eq!(contributions.len(), 2);
    source.is_silent().await;
}

#[tokio::test]
async fn an_expired_version_is_listed_again() {
    let fake = fake("10.0.0.1").await;
    let mut source = Source::start(&fake, settings());
    source.synced().await;
    fake.put_in(
        "endpointslices",
        slice("a-1", "a", json!([at("10.0.0.2", "q")])),
    );
    source
        .until(|update| endpoints(update, "a") == ["10.0.0.2 -"])
        .await;
    let lists = fake.count("list");
    fake.forget();
    fake.end_watches();
    fake.put_without_event_in(
        "endpointslices",
        slice("a-1", "a", json!([at("10.0.0.3", "r")])),
    );
    source
        .until(|update| endpoints(update, "a") == ["10.0.0.3 -"])
        .await;
    assert!(fake.count("list") > lists);
    assert_eq!(source.updates.borrow().sync_state, SyncState::Synced);
}

fn entry(host: &str) -> Value {
    named("e", host)
}

fn named(name: &str, host: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "demo", "creationTimestamp": "1970-01-01T00:00:07Z"},
        "spec": {"hosts": [host], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "resolution": "DNS"},
    })
}

fn hosts(update: &ClusterUpdate) -> Vec<&str> {
    let all = update.contribution.configuration.service_entries.values();
    all.flat_map(|one| &one.spec.hosts)
        .map(String::as_str)
        .collect()
}

#[tokio::test]
async fn kinds_of_configuration_come_and_go() {
    let fake = fake("10.0.0.1").await;
    let mut source = Source::start(&fake, settings());
    // None of the kinds is installed, which is no error.
    let update = source.synced().await;
    assert!(hosts(&update).is_empty() && update.error.is_none());
    fake.put_in("serviceentries", entry("a.example"));
    fake.set_api_group(ISTIO, &["serviceentries", "sidecars"]);
    source.until(|update| hosts(update) == ["a.example"]).await;
    fake.put_in("serviceentries", entry("b.example"));
    let update = source.until(|update| hosts(update) == ["b.example"]).await;
    assert!(update.config_objects(&"here".into())[0].is_accepted);
    assert_eq!(
        (update.counts["ServiceEntry"], update.problems.len()),
        (1, 0)
    );
    // An invalid version: the last one stays, and the error is reported.
    fake.put_in("serviceentries", entry("not a host"));
    fake.put_in("serviceentries", named("new", "not a host"));
    let update = source.until(|update| update.problems.len() == 2).await;
    assert_eq!(hosts(&update), ["b.example"]);
    assert_eq!(update.problems[0].kind, "ServiceEntry");
    let config_objects = update.config_objects(&"here".into());
    let summaries: Vec<_> = config_objects
        .iter()
        .map(|one| {
            (
                &*one.name,
                one.spec.value()["hosts"][0].clone(),
                one.is_accepted,
                one.findings.len(),
            )
        })
        .collect();
    assert_eq!(
        summaries,
        [
            ("e", json!("b.example"), false, 1),
            ("new", Value::Null, false, 1)
        ]
    );
    // What is wrong is in the version that the server has, also where an earlier one is used.
    for (one, name) in config_objects.iter().zip(["demo/e", "demo/new"]) {
        let object = fake.get_in("serviceentries", name);
        let version = object["metadata"]["resourceVersion"].as_str().unwrap();
        assert_eq!(one.origin.to_string(), format!("here/{name}@{version}"));
    }
    assert_eq!(
        config_objects[0].metadata["creationTimestamp"],
        "1970-01-01T00:00:07Z"
    );
    fake.delete_in("serviceentries", "demo/new");
    fake.put_in("serviceentries", entry("b.example"));
    source.until(|update| update.problems.is_empty()).await;
    // A server that starts does not know them at first.
    fake.set_api_group(ISTIO, &[]);
    fake.end_watches();
    let update = source.until(|update| update.error.is_some()).await;
    assert_eq!(hosts(&update), ["b.example"]);
    fake.set_api_group(ISTIO, &["serviceentries"]);
    let update = source.until(|update| update.error.is_none()).await;
    assert_eq!(hosts(&update), ["b.example"]);
    // The kinds are uninstalled for good.
    fake.set_api_group(ISTIO, &[]);
    fake.end_watches();
    source.until(|update| hosts(update).is_empty()).await;
    source.synced().await;
}

/// Rules for traffic are read as any other configuration, and each kind from the moment it is installed.
#[tokio::test]
async fn rules_for_traffic_come_and_go() {
    let fake = fake("10.0.0.1").await;
    fake.set_api_group(ISTIO, &["virtualservices"]);
    let metadata = json!({"name": "r", "namespace": "demo"});
    let route = |host: &str| {
        let http = json!([{"route": [{"destination": {"host": host}}]}]);
        json!({"metadata": metadata, "spec": {"hosts": [host], "http": http}})
    };
    fake.put_in("virtualservices", route("a.example"));
    let mut source = Source::start(&fake, settings());
    let hosts = |update: &ClusterUpdate| -> Vec<String> {
        let configuration = &update.contribution.configuration;
        let services = configuration.virtual_services.values();
        let services = services.flat_map(|one| one.spec.hosts.clone());
        let rules = configuration.destination_rules.values();
        services
            .chain(rules.map(|one| one.spec.host.clone()))
            .collect()
    };
    let update = source.until(|update| hosts(update) == ["a.example"]).await;
    // The kind is not watched twice, and pages show the typed objects.
    assert_eq!(update.counts["VirtualService"], 1);
    let config_objects = update.config_objects(&"here".into());
    assert_eq!(config_objects.len(), 1);
    assert_eq!(config_objects[0].spec.value(), route("a.example")["spec"]);
    fake.set_api_group(ISTIO, &["virtualservices", "destinationrules"]);
    let rule = json!({"metadata": metadata, "spec": {"host": "b.example"}});
    fake.put_in("destinationrules", rule);
    let both = ["a.example", "b.example"];
    source.until(|update| hosts(update) == both).await;
    // The last good version stays while its new one is refused.
    fake.put_in("virtualservices", route("not a host"));
    let update = source.until(|update| update.problems.len() == 1).await;
    assert_eq!(
        (update.problems[0].kind, hosts(&update)),
        ("VirtualService", both.map(str::to_owned).to_vec())
    );
    fake.delete_in("virtualservices", "demo/r");
    let update = source.until(|update| hosts(update) == ["b.example"]).await;
    assert!(update.problems.is_empty());
    fake.delete_in("destinationrules", "demo/r");
    source.until(|update| hosts(update).is_empty()).await;
}

#[tokio::test]
async fn one_namespace_is_asked_for_where_only_that_counts() {
    let fake = fake("10.0.0.1").await;
    let settings = ClusterSettings {
        namespace: Some("demo".to_owned()),
        configuration: false,
        ..settings()
    };
    let mut source = Source::start(&fake, settings);
    source.synced().await;
    let mut paths = fake.paths();
    paths.sort();
    paths.dedup();
    assert_eq!(
        paths,
        [
            "/api/v1/namespaces",
            "/api/v1/namespaces/demo/pods",
            "/api/v1/namespaces/demo/services",
            "/api/v1/nodes",
            "/apis/discovery.k8s.io/v1",
            "/apis/discovery.k8s.io/v1/namespaces/demo/endpointslices",
        ]
    );
}

#[tokio::test]
async fn kinds_without_effect_are_kept_to_be_looked_at() {
    let fake = fake("10.0.0.1").await;
    fake.set_api_group("/apis/rbac.istio.io/v1alpha1", &["serviceroles"]);
    fake.set_api_group("/apis/authentication.istio.io/v1alpha1", &["policies"]);
    // Judged as it is everywhere, though nothing comes of it.
    let role = json!({"rules": []});
    let metadata =
        json!({"name": "g", "namespace": "demo", "creationTimestamp": "1970-01-01T00:00:07Z"});
    fake.put_in("serviceroles", json!({"metadata": metadata, "spec": role}));
    let policy = json!({"metadata": {"name": "default", "namespace": "demo"}, "spec": {"peers": [{"mtls": {}}]}});
    fake.put_in("policies", policy);
    let mut source = Source::start(&fake, settings());
    let both = |update: &ClusterUpdate| {
        update.others.iter().count() == 2 && update.sync_state == SyncState::Synced
    };
    let update = source.until(both).await;
    let config_objects = update.config_objects(&"here".into());
    let summaries: Vec<_> = config_objects
        .iter()
        .map(|one| (&*one.api_version, &*one.kind, &*one.name, one.is_accepted))
        .collect();
    assert_eq!(
        summaries,
        [
            (
                "authentication.istio.io/v1alpha1",
                "Policy",
                "default",
                true
            ),
            ("rbac.istio.io/v1alpha1", "ServiceRole", "g", false),
        ]
    );
    assert_eq!(
        (&config_objects[1].spec.value(), &config_objects[1].metadata),
        (&role, &metadata)
    );
    // A refused object has no effect for that reason, and is none of those that the kind has.
    assert_eq!(
        (update.counts.get("ServiceRole"), update.counts["Policy"]),
        (None, 1)
    );
    let problems: Vec<_> = update.problems.iter().map(ToString::to_string).collect();
    let begin = "here/demo/g@";
    assert!(
        problems.len() == 1
            && problems[0].starts_with(begin)
            && problems[0].contains(": ServiceRole demo/g: refused: spec.rules: "),
        "{problems:?}"
    );
    // Nothing that is served depends on them.
    fake.delete_in("serviceroles", "demo/g");
    let last = source
        .until(|update| update.others.iter().count() == 1)
        .await;
    assert_eq!(last.contribution, update.contribution);
}

/// A server without any of the kinds gets one look-up for all of them.
#[tokio::test]
async fn kinds_that_are_not_installed_are_looked_for_together() {
    const SERVED: [&str; 3] = [
        "/apis/networking.istio.io/v1alpha3",
        "/apis/security.istio.io/v1beta1",
        "/apis/rbac.istio.io/v1alpha1",
    ];
    let fake = fake("10.0.0.1").await;
    for version in SERVED {
        fake.set_api_group(version, &["others"]);
    }
    let settings = ClusterSettings {
        recheck_interval: Duration::from_secs(600),
        ..settings()
    };
    let mut source = Source::start(&fake, settings);
    source.synced().await;
    let mut paths = fake.paths();
    paths.retain(|path| path == "/apis" || path.contains("istio.io"));
    paths.sort();
    // One request for all groups, and one for each version that the server has, regardless of its number of kinds.
    let mut expected = vec!["/apis"];
    expected.extend(SERVED);
    expected.sort_unstable();
    assert_eq!(paths, expected);
}

/// Discovery asked for the groups every eight seconds for good: most of its processor time in a quiet minute.
#[tokio::test]
async fn a_server_that_stays_the_same_is_asked_ever_less_often() {
    let fake = fake("10.0.0.1").await;
    let begun = Instant::now();
    let mut source = Source::start(&fake, settings());
    let looks = || fake.paths().iter().filter(|path| *path == "/apis").count();
    // A look that failed on a busy machine is followed by another one at once, so that the pauses count and not the looks.
    let (mut looked, mut last, mut pause) = (0, begun, Duration::ZERO);
    while pause < settings().recheck_interval * 4 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{pause:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
        if looks() > looked {
            (looked, pause, last) = (looks(), last.elapsed(), Instant::now());
        }
    }
    // A kind that comes is found all the same.
    fake.set_api_group(ISTIO, &["serviceentries"]);
    fake.put_in("serviceentries", entry("a.example"));
    source.until(|update| hosts(update) == ["a.example"]).await;
}

/// A role for one namespace cannot allow kinds that have none.
#[tokio::test]
async fn nodes_and_namespaces_that_may_not_be_read_are_done_without() {
    let fake = fake("10.0.0.1").await;
    fake.forbid(&["nodes", "namespaces"]);
    let mut source = Source::start(&fake, settings());
    let update = source.synced().await;
    assert_eq!(endpoints(&update, "a"), ["10.0.0.1 -"]);
    assert_eq!(update.error, None);
    // A kind that is forbidden for long does not make the source lost.
    tokio::time::sleep(settings().patience * 2).await;
    assert_eq!(source.updates.borrow().sync_state, SyncState::Synced);
    // The account gets the right.
    fake.put_in("nodes", json!({"metadata": {"name": "n"}}));
    fake.forbid(&[]);
    source
        .until(|update| update.counts.contains_key("Node"))
        .await;
}

#[tokio::test]
async fn services_that_may_not_be_read_are_waited_for() {
    let fake = fake("10.0.0.1").await;
    fake.forbid(&["services"]);
    let mut source = Source::start(&fake, settings());
    let update = source.until(|update| update.error.is_some()).await;
    assert_eq!(update.sync_state, SyncState::Syncing);
    let error = update.error.unwrap();
    assert!(error.contains("no right"), "{error}");
    fake.forbid(&[]);
    source.synced().await;
}

#[tokio::test]
async fn it_ends_with_who_listens() {
    let fake = fake("10.0.0.1").await;
    let (_trust_domain, theirs) = watch::channel("td".into());
    let (to, mut updates) = watch::channel(ClusterUpdate::default());
    let running = tokio::spawn(run(fake.cluster(), settings(), theirs, to));
    updates.changed().await.unwrap();
    drop(updates);
    timeout(Duration::from_secs(10), running)
        .await
        .unwrap()
        .unwrap();
}
