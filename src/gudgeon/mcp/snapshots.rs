//! The published snapshots, the newest of each group.

use std::sync::Arc;

use mcp::collections::Group;
use mcp::snapshot::Snapshot;

/// The snapshots of the groups. `None`: nothing of that group was published yet, and a request waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshots {
    pub(crate) default: Option<Arc<Snapshot>>,
    pub(crate) synthetic: Option<Arc<Snapshot>>,
}

impl Snapshots {
    pub(crate) fn set(&mut self, snapshot: Arc<Snapshot>) {
        match snapshot.group() {
            Group::Default => self.default = Some(snapshot),
            Group::SyntheticServiceEntry => self.synthetic = Some(snapshot),
        }
    }

    /// Returns true if each group was published.
    pub(crate) const fn is_complete(&self) -> bool {
        self.default.is_some() && self.synthetic.is_some()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Snapshot>> {
        self.default.iter().chain(&self.synthetic)
    }
}
