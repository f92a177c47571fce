//! Ingresses as Gateways and VirtualServices of the world (discovery.md §16), by the same transform as galley publishes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::mesh::MeshConfig;
use api::model::{Objects, Service, ServiceKey, World};
use api::networking::{Gateway, NetworkingKind as _, VirtualService};
use cluster::registry::kubernetes::Ingresses;
use cluster::registry::{AnyConfigured, Configuration};
use tracing::warn;
use transform::Key;
use transform::ingress::{GATEWAYS, Generated, Settings, transform};
use transform::kubernetes::Ingress;

/// The objects that rules are made of.
#[derive(Debug)]
struct IngressInputs {
    ingresses: Vec<Arc<Ingresses>>,
    services: Arc<BTreeMap<ServiceKey, Arc<Service>>>,
    mesh: Arc<MeshConfig>,
}

impl IngressInputs {
    fn is(&self, other: &Self) -> bool {
        let mut pairs = self.ingresses.iter().zip(&other.ingresses);
        self.ingresses.len() == other.ingresses.len()
            && pairs.all(|(one, other)| Arc::ptr_eq(one, other))
            && Arc::ptr_eq(&self.services, &other.services)
            && Arc::ptr_eq(&self.mesh, &other.mesh)
    }
}

/// Objects of one kind, with what was made beside them.
#[derive(Debug)]
struct Joint<T> {
    /// As they are written.
    written: Arc<Objects<T>>,
    all: Arc<Objects<T>>,
}

impl<T> Default for Joint<T> {
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
    inputs: Option<IngressInputs>,
    made: Configuration,
    gateways: Joint<Gateway>,
    virtual_services: Joint<VirtualService>,
    /// Findings that were logged already.
    said: BTreeSet<String>,
    notes: IngressNotes,
}

/// Kind, namespace and name of an object.
type MadeName = (Arc<str>, Arc<str>, Arc<str>);

/// Messages about Ingresses, and the Ingress that each made object comes from.
#[derive(Clone, Debug, Default)]
pub(crate) struct IngressNotes {
    /// Parts that nothing is made of.
    pub(crate) findings: BTreeMap<Key, BTreeSet<String>>,
    /// The first Ingress of each object, by kind, namespace and name.
    pub(crate) made_of: BTreeMap<MadeName, Key>,
}

impl IngressNotes {
    fn add(&mut self, ingress: &Key, words: String) {
        self.findings
            .entry(ingress.clone())
            .or_default()
            .insert(words);
    }

    /// As a line each.
    fn lines(&self) -> BTreeSet<String> {
        let all = self.findings.iter();
        let all = all.flat_map(|(key, words)| words.iter().map(move |words| (key, words)));
        all.map(|(key, words)| format!("Ingress {key}: {words}"))
            .collect()
    }
}

impl IngressRules {
    pub(super) const fn notes(&self) -> &IngressNotes {
        &self.notes
    }

    /// Puts them into a world, where nobody has written objects of their names.
    pub(super) fn add<'a>(
        &mut self,
        ingresses: impl Iterator<Item = &'a Arc<Ingresses>>,
        world: &mut World,
        domain: &str,
    ) {
        let inputs = IngressInputs {
            ingresses: ingresses.cloned().collect(),
            services: Arc::clone(&world.services),
            mesh: Arc::clone(&world.mesh),
        };
        if inputs.ingresses.is_empty() {
            *self = Self::default();
            return;
        }
        let mut is_new = false;
        if !self.inputs.as_ref().is_some_and(|known| known.is(&inputs)) {
            let made = self.made(&inputs, domain);
            is_new = made != self.made;
            if is_new {
                self.made = made;
            }
            self.inputs = Some(inputs);
        }
        self.gateways
            .join(&mut world.gateways, &self.made.gateways, is_new);
        let made = &self.made.virtual_services;
        self.virtual_services
            .join(&mut world.virtual_services, made, is_new);
    }

    fn made(&mut self, inputs: &IngressInputs, domain: &str) -> Configuration {
        let mut notes = IngressNotes::default();
        let mut all = BTreeMap::new();
        for (key, json) in inputs.ingresses.iter().flat_map(|all| all.iter()) {
            let key = Key::new(&*key.0, &*key.1);
            match serde_json::from_str::<Ingress>(json) {
                Ok(ingress) => drop(all.entry(key).or_insert(ingress)),
                Err(cause) => notes.add(&key, format!("cannot read it: {cause}")),
            }
        }
        let port = |service: &Key, name: &str| {
            let host = format!("{}.{}.svc.{domain}", service.name, service.namespace);
            let key = ServiceKey::new(&host, &service.namespace);
            let found = inputs.services.get(&key)?;
            let mut ports = found.ports.iter();
            ports
                .find(|port| *port.name == *name)
                .map(|port| port.number)
        };
        let settings = Settings::new(&inputs.mesh, domain);
        let outcome = transform(&all, &settings, &port);
        for finding in outcome.findings {
            let words = format!("{}: {}", finding.path, finding.message);
            notes.add(&finding.ingress, words);
        }
        let mut made = Configuration::default();
        for one in &outcome.generated {
            let kind = match one.collection {
                GATEWAYS => Gateway::NAME,
                _ => VirtualService::NAME,
            };
            let (namespace, name) = (&*one.key.namespace, &*one.key.name);
            let key = (kind.into(), namespace.into(), name.into());
            notes.made_of.insert(key, one.of.clone());
            match configured(one) {
                Ok(object) => made.set(object),
                Err(cause) => notes.add(&one.of, format!("nothing is made of it: {cause}")),
            }
        }
        let said = notes.lines();
        for words in said.difference(&self.said) {
            warn!("{words}");
        }
        self.said = said;
        self.notes = notes;
        made
    }
}

/// An object as a user would have written it.
fn configured(one: &Generated) -> Result<AnyConfigured, String> {
    let (object, findings) = one.object();
    if let Some(error) = findings.iter().find(|finding| finding.is_error()) {
        return Err(error.to_string());
    }
    let object = object.ok_or("it is no object")?;
    let created = one.create_time.map(|time| time.seconds);
    AnyConfigured::of(&object, created)?.ok_or_else(|| "discovery does not act on it".to_owned())
}

impl<T: Clone + PartialEq> Joint<T> {
    fn join(&mut self, written: &mut Arc<Objects<T>>, made: &Arc<Objects<T>>, is_new: bool) {
        if is_new || !Arc::ptr_eq(&self.written, written) {
            let mut all = (**written).clone();
            for (key, one) in made.iter() {
                all.entry(key.clone()).or_insert_with(|| Arc::clone(one));
            }
            if *self.all != all {
                self.all = Arc::new(all);
            }
            self.written = Arc::clone(written);
        }
        *written = Arc::clone(&self.all);
    }
}

#[cfg(test)]
mod tests {
    use api::mesh;
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
            rules.add(
                [&ingresses("a.example")].into_iter(),
                &mut world,
                "cluster.local",
            );
            assert_eq!(world.gateways.len(), count, "{mode}");
            assert!(names(&world.gateways).iter().all(|name| name == gateway));
        }
    }

    #[test]
    fn what_did_not_change_is_the_same_and_what_somebody_wrote_counts() {
        let mut rules = IngressRules::default();
        let plain = world("STRICT");
        let all = ingresses("a.example");
        let with = |rules: &mut IngressRules, all: &Arc<Ingresses>, plain: &World| {
            let mut world = plain.clone();
            rules.add([all].into_iter(), &mut world, "cluster.local");
            world
        };
        // A port by name is one that the Service has, and there is none: said, and left out.
        let first = with(&mut rules, &all, &plain);
        assert_eq!((first.gateways.len(), first.virtual_services.len()), (1, 0));
        assert_eq!(rules.said.len(), 1);
        let notes = rules.notes();
        let of: Vec<_> = notes.findings.keys().map(ToString::to_string).collect();
        assert_eq!(of, ["shop/front"]);
        let made: Vec<_> = notes.made_of.values().map(ToString::to_string).collect();
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
        rules.add(std::iter::empty(), &mut none, "cluster.local");
        assert!(none.gateways.is_empty());
    }
}
