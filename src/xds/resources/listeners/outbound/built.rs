//! Outbound listeners as they are kept, and what is told of one that a proxy has no place for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::model::ServiceKey;

use crate::common::conflict::{Conflict, INVALID_LISTENER};
use crate::view::Resource;

/// A listener.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub(crate) resource: Arc<Resource>,
    /// The one address that it is for; not for the proxy that has that address itself.
    pub(crate) address: Option<IpAddr>,
    /// True if the address is an endpoint's.
    pub(crate) endpoint: bool,
    /// Applications call it themselves.
    pub(crate) bound: bool,
    /// The port, if connections to it are intercepted at whatever address.
    pub(crate) port_of_all: Option<u16>,
    /// In place of an address: a path, or `@NAME`.
    pub(crate) socket: Option<Arc<str>>,
    /// The services that it is for, at most [`MAX_NAMED`].
    pub(crate) services: Arc<[ServiceKey]>,
}

/// Services of one listener that are named where it is left out: whoever reads of so many knows which port is meant.
pub(super) const MAX_NAMED: usize = 100;

impl Built {
    /// The conflict that tells that it is left out: at the services that it is for, and at the rules that it is made by.
    pub(crate) fn lost(&self, why: &str) -> Conflict {
        let name = &*self.resource.name;
        let message = format!("listener {name} of services is left out: {why}");
        let mut conflict = Conflict::new(INVALID_LISTENER, name, message);
        conflict.objects = self.resource.from.to_vec();
        conflict.services = self.services.to_vec();
        conflict
    }
}

/// All outbound listeners.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    pub(crate) listeners: BTreeMap<String, Built>,
    /// The names of all their routes.
    pub(crate) routes: BTreeSet<Arc<str>>,
    /// Ids of patches that are effective in them.
    pub(crate) effective: Arc<[u64]>,
}
