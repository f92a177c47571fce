//! Rules pass from a directory or clusters to MCP sources and back while updates wait in the hub. Those of a directory have the place of
//! the sources' in it.

use std::sync::Arc;
use std::time::Duration;

use api::istio::mesh::v1alpha1::ConfigSource;
use api::model::{CredentialKey, Registry};
use sources::contribution::{SourceId, SyncState};
use sources::kubernetes::{BrokenCredentials, ClusterUpdate};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::super::Sources;
use super::super::kubernetes::follow;
use super::super::own_rules::MAX_WAIT;
use super::{McpSources, start};
use crate::discovery::hub::Hub;
use crate::discovery::testing::{flags, hub, hub_of, large_contribution, memory_of};
use crate::shared::Shared;

/// Sources beside rules of one's own, in a mesh whose updates wait: nothing applies them yet.
struct Handover {
    hub: Arc<Hub>,
    sources: Arc<McpSources>,
    loops: JoinSet<()>,
    folder: TempDir,
}

fn entry(name: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: n}}\n\
         spec: {{hosts: [{name}.example], resolution: DNS, ports: [{{number: 80, name: http, protocol: HTTP}}]}}\n"
    )
}

async fn until(is_there: impl Fn() -> bool) {
    let all = async {
        while !is_there() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(20), all).await.unwrap();
}

impl Handover {
    /// Own rules of a cluster.
    fn of_cluster() -> Self {
        let this = Self::new(&[]);
        drop(this.sources.own.of_clusters());
        this
    }

    /// Own rules of a directory.
    fn of_directory() -> Self {
        Self::new(&["--configDir", "/own"])
    }

    fn new(own: &[&str]) -> Self {
        let (mut loops, hub) = (JoinSet::new(), hub());
        let sources = start(None, &flags(own), &hub, &mut loops).unwrap();
        Self::with(hub, sources, loops)
    }

    fn with(hub: Arc<Hub>, sources: Arc<McpSources>, loops: JoinSet<()>) -> Self {
        let this = Self {
            hub,
            sources,
            loops,
            folder: tempfile::tempdir().unwrap(),
        };
        this.put_own();
        this.put_large("a");
        this.write("theirs");
        this
    }

    /// Puts the rules of the directory, as its task does.
    fn put_own(&self) {
        let (_, mut memory) = memory_of(&self.hub);
        let put = memory.put(entry("own").as_bytes()).unwrap();
        self.hub.put(&self.sources.rules, put.contribution);
        let id = &self.sources.rules;
        self.hub.set_sync_state(id, SyncState::Synced);
    }

    fn put_large(&self, cluster: &str) {
        let id = SourceId {
            registry: Registry::External,
            cluster: cluster.into(),
        };
        self.hub.put(&id, large_contribution());
    }

    fn write(&self, name: &str) {
        let path = self.folder.path().join(format!("{name}.yaml"));
        std::fs::write(path, entry(name)).unwrap();
    }

    fn name_folder(&self) {
        self.sources.configure(&[ConfigSource {
            address: format!("fs://{}", self.folder.path().display()),
            ..ConfigSource::default()
        }]);
    }

    fn name_nothing(&self) {
        self.sources.configure(&[]);
    }

    async fn until_theirs_count(&self) {
        until(|| !self.sources.own.count()).await;
    }

    fn hosts(&self) -> Vec<String> {
        let services = self.hub.world().services;
        services
            .keys()
            .map(|key| key.hostname.to_string())
            .collect()
    }

    /// Applies all updates, and those that follow from them.
    async fn applied(&mut self) -> Vec<String> {
        self.loops.spawn(Arc::clone(&self.hub).run());
        for cluster in ["b", "c"] {
            self.hub.updates_applied().await;
            // Whoever has waited for the updates has its turn before the next one is applied.
            self.put_large(cluster);
        }
        self.hub.updates_applied().await;
        self.hosts()
    }
}

#[tokio::test]
async fn rules_of_sources_take_their_place_behind_the_updates_that_wait() {
    let mut handover = Handover::of_directory();
    let before = handover.hub.enqueued_updates();
    handover.name_folder();
    handover.until_theirs_count().await;
    // At once: those that are marked would leave their place to one's own.
    assert_eq!(handover.hub.enqueued_updates(), before + 1);
    assert_eq!(handover.hosts(), ["own.example"]);
    assert_eq!(handover.applied().await, ["theirs.example"]);
}

/// A moment without rules lets in whatever they deny: it lasted as long as the update with those of the clusters took.
#[tokio::test]
async fn rules_of_sources_go_behind_those_of_clusters() {
    let mut handover = Handover::of_cluster();
    handover.name_folder();
    handover.until_theirs_count().await;
    handover.write("more");
    let sources = Arc::clone(&handover.sources);
    until(|| *sources.is_unpublished.borrow()).await;
    let before = handover.hub.enqueued_updates();
    handover.name_nothing();
    // Those that are marked would go at once.
    assert!(sources.own.count() && !*sources.is_unpublished.borrow());
    // Those that are put with no update of their own in between.
    handover.put_large("cluster");
    handover.sources.own.of_clusters().are_put();
    let hub = Arc::clone(&handover.hub);
    until(|| hub.enqueued_updates() == before + 2).await;
    assert_eq!(handover.applied().await, [""; 0]);
}

/// The error of an API server that was never heard was taken for its rules: those of the sources went, and none were in force.
#[tokio::test]
async fn rules_of_sources_stay_until_the_cluster_has_listed_its_own() {
    let mut handover = Handover::of_cluster();
    let hub = Arc::clone(&handover.hub);
    let (to, updates) = watch::channel(ClusterUpdate::default());
    let (_joined, all) = watch::channel(true);
    let own = handover.sources.own.of_clusters();
    let following = follow(Arc::clone(&hub), "east".into(), updates, all, own);
    handover.loops.spawn(following);
    handover.name_folder();
    handover.until_theirs_count().await;
    handover.name_nothing();
    to.send_replace(ClusterUpdate {
        error: Some("refused".into()),
        ..ClusterUpdate::default()
    });
    let cluster = SourceId {
        registry: Registry::Kubernetes,
        cluster: "east".into(),
    };
    until(|| {
        let fact = hub.facts.of(&cluster);
        fact.is_some_and(|fact| fact.error.is_some())
    })
    .await;
    assert_eq!(handover.applied().await, ["theirs.example"]);
    to.send_replace(ClusterUpdate {
        sync_state: SyncState::Synced,
        ..ClusterUpdate::default()
    });
    until(|| handover.hosts().is_empty()).await;
}

/// Rules made of Ingresses were gone for as long as their list takes.
#[tokio::test]
async fn rules_of_sources_go_behind_those_of_ingresses_if_these_are_in_time() {
    for are_in_time in [true, false] {
        let mut handover = Handover::of_cluster();
        handover.name_folder();
        handover.until_theirs_count().await;
        let own = handover.sources.own.of_clusters();
        own.ingresses_are_put(false);
        handover.name_nothing();
        let begun = Instant::now();
        own.are_put();
        assert_eq!(handover.applied().await, ["theirs.example"]);
        if are_in_time {
            own.ingresses_are_put(true);
        } else {
            tokio::time::pause();
        }
        until(|| handover.hosts().is_empty()).await;
        assert_eq!(begun.elapsed() < MAX_WAIT, are_in_time);
    }
}

/// Sources that come and go within the wait for Ingresses were taken for those that the wait was for: no rules were in force until
/// the clusters' were put.
#[tokio::test]
async fn rules_of_clusters_that_were_put_before_withdraw_nothing() {
    for are_ingresses_late in [true, false] {
        let mut handover = Handover::of_cluster();
        let own = handover.sources.own.of_clusters();
        own.ingresses_are_put(false);
        own.are_put();
        // The wait for Ingresses begins.
        tokio::task::yield_now().await;
        own.are_put();
        if are_ingresses_late {
            own.ingresses_are_put(true);
        }
        handover.name_folder();
        handover.until_theirs_count().await;
        handover.name_nothing();
        if are_ingresses_late {
            own.are_put();
        } else {
            own.ingresses_are_put(true);
        }
        assert_eq!(handover.applied().await, ["theirs.example"]);
        if are_ingresses_late {
            own.ingresses_are_put(true);
        } else {
            own.are_put();
        }
        until(|| handover.hosts().is_empty()).await;
    }
}

/// Nobody puts rules of clusters where no API server is read: those of the sources stayed in force for ever.
#[tokio::test]
async fn rules_of_sources_go_at_once_where_no_cluster_is_read() {
    let registries = ["--registries", "Mock"];
    let (mut loops, hub) = (JoinSet::new(), hub_of(&registries));
    let started = Sources::start(&Shared::new(), &flags(&registries), &hub, &mut loops).await;
    let sources = started.unwrap().all_mcp_sources().unwrap();
    let mut handover = Handover::with(hub, sources, loops);
    handover.name_folder();
    handover.until_theirs_count().await;
    handover.name_nothing();
    assert_eq!(handover.applied().await, [""; 0]);
}

/// Sources that are named again before that have their place once they have sent all.
#[tokio::test]
async fn sources_that_are_named_again_keep_nothing_of_the_former_ones() {
    let mut handover = Handover::of_cluster();
    handover.name_folder();
    handover.until_theirs_count().await;
    handover.name_nothing();
    handover.sources.configure(&[ConfigSource {
        address: "127.0.0.1:1".to_owned(),
        ..ConfigSource::default()
    }]);
    handover.sources.own.of_clusters().are_put();
    let hub = Arc::clone(&handover.hub);
    let before = hub.enqueued_updates();
    until(|| hub.enqueued_updates() > before).await;
    assert_eq!(handover.applied().await, [""; 0]);
    assert!(handover.sources.own.count());
    // Nor in gauges and at objects of others.
    let facts = hub.facts.of(&handover.sources.rules);
    assert!(facts.is_none(), "{facts:?}");
}

/// The Gateways of a directory that is no longer read named its broken Secrets, and no source's.
#[tokio::test]
async fn broken_secrets_are_those_of_the_rules_that_count() {
    let (mut loops, hub) = (JoinSet::new(), hub_of(&["--registries", "Mock"]));
    let own = ["--registries", "Mock", "--configDir", "/own"];
    let sources = start(None, &flags(&own), &hub, &mut loops).unwrap();
    let mut handover = Handover::with(hub, sources, loops);
    let facts = &handover.hub.facts;
    let broken = [(("n".into(), "own".into()), "no certificate".into())];
    let broken = Arc::new(BrokenCredentials::from(broken));
    facts.set_broken_secrets(&handover.sources.rules, broken);
    handover.name_folder();
    handover.until_theirs_count().await;
    until(|| facts.broken_secrets().is_empty()).await;
    let broken = "apiVersion: v1\nkind: Secret\nmetadata: {name: theirs, namespace: n}\n\
                  data: {tls.crt: '!!', tls.key: '!!'}\n";
    std::fs::write(handover.folder.path().join("secret.yaml"), broken).unwrap();
    // What is marked is put once the updates before it are applied.
    handover.loops.spawn(Arc::clone(&handover.hub).run());
    let theirs: CredentialKey = ("n".into(), "theirs".into());
    until(|| facts.broken_secrets().contains_key(&theirs)).await;
}

#[tokio::test]
async fn objects_that_wait_are_dropped_when_ones_own_count_again() {
    let mut handover = Handover::of_directory();
    handover.name_folder();
    handover.until_theirs_count().await;
    handover.write("more");
    let sources = Arc::clone(&handover.sources);
    until(|| *sources.is_unpublished.borrow()).await;
    handover.name_nothing();
    assert!(sources.own.count() && !*sources.is_unpublished.borrow());
    handover.put_own();
    assert_eq!(handover.applied().await, ["own.example"]);
}

#[tokio::test]
async fn the_last_to_count_are_served_whatever_waits() {
    let mut handover = Handover::of_directory();
    handover.name_folder();
    handover.until_theirs_count().await;
    handover.name_nothing();
    handover.put_own();
    handover.name_folder();
    handover.until_theirs_count().await;
    handover.write("more");
    let sources = Arc::clone(&handover.sources);
    until(|| *sources.is_unpublished.borrow()).await;
    handover.applied().await;
    until(|| handover.hosts() == ["more.example", "theirs.example"]).await;
}
