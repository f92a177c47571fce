//! API servers: the local one, and those that its Secrets name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::config::unread_api;
use api::model::{ClusterId, Registry};
use sources::contribution::{Configuration, SourceId, SyncState};
use sources::kubernetes::{
    self, Access, Cluster, ClusterSettings, ClusterUpdate, Problem, Remotes,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::own_rules::ClusterRules;
use super::{credentials, ingresses, names};
use crate::cli::DiscoveryFlags;
use crate::cli::values::given;
use crate::discovery::hub::Hub;
use crate::discovery::rules_without_effect::RuleCounts;
use crate::exit::Failure;
use crate::secrets;
use crate::shared::Shared;

fn id(cluster: &ClusterId) -> SourceId {
    SourceId {
        registry: Registry::Kubernetes,
        cluster: cluster.clone(),
    }
}

/// The way to the local cluster, if there is any.
pub(super) fn access(flags: &DiscoveryFlags) -> Option<Access> {
    match &flags.kubeconfig {
        Some(file) => Some(Access::Kubeconfig {
            file: Some(file.clone()),
            context: None,
        }),
        None => Access::in_cluster().then_some(Access::InCluster),
    }
}

/// Reads the local cluster and the remote ones from now on; their rules, if any are read, while they count. Returns the name of the
/// local cluster, and its updates.
///
/// # Errors
/// No client of the local cluster can be built.
pub(super) async fn start(
    shared: &Shared,
    access: &Access,
    flags: &DiscoveryFlags,
    hub: &Arc<Hub>,
    configuration: bool,
    own: &ClusterRules,
    loops: &mut JoinSet<()>,
) -> Result<(ClusterId, watch::Receiver<ClusterUpdate>), Failure> {
    let cluster = shared.cluster(access).await.map_err(|cause| {
        Failure::config(format!("cannot read services from Kubernetes: {cause}"))
    })?;
    hub.jwks.forbid_server(cluster.address());
    let local = hub.options.settings.cluster.clone();
    let settings = ClusterSettings {
        namespace: given(flags.app_namespace.as_deref()).map(str::to_owned),
        configuration,
        ..ClusterSettings::new(names(hub, local.clone()))
    };
    hub.set_sync_state(&id(&local), SyncState::Syncing);
    let trust = hub.trust.watch();
    let (to, updates) = watch::channel(ClusterUpdate::default());
    let of_local = kubernetes::run(cluster.clone(), settings.clone(), trust.clone(), to);
    loops.spawn(of_local);
    loops.spawn(name_unread_api(cluster.clone(), updates.clone()));
    credentials::start(hub, cluster.clone(), settings.pace, loops);
    if configuration {
        let (cluster, namespace) = (cluster.clone(), settings.namespace.clone());
        ingresses::start(hub, cluster, namespace, settings.pace, own.clone(), loops);
    }
    let namespace = given(flags.cluster_registries_namespace.as_deref());
    let namespace = namespace.unwrap_or(&hub.options.namespace).to_owned();
    let (to, remotes) = watch::channel(Remotes::default());
    let (knows, known) = watch::channel(false);
    loops.spawn(kubernetes::remotes(
        cluster, namespace, settings, trust, to, knows,
    ));
    let (joined, all) = watch::channel(false);
    let hub = Arc::clone(hub);
    let of_remotes = follow_all(Arc::clone(&hub), remotes, known, joined, own.counts.clone());
    loops.spawn(of_remotes);
    let (local_updates, own) = (updates.clone(), own.clone());
    loops.spawn(follow(hub, local.clone(), local_updates, all, own));
    Ok((local, updates))
}

/// An API whose objects stand beside ours and would do the same.
const UNREAD_API: (&str, &str) = ("gateway.networking.k8s.io", "v1");

/// Says once that the cluster's objects of the Gateway API are not read, where the server has their kinds. The objects are not
/// counted: that would take rights to read them, which the roles of earlier releases do not have.
async fn name_unread_api(cluster: Cluster, mut updates: watch::Receiver<ClusterUpdate>) {
    let is_synced = |update: &ClusterUpdate| update.sync_state == SyncState::Synced;
    if updates.wait_for(is_synced).await.is_err() {
        return;
    }
    let (group, version) = UNREAD_API;
    // A server that has just answered is asked once: the line is worth no retry.
    let has_kinds = cluster.has_group(group, version).await.unwrap_or_default();
    if let Some(note) = unread_api(&format!("{group}/{version}")).filter(|_| has_kinds) {
        info!("{} serves {group}: {}", cluster.address(), note.message);
    }
}

/// Problems of one cluster's objects: each is logged once, for as long as it persists.
#[derive(Debug, Default)]
struct ProblemLog {
    /// The cluster's name, unless it is the local one.
    remote: Option<ClusterId>,
    logged: BTreeSet<Problem>,
}

impl ProblemLog {
    fn log(&mut self, update: &ClusterUpdate) {
        for line in self.new_lines(&update.problems) {
            warn!("{line}");
        }
    }

    /// The lines of new problems, without what may be a secret in them.
    fn new_lines(&mut self, problems: &[Problem]) -> Vec<String> {
        // Unreadable objects have been logged already.
        let now = problems.iter().filter(|problem| !problem.is_unreadable);
        let now: BTreeSet<Problem> = now.cloned().collect();
        let lines = now.difference(&self.logged).map(|problem| {
            let line = secrets::redact_text(&problem.to_string());
            match &self.remote {
                Some(cluster) => format!("cluster {cluster}: {line}"),
                None => line,
            }
        });
        let lines = lines.collect();
        self.logged = now;
        lines
    }
}

fn emit(hub: &Hub, cluster: &ClusterId, update: &ClusterUpdate, with_rules: bool) {
    let id = id(cluster);
    hub.facts.put(&id, update);
    let mut rules = RuleCounts::default();
    if with_rules {
        for (kind, count) in &update.counts {
            rules.count(kind, *count);
        }
    }
    hub.facts.rule(&id, rules);
    let mut contribution = update.contribution.clone();
    if !with_rules {
        contribution.configuration = Configuration::default();
    }
    hub.put(&id, contribution);
    // It is said to be lost when it has been so for a while.
    let ago = update.lost.map_or(Duration::ZERO, |since| since.elapsed());
    let since = hub.clock.now().saturating_sub(ago);
    hub.set_sync_state_since(&id, update.sync_state.clone(), since);
}

fn emit_local(hub: &Hub, local: &ClusterId, update: &ClusterUpdate, own: &mut ClusterRules) {
    let count = *own.counts.borrow_and_update();
    emit(hub, local, update, count);
    // Before all kinds are listed there are no rules, and those of sources stay in force.
    if count && update.sync_state != SyncState::Syncing {
        own.are_put();
    }
}

/// `all`: the hub knows which clusters there are besides. Before that nothing is told: a proxy that is served without their
/// endpoints takes them for gone.
pub(super) async fn follow(
    hub: Arc<Hub>,
    local: ClusterId,
    mut updates: watch::Receiver<ClusterUpdate>,
    mut all: watch::Receiver<bool>,
    mut own: ClusterRules,
) {
    let mut problems = ProblemLog::default();
    // Before the first update there are no rules that could begin to count.
    let mut has_update = false;
    loop {
        tokio::select! {
            lost = async { all.wait_for(|all| *all).await.is_err() } => match lost {
                true => return,
                false => break,
            },
            changed = updates.changed() => {
                if changed.is_err() {
                    return;
                }
                // Why nothing comes is shown all the same.
                has_update = true;
                let now = updates.borrow_and_update().clone();
                problems.log(&now);
                hub.facts.put(&id(&local), &now);
            }
        }
    }
    if has_update {
        let now = updates.borrow_and_update().clone();
        problems.log(&now);
        emit_local(&hub, &local, &now, &mut own);
    }
    loop {
        tokio::select! {
            changed = updates.changed() => match changed {
                Ok(()) => has_update = true,
                Err(_) => return,
            },
            changed = own.counts.changed() => if changed.is_err() { return },
        }
        if has_update {
            let now = updates.borrow_and_update().clone();
            problems.log(&now);
            emit_local(&hub, &local, &now, &mut own);
            hub.updates_applied().await;
        }
    }
}

/// All remote clusters: those that are not there any more are gone at once.
async fn follow_all(
    hub: Arc<Hub>,
    mut remotes: watch::Receiver<Remotes>,
    mut complete: watch::Receiver<bool>,
    joined: watch::Sender<bool>,
    mut counts: watch::Receiver<bool>,
) {
    let mut known: Remotes = Remotes::new();
    let mut problems: BTreeMap<ClusterId, ProblemLog> = BTreeMap::new();
    let mut counted = *counts.borrow_and_update();
    loop {
        tokio::select! {
            changed = remotes.changed() => if changed.is_err() { return },
            Ok(()) = complete.changed() => {}
            changed = counts.changed() => if changed.is_err() { return },
        }
        // Before those that are there now are looked at.
        let complete = *complete.borrow_and_update();
        let now = remotes.borrow_and_update().clone();
        let count = *counts.borrow_and_update();
        for (cluster, update) in &now {
            if known.get(cluster) != Some(update) || count != counted {
                let log = problems.entry(cluster.clone());
                let log = log.or_insert_with(|| ProblemLog {
                    remote: Some(cluster.clone()),
                    ..ProblemLog::default()
                });
                log.log(update);
                emit(&hub, cluster, update, count);
            }
        }
        let gone: BTreeSet<_> = known
            .keys()
            .filter(|cluster| !now.contains_key(*cluster))
            .collect();
        for cluster in gone {
            hub.forget(&id(cluster));
            problems.remove(cluster);
        }
        (known, counted) = (now, count);
        joined.send_replace(complete);
        hub.updates_applied().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::testing::hub;
    use crate::discovery::{gauges, readiness};
    use api::config::ServedInstead;
    use std::time::SystemTime;
    use tokio::time::{Instant, advance};

    #[test]
    fn a_problem_is_logged_once_without_secrets() {
        let problem = |name: &str, refusal: &str, is_unreadable| Problem {
            kind: "AuthorizationPolicy",
            object: sources::Key::new("n", name),
            origin: None,
            serving: Some(ServedInstead::Nothing),
            refusal: refusal.to_owned().into(),
            is_unreadable,
        };
        let secret = "spec.rules[0].when[0].values[0]: \"hunter2\" is none";
        let all = [
            problem("a", secret, false),
            problem("b", "spec.action: \"X\" is none", false),
            problem("c", "it is logged elsewhere", true),
        ];
        let mut local = ProblemLog::default();
        assert_eq!(
            local.new_lines(&all),
            [
                "AuthorizationPolicy n/a: refused: spec.rules[0].when[0].values[0]: \"…\" is none",
                "AuthorizationPolicy n/b: refused: spec.action: \"X\" is none",
            ]
        );
        assert_eq!(local.new_lines(&all), [""; 0]);
        assert_eq!(local.new_lines(&[]), [""; 0]);
        assert_eq!(local.new_lines(&all).len(), 2);
        let mut remote = ProblemLog {
            remote: Some("east".into()),
            ..ProblemLog::default()
        };
        assert_eq!(
            remote.new_lines(&all[..1]),
            [
                "cluster east: AuthorizationPolicy n/a: refused: spec.rules[0].when[0].values[0]: \"…\" is none"
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_of_a_cluster_is_reported_before_all_clusters_are_known() {
        let (hub, local) = (hub(), ClusterId::from("east"));
        let (to, updates) = watch::channel(ClusterUpdate::default());
        let (joined, all) = watch::channel(false);
        let (_counts, counts) = watch::channel(true);
        tokio::spawn(follow(
            Arc::clone(&hub),
            local.clone(),
            updates,
            all,
            ClusterRules::new(counts),
        ));
        let step = || tokio::time::sleep(Duration::from_millis(1));
        to.send_replace(ClusterUpdate {
            error: Some("refused".into()),
            ..ClusterUpdate::default()
        });
        step().await;
        let error = || hub.facts.of(&id(&local)).and_then(|fact| fact.error);
        assert_eq!(error().as_deref(), Some("refused"));
        let sources = || hub.source_statuses();
        assert!(
            sources()
                .iter()
                .all(|one| one.sync_state != SyncState::Synced)
        );
        // It has come by the time that the others are known.
        to.send_replace(ClusterUpdate {
            sync_state: SyncState::Synced,
            ..ClusterUpdate::default()
        });
        step().await;
        assert!(
            sources()
                .iter()
                .all(|one| one.sync_state != SyncState::Synced)
        );
        joined.send_replace(true);
        step().await;
        assert_eq!(error(), None);
        assert!(
            sources()
                .iter()
                .any(|one| one.sync_state == SyncState::Synced)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn objects_that_a_cluster_leaves_out_are_reported_and_the_role_stays_ready() {
        let hub = hub();
        let of = |kinds: &[(&'static str, usize)]| ClusterUpdate {
            sync_state: SyncState::Synced,
            left_out: kinds.iter().copied().collect(),
            ..ClusterUpdate::default()
        };
        let cluster = ClusterId::from("east");
        emit(&hub, &cluster, &of(&[("pods", 0)]), true);
        assert_eq!(readiness::readiness(&hub), Ok("ok".to_owned()));
        emit(&hub, &cluster, &of(&[("services", 3), ("pods", 12)]), true);
        let line = "no room: Kubernetes/east leaves out 12 of pods, 3 of services";
        assert_eq!(readiness::readiness(&hub), Ok(line.to_owned()));
        hub.forget(&id(&cluster));
        assert_eq!(readiness::readiness(&hub), Ok("ok".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_cluster_is_reported_at_once_with_the_time_when_it_was_lost() {
        let hub = hub();
        advance(Duration::from_secs(100)).await;
        let lost = |ago: Option<u64>| ClusterUpdate {
            sync_state: match ago {
                Some(_) => SyncState::Stale {
                    error: "away".into(),
                },
                None => SyncState::Synced,
            },
            lost: ago.map(|ago| Instant::now() - Duration::from_secs(ago)),
            ..ClusterUpdate::default()
        };
        let cluster = ClusterId::from("east");
        emit(&hub, &cluster, &lost(None), true);
        assert_eq!(readiness::readiness(&hub), Ok("ok".to_owned()));
        // The source itself waits before it says so.
        emit(&hub, &cluster, &lost(Some(6)), true);
        let since = hub
            .clock
            .wall(hub.clock.now().saturating_sub(Duration::from_secs(6)));
        assert!(since > SystemTime::UNIX_EPOCH);
        let since = crate::log::stamp(since);
        let expected = format!("stale: {} since {since}", id(&cluster));
        assert_eq!(readiness::readiness(&hub), Ok(expected));
        assert_eq!(gauges::read(&hub).stale, [(id(&cluster).to_string(), 6)]);
        emit(&hub, &cluster, &lost(None), true);
        assert_eq!(readiness::readiness(&hub), Ok("ok".to_owned()));
    }
}
