//! pintle: PID 1 for Envoy. It writes Envoy's bootstrap, starts Envoy, watches certificates, hot-restarts Envoy by
//! epochs, reaps every process, drains on SIGTERM and ends with an honest exit code.
//!
//! # Bird's eye
//!
//! One process, one thread, one `mio::Poll`. Three parts that know each other in one direction only:
//!
//! ```text
//! cli, environment ──► config ──► event_loop ──► supervisor      the core: pure, decides
//!                                     │
//!                                     ├──► signals, watcher, children, admin, hot_restart, store ──► sys
//!                                     └──► status/server ──► status/probes, status/metrics, status/pages
//! ```
//!
//! `event_loop` owns everything by value. Sources yield `Event`s and hold no policy; `supervisor` takes an event and the
//! time, and returns `Action`s; the loop carries them out, and what fails in that is an event again. Who may know whom,
//! and why, is a table in `tests/layout.rs`, which has no circle.
//!
//! # One turn
//!
//! Sleep until the nearest deadline; read the clock, once; take the signals that came, at once; drain what is ready (dead
//! children, admin replies, files, clients); handle each event; then the timers that are due; answer the probes that wait.
//! Once idle, return unused code, stack and heap pages to the kernel.
//!
//! # Glossary
//!
//! - **epoch**: the number of a proxy process, Envoy's `--restart-epoch`. It comes again after a failed or fresh start;
//!   the **serial** never does.
//! - **LIVE**: initialised, workers run, clients are served; told by the epoch's own admin port.
//! - **parent, child**: the epoch that serves, and the next one, which takes over its listening sockets.
//! - **hand-over**: from the child's start until it is LIVE; from then on the parent is **draining**: it finishes its
//!   connections, is never signalled (`supervisor/parent.rs`), and ends when its child dismisses it.
//! - **stuck flag**: what a dead child leaves in Envoy's shared memory; no hot restart works until it is cleared.
//! - **stand-in**: the agent, answering a child for its dead parent (`hot_restart`).
//! - **base id**: tells the shared memory and sockets of one Envoy and its epochs from another's.
//! - **configuration**: what all that is watched says, known by its **fingerprint**; **desired** is the one that should run.
//! - **budget**: retries that are left; **given up**: it is spent, and the parent goes on with the old configuration.
//! - **companion**: a program that runs beside the proxy; **command**: that of `pintle run`, with whose end the agent ends.
//! - **orphan**: a process that the agent adopted as PID 1 or subreaper; **helper**: one `pintle-probe`, for one probe.
//!
//! # Four flows
//!
//! A name is a room, what stands in brackets its files or functions, in the order in which they are passed.
//!
//! - **change → LIVE**: [`watcher`] → `event_loop` (`sources`: `FilesChanged`) → [`supervisor`] (`running`: debounce, `Hash`) →
//!   `event_loop` (`files`) → [`fingerprint`] → `supervisor` (`running`: `Hashed`; another hash: `Spawn`) → `event_loop`
//!   (`processes`) → [`bootstrap`], `store`, `children` → `sys` (clone, exec); `event_loop` (`records`) → `history`, `log`. Then,
//!   polled: `supervisor` (`CallAdmin`) → `event_loop` (`admin_port`) → `admin` (`call`) → `supervisor` (`became_live`, `parent`: the old
//!   epoch drains) → `event_loop` (`records`) → `history`, `log`.
//! - **TERM → exit**: `signals` → `event_loop` (`sources`) → `supervisor` (`running`, `stopping`, `drain`: `CallAdmin`) → `event_loop`
//!   (`admin_port`) → `admin` → Envoy; `supervisor` (`drain`: time or connections are over; `stopping`: companions, then TERM to
//!   the newest) → `children` → `sys` (kill). Then SIGCHLD: `signals` → `event_loop` (`sources`) → `children` (`reap`) → `event_loop`
//!   (`records`) → `supervisor` (`stopping`: `Exit`) → `event_loop` (`leaving`) → `adopted`, `store`, `hot_restart` (files
//!   removed) → `log` (last words, termination log).
//! - **probe** (`/healthz/ready`): `event_loop` (`sources`, `status_port`) → `status/server` (`accept`, `connection`, `request`) →
//!   `http` (`request`) → `status/server` (`routes`) → `event_loop` (`admin_port`) → `readiness` (answered by what the core knows,
//!   or: `admin` (`ready`) → `readiness`) → `event_loop` (`status_port`) → `status/server` (`serving`, `connection`). An
//!   application's probe: `status/server` (`sharing`) → `status/probes` → `http` (`exchange`), or `event_loop` (`status_port`) →
//!   `children` (`pintle-probe`) → `status/probes` → `status/server`.
//! - **scrape** (`/metrics`): as a probe up to `status/server` (`serving`) → `status/metrics` (the agent's own; `merge`: Envoy's,
//!   then the application's) → `http` (`exchange`, `response`) → `status/metrics` (`scrape`: line by line) → `status/server`
//!   (`connection`).
//!
//! # Where to look
//!
//! - [`cli`]: what was typed; [`environment`], [`config`]: what it means, checked; [`values`], `url`: of one value.
//! - [`bootstrap`]: the document for Envoy, pure. `store` writes it.
//! - [`supervisor`]: epochs, retries, the end. Read `event.rs` and `action.rs` first, then `tests.rs` for stories.
//! - `event_loop`: the shell. `children`: processes and their command lines. `adopted`: orphans, at the end.
//! - [`watcher`] notices, [`fingerprint`] judges.
//! - `hot_restart`: what Envoy keeps outside its processes, and the two repairs that it needs. Facts about Envoy, with how
//!   they were measured, also stand in `children` (flags, PDEATHSIG), `supervisor/epoch.rs` (hand-over, start-up, exit codes),
//!   `supervisor/parent.rs`, `supervisor/drain.rs` and `admin/call.rs` (endpoints).
//! - `admin`: the client of Envoy's admin port. `readiness`: what ready means. `init`: `pintle init`, with no Envoy in it.
//! - `status`: the status port. `server` has the clients, and asks `probes`, `metrics` and `pages`; `http` has the parsers,
//!   `history` and `counters` what is told.
//! - `client`: `request`, `wait`, `probe`, `status`, `drain` and `quit`, which ask an agent from outside.
//! - `log`: lines that never block. `timeline`: what is said at the start. `error`: why that failed. `host`: the machine.
//! - Where the exit code is decided: `supervisor` (`exit`, called by `stopping` and `exits`) while the agent runs, `error`
//!   before the start, `client` and `init` for their commands.
//! - `regular`: opens what the user named, if it is a regular file. `certificate`: when one ends. [`json`]; `search`: a text
//!   in a text. `clock`: the one reader of both clocks. `signals`: those that the process gets.
//! - `sys`, a crate beside this one: the system calls, the heap, and every `unsafe` of the workspace.
//!
//! # What is not here
//!
//! - Nothing blocks, but for files that are read or written at a change, and `client`, which is no agent.
//! - No clock is read outside `clock`, which `event_loop` asks once a turn, a log line for its time stamp, and `client`
//!   for the time that it waits.
//! - No thread is ever started: Envoy dies with the thread that forked it (PDEATHSIG, see `children`).
//! - No child is waited for outside `children::reap`.
//! - After `EventLoop::start` no error travels upward; the type has no room for one.
//! - No periodic wake-up, but for the rescan.

mod admin;
mod adopted;
pub mod bootstrap;
mod certificate;
mod children;
pub mod cli;
mod client;
mod clock;
pub mod config;
mod counters;
pub mod environment;
mod error;
mod event_loop;
pub mod fingerprint;
mod history;
mod host;
mod hot_restart;
mod http;
mod init;
pub mod json;
pub mod log;
#[cfg(any(test, fuzzing))]
pub mod properties;
mod readiness;
mod regular;
mod search;
mod signals;
mod status;
mod store;
pub mod supervisor;
mod timeline;
mod url;
pub mod values;
pub mod watcher;

use std::ffi::OsStr;

use crate::cli::{EarlyExit, ProxyArgs, Subcommand};
use crate::config::Config;
use crate::environment::Environment;
use crate::error::Refused;
use crate::event_loop::EventLoop;
use crate::log::LogTarget;

/// Does what the arguments say; returns the exit code.
#[must_use]
pub fn main(arguments: &[&'static OsStr]) -> u8 {
    sys::start();
    // First of all: the kernel throws away what comes for PID 1 before.
    signals::hold();
    match cli::parse(arguments) {
        Ok(Subcommand::Proxy(args)) => proxy(args),
        Ok(Subcommand::Init(args)) => init::run(&args),
        Ok(Subcommand::Client(args)) => {
            signals::release();
            client::run(&args)
        }
        Err(stop) => {
            signals::release();
            finish(&stop)
        }
    }
}

/// Prints what the command has to say; returns the exit code. A reader that has gone is no error.
fn finish(stop: &EarlyExit) -> u8 {
    if let Some(config) = &stop.log {
        // What cannot be opened is not the worst; stderr is left.
        drop(log::open(config));
        return refuse(stop.code, format_args!("{}", stop.stderr));
    }
    sys::write_all(sys::stderr(), stop.stderr.as_bytes());
    client::print(&stop.stdout, stop.code)
}

fn proxy(args: Box<ProxyArgs>) -> u8 {
    match start(args) {
        Ok(event_loop) => event_loop.run(),
        Err(code) => code,
    }
}

/// A function of its own, so that what it needs on the stack is gone when the agent runs, and the arguments are, too.
#[inline(never)]
fn start(args: Box<ProxyArgs>) -> Result<&'static mut EventLoop, u8> {
    // Before the agent opens anything.
    sys::close_inherited_descriptors();
    let (host, socket) = host::look();
    let config = match Config::new(&args, Environment::of_process(), &host) {
        Ok(config) => Box::leak(Box::new(config)),
        Err(error) => {
            // stdout is the command's of `run`.
            let target = if args.command.is_empty() {
                LogTarget::Stdout
            } else {
                LogTarget::Stderr
            };
            drop(log::open(&args.flags.log(target)));
            return Err(refuse(error.code(), format_args!("{error}")));
        }
    };
    drop(args);
    if let Err((path, error)) = log::open(&config.log) {
        return Err(refuse(
            71,
            format_args!(
                "cannot open log {}: {}",
                path.display(),
                Refused {
                    error: &error,
                    uid: None,
                    remedy: "--log-target chooses another"
                }
            ),
        ));
    }
    for warning in &config.warnings {
        log::warning!("{warning}");
    }
    let started = EventLoop::start(config);
    // Now that the proxy has been started.
    drop(socket);
    started.map_err(|error| refuse(error.code(), format_args!("{error}")))
}

/// The start failed: why, and the code, as the last words.
fn refuse(code: u8, why: std::fmt::Arguments<'_>) -> u8 {
    log::last_words(log::Level::Error, format_args!("{why}, exit code {code}"));
    code
}
