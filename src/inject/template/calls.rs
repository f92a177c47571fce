//! The calls that a rewritten template makes: the rewriter writes them, and functions answer to them.

/// Names no template can write: they hold a blank.
pub(super) const FIELD: &str = " field";
pub(super) const ENTER: &str = " enter";
pub(super) const LEAVE: &str = " leave";
pub(super) const PUT: &str = " put";

/// The start of a walk; it decides the value of a field of nil.
pub(super) const FROM_VALUE: i64 = 0;
pub(super) const FROM_PARENTHESIS: i64 = 1;
