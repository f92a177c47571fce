//! The sides of a proxy, for which patches are written.

use api::networking::envoy_filter::PatchContext;

use crate::node::Kind;
use crate::scope::envoy_filters::Patch;

/// The traffic that a resource serves. All of a router's is outbound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the application beside the proxy.
    Inbound,
    Outbound,
}

/// The side of a proxy that a resource is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchSide {
    Inbound,
    Outbound,
    Router,
}

impl PatchSide {
    pub(super) fn of(kind: Kind, direction: Direction) -> Self {
        match (kind, direction) {
            (Kind::Router, _) => Self::Router,
            (Kind::SidecarProxy, Direction::Inbound) => Self::Inbound,
            (Kind::SidecarProxy, Direction::Outbound) => Self::Outbound,
        }
    }

    pub(super) fn is_of(self, patch: &Patch) -> bool {
        match patch.context {
            PatchContext::Any => true,
            PatchContext::SidecarInbound => self == Self::Inbound,
            PatchContext::SidecarOutbound => self == Self::Outbound,
            PatchContext::Gateway => self == Self::Router,
            PatchContext::Waypoint => false,
        }
    }
}
