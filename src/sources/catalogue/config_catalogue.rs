//! The entries of a source: served objects, and objects that only the report has.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::core_kind::CoreKind;
use super::entry::{Entry, EntryChange, EntryId, UncheckedObject};
use super::entry_form::ConfigVersion;
use super::last_good::CatalogueChange;
use super::origin::Origin;
use super::report::ConfigReport;
use super::source_catalogue::{Root, SourceCatalogue};

/// All entries of a source.
#[derive(Debug)]
pub(crate) struct ConfigCatalogue {
    /// All objects, served or not.
    pub(crate) objects: SourceCatalogue<ConfigVersion>,
    /// Objects of kinds that nothing uses.
    unchecked: Arc<BTreeMap<EntryId, UncheckedObject>>,
    report: Arc<ConfigReport>,
}

impl ConfigCatalogue {
    pub(crate) fn new(root: Root, max: usize) -> Self {
        Self {
            objects: SourceCatalogue::new(root, max),
            unchecked: Arc::default(),
            report: Arc::default(),
        }
    }

    /// Returns the changes since the last call, by name.
    pub(crate) fn reconcile(&mut self) -> Vec<EntryChange> {
        let reconciled = self.objects.reconcile();
        let collection = CoreKind::Ingress.collection();
        let mut ingresses = reconciled.touched.into_iter();
        // An Ingress may have moved to another place, or line.
        let is_same = ingresses.all(|id| {
            id.collection != collection
                || self.report.ingresses.get(&id.name) == self.objects.at(&id)
        });
        if !is_same {
            self.objects.touch_report();
        }
        let changes = reconciled.changes.into_iter();
        let changes = changes.filter_map(|change| self.entry_change(change));
        let changes = changes.collect();
        // The report counts the served objects, too, and is otherwise new only when a refused object changes.
        if self.report.served != self.served() {
            self.objects.touch_report();
        }
        changes
    }

    /// Returns a change of an entry; takes in one of an object that nothing uses.
    fn entry_change(
        &mut self,
        change: CatalogueChange<EntryId, ConfigVersion>,
    ) -> Option<EntryChange> {
        let (id, unchecked) = match change {
            CatalogueChange::Set(id, ConfigVersion::Entry(entry), origin) => {
                return Some(EntryChange::Set(id, entry, origin));
            }
            CatalogueChange::Moved(id, ConfigVersion::Entry(entry), origin) => {
                return Some(EntryChange::Moved(id, entry, origin));
            }
            // `Gone` carries no version, so only `unchecked` tells an object that readers never had.
            CatalogueChange::Gone(id) if !self.unchecked.contains_key(&id) => {
                return Some(EntryChange::Gone(id));
            }
            CatalogueChange::Set(id, ConfigVersion::Unchecked(json), origin)
            | CatalogueChange::Moved(id, ConfigVersion::Unchecked(json), origin) => {
                (id, Some(UncheckedObject { json, origin }))
            }
            CatalogueChange::Gone(id) => (id, None),
        };
        let all = Arc::make_mut(&mut self.unchecked);
        match unchecked {
            Some(object) => drop(all.insert(id, object)),
            None => drop(all.remove(&id)),
        }
        self.objects.touch_report();
        None
    }

    /// The number of objects that are served.
    fn served(&self) -> usize {
        let unchecked = self.unchecked.len();
        self.objects.served().saturating_sub(unchecked)
    }

    /// Iterates over the served entries, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&EntryId, &Entry)> {
        let all = self.objects.all();
        all.filter_map(|(id, version)| match version {
            ConfigVersion::Entry(entry) => Some((id, entry)),
            ConfigVersion::Unchecked(_) => None,
        })
    }

    /// Returns the current report; the same pointer as before if it is unchanged.
    pub(crate) fn report(&mut self) -> Arc<ConfigReport> {
        if let Some(report) = self.objects.new_report() {
            self.report = Arc::new(ConfigReport {
                served: self.served(),
                ingresses: Arc::new(self.ingresses()),
                unchecked: Arc::clone(&self.unchecked),
                ..report
            });
        }
        Arc::clone(&self.report)
    }

    /// Returns the origin of each Ingress that is served.
    fn ingresses(&self) -> BTreeMap<Arc<str>, Origin> {
        let collection = CoreKind::Ingress.collection();
        let first = EntryId {
            collection,
            ..EntryId::default()
        };
        let ids = self.objects.ids_from(&first);
        let ids = ids.take_while(|id| id.collection == collection);
        let places =
            ids.filter_map(|id| Some((Arc::clone(&id.name), self.objects.at(id)?.clone())));
        places.collect()
    }
}

#[cfg(test)]
mod tests;
