//! Conflicts that many scopes find alike: the text of each is kept once, and so many texts of each namespace. Each snapshot counts
//! its own, so there are at most twice as many while that before is alive.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::conflict::Conflict;

/// Conflicts of one metric and one namespace that are kept: a reader has enough with so many, and no namespace takes the place of
/// another.
pub(crate) const MAX_PER_NAMESPACE: usize = 500;

/// The conflicts of one scope.
pub(crate) type SharedConflicts = Arc<[Arc<Conflict>]>;

/// The namespace that a conflict is counted for, and its metric.
type Counted = (Arc<str>, &'static str);

/// The conflicts of all scopes, each once.
#[derive(Debug, Default)]
pub(crate) struct ConflictPool(Mutex<PooledConflicts>);

#[derive(Debug, Default)]
struct PooledConflicts {
    /// Those found since the last sweep.
    all: HashSet<Arc<Conflict>>,
    /// Earlier conflicts that a scope had at the last sweep, and that were not found since: they take no other conflict's place.
    before: HashSet<Arc<Conflict>>,
    /// The number of texts in `all`, by cause.
    counts: HashMap<Counted, usize>,
}

impl ConflictPool {
    /// Returns conflicts as all scopes share them. Those of a namespace beyond [`MAX_PER_NAMESPACE`] become one, which stands for
    /// them: the first that come are kept, whatever scope has them.
    pub(crate) fn share(&self, conflicts: impl IntoIterator<Item = Conflict>) -> SharedConflicts {
        let mut pooled = self.lock();
        let mut all = Vec::new();
        let mut unlisted: BTreeMap<Counted, usize> = BTreeMap::new();
        for conflict in conflicts {
            let cause = cause(&conflict);
            if pooled.has_room_for(&conflict, &cause) {
                all.push(pooled.intern(conflict, cause));
            } else {
                *unlisted.entry(cause).or_default() += conflict.occurrences;
            }
        }
        for (cause, occurrences) in unlisted {
            let more = more_of_namespace(cause.1, &cause.0).standing_for(occurrences);
            all.push(pooled.intern(more, cause));
        }
        all.into()
    }

    /// Returns all conflicts as scopes share them: those of most proxies, which every replica tells alike, whatever else it has.
    pub(crate) fn share_all(
        &self,
        conflicts: impl IntoIterator<Item = Conflict>,
    ) -> SharedConflicts {
        let mut pooled = self.lock();
        let conflicts = conflicts.into_iter();
        let all = conflicts.map(|conflict| {
            let cause = cause(&conflict);
            pooled.intern(conflict, cause)
        });
        all.collect()
    }

    /// Forgets the conflicts that no scope has any more, and counts anew: the scopes of the snapshot before are still there, and must
    /// not use up the places of the next one.
    pub(crate) fn sweep(&self) {
        let mut pooled = self.lock();
        let mut before = std::mem::take(&mut pooled.all);
        before.extend(pooled.before.drain());
        before.retain(|one| Arc::strong_count(one) > 1);
        before.shrink_to_fit();
        pooled.before = before;
        pooled.counts = HashMap::new();
    }

    fn lock(&self) -> MutexGuard<'_, PooledConflicts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PooledConflicts {
    fn has_room_for(&self, conflict: &Conflict, cause: &Counted) -> bool {
        let count = self.counts.get(cause).copied().unwrap_or_default();
        count < MAX_PER_NAMESPACE || self.all.contains(conflict)
    }

    fn intern(&mut self, conflict: Conflict, cause: Counted) -> Arc<Conflict> {
        if let Some(shared) = self.all.get(&conflict) {
            return shared.clone();
        }
        let shared = self.before.take(&conflict);
        let conflict = shared.unwrap_or_else(|| Arc::new(conflict));
        self.all.insert(conflict.clone());
        *self.counts.entry(cause).or_default() += 1;
        conflict
    }
}

fn cause(conflict: &Conflict) -> Counted {
    (conflict.namespace(), conflict.metric)
}

/// Says that a namespace has more conflicts than are listed.
pub(crate) fn more_of_namespace(metric: &'static str, namespace: &str) -> Conflict {
    let message = format!(
        "more conflicts of namespace {namespace:?} than these {MAX_PER_NAMESPACE} are not listed"
    );
    Conflict::new(metric, namespace, message)
}

#[cfg(test)]
mod tests {
    use api::model::ServiceKey;

    use super::*;
    use crate::common::conflict::{DUPLICATE_CLUSTER, NOT_ENFORCED_AS_WRITTEN};

    fn conflict(metric: &'static str, namespace: &str, key: usize) -> Conflict {
        let message = format!("{key} is left out");
        let conflict = Conflict::new(metric, key.to_string(), message);
        conflict.of_service(&ServiceKey::new("a.example", namespace))
    }

    fn of_scope(first: usize, count: usize) -> impl Iterator<Item = Conflict> {
        (first..first + count).map(|key| conflict(DUPLICATE_CLUSTER, "mallory", key))
    }

    fn texts(pool: &ConflictPool) -> usize {
        let pooled = pool.lock();
        pooled.all.len() + pooled.before.len()
    }

    #[test]
    fn two_hundred_scopes_have_the_text_of_a_conflict_once() {
        let pool = ConflictPool::default();
        let scopes: Vec<_> = (0..200).map(|_| pool.share(of_scope(0, 400))).collect();
        assert_eq!(texts(&pool), 400);
        for scope in &scopes {
            assert!(Arc::ptr_eq(&scope[399], &scopes[0][399]));
        }
    }

    #[test]
    fn scopes_with_conflicts_of_their_own_have_a_bound_together() {
        let pool = ConflictPool::default();
        let scopes: Vec<_> = (0..200)
            .map(|scope| pool.share(of_scope(scope * 400, 400)))
            .collect();
        assert_eq!(scopes[0].len(), 400);
        // The last scope has none of its own, and says how many there are.
        let [more] = &*scopes[199] else {
            panic!("not one: {:?}", scopes[199]);
        };
        assert_eq!(more.occurrences, 400);
        assert!(more.message.contains("\"mallory\" than these 500"));
        assert!(texts(&pool) <= MAX_PER_NAMESPACE + 2, "{}", texts(&pool));
        // Another namespace, another metric, and proxies of no namespace of its own have all of theirs.
        for other in [
            conflict(DUPLICATE_CLUSTER, "a", 1),
            conflict(NOT_ENFORCED_AS_WRITTEN, "mallory", 1),
        ] {
            assert_eq!(*pool.share([other.clone()])[0], other);
        }
        assert_eq!(pool.share_all(of_scope(1_000_000, 400)).len(), 400);
    }

    /// They used to leave it a hundred places, and a sentence that spoke of 500.
    #[test]
    fn a_snapshot_has_its_places_while_that_before_is_alive() {
        let pool = ConflictPool::default();
        let before = pool.share(of_scope(0, 400));
        pool.sweep();
        let after = pool.share(of_scope(400, 400));
        assert_eq!(after.len(), 400);
        assert!(after.iter().all(|one| one.occurrences == 1));
        // One that both find is there once, and takes a place of each.
        let both = pool.share(of_scope(0, 100));
        assert!(Arc::ptr_eq(&both[99], &before[99]));
        assert_eq!(texts(&pool), 800);
        assert_eq!(pool.share(of_scope(100, 300)).len(), 1);
        drop((before, both));
        pool.sweep();
        assert_eq!(texts(&pool), 400);
    }

    #[test]
    fn conflicts_that_no_scope_has_are_forgotten() {
        let pool = ConflictPool::default();
        let stays = pool.share(of_scope(0, 1));
        for round in 1..100 {
            drop(pool.share(of_scope(round * 400, 400)));
            pool.sweep();
        }
        assert_eq!(texts(&pool), 1);
        let again = pool.share(of_scope(0, 400));
        assert_eq!(again.len(), 400);
        assert!(Arc::ptr_eq(&again[0], &stays[0]));
    }
}
