//! Scripts of places in shorthand: `a=1` is the object `a` with content 1, `a!` is invalid, `?` is invalid without a name,
//! and `a=1@u` has a uid. Line numbers count from 1.

use std::collections::BTreeSet;

use proptest::prelude::*;

use api::config::{Finding, ServedInstead};

use super::super::checked::CheckedObject;
use super::super::report::Refused;
use super::super::source_catalogue::{MAX_EXPLAINED, SourceEntry, SourceProblem};
use super::*;
use crate::catalogue::core_kind::CoreKind;

fn entry(word: &str, line: usize) -> SourceEntry<ConfigVersion> {
    let (word, uid) = word.split_once('@').unwrap_or((word, ""));
    let (name, says) = word.split_once('=').unwrap_or((word, ""));
    let name = name.trim_end_matches(['!', '?']);
    let collection = match name {
        "" => "",
        _ => CoreKind::Pod.collection(),
    };
    let entry = (!word.ends_with(['!', '?'])).then(|| Entry::Core {
        kind: CoreKind::Pod,
        json: says.into(),
    });
    let findings = match &entry {
        None => vec![Finding::error("spec", "is broken")],
        Some(_) if says == "9" => vec![Finding::warning("spec", "is nine")],
        Some(_) => Vec::new(),
    };
    SourceEntry {
        checked: CheckedObject {
            id: EntryId {
                collection,
                name: name.into(),
            },
            content: entry.map(ConfigVersion::Entry),
            findings,
            ..CheckedObject::default()
        },
        uid: uid.into(),
        line,
        wrong: line,
        ..SourceEntry::default()
    }
}

fn put(catalogue: &mut ConfigCatalogue, place: &str, words: &str) {
    let words = words.split_whitespace();
    let entries = words.zip(1..).map(|(word, line)| entry(word, line));
    catalogue.objects.put(&place.into(), entries.collect());
}

fn says(entry: &Entry) -> &str {
    match entry {
        Entry::Core { json, .. } => json,
        Entry::Object { .. } => panic!("none is made here"),
    }
}

/// Returns the changes, in the same shorthand.
fn reconciled(catalogue: &mut ConfigCatalogue) -> String {
    let words: Vec<_> = catalogue
        .reconcile()
        .iter()
        .filter_map(|change| match change {
            EntryChange::Set(id, entry, _) => Some(format!("{}={}", id.name, says(entry))),
            EntryChange::Moved(..) => None,
            EntryChange::Gone(id) => Some(format!("{}-", id.name)),
        })
        .collect();
    words.join(" ")
}

fn told(catalogue: &mut ConfigCatalogue) -> Vec<String> {
    let report = catalogue.report();
    let refused = report.refused.iter().map(Refused::to_string);
    let warned = report.warned.iter().map(ToString::to_string);
    refused.chain(warned).collect()
}

fn served(catalogue: &ConfigCatalogue) -> Vec<(String, String)> {
    let all = catalogue.all();
    all.map(|(id, entry)| (id.name.to_string(), says(entry).to_owned()))
        .collect()
}

fn catalogue() -> ConfigCatalogue {
    ConfigCatalogue::new(Root::Directory("/c".into()), 1000)
}

/// Findings about resources made from an Ingress carry the Ingress's present place and line.
#[test]
fn ingresses_are_found_where_they_are() {
    let mut catalogue = catalogue();
    let mut at = |place: &str, line: usize, word: &str| {
        let mut ingress = entry(word, line);
        ingress.checked.id.collection = CoreKind::Ingress.collection();
        catalogue
            .objects
            .put(&place.into(), vec![ingress, entry("a=1", 1)]);
        catalogue.reconcile();
        let places = catalogue.report().ingresses.clone();
        let places = places.iter().map(|(name, place)| format!("{name} {place}"));
        places.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(at("f", 3, "n/a=1"), "n/a /c/f:3");
    // The object has only moved.
    assert_eq!(at("f", 7, "n/a=1"), "n/a /c/f:7");
    // The second of a name is not it.
    assert_eq!(at("g", 1, "n/a=2"), "n/a /c/f:7");
    // The last good version keeps its place.
    assert_eq!(at("f", 9, "n/a!"), "n/a /c/f:9");
    assert_eq!(at("g", 5, "n/a!"), "n/a /c/f:9");
    assert_eq!(at("f", 2, "n/b=1"), "n/a /c/g:5, n/b /c/f:2");
    assert_eq!(at("g", 1, "n/c=1"), "n/b /c/f:2, n/c /c/g:1");
    // The place is unchanged, so the report is, too.
    let mut says = |word: &str| {
        let mut ingress = entry(word, 1);
        ingress.checked.id.collection = CoreKind::Ingress.collection();
        catalogue.objects.put(&"h".into(), vec![ingress]);
        assert_eq!(catalogue.reconcile().len(), 1);
        catalogue.report()
    };
    let before = says("n/d=1");
    assert!(Arc::ptr_eq(&before, &says("n/d=2")));
}

/// Objects that nothing uses are in the report alone.
#[test]
fn unchecked_objects_are_reported_and_not_served() {
    let mut catalogue = catalogue();
    let unchecked = |line: usize| SourceEntry {
        checked: CheckedObject {
            id: EntryId {
                collection: "istio/telemetry/v1alpha1/telemetries",
                name: "n/t".into(),
            },
            findings: vec![Finding::warning("kind", "is not used")],
            content: Some(ConfigVersion::Unchecked("{}".into())),
            ..CheckedObject::default()
        },
        line,
        wrong: line,
        ..SourceEntry::default()
    };
    let origins = |catalogue: &mut ConfigCatalogue| {
        let report = catalogue.report();
        let all = report.unchecked.iter();
        let all = all.map(|(id, object)| format!("{id} {}", object.origin));
        (all.collect::<Vec<_>>().join(", "), report.served)
    };
    catalogue
        .objects
        .put(&"f".into(), vec![unchecked(1), entry("a=1", 5)]);
    assert_eq!(reconciled(&mut catalogue), "a=1");
    let first = ("Telemetry n/t /c/f:1".to_owned(), 1);
    assert_eq!(origins(&mut catalogue), first);
    assert_eq!(
        told(&mut catalogue),
        ["/c/f:1: Telemetry n/t: warning: kind: is not used"]
    );
    assert_eq!(served(&catalogue).len(), 1);
    // The second of a name is refused for it.
    catalogue.objects.put(&"g".into(), vec![unchecked(3)]);
    assert_eq!(reconciled(&mut catalogue), "");
    assert_eq!(origins(&mut catalogue), first);
    assert_eq!(
        told(&mut catalogue)[0],
        "/c/g:3: Telemetry n/t: refused: metadata.name: duplicate of /c/f:1"
    );
    catalogue
        .objects
        .put(&"f".into(), vec![unchecked(2), entry("a=1", 5)]);
    assert_eq!(reconciled(&mut catalogue), "");
    assert_eq!(origins(&mut catalogue).0, "Telemetry n/t /c/f:2");
    catalogue.objects.remove(&"f".into());
    assert_eq!(reconciled(&mut catalogue), "a-");
    assert_eq!(
        origins(&mut catalogue),
        ("Telemetry n/t /c/g:3".to_owned(), 0)
    );
    catalogue.objects.remove(&"g".into());
    assert_eq!(reconciled(&mut catalogue), "");
    assert_eq!(origins(&mut catalogue), (String::new(), 0));
}

#[test]
fn many_warnings_leave_room_for_the_errors_of_others() {
    let noted = |at: usize| SourceEntry {
        checked: CheckedObject {
            notes: vec![Finding::warning("spec", "is noted")],
            ..entry(&format!("x{at}=1"), 1).checked
        },
        ..SourceEntry::default()
    };
    let mut all: Vec<_> = (0..MAX_EXPLAINED).map(noted).collect();
    all.push(entry("b!", 7));
    let mut catalogue = ConfigCatalogue::new(Root::Directory("/c".into()), 2 * MAX_EXPLAINED);
    catalogue.objects.put(&"f".into(), all);
    catalogue.reconcile();
    let report = catalogue.report();
    assert_eq!(report.warned.len(), MAX_EXPLAINED);
    assert_eq!(
        &*report.refused[0].findings,
        [Finding::error("spec", "is broken")]
    );
    // The log has no line for a note.
    assert_eq!(report.new_lines(&ConfigReport::default()).0.len(), 1);
}

#[test]
fn reconciling_returns_the_differences_alone() {
    let mut catalogue = catalogue();
    put(&mut catalogue, "f", "a=1 b=1 c=1");
    assert_eq!(reconciled(&mut catalogue), "a=1 b=1 c=1");
    assert_eq!(reconciled(&mut catalogue), "");
    // Changed, gone, new, in another order.
    put(&mut catalogue, "f", "d=1 c=1 a=2");
    assert_eq!(reconciled(&mut catalogue), "a=2 b- d=1");
    // Renamed.
    catalogue.objects.remove(&"f".into());
    put(&mut catalogue, "g", "d=1 c=1 a=2");
    assert_eq!(reconciled(&mut catalogue), "");
    let report = catalogue.report();
    assert_eq!((report.served, report.refused.len()), (3, 0));
    catalogue.objects.remove(&"g".into());
    assert_eq!(reconciled(&mut catalogue), "a- c- d-");
    assert_eq!(catalogue.report().served, 0);
}

#[test]
fn broken_ones_keep_what_they_were() {
    let mut catalogue = catalogue();
    put(&mut catalogue, "f", "a=1 b! ? c=9");
    assert_eq!(reconciled(&mut catalogue), "a=1 c=9");
    assert_eq!(
        told(&mut catalogue),
        [
            "/c/f:2: Pod b: refused: spec: is broken",
            "/c/f:3: refused: spec: is broken",
            "/c/f:4: Pod c: warning: spec: is nine",
        ]
    );
    put(&mut catalogue, "f", "a! b=1");
    assert_eq!(reconciled(&mut catalogue), "b=1 c-");
    assert_eq!(
        told(&mut catalogue),
        ["/c/f:1: Pod a: stale: spec: is broken"]
    );
    assert_eq!(catalogue.report().served, 2);
    // The object is repaired with its old content: no change, and the report is empty.
    put(&mut catalogue, "f", "a=1 b=1");
    assert_eq!(reconciled(&mut catalogue), "");
    assert!(told(&mut catalogue).is_empty());
    put(&mut catalogue, "f", "a! b=1");
    assert_eq!(reconciled(&mut catalogue), "");
    // Moved, and still broken.
    catalogue.objects.remove(&"f".into());
    put(&mut catalogue, "g", "a!");
    assert_eq!(reconciled(&mut catalogue), "b-");
    assert_eq!(
        told(&mut catalogue),
        ["/c/g:1: Pod a: stale: spec: is broken"]
    );
    // Gone is gone.
    catalogue.objects.remove(&"g".into());
    assert_eq!(reconciled(&mut catalogue), "a-");
    put(&mut catalogue, "g", "a!");
    assert_eq!(reconciled(&mut catalogue), "");
    assert_eq!(
        told(&mut catalogue),
        ["/c/g:1: Pod a: refused: spec: is broken"]
    );
}

#[test]
fn the_first_of_a_name_is_served() {
    let mut catalogue = catalogue();
    put(&mut catalogue, "g", "a=2 a=3");
    assert_eq!(reconciled(&mut catalogue), "a=2");
    assert_eq!(
        told(&mut catalogue),
        ["/c/g:2: Pod a: refused: metadata.name: duplicate of /c/g:1"]
    );
    put(&mut catalogue, "f", "b=1 a=1");
    assert_eq!(reconciled(&mut catalogue), "a=1 b=1");
    assert_eq!(
        told(&mut catalogue),
        [
            "/c/g:1: Pod a: refused: metadata.name: duplicate of /c/f:2",
            "/c/g:2: Pod a: refused: metadata.name: duplicate of /c/f:2"
        ]
    );
    // Its last good version is the first one still.
    put(&mut catalogue, "f", "a!");
    assert_eq!(reconciled(&mut catalogue), "b-");
    assert_eq!(
        told(&mut catalogue)[..2],
        [
            "/c/f:1: Pod a: stale: spec: is broken",
            "/c/g:1: Pod a: refused: metadata.name: duplicate of /c/f:1"
        ]
    );
    catalogue.objects.remove(&"f".into());
    assert_eq!(reconciled(&mut catalogue), "a=2");
    // A candidate that was never valid blocks no other.
    put(&mut catalogue, "e", "a!");
    assert_eq!(reconciled(&mut catalogue), "");
    assert_eq!(
        told(&mut catalogue),
        [
            "/c/e:1: Pod a: refused: spec: is broken",
            "/c/g:2: Pod a: refused: metadata.name: duplicate of /c/g:1"
        ]
    );
    put(&mut catalogue, "g", "a=4");
    assert_eq!(reconciled(&mut catalogue), "a=4");
}

#[test]
fn an_unreadable_file_keeps_its_objects() {
    let mut catalogue = catalogue();
    put(&mut catalogue, "f", "a=1 b!");
    assert_eq!(reconciled(&mut catalogue), "a=1");
    catalogue
        .objects
        .unread(&"f".into(), 7, "no YAML".to_owned());
    catalogue
        .objects
        .unread(&"g".into(), 0, "no right".to_owned());
    assert_eq!(reconciled(&mut catalogue), "");
    assert_eq!(
        told(&mut catalogue),
        [
            "/c/f:7: stale: no YAML",
            "/c/f:2: Pod b: refused: spec: is broken",
            "/c/g: stale: no right"
        ]
    );
    let before = catalogue.report();
    catalogue
        .objects
        .unread(&"g".into(), 0, "no right".to_owned());
    assert!(Arc::ptr_eq(&before, &catalogue.report()));
    put(&mut catalogue, "f", "a=1 b=1");
    put(&mut catalogue, "g", "");
    assert_eq!(reconciled(&mut catalogue), "b=1");
    assert!(told(&mut catalogue).is_empty());
    let problem = SourceProblem {
        place: "d".to_owned(),
        serving: ServedInstead::Old,
        cause: "no right".to_owned(),
    };
    catalogue.objects.problems([problem].into());
    assert_eq!(told(&mut catalogue), ["/c/d: stale: no right"]);
}

#[test]
fn an_object_made_anew_is_another() {
    let mut catalogue = catalogue();
    put(&mut catalogue, "x", "a=1@one");
    assert_eq!(reconciled(&mut catalogue), "a=1");
    put(&mut catalogue, "x", "a!@one");
    assert_eq!(reconciled(&mut catalogue), "");
    put(&mut catalogue, "x", "a!@two");
    assert_eq!(reconciled(&mut catalogue), "a-");
    put(&mut catalogue, "x", "a=1@two");
    assert_eq!(reconciled(&mut catalogue), "a=1");
    put(&mut catalogue, "x", "a=1@three");
    assert_eq!(reconciled(&mut catalogue), "");
    put(&mut catalogue, "x", "a!@three");
    assert_eq!(reconciled(&mut catalogue), "");
}

#[test]
fn objects_beyond_the_limit_wait_for_room() {
    let mut catalogue = ConfigCatalogue::new(Root::Directory("/c".into()), 3);
    put(&mut catalogue, "f", "a=1 b=1");
    put(&mut catalogue, "g", "c=1 d=1 e=1");
    assert_eq!(reconciled(&mut catalogue), "a=1 b=1 c=1");
    assert_eq!(
        told(&mut catalogue),
        ["/c/g:2: refused: more than 3 objects: 2 are left out"]
    );
    assert!(!catalogue.objects.has_room("g"));
    put(&mut catalogue, "f", "a=1");
    assert_eq!(reconciled(&mut catalogue), "b-");
    assert!(catalogue.objects.has_room("g") && !catalogue.objects.has_room("f"));
    put(&mut catalogue, "g", "c=1 d=1");
    assert_eq!(reconciled(&mut catalogue), "d=1");
    assert!(told(&mut catalogue).is_empty() && !catalogue.objects.has_room("g"));
}

/// Settling a file of many objects takes linear time.
#[test]
fn a_long_file_is_reconciled_in_a_straight_line() {
    let mut catalogue = ConfigCatalogue::new(Root::Directory("/c".into()), 200_000);
    let words: Vec<_> = (0..30_000).map(|at| format!("n{at}=1")).collect();
    put(&mut catalogue, "f", &words.join(" "));
    assert_eq!(catalogue.reconcile().len(), 30_000);
    put(&mut catalogue, "g", &words.join(" "));
    assert!(catalogue.reconcile().is_empty());
    assert_eq!(catalogue.report().refused.len(), 30_000);
}

/// Objects of a file, in shorthand: the name's index, and the content if it is valid.
type Objects = Vec<(usize, Option<u8>)>;

/// A step that concerns one file.
#[derive(Clone, Debug)]
enum Step {
    Put(usize, Objects),
    Unread(usize),
    Remove(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let entries = prop::collection::vec((0..3_usize, prop::option::weighted(0.7, 0..3_u8)), 0..4);
    prop_oneof![
        6 => (0..4_usize, entries).prop_map(|(file, entries)| Step::Put(file, entries)),
        1 => (0..4_usize).prop_map(Step::Unread),
        2 => (0..4_usize).prop_map(Step::Remove),
    ]
}

fn words(entries: &[(usize, Option<u8>)]) -> String {
    let word = |(name, says): &(usize, Option<u8>)| match says {
        Some(says) => format!("n{name}={says} "),
        None => format!("n{name}! "),
    };
    entries.iter().map(word).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// For any history, the catalogue equals the last contents of the files, except for versions that stay; and a reader
    /// of the changes has exactly the served entries.
    #[test]
    fn a_catalogue_is_its_last_files(steps in prop::collection::vec((step(), any::<bool>()), 0..30)) {
        let mut script = catalogue();
        // The last readable content of each file.
        let mut files: BTreeMap<usize, (Objects, bool)> = BTreeMap::new();
        let mut followed: BTreeMap<String, String> = BTreeMap::new();
        for (step, settles) in steps {
            let place = |file: usize| Arc::from(format!("f{file}"));
            match step {
                Step::Put(file, entries) => {
                    put(&mut script, &place(file), &words(&entries));
                    files.insert(file, (entries, false));
                }
                Step::Unread(file) => {
                    script.objects.unread(&place(file), 1, "no".to_owned());
                    files.entry(file).or_default().1 = true;
                }
                Step::Remove(file) => {
                    script.objects.remove(&place(file));
                    files.remove(&file);
                }
            }
            if !settles {
                continue;
            }
            let before = followed.clone();
            for change in script.reconcile() {
                match change {
                    EntryChange::Moved(id, entry, _) => {
                        prop_assert_eq!(followed.get(&*id.name).map(String::as_str), Some(says(&entry)));
                    }
                    EntryChange::Set(id, entry, _) => {
                        let new = says(&entry).to_owned();
                        let old = followed.insert(id.name.to_string(), new.clone());
                        prop_assert_ne!(old, Some(new));
                    }
                    EntryChange::Gone(id) => prop_assert!(followed.remove(&*id.name).is_some()),
                }
            }
            let now: BTreeMap<_, _> = served(&script).into_iter().collect();
            prop_assert_eq!(&followed, &now);
            let mut fresh = catalogue();
            for (file, (entries, is_unread)) in &files {
                put(&mut fresh, &place(*file), &words(entries));
                if *is_unread {
                    fresh.objects.unread(&place(*file), 1, "no".to_owned());
                }
            }
            fresh.reconcile();
            let stale: BTreeSet<_> = script.report().refused.iter()
                .filter(|one| one.serving == ServedInstead::Old && one.id.is_whole())
                .map(|one| one.id.name.to_string())
                .collect();
            let without = |mut all: BTreeMap<String, String>| { all.retain(|name, _| !stale.contains(name)); all };
            prop_assert_eq!(without(now.clone()), without(served(&fresh).into_iter().collect()));
            for name in &stale {
                // A stale version is the version served before.
                prop_assert_eq!(now.get(name), before.get(name));
            }
            let lines = |catalogue: &mut ConfigCatalogue| -> Vec<String> {
                let report = catalogue.report();
                let rest = report.refused.iter().filter(|one| !stale.contains(&*one.id.name));
                rest.map(Refused::to_string).collect()
            };
            prop_assert_eq!(lines(&mut script), lines(&mut fresh));
            prop_assert_eq!(script.report().served, now.len());
        }
    }
}
