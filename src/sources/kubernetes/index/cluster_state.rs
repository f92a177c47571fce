//! The state of one API server, and when it is emitted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::custom::{Configs, Origins};
use super::effectless::EffectlessObjects;
use super::names::Names;
use super::objects::{ANY_OBJECT, Event, Objects, Problem};
use super::wire::{Namespace, Node};
use crate::contribution::{Contribution, SyncState};
use crate::kind::{Key, Kind as _};
use crate::kubernetes::failure::OfCluster;
use crate::kubernetes::store::{Freshness, WithoutRoom};

/// The debounce interval of changes: a pod and the slice that names it arrive together.
const GATHER: Duration = Duration::from_millis(10);
/// After a gap all kinds are relisted: the time from the first list in which the others are awaited, to emit all at once.
const TOGETHER: Duration = Duration::from_secs(3);

/// Kinds that only add details to others. A role for one namespace cannot allow them.
const OPTIONAL: [&str; 2] = [Node::RESOURCE.name, Namespace::RESOURCE.name];

/// All objects of a cluster, with the sync state of the watches.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterUpdate {
    /// Empty until every kind has been listed.
    pub contribution: Contribution,
    pub sync_state: SyncState,
    /// The reason why a watch fails, also before the server counts as lost.
    pub error: Option<Arc<str>>,
    /// The time of the loss, once the source counts as lost.
    pub lost: Option<Instant>,
    /// Objects of each kind.
    pub counts: BTreeMap<&'static str, usize>,
    /// Events of each kind so far.
    pub events: BTreeMap<(&'static str, Event), u64>,
    /// Places that name a pod which is not there, or not yet.
    pub podless: usize,
    /// Endpoints without a pod so far, those since resolved included.
    pub ever_podless: u64,
    /// Objects that cannot be used, or not completely.
    pub problems: Arc<[Problem]>,
    /// Objects that are left out because their kind's room is full.
    pub left_out: WithoutRoom,
    /// Origins of its configuration.
    pub origins: Origins,
    /// Configuration that has no effect.
    pub others: EffectlessObjects,
}

impl Default for ClusterUpdate {
    fn default() -> Self {
        Self {
            contribution: Contribution::default(),
            sync_state: SyncState::Syncing,
            error: None,
            lost: None,
            counts: BTreeMap::new(),
            events: BTreeMap::new(),
            podless: 0,
            ever_podless: 0,
            problems: Arc::default(),
            left_out: WithoutRoom::default(),
            origins: Origins::default(),
            others: EffectlessObjects::default(),
        }
    }
}

#[derive(Debug)]
pub(super) struct ClusterState {
    pub(super) objects: Objects,
    /// The name of a remote cluster, for lines of the log.
    remote: Option<Arc<str>>,
    /// The time after which a source that cannot be watched counts as lost.
    patience: Duration,
    pub(super) configs: Configs,
    pub(super) others: EffectlessObjects,
    /// Kinds that the account has no right to, and that are done without.
    refused: BTreeSet<&'static str>,
    /// The freshness of each kind that is waited for.
    fresh: BTreeMap<&'static str, Freshness>,
    /// The time of the first change that is not emitted yet.
    since: Option<Instant>,
    /// The time at which the first kind was listed again, while others are not.
    returning: Option<Instant>,
    synced: bool,
    /// The sync state as last emitted.
    sync_state: SyncState,
    error: Option<Arc<str>>,
}

/// The cause for an object that is left out.
const NO_ROOM: &str =
    "there is no room for it: its namespace holds more of this kind than others do";

impl ClusterState {
    pub(super) fn new(
        names: Names,
        patience: Duration,
        kinds: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        let kinds = kinds.into_iter();
        Self {
            configs: Configs::new(names.cluster.clone()),
            objects: Objects::new(names),
            remote: None,
            patience,
            others: EffectlessObjects::default(),
            refused: BTreeSet::new(),
            fresh: kinds.map(|kind| (kind, Freshness::default())).collect(),
            since: None,
            returning: None,
            synced: false,
            sync_state: SyncState::Syncing,
            error: None,
        }
    }

    /// Marks the state as changed.
    pub(super) fn changed(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Sets the freshness of a kind, if it is waited for. Returns true if the set of unreadable or left out objects changed.
    pub(super) fn freshness(
        &mut self,
        kind: &'static str,
        freshness: Freshness,
        now: Instant,
    ) -> bool {
        let Some(before) = self.fresh.get(kind) else {
            return false;
        };
        let what = |fresh: &Freshness| (fresh.more_unreadable, fresh.more_left_out);
        let is_other = before.unreadable != freshness.unreadable
            || before.left_out != freshness.left_out
            || what(before) != what(&freshness);
        let freshness = self.without(kind, freshness);
        let back = freshness.stale.is_none();
        let was = self.fresh.insert(kind, freshness);
        if was.is_some_and(|was| was.stale.is_some()) && back {
            self.returning.get_or_insert(now);
        }
        if self.stale().next().is_none() {
            self.returning = None;
        }
        self.synced |= self.fresh.values().all(|freshness| freshness.listed);
        is_other
    }

    /// Objects that are no such thing, of all kinds.
    fn unreadable(&self) -> impl Iterator<Item = Problem> {
        let kinds = self.fresh.iter();
        kinds.flat_map(|(kind, fresh)| {
            let all = fresh.unreadable.iter();
            let messages = all.map(|(object, message)| (object.clone(), message.to_string()));
            let left_out = fresh.left_out.iter();
            let left_out = left_out.map(|object| (object.clone(), NO_ROOM.to_owned()));
            let more = [
                (fresh.more_unreadable, "cannot be read, either"),
                (fresh.more_left_out, "have no room, either"),
            ];
            let more = more.into_iter().filter(|(count, _)| *count > 0);
            let more = more.map(|(count, message)| {
                let message = format!("{count} objects of this kind {message}");
                (Key::new("", ANY_OBJECT), message)
            });
            let all = messages.chain(left_out).chain(more);
            all.map(|(object, message)| Problem {
                kind,
                object,
                origin: None,
                serving: None,
                refusal: message.into(),
                is_unreadable: true,
            })
        })
    }

    pub(super) fn named(self, remote: Option<Arc<str>>) -> Self {
        Self { remote, ..self }
    }

    /// A kind that the account has no right to, and that others can do without, is not waited for.
    fn without(&mut self, kind: &'static str, freshness: Freshness) -> Freshness {
        if !(freshness.refused && OPTIONAL.contains(&kind)) {
            self.refused.remove(kind);
            return freshness;
        }
        if self.refused.insert(kind) {
            let of = OfCluster(self.remote.as_deref());
            tracing::warn!("serving without {kind}{of}: their effect on endpoints is unknown");
        }
        Freshness {
            listed: true,
            ..Freshness::default()
        }
    }

    fn stale(&self) -> impl Iterator<Item = &(Instant, String)> {
        self.fresh.values().filter_map(|fresh| fresh.stale.as_ref())
    }

    fn sync_state_at(&self, now: Instant) -> SyncState {
        if !self.synced {
            return SyncState::Syncing;
        }
        let lost = self
            .stale()
            .find(|(since, _)| now >= *since + self.patience);
        lost.map_or(SyncState::Synced, |(_, why)| SyncState::Stale {
            error: why.as_str().into(),
        })
    }

    /// Returns the time at which `emit` should be called without an event.
    pub(super) fn due(&self) -> Option<Instant> {
        if let Some(first) = self.returning {
            return Some(first + TOGETHER);
        }
        let lost = self.stale().map(|(since, _)| *since + self.patience).min();
        // Only the loss itself is due: once it is emitted, time alone changes nothing more.
        let lost = lost.filter(|_| self.sync_state == SyncState::Synced);
        self.gathered().into_iter().chain(lost).min()
    }

    fn gathered(&self) -> Option<Instant> {
        Some(self.since.filter(|_| self.synced)? + GATHER)
    }

    /// The steps of work that [`Self::emit`] has to do at this time: none where it returns `None`.
    pub(super) fn work(&self, now: Instant) -> usize {
        if self.synced && self.state_to_emit(now).is_some() {
            self.objects.work()
        } else {
            0
        }
    }

    /// Returns the sync state and the error to emit, if anything is due.
    fn state_to_emit(&self, now: Instant) -> Option<(SyncState, Option<Arc<str>>)> {
        if self.returning.is_some_and(|first| now < first + TOGETHER) {
            return None;
        }
        let sync_state = self.sync_state_at(now);
        let error = self.stale().next();
        let error: Option<Arc<str>> = error.map(|(_, why)| why.as_str().into());
        let is_other = (&sync_state, &error) != (&self.sync_state, &self.error);
        let is_ready = self.gathered().is_some_and(|at| now >= at);
        (is_ready || is_other).then_some((sync_state, error))
    }

    /// Returns the state if it is due and differs from the last one; else `None`.
    pub(super) fn emit(&mut self, now: Instant) -> Option<ClusterUpdate> {
        if self.returning.is_some_and(|first| now >= first + TOGETHER) {
            self.returning = None;
        }
        let (sync_state, error) = self.state_to_emit(now)?;
        let is_lost = matches!(sync_state, SyncState::Stale { .. });
        let lost = self.stale().map(|(since, _)| *since).min();
        let lost = lost.filter(|_| is_lost);
        self.since = None;
        self.sync_state = sync_state.clone();
        self.error.clone_from(&error);
        let mut counts = self.objects.counts();
        counts.extend(self.configs.configuration().counts());
        for kind in self.others.accepted() {
            *counts.entry(kind).or_default() += 1;
        }
        counts.retain(|_, count| *count > 0);
        let contribution = if self.synced {
            Contribution {
                configuration: self.configs.configuration().clone(),
                ..self.objects.contribution()
            }
        } else {
            Contribution::default()
        };
        let of_objects = self.objects.problems();
        let problems = of_objects
            .chain(self.configs.problems())
            .chain(self.others.problems(self.configs.cluster()))
            .chain(self.unreadable())
            .collect();
        Some(ClusterUpdate {
            contribution,
            sync_state,
            error,
            lost,
            counts,
            events: self.objects.events().clone(),
            podless: self.objects.podless(),
            ever_podless: self.objects.ever_podless(),
            problems,
            left_out: WithoutRoom::of(self.fresh.iter().map(|(kind, fresh)| (*kind, fresh))),
            origins: self.configs.origins(),
            others: self.others.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::index::wire::Service;
    use api::config::Finding;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn listed(stale: Option<Instant>) -> Freshness {
        Freshness {
            listed: true,
            stale: stale.map(|since| (since, "away".to_owned())),
            ..Freshness::default()
        }
    }

    /// The state with two kinds, all listed and emitted, and the time.
    fn synced() -> (ClusterState, Instant) {
        let names = Names {
            cluster: "here".into(),
            domain: "cluster.local".into(),
            trust_domain: "td".into(),
        };
        let (mut state, now) = (
            ClusterState::new(names, PATIENCE, ["a", "b"]),
            Instant::now(),
        );
        state.freshness("a", listed(None), now);
        change(&mut state, "a", now);
        assert_eq!((state.due(), state.emit(now + PATIENCE)), (None, None));
        state.freshness("b", listed(None), now);
        assert_eq!(state.due(), Some(now + GATHER));
        let update = state.emit(now + GATHER).unwrap();
        assert_eq!(update.sync_state, SyncState::Synced);
        assert_eq!(update.counts, BTreeMap::from([("Namespace", 1)]));
        (state, now + GATHER)
    }

    fn change(state: &mut ClusterState, name: &str, now: Instant) {
        let key = Key::new("", name);
        let namespace = Namespace {
            key,
            ..Namespace::default()
        };
        state.objects.set(Arc::new(namespace));
        state.changed(now);
    }

    #[test]
    fn objects_without_room_are_told_by_name_and_number() {
        let (mut state, now) = synced();
        let fresh = Freshness {
            more_unreadable: 7,
            left_out: Arc::new([Key::new("n", "c")].into()),
            more_left_out: 2,
            ..listed(None)
        };
        assert!(state.freshness("a", fresh.clone(), now));
        assert!(!state.freshness("a", fresh.clone(), now));
        let other = Freshness {
            left_out: Arc::default(),
            ..fresh.clone()
        };
        assert!(state.freshness("a", other, now) && state.freshness("a", fresh, now));
        state.changed(now);
        let update = state.emit(now + GATHER).unwrap();
        assert_eq!(update.sync_state, SyncState::Synced);
        let problems: Vec<_> = update
            .problems
            .iter()
            .map(|one| (one.object.to_string(), one.refusal.to_string()))
            .collect();
        let expected = [
            ("n/c", NO_ROOM),
            ("*", "7 objects of this kind cannot be read, either"),
            ("*", "2 objects of this kind have no room, either"),
        ];
        let expected = expected.map(|(object, message)| (object.to_owned(), message.to_owned()));
        assert_eq!(problems, expected);
    }

    /// They are refused in `/debug/configz`, as what breaks a rule is.
    #[test]
    fn objects_without_room_are_shown_as_refused() {
        let names = Names {
            cluster: "here".into(),
            domain: "cluster.local".into(),
            trust_domain: "td".into(),
        };
        let mut state = ClusterState::new(names, PATIENCE, ["sidecars"]);
        let now = Instant::now();
        let fresh = Freshness {
            left_out: Arc::new([Key::new("n", "c")].into()),
            more_left_out: 2,
            ..listed(None)
        };
        assert!(state.freshness("sidecars", fresh, now));
        state.changed(now);
        let update = state.emit(now + GATHER).unwrap();
        assert_eq!(update.left_out.to_string(), "3 of sidecars");
        let all = update.config_objects(&"here".into());
        let all: Vec<_> = all
            .iter()
            .map(|one| (&*one.kind, &*one.name, one.is_accepted, &one.findings[..]))
            .collect();
        assert_eq!(
            all,
            [("Sidecar", "c", false, &[Finding::error("", NO_ROOM)][..])]
        );
    }

    #[test]
    fn changes_within_the_gathering_time_are_emitted_together() {
        let (mut state, now) = synced();
        assert_eq!((state.due(), state.emit(now)), (None, None));
        change(&mut state, "b", now);
        assert_eq!(state.emit(now), None);
        change(&mut state, "c", now + GATHER / 2);
        assert_eq!(state.due(), Some(now + GATHER));
        assert_eq!(state.emit(now + GATHER).unwrap().counts["Namespace"], 3);
        assert_eq!(state.emit(now + GATHER * 2), None);
    }

    /// Each event of a relist counted the work of all that had changed since, on the event loop.
    #[test]
    fn no_work_is_counted_before_it_is_due() {
        let (mut state, now) = synced();
        let service = |name: &str| Service {
            key: Key::new("n", name),
            ..Service::default()
        };
        state.objects.set(Arc::new(service("a")));
        state.changed(now);
        assert_eq!((state.work(now), state.emit(now)), (0, None));
        assert!(state.work(now + GATHER) > 0);
        assert!(state.emit(now + GATHER).is_some());
        assert_eq!(state.work(now + GATHER), 0);
        for kind in ["a", "b"] {
            state.freshness(kind, listed(Some(now)), now);
        }
        let now = now + PATIENCE * 2;
        assert!(state.emit(now).is_some());
        state.freshness("a", listed(None), now);
        state.objects.set(Arc::new(service("b")));
        state.changed(now);
        assert_eq!(state.work(now + TOGETHER - GATHER), 0);
        assert!(state.work(now + TOGETHER) > 0);
        assert!(state.emit(now + TOGETHER).is_some());
    }

    #[test]
    fn a_source_is_lost_after_a_while_and_others_are_told_on() {
        let (mut state, now) = synced();
        state.freshness("a", listed(Some(now)), now);
        let update = state.emit(now).unwrap();
        assert_eq!(
            (update.sync_state, update.error.as_deref(), update.lost),
            (SyncState::Synced, Some("away"), None)
        );
        assert_eq!(state.due(), Some(now + PATIENCE));
        change(&mut state, "b", now);
        assert_eq!(
            state.emit(now + GATHER).unwrap().sync_state,
            SyncState::Synced
        );
        let update = state.emit(now + PATIENCE).unwrap();
        assert_eq!(
            update.sync_state,
            SyncState::Stale {
                error: "away".into()
            }
        );
        assert_eq!(update.lost, Some(now));
        assert_eq!((state.due(), state.emit(now + PATIENCE * 2)), (None, None));
    }

    #[test]
    fn after_a_gap_all_is_told_at_once_or_after_a_while() {
        for together in [true, false] {
            let (mut state, now) = synced();
            state.freshness("a", listed(Some(now)), now);
            state.freshness("b", listed(Some(now)), now);
            let now = now + PATIENCE * 2;
            assert!(state.emit(now).is_some());
            state.freshness("a", listed(None), now);
            change(&mut state, "b", now);
            assert_eq!(state.emit(now + GATHER), None);
            assert_eq!(state.due(), Some(now + TOGETHER));
            if together {
                state.freshness("b", listed(None), now + GATHER);
                change(&mut state, "c", now + GATHER);
                let update = state.emit(now + GATHER).unwrap();
                assert_eq!(
                    (update.counts["Namespace"], update.sync_state),
                    (3, SyncState::Synced)
                );
                assert_eq!(state.emit(now + GATHER * 2), None);
            } else {
                let update = state.emit(now + TOGETHER).unwrap();
                assert_eq!(update.counts["Namespace"], 2);
                assert_eq!(
                    update.sync_state,
                    SyncState::Stale {
                        error: "away".into()
                    }
                );
            }
        }
    }
}
