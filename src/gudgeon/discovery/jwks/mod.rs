//! Keys of issuers of tokens, fetched beside everything else: whatever an issuer does, no push waits for it.
//!
//! ```text
//!  RequestAuthentications ──► schedule ──► fetch ──► the hub's world ──► a push to whom they concern
//! ```
//!
//! Keys are fetched again after a while, and soon where that failed; the last good ones stay meanwhile.

mod fetch;
mod response_budget;
mod schedule;
mod ssrf_guard;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::config::discovery_notes::LONGEST_FETCH;
use api::duration;
use api::model::{Network, Objects, World};
use api::security::{JwksSource, RequestAuthentication};

use self::fetch::Forbidden;
pub(super) use self::fetch::{FetchError, Fetcher};
pub(super) use self::schedule::Fetch;
use self::schedule::Schedule;
use crate::log_rate_limiter::LogRateLimiter;

/// The timeout of one fetch, unless the rule sets another. Source: the default of `jwtRules[].timeout` in Istio's API.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Sets that are fetched: the first ones of each namespace, and of all by namespace. Chosen: a mesh has a few issuers.
const MOST_OF_NAMESPACE: usize = 50;
const MOST: usize = 1000;

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
    /// Why the last try failed.
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

    /// Notes on policies, by namespace and name.
    pub(crate) fn notes(&self) -> BTreeMap<(Arc<str>, Arc<str>), Vec<String>> {
        self.state().notes()
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

/// Sources that rules want keys of, each once, as far as they are fetched.
pub(super) fn wanted_keys(policies: &Objects<RequestAuthentication>) -> WantedKeys {
    let mut all = WantedKeys::default();
    let mut of_namespace = HashMap::<Arc<str>, usize>::new();
    let mut beyond = Vec::new();
    for policy in policies.values() {
        for (at, rule) in policy.spec.jwt_rules.iter().enumerate() {
            let Some(source) = JwksSource::of(rule) else {
                continue;
            };
            let namespace = &policy.namespace;
            let by = (namespace.clone(), policy.name.clone(), at);
            let known = all.wanted.get(&source);
            // A namespace pays for a source once, however many of its rules want it.
            if !known.is_some_and(|one| one.timeouts.contains_key(namespace)) {
                let count = of_namespace.entry(namespace.clone()).or_default();
                let is_beyond = known.is_none() && all.wanted.len() >= MOST;
                if *count >= MOST_OF_NAMESPACE || is_beyond {
                    beyond.push((source, by));
                    continue;
                }
                *count += 1;
            }
            let written = rule.timeout.as_ref().map(duration::nanos);
            let written = written.and_then(|nanos| u64::try_from(nanos).ok());
            let timeout = written
                .map_or(TIMEOUT, Duration::from_nanos)
                .min(LONGEST_FETCH);
            let one = all.wanted.entry(source).or_default();
            let longest = one.timeouts.entry(namespace.clone()).or_default();
            *longest = timeout.max(*longest);
            one.by.push(by);
        }
    }
    // Keys that another namespace has fetched are as good.
    for (source, by) in beyond {
        match all.wanted.get_mut(&source) {
            Some(one) => one.by.push(by),
            None => all.left_out.push(by),
        }
    }
    all
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

#[cfg(test)]
mod tests {
    use api::google::protobuf;
    use api::model::Configured;
    use api::security::JwtRule;

    use super::*;

    fn policies(all: &[(&str, Vec<(String, i64)>)]) -> Objects<RequestAuthentication> {
        let policies = all.iter().map(|(namespace, sources)| {
            let rules = sources.iter().map(|(url, seconds)| JwtRule {
                jwks_uri: url.clone(),
                timeout: (*seconds > 0).then_some(protobuf::Duration {
                    seconds: *seconds,
                    nanos: 0,
                }),
                ..JwtRule::default()
            });
            let policy = Configured {
                name: "p".into(),
                namespace: (*namespace).into(),
                created: None,
                prefers_close: false,
                dry_run: false,
                spec: RequestAuthentication {
                    jwt_rules: rules.collect(),
                    ..RequestAuthentication::default()
                },
            };
            let key = (policy.namespace.clone(), policy.name.clone());
            (key, Arc::new(policy))
        });
        policies.collect()
    }

    #[test]
    fn each_namespace_wants_a_place_with_a_timeout_of_its_own() {
        let url = |at: usize| format!("https://{at}/keys");
        // One that has as many as it may gets what others fetch.
        let many = (0..=MOST_OF_NAMESPACE + 1).map(|at| (url(at), 900));
        let own = vec![(url(0), 1), (url(0), 3), (url(MOST_OF_NAMESPACE), 0)];
        let all = wanted_keys(&policies(&[("a", many.collect()), ("v", own)]));
        assert_eq!(all.wanted.len(), MOST_OF_NAMESPACE + 1);
        let of = |at: usize| {
            let one = &all.wanted[&JwksSource::Set(url(at).into())];
            let timeouts = one.timeouts.iter();
            let timeouts: Vec<_> = timeouts.map(|(of, time)| (&**of, time.as_secs())).collect();
            (timeouts, one.by.len())
        };
        assert_eq!(of(0), (vec![("a", 60), ("v", 3)], 3));
        assert_eq!(of(1), (vec![("a", 60)], 1));
        assert_eq!(of(MOST_OF_NAMESPACE), (vec![("v", 5)], 2));
        let left_out: Vec<_> = all
            .left_out
            .iter()
            .map(|(of, _, at)| (&**of, *at))
            .collect();
        assert_eq!(left_out, [("a", MOST_OF_NAMESPACE + 1)]);
    }
}
