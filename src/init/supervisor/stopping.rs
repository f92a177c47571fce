//! The end: not ready, drain, companions, TERM, KILL, gone.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::action::{Action, ChildSignal, Outcome};
use super::command::CommandNote;
use super::epoch::{State, Why};
use super::event::{Asker, Call, Epoch, Event, ExitStatus, Signal};
use super::exits::ended;
use super::note::Note;
use super::timers::Timer;
use super::{Next, Phase, Place, Supervisor};

/// A process that SIGKILL has not removed by then hangs in the kernel; its namespace ends with the agent. Chosen: KILL takes
/// milliseconds.
pub(super) const ABANDON_AFTER: Duration = Duration::from_secs(5);

/// Requests to stop (TERM or INT) until what is left is killed.
pub(super) const REQUESTS_TO_KILL: u8 = 3;
/// The reason for which a signal means nothing any more.
const STOPS: &str = "the agent is stopping";

/// The timers that go on until the proxies are told to end.
const WITH_PARENT: [Timer; 3] = [Timer::LivePoll, Timer::Parent, Timer::Look];

/// All that is known of the end: who wants it, how far it has come, and what it will have been.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stop {
    /// The origin of the wish to end.
    pub(super) asker: Option<Asker>,
    /// TERM and INT so far, those that went to the command of `run` included.
    pub(super) requests: u8,
    /// POST `/quitquitquit` was served: the end is wanted, whether an epoch was ever LIVE or not.
    pub(super) quit: bool,
    pub(super) stage: StopStage,
    /// Decided before: the agent ends for another reason than a request.
    pub(super) verdict: Option<Outcome>,
    /// A process did not end in its time.
    pub(super) killed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StopStage {
    /// Is there anything to drain? (`Call::Memory`)
    Asking,
    /// Not ready; the endpoints' removal spreads.
    #[default]
    PreDrain,
    Draining,
    /// The command has its time to end; there is no proxy, but for a draining one.
    Recalling,
    /// The companions have their time to end; the proxies serve.
    Dismissing,
    /// The proxies have their time to end. The command may have its time, too, and companions may be left that were told, or killed, before.
    Terminating,
    Killing,
}

impl Stop {
    /// Processes have been asked to end.
    pub(super) fn is_past_drain(self) -> bool {
        self.stage >= StopStage::Terminating
    }
}

impl Supervisor {
    /// TERM, INT or QUIT while the agent runs: for the command that lives, or else for the agent. `graceful`: with a drain.
    pub(super) fn stop_requested(
        &mut self,
        now: Instant,
        signal: Signal,
        graceful: bool,
        out: &mut Vec<Action>,
    ) {
        if self.command_lives() {
            self.forward_to_command(now, signal, out);
        } else {
            self.begin_stop(now, Asker::Signal(signal), graceful, out);
        }
    }

    /// A stop was requested.
    fn begin_stop(&mut self, now: Instant, by: Asker, graceful: bool, out: &mut Vec<Action>) {
        self.stop.asker = Some(by);
        self.stop_with(now, None, graceful, out);
    }

    /// The same, or the command has ended, which is the verdict.
    pub(super) fn stop_with(
        &mut self,
        now: Instant,
        verdict: Option<Outcome>,
        graceful: bool,
        out: &mut Vec<Action>,
    ) {
        self.leave_running(verdict, out);
        match &self.newest {
            // The only one that there is. Its admin port may be closed or elsewhere, and it serves all the same.
            Some(newest) if graceful && newest.state == State::Starting && self.older.is_none() => {
                self.stop.stage = StopStage::Asking;
                out.push(Action::CallAdmin(newest.epoch, Call::Memory));
            }
            _ => self.begin_end(now, graceful, out),
        }
    }

    /// With a drain, if it is `graceful` and somebody serves.
    pub(super) fn begin_end(&mut self, now: Instant, graceful: bool, out: &mut Vec<Action>) {
        let serving = self
            .processes()
            .any(|process| matches!(process.state, State::Live | State::Draining));
        // What POST `/drain` has drained does not drain again. Where the proxy did not take it, nothing has drained yet.
        let drained = self.drained && self.drain_taken == Some(true);
        let drains = graceful && serving && !drained;
        if let (None, Some(by)) = (self.stop.verdict, self.stop.asker) {
            let graceful = drains;
            out.push(Action::Note(Note::StopRequested { graceful, by }));
        }
        if !graceful && (self.proxies_live() || self.command_lives()) {
            self.terminate(now, out);
        } else if !drains {
            self.dismiss(now, out);
        } else if self.policy.pre_drain_delay > Duration::ZERO {
            self.timers
                .arm(Timer::PreDrain, now, self.policy.pre_drain_delay);
        } else {
            self.drain(now, out);
        }
    }

    /// POST `/quitquitquit`.
    pub(super) fn quit(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.stop.quit = true;
        self.begin_stop(now, Asker::StatusPort, false, out);
        self.leave_command(now);
    }

    /// POST `/quitquitquit` while the agent stops already: what is left of the drain is skipped.
    fn quit_in_stop(&mut self, now: Instant, out: &mut Vec<Action>) {
        if self.stop.stage < StopStage::Terminating {
            self.stop.quit = true;
            out.push(Action::Note(Note::QuitRequested));
            self.terminate(now, out);
        }
    }

    fn proxies_live(&self) -> bool {
        self.processes().next().is_some()
    }

    /// Ends for a reason that is known already; what is left of the processes is stopped first.
    pub(super) fn end(&mut self, now: Instant, outcome: Outcome, out: &mut Vec<Action>) {
        self.leave_running(Some(outcome), out);
        self.recall(now, out);
    }

    /// Nothing is started any more. A child that initialises may still become LIVE while its parent drains.
    fn leave_running(&mut self, verdict: Option<Outcome>, out: &mut Vec<Action>) {
        self.phase = Phase::Stopping;
        self.stop.verdict = verdict;
        self.kill_validator(out);
        self.next = Next::Nothing;
        self.given_up = None;
        self.timers.keep_only(&WITH_PARENT);
        self.retire_companions();
        self.retire_command();
    }

    /// One event while the agent ends.
    pub(super) fn stopping(&mut self, now: Instant, event: &Event, out: &mut Vec<Action>) {
        match *event {
            Event::Exited { epoch, how } => self.exited_in_stop(now, epoch, how, out),
            Event::CompanionExited { companion, how } => {
                self.companion_ended(companion, how, out);
                self.proceed(now, out);
            }
            Event::CommandExited(how) => self.command_ended(now, how, out),
            Event::Validated { .. } => self.validator = false,
            Event::AdminReplied {
                process,
                call,
                reply,
            } => self.replied_in_stop(now, process.epoch, (call, reply), out),
            Event::NameTaken { parent } => self.name_taken(now, parent),
            Event::Signalled(signal @ (Signal::Terminate | Signal::Interrupt | Signal::Quit)) => {
                self.escalate(now, signal, out);
            }
            Event::Signalled(Signal::Hangup) => {
                out.push(Action::Note(Note::Ignored(STOPS)));
            }
            Event::Signalled(Signal::Usr1) => self.reopen(out),
            Event::Signalled(Signal::Other(number)) => self.other_signal(number, out),
            Event::QuitRequested => self.quit_in_stop(now, out),
            Event::Due(timer) => self.due_in_stop(now, timer, out),
            Event::FilesChanged
            | Event::WatchDegraded(_)
            | Event::Hashed { .. }
            | Event::ReadinessKnown(_)
            | Event::DrainRequested => {}
        }
    }

    /// A timer of this stage; the timers of the stages before it mean nothing any more.
    fn due_in_stop(&mut self, now: Instant, timer: Timer, out: &mut Vec<Action>) {
        match (timer, self.stop.stage) {
            (Timer::LivePoll, _) => self.poll_live(now, out),
            (Timer::Parent, _) => self.parent_hangs(out),
            (Timer::Look, _) => self.look_at_parent(now, out),
            (Timer::PreDrain, StopStage::PreDrain) => self.drain(now, out),
            (Timer::Drain, StopStage::Draining) => self.dismiss(now, out),
            (Timer::Connections, StopStage::Draining) => self.count_connections(now, out),
            (Timer::Companions, StopStage::Dismissing | StopStage::Terminating) => {
                self.companions_late(now, out);
            }
            (Timer::Command, _) => self.command_late(now, out),
            (Timer::Kill, StopStage::Terminating) => self.kill(now, false, out),
            (Timer::Abandon, StopStage::Killing) => {
                out.push(Action::Note(Note::Abandoned));
                self.finish(out);
            }
            (
                Timer::PreDrain
                | Timer::Drain
                | Timer::Connections
                | Timer::Kill
                | Timer::Abandon
                | Timer::Companions
                | Timer::Ready
                | Timer::Debounce
                | Timer::Rescan
                | Timer::Certificates
                | Timer::LiveDeadline
                | Timer::Gate
                | Timer::Hang
                | Timer::Retry
                | Timer::Refill
                | Timer::Validation,
                _,
            ) => {}
        }
    }

    /// A second request skips the drain, as QUIT does; a third kills. Requests are counted and not guessed from the stage: the
    /// first may come after `/quitquitquit` or the command's end, and then hurries nobody but a command that was left its time.
    fn escalate(&mut self, now: Instant, signal: Signal, out: &mut Vec<Action>) {
        let quit = signal == Signal::Quit;
        if self.stop.stage < StopStage::Terminating && (quit || self.stop.requests > 1) {
            self.term_command(now, out);
            self.terminate(now, out);
        } else if self.stop.stage == StopStage::Terminating
            && !quit
            && self.stop.requests >= REQUESTS_TO_KILL
        {
            self.kill(now, true, out);
        } else if !self.term_command(now, out) {
            out.push(Action::Note(Note::Ignored(STOPS)));
        }
    }

    /// The proxy ended for good: the command has its time to end, then companions and what is left of the proxies.
    fn recall(&mut self, now: Instant, out: &mut Vec<Action>) {
        if !self.command_lives() {
            self.dismiss(now, out);
            return;
        }
        self.stop.stage = StopStage::Recalling;
        self.timers.keep_only(&WITH_PARENT);
        out.push(Action::Note(Note::Command(CommandNote::Stopping)));
        if self.stop.verdict == Some(Outcome::ProxyEnded) || !self.term_command(now, out) {
            self.leave_command(now);
        }
    }

    /// SIGTERM to the companions, which may need the proxy for their end; what is left is stopped after them.
    pub(super) fn dismiss(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.stop.stage = StopStage::Dismissing;
        self.timers.keep_only(&WITH_PARENT);
        if self.companions_live() {
            out.push(Action::Note(Note::StoppingCompanions));
            self.term_companions(now, out);
        }
        self.proceed(now, out);
    }

    /// The companions had their time.
    fn companions_late(&mut self, now: Instant, out: &mut Vec<Action>) {
        if self.companions_live() {
            self.kill_companions(out);
            self.stop.killed = true;
            if !self.proxies_live() && !self.command_lives() {
                self.wait_for_the_killed(now);
            } else if self.stop.stage < StopStage::Terminating {
                self.terminate(now, out);
            }
        }
    }

    /// SIGTERM to the newest, which takes its draining parent along; to the parent, if it is alone. To companions that
    /// have not had it, too, for when nobody wants to wait for them.
    fn terminate(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.stop.stage = StopStage::Terminating;
        self.timers.keep_only(&[Timer::Companions, Timer::Command]);
        self.term_companions(now, out);
        if self.proxies_live() {
            out.push(Action::Note(Note::Terminating));
            self.term_first(now, out);
        }
    }

    /// Goes to the next stage if nobody is left that this one waits for.
    pub(super) fn proceed(&mut self, now: Instant, out: &mut Vec<Action>) {
        if self.command_lives() {
            return;
        }
        match (self.proxies_live(), self.companions_live()) {
            (false, false) => self.finish(out),
            (true, false) if self.stop.stage == StopStage::Dismissing => self.terminate(now, out),
            (false, true) if self.stop.stage < StopStage::Dismissing => self.dismiss(now, out),
            // They had their time before the proxies were told to end, or before the command ended.
            (false, true)
                if self.stop.stage == StopStage::Terminating
                    && !self.timers.is_armed(Timer::Companions) =>
            {
                self.wait_for_the_killed(now);
            }
            (false | true, false | true) => {}
        }
    }

    fn term_first(&mut self, now: Instant, out: &mut Vec<Action>) {
        if let Some(process) = self.newest.as_mut().or(self.older.as_mut()) {
            process.state = State::Stopping(Why::End);
            out.push(Action::Signal(process.epoch, ChildSignal::Term));
            self.timers.arm(Timer::Kill, now, self.policy.kill_timeout);
        }
    }

    /// SIGKILL to all that is left. `asked`: by a third request, and not because it did not end in its time.
    fn kill(&mut self, now: Instant, asked: bool, out: &mut Vec<Action>) {
        self.kill_command(now, out);
        self.wait_for_the_killed(now);
        self.kill_companions(out);
        if self.proxies_live() {
            out.push(Action::Note(Note::Killing { asked }));
        }
        for process in self.newest.iter_mut().chain(&mut self.older) {
            process.state = State::Stopping(Why::End);
            out.push(Action::Signal(process.epoch, ChildSignal::Kill));
        }
    }

    fn wait_for_the_killed(&mut self, now: Instant) {
        self.stop.stage = StopStage::Killing;
        self.stop.killed = true;
        self.timers.disarm_all();
        self.timers.arm(Timer::Abandon, now, ABANDON_AFTER);
    }

    fn exited_in_stop(
        &mut self,
        now: Instant,
        epoch: Epoch,
        how: ExitStatus,
        out: &mut Vec<Action>,
    ) {
        let Some((process, place)) = self.remove(epoch) else {
            return;
        };
        if place == Place::Older
            && !process.is_stopping()
            && self.stop.stage < StopStage::Terminating
        {
            self.parent_gone(now, &process, how, out);
        } else {
            out.push(ended(&process, how));
        }
        if place == Place::Newest
            && self.stop.stage == StopStage::Terminating
            && self.older.is_some()
        {
            self.term_first(now, out);
        } else {
            self.proceed(now, out);
        }
    }

    fn finish(&mut self, out: &mut Vec<Action>) {
        let missed = self.command_missed();
        let stop = self.stop;
        let requested = match (stop.killed, self.ever_live || stop.quit) {
            (true, _) => Outcome::Killed,
            (false, true) if missed => Outcome::NeverStarted,
            (false, true) => Outcome::Stopped,
            (false, false) => Outcome::NeverLive,
        };
        self.exit(stop.verdict.unwrap_or(requested), out);
    }
}
