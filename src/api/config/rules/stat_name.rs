//! Names of clusters in statistics, as a mesh configuration gives them.

use super::cursor::Cursor;
use crate::finding::quoted;

/// The parts of a cluster that a name may have.
const PATTERNS: [&str; 6] = [
    "%SERVICE%",
    "%SERVICE_FQDN%",
    "%SERVICE_NAME%",
    "%SERVICE_PORT%",
    "%SERVICE_PORT_NAME%",
    "%SUBSET_NAME%",
];

/// Warns of a pattern without operators: it stays as it is, so that all clusters have one name.
pub(super) fn check(at: &Cursor<'_>) {
    let parts: Vec<&str> = at.text().split('%').collect();
    let Some(inner) = parts.get(1..parts.len().saturating_sub(1)) else {
        return;
    };
    let is_name = |part: &str| {
        part.starts_with(|letter: char| letter.is_ascii_uppercase())
            && part
                .chars()
                .all(|letter| letter.is_ascii_uppercase() || letter == '_')
    };
    for part in inner.iter().filter(|part| is_name(part)) {
        let pattern = format!("%{part}%");
        if !PATTERNS.contains(&&*pattern) {
            let patterns = PATTERNS.join(", ");
            at.warn(format!(
                "{} is not replaced: gudgeon knows {patterns}",
                quoted(&pattern)
            ));
        }
    }
}
