//! Properties of what an API server sends, whatever its bytes are: a fuzz target of `tests/fuzz-gudgeon` calls them, and so do
//! the tests below, with the same examples. Not part of the program.

/// Checks the body of a watch.
pub fn watch(bytes: &[u8]) {
    crate::kubernetes::check_watch(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_watches() {
        crate::corpus::replay("watch", watch);
    }

    /// The examples that fuzzing begins with, wherever they end.
    #[test]
    fn examples_of_watches() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/fuzz/watch");
        let mut found = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            watch(&bytes);
            for end in (0..bytes.len()).step_by(bytes.len() / 100 + 1) {
                watch(&bytes[..end]);
            }
            found += 1;
        }
        assert!(found > 3, "the examples are elsewhere");
    }
}
