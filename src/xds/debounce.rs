//! When a change goes out: after a quiet moment, or when the first has waited long enough. Then all that came is one push.
//!
//! Snapshots never overlap: what arrives while one is made goes into the next.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::model::{Change, Reason, WorkloadKey};

use crate::reason::Reasons;

/// Changes that go out as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Everyone is told to look at everything; otherwise those who subscribe endpoints of `hosts`.
    pub full: bool,
    pub hosts: BTreeSet<Arc<str>>,
    /// These look at everything in any case.
    pub proxies: BTreeSet<WorkloadKey>,
    pub reasons: Reasons,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        !self.full && self.hosts.is_empty() && self.proxies.is_empty()
    }

    fn add(&mut self, change: Change) {
        let reason = match change {
            Change::Endpoints(hosts) => {
                self.hosts.extend(hosts);
                Reason::Endpoint
            }
            Change::Full(reason) => {
                self.full = true;
                reason
            }
            Change::Proxy(proxy) => {
                self.proxies.insert(proxy);
                Reason::Proxy
            }
        };
        self.reasons = self.reasons.and(reason.into());
    }
}

/// How long changes are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quiet {
    /// Without a change.
    pub after: Duration,
    /// Since the first one.
    pub max: Duration,
    /// Or endpoints go out at once.
    pub endpoints: bool,
}

impl Default for Quiet {
    fn default() -> Self {
        Self {
            after: Duration::from_millis(100),
            max: Duration::from_secs(10),
            endpoints: true,
        }
    }
}

/// Changes that wait.
#[derive(Debug)]
struct Waiting {
    batch: Batch,
    first: Duration,
    last: Duration,
}

/// Collects changes; the program asks it when to push.
#[derive(Debug)]
pub struct Debounce {
    quiet: Quiet,
    waiting: Option<Waiting>,
    /// Endpoints that do not wait, with the time of the first.
    at_once: Option<(Batch, Duration)>,
    /// A snapshot is being made.
    busy: bool,
}

/// What is due, and since when it waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    pub batch: Batch,
    pub since: Duration,
}

impl Debounce {
    pub fn new(quiet: Quiet) -> Self {
        Self {
            quiet,
            waiting: None,
            at_once: None,
            busy: false,
        }
    }

    pub fn change(&mut self, now: Duration, change: Change) {
        if !self.quiet.endpoints && matches!(change, Change::Endpoints(_)) {
            let (batch, _) = self.at_once.get_or_insert_with(|| (Batch::default(), now));
            batch.add(change);
            return;
        }
        let waiting = self.waiting.get_or_insert_with(|| Waiting {
            batch: Batch::default(),
            first: now,
            last: now,
        });
        waiting.batch.add(change);
        waiting.last = now;
    }

    /// What goes out now. Nothing more does until [`Self::done`] is called.
    pub fn due(&mut self, now: Duration) -> Option<Due> {
        if self.deadline()? > now {
            return None;
        }
        self.busy = true;
        if let Some((batch, since)) = self.at_once.take() {
            return Some(Due { batch, since });
        }
        let waiting = self.waiting.take()?;
        Some(Due {
            batch: waiting.batch,
            since: waiting.first,
        })
    }

    /// The snapshot stands, and every stream was told.
    pub fn done(&mut self) {
        self.busy = false;
    }

    /// When [`Self::due`] is to be asked. `None`: not before something else happens.
    pub fn deadline(&self) -> Option<Duration> {
        if self.busy {
            return None;
        }
        if let Some((_, since)) = &self.at_once {
            return Some(*since);
        }
        self.waiting.as_ref().map(|waiting| {
            let quiet = waiting.last.saturating_add(self.quiet.after);
            quiet.min(waiting.first.saturating_add(self.quiet.max))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn endpoints(host: &str) -> Change {
        Change::Endpoints([host.into()].into())
    }

    const SERVICE: Change = Change::Full(Reason::Service);

    /// `full`, hosts and proxies as text.
    fn text(batch: &Batch) -> String {
        let full = batch.full.then_some("full").into_iter();
        let hosts = batch.hosts.iter().map(|host| &**host);
        let proxies = batch.proxies.iter().map(|proxy| &*proxy.name);
        let words: Vec<_> = full.chain(hosts).chain(proxies).collect();
        words.join(" ")
    }

    /// Plays (time, change) and asks at every millisecond. Says what went out when; each snapshot takes `making`.
    fn play(quiet: Quiet, making: u64, script: &[(u64, Change)], until: u64) -> Vec<(u64, String)> {
        let mut debounce = Debounce::new(quiet);
        let mut log = Vec::new();
        let mut done = None;
        for now in 0..until {
            for (_, change) in script.iter().filter(|(time, _)| *time == now) {
                debounce.change(at(now), change.clone());
            }
            if done == Some(now) {
                debounce.done();
            }
            let expected = debounce
                .deadline()
                .is_some_and(|deadline| deadline <= at(now));
            let due = debounce.due(at(now));
            assert_eq!(due.is_some(), expected, "{now}");
            if let Some(due) = due {
                assert!(!due.batch.is_empty());
                log.push((now, text(&due.batch)));
                done = Some(now + making);
            }
        }
        log
    }

    fn log(log: &[(u64, &str)]) -> Vec<(u64, String)> {
        log.iter()
            .map(|(at, text)| (*at, (*text).to_owned()))
            .collect()
    }

    #[test]
    fn changes_go_out_after_a_quiet_moment_as_one() {
        let script: Vec<_> = (0..50)
            .map(|n| (n, endpoints(&format!("{n:02}"))))
            .collect();
        let sent = play(Quiet::default(), 1, &script, 2_000);
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].0, 149);
        assert_eq!(sent[0].1.split(' ').count(), 50);
    }

    #[test]
    fn changes_without_end_go_out_after_ten_seconds() {
        let script: Vec<_> = (0..240).map(|n| (n * 50, endpoints("a"))).collect();
        let sent = play(Quiet::default(), 1, &script, 15_000);
        assert_eq!(sent, log(&[(10_000, "a"), (12_050, "a")]));
    }

    #[test]
    fn one_full_change_makes_all_full_and_a_proxy_is_its_own() {
        let proxy = Change::Proxy(WorkloadKey {
            cluster: "c".into(),
            namespace: "n".into(),
            name: "p".into(),
        });
        let script = [
            (0, endpoints("b")),
            (10, SERVICE),
            (20, endpoints("a")),
            (500, proxy),
        ];
        let sent = play(Quiet::default(), 1, &script, 1_000);
        assert_eq!(sent, log(&[(120, "full a b"), (600, "p")]));
    }

    #[test]
    fn reasons_add_up() {
        let mut debounce = Debounce::new(Quiet::default());
        debounce.change(at(0), endpoints("a"));
        debounce.change(at(1), SERVICE);
        let due = debounce.due(at(101)).unwrap();
        assert_eq!(due.since, at(0));
        assert!(
            due.batch
                .reasons
                .iter()
                .eq([Reason::Endpoint, Reason::Service])
        );
    }

    #[test]
    fn snapshots_do_not_overlap() {
        let script = [(0, SERVICE), (150, endpoints("a")), (200, endpoints("b"))];
        let sent = play(Quiet::default(), 400, &script, 2_000);
        assert_eq!(sent, log(&[(100, "full"), (500, "a b")]));
        // What comes late is quiet for its own time.
        let script = [(0, SERVICE), (450, endpoints("a"))];
        let sent = play(Quiet::default(), 400, &script, 2_000);
        assert_eq!(sent, log(&[(100, "full"), (550, "a")]));
    }

    #[test]
    fn endpoints_may_go_out_at_once() {
        let quiet = Quiet {
            endpoints: false,
            ..Quiet::default()
        };
        let script = [
            (0, SERVICE),
            (50, endpoints("a")),
            (60, endpoints("b")),
            (300, endpoints("c")),
        ];
        let sent = play(quiet, 20, &script, 1_000);
        assert_eq!(
            sent,
            log(&[(50, "a"), (70, "b"), (100, "full"), (300, "c")])
        );
    }
}
