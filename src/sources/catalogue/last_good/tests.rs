//! Scripts of places in shorthand: `a=1` is the object `a` with content 1, `a!` is refused, and `a=1@u` has a uid.

use super::*;

#[derive(Debug)]
struct Script;

impl Content for Script {
    type Location = String;
    type Id = String;
    type Version = String;
    type Findings = ();
}

fn put(all: &mut Catalogue<Script>, place: &str, script: &str) {
    let script = script.split_whitespace().zip(1..);
    let candidates = script.map(|(word, line)| {
        let (word, uid) = word.split_once('@').unwrap_or((word, ""));
        let (name, says) = match word.split_once('=') {
            Some((name, says)) => (name, Some(says.to_owned())),
            None => (word.trim_end_matches('!'), None),
        };
        let origin = Origin::file(place).at(line);
        let mut one = Candidate::new(Some(name.to_owned()), origin, says, ());
        one.uid = uid.into();
        one
    });
    let candidates = candidates.collect();
    all.put(&place.to_owned(), candidates);
}

fn reconciled(all: &mut Catalogue<Script>) -> String {
    let changes = all
        .reconcile()
        .changes
        .into_iter()
        .map(|change| match change {
            CatalogueChange::Set(id, version, _) => format!("{id}={version}"),
            CatalogueChange::Moved(id, _, origin) => format!("{id}@{origin}"),
            CatalogueChange::Gone(id) => format!("{id}-"),
        });
    changes.collect::<Vec<_>>().join(" ")
}

fn status(all: &Catalogue<Script>) -> Vec<String> {
    let all = all.places().flat_map(|(place, candidates)| {
        candidates.iter().map(move |one| match &one.status {
            Status::Accepted => format!("{place}: accepted"),
            Status::Refused { serving } => format!("{place}: refused, {serving:?}"),
            Status::Shadowed { by: (place_of, at) } => format!("{place}: after {place_of}:{at}"),
        })
    });
    all.collect()
}

#[test]
fn each_object_is_served_once_in_its_last_good_version() {
    let mut all = Catalogue::default();
    put(&mut all, "g", "a=2 b!");
    assert_eq!(reconciled(&mut all), "a=2");
    put(&mut all, "f", "a=1");
    assert_eq!(reconciled(&mut all), "a=1");
    let served = ["f: accepted", "g: after f:0", "g: refused, Nothing"];
    assert_eq!(status(&all), served);
    put(&mut all, "f", "c=1 a!");
    assert_eq!(reconciled(&mut all), "c=1");
    let served = [
        "f: accepted",
        "f: refused, Old",
        "g: after f:1",
        "g: refused, Nothing",
    ];
    assert_eq!(status(&all), served);
    assert_eq!(
        (all.served(), all.get(&"a".to_owned())),
        (2, Some(&"1".to_owned()))
    );
    assert_eq!(all.holder(&"a".to_owned()).unwrap().0, "f");
    assert_eq!(all.remove("f").len(), 2);
    assert_eq!(reconciled(&mut all), "a=2 c-");
    assert!(all.at("f").is_none() && all.at("g").is_some());
}

#[test]
fn an_object_made_anew_has_no_earlier_version() {
    let mut all = Catalogue::default();
    put(&mut all, "x", "a=1@one");
    assert_eq!(reconciled(&mut all), "a=1");
    put(&mut all, "x", "a!@one");
    assert_eq!(reconciled(&mut all), "");
    put(&mut all, "x", "a!@two");
    assert_eq!(reconciled(&mut all), "a-");
}

/// The contract has a last good version of a source and a name, whatever file the name is written in (galley.md, section 6).
#[test]
fn an_object_that_moves_and_breaks_at_once_stays_and_a_deleted_one_does_not() {
    let mut all = Catalogue::default();
    put(&mut all, "f", "a=1");
    assert_eq!(reconciled(&mut all), "a=1");
    all.remove("f");
    put(&mut all, "g", "a!");
    assert_eq!(reconciled(&mut all), "");
    assert_eq!(status(&all), ["g: refused, Old"]);
    assert_eq!(all.holder(&"a".to_owned()).unwrap().0, "g");
    // The old version goes with the last place that has the name.
    all.remove("g");
    assert_eq!(reconciled(&mut all), "a-");
    put(&mut all, "g", "a!");
    assert_eq!(reconciled(&mut all), "");
    assert_eq!(status(&all), ["g: refused, Nothing"]);
    // A good version elsewhere wins over the old one of a place that is gone.
    put(&mut all, "f", "b=1");
    assert_eq!(reconciled(&mut all), "b=1");
    all.remove("f");
    put(&mut all, "e", "b!");
    put(&mut all, "h", "b=2");
    assert_eq!(reconciled(&mut all), "b=2");
    // Another uid is another object.
    put(&mut all, "x", "c=1@one");
    assert_eq!(reconciled(&mut all), "c=1");
    all.remove("x");
    put(&mut all, "y", "c!@two");
    assert_eq!(reconciled(&mut all), "c-");
}

#[test]
fn an_object_that_moves_is_the_same_elsewhere() {
    let mut all = Catalogue::default();
    put(&mut all, "f", "a=1 b=1");
    assert_eq!(reconciled(&mut all), "a=1 b=1");
    // One is written before them.
    put(&mut all, "f", "c=1 a=1 b=2");
    assert_eq!(reconciled(&mut all), "a@f:2 b=2 c=1");
    // A refused version is served from where it was good.
    put(&mut all, "f", "c=1 b=2 a!");
    assert_eq!(reconciled(&mut all), "b@f:2");
    put(&mut all, "f", "c=1 b=2 a=1");
    assert_eq!(reconciled(&mut all), "a@f:3");
    // Another place has it from now on.
    put(&mut all, "g", "a=1");
    all.remove("f");
    assert_eq!(reconciled(&mut all), "a@g:1 b- c-");
    assert_eq!(reconciled(&mut all), "");
    let set = |all: &mut Catalogue<Script>| all.reconcile().changes.pop();
    put(&mut all, "h", "d=1");
    let Some(CatalogueChange::Set(_, _, origin)) = set(&mut all) else {
        panic!("another change");
    };
    assert_eq!(origin.to_string(), "h:1");
}
