//! Objects that a source sends or writes and that are not served so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::config::collections::{any_kind_of, kind_of};
use api::config::{Finding, ObjectStatus, ServedInstead};
use serde_json::{Value, json};
use sources::Revision;
use sources::catalogue::{ConfigObject, ConfigReport, EntryId, Origin, Refused};

use super::{FollowedSource, SourceOrigin};
use crate::mcp::SourceObjects;
use crate::secrets;

/// An object that is not served as it was sent or written; or a file that cannot be read, which has no name.
pub(super) struct RefusedRow {
    pub(super) collection: String,
    pub(super) name: String,
    pub(super) origin: Origin,
    pub(super) serving: ServedInstead,
    pub(super) errors: Vec<String>,
}

impl RefusedRow {
    pub(super) fn json(&self) -> Value {
        json!({
            "collection": self.collection, "name": self.name, "origin": self.origin.to_string(),
            "state": self.serving.as_str(), "errors": self.errors,
        })
    }

    /// The version that is refused, of which no more than its name and its errors is kept.
    fn config_object(&self) -> Option<ConfigObject> {
        let id = EntryId {
            collection: any_kind_of(&self.collection)?.collection,
            name: self.name.as_str().into(),
        };
        let errors = self.errors.iter().map(|one| Finding::error("", one));
        let refused = Refused {
            id,
            origin: self.origin.clone(),
            serving: self.serving,
            findings: errors.collect(),
            written: None,
            revision: Revision::default(),
        };
        refused.as_written()
    }
}

impl FollowedSource {
    /// The objects of each of its streams; none of what is read here.
    pub(super) fn streams(&self) -> Vec<Arc<SourceObjects>> {
        match &self.origin {
            SourceOrigin::Link(link) => vec![Arc::clone(&link.objects)],
            SourceOrigin::Port(_, sources) => sources.all(),
            SourceOrigin::Local(_) => Vec::new(),
        }
    }

    /// The first of them, each once: words are made for those who read them.
    pub(super) fn refused(&self, max: usize) -> Vec<RefusedRow> {
        if let SourceOrigin::Local(local) = &self.origin {
            return of_report(&local.report(), max);
        }
        let mut names = BTreeSet::new();
        let streams = self.streams();
        let rows = streams
            .iter()
            .flat_map(|objects| of_sink(objects, &self.as_origin(), max));
        // Replicas send the same.
        let once = rows.filter(|row| names.insert((row.collection.clone(), row.name.clone())));
        once.take(max).collect()
    }

    /// The refused versions that its streams sent last, each object once. A source in this process has a report of its own.
    pub(super) fn refused_objects(&self) -> Vec<ConfigObject> {
        match self.origin {
            SourceOrigin::Local(_) => Vec::new(),
            SourceOrigin::Link(_) | SourceOrigin::Port(..) => {
                let rows = self.refused(usize::MAX);
                rows.iter().filter_map(RefusedRow::config_object).collect()
            }
        }
    }

    /// The kind and name of each, once.
    pub(super) fn each_refused(&self, mut each: impl FnMut(&str, &str)) {
        if let SourceOrigin::Local(local) = &self.origin {
            let report = local.report();
            return report.refused.iter().for_each(|one| {
                let (kind, name) = one.kind_and_name();
                each(kind, &name);
            });
        }
        for (collection, objects) in objects_of(&self.streams()) {
            let kind = kind_of(&collection).map(|kind| kind.kind);
            let refused = objects.iter().filter(|(_, is_accepted)| !**is_accepted);
            refused.for_each(|(name, _)| each(kind.unwrap_or(&collection), name));
        }
    }
}

fn of_sink(held: &SourceObjects, origin: &Origin, max: usize) -> Vec<RefusedRow> {
    let sink = held.blocking_sink();
    let mut refused = Vec::new();
    for (collection, _) in sink.status() {
        for (name, one) in sink.entries(collection) {
            let ObjectStatus::Refused { serving } = one.status() else {
                continue;
            };
            if refused.len() >= max {
                return refused;
            }
            refused.push(RefusedRow {
                collection: collection.to_string(),
                name: name.to_string(),
                origin: origin.clone(),
                serving,
                errors: one
                    .findings
                    .iter()
                    .map(|one| secrets::redact_text(one))
                    .collect(),
            });
        }
    }
    refused
}

fn of_report(report: &ConfigReport, max: usize) -> Vec<RefusedRow> {
    let refused = report.refused.iter().take(max).map(|one| RefusedRow {
        collection: one.id.collection.to_owned(),
        name: one.id.name.to_string(),
        origin: one.origin.clone(),
        serving: one.serving,
        errors: one.findings.iter().map(ToString::to_string).collect(),
    });
    refused.collect()
}

/// The objects of all streams by collection and name, each once; false for one that breaks a rule in any of them.
pub(super) fn objects_of(
    streams: &[Arc<SourceObjects>],
) -> BTreeMap<String, BTreeMap<String, bool>> {
    let mut all: BTreeMap<String, BTreeMap<String, bool>> = BTreeMap::new();
    for objects in streams {
        let sink = objects.blocking_sink();
        for (collection, _) in sink.status() {
            let collection_names = all.entry(collection.to_string()).or_default();
            for (name, one) in sink.entries(collection) {
                let is_accepted = collection_names.entry(name.to_string()).or_insert(true);
                *is_accepted &= one.status() == ObjectStatus::Accepted;
            }
        }
    }
    all
}
