//! The objects of all files together: each of them once, in its last good version.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::super::Ingresses;
use super::super::kubernetes::{
    EndpointSlice, Endpoints, Names, Namespace, Node, Objects, Pod, Problem, Service,
};
use api::config::Finding;
use api::model::Credentials;

use super::object::{FileObjectId, Item, Meaning, SLICES};
use super::{MAX_MESSAGES, Message, message, name};
use crate::catalogue::{Candidate, Catalogue, CatalogueChange, Content, ServedInstead, Status};
use crate::config::MOST_OBJECTS;
use crate::registry::{Contribution, WrittenObject};

/// Objects by the files that they are written in.
#[derive(Debug)]
struct InFiles;

impl Content for InFiles {
    type Place = Arc<Path>;
    type Id = FileObjectId;
    type Version = StoredVersion;
    type Findings = DocumentFindings;
}

/// The stored form of a valid object.
#[derive(Clone, Debug, PartialEq)]
struct StoredVersion {
    meaning: Meaning,
    written: Option<Arc<WrittenObject>>,
}

/// Findings about a document.
#[derive(Debug)]
struct DocumentFindings {
    /// The reason for a refusal.
    cause: String,
    /// The object as pages show it while it is refused.
    written: Option<Arc<WrittenObject>>,
}

/// Objects of a file that are not used, by reason.
#[derive(Debug, Default)]
struct Unused {
    /// Objects of a cluster that an API server has.
    kubernetes: usize,
    /// Objects of unrelated kinds, by kind.
    foreign: BTreeMap<String, usize>,
    /// Objects without room in the catalogue: the line of the first one, and their number.
    left_out: Option<(usize, usize)>,
}

/// The objects of all files. Results are kept, so unchanged ones keep their pointer.
#[derive(Debug)]
pub(in crate::registry) struct FileObjects {
    kubernetes: bool,
    catalogue: Catalogue<InFiles>,
    /// The number of objects in the catalogue, and the most that it may have.
    count: usize,
    most: usize,
    unused: BTreeMap<Arc<Path>, Unused>,
    objects: Objects,
    said: Contribution,
    counts: BTreeMap<Arc<str>, usize>,
}

impl FileObjects {
    /// `kubernetes`: objects of Kubernetes are used.
    pub(in crate::registry) fn new(names: Names, kubernetes: bool) -> Self {
        Self {
            kubernetes,
            catalogue: Catalogue::default(),
            count: 0,
            most: MOST_OBJECTS,
            unused: BTreeMap::new(),
            objects: Objects::new(names),
            said: Contribution::default(),
            counts: BTreeMap::new(),
        }
    }

    #[cfg(test)]
    pub(super) const fn hold_at_most(&mut self, most: usize) {
        self.most = most;
    }

    pub(in crate::registry) fn set_trust_domain(&mut self, trust_domain: &str) -> Contribution {
        self.objects.set_trust_domain(trust_domain);
        self.said = self.with(self.said.clone());
        self.said.clone()
    }

    /// Returns the number of used objects, by kind.
    pub(in crate::registry) const fn counts(&self) -> &BTreeMap<Arc<str>, usize> {
        &self.counts
    }

    /// Replaces all objects of a file with these, in order.
    pub(in crate::registry) fn put(&mut self, path: &Arc<Path>, items: Vec<Item>) {
        self.remove(path);
        let mut unused = Unused::default();
        let mut candidates = Vec::new();
        for item in items {
            let (id, origin, version, found) = match item {
                Item::Good(object) if object.meaning.is_kubernetes() && !self.kubernetes => {
                    unused.kubernetes = unused.kubernetes.saturating_add(1);
                    continue;
                }
                Item::Good(object) => {
                    let found = DocumentFindings {
                        cause: String::new(),
                        written: None,
                    };
                    let version = self.version(&object.id, object.meaning, object.written);
                    (Some(object.id), object.origin, Some(version), found)
                }
                Item::Bad {
                    origin,
                    id,
                    written,
                    cause,
                } => (id, origin, None, DocumentFindings { cause, written }),
                Item::Foreign(kind) => {
                    *unused.foreign.entry(kind).or_default() += 1;
                    continue;
                }
            };
            candidates.push(Candidate::new(id, origin, version, found));
        }
        let room = self.most.saturating_sub(self.count);
        if let Some(first) = candidates.get(room) {
            let count = candidates.len().saturating_sub(room);
            unused.left_out = Some((first.origin.line(), count));
            candidates.truncate(room);
        }
        self.count = self.count.saturating_add(candidates.len());
        self.catalogue.put(path, candidates);
        self.unused.insert(Arc::clone(path), unused);
    }

    /// Returns true if objects of a file were left out and now fit: the file is to be put again.
    pub(super) fn has_room(&self, path: &Path) -> bool {
        let unused = self.unused.get(path);
        self.count < self.most && unused.is_some_and(|unused| unused.left_out.is_some())
    }

    /// A file is gone.
    pub(super) fn remove(&mut self, path: &Path) {
        let removed = self.catalogue.remove(path).len();
        self.count = self.count.saturating_sub(removed);
        self.unused.remove(path);
    }

    /// Builds a version that keeps the pointer of an equal earlier one, so readers need not compare.
    fn version(
        &self,
        id: &FileObjectId,
        meaning: Meaning,
        written: Option<Arc<WrittenObject>>,
    ) -> StoredVersion {
        let before = self.catalogue.get(id).map(|before| &before.meaning);
        let before = before.filter(|before| **before == meaning).cloned();
        StoredVersion {
            meaning: before.unwrap_or(meaning),
            written,
        }
    }

    /// Counts the objects of a file that are still served while it cannot be read.
    pub(super) fn still_served(&self, path: &Path) -> usize {
        let all = self.catalogue.at(path).unwrap_or_default().iter();
        let nothing = Status::Refused {
            serving: ServedInstead::Nothing,
        };
        all.filter(|one| one.status != nothing).count()
    }

    /// Merges all files to one contribution; appends their messages and their objects as written.
    pub(in crate::registry) fn outcome(
        &mut self,
        messages: &mut Vec<Message>,
        written: &mut Vec<Arc<WrittenObject>>,
    ) -> Contribution {
        for change in self.catalogue.reconcile().changes {
            self.apply(change);
        }
        for (path, candidates) in self.catalogue.places() {
            self.append_messages(path, candidates, messages, written);
        }
        self.counts.clear();
        for (id, _) in self.catalogue.all() {
            *self.counts.entry(id.kind.clone()).or_default() += 1;
        }
        self.set();
        for problem in self.objects.problems() {
            let id = id(&problem);
            if let Some((path, one)) = self.catalogue.holder(&id) {
                let text = format!("{id}: {}", problem.refusal.message);
                messages.push(message(path, one.origin.line(), &text).of(&id));
            }
        }
        self.said.clone()
    }

    /// Appends the messages and objects of a file according to the status of its candidates.
    fn append_messages(
        &self,
        path: &Arc<Path>,
        candidates: &[Candidate<InFiles>],
        messages: &mut Vec<Message>,
        written: &mut Vec<Arc<WrittenObject>>,
    ) {
        let (mut refusals, mut more) = (0_usize, 0_usize);
        for one in candidates {
            let own = one.version.as_ref().and_then(|own| own.written.as_ref());
            match &one.status {
                Status::Accepted => written.extend(own.cloned()),
                Status::Shadowed { by: (other, _) } => {
                    let text = shadowed(one, path, other);
                    written.extend(own.map(|own| refused(own, &text)));
                    let message = message(path, one.origin.line(), &text);
                    messages.push(match &one.id {
                        Some(id) => message.of(id),
                        None => message,
                    });
                }
                Status::Refused { serving } => {
                    written.extend(self.served_for(one).and_then(|old| old.written.clone()));
                    written.extend(one.findings.written.clone());
                    refusals = refusals.saturating_add(1);
                    if refusals > MAX_MESSAGES {
                        more = more.saturating_add(1);
                    } else {
                        messages.push(refusal(one, path, *serving));
                    }
                }
            }
        }
        if more > 0 {
            let text = format!("and {more} more that cannot be used");
            messages.push(message(path, 0, &text).of_file());
        }
        let Some(unused) = self.unused.get(path) else {
            return;
        };
        if let Some((line, count)) = unused.left_out {
            let text = format!("more than {} objects: {count} are left out", self.most);
            messages.push(message(path, line, &text).of_file());
        }
        for (kind, count) in unused.foreign.iter().take(MAX_MESSAGES) {
            let text = format!("discovery does not serve {kind}: {count} not used");
            messages.push(message(path, 0, &text));
        }
        let text = match unused.kubernetes {
            0 => return,
            1 => "1 object of Kubernetes is not used: the API server has it".to_owned(),
            count => {
                format!("{count} objects of Kubernetes are not used: the API server has them")
            }
        };
        messages.push(message(path, 0, &text));
    }

    /// The last good version that is served from the place of a refused candidate.
    fn served_for(&self, one: &Candidate<InFiles>) -> Option<&StoredVersion> {
        let id = one.id.as_ref()?;
        let (_, holder) = self.catalogue.holder(id)?;
        std::ptr::eq(holder, one).then(|| self.catalogue.get(id))?
    }

    /// Takes a change of configuration into the contribution; objects of other kinds are taken together.
    fn apply(&mut self, change: CatalogueChange<FileObjectId, StoredVersion>) {
        let configuration = &mut self.said.configuration;
        match change {
            CatalogueChange::Set(_, version, _) => {
                if let Meaning::Configuration(one) = version.meaning {
                    configuration.set(one);
                }
            }
            CatalogueChange::Moved(..) => {}
            CatalogueChange::Gone(id) => configuration.remove(&id.kind, &(id.namespace, id.name)),
        }
    }

    fn set(&mut self) {
        let mut sorted = Sorted::default();
        let mut credentials = Credentials::new();
        let mut ingresses = Ingresses::new();
        for (id, version) in self.catalogue.all() {
            match &version.meaning {
                Meaning::Service(one) => sorted.services.push(one.clone()),
                Meaning::Slice(one) => sorted.slices.push(one.clone()),
                Meaning::Endpoints(one) => sorted.endpoints.push(one.clone()),
                Meaning::Pod(one) => sorted.pods.push(one.clone()),
                Meaning::Machine(one) => sorted.machines.push(one.clone()),
                Meaning::Namespace(one) => sorted.namespaces.push(one.clone()),
                Meaning::Credential(one) => {
                    let key = (id.namespace.clone(), id.name.clone());
                    credentials.insert(key, one.clone());
                }
                Meaning::Ingress(one) => {
                    let key = (id.namespace.clone(), id.name.clone());
                    ingresses.insert(key, one.clone());
                }
                Meaning::Configuration(_) | Meaning::Nothing => {}
            }
        }
        let mut contribution = self.said.clone();
        if *contribution.ingresses != ingresses {
            contribution.ingresses = Arc::new(ingresses);
        }
        if *contribution.credentials != credentials {
            contribution.credentials = Arc::new(credentials);
        }
        self.objects.replace(sorted.machines);
        self.objects.replace(sorted.namespaces);
        self.objects.replace(sorted.pods);
        self.objects.replace(sorted.slices);
        self.objects.replace(sorted.endpoints);
        self.objects.replace(sorted.services);
        self.said = self.with(contribution);
    }

    /// Adds the contribution of Kubernetes' objects.
    fn with(&mut self, configuration: Contribution) -> Contribution {
        let cluster = self.objects.contribution();
        Contribution {
            services: cluster.services,
            endpoints: cluster.endpoints,
            workloads: cluster.workloads,
            ..configuration
        }
    }
}

/// The object that a problem is of.
fn id(problem: &Problem) -> FileObjectId {
    let group = match problem.kind {
        "EndpointSlice" => SLICES,
        _ => "",
    };
    FileObjectId {
        group: group.into(),
        kind: problem.kind.into(),
        namespace: (*problem.object.namespace).into(),
        name: (*problem.object.name).into(),
    }
}

#[derive(Default)]
struct Sorted {
    services: Vec<Arc<Service>>,
    slices: Vec<Arc<EndpointSlice>>,
    endpoints: Vec<Arc<Endpoints>>,
    pods: Vec<Arc<Pod>>,
    machines: Vec<Arc<Node>>,
    namespaces: Vec<Arc<Namespace>>,
}

fn shadowed(one: &Candidate<InFiles>, path: &Path, other: &Path) -> String {
    let place = if other == path {
        "duplicate name".to_owned()
    } else {
        format!("{} has one of this name", name(other))
    };
    match &one.id {
        Some(id) => format!("{id}: not used: {place}"),
        None => format!("not used: {place}"),
    }
}

fn refusal(one: &Candidate<InFiles>, path: &Path, serving: ServedInstead) -> Message {
    let (line, cause) = (one.origin.line(), &one.findings.cause);
    let suffix = match serving {
        ServedInstead::Old => "; its last good version stays",
        ServedInstead::Nothing => "",
    };
    match &one.id {
        Some(id) => message(path, line, &format!("{id}: {cause}{suffix}")).of(id),
        None => message(path, line, cause).of_file(),
    }
}

/// Returns the object as pages show it if it is not used after all.
fn refused(one: &WrittenObject, why: &str) -> Arc<WrittenObject> {
    let mut one = one.clone();
    one.accepted = false;
    one.findings.push(Finding::error("", why));
    Arc::new(one)
}
