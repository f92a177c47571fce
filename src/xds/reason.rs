//! The reasons of a push: those of all changes that were merged.

use std::fmt;

use api::model::TriggerReason;

/// Several of them: those of all changes that were merged.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Reasons(u8);

impl Reasons {
    pub const NONE: Self = Self(0);

    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn has(self, reason: TriggerReason) -> bool {
        self.0 & (1 << reason as u8) != 0
    }

    pub fn iter(self) -> impl Iterator<Item = TriggerReason> {
        TriggerReason::ALL
            .into_iter()
            .filter(move |reason| self.has(*reason))
    }
}

impl From<TriggerReason> for Reasons {
    fn from(reason: TriggerReason) -> Self {
        Self(1 << reason as u8)
    }
}

impl fmt::Debug for Reasons {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_set()
            .entries(self.iter().map(TriggerReason::as_str))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_add_up_and_are_listed_in_order() {
        let both = Reasons::from(TriggerReason::Debug).and(TriggerReason::Endpoint.into());
        assert!(
            both.iter()
                .eq([TriggerReason::Endpoint, TriggerReason::Debug])
        );
        assert!(Reasons::NONE.iter().next().is_none());
        for reason in TriggerReason::ALL {
            assert!(Reasons::from(reason).iter().eq([reason]));
        }
    }
}
