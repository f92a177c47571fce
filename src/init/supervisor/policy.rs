//! The settings that decisions depend on.

#![forbid(unsafe_code)]

use std::time::Duration;

/// The settings by which the supervisor decides; fixed for the agent's life.
#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own, not a state"
)]
pub struct Policy {
    /// From the first change to the re-hash.
    pub cert_debounce: Duration,
    /// Re-hash without any event; `None`: off.
    pub rescan_interval: Option<Duration>,
    /// Epoch 0 waits for the certificates (MUTUAL_TLS).
    pub wait_for_certificates: bool,
    pub termination_drain: Duration,
    /// `Some(shortest drain)`: the drain ends as soon as no connection is left.
    pub exit_on_zero: Option<Duration>,
    pub pre_drain_delay: Duration,
    pub kill_timeout: Duration,
    pub retry_budget: u32,
    pub retry_initial: Duration,
    pub retry_reset: Duration,
    pub on_clean_exit: CleanExit,
    pub live_timeout: Duration,
    /// The address at which the proxy's admin port should be, as it is told: `127.0.0.1:15000`.
    pub admin: &'static str,
    /// A LIVE proxy whose admin port is silent for so long is killed; `None`: it is not asked.
    pub hang_timeout: Option<Duration>,
    pub validate: bool,
    pub hot_restart: bool,
    /// Envoy's `--parent-shutdown-time-s`: a parent that ends sooner ended too soon.
    pub parent_shutdown: Duration,
    /// Answer for a parent that died while it drained.
    pub parent_stand_in: bool,
    /// The number of companions.
    pub companions: u8,
    /// There is a command (`pintle run`), with whose end the agent ends.
    pub command: bool,
}

/// `--on-clean-exit`: the last proxy process exits 0 by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanExit {
    Exit,
    Restart,
    Idle,
}
