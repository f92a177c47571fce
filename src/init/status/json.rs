//! GET `/status`: what the agent is doing, as one JSON object. Pure.
//!
//! Written by hand into one buffer: a tree of values costs pages that stay.
//!
//! # Schema 1
//!
//! A field may be added within a schema; one that changes its meaning, or goes, makes the next schema. Times are strings,
//! RFC 3339 in UTC with microseconds. What is not known, or is not there, is `null`; no field is ever absent. Seconds are
//! whole, rounded down.
//!
//! | field | type | what | since |
//! |---|---|---|---|
//! | `schema` | number | 1 | 1 |
//! | `version` | string | of the agent | 1 |
//! | `state` | string | `starting`, `live`, `restarting`, `draining` or `stopping` | 1 |
//! | `ready` | boolean | what `/healthz/ready` says | 1 |
//! | `reason` | string | the stage that is missing, or `ready` | 1 |
//! | `configuration` | string | SHA-256 of what should run, 64 hexadecimal digits | 1 |
//! | `retry_budget` | number | crash restarts that are left | 1 |
//! | `retry_budget_of` | number | of so many | 1 |
//! | `role` | string | `sidecar`, `router` or `ingress` | 1 |
//! | `node` | string | Envoy's node id | 1 |
//! | `admin` | string | address and port of Envoy's admin | 1 |
//! | `time` | time | of this answer | 1 |
//! | `uptime_seconds` | number | of the agent | 1 |
//! | `configuration_changed` | time | the last change since the start | 1 |
//! | `next_why` | string | why a further epoch is wanted; as `why` below | 1 |
//! | `next_try_seconds` | number | until it is tried again after a failure | 1 |
//! | `certificate_expires` | time | the earliest end of a watched certificate | 1 |
//! | `certificate_seconds_left` | number | until then; 0 when it is over | 1 |
//! | `started_by` | object | `start`, `change`, `crash`, `signal`, `rescan`: epochs started for it, numbers | 1 |
//! | `failed` | number | epochs that failed | 1 |
//! | `given_up` | number | configurations given up when the budget was spent | 1 |
//! | `refused` | number | configurations that `--validate` refused | 1 |
//! | `epochs` | array | the proxy processes that run, at most 2, the oldest first | 1 |
//! | `epochs[].epoch` | number | Envoy's `--restart-epoch` | 1 |
//! | `epochs[].pid` | number | | 1 |
//! | `epochs[].state` | string | `starting`, `live`, `draining` or `stopping` | 1 |
//! | `epochs[].age_seconds` | number | since its start | 1 |
//! | `epochs[].live_seconds` | number | since it was LIVE | 1 |
//! | `epochs[].why` | string | `start`, `change`, `crash`, `signal` or `rescan` | 1 |
//! | `epochs[].configuration` | string | what it was started with | 1 |
//! | `companions` | array | in the order of their flags, at most 8 | 1 |
//! | `companions[].command` | string | as it was typed | 1 |
//! | `companions[].pid` | number | | 1 |
//! | `companions[].state` | string | `waiting`, `running`, `backoff`, `stopping` or `ended` | 1 |
//! | `companions[].restarts` | number | | 1 |
//! | `companions[].age_seconds` | number | since its last start | 1 |
//! | `lives` | array | the last 32 epochs, the oldest first, those that run included | 1 |
//! | `lives[].epoch`, `.pid`, `.why`, `.configuration` | | as above; the pid of then | 1 |
//! | `lives[].started` | time | | 1 |
//! | `lives[].live`, `.draining`, `.ended` | time | when it was LIVE, had handed over, ended | 1 |
//! | `lives[].age_seconds` | number | from its start to its end, or to now | 1 |
//! | `lives[].how` | string | how it ended, in words | 1 |
//! | `lives[].exit_code` | number | the same as a shell's code, 128 + n for a signal | 1 |
//! | `lives[].failed` | boolean | it crashed, or died before it was LIVE | 1 |
//! | `events` | array | the last 32, the oldest first | 1 |
//! | `events[].time` | time | | 1 |
//! | `events[].what` | string | for a person; the words may change | 1 |
//! | `events[].warning` | boolean | it deserves attention | 1 |

#![forbid(unsafe_code)]

use std::fmt::{self, Write as _};
use std::time::{Duration, Instant};

use super::text::{Buffer, Escape, Words, role_name, state_name};
use super::view::View;
use crate::counters::REASONS;
use crate::history::Life;
use crate::log::Utc;
use crate::supervisor::{Configuration, Process, Reason};

/// The schema of the module's table.
const SCHEMA: u64 = 1;
/// Characters of a string: those of the longest command that a companion may have, for a program wants all of it.
const TEXT: usize = 4096;
/// Bytes reserved at first, and for each event or life: an answer does not grow by doubling.
const ROOM: usize = 2048;
const ROOM_EACH: usize = 384;

/// The answer.
#[must_use]
pub(super) fn render(view: &View<'_>) -> Vec<u8> {
    let many = view.history.events().count() + view.history.lives().count();
    let mut json = Json(Buffer::new(Escape::Json, TEXT, ROOM + many * ROOM_EACH));
    json.open("{");
    agent(&mut json, view);
    further(&mut json, view);
    json.list("epochs");
    let snapshot = &view.snapshot;
    for process in snapshot.older.into_iter().chain(snapshot.newest) {
        epoch(&mut json, view, process);
    }
    json.close("]");
    json.list("companions");
    companions(&mut json, view);
    json.close("]");
    json.list("lives");
    for ended in view.history.lives() {
        life(&mut json, view, ended);
    }
    json.close("]");
    json.list("events");
    for (at, what) in view.history.events() {
        json.open("{");
        json.time("time", Some(view.wall_of(*at)));
        let words = Words(what);
        json.string("what", &words);
        json.bare("warning", &words.is_warning());
        json.close("}");
    }
    json.close("]");
    json.close("}\n");
    json.0.into_bytes()
}

/// What the contract names.
fn agent(json: &mut Json, view: &View<'_>) {
    let snapshot = &view.snapshot;
    json.number("schema", Some(SCHEMA));
    json.string("version", &env!("CARGO_PKG_VERSION"));
    json.string("state", &snapshot.state.name());
    json.bare("ready", &view.readiness.is_ready());
    json.string("reason", &view.readiness);
    json.string("configuration", &Hash(&snapshot.desired));
    let (left, of) = snapshot.retry_budget;
    json.number("retry_budget", Some(left.into()));
    json.number("retry_budget_of", Some(of.into()));
}

fn further(json: &mut Json, view: &View<'_>) {
    let snapshot = &view.snapshot;
    json.string("role", &role_name(view.role));
    json.string("node", &view.node);
    json.string("admin", &view.admin);
    json.time("time", Some(view.wall));
    json.age("uptime_seconds", view, Some(view.started));
    json.time(
        "configuration_changed",
        view.changed.map(|at| view.wall_of(at)),
    );
    json.word("next_why", snapshot.next.map(Reason::name));
    let next_try = snapshot
        .next_try
        .map(|at| at.saturating_duration_since(view.now).as_secs());
    json.number("next_try_seconds", next_try);
    let expiry = view.certificate_expiry;
    json.time("certificate_expires", expiry.map(Duration::from_secs));
    let left = expiry.map(|at| at.saturating_sub(view.wall.as_secs()));
    json.number("certificate_seconds_left", left);
    let counters = view.counters;
    json.key("started_by");
    json.open("{");
    for (reason, count) in REASONS.iter().zip(counters.epochs_started) {
        json.number(reason.name(), Some(count));
    }
    json.close("}");
    json.number("failed", Some(counters.epochs_failed));
    json.number("given_up", Some(counters.given_up));
    json.number("refused", Some(counters.refused));
}

fn epoch(json: &mut Json, view: &View<'_>, process: &Process) {
    json.open("{");
    json.number("epoch", Some(process.epoch.0.into()));
    json.pid(view.pid(process.epoch));
    json.string("state", &state_name(process.state));
    json.age("age_seconds", view, Some(process.started));
    json.age("live_seconds", view, process.live_since);
    json.string("why", &process.reason.name());
    json.string("configuration", &Hash(&process.configuration));
    json.close("}");
}

fn companions(json: &mut Json, view: &View<'_>) {
    for companion in view.snapshot.companions {
        json.open("{");
        json.string("command", &view.companion_command(companion.id));
        json.pid(view.companion_pid(companion.id));
        json.string("state", &companion.state.name());
        json.number("restarts", Some(companion.restarts));
        json.age("age_seconds", view, companion.started);
        json.close("}");
    }
}

fn life(json: &mut Json, view: &View<'_>, life: &Life) {
    let wall = |at: Option<Instant>| at.map(|at| view.wall_of(at));
    let ended = life.ended.map(|(at, _)| at);
    json.open("{");
    json.number("epoch", Some(life.epoch.0.into()));
    json.number("pid", Some(life.pid.into()));
    json.string("why", &life.reason.name());
    json.string("configuration", &Hash(&life.configuration));
    json.time("started", wall(Some(life.started)));
    json.time("live", wall(life.live));
    json.time("draining", wall(life.draining));
    json.time("ended", wall(ended));
    let age = ended.unwrap_or(view.now);
    let age = age.saturating_duration_since(life.started).as_secs();
    json.number("age_seconds", Some(age));
    let how = life.ended.map(|(_, how)| how);
    match &how {
        Some(how) => json.string("how", how),
        None => json.null("how"),
    }
    json.number("exit_code", how.map(|how| how.code().into()));
    json.bare("failed", &life.failed);
    json.close("}");
}

/// A configuration's hash, all of it.
struct Hash<'a>(&'a Configuration);

impl fmt::Display for Hash<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.0 {
            for digit in [byte >> 4, byte & 15] {
                f.write_char(char::from_digit(digit.into(), 16).unwrap_or('0'))?;
            }
        }
        Ok(())
    }
}

/// A JSON text being made: every key and every item brings its own comma.
struct Json(Buffer);

impl Json {
    /// A comma, but for the first.
    fn next(&mut self) {
        if !matches!(self.0.last(), None | Some(b'{' | b'[' | b':')) {
            self.0.raw(",");
        }
    }

    fn open(&mut self, bracket: &str) {
        self.next();
        self.0.raw(bracket);
    }

    fn close(&mut self, bracket: &str) {
        self.0.raw(bracket);
    }

    fn key(&mut self, name: &str) {
        self.next();
        for part in ["\"", name, "\":"] {
            self.0.raw(part);
        }
    }

    fn list(&mut self, name: &str) {
        self.key(name);
        self.open("[");
    }

    fn null(&mut self, name: &str) {
        self.key(name);
        self.0.raw("null");
    }

    fn string(&mut self, name: &str, value: &dyn fmt::Display) {
        self.key(name);
        self.0.raw("\"");
        self.0.text(value);
        self.0.raw("\"");
    }

    fn word(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => self.string(name, &value),
            None => self.null(name),
        }
    }

    /// A number, `true` or `false`.
    fn bare(&mut self, name: &str, value: &dyn fmt::Display) {
        self.key(name);
        self.0.text(value);
    }

    fn number(&mut self, name: &str, value: Option<u64>) {
        match value {
            Some(value) => self.bare(name, &value),
            None => self.null(name),
        }
    }

    fn pid(&mut self, pid: Option<i32>) {
        self.number("pid", pid.and_then(|pid| u64::try_from(pid).ok()));
    }

    fn time(&mut self, name: &str, wall: Option<Duration>) {
        match wall {
            Some(wall) => self.string(name, &Utc(wall)),
            None => self.null(name),
        }
    }

    /// Whole seconds since then.
    fn age(&mut self, name: &str, view: &View<'_>, since: Option<Instant>) {
        self.number(name, since.map(|at| view.age_of(at).as_secs()));
    }
}

#[cfg(test)]
mod tests;
