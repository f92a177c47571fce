//! The entries of Services: marked when an object that they are made of changes, and made once the source has sent its event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::config::collections::{SYNTHETIC, type_url_of};
use api::config::{Finding, ServedInstead};
use mcp::publish::Publisher;
use mcp::snapshot::{self, Resource};
use prost::Message as _;
use sources::Revision;
use sources::catalogue::{EntryId, Origin, Refused};
use transform::services::{Services, SyntheticEntry};
use transform::{Key, Mesh, Rounds};

/// The entries of all Services.
#[derive(Debug, Default)]
pub(super) struct SyntheticEntries {
    /// The Services whose entries are to be made anew.
    dirty: Rounds<Key>,
    served: BTreeMap<EntryId, Arc<Resource>>,
    /// The causes for which entries cannot be made as their objects are now. The last one that could be made stays served.
    refused: BTreeMap<EntryId, Arc<[Finding]>>,
}

impl SyntheticEntries {
    /// Marks entries to be made anew.
    pub(super) fn mark(&mut self, services: BTreeSet<Key>) {
        self.dirty.extend(services);
    }

    /// Returns true if entries are marked.
    pub(super) fn is_changed(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Returns true if all entries have been made once: those that were marked when the first was made.
    pub(super) fn has_generated_all(&self) -> bool {
        self.dirty.has_ended_one()
    }

    /// Makes marked entries until `is_over`, but at least one. `before`: the resources that the last session has served. Returns true
    /// if findings may have changed.
    pub(super) fn make(
        &mut self,
        services: &Services,
        mesh: &Mesh,
        before: &mut BTreeMap<EntryId, Arc<Resource>>,
        now: Duration,
        publisher: &mut Publisher,
        is_over: &dyn Fn() -> bool,
    ) -> bool {
        let mut is_news = false;
        while let Some(key) = self.dirty.pop_first() {
            let id = EntryId {
                collection: SYNTHETIC,
                name: key.to_string().into(),
            };
            let last = self.served.remove(&id).or_else(|| before.remove(&id));
            let (generated, refused) = match services.entry(&key, mesh) {
                None => (None, None),
                Some(Ok(entry)) => (Some(Arc::new(resource(entry))), None),
                Some(Err(cause)) => (last, Some([Finding::error("", cause.to_string())].into())),
            };
            match &generated {
                Some(generated) => publisher.set(now, SYNTHETIC, Arc::clone(generated)),
                None => publisher.remove(now, SYNTHETIC, &id.name),
            };
            self.served
                .extend(generated.map(|generated| (id.clone(), generated)));
            is_news |= match refused {
                Some(findings) => self.refused.insert(id, findings).is_none(),
                None => self.refused.remove(&id).is_some(),
            };
            if is_over() {
                break;
            }
        }
        is_news
    }

    /// Iterates over the entries that cannot be made.
    pub(super) fn refused(&self) -> impl Iterator<Item = Refused> {
        self.refused.iter().map(|(id, findings)| Refused {
            id: id.clone(),
            origin: Origin::Source(format!("Service {}", id.name).into()),
            serving: match self.served.contains_key(id) {
                true => ServedInstead::Old,
                false => ServedInstead::Nothing,
            },
            findings: Arc::clone(findings),
            written: None,
            revision: Revision::default(),
        })
    }

    /// Returns the entries that are served.
    pub(super) fn into_served(self) -> BTreeMap<EntryId, Arc<Resource>> {
        self.served
    }
}

/// The ServiceEntry of a Service as a resource.
fn resource(entry: SyntheticEntry) -> Resource {
    Resource::new(snapshot::Origin {
        name: entry.key.to_string(),
        create_time: entry.create_time,
        labels: entry.labels,
        annotations: entry.annotations,
        type_url: type_url_of(SYNTHETIC).unwrap_or_default(),
        body: entry.spec.encode_to_vec().into(),
    })
}
