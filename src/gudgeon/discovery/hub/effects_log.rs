//! Logs which rules have no effect, where that is another number than it was.

use std::sync::{Mutex, PoisonError};

use tracing::{info, warn};

use super::Hub;
use crate::discovery::rules_without_effect::RuleCounts;

/// Configuration as the log knows it, and how often it had changed by then.
#[derive(Debug, Default)]
pub(super) struct LoggedEffects(Mutex<(u64, RuleCounts)>);

impl Hub {
    pub(super) fn log_rules_without_effect(&self) {
        let changed = self.facts.rules_changed();
        let mut last = self
            .logged_effects
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (known, logged) = &*last;
        if *known == changed {
            return;
        }
        let now = self.facts.rules();
        let is_same = logged.without_effect().eq(now.without_effect());
        if !is_same && let Some(more) = self.log_rate_limiters.rules.suffix_if_allowed() {
            match now.line() {
                Some(line) => warn!("{line}{more}"),
                None => info!("every rule has an effect again{more}"),
            }
        }
        *last = (changed, now);
    }
}
