//! Sources that dial: each stream has objects of its own, and all of them together count as one source, since replicas send the
//! same.
//!
//! An object stays for as long as any stream has it: a replica that lags behind, or has less, takes nothing away. Of an object
//! that several have, the version of the stream that has changed it last holds: a replica that lags behind, or has lost its own source,
//! hides no change that another has seen. Until one changes it, the version of the stream that began first holds, so that a replica
//! that comes back with an older list changes nothing. An object that a stream sends anew after its removal is changed; all that a
//! stream sends when it connects again counts as unchanged: the order of streams decides. The objects of a stream that ends go when
//! another stream has sent the same collections; those of the last one stay, behind what others send, and the next begins with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mcp::sink::Changes;
use mcp::sink::union::{Precedence, SourceUnion, UnionChange};

use super::source_objects::{Apply, ReceivedObject, SourceLogRateLimiters, SourceObjects};

/// Sources that dial at a time.
pub(super) const STREAMS: usize = 64;

/// The objects of all sources that dial.
pub(crate) struct DialledSources {
    /// The ID that this program sends as a node.
    id: String,
    collections: Vec<String>,
    apply: Apply,
    pub(super) log_limiters: Arc<SourceLogRateLimiters>,
    state: Mutex<DialledState>,
}

struct DialledState {
    /// In the order of their precedence.
    sources: Vec<DialledSource>,
    union: SourceUnion<ReceivedObject>,
    next: u64,
}

#[derive(Clone)]
struct DialledSource {
    id: u64,
    objects: Arc<SourceObjects>,
    /// The collections that it has sent.
    received: BTreeSet<Arc<str>>,
    is_open: bool,
}

/// The slot of a stream among the sources that dial; it ends with the stream.
pub(super) struct DialledSlot {
    sources: Arc<DialledSources>,
    id: u64,
    pub(super) objects: Arc<SourceObjects>,
}

impl Drop for DialledSlot {
    fn drop(&mut self) {
        self.sources.close(self.id);
    }
}

impl fmt::Debug for DialledSources {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let objects = state.sources.iter().map(|source| &source.objects);
        to.debug_list().entries(objects).finish()
    }
}

impl DialledSources {
    /// No source has dialled yet.
    pub(crate) fn new(id: &str, collections: &[String], apply: Apply) -> Arc<Self> {
        let this = Arc::new(Self {
            id: id.to_owned(),
            collections: collections.to_vec(),
            apply,
            log_limiters: Arc::default(),
            state: Mutex::new(DialledState {
                sources: Vec::new(),
                union: SourceUnion::new(Precedence::LastChange),
                next: 0,
            }),
        });
        this.add(&mut this.state());
        this
    }

    fn state(&self) -> MutexGuard<'_, DialledState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a stream, with the objects of one that has ended if there are any. `None`: there are too many.
    pub(super) fn open(self: &Arc<Self>) -> Option<DialledSlot> {
        let mut state = self.state();
        if state.sources.iter().all(|source| source.is_open) {
            if state.sources.len() >= STREAMS {
                return None;
            }
            self.add(&mut state);
        }
        let source = state.sources.iter_mut().find(|source| !source.is_open)?;
        source.is_open = true;
        Some(DialledSlot {
            sources: Arc::clone(self),
            id: source.id,
            objects: Arc::clone(&source.objects),
        })
    }

    /// Adds a source without objects, to which the others are preferred.
    fn add(self: &Arc<Self>, state: &mut DialledState) {
        let id = state.next;
        state.next += 1;
        // The sources own these objects, so a strong pointer would be a cycle.
        let sources = Arc::downgrade(self);
        let apply: Apply = Arc::new(move |changes| {
            if let Some(sources) = sources.upgrade() {
                sources.take(id, changes);
            }
        });
        let limiters = Arc::clone(&self.log_limiters);
        let objects = SourceObjects::sharing(&self.id, &self.collections, apply, limiters);
        let places: Vec<_> = (0..state.sources.len()).map(Some).chain([None]).collect();
        // It is empty, so nothing changes.
        let _none = state.union.replace(&places);
        state.sources.push(DialledSource {
            id,
            objects,
            received: BTreeSet::new(),
            is_open: false,
        });
    }

    /// Applies the changes of one source.
    fn take(&self, id: u64, changes: &[Changes<ReceivedObject>]) {
        let mut state = self.state();
        let Some(place) = state.sources.iter().position(|source| source.id == id) else {
            return;
        };
        let mut changed = Vec::new();
        for changes in changes {
            changed.extend(state.union.apply(place, changes));
            if let Some(source) = state.sources.get_mut(place) {
                source.received.insert(Arc::clone(&changes.collection));
            }
        }
        // With these it may take the place of a source that has ended.
        changed.extend(state.drop_ended());
        drop(state);
        self.emit(changed);
    }

    /// A stream has ended.
    fn close(&self, id: u64) {
        let mut state = self.state();
        let mut sources = state.sources.iter_mut();
        if let Some(source) = sources.find(|source| source.id == id) {
            source.is_open = false;
        }
        let changed = state.drop_ended();
        drop(state);
        self.emit(changed);
    }

    /// Tells the owner, who asks for the state again: so without the lock.
    fn emit(&self, changed: Vec<UnionChange<ReceivedObject>>) {
        let mut by_collection = BTreeMap::<Arc<str>, Changes<ReceivedObject>>::new();
        for UnionChange {
            collection,
            name,
            object,
        } in changed
        {
            let changes = by_collection
                .entry(Arc::clone(&collection))
                .or_insert_with(|| Changes {
                    collection,
                    ..Changes::default()
                });
            match object {
                Some(object) => changes.set.push((name, object)),
                None => changes.removed.push(name),
            }
        }
        let changes: Vec<_> = by_collection.into_values().collect();
        (self.apply)(&changes);
    }

    /// Returns true if any source has sent every collection once.
    pub(crate) fn is_synced(&self) -> bool {
        let state = self.state();
        state.sources.iter().any(DialledSource::is_synced)
    }

    /// Returns the reason why no stream delivers objects, though one has sent all before.
    pub(crate) fn lost(&self) -> Option<Arc<str>> {
        let state = self.state();
        let synced = state.sources.iter().filter(|source| source.is_synced());
        let causes: Option<Vec<_>> = synced.map(|source| source.objects.lost()).collect();
        causes?.into_iter().next()
    }

    /// The objects of each stream, in the order of their precedence; at least one.
    pub(crate) fn all(&self) -> Vec<Arc<SourceObjects>> {
        let state = self.state();
        let sources = state.sources.iter();
        sources.map(|source| Arc::clone(&source.objects)).collect()
    }
}

impl DialledSource {
    fn is_synced(&self) -> bool {
        self.objects.is_synced()
    }
}

impl DialledState {
    /// Drops each source that has ended where an open one has sent every collection that it had sent, and all but one of the others.
    /// Those that are open come first: what they send holds.
    fn drop_ended(&mut self) -> Vec<UnionChange<ReceivedObject>> {
        let is_replaced = |old: &&DialledSource| {
            let mut open = self.sources.iter().filter(|source| source.is_open);
            open.any(|source| source.received.is_superset(&old.received))
        };
        let ended = self.sources.iter().filter(|source| !source.is_open);
        let mut left = ended.filter(|old| !is_replaced(old));
        let best = left
            .clone()
            .find(|source| source.is_synced())
            .or_else(|| left.next())
            .map(|source| source.id);
        let count = self.sources.len();
        let before = std::mem::take(&mut self.sources).into_iter().enumerate();
        let stays = |source: &DialledSource| source.is_open || Some(source.id) == best;
        let mut staying: Vec<_> = before.filter(|(_, source)| stays(source)).collect();
        staying.sort_by_key(|(_, source)| !source.is_open);
        let places: Vec<_> = staying.iter().map(|(at, _)| Some(*at)).collect();
        self.sources = staying.into_iter().map(|(_, source)| source).collect();
        if (0..count).map(Some).eq(places.iter().copied()) {
            return Vec::new();
        }
        self.union.replace(&places)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use api::config::{Object, named};
    use bytes::Bytes;

    use super::*;

    const RULES: &str = "rules";

    /// The sources, and the objects that their owner has: the creation time of each, by its name.
    struct Play {
        sources: Arc<DialledSources>,
        objects: Arc<Mutex<BTreeMap<String, Option<i64>>>>,
    }

    impl Play {
        fn new() -> Self {
            let objects = Arc::<Mutex<BTreeMap<String, Option<i64>>>>::default();
            let has = Arc::clone(&objects);
            let apply = move |changes: &[Changes<ReceivedObject>]| {
                let mut objects = has.lock().unwrap();
                for changes in changes {
                    let set = changes.set.iter();
                    objects.extend(set.map(|(name, one)| (name.to_string(), one.created)));
                    for name in &changes.removed {
                        assert!(objects.remove(&**name).is_some(), "{name}");
                    }
                }
            };
            Self {
                sources: DialledSources::new("me", &[], Arc::new(apply)),
                objects,
            }
        }

        fn names(&self) -> String {
            let objects = self.objects.lock().unwrap();
            objects.keys().map(String::as_str).collect()
        }

        fn created(&self, name: &str) -> Option<i64> {
            self.objects.lock().unwrap()[name]
        }
    }

    /// A source sends letters, and `-` before those that are gone.
    fn send(slot: &DialledSlot, text: &str, is_all: bool) {
        send_created(slot, text, is_all, None);
    }

    fn send_created(slot: &DialledSlot, text: &str, is_all: bool, created: Option<i64>) {
        let kind = named("networking.istio.io", "Sidecar").unwrap();
        let object = Object::of_resource(kind, "n/a", Bytes::new()).unwrap();
        let object = Arc::new(ReceivedObject {
            object: Arc::new(object),
            created,
            origin: None,
        });
        let (set, removed) = text.split_once('-').unwrap_or((text, ""));
        let name = |letter: char| Arc::<str>::from(letter.to_string());
        let changes = Changes {
            collection: RULES.into(),
            set: set
                .chars()
                .map(|letter| (name(letter), Arc::clone(&object)))
                .collect(),
            removed: removed.chars().map(name).collect(),
            refused: Vec::new(),
        };
        slot.objects.synced.fetch_or(is_all, Ordering::Relaxed);
        (slot.objects.apply)(&[changes]);
    }

    #[test]
    fn objects_are_those_of_the_streams_that_are_open() {
        let play = Play::new();
        let a = play.sources.open().unwrap();
        send(&a, "xy", true);
        assert_eq!(
            (play.names(), play.sources.is_synced()),
            ("xy".into(), true)
        );
        let b = play.sources.open().unwrap();
        send(&b, "xz", true);
        assert_eq!(play.names(), "xyz", "a replica takes nothing away");
        send(&b, "-x", true);
        assert_eq!(play.names(), "xyz");
        drop(b);
        assert_eq!(play.names(), "xy", "what only it had is gone");
        assert_eq!(play.sources.lost(), None);
        let c = play.sources.open().unwrap();
        send(&c, "y", true);
        drop(a);
        assert_eq!(play.names(), "y");
    }

    /// A replica that had lost its own source hid what the other had seen for as long as its stream was open.
    #[test]
    fn the_last_change_of_any_stream_holds() {
        let play = Play::new();
        let send = |slot: &DialledSlot, created| send_created(slot, "x", true, Some(created));
        let a = play.sources.open().unwrap();
        send(&a, 1);
        let b = play.sources.open().unwrap();
        send(&b, 2);
        assert_eq!(play.created("x"), Some(1), "the first list of a replica");
        send(&b, 3);
        assert_eq!(play.created("x"), Some(3));
        send(&a, 4);
        assert_eq!(play.created("x"), Some(4));
        send(&b, 5);
        drop(b);
        assert_eq!(play.created("x"), Some(4), "as those have it that are left");
    }

    #[test]
    fn the_objects_of_the_last_stream_stay() {
        let play = Play::new();
        let a = play.sources.open().unwrap();
        send(&a, "xy", true);
        let objects = Arc::clone(&a.objects);
        drop(a);
        assert_eq!(play.names(), "xy");
        // The next one begins with them, and is asked for the difference.
        let b = play.sources.open().unwrap();
        assert!(Arc::ptr_eq(&b.objects, &objects));
        send(&b, "z-x", true);
        assert_eq!(play.names(), "yz");
        // A stream that ends before it has sent the same collections is no successor.
        let c = play.sources.open().unwrap();
        drop(b);
        assert_eq!(play.names(), "yz");
        drop(c);
        assert_eq!(play.names(), "yz");
    }

    #[test]
    fn a_stream_that_has_sent_the_same_collections_replaces_those_that_have_ended() {
        let play = Play::new();
        let a = play.sources.open().unwrap();
        send(&a, "xy", false);
        let b = play.sources.open().unwrap();
        drop(a);
        assert_eq!(play.names(), "xy");
        // A source may lack a collection for ever, as galley of 1.5 does: it is never synced, and what it sends holds.
        send(&b, "z", false);
        assert_eq!(play.names(), "z");
    }

    #[test]
    fn streams_are_bounded() {
        let play = Play::new();
        let mut open: Vec<_> = (0..STREAMS).filter_map(|_| play.sources.open()).collect();
        assert_eq!(open.len(), STREAMS);
        assert!(play.sources.open().is_none());
        open.pop();
        assert!(play.sources.open().is_some());
        drop(open);
        assert_eq!(play.sources.state().sources.len(), 1);
    }
}
