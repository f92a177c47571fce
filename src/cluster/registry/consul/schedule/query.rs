//! The words of a schedule: what is asked, and how that ended.

use std::sync::Arc;

/// What a query is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Names,
    Service(Arc<str>),
}

/// Which of Consul's paths is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// With the results of checks; a token may not allow it.
    Health,
    Catalog,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    /// Of this query alone.
    pub(crate) ticket: u64,
    pub(crate) target: Target,
    pub(crate) way: Way,
    /// 0: it is answered at once.
    pub(crate) index: u64,
    /// It is to wait for a moment only.
    pub(crate) brief: bool,
}

/// How a query ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Answered {
        index: Option<u64>,
    },
    Refused {
        status: u16,
    },
    /// Too large, or not what Consul says.
    Useless,
    /// No connection, or none in time.
    Away,
    /// The connection was closed before the answer.
    Closed,
}

/// What is to be done now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    pub(crate) cancel: Vec<u64>,
    pub(crate) begin: Vec<Query>,
}
