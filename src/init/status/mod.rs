//! The status port: probes, orders, metrics and a page, from one listening socket on the agent's loop.
//!
//! A connection carries one request. What it needs from elsewhere (readiness from the admin port, a page of metrics, an
//! application's answer) is awaited without blocking; every place, buffer and time has a limit that is named here.
//!
//! INVARIANT: nothing that arrives here changes anything but `demands`, `wants_readiness` and the counters.

#![forbid(unsafe_code)]

mod accept;
mod answer;
mod connection;
mod exposition;
mod json;
mod late;
mod meaning;
mod merge;
mod metrics;
mod page;
mod probing;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
mod room;
mod routes;
mod scrape;
mod server;
mod serving;
mod sharing;
#[cfg(test)]
pub(crate) mod stories;
mod target;
mod text;
mod usage;
mod view;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use mio::Registry;
use mio::net::UnixStream;

use crate::config::{Metrics, Prober, ScrapeTarget};
use crate::counters::Counters;
pub(crate) use server::StatusServer;
pub(crate) use view::View;

/// Connections at once. Chosen: heads of 8 KiB in all of them are half a megabyte.
pub(crate) const PLACES: usize = 64;
/// For a head, from the connection on. Chosen: five times a probe's default time-out.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// To the first byte of an answer, and for every pause in it, whoever makes it. Prometheus' default `scrape_timeout`.
const PAUSE: Duration = Duration::from_secs(10);
/// After an answer to a request that was not read whole: a close at once would reset the connection, and the client lose
/// the answer. Chosen: longer than a round trip.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes of such a request that are read and thrown away. Chosen: a socket buffer's worth.
const LINGER_BYTES: usize = 64 * 1024;
/// When all places are taken by whole requests, the oldest gives way once it is so old: a reader that takes a byte in
/// every pause must not keep kubelet out. Chosen: three of Prometheus' default `scrape_timeout`.
const FAIR_SHARE: Duration = Duration::from_secs(30);
/// When all places are taken, an answer that its client has not taken within this time gives way. Kubernetes' default
/// `timeoutSeconds` of a probe.
const UNREAD: Duration = Duration::from_secs(1);
/// Pages, statuses and scrapes at once; more are refused (503). Chosen: two Prometheus have two, and each may hold up
/// to a page's bytes for as long as its client does not read them.
const PAGES: usize = 16;
/// Places that strangers leave to probes from loopback and from the node. Chosen: a pod of five containers has ten.
const KEPT: usize = 8;
/// Places that probes of the application and pages leave to everything else, which is over soon: a request that is read,
/// and readiness for two.
const SPARE: usize = 3;
/// After an error of `accept` itself (no descriptor left, say). Chosen: no spin.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// Helper programs at once; others wait for their turn. Chosen: two probes each of four containers.
const HELPERS: usize = 8;
/// Of these so many are run for strangers. Chosen: half.
const STRANGERS_HELPERS: usize = HELPERS / 2;

/// What the server answers by, known at the start.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) application_ports: Vec<u16>,
    pub(crate) probers: Vec<Prober>,
    pub(crate) scrape: Vec<ScrapeTarget>,
    pub(crate) metrics: Metrics,
    pub(crate) admin: SocketAddr,
    /// The node's address, where `HOST_IP` gives it.
    pub(crate) node: Option<IpAddr>,
    /// Ports of Envoy's and of the agent: admin, metrics, status.
    pub(crate) own: [u16; 3],
}

/// What a client's request makes the agent do.
#[derive(Debug)]
pub(crate) enum Demand {
    Drain,
    Quit,
    /// Run `pintle-probe`; the agent keeps the other end of its stdin and stdout.
    Helper(Helper),
    /// End that one: its time is over.
    KillHelper(u64),
}

/// A helper program to be run.
#[derive(Debug)]
pub(crate) struct Helper {
    /// The connection that it works for, to be told of a failure.
    pub(crate) place: usize,
    /// Which one it is; never used twice.
    pub(crate) serial: u64,
    pub(crate) arguments: Vec<String>,
    pub(crate) socket: std::os::unix::net::UnixStream,
}

/// What the server may use in one turn of the loop.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) now: Instant,
    pub(crate) counters: &'a mut Counters,
}

impl Turn<'_> {
    fn after(&self, time: Duration) -> Instant {
        self.now.checked_add(time).unwrap_or(self.now)
    }
}

/// A pair of sockets: the agent's, and the helper program's.
fn pair() -> std::io::Result<(UnixStream, std::os::unix::net::UnixStream)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours), theirs))
}

/// `count += 1`, for ever.
fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ProbeAction;

    pub(super) fn settings() -> Settings {
        Settings {
            application_ports: Vec::new(),
            probers: vec![Prober {
                path: "/app-health/app/readyz".to_owned(),
                action: ProbeAction::Tcp { port: 8080 },
                timeout: Duration::from_secs(1),
            }],
            scrape: Vec::new(),
            metrics: Metrics::default(),
            admin: SocketAddr::from(([127, 0, 0, 1], 15000)),
            node: None,
            own: [15000, 14090, 14020],
        }
    }
}
