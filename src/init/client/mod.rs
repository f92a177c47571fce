//! The everyday commands: `request`, `wait`, `probe` and `status`. They ask the agent or its proxy from outside, as any
//! client does, and share nothing with the event loop but the parser of answers.
//!
//! Here things may block: each command is a process of its own, with one bound on its waiting. A signal ends it.

#![forbid(unsafe_code)]

mod exchange;
mod status;
mod url;

use std::fmt;
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

use self::exchange::{Allowance, Ask, Failure, exchange, read_clock};
use self::status::Paint;
pub(crate) use self::url::{Url, UrlError, path};
use crate::cli::{ClientArgs, ProbeArgs, RequestArgs, StatusArgs, WaitArgs};
use crate::http::{Decoder, Response};
use crate::sys;

/// For an answer of Envoy's admin port (the contract's 60 s).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// For `probe` and `status`: what kubelet's probes may cost here at most is less.
const QUICK_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two looks of `status --watch`.
const WATCH_PERIOD: Duration = Duration::from_secs(1);
/// What is kept of an answer that says no, in bytes; a reason is a line.
const REASON_BYTES: usize = 4 * 1024;
/// The longest `/status`, in bytes: 32 events and 32 epochs are about 10 kB.
const STATUS_BYTES: usize = 256 * 1024;
/// Between two tries to write to an output that takes nothing at the moment.
const OUTPUT_PAUSE: Duration = Duration::from_millis(10);
/// The cursor to the corner, and everything after it gone.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Does it; returns the exit code.
#[must_use]
pub(crate) fn run(args: &ClientArgs) -> u8 {
    let result = match args {
        ClientArgs::Request(args) => request(args),
        ClientArgs::Wait(args) => wait(args),
        ClientArgs::Probe(ProbeArgs { url }) => {
            let mut allowance = Allowance::new(QUICK_TIMEOUT);
            ask_200(url, &mut allowance).map_err(|failure| said("get 200 from", url, &failure))
        }
        ClientArgs::Status(args) => status(args),
    };
    match result {
        Ok(()) => 0,
        Err(message) => {
            // A reader that has gone has no use for it.
            drop(io::stderr().write_all(message.as_bytes()));
            u8::from(!message.is_empty())
        }
    }
}

/// `cannot <verb> <object>: <cause>`, as a line; empty when nobody is there to read it, which is no failure.
fn said(verb: &str, object: &dyn fmt::Display, failure: &Failure) -> String {
    if matches!(failure, Failure::ReaderGone) {
        return String::new();
    }
    let (object, why) = (object.to_string(), failure.why());
    ["pintle: cannot ", verb, " ", &object, ": ", &why, "\n"].concat()
}

fn request(args: &RequestArgs) -> Result<(), String> {
    let url = Url::here(args.port, args.path.clone());
    let ask = Ask {
        method: &args.method,
        body: args.body.as_deref(),
    };
    // As pilot-agent: 404 is an answer.
    pass_on(&url, ask, Some(404)).map_err(|failure| said(&args.method, &url, &failure))
}

fn wait(args: &WaitArgs) -> Result<(), String> {
    let began = read_clock();
    let mut last: Option<Failure> = None;
    loop {
        let spent = read_clock().saturating_duration_since(began);
        let left = args.timeout.saturating_sub(spent);
        // The first try is a whole one, whatever the bound.
        let limit = match last {
            None => args.request_timeout,
            Some(_) => args.request_timeout.min(left),
        };
        match ask_200(&args.url, &mut Allowance::new(limit)) {
            Ok(()) => return Ok(()),
            // Cut short by our own bound, a try says less than the one before it.
            Err(Failure::Late(_)) if limit < args.request_timeout => {}
            Err(failure) => last = Some(failure),
        }
        let spent = read_clock().saturating_duration_since(began);
        let left = args.timeout.saturating_sub(spent);
        let Some(failure) = last.as_ref().filter(|_| left.is_zero()) else {
            sys::pause(left.min(args.period));
            continue;
        };
        let seconds = args.timeout.as_secs();
        let object = format_args!("{} within {seconds} s", args.url).to_string();
        return Err(said("get 200 from", &object, failure));
    }
}

fn status(args: &StatusArgs) -> Result<(), String> {
    let url = Url::here(args.port, "/status".to_owned());
    let failed = |failure: Failure| said("get the status from", &url, &failure);
    let terminal = io::stdout().is_terminal() && variable_says("TERM", |term| term != "dumb");
    let paint = if terminal && !variable_says("NO_COLOR", |_| true) {
        Paint::Colours
    } else {
        Paint::Plain
    };
    let mut first = true;
    loop {
        if args.watch && terminal {
            // In one write with what follows, where that is a table, would flicker less; JSON is not held.
            put(CLEAR.as_bytes()).map_err(failed)?;
        } else if !first {
            put(b"\n").map_err(failed)?;
        }
        match look(&url, args, paint) {
            Err(failure) if first || !args.watch => return Err(failed(failure)),
            // The agent is being restarted, say: that is what a watcher came to see.
            Err(failure) => {
                let message = failed(failure);
                if message.is_empty() {
                    return Err(message);
                }
                put(message.as_bytes()).map_err(failed)?;
            }
            Ok(()) if !args.watch => return Ok(()),
            Ok(()) => {}
        }
        first = false;
        sys::pause(WATCH_PERIOD);
    }
}

/// Prints the status once.
fn look(url: &Url, args: &StatusArgs, paint: Paint) -> Result<(), Failure> {
    if args.json {
        return pass_on(url, Ask::GET, None);
    }
    let mut response = Response::new(STATUS_BYTES);
    fetch(url, &mut Allowance::new(QUICK_TIMEOUT), &mut response)?;
    if response.is_cut() {
        return Err(Failure::other("the answer is longer than 256 kB"));
    }
    match status::render(response.body(), paint) {
        Some(table) => put(table.as_bytes()),
        None => Err(Failure::other("the answer is not a status of pintle's")),
    }
}

/// A variable that is set and not empty, and of which `holds` is true.
fn variable_says(name: &str, holds: impl Fn(&str) -> bool) -> bool {
    let value = std::env::var_os(name).unwrap_or_default();
    !value.is_empty() && holds(&value.to_string_lossy())
}

/// One try: whether the answer is 200.
fn ask_200(url: &Url, allowance: &mut Allowance) -> Result<(), Failure> {
    fetch(url, allowance, &mut Response::new(REASON_BYTES))
}

/// Takes the answer to a GET, if its status is 200.
fn fetch(url: &Url, allowance: &mut Allowance, response: &mut Response) -> Result<(), Failure> {
    let result = exchange(url, Ask::GET, allowance, &mut |bytes| {
        if bytes.is_empty() {
            return Ok(response.close());
        }
        response.feed(bytes).map_err(|_| Failure::malformed())?;
        Ok(response.is_done())
    });
    match response.status() {
        // A body that never ends does not hide what the status says.
        Some(status) if status != 200 => Err(refusal_of(status, &reason(response.body()))),
        Some(_) | None => result,
    }
}

/// Prints the answer as it comes. A status above 399 is a failure and prints nothing, unless it is `accepted`.
fn pass_on(url: &Url, ask: Ask<'_>, accepted: Option<u16>) -> Result<(), Failure> {
    let mut decoder = if ask.method == "HEAD" {
        Decoder::without_body()
    } else {
        Decoder::new()
    };
    let mut refusal = None;
    let mut last = None;
    let mut piece = Vec::new();
    let mut allowance = Allowance::new(REQUEST_TIMEOUT);
    let result = exchange(url, ask, &mut allowance, &mut |bytes| {
        if bytes.is_empty() {
            return Ok(decoder.close());
        }
        piece.clear();
        let fed = decoder.feed(bytes, &mut |part| piece.extend_from_slice(part));
        fed.map_err(|_| Failure::malformed())?;
        let status = decoder.head().map(|head| head.status);
        if let Some(status) = status.filter(|status| *status > 399 && accepted != Some(*status)) {
            let (_, body) = refusal.get_or_insert_with(|| (status, Vec::new()));
            let room = REASON_BYTES.saturating_sub(body.len());
            body.extend_from_slice(piece.get(..room).unwrap_or(&piece));
            return Ok(decoder.is_done() || body.len() >= REASON_BYTES);
        }
        put(&piece)?;
        last = piece.last().copied().or(last);
        Ok(decoder.is_done())
    });
    if let Some((status, body)) = refusal {
        return Err(refusal_of(status, &status::harmless(&body, '\n')));
    }
    // Also after half an answer: what follows on the terminal begins a line of its own.
    if last.is_some_and(|last| last != b'\n') {
        put(b"\n")?;
    }
    result
}

/// The answer is no success.
fn refusal_of(status: u16, body: &str) -> Failure {
    let body = body.trim_end();
    let colon = if body.is_empty() { "" } else { ": " };
    Failure::Other(["status ", &status.to_string(), colon, body].concat())
}

/// The first line of an answer that says no.
fn reason(body: &[u8]) -> String {
    let line = body.trim_ascii_start().split(|byte| *byte == b'\n').next();
    status::harmless(line.unwrap_or_default().trim_ascii_end(), ' ')
}

/// Writes to stdout, all of it and without a buffer.
fn put(mut bytes: &[u8]) -> Result<(), Failure> {
    while !bytes.is_empty() {
        let error = match sys::write(io::stdout().as_fd(), bytes) {
            Ok(written) => {
                bytes = bytes.get(written..).unwrap_or_default();
                continue;
            }
            Err(error) => error,
        };
        let kind = error.kind();
        if kind == ErrorKind::BrokenPipe {
            return Err(Failure::ReaderGone);
        }
        if kind == ErrorKind::WouldBlock {
            // Somebody else made it non-blocking: a terminal is shared.
            sys::pause(OUTPUT_PAUSE);
        } else if kind != ErrorKind::Interrupted {
            return Err(Failure::Other(error.to_string()));
        }
    }
    Ok(())
}
