//! The memory that the lists of sinks take. A sink may list its versions for every collection, and its lists are kept until it
//! answers, so there is a bound for those of a stream, and one for those of all streams.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::sink_state::Versions;

/// Bytes that the lists of one stream take: those of 200,000 objects, with names as Kubernetes has them.
pub(super) const OF_STREAM: usize = 24 << 20;

/// Bytes that the lists of all streams take.
const OF_ALL: usize = 96 << 20;

/// About the bytes that a name takes beside its own: of the map, of its version and of its counts.
const OF_NAME: usize = 64;

/// The bytes that the lists of many streams take, and the number of streams that have a list.
#[derive(Debug, Default)]
pub struct ListedBytes {
    bytes: AtomicUsize,
    streams: AtomicUsize,
}

/// The part that one stream has in them, given back at its end.
#[derive(Debug, Default)]
pub(super) struct StreamShare {
    all: Arc<ListedBytes>,
    own: usize,
}

impl StreamShare {
    /// Counts the stream's lists among those of others.
    pub(super) fn join(&mut self, all: Arc<ListedBytes>) {
        let own = self.own;
        self.set(0);
        self.all = all;
        self.set(own);
    }

    /// Sets the bytes of the stream's lists; returns false if they are too many. A stream's equal part of the bound is its own,
    /// however much the others have: all together stay below twice the bound.
    pub(super) fn set(&mut self, own: usize) -> bool {
        let ListedBytes { bytes, streams } = &*self.all;
        // Another stream may come between the counters; the bound is approximate, and no memory depends on
        // their order.
        let all = match own.checked_sub(self.own) {
            Some(more) => bytes
                .fetch_add(more, Ordering::Relaxed)
                .saturating_add(more),
            None => {
                let less = self.own.saturating_sub(own);
                bytes
                    .fetch_sub(less, Ordering::Relaxed)
                    .saturating_sub(less)
            }
        };
        match (self.own > 0, own > 0) {
            (false, true) => {
                streams.fetch_add(1, Ordering::Relaxed);
            }
            (true, false) => {
                streams.fetch_sub(1, Ordering::Relaxed);
            }
            (true, true) | (false, false) => {}
        }
        // Too many bytes are counted as well: the stream ends, and its drop gives them back.
        self.own = own;
        let part = OF_ALL / streams.load(Ordering::Relaxed).max(1);
        own <= OF_STREAM && (all <= OF_ALL || own <= part)
    }
}

impl Drop for StreamShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// About the bytes that a list takes, with the names that are in doubt.
pub(super) fn bytes_of(listed: &Versions, doubtful: &BTreeSet<Arc<str>>) -> usize {
    let names = listed.keys().chain(doubtful);
    names.fold(0, |sum: usize, name| {
        sum.saturating_add(OF_NAME).saturating_add(name.len())
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Dialer, RequestKind, Source, SourceError};
    use super::*;
    use crate::collections::{Collections, Group};
    use crate::message::RequestResources;
    use crate::snapshot::GroupSnapshot;

    const MIB: usize = 1 << 20;

    /// A source without objects.
    fn source(all: &Arc<ListedBytes>) -> Source {
        let collections = Arc::new(Collections::new(["a", "b"]));
        let snapshot = GroupSnapshot::new(&collections, Group::Default).snapshot();
        let mut source = Source::new(collections, Dialer::Sink).counted_in(Arc::clone(all));
        source.snapshot(snapshot);
        source
    }

    /// Asks for a collection with so many names listed, of a MiB each. Later ones come first in the alphabet.
    fn list(
        source: &mut Source,
        collection: &str,
        names: std::ops::Range<usize>,
    ) -> Result<RequestKind, SourceError> {
        let names = names.map(|at| {
            (
                format!("{:02}", 99 - at) + &"x".repeat(MIB - 2),
                "1".to_owned(),
            )
        });
        let request = RequestResources {
            collection: collection.to_owned(),
            incremental: true,
            initial_resource_versions: names.collect(),
            ..RequestResources::default()
        };
        source.request(Duration::ZERO, &request)
    }

    fn counted(all: &ListedBytes) -> usize {
        all.bytes.load(Ordering::Relaxed) / MIB
    }

    #[test]
    fn the_lists_of_all_collections_of_a_stream_are_bounded_together() {
        let all = Arc::default();
        let mut one = source(&all);
        let subscribed = Ok(RequestKind::Subscribed);
        assert_eq!(list(&mut one, "a", 0..13), subscribed);
        assert_eq!(list(&mut one, "a", 0..13), subscribed);
        assert_eq!(counted(&all), 13);
        let too_many = Err(SourceError::ListedTooMany);
        assert_eq!(list(&mut one, "b", 0..13), too_many);
        drop(one);
        assert_eq!(counted(&all), 0);
        // An answered list counts no longer.
        let mut one = source(&all);
        assert_eq!(list(&mut one, "a", 0..13), subscribed);
        while let Some(response) = one.due() {
            let ack = RequestResources {
                collection: "a".to_owned(),
                incremental: true,
                response_nonce: response.nonce.to_string(),
                ..RequestResources::default()
            };
            let acked = one.request(Duration::ZERO, &ack);
            assert_eq!(acked, Ok(RequestKind::Acked));
        }
        assert_eq!(counted(&all), 0);
        assert_eq!(list(&mut one, "b", 0..13), subscribed);
    }

    #[test]
    fn the_lists_of_all_streams_are_bounded_together() {
        let all = Arc::default();
        let mut sources: Vec<Source> = (0..4).map(|_| source(&all)).collect();
        for one in &mut sources {
            list(one, "a", 0..20).unwrap();
        }
        let mut next = source(&all);
        let too_many = Err(SourceError::ListedTooMany);
        assert_eq!(list(&mut next, "a", 0..20), too_many);
        // A stream within its share is not refused for the lists of others.
        let mut small = source(&all);
        list(&mut small, "a", 0..10).unwrap();
        list(&mut source(&all), "a", 0..0).unwrap();
        drop(small);
        drop((next, sources.pop()));
        list(&mut source(&all), "a", 0..20).unwrap();
        assert_eq!(counted(&all), 60);
    }

    /// Each list is followed by a response that removes it, whose fate is not known when the next one comes.
    #[test]
    fn names_in_doubt_are_counted_with_the_lists() {
        let mut one = source(&Arc::default());
        let ends = (0..20).find(|turn| {
            let names = turn * 2..turn * 2 + 2;
            let twice = [names.clone(), names].into_iter().find_map(|names| {
                let outcome = list(&mut one, "a", names);
                while one.due().is_some() {}
                outcome.err()
            });
            twice.is_some()
        });
        assert!(ends.is_some_and(|turn| turn > 2), "{ends:?}");
    }
}
