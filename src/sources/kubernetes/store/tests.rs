use super::*;
use crate::kind::Resource;
use crate::kubernetes::fair_room::MIN_BYTES;
use proptest::prelude::*;
use serde::Deserialize;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Thing {
    name: String,
    value: u32,
}

impl Kind for Thing {
    const RESOURCE: Resource = Resource {
        group: "",
        version: "v1",
        name: "things",
    };

    fn key(&self) -> Key {
        match self.name.split_once('/') {
            Some((namespace, name)) => Key::new(namespace, name),
            None => Key::new("", &self.name),
        }
    }

    /// As many of the smallest as there are hundreds.
    fn size(&self) -> usize {
        usize::try_from(self.value / 100).unwrap() * MIN_BYTES
    }

    fn keeps_last_good(&self) -> bool {
        self.value == SPOILED
    }
}

/// The value of an object in place of which readers serve the one before.
const SPOILED: u32 = 99;

fn thing(name: &str, value: u32) -> Thing {
    Thing {
        name: name.to_owned(),
        value,
    }
}

/// Renders changes as text: `a=1`, or `-a`.
fn changes_text(changes: &Changes<Thing>) -> Vec<String> {
    let say = |change: &Change<Thing>| match change {
        Change::Set(key, thing) => format!("{key}={}", thing.value),
        Change::Gone(key) => format!("-{key}"),
    };
    changes.changes.iter().map(say).collect()
}

async fn next(reader: &mut Reader<Thing>) -> Vec<String> {
    changes_text(&reader.changed().await.unwrap())
}

fn waits(reader: &mut Reader<Thing>) -> bool {
    !reader.receiver.has_changed().unwrap()
}

#[tokio::test]
async fn a_list_read_anew_is_one_change_set() {
    let (mut writer, mut reader) = store();
    assert!(next(&mut reader).await.is_empty());
    writer.replace(vec![thing("a", 1), thing("b", 1), thing("c", 1)]);
    assert_eq!(next(&mut reader).await, ["a=1", "b=1", "c=1"]);
    let before = reader.get(&Key::new("", "a")).unwrap();
    writer.replace(vec![thing("a", 1), thing("b", 2), thing("d", 1)]);
    assert_eq!(next(&mut reader).await, ["b=2", "-c", "d=1"]);
    assert!(Arc::ptr_eq(
        &before,
        &reader.get(&Key::new("", "a")).unwrap()
    ));
}

#[tokio::test]
async fn an_equal_object_is_no_change() {
    let (mut writer, mut reader) = store();
    writer.replace(vec![thing("a", 1)]);
    assert_eq!(next(&mut reader).await, ["a=1"]);
    writer.set(thing("a", 1));
    writer.remove(&Key::new("", "x"));
    writer.fresh();
    assert!(waits(&mut reader));
    writer.replace(vec![thing("a", 1)]);
    // A relist without a difference wakes the reader with no change.
    assert!(next(&mut reader).await.is_empty());
}

#[tokio::test]
async fn changes_between_two_questions_are_merged() {
    let (mut writer, mut reader) = store();
    assert!(next(&mut reader).await.is_empty());
    for value in 0..10 {
        writer.set(thing("a", value));
    }
    writer.set(thing("b", 1));
    writer.remove(&Key::new("", "b"));
    assert_eq!(next(&mut reader).await, ["a=9", "-b"]);
    assert!(waits(&mut reader));
}

#[tokio::test]
async fn a_late_reader_receives_all_objects() {
    let (mut writer, reader) = store();
    writer.replace(vec![thing("a", 1)]);
    writer.set(thing("b", 1));
    writer.remove(&Key::new("", "a"));
    let mut late = reader.clone();
    let changes = late.changed().await.unwrap();
    assert!(changes.whole);
    assert_eq!(changes_text(&changes), ["b=1"]);
    drop(writer);
    assert!(late.changed().await.is_none());
}

#[tokio::test]
async fn a_reader_far_behind_receives_all_objects() {
    let (mut writer, mut reader) = store();
    assert!(next(&mut reader).await.is_empty());
    for value in 0..u32::try_from(JOURNAL).unwrap() + 10 {
        writer.set(thing("a", value));
    }
    let changes = reader.changed().await.unwrap();
    assert!(changes.whole);
    assert_eq!(changes.changes.len(), 1);
    let journal = reader.receiver.borrow().journal.len();
    assert!(journal <= JOURNAL, "{journal}");
    // A list larger than the journal, too.
    let many = |value| {
        (0..JOURNAL + 1)
            .map(|n| thing(&n.to_string(), value))
            .collect()
    };
    writer.replace(many(1));
    assert!(reader.changed().await.unwrap().whole);
    writer.set(thing("1", 2));
    assert_eq!(next(&mut reader).await, ["1=2"]);
}

#[tokio::test(start_paused = true)]
async fn it_says_since_when_it_is_stale() {
    let (mut writer, mut reader) = store::<Thing>();
    assert_eq!(reader.freshness(), Freshness::default());
    assert!(next(&mut reader).await.is_empty());
    let begin = Instant::now();
    writer.stale(begin, "away".to_owned());
    tokio::time::advance(Duration::from_secs(5)).await;
    writer.stale(Instant::now(), "still away".to_owned());
    let freshness = reader.changed().await.unwrap().freshness;
    assert_eq!(freshness.stale, Some((begin, "still away".to_owned())));
    assert!(!freshness.listed);
    writer.replace(Vec::new());
    let freshness = reader.changed().await.unwrap().freshness;
    assert_eq!((freshness.listed, freshness.stale), (true, None));
    writer.stale(begin, "away".to_owned());
    writer.fresh();
    assert_eq!(reader.changed().await.unwrap().freshness.stale, None);
}

#[derive(Clone, Debug)]
enum Step {
    Set(u8, u32),
    Remove(u8),
    Replace(Vec<(u8, u32)>),
    Ask,
}

fn step() -> impl Strategy<Value = Step> {
    let pair = (0..5_u8, 0..3_u32);
    prop_oneof![
        pair.clone()
            .prop_map(|(name, value)| Step::Set(name, value)),
        (0..5_u8).prop_map(Step::Remove),
        prop::collection::btree_map(0..5_u8, 0..3_u32, 0..5)
            .prop_map(|all| Step::Replace(all.into_iter().collect())),
        Just(Step::Ask),
    ]
}

proptest! {
    /// A reader that applies the changes has the writer's objects at any time.
    #[test]
    fn a_reader_that_applies_the_changes_has_the_objects(steps in prop::collection::vec(step(), 0..60)) {
        let (mut writer, mut reader) = store();
        let (mut truth, mut mirror) = (BTreeMap::new(), BTreeMap::new());
        for step in steps.into_iter().chain([Step::Ask]) {
            match step {
                Step::Set(name, value) => {
                    writer.set(thing(&name.to_string(), value));
                    truth.insert(name.to_string(), value);
                }
                Step::Remove(name) => {
                    writer.remove(&Key::new("", &name.to_string()));
                    truth.remove(&name.to_string());
                }
                Step::Replace(all) => {
                    truth = all.iter().map(|(name, value)| (name.to_string(), *value)).collect();
                    writer.replace(all.iter().map(|(name, value)| thing(&name.to_string(), *value)).collect());
                }
                Step::Ask => {
                    let changes = reader.take_changes();
                    if changes.whole {
                        mirror.clear();
                    }
                    for change in changes.changes {
                        match change {
                            Change::Set(key, thing) => mirror.insert(key.name.to_string(), thing.value),
                            Change::Gone(key) => mirror.remove(&*key.name),
                        };
                    }
                    prop_assert_eq!(&mirror, &truth);
                }
            }
        }
    }
}

#[tokio::test]
async fn objects_that_cannot_be_read_are_named_up_to_a_bound() {
    let (mut writer, reader) = store::<Thing>();
    let key = |at: usize| Key::new("", &format!("t{at:05}"));
    let all = (0..NAMED + 5).map(|at| thing(&key(at).name, 1));
    writer.replace(all.collect());
    let unreadable_counts = |reader: &Reader<Thing>| {
        let fresh = reader.freshness();
        (fresh.unreadable.len(), fresh.more_unreadable)
    };
    for at in 0..NAMED + 5 {
        // A reader holds the earlier version.
        let reading = reader.freshness();
        assert_eq!(writer.cannot_read(&key(at), "no"), at + 1);
        drop(reading);
    }
    assert_eq!(unreadable_counts(&reader), (NAMED, 5));
    assert!(
        reader.get(&key(NAMED + 4)).is_some(),
        "its last version stays"
    );
    writer.set(thing(&key(0).name, 2));
    assert_eq!(unreadable_counts(&reader), (NAMED - 1, 5));
    // By a list, too.
    let unreadable = (0..NAMED + 3).map(|at| (key(at), "no".into())).collect();
    let listed = ObjectList {
        unreadable,
        more_left_out: 2,
        ..ObjectList::all(Vec::new())
    };
    writer.replace_within(listed, usize::MAX);
    assert_eq!(unreadable_counts(&reader), (NAMED, 3));
    assert_eq!(reader.freshness().without_room(), 2);
    assert!(
        reader.get(&key(NAMED + 2)).is_some(),
        "its last version stays"
    );
    assert!(reader.get(&key(NAMED + 3)).is_none());
}

/// The names of objects without room, and the number of further ones.
fn left_out(reader: &Reader<Thing>) -> (String, usize) {
    let fresh = reader.freshness();
    let names: Vec<_> = fresh.left_out.iter().map(ToString::to_string).collect();
    (names.join(" "), fresh.more_left_out)
}

#[tokio::test]
async fn the_largest_namespace_gives_way_and_is_named() {
    let room = 4 * MIN_BYTES;
    let (mut writer, mut reader) = store::<Thing>();
    for name in ["a/a", "a/b", "a/c", "a/d"] {
        assert_eq!(writer.set_within(thing(name, 1), room), None);
    }
    assert_eq!(
        next(&mut reader).await,
        ["a/a=1", "a/b=1", "a/c=1", "a/d=1"]
    );
    // Its own namespace holds most: it is left out itself.
    assert_eq!(writer.set_within(thing("a/0", 1), room), Some(1));
    assert_eq!(left_out(&reader), ("a/0".to_owned(), 0));
    assert!(next(&mut reader).await.is_empty(), "it is told");
    // A deny of another namespace is there, whatever the first one has.
    assert_eq!(writer.set_within(thing("z/deny", 1), room), Some(2));
    assert_eq!(next(&mut reader).await, ["-a/d", "z/deny=1"]);
    assert_eq!(left_out(&reader), ("a/0 a/d".to_owned(), 0));
    assert!(writer.leaves_out());
    // A new version takes the room of the one before.
    assert_eq!(writer.set_within(thing("a/a", 2), room), None);
    assert_eq!(next(&mut reader).await, ["a/a=2"]);
    writer.remove(&Key::new("a", "d"));
    writer.remove(&Key::new("a", "b"));
    assert_eq!(next(&mut reader).await, ["-a/b"]);
    assert_eq!(writer.set_within(thing("a/0", 1), room), None);
    assert_eq!(next(&mut reader).await, ["a/0=1"]);
    assert!(!writer.leaves_out());
    assert_eq!(left_out(&reader), (String::new(), 0));
}

/// Else a tenant would fill any memory: an object, spoiled, and the next one.
#[tokio::test]
async fn a_spoiled_object_counts_for_what_readers_serve_in_its_place() {
    let room = 4 * MIN_BYTES;
    let (mut writer, mut reader) = store::<Thing>();
    assert_eq!(writer.set_within(thing("a/a", 300), room), None);
    assert_eq!(writer.set_within(thing("a/a", SPOILED), room), None);
    assert_eq!(writer.set_within(thing("a/b", 300), room), Some(1));
    assert_eq!(next(&mut reader).await, ["a/a=99"]);
    // By a list, too.
    let list = |things: &[(&str, u32)]| {
        let things = things.iter().map(|(name, value)| thing(name, *value));
        ObjectList::all(things.collect())
    };
    assert_eq!(
        writer.replace_within(list(&[("a/a", SPOILED), ("b/a", 100)]), room),
        0
    );
    assert_eq!(next(&mut reader).await, ["b/a=100"]);
    assert_eq!(writer.set_within(thing("a/b", 100), room), Some(1));
    assert_eq!(writer.set_within(thing("a/a", 100), room), None);
    assert_eq!(writer.set_within(thing("a/b", 100), room), None);
}

/// It is served as it was, by a list as by a watch.
#[tokio::test]
async fn a_known_object_without_room_keeps_its_last_version() {
    let room = 4 * MIN_BYTES;
    let (mut writer, mut reader) = store::<Thing>();
    writer.replace(vec![thing("a/a", 200), thing("a/b", 100)]);
    next(&mut reader).await;
    assert_eq!(writer.set_within(thing("a/b", 300), room), Some(1));
    let listed = ObjectList {
        left_out: [Key::new("a", "b")].into(),
        ..ObjectList::all(vec![thing("a/a", 200)])
    };
    assert_eq!(writer.replace_within(listed, room), 1);
    assert_eq!(reader.get(&Key::new("a", "b")).unwrap().value, 100);
    assert_eq!(left_out(&reader), ("a/b".to_owned(), 0));
}

#[tokio::test]
async fn unreadable_objects_stay_while_there_is_room() {
    let room = 3 * MIN_BYTES;
    let (mut writer, mut reader) = store::<Thing>();
    writer.replace(vec![thing("a/a", 1), thing("a/b", 1), thing("b/a", 1)]);
    next(&mut reader).await;
    let unreadable = [("a", "a"), ("a", "b"), ("b", "a")];
    let unreadable = unreadable.map(|(namespace, name)| (Key::new(namespace, name), "no".into()));
    let listed = ObjectList {
        unreadable: unreadable.into(),
        ..ObjectList::all(vec![thing("a/c", 1), thing("a/d", 1)])
    };
    writer.replace_within(listed, room);
    assert_eq!(next(&mut reader).await, ["-a/b", "a/c=1", "-a/d"]);
    assert_eq!(left_out(&reader), ("a/b a/d".to_owned(), 0));
    assert_eq!(reader.freshness().unreadable.len(), 3);
}

#[tokio::test]
async fn objects_without_room_are_named_up_to_a_bound() {
    let (mut writer, reader) = store::<Thing>();
    for at in 0..NAMED + 3 {
        let _reader = reader.freshness();
        let object = thing(&format!("t{at:05}"), 1);
        let count = writer.set_within(object, MIN_BYTES);
        assert_eq!(count, at.checked_sub(1).map(|_| at));
    }
    let fresh = reader.freshness();
    assert_eq!((fresh.left_out.len(), fresh.more_left_out), (NAMED, 2));
    assert_eq!(writer.first_left_out().len(), MAX_NAMED);
}
