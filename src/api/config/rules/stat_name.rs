//! Names of clusters in statistics, as a mesh configuration gives them.

use super::cursor::Cursor;
use crate::finding::quoted;

/// The parts of a cluster that its name in statistics may have.
const PATTERNS: [&str; 5] = [
    "%SERVICE%",
    "%SERVICE_FQDN%",
    "%SERVICE_PORT%",
    "%SERVICE_PORT_NAME%",
    "%SUBSET_NAME%",
];

/// Warns of a pattern that is none: it stays as it is, so that all clusters have one name.
pub(super) fn check(at: &Cursor<'_>) {
    let text = at.text().split('%').skip(1).step_by(2);
    for name in text {
        let pattern = format!("%{name}%");
        if !PATTERNS.contains(&&*pattern) {
            let known = PATTERNS.join(", ");
            at.warn(format!(
                "{} is none of {known}: it stays as it is",
                quoted(&pattern)
            ));
        }
    }
}
