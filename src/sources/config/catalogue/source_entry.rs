//! The candidates of one place, and the findings about the place itself.

use std::sync::{Arc, LazyLock};

use api::config::Finding;

use super::super::checked::CheckedObject;
use super::super::entry::EntryId;
use super::super::report::{ConfigReport, ErrorEffect, Rejected, Warned};
use super::ConfigObjects;
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
    pub(in crate::config) state: ErrorEffect,
    pub(in crate::config) cause: String,
}

/// The one finding of an object beyond the limit of objects with findings of their own.
static UNEXPLAINED: LazyLock<Arc<[Finding]>> = LazyLock::new(|| {
    let message = "refused, as many others: validate the file to see why";
    [Finding::error("", message)].into()
});

impl SourceEntry {
    /// Builds the candidate; `explained` keeps its findings.
    pub(super) fn candidate(self, origin: Origin, explained: bool) -> Candidate<ConfigObjects> {
        let CheckedObject {
            id,
            entry,
            findings,
        } = self.checked;
        let (errors, warnings): (Vec<_>, Vec<_>) =
            findings.into_iter().partition(Finding::is_error);
        let is_refused = !errors.is_empty();
        let findings = ObjectFindings {
            wrong: self.wrong,
            generation: self.generation,
            errors: match explained || errors.is_empty() {
                true => shared(errors),
                false => Arc::clone(&UNEXPLAINED),
            },
            warnings: match explained {
                true => shared(warnings),
                false => Arc::default(),
            },
        };
        let id = Some(id).filter(EntryId::is_whole);
        let mut candidate = Candidate::new(id, origin, entry, findings);
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

    /// Returns true if there are errors or warnings.
    pub(super) fn is_there(&self) -> bool {
        !(self.errors.is_empty() && self.warnings.is_empty())
    }
}

pub(super) fn is_noted(candidate: &Candidate<ConfigObjects>) -> bool {
    candidate.status != Status::Accepted || !candidate.findings.warnings.is_empty()
}

impl ConfigReport {
    /// `first`: the origin of the one that is served in its place.
    pub(super) fn add(&mut self, candidate: &Candidate<ConfigObjects>, first: Option<&Origin>) {
        let findings = &candidate.findings;
        let id = candidate.id.clone().unwrap_or_default();
        let wrong = candidate.origin.at(findings.wrong);
        let mut reject = |state, origin: &Origin, errors| {
            self.rejected.push(Rejected {
                id: id.clone(),
                origin: origin.clone(),
                state,
                errors,
                revision: Revision {
                    uid: candidate.uid.clone(),
                    generation: findings.generation,
                },
            });
        };
        match &candidate.status {
            Status::Accepted => {}
            Status::Refused { serving } => {
                let state = match serving {
                    ServedInstead::Old => ErrorEffect::Stale,
                    ServedInstead::Nothing => ErrorEffect::Refused,
                };
                reject(state, &wrong, Arc::clone(&findings.errors));
            }
            Status::Shadowed { .. } => {
                let first = first.map(ToString::to_string).unwrap_or_default();
                let message = format!("duplicate of {first}");
                let error = Finding::error("metadata.name", message);
                reject(ErrorEffect::Refused, &candidate.origin, [error].into());
            }
        }
        if !findings.warnings.is_empty() {
            self.warned.push(Warned {
                id,
                origin: wrong,
                warnings: Arc::clone(&findings.warnings),
            });
        }
    }

    pub(super) fn unnamed(&mut self, origin: Origin, state: ErrorEffect, cause: &str) {
        self.rejected.push(Rejected {
            id: EntryId::default(),
            origin,
            state,
            errors: [Finding::error("", cause)].into(),
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
