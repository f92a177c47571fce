//! The one place that knows what sources are made of. Each tells the engine what is there, what has changed, what is wrong
//! with it, and how far it can be trusted.

mod cluster;
mod files;

use std::sync::Arc;

use ::cluster::config::{Change, Id, Report};
use tracing::warn;

use super::processing::Thing;
use crate::secrets;

pub(super) use self::cluster::Server;
pub(super) use files::Files;

type Told = (Id, Option<Thing>);

/// Changes as they are told.
fn told(changes: Vec<Change>) -> Vec<Told> {
    let changes = changes.into_iter().map(|change| match change {
        Change::Set(id, entry) => (id, Some(Thing::of(&entry))),
        Change::Gone(id) => (id, None),
    });
    changes.collect()
}

/// What is wrong with a source, and what of it was said.
#[derive(Debug, Default)]
struct Said {
    /// As the source gave it; one that has nothing new gives the same.
    report: Arc<Report>,
    /// The same without secrets.
    shown: Arc<Report>,
}

impl Said {
    /// Logs what is new in a report. `None`: nothing is.
    fn news(&mut self, report: Arc<Report>) -> Option<Arc<Report>> {
        if Arc::ptr_eq(&self.report, &report) {
            return None;
        }
        let shown = Arc::new(secrets::report(&report));
        let (lines, more) = shown.news(&self.shown);
        for line in lines {
            warn!("{line}");
        }
        if more > 0 {
            warn!("and {more} more objects that are not right");
        }
        self.report = report;
        self.shown = Arc::clone(&shown);
        Some(shown)
    }
}
