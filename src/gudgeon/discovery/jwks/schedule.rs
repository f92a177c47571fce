//! The schedule of fetches of keys, and their results. Time is an argument.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::backoff::Bounds;
use api::security::{JwksSource, KeySet};

use super::fetch::FetchError;
use super::{MAX_KEY_SETS, MAX_PER_NAMESPACE, Row, RuleOf, WantedJwksSource, WantedKeys, origin};

/// Fetches at once: an answer may be a megabyte.
const AT_ONCE: usize = 16;
/// Fetches at once for one namespace: sources that do not answer keep other namespaces from theirs no longer.
const OF_NAMESPACE_AT_ONCE: usize = 2;
/// The backoff between failures.
const AGAIN: Bounds = Bounds {
    first: Duration::from_secs(1),
    max: Duration::from_secs(60),
};
/// A fetch of another namespace may last this much longer than its timeout, which its own timer ends: whoever gives a source as much
/// time does not ask it a second time meanwhile.
const GRACE: Duration = Duration::from_secs(1);
/// The longest wait of the first snapshot for a first try at keys. Without it proxies that have keys would lose them.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The turns, timeout and backoff of one namespace that wants a source.
#[derive(Debug)]
struct Share {
    timeout: Duration,
    due: Duration,
    failures: u32,
    under_way: Option<UnderWay>,
}

/// A fetch that goes on.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    number: u64,
    begun: Duration,
}

#[derive(Debug)]
struct Entry {
    /// By namespace.
    shares: BTreeMap<Arc<str>, Share>,
    by: Vec<RuleOf>,
    keys: Option<KeySet>,
    fetched: Option<Duration>,
    error: Option<String>,
    /// The time of the first policy that uses it.
    since: Duration,
    /// The time at which the latest of the running fetches began. It is kept, so that each namespace need not look at all others.
    latest: Option<Duration>,
}

impl Entry {
    fn new(since: Duration) -> Self {
        Self {
            shares: BTreeMap::new(),
            by: Vec::new(),
            keys: None,
            fetched: None,
            error: None,
            since,
            latest: None,
        }
    }

    /// Iterates over the shares; a test counts each as a look.
    fn each_share(&self) -> impl Iterator<Item = (&Arc<str>, &Share)> {
        self.shares.iter().inspect(|_| {
            #[cfg(test)]
            tests::LOOKS.set(tests::LOOKS.get() + 1);
        })
    }

    /// Finds the latest fetch again, after one has ended.
    fn find_latest(&mut self) {
        let under_way = self.each_share().filter_map(|(_, one)| one.under_way);
        self.latest = under_way.map(|one| one.begun).max();
    }

    /// Replaces the namespaces. One that is new tries at once, unless keys are there that are not to be fetched again yet.
    fn set(&mut self, wanted: WantedJwksSource, now: Duration) {
        let is_fetched = self.fetched.is_some() && self.error.is_none();
        let next = self.each_share().map(|(_, share)| share.due).min();
        let due = next.filter(|_| is_fetched).unwrap_or(now);
        self.by = wanted.by;
        self.shares
            .retain(|namespace, _| wanted.timeouts.contains_key(namespace));
        for (namespace, timeout) in wanted.timeouts {
            let share = self.shares.entry(namespace).or_insert(Share {
                timeout,
                due,
                failures: 0,
                under_way: None,
            });
            share.timeout = timeout;
        }
        self.find_latest();
    }

    /// Replaces the keys. They are fetched again at `due`.
    fn put_keys(&mut self, keys: KeySet, now: Duration, due: Duration) -> FetchOutcome {
        let news = FetchOutcome {
            keys: self.keys.as_ref() != Some(&keys),
            trouble: self.error.is_some(),
        };
        (self.keys, self.fetched, self.error) = (Some(keys), Some(now), None);
        for share in self.shares.values_mut() {
            (share.due, share.failures) = (due, 0);
        }
        news
    }

    /// Takes note of a failure. It is one of all namespaces that would not have waited longer.
    fn put_error(&mut self, error: &FetchError, now: Duration) -> FetchOutcome {
        let counts = |share: &Share| error.counts_within(share.timeout);
        // A timeout shorter than the other users' must not replace the error that they meet: the two would take turns.
        let is_short = !self.each_share().all(|(_, share)| counts(share));
        let message = error.to_string();
        let replaces = self.error.is_none() || !is_short;
        let trouble = replaces && self.error.as_ref() != Some(&message);
        if replaces {
            self.error = Some(message);
        }
        for share in self.shares.values_mut().filter(|share| counts(share)) {
            share.due = now + AGAIN.step(share.failures);
            share.failures = share.failures.saturating_add(1);
        }
        FetchOutcome {
            keys: false,
            trouble,
        }
    }

    /// Returns true if each namespace has tried, or one has keys.
    fn is_tried(&self) -> bool {
        let mut shares = self.each_share();
        self.fetched.is_some() || shares.all(|(_, share)| share.failures > 0)
    }

    /// Returns the time from which a namespace may fetch: another one's fetch puts it off for no longer than its own would last.
    fn ready(&self, share: &Share) -> Option<Duration> {
        if share.under_way.is_some() {
            return None;
        }
        let waits = self.latest.map(|begun| begun + share.timeout + GRACE);
        Some(waits.map_or(share.due, |until| until.max(share.due)))
    }
}

/// A fetch that a namespace has a place for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::discovery) struct Fetch {
    /// Its number among all fetches: the result of one that was abandoned is not that of a newer one.
    pub(in crate::discovery) number: u64,
    pub(in crate::discovery) source: JwksSource,
    pub(in crate::discovery) namespace: Arc<str>,
    pub(in crate::discovery) timeout: Duration,
}

/// The outcome of a fetch, as far as it is worth telling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::discovery) struct FetchOutcome {
    /// Keys are others than before.
    pub(in crate::discovery) keys: bool,
    /// The result differs from the last one: a first failure, another cause, or a recovery.
    pub(in crate::discovery) trouble: bool,
}

/// Fetches and sources that no policy wants any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::discovery) struct Discarded {
    /// Sources were forgotten, with their keys.
    pub(in crate::discovery) keys: bool,
    /// The numbers of fetches that are to be aborted. Each counts until it has ended.
    pub(in crate::discovery) fetches: BTreeSet<u64>,
}

/// All sources.
#[derive(Debug, Default)]
pub(in crate::discovery) struct Schedule {
    entries: BTreeMap<JwksSource, Entry>,
    left_out: Vec<RuleOf>,
    /// The namespaces of the running fetches, by number. An author who changes the policies of a namespace gets no further fetches
    /// by that.
    running: BTreeMap<u64, Arc<str>>,
    /// The number of fetches that began.
    begun: u64,
}

impl Schedule {
    /// Replaces the wanted sources. Sources that no rule wants any more are forgotten, with their keys.
    pub(in crate::discovery) fn set(&mut self, all: WantedKeys, now: Duration) -> Discarded {
        let WantedKeys { wanted, left_out } = all;
        self.left_out = left_out;
        let before = self.entries.len();
        self.entries.retain(|source, _| wanted.contains_key(source));
        let keys = self.entries.len() < before;
        for (source, wanted) in wanted {
            let entry = self.entries.entry(source);
            let entry = entry.or_insert_with(|| Entry::new(now));
            entry.set(wanted, now);
        }
        let shares = self.entries.values().flat_map(Entry::each_share);
        let under_way = shares.filter_map(|(_, share)| share.under_way);
        let wanted: BTreeSet<_> = under_way.map(|one| one.number).collect();
        let running = self.running.keys().copied();
        Discarded {
            keys,
            fetches: running.filter(|one| !wanted.contains(one)).collect(),
        }
    }

    /// The number of fetches that go on, by namespace.
    fn busy(&self) -> HashMap<Arc<str>, usize> {
        let mut busy = HashMap::new();
        for namespace in self.running.values() {
            *busy.entry(Arc::clone(namespace)).or_default() += 1;
        }
        busy
    }

    /// Begins the fetches that are due, and returns them.
    pub(in crate::discovery) fn due(&mut self, now: Duration) -> Vec<Fetch> {
        let mut busy = self.busy();
        let mut begun = Vec::new();
        for (source, namespace) in self.ready_shares(now) {
            if self.running.len() >= AT_ONCE {
                break;
            }
            let of_namespace = busy.entry(Arc::clone(&namespace)).or_default();
            if *of_namespace >= OF_NAMESPACE_AT_ONCE {
                continue;
            }
            if let Some(fetch) = self.begin(source, namespace, now) {
                *of_namespace += 1;
                begun.push(fetch);
            }
        }
        begun
    }

    /// The shares that may fetch: the one that waits longest comes first; of one source, the one with the longest timeout.
    fn ready_shares(&self, now: Duration) -> Vec<(JwksSource, Arc<str>)> {
        let mut ready = Vec::new();
        for (source, entry) in &self.entries {
            for (namespace, share) in entry.each_share() {
                if entry.ready(share).is_some_and(|ready| ready <= now) {
                    let order = (share.due, Reverse(share.timeout));
                    ready.push((order, (source.clone(), Arc::clone(namespace))));
                }
            }
        }
        ready.sort_by_key(|(order, _)| *order);
        ready.into_iter().map(|(_, share)| share).collect()
    }

    /// Begins a fetch, unless an earlier one of this round is of the same source.
    fn begin(&mut self, source: JwksSource, namespace: Arc<str>, now: Duration) -> Option<Fetch> {
        let entry = self.entries.get_mut(&source)?;
        let ready = entry.ready(entry.shares.get(&namespace)?);
        ready.filter(|ready| *ready <= now)?;
        let share = entry.shares.get_mut(&namespace)?;
        self.begun += 1;
        let number = self.begun;
        share.under_way = Some(UnderWay { number, begun: now });
        entry.latest = Some(now);
        self.running.insert(number, Arc::clone(&namespace));
        Some(Fetch {
            number,
            source,
            timeout: share.timeout,
            namespace,
        })
    }

    /// The time when the next fetch becomes due. One that is due already waits for a turn, which comes when a fetch ends; so do all
    /// where no turn is left.
    pub(in crate::discovery) fn next(&self, now: Duration) -> Option<Duration> {
        if self.running.len() >= AT_ONCE {
            return None;
        }
        let entries = self.entries.values();
        let ready = entries.flat_map(|entry| {
            let shares = entry.each_share();
            shares.filter_map(|(_, share)| entry.ready(share))
        });
        ready.filter(|ready| *ready > now).min()
    }

    /// Records the end of a fetch that was aborted.
    pub(in crate::discovery) fn aborted(&mut self, fetch: &Fetch) {
        self.running.remove(&fetch.number);
    }

    /// Records the result of a fetch. The result of a fetch that was abandoned meanwhile is ignored.
    pub(in crate::discovery) fn done(
        &mut self,
        fetch: &Fetch,
        fetched: Result<KeySet, FetchError>,
        now: Duration,
        refresh: Duration,
    ) -> FetchOutcome {
        // A fetch counts until it ends, whether it is still wanted or not.
        self.running.remove(&fetch.number);
        let Some(entry) = self.entries.get_mut(&fetch.source) else {
            return FetchOutcome::default();
        };
        let share = entry.shares.get_mut(&fetch.namespace);
        let is_its_own = |one: UnderWay| one.number == fetch.number;
        let Some(share) = share.filter(|share| share.under_way.is_some_and(is_its_own)) else {
            return FetchOutcome::default();
        };
        share.under_way = None;
        entry.find_latest();
        match fetched {
            Ok(keys) => entry.put_keys(keys, now, now + refresh),
            Err(error) => entry.put_error(&error, now),
        }
    }

    pub(in crate::discovery) fn key_sets(&self) -> BTreeMap<JwksSource, KeySet> {
        let entries = self.entries.iter();
        entries
            .filter_map(|(source, entry)| Some((source.clone(), entry.keys.clone()?)))
            .collect()
    }

    /// Returns the ends of the waits for sources that no fetch has tried yet.
    fn awaited(&self, now: Duration) -> impl Iterator<Item = Duration> {
        let untried = self.entries.values().filter(|entry| !entry.is_tried());
        let until = untried.map(|entry| entry.since + MAX_WAIT);
        until.filter(move |until| *until > now)
    }

    /// The number of sources that are waited for.
    pub(in crate::discovery) fn count_awaited(&self, now: Duration) -> usize {
        self.awaited(now).count()
    }

    /// Returns the time at which the wait for the first of the awaited sources ends.
    pub(in crate::discovery) fn patience(&self, now: Duration) -> Option<Duration> {
        self.awaited(now).min()
    }

    /// Returns true if a source is known, and waited for no longer.
    pub(in crate::discovery) fn is_ready(&self, source: &JwksSource, now: Duration) -> bool {
        let entry = self.entries.get(source);
        entry.is_some_and(|entry| entry.is_tried() || entry.since + MAX_WAIT <= now)
    }

    pub(in crate::discovery) fn rows(&self) -> Vec<Row> {
        let entries = self.entries.iter();
        entries
            .map(|(source, entry)| Row {
                origin: origin(source.url()),
                keys: entry.keys.as_ref().map(KeySet::keys),
                fetched: entry.fetched,
                error: entry.error.clone(),
            })
            .collect()
    }

    /// Notes on the rules that want keys and have none, or old ones, or not all.
    pub(in crate::discovery) fn notes(&self) -> BTreeMap<(Arc<str>, Arc<str>), Vec<String>> {
        let mut notes = BTreeMap::<_, Vec<String>>::new();
        for (namespace, name, at) in &self.left_out {
            let of = notes.entry((namespace.clone(), name.clone())).or_default();
            of.push(format!(
                "spec.jwtRules[{at}]: tokens are refused: keys are fetched from {MAX_PER_NAMESPACE} places for a namespace, and \
                 from {MAX_KEY_SETS} in all"
            ));
        }
        for entry in self.entries.values() {
            let left_out = entry.keys.as_ref().map_or(0, KeySet::left_out);
            let message = match (&entry.keys, &entry.error) {
                (None, Some(error)) => format!("tokens are refused, no keys: {error}"),
                (None, None) => "tokens are refused until keys are fetched".to_owned(),
                (Some(_), Some(error)) => format!("the last fetched keys stay in use: {error}"),
                (Some(_), None) if left_out > 0 => {
                    let keys = api::counted(left_out, "key");
                    format!("{keys} that were fetched do not count")
                }
                (Some(_), None) => continue,
            };
            for (namespace, name, at) in &entry.by {
                let key = (namespace.clone(), name.clone());
                let of = notes.entry(key).or_default();
                of.push(format!("spec.jwtRules[{at}]: {message}"));
            }
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// Looks at shares.
        pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

    const REFRESH: Duration = Duration::from_secs(1200);

    fn second(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn source(name: &str) -> JwksSource {
        JwksSource::Set(format!("https://me:secret@{name}:8443/keys?a=secret").into())
    }

    fn wanted(namespace: &str, name: &str) -> (JwksSource, WantedJwksSource) {
        let wanted = WantedJwksSource {
            timeouts: [(namespace.into(), second(5))].into(),
            by: vec![(namespace.into(), "p".into(), 1)],
        };
        (source(name), wanted)
    }

    fn sources(wanted: impl IntoIterator<Item = (JwksSource, WantedJwksSource)>) -> WantedKeys {
        WantedKeys {
            wanted: wanted.into_iter().collect(),
            left_out: vec![("n".into(), "more".into(), 2)],
        }
    }

    fn keys(id: &str) -> KeySet {
        let key = format!(r#"{{"kty":"EC","kid":"{id}","crv":"P-256","x":"AQAB","y":"AQAB"}}"#);
        KeySet::published(&format!(r#"{{"keys":[{key}]}}"#)).unwrap()
    }

    fn names(due: &[Fetch]) -> Vec<String> {
        let of = |fetch: &Fetch| origin(fetch.source.url());
        due.iter().map(of).collect()
    }

    fn fetch(number: u64, namespace: &str, name: &str, timeout: u64) -> Fetch {
        Fetch {
            number,
            source: source(name),
            namespace: namespace.into(),
            timeout: second(timeout),
        }
    }

    fn discarded(keys: bool, fetches: impl IntoIterator<Item = u64>) -> Discarded {
        let fetches = fetches.into_iter().collect();
        Discarded { keys, fetches }
    }

    #[test]
    fn keys_are_fetched_again_and_the_last_good_ones_stay() {
        let mut all = Schedule::default();
        assert_eq!(
            all.set(sources([wanted("n", "a")]), second(10)),
            discarded(false, [])
        );
        assert_eq!(all.next(second(9)), Some(second(10)));
        let is_ready = |all: &Schedule, now| all.is_ready(&source("a"), second(now));
        assert_eq!(
            (all.count_awaited(second(10)), all.patience(second(10))),
            (1, Some(second(15)))
        );
        assert!(!is_ready(&all, 14) && is_ready(&all, 15));
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
        let of = |number| fetch(number, "n", "a", 5);
        let good = |all: &mut Schedule, id: &str, now| {
            let latest = of(all.begun);
            all.done(&latest, Ok(keys(id)), now, REFRESH)
        };
        let news = |keys, trouble| FetchOutcome { keys, trouble };
        assert_eq!(good(&mut all, "1", second(12)), news(true, false));
        assert_eq!(
            (all.next(second(12)), all.patience(second(12))),
            (Some(second(1212)), None)
        );
        assert!(is_ready(&all, 12));
        let notes = all.notes();
        let message = "spec.jwtRules[2]: tokens are refused: keys are fetched from 50 places for a namespace, and from 1000 in all";
        assert_eq!(notes[&("n".into(), "more".into())], [message]);
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
                all.done(&of(all.begun), Err(error), now, REFRESH),
                news(false, first)
            );
            assert_eq!(all.next(now), Some(now + second(wait)));
            now += second(wait);
        }
        assert_eq!(all.key_sets()[&source("a")], keys("1"));
        let notes = all.notes();
        let message =
            "spec.jwtRules[1]: the last fetched keys stay in use: the host has no address";
        assert_eq!(notes[&("n".into(), "p".into())], [message]);
        assert_eq!(all.due(now).len(), 1);
        assert_eq!(good(&mut all, "2", now), news(true, true));
        assert_eq!(all.next(now), Some(now + REFRESH));
        // Nobody wants them any more, and then somebody does.
        assert_eq!(all.set(WantedKeys::default(), now), discarded(true, []));
        assert!(all.rows().is_empty() && all.key_sets().is_empty());
        assert!(!is_ready(&all, 5000));
        assert_eq!(good(&mut all, "3", now), FetchOutcome::default());
        all.set(sources([wanted("n", "a")]), now);
        assert_eq!(all.count_awaited(now), 1);
        let message = "spec.jwtRules[1]: tokens are refused until keys are fetched";
        assert_eq!(all.notes()[&("n".into(), "p".into())], [message]);
        let row = &all.rows()[0];
        assert_eq!((&*row.origin, row.keys), ("https://a:8443", None));
    }

    #[test]
    fn places_that_do_not_answer_keep_others_from_theirs_no_longer_than_they_must() {
        let mut all = Schedule::default();
        let slow = (0..50).map(|at| wanted("a", &format!("slow-{at:02}")));
        let more = (0..20).map(|at| wanted(&format!("m{at:02}"), &format!("zone-{at:02}")));
        all.set(sources(slow.chain(more)), second(0));
        let due = all.due(second(0));
        assert_eq!(due.len(), AT_ONCE);
        let is_slow = |name: &String| name.contains("slow");
        let slow = names(&due).into_iter().filter(is_slow).count();
        assert_eq!(slow, OF_NAMESPACE_AT_ONCE);
        // Nobody is woken for those that wait for a turn.
        assert_eq!(all.due(second(0)), []);
        assert_eq!(all.next(second(1)), None);
        // Others come first, and then one of those.
        for one in &due {
            all.done(one, Err(FetchError::Resolve), second(1), REFRESH);
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

    /// A source that two namespaces want.
    fn shared(name: &str, timeouts: [(&str, u64); 2]) -> (JwksSource, WantedJwksSource) {
        let timeouts = timeouts.map(|(namespace, timeout)| (namespace.into(), second(timeout)));
        let wanted = WantedJwksSource {
            timeouts: timeouts.into(),
            by: vec![("v".into(), "p".into(), 0)],
        };
        (source(name), wanted)
    }

    /// A source that two namespaces name is fetched in the turns of both.
    #[test]
    fn a_place_is_fetched_in_the_share_of_each_namespace_that_wants_it() {
        let mut all = Schedule::default();
        let slow = || (0..49).map(|at| wanted("a", &format!("slow-{at:02}")));
        all.set(sources(slow()), second(0));
        assert_eq!(all.due(second(0)).len(), OF_NAMESPACE_AT_ONCE);
        let theirs = shared("victim", [("a", 60), ("v", 5)]);
        all.set(sources(slow().chain([theirs])), second(1));
        let victim = fetch(3, "v", "victim", 5);
        assert_eq!(all.due(second(1)), std::slice::from_ref(&victim));
        all.done(&victim, Ok(keys("1")), second(2), REFRESH);
        assert_eq!(all.key_sets().len(), 1);
        // Neither has to fetch again until then, nor has one that comes later.
        let more = [("a", 60), ("w", 5)];
        all.set(sources([shared("victim", more)]), second(3));
        assert_eq!(all.next(second(3)), Some(second(2) + REFRESH));
    }

    fn failed(limit: u64) -> Result<KeySet, FetchError> {
        Err(FetchError::Timeout(second(limit)))
    }

    #[test]
    fn a_namespace_waits_no_longer_than_it_says_itself() {
        let mut all = Schedule::default();
        let hasty = || sources([shared("x", [("a", 1), ("v", 5)])]);
        all.set(hasty(), second(0));
        // Who gives it most time goes first, and its failure is that of all.
        assert_eq!(all.due(second(0)), [fetch(1, "v", "x", 5)]);
        all.done(&fetch(1, "v", "x", 5), failed(5), second(1), REFRESH);
        assert_eq!(all.due(second(1)), []);
        assert_eq!(all.due(second(2)), [fetch(2, "v", "x", 5)]);

        // Who gives it less fails alone, and nothing is settled by that.
        let mut all = Schedule::default();
        all.set(sources([wanted("a", "x")]), second(0));
        assert_eq!(all.due(second(0)), [fetch(1, "a", "x", 5)]);
        all.set(sources([shared("x", [("a", 5), ("v", 9)])]), second(1));
        assert_eq!(
            (all.due(second(5)), all.next(second(5))),
            (vec![], Some(second(10)))
        );
        all.done(&fetch(1, "a", "x", 5), failed(5), second(5), REFRESH);
        assert!(!all.is_ready(&source("x"), second(4)));
        assert_eq!(all.due(second(5)), [fetch(2, "v", "x", 9)]);
        all.done(&fetch(2, "v", "x", 9), failed(9), second(5), REFRESH);
        assert!(all.is_ready(&source("x"), second(4)));

        // Who gives it more holds up nobody.
        let mut all = Schedule::default();
        all.set(sources([shared("x", [("a", 60), ("v", 5)])]), second(0));
        assert_eq!(all.due(second(0)), [fetch(1, "a", "x", 60)]);
        assert_eq!(
            (all.due(second(5)), all.next(second(5))),
            (vec![], Some(second(6)))
        );
        assert_eq!(all.due(second(6)), [fetch(2, "v", "x", 5)]);
        assert_eq!((all.due(second(9)), all.next(second(9))), (vec![], None));

        // Who gives it as much does not ask it as well, although its turn comes before the first one's timer has run.
        let mut all = Schedule::default();
        all.set(sources([shared("x", [("a", 5), ("v", 5)])]), second(0));
        let of = |number| fetch(number, "a", "x", 5);
        assert_eq!(all.due(second(0)), [of(1)]);
        assert_eq!(all.due(second(5)), []);
        let late = second(5) + Duration::from_millis(1);
        all.done(&of(1), failed(5), late, REFRESH);
        assert_eq!(all.due(late), []);
        assert_eq!(all.due(late + second(1)), [of(2)]);
    }

    /// Two who give one source different times do not say by turns what they met: each change is a line, and a status.
    #[test]
    fn the_trouble_of_a_place_is_what_those_meet_who_wait_longest() {
        let mut all = Schedule::default();
        let both = || sources([shared("x", [("a", 60), ("v", 5)])]);
        all.set(both(), second(0));
        let long = all.due(second(0)).remove(0);
        let short = all.due(second(6)).remove(0);
        let done = |all: &mut Schedule, of: &Fetch, result, at| {
            let outcome = all.done(of, result, second(at), REFRESH);
            (outcome.trouble, all.rows()[0].error.clone().unwrap())
        };
        let message = |limit: &str| format!("no response within {limit}");
        let first = done(&mut all, &short, failed(5), 11);
        assert_eq!(first, (true, message("5s")));
        let second_one = done(&mut all, &long, failed(60), 60);
        assert_eq!(second_one, (true, message("60s")));
        for round in 0..4 {
            let begun = 200 * (round + 1);
            let long = all.due(second(begun)).remove(0);
            let short = all.due(second(begun + 6)).remove(0);
            let of_short = done(&mut all, &short, failed(5), begun + 11);
            assert_eq!(of_short, (false, message("60s")));
            let of_long = done(&mut all, &long, failed(60), begun + 60);
            assert_eq!(of_long, (false, message("60s")));
        }
        // Another cause is told at once, and so is the shorter time when nobody gives it more.
        let long = all.due(second(1200)).remove(0);
        let refused = done(&mut all, &long, Err(FetchError::Resolve), 1201);
        assert_eq!(refused, (true, "the host has no address".to_owned()));
        all.set(sources([wanted("v", "x")]), second(1300));
        let alone = all.due(second(1300)).remove(0);
        assert_eq!(
            done(&mut all, &alone, failed(5), 1305),
            (true, message("5s"))
        );
    }

    /// Edits of a policy give its namespace no further fetches, and what comes of those before is not taken for that of later ones.
    #[test]
    fn an_abandoned_fetch_counts_until_it_ends() {
        let mut all = Schedule::default();
        let round = |at: u64| (0..50).map(move |one| wanted("n", &format!("{at}-{one:02}")));
        assert_eq!(all.set(sources(round(0)), second(0)), discarded(false, []));
        let first = all.due(second(0));
        assert_eq!(first.len(), OF_NAMESPACE_AT_ONCE);
        for at in 1..20 {
            let news = all.set(sources(round(at)), second(at));
            assert_eq!(news, discarded(true, [1, 2]));
            assert_eq!(all.due(second(at)), []);
        }
        // Another one has its turn meanwhile, and this one when they have ended.
        let other = wanted("v", "v");
        all.set(sources(round(20).chain([other])), second(20));
        assert_eq!(all.due(second(20)), [fetch(3, "v", "v", 5)]);
        all.aborted(&first[0]);
        assert_eq!(all.due(second(20)), [fetch(4, "n", "20-00", 5)]);
        // One of the same source.
        all.set(sources([]), second(21));
        all.set(sources([wanted("n", "20-00")]), second(22));
        assert_eq!(all.due(second(22)), []);
        all.aborted(&first[1]);
        let newer = fetch(5, "n", "20-00", 5);
        assert_eq!(all.due(second(22)), std::slice::from_ref(&newer));
        let late =
            |all: &mut Schedule, of: &Fetch| all.done(of, Ok(keys("1")), second(23), REFRESH);
        let older = fetch(4, "n", "20-00", 5);
        assert_eq!(late(&mut all, &older), FetchOutcome::default());
        assert_eq!((all.due(second(23)), all.next(second(23))), (vec![], None));
        assert!(late(&mut all, &newer).keys);
    }

    /// Each further namespace that names a source costs as much as the first one: all of it happens on the loop.
    #[test]
    fn twice_as_many_namespaces_cost_twice_as_many_looks() {
        let looks = |namespaces: usize| {
            let timeouts = (0..namespaces).map(|at| (format!("n{at}").into(), second(5)));
            let timeouts: BTreeMap<_, _> = timeouts.collect();
            let wanted = (0..10).map(|at| {
                let by = Vec::new();
                let timeouts = timeouts.clone();
                (source(&at.to_string()), WantedJwksSource { timeouts, by })
            });
            let (mut all, before) = (Schedule::default(), LOOKS.get());
            all.set(sources(wanted), second(0));
            let due = all.due(second(0));
            assert_eq!((due.len(), all.next(second(0))), (10, Some(second(6))));
            for one in &due {
                all.done(one, failed(5), second(5), REFRESH);
            }
            assert_eq!(all.due(second(6)).len(), 10);
            LOOKS.get() - before
        };
        let (one, two) = (looks(200), looks(400));
        assert!(one > 200 && two <= 2 * one, "{one} and {two}");
    }
}
