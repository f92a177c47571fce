//! Precedence among sources.

use std::sync::Arc;

use api::model::Registry;

use super::{Settings, Sources};
use crate::contribution::{Contribution, SourceId};

/// Returns the rank of a registry in the configured order. ServiceEntries come last.
pub(super) fn class(settings: &Settings, registry: Registry) -> usize {
    let of = |registry| {
        settings
            .order
            .iter()
            .position(|known| *known == registry)
            .unwrap_or(settings.order.len())
    };
    match registry {
        Registry::External => usize::MAX,
        Registry::Kubernetes | Registry::Consul | Registry::Memory => of(registry),
    }
}

/// Returns the object of the source that takes precedence among all that have it.
pub(super) fn first<'a, V: ?Sized>(
    settings: &Settings,
    sources: &'a Sources,
    pick: impl Fn(&'a Contribution) -> Option<&'a Arc<V>>,
) -> Option<(&'a SourceId, &'a Arc<V>)> {
    sources
        .iter()
        .filter_map(|(id, source)| Some((id, pick(&source.contribution)?)))
        .min_by_key(|(id, _)| {
            let remote = id.cluster != settings.cluster;
            (class(settings, id.registry), remote, *id)
        })
}
