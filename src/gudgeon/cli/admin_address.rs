//! Addresses of plain HTTP listeners.

use super::DiscoveryFlags;

/// The address of a plain HTTP listener.
#[derive(Clone, Debug)]
pub(crate) struct AdminAddress {
    pub(crate) flag: &'static str,
    pub(crate) address: String,
    pub(crate) access: DebugAccess,
}

/// The clients that may read the pages of a listener below `/debug`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DebugAccess {
    /// Those of this host.
    Local,
    /// Every client, except pages of another Origin.
    Open,
}

impl DiscoveryFlags {
    /// Returns the addresses of the plain listeners that are on.
    pub(crate) fn admin_addresses(&self) -> Vec<AdminAddress> {
        let debug = self.debug_addr.as_deref().unwrap_or_default();
        let all = [
            ("httpAddr", &*self.http_addr, DebugAccess::Local),
            ("monitoringAddr", &*self.monitoring_addr, DebugAccess::Local),
            ("debugAddr", debug, DebugAccess::Open),
        ];
        let on = all
            .into_iter()
            .filter(|(_, address, _)| !address.is_empty());
        on.map(|(flag, address, access)| AdminAddress {
            flag,
            address: address.to_owned(),
            access,
        })
        .collect()
    }
}
