use super::*;
use proptest::prelude::*;

const HALF: f64 = 0.5;

/// A schedule with its clock.
struct Script {
    schedule: Schedule,
    now: Duration,
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn answered(index: u64) -> End {
    End::Answered { index: Some(index) }
}

fn all(names: &[&str]) -> BTreeSet<Arc<str>> {
    names.iter().map(|name| (*name).into()).collect()
}

fn many(count: usize) -> BTreeSet<Arc<str>> {
    (0..count).map(|at| format!("s{at:05}").into()).collect()
}

impl Script {
    fn new() -> Self {
        Self {
            schedule: Schedule::new(Duration::ZERO),
            now: Duration::ZERO,
        }
    }

    /// With these names known by an answer of index 10, and the answer's successor under way.
    fn with(names: &BTreeSet<Arc<str>>) -> Self {
        let mut script = Self::new();
        let [query] = &*script.begin() else { panic!() };
        script.end(query, answered(10));
        script.schedule.names(script.now, names);
        script
    }

    fn begin(&mut self) -> Vec<Query> {
        let changes = self.schedule.next(self.now);
        self.check();
        changes.begin
    }

    fn end(&mut self, query: &Query, end: End) {
        let target = self.schedule.ended(self.now, query.ticket, end, HALF);
        assert_eq!(target.as_ref(), Some(&query.target));
        self.check();
    }

    /// The one query that is begun next, and how long after now.
    fn only(&mut self) -> (Query, Duration) {
        assert_eq!(self.begin(), []);
        let at = self.schedule.deadline().unwrap();
        let after = at.saturating_sub(self.now);
        self.now = at;
        let mut begun = self.begin();
        assert_eq!(begun.len(), 1, "{begun:?}");
        (begun.remove(0), after)
    }

    /// Asserts that every target is in one place, and that the counters are right.
    fn check(&self) {
        let schedule = &self.schedule;
        let (mut reads, mut first, mut established, mut waiting) = (0, 0, 0, 0);
        let (mut unheard, mut failed) = (0, 0);
        for (target, slot) in &schedule.slots {
            waiting += usize::from(slot.waits);
            unheard += usize::from(!slot.answered);
            failed += usize::from(slot.has_failed());
            match slot.phase {
                Phase::Out => panic!("{target:?} is nowhere"),
                Phase::Due(at) => {
                    let entry = (at, target.clone());
                    let is_read = slot.is_read(target);
                    assert_eq!(schedule.reads_due.contains(&entry), is_read);
                    assert_eq!(schedule.due.contains(&entry), !is_read);
                }
                Phase::UnderWay { ticket, .. } => {
                    assert_eq!(schedule.under_way.get(&ticket), Some(target));
                    let counted = match (slot.is_read(target), slot.index) {
                        (true, _) => &mut reads,
                        (false, 0) => &mut first,
                        (false, _) => &mut established,
                    };
                    *counted += 1;
                }
            }
        }
        let queued = schedule.due.len() + schedule.reads_due.len();
        assert_eq!(queued + schedule.under_way.len(), schedule.slots.len());
        assert_eq!(
            (reads, first, established, waiting, unheard, failed),
            (
                schedule.reads,
                schedule.first,
                schedule.established,
                schedule.waiting,
                schedule.unanswered,
                schedule.failed
            )
        );
        assert!(reads <= READS && first <= FIRST && waiting <= WAITING);
        // The schedule does not stall.
        assert!(!schedule.under_way.is_empty() || schedule.deadline().is_some());
    }
}

#[test]
fn nothing_but_waiting_queries_while_nothing_changes() {
    let mut script = Script::with(&all(&["a", "b"]));
    let begun = script.begin();
    let targets: Vec<_> = begun
        .iter()
        .map(|query| (&query.target, query.index))
        .collect();
    let service = |name: &str| QueryTarget::Service(name.into());
    assert_eq!(targets, [(&service("a"), 0), (&service("b"), 0)]);
    assert!(!script.schedule.is_complete());
    for query in &begun {
        script.end(query, answered(7));
    }
    assert!(script.schedule.is_complete() && !script.schedule.is_failing());
    script.now = seconds(0.25);
    let waiting = script.begin();
    let targets: Vec<_> = waiting
        .iter()
        .map(|query| (&query.target, query.index))
        .collect();
    assert_eq!(
        targets,
        [
            (&QueryTarget::Names, 10),
            (&service("a"), 7),
            (&service("b"), 7)
        ]
    );
    assert_eq!(script.schedule.deadline(), None);
    // A minute later no index has changed, and each query is repeated at once.
    script.now = seconds(57.0);
    for query in &waiting {
        script.end(query, answered(query.index));
    }
    let again = script.begin();
    assert_eq!(again.len(), 3);
    assert!(again.iter().all(|query| query.index > 0));
}

#[test]
fn an_index_that_goes_back_begins_anew() {
    let mut script = Script::new();
    let [query] = &*script.begin() else { panic!() };
    assert_eq!(query.index, 0);
    script.end(query, answered(100));
    let mut indices = Vec::new();
    for index in [120, 90, 90, 91, 0, 5] {
        let (query, after) = script.only();
        indices.push((query.index, after.as_millis()));
        script.end(&query, answered(index));
    }
    let (query, _) = script.only();
    indices.push((query.index, 0));
    assert_eq!(
        indices,
        // Without an index there is nothing to block on: once a second.
        [
            (100, 250),
            (120, 250),
            (0, 250),
            (90, 250),
            (91, 250),
            (0, 1000),
            (5, 0)
        ]
    );
}

#[test]
fn an_answer_without_an_index_is_asked_for_once_a_second() {
    let mut script = Script::new();
    let [query] = &*script.begin() else { panic!() };
    script.end(query, End::Answered { index: None });
    for _ in 0..3 {
        let (query, after) = script.only();
        assert_eq!((query.index, after), (0, BLIND));
        script.end(&query, End::Answered { index: None });
    }
}

#[test]
fn a_refused_service_waits_alone_and_longer_each_time() {
    let mut script = Script::with(&all(&["a"]));
    script.now = seconds(0.25);
    let begun = script.begin();
    let mut query = begun
        .iter()
        .find(|query| query.target != QueryTarget::Names)
        .unwrap()
        .clone();
    let mut waits = Vec::new();
    for _ in 0..7 {
        script.end(&query, End::Refused { status: 500 });
        assert!(script.schedule.is_failing() && script.schedule.is_complete());
        let (next, after) = script.only();
        waits.push(after.as_secs());
        query = next;
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    script.end(&query, answered(3));
    assert!(!script.schedule.is_failing());
    let (query, _) = script.only();
    script.end(&query, End::Useless);
    assert_eq!(script.only().1, seconds(1.0));
}

#[test]
fn without_the_right_to_health_the_catalog_is_asked() {
    for status in [403, 404] {
        let mut script = Script::with(&all(&["a"]));
        let [query] = &*script.begin() else { panic!() };
        assert_eq!(query.way, QueryPath::Health);
        script.end(query, End::Refused { status });
        assert!(!script.schedule.is_failing() && !script.schedule.is_complete());
        script.now = seconds(0.25);
        let begun = script.begin();
        let query = begun.last().unwrap();
        assert_eq!((query.way, query.index), (QueryPath::Catalog, 0));
        script.end(query, answered(3));
        let (query, _) = script.only();
        assert_eq!((query.way, query.index), (QueryPath::Catalog, 3));
        // Nor that: from the beginning.
        script.end(&query, End::Refused { status });
        assert!(script.schedule.is_failing());
        let (query, after) = script.only();
        assert_eq!((query.way, after), (QueryPath::Health, seconds(1.0)));
    }
}

/// A token that is exchanged may be refused for a moment: the checks count again without anybody's doing.
#[test]
fn refused_checks_are_asked_for_again() {
    let mut script = Script::with(&all(&["a"]));
    let [query] = &*script.begin() else { panic!() };
    script.end(query, End::Refused { status: 403 });
    script.now = seconds(0.25);
    let mut query = script.begin().last().unwrap().clone();
    for at in [20.0, 40.0, 59.0, 61.0] {
        assert_eq!(query.way, QueryPath::Catalog);
        script.now = seconds(at);
        script.end(&query, answered(3));
        query = script.begin().last().unwrap().clone();
    }
    assert_eq!((query.way, query.index), (QueryPath::Health, 0));
    // Refused again: the catalog once more, for a minute.
    script.end(&query, End::Refused { status: 403 });
    script.now += seconds(0.25);
    let query = script.begin().last().unwrap().clone();
    assert_eq!(query.way, QueryPath::Catalog);
    assert!(!script.schedule.is_failing());
}

#[test]
fn while_consul_is_away_one_query_at_a_time_looks_for_it() {
    let mut script = Script::with(&many(50));
    for query in script.begin() {
        script.end(&query, answered(3));
    }
    script.now = seconds(0.25);
    let waiting = script.begin();
    assert_eq!(waiting.len(), 51);
    script.now = seconds(60.0);
    for query in &waiting {
        script.end(query, End::Closed);
    }
    assert!(script.schedule.is_failing() && script.schedule.is_complete());
    let mut waits = Vec::new();
    let mut probe = None;
    for _ in 0..7 {
        let (query, after) = script.only();
        assert_eq!((&query.target, query.index), (&QueryTarget::Names, 0));
        waits.push(after.as_secs());
        assert_eq!(script.schedule.deadline(), None, "one at a time");
        script.end(&query, End::Away);
        probe = Some(query);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    let gone = script
        .schedule
        .ended(script.now, probe.unwrap().ticket, answered(1), HALF);
    assert_eq!(gone, None, "it has ended already");
    let (query, _) = script.only();
    // Consul runs, but has no leader.
    script.end(&query, End::Refused { status: 500 });
    let (query, after) = script.only();
    assert_eq!(after, seconds(30.0));
    script.end(&query, answered(1));
    assert!(!script.schedule.is_failing());
    // All may have changed.
    let begun = script.begin();
    assert_eq!(begun.len(), 50);
    assert!(begun.iter().all(|query| query.index == 0));
}

#[test]
fn without_its_names_a_source_is_not_complete() {
    let mut script = Script::new();
    let [query] = &*script.begin() else { panic!() };
    script.end(query, End::Refused { status: 403 });
    assert!(!script.schedule.is_complete() && script.schedule.is_failing());
}

#[test]
fn jitter_is_an_argument() {
    for (random, wait) in [(0.0, 0.8), (1.0, 1.2)] {
        let mut script = Script::new();
        let [query] = &*script.begin() else { panic!() };
        script
            .schedule
            .ended(script.now, query.ticket, End::Away, random);
        assert_eq!(script.only().1, seconds(wait));
    }
}

#[test]
fn removed_services_are_queried_no_more() {
    let mut script = Script::with(&all(&["a", "b"]));
    let begun = script.begin();
    script.schedule.names(script.now, &all(&["b"]));
    let changes = script.schedule.next(script.now);
    assert_eq!(changes.cancel, [begun[0].ticket]);
    let late = script
        .schedule
        .ended(script.now, begun[0].ticket, answered(9), HALF);
    assert_eq!(late, None);
    // The name is registered again while an older answer may still be in flight.
    script.schedule.names(script.now, &all(&["a", "b"]));
    let [again] = &*script.begin() else { panic!() };
    assert_ne!(again.ticket, begun[0].ticket);
}

/// A model of the agent: answers queries without an index at once, blocks the others, and limits its connections.
struct Agent {
    script: Script,
    /// Each with the time when it has waited for long enough.
    waiting: Vec<(Duration, Query)>,
    connections: usize,
    reads: usize,
    closed: usize,
}

impl Agent {
    fn new(names: usize, connections: usize) -> Self {
        Self {
            script: Script::with(&many(names)),
            waiting: Vec::new(),
            connections,
            reads: 0,
            closed: 0,
        }
    }

    fn end(&mut self, query: &Query, end: End) {
        let now = self.script.now;
        self.script.schedule.ended(now, query.ticket, end, HALF);
    }

    /// Ends the queries whose `wait` is over, without news.
    fn expire(&mut self) {
        let now = self.script.now;
        let over = self.waiting.extract_if(.., |(until, _)| *until <= now);
        for (_, query) in over.collect::<Vec<_>>() {
            self.end(&query, answered(query.index));
        }
    }

    /// Runs the agent up to this time.
    fn until(&mut self, end: Duration) {
        while self.script.now < end {
            self.expire();
            let changes = self.script.schedule.next(self.script.now);
            self.waiting
                .retain(|(_, query)| !changes.cancel.contains(&query.ticket));
            // Some connections are reserved for immediate queries.
            let (mut open, mut reserved) = (self.waiting.len() + READS, READS);
            let mut served = Vec::new();
            for query in changes.begin {
                if query.index == 0 && reserved > 0 {
                    reserved -= 1;
                } else {
                    open += 1;
                }
                if open > self.connections {
                    self.closed += 1;
                    self.end(&query, End::Closed);
                } else if query.index == 0 {
                    self.reads += 1;
                    served.push(query);
                } else {
                    let wait = if query.brief { 5.0 } else { 55.0 };
                    self.waiting.push((self.script.now + seconds(wait), query));
                }
            }
            for query in &served {
                self.end(query, answered(20));
            }
            self.script.check();
            let expiry = self.waiting.iter().map(|(until, _)| *until).min();
            let deadline = self.script.schedule.deadline();
            let next = deadline.into_iter().chain(expiry).min().unwrap();
            self.script.now = next.clamp(self.script.now, end);
        }
    }
}

#[test]
fn beyond_a_thousand_names_are_read_in_turn() {
    let mut agent = Agent::new(1500, usize::MAX);
    agent.until(seconds(9.0));
    assert!(agent.script.schedule.is_complete());
    assert_eq!(agent.script.schedule.in_turn(), 500);
    assert_eq!(agent.waiting.len(), 1 + WAITING);
    assert_eq!(agent.reads, 1500, "each once");
    agent.until(seconds(39.0));
    assert_eq!(
        agent.reads,
        1500 + 3 * 500,
        "those in turn every ten seconds, and no other"
    );
    assert_eq!(agent.closed, 0);
    // One that waits goes: another takes its place.
    let fewer = many(1500).into_iter().skip(1).collect();
    agent.script.schedule.names(agent.script.now, &fewer);
    agent.until(seconds(60.0));
    assert_eq!(agent.script.schedule.in_turn(), 499);
}

#[test]
fn an_agent_that_takes_fewer_connections_is_not_pressed() {
    for (names, connections) in [(1500, 200), (300, 200), (300, 100)] {
        let mut agent = Agent::new(names, connections);
        agent.until(seconds(20.0));
        assert!(agent.script.schedule.is_complete());
        assert!(!agent.script.schedule.is_failing());
        let waiting = agent.waiting.len();
        assert!(
            waiting <= connections && waiting * 3 > connections,
            "{waiting} of {connections}"
        );
        let closed = agent.closed;
        agent.until(seconds(200.0));
        assert_eq!(agent.closed, closed, "it has found its measure");
        assert!(closed <= 2 * FIRST, "{closed}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Names(Vec<u8>),
    End(usize, End, f64),
}

fn step() -> impl Strategy<Value = Step> {
    let end = prop_oneof![
        4 => prop::option::of(0..6_u64).prop_map(|index| End::Answered { index }),
        1 => prop::sample::select(vec![403, 404, 500]).prop_map(|status| End::Refused { status }),
        1 => prop::sample::select(vec![End::Useless, End::Away, End::Closed]),
    ];
    prop_oneof![
        (0..12_000_u64).prop_map(Step::Wait),
        prop::collection::vec(0..30_u8, 0..30).prop_map(Step::Names),
        (any::<usize>(), end, 0.0..1.0_f64)
            .prop_map(|(at, end, random)| Step::End(at, end, random)),
    ]
}

proptest! {
    /// Under any events, a target has at most one query at a time, and none is forgotten.
    #[test]
    fn every_target_is_in_one_place(steps in prop::collection::vec(step(), 1..200)) {
        let mut script = Script::new();
        let mut open: Vec<Query> = Vec::new();
        for step in steps {
            match step {
                Step::Wait(millis) => script.now += Duration::from_millis(millis),
                Step::Names(names) => {
                    let names = names.iter().map(|name| format!("{name}").into()).collect();
                    script.schedule.names(script.now, &names);
                }
                Step::End(at, end, random) => {
                    if !open.is_empty() {
                        let query = open.swap_remove(at % open.len());
                        script.schedule.ended(script.now, query.ticket, end, random);
                    }
                }
            }
            script.check();
            let changes = script.schedule.next(script.now);
            open.retain(|query| !changes.cancel.contains(&query.ticket));
            for query in changes.begin {
                prop_assert!(open.iter().all(|other| other.target != query.target));
                open.push(query);
            }
            script.check();
            for query in &open {
                prop_assert!(script.schedule.under_way.contains_key(&query.ticket));
            }
        }
    }
}
