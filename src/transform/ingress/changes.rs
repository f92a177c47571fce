//! Ingresses as they come and go. A change makes those objects again that the Ingress has a part in, and reads no Ingress
//! without a part in them: a role that follows thousands of Ingresses must not stall meanwhile. A host or a name that thousands
//! share is one object, and costs all that share it. An Ingress of thousands of hosts is made in turns, so that other objects do not
//! wait for all of it; the turns go in rounds, so that an Ingress that changes all the time does not keep the others from theirs.
//! Only hosts of one name are renamed in the turn of another, and of these few.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::gateway::gateway;
use super::metadata::CarriedMetadata;
use super::names::{SharedNames, base_name};
use super::targets::{Target, changed_targets, differing_rules, target_named, targets};
use super::virtual_service::virtual_service;
use super::{
    Context, Finding, GATEWAYS, Generated, Settings, VIRTUAL_SERVICES, has_paths, host_of,
    own_findings,
};
use crate::Key;
use crate::index::{insert, remove};
use crate::rounds::Rounds;
use api::kubernetes::Ingress;

/// The last outcome of a target.
#[derive(Debug, Default)]
struct TargetOutcome {
    /// The collection and name of the object.
    object: Option<(&'static str, Key)>,
    /// The name of a VirtualService before it was apart from those of other hosts.
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
    shared_names: SharedNames,
    dirty: Rounds<Target>,
    outcomes: BTreeMap<Target, TargetOutcome>,
    read: usize,
}

/// The objects of one turn.
#[derive(Default)]
struct TurnOutcome {
    generated: BTreeMap<Target, Generated>,
    removed: BTreeSet<(&'static str, Key)>,
    /// The hosts that were made, by the names that they share. The hosts of these names may have other numbers now.
    base_names: BTreeMap<String, BTreeSet<String>>,
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
            shared_names: SharedNames::new(),
            dirty: Rounds::new(),
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
        let old = self.all.remove(&key);
        let (before, after) = (old.as_ref(), ingress.as_ref());
        self.dirty.extend(changed_targets(&key, before, after));
        for (at, before, after) in differing_rules(before, after) {
            if let Some(rule) = before.filter(|rule| has_paths(rule)) {
                remove(&mut self.hosts, host_of(rule), &(key.clone(), at));
            }
            if let Some(rule) = after.filter(|rule| has_paths(rule)) {
                insert(&mut self.hosts, host_of(rule), (key.clone(), at));
            }
        }
        match ingress {
            Some(ingress) => {
                insert(&mut self.names, &key.name, key.clone());
                self.all.insert(key, ingress);
            }
            None => remove(&mut self.names, &key.name, &key),
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

    /// Marks the object of this collection and name, to make it again.
    pub fn invalidate(&mut self, collection: &str, key: &Key) {
        let target = match collection {
            GATEWAYS => target_named(&key.name),
            _ => self.host_named(&key.name).cloned().map(Target::Host),
        };
        self.dirty.extend(target);
    }

    /// Returns the host of a VirtualService's name.
    fn host_named(&self, name: &str) -> Option<&String> {
        let mut hosts = self.shared_names.hosts(base_name(name)?);
        hosts.find(|host| {
            let outcome = self.outcomes.get(&Target::Host((*host).clone()));
            let object = outcome.and_then(|outcome| outcome.object.as_ref());
            object.is_some_and(|(_, key)| key.name == name)
        })
    }

    pub fn is_changed(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Returns true if all objects have been made once: those of Ingresses that were there when the first was made.
    pub fn has_generated_all(&self) -> bool {
        self.dirty.has_ended_one()
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
        self.changes_until(&|| false, port)
    }

    /// As [`Self::changes`], for a turn: objects are made until `is_over`, but at least one. The others stay as they are until a later
    /// turn, and [`Self::is_changed`] until then.
    pub fn changes_until(
        &mut self,
        is_over: &dyn Fn() -> bool,
        port: &dyn Fn(&Key, &str) -> Option<u16>,
    ) -> Changes {
        let mut turn_outcome = TurnOutcome::default();
        for key in self.carried.assign_room() {
            let ingress = self.all.get(&key);
            let targets = ingress.into_iter().flat_map(|one| targets(&key, one));
            self.dirty.extend(targets);
        }
        // All targets are made before any is named: the number depends on all hosts that share the name.
        while let Some(target) = self.dirty.pop_first() {
            self.regenerate(target, port, &mut turn_outcome);
            if is_over() {
                break;
            }
        }
        for (base, hosts) in std::mem::take(&mut turn_outcome.base_names) {
            self.assign_names(&base, hosts, port, &mut turn_outcome);
        }
        let TurnOutcome {
            generated,
            mut removed,
            ..
        } = turn_outcome;
        let generated: Vec<Generated> = generated.into_values().collect();
        for one in &generated {
            // The name may have gone to another host: it is set, not removed.
            removed.remove(&(one.collection, one.key.clone()));
        }
        Changes { generated, removed }
    }

    /// Makes the object of a target in place of the last one.
    fn regenerate(
        &mut self,
        target: Target,
        port: &dyn Fn(&Key, &str) -> Option<u16>,
        turn_outcome: &mut TurnOutcome,
    ) {
        if let Some(old) = self.outcomes.remove(&target) {
            self.forget(&target, &old);
            if let Some(base) = old.base_name {
                turn_outcome.base_names.entry(base).or_default();
            }
            turn_outcome.removed.extend(old.object);
        }
        let (object, outcome) = self.make(&target, port);
        if let (Some(base), Target::Host(host)) = (&outcome.base_name, &target) {
            insert(&mut turn_outcome.base_names, base, host.clone());
        }
        let object = object.map(|object| (target.clone(), object));
        turn_outcome.generated.extend(object);
        self.remember(target, outcome);
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
                self.shared_names.remove(base, host);
            }
        }
    }

    fn remember(&mut self, target: Target, outcome: TargetOutcome) {
        if let Target::Host(host) = &target {
            for service in &outcome.services {
                insert(&mut self.services, service, host.clone());
            }
            if let Some(base) = &outcome.base_name {
                self.shared_names.insert(base, host);
            }
        }
        // A target without an object stays for the Services that it looked up: a Service that comes later makes it again.
        let is_empty =
            outcome.object.is_none() && outcome.findings.is_empty() && outcome.services.is_empty();
        if !is_empty {
            self.outcomes.insert(target, outcome);
        }
    }

    /// Names the VirtualServices of hosts that share a name, of which some were made again.
    fn assign_names(
        &mut self,
        base: &str,
        regenerated: BTreeSet<String>,
        port: &dyn Fn(&Key, &str) -> Option<u16>,
        turn_outcome: &mut TurnOutcome,
    ) {
        let (dirty, outcomes) = (&self.dirty, &self.outcomes);
        let current_name = |host: &str| {
            let target = Target::Host(host.to_owned());
            let is_later = dirty.contains(&target);
            let outcome = outcomes.get(&target).filter(|_| is_later)?;
            outcome.object.as_ref().map(|(_, key)| key.name.clone())
        };
        for (host, name) in self.shared_names.assign(base, regenerated, current_name) {
            self.set_name(&Target::Host(host), name, port, turn_outcome);
        }
    }

    /// Names the VirtualService of a host that has not changed since it was made.
    fn set_name(
        &mut self,
        target: &Target,
        name: String,
        port: &dyn Fn(&Key, &str) -> Option<u16>,
        turn_outcome: &mut TurnOutcome,
    ) {
        if !turn_outcome.generated.contains_key(target) {
            let outcome = self.outcomes.get(target);
            let known = outcome.and_then(|outcome| outcome.object.clone());
            if known.as_ref().is_some_and(|(_, key)| key.name == name) {
                return;
            }
            turn_outcome.removed.extend(known);
            // Only the name differs: the known findings and Services still hold.
            let (object, _) = self.make(target, port);
            let object = object.map(|object| (target.clone(), object));
            turn_outcome.generated.extend(object);
        }
        if let Some(object) = turn_outcome.generated.get_mut(target) {
            object.key.name = name;
            let key = object.key.clone();
            if let Some(outcome) = self.outcomes.get_mut(target) {
                outcome.object = Some((VIRTUAL_SERVICES, key));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::names::MAX_NUMBERED;
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

    /// One host of an Ingress with a thousand of them.
    #[test]
    fn a_changed_rule_makes_the_object_of_its_host_alone() {
        let names: Vec<String> = (0..1000).map(|at| format!("h{at}.example")).collect();
        let hosts: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut all = Ingresses::new(settings());
        let none = |_: &Key, _: &str| None;
        let key = Key::new("shop", "web");
        let mut one = ingress(&hosts, &json!({"number": 80}));
        all.set(key.clone(), Some(one.clone()));
        assert_eq!(all.changes(&none).generated.len(), 1001);
        let mut generated = |change: &dyn Fn(&mut Ingress)| {
            let before = all.read();
            change(&mut one);
            all.set(key.clone(), Some(one.clone()));
            let changes = all.changes(&none);
            let read = all.read() - before;
            (changes.generated.len(), changes.removed.len(), read)
        };
        let other = |one: &mut Ingress| one.spec.rules[7].http.paths[0].path = "/other".to_owned();
        assert_eq!(generated(&other), (1, 0, 1));
        let renamed = |one: &mut Ingress| one.spec.rules[7].host = "other.example".to_owned();
        assert_eq!(generated(&renamed), (1, 1, 1));
        assert_eq!(generated(&|one| drop(one.spec.rules.pop())), (0, 1, 0));
        assert_eq!(generated(&|one| drop(one.spec.tls.pop())), (1, 0, 1));
        let written = |one: &mut Ingress| one.metadata.generation = 2;
        assert_eq!(generated(&written), (0, 0, 0));
        let labelled = |one: &mut Ingress| drop(one.metadata.labels.insert("a".into(), "b".into()));
        assert_eq!(generated(&labelled), (1000, 0, 1000));
    }

    #[test]
    fn a_turn_ends_when_it_is_over_and_the_next_one_goes_on() {
        let names: Vec<String> = (0..100).map(|at| format!("h{at}.example")).collect();
        let hosts: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut all = Ingresses::new(settings());
        all.set(
            Key::new("shop", "web"),
            Some(ingress(&hosts, &json!({"number": 80}))),
        );
        let none = |_: &Key, _: &str| None;
        let mut turns = Vec::new();
        while all.is_changed() {
            turns.push(all.changes_until(&|| true, &none).generated.len());
        }
        // The findings of the Ingress, then an object each.
        let expected: Vec<_> = std::iter::once(0)
            .chain(std::iter::repeat_n(1, 101))
            .collect();
        assert_eq!(turns, expected);
    }

    /// Returns all hosts of so many letters, joined by dots or dashes.
    fn joined(letters: usize) -> Vec<String> {
        let mut all = vec!["x".to_owned()];
        for _ in 1..letters {
            let longer = all
                .iter()
                .flat_map(|host| ["-", "."].map(|joint| format!("{host}{joint}x")));
            all = longer.collect();
        }
        all
    }

    /// Each host that came or went renamed all that share its name: strangers choose these, and the engine stood still for a second.
    #[test]
    fn a_host_that_shares_its_name_with_thousands_renames_few() {
        let hosts = joined(14);
        assert_eq!(hosts.len(), 8192);
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let key = Key::new("shop", "web");
        let none = |_: &Key, _: &str| None;
        let mut all = Ingresses::new(settings());
        let mut names: BTreeSet<Key> = BTreeSet::new();
        let mut turns = |all: &mut Ingresses| {
            let mut max = 0;
            while all.is_changed() {
                let Changes { generated, removed } = all.changes_until(&|| true, &none);
                max = max.max(generated.len() + removed.len());
                removed
                    .iter()
                    .for_each(|(_, key)| assert!(names.remove(key)));
                names.extend(generated.into_iter().map(|one| one.key));
            }
            (max, names.len())
        };
        let mut one = ingress(&hosts, &json!({"number": 80}));
        one.spec.tls.clear();
        all.set(key.clone(), Some(one.clone()));
        // One that comes makes hashes of all numbers.
        let bound = 2 * MAX_NUMBERED + 1;
        assert_eq!(turns(&mut all), (bound, 8193));
        one.spec.rules[0].http.paths.clear();
        all.set(key.clone(), Some(one.clone()));
        assert_eq!(turns(&mut all), (1, 8192));
        all.set(key, None);
        let (max, left) = turns(&mut all);
        assert!(max <= bound && left == 0, "{max} {left}");
    }

    #[test]
    fn a_host_that_changes_all_the_time_keeps_no_other_waiting() {
        let names: Vec<String> = (0..20).map(|at| format!("h{at:02}.example")).collect();
        let hosts: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut all = Ingresses::new(settings());
        let key = Key::new("shop", "web");
        let mut one = ingress(&hosts, &json!({"number": 80}));
        let none = |_: &Key, _: &str| None;
        let mut generated = BTreeSet::new();
        // The findings, the Gateway and the hosts.
        for turn in 0..22 {
            assert!(!all.has_generated_all() || turn == 0);
            one.spec.rules[0].http.paths[0].path = format!("/{turn}");
            all.set(key.clone(), Some(one.clone()));
            let changes = all.changes_until(&|| true, &none);
            generated.extend(changes.generated.into_iter().map(|one| one.key.name));
        }
        assert_eq!(generated.len(), 21);
        assert!(all.has_generated_all());
    }

    #[test]
    fn an_object_is_made_again_by_its_name() {
        let mut all = Ingresses::new(settings());
        let one = ingress(&["a.b", "a-b", "c"], &json!({"number": 80}));
        all.set(Key::new("shop", "web"), Some(one));
        let none = |_: &Key, _: &str| None;
        for generated in all.changes(&none).generated {
            all.invalidate(generated.collection, &generated.key);
            assert_eq!(all.changes(&none).generated, [generated]);
        }
        all.invalidate(VIRTUAL_SERVICES, &Key::new("istio-system", "x"));
        assert!(!all.is_changed());
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
            let generated = changes.generated.iter();
            generated.filter(|one| !one.annotations.is_empty()).count()
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
        /// For any sequence of changes, made in any number of turns.
        #[test]
        fn incremental_changes_end_in_the_result_of_a_full_pass(
            turns in prop::collection::vec(0..4_usize, 40),
            steps in prop::collection::vec((0..3_usize, 0..2_usize, 0..12_usize, any::<bool>()), 1..40),
        ) {
            // Names and hosts that come to one name.
            let namespaces = ["n", "n-1", "o"];
            let names = ["c", "b-c"];
            let many = joined(6);
            let many: Vec<&str> = many.iter().map(String::as_str).collect();
            let hosts: [&[&str]; 10] = [
                &[], &["a"], &["a.b"], &["a-b"], &["a.b", "a-b", "a"], &["localhost"], &["", "a"], &["a.b", "a.b"],
                &many[..MAX_NUMBERED + 4], &many[8..MAX_NUMBERED + 2],
            ];
            let mut ingresses = Ingresses::new(settings());
            let mut all: BTreeMap<Key, Ingress> = BTreeMap::new();
            let mut seen: BTreeMap<(&'static str, Key), Generated> = BTreeMap::new();
            let mut is_there = false;
            for ((namespace, name, which, looks), turns) in steps.into_iter().zip(turns) {
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
                    None if which == 10 => {
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
                // The last of the turns may be left to the next step.
                for turn in 0..turns {
                    let changes = match turn {
                        2 => ingresses.changes(&port),
                        _ => ingresses.changes_until(&|| true, &port),
                    };
                    for key in changes.removed {
                        prop_assert!(seen.remove(&key).is_some(), "{key:?}");
                    }
                    for one in changes.generated {
                        seen.insert((one.collection, one.key.clone()), one);
                    }
                }
                if ingresses.is_changed() {
                    continue;
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
