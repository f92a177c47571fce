//! The examples that fuzzing begins with, without a fuzzer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test may panic, and reads files"
)]

#[path = "../../../tests/fuzz-gudgeon/properties/mesh_config.rs"]
mod mesh_config;

#[test]
fn mesh_configurations() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/data/fuzz/mesh_config"
    );
    let mut found = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        // The last one said is the one that failed.
        println!("{}", path.display());
        let bytes = std::fs::read(path).unwrap();
        mesh_config::check(&bytes);
        for cut in 0..=bytes.len() {
            mesh_config::check(bytes.get(..cut).unwrap());
        }
        found += 1;
    }
    assert!(found > 3, "there are no examples");
}
