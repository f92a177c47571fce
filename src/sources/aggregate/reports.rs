//! Reports of objects that are shadowed by another one or cannot be used as written; each is logged once.

use std::collections::{BTreeMap, BTreeSet};

use api::model::ServiceKey;

use super::report::Report;
use super::{Registries, differ, service_entry};
use crate::contribution::{Configuration, ConfigurationKind, Contribution, EachKind};

/// Reports that have been logged.
#[derive(Debug, Default)]
pub(super) struct LoggedReports {
    /// Reports may have changed since they were last computed. Computing them at each step would slow the steps of a large
    /// mesh, and most steps leave nothing out.
    is_due: bool,
    reports: BTreeSet<Report>,
}

impl LoggedReports {
    /// Marks the reports as due: some may have come or gone.
    pub(super) const fn mark_due(&mut self) {
        self.is_due = true;
    }

    /// Marks the reports as due if the source's configuration changed.
    pub(super) fn note_changes(&mut self, old: &Contribution, new: &Contribution) {
        self.is_due |= !old.configuration.is_same(&new.configuration);
    }
}

/// Reports objects that a source with precedence has, too.
struct DuplicateReports<'a> {
    registries: &'a Registries,
    reports: Vec<Report>,
}

impl EachKind for DuplicateReports<'_> {
    fn kind<T: ConfigurationKind>(&mut self) {
        let Registries {
            settings, sources, ..
        } = self.registries;
        self.reports.extend(differ::doubles::<T>(settings, sources));
    }
}

impl Registries {
    /// Returns the reports, sorted.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        let mut reports: Vec<_> = self.left_out.values().flatten().cloned().collect();
        self.weigh(&mut reports);
        let used = self.entries.used.values();
        reports.extend(used.flat_map(|used| &used.notes).cloned());
        let registries = self;
        let mut doubles = DuplicateReports {
            registries,
            reports,
        };
        Configuration::each_kind(&mut doubles);
        let mut reports = doubles.reports;
        reports.sort();
        reports
    }

    /// Returns the reports that are new since the last call.
    pub fn take_new_reports(&mut self) -> Vec<Report> {
        if !std::mem::take(&mut self.logged.is_due) {
            return Vec::new();
        }
        let now: BTreeSet<Report> = self.reports().into_iter().collect();
        let news = now.difference(&self.logged.reports).cloned().collect();
        self.logged.reports = now;
        news
    }

    /// Sets the reports of a service.
    pub(super) fn leave_out(&mut self, key: &ServiceKey, reports: Vec<Report>) {
        let earlier = self.left_out.get(key);
        if earlier.map_or(&[][..], Vec::as_slice) == reports.as_slice() {
            return;
        }
        self.logged.is_due = true;
        if reports.is_empty() {
            self.left_out.remove(key);
        } else {
            self.left_out.insert(key.clone(), reports);
        }
    }

    /// An entry has a service for each of its hosts, and some of them may be used.
    fn weigh(&self, reports: &mut [Report]) {
        let mut lost: BTreeMap<_, usize> = BTreeMap::new();
        let key = |report: &Report| (report.namespace.clone(), report.name.clone());
        // An entry that another one adds to is used in part in any case.
        let is_entry = |report: &&mut Report| report.kind == service_entry::KIND && report.whole;
        for report in reports.iter_mut().filter(is_entry) {
            *lost.entry(key(report)).or_default() += 1;
        }
        for report in reports.iter_mut().filter(is_entry) {
            let key = key(report);
            let all = self.entries.used.get(&key).map(|used| used.services.len());
            let lost = lost.get(&key).copied().unwrap_or_default();
            // The report of an entry that is not used stays whole.
            report.whole = all.is_none_or(|all| lost >= all);
        }
    }
}
