//! The everyday commands: `request`, `wait`, `probe`, `status`, `drain` and `quit`. They ask the agent or its proxy from
//! outside, as any client does, and share nothing with the event loop but the parser of answers.
//!
//! Here things may block: each command is a process of its own, with one bound on its waiting. A signal ends it.

#![forbid(unsafe_code)]

mod exchange;
mod status;

use std::io::{ErrorKind, IsTerminal as _};
use std::time::Duration;

use self::exchange::{Allowance, Failure, HttpRequest, exchange};
use self::status::Paint;
use crate::cli::{ClientArgs, Task};
use crate::clock;
use crate::http::{Decoder, Response};
use crate::supervisor::Seconds;
use crate::url::Url;

/// For an answer of Envoy's admin port, as in `pilot-agent request`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// For `probe` and `status`. Chosen: kubelet ends an exec probe by itself, by default after 1 s.
const QUICK_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two looks of `status --watch`. Chosen: what a person follows.
const WATCH_PERIOD: Duration = Duration::from_secs(1);
/// Bytes kept of an answer that says no. Chosen: a reason is a line.
const REASON_BYTES: usize = 4 * 1024;
/// The longest `/status`, in bytes. Chosen: 32 events and 32 epochs are about 10 kB.
const STATUS_BYTES: usize = 256 * 1024;
/// Between two tries to write to an output that takes nothing at the moment. Chosen: a person sees no delay.
const OUTPUT_PAUSE: Duration = Duration::from_millis(10);
/// The cursor to the corner, and everything after it gone.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Does it; returns the exit code.
#[must_use]
// Not inlined: the caller's frame must not hold its locals.
#[inline(never)]
pub(crate) fn run(args: &ClientArgs) -> u8 {
    let (verb, result) = match args.task {
        Task::Request => (args.method.as_str(), request(args)),
        Task::Wait => ("get 200 from", wait(args)),
        Task::Probe => ("get 200 from", ask_200(&args.url, QUICK_TIMEOUT)),
        Task::Order => {
            let mut answer = Response::new(REASON_BYTES);
            let done = fetch(&args.url, HttpRequest::POST, QUICK_TIMEOUT, &mut answer);
            ("POST", done)
        }
        Task::Status => ("GET", status(args)),
    };
    match result {
        Ok(()) | Err(Failure::ReaderGone) => 0,
        Err(failure) => fail(&said(verb, args, &failure)),
    }
}

/// Prints all of a text, as a command that has nothing else to do; returns its exit code, which is `code` if that was
/// possible.
#[must_use]
pub(crate) fn print(text: &str, code: u8) -> u8 {
    match put(text.as_bytes()) {
        Ok(()) | Err(Failure::ReaderGone) => code,
        Err(failure) => fail(&not_written(&failure.why())),
    }
}

fn fail(line: &str) -> u8 {
    // A reader that has gone is no error.
    sys::write_all(sys::stderr(), line.as_bytes());
    1
}

fn not_written(why: &str) -> String {
    ["pintle: cannot write to stdout: ", why, "\n"].concat()
}

/// `cannot <verb> <object>: <cause>`, as a line.
fn said(verb: &str, args: &ClientArgs, failure: &Failure) -> String {
    let (url, why) = (args.url.to_string(), failure.why());
    if matches!(failure, Failure::Output(_)) {
        return not_written(&why);
    }
    let asks_agent = matches!(args.task, Task::Status | Task::Order);
    let remedy = if asks_agent && matches!(failure, Failure::Unheard(_)) {
        "; is it --status-port?\n"
    } else {
        "\n"
    };
    ["pintle: cannot ", verb, " ", &url, ": ", &why, remedy].concat()
}

fn wait(args: &ClientArgs) -> Result<(), Failure> {
    let millis = |number: u32| Duration::from_millis(number.into());
    let timeout = Duration::from_secs(args.flags.timeout_seconds.into());
    let request_timeout = millis(args.flags.request_timeout_millis);
    let period = millis(args.flags.period_millis);
    let began = clock::read();
    let left = || {
        let spent = clock::read().saturating_duration_since(began);
        timeout.saturating_sub(spent)
    };
    let mut last: Option<Failure> = None;
    loop {
        // The first try is a whole one, whatever the bound.
        let limit = match last {
            None => request_timeout,
            Some(_) => request_timeout.min(left()),
        };
        match ask_200(&args.url, limit) {
            Ok(()) => return Ok(()),
            // Cut short by this command's bound, a try says less than the one before it.
            Err(Failure::Late(_)) if limit < request_timeout => {}
            Err(failure) => last = Some(failure),
        }
        let left = left();
        if left.is_zero() {
            let last = last.map(|failure| failure.why()).unwrap_or_default();
            let waited = Seconds(timeout).to_string();
            return Err(Failure::Other(
                ["waited ", &waited, ", last error: ", &last].concat(),
            ));
        }
        sys::pause(left.min(period));
    }
}

fn status(args: &ClientArgs) -> Result<(), Failure> {
    let terminal = sys::stdout().is_terminal() && variable_says("TERM", "dumb");
    let paint = if terminal && !variable_says("NO_COLOR", "") {
        Paint::Colours
    } else {
        Paint::Plain
    };
    let mut shown = look(args, paint)?;
    if !args.flags.watch {
        return put(&shown);
    }
    // Redrawn in its place, or one below the other.
    let (before, after) = if terminal { (CLEAR, "") } else { ("", "\n") };
    loop {
        put(&[before.as_bytes(), &shown, after.as_bytes()].concat())?;
        sys::pause(WATCH_PERIOD);
        // The agent is being restarted, say: that is what a watcher came to see.
        shown =
            look(args, paint).unwrap_or_else(|failure| said("GET", args, &failure).into_bytes());
    }
}

/// Returns the status, as it is shown.
fn look(args: &ClientArgs, paint: Paint) -> Result<Vec<u8>, Failure> {
    let mut response = Response::new(STATUS_BYTES);
    fetch(&args.url, HttpRequest::GET, QUICK_TIMEOUT, &mut response)?;
    if response.is_cut() {
        return Err(Failure::other("the answer is longer than 256 kB"));
    }
    let body = response.body();
    if args.flags.json {
        let end: &[u8] = if body.ends_with(b"\n") { b"" } else { b"\n" };
        return Ok([body, end].concat());
    }
    let table = status::render(body, paint).map(String::into_bytes);
    table.ok_or_else(|| Failure::other("the answer is not a status of pintle's"))
}

/// Whether a variable is set, and neither empty nor `other`.
fn variable_says(name: &str, other: &str) -> bool {
    let mut variables = sys::variables().into_iter();
    let found = variables.find(|(known, _)| *known == name);
    found.is_some_and(|(_, value)| !value.is_empty() && value != other)
}

/// One try: whether the answer is 200.
fn ask_200(url: &Url, limit: Duration) -> Result<(), Failure> {
    fetch(
        url,
        HttpRequest::GET,
        limit,
        &mut Response::new(REASON_BYTES),
    )
}

/// Takes the answer, if its status is 200.
fn fetch(
    url: &Url,
    request: HttpRequest<'_>,
    limit: Duration,
    response: &mut Response,
) -> Result<(), Failure> {
    let allowance = Allowance::new(limit);
    let result = exchange(url, request, &allowance, &mut |bytes| {
        response.take(bytes).map_err(|_| Failure::malformed())
    });
    match response.status() {
        // A body that never ends does not hide what the status says.
        Some(status) if status != 200 => Err(refusal_of(status, &reason(response.body()))),
        Some(_) | None => result,
    }
}

/// Prints the answer as it comes. A status above 399 is a failure and prints nothing, but for 404, as in pilot-agent.
fn request(args: &ClientArgs) -> Result<(), Failure> {
    let request = HttpRequest {
        method: &args.method,
        body: args.body,
    };
    let mut decoder = if request.method == "HEAD" {
        Decoder::without_body()
    } else {
        Decoder::new()
    };
    let mut refusal = None;
    let mut last = None;
    let mut piece = Vec::new();
    let allowance = Allowance::new(REQUEST_TIMEOUT);
    let result = exchange(&args.url, request, &allowance, &mut |bytes| {
        piece.clear();
        let taken = decoder.take(bytes, &mut |part| piece.extend_from_slice(part));
        let done = taken.map_err(|_| Failure::malformed())?;
        let status = decoder.head().map(|head| head.status);
        if let Some(status) = status.filter(|status| *status > 399 && *status != 404) {
            let (_, body) = refusal.get_or_insert_with(|| (status, Vec::new()));
            let room = REASON_BYTES.saturating_sub(body.len());
            body.extend_from_slice(piece.get(..room).unwrap_or(&piece));
            return Ok(done || body.len() >= REASON_BYTES);
        }
        allowance.excuse(|| put(&piece))?;
        last = piece.last().copied().or(last);
        Ok(done)
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
        if sys::stdout_was_closed() {
            return Err(Failure::Output("it is closed".to_owned()));
        }
        let error = match sys::write(sys::stdout(), bytes) {
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
            return Err(Failure::Output(error.to_string()));
        }
    }
    Ok(())
}
