//! When keys are fetched, and what came of it. Time is an argument.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::security::{KeySet, KeysPlace};

use super::fetch::FetchError;
use super::{Row, Wanted, origin};

/// Fetches at once: an answer may be a megabyte.
const AT_ONCE: usize = 16;
/// Of one namespace: whoever names places that do not answer keeps others from theirs no longer than that.
const OF_NAMESPACE_AT_ONCE: usize = 2;
/// After the first failure; doubled with each one after it.
const FIRST_AGAIN: Duration = Duration::from_secs(1);
const LAST_AGAIN: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Entry {
    wanted: Wanted,
    keys: Option<KeySet>,
    fetched: Option<Duration>,
    error: Option<String>,
    failures: u32,
    due: Duration,
    under_way: bool,
    is_tried: bool,
}

/// What came of a fetch that is worth telling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FetchOutcome {
    /// Keys are others than before.
    pub(super) keys: bool,
    /// It fails for the first time, or for another reason, or does no more.
    pub(super) trouble: bool,
}

/// All places.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    entries: BTreeMap<KeysPlace, Entry>,
    /// Nothing waits for keys any more.
    pub(super) settled: bool,
}

impl Schedule {
    /// Places that nobody wants any more are forgotten, with their keys.
    pub(super) fn want(&mut self, wanted: BTreeMap<KeysPlace, Wanted>, now: Duration) {
        self.entries.retain(|place, _| wanted.contains_key(place));
        for (place, wanted) in wanted {
            let entry = self.entries.entry(place).or_insert_with(|| Entry {
                wanted: wanted.clone(),
                keys: None,
                fetched: None,
                error: None,
                failures: 0,
                due: now,
                under_way: false,
                is_tried: false,
            });
            entry.wanted = wanted;
        }
    }

    /// Those to fetch now, each with how long that may take.
    pub(super) fn due(&mut self, now: Duration) -> Vec<(KeysPlace, Duration)> {
        let mut count = 0;
        let mut busy = HashMap::<Arc<str>, usize>::new();
        for entry in self.entries.values().filter(|entry| entry.under_way) {
            count += 1;
            *busy.entry(entry.wanted.namespace.clone()).or_default() += 1;
        }
        let mut all: Vec<_> = self.entries.iter_mut().collect();
        // Who waits longest comes first.
        all.sort_by_key(|(_, entry)| entry.due);
        let mut found = Vec::new();
        for (place, entry) in all {
            let of_namespace = busy.entry(entry.wanted.namespace.clone()).or_default();
            let is_due = !entry.under_way && entry.due <= now;
            if is_due && count < AT_ONCE && *of_namespace < OF_NAMESPACE_AT_ONCE {
                count += 1;
                *of_namespace += 1;
                entry.under_way = true;
                found.push((place.clone(), entry.wanted.timeout));
            }
        }
        found
    }

    /// When something is due. What is due already waits for a turn, which is there when a fetch ends.
    pub(super) fn next(&self, now: Duration) -> Option<Duration> {
        let waiting = self.entries.values().filter(|entry| !entry.under_way);
        waiting
            .map(|entry| entry.due)
            .filter(|due| *due > now)
            .min()
    }

    /// One was fetched, or could not be.
    pub(super) fn done(
        &mut self,
        place: &KeysPlace,
        fetched: Result<KeySet, FetchError>,
        now: Duration,
        refresh: Duration,
    ) -> FetchOutcome {
        let Some(entry) = self.entries.get_mut(place) else {
            return FetchOutcome::default();
        };
        (entry.under_way, entry.is_tried) = (false, true);
        match fetched {
            Ok(keys) => {
                let news = FetchOutcome {
                    keys: entry.keys.as_ref() != Some(&keys),
                    trouble: entry.error.is_some(),
                };
                (entry.keys, entry.fetched) = (Some(keys), Some(now));
                (entry.error, entry.failures) = (None, 0);
                entry.due = now + refresh;
                news
            }
            Err(error) => {
                let words = error.to_string();
                let trouble = entry.error.as_ref() != Some(&words);
                entry.error = Some(words);
                let wait = FIRST_AGAIN.saturating_mul(1 << entry.failures.min(10));
                entry.failures = entry.failures.saturating_add(1);
                entry.due = now + wait.min(LAST_AGAIN);
                FetchOutcome {
                    keys: false,
                    trouble,
                }
            }
        }
    }

    pub(super) fn key_sets(&self) -> BTreeMap<KeysPlace, KeySet> {
        let entries = self.entries.iter();
        entries
            .filter_map(|(place, entry)| Some((place.clone(), entry.keys.clone()?)))
            .collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Those of which nothing came yet.
    pub(super) fn untried(&self) -> usize {
        let entries = self.entries.values();
        entries.filter(|entry| !entry.is_tried).count()
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        let entries = self.entries.iter();
        entries
            .map(|(place, entry)| Row {
                origin: origin(place.url()),
                keys: entry.keys.as_ref().map(KeySet::keys),
                fetched: entry.fetched,
                error: entry.error.clone(),
            })
            .collect()
    }

    /// What is said of those who want keys and have none, or old ones, or not all.
    pub(super) fn notes(&self) -> BTreeMap<(Arc<str>, Arc<str>), Vec<String>> {
        let mut notes = BTreeMap::<_, Vec<String>>::new();
        for entry in self.entries.values() {
            let left_out = entry.keys.as_ref().map_or(0, KeySet::left_out);
            let words = match (&entry.keys, &entry.error) {
                (None, Some(error)) => format!("tokens are refused, no keys: {error}"),
                (None, None) => "tokens are refused until keys are fetched".to_owned(),
                (Some(_), Some(error)) => format!("the last keys that were fetched count: {error}"),
                (Some(_), None) if left_out > 0 => {
                    let keys = api::counted(left_out, "key");
                    format!("{keys} that were fetched do not count")
                }
                (Some(_), None) => continue,
            };
            for (namespace, name, at) in &entry.wanted.by {
                let key = (namespace.clone(), name.clone());
                let of = notes.entry(key).or_default();
                of.push(format!("spec.jwtRules[{at}]: {words}"));
            }
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFRESH: Duration = Duration::from_secs(1200);

    fn second(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn place(name: &str) -> KeysPlace {
        KeysPlace::Set(format!("https://me:secret@{name}:8443/keys?a=secret").into())
    }

    fn wanted(namespace: &str, name: &str) -> (KeysPlace, Wanted) {
        let wanted = Wanted {
            namespace: namespace.into(),
            timeout: second(5),
            by: vec![(namespace.into(), "p".into(), 1)],
        };
        (place(name), wanted)
    }

    fn keys(id: &str) -> KeySet {
        let key = format!(r#"{{"kty":"EC","kid":"{id}","crv":"P-256","x":"AQAB","y":"AQAB"}}"#);
        KeySet::published(&format!(r#"{{"keys":[{key}]}}"#)).unwrap()
    }

    fn names(due: &[(KeysPlace, Duration)]) -> Vec<String> {
        let of = |(place, _): &(KeysPlace, Duration)| origin(place.url());
        due.iter().map(of).collect()
    }

    #[test]
    fn keys_are_fetched_again_and_the_last_good_ones_stay() {
        let mut all = Schedule::default();
        all.want([wanted("n", "a")].into(), second(10));
        assert_eq!((all.next(second(9)), all.untried()), (Some(second(10)), 1));
        assert_eq!(all.due(second(9)), []);
        assert_eq!(names(&all.due(second(10))), ["https://a:8443"]);
        // It is under way.
        assert_eq!(
            (all.due(second(11)), all.next(second(11))),
            (Vec::new(), None)
        );
        let good =
            |all: &mut Schedule, id: &str, now| all.done(&place("a"), Ok(keys(id)), now, REFRESH);
        let news = |keys, trouble| FetchOutcome { keys, trouble };
        assert_eq!(good(&mut all, "1", second(12)), news(true, false));
        assert_eq!(
            (all.next(second(12)), all.untried()),
            (Some(second(1212)), 0)
        );
        assert!(all.notes().is_empty());
        assert_eq!(all.due(second(1212)).len(), 1);
        assert_eq!(good(&mut all, "1", second(1213)), news(false, false));
        // 1, 2, 4 seconds, and a minute at most.
        let mut now = second(3000);
        for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(all.due(now).len(), 1);
            let error = FetchError::Resolve;
            let first = wait == 1;
            assert_eq!(
                all.done(&place("a"), Err(error), now, REFRESH),
                news(false, first)
            );
            assert_eq!(all.next(now), Some(now + second(wait)));
            now += second(wait);
        }
        assert_eq!(all.key_sets()[&place("a")], keys("1"));
        let notes = all.notes();
        let words =
            "spec.jwtRules[1]: the last keys that were fetched count: the host has no address";
        assert_eq!(notes[&("n".into(), "p".into())], [words]);
        assert_eq!(all.due(now).len(), 1);
        assert_eq!(good(&mut all, "2", now), news(true, true));
        assert_eq!(all.next(now), Some(now + REFRESH));
        // Nobody wants them any more, and then somebody does.
        all.want(BTreeMap::new(), now);
        assert!(all.is_empty() && all.key_sets().is_empty());
        assert_eq!(good(&mut all, "3", now), FetchOutcome::default());
        all.want([wanted("n", "a")].into(), now);
        assert_eq!(all.untried(), 1);
        let words = "spec.jwtRules[1]: tokens are refused until keys are fetched";
        assert_eq!(all.notes()[&("n".into(), "p".into())], [words]);
        let row = &all.rows()[0];
        assert_eq!((&*row.origin, row.keys), ("https://a:8443", None));
    }

    #[test]
    fn places_that_do_not_answer_keep_others_from_theirs_no_longer_than_they_must() {
        let mut all = Schedule::default();
        let slow = (0..50).map(|at| wanted("a", &format!("slow-{at:02}")));
        let more = (0..20).map(|at| wanted(&format!("m{at:02}"), &format!("host-{at:02}")));
        all.want(slow.chain(more).collect(), second(0));
        let due = all.due(second(0));
        assert_eq!(due.len(), AT_ONCE);
        let slow = names(&due)
            .iter()
            .filter(|name| name.contains("slow"))
            .count();
        assert_eq!(slow, OF_NAMESPACE_AT_ONCE);
        assert_eq!(all.due(second(0)), []);
        // Nobody is woken for those that wait for a turn.
        assert_eq!(all.next(second(1)), None);
        let first = &due[0].0;
        all.done(first, Err(FetchError::Resolve), second(1), REFRESH);
        assert_eq!(all.due(second(1)).len(), 1);
    }
}
