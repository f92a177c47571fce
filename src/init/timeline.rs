//! The lines of the start: the agent's identity, missing preconditions, and the longest time that the end may take, which four
//! settings make, and the pod grants another number.

#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cli::{REVISION, VERSION};
use crate::config::Config;
use crate::log;
use crate::supervisor::{Policy, Seconds};

/// The directory in which Envoy keeps the objects that a hot restart hands over.
const SHARED_MEMORY: &str = "/dev/shm";

/// Says who this is, in one line, once.
pub(crate) fn introduce(config: &Config) {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    let (role, node) = (config.role.name(), &config.launch.service_node);
    let status = config.status.map_or(0, |status| status.port());
    let admin = config.admin.port();
    log::info!(
        "pintle {VERSION} ({REVISION}), {role}, node {node}, admin port {admin}, status port {status}"
    );
    if !config.launch.disable_hot_restart && !Path::new(SHARED_MEMORY).is_dir() {
        log::error!(
            "{SHARED_MEMORY} is missing, and Envoy needs it: mount it, or use --disable-hot-restart"
        );
    }
}

/// Logs the timeline, with a warning where the pod's grace period is shorter.
pub(crate) fn log(config: &Config) {
    // Where nothing has been started yet.
    introduce(config);
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
