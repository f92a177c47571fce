//! `pintle proxy` and `pintle run`: the flags as typed, and their help.
//!
//! Every value is kept as text: what it means, and whether it may be, is for `config`, which also knows the variables.

#![forbid(unsafe_code)]

use std::ffi::OsString;

use argh::FromArgs;

use crate::config::Role;

/// What was typed after `proxy` or `run`, in one spelling.
#[derive(Debug, Default)]
pub struct ProxyArgs {
    /// The first word, checked.
    pub role: Role,
    pub(crate) flags: ProxyFlags,
    /// What followed the `--` of `proxy`, checked and split.
    pub extra: Vec<OsString>,
    /// What followed the `--` of `run`; empty for `proxy`.
    pub command: Vec<OsString>,
    /// Flags of history that were given.
    pub warnings: Vec<String>,
}

/// run Envoy: write its bootstrap, hot-restart it when certificates change, drain it on SIGTERM
//
// argh's struct: a field is a flag, its comment the flag's help. In the order of `flags::PROXY`.
#[derive(Debug, Default, FromArgs)]
#[argh(
    name = "proxy",
    help_triggers("--help", "-h"),
    usage = "[sidecar|router|ingress] [flags] [-- ENVOY ARGS...]",
    note = "Flags are written --config-path X, --config-path=X or --configPath X. Booleans take --flag,\n\
            --flag=true or --flag=false; durations are Go's: 500ms, 45s, 1m0s. A scalar flag given twice: the\n\
            last one wins. Order: defaults, PROXY_CONFIG, other variables, flags. Flags that another\n\
            pilot-agent had and that mean nothing here are accepted with a warning.",
    note = "A companion's CMD ARGS is split at blanks. '...' is literal; \"...\" takes \\\" and \\\\; elsewhere \\ takes\n\
            the next character. Nothing is expanded: no variables, patterns or redirections.",
    note = "Exit code N or 128+n: the retry budget is spent and nothing serves: the proxy's own code (127 not\n\
            found, 126 not executable), or 128 + its signal.",
    error_code(
        0,
        "stopped on request and all ended in time, or a clean exit of the last proxy"
    ),
    error_code(1, "request, wait or probe failed"),
    error_code(
        64,
        "usage: unknown command, flag or role, an argument too many, too few or refused"
    ),
    error_code(71, "the operating system refused something that the start needs"),
    error_code(
        78,
        "a value or a file is malformed, missing, out of range or contradicts another"
    ),
    error_code(137, "on request, but a process had to be killed"),
    error_code(143, "TERM, INT or QUIT before any epoch was LIVE")
)]
pub(crate) struct ProxyFlags {
    /// sidecar (the default), router or ingress
    #[argh(positional)]
    pub(crate) role: Vec<String>,
    /// registry: Kubernetes, Consul or another; decides id and domain (default Kubernetes)
    #[argh(option, arg_name = "registry")]
    pub(crate) serviceregistry: Option<String>,
    /// address of the proxy (default: INSTANCE_IP, else the host's first)
    #[argh(option, arg_name = "address")]
    pub(crate) ip: Option<String>,
    /// second part of the node id (default: POD_NAME.POD_NAMESPACE)
    #[argh(option, arg_name = "id")]
    pub(crate) id: Option<String>,
    /// DNS domain (default: POD_NAMESPACE.svc.cluster.local)
    #[argh(option, arg_name = "domain")]
    pub(crate) domain: Option<String>,
    /// SPIFFE trust domain (default: cluster.local)
    #[argh(option, arg_name = "domain")]
    pub(crate) trust_domain: Option<String>,
    /// port for probes, metrics and status; 0: off (default 0)
    #[argh(option, arg_name = "port")]
    pub(crate) status_port: Option<String>,
    /// ports that must have a listener for readiness; a list (default: none)
    #[argh(option, arg_name = "ports")]
    pub(crate) application_ports: Vec<String>,
    /// where bootstraps are written (default /etc/istio/proxy)
    #[argh(option, arg_name = "directory")]
    pub(crate) config_path: Option<String>,
    /// the proxy (default /usr/local/bin/envoy)
    #[argh(option, arg_name = "file")]
    pub(crate) binary_path: Option<String>,
    /// service cluster of the node (default istio-proxy)
    #[argh(option, arg_name = "name")]
    pub(crate) service_cluster: Option<String>,
    /// how long a parent drains at a hot restart (default 45s)
    #[argh(option, arg_name = "duration")]
    pub(crate) drain_duration: Option<String>,
    /// when a parent is ended after a hot restart (default 1m0s)
    #[argh(option, arg_name = "duration")]
    pub(crate) parent_shutdown_duration: Option<String>,
    /// control plane, xDS over gRPC (default istio-pilot:15010)
    #[argh(option, arg_name = "host:port")]
    pub(crate) discovery_address: Option<String>,
    /// collector of Zipkin traces (default: none)
    #[argh(option, arg_name = "host:port")]
    pub(crate) zipkin_address: Option<String>,
    /// agent for Datadog traces (default: none)
    #[argh(option, arg_name = "host:port")]
    pub(crate) datadog_agent_address: Option<String>,
    /// connect timeout of the control plane's cluster (default 1s)
    #[argh(option, arg_name = "duration")]
    pub(crate) connect_timeout: Option<String>,
    /// statsd sink; no name, an address (default: none)
    #[argh(option, arg_name = "ip:port")]
    pub(crate) statsd_udp_address: Option<String>,
    /// metrics service (default: none)
    #[argh(option, arg_name = "host:port")]
    pub(crate) envoy_metrics_service_address: Option<String>,
    /// the same as a RemoteService in JSON; its address counts (default: none)
    #[argh(option, arg_name = "json")]
    pub(crate) envoy_metrics_service: Option<String>,
    /// the proxy's admin port (default 15000)
    #[argh(option, arg_name = "port")]
    pub(crate) proxy_admin_port: Option<String>,
    /// NONE or MUTUAL_TLS towards the control plane (default NONE)
    #[argh(option, arg_name = "policy")]
    pub(crate) control_plane_auth_policy: Option<String>,
    /// used as -c, nothing is generated (default: none)
    #[argh(option, arg_name = "file")]
    pub(crate) custom_config_file: Option<String>,
    /// the proxy's log level (default warning)
    #[argh(option, arg_name = "level")]
    pub(crate) proxy_log_level: Option<String>,
    /// worker threads; 0: ISTIO_CPU_LIMIT, else the cgroup's CPU limit (default 0)
    #[argh(option, arg_name = "n")]
    pub(crate) concurrency: Option<String>,
    /// JSON bootstrap with $-names in it; also ISTIO_BOOTSTRAP (default: none)
    #[argh(option, arg_name = "file")]
    pub(crate) template_file: Option<String>,
    /// further files or directories that count as configuration; a list (default: none)
    #[argh(option, arg_name = "paths")]
    pub(crate) watch: Vec<String>,
    /// false: certificates come another way, SDS say (default true)
    #[argh(option, arg_name = "bool")]
    pub(crate) watch_certificates: Option<String>,
    /// from the first change to the re-hash (default 10s)
    #[argh(option, arg_name = "duration")]
    pub(crate) cert_debounce: Option<String>,
    /// re-hash without any event; 0: off (default 5m)
    #[argh(option, arg_name = "duration")]
    pub(crate) rescan_interval: Option<String>,
    /// longest drain (default 5s; TERMINATION_DRAIN_DURATION_SECONDS)
    #[argh(option, arg_name = "duration")]
    pub(crate) termination_drain_duration: Option<String>,
    /// end the drain when no connection is left (default false; a variable of that name)
    #[argh(option, arg_name = "bool")]
    pub(crate) exit_on_zero_active_connections: Option<String>,
    /// shortest drain with the flag above (default 5s; MINIMUM_DRAIN_DURATION)
    #[argh(option, arg_name = "duration")]
    pub(crate) minimum_drain_duration: Option<String>,
    /// from SIGTERM to SIGKILL of a proxy process (default 5s)
    #[argh(option, arg_name = "duration")]
    pub(crate) kill_timeout: Option<String>,
    /// crash restarts until the agent gives up (default 10)
    #[argh(option, arg_name = "n")]
    pub(crate) retry_budget: Option<String>,
    /// first delay before a crash restart, doubled each time (default 200ms)
    #[argh(option, arg_name = "duration")]
    pub(crate) retry_initial: Option<String>,
    /// an epoch that ran this long refills the budget (default 10m)
    #[argh(option, arg_name = "duration")]
    pub(crate) retry_reset: Option<String>,
    /// exit, restart or idle when the last proxy exits 0 by itself (default exit)
    #[argh(option, arg_name = "what")]
    pub(crate) on_clean_exit: Option<String>,
    /// longest wait for an epoch to be LIVE before the next starts (default 20s)
    #[argh(option, arg_name = "duration")]
    pub(crate) live_timeout: Option<String>,
    /// try a new bootstrap with --mode validate before it replaces an epoch (default false)
    #[argh(option, arg_name = "bool")]
    pub(crate) validate: Option<String>,
    /// stop, then start; never two processes (default false)
    #[argh(option, arg_name = "bool")]
    pub(crate) disable_hot_restart: Option<String>,
    /// do not answer for a parent that died while it drained (default false)
    #[argh(option, arg_name = "bool")]
    pub(crate) no_parent_stand_in: Option<String>,
    /// names the proxy's shared memory; auto finds a free one (default 0)
    #[argh(option, arg_name = "n")]
    pub(crate) base_id: Option<String>,
    /// the proxy runs as this user (default: as the agent)
    #[argh(option, arg_name = "uid[:gid]")]
    pub(crate) proxy_user: Option<String>,
    /// set on the proxy processes, -1000 to 1000 (default: as the agent)
    #[argh(option, arg_name = "n")]
    pub(crate) proxy_oom_score_adj: Option<String>,
    /// set on the proxy processes (default false)
    #[argh(option, arg_name = "bool")]
    pub(crate) no_new_privs: Option<String>,
    /// between "not ready" and the drain (default 0s)
    #[argh(option, arg_name = "duration")]
    pub(crate) pre_drain_delay: Option<String>,
    /// a further process, kept running beside the proxy; repeatable (default: none)
    #[argh(option, arg_name = "command")]
    pub(crate) companion: Vec<String>,
    /// the proxy's --component-log-level (default: none)
    #[argh(option, arg_name = "levels")]
    pub(crate) proxy_component_log_level: Option<String>,
    /// the proxy's flag of that name (default: v6 on a host without IPv4, else none)
    #[argh(option, arg_name = "v4|v6")]
    pub(crate) local_address_ip_version: Option<String>,
    /// the proxy's --max-obj-name-len, before Envoy 1.11 (default: none)
    #[argh(option, arg_name = "n")]
    pub(crate) stat_name_length: Option<String>,
    /// the exact argv of pilot-agent 1.1.5 (default false)
    #[argh(option, arg_name = "bool")]
    pub(crate) legacy_envoy_args: Option<String>,
    /// true, false or auto: sidecars with xDS (default auto)
    #[argh(option, arg_name = "when")]
    pub(crate) drain_inbound_only: Option<String>,
    /// where the status port listens (default ::, or 0.0.0.0)
    #[argh(option, arg_name = "address")]
    pub(crate) status_address: Option<String>,
    /// where the admin port listens (default 127.0.0.1; ::1 on a host without IPv4)
    #[argh(option, arg_name = "address")]
    pub(crate) proxy_admin_address: Option<String>,
    /// log lines as JSON (default false)
    #[argh(option, arg_name = "bool")]
    pub(crate) log_as_json: Option<String>,
    /// debug, info, warn, error or none; scopes as in default:info (default info)
    #[argh(option, arg_name = "level")]
    pub(crate) log_output_level: Option<String>,
    /// stdout, stderr or a file; repeatable (default stdout)
    #[argh(option, arg_name = "target")]
    pub(crate) log_target: Vec<String>,
}

impl ProxyFlags {
    /// The value of a scalar flag, by its name in `flags::PROXY`.
    pub(crate) fn scalar(&self, name: &str) -> Option<&str> {
        let field = match name {
            "serviceregistry" => &self.serviceregistry,
            "ip" => &self.ip,
            "id" => &self.id,
            "domain" => &self.domain,
            "trust-domain" => &self.trust_domain,
            "status-port" => &self.status_port,
            "config-path" => &self.config_path,
            "binary-path" => &self.binary_path,
            "service-cluster" => &self.service_cluster,
            "drain-duration" => &self.drain_duration,
            "parent-shutdown-duration" => &self.parent_shutdown_duration,
            "discovery-address" => &self.discovery_address,
            "zipkin-address" => &self.zipkin_address,
            "datadog-agent-address" => &self.datadog_agent_address,
            "connect-timeout" => &self.connect_timeout,
            "statsd-udp-address" => &self.statsd_udp_address,
            "envoy-metrics-service-address" => &self.envoy_metrics_service_address,
            "envoy-metrics-service" => &self.envoy_metrics_service,
            "proxy-admin-port" => &self.proxy_admin_port,
            "control-plane-auth-policy" => &self.control_plane_auth_policy,
            "custom-config-file" => &self.custom_config_file,
            "proxy-log-level" => &self.proxy_log_level,
            "concurrency" => &self.concurrency,
            "template-file" => &self.template_file,
            "watch-certificates" => &self.watch_certificates,
            "cert-debounce" => &self.cert_debounce,
            "rescan-interval" => &self.rescan_interval,
            "termination-drain-duration" => &self.termination_drain_duration,
            "exit-on-zero-active-connections" => &self.exit_on_zero_active_connections,
            "minimum-drain-duration" => &self.minimum_drain_duration,
            "kill-timeout" => &self.kill_timeout,
            "retry-budget" => &self.retry_budget,
            "retry-initial" => &self.retry_initial,
            "retry-reset" => &self.retry_reset,
            "on-clean-exit" => &self.on_clean_exit,
            "live-timeout" => &self.live_timeout,
            "validate" => &self.validate,
            "disable-hot-restart" => &self.disable_hot_restart,
            "no-parent-stand-in" => &self.no_parent_stand_in,
            "base-id" => &self.base_id,
            "proxy-user" => &self.proxy_user,
            "proxy-oom-score-adj" => &self.proxy_oom_score_adj,
            "no-new-privs" => &self.no_new_privs,
            "pre-drain-delay" => &self.pre_drain_delay,
            "proxy-component-log-level" => &self.proxy_component_log_level,
            "local-address-ip-version" => &self.local_address_ip_version,
            "stat-name-length" => &self.stat_name_length,
            "legacy-envoy-args" => &self.legacy_envoy_args,
            "drain-inbound-only" => &self.drain_inbound_only,
            "status-address" => &self.status_address,
            "proxy-admin-address" => &self.proxy_admin_address,
            "log-as-json" => &self.log_as_json,
            "log-output-level" => &self.log_output_level,
            _ => return None,
        };
        field.as_deref()
    }

    /// The values of a flag that may be repeated.
    pub(crate) fn list(&self, name: &str) -> &[String] {
        match name {
            "application-ports" => &self.application_ports,
            "watch" => &self.watch,
            "companion" => &self.companion,
            "log-target" => &self.log_target,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::flags;

    /// The table, the structure and the help know the same flags, with the same defaults.
    #[test]
    fn table_structure_and_help_agree() {
        let help = ProxyFlags::from_args(&["pintle", "proxy"], &["--help"]).unwrap_err();
        let text = help.output.split_whitespace().collect::<Vec<_>>().join(" ");
        for flag in flags::PROXY.iter().filter(|flag| !flag.kind.is_history()) {
            let typed = ["--", flag.name].concat();
            let parsed = ProxyFlags::from_args(&[], &[&typed, "given"]).unwrap();
            let scalar = parsed.scalar(flag.name) == Some("given");
            let list = parsed.list(flag.name) == ["given"];
            assert!(scalar != list, "{typed} is one of both");
            assert_eq!(
                list,
                matches!(flag.kind, flags::Kind::List | flags::Kind::Repeated)
            );
            let at = text
                .find(&format!(" {typed} "))
                .unwrap_or_else(|| panic!("{typed} in the help"));
            let until = text[at + 3..]
                .find(" --")
                .map_or(text.len(), |end| at + 3 + end);
            if !flag.default.is_empty() {
                let expected = format!("(default {}", flag.default);
                let described = &text[at..];
                assert!(
                    described
                        .find(&expected)
                        .is_some_and(|d| at + d < until + 80),
                    "{typed} {expected}"
                );
            }
        }
        let (listed, _) = help.output.split_once("Notes:").unwrap();
        let options = listed
            .lines()
            .filter(|line| line.starts_with("  --"))
            .count();
        let known = flags::PROXY
            .iter()
            .filter(|flag| !flag.kind.is_history())
            .count();
        assert_eq!(options, known + 1, "one line each, and --help");
        for code in [
            "0 ",
            "1 ",
            "64 ",
            "71 ",
            "78 ",
            "137 ",
            "143 ",
            "N or 128+n",
        ] {
            assert!(
                help.output.contains(&format!("  {code}")) || text.contains(code),
                "{code}"
            );
        }
        for flag in flags::PROXY.iter().filter(|flag| flag.kind.is_history()) {
            let typed = ["--", flag.name].concat();
            assert!(
                ProxyFlags::from_args(&[], &[&typed, "given"]).is_err(),
                "{typed}"
            );
        }
    }
}
