//! What must hold of documents and of what is said about the objects in them, whatever their bytes are. Asked by the fuzzer,
//! and by a test with its examples.

use api::config::document::{Part, documents};
use api::config::{self, Finding};

/// Of one object, and a last one for those that are not kept.
const MAX_FINDINGS: usize = 101;

pub(crate) fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.split(['\n', '\r']).count();
    let mut ended = false;
    for document in documents(&text) {
        assert!(!ended, "something after what cannot be read");
        match document {
            Ok(document) => {
                for part in document.parts() {
                    object(&part, lines);
                }
            }
            Err(malformed) => {
                ended = true;
                assert!(malformed.line <= lines + 1, "{malformed} of {lines}");
                assert!(is_one_line(&malformed.cause), "{:?}", malformed.cause);
            }
        }
    }
}

fn object(part: &Part<'_>, lines: usize) {
    let value = part.value();
    let (object, findings) = config::check(&value);
    assert!(findings.len() <= MAX_FINDINGS);
    for found in &findings {
        assert!(
            is_one_line(&found.message) && is_one_line(&found.path),
            "{found:?}"
        );
        assert!(part.line(&found.path) <= lines + 1, "{found:?}");
    }
    let mut ordered = findings.clone();
    part.sort(&mut ordered);
    assert_eq!(ordered.len(), findings.len());
    let Some(object) = object else {
        assert!(!findings.is_empty(), "no object, and nobody says why");
        return;
    };
    if findings.iter().any(Finding::is_error) {
        assert!(object.body.is_empty());
    }
}

fn is_one_line(text: &str) -> bool {
    !text.contains(['\n', '\r']) && text.len() < 100_000
}
