//! Ingresses as they come and go. A change makes those objects again that the Ingress has a part in, and reads no Ingress
//! without a part in them: a role that follows thousands of them has a loop to turn meanwhile. A host or a name that thousands
//! share is one object, and costs all that share it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::metadata::CarriedMetadata;
use super::{
    Finding, Generated, Settings, VIRTUAL_SERVICES, gateway, host_of, own_findings,
    virtual_service, with_paths,
};
use crate::Key;
use crate::index::{insert, remove};
use api::kubernetes::Ingress;

/// A result that is made at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    /// The findings about an Ingress itself.
    Ingress(Key),
    /// The Gateway of a name.
    Gateway(String),
    /// The VirtualService of a host.
    Host(String),
}

/// The objects that were made of a target last.
#[derive(Debug, Default)]
struct Made {
    /// The collection and name of the object.
    object: Option<(&'static str, Key)>,
    /// The name of a VirtualService before it was apart from others.
    base: Option<String>,
    findings: Vec<Finding>,
    /// The Services whose ports were looked up by name, existing or not.
    services: BTreeSet<Key>,
}

/// The objects that have changed.
#[derive(Debug, Default, PartialEq)]
pub struct Changes {
    /// Made again, perhaps as they were.
    pub generated: Vec<Generated>,
    /// Collection and name of those that are no longer there.
    pub removed: BTreeSet<(&'static str, Key)>,
}

/// All Ingresses, with the objects that were made of them.
#[derive(Debug)]
pub struct Ingresses {
    settings: Settings,
    /// Those that the settings select.
    all: BTreeMap<Key, Ingress>,
    carried: CarriedMetadata,
    names: BTreeMap<String, BTreeSet<Key>>,
    /// The rules for each host: the Ingress, and the number of the rule.
    hosts: BTreeMap<String, BTreeSet<(Key, usize)>>,
    /// The hosts for which the port of a Service was looked up.
    services: BTreeMap<Key, BTreeSet<String>>,
    /// The hosts whose VirtualServices would have one name.
    bases: BTreeMap<String, BTreeSet<String>>,
    dirty: BTreeSet<Target>,
    made: BTreeMap<Target, Made>,
    read: usize,
}

/// Returns what an Ingress has a part in.
fn targets(key: &Key, ingress: &Ingress) -> impl Iterator<Item = Target> {
    let hosts = ingress.spec.rules.iter().map(host_of);
    let hosts = hosts.map(|host| Target::Host(host.to_owned()));
    let own = [
        Target::Ingress(key.clone()),
        Target::Gateway(key.name.clone()),
    ];
    own.into_iter().chain(hosts)
}

impl Ingresses {
    pub const fn new(settings: Settings) -> Self {
        Self {
            settings,
            all: BTreeMap::new(),
            carried: CarriedMetadata::new(),
            names: BTreeMap::new(),
            hosts: BTreeMap::new(),
            services: BTreeMap::new(),
            bases: BTreeMap::new(),
            dirty: BTreeSet::new(),
            made: BTreeMap::new(),
            read: 0,
        }
    }

    /// Sets or deletes an Ingress. One that differs in its status alone is no change.
    pub fn set(&mut self, key: Key, ingress: Option<Ingress>) {
        let ingress = ingress.filter(|ingress| self.settings.takes(ingress));
        let ingress = ingress.map(|mut ingress| {
            // Controllers write addresses into the status; the resource version is all of that write that is
            // read here.
            ingress.metadata.resource_version.clear();
            ingress
        });
        if self.all.get(&key) == ingress.as_ref() {
            return;
        }
        self.carried.set(&key, ingress.as_ref());
        // Targets of the old and of the new one: a host or name that it leaves has to be made again without
        // it.
        if let Some(old) = self.all.remove(&key) {
            self.dirty.extend(targets(&key, &old));
            remove(&mut self.names, &key.name, &key);
            for (at, rule) in with_paths(&old) {
                remove(&mut self.hosts, host_of(rule), &(key.clone(), at));
            }
        }
        if let Some(new) = ingress {
            self.dirty.extend(targets(&key, &new));
            insert(&mut self.names, &key.name, key.clone());
            for (at, rule) in with_paths(&new) {
                insert(&mut self.hosts, host_of(rule), (key.clone(), at));
            }
            self.all.insert(key, new);
        }
    }

    /// A Service is another one, or gone.
    pub fn service(&mut self, service: &Key) {
        let hosts = self.services.get(service).into_iter().flatten();
        self.dirty.extend(hosts.cloned().map(Target::Host));
    }

    /// The Services that are other ones now, or gone: only those are asked for whose ports were looked up.
    pub fn services(&mut self, is_changed: impl Fn(&Key) -> bool) {
        let changed = self.services.iter().filter(|(key, _)| is_changed(key));
        let hosts = changed.flat_map(|(_, hosts)| hosts.iter().cloned());
        self.dirty.extend(hosts.map(Target::Host));
    }

    /// Everything is to be made again.
    pub fn invalidate_all(&mut self) {
        self.dirty.extend(self.made.keys().cloned());
    }

    pub fn is_changed(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The Ingresses that were read so far to make objects, each time that they were.
    pub const fn read(&self) -> usize {
        self.read
    }

    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.made.values().flat_map(|made| &made.findings)
    }

    /// Transforms the Ingresses that have changed. `port` returns the number of a service's port by its name.
    pub fn changes(&mut self, port: &dyn Fn(&Key, &str) -> Option<u16>) -> Changes {
        let mut generated = BTreeMap::new();
        let mut gone = BTreeSet::new();
        let mut bases = BTreeSet::new();
        for key in self.carried.settle() {
            let ingress = self.all.get(&key);
            let targets = ingress.into_iter().flat_map(|one| targets(&key, one));
            self.dirty.extend(targets);
        }
        // All targets are made before any is numbered: a name's number depends on all hosts that come to it.
        for target in std::mem::take(&mut self.dirty) {
            if let Some(old) = self.made.remove(&target) {
                self.forget(&target, &old);
                bases.extend(old.base);
                gone.extend(old.object);
            }
            let (object, made) = self.make(&target, port);
            bases.extend(made.base.clone());
            generated.extend(object.map(|object| (target.clone(), object)));
            self.keep(target, made);
        }
        for base in bases {
            self.number(&base, port, &mut generated, &mut gone);
        }
        let generated: Vec<Generated> = generated.into_values().collect();
        for one in &generated {
            // The name may have gone to another host: it is set, not removed.
            gone.remove(&(one.collection, one.key.clone()));
        }
        Changes {
            generated,
            removed: gone,
        }
    }

    fn make(
        &mut self,
        target: &Target,
        port: &dyn Fn(&Key, &str) -> Option<u16>,
    ) -> (Option<Generated>, Made) {
        let mut findings = Vec::new();
        let services = RefCell::new(BTreeSet::new());
        let port = |service: &Key, name: &str| {
            services.borrow_mut().insert(service.clone());
            port(service, name)
        };
        let object = match target {
            Target::Ingress(key) => {
                let ingress = self.all.get(key);
                findings.extend(
                    ingress
                        .into_iter()
                        .flat_map(|one| own_findings(key, one, &self.carried)),
                );
                None
            }
            Target::Gateway(name) => {
                let keys = self.names.get(name).into_iter().flatten();
                let of = keys.filter_map(|key| Some((key, self.all.get(key)?)));
                let of: Vec<_> = of.collect();
                self.read = self.read.saturating_add(of.len());
                gateway(name, &of, &self.settings, &self.carried, &mut findings)
            }
            Target::Host(host) => {
                let rules = self.hosts.get(host).into_iter().flatten();
                let of = rules.filter_map(|(key, at)| Some((key, self.all.get(key)?, *at)));
                let of: Vec<_> = of.collect();
                self.read = self.read.saturating_add(of.len());
                virtual_service(
                    host,
                    &of,
                    &self.settings,
                    &self.carried,
                    &port,
                    &mut findings,
                )
            }
        };
        let is_service = |one: &&Generated| one.collection == VIRTUAL_SERVICES;
        let made = Made {
            object: object.as_ref().map(|one| (one.collection, one.key.clone())),
            base: object
                .as_ref()
                .filter(is_service)
                .map(|one| one.key.name.clone()),
            findings,
            services: services.into_inner(),
        };
        (object, made)
    }

    fn forget(&mut self, target: &Target, old: &Made) {
        if let Target::Host(host) = target {
            for service in &old.services {
                remove(&mut self.services, service, host);
            }
            if let Some(base) = &old.base {
                remove(&mut self.bases, base, host);
            }
        }
    }

    fn keep(&mut self, target: Target, made: Made) {
        if let Target::Host(host) = &target {
            for service in &made.services {
                insert(&mut self.services, service, host.clone());
            }
            if let Some(base) = &made.base {
                insert(&mut self.bases, base, host.clone());
            }
        }
        // Services that were looked up keep a target alone: one that comes later makes the target again.
        let is_nothing =
            made.object.is_none() && made.findings.is_empty() && made.services.is_empty();
        if !is_nothing {
            self.made.insert(target, made);
        }
    }

    /// Numbers the VirtualServices of one name, as `apart` does for all.
    fn number(
        &mut self,
        base: &str,
        port: &dyn Fn(&Key, &str) -> Option<u16>,
        generated: &mut BTreeMap<Target, Generated>,
        gone: &mut BTreeSet<(&'static str, Key)>,
    ) {
        let hosts = self.bases.get(base).cloned().unwrap_or_default();
        // The hosts are sorted, as in [`super::transform`]: both give a host the same number.
        for (number, host) in hosts.into_iter().enumerate() {
            let name = match number {
                0 => base.to_owned(),
                number => format!("{base}-{number}"),
            };
            let target = Target::Host(host);
            let known = self.made.get(&target).and_then(|made| made.object.clone());
            let is_new = generated.contains_key(&target);
            if !is_new {
                if known.as_ref().is_some_and(|(_, key)| key.name == name) {
                    continue;
                }
                // It moves up or down, because another one came or went.
                gone.extend(known);
                // Only the name differs: findings and Services are those that are kept already.
                let (object, _) = self.make(&target, port);
                generated.extend(object.map(|object| (target.clone(), object)));
            }
            if let Some(object) = generated.get_mut(&target) {
                object.key.name = name;
                let key = object.key.clone();
                if let Some(made) = self.made.get_mut(&target) {
                    made.object = Some((VIRTUAL_SERVICES, key));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::{IngressControllerMode, transform};
    use super::*;

    fn settings() -> Settings {
        let mut mesh = api::mesh::MeshConfig::default();
        mesh.set_ingress_controller_mode(IngressControllerMode::Default);
        Settings::new(&mesh, "cluster.local")
    }

    fn ingress(hosts: &[&str], port: &Value) -> Ingress {
        let rules = hosts.iter().map(|host| {
            json!({"host": host, "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": port}}},
            ]}})
        });
        let rules: Vec<Value> = rules.collect();
        serde_json::from_value(json!({"spec": {"rules": rules, "tls": [{"hosts": hosts}]}}))
            .unwrap()
    }

    #[test]
    fn a_change_reads_the_ingresses_that_have_a_part_in_it() {
        let mut all = Ingresses::new(settings());
        let number = json!({"number": 80});
        for at in 0..1000 {
            let host = format!("h{at}.example");
            let key = Key::new("shop", format!("web{at}"));
            all.set(key, Some(ingress(&[&host], &number)));
        }
        let none = |_: &Key, _: &str| None;
        assert_eq!(all.changes(&none).generated.len(), 2000);
        let before = all.read();
        let key = Key::new("shop", "web7");
        let mut changed = ingress(&["h7.example"], &number);
        changed.metadata.labels = [("a".to_owned(), "b".to_owned())].into();
        all.set(key.clone(), Some(changed.clone()));
        assert_eq!(all.changes(&none).generated.len(), 2);
        // Once for the Gateway, once for the host.
        assert_eq!(all.read() - before, 2);
        // A status alone is no change.
        changed.metadata.resource_version = "2".to_owned();
        all.set(key.clone(), Some(changed));
        assert!(!all.is_changed());
        all.set(key, None);
        let changes = all.changes(&none);
        assert_eq!((changes.generated.len(), changes.removed.len()), (0, 2));
    }

    /// An Ingress of many hosts would have its annotations in each of their objects.
    #[test]
    fn annotations_of_all_objects_are_bounded() {
        let of = |hosts: usize, annotation: usize| {
            let hosts: Vec<String> = (0..hosts).map(|at| format!("h{at}.example")).collect();
            let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
            let mut ingress = ingress(&hosts, &json!({"number": 80}));
            let pad = ("pad".to_owned(), "x".repeat(annotation));
            ingress.metadata.annotations = [pad].into();
            ingress
        };
        let none = |_: &Key, _: &str| None;
        let annotated = |changes: &Changes| {
            let made = changes.generated.iter();
            made.filter(|one| !one.annotations.is_empty()).count()
        };
        let mut all = Ingresses::new(settings());
        all.set(Key::new("shop", "many"), Some(of(1000, 200_000)));
        let changes = all.changes(&none);
        assert_eq!((changes.generated.len(), annotated(&changes)), (1001, 0));
        let findings: Vec<_> = all.findings().map(|one| &*one.message).collect();
        assert_eq!(
            findings,
            [
                "labels and annotations are not taken over: in its 1001 objects they come to more than 1048576 bytes"
            ]
        );
        // The room of a namespace that one leaves is another's.
        for at in 0..20 {
            all.set(Key::new("room", format!("{at:02}")), Some(of(8, 100_000)));
        }
        all.changes(&none);
        let left = all.findings().filter(|one| one.path == "metadata").count();
        assert_eq!(left, 3);
        all.set(Key::new("room", "00"), None);
        let changes = all.changes(&none);
        let first = changes.generated.iter().find(|one| one.of.name == "18");
        assert_eq!(first.map(|one| one.annotations.len()), Some(1));
        assert_eq!(
            all.findings().filter(|one| one.path == "metadata").count(),
            2
        );
    }

    proptest! {
        /// In whatever order they came and went.
        #[test]
        fn incremental_changes_end_in_the_result_of_a_full_pass(
            steps in prop::collection::vec((0..3_usize, 0..2_usize, 0..10_usize, any::<bool>()), 1..40),
        ) {
            // Names and hosts that come to one name.
            let namespaces = ["n", "n-1", "o"];
            let names = ["c", "b-c"];
            let hosts: [&[&str]; 8] = [
                &[], &["a"], &["a.b"], &["a-b"], &["a.b", "a-b", "a"], &["localhost"], &["", "a"], &["a.b", "a.b"],
            ];
            let mut ingresses = Ingresses::new(settings());
            let mut all: BTreeMap<Key, Ingress> = BTreeMap::new();
            let mut seen: BTreeMap<(&'static str, Key), Generated> = BTreeMap::new();
            let mut is_there = false;
            for (namespace, name, which, looks) in steps {
                let key = Key::new(namespaces[namespace], names[name]);
                match hosts.get(which) {
                    Some(hosts) => {
                        let port = match looks {
                            true => json!({"name": "http"}),
                            false => json!({"number": 80}),
                        };
                        let one = ingress(hosts, &port);
                        ingresses.set(key.clone(), Some(one.clone()));
                        all.insert(key, one);
                    }
                    None if which == 8 => {
                        ingresses.set(key.clone(), None);
                        all.remove(&key);
                    }
                    None => {
                        is_there = !is_there;
                        ingresses.service(&Key::new(namespaces[namespace], "web"));
                        for namespace in namespaces {
                            ingresses.service(&Key::new(namespace, "web"));
                        }
                    }
                }
                let port = |_: &Key, _: &str| is_there.then_some(81);
                let changes = ingresses.changes(&port);
                for key in changes.removed {
                    prop_assert!(seen.remove(&key).is_some(), "{key:?}");
                }
                for one in changes.generated {
                    seen.insert((one.collection, one.key.clone()), one);
                }
                let whole = transform(&all, &settings(), &port);
                let expected: Vec<_> = whole.generated.iter().collect();
                prop_assert_eq!(seen.values().collect::<Vec<_>>(), expected);
                let mut findings: Vec<String> = ingresses.findings().map(|one| format!("{one:?}")).collect();
                let mut whole: Vec<String> = whole.findings.iter().map(|one| format!("{one:?}")).collect();
                findings.sort();
                whole.sort();
                prop_assert_eq!(findings, whole);
            }
        }
    }
}
