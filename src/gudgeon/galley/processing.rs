//! The transforms of one session: objects in, resources of collections out.
//!
//! Resources are generated from all Ingresses together, and an entry of a Service from many objects: so the affected ones
//! are marked, and generated once, when a source has sent its event. All of it is done in turns: one object may come to thousands of
//! resources, and the changes of others go in between. What changes all the time waits for those others, too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::config::collections::{MESH, type_url_of};
use api::kubernetes::{
    EndpointSlice, Endpoints, Ingress, PartialObjectMetadata, Pod, ServiceObject,
};
use api::mesh::MeshConfig;
use mcp::objects;
use mcp::publish::Publisher;
use mcp::snapshot::{self, Resource};
use prost::Message as _;
use sources::catalogue::{CoreKind, Entry, EntryId, Refused, Warned};
use transform::ingress::{self, Changes, GATEWAYS, Ingresses, Settings, VIRTUAL_SERVICES};
use transform::services::Services;
use transform::{Key, Mesh, TransformSource};

use super::generated::{Checked, Origins, shadowed_finding, warned};
use super::pending::PendingObjects;
use super::synthetic::SyntheticEntries;

/// The one resource of the mesh configuration.
const MESH_NAME: &str = "istio-system/meshconfig";

/// An object, as far as the transforms need it.
#[derive(Clone, Debug)]
pub(super) enum TransformInput {
    /// The resource that all sinks get.
    Resource(Arc<Resource>),
    /// An object of Kubernetes, as JSON.
    Core(CoreKind, Arc<str>),
}

impl TransformInput {
    /// Converts an entry as far as the mesh configuration does not matter. Slow for many objects: not for the event loop.
    pub(super) fn of(entry: &Entry) -> Self {
        match entry {
            Entry::Object { object, created } => {
                let created = created.map(objects::created);
                Self::Resource(Arc::new(objects::resource(object, created)))
            }
            Entry::Core { kind, json } => Self::Core(*kind, (&**json).into()),
        }
    }
}

/// Generated objects that are served, for the next session.
#[derive(Debug, Default)]
pub(super) struct GeneratedObjects {
    /// Those of Ingresses.
    checked: BTreeMap<EntryId, Checked>,
    /// Those of Services.
    entries: BTreeMap<EntryId, Arc<Resource>>,
}

/// The progress of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The turn was over before all objects of a round were applied: what is set now may contradict itself.
    Applying,
    /// All objects of a round are applied. The turn was over before all that follows from them was made, or others wait.
    Generating,
    /// Nothing is left to do.
    Complete,
}

#[derive(Debug)]
pub(super) struct Processing {
    mesh: Mesh,
    /// Entries are made.
    discovers: bool,
    pending: PendingObjects<TransformInput>,
    services: Services,
    entries: SyntheticEntries,
    ingresses: Ingresses,
    generated: BTreeMap<EntryId, Checked>,
    /// All objects of the session's begin are applied, and what follows from them was made once.
    has_generated_all: bool,
    /// The objects of the last session, until this one has generated its own.
    before: GeneratedObjects,
    /// User-written objects with names that could be generated: they take precedence.
    user_objects: BTreeSet<EntryId>,
    /// Generated objects that those shadow, by their findings.
    shadowed: BTreeMap<EntryId, ingress::Finding>,
    /// Findings may be others than at the last call of [`Self::take_news`].
    has_news: bool,
}

impl Processing {
    pub(super) fn new(mesh: &MeshConfig, domain: &str, discovers: bool) -> Self {
        let trust_domain = match mesh.trust_domain.as_str() {
            "" => "cluster.local",
            written => written,
        };
        Self {
            mesh: Mesh {
                domain: domain.to_owned(),
                trust_domain: trust_domain.to_owned(),
            },
            discovers,
            pending: PendingObjects::new(),
            services: Services::default(),
            entries: SyntheticEntries::default(),
            ingresses: Ingresses::new(Settings::new(mesh, domain)),
            generated: BTreeMap::new(),
            has_generated_all: false,
            before: GeneratedObjects::default(),
            user_objects: BTreeSet::new(),
            shadowed: BTreeMap::new(),
            has_news: false,
        }
    }

    /// Takes over the objects of the last session: equal ones are not validated again, and a valid one stays where this session finds
    /// it invalid.
    pub(super) fn after(mut self, before: GeneratedObjects) -> Self {
        self.before = before;
        self
    }

    /// Returns the generated objects that are served, for the next session.
    pub(super) fn served(self) -> GeneratedObjects {
        // Those of the last session are still there if this one has ended before it had generated its own.
        let mut served = self.before;
        served.checked.extend(self.generated);
        served.entries.extend(self.entries.into_served());
        served
    }

    /// Iterates over the generated objects that are not valid, each with the origin of its first Ingress, and the entries that
    /// cannot be made.
    pub(super) fn refused(&self, origins: &Origins) -> impl Iterator<Item = Refused> {
        let generated = self.generated.iter();
        let refused = generated.filter_map(|(id, checked)| checked.refused(id, origins));
        refused.chain(self.entries.refused())
    }

    /// Iterates over the warnings about Ingresses.
    pub(super) fn warned(&self, origins: &Origins) -> impl Iterator<Item = Warned> {
        let findings = self.ingresses.findings().chain(self.shadowed.values());
        findings.map(|finding| warned(finding, origins))
    }

    /// Returns true if findings may be others than at the last call.
    pub(super) const fn take_news(&mut self) -> bool {
        std::mem::replace(&mut self.has_news, false)
    }

    /// Returns true if all objects of the session's begin are applied, and what follows from them was made once: the session can
    /// be published, whatever has changed meanwhile.
    pub(super) const fn has_generated_all(&self) -> bool {
        self.has_generated_all
    }

    /// Sets or deletes an object, in the next round.
    pub(super) fn set(&mut self, id: EntryId, thing: Option<TransformInput>) {
        self.pending.set(id, thing);
    }

    /// Applies changes and generates resources until `is_over`, at least one of each.
    pub(super) fn work(
        &mut self,
        now: Duration,
        publisher: &mut Publisher,
        is_over: &dyn Fn() -> bool,
    ) -> Progress {
        self.pending.begin_round();
        while let Some((id, thing)) = self.pending.pop() {
            self.apply(now, publisher, &id, thing);
            if is_over() {
                break;
            }
        }
        // Of a new session all objects come first: what is generated depends on several.
        if !self.pending.has_ended_round() {
            return Progress::Applying;
        }
        self.generate(now, publisher, is_over);
        if self.entries.has_generated_all() && self.ingresses.has_generated_all() {
            self.has_generated_all = true;
            // Objects of the last session that this one has not generated are deleted.
            self.before = GeneratedObjects::default();
        }
        let is_complete =
            self.pending.is_empty() && !self.entries.is_changed() && !self.ingresses.is_changed();
        match is_complete {
            true => Progress::Complete,
            false => Progress::Generating,
        }
    }

    fn apply(
        &mut self,
        now: Duration,
        publisher: &mut Publisher,
        id: &EntryId,
        thing: Option<TransformInput>,
    ) {
        let (kind, json) = match thing {
            Some(TransformInput::Resource(resource)) => {
                self.note_user_object(id, true);
                publisher.set(now, id.collection, resource);
                return;
            }
            Some(TransformInput::Core(kind, json)) => (Some(kind), Some(json)),
            None => (core_kind_of(id.collection), None),
        };
        match kind {
            Some(kind) => {
                let changed = self.cluster(kind, &id.name, json.as_deref());
                if self.discovers {
                    self.entries.mark(changed);
                }
            }
            None => {
                self.note_user_object(id, false);
                publisher.remove(now, id.collection, &id.name);
            }
        }
    }

    /// Applies a Kubernetes object. Returns the Services whose entries change.
    fn cluster(&mut self, kind: CoreKind, name: &str, json: Option<&str>) -> BTreeSet<Key> {
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        let key = Key::new(namespace, name);
        match kind {
            CoreKind::Ingress => {
                self.ingresses.set(key, read(json));
                BTreeSet::new()
            }
            CoreKind::Service => {
                // Ingresses name ports of Services, so the rules of those that name this one are made again.
                self.ingresses.service(&key);
                self.services.service(key, read(json))
            }
            // The other kinds serve for entries only.
            _ if !self.discovers => BTreeSet::new(),
            CoreKind::Endpoints => self.services.endpoints(key, read(json)),
            CoreKind::EndpointSlice => self.services.slice(key, read(json)),
            CoreKind::Pod => self.services.pod(&key, read(json)),
            CoreKind::Node => self.services.node(&key.name, read(json)),
            CoreKind::IngressClass | CoreKind::Namespace | CoreKind::Secret => BTreeSet::new(),
        }
    }

    /// Remembers user-written objects whose names could be generated.
    fn note_user_object(&mut self, id: &EntryId, is_there: bool) {
        if !matches!(id.collection, GATEWAYS | VIRTUAL_SERVICES)
            || !ingress::may_be_generated(&id.name)
        {
            return;
        }
        let (namespace, name) = id.name.split_once('/').unwrap_or(("", &id.name));
        // `user_objects` decides whether the generated object of that name is shadowed.
        self.ingresses
            .invalidate(id.collection, &Key::new(namespace, name));
        // `make` publishes the generated version again, whatever the publisher has.
        self.generated.remove(id);
        match is_there {
            true => self.user_objects.insert(id.clone()),
            false => self.user_objects.remove(id),
        };
    }

    /// Generates affected resources until `is_over`, at least one of a Service and one of Ingresses.
    fn generate(&mut self, now: Duration, publisher: &mut Publisher, is_over: &dyn Fn() -> bool) {
        let (services, before) = (&self.services, &mut self.before.entries);
        let entries = &mut self.entries;
        self.has_news |= entries.make(services, &self.mesh, before, now, publisher, is_over);
        while self.ingresses.is_changed() {
            self.make(now, publisher);
            self.has_news = true;
            if is_over() {
                break;
            }
        }
    }

    /// Makes one object of Ingresses, with those that share its name. Validating and encoding it takes longer than making it, so a
    /// turn can end after each.
    fn make(&mut self, now: Duration, publisher: &mut Publisher) {
        let services = &self.services;
        let port = |service: &Key, name: &str| services.port(service, name);
        let Changes { generated, removed } = self.ingresses.changes_until(&|| true, &port);
        for (collection, key) in removed {
            let id = id_of(collection, &key);
            self.shadowed.remove(&id);
            // The publisher may have a user's object of that name.
            if self.generated.remove(&id).is_some() {
                publisher.remove(now, id.collection, &id.name);
            }
        }
        for object in generated {
            let id = id_of(object.collection, &object.key);
            if self.user_objects.contains(&id) {
                let finding = shadowed_finding(&object, &id);
                self.shadowed.insert(id, finding);
                continue;
            }
            self.shadowed.remove(&id);
            let checked_before = self.generated.remove(&id);
            let checked = match checked_before.or_else(|| self.before.checked.remove(&id)) {
                // An unchanged object is not validated again.
                Some(checked_before) if checked_before.object == object => checked_before,
                checked_before => Checked::new(
                    object,
                    checked_before.and_then(|checked_before| checked_before.served),
                ),
            };
            match &checked.served {
                Some(resource) => publisher.set(now, id.collection, Arc::clone(resource)),
                None => publisher.remove(now, id.collection, &id.name),
            };
            self.generated.insert(id, checked);
        }
    }
}

#[cfg(test)]
impl Processing {
    /// Returns the number of objects that were generated of Ingresses.
    pub(super) fn generated_count(&self) -> usize {
        self.generated.len()
    }
}

fn id_of(collection: &'static str, key: &Key) -> EntryId {
    EntryId {
        collection,
        name: key.to_string().into(),
    }
}

/// The kind of Kubernetes' objects that a collection is of; `None`: it is one of the mesh's.
fn core_kind_of(collection: &str) -> Option<CoreKind> {
    CoreKind::ALL
        .into_iter()
        .find(|kind| kind.collection() == collection)
}

fn read<T: TransformSource>(json: Option<&str>) -> Option<T> {
    transform::read(json?).ok()
}

/// Checks that an object of Kubernetes can be transformed.
///
/// # Errors
/// The reason why it cannot.
pub(super) fn usable(kind: CoreKind, json: &str) -> Result<(), String> {
    fn readable<T: TransformSource>(json: &str) -> Result<(), String> {
        transform::read::<T>(json).map(drop)
    }
    match kind {
        CoreKind::Ingress => readable::<Ingress>(json),
        CoreKind::Service => readable::<ServiceObject>(json),
        CoreKind::Endpoints => readable::<Endpoints>(json),
        CoreKind::EndpointSlice => readable::<EndpointSlice>(json),
        CoreKind::Pod => readable::<Pod>(json),
        CoreKind::Node => readable::<PartialObjectMetadata>(json),
        CoreKind::IngressClass | CoreKind::Namespace | CoreKind::Secret => Ok(()),
    }
}

/// The mesh configuration as a resource.
pub(super) fn mesh(config: &MeshConfig) -> Resource {
    Resource::new(snapshot::Origin {
        name: MESH_NAME.to_owned(),
        type_url: type_url_of(MESH).unwrap_or_default(),
        body: config.encode_to_vec().into(),
        ..snapshot::Origin::default()
    })
}

#[cfg(test)]
mod tests {
    use api::config::ServedInstead;
    use api::config::collections::SYNTHETIC;
    use mcp::collections::Collections;
    use serde_json::json;
    use sources::catalogue::Origin;

    use super::*;

    struct Play {
        processing: Processing,
        publisher: Publisher,
        now: Duration,
    }

    impl Play {
        fn new(discovers: bool) -> Self {
            let mut publisher = Publisher::new(Arc::new(Collections::all()));
            publisher.open(Duration::ZERO);
            let mesh = MeshConfig::default();
            Self {
                processing: Processing::new(&mesh, "cluster.local", discovers),
                publisher,
                now: Duration::ZERO,
            }
        }

        fn say(&mut self, id: &EntryId, entry: Option<&Entry>) {
            let (now, publisher) = (self.now, &mut self.publisher);
            let thing = entry.map(TransformInput::of);
            self.processing.apply(now, publisher, id, thing);
        }

        /// Does all work of one turn. Returns true if findings may have changed.
        fn work(&mut self) -> bool {
            let (now, publisher) = (self.now, &mut self.publisher);
            let progress = self.processing.work(now, publisher, &|| false);
            assert_eq!(progress, Progress::Complete);
            self.processing.take_news()
        }

        /// Does a turn that is over at once.
        fn turn(&mut self) -> Progress {
            let (now, publisher) = (self.now, &mut self.publisher);
            self.processing.work(now, publisher, &|| true)
        }

        /// Begins a new session, which takes over what this one serves.
        fn next_session(&mut self, mesh: &MeshConfig, discovers: bool) {
            let new = Processing::new(mesh, "cluster.local", discovers);
            let old = std::mem::replace(&mut self.processing, new);
            self.processing.before = old.served();
            self.publisher.begin();
            self.publisher.open(self.now);
        }

        /// Returns the names in a collection, ten seconds later.
        fn names(&mut self, collection: &str) -> Vec<String> {
            self.work();
            self.now += Duration::from_secs(10);
            self.publisher.due(self.now);
            let mut published = self.publisher.published();
            let collection = published.find_map(|one| one.snapshot.get(collection).cloned());
            let collection = collection.unwrap();
            let members = collection.members().iter();
            members.map(|one| one.name.to_string()).collect()
        }
    }

    fn plain(kind: CoreKind, json: &serde_json::Value) -> Entry {
        let json = json.to_string();
        usable(kind, &json).unwrap();
        let json = json.into();
        Entry::Core { kind, json }
    }

    fn id(collection: &'static str, name: &str) -> EntryId {
        let name = name.into();
        EntryId { collection, name }
    }

    fn ingress(host: &str, port: &serde_json::Value) -> Entry {
        plain(
            CoreKind::Ingress,
            &json!({
                "metadata": {"name": "web", "namespace": "shop"},
                "spec": {"ingressClassName": "istio", "rules": [{"host": host, "http": {"paths": [
                    {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": port}}},
                ]}}]},
            }),
        )
    }

    fn service() -> Entry {
        plain(
            CoreKind::Service,
            &json!({
                "metadata": {
                    "name": "web",
                    "namespace": "shop",
                    "resourceVersion": "7",
                    "creationTimestamp": "1970-01-01T00:01:00Z",
                    "labels": {"app": "web"},
                    "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
                },
                "spec": {"clusterIP": "10.0.0.1", "ports": [{"name": "http", "port": 80}]},
            }),
        )
    }

    /// The origin of the Ingress.
    fn origins() -> Origins {
        Origins::from([("shop/web".into(), Origin::file("a.yaml").at(3))])
    }

    const GATEWAY: &str = "istio-system/web-istio-autogenerated-k8s-ingress";
    const ROUTES: &str = "istio-system/a-b-web-istio-autogenerated-k8s-ingress";

    #[test]
    fn an_ingress_names_a_port_that_comes_later() {
        let mut play = Play::new(false);
        let name = id(CoreKind::Ingress.collection(), "shop/web");
        play.say(&name, Some(&ingress("a.b", &json!({"name": "http"}))));
        assert_eq!(play.names(GATEWAYS), [GATEWAY]);
        assert_eq!(play.names(VIRTUAL_SERVICES), [""; 0]);
        assert_eq!(play.processing.warned(&origins()).count(), 1);
        let web = id(CoreKind::Service.collection(), "shop/web");
        play.say(&web, Some(&service()));
        assert_eq!(play.names(VIRTUAL_SERVICES), [ROUTES]);
        assert_eq!(play.processing.warned(&origins()).count(), 0);
        // Entries are disabled.
        assert_eq!(play.names(SYNTHETIC), [""; 0]);
        play.say(&name, None);
        assert_eq!(play.names(VIRTUAL_SERVICES), [""; 0]);
        assert_eq!(play.names(GATEWAYS), [""; 0]);
    }

    #[test]
    fn a_service_whose_port_no_ingress_names_makes_nothing_anew() {
        let mut play = Play::new(false);
        let name = id(CoreKind::Ingress.collection(), "shop/web");
        let mut makes = |name: &EntryId, entry: Option<&Entry>| {
            play.say(name, entry);
            play.work()
        };
        assert!(makes(
            &name,
            Some(&ingress("a.b", &json!({"name": "http"})))
        ));
        let [web, other] =
            ["shop/web", "shop/other"].map(|name| id(CoreKind::Service.collection(), name));
        assert!(!makes(&other, Some(&service())));
        assert!(makes(&web, Some(&service())));
        assert!(makes(&web, None));
        // By its number it is found without the Service.
        assert!(makes(&name, Some(&ingress("a.b", &json!({"number": 80})))));
        assert!(!makes(&web, Some(&service())));
        assert!(makes(&name, None));
    }

    #[test]
    fn an_invalid_generated_object_is_left_out_and_named() {
        let mut play = Play::new(false);
        let name = id(CoreKind::Ingress.collection(), "shop/web");
        play.say(&name, Some(&ingress("a_b.c", &json!({"number": 80}))));
        for _ in 0..2 {
            assert_eq!(play.names(VIRTUAL_SERVICES), [""; 0]);
            let refused: Vec<_> = play.processing.refused(&origins()).collect();
            assert_eq!(refused.len(), 1);
            assert_eq!(refused[0].findings[0].path, "spec.hosts[0]");
            assert_eq!(refused[0].origin.to_string(), "a.yaml:3");
            // Made again, and not validated again.
            let key = Key::new("istio-system", "a_b-c-web-istio-autogenerated-k8s-ingress");
            play.processing.ingresses.invalidate(VIRTUAL_SERVICES, &key);
            assert!(play.processing.ingresses.is_changed());
        }
        play.say(&name, Some(&ingress("a.b", &json!({"number": 80}))));
        assert_eq!(play.names(VIRTUAL_SERVICES), [ROUTES]);
        assert_eq!(play.processing.refused(&origins()).count(), 0);
    }

    #[test]
    fn an_ingress_that_is_as_it_was_is_not_transformed_again() {
        let mut play = Play::new(false);
        let name = id(CoreKind::Ingress.collection(), "shop/web");
        let written = |version: &str, label: &str| {
            let metadata = json!({
                "name": "web", "namespace": "shop", "resourceVersion": version, "labels": {"a": label},
            });
            let status = json!({"loadBalancer": {"ingress": [{"ip": version}]}});
            plain(
                CoreKind::Ingress,
                &json!({"metadata": metadata, "spec": {"ingressClassName": "istio"}, "status": status}),
            )
        };
        play.say(&name, Some(&written("1", "x")));
        assert_eq!(play.names(GATEWAYS), [GATEWAY]);
        play.say(&name, Some(&written("2", "x")));
        assert!(!play.processing.ingresses.is_changed());
        play.say(&name, Some(&written("3", "y")));
        assert!(play.processing.ingresses.is_changed());
        play.names(GATEWAYS);
        play.say(&name, None);
        assert!(play.processing.ingresses.is_changed());
        play.names(GATEWAYS);
        play.say(&name, None);
        assert!(!play.processing.ingresses.is_changed());
    }

    /// The mesh's part of a Gateway that is too large.
    fn broken() -> MeshConfig {
        MeshConfig {
            ingress_selector: "x".repeat(2 << 20),
            ..MeshConfig::default()
        }
    }

    #[test]
    fn the_last_good_version_stays_while_a_generated_object_is_broken() {
        let mut play = Play::new(false);
        let name = id(CoreKind::Ingress.collection(), "shop/web");
        let good = ingress("a.b", &json!({"number": 80}));
        let version = |play: &mut Play| {
            assert_eq!(play.names(GATEWAYS), [GATEWAY]);
            let published = play.publisher.published().next().unwrap();
            let collection = published.snapshot.get(GATEWAYS).unwrap();
            collection.get(GATEWAY).unwrap().version
        };
        play.say(&name, Some(&good));
        let was = version(&mut play);
        // A session that finds it invalid, and one after that.
        for _ in 0..2 {
            play.next_session(&broken(), false);
            play.say(&name, Some(&good));
            assert_eq!(version(&mut play), was);
            let refused: Vec<_> = play.processing.refused(&origins()).collect();
            assert_eq!(refused.len(), 1);
            assert_eq!(refused[0].serving, ServedInstead::Old);
            assert_eq!(refused[0].findings[0].message, "object is too large");
        }
        // The last good version is deleted with its Ingress, and not remembered.
        play.say(&name, None);
        assert_eq!(play.names(GATEWAYS), [""; 0]);
        play.say(&name, Some(&good));
        assert_eq!(play.names(GATEWAYS), [""; 0]);
        assert_eq!(
            play.processing.refused(&origins()).next().unwrap().serving,
            ServedInstead::Nothing
        );
    }

    #[test]
    fn written_objects_precede_generated_ones() {
        let mut play = Play::new(false);
        let (namespace, name) = ROUTES.split_once('/').unwrap();
        let (object, _) = api::config::check(&json!({
            "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"hosts": ["mine"], "http": [{"route": [{"destination": {"host": "mine"}}]}]},
        }));
        let object = object.unwrap();
        let written = objects::resource(&object, None);
        let (object, created) = (object.into(), None);
        let entry = Entry::Object { object, created };
        let place = id(VIRTUAL_SERVICES, ROUTES);
        let name = id(CoreKind::Ingress.collection(), "shop/web");
        let version = |play: &mut Play| {
            assert_eq!(play.names(VIRTUAL_SERVICES), [ROUTES]);
            let published = play.publisher.published().next().unwrap();
            let collection = published.snapshot.get(VIRTUAL_SERVICES).unwrap();
            collection.get(ROUTES).unwrap().version
        };
        play.say(&name, Some(&ingress("a.b", &json!({"number": 80}))));
        let made = version(&mut play);
        let warnings = |play: &Play| {
            let origins = origins();
            let all = play.processing.warned(&origins);
            let all = all
                .map(|one| format!("{} {} {}", one.origin, one.id.name, one.warnings[0].message));
            all.collect::<Vec<_>>()
        };
        assert_eq!(warnings(&play), [""; 0]);
        play.say(&place, Some(&entry));
        assert_eq!(version(&mut play), written.version);
        let warning = format!(
            "a.yaml:3 shop/web the VirtualService that is made of it is not served: the VirtualService {ROUTES} has its name"
        );
        assert_eq!(warnings(&play), [warning]);
        play.say(&name, None);
        assert_eq!(version(&mut play), written.version);
        assert_eq!(warnings(&play), [""; 0]);
        play.say(&name, Some(&ingress("a.b", &json!({"number": 80}))));
        assert_eq!(version(&mut play), written.version);
        assert_eq!(warnings(&play).len(), 1);
        play.say(&place, None);
        assert_eq!(version(&mut play), made);
        assert_eq!(warnings(&play), [""; 0]);
    }

    #[test]
    fn services_are_entries_for_who_asks() {
        let mut play = Play::new(true);
        let name = id(CoreKind::Service.collection(), "shop/web");
        play.say(&name, Some(&service()));
        assert_eq!(play.names(SYNTHETIC), ["shop/web"]);
        let mut published = play.publisher.published();
        let collection = published.find_map(|one| one.snapshot.get(SYNTHETIC).cloned());
        let resource = collection.unwrap().get("shop/web").unwrap().message();
        drop(published);
        let metadata = resource.metadata.unwrap();
        assert_eq!(metadata.create_time.unwrap().seconds, 60);
        assert_eq!(metadata.labels["app"], "web");
        // Without kubectl's copy of the object.
        let annotations: Vec<_> = metadata.annotations.keys().collect();
        assert_eq!(annotations, ["networking.alpha.istio.io/serviceVersion"]);
        let body = resource.body.unwrap();
        let type_url = "type.googleapis.com/istio.networking.v1alpha3.ServiceEntry";
        assert_eq!(body.type_url, type_url);
        let spec = api::networking::ServiceEntry::decode(body.value).unwrap();
        assert_eq!(spec.hosts, ["web.shop.svc.cluster.local"]);
        play.say(&name, None);
        assert_eq!(play.names(SYNTHETIC), [""; 0]);
    }

    /// A message that sinks refuse for its size would cut them off from whatever comes after it.
    #[test]
    fn an_entry_that_no_sink_takes_is_refused_and_the_last_one_stays() {
        let mut play = Play::new(true);
        let web = id(CoreKind::Service.collection(), "shop/web");
        let pod = id(CoreKind::Pod.collection(), "shop/p");
        let endpoints = id(CoreKind::Endpoints.collection(), "shop/web");
        let labelled = |bytes: usize| {
            let labels = json!({"l": "x".repeat(bytes)});
            plain(
                CoreKind::Pod,
                &json!({"metadata": {"name": "p", "namespace": "shop", "labels": labels}}),
            )
        };
        let target = json!({"kind": "Pod", "name": "p"});
        let ips = (0..500).map(|at| format!("10.0.{}.{}", at / 250, at % 250));
        let addresses: Vec<_> = ips
            .map(|ip| json!({"ip": ip, "targetRef": target}))
            .collect();
        let metadata = json!({"name": "web", "namespace": "shop"});
        let subsets = json!([{"addresses": addresses, "ports": [{"name": "http", "port": 80}]}]);
        let all = json!({"metadata": metadata, "subsets": subsets});
        play.say(&web, Some(&service()));
        play.say(&endpoints, Some(&plain(CoreKind::Endpoints, &all)));
        play.say(&pod, Some(&labelled(20_000)));
        let refused = |play: &Play| -> Vec<String> {
            let origins = origins();
            let all = play.processing.refused(&origins);
            all.map(|one| one.to_string()).collect()
        };
        let of = |state: &str| {
            format!(
                "Service shop/web: ServiceEntry shop/web: {state}: the ServiceEntry made of the Service is larger than 4128768 bytes, the most that sinks take by default: give it fewer endpoints, or their pods fewer labels"
            )
        };
        assert_eq!(play.names(SYNTHETIC), [""; 0]);
        assert_eq!(refused(&play), [of("refused")]);
        play.say(&pod, Some(&labelled(2000)));
        assert_eq!(play.names(SYNTHETIC), ["shop/web"]);
        assert_eq!(refused(&play), [""; 0]);
        play.say(&pod, Some(&labelled(20_000)));
        assert_eq!(play.names(SYNTHETIC), ["shop/web"]);
        assert_eq!(refused(&play), [of("stale")]);
        // The next session has it, too.
        play.next_session(&MeshConfig::default(), true);
        play.say(&web, Some(&service()));
        play.say(&endpoints, Some(&plain(CoreKind::Endpoints, &all)));
        play.say(&pod, Some(&labelled(20_000)));
        assert_eq!(play.names(SYNTHETIC), ["shop/web"]);
        assert_eq!(refused(&play), [of("stale")]);
        play.say(&web, None);
        assert_eq!(play.names(SYNTHETIC), [""; 0]);
        assert_eq!(refused(&play), [""; 0]);
    }

    /// The object that sorts first was applied again and again, and nothing was published meanwhile.
    #[test]
    fn an_object_that_changes_all_the_time_keeps_no_event_waiting() {
        let mut play = Play::new(false);
        let names = ["a/web", "z/web"];
        let set = |play: &mut Play, version: u8| {
            for name in names {
                let resource = Resource::new(snapshot::Origin {
                    name: name.to_owned(),
                    body: vec![version].into(),
                    ..snapshot::Origin::default()
                });
                let thing = TransformInput::Resource(Arc::new(resource));
                play.processing.set(id(VIRTUAL_SERVICES, name), Some(thing));
            }
        };
        set(&mut play, 0);
        for version in 0..3 {
            assert_eq!(play.turn(), Progress::Applying);
            set(&mut play, version + 1);
            assert_eq!(play.turn(), Progress::Generating);
            play.now += Duration::from_secs(10);
            play.publisher.due(play.now);
            let published = play.publisher.published().next().unwrap();
            let collection = published.snapshot.get(VIRTUAL_SERVICES).unwrap();
            let versions = names.map(|name| {
                let resource = collection.get(name).unwrap().message();
                resource.body.unwrap().value.to_vec()
            });
            // Both of one event, and nothing of the next one.
            assert_eq!(versions, [[version], [version]]);
        }
    }

    /// The namespace that sorts first would starve all others.
    #[test]
    fn a_service_that_changes_all_the_time_keeps_no_other_waiting() {
        let mut play = Play::new(true);
        let [first, last] = ["a/web", "z/web"].map(|name| id(CoreKind::Service.collection(), name));
        for _ in 0..2 {
            play.say(&last, Some(&service()));
            play.say(&first, Some(&service()));
            assert_eq!(play.turn(), Progress::Generating);
            assert!(!play.processing.has_generated_all());
            play.say(&first, None);
            assert_eq!(play.turn(), Progress::Generating);
            assert!(play.processing.has_generated_all());
            // All of the last session has been made anew.
            assert!(play.processing.before.entries.is_empty());
            play.next_session(&MeshConfig::default(), true);
            let served: Vec<_> = play.processing.before.entries.keys().cloned().collect();
            assert_eq!(served, ["a/web", "z/web"].map(|name| id(SYNTHETIC, name)));
        }
    }

    /// Validating and publishing belong to the turn as well as making does.
    #[test]
    fn a_turn_is_over_once_an_object_is_published() {
        let mut play = Play::new(false);
        let name = id(CoreKind::Ingress.collection(), "shop/web");
        let one = ingress("a.b", &json!({"number": 80}));
        play.say(&name, Some(&one));
        play.work();
        play.next_session(&MeshConfig::default(), false);
        play.say(&name, Some(&one));
        let before = play.processing.before.checked.values();
        let served: Vec<_> = before.filter_map(|one| one.served.clone()).collect();
        let count = || -> usize { served.iter().map(Arc::strong_count).sum() };
        let unpublished = count();
        let (now, publisher) = (play.now, &mut play.publisher);
        let progress = play
            .processing
            .work(now, publisher, &|| count() > unpublished);
        assert_eq!(progress, Progress::Generating);
        assert_eq!(play.processing.generated_count(), 1);
    }

    #[test]
    fn the_mesh_configuration_is_one_resource() {
        let one = mesh(&MeshConfig::default());
        assert_eq!(&*one.name, MESH_NAME);
        let other = mesh(&MeshConfig {
            proxy_listen_port: 1,
            ..MeshConfig::default()
        });
        assert_ne!(one.version, other.version);
    }

    #[test]
    fn unvalidated_fields_of_the_mesh_are_not_served() {
        let read = |text: &str| mesh(&api::mesh::parse_served(text).unwrap().config);
        let plain = read("defaultConfig: {statusPort: 15021}");
        for unchecked in [
            "extensionProviders: [{name: otel}]",
            "serviceScopeConfigs: [{scope: GLOBAL}]",
        ] {
            let all = format!("{unchecked}\ndefaultConfig: {{statusPort: 15021}}");
            assert_eq!(read(&all).version, plain.version, "{unchecked}");
        }
        for unchecked in [
            "readinessProbe: {httpGet: {port: 1}}",
            "image: {imageType: distroless}",
            "privateKeyProvider: {cryptomb: {pollDelay: 1s}}",
            "proxyHeaders: {server: {disabled: true}}",
        ] {
            let all = format!("defaultConfig: {{statusPort: 15021, {unchecked}}}");
            assert_eq!(read(&all).version, plain.version, "{unchecked}");
        }
        assert_ne!(read("").version, plain.version);
    }
}
