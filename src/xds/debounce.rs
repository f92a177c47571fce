//! When a change goes out: after a quiet moment, or when the first has waited long enough. Then all that came is one push.
//!
//! Snapshots never overlap: what arrives while one is made goes into the next.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::debounce::Burst;
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

/// The time for which changes are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quiet {
    /// Without a change.
    pub after: Duration,
    /// Since the first one.
    pub max: Duration,
    /// Or endpoints go out at once.
    pub endpoints: bool,
}

/// Endpoints wait no longer, whatever else changes: one that left must not be served for as long as services come and go.
const ENDPOINTS_MAX: Duration = Duration::from_secs(1);

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
struct PendingChanges {
    batch: Batch,
    burst: Burst,
}

/// Endpoints that wait, and since when.
#[derive(Debug)]
struct Endpoints {
    hosts: BTreeSet<Arc<str>>,
    burst: Burst,
}

/// Collects changes; the program asks it when to push.
#[derive(Debug)]
pub struct Debounce {
    quiet: Quiet,
    /// All changes, but for the hosts of those of endpoints.
    waiting: Option<PendingChanges>,
    endpoints: Option<Endpoints>,
    /// A snapshot is being made.
    busy: bool,
}

/// A batch that is due, and the time since which it waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    pub batch: Batch,
    pub since: Duration,
    /// Other changes wait on: only these endpoints are pushed, with all else as it was.
    pub partial: bool,
}

impl Debounce {
    pub fn new(quiet: Quiet) -> Self {
        Self {
            quiet,
            waiting: None,
            endpoints: None,
            busy: false,
        }
    }

    pub fn change(&mut self, now: Duration, change: Change) {
        if let Change::Endpoints(hosts) = change {
            let endpoints = self.endpoints.get_or_insert_with(|| Endpoints {
                hosts: BTreeSet::new(),
                burst: Burst::new(now),
            });
            endpoints.hosts.extend(hosts);
            endpoints.burst.add(now);
            if let Some(waiting) = self.waiting.as_mut().filter(|_| self.quiet.endpoints) {
                waiting.burst.add(now);
            }
            return;
        }
        let earlier = self.endpoints.as_ref().filter(|_| self.quiet.endpoints);
        let first = earlier.map_or(now, |endpoints| endpoints.burst.first);
        let waiting = self.waiting.get_or_insert_with(|| PendingChanges {
            batch: Batch::default(),
            burst: Burst::new(first),
        });
        waiting.batch.add(change);
        waiting.burst.add(now);
    }

    /// Returns the batch that is due now. No other is until [`Self::done`] is called.
    pub fn due(&mut self, now: Duration) -> Option<Due> {
        if self.deadline()? > now {
            return None;
        }
        self.busy = true;
        let is_whole = self.others_due().is_none_or(|at| at <= now);
        let waiting = self.waiting.take_if(|_| is_whole);
        let endpoints = self.endpoints.take();
        let firsts = [
            waiting.as_ref().map(|waiting| waiting.burst.first),
            endpoints.as_ref().map(|endpoints| endpoints.burst.first),
        ];
        let mut batch = waiting.map(|waiting| waiting.batch).unwrap_or_default();
        if let Some(endpoints) = endpoints {
            batch.add(Change::Endpoints(endpoints.hosts));
        }
        Some(Due {
            batch,
            since: firsts.into_iter().flatten().min()?,
            partial: self.waiting.is_some(),
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
        [self.others_due(), self.endpoints_due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// When everything goes out, because something that is more than endpoints does.
    fn others_due(&self) -> Option<Duration> {
        let waiting = self.waiting.as_ref()?;
        Some(waiting.burst.deadline(self.quiet.after, self.quiet.max))
    }

    fn endpoints_due(&self) -> Option<Duration> {
        let mut burst = self.endpoints.as_ref()?.burst;
        if !self.quiet.endpoints {
            return Some(burst.first);
        }
        if let Some(waiting) = &self.waiting {
            burst.add(waiting.burst.last.max(burst.last));
        }
        let max = self.quiet.max.min(ENDPOINTS_MAX);
        Some(burst.deadline(self.quiet.after, max))
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
                let partly = if due.partial { "partly " } else { "" };
                log.push((now, format!("{partly}{}", text(&due.batch))));
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
        let script: Vec<_> = (0..240).map(|n| (n * 50, SERVICE)).collect();
        let sent = play(Quiet::default(), 1, &script, 15_000);
        assert_eq!(sent, log(&[(10_000, "full"), (12_050, "full")]));
    }

    #[test]
    fn endpoints_without_end_go_out_each_second() {
        let script: Vec<_> = (0..60).map(|n| (n * 50, endpoints("a"))).collect();
        let sent = play(Quiet::default(), 1, &script, 5_000);
        assert_eq!(sent, log(&[(1_000, "a"), (2_050, "a"), (3_050, "a")]));
    }

    /// A service that comes and goes all the time holds up no endpoint of another one, and is not pushed more often for it.
    #[test]
    fn endpoints_wait_a_second_at_most_whatever_else_changes() {
        let mut script: Vec<_> = (0..240).map(|n| (n * 50, SERVICE)).collect();
        script.extend([
            (320, endpoints("a")),
            (700, endpoints("b")),
            (5_010, endpoints("c")),
        ]);
        let sent = play(Quiet::default(), 1, &script, 15_000);
        assert_eq!(
            sent,
            log(&[
                (1_320, "partly a b"),
                (6_010, "partly c"),
                (10_000, "full"),
                (12_050, "full")
            ])
        );
        // A shorter limit of everything is one of endpoints, too.
        let quiet = Quiet {
            max: Duration::from_millis(400),
            ..Quiet::default()
        };
        let script: Vec<_> = (0..20).map(|n| (n * 50, endpoints("a"))).collect();
        assert_eq!(play(quiet, 1, &script, 600)[0], (400, "a".to_owned()));
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
            log(&[
                (50, "partly a"),
                (70, "partly b"),
                (100, "full"),
                (300, "c")
            ])
        );
    }
}
