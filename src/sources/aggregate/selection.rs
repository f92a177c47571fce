//! The workloads of a namespace that a ServiceEntry selects by labels.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use api::model::{Configured, Labels, Workload, WorkloadKey, World, selects};
use api::networking::WorkloadEntry;

use super::precedence::first;
use super::service_entry::Backend;
use super::{ObjectKey, Settings, Sources};
use crate::contribution::SourceId;

type WorkloadEntries<'a> = Vec<(&'a SourceId, &'a Configured<WorkloadEntry>)>;

/// Selects workloads. It keeps the last namespace and the last selector, since entries are converted in order, and those that select
/// many workloads tend to select the same.
#[derive(Debug)]
pub(super) struct WorkloadSelection<'a> {
    pub(super) settings: &'a Settings,
    pub(super) sources: &'a Sources,
    world: &'a World,
    namespace: Option<(Arc<str>, WorkloadEntries<'a>)>,
    last: Option<(Arc<str>, Labels, Rc<[Backend<'a>]>)>,
}

impl<'a> WorkloadSelection<'a> {
    pub(super) const fn new(
        settings: &'a Settings,
        sources: &'a Sources,
        world: &'a World,
    ) -> Self {
        Self {
            settings,
            sources,
            world,
            namespace: None,
            last: None,
        }
    }

    /// Returns the WorkloadEntries, and then the pods of all clusters, that have these labels.
    pub(super) fn backends(
        &mut self,
        namespace: &Arc<str>,
        selector: &Labels,
    ) -> Rc<[Backend<'a>]> {
        if let Some((of, by, backends)) = &self.last
            && of == namespace
            && by == selector
        {
            return Rc::clone(backends);
        }
        let entries = self.workload_entries(namespace).iter();
        let entries = entries.filter(|(_, entry)| {
            let labels = &entry.spec.labels;
            let mut wanted = selector.iter();
            wanted.all(|(name, value)| labels.get(&**name).is_some_and(|is| **is == **value))
        });
        let entries = entries.map(|(source, entry)| Backend::Entry(source, entry));
        let mut backends: Vec<_> = entries.collect();
        let pods = pods(self.sources, self.world, namespace);
        let pods = pods.filter(|pod| selects(selector, &pod.labels));
        backends.extend(pods.map(Backend::Pod));
        let backends: Rc<[_]> = backends.into();
        self.last = Some((namespace.clone(), selector.clone(), Rc::clone(&backends)));
        backends
    }

    fn workload_entries(&mut self, namespace: &Arc<str>) -> &WorkloadEntries<'a> {
        let in_namespace = self.namespace.take().filter(|(of, _)| of == namespace);
        let in_namespace = in_namespace.unwrap_or_else(|| {
            let entries = workload_entries(self.settings, self.sources, namespace);
            (namespace.clone(), entries)
        });
        &self.namespace.insert(in_namespace).1
    }
}

/// The WorkloadEntries of a namespace.
fn workload_entries<'a>(
    settings: &Settings,
    sources: &'a Sources,
    namespace: &Arc<str>,
) -> WorkloadEntries<'a> {
    let start: ObjectKey = (namespace.clone(), "".into());
    let mut keys = BTreeSet::new();
    for source in sources.values() {
        let near = source
            .contribution
            .configuration
            .workload_entries
            .range(start.clone()..);
        let near = near.map(|(key, _)| key);
        keys.extend(near.take_while(|(of, _)| of == namespace));
    }
    keys.into_iter()
        .filter_map(|key| {
            first(settings, sources, |contribution| {
                contribution.configuration.workload_entries.get(key)
            })
        })
        .map(|(source, place)| (source, &**place))
        .collect()
}

/// The pods of a namespace, of all clusters.
fn pods<'a>(
    sources: &'a Sources,
    world: &'a World,
    namespace: &Arc<str>,
) -> impl Iterator<Item = &'a Workload> {
    let clusters: BTreeSet<_> = sources
        .values()
        .flat_map(|source| source.contribution.workloads.first_key_value())
        .map(|(key, _)| &key.cluster)
        .chain(sources.keys().map(|id| &id.cluster))
        .collect();
    clusters.into_iter().flat_map(move |cluster| {
        let start = WorkloadKey {
            cluster: cluster.clone(),
            namespace: namespace.clone(),
            name: "".into(),
        };
        world
            .workloads
            .range(start..)
            .take_while(move |(key, _)| key.cluster == *cluster && key.namespace == *namespace)
            .map(|(_, pod)| &**pod)
    })
}
