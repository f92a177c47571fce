//! The examples that fuzzing begins with, without a fuzzer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test may panic, and reads files"
)]

#[path = "../../../tests/support/corpus.rs"]
mod corpus;
#[path = "../../../tests/fuzz-gudgeon/properties/key_set.rs"]
mod key_set;
#[path = "../../../tests/fuzz-gudgeon/properties/mesh_config.rs"]
mod mesh_config;
#[path = "../../../tests/fuzz-gudgeon/properties/objects.rs"]
mod objects;
#[path = "../../../tests/fuzz-gudgeon/properties/rules.rs"]
mod rules;

/// All examples of a target, and their beginnings.
fn run(target: &str, step: usize, check: fn(&[u8])) {
    let root = env!("CARGO_MANIFEST_DIR");
    let folder = format!("{root}/../../tests/data/fuzz/{target}");
    let mut found = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        // The last one said is the one that failed.
        println!("{}", path.display());
        let bytes = std::fs::read(path).unwrap();
        check(&bytes);
        for cut in (0..=bytes.len()).step_by(step) {
            check(bytes.get(..cut).unwrap());
        }
        found += 1;
    }
    assert!(found > 3, "there are no examples");
}

#[test]
fn kept_key_sets() {
    corpus::replay("key_set", key_set::check);
}

#[test]
fn kept_mesh_configurations() {
    corpus::replay("mesh_config", mesh_config::check);
}

#[test]
fn kept_objects() {
    corpus::replay("objects", objects::check);
}

#[test]
fn kept_objects_of_each_kind() {
    corpus::replay("rules", rules::check);
}

#[test]
fn key_sets_and_their_beginnings() {
    run("key_set", 1, key_set::check);
}

#[test]
fn mesh_configurations() {
    run("mesh_config", 1, mesh_config::check);
}

#[test]
fn objects_and_their_beginnings() {
    run("objects", 7, objects::check);
}

#[test]
fn objects_of_each_kind_and_their_beginnings() {
    run("rules", 29, rules::check);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/fuzz/rules");
    let mut others = Vec::new();
    for row in api::config::KINDS {
        for (what, is_good) in [("good", true), ("bad", false)] {
            let name = format!("{folder}/{}-{what}", row.kind);
            let bytes = std::fs::read(&name).unwrap();
            assert_eq!(rules::kind(&bytes), Some(row), "{name}");
            let mut findings = rules::findings(&bytes).unwrap();
            findings.retain(api::config::Finding::is_error);
            if findings.is_empty() != is_good {
                others.push((name, findings));
            }
        }
    }
    assert_eq!(others, []);
}
