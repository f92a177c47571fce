//! One kind of an API server: listed and watched for as long as the server has it.

use std::sync::Arc;
use std::time::Duration;

use api::backoff::Backoff;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::watched_object::{Watched, WatchedObject};
use crate::kind::Resource;
use crate::kubernetes::connect::Cluster;
use crate::kubernetes::store::{Change, Changes, Reader, Writer, store};
use crate::kubernetes::watcher::{Selection, ServerRecovery, WatchTiming, Watcher};

/// Objects in a page: objects of configuration are small.
const PAGE: u32 = 500;

/// Changes of a kind, with the number of the watch that sends them.
pub(super) type NumberedChanges = (u64, Changes<WatchedObject>);

/// The resource to watch, and how.
#[derive(Clone)]
pub(super) struct Watching {
    pub(super) cluster: Cluster,
    pub(super) resource: Resource,
    pub(super) pace: WatchTiming,
    pub(super) peers: ServerRecovery,
    /// The interval of look-ups for a kind that the server lacks. `None`: the server has the kind.
    pub(super) again: Option<Duration>,
    /// The watch does not start while the server has this kind and allows it to be listed.
    pub(super) unless: Option<Resource>,
    /// If listing is forbidden, another kind replaces this one.
    pub(super) replaceable: bool,
    /// A changed status is a change.
    pub(super) with_status: bool,
}

impl Watching {
    /// Forwards the changes of the watch, for as long as it is polled.
    pub(super) async fn run(self, number: u64, to: mpsc::Sender<NumberedChanges>) {
        match self.with_status {
            true => self.run_as::<true>(number, to).await,
            false => self.run_as::<false>(number, to).await,
        }
    }

    async fn run_as<const WITH_STATUS: bool>(self, number: u64, to: mpsc::Sender<NumberedChanges>) {
        let (writer, reader) = store::<Watched<WITH_STATUS>>();
        tokio::select! {
            () = self.read(writer) => {}
            () = forward(number, reader, to) => {}
        }
    }

    async fn read<const WITH_STATUS: bool>(self, mut store: Writer<Watched<WITH_STATUS>>) {
        let other_is_read = match self.unless {
            Some(other) => {
                self.cluster.has(other, self.pace, &self.peers).await
                    && self.cluster.may_list(other, self.pace, &self.peers).await
            }
            None => false,
        };
        let is_replaced = self.replaceable
            && self
                .cluster
                .has(self.resource, self.pace, &self.peers)
                .await
            && !self
                .cluster
                .may_list(self.resource, self.pace, &self.peers)
                .await;
        if is_replaced {
            let resource = self.resource;
            tracing::warn!("may not list {resource}: another kind stands in");
        }
        // The empty list counts as listed: the source would never be synced without this kind.
        if other_is_read || is_replaced {
            store.replace(Vec::new());
            return std::future::pending().await;
        }
        let mut backoff = Backoff::new(self.pace.bounds());
        // A kind that the server lacks is listed as empty for the same reason, and looked for again later.
        loop {
            if let Some(again) = self.again
                && !self
                    .cluster
                    .has(self.resource, self.pace, &self.peers)
                    .await
            {
                store.replace(Vec::new());
                sleep(again).await;
                continue;
            }
            let cluster = self.cluster.clone();
            let listed = Watcher::new(cluster, Selection::default(), self.pace);
            let listed = listed.of(self.resource).beside(self.peers.clone());
            let begun = Instant::now();
            listed.in_pages_of(PAGE).while_served(&mut store).await;
            if begun.elapsed() >= self.pace.steady {
                backoff.reset();
            }
            sleep(backoff.next(fastrand::f64())).await;
        }
    }
}

async fn forward<const WITH_STATUS: bool>(
    number: u64,
    mut reader: Reader<Watched<WITH_STATUS>>,
    to: mpsc::Sender<NumberedChanges>,
) {
    while let Some(changes) = reader.changed().await {
        let Changes {
            changes,
            whole,
            freshness,
        } = changes;
        let changes = changes.into_iter().map(|change| match change {
            Change::Set(key, watched) => Change::Set(key, Arc::clone(&watched.0)),
            Change::Gone(key) => Change::Gone(key),
        });
        let changes = Changes {
            changes: changes.collect(),
            whole,
            freshness,
        };
        if to.send((number, changes)).await.is_err() {
            return;
        }
    }
}
