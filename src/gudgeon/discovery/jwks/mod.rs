//! Keys of issuers of tokens, fetched beside everything else: whatever an issuer does, no push waits for it.
//!
//! ```text
//!  RequestAuthentications ──► schedule ──► fetch ──► the hub's world ──► a push to whom they concern
//! ```
//!
//! Keys are fetched again after a while, and soon where that failed; the last good ones stay meanwhile.

mod fetch;
mod request_authentications;
mod response_budget;
mod schedule;
mod ssrf_guard;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::model::{Network, World};
use api::security::JwksSource;

use self::fetch::Forbidden;
pub(super) use self::fetch::{FetchError, Fetcher};
pub(super) use self::request_authentications::{TokenPolicies, wanted_keys};
pub(super) use self::schedule::Fetch;
use self::schedule::Schedule;
use crate::log_rate_limiter::LogRateLimiter;

/// Sets that are fetched: the first ones of each namespace, and of all by namespace. Chosen: a mesh has a few issuers.
const MAX_PER_NAMESPACE: usize = 50;
const MAX_KEY_SETS: usize = 1000;

/// A JWKS location that a policy uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WantedJwksSource {
    /// The namespaces whose policies want it, each with the longest that a rule of its own gives. What one namespace says keeps no
    /// other from its keys: each has its share of the fetches, and any of them may fetch.
    timeouts: BTreeMap<Arc<str>, Duration>,
    by: Vec<RuleOf>,
}

/// Namespace and name of a policy, and the source of its rule.
type RuleOf = (Arc<str>, Arc<str>, usize);

/// The sources that keys are fetched from, and rules whose sources are too many.
#[derive(Debug, Default)]
pub(super) struct WantedKeys {
    wanted: BTreeMap<JwksSource, WantedJwksSource>,
    left_out: Vec<RuleOf>,
}

/// One source, for those who look at it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// `https://HOST:PORT`: the rest of a URL may be secret.
    pub(crate) origin: String,
    /// The number of keys; `None`: none were fetched.
    pub(crate) keys: Option<usize>,
    pub(crate) fetched: Option<Duration>,
    /// The reason why the last try failed.
    pub(crate) error: Option<String>,
}

/// The keys of issuers: the schedule of their fetches, and its settings.
#[derive(Debug)]
pub(crate) struct Jwks {
    state: Mutex<Schedule>,
    pub(super) log_limiter: LogRateLimiter,
    /// Hosts of API servers.
    servers: Mutex<BTreeSet<String>>,
    /// The interval of fetches of one set.
    pub(super) refresh: Duration,
    pub(super) allowed: Vec<Network>,
}

impl Jwks {
    pub(crate) fn new(refresh: Duration, allowed: Vec<Network>) -> Self {
        Self {
            state: Mutex::default(),
            log_limiter: LogRateLimiter::new(20),
            servers: Mutex::default(),
            refresh,
            allowed,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, Schedule> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An API server, by its URL, its name or its address: no keys are fetched from there.
    pub(crate) fn forbid_server(&self, server: &str) {
        let uri: Option<hyper::Uri> = server.parse().ok();
        let host = uri.as_ref().and_then(hyper::Uri::host).unwrap_or(server);
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.insert(host);
    }

    /// Returns true if all that is wanted was asked for once, or waited for long enough.
    pub(crate) fn is_ready(&self, world: &World, now: Duration) -> bool {
        let (state, all) = (self.state(), wanted_keys(&world.request_authentications));
        all.wanted.keys().all(|source| state.is_ready(source, now))
    }

    /// The number of sources that the first snapshot still waits for.
    pub(crate) fn awaited(&self, now: Duration) -> usize {
        self.state().count_awaited(now)
    }

    /// The number of sources that have no keys, for metrics.
    pub(crate) fn without_keys(&self) -> usize {
        self.rows().iter().filter(|row| row.keys.is_none()).count()
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        self.state().rows()
    }

    pub(super) fn forbidden(&self, world: &World) -> Forbidden {
        let mut all = Forbidden::default();
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        for host in servers.iter() {
            match host.parse::<IpAddr>() {
                Ok(address) => drop(all.addresses.insert(address.to_canonical())),
                Err(_) => drop(all.names.insert(host.clone())),
            }
        }
        drop(servers);
        let services = world.services.values().filter(|service| {
            let key = &service.key;
            // Pods reach the API server by this Service, or by one of its endpoints.
            &*key.namespace == "default" && key.hostname.starts_with("kubernetes.default.svc.")
        });
        for service in services {
            let addresses = service.addresses.values().flatten();
            all.addresses
                .extend(addresses.filter_map(|one| one.to_string().parse::<IpAddr>().ok()));
            let endpoints = world.endpoints_of(&service.key);
            all.addresses
                .extend(endpoints.filter_map(|(_, endpoint)| endpoint.address.ip()));
        }
        all
    }
}

/// Scheme, host and port of a URL.
pub(super) fn origin(url: &str) -> String {
    let uri: Option<hyper::Uri> = url.parse().ok();
    let parts = uri.as_ref().and_then(|uri| {
        let authority = uri.authority()?.as_str();
        let host = authority.rsplit('@').next().unwrap_or(authority);
        Some(format!("{}://{host}", uri.scheme_str()?))
    });
    parts.unwrap_or_else(|| "no URL".to_owned())
}
