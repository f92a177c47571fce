//! Prometheus' text format 0.0.4, being written: families and their samples, all of them `pintle_…`. Pure.
//!
//! Values are whole numbers, or seconds to the millisecond: no floats are formatted.

#![forbid(unsafe_code)]

use std::time::Duration;

/// Bytes reserved at first: the text without companions is 7 kB, and does not grow by doubling.
pub(super) const ROOM: usize = 8 * 1024;
/// Characters of a label's value; ours, only a companion's program comes near it.
pub(super) const LABEL_CHARS: usize = 64;

/// What a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Counter,
    Gauge,
}

/// A label and its value.
pub(super) type Label<'a> = (&'static str, &'a str);

/// The text being made.
pub(super) struct Exposition {
    text: String,
    /// The family that samples belong to.
    name: &'static str,
}

impl Exposition {
    pub(super) fn new() -> Self {
        Self {
            text: String::with_capacity(ROOM),
            name: "",
        }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.text.into_bytes()
    }

    /// Begins a family; `name` and `help` need no escaping.
    pub(super) fn family(&mut self, kind: Type, name: &'static str, help: &str) {
        let kind = match kind {
            Type::Counter => " counter\n",
            Type::Gauge => " gauge\n",
        };
        self.name = name;
        for part in [
            "# HELP pintle_",
            name,
            " ",
            help,
            ".\n# TYPE pintle_",
            name,
            kind,
        ] {
            self.text.push_str(part);
        }
    }

    pub(super) fn counter(&mut self, name: &'static str, help: &str, value: u64) {
        self.family(Type::Counter, name, help);
        self.number(&[], value);
    }

    pub(super) fn gauge(&mut self, name: &'static str, help: &str, value: Option<u64>) {
        self.family(Type::Gauge, name, help);
        if let Some(value) = value {
            self.number(&[], value);
        }
    }

    /// A gauge in seconds.
    pub(super) fn seconds(&mut self, name: &'static str, help: &str, value: Option<Duration>) {
        self.family(Type::Gauge, name, help);
        if let Some(value) = value {
            self.duration(value);
        }
    }

    pub(super) fn number(&mut self, labels: &[Label<'_>], value: u64) {
        self.labels(labels);
        self.text.push_str(&value.to_string());
        self.text.push('\n');
    }

    /// In seconds, to the millisecond.
    pub(super) fn duration(&mut self, value: Duration) {
        self.labels(&[]);
        // 1000 more, so that the leading zeros are there; then the 1 is cut off.
        let millis = (value.subsec_millis() + 1000).to_string();
        let millis = millis.get(1..).unwrap_or("0");
        for part in [&value.as_secs().to_string(), ".", millis, "\n"] {
            self.text.push_str(part);
        }
    }

    /// A sample up to its value.
    fn labels(&mut self, labels: &[Label<'_>]) {
        self.text.push_str("pintle_");
        self.text.push_str(self.name);
        let mut before = "{";
        for (name, value) in labels {
            for part in [before, name, "=\""] {
                self.text.push_str(part);
            }
            for character in value.chars().take(LABEL_CHARS) {
                match character {
                    '\n' => self.text.push_str("\\n"),
                    '"' | '\\' => self.text.extend(['\\', character]),
                    _ => self.text.push(character),
                }
            }
            self.text.push('"');
            before = ",";
        }
        self.text
            .push_str(if labels.is_empty() { " " } else { "} " });
    }
}
