//! The candidates of one place, and the findings about the place itself.

use std::sync::{Arc, LazyLock};

use api::config::Finding;

use super::super::checked::CheckedObject;
use super::super::entry::EntryId;
use super::super::report::{ConfigReport, Refused, Warned};
use super::{ConfigObjects, ConfigVersion};
use crate::catalogue::{Candidate, Origin, ServedInstead, Status};
use crate::kind::Revision;

/// An object of a place.
#[derive(Clone, Debug, Default)]
pub(in crate::config) struct SourceEntry {
    pub(in crate::config) checked: CheckedObject,
    /// `metadata.uid`: distinguishes an object from an earlier one of the same name.
    pub(in crate::config) uid: Box<str>,
    /// `metadata.generation`; 0 if unknown.
    pub(in crate::config) generation: i64,
    /// `metadata.resourceVersion`; empty in files.
    pub(in crate::config) version: Box<str>,
    /// The line at which the object begins; 0 if unknown.
    pub(in crate::config) line: usize,
    /// The line of the first error.
    pub(in crate::config) wrong: usize,
}

/// Findings about one object.
#[derive(Debug)]
pub(super) struct ObjectFindings {
    /// The line of the first error.
    wrong: usize,
    generation: i64,
    errors: Arc<[Finding]>,
    warnings: Arc<[Finding]>,
    notes: Arc<[Finding]>,
}

/// Findings of an object that are kept for the report.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptFindings {
    pub(super) errors: bool,
    pub(super) warnings: bool,
}

/// Findings about a place that concern none of its objects.
#[derive(Debug, Default)]
pub(super) struct PlaceFindings {
    /// The line and the cause if the place cannot be read; its objects keep their last versions.
    pub(super) unread: Option<(usize, String)>,
    /// The line of the first object beyond the limit, and the number of objects left out.
    pub(super) left_out: Option<(usize, usize)>,
}

/// A problem that concerns no object: a directory that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::config) struct SourceProblem {
    pub(in crate::config) place: String,
    pub(in crate::config) serving: ServedInstead,
    pub(in crate::config) cause: String,
}

/// The one finding of an object beyond the limit of objects with findings of their own.
static UNEXPLAINED: LazyLock<Arc<[Finding]>> = LazyLock::new(|| {
    let message = "refused, as many others: validate the file to see why";
    [Finding::error("", message)].into()
});

impl SourceEntry {
    pub(super) fn has_errors(&self) -> bool {
        self.checked.findings.iter().any(Finding::is_error)
    }

    pub(super) fn has_warnings(&self) -> bool {
        let CheckedObject {
            findings, notes, ..
        } = &self.checked;
        !notes.is_empty() || findings.iter().any(|found| !found.is_error())
    }

    /// Builds the candidate.
    pub(super) fn candidate(self, origin: Origin, kept: KeptFindings) -> Candidate<ConfigObjects> {
        let CheckedObject {
            id,
            entry,
            findings,
            notes,
            unchecked,
        } = self.checked;
        let (errors, warnings): (Vec<_>, Vec<_>) =
            findings.into_iter().partition(Finding::is_error);
        let is_refused = !errors.is_empty();
        let findings = ObjectFindings {
            wrong: self.wrong,
            generation: self.generation,
            errors: match kept.errors || errors.is_empty() {
                true => shared(errors),
                false => Arc::clone(&UNEXPLAINED),
            },
            warnings: shared_if(kept.warnings, warnings),
            notes: shared_if(kept.warnings, notes),
        };
        let id = Some(id).filter(EntryId::is_whole);
        let version = entry.map(ConfigVersion::Entry);
        let version = version.or_else(|| unchecked.map(ConfigVersion::Unchecked));
        let mut candidate = Candidate::new(id, origin, version, findings);
        candidate.uid = self.uid;
        if !is_refused {
            // The object counts as accepted as far as it is served.
            candidate.status = Status::Accepted;
        }
        candidate
    }
}

impl ObjectFindings {
    /// Returns true if the object is refused without findings of its own.
    pub(super) fn is_unexplained(&self) -> bool {
        Arc::ptr_eq(&self.errors, &UNEXPLAINED)
    }

    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Returns true if there are warnings or notes.
    pub(super) fn has_warnings(&self) -> bool {
        !(self.warnings.is_empty() && self.notes.is_empty())
    }
}

pub(super) fn is_noted(candidate: &Candidate<ConfigObjects>) -> bool {
    candidate.status != Status::Accepted || candidate.findings.has_warnings()
}

impl ConfigReport {
    /// `first`: the origin of the one that is served in its place.
    pub(super) fn add(&mut self, candidate: &Candidate<ConfigObjects>, first: Option<&Origin>) {
        let findings = &candidate.findings;
        let id = candidate.id.clone().unwrap_or_default();
        let wrong = candidate.origin.at(findings.wrong);
        let mut refuse = |serving, origin: &Origin, errors| {
            self.rejected.push(Refused {
                id: id.clone(),
                origin: origin.clone(),
                serving,
                findings: errors,
                revision: Revision {
                    uid: candidate.uid.clone(),
                    generation: findings.generation,
                },
            });
        };
        match &candidate.status {
            Status::Accepted => {}
            Status::Refused { serving } => {
                refuse(*serving, &wrong, Arc::clone(&findings.errors));
            }
            Status::Shadowed { .. } => {
                let first = first.map(ToString::to_string).unwrap_or_default();
                let message = format!("duplicate of {first}");
                let error = Finding::error("metadata.name", message);
                refuse(ServedInstead::Nothing, &candidate.origin, [error].into());
            }
        }
        // Of an object that is not used nothing is noted.
        let notes = match candidate.status {
            Status::Accepted => Arc::clone(&findings.notes),
            Status::Refused { .. } | Status::Shadowed { .. } => Arc::default(),
        };
        if !(findings.warnings.is_empty() && notes.is_empty()) {
            self.warned.push(Warned {
                id,
                origin: wrong,
                warnings: Arc::clone(&findings.warnings),
                notes,
                is_accepted: candidate.status == Status::Accepted,
            });
        }
    }

    pub(super) fn unnamed(&mut self, origin: Origin, serving: ServedInstead, cause: &str) {
        self.rejected.push(Refused {
            id: EntryId::default(),
            origin,
            serving,
            findings: [Finding::error("", cause)].into(),
            revision: Revision::default(),
        });
    }
}

/// Shares findings; the empty list, which most objects have, takes no memory.
fn shared(findings: Vec<Finding>) -> Arc<[Finding]> {
    match findings.is_empty() {
        true => Arc::default(),
        false => findings.into(),
    }
}

fn shared_if(kept: bool, findings: Vec<Finding>) -> Arc<[Finding]> {
    match kept {
        true => shared(findings),
        false => Arc::default(),
    }
}
