//! `gudgeon`: the control plane beside pintle, in one program: command line, roles, listeners, TLS, metrics, log, health and
//! the end.
//!
//! It alone knows all the others: `api`, `inject`, `transform`, `xds` and `mcp` decide, `sources` reads Kubernetes, Consul and
//! directories, and this crate joins them.
//! One thread, one tokio runtime (`current_thread`). A panic ends the request that it happened in and no more, so the program
//! is built to unwind: by the profiles `gudgeon` and `gudgeon-dev`.
//!
//! ```text
//!            ┌── cli ── log ── exit              command line, log lines, exit codes
//!            ├── manifest                        `inject`: documents in, documents out
//! main ── lib┼── validate                        `validate`: documents in, findings out
//!            ├── analyze                         `analyze`: documents or a cluster in, messages about their references out
//!            ├── injector                        the webhook: files ── admission ── decision ── page
//!            ├── discovery                       sources in, xDS out; `request` is a client of a running one
//!            ├── galley                          sources in, MCP out; the webhook that validates rules
//!            └── all                             these three in one process
//!
//! each role ─┬── shared                          `Role`, `Shared`: runtime, signals, stages of the drain, plain listeners, clients of clusters, rules
//!            ├── admission, webhook_configuration              of both webhooks: reviews, and their configuration in the cluster
//!            ├── serve                           listeners: connections, heads, bodies, shutdown
//!            ├── grpc ── mcp                     the same for streams that live for days; MCP on them
//!            ├── tls                             the current certificate, from files or made here
//!            ├── descriptors                     their limits for connections
//!            └── watch, file                     changes on disk
//! ```
//!
//! # Map
//!
//! Each room uses only rooms above it.
//!
//! * `exit`: exit codes and failures. `cli`: programs, commands and flags. `log`: lines of the log, and
//!   `log_rate_limiter`: limits of lines that clients cause. `parameters`: an injection's settings from flags.
//! * `file_writer`: files that are written without holding up the loop; `file`: regular files, read with bounds and deadlines.
//!   `named_files`: the files that two commands are given.
//! * `clock`: time since the start. `html`: parts of pages. `exposition`: metrics in the format of the request. `secrets`:
//!   redaction of secrets.
//! * `file_states`: the state of the files that a role follows. `config_file`: the last content of a file that is reloaded.
//! * `tls`: certificates, from files or made in memory. `process`: signals and panics. `watch`: inotify along a file's link chain, and
//!   below a directory; the loops that read what has changed.
//! * `descriptors`: the number of connections that may take descriptors. `serve`: listeners, connection limits, permits (429), bodies,
//!   routes, graceful shutdown. `grpc`: streams that live for days, and their loop. `mcp`: both ends of MCP on sockets.
//! * `shared`: the runtime, stages, plain listeners and clients that the roles of one process share. `admission` and
//!   `webhook_configuration`: reviews, and the webhook configurations that lead to them.
//! * `injector`, `discovery`, `galley`: the roles. `all`: the three in one process.
//! * `manifest`, `analyze`, `validate`: the commands `inject`, `analyze` and `validate`.
//!   `properties`: properties of all reviews, tested without a fuzzer.
//!
//! # Glossary
//!
//! Words of the field, and the modules that they lead to. The layout test of the workspace holds them to the modules' first lines.
//!
//! | word | modules |
//! |---|---|
//! | 429 | `serve::request_limit`, which gives permits; `admission::review_body`, which answers |
//! | ACK, NACK | `xds::stream::ack_state` and `xds::stream::unresolved_nacks`; `mcp::source::subscription` |
//! | backoff | `api::backoff` |
//! | connection limit | `serve::connection_limit`; of ports with streams `grpc::idle_connection_limit` |
//! | debounce | `xds::debounce` of pushes, `mcp::debounce` of collections, `watch::reload_loop` of files |
//! | drain | `process` on TERM, `serve::shutdown` in listeners and streams |
//! | leader election | none: `sources::reconcile` tells why |
//! | pending push | `discovery::session`, filled by `discovery::hub::push_loop` |
//! | reconcile | `sources::reconcile` |
//! | redact | `secrets` in documents and pages, `api::redact` in messages |
//! | relist | `sources::kubernetes::watcher`, applied by `sources::kubernetes::store::relist` |
//! | reload | `watch::reload_loop`; of certificates `tls::files` and `grpc::certificates` |
//!
//! # Libraries
//!
//! Parts that a library has, too, are written by hand for these reasons. Sizes are those of small programs with one and with the
//! other, in this program's profile.
//!
//! | part | library | reason |
//! |---|---|---|
//! | `grpc`: servers, frames | tonic | It gives `Status` and `Code`. Its codec keeps the buffer of the longest message for the life of a stream: an acknowledgement of a thousand services has 40 kB, and 2,000 proxies have 160 MiB. hyper below both is shared. |
//! | `discovery::health` | tonic-health | It is a service of tonic's server, the row above. Its messages are two fields. |
//! | `discovery::reflection` | tonic-reflection | It keeps decoded descriptors: 3,312 kB for Envoy's 444 kB, of 14,336 kB that discovery may take at rest. Here files are sent as they lie in the binary. |
//! | `api::envoy`, `discovery::debug`: protobuf and JSON by descriptors | prost-reflect | Its pool of Envoy's descriptors takes 9,025 kB, and 12,701 kB while it is made. Tests compare each kind of field with it. |
//! | `sources`: list, watch, relist, store | kube-runtime | A list is bounded by bytes, objects and time, and what has no room or cannot be decoded is left out alone, so that no tenant keeps others' objects from being read. A `watcher` buffers each page, and has no such bound. The client below is kube's. |
//! | `serve::request_limit`: bodies of reviews | `Limited`, a semaphore | `Limited` bounds bytes and is what `discovery` uses. A semaphore is first come, first served: 64 clients that sent half a body held up all others for ten seconds. |
//! | `serve::frames`: borders of HTTP/2's frames | hyper-util's `auto` | hyper has no timeout for a frame that has come in part, and such a connection kept its place. The nine bytes before each frame are read, and nothing else. |
//! | types of Kubernetes | k8s-openapi | Its `Pod` of one container, 2,176 bytes of JSON, takes 18,566 bytes: 37 MB for 2,000 proxies, of 160 MiB. `sources::kind` names the kinds, and each reader keeps the fields that it needs. `ByteString` and times are the library's. `inject` has the schema of pods as a table. |
//! | `log` | tracing-subscriber | 59 kB of the binary, whose promise is near, for the 44 lines of `impl Subscriber`. The format, the bound of a line, and sinks that never block stay, as a `FormatEvent` and a `MakeWriter`. |
//! | `api::config`: RE2's grammar | regex-syntax | It refuses 32 of the 91 patterns of the tests that RE2 takes, and takes 25 of the 80 that RE2 refuses. |
//! | `src/jsonpath` | jsonpath-rust | 1,400 kB and eleven crates, one of them with assembly, for the token of a kubeconfig with `auth-provider: gcp`. The promise of the binary's size forbids it: less than that is left. |
//!
//! # Flows
//!
//! Each leads through the rooms that it names, one after the other: a room knows the next one or is known to it. A path names a
//! module of this crate, or another crate and its module. The layout test of the workspace holds them to the sources.
//!
//! 1. A Service changes → bytes on a stream: `sources::kubernetes` → `sources::contribution` → `sources::aggregate` →
//!    `discovery::sources` → `discovery::hub` → `xds::snapshot` → `xds::view` → `xds::stream` → `discovery::ads_protocol` → `grpc`.
//! 2. A rule is saved in a file → bytes: `sources::disk` → `sources::directory` → `sources::catalogue`, which is the one reader of
//!    files; then `sources::directory` → `sources::contribution` → `sources::aggregate` → `discovery::sources` and on as in 1. In `all`
//!    galley reads it: `sources::directory` → `galley::sources` → `shared` → `discovery::sources`. A finding goes to the log and to
//!    `discovery::debug` or `galley::configz`.
//! 3. A review of a pod → a patch: `serve` → `admission` → `injector` → `inject::engine` → `inject::injection` → `inject::json_patch`.
//! 4. A review of a rule → a verdict: `serve` → `admission` → `galley` → `api::config`.
//! 5. A request of MCP → resources: `grpc` → `mcp::source_stream` → `mcp::source` → `mcp::snapshot`; `galley::engine` makes the
//!    snapshots.
//! 6. TERM → exit: `process` → `shared` → `discovery` → `exit`; for the injector and galley likewise.
//!
//! The streams of 1 and 5 have one loop, `grpc::stream_loop`: it reads requests, waits for events, and writes responses.

#![forbid(unsafe_code)]

mod admission;
mod all;
mod analyze;
pub mod cli;
mod clock;
mod config_file;
mod descriptors;
mod discovery;
#[cfg(test)]
#[allow(dead_code, reason = "of each way what it shows is compared")]
#[path = "../../tests/support/examples.rs"]
mod examples;
pub mod exit;
mod exposition;
mod file;
mod file_states;
mod file_writer;
mod galley;
#[cfg(test)]
#[path = "../api/tests/support/growth.rs"]
mod growth;
mod grpc;
mod html;
mod injector;
mod log;
mod log_rate_limiter;
#[cfg(test)]
#[path = "../api/tests/support/loop_stretch.rs"]
mod loop_stretch;
mod manifest;
mod mcp;
mod named_files;
mod parameters;
mod process;
#[cfg(test)]
mod properties;
mod secrets;
mod serve;
mod shared;
mod tls;
mod validate;
mod watch;
mod webhook_configuration;

use std::ffi::OsString;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use all::All;
use cli::{Action, EarlyExit, LogFlags, Parsed};
use discovery::Discovery;
use exit::{Exit, Failure};
use galley::Galley;
use inject::Configuration;
use injector::Injector;
use tracing::{error, warn};

/// The file from which Kubernetes reads the reason of a container's end.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// Runs the command line; the first argument is the program's name.
#[must_use]
pub fn run(args: &[OsString]) -> Exit {
    let Parsed { action, warnings } = match cli::parse(args) {
        Ok(parsed) => parsed,
        Err(EarlyExit { exit, text }) => {
            if exit == Exit::Done {
                return print(text.as_bytes());
            }
            complain(&text);
            return exit;
        }
    };
    match action {
        Action::All(flags) => {
            let log = flags.log.clone();
            role(&log, warnings, || shared::run_together::<All>(&flags))
        }
        Action::Discovery(flags) => role(&flags.log, warnings, || shared::run::<Discovery>(&flags)),
        Action::Galley(flags) => role(&flags.log, warnings, || shared::run::<Galley>(&flags)),
        Action::Request(flags) => match discovery::request(&flags) {
            Ok(body) => print(&body),
            Err(failure) => print_failure(&failure),
        },
        Action::ProxyStatus(flags) => {
            warned(warnings);
            match discovery::proxy_status(&flags) {
                Ok(table) => print(table.as_bytes()),
                Err(failure) => print_failure(&failure),
            }
        }
        Action::Injector(flags) => {
            let log = flags.log.clone();
            role(&log, warnings, || {
                shared::run::<Injector<Configuration>>(&flags)
            })
        }
        Action::Inject(flags) => {
            warned(warnings);
            let done = log::open(&flags.log, "stderr")
                .map_err(Failure::config)
                .and_then(|()| manifest::run::<Configuration>(&flags));
            done.unwrap_or_else(|failure| print_failure(&failure))
        }
        Action::Validate(flags) => {
            warned(warnings);
            validate::run(&flags).unwrap_or_else(|failure| print_failure(&failure))
        }
        Action::Analyze(flags) => {
            warned(warnings);
            analyze::run(&flags).unwrap_or_else(|failure| print_failure(&failure))
        }
        Action::Probe(flags) => match injector::probe(&flags) {
            Ok(()) => print(b"OK\n"),
            Err(failure) => print_failure(&failure),
        },
        Action::Version(flags) => {
            warned(warnings);
            print(cli::version(&flags).as_bytes())
        }
        Action::Completion(flags) => print(&cli::completion(args, flags.shell)),
    }
}

/// Runs one to its end, with its log.
fn role(
    log: &LogFlags,
    warnings: Vec<String>,
    run: impl FnOnce() -> Result<Exit, Failure>,
) -> Exit {
    if let Err(cause) = log::open(log, "stdout") {
        return print_failure(&Failure::config(cause));
    }
    for warning in warnings {
        warn!("{warning}");
    }
    run().unwrap_or_else(|failure| last_words(&failure))
}

/// Says of flags that they mean nothing.
fn warned(warnings: Vec<String>) {
    for warning in warnings {
        complain(&format!("{warning}\n"));
    }
}

/// Writes a command's whole output.
fn print(output: &[u8]) -> Exit {
    match exit::print(output) {
        Ok(()) => Exit::Done,
        // The reader has what it wanted, as in `gudgeon --help | head`.
        Err(cause) if cause.kind() == ErrorKind::BrokenPipe => Exit::Done,
        Err(cause) => print_failure(&Failure::stdout(&cause)),
    }
}

fn complain(text: &str) {
    // If the stream is closed, nobody can read the text.
    let _written = std::io::stderr().write_all(text.as_bytes());
}

fn print_failure(failure: &Failure) -> Exit {
    complain(&format!("{}\n", failure.message));
    failure.exit
}

/// The last line of a role that could not start, also where Kubernetes shows it.
fn last_words(failure: &Failure) -> Exit {
    error!("{}", failure.message);
    if Path::new(TERMINATION_LOG).exists() {
        // The file is optional.
        let _written = std::fs::write(TERMINATION_LOG, format!("{}\n", failure.message));
    }
    failure.exit
}
