//! The examples that fuzzing begins with, without a fuzzer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test may panic, and reads files"
)]

#[path = "../../../tests/support/corpus.rs"]
mod corpus;
#[path = "../../../tests/fuzz-gudgeon/properties/discovery.rs"]
mod discovery;
#[path = "../../../tests/fuzz-gudgeon/properties/node.rs"]
mod node;

use xds::stream::Protocol;

#[test]
fn examples_and_their_beginnings() {
    run("node", node::check);
    run("discovery_request", |bytes| {
        discovery::check(Protocol::StateOfTheWorld, bytes);
    });
    run("delta_request", |bytes| {
        discovery::check(Protocol::Delta, bytes);
    });
}

#[test]
fn kept_nodes() {
    corpus::replay("node", node::check);
}

#[test]
fn kept_requests() {
    corpus::replay("discovery_request", |bytes| {
        discovery::check(Protocol::StateOfTheWorld, bytes);
    });
}

#[test]
fn kept_requests_of_the_delta_protocol() {
    corpus::replay("delta_request", |bytes| {
        discovery::check(Protocol::Delta, bytes);
    });
}

fn run(target: &str, check: impl Fn(&[u8])) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/fuzz");
    let mut found = 0;
    for file in std::fs::read_dir(format!("{folder}/{target}")).unwrap() {
        let path = file.unwrap().path();
        // The last one said is the one that failed.
        println!("{}", path.display());
        let bytes = std::fs::read(path).unwrap();
        check(&bytes);
        for cut in (0..bytes.len()).step_by(7) {
            check(bytes.get(..cut).unwrap());
        }
        found += 1;
    }
    assert!(found > 1, "there are no examples of {target}");
}
