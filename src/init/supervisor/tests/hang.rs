//! Stories of proxies that do not answer.

use super::*;

/// Epoch 0 is LIVE, and its port has said so.
fn watched(limit: u64) -> Sim {
    Sim::live(Policy {
        hang_timeout: Some(secs(limit)),
        ..policy()
    })
}

impl Sim {
    /// Time passes, a second at a time; calls have this answer within it.
    fn answers(&mut self, seconds: u64, reply: Reply) {
        for _ in 0..seconds {
            self.pass_with_calls(secs(1), reply);
        }
    }

    /// Calls are answered a second later: that is the admin client's patience.
    fn pass_with_calls(&mut self, duration: Duration, reply: Reply) {
        let end = self.now + duration;
        while let Some(deadline) = self.core.next_deadline().filter(|at| *at <= end) {
            self.now = self.now.max(deadline);
            while let Some(timer) = self.core.expire(self.now) {
                let before = self.orders.len();
                self.on(Event::Due(timer));
                let asked = self.orders.drain(before..);
                let asked: Vec<_> = asked.map(|(_, order)| order).collect();
                for order in asked {
                    if let Action::CallAdmin(epoch, Call::Live) = order {
                        self.calls.push((self.now, epoch.0));
                    } else {
                        self.orders.push((self.now - self.began, order));
                    }
                }
            }
        }
        self.now = end;
        let due = |(asked, _): &(Instant, u32)| *asked + secs(1) <= end;
        while let Some(at) = self.calls.iter().position(due) {
            let (_, epoch) = self.calls.remove(at);
            self.on(replied(epoch, Call::Live, reply));
        }
    }
}

#[test]
fn without_a_time_out_nobody_is_asked() {
    let mut sim = Sim::live(Policy {
        rescan_interval: None,
        ..policy()
    });
    assert_eq!(sim.core.next_deadline(), None);
    sim.is_live(0);
    assert_eq!(sim.core.next_deadline(), None);
}

#[test]
fn a_proxy_that_is_silent_for_the_time_out_is_killed_and_counts_as_crashed() {
    let mut sim = watched(30);
    sim.answers(3600, Reply::Live);
    assert_eq!(sim.ordered(), []);
    sim.answers(29, Reply::Silent);
    assert_eq!(sim.ordered(), [], "not before its time");
    sim.answers(12, Reply::Silent);
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Kill)]);
    let silent = |note: &Note| matches!(note, Note::Hangs { silent, .. } if *silent >= secs(30));
    assert!(sim.notes.last().is_some_and(silent), "{:?}", sim.notes);
    assert!(!sim.core.newest.as_ref().unwrap().may_end());
    sim.exits(0, ExitStatus::Signal(9));
    assert_eq!(sim.core.budget, 10 - 1);
    sim.pass(millis(200));
    assert_eq!(sim.ordered(), [spawn(0, Reason::Crash)]);
}

#[test]
fn a_child_that_is_held_up_by_its_parent_is_not_killed_for_it() {
    let mut sim = watched(30);
    sim.change(2);
    sim.is_live(1);
    sim.answers(5, Reply::Live);
    sim.ordered();
    sim.answers(59, Reply::Silent);
    assert_eq!(sim.ordered(), []);
    sim.answers(2, Reply::Silent);
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Kill)]);
    sim.exits(0, ExitStatus::Signal(9));
    sim.ordered();
    sim.answers(29, Reply::Silent);
    assert_eq!(sim.ordered(), [], "it has its time from here on");
    sim.answers(12, Reply::Silent);
    assert_eq!(sim.ordered(), [send(1, ChildSignal::Kill)]);
}

/// It was left alone for the whole of `--parent-shutdown-duration`.
#[test]
fn a_child_that_somebody_has_stopped_is_killed_beside_its_parent() {
    let mut sim = watched(6);
    sim.change(2);
    sim.is_live(1);
    sim.answers(5, Reply::Live);
    sim.ordered();
    sim.newest_stopped = true;
    sim.answers(5, Reply::Silent);
    assert_eq!(sim.ordered(), [], "not before its time");
    sim.answers(5, Reply::Silent);
    assert_eq!(sim.ordered(), [send(1, ChildSignal::Kill)]);
    sim.exits(1, ExitStatus::Signal(9));
    sim.pass(millis(200));
    assert_eq!(sim.ordered(), [spawn(1, Reason::Crash)]);
}

#[test]
fn a_short_time_out_takes_two_calls() {
    let mut sim = watched(1);
    sim.answers(100, Reply::Live);
    sim.answers(1, Reply::Silent);
    assert_eq!(sim.ordered(), []);
    sim.answers(4, Reply::Silent);
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Kill)]);
}

#[test]
fn an_answer_of_any_kind_ends_the_silence() {
    for reply in [Reply::Live, Reply::NotLive, Reply::Failed] {
        let mut sim = watched(30);
        for _ in 0..20 {
            sim.answers(25, Reply::Silent);
            sim.answers(12, reply);
        }
        assert_eq!(sim.ordered(), [], "{reply:?}");
    }
}

#[test]
fn a_port_that_never_answered_for_it_says_nothing_about_a_proxy() {
    let mut sim = Sim::new(Policy {
        hang_timeout: Some(secs(30)),
        ..policy()
    });
    sim.initialised = true;
    sim.files = 2;
    sim.on(hashed(2));
    sim.pass(secs(30));
    sim.exits(1, CRASH);
    assert_eq!(sim.running(), [(0, State::Live)], "LIVE by its memory");
    sim.files = 1;
    sim.on(hashed(1));
    sim.ordered();
    sim.answers(600, Reply::Silent);
    assert_eq!(sim.ordered(), []);
}

#[test]
fn no_call_is_made_during_a_hand_over_and_both_are_watched_after_it() {
    let mut sim = watched(6);
    sim.answers(4, Reply::Silent);
    sim.change(2);
    sim.calls.clear();
    sim.ordered();
    sim.answers(15, Reply::Silent);
    assert_eq!(sim.ordered(), [], "it is the child's time that counts");
    sim.exits(1, CRASH);
    sim.ordered();
    assert_eq!(sim.running(), [(0, State::Live)]);
    sim.files = 1;
    sim.on(hashed(1));
    sim.answers(6, Reply::Silent);
    assert_eq!(sim.ordered(), [], "the silence before is forgotten");
    sim.answers(4, Reply::Silent);
    assert_eq!(sim.ordered(), [send(0, ChildSignal::Kill)]);

    let mut sim = watched(6);
    sim.change(2);
    sim.is_live(1);
    sim.ordered();
    sim.calls.clear();
    sim.answers(10, Reply::Silent);
    assert_eq!(sim.ordered(), [], "its parent may hold it up");
    sim.exits(0, CRASH);
    sim.ordered();
    sim.answers(10, Reply::Silent);
    assert_eq!(sim.ordered(), [send(1, ChildSignal::Kill)]);
}

#[test]
fn an_agent_that_ends_asks_nobody() {
    let mut sim = watched(3);
    sim.on(Event::Signalled(Signal::Terminate));
    sim.ordered();
    sim.answers(4, Reply::Silent);
    assert_eq!(sim.ordered(), []);
}

#[test]
fn a_serving_proxy_that_ends_unasked_is_a_warning_whatever_its_code() {
    for (on_clean_exit, warnings) in [(CleanExit::Idle, 2), (CleanExit::Restart, 1)] {
        let mut sim = Sim::live(Policy {
            on_clean_exit,
            ..policy()
        });
        sim.notes.clear();
        sim.exits(0, CLEAN);
        let said = sim.notes.iter().filter(|note| note.is_warning());
        assert_eq!(said.count(), warnings, "{:?}", sim.notes);
    }
    let mut sim = Sim::live(policy());
    sim.on(Event::QuitRequested);
    sim.exits(0, CLEAN);
    assert!(!sim.notes.iter().any(Note::is_warning), "{:?}", sim.notes);
}

#[test]
fn idle_is_not_restarting() {
    let mut sim = Sim::live(Policy {
        on_clean_exit: CleanExit::Idle,
        ..policy()
    });
    sim.exits(0, CLEAN);
    assert_eq!(sim.core.snapshot().state, AgentState::Idle);
    sim.on(Event::Signalled(Signal::Hangup));
    assert_eq!(sim.core.snapshot().state, AgentState::Restarting);
    let mut sim = Sim::new(Policy {
        on_clean_exit: CleanExit::Idle,
        ..policy()
    });
    sim.exits(0, CLEAN);
    assert_eq!(sim.core.snapshot().state, AgentState::Idle, "not starting");
}

/// The first epoch whose admin port is elsewhere is told within five seconds, once; one that has answered is not.
#[test]
fn a_first_admin_port_that_never_answers_is_told_once() {
    const WORDS: &str = "no answer at 127.0.0.1:15000: is it --proxy-admin-port?";
    let told = |sim: &Sim| {
        let told = sim.notes.iter().filter(|note| note.to_string() == WORDS);
        told.inspect(|note| assert!(note.is_warning())).count()
    };
    for silence in [Reply::Failed, Reply::Silent] {
        let mut sim = Sim::new(policy());
        sim.answers(3, silence);
        assert_eq!(told(&sim), 0, "a slow machine starts Envoy, too");
        sim.answers(2, silence);
        assert_eq!(told(&sim), 1, "{silence:?}");
        sim.answers(60, silence);
        assert_eq!(told(&sim), 1, "{silence:?}");

        let mut sim = Sim::new(policy());
        sim.answers(2, Reply::NotLive);
        sim.answers(60, silence);
        assert_eq!(told(&sim), 0, "it waits for its control plane");
    }
    // A child's port is its parent's until the hand-over.
    let mut sim = Sim::live(policy());
    sim.on(Event::Signalled(Signal::Hangup));
    sim.answers(15, Reply::Failed);
    assert_eq!(told(&sim), 0);
}
