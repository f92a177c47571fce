//! Pending writes of statuses, with one order, one backoff and one refusal policy for every form of patch.
//!
//! A failure delays the writes that share its cause and no others: one object, the objects of a kind in a namespace where the
//! account has no right, or all of them while the server itself is away or throttles.

use std::collections::BTreeMap;
use std::time::Duration;

use api::backoff::{Backoff, Bounds};
use api::log_repeats::LogRepeatLimiter;
use tokio::time::Instant;

use super::failure::{Action, Failure};
use crate::kind::{Key, Resource};

/// Between two writes. Chosen: twenty a second is a tenth of the default rate limit of a server for one client.
const BETWEEN: Duration = Duration::from_millis(50);
/// Until a refused write is tried again: the account may be granted a role meanwhile.
const REFUSED: Duration = Duration::from_secs(300);
/// Refusals whose log lines are remembered. Chosen: more than the kinds of the mesh, each refused in three ways.
const MAX_LOGGED: usize = 256;

/// A kind's group and plural name.
pub(crate) type GroupResource = (&'static str, &'static str);

/// An object whose status is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub group: &'static str,
    pub plural: &'static str,
    pub key: Key,
}

impl Subject {
    pub(crate) fn new(resource: Resource, key: Key) -> Self {
        Self {
            group: resource.group,
            plural: resource.name,
            key,
        }
    }

    pub(crate) const fn group_resource(&self) -> GroupResource {
        (self.group, self.plural)
    }
}

/// The writes that a refusal of one of them holds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RefusalExtent {
    /// Only itself: a webhook looks at one object as it is.
    Object,
    /// A role may be granted in one namespace and missing in another.
    Namespace,
    /// The server does not have the kind, or not its status.
    Kind,
}

/// A failed write, by the writes that it delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteFailure {
    /// The server is away or throttles, or it rejects the account's token: every write waits.
    Unavailable,
    /// Another client wrote first, or the server's own webhook for the object fails: this write waits.
    Transient,
    Refused(RefusalExtent),
}

impl WriteFailure {
    fn of(failure: &Failure) -> Self {
        match failure.code() {
            Some(401 | 429 | 503) => Self::Unavailable,
            None if failure.is_away() => Self::Unavailable,
            None | Some(408 | 409 | 500..) => Self::Transient,
            Some(404) if failure.action.verb == "list" => Self::Refused(RefusalExtent::Kind),
            // The look at the object after a conflict: a missing right to it says nothing of the right to write statuses.
            Some(403) if failure.action.verb == "get" && failure.action.name.is_some() => {
                Self::Refused(RefusalExtent::Object)
            }
            Some(_) if failure.is_without_right() => Self::Refused(RefusalExtent::Namespace),
            Some(_) => Self::Refused(RefusalExtent::Object),
        }
    }
}

/// A write whose turn has come. It ends with [`StatusQueue::done`] or [`StatusQueue::failed`].
#[derive(Debug)]
pub(crate) struct Attempt<W> {
    pub(crate) subject: Subject,
    pub(crate) write: W,
    /// The backoff after earlier failures of this write; `None` without one.
    backoff: Option<Backoff>,
}

/// The next thing to do for the owner of a queue.
#[derive(Debug)]
pub(crate) enum Next<W> {
    Write(Attempt<W>),
    /// No write is due before then; `None` while none is pending.
    Wait(Option<Instant>),
}

#[derive(Debug)]
struct PendingWrite<W> {
    write: W,
    not_before: Option<Instant>,
    backoff: Option<Backoff>,
}

/// The latest pending write of each object, so that their number is bounded by the number of objects. `W` is the form of the
/// patch.
#[derive(Debug)]
pub(crate) struct StatusQueue<W> {
    bounds: Bounds,
    pending: BTreeMap<Subject, PendingWrite<W>>,
    /// The object whose write is under way. A newer write of it, or its deletion, supersedes this one.
    in_flight: Option<Subject>,
    /// The object that was tried last: the others have their turn before it has one again.
    last: Option<Subject>,
    /// Kinds whose statuses cannot be written: in a namespace, or in all of them under `None`.
    forbidden: BTreeMap<GroupResource, BTreeMap<Option<Box<str>>, Instant>>,
    /// No write begins before then.
    not_before: Option<Instant>,
    backoff: Backoff,
    repeats: LogRepeatLimiter,
    logged_refusals: Vec<(String, RefusalExtent)>,
}

impl<W: PartialEq> StatusQueue<W> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            pending: BTreeMap::new(),
            in_flight: None,
            last: None,
            forbidden: BTreeMap::new(),
            not_before: None,
            backoff: Backoff::new(bounds),
            repeats: LogRepeatLimiter::default(),
            logged_refusals: Vec::new(),
        }
    }

    /// Sets the pending write of an object. A write that is pending already keeps its backoff.
    pub(crate) fn set(&mut self, subject: Subject, write: W) {
        let pending = self.pending.get(&subject);
        if pending.is_none_or(|pending| pending.write != write) {
            self.put(subject, write, None);
        }
    }

    /// As [`Self::set`], for a write that waits until then.
    pub(crate) fn set_at(&mut self, subject: Subject, write: W, at: Instant) {
        self.put(subject, write, Some(at));
    }

    fn put(&mut self, subject: Subject, write: W, not_before: Option<Instant>) {
        self.supersede(&subject);
        let pending = PendingWrite {
            write,
            not_before,
            backoff: None,
        };
        self.pending.insert(subject, pending);
    }

    pub(crate) fn remove(&mut self, subject: &Subject) {
        self.supersede(subject);
        self.pending.remove(subject);
    }

    /// Removes the writes of other objects.
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(&Subject) -> bool) {
        self.in_flight.take_if(|subject| !is_wanted(subject));
        self.pending.retain(|subject, _| is_wanted(subject));
    }

    fn supersede(&mut self, subject: &Subject) {
        self.in_flight.take_if(|in_flight| in_flight == subject);
    }

    /// Begins the next write that is due. Those that never failed go first, so that an object that always fails delays no
    /// other.
    pub(crate) fn next(&mut self, now: Instant) -> Next<W> {
        self.forbidden.retain(|_, namespaces| {
            namespaces.retain(|_, until| *until > now);
            !namespaces.is_empty()
        });
        let not_before = self.not_before.filter(|at| *at > now);
        let mut earliest: Option<Instant> = None;
        let mut first = None;
        for (subject, pending) in &self.pending {
            let at = [
                pending.not_before,
                self.forbidden_until(subject),
                not_before,
            ];
            if let Some(at) = at.into_iter().flatten().max().filter(|at| *at > now) {
                earliest = Some(earliest.map_or(at, |earliest| earliest.min(at)));
                continue;
            }
            let had_its_turn = self.last.as_ref().is_some_and(|last| subject <= last);
            let rank = (pending.backoff.is_some(), had_its_turn);
            if first.is_none_or(|(lowest, _)| rank < lowest) {
                first = Some((rank, subject));
            }
        }
        let Some((subject, pending)) = first
            .map(|(_, subject)| subject.clone())
            .and_then(|subject| self.pending.remove_entry(&subject))
        else {
            return Next::Wait(earliest);
        };
        self.not_before = Some(now + BETWEEN);
        self.in_flight = Some(subject.clone());
        self.last = Some(subject.clone());
        Next::Write(Attempt {
            subject,
            write: pending.write,
            backoff: pending.backoff,
        })
    }

    fn forbidden_until(&self, subject: &Subject) -> Option<Instant> {
        if self.forbidden.is_empty() {
            return None;
        }
        let namespaces = self.forbidden.get(&subject.group_resource())?;
        let everywhere = namespaces.get(&None);
        let there = namespaces.get(&Some(subject.key.namespace.clone()));
        everywhere.into_iter().chain(there).max().copied()
    }

    /// The server has answered: the status is written, or needs no write.
    pub(crate) fn done(&mut self) {
        self.in_flight = None;
        self.server_responded();
    }

    fn server_responded(&mut self) {
        if self.backoff.waited() {
            self.backoff.reset();
            self.repeats.forget();
        }
    }

    /// Delays the failed write and those that share its cause. `random` is that of [`Backoff::next`].
    pub(crate) fn failed(
        &mut self,
        mut attempt: Attempt<W>,
        failure: &Failure,
        now: Instant,
        random: f64,
    ) {
        let mut not_before = None;
        match WriteFailure::of(failure) {
            WriteFailure::Unavailable => {
                failure.warn_of_kind(&mut self.repeats);
                let wait = failure.wait(&mut self.backoff, random);
                self.not_before = self.not_before.max(Some(now + wait));
            }
            WriteFailure::Transient => {
                self.server_responded();
                failure.warn_of_kind(&mut self.repeats);
                let bounds = self.bounds;
                let backoff = attempt.backoff.get_or_insert_with(|| Backoff::new(bounds));
                not_before = Some(now + failure.wait(backoff, random));
            }
            WriteFailure::Refused(extent) => {
                self.server_responded();
                self.log_refusal(failure, extent);
                let until = now + REFUSED;
                let namespace = match extent {
                    RefusalExtent::Object => {
                        not_before = Some(until);
                        None
                    }
                    RefusalExtent::Namespace => Some(Some(attempt.subject.key.namespace.clone())),
                    RefusalExtent::Kind => Some(None),
                };
                if let Some(namespace) = namespace {
                    let kind = attempt.subject.group_resource();
                    self.forbid(kind, namespace, until);
                }
            }
        }
        self.put_back(attempt, not_before);
    }

    /// Delays all writes of the kind of an object that is there and has no status to patch.
    pub(crate) fn lacks_status(&mut self, attempt: Attempt<W>, now: Instant) {
        self.server_responded();
        let kind = attempt.subject.group_resource();
        let (group, plural) = kind;
        let refusal = (format!("{plural}.{group}"), RefusalExtent::Kind);
        if self.is_news(&refusal) {
            tracing::warn!(
                "cannot write the status of {plural}.{group}: its CustomResourceDefinition has no status subresource: trying again in \
                 {} s",
                REFUSED.as_secs()
            );
        }
        self.forbid(kind, None, now + REFUSED);
        self.put_back(attempt, None);
    }

    fn forbid(&mut self, kind: GroupResource, namespace: Option<Box<str>>, until: Instant) {
        let namespaces = self.forbidden.entry(kind).or_default();
        namespaces.insert(namespace, until);
    }

    /// Puts a failed write back, unless a newer one or the deletion of its object superseded it.
    fn put_back(&mut self, attempt: Attempt<W>, not_before: Option<Instant>) {
        if self.in_flight.take().as_ref() == Some(&attempt.subject) {
            let pending = PendingWrite {
                write: attempt.write,
                not_before,
                backoff: attempt.backoff,
            };
            self.pending.insert(attempt.subject, pending);
        }
    }

    /// Once of each kind: others of it are refused for the same reason.
    fn log_refusal(&mut self, failure: &Failure, extent: RefusalExtent) {
        // The object is gone.
        if failure.is_not_found() {
            tracing::debug!("{failure}");
            return;
        }
        let about = Failure {
            action: Action {
                name: None,
                ..failure.action.clone()
            },
            ..failure.clone()
        };
        if self.is_news(&(about.action.to_string(), extent)) {
            tracing::warn!(
                "{about}: status is not written, trying again in {} s",
                REFUSED.as_secs()
            );
        }
    }

    /// Returns true for a refusal that is not logged yet, and remembers it.
    fn is_news(&mut self, refusal: &(String, RefusalExtent)) -> bool {
        let is_news =
            !self.logged_refusals.contains(refusal) && self.logged_refusals.len() < MAX_LOGGED;
        if is_news {
            self.logged_refusals.push(refusal.clone());
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::failure::Cause;

    const BOUNDS: Bounds = Bounds {
        first: Duration::from_secs(1),
        max: Duration::from_secs(30),
    };

    /// A queue and its clock.
    struct Play {
        queue: StatusQueue<u32>,
        now: Instant,
    }

    impl Play {
        fn new(names: &[&str]) -> Self {
            let mut queue = StatusQueue::new(BOUNDS);
            for name in names {
                queue.set(subject(name), 0);
            }
            Self {
                queue,
                now: Instant::now(),
            }
        }

        fn begin(&mut self) -> Option<Attempt<u32>> {
            match self.queue.next(self.now) {
                Next::Write(attempt) => {
                    self.now += BETWEEN;
                    Some(attempt)
                }
                Next::Wait(_) => None,
            }
        }

        fn done(&mut self) -> String {
            let Some(attempt) = self.begin() else {
                return "-".to_owned();
            };
            self.queue.done();
            attempt.subject.key.to_string()
        }

        fn fail(&mut self, failure: &Failure) -> String {
            let attempt = self.begin().unwrap();
            let name = attempt.subject.key.to_string();
            self.queue.failed(attempt, failure, self.now, 0.5);
            name
        }

        /// Seconds until the next write is due.
        fn wait(&mut self) -> Option<u64> {
            match self.queue.next(self.now) {
                Next::Wait(at) => at.map(|at| at.saturating_duration_since(self.now).as_secs()),
                Next::Write(attempt) => panic!("{attempt:?} is due"),
            }
        }
    }

    /// `NAMESPACE/NAME`.
    fn subject(name: &str) -> Subject {
        let (namespace, name) = name.split_once('/').unwrap();
        let resource = Resource {
            group: "g",
            version: "v1",
            name: "p",
        };
        Subject::new(resource, Key::new(namespace, name))
    }

    fn failure(verb: &'static str, cause: Cause) -> Failure {
        let action = Action {
            verb,
            resource: "p/status".to_owned(),
            name: None,
        };
        Failure {
            cluster: None,
            action,
            cause,
        }
    }

    fn status(code: u16, message: &str) -> Failure {
        let cause = Cause::Status {
            code,
            message: message.to_owned(),
            after: None,
        };
        failure("patch", cause)
    }

    fn no_right() -> Failure {
        status(
            403,
            "p \"a\" is forbidden: User \"u\" cannot patch resource \"p/status\"",
        )
    }

    #[test]
    fn the_latest_write_of_each_object_is_pending() {
        let mut play = Play::new(&["n/a", "n/b"]);
        play.queue.set(subject("n/a"), 2);
        play.queue.remove(&subject("n/b"));
        assert_eq!(play.begin().unwrap().write, 2);
        play.queue.done();
        assert_eq!((play.done(), play.wait()), ("-".to_owned(), None));
        // A write that fails is superseded by one that came meanwhile, and goes with its object.
        for newer in [Some(4), None] {
            play.queue.set(subject("n/a"), 3);
            let attempt = play.begin().unwrap();
            match newer {
                Some(newer) => play.queue.set(subject("n/a"), newer),
                None => play.queue.remove(&subject("n/a")),
            }
            play.queue.failed(attempt, &status(500, ""), play.now, 0.5);
            assert_eq!(play.begin().map(|attempt| attempt.write), newer);
            play.queue.done();
        }
    }

    #[test]
    fn a_write_waits_for_its_time() {
        let mut play = Play::new(&[]);
        let at = play.now + Duration::from_secs(60);
        play.queue.set_at(subject("n/a"), 1, at);
        assert_eq!(play.wait(), Some(60));
        play.now = at;
        assert_eq!(play.done(), "n/a");
    }

    #[test]
    fn an_object_that_always_fails_holds_up_no_other() {
        for failure in [status(500, ""), status(409, ""), status(422, "")] {
            let mut play = Play::new(&["n/a", "n/b", "n/c"]);
            assert_eq!(play.fail(&failure), "n/a");
            assert_eq!([play.done(), play.done(), play.done()], ["n/b", "n/c", "-"]);
            play.now += REFUSED;
            play.queue.set(subject("n/z"), 0);
            assert_eq!([play.done(), play.done()], ["n/z", "n/a"], "{failure}");
        }
    }

    #[test]
    fn writes_are_paced() {
        let mut play = Play::new(&["n/a", "n/b"]);
        play.done();
        play.now -= BETWEEN / 2;
        assert_eq!(play.done(), "-");
        play.now += BETWEEN;
        assert_eq!(play.done(), "n/b");
    }

    #[test]
    fn an_object_that_always_changes_holds_up_no_other() {
        let mut play = Play::new(&["n/a", "n/b", "n/c"]);
        let mut order = Vec::new();
        for round in 1..5 {
            order.push(play.done());
            play.queue.set(subject("n/a"), round);
            play.queue.set(subject("n/b"), round);
        }
        assert_eq!(order, ["n/a", "n/b", "n/c", "n/a"]);
    }

    #[test]
    fn a_failing_object_waits_longer_each_time() {
        let mut play = Play::new(&["n/a"]);
        for wait in [1, 2, 4, 8, 16, 30, 30] {
            play.fail(&status(500, ""));
            // The write is the same one.
            play.queue.set(subject("n/a"), 0);
            assert_eq!(play.wait(), Some(wait));
            play.now += Duration::from_secs(wait);
        }
        assert_eq!(play.done(), "n/a");
    }

    #[test]
    fn a_server_that_is_away_or_throttles_delays_all() {
        for failure in [
            failure("patch", Cause::Broken("away".to_owned())),
            status(401, ""),
            status(429, ""),
            status(503, ""),
        ] {
            let mut play = Play::new(&["n/a", "n/b"]);
            play.fail(&failure);
            assert_eq!(
                (play.done(), play.wait()),
                ("-".to_owned(), Some(1)),
                "{failure}"
            );
            play.now += Duration::from_secs(1);
            assert_eq!(play.fail(&failure), "n/b");
            assert_eq!(play.wait(), Some(2), "{failure}");
            play.now += Duration::from_secs(2);
            assert_eq!([play.done(), play.done()], ["n/a", "n/b"], "{failure}");
        }
    }

    #[test]
    fn a_refused_write_is_tried_again_after_a_while_or_once_it_changes() {
        for failure in [status(403, "denied"), status(404, ""), status(422, "")] {
            let mut play = Play::new(&["n/a"]);
            play.fail(&failure);
            play.queue.set(subject("n/a"), 0);
            assert_eq!(play.wait(), Some(REFUSED.as_secs()), "{failure}");
            play.queue.set(subject("n/a"), 1);
            assert_eq!(play.fail(&failure), "n/a");
            play.now += REFUSED;
            assert_eq!(play.done(), "n/a", "{failure}");
        }
    }

    #[test]
    fn a_kind_without_a_status_subresource_waits_and_is_logged_once() {
        let mut play = Play::new(&["n/a", "n/b", "other/c"]);
        for _ in 0..2 {
            let attempt = play.begin().unwrap();
            play.queue.lacks_status(attempt, play.now);
            // Neither another object nor a newer write of the same one asks again.
            play.queue.set(subject("n/a"), 1);
            assert_eq!(play.wait(), Some(REFUSED.as_secs()));
            assert_eq!(play.queue.logged_refusals.len(), 1);
            play.now += REFUSED;
        }
        let names = std::iter::repeat_with(|| play.done()).take_while(|name| name != "-");
        assert_eq!(names.count(), 3);
    }

    #[test]
    fn a_missing_right_to_read_an_object_holds_for_its_write_alone() {
        let mut failure = status(403, "p \"a\" is forbidden");
        failure.action = Action {
            verb: "get",
            resource: "p".to_owned(),
            name: Some("a".to_owned()),
        };
        let mut play = Play::new(&["n/a", "n/b"]);
        play.fail(&failure);
        assert_eq!([play.done(), play.done()], ["n/b", "-"]);
    }

    #[test]
    fn a_missing_right_holds_for_the_namespace_and_a_missing_kind_for_all() {
        let missing = Cause::Status {
            code: 404,
            message: String::new(),
            after: None,
        };
        for (failure, other, later) in [
            (no_right(), "other/c", 3),
            (failure("list", missing), "-", 4),
        ] {
            let mut play = Play::new(&["n/a", "n/b", "other/c"]);
            play.fail(&failure);
            assert_eq!(play.done(), other, "{failure}");
            // A write that comes later waits as long, and a newer one of the same object, too.
            play.queue.set(subject("n/d"), 0);
            play.queue.set(subject("n/a"), 1);
            assert_eq!(play.done(), "-", "{failure}");
            play.now += REFUSED;
            let names = std::iter::repeat_with(|| play.done()).take_while(|name| name != "-");
            assert_eq!(names.count(), later, "{failure}");
        }
    }
}
