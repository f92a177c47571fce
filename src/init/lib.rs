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
//!                                     └──► signals, watcher, children, admin, status, hot_restart, store ──► sys
//! ```
//!
//! `event_loop` owns everything by value. Sources yield `Event`s and hold no policy; `supervisor` takes an event and the
//! time, and returns `Action`s; the loop carries them out, and what fails in that is an event again.
//!
//! # One turn
//!
//! Sleep until the nearest deadline; read the clock, once; take the signals that came, at once; drain what is ready (dead
//! children, admin replies, files, clients); handle each event; then the timers that are due; answer the probes that wait.
//! What was needed of code, stack and heap and will not be soon is given back.
//!
//! # Where to look
//!
//! - [`cli`]: what was typed; [`environment`], [`config`]: what it means, checked.
//! - [`bootstrap`]: the document for Envoy, pure. `store` writes it.
//! - [`supervisor`]: epochs, retries, the end. Read `event.rs` and `action.rs` first, then `tests.rs` for stories.
//! - `event_loop`: the shell. `children`: processes and their command lines. `adopted`: orphans, at the end.
//! - [`watcher`] notices, [`fingerprint`] judges.
//! - `hot_restart`: what Envoy keeps outside its processes, and the two repairs that it needs.
//! - `admin`: the client of Envoy's admin port. `plain`: `pintle init`, with no Envoy in it.
//! - `status`: the status port. Read `mod.rs` for the limits, `readiness.rs` for what ready means; `http` has the parsers.
//!   `history` and `counters` are what it tells of.
//! - `client`: `request`, `wait`, `probe`, `status`, `drain` and `quit`, which ask an agent from outside.
//! - `regular`: opens what the user named, if it is a regular file. `search`: a text in a text.
//! - `sys`, a crate beside this one: the system calls, the heap, and every `unsafe` of the workspace.
//!
//! # What is not here
//!
//! - Nothing blocks, but for files that are read or written at a change, and `client`, which is no agent.
//! - No clock is read outside `event_loop`, but for the time stamp of a log line and the time that `client` waits.
//! - No thread is ever started: Envoy asks to die with the thread that forked it (peers.md §3.9).
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
pub mod json;
pub mod log;
mod plain;
#[cfg(any(test, fuzzing))]
pub mod properties;
mod regular;
mod search;
mod signals;
mod status;
mod store;
pub mod supervisor;
mod timeline;
pub mod watcher;

use std::ffi::OsStr;

use crate::cli::{Command, ProxyArgs, Stop};
use crate::config::{Config, LogConfig};
use crate::environment::Environment;
use crate::error::Refused;
use crate::event_loop::EventLoop;
use crate::log::Target;

/// Does what the arguments say; returns the exit code.
#[must_use]
pub fn main(arguments: &[&'static OsStr]) -> u8 {
    sys::start();
    match cli::parse(arguments) {
        Ok(Command::Proxy(args)) => proxy(args),
        Ok(Command::Init(args)) => plain::run(&args),
        Ok(Command::Client(args)) => client::run(&args),
        Err(stop) => finish(&stop),
    }
}

/// Says what there is to say, and how it ended. A reader that has gone has no use for it.
fn finish(stop: &Stop) -> u8 {
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
fn start(args: Box<ProxyArgs>) -> Result<Box<EventLoop>, u8> {
    // Before anything of our own is opened.
    sys::close_inherited_descriptors();
    let (host, socket) = host::look();
    let config = match Config::new(&args, Environment::of_process(), &host) {
        Ok(config) => config,
        Err(error) => {
            drop(log::open(&LogConfig::chosen(&args.flags, Target::Stdout)));
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
