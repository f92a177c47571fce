//! The inputs that longer runs of `build/ci/fuzz` have kept, tests/data/corpora/TARGET.tar.gz: of each way through the code the
//! smallest. Every property is held against them in `cargo test`, so that a fault that fuzzing found stays found.

use std::path::Path;

/// Fewer than these mean that the archive was not unpacked: the smallest of them has 223.
const MIN_FILES: usize = 200;

/// Calls `check` with each input of a target.
#[allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may run tar, also one of a pure crate; the input said last is the one that failed"
)]
pub(crate) fn replay(target: &str, check: impl Fn(&[u8])) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let archive = root.join(format!("tests/data/corpora/{target}.tar.gz"));
    let folder = tempfile::tempdir().unwrap();
    let unpacked = std::process::Command::new("tar")
        .arg("-xzf")
        .arg(&archive)
        .arg("-C")
        .arg(folder.path())
        .status();
    assert!(
        unpacked.is_ok_and(|status| status.success()),
        "cannot unpack {}",
        archive.display()
    );
    let mut files: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() > MIN_FILES, "{target}: {} inputs", files.len());
    for path in files {
        let bytes = std::fs::read(&path).unwrap();
        // The one said last is the one that failed.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        println!("{target}: {name}");
        check(&bytes);
    }
}
