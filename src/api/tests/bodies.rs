//! Bodies of resources as a sink gets them: the examples that fuzzing begins with, without a fuzzer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test may panic, and reads files"
)]

#[path = "../../../tests/fuzz-gudgeon/properties/bodies.rs"]
mod bodies;
#[path = "../../../tests/support/corpus.rs"]
mod corpus;

#[test]
fn kept_bodies() {
    corpus::replay("bodies", bodies::check);
}

#[test]
fn bodies_and_what_is_left_of_them() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/fuzz/bodies");
    let mut found = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        // The last one said is the one that failed.
        println!("{}", path.display());
        let bytes = std::fs::read(path).unwrap();
        bodies::check(&bytes);
        for at in 0..bytes.len() {
            bodies::check(bytes.get(..at).unwrap());
            let mut changed = bytes.clone();
            *changed.get_mut(at).unwrap() ^= 0x11;
            bodies::check(&changed);
        }
        found += 1;
    }
    assert!(found > 3, "there are no examples");
}
