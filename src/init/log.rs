//! The agent's log: one line, one `write`; never panics and never blocks.
//!
//! A reader that stops reading must not stop PID 1: a sink that does not take a line loses it, and the next line that it
//! takes is how many it has lost. Each sink has its own account. `sys::Outlet` is how one writes without waiting.

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock;
use sys::{OPEN_WITHOUT_WAITING, Outlet};

/// The longest line, with its end: what POSIX lets a pipe take at once (`PIPE_BUF` on Linux), so lines never mix.
const LINE_BYTES: usize = 4096;
/// The termination log: where Kubernetes reads why a container ended (its default `terminationMessagePath`).
/// As std makes files, less the umask: a log is read by whoever collects logs.
const FILE_MODE: u32 = 0o666;
const TERMINATION_LOG: &str = "/dev/termination-log";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
    /// Nothing is logged.
    None,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::None => "none",
        }
    }
}

/// The destination of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    Stdout,
    Stderr,
    File(PathBuf),
}

/// The form of log lines, and their destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    pub level: Level,
    pub json: bool,
    pub targets: Vec<LogTarget>,
}

/// A target and what became of its lines.
#[derive(Debug)]
struct LogSink {
    target: LogTarget,
    /// A file is opened at once; for the streams, others than the proxy can wait for the first line.
    outlet: Option<Outlet>,
    /// Lines lost since one was written.
    lost: u64,
    /// The last line went in only in part: a terminal was full, or a disk.
    cut: bool,
}

#[derive(Debug)]
struct Log {
    level: Level,
    json: bool,
    /// Empty until it is opened.
    sinks: Vec<LogSink>,
    /// Lines that any sink has lost since the start.
    lost: u64,
}

thread_local! {
    // One thread, so this is one global; a `RefCell` because logging is reached from everywhere and must not need `&mut`.
    // It is never dropped, so that nothing has to be registered for a thread's end.
    static LOG: RefCell<ManuallyDrop<Log>> =
        const { RefCell::new(ManuallyDrop::new(Log { level: Level::Info, json: false, sinks: Vec::new(), lost: 0 })) };
}

/// Lines lost since the start, for the metrics.
#[must_use]
pub(crate) fn lost_lines() -> u64 {
    LOG.with(|log| log.try_borrow().map_or(0, |log| log.lost))
}

/// Opens the targets. Until then lines go to stdout, and to stderr when there is none left.
///
/// # Errors
/// A log file that cannot be opened, with its name; the others are in use then.
pub fn open(config: &LogConfig) -> Result<(), (PathBuf, io::Error)> {
    let mut sinks = Vec::with_capacity(config.targets.len());
    let mut result = Ok(());
    for target in &config.targets {
        let mut sink = LogSink::new(target.clone());
        if let LogTarget::File(path) = target {
            match append_to(path) {
                Ok(file) => sink.outlet = Some(file),
                Err(error) => {
                    result = Err((path.clone(), error));
                    continue;
                }
            }
        }
        sinks.push(sink);
    }
    if sinks.is_empty() {
        sinks.push(LogSink::new(LogTarget::Stderr));
    }
    LOG.with_borrow_mut(|log| {
        **log = Log {
            level: config.level,
            json: config.json,
            sinks,
            lost: log.lost,
        }
    });
    result
}

/// Nothing that this thread does is logged.
#[cfg(test)]
pub(crate) fn be_quiet() {
    LOG.with_borrow_mut(|log| log.level = Level::None);
}

/// Opens the log files anew, after somebody has renamed them (USR1). A file that cannot be opened keeps its old one.
pub fn reopen() {
    let mut failed = None;
    LOG.with_borrow_mut(|log| {
        for sink in &mut log.sinks {
            if let LogTarget::File(path) = &sink.target {
                match append_to(path) {
                    Ok(new) => (sink.outlet, sink.cut) = (Some(new), false),
                    Err(error) => failed = Some((path.clone(), error)),
                }
            }
        }
    });
    if let Some((path, error)) = failed {
        write(
            Level::Error,
            format_args!(
                "cannot reopen log {}: {error}, keeping the old file",
                path.display()
            ),
        );
    }
}

fn append_to(path: &Path) -> io::Result<Outlet> {
    /// `ENXIO`: a FIFO that nobody reads yet.
    const NO_READER: i32 = 6;
    let appends = sys::OPEN_WRITE | sys::OPEN_CREATE | sys::OPEN_APPEND;
    let file = match sys::open(path, appends | OPEN_WITHOUT_WAITING, FILE_MODE) {
        // Held at both ends, it keeps the first lines for who comes later.
        Err(error) if error.raw_os_error() == Some(NO_READER) => {
            sys::open(path, sys::OPEN_READ_WRITE | OPEN_WITHOUT_WAITING, 0)?
        }
        file => file?,
    };
    Ok(Outlet::own(OwnedFd::from(file)))
}

/// Writes one line. Use the macros.
pub fn write(level: Level, message: fmt::Arguments<'_>) {
    LOG.with(|log| {
        // A message that logs while it is formatted would find the log borrowed: lose the inner line, not the process.
        if let Ok(mut log) = log.try_borrow_mut()
            && log.wants(level)
        {
            let line = LogLine::new(log.json, level, message);
            log.put(line.as_bytes());
        }
    });
}

/// The last line of the agent's life: logged, and left where Kubernetes looks for the reason, with the same bytes.
pub fn last_words(level: Level, message: fmt::Arguments<'_>) {
    LOG.with(|log| {
        let Ok(mut log) = log.try_borrow_mut() else {
            return;
        };
        let line = LogLine::new(log.json, level, message);
        if log.wants(level) {
            log.put(line.as_bytes());
        }
        // It is not made: it exists where somebody reads it. As a FIFO without a reader it is no place for a line.
        let flags = sys::OPEN_WRITE | sys::OPEN_TRUNCATE | OPEN_WITHOUT_WAITING;
        if let Ok(file) = sys::open(TERMINATION_LOG.as_ref(), flags, 0) {
            drop(Outlet::own(OwnedFd::from(file)).write(line.as_bytes()));
        }
    });
}

impl Log {
    fn wants(&self, level: Level) -> bool {
        level >= self.level && self.level != Level::None
    }

    fn put(&mut self, line: &[u8]) {
        if self.sinks.is_empty() {
            self.sinks.push(LogSink::new(LogTarget::Stdout));
        }
        let mut whole = true;
        for sink in &mut self.sinks {
            whole &= sink.put(self.json, line);
        }
        self.lost = self.lost.saturating_add(u64::from(!whole));
    }
}

impl LogSink {
    const fn new(target: LogTarget) -> Self {
        Self {
            target,
            outlet: None,
            lost: 0,
            cut: false,
        }
    }

    /// The line, and before it what has been lost. Whether it went in whole.
    fn put(&mut self, json: bool, line: &[u8]) -> bool {
        let mut taken = true;
        if self.lost > 0 {
            let lost = format_args!("{} log lines were lost: the reader is too slow", self.lost);
            taken = self.write(LogLine::new(json, Level::Warn, lost).as_bytes());
        }
        if taken {
            self.lost = 0;
            taken = self.write(line);
        }
        self.lost = self.lost.saturating_add(u64::from(!taken));
        taken
    }

    /// Whether all of it went in.
    fn write(&mut self, line: &[u8]) -> bool {
        let outlet = self.outlet.get_or_insert_with(|| {
            Outlet::shared(match self.target {
                LogTarget::Stderr => sys::stderr(),
                LogTarget::Stdout | LogTarget::File(_) => sys::stdout(),
            })
        });
        // What was cut gets its end first.
        if self.cut && !outlet.write(b"\n").is_ok_and(|written| written == 1) {
            return false;
        }
        let written = outlet.write(line).unwrap_or(0);
        self.cut = written > 0 && written < line.len();
        written == line.len()
    }
}

/// A line being made, cut at `LINE_BYTES`.
struct LogLine {
    bytes: Vec<u8>,
    json: bool,
    /// Inside the message: control characters are escaped, so that a line stays one line.
    escaping: bool,
}

impl LogLine {
    fn new(json: bool, level: Level, message: fmt::Arguments<'_>) -> Self {
        let mut line = Self {
            bytes: Vec::with_capacity(160),
            json,
            escaping: false,
        };
        let now = utc_now();
        // Writing to a Line cannot fail; the results have nothing to say.
        let _: fmt::Result = if json {
            write!(
                line,
                "{{\"level\":\"{}\",\"time\":\"{now}\",\"msg\":\"",
                level.name()
            )
        } else {
            write!(line, "{now}\t{}\t", level.name())
        };
        line.escaping = true;
        let _: fmt::Result = line.write_fmt(message);
        line.escaping = false;
        let end: &[u8] = if json { b"\"}\n" } else { b"\n" };
        line.bytes.extend_from_slice(end);
        line
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Write for LogLine {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            // Room for the longest escape and the end of the line.
            if self.bytes.len() + 12 > LINE_BYTES {
                break;
            }
            let escape = match character {
                _ if !self.escaping => None,
                '"' if self.json => Some("\\\""),
                '\\' if self.json => Some("\\\\"),
                '\n' => Some("\\n"),
                '\t' if self.json => Some("\\t"),
                '\u{0}'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}' if self.json => Some("\\ufffd"),
                '\u{0}'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}' => Some("\u{fffd}"),
                _ => None,
            };
            match escape {
                Some(escape) => self.bytes.extend_from_slice(escape.as_bytes()),
                None => self
                    .bytes
                    .extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        Ok(())
    }
}

/// A moment of UTC as time since 1970, shown as `2026-11-20T23:36:06.292725Z` (RFC 3339).
pub(crate) struct Utc(pub(crate) Duration);

fn utc_now() -> Utc {
    Utc(clock::wall())
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (year, month, day) = civil_from_days(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let micros = self.0.subsec_micros();
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z"
        )
    }
}

/// Days since 1970-01-01 as a date of the Gregorian calendar, by eras of 400 years that begin in March
/// (Howard Hinnant, "chrono-compatible low-level date algorithms").
const fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

macro_rules! debug { ($($arg:tt)*) => { $crate::log::write($crate::log::Level::Debug, format_args!($($arg)*)) } }
macro_rules! info { ($($arg:tt)*) => { $crate::log::write($crate::log::Level::Info, format_args!($($arg)*)) } }
macro_rules! warning { ($($arg:tt)*) => { $crate::log::write($crate::log::Level::Warn, format_args!($($arg)*)) } }
macro_rules! error { ($($arg:tt)*) => { $crate::log::write($crate::log::Level::Error, format_args!($($arg)*)) } }
pub(crate) use {debug, error, info, warning};

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &LogLine) -> &str {
        std::str::from_utf8(line.as_bytes()).unwrap()
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let shown = |seconds, micros: u32| Utc(Duration::new(seconds, micros * 1000)).to_string();
        assert_eq!(shown(0, 0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(shown(951_782_400, 7), "2000-02-29T00:00:00.000007Z");
        assert_eq!(shown(1_795_217_766, 292_725), "2026-11-20T23:36:06.292725Z");
        assert_eq!(shown(4_107_542_399, 0), "2100-02-28T23:59:59.000000Z");
    }

    #[test]
    fn a_message_stays_on_one_line() {
        let line = LogLine::new(false, Level::Warn, format_args!("a\nb\u{1}c"));
        assert!(
            text(&line).ends_with("\twarn\ta\\nb\u{fffd}c\n"),
            "{}",
            text(&line)
        );
    }

    #[test]
    fn json_lines_are_json() {
        let line = LogLine::new(
            true,
            Level::Error,
            format_args!("say \"hi\" \\ {}\n\u{0}", "é"),
        );
        let value: serde_json::Value = serde_json::from_str(text(&line)).unwrap();
        assert_eq!(value["level"], "error");
        assert_eq!(value["msg"], "say \"hi\" \\ é\n\u{fffd}");
    }

    #[test]
    fn a_long_line_is_cut_and_still_ends() {
        let long = "é\"".repeat(5000);
        for json in [false, true] {
            let line = LogLine::new(json, Level::Info, format_args!("{long}"));
            assert!(line.as_bytes().len() <= LINE_BYTES);
            assert!(text(&line).ends_with('\n'));
            assert!(!json || serde_json::from_str::<serde_json::Value>(text(&line)).is_ok());
        }
    }
}
