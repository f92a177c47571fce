//! `mesh-load`: many proxies of `gudgeon discovery`, over few connections, in both variants of the protocol. Prints one JSON
//! object.
//!
//! Each proxy keeps what it was sent and looks at every answer as Envoy would; one that is not what was to come ends the run,
//! so that a figure always is one of right answers.

#![forbid(unsafe_code)]

mod facts;
mod fleet;
mod proxy;
mod server;
#[cfg(test)]
mod tests;
mod wire;
mod yaml;

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;

use argh::FromArgs;
use tokio::runtime;
use tokio::task::LocalSet;

/// What goes wrong ends the program; nobody tells kinds apart.
type Failure = Box<dyn std::error::Error>;

/// Writes a directory for `gudgeon discovery --configDir`, or is many proxies of one that serves it.
#[derive(FromArgs)]
struct Flags {
    #[argh(subcommand)]
    what: What,
}

#[derive(FromArgs)]
#[argh(subcommand)]
enum What {
    Write(Write),
    Run(Run),
}

/// Writes ServiceEntries, each a file.
#[derive(FromArgs)]
#[argh(subcommand, name = "write")]
struct Write {
    /// where to
    #[argh(option)]
    dir: String,
    /// how many
    #[argh(option, default = "1000")]
    services: usize,
    /// endpoints of each
    #[argh(option, default = "10")]
    endpoints: usize,
}

/// Connects proxies, changes an endpoint as often as asked for, and counts.
#[derive(FromArgs)]
#[argh(subcommand, name = "run")]
struct Run {
    /// where the server listens, without TLS
    #[argh(option)]
    address: SocketAddr,
    /// the server's process, whose memory and processor time are counted
    #[argh(option)]
    pid: u32,
    /// the directory that it serves
    #[argh(option)]
    dir: String,
    /// services in it
    #[argh(option, default = "1000")]
    services: usize,
    /// endpoints of each
    #[argh(option, default = "10")]
    endpoints: usize,
    /// streams
    #[argh(option, default = "2000")]
    proxies: usize,
    /// connections that they share
    #[argh(option, default = "20")]
    connections: usize,
    /// state, delta, or both in turns (default)
    #[argh(option, default = "Variant::Both")]
    variant: Variant,
    /// endpoints that are changed, one after the other
    #[argh(option, default = "5")]
    changes: usize,
    /// services that go while another comes, one after the other
    #[argh(option, default = "0")]
    exchanges: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    State,
    Delta,
    Both,
}

impl std::str::FromStr for Variant {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "state" => Ok(Self::State),
            "delta" => Ok(Self::Delta),
            "both" => Ok(Self::Both),
            _ => Err(format!("want state, delta or both, got {word:?}")),
        }
    }
}

fn main() -> ExitCode {
    let flags: Flags = argh::from_env();
    let done = match flags.what {
        What::Write(write) => yaml::Directory::new(&write.dir, write.endpoints)
            .write(write.services)
            .map(|()| String::new()),
        What::Run(run) => runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Failure::from)
            .and_then(|runtime| LocalSet::new().block_on(&runtime, fleet::run(run))),
    };
    match done {
        Ok(figures) => {
            // Where nobody reads it nobody wants it.
            let _written = writeln!(std::io::stdout(), "{figures}");
            ExitCode::SUCCESS
        }
        Err(cause) => {
            let _written = writeln!(std::io::stderr(), "cannot count: {cause}");
            ExitCode::FAILURE
        }
    }
}
