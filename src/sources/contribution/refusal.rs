//! The reasons for which an object is refused.

use std::fmt;
use std::sync::Arc;

use api::config::{Finding, FindingList};

use crate::kind::{Revision, bytes};

/// The reasons why an object is refused, or cannot be decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// All findings, warnings included.
    pub findings: Arc<[Finding]>,
    /// The refused version, of an API server's object: the same findings about a later one are another refusal.
    pub revision: Revision,
}

impl Refusal {
    /// Returns `None` if no finding is an error.
    pub(crate) fn of(findings: &[Finding]) -> Option<Self> {
        findings.iter().any(Finding::is_error).then(|| Self {
            findings: findings.into(),
            revision: Revision::default(),
        })
    }

    /// Bytes that the findings take.
    pub(crate) fn size(&self) -> usize {
        let findings = self.findings.iter();
        bytes(findings.flat_map(|finding| [finding.path.as_str(), &finding.message]))
    }
}

/// All findings, as logs tell them of a file.
impl fmt::Display for Refusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        FindingList(&self.findings).fmt(to)
    }
}

impl From<String> for Refusal {
    fn from(message: String) -> Self {
        Self {
            findings: Arc::new([Finding::error("", message.as_str())]),
            revision: Revision::default(),
        }
    }
}
