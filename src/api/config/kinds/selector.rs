//! Selectors of workloads, as kinds have them.

/// The selector of a kind's objects.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadSelector {
    /// The path of its labels in the spec.
    pub labels: &'static str,
    /// The note at an object whose selector finds routers alone, where it has no effect on them.
    pub of_routers: Option<&'static str>,
}

impl WorkloadSelector {
    pub(super) const fn new(labels: &'static str, of_routers: Option<&'static str>) -> Self {
        Self { labels, of_routers }
    }
}
