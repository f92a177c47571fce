//! Properties of everything that takes bytes from outside, whatever they are: the fuzz targets of `tests/fuzz` call these, and
//! so do the tests below, with the same examples. Not part of the program.

#![forbid(unsafe_code)]

/// One of the functions below: it takes bytes and panics if something does not hold.
pub type Property = fn(&[&[u8]]);

/// Every property, with the folder of its examples.
pub const ALL: [(&str, Property); 5] = [
    ("request", crate::status::properties::request),
    ("response", crate::http::properties::response),
    ("admin_reply", crate::admin::properties::reply),
    ("metrics", crate::status::properties::metrics),
    ("text", text),
];

/// Texts that are never cut: a redirect's location, a certificate.
fn text(pieces: &[&[u8]]) {
    let whole = pieces.concat();
    crate::status::properties::redirect(&whole);
    let _ = crate::certificate::expiry(&whole, 0);
}

/// The property of that name, for the bytes in one piece, in small ones and in two.
pub fn check(name: &str, bytes: &[u8]) {
    // A long input is not taken byte by byte: heads are parsed anew with each piece.
    let size = bytes.len().checked_div(256).unwrap_or_default().max(1);
    let small: Vec<_> = bytes.chunks(size).collect();
    for (_, property) in ALL.iter().filter(|(known, _)| *known == name) {
        property(&[bytes]);
        property(&small);
        let (first, second) = bytes.split_at(bytes.len() / 2);
        property(&[first, second]);
    }
}

#[cfg(test)]
#[path = "../../tests/support/corpus.rs"]
mod corpus;

#[cfg(test)]
mod tests {
    #![allow(
        clippy::print_stdout,
        reason = "the last one said is the one that failed"
    )]

    use proptest::prelude::ProptestConfig;

    use super::*;

    /// Longer ones are cut here and there.
    const CUT_EVERYWHERE: usize = 2048;

    #[test]
    fn kept_inputs_hold() {
        for (name, _) in ALL {
            corpus::replay(name, |bytes| check(name, bytes));
        }
    }

    #[test]
    fn the_examples_hold_wherever_they_are_cut() {
        for (name, property) in ALL {
            let folder = [env!("CARGO_MANIFEST_DIR"), "/../../tests/data/fuzz/", name].concat();
            let files: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
            assert!(files.len() > 3, "{name} has no examples");
            for file in files {
                let path = file.unwrap().path();
                println!("{}", path.display());
                let bytes = std::fs::read(path).unwrap();
                check(name, &bytes);
                let step = bytes.len() / CUT_EVERYWHERE + 1;
                for cut in (0..=bytes.len()).step_by(step) {
                    let (first, second) = bytes.split_at(cut);
                    property(&[first, second]);
                }
            }
        }
    }

    proptest::proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn mutated_examples_hold(at in 0..400_usize, byte in 0..=255_u8, which in 0..100_usize) {
            for (name, _) in ALL {
                let folder = [env!("CARGO_MANIFEST_DIR"), "/../../tests/data/fuzz/", name].concat();
                let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
                files.sort();
                let mut bytes = std::fs::read(&files[which % files.len()]).unwrap();
                bytes.truncate(2000);
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
                check(name, &bytes);
            }
        }
    }
}
