//! The objects of all files together: each of them once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::super::kubernetes::{
    Endpoints, Names, Namespace, Node, Objects, Pod, Problem, Service, Slice,
};
use super::object::{Id, Meaning, Object, SLICES};
use super::{Message, message, name};
use crate::registry::{Contribution, Written};

/// What is made of the objects, kept so that what did not change is the same pointer.
#[derive(Debug)]
pub(in crate::registry) struct Held {
    kubernetes: bool,
    objects: Objects,
    said: Contribution,
    counts: BTreeMap<Arc<str>, usize>,
}

impl Held {
    pub(in crate::registry) fn new(names: Names, kubernetes: bool) -> Self {
        Self {
            kubernetes,
            objects: Objects::new(names),
            said: Contribution::default(),
            counts: BTreeMap::new(),
        }
    }

    pub(in crate::registry) fn set_trust_domain(&mut self, trust_domain: &str) -> Contribution {
        self.objects.set_trust_domain(trust_domain);
        self.said = self.with(self.said.clone());
        self.said.clone()
    }

    /// What is used, by kind.
    pub(in crate::registry) const fn counts(&self) -> &BTreeMap<Arc<str>, usize> {
        &self.counts
    }

    /// All objects, in the order in which one comes before another of its name.
    pub(in crate::registry) fn hold<'a>(
        &mut self,
        all: impl Iterator<Item = (&'a Path, &'a Object)>,
        messages: &mut Vec<Message>,
        written: &mut Vec<Arc<Written>>,
    ) -> Contribution {
        let mut first: BTreeMap<&Id, (&Path, &Object)> = BTreeMap::new();
        let mut unused: BTreeMap<&Path, usize> = BTreeMap::new();
        for (path, object) in all {
            if object.meaning.is_kubernetes() && !self.kubernetes {
                *unused.entry(path).or_default() += 1;
                continue;
            }
            if let Some((other, _)) = first.get(&object.id) {
                let place = if *other == path {
                    "one of this name is there already".to_owned()
                } else {
                    format!("{} has one of this name", name(other))
                };
                let text = format!("{}: not used: {place}", object.id);
                written.extend(object.written.as_deref().map(|one| refused(one, &text)));
                messages.push(message(path, object.line, &text).of(&object.id));
                continue;
            }
            written.extend(object.written.clone());
            first.insert(&object.id, (path, object));
        }
        for (path, count) in unused {
            let text = match count {
                1 => "1 object of Kubernetes is not used: the API server has it".to_owned(),
                count => {
                    format!("{count} objects of Kubernetes are not used: the API server has them")
                }
            };
            messages.push(message(path, 0, &text));
        }
        self.counts.clear();
        for id in first.keys() {
            *self.counts.entry(id.kind.clone()).or_default() += 1;
        }
        self.set(first.values().map(|(_, object)| &object.meaning));
        for problem in self.objects.problems() {
            let id = id(&problem);
            if let Some((path, one)) = first.get(&id) {
                let text = format!("{id}: {}", problem.refusal.words);
                messages.push(message(path, one.line, &text).of(&id));
            }
        }
        self.said.clone()
    }

    fn set<'a>(&mut self, meanings: impl Iterator<Item = &'a Meaning>) {
        let mut said = Contribution::default();
        let mut sorted = Sorted::default();
        for meaning in meanings {
            match meaning {
                Meaning::Configuration(one) => said.configuration.set(one.clone()),
                Meaning::Service(one) => sorted.services.push(one.clone()),
                Meaning::Slice(one) => sorted.slices.push(one.clone()),
                Meaning::Endpoints(one) => sorted.endpoints.push(one.clone()),
                Meaning::Pod(one) => sorted.pods.push(one.clone()),
                Meaning::Machine(one) => sorted.machines.push(one.clone()),
                Meaning::Namespace(one) => sorted.namespaces.push(one.clone()),
                Meaning::Nothing => {}
            }
        }
        self.objects.replace(sorted.machines);
        self.objects.replace(sorted.namespaces);
        self.objects.replace(sorted.pods);
        self.objects.replace(sorted.slices);
        self.objects.replace(sorted.endpoints);
        self.objects.replace(sorted.services);
        self.said = self.with(said);
    }

    /// With what the objects of Kubernetes come to.
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
fn id(problem: &Problem) -> Id {
    let group = match problem.kind {
        "EndpointSlice" => SLICES,
        _ => "",
    };
    Id {
        group: group.into(),
        kind: problem.kind.into(),
        namespace: (*problem.object.namespace).into(),
        name: (*problem.object.name).into(),
    }
}

#[derive(Default)]
struct Sorted {
    services: Vec<Arc<Service>>,
    slices: Vec<Arc<Slice>>,
    endpoints: Vec<Arc<Endpoints>>,
    pods: Vec<Arc<Pod>>,
    machines: Vec<Arc<Node>>,
    namespaces: Vec<Arc<Namespace>>,
}

/// As it is shown when it is not used after all.
fn refused(one: &Written, why: &str) -> Arc<Written> {
    let mut one = one.clone();
    one.accepted = false;
    one.messages.push(why.to_owned());
    Arc::new(one)
}
