//! One push: what is remembered of it, and the names that an endpoints-only one is about.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::model::World;
use xds::reason::Reasons;

/// One push, for the page.
#[derive(Clone, Debug)]
pub(crate) struct Pushed {
    pub(crate) at: Duration,
    /// From the first change to the snapshot.
    pub(crate) waited: Duration,
    pub(crate) made_in: Duration,
    pub(crate) full: bool,
    pub(crate) reasons: Reasons,
    pub(crate) streams: usize,
}

/// Names of the assignments that these services have.
pub(super) fn assignments(world: &World, hosts: &BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
    if hosts.is_empty() {
        return BTreeSet::new();
    }
    let services = world.services.values();
    services
        .filter(|service| hosts.contains(&service.key.hostname))
        .flat_map(|service| {
            let host = &service.key.hostname;
            service
                .ports
                .iter()
                .map(move |port| format!("outbound|{}||{host}", port.number).into())
        })
        .collect()
}
