//! The sources of configuration. Each sends the engine its objects, changes, findings and staleness; no other module knows
//! their types.

mod cluster;
mod files;

use std::sync::Arc;

use sources::config::{ConfigReport, EntryChange, EntryId};
use tracing::warn;

use super::processing::TransformInput;
use crate::secrets;

pub(super) use self::cluster::ClusterSource;
pub(super) use files::FileSource;

type ObjectUpdate = (EntryId, Option<TransformInput>);

/// Converts changes to the engine's form.
fn updates(changes: Vec<EntryChange>) -> Vec<ObjectUpdate> {
    let changes = changes.into_iter().filter_map(|change| match change {
        EntryChange::Set(id, entry, _) => Some((id, Some(TransformInput::of(&entry)))),
        // Sinks do not see where an object is written.
        EntryChange::Moved(..) => None,
        EntryChange::Gone(id) => Some((id, None)),
    });
    changes.collect()
}

/// The last report of a source, and the part of it that has been logged.
#[derive(Debug, Default)]
struct LastReport {
    /// The source's report; an unchanged one is the same pointer.
    report: Arc<ConfigReport>,
    /// The same without secrets.
    redacted: Arc<ConfigReport>,
}

impl LastReport {
    /// Logs the new lines of a report; returns `None` if the report is unchanged.
    fn new_report(&mut self, report: Arc<ConfigReport>) -> Option<Arc<ConfigReport>> {
        if Arc::ptr_eq(&self.report, &report) {
            return None;
        }
        let redacted = Arc::new(secrets::redact_report(&report));
        let (lines, more) = redacted.new_lines(&self.redacted);
        for line in lines {
            warn!("{line}");
        }
        if more > 0 {
            warn!("and {more} more invalid objects");
        }
        self.report = report;
        self.redacted = Arc::clone(&redacted);
        Some(redacted)
    }
}
