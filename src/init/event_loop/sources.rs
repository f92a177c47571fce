//! Sources of events: signals, dead children, admin replies, files, clients. Each source is drained in its turn.

#![forbid(unsafe_code)]

use std::time::Duration;

use mio::{Events, Token};

use super::{
    ENDS, EventLoop, FIRST_ADMIN, FIRST_CLIENT, LAST_ADMIN, LAST_CLIENT, SIGNALS, STAND_IN, STATUS,
    WATCHER,
};
use crate::children::{self, ChildKind};
use crate::host;
use crate::log;
use crate::store::Of;
use crate::supervisor::{Epoch, Event, ExitStatus, Signal};
use sys::signal;

/// After file notifications that mean nothing, so long no other is looked at. Chosen: a busy neighbour of a watched file costs
/// ten short turns a second.
const WATCH_PAUSE: Duration = Duration::from_millis(100);

/// The signal that the agent's own writes raise, when the reader of its log has gone.
const PIPE: u8 = 13;

impl EventLoop {
    /// Drains every source that is ready: signals first and past the queue, so that nothing stands between them and whom
    /// they are for, then the others as they come, clients of the status port included.
    pub(super) fn collect(&mut self, events: &Events) {
        let ready = |token: Token| events.iter().any(|event| event.token() == token);
        if ready(SIGNALS) || self.signals.are_left() {
            self.collect_signals();
        }
        if ready(ENDS) {
            self.collect_ends();
        }
        for event in events {
            match event.token() {
                WATCHER => self.collect_changes(),
                STAND_IN => {
                    if let Some((socket, _)) = &self.stand_in {
                        socket.serve();
                    }
                }
                STATUS => self.accept_client(),
                Token(slot @ FIRST_ADMIN..=LAST_ADMIN) => {
                    let registry = self.poll.registry();
                    if let Some(answer) = self.admin.ready(registry, slot - FIRST_ADMIN) {
                        self.admin_answered(answer);
                    }
                }
                Token(FIRST_CLIENT..=LAST_CLIENT) => self.client_ready(event),
                _ => {}
            }
        }
    }

    fn collect_changes(&mut self) {
        let noticed = self.watcher.drain();
        if noticed.overflowed {
            self.counters.watch_overflows = self.counters.watch_overflows.saturating_add(1);
            log::warning!("file notifications were lost, hashing everything");
        }
        // The hash that follows a change ends the watcher's pause.
        self.watch_again = None;
        if noticed.changed || noticed.overflowed {
            self.queue.push_back(Event::FilesChanged);
        } else {
            self.watch_again = self.now.checked_add(WATCH_PAUSE);
        }
        self.report_watcher();
    }

    /// The kernel gives the lowest number first, so no flood of real-time signals is before the others.
    fn collect_signals(&mut self) {
        for _ in 0..sys::SIGNAL_READS_PER_TURN {
            let batch = self.signals.others();
            for number in batch.iter().flatten() {
                let meaning = match *number {
                    signal::SIGTERM => Signal::Terminate,
                    signal::SIGINT => Signal::Interrupt,
                    signal::SIGQUIT => Signal::Quit,
                    signal::SIGHUP => Signal::Hangup,
                    signal::SIGUSR1 => Signal::Usr1,
                    _ => Signal::Other(u8::try_from(*number).unwrap_or_default()),
                };
                self.handle(&Event::Signalled(meaning));
            }
            if !self.signals.are_left() {
                return;
            }
        }
        // The command may count what it gets; else one of each says all.
        if self.config.command.is_empty() {
            let thrown_away = sys::throw_queued_signals_away();
            for number in (1..=64).filter(|number| thrown_away >> (number - 1) & 1 == 1) {
                self.handle(&Event::Signalled(Signal::Other(number)));
            }
        }
    }

    /// Says once that a signal means nothing.
    pub(super) fn ignore_signal(&mut self, number: u8) {
        let bit = 1_u64 << number.saturating_sub(1).min(63);
        if self.ignored & bit == 0 && number != PIPE {
            log::info!("signal {number} ignored, not forwarded to the proxy");
        }
        self.ignored |= bit;
    }

    /// A child has ended; or a signal was sent that a fault raises, too.
    fn collect_ends(&mut self) {
        let handled = self.signals.handled();
        for number in handled.sent() {
            let number = u8::try_from(number).unwrap_or_default();
            let signal = Signal::Other(number);
            self.queue.push_back(Event::Signalled(signal));
        }
        if handled.ends {
            self.reap();
        }
    }

    /// Reaps every dead child, known or adopted, until none is left.
    pub(super) fn reap(&mut self) {
        while let Some((pid, how)) = children::reap() {
            let kind = self.children.reaped(pid);
            let how = self.cause(kind, how);
            match kind {
                Some(ChildKind::Proxy(epoch)) => {
                    if !self.supervisor.is_ending() {
                        // A wrapper may leave its Envoy, which nobody would count. At the agent's end that has its time.
                        sys::kill_group(pid, signal::SIGKILL);
                    }
                    self.proxy_ended(epoch, how);
                    if epoch == Epoch(0) {
                        self.hot_restart.first_epoch_ended();
                    }
                    self.store.remove(Of::Epoch(epoch));
                    self.stand_in.take_if(|(_, child)| *child == epoch);
                    self.queue.push_back(Event::Exited { epoch, how });
                }
                Some(ChildKind::Validator) => {
                    self.store.remove(Of::Validator);
                    self.queue.push_back(Event::Validated { how });
                }
                Some(ChildKind::Companion(id)) => self.companion_gone(pid, id, how),
                Some(ChildKind::Command) => self.command_gone(pid, how),
                Some(ChildKind::Probe(_)) => self.helper_ended(),
                None => self.orphan_reaped(pid, how),
            }
        }
    }

    /// Tells an out-of-memory kill from another SIGKILL. The cgroup's count is read only after a kill.
    fn cause(&mut self, kind: Option<ChildKind>, how: ExitStatus) -> ExitStatus {
        let matters = !matches!(kind, None | Some(ChildKind::Probe(_)));
        if how != ExitStatus::Signal(9) || !matters {
            return how;
        }
        let before = std::mem::replace(&mut self.oom_kills, host::oom_kills());
        if before.is_some() && self.oom_kills > before {
            ExitStatus::OutOfMemory
        } else {
            how
        }
    }

    /// Says once that inotify does not work, or works again.
    pub(super) fn report_watcher(&mut self) {
        let degraded = self.watcher.degraded();
        if degraded.is_some() != self.degraded {
            match degraded {
                Some(why) => log::warning!("{why}, hashing the files every 10s instead"),
                None => log::info!("file notifications work again"),
            }
            self.degraded = degraded.is_some();
            self.queue.push_back(Event::WatchDegraded(self.degraded));
        }
    }
}
