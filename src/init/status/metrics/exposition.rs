//! Prometheus' text format 0.0.4, being written: families and their samples, all of them `pintle_…`. Pure.
//!
//! A family is given as its HELP line: the name, a blank, what it means. A name that ends in `_total` is a counter's,
//! any other a gauge's. Values are whole numbers, or seconds to the millisecond: no floats are formatted.

#![forbid(unsafe_code)]

use std::time::Duration;

/// Bytes reserved at first, so that the text does not grow by doubling. Chosen: without companions it has 7 kB.
pub(super) const ROOM: usize = 8 * 1024;
/// Characters of a label's value that comes from outside: a companion's program. Chosen: a line of a dashboard.
pub(super) const LABEL_CHARS: usize = 64;

/// The text being made.
#[derive(Debug)]
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

    /// Begins a family.
    pub(super) fn family(&mut self, about: &'static str) {
        let name = about.split_once(' ').map_or(about, |(name, _)| name);
        let kind = if name.ends_with("_total") {
            " counter\n"
        } else {
            " gauge\n"
        };
        self.name = name;
        self.put(&["# HELP pintle_", about, ".\n# TYPE pintle_", name, kind]);
    }

    /// A family of one sample.
    pub(super) fn one(&mut self, about: &'static str, value: u64) {
        self.family(about);
        self.number(&[], value);
    }

    /// A family of one sample, or none.
    pub(super) fn known(&mut self, about: &'static str, value: Option<u64>) {
        self.family(about);
        if let Some(value) = value {
            self.number(&[], value);
        }
    }

    /// A family of one sample in seconds, or none.
    pub(super) fn seconds(&mut self, about: &'static str, value: Option<Duration>) {
        self.family(about);
        if let Some(value) = value {
            // 1000 more, so that the leading zeros are there; then the 1 is cut off.
            let millis = u64::from(value.subsec_millis() + 1000).to_string();
            let millis = millis.get(1..).unwrap_or("0");
            let seconds = value.as_secs().to_string();
            self.sample(&[], &[&seconds, ".", millis]);
        }
    }

    /// A sample; `labels` are written as they are, braces and all.
    pub(super) fn number(&mut self, labels: &[&str], value: u64) {
        self.sample(labels, &[&value.to_string()]);
    }

    fn sample(&mut self, labels: &[&str], value: &[&str]) {
        self.put(&["pintle_", self.name]);
        self.put(labels);
        self.put(&[" "]);
        self.put(value);
        self.put(&["\n"]);
    }

    fn put(&mut self, parts: &[&str]) {
        for part in parts {
            self.text.push_str(part);
        }
    }
}

/// Returns `value` as it may stand between a label's quotes.
pub(super) fn escaped(value: &str) -> String {
    let mut text = String::new();
    for character in value.chars().take(LABEL_CHARS) {
        if matches!(character, '"' | '\\' | '\n') {
            text.push('\\');
        }
        text.push(if character == '\n' { 'n' } else { character });
    }
    text
}
