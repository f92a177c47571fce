//! The examples that fuzzing begins with, without a fuzzer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test may panic, and reads files"
)]

#[path = "../../../tests/fuzz-gudgeon/properties/access_list.rs"]
mod access_list;
#[path = "../../../tests/support/corpus.rs"]
mod corpus;
#[path = "../../../tests/fuzz-gudgeon/properties/mcp.rs"]
mod property;

#[test]
fn examples_and_their_beginnings() {
    run("mcp_request", property::check_requests);
    run("mcp_response", property::check_responses);
    run("access_list", access_list::check);
}

#[test]
fn malformed_access_lists_are_refused() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/data/fuzz/access_list"
    );
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.display().to_string();
        if name.ends_with("-good") || name.ends_with("-bad") {
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(
                access_list::is_accepted(&bytes),
                name.ends_with("-good"),
                "{name}"
            );
        }
    }
}

#[test]
fn kept_mcp_request() {
    corpus::replay("mcp_request", property::check_requests);
}

#[test]
fn kept_mcp_response() {
    corpus::replay("mcp_response", property::check_responses);
}

#[test]
fn kept_access_list() {
    corpus::replay("access_list", access_list::check);
}

fn run(target: &str, check: impl Fn(&[u8])) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/fuzz");
    let mut count = 0;
    for file in std::fs::read_dir(format!("{folder}/{target}")).unwrap() {
        let path = file.unwrap().path();
        // The last path printed is the one that failed.
        println!("{}", path.display());
        let bytes = std::fs::read(path).unwrap();
        check(&bytes);
        for cut in 0..bytes.len() {
            check(bytes.get(..cut).unwrap());
        }
        count += 1;
    }
    assert!(count > 1, "there are no examples of {target}");
}
