//! Fetches keys as their schedule says, and puts them into the hub's world.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::security::KeySet;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::sleep_until;
use tracing::{info, warn};

use super::hub::Hub;
use super::jwks::{Fetch, FetchError, Fetcher, WantedKeys, origin, wanted_keys};

/// Fetches what policies want, for ever.
pub(crate) async fn run(hub: Arc<Hub>) {
    let mut policies = hub.request_authentications();
    let mut fetches = Fetches::new(&hub);
    // Reading the wanted sources is work for each policy, and only policies change them.
    let mut has_changed = true;
    loop {
        let news = has_changed.then(|| wanted_keys(&policies.borrow_and_update()));
        has_changed = false;
        // Until something is served, whoever waits is to know when nothing has to be waited for.
        let begins = hub.snapshot().is_none();
        let next = fetches.begin_due(news);
        let now = hub.clock.now();
        let patience = hub.jwks.state().patience(now).filter(|_| begins);
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
            Some(done) = fetches.tasks.join_next_with_id() => fetches.take_done(done),
            () = wake => {}
        }
        // The first snapshot may have waited for this fetch, or for the end of its patience.
        if begins {
            hub.update(|_| api::model::Changes::default());
        }
    }
}

/// The fetches that go on, each in a task of its own.
struct Fetches {
    hub: Arc<Hub>,
    fetcher: Arc<Fetcher>,
    tasks: JoinSet<Result<KeySet, FetchError>>,
    under_way: HashMap<Id, (Fetch, AbortHandle)>,
}

impl Fetches {
    fn new(hub: &Arc<Hub>) -> Self {
        Self {
            hub: Arc::clone(hub),
            fetcher: Arc::new(Fetcher::new(hub.jwks.allowed.clone())),
            tasks: JoinSet::new(),
            under_way: HashMap::new(),
        }
    }

    /// Begins the fetches that are due, and aborts those that no policy wants any more. `news`: the wanted keys, where they may
    /// have changed. Returns the time at which the next fetch is due.
    fn begin_due(&mut self, news: Option<WantedKeys>) -> Option<Duration> {
        let hub = &self.hub;
        let now = hub.clock.now();
        let mut state = hub.jwks.state();
        let discarded = news.map(|all| state.set(all, now)).unwrap_or_default();
        let due = state.due(now);
        let forgotten = discarded.keys.then(|| state.key_sets());
        let next = state.next(now);
        // `put_key_sets` takes the lock of the hub's inputs, and `Hub::update` takes this one while it holds the registries.
        drop(state);
        for (fetch, task) in self.under_way.values() {
            if discarded.fetches.contains(&fetch.number) {
                task.abort();
            }
        }
        if let Some(keys) = forgotten {
            hub.put_key_sets(keys);
        }
        let forbidden = hub.jwks.forbidden(&hub.world());
        for fetch in due {
            let (fetcher, forbidden) = (Arc::clone(&self.fetcher), forbidden.clone());
            let of = fetch.clone();
            let task = async move { fetcher.fetch_jwks(&of.source, &forbidden, of.timeout).await };
            let task = self.tasks.spawn(task);
            self.under_way.insert(task.id(), (fetch, task));
        }
        next
    }

    /// Takes the result of a task that has ended.
    fn take_done(&mut self, done: Result<(Id, Result<KeySet, FetchError>), JoinError>) {
        let (id, fetched) = match done {
            Ok((id, fetched)) => (id, Some(fetched)),
            Err(error) if error.is_cancelled() => (error.id(), None),
            // A mistake of this program.
            Err(error) => {
                let error_text = "internal error".to_owned();
                (error.id(), Some(Err(FetchError::Answer(error_text))))
            }
        };
        let Some((fetch, _)) = self.under_way.remove(&id) else {
            return;
        };
        match fetched {
            Some(fetched) => fetched_one(&self.hub, &fetch, fetched),
            None => self.hub.jwks.state().aborted(&fetch),
        }
    }
}

fn fetched_one(hub: &Hub, fetch: &Fetch, fetched: Result<KeySet, FetchError>) {
    let result = match &fetched {
        Ok(_) => "success",
        Err(error) => error.reason(),
    };
    hub.metrics.jwks_fetched(result);
    let (at, from) = (hub.clock.now(), origin(fetch.source.url()));
    let mut state = hub.jwks.state();
    let failed = fetched.as_ref().err().map(ToString::to_string);
    let news = state.done(fetch, fetched, at, hub.jwks.refresh);
    let keys = news.keys.then(|| state.key_sets());
    // `put_key_sets` takes the lock of the hub's inputs, and `Hub::update` takes this one while it holds the registries.
    drop(state);
    if news.trouble
        && let Some(more) = hub.jwks.log_limiter.suffix_if_allowed()
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
    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// An edited policy leaves no more fetches under way than one that stays: each holds a socket and up to a megabyte.
    #[tokio::test]
    async fn fetches_end_when_their_places_are_wanted_no_longer() {
        let hub = crate::discovery::testing::hub_of(&["--jwksAllow=127.0.0.1"]);
        let (id, mut memory) = crate::discovery::testing::memory_of(&hub);
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
            hub.put(&id, put.contribution);
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
