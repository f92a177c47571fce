//! `/status` as a table that a person can read. Pure.
//!
//! The text comes from whoever has the port: unknown fields are passed over, absent ones are a dash, and no character
//! in it can move a terminal's cursor.

#![forbid(unsafe_code)]

use std::time::Duration;

use serde_json::Value;

/// The schema that this program was written for.
const SCHEMA: u64 = 1;
/// Events shown, the last ones.
const EVENTS: usize = 10;
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

/// What a cell says, for its colour.
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
            "starting" | "restarting" | "draining" | "waiting" => Self::Busy,
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

impl Cell {
    fn new(text: impl Into<String>, mood: Mood) -> Self {
        let text = text.into();
        Self { text, mood }
    }

    fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Mood::Plain)
    }

    fn state(text: String) -> Self {
        let mood = Mood::of_state(&text);
        Self { text, mood }
    }
}

/// The table for what `/status` answered; `None` when that is something else.
#[must_use]
pub(super) fn render(json: &[u8], paint: Paint) -> Option<String> {
    let status: Value = serde_json::from_slice(json).ok()?;
    // Any other server may answer with any other object.
    let state = status.get("state")?.as_str()?;
    let mut out = String::with_capacity(1024);
    lay_out(&mut out, &summary(&status, state), paint);
    let epochs = rows(
        &status,
        "epochs",
        &["EPOCH", "PID", "STATE", "AGE", "WHY"],
        |epoch| {
            vec![
                Cell::plain(field(epoch, "epoch")),
                Cell::plain(field(epoch, "pid")),
                Cell::state(field(epoch, "state")),
                Cell::plain(age(epoch.get("age_seconds"))),
                Cell::plain(field(epoch, "why")),
            ]
        },
    );
    let head = ["PID", "STATE", "RESTARTS", "COMPANION"];
    let companions = rows(&status, "companions", &head, |companion| {
        vec![
            Cell::plain(field(companion, "pid")),
            Cell::state(field(companion, "state")),
            Cell::plain(field(companion, "restarts")),
            Cell::plain(field(companion, "command")),
        ]
    });
    let mut events = rows(&status, "events", &["TIME", "EVENT"], |event| {
        vec![
            Cell::plain(field(event, "time")),
            Cell::plain(field(event, "what")),
        ]
    });
    // The first row is the head.
    let early = events.len().saturating_sub(EVENTS + 1);
    drop(events.drain(1..=early));
    for table in [epochs, companions, events] {
        if table.len() > 1 {
            out.push('\n');
            lay_out(&mut out, &table, paint);
        }
    }
    if status.get("schema").and_then(Value::as_u64) > Some(SCHEMA) {
        out.push_str("\nThe agent is newer than this program, which may not show all that it says: see --json\n");
    }
    Some(out)
}

fn summary(status: &Value, state: &str) -> Vec<Vec<Cell>> {
    let is_ready = status.get("ready").and_then(Value::as_bool) == Some(true);
    let ready = if is_ready {
        Cell::new("yes", Mood::Good)
    } else {
        let reason = field(status, "reason");
        Cell::new(["no: ", &reason].concat(), Mood::Bad)
    };
    let hash: String = field(status, "configuration").chars().take(HASH).collect();
    let line = |name: &str, cell: Cell| vec![Cell::plain(name), cell];
    vec![
        line("version", Cell::plain(field(status, "version"))),
        line("state", Cell::state(harmless(state.as_bytes(), ' '))),
        line("ready", ready),
        line("configuration", Cell::plain(hash)),
        line("retry budget", Cell::plain(field(status, "retry_budget"))),
    ]
}

/// A head, and a row for each item of a list.
fn rows(
    status: &Value,
    list: &str,
    head: &[&str],
    row: impl Fn(&Value) -> Vec<Cell>,
) -> Vec<Vec<Cell>> {
    let items = status.get(list).and_then(Value::as_array);
    let head = head.iter().map(|name| Cell::new(*name, Mood::Title));
    let mut rows = vec![head.collect()];
    rows.extend(items.into_iter().flatten().map(row));
    rows
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

/// A field as the text of a cell; a dash where it is absent.
fn field(object: &Value, name: &str) -> String {
    text(object.get(name))
}

fn text(value: Option<&Value>) -> String {
    let text = match value {
        Some(Value::String(text)) => harmless(text.as_bytes(), ' '),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Bool(true)) => "yes".to_owned(),
        Some(Value::Bool(false)) => "no".to_owned(),
        Some(Value::Object(fields)) => {
            let mut joined = String::new();
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_object()) {
                joined.push_str(if joined.is_empty() { "" } else { ", " });
                joined.push_str(&harmless(name.as_bytes(), ' '));
                joined.push(' ');
                joined.push_str(&text(Some(value)));
            }
            joined
        }
        Some(Value::Null | Value::Array(_)) | None => String::new(),
    };
    if text.is_empty() {
        "-".to_owned()
    } else {
        clip(text)
    }
}

fn clip(text: String) -> String {
    if text.chars().count() <= CELL {
        return text;
    }
    let mut clipped: String = text.chars().take(CELL - 1).collect();
    clipped.push('…');
    clipped
}

/// Seconds as a person counts them: `59s`, `4m12s`, `3h5m`, `2d4h`.
fn age(seconds: Option<&Value>) -> String {
    let seconds = seconds.and_then(Value::as_f64);
    let Some(age) = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) else {
        return "-".to_owned();
    };
    let seconds = age.as_secs();
    let (large, large_unit, small, small_unit) = match seconds {
        0..60 => (0, "", seconds, "s"),
        60..3600 => (seconds / 60, "m", seconds % 60, "s"),
        3600..86_400 => (seconds / 3600, "h", seconds / 60 % 60, "m"),
        86_400.. => (seconds / 86_400, "d", seconds / 3600 % 24, "h"),
    };
    let large = if large == 0 {
        String::new()
    } else {
        large.to_string()
    };
    [&large, large_unit, &small.to_string(), small_unit].concat()
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

    fn plain(value: &Value) -> Option<String> {
        render(value.to_string().as_bytes(), Paint::Plain)
    }

    fn example() -> Value {
        json!({
            "schema": 1,
            "version": "0.1.0",
            "state": "restarting",
            "ready": true,
            "reason": "",
            "configuration": "01a2f95d5c8001a2f95d5c80",
            "retry_budget": 10,
            "epochs": [
                {"epoch": 1, "pid": 8737, "state": "live", "age_seconds": 252.9, "why": "change"},
                {"epoch": 0, "pid": 857_400, "state": "draining", "age_seconds": 11_100, "why": "start", "more": {}},
            ],
            "companions": [{"command": "bird -f", "pid": 77, "state": "running", "restarts": 2}],
            "events": [{"time": "2026-11-21T03:39:11Z", "what": "epoch 0 is LIVE"}],
        })
    }

    #[test]
    fn a_status_is_a_table() {
        let expected = "\
version        0.1.0
state          restarting
ready          yes
configuration  01a2f95d5c80
retry budget   10

EPOCH  PID     STATE     AGE    WHY
1      8737    live      4m12s  change
0      857400  draining  3h5m   start

PID  STATE    RESTARTS  COMPANION
77   running  2         bird -f

TIME                  EVENT
2026-11-21T03:39:11Z  epoch 0 is LIVE
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
        let mut bare = painted;
        for code in ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m"] {
            bare = bare.replace(code, "");
        }
        assert_eq!(Some(bare), plain(&example()));
    }

    #[test]
    fn what_is_missing_is_named_and_what_is_absent_is_a_dash() {
        let status = json!({"state": "starting", "ready": false, "reason": "epoch 0 is not LIVE",
            "retry_budget": {"left": 9, "of": 10}, "epochs": [{"epoch": 0, "pid": null}]});
        let expected = "\
version        -
state          starting
ready          no: epoch 0 is not LIVE
configuration  -
retry budget   left 9, of 10

EPOCH  PID  STATE  AGE  WHY
0      -    -      -    -
";
        assert_eq!(plain(&status).as_deref(), Some(expected));
    }

    #[test]
    fn the_last_events_are_shown() {
        for count in [0, 1, EVENTS - 1, EVENTS, EVENTS + 1, 32] {
            let events: Vec<_> = (0..count)
                .map(|number| json!({"time": "t", "what": format!("what {number}.")}))
                .collect();
            let table = plain(&json!({"state": "live", "events": events})).unwrap();
            assert_eq!(table.contains("EVENT"), count > 0, "{count}");
            for number in 0..count {
                let is_shown = table.contains(&format!("what {number}."));
                assert_eq!(is_shown, number + EVENTS >= count, "{number} of {count}");
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
            (json!(0), "0s"),
            (json!(59.99), "59s"),
            (json!(60), "1m0s"),
            (json!(3599), "59m59s"),
            (json!(3600), "1h0m"),
            (json!(86_400), "1d0h"),
            (json!(u64::MAX), "-"),
            (json!(-1), "-"),
            (json!("x"), "-"),
        ];
        for (seconds, expected) in table {
            assert_eq!(age(Some(&seconds)), expected, "{seconds}");
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
