//! How long the end may take, said at the start: four settings make it, and the pod grants another number.

#![forbid(unsafe_code)]

use std::time::Duration;

use crate::config::Config;
use crate::log;
use crate::supervisor::{Policy, Seconds};

/// Logs the timeline, with a warning where the pod's grace period is shorter.
pub(crate) fn log(config: &Config) {
    let policy = &config.policy;
    let total = longest_end(policy);
    log::info!(
        "at the {}: {} before the drain, {} at most for the drain, {} for {} to stop, {} in all",
        if policy.command {
            "command's end"
        } else {
            "end"
        },
        Seconds(policy.pre_drain_delay),
        Seconds(policy.termination_drain),
        Seconds(policy.kill_timeout),
        if policy.companions == 0 {
            "the proxy"
        } else {
            "the companions and as much for the proxy"
        },
        Seconds(total),
    );
    if let Some(granted) = config.grace_period.filter(|granted| *granted < total) {
        let (total, granted) = (Seconds(total), Seconds(granted));
        log::warning!("the end may take {total}, longer than the grace period of {granted}");
    }
}

fn longest_end(policy: &Policy) -> Duration {
    let companions = if policy.companions == 0 {
        Duration::ZERO
    } else {
        policy.kill_timeout
    };
    [policy.termination_drain, companions, policy.kill_timeout]
        .into_iter()
        .fold(policy.pre_drain_delay, Duration::saturating_add)
}
