//! `load`: a benchmarking client of gudgeon's webhook. Prints one JSON object.
//!
//! Every response is checked: a wrong one ends the run, so that a figure is always one of right responses.

#![forbid(unsafe_code)]

mod answer;
mod connection;
mod figures;
mod pace;

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;

use argh::FromArgs;
use bytes::Bytes;
use tokio::runtime;
use tokio::task::LocalSet;

use answer::{Asked, Wanted};
use connection::Connection;
use figures::Share;

/// Any error ends the program, so its type does not matter.
type Failure = Box<dyn std::error::Error>;

/// Sends reviews to a webhook over kept TLS connections, and counts.
#[derive(FromArgs)]
struct Flags {
    /// where it listens
    #[argh(option)]
    address: SocketAddr,
    /// its CA certificate, PEM
    #[argh(option)]
    ca: String,
    /// the process whose processor time is counted
    #[argh(option)]
    pid: u32,
    /// a review, JSON; its uid is exchanged in each request; without it: GET /ready
    #[argh(option)]
    review: Option<String>,
    /// a word of the review that is exchanged, too
    #[argh(option)]
    vary: Option<String>,
    /// where reviews go
    #[argh(option, default = "String::from(\"/inject\")")]
    path: String,
    /// what is to come: patch (default) or none
    #[argh(option, default = "Wanted::Patch")]
    wanted: Wanted,
    /// connections (HTTP/2: requests of one connection) at a time
    #[argh(option, default = "8")]
    connections: usize,
    /// HTTP/2 over one connection
    #[argh(switch)]
    http2: bool,
    /// requests that are counted
    #[argh(option)]
    count: u64,
    /// requests before these
    #[argh(option, default = "0")]
    warm: u64,
    /// requests a second, whether earlier ones are answered or not; without it: each connection as fast as it can
    #[argh(option)]
    rate: Option<u32>,
}

async fn run(flags: Flags) -> Result<String, Failure> {
    let asked = Rc::new(match &flags.review {
        None => Asked::ready(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|cause| format!("cannot read {path}: {cause}"))?;
            Asked::review(&text, &flags.path, flags.vary.clone(), flags.wanted)?
        }
    });
    let trust =
        std::fs::read(&flags.ca).map_err(|cause| format!("cannot read {}: {cause}", flags.ca))?;
    let mut connections =
        Connection::open(flags.address, &trust, flags.connections, flags.http2).await?;
    pace::closed(&mut connections, &asked, 0..flags.warm).await?;
    let before = Share::of(flags.pid)?;
    let range = flags.warm..flags.warm + flags.count;
    let run = match flags.rate {
        None => pace::closed(&mut connections, &asked, range).await?,
        Some(rate) => pace::open(&mut connections, &asked, range, rate).await?,
    };
    Ok(run.figures(before, Share::of(flags.pid)?).to_string())
}

fn main() -> ExitCode {
    let flags: Flags = argh::from_env();
    let done = runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(Failure::from)
        .and_then(|runtime| LocalSet::new().block_on(&runtime, run(flags)));
    match done {
        Ok(figures) => {
            // If stdout is closed, nobody can read the figures.
            let _written = writeln!(std::io::stdout(), "{figures}");
            ExitCode::SUCCESS
        }
        Err(cause) => {
            let _written = writeln!(std::io::stderr(), "cannot count: {cause}");
            ExitCode::FAILURE
        }
    }
}

/// An empty body, or a review.
type Sent = http_body_util::Full<Bytes>;
