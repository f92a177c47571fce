//! What is written at one place, and what is said of it.

use std::sync::{Arc, LazyLock};

use api::config::Finding;

use super::super::entry::Id;
use super::super::judged::Judged;
use super::super::report::{Rejected, Report, State, Warned};
use super::Objects;
use crate::catalogue::{Candidate, Serving, Status};

/// One object of a sheet.
#[derive(Clone, Debug, Default)]
pub(in crate::config) struct Claim {
    pub(in crate::config) judged: Judged,
    /// What tells it from an earlier object of its name.
    pub(in crate::config) uid: Box<str>,
    /// Where it begins; 0: nowhere in particular.
    pub(in crate::config) line: usize,
    /// Of the first thing that is wrong with it.
    pub(in crate::config) wrong: usize,
}

/// What was found out about an object.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) line: usize,
    wrong: usize,
    errors: Arc<[Finding]>,
    warnings: Arc<[Finding]>,
}

/// What is to be said of a place beside its objects.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    /// It cannot be read: its line, and why not. All that it said stays.
    pub(super) unread: Option<(usize, String)>,
    /// Where the first object is that was too many, and how many there are.
    pub(super) left_out: Option<(usize, usize)>,
}

/// Something that holds for no object: a directory that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::config) struct Problem {
    pub(in crate::config) place: String,
    pub(in crate::config) state: State,
    pub(in crate::config) cause: String,
}

/// What is said of objects when it is said of so many others already.
static UNEXPLAINED: LazyLock<Arc<[Finding]>> = LazyLock::new(|| {
    let words = "refused, as many others: validate the file to see why";
    [Finding::error("", words)].into()
});

impl Claim {
    /// `explained`: what is wrong with it is kept.
    pub(super) fn candidate(self, explained: bool) -> Candidate<Objects> {
        let Judged {
            id,
            entry,
            findings,
        } = self.judged;
        let (errors, warnings): (Vec<_>, Vec<_>) =
            findings.into_iter().partition(Finding::is_error);
        let is_refused = !errors.is_empty();
        let said = Said {
            line: self.line,
            wrong: self.wrong,
            errors: match explained || errors.is_empty() {
                true => shared(errors),
                false => Arc::clone(&UNEXPLAINED),
            },
            warnings: match explained {
                true => shared(warnings),
                false => Arc::default(),
            },
        };
        let id = Some(id).filter(Id::is_whole);
        let mut candidate = Candidate::new(id, entry, said);
        candidate.uid = self.uid;
        if !is_refused {
            // As far as anything is served of it.
            candidate.status = Status::Accepted;
        }
        candidate
    }
}

impl Said {
    /// It is refused, and not told by itself.
    pub(super) fn is_unexplained(&self) -> bool {
        Arc::ptr_eq(&self.errors, &UNEXPLAINED)
    }

    /// Whether something is said.
    pub(super) fn is_there(&self) -> bool {
        !(self.errors.is_empty() && self.warnings.is_empty())
    }
}

pub(super) fn is_noted(candidate: &Candidate<Objects>) -> bool {
    candidate.status != Status::Accepted || !candidate.findings.warnings.is_empty()
}

impl Report {
    /// `first`: where the one begins that is served in its place.
    pub(super) fn add(
        &mut self,
        candidate: &Candidate<Objects>,
        first: Option<Box<str>>,
        origin: impl Fn(usize) -> Box<str>,
    ) {
        let said = &candidate.findings;
        let id = candidate.id.clone().unwrap_or_default();
        let mut reject = |state, line, errors| {
            self.rejected.push(Rejected {
                id: id.clone(),
                origin: origin(line),
                state,
                errors,
            });
        };
        match &candidate.status {
            Status::Accepted => {}
            Status::Refused { serving } => {
                let state = match serving {
                    Serving::Old => State::Stale,
                    Serving::Nothing => State::Refused,
                };
                reject(state, said.wrong, Arc::clone(&said.errors));
            }
            Status::Shadowed { .. } => {
                let words = format!("duplicate of {}", first.unwrap_or_default());
                let error = Finding::error("metadata.name", words);
                reject(State::Refused, said.line, [error].into());
            }
        }
        if !said.warnings.is_empty() {
            self.warned.push(Warned {
                id,
                origin: origin(said.wrong),
                warnings: Arc::clone(&said.warnings),
            });
        }
    }

    pub(super) fn unnamed(&mut self, origin: Box<str>, state: State, cause: &str) {
        self.rejected.push(Rejected {
            id: Id::default(),
            origin,
            state,
            errors: [Finding::error("", cause)].into(),
        });
    }
}

/// Most have none, which takes no memory.
fn shared(findings: Vec<Finding>) -> Arc<[Finding]> {
    match findings.is_empty() {
        true => Arc::default(),
        false => findings.into(),
    }
}
