//! One collection as a sink holds it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::config::{ObjectStatus, ServedInstead};

use super::collection_checksum::CollectionChecksum;
use super::reader::{ReadResult, ResourceReader};
use crate::message::{Resource, Resources};
use crate::snapshot::content;
use crate::version::{Sum, Version};

/// Unreadable resources that are listed with their errors; the rest is only counted.
const NAMED: usize = 20;

/// The state of one name.
#[derive(Debug)]
pub struct SinkEntry<T> {
    /// The source's version of the resource that it sent last under this name.
    pub version: Box<str>,
    /// Our own, of the same: not every source counts well.
    content: Version,
    /// On this stream the source knows of the object, so it will send its removal. It does not know of others.
    is_at_source: bool,
    /// The last good one.
    pub object: Option<Arc<T>>,
    /// The rules that the newest version breaks.
    pub findings: Vec<String>,
}

impl<T> SinkEntry<T> {
    pub fn status(&self) -> ObjectStatus {
        let serving = match &self.object {
            Some(_) => ServedInstead::Old,
            None => ServedInstead::Nothing,
        };
        match self.findings.is_empty() {
            true => ObjectStatus::Accepted,
            false => ObjectStatus::Refused { serving },
        }
    }
}

/// The changes of a response.
#[derive(Debug)]
pub struct Changes<T> {
    pub collection: Arc<str>,
    /// Came or changed.
    pub set: Vec<(Arc<str>, Arc<T>)>,
    /// Went.
    pub removed: Vec<Arc<str>>,
    /// Broke a rule: left out, or left as they were.
    pub refused: Vec<Arc<str>>,
}

/// No changes of no collection.
impl<T> Default for Changes<T> {
    fn default() -> Self {
        Self::of("".into())
    }
}

impl<T> Changes<T> {
    pub(super) fn of(collection: Arc<str>) -> Self {
        Self {
            collection,
            set: Vec::new(),
            removed: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// Returns true if nothing changed.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.removed.is_empty() && self.refused.is_empty()
    }
}

/// The status of a collection, for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionStatus<'a> {
    /// The source's.
    pub version: &'a str,
    pub count: usize,
    pub last_ack: Option<Duration>,
    pub last_nack: Option<(Duration, i32, &'a str)>,
}

#[derive(Debug)]
pub(super) struct SinkCollection<T> {
    type_url: Box<str>,
    entries: BTreeMap<Arc<str>, SinkEntry<T>>,
    version: Box<str>,
    /// The collection has been received once.
    received: bool,
    /// The members that the source knows to be here, and the number of those that it does not know of.
    source_checksum: CollectionChecksum,
    unknown: usize,
    last_ack: Option<Duration>,
    last_nack: Option<(Duration, i32, Arc<str>)>,
}

/// A response of which every resource was read.
#[derive(Debug)]
pub(super) struct ParsedResponse<T> {
    version: String,
    incremental: bool,
    removed: Vec<String>,
    members: BTreeMap<Arc<str>, ParsedMember<T>>,
}

#[derive(Debug)]
struct ParsedMember<T> {
    version: Box<str>,
    content: Version,
    /// `None`: the version is the present one.
    reading: Option<Result<Arc<T>, Vec<String>>>,
}

impl<T> SinkCollection<T> {
    pub(super) fn new(type_url: &str) -> Self {
        Self {
            type_url: type_url.into(),
            entries: BTreeMap::new(),
            version: Box::default(),
            received: false,
            source_checksum: CollectionChecksum::default(),
            unknown: 0,
            last_ack: None,
            last_nack: None,
        }
    }

    /// Begins a stream: returns the versions to send to the source, by name, in at most so many bytes. `None`: the source is
    /// to send all members.
    ///
    /// Members that do not fit stay and come again. The sum of the received members shows whether one is gone meanwhile; a
    /// source that computes versions in another way has no such sum.
    pub(super) fn begin(&mut self, max: Option<usize>) -> Option<BTreeMap<String, String>> {
        // Keys and lengths of a map's entry.
        const AROUND: usize = 12;
        self.source_checksum = CollectionChecksum::default();
        self.unknown = 0;
        let mut left = max.unwrap_or_default();
        let mut versions = BTreeMap::new();
        for (name, entry) in &mut self.entries {
            let length = name.len() + entry.version.len() + AROUND;
            entry.is_at_source = max.is_some() && length <= left;
            if entry.is_at_source {
                left = left.saturating_sub(length);
                versions.insert(name.to_string(), entry.version.to_string());
                self.source_checksum.add(name, &entry.version);
            } else {
                self.unknown = self.unknown.saturating_add(1);
            }
        }
        max?;
        if self.unknown == 0 || self.is_added_up() {
            return Some(versions);
        }
        // Without a sum the loss of an unnamed member would go unnoticed; so all members are requested again.
        self.begin(None)
    }

    /// Returns true if the collection's version looks like a sum of its members' versions.
    fn is_added_up(&self) -> bool {
        let mut entries = self.entries.values();
        Sum::parse(&self.version).is_some()
            && entries.all(|entry| Version::parse(&entry.version).is_some())
    }

    /// Decodes a whole response without applying it.
    ///
    /// # Errors
    ///
    /// Names of unreadable resources, with the reasons.
    pub(super) fn read(
        &self,
        collection: &str,
        response: Resources,
        reader: &impl ResourceReader<Object = T>,
    ) -> Result<ParsedResponse<T>, String> {
        let mut wrong = Vec::new();
        let mut count = 0_usize;
        let mut members = BTreeMap::new();
        for resource in &response.resources {
            match self.read_one(collection, resource, reader) {
                Ok((name, member)) => {
                    members.insert(name, member);
                }
                Err(message) => {
                    count = count.saturating_add(1);
                    if wrong.len() < NAMED {
                        wrong.push(message);
                    }
                }
            }
        }
        if count > wrong.len() {
            wrong.push(format!("and {} more", count.saturating_sub(wrong.len())));
        }
        if !wrong.is_empty() {
            return Err(wrong.join("; "));
        }
        Ok(ParsedResponse {
            version: response.system_version_info,
            incremental: response.incremental,
            removed: response.removed_resources,
            members,
        })
    }

    fn read_one(
        &self,
        collection: &str,
        resource: &Resource,
        reader: &impl ResourceReader<Object = T>,
    ) -> Result<(Arc<str>, ParsedMember<T>), String> {
        let metadata = resource.metadata.as_ref();
        let Some(metadata) = metadata.filter(|metadata| !metadata.name.is_empty()) else {
            return Err("a resource without a name".to_owned());
        };
        let name = &metadata.name;
        let type_url = resource.body.as_ref().map(|body| body.type_url.as_str());
        if type_url != Some(&*self.type_url) {
            let is = type_url.unwrap_or("nothing");
            return Err(format!("{name}: the body is {is}, not {}", self.type_url));
        }
        let content = content(resource);
        let old = self.entries.get(name.as_str());
        // The content as well as the version: a source that does not change its version must not hide a
        // change.
        let is_held =
            old.is_some_and(|old| old.content == content && *old.version == *metadata.version);
        let reading = if is_held {
            None
        } else {
            match reader.read(collection, resource) {
                ReadResult::Accepted(object) => Some(Ok(object)),
                ReadResult::Refused(findings) => Some(Err(findings)),
                ReadResult::Unreadable(cause) => return Err(format!("{name}: {cause}")),
            }
        };
        let member = ParsedMember {
            version: metadata.version.as_str().into(),
            content,
            reading,
        };
        Ok((name.as_str().into(), member))
    }

    pub(super) fn apply(
        &mut self,
        now: Duration,
        whole: ParsedResponse<T>,
        changes: &mut Changes<T>,
    ) {
        self.last_ack = Some(now);
        self.version = whole.version.into();
        if whole.incremental {
            for name in &whole.removed {
                // A name in both lists was replaced at the source, and `set` does that.
                if !whole.members.contains_key(name.as_str()) {
                    self.remove(name, changes);
                }
            }
        } else {
            let names = self.entries.keys();
            let gone: Vec<_> = names
                .filter(|name| !whole.members.contains_key(*name))
                .cloned()
                .collect();
            for name in gone {
                self.remove(&name, changes);
            }
        }
        for (name, member) in whole.members {
            self.set(name, member, changes);
        }
        let is_whole = self.source_checksum.is(&self.version);
        if self.unknown > 0 && is_whole == Some(true) {
            self.drop_unknown(changes);
        }
        // A long one comes in parts. A source that counts otherwise gives no sign of the last one.
        if !whole.incremental || is_whole != Some(false) {
            self.received = true;
        }
    }

    /// Drops the members that the source does not know of, once it has sent all.
    fn drop_unknown(&mut self, changes: &mut Changes<T>) {
        let entries = self.entries.iter();
        let gone = entries.filter(|(_, entry)| !entry.is_at_source);
        let gone: Vec<_> = gone.map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.remove(&name, changes);
        }
    }

    fn remove(&mut self, name: &str, changes: &mut Changes<T>) {
        self.uncount(name);
        // A member that was never valid was never served.
        if let Some((name, entry)) = self.entries.remove_entry(name)
            && entry.object.is_some()
        {
            changes.removed.push(name);
        }
    }

    /// Removes a member from the sum, before it is removed or changed.
    fn uncount(&mut self, name: &str) {
        match self.entries.get(name) {
            Some(entry) if entry.is_at_source => self.source_checksum.take(name, &entry.version),
            Some(_) => self.unknown = self.unknown.saturating_sub(1),
            None => {}
        }
    }

    fn set(&mut self, name: Arc<str>, member: ParsedMember<T>, changes: &mut Changes<T>) {
        // The sum has the old version, so it must leave before the entry changes.
        self.uncount(&name);
        self.source_checksum.add(&name, &member.version);
        let entry = self
            .entries
            .entry(name.clone())
            .or_insert_with(|| SinkEntry {
                version: Box::default(),
                content: member.content,
                is_at_source: true,
                object: None,
                findings: Vec::new(),
            });
        entry.version = member.version;
        entry.content = member.content;
        entry.is_at_source = true;
        match member.reading {
            Some(Ok(object)) => {
                entry.findings.clear();
                entry.object = Some(object.clone());
                changes.set.push((name, object));
            }
            // The last good object stays in place.
            Some(Err(findings)) => {
                entry.findings = findings;
                changes.refused.push(name);
            }
            None => {}
        }
    }

    pub(super) fn nacked(&mut self, now: Duration, code: i32, message: Arc<str>) {
        self.last_nack = Some((now, code, message));
    }

    pub(super) fn is_received(&self) -> bool {
        self.received
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&Arc<str>, &SinkEntry<T>)> {
        self.entries.iter()
    }

    pub(super) fn status(&self) -> CollectionStatus<'_> {
        let nack = self.last_nack.as_ref();
        CollectionStatus {
            version: &self.version,
            count: self.entries.len(),
            last_ack: self.last_ack,
            last_nack: nack.map(|(at, code, message)| (*at, *code, &**message)),
        }
    }
}
