//! The objects of all files together: each of them once, in its last good version.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::config::Check;
use api::config::collections::any_kind_of;
use api::model::Credentials;
use api::yaml::Malformed;

use super::object::{DecodedObject, FileVersion, stored, unread_object};
use super::{LIMITS, Outcome};
use crate::catalogue::source_catalogue::{Root, SourceCatalogue, SourceEntry, duplicate_of};
use crate::catalogue::text::read;
use crate::catalogue::{
    CatalogueChange, ConfigObject, ConfigReport, CoreKind, EntryId, FILE, MAX_OBJECTS, Message,
    Origin, Status,
};
use crate::contribution::Contribution;
use crate::contribution::{Ingresses, ObjectKey};
use crate::directory::scanned_files::FilesObjects;
use crate::directory::unread_kinds::UnreadKinds;
use crate::kubernetes::{EndpointSlice, Endpoints, Names, Namespace, Node, Objects, Pod, Service};

/// The source of objects of Kubernetes' own kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreOrigin {
    Files,
    /// An API server has them: those of files are not used.
    Cluster,
}

/// The objects of all files. Results are kept, so unchanged ones keep their pointer.
#[derive(Debug)]
pub(crate) struct FileObjects {
    core_origin: CoreOrigin,
    catalogue: SourceCatalogue<FileVersion>,
    unread: UnreadKinds,
    report: Arc<ConfigReport>,
    objects: Objects,
    contribution: Contribution,
}

impl FilesObjects for FileObjects {
    type Version = FileVersion;

    fn catalogue(&self) -> &SourceCatalogue<FileVersion> {
        &self.catalogue
    }

    fn catalogue_mut(&mut self) -> &mut SourceCatalogue<FileVersion> {
        &mut self.catalogue
    }

    fn put(&mut self, place: &Arc<str>, bytes: &[u8]) -> Result<(), Malformed> {
        let origin = self.catalogue.origin(place, "");
        let core_origin = self.core_origin;
        let read = read(bytes, LIMITS, |object, checked| {
            let is_elsewhere =
                core_origin == CoreOrigin::Cluster && checked.id.core_kind().is_some();
            (!is_elsewhere).then(|| stored(object, checked, &origin))?
        })?;
        let mut entries = read.entries;
        for entry in &mut entries {
            self.share_equal_version(entry);
        }
        self.catalogue.put(place, entries);
        self.unread.put(place, read.foreign);
        let unread = read.unread.into_iter();
        let unread = unread.filter_map(|(line, value)| unread_object(value, origin.at(line)));
        self.unread
            .put_objects(place, unread.map(Arc::new).collect());
        Ok(())
    }

    fn remove(&mut self, place: &Arc<str>) {
        self.catalogue.remove(place);
        self.unread.remove(place);
    }
}

impl FileObjects {
    pub(crate) fn new(root: Root, names: Names, core_origin: CoreOrigin) -> Self {
        Self {
            core_origin,
            catalogue: SourceCatalogue::new(root, MAX_OBJECTS),
            unread: UnreadKinds::default(),
            report: Arc::default(),
            objects: Objects::new(names),
            contribution: Contribution::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn holding(root: Root, names: Names, max: usize) -> Self {
        Self {
            catalogue: SourceCatalogue::new(root, max),
            ..Self::new(Root::Directory("".into()), names, CoreOrigin::Files)
        }
    }

    pub(crate) fn set_trust_domain(&mut self, trust_domain: &str) -> Contribution {
        self.objects.set_trust_domain(trust_domain);
        self.contribution = self.with(self.contribution.clone());
        self.contribution.clone()
    }

    /// Makes a version keep the pointer of an equal earlier one, so readers need not compare.
    fn share_equal_version(&self, entry: &mut SourceEntry<FileVersion>) {
        let before = self.catalogue.get(&entry.checked.id);
        if let Some((new, before)) = entry.checked.content.as_mut().zip(before)
            && new.decoded == before.decoded
        {
            new.decoded = before.decoded.clone();
        }
    }

    /// Merges all files to one contribution, with the messages about them and their objects as written.
    pub(crate) fn outcome(&mut self) -> Outcome {
        for change in self.catalogue.reconcile().changes {
            self.apply(change);
        }
        if let Some(report) = self.catalogue.new_report() {
            self.report = Arc::new(report);
        }
        self.set();
        Outcome {
            contribution: self.contribution.clone(),
            report: Arc::clone(&self.report),
            messages: self.messages(),
            written: self.config_objects(),
            objects: self.counts(),
            ..Outcome::default()
        }
    }

    /// The origins of all valid Secrets, of certificates or not.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Origin> {
        let collection = CoreKind::Secret.collection();
        let all = self.catalogue.candidates();
        let secrets = all.filter(move |one| {
            let is_one = one
                .id
                .as_ref()
                .is_some_and(|id| id.collection == collection);
            is_one && one.version.is_some()
        });
        secrets.map(|one| &one.origin)
    }

    /// The number of used objects, by kind.
    fn counts(&self) -> BTreeMap<Arc<str>, usize> {
        let mut by_collection: BTreeMap<&'static str, usize> = BTreeMap::new();
        for (id, _) in self.catalogue.all() {
            *by_collection.entry(id.collection).or_default() += 1;
        }
        let mut counts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for (collection, count) in by_collection {
            *counts.entry(kind_of(collection).into()).or_default() += count;
        }
        counts
    }

    /// Messages beside the report.
    fn messages(&self) -> Vec<Message> {
        let origin = |place: &str| self.catalogue.origin(place, "");
        let mut messages = self.unread.messages(origin);
        for problem in self.objects.problems() {
            let id = problem.entry_id();
            if let Some(origin) = self.catalogue.at(&id) {
                let text = format!("{id}: {}", problem.refusal);
                messages.push(Message {
                    object: Some((id.kind().into(), id.name.to_string())),
                    ..Message::new(origin.clone(), &text)
                });
            }
        }
        messages.sort();
        messages
    }

    /// The mesh's configuration according to the status of its candidates, and the files of which not all can be read.
    fn config_objects(&self) -> Vec<Arc<ConfigObject>> {
        let mut objects = Vec::new();
        for one in self.catalogue.candidates() {
            let own = one.version.as_ref().and_then(|own| own.written.as_ref());
            match &one.status {
                Status::Accepted => objects.extend(own.cloned()),
                Status::Shadowed { .. } => {
                    let first = self.catalogue.first_of(one);
                    objects.extend(own.map(|own| shadowed(own, first.map(|one| &one.origin))));
                }
                Status::Refused { .. } => {
                    let old = self.catalogue.served_for(one);
                    objects.extend(old.and_then(|old| old.written.clone()));
                    objects.extend(one.findings.written.clone());
                }
            }
        }
        objects.extend(self.unread.config_objects().cloned());
        let files = self.report.refused.iter();
        let files = files.filter(|one| one.kind_and_name().0 == FILE);
        objects.extend(files.filter_map(|one| one.as_written().map(Arc::new)));
        objects.sort_by(|one, other| {
            let key = |one: &ConfigObject| {
                let place = (one.kind.clone(), one.namespace.clone(), one.name.clone());
                (place, !one.is_accepted, one.origin.clone())
            };
            key(one).cmp(&key(other))
        });
        objects
    }

    /// Takes a change of configuration into the contribution; objects of other kinds are taken together.
    fn apply(&mut self, change: CatalogueChange<EntryId, FileVersion>) {
        let configuration = &mut self.contribution.configuration;
        match change {
            CatalogueChange::Set(_, version, _) => {
                if let DecodedObject::Configuration(one) = version.decoded {
                    configuration.set(one);
                }
            }
            CatalogueChange::Moved(..) => {}
            // A kind that is not read may share its name with one that discovery reads.
            CatalogueChange::Gone(id) => {
                let kind = any_kind_of(id.collection);
                if kind.is_none_or(|kind| kind.check != Check::Unused) {
                    configuration.remove(id.kind(), &key(&id));
                }
            }
        }
    }

    fn set(&mut self) {
        let mut sorted = Sorted::default();
        let mut credentials = Credentials::new();
        let mut ingresses = Ingresses::new();
        for (id, version) in self.catalogue.all() {
            match &version.decoded {
                DecodedObject::Service(one) => sorted.services.push(one.clone()),
                DecodedObject::Slice(one) => sorted.slices.push(one.clone()),
                DecodedObject::Endpoints(one) => sorted.endpoints.push(one.clone()),
                DecodedObject::Pod(one) => sorted.pods.push(one.clone()),
                DecodedObject::Machine(one) => sorted.machines.push(one.clone()),
                DecodedObject::Namespace(one) => sorted.namespaces.push(one.clone()),
                DecodedObject::Credential(one) => {
                    credentials.insert(key(id), one.clone());
                }
                DecodedObject::Ingress(one) => {
                    ingresses.insert(key(id), one.clone());
                }
                DecodedObject::Configuration(_) | DecodedObject::Nothing => {}
            }
        }
        let mut contribution = self.contribution.clone();
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
        self.contribution = self.with(contribution);
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

/// Namespace and name.
fn key(id: &EntryId) -> ObjectKey {
    let (namespace, name) = id.namespace_and_name();
    (namespace.into(), name.into())
}

/// The kind of a collection.
fn kind_of(collection: &'static str) -> &'static str {
    let id = EntryId {
        collection,
        ..EntryId::default()
    };
    id.kind()
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

/// Returns the object as pages show it if another one has its name before it.
fn shadowed(one: &ConfigObject, first: Option<&Origin>) -> Arc<ConfigObject> {
    let mut one = one.clone();
    one.is_accepted = false;
    one.findings.push(duplicate_of(first));
    Arc::new(one)
}
