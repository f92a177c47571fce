//! Facts about the objects of sources beyond what is served: their number, the events about them, and the objects that cannot be
//! used.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sources::contribution::SourceId;
use sources::kubernetes::{BrokenCredentials, ClusterUpdate, Event, Problem, WithoutRoom};

use super::rules_without_effect::RuleCounts;

type Events = BTreeMap<(&'static str, Event), u64>;

/// Facts about all sources.
#[derive(Debug, Default)]
pub(crate) struct Facts(Mutex<FactsState>);

#[derive(Debug, Default)]
struct FactsState {
    sources: BTreeMap<SourceId, Fact>,
    /// Objects that cannot be used, or not all of them.
    refused: BTreeMap<SourceId, BTreeSet<Object>>,
    /// VirtualServices that can be used.
    routes: BTreeMap<SourceId, usize>,
    /// The configuration that counts, with or without an effect.
    rules: BTreeMap<SourceId, RuleCounts>,
    rules_changed: u64,
    /// Secrets that cannot be used.
    broken_secrets: BTreeMap<SourceId, Arc<BrokenCredentials>>,
    /// Totals of sources that are gone: a counter never decreases.
    gone: Totals,
}

/// The kind of rules that are counted by themselves.
pub(crate) const ROUTES: &str = "VirtualService";

/// An object's kind, its namespace and name.
pub(crate) type Object = (Arc<str>, String);

/// Objects by kind.
pub(crate) type Counts = BTreeMap<Arc<str>, usize>;

/// Facts about one source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fact {
    /// Objects by kind.
    pub(crate) counts: Counts,
    /// The reason why the server does not answer.
    pub(crate) error: Option<Arc<str>>,
    /// A message about objects that cannot be read.
    pub(crate) unreadable: Option<String>,
    /// Objects without room.
    left_out: WithoutRoom,
    podless: usize,
    totals: Totals,
}

/// Numbers that only grow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) events: Events,
    /// Endpoints that were seen before their pods.
    pub(crate) ever_podless: u64,
}

impl Totals {
    fn add(&mut self, other: &Self) {
        for (what, count) in &other.events {
            *self.events.entry(*what).or_default() += count;
        }
        self.ever_podless += other.ever_podless;
    }
}

/// A message with the number of objects that cannot be read, and the first of them.
fn unreadable(update: &ClusterUpdate) -> Option<String> {
    let is_one = |problem: &&Problem| problem.is_unreadable;
    let mut all = update.problems.iter().filter(is_one);
    let count = all.clone().count();
    let first = all.next()?;
    let Problem {
        kind,
        object,
        refusal,
        ..
    } = first;
    let objects = match count {
        1 => "1 object skipped, or kept at its last good version".to_owned(),
        count => format!("{count} objects skipped, or kept at their last good version"),
    };
    Some(format!("{objects}: {kind} {object}: {refusal}"))
}

impl Facts {
    fn state(&self) -> MutexGuard<'_, FactsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, source: &SourceId, update: &ClusterUpdate) {
        let counts = update.counts.iter();
        let fact = Fact {
            counts: counts
                .map(|(kind, count)| ((*kind).into(), *count))
                .collect(),
            error: update.error.clone(),
            unreadable: unreadable(update),
            left_out: update.left_out.clone(),
            podless: update.podless,
            totals: Totals {
                events: update.events.clone(),
                ever_podless: update.ever_podless,
            },
        };
        self.state().sources.insert(source.clone(), fact);
        let refused = update.problems.iter().map(|problem| {
            let object = &problem.object;
            let name = format!("{}/{}", object.namespace, object.name);
            (Arc::from(problem.kind), name)
        });
        self.refuse(source, refused);
        let routes = update.counts.get(ROUTES).copied().unwrap_or_default();
        self.route(source, routes);
    }

    /// Sets the Secrets of a source that cannot be used, with the causes.
    pub(crate) fn set_broken_secrets(&self, source: &SourceId, all: Arc<BrokenCredentials>) {
        self.state().broken_secrets.insert(source.clone(), all);
    }

    /// The Secrets of all sources that cannot be used.
    pub(crate) fn broken_secrets(&self) -> BrokenCredentials {
        let state = self.state();
        let all = state.broken_secrets.values().flat_map(|all| all.iter());
        all.map(|(key, cause)| (key.clone(), Arc::clone(cause)))
            .collect()
    }

    /// Sets the counts of objects by kind, for a source that reports nothing else.
    pub(crate) fn count(&self, source: &SourceId, counts: Counts) {
        let mut state = self.state();
        state.sources.entry(source.clone()).or_default().counts = counts;
    }

    /// Sets the number of VirtualServices of a source that can be used.
    pub(crate) fn route(&self, source: &SourceId, count: usize) {
        self.state().routes.insert(source.clone(), count);
    }

    /// Sets the counts of a source's configuration.
    pub(crate) fn rule(&self, source: &SourceId, counts: RuleCounts) {
        let mut state = self.state();
        if state.rules.get(source) != Some(&counts) {
            state.rules.insert(source.clone(), counts);
            state.rules_changed += 1;
        }
    }

    /// The number of changes of [`Self::rules`].
    pub(crate) fn rules_changed(&self) -> u64 {
        self.state().rules_changed
    }

    /// The counted configuration of all sources.
    pub(crate) fn rules(&self) -> RuleCounts {
        let mut all = RuleCounts::default();
        for counts in self.state().rules.values() {
            all.merge(counts);
        }
        all
    }

    /// The number of VirtualServices of all sources that can be used.
    pub(crate) fn routes(&self) -> usize {
        self.state().routes.values().sum()
    }

    /// Sets the objects of a source that cannot be used.
    pub(crate) fn refuse(&self, source: &SourceId, objects: impl Iterator<Item = Object>) {
        let objects: BTreeSet<Object> = objects.collect();
        self.state().refused.insert(source.clone(), objects);
    }

    /// Objects of all sources that cannot be used.
    pub(crate) fn refused(&self) -> BTreeSet<Object> {
        self.state().refused.values().flatten().cloned().collect()
    }

    pub(crate) fn forget(&self, source: &SourceId) {
        let mut state = self.state();
        state.refused.remove(source);
        state.routes.remove(source);
        state.broken_secrets.remove(source);
        if state.rules.remove(source).is_some() {
            state.rules_changed += 1;
        }
        if let Some(fact) = state.sources.remove(source) {
            state.gone.add(&fact.totals);
        }
    }

    pub(crate) fn of(&self, source: &SourceId) -> Option<Fact> {
        self.state().sources.get(source).cloned()
    }

    /// Sources that leave objects out because their kinds' room is full, and what they leave out.
    pub(crate) fn without_room(&self) -> Vec<(SourceId, WithoutRoom)> {
        let state = self.state();
        let all = state.sources.iter();
        let all = all.filter(|(_, fact)| !fact.left_out.is_empty());
        all.map(|(source, fact)| (source.clone(), fact.left_out.clone()))
            .collect()
    }

    /// Endpoints of unknown pods.
    pub(crate) fn podless(&self) -> usize {
        self.state().sources.values().map(|fact| fact.podless).sum()
    }

    pub(crate) fn totals(&self) -> Totals {
        let state = self.state();
        let mut totals = state.gone.clone();
        for fact in state.sources.values() {
            totals.add(&fact.totals);
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::model::Registry;

    #[test]
    fn counters_stay_when_their_cluster_goes() {
        let facts = Facts::default();
        let source = |cluster: &str| SourceId {
            registry: Registry::Kubernetes,
            cluster: cluster.into(),
        };
        let mut update = ClusterUpdate {
            counts: BTreeMap::from([("Node", 2)]),
            events: BTreeMap::from([(("Pod", Event::Add), 3)]),
            podless: 1,
            ever_podless: 4,
            ..ClusterUpdate::default()
        };
        facts.put(&source("east"), &update);
        facts.put(&source("west"), &update);
        assert_eq!(facts.podless(), 2);
        facts.forget(&source("west"));
        update.events.insert(("Pod", Event::Add), 5);
        facts.put(&source("east"), &update);
        let totals = facts.totals();
        assert_eq!(totals.events, BTreeMap::from([(("Pod", Event::Add), 8)]));
        assert_eq!((totals.ever_podless, facts.podless()), (8, 1));
        assert!(facts.of(&source("west")).is_none());
        assert_eq!(facts.of(&source("east")).unwrap().counts["Node"], 2);
    }
}
