//! The log: one line, one `write`, as pintle writes it: time, level and message between tabs, or a JSON object.
//!
//! All events go through `tracing`; this is the subscriber. Writing never blocks: a sink that takes no line loses it, and
//! the next line that it takes is the number of lost ones. Events of libraries pass from "warn" on.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use api::text;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use serde_json::json;
use time::OffsetDateTime;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::cli::LogFlags;

/// The longest line, with its end: what POSIX lets a pipe take at once (`PIPE_BUF` on Linux), so lines never mix.
const MAX_LINE_BYTES: usize = 4096;
/// Targets of gudgeon's own events; all others are libraries'.
const OWN: [&str; 4] = ["gudgeon", "inject", "sources", "api"];

#[derive(Debug)]
enum Target {
    Stdout,
    Stderr,
    File(File, PathBuf),
}

#[derive(Debug)]
struct Sink {
    target: Target,
    lost: u64,
}

#[derive(Debug)]
struct Log {
    level: LevelFilter,
    json: bool,
    sinks: &'static Mutex<Vec<Sink>>,
}

/// Sinks of the one global log.
static SINKS: Mutex<Vec<Sink>> = Mutex::new(Vec::new());

/// Lines that some sink has lost, for the metrics.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Lines lost since the start.
#[must_use]
pub(crate) fn lost_lines() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Opens the log.
///
/// # Errors
/// An unknown level, or a file that cannot be opened.
pub(crate) fn open(flags: &LogFlags, otherwise: &str) -> Result<(), String> {
    let mut names = flags.log_target.clone();
    if names.is_empty() {
        names.push(otherwise.to_owned());
    }
    let mut sinks = Vec::with_capacity(names.len());
    for name in names {
        let target = match name.as_str() {
            "stdout" => Target::Stdout,
            "stderr" => Target::Stderr,
            path => Target::File(open_file(Path::new(path))?, path.into()),
        };
        sinks.push(Sink { target, lost: 0 });
    }
    if let Ok(mut all) = SINKS.lock() {
        // A second log is ignored: the first goes on.
        if all.is_empty() {
            *all = sinks;
        }
    }
    let log = Log {
        level: level(&flags.log_output_level)?,
        json: flags.log_as_json,
        sinks: &SINKS,
    };
    // Only a second subscriber is refused: the first goes on.
    let _first = tracing::subscriber::set_global_default(log);
    Ok(())
}

fn open_file(path: &Path) -> Result<File, String> {
    let mut options = OpenOptions::new();
    // A pipe without a reader must not block the program.
    #[expect(clippy::cast_possible_wrap, reason = "the flags are the kernel's int")]
    options
        .create(true)
        .append(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32);
    let opened = options.open(path);
    opened.map_err(|cause| format!("cannot open log {}: {cause}", path.display()))
}

/// The timeout of opening a log's file: its mount's server may be gone.
const OPENED: Duration = Duration::from_secs(10);

/// Reopens the log's files by their names, on another thread: a log that was renamed gets a new file.
#[derive(Debug)]
pub(crate) struct Reopening {
    sinks: &'static Mutex<Vec<Sink>>,
    /// By the number of the sink: what does not answer is not asked once more before it does.
    under_way: BTreeMap<usize, JoinHandle<Result<File, String>>>,
}

impl Reopening {
    pub(crate) const fn new() -> Self {
        Self {
            sinks: &SINKS,
            under_way: BTreeMap::new(),
        }
    }

    /// Returns the number of files opened, and the errors of the others, which keep their open file.
    pub(crate) async fn reopen(&mut self) -> (usize, Vec<String>) {
        let mut count = 0;
        let mut wrong = Vec::new();
        for (at, path) in self.files() {
            match self.opened(at, path).await {
                Ok(opened) => {
                    self.put(at, opened);
                    count += 1;
                }
                Err(cause) => wrong.push(cause),
            }
        }
        (count, wrong)
    }

    /// Copies the names: the lock is not held while a file is opened, since any task may log.
    fn files(&self) -> Vec<(usize, PathBuf)> {
        let Ok(sinks) = self.sinks.lock() else {
            return Vec::new();
        };
        let files = sinks.iter().enumerate();
        let files = files.filter_map(|(at, sink)| match &sink.target {
            Target::File(_, path) => Some((at, path.clone())),
            Target::Stdout | Target::Stderr => None,
        });
        files.collect()
    }

    async fn opened(&mut self, at: usize, path: PathBuf) -> Result<File, String> {
        let hangs = format!("cannot open log {}: it hangs", path.display());
        let task = self.under_way.entry(at);
        let task = task.or_insert_with(|| spawn_blocking(move || open_file(&path)));
        let opened = timeout(OPENED, task).await.map_err(|_| hangs)?;
        self.under_way.remove(&at);
        opened.map_err(|cause| format!("cannot open log: {cause}"))?
    }

    fn put(&self, at: usize, opened: File) {
        if let Ok(mut sinks) = self.sinks.lock()
            && let Some(sink) = sinks.get_mut(at)
            && let Target::File(file, _) = &mut sink.target
        {
            *file = opened;
        }
    }
}

/// `info`, or Istio's `default:info,model:debug`: of the scopes only `default` and `all` count.
fn level(text: &str) -> Result<LevelFilter, String> {
    let mut filter = LevelFilter::INFO;
    for part in text.split(',').map(str::trim) {
        let (scope, name) = part.split_once(':').unwrap_or(("default", part));
        let level = match name {
            "debug" => LevelFilter::DEBUG,
            "info" => LevelFilter::INFO,
            "warn" => LevelFilter::WARN,
            "error" | "fatal" => LevelFilter::ERROR,
            "none" => LevelFilter::OFF,
            _ => {
                return Err(format!(
                    "cannot use --log_output_level {text:?}: want debug, info, warn, error or none"
                ));
            }
        };
        if matches!(scope, "default" | "all") {
            filter = level;
        }
    }
    Ok(filter)
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let own = metadata
            .target()
            .split("::")
            .next()
            .is_some_and(|crate_name| OWN.contains(&crate_name));
        let level = if own {
            self.level
        } else {
            self.level.min(LevelFilter::WARN)
        };
        *metadata.level() <= level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = EventText::default();
        event.record(&mut text);
        let line = render(
            self.json,
            SystemTime::now(),
            *event.metadata().level(),
            &text,
        );
        if let Ok(mut sinks) = self.sinks.lock() {
            for sink in sinks.iter_mut() {
                sink.put(self.json, &line);
            }
        }
    }

    // Spans are not used here: one ID for all.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// An event's message, and its fields as ` name=value`.
#[derive(Debug, Default)]
struct EventText {
    message: String,
    fields: String,
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _written = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

fn render(json: bool, now: SystemTime, level: Level, event: &EventText) -> Vec<u8> {
    let time = stamp(now);
    let level = match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        _ => "debug",
    };
    let EventText { message, fields } = event;
    if json {
        let mut room = MAX_LINE_BYTES;
        loop {
            let text = cut(message, fields, room).replace(text::is_directional, "\u{fffd}");
            let mut line = json!({"time": time, "level": level, "msg": text}).to_string();
            line.push('\n');
            if line.len() <= MAX_LINE_BYTES || room < 64 {
                return line.into_bytes();
            }
            // Escapes take more room than the characters they replace.
            room /= 2;
        }
    }
    let head = format!("{time}\t{level}\t");
    let mut line = head.clone();
    // A message stays on one line, whatever it quotes; and no escape sequence reaches a terminal.
    for letter in cut(message, fields, MAX_LINE_BYTES - head.len() - 1).chars() {
        let printable = if text::is_control(letter) {
            '\u{fffd}'
        } else {
            letter
        };
        if line.len() + printable.len_utf8() >= MAX_LINE_BYTES {
            break;
        }
        line.push(printable);
    }
    line.push('\n');
    line.into_bytes()
}

fn cut(message: &str, fields: &str, room: usize) -> String {
    let mut text = format!("{message}{fields}");
    text.truncate(text::cut(&text, room).len());
    text
}

/// `2026-11-20T23:36:06.292725Z`.
pub(crate) fn stamp(time: SystemTime) -> String {
    let t = OffsetDateTime::from(time);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
        t.year(),
        u8::from(t.month()),
        t.day(),
        t.hour(),
        t.minute(),
        t.second(),
        t.microsecond()
    )
}

impl Sink {
    fn put(&mut self, json: bool, line: &[u8]) {
        if !self.takes_a_line() {
            self.lose();
            return;
        }
        if self.lost > 0 {
            let notice = EventText {
                message: format!("{} log lines were lost", self.lost),
                fields: String::new(),
            };
            if self.write(&render(json, SystemTime::now(), Level::WARN, &notice)) {
                self.lost = 0;
            }
            // The notice may have taken the last room.
            if !self.takes_a_line() {
                self.lose();
                return;
            }
        }
        if !self.write(line) {
            self.lose();
        }
    }

    fn lose(&mut self) {
        self.lost += 1;
        LOST.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if a line can be written without blocking: poll reports a pipe as writable when it has room for
    /// `PIPE_BUF`.
    fn takes_a_line(&self) -> bool {
        fn ask(fd: &impl AsFd) -> bool {
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let mut fds = [PollFd::new(fd, PollFlags::OUT)];
            rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
        }
        match &self.target {
            Target::Stdout => ask(&std::io::stdout()),
            Target::Stderr => ask(&std::io::stderr()),
            Target::File(file, _) => ask(file),
        }
    }

    fn write(&mut self, line: &[u8]) -> bool {
        match &mut self.target {
            // Past the buffer of the standard library: one line, one system call.
            Target::Stdout => rustix::io::write(std::io::stdout(), line).is_ok(),
            Target::Stderr => rustix::io::write(std::io::stderr(), line).is_ok(),
            Target::File(file, _) => file.write_all(line).is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn event_text(message: &str) -> EventText {
        EventText {
            message: message.to_owned(),
            fields: " port=1".to_owned(),
        }
    }

    #[test]
    fn a_line_is_pintles() {
        let time = UNIX_EPOCH + Duration::from_micros(1_700_000_000_292_725);
        let line = render(false, time, Level::INFO, &event_text("a\nb"));
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "2023-11-14T22:13:20.292725Z\tinfo\ta\u{fffd}b port=1\n"
        );
        let line = render(true, time, Level::WARN, &event_text("a\nb"));
        let json: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(json["msg"], "a\nb port=1");
        assert_eq!(json["level"], "warn");
        // What turns the direction of writing would show a client's words as ours.
        for json in [false, true] {
            let line = render(json, time, Level::INFO, &event_text("a\u{202e}b"));
            let line = String::from_utf8(line).unwrap();
            assert!(line.contains("a\u{fffd}b port=1"), "{line:?}");
        }
    }

    #[test]
    fn no_line_is_longer_than_a_pipe_takes() {
        for text in [
            "x".repeat(9000),
            "\u{1}".repeat(9000),
            "\u{fffd}".repeat(9000),
        ] {
            for json in [false, true] {
                let line = render(json, UNIX_EPOCH, Level::INFO, &event_text(&text));
                assert!(
                    line.len() <= MAX_LINE_BYTES && line.ends_with(b"\n"),
                    "{}",
                    line.len()
                );
                assert!(String::from_utf8(line).is_ok());
            }
        }
    }

    #[tokio::test]
    async fn each_file_is_opened_again_whatever_the_others_say() {
        let root = tempfile::tempdir().unwrap();
        let paths = ["gone/a", "b", "pipe"].map(|name| root.path().join(name));
        std::fs::create_dir(root.path().join("gone")).unwrap();
        let sinks = paths.iter().map(|path| Sink {
            target: Target::File(open_file(path).unwrap(), path.clone()),
            lost: 0,
        });
        let sinks = Box::leak(Box::new(Mutex::new(sinks.collect())));
        let mut log = Reopening {
            sinks,
            under_way: BTreeMap::new(),
        };
        std::fs::remove_dir_all(root.path().join("gone")).unwrap();
        std::fs::rename(&paths[1], root.path().join("old")).unwrap();
        std::fs::remove_file(&paths[2]).unwrap();
        let (cwd, fifo) = (rustix::fs::CWD, rustix::fs::FileType::Fifo);
        rustix::fs::mknodat(cwd, &paths[2], fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        let (count, wrong) = log.reopen().await;
        assert_eq!((count, wrong.len()), (1, 2), "{wrong:?}");
        assert!(wrong[0].contains("gone/a") && wrong[1].contains("pipe"));
        for sink in log.sinks.lock().unwrap().iter_mut() {
            sink.put(false, b"line\n");
        }
        assert_eq!(std::fs::read(&paths[1]).unwrap(), b"line\n");
    }

    #[test]
    fn the_line_about_lost_lines_has_the_form_of_the_others() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("log");
        let mut sink = Sink {
            target: Target::File(open_file(&path).unwrap(), path.clone()),
            lost: 3,
        };
        sink.put(true, b"{}\n");
        let written = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> = written
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines[0]["msg"], "3 log lines were lost");
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn levels_are_istios_too() {
        assert_eq!(level("debug"), Ok(LevelFilter::DEBUG));
        assert_eq!(level("default:warn,model:debug"), Ok(LevelFilter::WARN));
        assert_eq!(level("all:none"), Ok(LevelFilter::OFF));
        assert_eq!(level("model:debug"), Ok(LevelFilter::INFO));
        assert!(level("loud").is_err());
    }
}
