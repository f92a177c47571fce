//! Ingresses as they come and go. A change makes those objects again that the Ingress has a part in, and reads no Ingress
//! without a part in them: a role that follows thousands of Ingresses must not stall meanwhile. A host or a name that thousands
//! share is one object, and costs all that share it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::gateway::gateway;
use super::metadata::CarriedMetadata;
use super::virtual_service::virtual_service;
use super::{
    Context, Finding, Generated, Settings, VIRTUAL_SERVICES, host_of, own_findings, with_paths,
};
use crate::Key;
use crate::index::{insert, remove};
use api::kubernetes::Ingress;

/// A unit of work: the objects or findings that are made together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    /// The findings about an Ingress itself.
    Ingress(Key),
    /// The Gateway of all Ingresses of a name.
    Name(String),
    /// The VirtualService of a host.
    Host(String),
}

/// The last outcome of a target.
#[derive(Debug, Default)]
struct TargetOutcome {
    /// The collection and name of the object.
    object: Option<(&'static str, Key)>,
    /// The name of a VirtualService before it was numbered.
    base_name: Option<String>,
    findings: Vec<Finding>,
    /// The Services whose ports were looked up by name, existing or not.
    services: BTreeSet<Key>,
}

/// The objects that have changed.
#[derive(Debug, Default, PartialEq)]
pub struct Changes {
    /// The objects that were made again, perhaps equal to their predecessors.
    pub generated: Vec<Generated>,
    /// The collections and names of the objects that are no longer there.
    pub removed: BTreeSet<(&'static str, Key)>,
}

/// All Ingresses, with the objects that were made of them.
#[derive(Debug)]
pub struct Ingresses {
    settings: Settings,
    /// The Ingresses that the settings select.
    all: BTreeMap<Key, Ingress>,
    carried: CarriedMetadata,
    names: BTreeMap<String, BTreeSet<Key>>,
    /// The rules for each host: the Ingress, and the number of the rule.
    hosts: BTreeMap<String, BTreeSet<(Key, usize)>>,
    /// The hosts for which the port of a Service was looked up.
    services: BTreeMap<Key, BTreeSet<String>>,
    /// The hosts whose VirtualServices would have one name.
    hosts_of_base_name: BTreeMap<String, BTreeSet<String>>,
    dirty: BTreeSet<Target>,
    outcomes: BTreeMap<Target, TargetOutcome>,
    read: usize,
}

/// Returns the targets that an Ingress has a part in.
fn targets(key: &Key, ingress: &Ingress) -> impl Iterator<Item = Target> {
    let hosts = ingress.spec.rules.iter().map(host_of);
    let hosts = hosts.map(|host| Target::Host(host.to_owned()));
    let own = [Target::Ingress(key.clone()), Target::Name(key.name.clone())];
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
            hosts_of_base_name: BTreeMap::new(),
            dirty: BTreeSet::new(),
            outcomes: BTreeMap::new(),
            read: 0,
        }
    }

    /// Sets or deletes an Ingress. A difference in the status alone is no change.
    pub fn set(&mut self, key: Key, ingress: Option<Ingress>) {
        let ingress = ingress.filter(|ingress| self.settings.takes(ingress));
        let ingress = ingress.map(|mut ingress| {
            // Controllers write addresses into the status, which is not read here; each write changes the resource version.
            ingress.metadata.resource_version.clear();
            ingress
        });
        if self.all.get(&key) == ingress.as_ref() {
            return;
        }
        self.carried.set(&key, ingress.as_ref());
        // The targets of both versions: a host or name that the Ingress leaves is made again without it.
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

    /// Marks the hosts whose routes looked up a port of a Service, which has changed or is gone.
    pub fn service(&mut self, service: &Key) {
        let hosts = self.services.get(service).into_iter().flatten();
        self.dirty.extend(hosts.cloned().map(Target::Host));
    }

    /// As [`Self::service`], for all Services for which `is_changed` returns true: it is asked only about Services whose ports were
    /// looked up.
    pub fn services(&mut self, is_changed: impl Fn(&Key) -> bool) {
        let changed = self.services.iter().filter(|(key, _)| is_changed(key));
        let hosts = changed.flat_map(|(_, hosts)| hosts.iter().cloned());
        self.dirty.extend(hosts.map(Target::Host));
    }

    /// Marks all targets, to make them again.
    pub fn invalidate_all(&mut self) {
        self.dirty.extend(self.outcomes.keys().cloned());
    }

    pub fn is_changed(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Counts how often Ingresses were read to make objects.
    pub const fn read(&self) -> usize {
        self.read
    }

    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.outcomes.values().flat_map(|outcome| &outcome.findings)
    }

    /// Transforms the Ingresses that have changed. `port` returns the number of a service's port by its name.
    pub fn changes(&mut self, port: &dyn Fn(&Key, &str) -> Option<u16>) -> Changes {
        let mut generated = BTreeMap::new();
        let mut removed = BTreeSet::new();
        let mut base_names = BTreeSet::new();
        for key in self.carried.assign_room() {
            let ingress = self.all.get(&key);
            let targets = ingress.into_iter().flat_map(|one| targets(&key, one));
            self.dirty.extend(targets);
        }
        // All targets are made before any is numbered: the number depends on all hosts that have the name.
        for target in std::mem::take(&mut self.dirty) {
            if let Some(old) = self.outcomes.remove(&target) {
                self.forget(&target, &old);
                base_names.extend(old.base_name);
                removed.extend(old.object);
            }
            let (object, outcome) = self.make(&target, port);
            base_names.extend(outcome.base_name.clone());
            generated.extend(object.map(|object| (target.clone(), object)));
            self.remember(target, outcome);
        }
        for base_name in base_names {
            self.number(&base_name, port, &mut generated, &mut removed);
        }
        let generated: Vec<Generated> = generated.into_values().collect();
        for one in &generated {
            // The name may have gone to another host: it is set, not removed.
            removed.remove(&(one.collection, one.key.clone()));
        }
        Changes { generated, removed }
    }

    fn make(
        &mut self,
        target: &Target,
        port: &dyn Fn(&Key, &str) -> Option<u16>,
    ) -> (Option<Generated>, TargetOutcome) {
        let mut findings = Vec::new();
        let services = RefCell::new(BTreeSet::new());
        let port = |service: &Key, name: &str| {
            services.borrow_mut().insert(service.clone());
            port(service, name)
        };
        let context = Context {
            settings: &self.settings,
            carried: &self.carried,
            port: &port,
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
            Target::Name(name) => {
                let keys = self.names.get(name).into_iter().flatten();
                let of = keys.filter_map(|key| Some((key, self.all.get(key)?)));
                let of: Vec<_> = of.collect();
                self.read = self.read.saturating_add(of.len());
                gateway(name, &of, context, &mut findings)
            }
            Target::Host(host) => {
                let rules = self.hosts.get(host).into_iter().flatten();
                let of = rules.filter_map(|(key, at)| Some((key, self.all.get(key)?, *at)));
                let of: Vec<_> = of.collect();
                self.read = self.read.saturating_add(of.len());
                virtual_service(host, &of, context, &mut findings)
            }
        };
        let is_service = |one: &&Generated| one.collection == VIRTUAL_SERVICES;
        let outcome = TargetOutcome {
            object: object.as_ref().map(|one| (one.collection, one.key.clone())),
            base_name: object
                .as_ref()
                .filter(is_service)
                .map(|one| one.key.name.clone()),
            findings,
            services: services.into_inner(),
        };
        (object, outcome)
    }

    fn forget(&mut self, target: &Target, old: &TargetOutcome) {
        if let Target::Host(host) = target {
            for service in &old.services {
                remove(&mut self.services, service, host);
            }
            if let Some(base) = &old.base_name {
                remove(&mut self.hosts_of_base_name, base, host);
            }
        }
    }

    fn remember(&mut self, target: Target, outcome: TargetOutcome) {
        if let Target::Host(host) = &target {
            for service in &outcome.services {
                insert(&mut self.services, service, host.clone());
            }
            if let Some(base) = &outcome.base_name {
                insert(&mut self.hosts_of_base_name, base, host.clone());
            }
        }
        // A target without an object stays for the Services that it looked up: a Service that comes later makes it again.
        let is_empty =
            outcome.object.is_none() && outcome.findings.is_empty() && outcome.services.is_empty();
        if !is_empty {
            self.outcomes.insert(target, outcome);
        }
    }

    /// Makes the names of VirtualServices unique. Two hosts may have one name: `a.b` and `a-b` of one Ingress, or `a.b` of an
    /// Ingress `c` and `a` of `b-c`. From the second host on a number follows the name, and no host's name ends in a number, so
    /// no VirtualService is lost.
    fn number(
        &mut self,
        base: &str,
        port: &dyn Fn(&Key, &str) -> Option<u16>,
        generated: &mut BTreeMap<Target, Generated>,
        removed: &mut BTreeSet<(&'static str, Key)>,
    ) {
        let hosts = self
            .hosts_of_base_name
            .get(base)
            .cloned()
            .unwrap_or_default();
        // The hosts are sorted: a host has the same number in every order of arrival.
        for (number, host) in hosts.into_iter().enumerate() {
            let name = match number {
                0 => base.to_owned(),
                number => format!("{base}-{number}"),
            };
            let target = Target::Host(host);
            let known = self.outcomes.get(&target);
            let known = known.and_then(|outcome| outcome.object.clone());
            let is_new = generated.contains_key(&target);
            if !is_new {
                if known.as_ref().is_some_and(|(_, key)| key.name == name) {
                    continue;
                }
                // The host moves up or down, because another host came or went.
                removed.extend(known);
                // Only the name differs: the known findings and Services still hold.
                let (object, _) = self.make(&target, port);
                generated.extend(object.map(|object| (target.clone(), object)));
            }
            if let Some(object) = generated.get_mut(&target) {
                object.key.name = name;
                let key = object.key.clone();
                if let Some(outcome) = self.outcomes.get_mut(&target) {
                    outcome.object = Some((VIRTUAL_SERVICES, key));
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
        /// For any sequence of changes.
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
