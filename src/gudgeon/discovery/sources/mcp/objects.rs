//! Objects of Kubernetes' own kinds in files, which another role reads with its rules, or which the mesh configuration names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::model::Credentials;
use sources::catalogue::{CoreKind, Entry, EntryChange, EntryId};
use sources::contribution::{Contribution, Ingresses, ObjectKey, credential_of};
use sources::kubernetes::{Objects, Problem};
use tracing::warn;

use super::core_objects::CoreObjects;
use crate::discovery::source_facts::Object;
use crate::secrets::redact_text;

/// Objects of Kubernetes' own kinds, with the certificates and Ingresses among them.
#[derive(Debug)]
pub(super) struct OfFiles {
    pub(super) objects: Objects,
    /// Rules are made of them.
    ingresses: Arc<Ingresses>,
    /// Certificates of Secrets.
    credentials: Arc<Credentials>,
    /// An API server has services: those of files are not used, which is said once.
    pub(super) is_ignored: bool,
    was_logged: bool,
    /// Problems that were logged already.
    problems: BTreeSet<Problem>,
}

impl OfFiles {
    pub(super) fn new(objects: Objects, is_ignored: bool) -> Self {
        Self {
            objects,
            ingresses: Arc::default(),
            credentials: Arc::default(),
            is_ignored,
            was_logged: false,
            problems: BTreeSet::new(),
        }
    }

    pub(super) fn apply(&mut self, changes: &[EntryChange]) {
        for change in changes {
            match change {
                EntryChange::Set(id, Entry::Core { kind, .. }, _)
                    if self.is_ignored && *kind != CoreKind::Ingress =>
                {
                    if !std::mem::replace(&mut self.was_logged, true) {
                        warn!(
                            "{id} and others of Kubernetes are not used: the API server has them"
                        );
                    }
                }
                EntryChange::Set(id, Entry::Core { kind, json }, _)
                    if *kind == CoreKind::Ingress =>
                {
                    let all = Arc::make_mut(&mut self.ingresses);
                    all.insert(key(id), (&**json).into());
                }
                EntryChange::Set(id, Entry::Core { kind, json }, _)
                    if *kind == CoreKind::Secret =>
                {
                    self.secret(id, json);
                }
                EntryChange::Set(id, Entry::Core { kind, json }, _) => {
                    // Its reader asks before whether it is usable.
                    if let Err(cause) = self.objects.set_json(*kind, json) {
                        warn!("cannot use {id}: {}", redact_text(&cause.to_string()));
                    }
                }
                EntryChange::Gone(id) => {
                    if id.core_kind() == Some(CoreKind::Ingress) {
                        Arc::make_mut(&mut self.ingresses).remove(&key(id));
                    } else if id.core_kind() == Some(CoreKind::Secret) {
                        Arc::make_mut(&mut self.credentials).remove(&key(id));
                    } else if let Some(kind) = id.core_kind() {
                        self.objects.delete_named(kind, &id.name);
                    }
                }
                EntryChange::Set(_, Entry::Object { .. }, _) | EntryChange::Moved(..) => {}
            }
        }
    }

    /// Takes a Secret. One without certificates removes its former ones; an invalid one was refused before.
    fn secret(&mut self, id: &EntryId, json: &str) {
        let all = Arc::make_mut(&mut self.credentials);
        match credential_of(json) {
            Ok(Some(one)) => drop(all.insert(key(id), one)),
            Ok(None) => drop(all.remove(&key(id))),
            Err(cause) => warn!("cannot use {id}: {}", redact_text(&cause.to_string())),
        }
    }

    /// The number of used objects, by kind.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = self.objects.counts();
        counts.insert(CoreKind::Ingress.kind(), self.ingresses.len());
        counts.insert(CoreKind::Secret.kind(), self.credentials.len());
        counts
    }

    /// Objects of which not all can be used, by kind and name.
    pub(super) fn refused(&self) -> impl Iterator<Item = Object> {
        let problems = self.problems.iter();
        problems.map(|problem| (problem.kind.into(), problem.object.to_string()))
    }

    /// The contribution of all of them. A problem is logged while it is new, at the place where the object stands.
    pub(super) fn contribution(&mut self, places: &CoreObjects) -> Contribution {
        let contribution = self.objects.contribution();
        let now: BTreeSet<_> = self.objects.problems().collect();
        for problem in now.difference(&self.problems) {
            let id = problem.entry_id();
            let line = match places.origin(&id) {
                Some(origin) => format!("{origin}: {id}: {}", problem.refusal),
                None => problem.to_string(),
            };
            warn!("{}", redact_text(&line));
        }
        self.problems = now;
        Contribution {
            ingresses: Arc::clone(&self.ingresses),
            credentials: Arc::clone(&self.credentials),
            ..contribution
        }
    }
}

/// Namespace and name.
fn key(id: &EntryId) -> ObjectKey {
    let (namespace, name) = id.namespace_and_name();
    (namespace.into(), name.into())
}
