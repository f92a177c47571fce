//! The status port: probes, orders, metrics and a page, from one listening socket on the agent's loop.
//!
//! A connection carries one request. What it needs from elsewhere (readiness from the admin port, a page of metrics, an
//! application's answer) is awaited without blocking; every place, buffer and time has a limit (`server/limits.rs`).
//!
//! Four rooms: `server` has the socket, the clients and what they ask for; it asks `probes` (of the application),
//! `metrics` (its own, and others' passed on) and `pages` (`/status` and `/`), which do not know it or each other. Here
//! is what they share.
//!
//! INVARIANT: nothing that arrives here changes anything but `effects`, `wants_readiness` and the counters.

#![forbid(unsafe_code)]

pub(crate) mod metrics;
pub(crate) mod pages;
pub(crate) mod probes;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
pub(crate) mod response;
pub(crate) mod server;
#[cfg(test)]
pub(crate) mod stories;
pub(crate) mod target;
pub(crate) mod view;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use mio::Registry;

use crate::config::{Metrics, Prober, ScrapeTarget};
use crate::counters::Counters;

/// The settings of the server, known at the start.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) application_ports: Vec<u16>,
    pub(crate) probers: Vec<Prober>,
    pub(crate) scrape: Vec<ScrapeTarget>,
    pub(crate) metrics: Metrics,
    pub(crate) admin: SocketAddr,
    /// The node's address, where `HOST_IP` gives it.
    pub(crate) node: Option<IpAddr>,
    /// The pod's own address, if it has another than loopback's.
    pub(crate) pod: Option<IpAddr>,
    /// Ports of Envoy's and of the agent: admin, metrics, status.
    pub(crate) own: [u16; 3],
}

/// The parts that the server may use in one turn of the loop.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) now: Instant,
    pub(crate) counters: &'a mut Counters,
}

impl Turn<'_> {
    pub(crate) fn after(&self, time: Duration) -> Instant {
        self.now.checked_add(time).unwrap_or(self.now)
    }
}

/// `count += 1`, for ever.
pub(crate) fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::ProbeAction;

    pub(crate) fn settings() -> Settings {
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
            pod: None,
            own: [15000, 14090, 14020],
        }
    }
}
