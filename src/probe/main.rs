//! `pintle-probe`: one HTTPS or gRPC health probe. `pintle` starts it once per probe, so that PID 1 has no TLS in it.
//!
//! ```text
//! pintle-probe https 127.0.0.1:8443 [--timeout-millis N]                    the request's head on stdin
//! pintle-probe grpc 127.0.0.1:9000 [--service NAME] [--timeout-millis N]
//! ```
//!
//! `--option=value` is understood too. Of the request its method, path and headers go to the server, without those that concern one connection; SNI is the
//! name in `Host`, if it is one. No certificate is verified, and no redirect is followed: that is the starter's business.
//!
//! In any case one HTTP/1.1 response goes to stdout, framed by `Content-Length`: the server's own, cut to the parts that a
//! probe needs (status, `Location`, `Content-Type`, 10 KiB of body), of a gRPC server 200 `SERVING`, or a 500 with one
//! line `cannot <verb> <object>: <cause>` or `service is <status>`. `pintle` can so treat the helper like any other
//! server. stdin and stdout may be the two directions of one socket, and are blocking or not as the starter likes.
//!
//! One probe takes these modules in turn: `arguments`, `request` (the head from stdin, by `input`), `connection` and
//! `tls`, then `https` or `grpc`, at last `answer` and `output`. Every step runs under the one `deadline`, and what
//! goes wrong in it is a `failure`.
//!
//! Exit codes: 0 for an answer (of a gRPC server: SERVING), 1 for a failure, 64 for wrong arguments, which are told on
//! stderr alone. When stdout is gone, nobody waits for the answer any more: the helper ends at once and says nothing.

#![forbid(unsafe_code)]

mod answer;
mod arguments;
mod connection;
mod deadline;
mod failure;
mod grpc;
mod https;
mod input;
mod output;
mod request;
mod tls;

use std::process::ExitCode;

use answer::Answer;
use arguments::{Command, Stop};
use deadline::Deadline;
use failure::Failure;

/// An answer was written (of a gRPC server: SERVING).
const ANSWERED: u8 = 0;
/// A 500 of the helper's own was written, or nobody was there to read it.
const FAILED: u8 = 1;
/// `EX_USAGE` of sysexits.h.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let start = deadline::now();
    let command = match arguments::parse(std::env::args_os().skip(1)) {
        Ok(command) => command,
        Err(Stop::Say(text)) => {
            return ExitCode::from(output::say(&text).map_or(FAILED, |()| ANSWERED));
        }
        Err(Stop::Usage(text)) => {
            output::complain(&text);
            return ExitCode::from(USAGE);
        }
    };
    let deadline = Deadline::new(start, command.timeout());
    let (answer, code) = match run(command, deadline) {
        Ok(Some(answer)) => (answer, ANSWERED),
        // stdout is gone.
        Ok(None) => return ExitCode::from(FAILED),
        Err(failure) => (Answer::failure(&failure), FAILED),
    };
    let written = output::write(&answer.encode(), deadline);
    ExitCode::from(written.map_or(FAILED, |()| code))
}

/// The probe's answer, or none when nobody waits for it any more.
fn run(command: Command, deadline: Deadline) -> Result<Option<Answer>, Failure> {
    // Before anything else: it needs no runtime.
    let request = match &command {
        Command::Https { address, .. } => {
            Some(request::parse(&input::read_head(deadline)?, *address)?)
        }
        Command::Grpc { .. } => None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| Failure::of("start the probe", &error))?;
    runtime.block_on(async {
        let probe = async {
            match (command, request) {
                (
                    Command::Grpc {
                        address, service, ..
                    },
                    _,
                ) => grpc::probe(address, service, deadline).await,
                (Command::Https { address, .. }, Some(request)) => {
                    https::probe(address, request, deadline).await
                }
                (Command::Https { .. }, None) => Err(Failure::new("read the request", "none")),
            }
        };
        tokio::select! {
            answer = probe => answer.map(Some),
            () = output::gone() => Ok(None),
        }
    })
}
