//! The union of all sources: their rules, services and core objects.

use mcp::sink::union::{Precedence, SourceUnion};
use sources::catalogue::EntryChange;
use sources::contribution::Contribution;
use sources::kubernetes::BrokenCredentials;
use sources::memory::ReceivedObjects;

use super::core_objects::CoreObjects;
use super::objects::OfFiles;
use super::source::{FollowedSource, SourceName};
use crate::discovery::sources::files::broken_secrets;
use crate::mcp::ReceivedObject;

#[derive(Debug)]
pub(super) struct UnionState {
    pub(super) next: u64,
    /// The sources in their order; those that leave come last.
    pub(super) sources: Vec<FollowedSource>,
    /// The role that reads for this one, while its rules do not count.
    pub(super) aside: Option<FollowedSource>,
    pub(super) union: SourceUnion<ReceivedObject>,
    pub(super) rules: ReceivedObjects,
    pub(super) services: ReceivedObjects,
    /// Objects of Kubernetes' own kinds in files.
    pub(super) core_objects: CoreObjects,
    pub(super) of_files: OfFiles,
    /// True if the objects that have come are served, whether or not all sources have sent all.
    pub(super) late: bool,
    pub(super) has_services: bool,
    /// The hub has rules of sources until it has those of clusters again.
    pub(super) gives_back: bool,
}

impl UnionState {
    /// There is no source yet.
    pub(super) fn new(of_files: OfFiles) -> Self {
        Self {
            next: 0,
            sources: Vec::new(),
            aside: None,
            union: SourceUnion::new(Precedence::Order),
            rules: ReceivedObjects::default(),
            services: ReceivedObjects::default(),
            core_objects: CoreObjects::default(),
            of_files,
            late: false,
            has_services: false,
            gives_back: false,
        }
    }

    /// Secrets of files that cannot be used, those of the first source last: its causes count.
    pub(super) fn broken_secrets(&self) -> BrokenCredentials {
        if self.of_files.is_ignored {
            return BrokenCredentials::new();
        }
        let of_sources = self.sources.iter().rev().filter_map(FollowedSource::local);
        of_sources
            .flat_map(|local| broken_secrets(&local.report()))
            .collect()
    }

    /// True if all sources that stay have sent all.
    pub(super) fn is_synced(&self) -> bool {
        let mut stay = self.sources.iter().filter(|source| !source.leaves);
        stay.all(FollowedSource::is_synced)
    }

    /// Ends the sources that leave. Another role goes on: it may be wanted again.
    pub(super) fn drop_leaving(&mut self) {
        let sources = std::mem::take(&mut self.sources).into_iter();
        let (leave, stay): (Vec<_>, Vec<_>) = sources.partition(|source| source.leaves);
        self.sources = stay;
        for source in leave {
            if source.wanted == SourceName::Role {
                self.aside = Some(FollowedSource {
                    leaves: false,
                    ..source
                });
            } else {
                source.task.abort();
            }
        }
    }

    /// Takes objects of Kubernetes' own kinds among the changes of a source; nothing of one that has left meanwhile.
    pub(super) fn take_core(&mut self, source: u64, changes: &[EntryChange]) {
        if !self.sources.iter().any(|known| known.id == source) {
            return;
        }
        let changes = self.core_objects.apply(source, changes);
        self.of_files.apply(&changes);
    }

    /// The sources are others, or in another order.
    pub(super) fn reorder_core(&mut self) {
        let order = self.sources.iter().map(|source| source.id).collect();
        let changes = self.core_objects.set_order(order);
        self.of_files.apply(&changes);
    }

    /// The rules, and what the objects of Kubernetes' own kinds come to.
    pub(super) fn contribution(&mut self) -> Contribution {
        Contribution {
            configuration: self.rules.configuration().clone(),
            ..self.of_files.contribution(&self.core_objects)
        }
    }
}
