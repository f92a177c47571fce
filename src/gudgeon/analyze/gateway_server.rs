//! One server of a Gateway, as it is compared with others.

use api::model::Protocol;

use super::inventory::Item;

/// A server, by what tells it from others.
pub(super) struct GatewayServer<'a> {
    pub(super) item: &'a Item,
    pub(super) at: usize,
    pub(super) port: u64,
    pub(super) shares: Shares,
    /// The address in comparable form; empty: all addresses.
    pub(super) bind: String,
    pub(super) hosts: Vec<String>,
    /// The hosts without namespaces, in comparable form.
    pub(super) bare: Vec<String>,
}

/// The servers beside which discovery serves one on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shares {
    /// HTTP servers, in plain text, too.
    Requests,
    /// Servers that SNI distinguishes, too.
    ServerNames,
    /// None.
    Nothing,
}

impl Shares {
    pub(super) fn of(protocol: &str) -> Self {
        match Protocol::of_service_entry(protocol) {
            Some(protocol) if protocol.is_http() => Self::Requests,
            Some(protocol) if protocol.has_server_name() => Self::ServerNames,
            Some(_) | None => Self::Nothing,
        }
    }

    /// Returns true if two servers are not both served on a port, whatever their hosts are.
    pub(super) fn excludes(self, other: Self) -> bool {
        self != other || self == Self::Nothing
    }
}
