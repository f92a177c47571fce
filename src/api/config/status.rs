//! The words for the status of an object: all pages, documents, metrics and log lines take them from here.

/// The version that is served in the place of a refused object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServedInstead {
    Nothing,
    /// Its last good version.
    Old,
}

impl ServedInstead {
    /// The `state` of a refused object in documents and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "refused",
            Self::Old => "stale",
        }
    }
}

/// The result of checking an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectStatus {
    Accepted,
    Refused { serving: ServedInstead },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Users and alerts know these two.
    #[test]
    fn a_refused_object_has_one_of_two_states() {
        assert_eq!(ServedInstead::Nothing.as_str(), "refused");
        assert_eq!(ServedInstead::Old.as_str(), "stale");
    }
}
