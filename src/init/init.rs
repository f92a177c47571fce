//! `pintle init`: a plain init for any program, no Envoy in it.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use mio::{Events, Poll, Token};

use crate::adopted::Adopted;
use crate::children::{self, Children, spawn_code};
use crate::cli::InitArgs;
use crate::clock;
use crate::log::{self, Level, LogConfig, LogTarget};
use crate::signals::Signals;
use crate::supervisor::ExitStatus;
use sys::{ChildSetup, Inherited, Pid, Streams, signal};

const ENDS: Token = Token(0);
const SIGNALS: Token = Token(1);

/// From TERM to KILL of what the command leaves behind: the default of `--kill-timeout`.
const PATIENCE: Duration = Duration::from_secs(5);
/// After an error of `poll` itself, which should not happen. Chosen: ten tries a second, and no spin.
const POLL_ERROR_PAUSE: Duration = Duration::from_millis(100);
/// A second one of these while we wait for the first means that its sender does not want to wait.
const ENDING: [i32; 3] = [signal::SIGTERM, signal::SIGINT, signal::SIGQUIT];

/// Sources of signals.
struct Sources {
    poll: Poll,
    signals: Signals,
}

/// Runs the command until it ends; returns its code.
#[must_use]
// Not inlined: the caller's frame must not hold its locals.
#[inline(never)]
pub(crate) fn run(args: &InitArgs) -> u8 {
    let level = if args.verbose {
        Level::Debug
    } else {
        Level::Warn
    };
    let target = LogConfig {
        level,
        json: false,
        targets: vec![LogTarget::Stderr],
    };
    // stderr is always open.
    drop(log::open(&target));
    let mut sources = match open() {
        Ok(sources) => sources,
        Err(error) => {
            log::error!("cannot catch signals: {error}");
            return 71;
        }
    };
    let pid = match spawn(&args.command) {
        Ok(pid) => pid,
        Err(error) => {
            let program = args.command.first().map(|word| word.to_string_lossy());
            log::error!("cannot run {}: {error}", program.unwrap_or_default());
            return spawn_code(&error);
        }
    };
    log::debug!("started pid {}", pid.number());
    // What the start has used: `init` needs little of it again.
    sys::set_apart();
    sys::give_back();
    sys::release_stack();
    let how = supervise(&mut sources, pid, args.group);
    end_adopted(&mut sources);
    how.code()
}

fn open() -> io::Result<Sources> {
    let mut signals = Signals::default();
    if std::process::id() != 1 {
        sys::become_subreaper()?;
    }
    let poll = Poll::new()?;
    signals.catch(poll.registry(), [ENDS, SIGNALS])?;
    Ok(Sources { poll, signals })
}

fn spawn(words: &[OsString]) -> io::Result<Pid> {
    let (program, arguments) = words.split_first().ok_or(io::ErrorKind::NotFound)?;
    let setup = ChildSetup {
        inherited: Inherited::get(),
        user: None,
        oom_score_adj: None,
        no_new_privs: false,
        raise_open_files: false,
        take_terminal: true,
    };
    sys::spawn(program, arguments, setup, Streams::Inherited)
}

/// Forwards and reaps until the command has ended.
fn supervise(sources: &mut Sources, main: Pid, group: bool) -> ExitStatus {
    let mut events = Events::with_capacity(4);
    loop {
        let timeout = sources.signals.are_left().then_some(Duration::ZERO);
        if let Err(error) = sources.poll.poll(&mut events, timeout)
            && error.kind() != io::ErrorKind::Interrupted
        {
            log::error!("cannot poll: {error}");
            sys::pause(POLL_ERROR_PAUSE);
        }
        let ready = events.iter().any(|event| event.token() == SIGNALS);
        if ready || sources.signals.are_left() {
            forward_some(&mut sources.signals, main, group);
        }
        if events.iter().any(|event| event.token() == ENDS) {
            let handled = sources.signals.handled();
            for number in handled.sent() {
                forward(number, main, group);
            }
            if handled.ends
                && let Some(how) = reap_all(main)
            {
                return how;
            }
        }
    }
}

/// Ends what the command has left behind; with PID 1 the kernel does.
fn end_adopted(sources: &mut Sources) {
    if std::process::id() == 1 {
        return;
    }
    let (none, mut now) = (Children::default(), clock::read());
    let mut adopted = Adopted::new(now, PATIENCE);
    let mut events = Events::with_capacity(4);
    while !adopted.have_ended(now, &none) {
        let mut rest = adopted.deadline().saturating_duration_since(now);
        if sources.signals.are_left() {
            rest = Duration::ZERO;
        }
        if sources.poll.poll(&mut events, Some(rest)).is_err() {
            // Interrupted, or what should not happen: not a spin.
            sys::pause(POLL_ERROR_PAUSE);
        }
        now = clock::read();
        for _ in 0..sys::SIGNAL_READS_PER_TURN {
            let batch = sources.signals.others();
            if ENDING.iter().any(|end| batch.contains(&Some(*end))) {
                adopted.hurry(now);
            }
            if !sources.signals.are_left() {
                break;
            }
        }
        sources.signals.handled();
        while children::reap().is_some() {}
    }
}

/// No more than a turn takes: children end meanwhile.
fn forward_some(signals: &mut Signals, main: Pid, group: bool) {
    for _ in 0..sys::SIGNAL_READS_PER_TURN {
        for number in signals.others().into_iter().flatten() {
            forward(number, main, group);
        }
        if !signals.are_left() {
            return;
        }
    }
}

fn forward(number: i32, main: Pid, group: bool) {
    if group {
        sys::kill_group(main, number);
    } else {
        sys::kill(main, number);
    }
    log::debug!("forwarded signal {number}");
}

/// Reaps every dead child; returns how the command ended, if it did.
fn reap_all(main: Pid) -> Option<ExitStatus> {
    let mut ended = None;
    while let Some((pid, how)) = children::reap() {
        if pid == main {
            ended = Some(how);
        } else {
            log::debug!("reaped orphan {}: it {how}", pid.number());
        }
    }
    ended
}
