//! A source as it is named, and what is known of it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use api::config::collections::SYNTHETIC;
use tokio::task::AbortHandle;

use super::local::Local;
use crate::mcp::{DialledSources, Link, WantedSource};

#[derive(Clone, Debug)]
pub(super) struct FollowedSource {
    pub(super) id: u64,
    pub(super) wanted: SourceName,
    pub(super) origin: SourceOrigin,
    pub(super) task: AbortHandle,
    pub(super) leaves: bool,
}

/// A source that the mesh configuration or a flag names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SourceName {
    Dialled(WantedSource),
    /// A directory, and the collections that are wanted of it.
    Folder(PathBuf, Vec<String>),
    /// All sources that dial discovery's port.
    Dialling,
    /// Another role of this process, which reads and checks rules for this one.
    Role,
}

#[derive(Clone, Debug)]
pub(super) enum SourceOrigin {
    Link(Arc<Link>),
    Local(Arc<Local>),
    Port(String, Arc<DialledSources>),
}

impl FollowedSource {
    pub(super) fn name(&self) -> String {
        match &self.origin {
            SourceOrigin::Link(link) => link.name.clone(),
            SourceOrigin::Local(local) => local.name.clone(),
            SourceOrigin::Port(name, _) => name.clone(),
        }
    }

    /// The source, if it is read in this process.
    pub(super) fn local(&self) -> Option<&Local> {
        match &self.origin {
            SourceOrigin::Local(local) => Some(local),
            SourceOrigin::Link(_) | SourceOrigin::Port(..) => None,
        }
    }

    /// The name of the source as configured.
    pub(super) fn configured_name(&self) -> String {
        match &self.origin {
            SourceOrigin::Link(link) => link.named().to_owned(),
            SourceOrigin::Local(_) | SourceOrigin::Port(..) => self.name(),
        }
    }

    pub(super) fn is_synced(&self) -> bool {
        match &self.origin {
            SourceOrigin::Link(link) => link.objects.is_synced(),
            SourceOrigin::Local(local) => local.is_synced(),
            SourceOrigin::Port(_, sources) => sources.is_synced(),
        }
    }

    /// The cause for which it says nothing any more, though it has said all before.
    pub(super) fn lost(&self) -> Option<Arc<str>> {
        let lost = match &self.origin {
            SourceOrigin::Link(link) => link.objects.lost(),
            SourceOrigin::Local(local) => local.lost(),
            SourceOrigin::Port(_, sources) => sources.lost(),
        };
        lost.filter(|_| self.is_synced())
    }

    pub(super) fn gives_services(&self) -> bool {
        match &self.wanted {
            SourceName::Dialled(wanted) => wanted.has(SYNTHETIC),
            SourceName::Folder(..) | SourceName::Dialling | SourceName::Role => false,
        }
    }
}

/// Returns a line with the sources whose full state is missing; empty if there are none.
pub(super) fn missing(sources: &[FollowedSource]) -> String {
    let stay = sources.iter().filter(|source| !source.leaves);
    let missing = stay.filter(|source| !source.is_synced());
    let names: BTreeSet<_> = missing.map(FollowedSource::configured_name).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    if names.is_empty() {
        return String::new();
    }
    format!("no full state of {} yet", names.join(", "))
}

/// Returns a line with the lost sources and their causes; empty if there are none.
pub(super) fn lost(sources: &[FollowedSource]) -> String {
    let stay = sources.iter().filter(|source| !source.leaves);
    let lost = stay.filter_map(|source| {
        let cause = source.lost()?;
        Some(format!("{}: {cause}", source.configured_name()))
    });
    let lost: BTreeSet<_> = lost.collect();
    lost.into_iter().collect::<Vec<_>>().join("; ")
}
