//! Ingresses as Gateways and VirtualServices of the world (discovery.md §16), by the same transform as galley publishes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::kubernetes::Ingress;
use api::mesh::MeshConfig;
use api::model::{ChangedKind, Changes, Objects, Service, ServiceKey, World};
use api::networking::{DiscoveryKind as _, Gateway, VirtualService};
use sources::contribution::{AnyConfigured, Configuration, Ingresses};
use tracing::warn;
use transform::Key;
use transform::ingress::{self, GATEWAYS, Generated, Settings};

use crate::secrets::redact_text;

type ServicesByKey = BTreeMap<ServiceKey, Arc<Service>>;

/// The objects that rules are made of.
#[derive(Debug)]
struct IngressInputs {
    ingresses: Vec<Arc<Ingresses>>,
    services: Arc<ServicesByKey>,
    mesh: Arc<MeshConfig>,
}

impl IngressInputs {
    fn is(&self, other: &Self) -> bool {
        // Inputs never change behind their pointers, so equal pointers are equal inputs.
        self.has_ingresses_of(other)
            && Arc::ptr_eq(&self.services, &other.services)
            && Arc::ptr_eq(&self.mesh, &other.mesh)
    }

    fn has_ingresses_of(&self, other: &Self) -> bool {
        let mut pairs = self.ingresses.iter().zip(&other.ingresses);
        self.ingresses.len() == other.ingresses.len()
            && pairs.all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

/// Objects of one kind, with what was made beside them.
#[derive(Debug)]
struct ObjectsWithGenerated<T> {
    /// The objects as users have written them.
    written: Arc<Objects<T>>,
    all: Arc<Objects<T>>,
}

impl<T> Default for ObjectsWithGenerated<T> {
    fn default() -> Self {
        Self {
            written: Arc::default(),
            all: Arc::default(),
        }
    }
}

/// Rules that were made of Ingresses last, kept so that unchanged ones stay the same pointer.
#[derive(Debug, Default)]
pub(super) struct IngressRules {
    made: Option<GeneratedRules>,
    gateways: ObjectsWithGenerated<Gateway>,
    virtual_services: ObjectsWithGenerated<VirtualService>,
    /// Findings that were logged already.
    logged: BTreeSet<String>,
    notes: Arc<IngressNotes>,
}

/// The rules of all Ingresses. A change makes those again that it has a part in, and no others.
#[derive(Debug)]
struct GeneratedRules {
    inputs: IngressInputs,
    /// The Ingresses as they are written, of all sources.
    written: Ingresses,
    ingresses: ingress::Ingresses,
    rules: Configuration,
    /// The first Ingress of each object.
    of: BTreeMap<GeneratedName, Key>,
    /// Ingresses that cannot be read.
    unread: BTreeMap<Key, String>,
    /// Objects that are not valid.
    invalid: BTreeMap<GeneratedName, String>,
}

/// Kind, namespace and name of an object.
type GeneratedName = (Arc<str>, Arc<str>, Arc<str>);

/// Messages about Ingresses, and the Ingress that each made object comes from.
#[derive(Clone, Debug, Default)]
pub(crate) struct IngressNotes {
    /// Parts that nothing is made of.
    pub(crate) findings: BTreeMap<Key, BTreeSet<String>>,
    /// The first Ingress of each object, by kind, namespace and name.
    pub(crate) generated_from: BTreeMap<GeneratedName, Key>,
}

impl IngressNotes {
    fn add(&mut self, ingress: &Key, message: String) {
        self.findings
            .entry(ingress.clone())
            .or_default()
            .insert(message);
    }

    /// Iterates over the generated Gateways, each with its first Ingress.
    pub(crate) fn gateways(&self) -> impl Iterator<Item = (&GeneratedName, &Key)> {
        let all = self.generated_from.iter();
        all.filter(|((kind, ..), _)| **kind == *Gateway::NAME)
    }

    /// Returns one line per finding.
    fn messages(&self) -> BTreeSet<String> {
        let all = self.findings.iter();
        let all =
            all.flat_map(|(key, findings)| findings.iter().map(move |message| (key, message)));
        all.map(|(key, message)| format!("Ingress {key}: {message}"))
            .collect()
    }
}

impl IngressRules {
    pub(super) const fn notes(&self) -> &Arc<IngressNotes> {
        &self.notes
    }

    /// Adds the generated objects to a world, except where a user has written objects of their names. Returns the objects that
    /// changed; `None`: any may have changed.
    pub(super) fn add<'a>(
        &mut self,
        ingresses: impl Iterator<Item = &'a Arc<Ingresses>>,
        world: &mut World,
        domain: &str,
    ) -> Option<Changes> {
        let inputs = IngressInputs {
            ingresses: ingresses.cloned().collect(),
            services: Arc::clone(&world.services),
            mesh: Arc::clone(&world.mesh),
        };
        if inputs.ingresses.is_empty() {
            let before = std::mem::take(self);
            // The last Ingress is gone, and with it all rules that were made.
            return before.made.is_none().then(Changes::default);
        }
        let changes = self.take(inputs, domain);
        let is_new = changes.as_ref().is_none_or(|changes| !changes.is_empty());
        let none = Configuration::default();
        let made = self.made.as_ref().map_or(&none, |made| &made.rules);
        self.gateways
            .join(&mut world.gateways, &made.gateways, is_new);
        let services = &made.virtual_services;
        self.virtual_services
            .join(&mut world.virtual_services, services, is_new);
        changes
    }

    /// Makes what has changed, and returns it; `None`: all was made anew.
    fn take(&mut self, inputs: IngressInputs, domain: &str) -> Option<Changes> {
        let known = self.made.take();
        // With another mesh other Ingresses may count.
        let known = known.filter(|known| Arc::ptr_eq(&known.inputs.mesh, &inputs.mesh));
        let is_known = known.is_some();
        let mut rules = known.unwrap_or_else(|| GeneratedRules::new(&inputs.mesh, domain));
        if is_known && rules.inputs.is(&inputs) {
            self.made = Some(rules);
            return Some(Changes::default());
        }
        let (changes, has_news) = rules.update(inputs, domain);
        // Most changes are of Services in which no Ingress has a part.
        if has_news || !is_known {
            self.note(rules.notes());
        }
        self.made = Some(rules);
        is_known.then_some(changes)
    }

    /// Keeps messages, and logs new ones.
    fn note(&mut self, notes: IngressNotes) {
        let messages = notes.messages();
        for message in messages.difference(&self.logged) {
            warn!("{}", redact_text(message));
        }
        (self.logged, self.notes) = (messages, Arc::new(notes));
    }
}

/// Returns the Service that an Ingress names.
fn service_of<'a>(
    services: &'a ServicesByKey,
    service: &Key,
    domain: &str,
) -> Option<&'a Arc<Service>> {
    let host = format!("{}.{}.svc.{domain}", service.name, service.namespace);
    services.get(&ServiceKey::new(&host, &service.namespace))
}

impl GeneratedRules {
    fn new(mesh: &Arc<MeshConfig>, domain: &str) -> Self {
        Self {
            inputs: IngressInputs {
                ingresses: Vec::new(),
                services: Arc::default(),
                mesh: Arc::clone(mesh),
            },
            written: Ingresses::new(),
            ingresses: ingress::Ingresses::new(Settings::new(mesh, domain)),
            rules: Configuration::default(),
            of: BTreeMap::new(),
            unread: BTreeMap::new(),
            invalid: BTreeMap::new(),
        }
    }

    /// Returns the objects that may be others than before, and true if messages may be.
    fn update(&mut self, inputs: IngressInputs, domain: &str) -> (Changes, bool) {
        let is_read = !self.inputs.has_ingresses_of(&inputs) && self.read(&inputs.ingresses);
        let (before, services) = (&self.inputs.services, &inputs.services);
        if !Arc::ptr_eq(before, services) {
            self.ingresses.services(|service| {
                // The rules of an Ingress take nothing but port numbers from its Services.
                let ports = |services| service_of(services, service, domain).map(|one| &one.ports);
                ports(before) != ports(services)
            });
        }
        let has_news = is_read || self.ingresses.is_changed();
        let port = |service: &Key, name: &str| {
            let mut ports = service_of(services, service, domain)?.ports.iter();
            let found = ports.find(|port| *port.name == *name);
            found.map(|port| port.number)
        };
        let ingress::Changes { generated, removed } = self.ingresses.changes(&port);
        let mut changes = Changes::default();
        for (collection, key) in removed {
            let name = generated_name(collection, &key);
            self.remove(&name);
            self.of.remove(&name);
            add(&mut changes, collection, name);
        }
        for one in generated {
            self.set(&one);
            let name = generated_name(one.collection, &one.key);
            add(&mut changes, one.collection, name);
        }
        self.inputs = inputs;
        (changes, has_news)
    }

    /// Takes in the Ingresses that have changed. Of one name in two sources the first counts. Returns true if any has.
    fn read(&mut self, sources: &[Arc<Ingresses>]) -> bool {
        let mut has_changed = false;
        let mut now = BTreeMap::new();
        for (key, json) in sources.iter().flat_map(|all| all.iter()) {
            now.entry(key).or_insert(json);
        }
        let key_of = |key: &(Arc<str>, Arc<str>)| Key::new(&*key.0, &*key.1);
        let gone = self.written.keys().filter(|key| !now.contains_key(key));
        for key in gone.cloned().collect::<Vec<_>>() {
            has_changed = true;
            self.written.remove(&key);
            self.unread.remove(&key_of(&key));
            self.ingresses.set(key_of(&key), None);
        }
        for (key, json) in now {
            if self.written.get(key) == Some(json) {
                continue;
            }
            has_changed = true;
            self.written.insert(key.clone(), Arc::clone(json));
            let key = key_of(key);
            self.unread.remove(&key);
            match transform::read::<Ingress>(json) {
                Ok(ingress) => self.ingresses.set(key, Some(ingress)),
                Err(cause) => {
                    self.ingresses.set(key.clone(), None);
                    self.unread.insert(key, format!("cannot read it: {cause}"));
                }
            }
        }
        has_changed
    }

    fn set(&mut self, one: &Generated) {
        let name = generated_name(one.collection, &one.key);
        match configured(one) {
            Ok(object) => {
                self.invalid.remove(&name);
                self.rules.set(object);
            }
            Err(cause) => {
                self.remove(&name);
                self.invalid
                    .insert(name.clone(), format!("cannot convert it: {cause}"));
            }
        }
        // `notes` names the Ingress of an invalid object, too.
        self.of.insert(name, one.of.clone());
    }

    /// Removes an object that does not exist any more, or is not valid.
    fn remove(&mut self, name: &GeneratedName) {
        let (kind, namespace, object) = name.clone();
        self.rules.remove(&kind, &(namespace, object));
        self.invalid.remove(name);
    }

    fn notes(&self) -> IngressNotes {
        let mut notes = IngressNotes {
            generated_from: self.of.clone(),
            ..IngressNotes::default()
        };
        for (ingress, message) in &self.unread {
            notes.add(ingress, message.clone());
        }
        for (name, message) in &self.invalid {
            if let Some(ingress) = self.of.get(name) {
                notes.add(ingress, message.clone());
            }
        }
        for finding in self.ingresses.findings() {
            let message = format!("{}: {}", finding.path, finding.message);
            notes.add(&finding.ingress, message);
        }
        notes
    }
}

fn kind_of(collection: &str) -> &'static str {
    match collection {
        GATEWAYS => Gateway::NAME,
        _ => VirtualService::NAME,
    }
}

fn generated_name(collection: &str, key: &Key) -> GeneratedName {
    let kind = kind_of(collection);
    (kind.into(), (&*key.namespace).into(), (&*key.name).into())
}

fn add(changes: &mut Changes, collection: &str, (_, namespace, name): GeneratedName) {
    let kind = ChangedKind::Configuration(kind_of(collection));
    changes.add(kind, &(namespace, name));
}

/// Returns an object as a user would have written it.
fn configured(one: &Generated) -> Result<AnyConfigured, String> {
    let (object, findings) = one.object();
    if let Some(error) = findings.iter().find(|finding| finding.is_error()) {
        return Err(error.to_string());
    }
    let object = object.ok_or("it is not an object")?;
    let created = one.create_time.map(|time| time.seconds);
    AnyConfigured::of(&object, created)?.ok_or_else(|| "discovery does not act on it".to_owned())
}

impl<T: Clone + PartialEq> ObjectsWithGenerated<T> {
    fn join(&mut self, objects: &mut Arc<Objects<T>>, generated: &Arc<Objects<T>>, is_new: bool) {
        if is_new || !Arc::ptr_eq(&self.written, objects) {
            let mut all = (**objects).clone();
            for (key, one) in generated.iter() {
                all.entry(key.clone()).or_insert_with(|| Arc::clone(one));
            }
            let mut pairs = self.all.iter().zip(&all);
            let is_same = self.all.len() == all.len()
                && pairs.all(|((key, one), (other, new))| {
                    key == other && (Arc::ptr_eq(one, new) || one == new)
                });
            if !is_same {
                self.all = Arc::new(all);
            }
            self.written = Arc::clone(objects);
        }
        *objects = Arc::clone(&self.all);
    }
}

#[cfg(test)]
mod tests {
    use api::mesh;
    use api::model::{ChangedName, Port, Protocol, Registry, Resolution, Target};
    use serde_json::json;

    use super::*;

    fn ingresses(host: &str) -> Arc<Ingresses> {
        let backend = json!({"service": {"name": "web", "port": {"name": "http"}}});
        let ingress = json!({
            "metadata": {"name": "front", "namespace": "shop", "annotations": {"kubernetes.io/ingress.class": "istio"}},
            "spec": {"rules": [{"host": host, "http": {"paths": [{"path": "/a", "pathType": "Prefix", "backend": backend}]}}]},
        });
        let key = ("shop".into(), "front".into());
        Arc::new(Ingresses::from([(key, ingress.to_string().into())]))
    }

    fn world(mode: &str) -> World {
        let text = format!("ingressControllerMode: {mode}\n");
        let mesh = mesh::parse_over(&mesh::discovery_defaults(), &text).unwrap();
        World::new(Arc::new(mesh.config))
    }

    fn names<T>(objects: &Objects<T>) -> Vec<String> {
        let all = objects.keys();
        all.map(|(namespace, name)| format!("{namespace}/{name}"))
            .collect()
    }

    #[test]
    fn ingresses_are_rules_where_the_mesh_wants_it() {
        let gateway = "istio-system/front-istio-autogenerated-k8s-ingress";
        for (mode, count) in [("STRICT", 1), ("DEFAULT", 1), ("OFF", 0)] {
            let mut rules = IngressRules::default();
            let mut world = world(mode);
            let all = ingresses("a.example");
            let changes = rules.add([&all].into_iter(), &mut world, "cluster.local");
            assert_eq!(changes, None, "all are new");
            assert_eq!(world.gateways.len(), count, "{mode}");
            assert!(names(&world.gateways).iter().all(|name| name == gateway));
        }
    }

    #[test]
    fn unchanged_rules_keep_their_pointer_and_written_ones_win() {
        let mut rules = IngressRules::default();
        let plain = world("STRICT");
        let all = ingresses("a.example");
        let with = |rules: &mut IngressRules, all: &Arc<Ingresses>, plain: &World| {
            let mut world = plain.clone();
            let _changes = rules.add([all].into_iter(), &mut world, "cluster.local");
            world
        };
        // A port by name is one that the Service has, and there is none: said, and left out.
        let first = with(&mut rules, &all, &plain);
        assert_eq!((first.gateways.len(), first.virtual_services.len()), (1, 0));
        assert_eq!(rules.logged.len(), 1);
        let notes = rules.notes();
        let of: Vec<_> = notes.findings.keys().map(ToString::to_string).collect();
        assert_eq!(of, ["shop/front"]);
        let made: Vec<_> = notes
            .generated_from
            .values()
            .map(ToString::to_string)
            .collect();
        assert_eq!(made, ["shop/front"], "the Gateway");
        let again = with(&mut rules, &all, &plain);
        assert!(Arc::ptr_eq(&first.gateways, &again.gateways));
        // Another Ingress of the same servers makes the same Gateway.
        let other = with(&mut rules, &ingresses("b.example"), &plain);
        assert!(Arc::ptr_eq(&first.gateways, &other.gateways));
        let mut written = plain.clone();
        let (key, made) = first.gateways.iter().next().unwrap();
        let mut own = (**made).clone();
        own.spec.servers.clear();
        Arc::make_mut(&mut written.gateways).insert(key.clone(), Arc::new(own.clone()));
        let both = with(&mut rules, &all, &written);
        assert_eq!(**both.gateways.values().next().unwrap(), own);
        let mut none = plain.clone();
        let mut without = || rules.add(std::iter::empty(), &mut none, "cluster.local");
        assert_eq!(without(), None, "all are gone");
        assert_eq!(without(), Some(Changes::default()));
        assert!(none.gateways.is_empty());
    }

    /// Each change of a Service used to make all messages about Ingresses anew.
    #[test]
    fn notes_stay_where_no_ingress_has_a_part_in_a_change() {
        let mut rules = IngressRules::default();
        let mut plain = world("STRICT");
        let mut all = ingresses("a.example");
        let mut notes_with = |all: &Arc<Ingresses>, plain: &World| {
            let mut world = plain.clone();
            let _changes = rules.add([all].into_iter(), &mut world, "cluster.local");
            Arc::clone(rules.notes())
        };
        let first = notes_with(&all, &plain);
        assert_eq!(first.findings.len(), 1, "the Service has no such port");
        Arc::make_mut(&mut plain.services).extend([service("other", 80)]);
        assert!(Arc::ptr_eq(&first, &notes_with(&all, &plain)), "a Service");
        all = Arc::new((*all).clone());
        assert!(
            Arc::ptr_eq(&first, &notes_with(&all, &plain)),
            "another source"
        );
        Arc::make_mut(&mut plain.services).extend([service("web", 80)]);
        assert_eq!(notes_with(&all, &plain).findings.len(), 0);
        let key = ("shop".into(), "front".into());
        Arc::make_mut(&mut all).insert(key, "{".into());
        let unread = notes_with(&all, &plain);
        assert_eq!((unread.findings.len(), unread.generated_from.len()), (1, 0));
    }

    fn service(name: &str, port: u16) -> (ServiceKey, Arc<Service>) {
        let key = ServiceKey::new(&format!("{name}.shop.svc.cluster.local"), "shop");
        let service = Service {
            key: key.clone(),
            registry: Registry::Kubernetes,
            ports: vec![Port {
                name: "http".into(),
                number: port,
                protocol: Protocol::Http,
                target: Target::Number(port),
            }],
            addresses: BTreeMap::new(),
            cluster: "c".into(),
            resolution: Resolution::Static,
            mesh_external: false,
            selector: BTreeMap::new(),
            created: None,
            accounts: BTreeSet::new(),
            prefers_close: false,
            exported_to: Vec::new(),
            balancers: BTreeMap::new(),
        };
        (key, Arc::new(service))
    }

    type Names = BTreeSet<(Arc<str>, Arc<str>)>;

    fn named(changes: &Changes, kind: &'static str) -> Names {
        let names = changes.names(ChangedKind::Configuration(kind)).unwrap();
        names.iter().map(ChangedName::object).collect()
    }

    fn differing<T: PartialEq>(before: &Objects<T>, after: &Objects<T>) -> Names {
        let all = before.keys().chain(after.keys());
        all.filter(|key| before.get(*key) != after.get(*key))
            .cloned()
            .collect()
    }

    /// However many there are.
    #[test]
    fn a_change_reads_the_ingresses_that_have_a_part_in_it() {
        let ingress = |at: usize, path: &str| {
            let backend =
                json!({"service": {"name": format!("web{at}"), "port": {"name": "http"}}});
            let paths = json!([{"path": path, "pathType": "Prefix", "backend": backend}]);
            let ingress = json!({
                "metadata": {"name": format!("front{at}"), "namespace": "shop"},
                "spec": {"rules": [{"host": format!("h{at}.example"), "http": {"paths": paths}}]},
            });
            (
                (Arc::from("shop"), Arc::from(format!("front{at}"))),
                Arc::from(ingress.to_string()),
            )
        };
        let mut all: Ingresses = (0..100).map(|at| ingress(at, "/a")).collect();
        let mut plain = world("DEFAULT");
        plain.services = Arc::new(
            (0..100)
                .map(|at| service(&format!("web{at}"), 80))
                .collect(),
        );
        let mut rules = IngressRules::default();
        let mut earlier = plain.clone();
        // What comes of it is what comes of all at once, and so many Ingresses were read for it. Each rule that differs is named.
        let mut read = |all: &Ingresses, plain: &World| {
            let before = rules.made.as_ref().map_or(0, |made| made.ingresses.read());
            let all = Arc::new(all.clone());
            let mut whole = IngressRules::default();
            let worlds = [&mut rules, &mut whole].map(|rules| {
                let mut world = plain.clone();
                let changes = rules.add([&all].into_iter(), &mut world, "cluster.local");
                (world, changes)
            });
            let [(one, changes), (other, _)] = &worlds;
            if let Some(changes) = changes {
                let named = named(changes, Gateway::NAME);
                assert!(differing(&earlier.gateways, &one.gateways).is_subset(&named));
                let named = self::named(changes, VirtualService::NAME);
                let differing = differing(&earlier.virtual_services, &one.virtual_services);
                assert!(differing.is_subset(&named));
            }
            earlier = one.clone();
            assert_eq!(one.gateways, other.gateways);
            assert_eq!(one.virtual_services, other.virtual_services);
            assert_eq!(rules.notes.messages(), whole.notes.messages());
            assert_eq!(rules.notes.generated_from, whole.notes.generated_from);
            rules.made.as_ref().map_or(0, |made| made.ingresses.read()) - before
        };
        assert_eq!(read(&all, &plain), 200);
        let (key, json) = ingress(7, "/b");
        all.insert(key.clone(), json);
        assert_eq!(read(&all, &plain), 1, "for its host");
        let services = Arc::make_mut(&mut plain.services);
        services.extend([service("other", 80), service("web7", 80)]);
        assert_eq!(read(&all, &plain), 0, "no port has changed");
        Arc::make_mut(&mut plain.services).extend([service("web7", 81)]);
        assert_eq!(read(&all, &plain), 1, "the host whose port it is");
        let (gone, _) = service("web7", 81);
        Arc::make_mut(&mut plain.services).remove(&gone);
        assert_eq!(read(&all, &plain), 1, "and has no more");
        all.insert(key.clone(), "{".into());
        assert_eq!(read(&all, &plain), 0, "it cannot be read");
        all.remove(&key);
        assert_eq!(read(&all, &plain), 0);
        // With another mesh all are read.
        let mut world = plain.clone();
        world.mesh = Arc::new((*plain.mesh).clone());
        let changes = rules.add([&Arc::new(all)].into_iter(), &mut world, "cluster.local");
        assert_eq!(changes, None);
        assert_eq!(rules.made.unwrap().ingresses.read(), 198);
    }
}
