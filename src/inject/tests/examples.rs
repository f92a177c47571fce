//! The examples that fuzzing begins with, without a fuzzer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    clippy::disallowed_methods,
    reason = "a test may panic, and reads files"
)]

#[path = "../../../tests/support/corpus.rs"]
mod corpus;
#[path = "../../../tests/fuzz-gudgeon/properties/inject_config.rs"]
mod inject_config;
#[path = "../../../tests/fuzz-gudgeon/properties/inject_values.rs"]
mod inject_values;
#[path = "../../../tests/fuzz-gudgeon/properties/injection.rs"]
mod injection;
#[path = "../../../tests/fuzz-gudgeon/properties/pod.rs"]
mod pod;
#[path = "../../../tests/fuzz-gudgeon/properties/probers.rs"]
mod probers;
#[path = "../../../tests/fuzz-gudgeon/properties/status.rs"]
mod status;
#[path = "../../../tests/fuzz-gudgeon/properties/template_output.rs"]
mod template_output;

#[test]
fn examples_and_their_beginnings() {
    run("inject_config", inject_config::check);
    run("inject_values", inject_values::check);
    run("template_output", template_output::check);
    run("status", status::check);
    run("probers", probers::check);
    run("pod", pod::check);
}

#[test]
fn kept_inject_config() {
    corpus::replay("inject_config", inject_config::check);
}

#[test]
fn kept_inject_values() {
    corpus::replay("inject_values", inject_values::check);
}

#[test]
fn kept_template_output() {
    corpus::replay("template_output", template_output::check);
}

#[test]
fn kept_status() {
    corpus::replay("status", status::check);
}

#[test]
fn kept_probers() {
    corpus::replay("probers", probers::check);
}

#[test]
fn kept_pod() {
    corpus::replay("pod", pod::check);
}

fn run(target: &str, check: fn(&[u8])) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/fuzz");
    let mut count = 0;
    for file in std::fs::read_dir(format!("{folder}/{target}")).unwrap() {
        let path = file.unwrap().path();
        // The last path printed is the one that failed.
        println!("{}", path.display());
        let bytes = std::fs::read(path).unwrap();
        check(&bytes);
        for cut in (0..bytes.len()).step_by(7) {
            check(bytes.get(..cut).unwrap());
        }
        count += 1;
    }
    assert!(count > 1, "there are no examples of {target}");
}
