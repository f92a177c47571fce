//! The reason for which an object is refused, in one line and whole.

use std::sync::Arc;

use api::config::Finding;

/// Why an object is refused, or why it could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The first error, and the number of the others.
    pub words: Arc<str>,
    /// All that was found, warnings too.
    pub findings: Arc<[String]>,
}

impl Refusal {
    /// `None` where nothing is found that an object is refused for.
    pub(super) fn of(findings: &[Finding]) -> Option<Self> {
        let mut errors = findings.iter().filter(|found| found.is_error());
        let first = errors.next()?;
        let words = match errors.count() {
            0 => first.to_string(),
            more => format!("{first} (and {more} more)"),
        };
        Some(Self {
            words: words.into(),
            findings: findings.iter().map(ToString::to_string).collect(),
        })
    }
}

impl From<String> for Refusal {
    fn from(words: String) -> Self {
        Self {
            findings: Arc::new([words.clone()]),
            words: words.into(),
        }
    }
}
