//! Objects of Kubernetes' own kinds that another role reads, with its rules, in files.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::config::{Change, Entry, Plain};
use cluster::registry::kubernetes::{Ingresses, Objects, Problem};
use cluster::registry::{Contribution, ObjectKey};
use tracing::warn;

/// What they come to.
#[derive(Debug)]
pub(super) struct OfFiles {
    pub(super) objects: Objects,
    /// Rules are made of them.
    ingresses: Arc<Ingresses>,
    /// An API server has services: those of files are not used, which is said once.
    is_ignored: bool,
    was_said: bool,
    /// What was said of what is wrong with them.
    problems: BTreeSet<Problem>,
}

impl OfFiles {
    pub(super) fn new(objects: Objects, is_ignored: bool) -> Self {
        Self {
            objects,
            ingresses: Arc::default(),
            is_ignored,
            was_said: false,
            problems: BTreeSet::new(),
        }
    }

    pub(super) fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Set(id, Entry::Plain { kind, .. })
                    if self.is_ignored && *kind != Plain::Ingress =>
                {
                    if !std::mem::replace(&mut self.was_said, true) {
                        warn!(
                            "{id} and others of Kubernetes are not used: the API server has them"
                        );
                    }
                }
                Change::Set(id, Entry::Plain { kind, json }) if *kind == Plain::Ingress => {
                    let all = Arc::make_mut(&mut self.ingresses);
                    all.insert(key(&id.name), (&**json).into());
                }
                Change::Set(id, Entry::Plain { kind, json }) => {
                    // Its reader asks before whether it is usable.
                    if let Err(cause) = self.objects.set_json(*kind, json) {
                        warn!("cannot use {id}: {cause}");
                    }
                }
                Change::Gone(id) => {
                    if id.plain() == Some(Plain::Ingress) {
                        Arc::make_mut(&mut self.ingresses).remove(&key(&id.name));
                    } else if let Some(kind) = id.plain() {
                        self.objects.delete_named(kind, &id.name);
                    }
                }
                Change::Set(_, Entry::Object { .. }) => {}
            }
        }
    }

    /// All that they come to. What is wrong with one is logged while it is new.
    pub(super) fn contribution(&mut self) -> Contribution {
        let said = self.objects.contribution();
        let now: BTreeSet<_> = self.objects.problems().collect();
        for problem in now.difference(&self.problems) {
            let Problem {
                kind,
                object,
                refusal,
                ..
            } = problem;
            warn!("cannot use all of {kind} {object}: {}", refusal.words);
        }
        self.problems = now;
        Contribution {
            ingresses: Arc::clone(&self.ingresses),
            ..said
        }
    }
}

/// `NAMESPACE/NAME`.
fn key(name: &str) -> ObjectKey {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    (namespace.into(), name.into())
}
