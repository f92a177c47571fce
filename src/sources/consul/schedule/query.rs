//! The types of a schedule: targets, queries, and their results.

use std::sync::Arc;

/// The target of a query.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueryTarget {
    Names,
    Service(Arc<str>),
}

/// The API path of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryPath {
    /// `/v1/health`, with the results of checks; an ACL token may not allow it.
    Health,
    Catalog,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    /// Identifies this query.
    pub(crate) ticket: u64,
    pub(crate) target: QueryTarget,
    pub(crate) way: QueryPath,
    /// 0: it is answered at once.
    pub(crate) index: u64,
    /// The query's `wait` is short.
    pub(crate) brief: bool,
}

/// The result of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Answered {
        index: Option<u64>,
    },
    Refused {
        status: u16,
    },
    /// The response is too large, or not valid.
    Useless,
    /// The connection failed, or timed out.
    Away,
    /// The connection was closed before the answer.
    Closed,
}

/// Queries to cancel and to begin now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct QueryChanges {
    pub(crate) cancel: Vec<u64>,
    pub(crate) begin: Vec<Query>,
}
