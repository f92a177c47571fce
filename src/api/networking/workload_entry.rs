//! The size of a WorkloadEntry.

use super::WorkloadEntry;
use crate::size;

impl WorkloadEntry {
    /// Returns the number of places that the entry counts for at each port that it serves: its texts stand in an answer for each.
    #[must_use]
    pub fn places(&self) -> usize {
        size::endpoint([
            self.locality.as_str(),
            self.network.as_str(),
            self.service_account.as_str(),
        ])
    }
}
