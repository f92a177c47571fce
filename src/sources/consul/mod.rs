//! Services of Consul's catalog.
//!
//! `schedule` decides when to send which query, `client` sends it, `body` bounds the responses, `wire` decodes them and `convert`
//! makes services of them; all but `client`, `body` and this file are pure.

mod address;
mod body;
mod client;
mod convert;
mod schedule;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::log_repeats::LogRepeatLimiter;
use api::model::{ClusterId, Registry, ServiceKey};
use api::times;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

pub use self::address::{Address, BadAddress, Token};
use self::client::{Answer, Client, Failed};
use self::convert::{Converted, convert};
use self::schedule::{End, Query, QueryPath, QueryTarget, Schedule};
use self::wire::Catalog;
use crate::contribution::{Contribution, SourceId, SyncState};
use crate::offload::offload;

/// The state of a source: all its objects, and its sync state. While it is [`SyncState::Syncing`] the contribution is empty.
#[derive(Clone, Debug, PartialEq)]
pub struct ConsulUpdate {
    pub sync_state: SyncState,
    pub contribution: Contribution,
}

impl Default for ConsulUpdate {
    fn default() -> Self {
        Self {
            sync_state: SyncState::Syncing,
            contribution: Contribution::default(),
        }
    }
}

/// Consul, as a source of services.
#[derive(Debug)]
pub struct Consul {
    client: Client,
    cluster: ClusterId,
}

/// The decoded response to a query.
enum DecodedResponse {
    Names(Catalog),
    Service(Converted),
}

/// The end of a query, with its result.
struct EndedQuery {
    ticket: u64,
    way: QueryPath,
    end: End,
    result: Result<DecodedResponse, String>,
}

impl Consul {
    /// Creates the source; its services belong to `cluster`.
    #[must_use]
    pub fn new(address: Address, token: Option<Token>, cluster: ClusterId) -> Self {
        Self {
            client: Client::new(address, token),
            cluster,
        }
    }

    #[must_use]
    pub fn id(&self) -> SourceId {
        SourceId {
            registry: Registry::Consul,
            cluster: self.cluster.clone(),
        }
    }

    /// Sends the source's state on each change, for as long as it is polled.
    pub async fn run(self, to: watch::Sender<ConsulUpdate>) -> Infallible {
        let start = Instant::now();
        let mut schedule = Schedule::new(Duration::ZERO);
        let mut queries = JoinSet::new();
        let mut handles: HashMap<u64, AbortHandle> = HashMap::new();
        let mut state = CatalogState::default();
        loop {
            let changes = schedule.next(start.elapsed());
            for ticket in changes.cancel {
                if let Some(handle) = handles.remove(&ticket) {
                    handle.abort();
                }
            }
            for query in changes.begin {
                let ticket = query.ticket;
                let asking = run_query(self.client.clone(), query, self.cluster.clone());
                handles.insert(ticket, queries.spawn(asking));
            }
            state.emit(&schedule, &to);
            let deadline = schedule.deadline().map(|after| start + after);
            // The names are always due or under way, so that `else` cannot spin.
            let first = tokio::select! {
                Some(ended) = queries.join_next() => Some(ended),
                () = sleep_until(deadline.unwrap_or(start)), if deadline.is_some() => None,
                else => None,
            };
            let mut ended = first;
            while let Some(joined) = ended {
                if let Some(one) = joined.map_or_else(|error| broken(&error, &handles), Some) {
                    handles.remove(&one.ticket);
                    state.take(&mut schedule, start.elapsed(), one);
                }
                ended = queries.try_join_next();
            }
        }
    }
}

/// Returns the end of a query that panicked, to retry it; `None` for a query that was cancelled.
fn broken(error: &JoinError, handles: &HashMap<u64, AbortHandle>) -> Option<EndedQuery> {
    let (ticket, _) = handles
        .iter()
        .find(|(_, handle)| handle.id() == error.id())?;
    Some(EndedQuery {
        ticket: *ticket,
        way: QueryPath::Catalog,
        end: End::Useless,
        result: Err("cannot read Consul's response: internal error".to_owned()),
    })
}

async fn run_query(client: Client, query: Query, cluster: ClusterId) -> EndedQuery {
    let (ticket, way) = (query.ticket, query.way);
    let (end, result) = match client.fetch(&query).await {
        Err(Failed { end, why }) => (end, Err(why)),
        Ok(Answer { index, body }) => {
            let bytes = body.bytes().len();
            let reads = move || understand(&query, body.bytes(), &cluster);
            let read = offload(bytes, reads).await;
            match read.unwrap_or_else(|| Err("internal error".to_owned())) {
                Ok(result) => (End::Answered { index }, Ok(result)),
                Err(why) => {
                    let why = format!("cannot parse Consul's response: {why}");
                    (End::Useless, Err(why))
                }
            }
        }
    };
    EndedQuery {
        ticket,
        way,
        end,
        result,
    }
}

fn understand(query: &Query, body: &[u8], cluster: &ClusterId) -> Result<DecodedResponse, String> {
    let (name, instances) = match (&query.target, query.way) {
        (QueryTarget::Names, _) => return wire::catalog(body).map(DecodedResponse::Names),
        (QueryTarget::Service(name), QueryPath::Health) => (name, wire::health(body)),
        (QueryTarget::Service(name), QueryPath::Catalog) => (name, wire::instances(body)),
    };
    instances
        .map(|instances| {
            let mut converted = convert(name, instances, cluster);
            if query.way == QueryPath::Catalog {
                converted.warnings.push(format!(
                    "service {name} is served without its health checks, which Consul refuses to show: its token has no \
                     service:read or node:read"
                ));
            }
            DecodedResponse::Service(converted)
        })
        .map_err(|why| format!("service {name}: {why}"))
}

/// The source's objects so far, and its warnings.
#[derive(Default)]
struct CatalogState {
    contribution: Contribution,
    /// Present warnings, by service; those of the catalog have no name.
    warnings: BTreeMap<Option<Arc<str>>, Vec<String>>,
    error: Arc<str>,
    repeats: LogRepeatLimiter,
    emitted_in_turn: bool,
    was_complete: bool,
}

impl CatalogState {
    fn take(&mut self, schedule: &mut Schedule, now: Duration, ended: EndedQuery) {
        let in_turn = schedule.in_turn();
        let Some(target) = schedule.ended(now, ended.ticket, ended.end, fastrand::f64()) else {
            return;
        };
        match (target, ended.result) {
            (QueryTarget::Names, Ok(DecodedResponse::Names(catalog))) => {
                self.warn(None, catalog.warnings);
                self.retain(&catalog.names);
                schedule.names(now, &catalog.names);
            }
            (QueryTarget::Service(name), Ok(DecodedResponse::Service(converted))) => {
                self.set(&name, converted);
            }
            // Each question has its own answer.
            (_, Ok(_)) => {}
            (_, Err(why)) => {
                // A refused path falls back to the other, a closed connection to fewer queries: neither is an error.
                let is_reported = match ended.end {
                    End::Refused { status: 403 | 404 } => ended.way == QueryPath::Catalog,
                    End::Closed => schedule.is_failing(),
                    End::Answered { .. } | End::Refused { .. } | End::Useless | End::Away => true,
                };
                if is_reported {
                    self.fail(&why);
                }
            }
        }
        if schedule.in_turn() > in_turn && !self.emitted_in_turn {
            self.emitted_in_turn = true;
            tracing::warn!(
                "Consul has more services than connections: some are read every {} s",
                schedule::TURN.as_secs()
            );
        }
    }

    fn fail(&mut self, why: &str) {
        if let Some(count) = self.repeats.observe(why) {
            tracing::warn!("{why}{}: trying again", times(count));
        }
        self.error = why.into();
    }

    /// Logs the new warnings.
    fn warn(&mut self, of: Option<Arc<str>>, warnings: Vec<String>) {
        let earlier = self.warnings.remove(&of).unwrap_or_default();
        for warning in warnings.iter().filter(|warning| !earlier.contains(warning)) {
            tracing::warn!("Consul: {warning}");
        }
        if !warnings.is_empty() {
            self.warnings.insert(of, warnings);
        }
    }

    /// Forgets services that are not among these.
    fn retain(&mut self, names: &BTreeSet<Arc<str>>) {
        let keys: BTreeSet<ServiceKey> = names.iter().map(|name| convert::key(name)).collect();
        let Contribution {
            services,
            endpoints,
            ..
        } = &mut self.contribution;
        if services.keys().any(|key| !keys.contains(key)) {
            Arc::make_mut(services).retain(|key, _| keys.contains(key));
        }
        if endpoints.keys().any(|key| !keys.contains(key)) {
            Arc::make_mut(endpoints).retain(|key, _| keys.contains(key));
        }
        self.warnings
            .retain(|name, _| name.as_ref().is_none_or(|name| names.contains(name)));
    }

    fn set(&mut self, name: &Arc<str>, converted: Converted) {
        self.warn(Some(name.clone()), converted.warnings);
        let key = convert::key(name);
        let Contribution {
            services,
            endpoints,
            ..
        } = &mut self.contribution;
        let Some(service) = converted.service else {
            if services.contains_key(&key) {
                Arc::make_mut(services).remove(&key);
                Arc::make_mut(endpoints).remove(&key);
            }
            return;
        };
        if services.get(&key) != Some(&service) {
            Arc::make_mut(services).insert(key.clone(), service);
        }
        if endpoints.get(&key) != Some(&converted.endpoints) {
            Arc::make_mut(endpoints).insert(key, converted.endpoints);
        }
    }

    fn emit(&mut self, schedule: &Schedule, to: &watch::Sender<ConsulUpdate>) {
        self.was_complete |= schedule.is_complete();
        if !schedule.is_failing() {
            self.repeats.forget();
        }
        let sync_state = match (self.was_complete, schedule.is_failing()) {
            (false, _) => SyncState::Syncing,
            (true, false) => SyncState::Synced,
            (true, true) => SyncState::Stale {
                error: self.error.clone(),
            },
        };
        let is_syncing = sync_state == SyncState::Syncing;
        to.send_if_modified(|update| {
            let same_content = is_syncing || same(&update.contribution, &self.contribution);
            if update.sync_state == sync_state && same_content {
                return false;
            }
            update.sync_state = sync_state;
            if !same_content {
                update.contribution = self.contribution.clone();
            }
            true
        });
    }
}

/// Compares by pointer: unchanged parts keep theirs.
fn same(one: &Contribution, other: &Contribution) -> bool {
    Arc::ptr_eq(&one.services, &other.services) && Arc::ptr_eq(&one.endpoints, &other.endpoints)
}
