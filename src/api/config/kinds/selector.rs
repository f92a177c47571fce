//! The fields of kinds that select workloads.

/// The field with which a kind's objects select workloads.
#[derive(Clone, Copy, Debug)]
pub struct SelectorField {
    /// The path of its labels in the spec.
    pub labels: &'static str,
    /// The note at an object whose selector finds routers alone, where it has no effect on them.
    pub of_routers: Option<&'static str>,
}

impl SelectorField {
    pub(super) const fn new(labels: &'static str, of_routers: Option<&'static str>) -> Self {
        Self { labels, of_routers }
    }
}
