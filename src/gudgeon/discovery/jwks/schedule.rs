//! When keys are fetched, and what came of it. Time is an argument.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::backoff::Bounds;
use api::security::{KeySet, KeysPlace};

use super::fetch::FetchError;
use super::{MOST, MOST_OF_NAMESPACE, Row, RuleOf, WantedKeys, WantedPlace, origin};

/// Fetches at once: an answer may be a megabyte.
const AT_ONCE: usize = 16;
/// Fetches at once for one namespace: places that do not answer keep other namespaces from theirs no longer.
const OF_NAMESPACE_AT_ONCE: usize = 2;
/// Between failures.
const AGAIN: Bounds = Bounds {
    first: Duration::from_secs(1),
    most: Duration::from_secs(60),
};
/// The longest wait of the first snapshot for a first try at keys. Without it proxies that have keys would lose them.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Entry {
    wanted: WantedPlace,
    keys: Option<KeySet>,
    fetched: Option<Duration>,
    error: Option<String>,
    failures: u32,
    /// The time of the first policy that uses it.
    since: Duration,
    due: Duration,
    under_way: bool,
    is_tried: bool,
}

/// The outcome of a fetch, as far as it is worth telling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FetchOutcome {
    /// Keys are others than before.
    pub(super) keys: bool,
    /// The result differs from the last one: a first failure, another cause, or a recovery.
    pub(super) trouble: bool,
}

/// All places.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    entries: BTreeMap<KeysPlace, Entry>,
    left_out: Vec<RuleOf>,
}

impl Schedule {
    /// Replaces the wanted places. Places that no rule wants any more are forgotten, with their keys; returns true if there
    /// were any.
    pub(super) fn want(&mut self, all: WantedKeys, now: Duration) -> bool {
        let WantedKeys { wanted, left_out } = all;
        self.left_out = left_out;
        let before = self.entries.len();
        self.entries.retain(|place, _| wanted.contains_key(place));
        let forgets = self.entries.len() < before;
        for (place, wanted) in wanted {
            let entry = self.entries.entry(place).or_insert_with(|| Entry {
                wanted: wanted.clone(),
                keys: None,
                fetched: None,
                error: None,
                failures: 0,
                since: now,
                due: now,
                under_way: false,
                is_tried: false,
            });
            entry.wanted = wanted;
        }
        forgets
    }

    /// The places to fetch from now, each with its timeout.
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

    /// The time when the next fetch becomes due. One that is due already waits for a turn, which comes when a fetch ends.
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
                entry.due = now + AGAIN.step(entry.failures);
                entry.failures = entry.failures.saturating_add(1);
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

    /// Until when those are waited for of which nothing came yet, and that were not waited for long enough.
    fn awaited(&self, now: Duration) -> impl Iterator<Item = Duration> {
        let untried = self.entries.values().filter(|entry| !entry.is_tried);
        let until = untried.map(|entry| entry.since + PATIENCE);
        until.filter(move |until| *until > now)
    }

    /// The number of places that are waited for.
    pub(super) fn count_awaited(&self, now: Duration) -> usize {
        self.awaited(now).count()
    }

    /// When the first of them is waited for no longer.
    pub(super) fn patience(&self, now: Duration) -> Option<Duration> {
        self.awaited(now).min()
    }

    /// Returns true if a place is known, and waited for no longer.
    pub(super) fn is_settled(&self, place: &KeysPlace, now: Duration) -> bool {
        let entry = self.entries.get(place);
        entry.is_some_and(|entry| entry.is_tried || entry.since + PATIENCE <= now)
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

    /// Notes on the rules that want keys and have none, or old ones, or not all.
    pub(super) fn notes(&self) -> BTreeMap<(Arc<str>, Arc<str>), Vec<String>> {
        let mut notes = BTreeMap::<_, Vec<String>>::new();
        for (namespace, name, at) in &self.left_out {
            let of = notes.entry((namespace.clone(), name.clone())).or_default();
            of.push(format!(
                "spec.jwtRules[{at}]: tokens are refused: keys are fetched from {MOST_OF_NAMESPACE} places for a namespace, and \
                 from {MOST} in all"
            ));
        }
        for entry in self.entries.values() {
            let left_out = entry.keys.as_ref().map_or(0, KeySet::left_out);
            let words = match (&entry.keys, &entry.error) {
                (None, Some(error)) => format!("tokens are refused, no keys: {error}"),
                (None, None) => "tokens are refused until keys are fetched".to_owned(),
                (Some(_), Some(error)) => format!("the last fetched keys stay in use: {error}"),
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

    fn wanted(namespace: &str, name: &str) -> (KeysPlace, WantedPlace) {
        let wanted = WantedPlace {
            namespace: namespace.into(),
            timeout: second(5),
            by: vec![(namespace.into(), "p".into(), 1)],
        };
        (place(name), wanted)
    }

    fn places(wanted: impl IntoIterator<Item = (KeysPlace, WantedPlace)>) -> WantedKeys {
        WantedKeys {
            wanted: wanted.into_iter().collect(),
            left_out: vec![("n".into(), "more".into(), 2)],
        }
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
        assert!(!all.want(places([wanted("n", "a")]), second(10)));
        assert_eq!(all.next(second(9)), Some(second(10)));
        let is_settled = |all: &Schedule, now| all.is_settled(&place("a"), second(now));
        assert_eq!(
            (all.count_awaited(second(10)), all.patience(second(10))),
            (1, Some(second(15)))
        );
        assert!(!is_settled(&all, 14) && is_settled(&all, 15));
        assert_eq!(
            (all.count_awaited(second(15)), all.patience(second(15))),
            (0, None)
        );
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
            (all.next(second(12)), all.patience(second(12))),
            (Some(second(1212)), None)
        );
        assert!(is_settled(&all, 12));
        let notes = all.notes();
        let words = "spec.jwtRules[2]: tokens are refused: keys are fetched from 50 places for a namespace, and from 1000 in all";
        assert_eq!(notes[&("n".into(), "more".into())], [words]);
        assert_eq!(notes.len(), 1);
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
        let words = "spec.jwtRules[1]: the last fetched keys stay in use: the host has no address";
        assert_eq!(notes[&("n".into(), "p".into())], [words]);
        assert_eq!(all.due(now).len(), 1);
        assert_eq!(good(&mut all, "2", now), news(true, true));
        assert_eq!(all.next(now), Some(now + REFRESH));
        // Nobody wants them any more, and then somebody does.
        assert!(all.want(WantedKeys::default(), now));
        assert!(all.rows().is_empty() && all.key_sets().is_empty());
        assert!(!is_settled(&all, 5000));
        assert_eq!(good(&mut all, "3", now), FetchOutcome::default());
        all.want(places([wanted("n", "a")]), now);
        assert_eq!(all.count_awaited(now), 1);
        let words = "spec.jwtRules[1]: tokens are refused until keys are fetched";
        assert_eq!(all.notes()[&("n".into(), "p".into())], [words]);
        let row = &all.rows()[0];
        assert_eq!((&*row.origin, row.keys), ("https://a:8443", None));
    }

    #[test]
    fn places_that_do_not_answer_keep_others_from_theirs_no_longer_than_they_must() {
        let mut all = Schedule::default();
        let slow = (0..50).map(|at| wanted("a", &format!("slow-{at:02}")));
        let more = (0..20).map(|at| wanted(&format!("m{at:02}"), &format!("zone-{at:02}")));
        all.want(places(slow.chain(more)), second(0));
        let due = all.due(second(0));
        assert_eq!(due.len(), AT_ONCE);
        let is_slow = |name: &String| name.contains("slow");
        let slow = names(&due).into_iter().filter(is_slow).count();
        assert_eq!(slow, OF_NAMESPACE_AT_ONCE);
        // Nobody is woken for those that wait for a turn.
        assert_eq!(all.due(second(0)), []);
        assert_eq!(all.next(second(1)), None);
        // Others come first, and then one of those.
        for (place, _) in &due {
            all.done(place, Err(FetchError::Resolve), second(1), REFRESH);
        }
        let due = names(&all.due(second(1)));
        assert_eq!(
            due.len(),
            20 - (AT_ONCE - OF_NAMESPACE_AT_ONCE) + OF_NAMESPACE_AT_ONCE
        );
        assert_eq!(
            due.iter().filter(|name| is_slow(name)).count(),
            OF_NAMESPACE_AT_ONCE
        );
    }
}
