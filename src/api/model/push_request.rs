//! The pushes that changes of the world ask for, so that a push does no more than it must.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::WorkloadKey;

/// Why a push goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TriggerReason {
    Endpoint,
    Service,
    Config,
    /// The mesh configuration or its networks changed.
    Global,
    Proxy,
    /// A request to the debug endpoints.
    Debug,
    Unknown,
}

impl TriggerReason {
    pub const ALL: [Self; 7] = [
        Self::Endpoint,
        Self::Service,
        Self::Config,
        Self::Global,
        Self::Proxy,
        Self::Debug,
        Self::Unknown,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::Service => "service",
            Self::Config => "config",
            Self::Global => "global",
            Self::Proxy => "proxy",
            Self::Debug => "debug",
            Self::Unknown => "unknown",
        }
    }
}

/// A push that a change of the world asks for. A change that affects nothing served asks for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushRequest {
    /// Only endpoints of these services, by full name; the services themselves are as they were.
    Endpoints(BTreeSet<Arc<str>>),
    /// Anything may be different.
    Full(TriggerReason),
    /// Only the resources of this workload's proxies.
    Proxy(WorkloadKey),
}
