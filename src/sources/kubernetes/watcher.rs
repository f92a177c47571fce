//! Objects of an API server: listed in pages, then watched. Updates go to a store as they arrive.
//!
//! A watch that ends by its timeout is resumed at the version of the last event or bookmark; so is a watch that has lasted and
//! then ended early or was cut, if the server has reached that version: a server that was restored from a backup has not. A watch
//! that was short or silent, that could not be opened, or that the server ended with an error (410 Gone) is followed by a relist,
//! since events may have been missed. So is any watch while objects are left out, since there may be room for them now: a relist is
//! due as soon as others have left room, but a minute after the last one at least. While the server is away the store
//! keeps its objects. An object that cannot be decoded is left out alone. Objects share their room by namespaces: the namespaces that
//! hold most give way.
//!
//! Responses are untrusted. So a list has a bound in bytes, objects, pages and time, and failures are retried with backoff
//! until a watch has lasted: a complete list, or a watch that has begun, does not reset the backoff. A panic is such a failure.

mod event;
mod items;
mod panics;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
mod recovery;
mod resume;
mod room_list;

use std::convert::Infallible;
use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

use api::backoff::{Backoff, Bounds};
use api::log_repeats::LogRepeatLimiter;
use kube::core::Request;
use kube::core::params::{ListParams, WatchParams};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

use super::answer::chunk;
use super::connect::{Cluster, REQUEST};
use super::failure::{Action, Cause, Failure, OfCluster};
use super::line_buffer::LineBuffer;
use super::page_progress::PageProgress;
use super::store::{ObjectList, Writer};
use crate::kind::{Key, Kind, Resource};
use crate::offload::offload;
use crate::panics::caught;
use event::{DecodedChange, DecodedEvent};
use items::{Items, Unreadable};
pub(crate) use recovery::ServerRecovery;
use room_list::{MIN_LIST_INTERVAL, RoomList};

/// Objects in a page. An endpoint slice has 30 kB, and a page is in memory as a whole.
const PAGE: u32 = 100;
/// The bytes of an event: an object of at most 1.5 MiB in etcd, and the overhead of JSON.
const MAX_EVENT_BYTES: usize = 4 << 20;

/// Answers of 410 Gone, without a lasting watch in between, before they count as a failure.
const MAX_CONSECUTIVE_GONE: u32 = 3;

/// A source of objects of one kind.
pub trait ObjectSource<K: Kind> {
    /// Writes the source's changes to the store, for as long as it is polled.
    fn run(self, store: Writer<K>) -> impl Future<Output = Infallible> + Send;
}

/// Selects objects of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The only namespace.
    pub namespace: Option<String>,
    /// The only object. A role may allow just that.
    pub name: Option<String>,
    /// By their labels, as the API spells a selector.
    pub labels: Option<String>,
}

/// Timeouts and backoff of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchTiming {
    /// The first delay between two tries, doubled up to the longest.
    pub first: Duration,
    pub max: Duration,
    /// The timeout of a list's page, and of a watch's beginning.
    pub request: Duration,
    /// `timeoutSeconds` of a watch, minus up to a fifth as jitter.
    pub watch: Duration,
    /// The time after `watch` at which a watch that has not ended counts as dead.
    pub grace: Duration,
    /// The duration of a watch that resets the backoff.
    pub steady: Duration,
}

impl Default for WatchTiming {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(100),
            max: Duration::from_secs(60),
            request: REQUEST,
            watch: Duration::from_secs(290),
            grace: Duration::from_secs(10),
            steady: Duration::from_secs(10),
        }
    }
}

impl WatchTiming {
    pub(crate) const fn bounds(&self) -> Bounds {
        Bounds {
            first: self.first,
            max: self.max,
        }
    }
}

/// Objects of an API server.
#[derive(Debug)]
pub struct Watcher<K> {
    cluster: Cluster,
    resource: Resource,
    selection: Selection,
    timing: WatchTiming,
    recovery: ServerRecovery,
    /// Objects in a page: fewer where a page was too large.
    page: u32,
    room: usize,
    between_lists: Duration,
    kind: PhantomData<fn() -> K>,
}

#[derive(Deserialize)]
struct Page<'a> {
    metadata: PageMetadata,
    #[serde(borrow)]
    items: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    resource_version: String,
    #[serde(default, rename = "continue")]
    more: Option<String>,
}

/// The end of a watch.
enum WatchEnd {
    /// The watch ended by its timeout: it can be resumed.
    InTime,
    Early,
    /// There is room for objects that were left out: a list has them.
    Room,
}

impl<K: Kind> Watcher<K> {
    #[must_use]
    pub fn new(cluster: Cluster, selection: Selection, timing: WatchTiming) -> Self {
        Self {
            cluster,
            resource: K::RESOURCE,
            selection,
            timing,
            recovery: ServerRecovery::default(),
            page: PAGE,
            room: K::ROOM,
            between_lists: MIN_LIST_INTERVAL,
            kind: PhantomData,
        }
    }

    /// Watches another resource than the kind's own.
    pub(crate) const fn of(mut self, resource: Resource) -> Self {
        self.resource = resource;
        self
    }

    /// Objects in a page, where they are smaller than those of other kinds.
    pub(crate) const fn in_pages_of(mut self, objects: u32) -> Self {
        self.page = objects;
        self
    }

    pub(crate) fn beside(mut self, recovery: ServerRecovery) -> Self {
        self.recovery = recovery;
        self
    }

    fn action(&self, verb: &'static str) -> Action {
        Action {
            verb,
            resource: self.resource.to_string(),
            name: self.selection.name.clone(),
        }
    }

    fn of_cluster(&self) -> OfCluster<'_> {
        OfCluster(self.cluster.name().map(AsRef::as_ref))
    }

    fn request(&self) -> Request {
        Request::new(self.resource.path(self.selection.namespace.as_deref()))
    }

    fn fields(&self) -> Option<String> {
        let name = self.selection.name.as_ref()?;
        Some(format!("metadata.name={name}"))
    }

    /// Lists all objects, as far as there is room; returns them with the list's version.
    async fn list(&mut self) -> Result<(ObjectList<K>, String), Failure> {
        let action = self.action("list");
        let cluster = self.cluster.clone();
        let failure = |cause| cluster.failure(&action, cause);
        let mut all = Items::new(self.room);
        let mut progress = PageProgress::new();
        loop {
            let params = ListParams {
                field_selector: self.fields(),
                label_selector: self.selection.labels.clone(),
                limit: Some(self.page),
                continue_token: progress.token(),
                ..ListParams::default()
            };
            let exchange = self.cluster.exchange(&action, self.timing.request);
            // `all` moves with the page to the thread that decodes it, and back.
            let read = move |bytes: &[u8]| {
                let page: Page<'_> = serde_json::from_slice(bytes)?;
                let items = page.items.map(|items| all.read_page(items.get()));
                Ok((all, items.transpose()?.unwrap_or_default(), page.metadata))
            };
            let request = self.request().list(&params);
            let (items, count, metadata) = match exchange.read(request, read).await {
                Ok(page) => page,
                Err(failure) => {
                    // The next try is by smaller pages.
                    if matches!(failure.cause, Cause::TooLarge(_)) {
                        self.page = (self.page / 2).max(1);
                    }
                    return Err(failure);
                }
            };
            all = items;
            let next = metadata.more.filter(|token| !token.is_empty());
            let Some(next) = next else {
                return Ok((all.end(), metadata.resource_version));
            };
            let went = progress.go_on(count, self.page, next);
            went.map_err(failure)?;
        }
    }

    /// Follows the changes after `version`, which is moved on.
    async fn watch(
        &self,
        store: &mut Writer<K>,
        version: &mut String,
        health: &mut Health,
    ) -> Result<WatchEnd, Failure> {
        let action = self.action("watch");
        let asked = self.timing.watch.mul_f64(1.0 - 0.2 * fastrand::f64());
        let params = WatchParams {
            field_selector: self.fields(),
            label_selector: self.selection.labels.clone(),
            timeout: Some(u32::try_from(asked.as_secs()).unwrap_or(u32::MAX).max(1)),
            bookmarks: true,
            ..WatchParams::default()
        };
        let opened = Instant::now();
        let within = asked + self.timing.grace;
        let mut body = self
            .cluster
            .exchange(&action, self.timing.request)
            .stream(self.request().watch(&params, version))
            .await?;
        store.fresh();
        health.begins(&self.recovery);
        let failure = |cause| self.cluster.failure(&action, cause);
        let mut lines = LineBuffer::new(MAX_EVENT_BYTES);
        loop {
            let bytes = tokio::select! {
                bytes = chunk(&mut body, opened + within, within) => bytes.map_err(failure)?,
                () = health.room.wait() => return Ok(WatchEnd::Room),
            };
            let Some(bytes) = bytes else {
                break;
            };
            lines.push(&bytes);
            while let Some(line) = lines.next().map_err(failure)? {
                // One after the other, in the order of the watch.
                let read = offload(line.len(), move || DecodedEvent::read(&line)).await;
                let event =
                    read.unwrap_or_else(|| Err(Cause::Malformed("decoding panicked".to_owned())));
                let event = event.map_err(failure)?;
                self.apply(event.change, store, health);
                // The version moves on after its change is applied: a watch that resumes must not skip it.
                if !event.version.is_empty() {
                    *version = event.version.into();
                }
            }
            health.room.plan(store.has_room_again(), self.between_lists);
        }
        // A server counts in whole seconds.
        if opened.elapsed() + Duration::from_secs(1) >= asked {
            return Ok(WatchEnd::InTime);
        }
        Ok(WatchEnd::Early)
    }

    /// Applies an event to the store.
    fn apply(&self, change: DecodedChange<K>, store: &mut Writer<K>, health: &mut Health) {
        match change {
            DecodedChange::Set(object) => {
                if let Some(count) = store.set_within(object, self.room) {
                    self.no_room(store, count, &mut health.left_out);
                }
            }
            DecodedChange::Unreadable(one) => self.report(store, &one, &mut health.unreadable),
            DecodedChange::Gone(key) => store.remove(&key),
            DecodedChange::None => {}
        }
    }

    /// Lists, unless `resumed` has the version at which the last watch broke, and watches until another list is due. Leaves in
    /// `resumed` where the next watch can resume: a watch that has lasted and was cut proves its version. A server that falls
    /// silent is not trusted to have sent all events.
    async fn list_and_watch(
        &mut self,
        store: &mut Writer<K>,
        health: &mut Health,
        resumed: &mut Option<String>,
    ) -> Result<(), Failure> {
        let mut version = match resumed.take() {
            Some(version) if self.has_reached(&version).await? => version,
            Some(_) | None => self.relist(store, health).await?,
        };
        loop {
            health.opened = None;
            let ended = self.watch(store, &mut version, health).await;
            let lasted = health
                .opened
                .is_some_and(|at| at.elapsed() >= self.timing.steady);
            health.lasted |= lasted;
            let may_resume = lasted && !store.leaves_out();
            match ended {
                // Objects that were left out may fit now: relist.
                Ok(WatchEnd::InTime) if store.leaves_out() => return Ok(()),
                Ok(WatchEnd::Room) => return Ok(()),
                Ok(WatchEnd::InTime) => {}
                Ok(WatchEnd::Early) => {
                    *resumed = may_resume.then_some(version);
                    return Ok(());
                }
                Err(failure) => {
                    let is_cut = matches!(failure.cause, Cause::Broken(_));
                    let may_resume = may_resume && is_cut;
                    *resumed = may_resume.then_some(version);
                    return Err(failure);
                }
            }
        }
    }

    /// Replaces the objects by a list of them; returns its version.
    async fn relist(
        &mut self,
        store: &mut Writer<K>,
        health: &mut Health,
    ) -> Result<String, Failure> {
        let (listed, version) = self.list().await?;
        let unreadable = &listed.unreadable;
        if let Some((key, why)) = unreadable.first_key_value() {
            self.warn(key, why, unreadable.len(), &mut health.unreadable);
        }
        health.room.note_list();
        let count = store.replace_within(listed, self.room);
        if count > 0 {
            self.no_room(store, count, &mut health.left_out);
        }
        Ok(version)
    }

    /// Logs that objects exceed the limits, and which do.
    fn no_room(&self, store: &Writer<K>, count: usize, limit: &mut LogRepeatLimiter) {
        let subject = format!("keep all {}", self.resource);
        if let Some(times) = limit.observe(&subject) {
            let first: Vec<_> = store.first_left_out();
            let first: Vec<_> = first.iter().map(ToString::to_string).collect();
            let (room, first, of) = (self.room, first.join(", "), self.of_cluster());
            tracing::warn!(
                "cannot {subject}{of}: more than {room} bytes; {count} skipped, of the namespaces that hold most: {first} ({times} times)"
            );
        }
    }

    fn report(&self, store: &mut Writer<K>, (key, why): &Unreadable, limit: &mut LogRepeatLimiter) {
        let count = store.cannot_read(key, why);
        self.warn(key, why, count, limit);
    }

    /// Logs an unreadable object. The next objects may be unreadable, too: one line for each power of two.
    fn warn(&self, key: &Key, why: &str, count: usize, limit: &mut LogRepeatLimiter) {
        let subject = format!("read {}", self.resource);
        if let Some(times) = limit.observe(&subject) {
            let of = self.of_cluster();
            tracing::warn!(
                "cannot {subject} {key}{of}: {why}; skipped; a known object keeps its last good version ({count} such objects, {times} times)"
            );
        }
    }

    /// Follows the kind until the server answers that it has no such kind.
    pub(crate) async fn while_served(mut self, store: &mut Writer<K>) {
        self.run_with_backoff(store, true).await;
    }

    /// Follows the kind for ever, or until the server does not have it.
    async fn run_with_backoff(&mut self, store: &mut Writer<K>, while_served: bool) {
        let mut backoff = Backoff::new(self.timing.bounds());
        let mut repeats = LogRepeatLimiter::default();
        let mut health = Health::default();
        let mut others = self.recovery.subscribe();
        let mut consecutive_gone = 0;
        let mut resumed = None;
        // Once between two watches that have lasted.
        let mut may_hurry = true;
        loop {
            // A notification from before this try tells nothing about the next pause.
            others.mark_unchanged();
            let work = self.list_and_watch(store, &mut health, &mut resumed);
            let ended = caught(work).await;
            if ended.is_err() {
                self.panicked(store, &mut health);
            }
            // Ignore this source's own notification.
            if std::mem::take(&mut health.others_notified) {
                others.mark_unchanged();
            }
            if std::mem::take(&mut health.lasted) {
                backoff.reset();
                repeats.forget();
                consecutive_gone = 0;
                may_hurry = true;
            }
            let Ok(Err(failure)) = ended else {
                sleep(backoff.next(fastrand::f64())).await;
                continue;
            };
            match failure.code() {
                // 410 Gone: the server has compacted this version, which is no failure.
                Some(410) if consecutive_gone < MAX_CONSECUTIVE_GONE => {
                    consecutive_gone += 1;
                    tracing::debug!("{failure}: listing again");
                }
                Some(404) if while_served => {
                    return store.stale(Instant::now(), failure.to_string());
                }
                code => {
                    failure.warn(&mut repeats);
                    let message = failure.to_string();
                    match code {
                        Some(403) => store.refused(Instant::now(), message),
                        Some(_) | None => store.stale(Instant::now(), message),
                    }
                    health.was_away |= failure.is_away();
                }
            }
            let hurries = may_hurry && failure.is_away();
            tokio::select! {
                () = sleep(failure.wait(&mut backoff, fastrand::f64())) => {}
                Ok(()) = others.changed(), if hurries => may_hurry = false,
            }
        }
    }
}

/// The progress of a watch, and its limiter of log lines.
#[derive(Default)]
struct Health {
    /// The time at which the watch began.
    opened: Option<Instant>,
    /// A watch has lasted for `steady`.
    lasted: bool,
    /// No request was answered since a watch began.
    was_away: bool,
    /// Other sources of the server were notified that the server answers again.
    others_notified: bool,
    /// The next list for the sake of objects that were left out.
    room: RoomList,
    /// The last warning about objects.
    unreadable: LogRepeatLimiter,
    left_out: LogRepeatLimiter,
}

impl Health {
    /// A watch has begun.
    fn begins(&mut self, recovery: &ServerRecovery) {
        self.opened = Some(Instant::now());
        if std::mem::take(&mut self.was_away) {
            recovery.notify();
            self.others_notified = true;
        }
    }
}

impl<K: Kind> ObjectSource<K> for Watcher<K> {
    async fn run(mut self, mut store: Writer<K>) -> Infallible {
        loop {
            self.run_with_backoff(&mut store, false).await;
        }
    }
}

#[cfg(test)]
mod lying_server_tests;
#[cfg(test)]
mod tests;
