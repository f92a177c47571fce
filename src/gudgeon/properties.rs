//! Properties of reviews, manifests and certificates, over the seeds of the fuzz targets, without a fuzzer.

#![allow(
    clippy::print_stdout,
    clippy::panic,
    clippy::expect_used,
    reason = "it is there to panic; the last one said is the one that failed"
)]

use crate::admission::review;
use crate::injector;
use crate::manifest::{documents, input, job};
use crate::tls as pair;

#[path = "../../tests/fuzz-gudgeon/properties/certificates.rs"]
mod certificates;
#[path = "../../tests/fuzz-gudgeon/properties/configuration.rs"]
mod configuration;
#[path = "../../tests/support/corpus.rs"]
mod corpus;
#[path = "../../tests/fuzz-gudgeon/properties/manifests.rs"]
mod manifests;
#[path = "../../tests/fuzz-gudgeon/properties/review.rs"]
mod reviews;

#[test]
fn examples_and_their_beginnings() {
    run("review", reviews::check);
    run("manifests", manifests::check);
    run("certificates", certificates::check);
}

#[test]
fn kept_review() {
    corpus::replay("review", reviews::check);
}

#[test]
fn kept_manifests() {
    corpus::replay("manifests", manifests::check);
}

#[test]
fn kept_certificates() {
    corpus::replay("certificates", certificates::check);
}

fn run(target: &str, check: fn(&[u8])) {
    let folder = format!(
        "{}/../../tests/data/fuzz/{target}",
        env!("CARGO_MANIFEST_DIR")
    );
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
    assert!(files.len() > 3, "{target} has no examples");
    for file in files {
        let path = file.unwrap().path();
        println!("{}", path.display());
        let bytes = std::fs::read(path).unwrap();
        check(&bytes);
        for end in (0..bytes.len()).step_by(bytes.len() / 200 + 1) {
            check(bytes.get(..end).unwrap());
        }
    }
}
