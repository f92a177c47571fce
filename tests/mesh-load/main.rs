//! `mesh-load`: many proxies of `gudgeon discovery`, over few connections, in both variants of the protocol; or many sinks
//! of `gudgeon galley`. Prints one JSON object.
//!
//! Each keeps its resources and checks every response as Envoy, or a sink, would; a wrong one ends the run, so that a figure
//! is always one of right responses.

#![forbid(unsafe_code)]

mod facts;
mod fleet;
mod proxy;
mod rules;
mod server;
mod sinks;
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

/// Any error ends the program, so its type does not matter.
type Failure = Box<dyn std::error::Error>;

/// Writes a directory for `gudgeon discovery --configDir` or `gudgeon galley --configPath`, or is many proxies or sinks of one
/// that serves it.
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
    Rules(WriteRules),
    Sinks(Sinks),
}

/// Writes VirtualServices, each a file.
#[derive(FromArgs)]
#[argh(subcommand, name = "rules")]
struct WriteRules {
    /// where to
    #[argh(option)]
    dir: String,
    /// how many
    #[argh(option, default = "1000")]
    rules: usize,
}

/// Connects sinks, changes rules as often as asked for, and counts.
#[derive(FromArgs)]
#[argh(subcommand, name = "sinks")]
struct Sinks {
    /// where the server listens, without TLS
    #[argh(option)]
    address: SocketAddr,
    /// the server's process, whose memory and processor time are counted
    #[argh(option)]
    pid: u32,
    /// the directory that it serves
    #[argh(option)]
    dir: String,
    /// rules in it
    #[argh(option, default = "1000")]
    rules: usize,
    /// streams, each on a connection of its own
    #[argh(option, default = "200")]
    sinks: usize,
    /// rules that are changed at once
    #[argh(option, default = "1000")]
    changes: usize,
    /// how often
    #[argh(option, default = "3")]
    turns: usize,
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

/// Connects proxies, changes endpoints, services and a rule as often as asked for, and counts.
#[derive(FromArgs)]
#[argh(subcommand, name = "run")]
struct Run {
    /// where the server listens, without TLS
    #[argh(option)]
    address: SocketAddr,
    /// the server's process, whose memory and processor time are counted
    #[argh(option)]
    pid: u32,
    /// the directory that it serves; without it the caller changes endpoints, at each line `change SERVICE ADDRESS` on stdout:
    /// the number of a service, and the address that its last endpoint gets
    #[argh(option)]
    dir: Option<String>,
    /// services in it
    #[argh(option, default = "1000")]
    services: usize,
    /// endpoints of each
    #[argh(option, default = "10")]
    endpoints: usize,
    /// namespaces that the proxies are in; 0: that of the services
    #[argh(option, default = "0")]
    namespaces: usize,
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
    /// changes of a rule that the proxies of one namespace see alone, one after the other
    #[argh(option, default = "0")]
    rules: usize,
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

fn until_done(run: impl Future<Output = Result<String, Failure>>) -> Result<String, Failure> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, run)
}

fn main() -> ExitCode {
    let flags: Flags = argh::from_env();
    let done = match flags.what {
        What::Write(write) => yaml::Directory::new(&write.dir, write.endpoints)
            .write(write.services)
            .map(|()| String::new()),
        What::Rules(write) => rules::Rules::new(&write.dir)
            .write(write.rules)
            .map(|()| String::new()),
        What::Run(run) => until_done(fleet::run(run)),
        What::Sinks(sinks) => until_done(sinks::run(sinks)),
    };
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
