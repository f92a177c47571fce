//! Properties of lists and watches, whatever their bytes are. For a fuzz target and for tests; not part of the program.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::MAX_EVENT_BYTES;
use super::event::{DecodedChange, DecodedEvent};
use super::items::{self, Items};
use crate::contribution::Contribution;
use crate::kind::{Key, Kind};
use crate::kubernetes::config::properties::check_object;
use crate::kubernetes::line_buffer::LineBuffer;
use crate::kubernetes::{
    EndpointSlice, Endpoints, Names, Namespace, Node, Objects, Pod, Service, StoredKind,
};

/// Longer texts of errors are no lines of a log.
const MAX_ERROR_LENGTH: usize = 4096;
/// Bytes for a list that has no room for all.
const SMALL_ROOM: usize = 2048;

/// Checks that the bytes of a watch are taken as the events that they are, wherever they are cut, and lead to what their last
/// objects alone lead to; and that the same objects can be listed.
pub(crate) fn check(bytes: &[u8]) {
    let lines = lines(bytes, bytes.len());
    let cut = self::lines(bytes, 7);
    assert_eq!(lines, cut, "the lines depend on the chunks");
    let mut stepped = Stepped::default();
    let mut fresh = objects();
    stepped.follow::<Service>(&lines, &mut fresh);
    stepped.follow::<EndpointSlice>(&lines, &mut fresh);
    stepped.follow::<Endpoints>(&lines, &mut fresh);
    stepped.follow::<Pod>(&lines, &mut fresh);
    stepped.follow::<Node>(&lines, &mut fresh);
    stepped.follow::<Namespace>(&lines, &mut fresh);
    assert!(
        stepped.objects.contribution() == fresh.contribution(),
        "the order of events counts"
    );
    for problem in fresh.problems() {
        is_one_line(&problem.refusal.to_string());
    }
    stepped.clear();
    assert!(
        stepped.objects.contribution() == Contribution::default(),
        "objects that are gone left something"
    );
    for line in &lines {
        check_object(line);
    }
}

/// The lines of a watch whose bytes come in chunks of this size.
fn lines(bytes: &[u8], chunk: usize) -> Vec<Vec<u8>> {
    let mut buffer = LineBuffer::new(MAX_EVENT_BYTES);
    let mut found = Vec::new();
    for chunk in bytes.chunks(chunk.max(1)) {
        buffer.push(chunk);
        while let Ok(Some(line)) = buffer.next() {
            found.push(line);
        }
    }
    found
}

fn objects() -> Objects {
    Objects::new(Names {
        cluster: "c".into(),
        domain: "cluster.local".into(),
        trust_domain: "td".into(),
    })
}

/// A cluster that takes event by event.
struct Stepped {
    objects: Objects,
    /// Deletes all objects of a kind.
    clears: Vec<fn(&mut Objects)>,
}

impl Default for Stepped {
    fn default() -> Self {
        Self {
            objects: objects(),
            clears: Vec::new(),
        }
    }
}

impl Stepped {
    /// Takes the lines as events of one kind, and gives `fresh` the objects that are there in the end.
    fn follow<K: StoredKind>(&mut self, lines: &[Vec<u8>], fresh: &mut Objects) {
        let mut there: BTreeMap<Key, Arc<K>> = BTreeMap::new();
        for line in lines {
            match DecodedEvent::<K>::read(line) {
                Ok(event) => match event.change {
                    DecodedChange::Set(object) => {
                        let (key, object) = (object.key(), Arc::new(object));
                        assert!(!key.name.is_empty(), "an object without a name");
                        self.objects.set(Arc::clone(&object));
                        // Each step in the middle must lead somewhere, too.
                        let _contribution = self.objects.contribution();
                        there.insert(key, object);
                    }
                    DecodedChange::Gone(key) => {
                        self.objects.delete::<K>(&key);
                        there.remove(&key);
                    }
                    DecodedChange::Unreadable((_, why)) => is_one_line(&why),
                    DecodedChange::None => {}
                },
                Err(cause) => is_one_line(&cause.to_string()),
            }
        }
        list::<K>(lines);
        fresh.replace(there.into_values());
        self.clears.push(|objects| objects.replace::<K>([]));
    }

    fn clear(&mut self) {
        for clear in &self.clears {
            clear(&mut self.objects);
        }
    }
}

/// Lists the lines that are JSON as the items of a page, and then of one more, with room for all and for a few.
fn list<K: StoredKind>(lines: &[Vec<u8>]) {
    let texts = lines.iter().filter_map(|line| {
        let text = std::str::from_utf8(line).ok()?;
        serde_json::from_str::<&serde_json::value::RawValue>(text).ok()?;
        Some(text)
    });
    let texts: Vec<_> = texts.collect();
    let page = format!("[{}]", texts.join(","));
    let readable: BTreeSet<Key> = texts
        .iter()
        .filter_map(|text| Some(items::object::<K>(text).ok()?.key()))
        .collect();
    for room in [usize::MAX, SMALL_ROOM] {
        let mut items = Items::<K>::new(room);
        for _ in 0..2 {
            let count = items.read_page(&page);
            assert_eq!(count.ok(), Some(texts.len()), "{page}");
        }
        let listed = items.end();
        let size: usize = listed.objects.iter().map(Kind::size).sum();
        assert!(size <= room, "{size} bytes in a room of {room}");
        listed.unreadable.values().for_each(|why| is_one_line(why));
        let keys: BTreeSet<Key> = listed.objects.iter().map(Kind::key).collect();
        assert_eq!(keys.len(), listed.objects.len(), "an object twice");
        assert!(keys.is_subset(&readable));
        if room == usize::MAX {
            assert!(listed.left_out.is_empty());
            // Of two objects of one name, the last counts: it may be one that cannot be read.
            assert!(
                readable
                    .iter()
                    .all(|key| keys.contains(key) || listed.unreadable.contains_key(key))
            );
        }
    }
}

/// For the log.
fn is_one_line(words: &str) {
    assert!(
        !words.is_empty() && words.len() < MAX_ERROR_LENGTH,
        "{} bytes",
        words.len()
    );
    assert!(!words.contains(char::is_control), "{words:?}");
}
