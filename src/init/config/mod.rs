//! The settings of `pintle proxy` and `pintle run`, checked: paths, durations and limits that later code need not doubt.
//!
//! `Config` is made once, from defaults, `PROXY_CONFIG`, the environment and the flags (in that order), and never
//! changes. Nothing here reads a file or a clock, but for the CPU limit of `HostFacts`, which is asked for where nobody has said
//! one.

#![forbid(unsafe_code)]

mod build;
mod companion;
mod error;
mod identity;
mod json;
mod layers;
mod policy;
mod probers;
mod proxy_config;
mod scrape;
mod source;
mod variables;
mod watched;

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::bootstrap::Source;
use crate::log::LogConfig;
use crate::supervisor::Policy;
use crate::values::{BaseId, Role, User};

pub use self::companion::CompanionCommand;
pub use self::error::ConfigError;
pub use self::probers::{HttpProbe, ProbeAction, Prober};
pub use self::scrape::ScrapeTarget;
pub(crate) use self::scrape::is_reserved;

/// All that the agent needs to know before it starts.
#[derive(Debug)]
pub struct Config {
    pub role: Role,
    /// The settings by which the supervisor decides.
    pub policy: Policy,
    /// The source of the proxy's configuration.
    pub source: Source,
    /// The command line of a proxy process.
    pub launch: Launch,
    /// `--companion`, in the order of the flags; `policy` knows how many.
    pub companions: Vec<CompanionCommand>,
    /// The command of `pintle run` and its arguments; empty for `pintle proxy`.
    pub command: Vec<OsString>,
    /// The files that count as configuration.
    pub watch: WatchedFiles,
    /// Envoy's admin port.
    pub admin: SocketAddr,
    /// The listeners that the drain asks Envoy to close; `None`: all.
    pub drain: DrainCall,
    pub log: LogConfig,
    /// `TERMINATION_GRACE_PERIOD_SECONDS`: what the pod grants; only compared with the agent's own timeline.
    pub grace_period: Option<Duration>,
    /// The status port; `None`: off.
    pub status: Option<SocketAddr>,
    /// `--application-ports`: they must have listeners before the proxy is ready.
    pub application_ports: Vec<u16>,
    /// The application's probes, by their paths at the status port.
    pub probers: Vec<Prober>,
    /// The application's metrics.
    pub scrape: Vec<ScrapeTarget>,
    /// `HOST_IP`: where kubelet's probes come from, mostly.
    pub node: Option<IpAddr>,
    /// The proxy's, if the host has it: where the application may listen.
    pub pod: Option<IpAddr>,
    pub metrics: Metrics,
    /// Said once the log is open: flags and variables that were accepted but mean nothing, doubtful values.
    pub warnings: Vec<String>,
}

/// The readers of the metrics, and their subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// `METRICS_LOCALHOST_ACCESS_ONLY`: for the pod itself, at the status port and at the generated listener.
    pub local_only: bool,
    /// `PILOT_AGENT_MERGE_ENVOY_STATS=false`: Envoy's are left out at the status port.
    pub without_proxy: bool,
}

/// The command line of a proxy process, the same for every epoch.
#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag of its own, not a state"
)]
pub struct Launch {
    pub binary: PathBuf,
    /// `--config-path`: where bootstraps are written.
    pub directory: PathBuf,
    pub drain_time: Duration,
    pub parent_shutdown_time: Duration,
    pub service_cluster: String,
    pub service_node: String,
    pub max_obj_name_len: Option<u32>,
    /// `v4` or `v6`, when it must be said.
    pub local_address_ip_version: Option<IpVersion>,
    /// `--allow-unknown-static-fields`, or the argv of pilot-agent 1.1.5.
    pub legacy_args: bool,
    pub log_level: Option<String>,
    pub component_log_level: Option<String>,
    pub concurrency: Option<u32>,
    pub base_id: BaseId,
    pub disable_hot_restart: bool,
    /// The arguments behind `--`, checked and split.
    pub extra: Vec<OsString>,
    /// Envoy was told not to count generations or not to ask its parent for stats.
    pub skip_parent_stats: bool,
    pub user: Option<User>,
    pub oom_score_adj: Option<i32>,
    pub no_new_privs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    V4,
    V6,
}

/// The watched files, and the patience with them.
#[derive(Clone, Debug)]
pub struct WatchedFiles {
    /// In a fixed order, each once; their content is the configuration.
    pub paths: Vec<PathBuf>,
    /// Must be there before epoch 0 starts (MUTUAL_TLS); empty otherwise.
    pub required: Vec<PathBuf>,
}

/// The form of the drain's request.
#[derive(Clone, Copy, Debug)]
pub struct DrainCall {
    pub inbound_only: bool,
    /// POST `/healthcheck/fail` first (router and ingress).
    pub fail_healthcheck: bool,
}

/// The facts about the machine that the start found out; read once, in the shell, or where one is asked for.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// Addresses of interfaces that are up; loopback's only where there is no other.
    pub addresses: Vec<IpAddr>,
    /// Reads the CPUs that the cgroup grants, rounded up; not called where `--concurrency` is given.
    pub cpu_limit: fn() -> Option<u32>,
}

impl Default for HostFacts {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            cpu_limit: || None,
        }
    }
}

#[cfg(test)]
mod tests;
