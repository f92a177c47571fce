//! The reason for which an object is refused, in one line and whole.

use std::sync::Arc;

use api::config::Finding;

use crate::kind::{Revision, bytes};

/// The reasons why an object is refused, or cannot be decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The first error, and the number of the others.
    pub message: Arc<str>,
    /// All findings, warnings included.
    pub findings: Arc<[Finding]>,
    /// The refused version, of an API server's object: the same findings about a later one are another refusal.
    pub revision: Revision,
}

impl Refusal {
    /// Returns `None` if no finding is an error.
    pub(crate) fn of(findings: &[Finding]) -> Option<Self> {
        let mut errors = findings.iter().filter(|found| found.is_error());
        let first = errors.next()?;
        let message = match errors.count() {
            0 => first.to_string(),
            more => format!("{first} (and {more} more)"),
        };
        Some(Self {
            message: message.into(),
            findings: findings.into(),
            revision: Revision::default(),
        })
    }

    /// Bytes that the findings take.
    pub(crate) fn size(&self) -> usize {
        let findings = self.findings.iter();
        bytes(findings.flat_map(|found| [found.path.as_str(), &found.message]))
    }
}

impl From<String> for Refusal {
    fn from(message: String) -> Self {
        Self {
            findings: Arc::new([Finding::error("", message.as_str())]),
            message: message.into(),
            revision: Revision::default(),
        }
    }
}
