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
//! | `state` | string | `starting`, `live`, `restarting`, `idle`, `draining` or `stopping` | 1 |
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
//! | `configuration_given_up` | boolean | `configuration` was given up: another one serves, and at `next_try_seconds` it has one try | 1 |
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
//! | `companions[].command` | string | its program; the arguments may hold a secret | 1 |
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

use super::text::{Buffer, Escape, Words, state_name};
use crate::counters::REASONS;
use crate::history::Life;
use crate::log::Utc;
use crate::status::view::View;
use crate::supervisor::{Fingerprint, Process, Reason};

/// The schema of the module's table.
const SCHEMA: u64 = 1;
/// Characters of a string: those of the longest command that a companion may have, for a program wants all of it.
const TEXT: usize = 4096;
/// Bytes reserved for an answer, and for each event or process in it, so that it does not grow by doubling. Chosen.
const ROOM: usize = 2048;
const ROOM_EACH: usize = 384;

/// The answer.
#[must_use]
// Seldom, and not to be mixed with what is not.
#[inline(never)]
pub(crate) fn render(view: &View<'_>) -> Vec<u8> {
    let many = view.history.events().count() + view.history.lives().count();
    let mut json = Json(Buffer::new(Escape::Json, TEXT, ROOM + many * ROOM_EACH));
    json.0.raw("{");
    agent(&mut json, view);
    json.list("epochs");
    let snapshot = &view.snapshot;
    for process in snapshot.older.into_iter().chain(snapshot.newest) {
        epoch(&mut json, view, process);
    }
    json.close_list();
    json.list("companions");
    for companion in snapshot.companions {
        json.object(
            "command pid state restarts age_seconds",
            &[
                FieldValue::Text(view.companion_program(companion.id)),
                pid(view.companion_pid(companion.id)),
                FieldValue::Text(companion.state.name()),
                FieldValue::Number(companion.restarts),
                age(view, companion.started),
            ],
        );
    }
    json.close_list();
    json.list("lives");
    for one in view.history.lives() {
        life(&mut json, view, one);
    }
    json.close_list();
    json.list("events");
    for (at, what) in view.history.events() {
        let words = Words(what);
        json.object(
            "time what warning",
            &[
                time(view, Some(*at)),
                FieldValue::Shown(&words),
                FieldValue::Flag(words.is_warning()),
            ],
        );
    }
    json.close_list();
    json.0.raw("}\n");
    json.0.into_bytes()
}

fn agent(json: &mut Json, view: &View<'_>) {
    let snapshot = &view.snapshot;
    let (left, of) = snapshot.retry_budget;
    let next_try = snapshot
        .next_try
        .map(|at| at.saturating_duration_since(view.now).as_secs());
    let expiry = view.certificate_expiry;
    let expiry_left = expiry.map(|at| at.saturating_sub(view.wall.as_secs()));
    json.fields(
        "schema version state ready reason configuration retry_budget retry_budget_of role node admin time uptime_seconds configuration_changed next_why next_try_seconds certificate_expires certificate_seconds_left failed given_up configuration_given_up refused",
        &[
            FieldValue::Number(SCHEMA),
            FieldValue::Text(env!("CARGO_PKG_VERSION")),
            FieldValue::Text(snapshot.state.name()),
            FieldValue::Flag(view.readiness.is_ready()),
            FieldValue::Shown(&view.readiness),
            FieldValue::Shown(&HexDigest(&snapshot.desired)),
            FieldValue::Number(left.into()),
            FieldValue::Number(of.into()),
            FieldValue::Text(view.role.name()),
            FieldValue::Text(view.node),
            FieldValue::Shown(&view.admin),
            FieldValue::Time(view.wall),
            age(view, Some(view.started)),
            time(view, view.changed),
            snapshot
                .next
                .map_or(FieldValue::Null, |reason| FieldValue::Text(reason.name())),
            number(next_try),
            expiry.map_or(FieldValue::Null, |at| FieldValue::Time(Duration::from_secs(at))),
            number(expiry_left),
            FieldValue::Number(view.counters.epochs_failed),
            FieldValue::Number(view.counters.given_up),
            FieldValue::Flag(snapshot.given_up),
            FieldValue::Number(view.counters.refused),
        ],
    );
    json.key("started_by");
    let counts = view.counters.epochs_started.map(FieldValue::Number);
    json.object(&REASONS.map(Reason::name).join(" "), &counts);
}

fn epoch(json: &mut Json, view: &View<'_>, process: &Process) {
    json.object(
        "epoch pid state age_seconds live_seconds why configuration",
        &[
            FieldValue::Number(process.epoch.0.into()),
            pid(view.pid(process.epoch)),
            FieldValue::Text(state_name(process.state)),
            age(view, Some(process.started)),
            age(view, process.live_since),
            FieldValue::Text(process.reason.name()),
            FieldValue::Shown(&HexDigest(&process.configuration)),
        ],
    );
}

fn life(json: &mut Json, view: &View<'_>, life: &Life) {
    let ended = life.ended.map(|(at, _)| at);
    let how = life.ended.map(|(_, how)| how);
    let age = ended.unwrap_or(view.now);
    let age = age.saturating_duration_since(life.started).as_secs();
    json.object(
        "epoch pid why configuration started live draining ended age_seconds how exit_code failed",
        &[
            FieldValue::Number(life.epoch.0.into()),
            FieldValue::Number(life.pid.into()),
            FieldValue::Text(life.reason.name()),
            FieldValue::Shown(&HexDigest(&life.configuration)),
            time(view, Some(life.started)),
            time(view, life.live),
            time(view, life.draining),
            time(view, ended),
            FieldValue::Number(age),
            how.as_ref()
                .map_or(FieldValue::Null, |how| FieldValue::Shown(how)),
            number(how.map(|how| how.code().into())),
            FieldValue::Flag(life.failed),
        ],
    );
}

/// A configuration's hash, all of it.
struct HexDigest<'a>(&'a Fingerprint);

impl fmt::Display for HexDigest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.0 {
            for digit in [byte >> 4, byte & 15] {
                f.write_char(char::from_digit(digit.into(), 16).unwrap_or('0'))?;
            }
        }
        Ok(())
    }
}

/// A value that a field may have.
#[derive(Clone, Copy)]
enum FieldValue<'a> {
    Null,
    Flag(bool),
    Number(u64),
    /// A string.
    Text(&'a str),
    /// A string, too.
    Shown(&'a dyn fmt::Display),
    /// Since 1970.
    Time(Duration),
}

fn number(value: Option<u64>) -> FieldValue<'static> {
    value.map_or(FieldValue::Null, FieldValue::Number)
}

fn pid(pid: Option<i32>) -> FieldValue<'static> {
    number(pid.and_then(|pid| u64::try_from(pid).ok()))
}

fn time(view: &View<'_>, at: Option<Instant>) -> FieldValue<'static> {
    at.map_or(FieldValue::Null, |at| FieldValue::Time(view.wall_of(at)))
}

/// Whole seconds since then.
fn age(view: &View<'_>, since: Option<Instant>) -> FieldValue<'static> {
    number(since.map(|at| view.age_of(at).as_secs()))
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

    fn key(&mut self, name: &str) {
        self.next();
        for part in ["\"", name, "\":"] {
            self.0.raw(part);
        }
    }

    fn list(&mut self, name: &str) {
        self.key(name);
        self.0.raw("[");
    }

    fn close_list(&mut self) {
        self.0.raw("]");
    }

    fn object(&mut self, names: &str, values: &[FieldValue<'_>]) {
        self.next();
        self.0.raw("{");
        self.fields(names, values);
        self.0.raw("}");
    }

    /// Names of this schema, a blank between two; they need no escaping.
    fn fields(&mut self, names: &str, values: &[FieldValue<'_>]) {
        debug_assert_eq!(names.split(' ').count(), values.len(), "{names}");
        for (name, value) in names.split(' ').zip(values) {
            self.key(name);
            match *value {
                FieldValue::Null => self.0.raw("null"),
                FieldValue::Flag(true) => self.0.raw("true"),
                FieldValue::Flag(false) => self.0.raw("false"),
                FieldValue::Number(number) => self.0.text(&number),
                FieldValue::Text(text) => self.string(&text),
                FieldValue::Shown(what) => self.string(what),
                FieldValue::Time(wall) => self.string(&Utc(wall)),
            }
        }
    }

    fn string(&mut self, value: &dyn fmt::Display) {
        self.0.raw("\"");
        self.0.text(value);
        self.0.raw("\"");
    }
}

#[cfg(test)]
mod tests;
