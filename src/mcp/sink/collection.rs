//! One collection as a sink holds it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::reader::{Read, Reading};
use crate::message::{Resource, Resources};
use crate::snapshot::content;
use crate::version::{Sum, Version, member};

/// How many of what cannot be read are named with their reasons; of the others there is the number.
const NAMED: usize = 20;

/// What is there under a name.
#[derive(Debug)]
pub struct Held<T> {
    /// The source's, of what it sent last under this name.
    pub version: Box<str>,
    /// Our own, of the same: not every source counts well.
    content: Version,
    /// The last good one.
    pub object: Option<Arc<T>>,
    /// The rules that what was sent last breaks.
    pub broken: Vec<String>,
}

/// How a name stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Good,
    /// What came last breaks a rule, and the good one before it is kept.
    Stale,
    /// It breaks a rule, and there was none before it.
    Refused,
}

impl<T> Held<T> {
    pub fn standing(&self) -> Standing {
        match (&self.object, self.broken.is_empty()) {
            (_, true) => Standing::Good,
            (Some(_), false) => Standing::Stale,
            (None, false) => Standing::Refused,
        }
    }
}

/// What a response has changed.
#[derive(Debug)]
pub struct Changes<T> {
    pub collection: Arc<str>,
    /// Came or changed.
    pub set: Vec<(Arc<str>, Arc<T>)>,
    /// Went.
    pub removed: Vec<Arc<str>>,
    /// Broke a rule: left out, or left as they were.
    pub broken: Vec<Arc<str>>,
}

impl<T> Changes<T> {
    pub(super) fn of(collection: Arc<str>) -> Self {
        Self {
            collection,
            set: Vec::new(),
            removed: Vec::new(),
            broken: Vec::new(),
        }
    }

    /// Nothing is other than it was.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.removed.is_empty() && self.broken.is_empty()
    }
}

/// What the page shows of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribed<'a> {
    /// The source's.
    pub version: &'a str,
    pub count: usize,
    pub last_ack: Option<Duration>,
    pub last_nack: Option<(Duration, i32, &'a str)>,
}

#[derive(Debug)]
pub(super) struct Collection<T> {
    type_url: Box<str>,
    held: BTreeMap<Arc<str>, Held<T>>,
    version: Box<str>,
    given: bool,
    last_ack: Option<Duration>,
    last_nack: Option<(Duration, i32, Arc<str>)>,
}

/// A response of which every resource was read.
#[derive(Debug)]
pub(super) struct Whole<T> {
    version: String,
    incremental: bool,
    removed: Vec<String>,
    members: BTreeMap<Arc<str>, Member<T>>,
}

#[derive(Debug)]
struct Member<T> {
    version: Box<str>,
    content: Version,
    /// `None`: it is what is held already.
    reading: Option<Result<Arc<T>, Vec<String>>>,
}

impl<T> Collection<T> {
    pub(super) fn new(type_url: &str) -> Self {
        Self {
            type_url: type_url.into(),
            held: BTreeMap::new(),
            version: Box::default(),
            given: false,
            last_ack: None,
            last_nack: None,
        }
    }

    /// What is held, by name; `None` when that is more than so many bytes.
    pub(super) fn versions(&self, most: usize) -> Option<BTreeMap<String, String>> {
        // Keys and lengths of a map's entry.
        const AROUND: usize = 12;
        let held = self.held.iter();
        let lengths = held.map(|(name, held)| name.len() + held.version.len() + AROUND);
        if lengths.sum::<usize>() > most {
            return None;
        }
        let held = self.held.iter();
        Some(
            held.map(|(name, held)| (name.to_string(), held.version.to_string()))
                .collect(),
        )
    }

    /// Reads all of a response; nothing is changed yet.
    ///
    /// # Errors
    ///
    /// Names and reasons of what cannot be read.
    pub(super) fn read(
        &self,
        collection: &str,
        response: Resources,
        reader: &impl Read<Object = T>,
    ) -> Result<Whole<T>, String> {
        let mut wrong = Vec::new();
        let mut count = 0_usize;
        let mut members = BTreeMap::new();
        for resource in &response.resources {
            match self.read_one(collection, resource, reader) {
                Ok((name, member)) => {
                    members.insert(name, member);
                }
                Err(words) => {
                    count = count.saturating_add(1);
                    if wrong.len() < NAMED {
                        wrong.push(words);
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
        Ok(Whole {
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
        reader: &impl Read<Object = T>,
    ) -> Result<(Arc<str>, Member<T>), String> {
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
        let held = self.held.get(name.as_str());
        let is_held =
            held.is_some_and(|held| held.content == content && *held.version == *metadata.version);
        let reading = if is_held {
            None
        } else {
            match reader.read(collection, resource) {
                Reading::Good(object) => Some(Ok(object)),
                Reading::Broken(rules) => Some(Err(rules)),
                Reading::Unreadable(cause) => return Err(format!("{name}: {cause}")),
            }
        };
        let member = Member {
            version: metadata.version.as_str().into(),
            content,
            reading,
        };
        Ok((name.as_str().into(), member))
    }

    pub(super) fn apply(&mut self, now: Duration, whole: Whole<T>, changes: &mut Changes<T>) {
        self.last_ack = Some(now);
        self.version = whole.version.into();
        if whole.incremental {
            for name in &whole.removed {
                if !whole.members.contains_key(name.as_str()) {
                    self.remove(name, changes);
                }
            }
        } else {
            let held = self.held.keys();
            let gone: Vec<_> = held
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
        self.given = self.given || !whole.incremental || self.is_whole();
    }

    /// Whether what is held is all that its version stands for: a long one comes in parts. Of a source that counts otherwise
    /// nobody knows.
    fn is_whole(&self) -> bool {
        let Some(version) = Sum::parse(&self.version) else {
            return true;
        };
        let held = self.held.iter();
        let sum = held
            .map(|(name, held)| Version::parse(&held.version).map(|version| member(name, version)));
        sum.sum::<Option<Sum>>().is_none_or(|sum| sum == version)
    }

    fn remove(&mut self, name: &str, changes: &mut Changes<T>) {
        if let Some((name, held)) = self.held.remove_entry(name)
            && held.object.is_some()
        {
            changes.removed.push(name);
        }
    }

    fn set(&mut self, name: Arc<str>, member: Member<T>, changes: &mut Changes<T>) {
        let Some(reading) = member.reading else {
            return;
        };
        let held = self.held.entry(name.clone()).or_insert_with(|| Held {
            version: Box::default(),
            content: member.content,
            object: None,
            broken: Vec::new(),
        });
        held.version = member.version;
        held.content = member.content;
        match reading {
            Ok(object) => {
                held.broken.clear();
                held.object = Some(object.clone());
                changes.set.push((name, object));
            }
            Err(rules) => {
                held.broken = rules;
                changes.broken.push(name);
            }
        }
    }

    pub(super) fn refused(&mut self, now: Duration, code: i32, words: Arc<str>) {
        self.last_nack = Some((now, code, words));
    }

    pub(super) fn is_given(&self) -> bool {
        self.given
    }

    pub(super) fn held(&self) -> impl Iterator<Item = (&Arc<str>, &Held<T>)> {
        self.held.iter()
    }

    pub(super) fn status(&self) -> Subscribed<'_> {
        let nack = self.last_nack.as_ref();
        Subscribed {
            version: &self.version,
            count: self.held.len(),
            last_ack: self.last_ack,
            last_nack: nack.map(|(at, code, words)| (*at, *code, &**words)),
        }
    }
}
