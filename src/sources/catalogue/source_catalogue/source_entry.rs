//! The candidates of one place, and the findings about the place itself.

use std::sync::{Arc, LazyLock};

use api::config::{Finding, ServedInstead};

use super::super::checked::CheckedObject;
use super::super::entry::EntryId;
use super::super::report::{ConfigReport, Refused, Warned};
use super::{InPlaces, StoredForm};
use crate::catalogue::config_object::ConfigObject;
use crate::catalogue::last_good::{Candidate, Status};
use crate::catalogue::origin::Origin;
use crate::kind::Revision;

/// An object of a place.
#[derive(Clone, Debug)]
pub(crate) struct SourceEntry<V> {
    pub(crate) checked: CheckedObject<V>,
    /// `metadata.uid`: distinguishes an object from an earlier one of the same name.
    pub(crate) uid: Box<str>,
    /// `metadata.generation`; 0 if unknown.
    pub(crate) generation: i64,
    /// `metadata.resourceVersion`; empty in files.
    pub(crate) version: Box<str>,
    /// The line at which the object begins; 0 if unknown.
    pub(crate) line: usize,
    /// The line of the first error.
    pub(crate) wrong: usize,
}

impl<V> Default for SourceEntry<V> {
    fn default() -> Self {
        Self {
            checked: CheckedObject::default(),
            uid: Box::default(),
            generation: 0,
            version: Box::default(),
            line: 0,
            wrong: 0,
        }
    }
}

/// Findings about one object.
#[derive(Debug)]
pub(crate) struct ObjectFindings {
    /// The collection of an object without a name; empty if that is unknown, too.
    collection: &'static str,
    /// The line of the first error.
    wrong: usize,
    generation: i64,
    errors: Arc<[Finding]>,
    warnings: Arc<[Finding]>,
    notes: Arc<[Finding]>,
    /// A refused object as it is written, if its reader shows it.
    pub(crate) written: Option<Arc<ConfigObject>>,
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
    /// The place cannot be read; its objects keep their last versions.
    pub(super) unread: Option<UnreadPlace>,
    /// The line of the first object beyond the limit, and the number of objects left out.
    pub(super) left_out: Option<(usize, usize)>,
}

/// The cause for which a place cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnreadPlace {
    pub(super) line: usize,
    pub(super) cause: String,
    /// It is refused, unless it still has objects of an earlier content.
    pub(super) is_refused: bool,
}

/// A problem that concerns no object: a directory that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourceProblem {
    pub(crate) place: String,
    pub(crate) serving: ServedInstead,
    pub(crate) cause: String,
}

/// The one finding of an object beyond the limit of objects with findings of their own.
static UNEXPLAINED: LazyLock<Arc<[Finding]>> = LazyLock::new(|| {
    let message = "refused, as many others: validate the file to see why";
    [Finding::error("", message)].into()
});

impl<V: StoredForm> SourceEntry<V> {
    /// An error of a text at a line, which concerns no object.
    pub(crate) fn error_at(line: usize, message: &str) -> Self {
        Self {
            checked: CheckedObject {
                findings: vec![Finding::error("", message)],
                ..CheckedObject::default()
            },
            line,
            wrong: line,
            ..Self::default()
        }
    }

    pub(super) fn has_errors(&self) -> bool {
        self.checked.is_refused()
    }

    pub(super) fn has_warnings(&self) -> bool {
        let CheckedObject {
            findings, notes, ..
        } = &self.checked;
        !notes.is_empty() || findings.iter().any(|finding| !finding.is_error())
    }

    /// Builds the candidate.
    pub(super) fn candidate(
        self,
        origin: Origin,
        kept_findings: KeptFindings,
    ) -> Candidate<InPlaces<V>> {
        let CheckedObject {
            id,
            content,
            findings,
            notes,
            written,
        } = self.checked;
        let (errors, warnings): (Vec<_>, Vec<_>) =
            findings.into_iter().partition(Finding::is_error);
        let is_refused = !errors.is_empty();
        let findings = ObjectFindings {
            collection: id.collection,
            wrong: self.wrong,
            generation: self.generation,
            errors: match kept_findings.errors || errors.is_empty() {
                true => shared(errors),
                false => Arc::clone(&UNEXPLAINED),
            },
            warnings: shared_if(kept_findings.warnings, warnings),
            notes: shared_if(kept_findings.warnings, notes),
            written,
        };
        let id = Some(id).filter(EntryId::is_whole);
        let mut candidate = Candidate::new(id, origin, content, findings);
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

pub(super) fn is_noted<V: StoredForm>(candidate: &Candidate<InPlaces<V>>) -> bool {
    candidate.status != Status::Accepted || candidate.findings.has_warnings()
}

impl ConfigReport {
    /// Adds an entry. `first` is the origin of the object that is served in its place.
    pub(super) fn add<V: StoredForm>(
        &mut self,
        candidate: &Candidate<InPlaces<V>>,
        first: Option<&Origin>,
    ) {
        let findings = &candidate.findings;
        let id = candidate.id.clone().unwrap_or_else(|| EntryId {
            collection: findings.collection,
            ..EntryId::default()
        });
        let wrong = candidate.origin.at(findings.wrong);
        let mut refuse = |serving, origin: &Origin, errors| {
            self.refused.push(Refused {
                id: id.clone(),
                origin: origin.clone(),
                serving,
                findings: errors,
                written: findings.written.clone(),
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
                let error = duplicate_of(first);
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
        self.refused.push(Refused {
            id: EntryId::default(),
            origin,
            serving,
            findings: [Finding::error("", cause)].into(),
            written: None,
            revision: Revision::default(),
        });
    }
}

/// The error of an object whose name another one has before it.
pub(crate) fn duplicate_of(first: Option<&Origin>) -> Finding {
    let first = first.map(ToString::to_string).unwrap_or_default();
    Finding::error("metadata.name", format!("duplicate of {first}"))
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
