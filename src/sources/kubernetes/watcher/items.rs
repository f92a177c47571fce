//! Decodes the objects of a list one by one: a malformed one spoils none of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use api::text;
use serde::Deserialize;
use serde::de::{Deserializer as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::error_text::misread;
use crate::kind::{Key, Kind, Metadata, bytes};
use crate::kubernetes::fair_room::FairRoom;
use crate::kubernetes::store::{NAMED, ObjectList};

/// An object that is no such thing, as far as its name is known, and why.
pub(super) type Unreadable = (Key, Box<str>);

/// The fields that every object has.
#[derive(Deserialize)]
pub(super) struct ObjectHead {
    pub(super) metadata: Metadata,
}

/// The length of the name and the error that are kept of an unreadable object.
const WORDS: usize = 256;

/// Objects of a list, and malformed ones, as far as there is room for them.
pub(super) struct Items<K> {
    room: usize,
    objects: FairRoom<Result<K, Box<str>>>,
    left_out: BTreeSet<Key>,
    more_left_out: usize,
    /// Namespaces that have given way.
    full: BTreeSet<Box<str>>,
    /// Bytes of text that were decoded for nothing.
    in_vain: usize,
}

impl<K: Kind> Items<K> {
    pub(super) fn new(room: usize) -> Self {
        Self {
            room,
            objects: FairRoom::default(),
            left_out: BTreeSet::new(),
            more_left_out: 0,
            full: BTreeSet::new(),
            in_vain: 0,
        }
    }

    pub(super) fn end(self) -> ObjectList<K> {
        let mut objects = Vec::new();
        let mut unreadable = BTreeMap::new();
        for (key, (one, _)) in self.objects.into_objects() {
            match one {
                Ok(object) => objects.push(object),
                Err(why) => drop(unreadable.insert(key, why)),
            }
        }
        ObjectList {
            objects,
            unreadable,
            left_out: self.left_out,
            more_left_out: self.more_left_out,
        }
    }

    /// Adds the objects of one more page, the text of a list; returns how many these are.
    ///
    /// # Errors
    /// It is no list.
    pub(super) fn read_page(&mut self, text: &str) -> Result<usize, serde_json::Error> {
        let mut from = serde_json::Deserializer::from_str(text);
        let count = from.deserialize_any(ItemList(self))?;
        from.end()?;
        Ok(count)
    }

    /// Decodes an object, and adds it if there is room. A tenant may have written any number of them: those of a namespace that
    /// has given way are not even decoded once a roomful of text was for nothing.
    fn add(&mut self, text: &str) {
        if self.in_vain > self.room
            && let Ok(any) = serde_json::from_str::<ObjectHead>(text)
            && self.full.contains(&any.metadata.namespace)
        {
            return self.leave_out(any.metadata.key());
        }
        let (key, size, one) = match object::<K>(text) {
            Ok(object) => (object.key(), object.size(), Ok(object)),
            Err((key, why)) => {
                let size = bytes([&*key.namespace, &*key.name, &*why]);
                (key, size, Err(why))
            }
        };
        match self.objects.evict(&key, size, self.room) {
            Some(evicted) => {
                drop(self.objects.insert(key, one, size));
                evicted.into_iter().for_each(|key| self.leave_out(key));
            }
            None => {
                self.in_vain = self.in_vain.saturating_add(text.len());
                self.leave_out(key);
            }
        }
    }

    fn leave_out(&mut self, key: Key) {
        if !self.full.contains(&key.namespace) {
            self.full.insert(key.namespace.clone());
        }
        if self.left_out.len() < NAMED {
            self.left_out.insert(key);
        } else {
            self.more_left_out = self.more_left_out.saturating_add(1);
        }
    }
}

/// The items of a page, each added when its text has come.
struct ItemList<'a, K>(&'a mut Items<K>);

impl<'de, K: Kind> Visitor<'de> for ItemList<'_, K> {
    type Value = usize;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a list")
    }

    // An empty list may be written as `null`.
    fn visit_unit<E>(self) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<usize, A::Error> {
        let mut count = 0;
        while let Some(text) = list.next_element::<&RawValue>()? {
            self.0.add(text.get());
            count += 1;
        }
        Ok(count)
    }
}

/// The object of a text.
///
/// # Errors
/// It is no such thing.
pub(super) fn object<K: Kind>(text: &str) -> Result<K, Unreadable> {
    match serde_json::from_str::<K>(text) {
        Ok(object) if !object.key().name.is_empty() => Ok(object),
        Ok(_) => Err((Key::default(), "it has no name".into())),
        Err(error) => {
            let any = serde_json::from_str::<ObjectHead>(text);
            let key = any.map_or_else(|_| Key::default(), |any| any.metadata.key());
            let Key { namespace, name } = key;
            let key = Key::new(clipped(&namespace), clipped(&name));
            Err((key, clipped(&misread(&error)).into()))
        }
    }
}

fn clipped(text: &str) -> &str {
    text::cut(text, WORDS)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::kind::Resource;
    use crate::kubernetes::fair_room::MIN_BYTES;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Thing {
        metadata: Metadata,
        text: String,
    }

    impl Kind for Thing {
        const RESOURCE: Resource = Resource::core("things");

        fn key(&self) -> Key {
            self.metadata.key()
        }

        fn size(&self) -> usize {
            self.text.len()
        }
    }

    /// Objects of one namespace, each of so many bytes.
    fn page(namespace: &str, count: usize, bytes: usize) -> String {
        let text = "x".repeat(bytes);
        let mut page = String::new();
        for at in 0..count {
            let before = if at == 0 { '[' } else { ',' };
            let metadata = format!(r#"{{"namespace":"{namespace}","name":"t{at:03}"}}"#);
            write!(page, r#"{before}{{"metadata":{metadata},"text":"{text}"}}"#).unwrap();
        }
        page.push(']');
        page
    }

    #[test]
    fn a_list_has_room_for_each_namespace() {
        const SIZE: usize = 2 * MIN_BYTES;
        let mut items = Items::<Thing>::new(50 * SIZE);
        assert_eq!(items.read_page(&page("aaa", 60, SIZE)).unwrap(), 60);
        assert_eq!(items.read_page(&page("payments", 3, SIZE)).unwrap(), 3);
        assert_eq!(items.read_page("null").unwrap(), 0);
        assert!(items.read_page("7").is_err() && items.read_page("[] []").is_err());
        let listed = items.end();
        let of = |namespace: &str| {
            let all = listed.objects.iter().map(Kind::key);
            let all = all.filter(|key| *key.namespace == *namespace);
            all.map(|key| key.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of("payments"), ["t000", "t001", "t002"]);
        let first: Vec<_> = (0..47).map(|at| format!("t{at:03}")).collect();
        assert_eq!(of("aaa"), first);
        let left_out = listed.left_out.iter().map(ToString::to_string);
        let last: Vec<_> = (47..60).map(|at| format!("aaa/t{at:03}")).collect();
        assert_eq!(left_out.collect::<Vec<_>>(), last);
        assert_eq!(listed.more_left_out, 0);
    }

    #[test]
    fn objects_without_room_are_decoded_in_vain_a_few_times() {
        const SIZE: usize = 1_000;
        const ROOM: usize = 50 * SIZE;
        let mut items = Items::<Thing>::new(ROOM);
        for page in (0..20).map(|at| page(&format!("a{}", at % 2), 100, SIZE)) {
            items.read_page(&page).unwrap();
        }
        assert!(items.in_vain < 2 * ROOM, "{}", items.in_vain);
        items.read_page(&page("payments", 2, SIZE)).unwrap();
        let listed = items.end();
        let is_one = |one: &&Thing| &*one.metadata.namespace == "payments";
        assert_eq!(listed.objects.iter().filter(is_one).count(), 2);
        assert_eq!(listed.objects.len(), 50);
    }

    #[test]
    fn unreadable_objects_take_room_of_their_namespace() {
        let mut items = Items::<Thing>::new(3 * MIN_BYTES);
        let wrong = r#"{"metadata":{"namespace":"a","name":"NAME"},"text":7}"#;
        let all = ["1", "2", "3", "4"].map(|name| wrong.replace("NAME", name));
        items.read_page(&format!("[{}]", all.join(","))).unwrap();
        items.read_page(&page("b", 1, 1)).unwrap();
        let listed = items.end();
        let unreadable: Vec<_> = listed.unreadable.keys().map(ToString::to_string).collect();
        assert_eq!(unreadable, ["a/1", "a/2"]);
        assert_eq!(listed.objects.len(), 1);
    }
}
