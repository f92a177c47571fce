//! `/status` as a table that a person can read. Pure.
//!
//! The text comes from whoever has the port: unknown fields are passed over, absent ones are a dash, and no character
//! in it can move a terminal's cursor.

#![forbid(unsafe_code)]

use crate::json::{self, Value};

/// The schema that this program was written for.
const SCHEMA: u64 = 1;
/// Rows of one table, the last ones; the agent tells 32 events.
const ROWS: usize = 10;
/// Characters of one cell; a longer text would push the rest off the screen.
const CELL: usize = 160;
/// Characters of a configuration's hash, as many as the log shows.
const HASH: usize = 12;
/// Characters between two columns.
const GAP: usize = 2;

/// Whether colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paint {
    Plain,
    Colours,
}

/// The meaning of a cell, for its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Plain,
    Title,
    Good,
    Busy,
    Bad,
}

impl Mood {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Title => "\x1b[1m",
            Self::Good => "\x1b[32m",
            Self::Busy => "\x1b[33m",
            Self::Bad => "\x1b[31m",
        }
    }

    /// By the name of a state, of the agent's or of a process's.
    fn of_state(state: &str) -> Self {
        match state {
            "live" | "running" => Self::Good,
            "starting" | "restarting" | "idle" | "draining" | "waiting" => Self::Busy,
            "stopping" | "stopped" | "failed" => Self::Bad,
            _ => Self::Plain,
        }
    }
}

/// One cell of a table.
struct Cell {
    text: String,
    mood: Mood,
}

/// Fields, each with its title before it where that is another.
const SUMMARY: &str = "version,uptime=uptime_seconds,role,node,state,ready,configuration,retry budget=retry_budget,\
    next try=next_try_seconds,certificate=certificate_seconds_left";

const EPOCHS: &str = "EPOCH=epoch,PID=pid,STATE=state,AGE=age_seconds,WHY=why";

/// The command last: it may be long.
const COMPANIONS: &str = "PID=pid,STATE=state,RESTARTS=restarts,COMPANION=command";

const EVENTS: &str = "TIME=time,EVENT=what";

/// Titles and names of fields.
fn columns(table: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let columns = table.split(',');
    columns.map(|column| column.split_once('=').unwrap_or((column, column)))
}

/// The table for what `/status` answered; `None` when that is something else.
#[must_use]
pub(super) fn render(json: &[u8], paint: Paint) -> Option<String> {
    let status = json::parse(json).ok()?;
    // Any other server may answer with any other object.
    status.get("state")?.as_str()?;
    let mut out = String::with_capacity(1024);
    lay_out(&mut out, &summary(&status), paint);
    for (list, columns) in [
        ("epochs", EPOCHS),
        ("companions", COMPANIONS),
        ("events", EVENTS),
    ] {
        let items = status.get(list).and_then(Value::as_array);
        let items = items.map(Vec::as_slice).unwrap_or_default();
        // The last ones: events are many.
        let shown = items.get(items.len().saturating_sub(ROWS)..);
        let shown = shown.unwrap_or_default();
        if !shown.is_empty() {
            out.push('\n');
            lay_out(&mut out, &rows(shown, columns), paint);
        }
    }
    if status.get("schema").and_then(Value::as_u64) > Some(SCHEMA) {
        out.push_str(NEWER);
    }
    Some(out)
}

const NEWER: &str =
    "\nThe agent is newer than this program, which may not show all that it says: see --json\n";

fn summary(status: &Value) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for (title, field) in columns(SUMMARY) {
        let mut cell = cell(status, field);
        let more = match field {
            "ready" if cell.mood == Mood::Bad => Some((": ", "reason", "")),
            "retry_budget" => Some((" of ", "retry_budget_of", "")),
            "next_try_seconds" if cell.text != NONE => Some((" (", "next_why", ")")),
            "certificate_seconds_left" if cell.text != NONE => {
                Some((", ", "certificate_expires", ""))
            }
            _ => None,
        };
        if let Some((joint, name, end)) = more
            && let Some(value) = status.get(name)
        {
            for part in [joint, &text(value), end] {
                cell.text.push_str(part);
            }
        }
        let text = title.to_owned();
        let mood = Mood::Plain;
        rows.push(vec![Cell { text, mood }, cell]);
    }
    rows
}

/// A head, and a row for each item.
fn rows(items: &[Value], table: &'static str) -> Vec<Vec<Cell>> {
    let mut rows = Vec::with_capacity(items.len() + 1);
    for item in std::iter::once(None).chain(items.iter().map(Some)) {
        let cells = columns(table).map(|(title, field)| match item {
            Some(item) => cell(item, field),
            None => Cell {
                text: title.to_owned(),
                mood: Mood::Title,
            },
        });
        rows.push(cells.collect());
    }
    rows
}

fn cell(object: &Value, field: &str) -> Cell {
    let value = object.get(field).unwrap_or(&Value::Null);
    let mut text = match field {
        "uptime_seconds" | "age_seconds" => age(value),
        "next_try_seconds" => remaining(value, "in ", "now"),
        "certificate_seconds_left" => remaining(value, "ends in ", "ended"),
        _ => text(value),
    };
    if field == "configuration" {
        text = text.chars().take(HASH).collect();
    }
    let mood = if let Some(good) = value.as_bool() {
        if good { Mood::Good } else { Mood::Bad }
    } else if field == "state" {
        Mood::of_state(&text)
    } else if object.get("warning").and_then(Value::as_bool) == Some(true) {
        // An event that deserves attention.
        Mood::Busy
    } else {
        Mood::Plain
    };
    Cell { text, mood }
}

/// Columns as wide as their widest cell.
fn lay_out(out: &mut String, rows: &[Vec<Cell>], paint: Paint) {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.text.chars().count());
        }
    }
    for row in rows {
        let mut blanks = 0;
        for (width, cell) in widths.iter().zip(row) {
            out.extend(std::iter::repeat_n(' ', blanks));
            let code = match paint {
                Paint::Plain => "",
                Paint::Colours => cell.mood.code(),
            };
            out.push_str(code);
            out.push_str(&cell.text);
            out.push_str(if code.is_empty() { "" } else { "\x1b[0m" });
            blanks = width.saturating_sub(cell.text.chars().count()) + GAP;
        }
        out.push('\n');
    }
}

/// A value as the text of a cell; a dash where there is none to show.
fn text(value: &Value) -> String {
    let text = match value {
        Value::String(text) => harmless(text.as_bytes(), ' '),
        Value::Number(number) => number.as_str().to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Null | Value::Array(_) | Value::Object(_) => String::new(),
    };
    if text.is_empty() {
        return NONE.to_owned();
    }
    match text.char_indices().nth(CELL) {
        Some((end, _)) => [text.get(..end).unwrap_or_default(), "…"].concat(),
        None => text,
    }
}

/// The mark of a value that is not known, or is not there.
const NONE: &str = "-";

/// Seconds until something.
fn remaining(seconds: &Value, until: &str, over: &str) -> String {
    match seconds.as_u64() {
        None => text(seconds),
        Some(0) => over.to_owned(),
        Some(_) => [until, &age(seconds)].concat(),
    }
}

/// Seconds as a person counts them: `59s`, `4m12s`, `3h5m`, `2d4h`.
fn age(seconds: &Value) -> String {
    let Some(seconds) = seconds.as_u64() else {
        return text(seconds);
    };
    let (large, large_unit, small, small_unit) = match seconds {
        0..60 => return [&seconds.to_string(), "s"].concat(),
        60..3600 => (seconds / 60, "m", seconds % 60, "s"),
        3600..86_400 => (seconds / 3600, "h", seconds / 60 % 60, "m"),
        86_400.. => (seconds / 86_400, "d", seconds / 3600 % 24, "h"),
    };
    let (large, small) = (large.to_string(), small.to_string());
    [&large, large_unit, &small, small_unit].concat()
}

/// A text that a terminal only shows: control characters, and those that turn the direction of writing, are `?`.
#[must_use]
pub(super) fn harmless(bytes: &[u8], kept: char) -> String {
    let shown = |character: char| match character {
        _ if character == kept => character,
        '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '?',
        _ if character.is_control() => '?',
        _ => character,
    };
    String::from_utf8_lossy(bytes).chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn plain(value: &serde_json::Value) -> Option<String> {
        render(value.to_string().as_bytes(), Paint::Plain)
    }

    fn example() -> serde_json::Value {
        json!({
            "schema": 1,
            "version": "0.1.0",
            "state": "restarting",
            "ready": true,
            "reason": "",
            "configuration": "01a2f95d5c8001a2f95d5c80",
            "retry_budget": 7,
            "retry_budget_of": 10,
            "uptime_seconds": 90_000,
            "role": "router",
            "node": "router~10.0.0.1~p.ns~ns.svc.cluster.local",
            "next_why": "change",
            "next_try_seconds": 7,
            "certificate_expires": "2026-12-01T00:00:00.000000Z",
            "certificate_seconds_left": 183_600,
            "epochs": [
                {"epoch": 1, "pid": 8737, "state": "live", "age_seconds": 252, "why": "change"},
                {"epoch": 0, "pid": 857_400, "state": "draining", "age_seconds": 11_100, "why": "start", "more": {}},
            ],
            "companions": [{"command": "bird -f", "pid": 77, "state": "running", "restarts": 2}],
            "events": [
                {"time": "2026-11-21T03:39:11Z", "what": "epoch 0 is LIVE", "warning": false},
                {"time": "2026-11-21T03:39:12Z", "what": "not ready", "warning": true},
            ],
        })
    }

    #[test]
    fn a_status_is_a_table() {
        let expected = "\
version        0.1.0
uptime         1d1h
role           router
node           router~10.0.0.1~p.ns~ns.svc.cluster.local
state          restarting
ready          yes
configuration  01a2f95d5c80
retry budget   7 of 10
next try       in 7s (change)
certificate    ends in 2d3h, 2026-12-01T00:00:00.000000Z

EPOCH  PID     STATE     AGE    WHY
1      8737    live      4m12s  change
0      857400  draining  3h5m   start

PID  STATE    RESTARTS  COMPANION
77   running  2         bird -f

TIME                  EVENT
2026-11-21T03:39:11Z  epoch 0 is LIVE
2026-11-21T03:39:12Z  not ready
";
        assert_eq!(plain(&example()).as_deref(), Some(expected));
    }

    #[test]
    fn colours_add_nothing_but_colours() {
        let painted = render(example().to_string().as_bytes(), Paint::Colours).unwrap();
        assert!(
            painted.contains("\x1b[32mlive\x1b[0m      4m12s"),
            "{painted}"
        );
        assert!(painted.contains("\x1b[1mEPOCH\x1b[0m  "), "{painted}");
        assert!(painted.contains("\x1b[33mnot ready\x1b[0m\n"), "{painted}");
        let mut bare = painted;
        for code in ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m"] {
            bare = bare.replace(code, "");
        }
        assert_eq!(Some(bare), plain(&example()));
    }

    #[test]
    fn missing_fields_are_named_and_absent_ones_are_a_dash() {
        let status = json!({"state": "starting", "ready": false, "reason": "epoch 0 is not LIVE",
            "retry_budget": [1], "epochs": [{"epoch": 0, "pid": null}]});
        let expected = "\
version        -
uptime         -
role           -
node           -
state          starting
ready          no: epoch 0 is not LIVE
configuration  -
retry budget   -
next try       -
certificate    -

EPOCH  PID  STATE  AGE  WHY
0      -    -      -    -
";
        assert_eq!(plain(&status).as_deref(), Some(expected));
    }

    #[test]
    fn a_certificate_that_is_over_and_a_try_that_is_due_say_so() {
        let status = json!({"state": "live", "next_try_seconds": 0, "next_why": null,
            "certificate_seconds_left": 0, "certificate_expires": "2026-11-01T00:00:00.000000Z"});
        let table = plain(&status).unwrap();
        assert!(table.contains("next try       now (-)\n"), "{table}");
        let ended = "certificate    ended, 2026-11-01T00:00:00.000000Z\n";
        assert!(table.contains(ended), "{table}");
    }

    #[test]
    fn the_last_events_are_shown() {
        for count in [0, 1, ROWS - 1, ROWS, ROWS + 1, 32] {
            let events: Vec<_> = (0..count)
                .map(|number| json!({"time": "t", "what": format!("what {number}.")}))
                .collect();
            let table = plain(&json!({"state": "live", "events": events})).unwrap();
            assert_eq!(table.contains("EVENT"), count > 0, "{count}");
            for number in 0..count {
                let is_shown = table.contains(&format!("what {number}."));
                assert_eq!(is_shown, number + ROWS >= count, "{number} of {count}");
            }
        }
    }

    #[test]
    fn a_newer_schema_is_said() {
        let note = "newer than this program";
        assert!(
            plain(&json!({"schema": 2, "state": "live"}))
                .unwrap()
                .contains(note)
        );
        assert!(
            !plain(&json!({"schema": 1, "state": "live"}))
                .unwrap()
                .contains(note)
        );
    }

    #[test]
    fn something_else_is_no_status() {
        for text in ["", "{", "[]", "{}", "\"live\"", "{\"state\": 1}", "<html>"] {
            assert_eq!(render(text.as_bytes(), Paint::Plain), None, "{text}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(render(deep.as_bytes(), Paint::Plain), None);
    }

    #[test]
    fn ages() {
        let table = [
            ("0", "0s"),
            ("59.5", "59.5"),
            ("60", "1m0s"),
            ("3599", "59m59s"),
            ("3600", "1h0m"),
            ("86400", "1d0h"),
            ("18446744073709551615", "213503982334601d7h"),
            ("-1", "-1"),
            ("null", "-"),
        ];
        for (text, expected) in table {
            let seconds = json::parse(text.as_bytes()).unwrap();
            assert_eq!(age(&seconds), expected, "{text}");
        }
    }

    #[test]
    fn a_hostile_text_moves_nothing() {
        let text = "\x1b[2J\r\n\u{9b}\u{202e}\u{7f}é";
        let status = json!({"state": text, "version": text, "reason": text,
            "events": [{"time": "t", "what": text}], "epochs": [{"why": "x".repeat(100_000)}]});
        let table = plain(&status).unwrap();
        assert!(table.contains("state          ?[2J?????é\n"), "{table:?}");
        assert!(table.len() < 2000);
    }

    proptest! {
        #[test]
        fn no_status_makes_it_panic_or_colours_itself(
            text in "\\PC{0,20}|[\\x00-\\x1f]{0,9}",
            list in proptest::collection::vec("[a-z]{0,9}", 0..40),
        ) {
            let status = json!({"state": &text, "epochs": &list, "events": &list, "companions": {"a": &text}, "version": list});
            let table = plain(&status).unwrap();
            prop_assert!(table.chars().all(|character| character == '\n' || !character.is_control()));
        }
    }
}
