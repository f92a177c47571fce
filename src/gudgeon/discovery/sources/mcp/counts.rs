//! Numbers of the objects that MCP sources send, for gauges, the log and pages.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::config::Kind;
use sources::contribution::SourceId;
use sources::kubernetes::BrokenCredentials;
use sources::memory::ReceivedObjects;

use crate::discovery::rules_without_effect::RuleCounts;
use crate::discovery::source_facts::{Counts, Facts, Object, ROUTES};

/// Objects of a source that are not received one by one.
#[derive(Debug, Default)]
pub(super) struct OtherObjects {
    /// The number of those that are no configuration, by kind.
    pub(super) plain: BTreeMap<&'static str, usize>,
    /// Objects among them of which a part cannot be used.
    pub(super) refused: Vec<Object>,
    /// The kind of each object that is accepted and not served.
    pub(super) unchecked: Vec<&'static Kind>,
    /// Secrets that cannot be used.
    pub(super) broken: Arc<BrokenCredentials>,
}

/// Replaces the facts about a source.
pub(super) fn count(
    facts: &Facts,
    source: &SourceId,
    received: &ReceivedObjects,
    others: OtherObjects,
) {
    let OtherObjects {
        plain,
        mut refused,
        unchecked,
        broken,
    } = others;
    let plain = plain.into_iter().filter(|(_, count)| *count > 0);
    let mut counts: Counts = plain.map(|(kind, count)| (kind.into(), count)).collect();
    let mut rules = RuleCounts::default();
    let mut routes = 0_usize;
    for (object, is_good) in received.all() {
        let kind = object.kind.kind;
        if is_good {
            *counts.entry(kind.into()).or_default() += 1;
            routes = routes.saturating_add(usize::from(kind == ROUTES));
        } else {
            let name = format!("{}/{}", object.namespace, object.name);
            refused.push((kind.into(), name));
        }
    }
    // A refused object counts while its last good version is served, as in a directory.
    for kind in received.served_kinds() {
        rules.count(kind, 1);
    }
    for kind in unchecked {
        rules.add(kind.group, kind.kind);
        *counts.entry(kind.kind.into()).or_default() += 1;
    }
    facts.count(source, counts);
    facts.refuse(source, refused.into_iter());
    facts.rule(source, rules);
    facts.route(source, routes);
    facts.set_broken_secrets(source, broken);
}
