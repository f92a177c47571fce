//! Keys of issuers of tokens, fetched beside everything else: whatever an issuer does, no push waits for it.
//!
//! ```text
//!  RequestAuthentications ──► schedule ──► fetch ──► the hub's world ──► a push to whom they concern
//! ```
//!
//! Keys are fetched again after a while, and soon where that failed; the last good ones stay meanwhile.

mod fetch;
mod schedule;
mod ssrf_guard;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::config::discovery_notes::LONGEST_FETCH;
use api::duration;
use api::model::{Network, Objects, World};
use api::security::{KeySet, KeysPlace, RequestAuthentication};
use sources::registry::Registries;
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::sleep_until;
use tracing::{info, warn};

use self::fetch::{FetchError, Fetcher, Forbidden};
use self::schedule::{Fetch, Schedule};
use super::hub::Hub;
use crate::log_rate_limiter::LogRateLimiter;

/// The timeout of one fetch, unless the rule sets another. Source: the default of `jwtRules[].timeout` in Istio's API.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Sets that are fetched: the first ones of each namespace, and of all by namespace. Chosen: a mesh has a few issuers.
const MOST_OF_NAMESPACE: usize = 50;
const MOST: usize = 1000;

/// A JWKS location that a policy uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct WantedPlace {
    /// The namespaces whose policies want it, each with the longest that a rule of its own gives. What one namespace says keeps no
    /// other from its keys: each has its share of the fetches, and any of them may fetch.
    timeouts: BTreeMap<Arc<str>, Duration>,
    by: Vec<RuleOf>,
}

/// Namespace and name of a policy, and the place of its rule.
type RuleOf = (Arc<str>, Arc<str>, usize);

/// The places that keys are fetched from, and rules whose places are too many.
#[derive(Debug, Default)]
struct WantedKeys {
    wanted: BTreeMap<KeysPlace, WantedPlace>,
    left_out: Vec<RuleOf>,
}

/// One place, for those who look at it.
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
    lines: LogRateLimiter,
    /// Hosts of API servers.
    servers: Mutex<BTreeSet<String>>,
    /// Between two fetches of one set.
    refresh: Duration,
    allowed: Vec<Network>,
}

impl Jwks {
    pub(crate) fn new(refresh: Duration, allowed: Vec<Network>) -> Self {
        Self {
            state: Mutex::default(),
            lines: LogRateLimiter::new(20),
            servers: Mutex::default(),
            refresh,
            allowed,
        }
    }

    fn state(&self) -> MutexGuard<'_, Schedule> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An API server, by its URL, its name or its address: no keys are fetched from there.
    pub(crate) fn keep_from(&self, server: &str) {
        let uri: Option<hyper::Uri> = server.parse().ok();
        let host = uri.as_ref().and_then(hyper::Uri::host).unwrap_or(server);
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.insert(host);
    }

    /// Returns true if all that is wanted was asked for once, or waited for long enough.
    pub(crate) fn has_settled(&self, world: &World, now: Duration) -> bool {
        let (state, all) = (self.state(), wanted(&world.request_authentications));
        all.wanted.keys().all(|place| state.is_settled(place, now))
    }

    /// The number of places that the first snapshot still waits for.
    pub(crate) fn awaited(&self, now: Duration) -> usize {
        self.state().count_awaited(now)
    }

    /// The number of places that have no keys, for metrics.
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

    fn forbidden(&self, world: &World) -> Forbidden {
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

/// Places that rules want keys of, each once, as far as they are fetched.
fn wanted(policies: &Objects<RequestAuthentication>) -> WantedKeys {
    let mut all = WantedKeys::default();
    let mut of_namespace = HashMap::<Arc<str>, usize>::new();
    let mut beyond = Vec::new();
    for policy in policies.values() {
        for (at, rule) in policy.spec.jwt_rules.iter().enumerate() {
            let Some(place) = KeysPlace::of(rule) else {
                continue;
            };
            let namespace = &policy.namespace;
            let by = (namespace.clone(), policy.name.clone(), at);
            let known = all.wanted.get(&place);
            if !known.is_some_and(|one| one.timeouts.contains_key(namespace)) {
                let count = of_namespace.entry(namespace.clone()).or_default();
                let is_beyond = known.is_none() && all.wanted.len() >= MOST;
                if *count >= MOST_OF_NAMESPACE || is_beyond {
                    beyond.push((place, by));
                    continue;
                }
                *count += 1;
            }
            let written = rule.timeout.as_ref().map(duration::nanos);
            let written = written.and_then(|nanos| u64::try_from(nanos).ok());
            let timeout = written
                .map_or(TIMEOUT, Duration::from_nanos)
                .min(LONGEST_FETCH);
            let one = all.wanted.entry(place).or_default();
            let longest = one.timeouts.entry(namespace.clone()).or_default();
            *longest = timeout.max(*longest);
            one.by.push(by);
        }
    }
    // Keys that another namespace has fetched are as good.
    for (place, by) in beyond {
        match all.wanted.get_mut(&place) {
            Some(one) => one.by.push(by),
            None => all.left_out.push(by),
        }
    }
    all
}

/// Scheme, host and port of a URL.
fn origin(url: &str) -> String {
    let uri: Option<hyper::Uri> = url.parse().ok();
    let parts = uri.as_ref().and_then(|uri| {
        let authority = uri.authority()?.as_str();
        let place = authority.rsplit('@').next().unwrap_or(authority);
        Some(format!("{}://{place}", uri.scheme_str()?))
    });
    parts.unwrap_or_else(|| "no URL".to_owned())
}

/// Fetches what policies want, for ever.
pub(crate) async fn run(hub: Arc<Hub>) {
    let fetcher = Arc::new(Fetcher::new(hub.jwks.allowed.clone()));
    let mut policies = hub.request_authentications();
    let mut tasks = JoinSet::new();
    let mut under_way = HashMap::<Id, (Fetch, AbortHandle)>::new();
    // What is wanted is work for each policy, and nothing else changes it.
    let mut has_changed = true;
    loop {
        let news = has_changed.then(|| wanted(&policies.borrow_and_update()));
        has_changed = false;
        // Until something is served, whoever waits is to know when nothing has to be waited for.
        let begins = hub.snapshot().is_none();
        let (due, next, patience, forgotten, abandoned) = {
            let now = hub.clock.now();
            let mut state = hub.jwks.state();
            let unwanted = news.map(|all| state.want(all, now)).unwrap_or_default();
            let due = state.due(now);
            let patience = state.patience(now).filter(|_| begins);
            let forgotten = unwanted.keys.then(|| state.key_sets());
            let next = state.next(now);
            (due, next, patience, forgotten, unwanted.fetches)
        };
        for (fetch, task) in under_way.values() {
            if abandoned.contains(&fetch.number) {
                task.abort();
            }
        }
        if let Some(keys) = forgotten {
            hub.put_key_sets(keys);
        }
        let forbidden = hub.jwks.forbidden(&hub.with_registries(Registries::world));
        for fetch in due {
            let (fetcher, forbidden, of) = (Arc::clone(&fetcher), forbidden.clone(), fetch.clone());
            let task = async move { fetcher.fetch_jwks(&of.place, &forbidden, of.timeout).await };
            let task = tasks.spawn(task);
            under_way.insert(task.id(), (fetch, task));
        }
        let wakes = [next, patience].into_iter().flatten().min();
        let wake = async {
            match wakes {
                Some(at) => sleep_until(hub.clock.instant(at)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = policies.changed() => match changed {
                Ok(()) => has_changed = true,
                Err(_) => return,
            },
            Some(done) = tasks.join_next_with_id() => {
                let (id, fetched) = match done {
                    Ok((id, fetched)) => (id, Some(fetched)),
                    Err(error) if error.is_cancelled() => (error.id(), None),
                    // A mistake of this program.
                    Err(error) => {
                        (error.id(), Some(Err(FetchError::Answer("internal error".to_owned()))))
                    }
                };
                if let Some((fetch, _)) = under_way.remove(&id) {
                    match fetched {
                        Some(fetched) => fetched_one(&hub, &fetch, fetched),
                        None => hub.jwks.state().aborted(&fetch),
                    }
                }
            }
            () = wake => {}
        }
        if begins {
            hub.update(|_| api::model::Changes::default());
        }
    }
}

fn fetched_one(hub: &Hub, fetch: &Fetch, fetched: Result<KeySet, FetchError>) {
    let result = match &fetched {
        Ok(_) => "success",
        Err(error) => error.reason(),
    };
    hub.metrics.jwks_fetched(result);
    let (at, from) = (hub.clock.now(), origin(fetch.place.url()));
    let mut state = hub.jwks.state();
    let failed = fetched.as_ref().err().map(ToString::to_string);
    let news = state.done(fetch, fetched, at, hub.jwks.refresh);
    let keys = news.keys.then(|| state.key_sets());
    drop(state);
    if news.trouble
        && let Some(more) = hub.jwks.lines.suffix_if_allowed()
    {
        match failed {
            Some(cause) => warn!("cannot fetch keys from {from}: {cause}{more}"),
            None => info!("fetched keys from {from}{more}"),
        }
    }
    if let Some(keys) = keys {
        hub.put_key_sets(keys);
    }
}

#[cfg(test)]
mod tests {
    use api::google::protobuf;
    use api::model::{Configured, Registry};
    use api::security::JwtRule;
    use sources::registry::kubernetes::Names;
    use sources::registry::{Memory, SourceId, SyncState};
    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    fn policies(all: &[(&str, Vec<(String, i64)>)]) -> Objects<RequestAuthentication> {
        let policies = all.iter().map(|(namespace, places)| {
            let rules = places.iter().map(|(url, seconds)| JwtRule {
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
        let place = |at: usize| format!("https://{at}/keys");
        // One that has as many as it may gets what others fetch.
        let many = (0..=MOST_OF_NAMESPACE + 1).map(|at| (place(at), 900));
        let own = vec![(place(0), 1), (place(0), 3), (place(MOST_OF_NAMESPACE), 0)];
        let all = wanted(&policies(&[("a", many.collect()), ("v", own)]));
        assert_eq!(all.wanted.len(), MOST_OF_NAMESPACE + 1);
        let of = |at: usize| {
            let one = &all.wanted[&KeysPlace::Set(place(at).into())];
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

    /// An edited policy leaves no more fetches under way than one that stays: each holds a socket and up to a megabyte.
    #[tokio::test]
    async fn fetches_end_when_their_places_are_wanted_no_longer() {
        let hub = crate::discovery::testing::hub_of(&["--jwksAllow=127.0.0.1"]);
        let names = Names {
            cluster: Memory::CLUSTER.into(),
            domain: Arc::clone(&hub.options.domain),
            trust_domain: hub.trust_domain(),
        };
        let id = SourceId {
            registry: Registry::Memory,
            cluster: Memory::CLUSTER.into(),
        };
        hub.stand(&id, SyncState::Synced);
        let mut memory = Memory::new(names);
        let fetches = tokio::spawn(run(Arc::clone(&hub)));
        let issuer = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = issuer.local_addr().unwrap().port();
        let mut open: Vec<TcpStream> = Vec::new();
        for round in 0..4 {
            let rules: String = (0..10)
                .map(|at| format!("{{issuer: i{at}, jwksUri: 'http://127.0.0.1:{port}/{round}/{at}', timeout: 60s}}, "))
                .collect();
            let object = format!(
                "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {{name: p, namespace: n}}\n\
                 spec: {{jwtRules: [{rules}]}}\n"
            );
            let put = memory.put(object.as_bytes()).unwrap();
            hub.update(|registries| registries.put(&id, put.contribution));
            // Those before are closed, and as many others come.
            for mut stream in std::mem::take(&mut open) {
                let mut rest = Vec::new();
                let end = stream.read_to_end(&mut rest);
                let end = tokio::time::timeout(Duration::from_secs(20), end).await;
                // Closed or reset.
                let _ended = end.expect("a fetch goes on");
            }
            for _ in 0..2 {
                let accepted = tokio::time::timeout(Duration::from_secs(20), issuer.accept()).await;
                open.push(accepted.expect("no fetch").unwrap().0);
            }
            let more = tokio::time::timeout(Duration::from_millis(50), issuer.accept()).await;
            assert!(more.is_err(), "a third fetch");
        }
        fetches.abort();
    }
}
