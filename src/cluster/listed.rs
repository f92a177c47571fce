//! Objects of an API server: listed in pages, then watched. What is heard goes to a store as it arrives.
//!
//! A watch that the server ends when its time is up goes on where it was, by the version that the last event or bookmark
//! named. Any other end, and 410 Gone, is a list again: something may have been missed. While the server is away the store
//! keeps what it has.

use std::convert::Infallible;
use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

use kube::core::Request;
use kube::core::params::{ListParams, WatchParams};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::answer::{Status, chunk};
use crate::backoff::{Backoff, Bounds};
use crate::connect::{Cluster, REQUEST};
use crate::failure::{Action, Cause, Failure};
use crate::kind::{Kind, Metadata, Resource};
use crate::lines::Lines;
use crate::repeats::Repeats;
use crate::store::Writer;

/// Objects in a page. An endpoint slice has 30 kB, and a page is in memory as a whole.
const PAGE: u32 = 100;
/// An event: an object of at most 1.5 MiB in etcd, and what JSON adds.
const EVENT_BYTES: usize = 4 << 20;

/// More objects of one kind than any cluster has.
const OBJECTS: usize = 500_000;

/// Sources of one server: when one of them is answered again, the others need not wait until their pause is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers(watch::Sender<u64>);

impl Peers {
    fn answered(&self) {
        self.0.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// Where objects of one kind come from.
pub trait Source<K: Kind> {
    /// Writes what it hears, for as long as it is polled.
    fn run(self, store: Writer<K>) -> impl Future<Output = Infallible> + Send;
}

/// Which objects of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// In one namespace only.
    pub namespace: Option<String>,
    /// One object only. A role may allow just that.
    pub name: Option<String>,
    /// By their labels, as the API spells a selector.
    pub labels: Option<String>,
}

/// How patient a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Between two tries: the first wait, doubled up to the longest.
    pub first: Duration,
    pub most: Duration,
    /// For a list, and for a watch to begin.
    pub request: Duration,
    /// How long a watch is asked for; up to a fifth less, so that not all end together.
    pub watch: Duration,
    /// How long after that a watch that has not ended is dead.
    pub grace: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(100),
            most: Duration::from_secs(60),
            request: REQUEST,
            watch: Duration::from_secs(290),
            grace: Duration::from_secs(10),
        }
    }
}

impl Pace {
    pub(crate) const fn bounds(&self) -> Bounds {
        Bounds {
            first: self.first,
            most: self.most,
        }
    }
}

/// Objects of an API server.
#[derive(Debug)]
pub struct Listed<K> {
    cluster: Cluster,
    resource: Resource,
    selection: Selection,
    pace: Pace,
    peers: Peers,
    /// Objects in a page: fewer where a page was too large.
    page: u32,
    kind: PhantomData<fn() -> K>,
}

#[derive(Deserialize)]
#[serde(bound = "K: Kind")]
struct Page<K> {
    metadata: PageMetadata,
    #[serde(default)]
    items: Option<Vec<K>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    resource_version: String,
    #[serde(default, rename = "continue")]
    more: Option<String>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    what: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// As much of an object as every one has.
#[derive(Deserialize)]
struct Any {
    metadata: Metadata,
}

/// How a watch ended.
enum End {
    /// As the server was asked to: it may go on.
    InTime,
    Early,
}

impl<K: Kind> Listed<K> {
    #[must_use]
    pub fn new(cluster: Cluster, selection: Selection, pace: Pace) -> Self {
        Self {
            cluster,
            resource: K::RESOURCE,
            selection,
            pace,
            peers: Peers::default(),
            page: PAGE,
            kind: PhantomData,
        }
    }

    /// Another one than the kind's own.
    pub(crate) const fn of(mut self, resource: Resource) -> Self {
        self.resource = resource;
        self
    }

    /// Objects in a page, where they are smaller than those of other kinds.
    pub(crate) const fn in_pages_of(mut self, objects: u32) -> Self {
        self.page = objects;
        self
    }

    pub(crate) fn beside(mut self, peers: Peers) -> Self {
        self.peers = peers;
        self
    }

    fn action(&self, verb: &'static str) -> Action {
        Action {
            verb,
            resource: self.resource.to_string(),
            name: self.selection.name.clone(),
        }
    }

    fn request(&self) -> Request {
        Request::new(self.resource.path(self.selection.namespace.as_deref()))
    }

    fn fields(&self) -> Option<String> {
        let name = self.selection.name.as_ref()?;
        Some(format!("metadata.name={name}"))
    }

    /// All objects, and the version that they are of.
    async fn list(&mut self) -> Result<(Vec<K>, String), Failure> {
        let action = self.action("list");
        let mut objects = Vec::new();
        let mut more = None;
        loop {
            let params = ListParams {
                field_selector: self.fields(),
                label_selector: self.selection.labels.clone(),
                limit: Some(self.page),
                continue_token: more,
                ..ListParams::default()
            };
            let exchange = self.cluster.exchange(&action, self.pace.request);
            let page: Page<K> = match exchange.json(self.request().list(&params)).await {
                Ok(page) => page,
                Err(failure) => {
                    // The next try is by smaller pages.
                    if matches!(failure.cause, Cause::TooLarge(_)) {
                        self.page = (self.page / 2).max(1);
                    }
                    return Err(failure);
                }
            };
            objects.extend(page.items.unwrap_or_default());
            if objects.len() > OBJECTS {
                let cause = Cause::TooMany(OBJECTS);
                return Err(Failure { action, cause });
            }
            more = page.metadata.more.filter(|token| !token.is_empty());
            if more.is_none() {
                return Ok((objects, page.metadata.resource_version));
            }
        }
    }

    /// Follows what changes after `version`, which is moved on.
    async fn watch(
        &self,
        store: &mut Writer<K>,
        version: &mut String,
        began: &mut bool,
    ) -> Result<End, Failure> {
        let action = self.action("watch");
        let asked = self.pace.watch.mul_f64(1.0 - 0.2 * fastrand::f64());
        let params = WatchParams {
            field_selector: self.fields(),
            label_selector: self.selection.labels.clone(),
            timeout: Some(u32::try_from(asked.as_secs()).unwrap_or(u32::MAX).max(1)),
            bookmarks: true,
            ..WatchParams::default()
        };
        let opened = Instant::now();
        let within = asked + self.pace.grace;
        let mut body = self
            .cluster
            .exchange(&action, self.pace.request)
            .stream(self.request().watch(&params, version))
            .await?;
        store.fresh();
        let failure = |cause| Failure {
            action: action.clone(),
            cause,
        };
        let mut lines = Lines::new(EVENT_BYTES);
        while let Some(bytes) = chunk(&mut body, opened + within, within)
            .await
            .map_err(failure)?
        {
            lines.push(&bytes);
            while let Some(line) = lines.next().map_err(failure)? {
                apply(store, version, &line).map_err(failure)?;
                *began = true;
            }
        }
        // A server counts in whole seconds.
        if opened.elapsed() + Duration::from_secs(1) >= asked {
            *began = true;
            return Ok(End::InTime);
        }
        Ok(End::Early)
    }

    /// Lists, and watches until another list is due.
    async fn round(&mut self, store: &mut Writer<K>, health: &mut Health) -> Result<(), Failure> {
        let (objects, mut version) = self.list().await?;
        store.replace(objects);
        if std::mem::take(&mut health.failing) {
            self.peers.answered();
        }
        loop {
            match self.watch(store, &mut version, &mut health.began).await? {
                End::InTime => {}
                End::Early => return Ok(()),
            }
        }
    }

    /// Until the server says that it has no such kind.
    pub(crate) async fn while_served(mut self, store: &mut Writer<K>) {
        self.follow(store, true).await;
    }

    /// For ever, or until there is no such kind.
    async fn follow(&mut self, store: &mut Writer<K>, while_served: bool) {
        let mut backoff = Backoff::new(self.pace.bounds());
        let mut repeats = Repeats::default();
        let mut health = Health::default();
        let mut others = self.peers.0.subscribe();
        loop {
            health.began = false;
            others.mark_unchanged();
            let ended = self.round(store, &mut health).await;
            // Only a watch that has said something shows that all is well: one that ends as soon as it begins would be asked
            // for without a pause.
            if health.began {
                backoff.reset();
                repeats.forget();
            }
            let mut wait = backoff.next(fastrand::f64());
            if let Err(failure) = ended {
                if let Cause::Status {
                    after: Some(after), ..
                } = failure.cause
                {
                    wait = wait.max(after);
                }
                match failure.code() {
                    // How a server says that it has forgotten, and no fault.
                    Some(410) => tracing::debug!("{failure}: listing again"),
                    Some(404) if while_served => {
                        return store.stale(Instant::now(), failure.to_string());
                    }
                    code => {
                        repeats.say(&failure);
                        let words = failure.to_string();
                        match code {
                            Some(403) => store.refused(Instant::now(), words),
                            Some(_) | None => store.stale(Instant::now(), words),
                        }
                        health.failing = true;
                    }
                }
            }
            tokio::select! {
                () = sleep(wait) => {}
                Ok(()) = others.changed(), if health.failing => {}
            }
        }
    }
}

/// How it went so far.
#[derive(Default)]
struct Health {
    /// The watch has said something.
    began: bool,
    /// The last try failed.
    failing: bool,
}

/// One event: what it says of the store, and the version that it is of.
fn apply<K: Kind>(store: &mut Writer<K>, version: &mut String, line: &[u8]) -> Result<(), Cause> {
    fn decode<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Cause> {
        serde_json::from_str(text).map_err(|error| Cause::Malformed(error.to_string()))
    }
    let event: Event<'_> =
        serde_json::from_slice(line).map_err(|error| Cause::Malformed(error.to_string()))?;
    let object = event.object.get();
    if event.what == "ERROR" {
        return Err(decode::<Status>(object)?.cause(None, None));
    }
    let metadata = decode::<Any>(object)?.metadata;
    match &*event.what {
        "ADDED" | "MODIFIED" => store.set(decode(object)?),
        "DELETED" => store.remove(&metadata.key()),
        // Kinds of events yet to come, and bookmarks: the version is all they say.
        _ => {}
    }
    if !metadata.resource_version.is_empty() {
        *version = metadata.resource_version.into();
    }
    Ok(())
}

impl<K: Kind> Source<K> for Listed<K> {
    async fn run(mut self, mut store: Writer<K>) -> Infallible {
        loop {
            self.follow(&mut store, false).await;
        }
    }
}

#[cfg(test)]
mod tests;
