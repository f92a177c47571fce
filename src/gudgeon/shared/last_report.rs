//! The last report of a source of configuration, and the part of it that has been logged.

use std::sync::Arc;

use sources::catalogue::ConfigReport;
use tracing::warn;

use crate::secrets;

/// The last report of a source.
#[derive(Debug, Default)]
pub(crate) struct LastReport {
    /// The source's report; an unchanged one is the same pointer.
    report: Arc<ConfigReport>,
    /// The same without secrets.
    redacted: Arc<ConfigReport>,
}

impl LastReport {
    /// Logs the new lines of a report; returns false if it is unchanged.
    pub(crate) fn log(&mut self, report: &Arc<ConfigReport>) -> bool {
        if Arc::ptr_eq(&self.report, report) {
            return false;
        }
        let redacted = Arc::new(secrets::redact_report(report));
        let (lines, more) = redacted.new_lines(&self.redacted);
        for line in lines {
            warn!("{line}");
        }
        if more > 0 {
            warn!("and {more} more invalid objects");
        }
        self.report = Arc::clone(report);
        self.redacted = redacted;
        true
    }

    /// The report without secrets.
    pub(crate) const fn redacted(&self) -> &Arc<ConfigReport> {
        &self.redacted
    }
}
