//! The state of a collection at a sink. Nearly always it is a published collection, shared with every sink that has the
//! same; only between two parts, or after a sink has listed its versions, is it the stream's own list.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::Arc;

use crate::snapshot::{Collection, Resource};
use crate::version::Version;

/// Versions by name. `None`: a version that this source never published.
pub(super) type Versions = BTreeMap<Arc<str>, Option<Version>>;

#[derive(Clone, Debug)]
pub(super) enum SinkState {
    Shared(Arc<Collection>),
    Own(Versions),
}

/// The changes to send to a sink.
#[derive(Debug, Default)]
pub(super) struct Difference {
    pub(super) removed: Vec<Arc<str>>,
    pub(super) fresh: Vec<Arc<Resource>>,
}

impl Difference {
    pub(super) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.fresh.is_empty()
    }
}

impl SinkState {
    pub(super) fn difference(&self, target: &Collection) -> Difference {
        match self {
            // Equal sums are equal members: nothing is walked.
            Self::Shared(shared) if shared.version() == target.version() => Difference::default(),
            Self::Shared(shared) => {
                let members = shared.members().iter();
                between(
                    members.map(|member| (&member.name, Some(member.version))),
                    target,
                )
            }
            Self::Own(own) => between(own.iter().map(|(name, version)| (name, *version)), target),
        }
    }

    /// The sink has taken a part.
    pub(super) fn take(&mut self, part: &Difference) {
        let mut own = match self {
            Self::Own(own) => std::mem::take(own),
            Self::Shared(shared) => {
                let members = shared.members().iter();
                members
                    .map(|member| (member.name.clone(), Some(member.version)))
                    .collect()
            }
        };
        for name in &part.removed {
            own.remove(name);
        }
        let fresh = part.fresh.iter();
        own.extend(fresh.map(|member| (member.name.clone(), Some(member.version))));
        *self = Self::Own(own);
    }
}

/// The versions that a sink lists.
pub(super) fn parse_versions(versions: &BTreeMap<String, String>) -> Versions {
    let versions = versions.iter();
    versions
        .map(|(name, version)| (name.as_str().into(), Version::parse(version)))
        .collect()
}

/// Computes the difference of two lists that are sorted by name.
fn between<'a>(
    current: impl Iterator<Item = (&'a Arc<str>, Option<Version>)>,
    target: &Collection,
) -> Difference {
    let mut difference = Difference::default();
    let mut current: Peekable<_> = current.peekable();
    for member in target.members() {
        while let Some((gone, _)) = current.next_if(|(name, _)| **name < member.name) {
            difference.removed.push(gone.clone());
        }
        match current.next_if(|(name, _)| **name == member.name) {
            Some((_, Some(version))) if version == member.version => {}
            // A version that was never given out here is compared with nothing, so the member is sent.
            _ => difference.fresh.push(member.clone()),
        }
    }
    difference
        .removed
        .extend(current.map(|(name, _)| name.clone()));
    difference
}
