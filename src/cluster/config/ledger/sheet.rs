//! What is written at one place, and what became of it.

use std::sync::{Arc, LazyLock};

use api::config::Finding;

use super::super::entry::{Entry, Id};
use super::super::judged::Judged;
use super::super::report::{Rejected, Report, State, Warned};

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

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// As far as anything is served of it.
    Served,
    Rejected(State),
    /// Another was first: where it begins.
    Duplicate(Box<str>),
}

/// A claim as it is kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) id: Id,
    pub(super) uid: Box<str>,
    pub(super) line: usize,
    pub(super) wrong: usize,
    pub(super) entry: Option<Entry>,
    pub(super) errors: Arc<[Finding]>,
    pub(super) warnings: Arc<[Finding]>,
    pub(super) standing: Standing,
}

/// What is written at one place.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    pub(super) claims: Vec<Kept>,
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

impl Kept {
    /// `explained`: what is wrong with it is kept.
    pub(super) fn new(claim: Claim, explained: bool) -> Self {
        let Judged {
            id,
            entry,
            findings,
        } = claim.judged;
        let (errors, warnings): (Vec<_>, Vec<_>) =
            findings.into_iter().partition(Finding::is_error);
        let standing = match errors.is_empty() {
            true => Standing::Served,
            false => Standing::Rejected(State::Refused),
        };
        Self {
            id,
            uid: claim.uid,
            line: claim.line,
            wrong: claim.wrong,
            entry,
            errors: match explained || errors.is_empty() {
                true => shared(errors),
                false => Arc::clone(&UNEXPLAINED),
            },
            warnings: match explained {
                true => shared(warnings),
                false => Arc::default(),
            },
            standing,
        }
    }

    /// It is refused, and not told by itself.
    pub(super) fn is_unexplained(&self) -> bool {
        Arc::ptr_eq(&self.errors, &UNEXPLAINED)
    }

    pub(super) fn report(&self, report: &mut Report, origin: impl Fn(usize) -> Box<str>) {
        let rejected = |state, line, errors| Rejected {
            id: self.id.clone(),
            origin: origin(line),
            state,
            errors,
        };
        match &self.standing {
            Standing::Served => {}
            Standing::Rejected(state) => {
                let errors = Arc::clone(&self.errors);
                report.rejected.push(rejected(*state, self.wrong, errors));
            }
            Standing::Duplicate(of) => {
                let error = Finding::error("metadata.name", format!("duplicate of {of}"));
                let duplicate = rejected(State::Refused, self.line, [error].into());
                report.rejected.push(duplicate);
            }
        }
        if !self.warnings.is_empty() {
            report.warned.push(Warned {
                id: self.id.clone(),
                origin: origin(self.wrong),
                warnings: Arc::clone(&self.warnings),
            });
        }
    }
}

impl Sheet {
    /// How many of it have something that is said of them.
    pub(super) fn explained(&self) -> usize {
        let is = |claim: &&Kept| !(claim.errors.is_empty() && claim.warnings.is_empty());
        self.claims.iter().filter(is).count()
    }

    pub(super) fn is_noted(&self) -> bool {
        let is_noted =
            |claim: &Kept| claim.standing != Standing::Served || !claim.warnings.is_empty();
        self.unread.is_some() || self.left_out.is_some() || self.claims.iter().any(is_noted)
    }
}

impl Report {
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
