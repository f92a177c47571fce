//! The table of flags: what the normaliser knows of them, and their defaults.
//!
//! Names are kebab-case; the normaliser brings pilot-agent's other spellings here. A test holds this table, the argh
//! structures and `--help` together.

#![forbid(unsafe_code)]

/// One flag.
#[derive(Debug)]
pub struct Flag {
    pub name: &'static str,
    pub kind: Kind,
    /// As it would be typed; "" means none.
    pub default: &'static str,
    /// The variable that stands in for the flag; "" where there is none.
    pub variable: &'static str,
}

/// How a flag takes its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// True or false; the value only after `=`.
    Bool,
    /// One text; the last one wins.
    Text,
    /// A whole number; the last one wins.
    Number,
    /// A Go duration; the last one wins.
    Duration,
    /// Comma separated and repeatable.
    List,
    /// Repeatable, and a comma is only a comma.
    Repeated,
    /// Of some pilot-agent, without meaning here: accepted with a warning.
    Legacy,
    /// The same, true or false.
    LegacyBool,
    /// Of some pilot-agent, and no Envoy can do it any more: refused unless it asks for nothing.
    Gone,
    /// The same, true or false.
    GoneBool,
}

impl Kind {
    /// Whether a bare `--flag` is complete.
    #[must_use]
    pub const fn is_bool(self) -> bool {
        matches!(self, Self::Bool | Self::LegacyBool | Self::GoneBool)
    }

    /// Whether the flag exists only so that old argument lists go through.
    #[must_use]
    pub const fn is_history(self) -> bool {
        matches!(
            self,
            Self::Legacy | Self::LegacyBool | Self::Gone | Self::GoneBool
        )
    }
}

/// The flag of that kebab-case name.
#[must_use]
pub fn find(table: &'static [Flag], name: &str) -> Option<&'static Flag> {
    table.iter().find(|flag| flag.name == name)
}

const fn flag(name: &'static str, kind: Kind, default: &'static str) -> Flag {
    Flag {
        name,
        kind,
        default,
        variable: "",
    }
}

const fn from_variable(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    variable: &'static str,
) -> Flag {
    Flag {
        name,
        kind,
        default,
        variable,
    }
}

/// `pintle version`.
pub const VERSION: &[Flag] = &[
    flag("short", Kind::Bool, "false"),
    flag("output", Kind::Text, ""),
];

/// `pintle request`.
pub const REQUEST: &[Flag] = &[flag("debug-port", Kind::Number, "15000")];

pub(super) const DEFAULT_URL: &str = "http://127.0.0.1:15020/healthz/ready";

const URL: Flag = flag("url", Kind::Text, DEFAULT_URL);

/// `pintle wait`.
pub const WAIT: &[Flag] = &[
    URL,
    flag("timeout-seconds", Kind::Number, "60"),
    flag("period-millis", Kind::Number, "500"),
    flag("request-timeout-millis", Kind::Number, "500"),
];

/// `pintle probe`.
pub const PROBE: &[Flag] = &[URL];

/// `pintle status`.
pub const STATUS: &[Flag] = &[
    flag("status-port", Kind::Number, "15020"),
    flag("json", Kind::Bool, "false"),
    flag("watch", Kind::Bool, "false"),
];

/// `pintle proxy`, in the order of `--help`.
pub const PROXY: &[Flag] = &[
    // pilot-agent 1.1.5.
    flag("serviceregistry", Kind::Text, "Kubernetes"),
    from_variable("ip", Kind::Text, "", "INSTANCE_IP"),
    flag("id", Kind::Text, ""),
    flag("domain", Kind::Text, ""),
    flag("trust-domain", Kind::Text, ""),
    flag("status-port", Kind::Number, "0"),
    flag("application-ports", Kind::List, ""),
    flag("config-path", Kind::Text, "/etc/istio/proxy"),
    flag("binary-path", Kind::Text, "/usr/local/bin/envoy"),
    flag("service-cluster", Kind::Text, "istio-proxy"),
    flag("drain-duration", Kind::Duration, "45s"),
    flag("parent-shutdown-duration", Kind::Duration, "1m0s"),
    flag("discovery-address", Kind::Text, "istio-pilot:15010"),
    flag("zipkin-address", Kind::Text, ""),
    flag("datadog-agent-address", Kind::Text, ""),
    flag("connect-timeout", Kind::Duration, "1s"),
    flag("statsd-udp-address", Kind::Text, ""),
    flag("envoy-metrics-service-address", Kind::Text, ""),
    flag("envoy-metrics-service", Kind::Text, ""),
    flag("proxy-admin-port", Kind::Number, "15000"),
    flag("control-plane-auth-policy", Kind::Text, "NONE"),
    flag("custom-config-file", Kind::Text, ""),
    flag("proxy-log-level", Kind::Text, "warning"),
    flag("concurrency", Kind::Number, "0"),
    from_variable("template-file", Kind::Text, "", "ISTIO_BOOTSTRAP"),
    // Ours, and those of later pilot-agents.
    flag("watch", Kind::List, ""),
    flag("watch-certificates", Kind::Bool, "true"),
    flag("cert-debounce", Kind::Duration, "10s"),
    flag("rescan-interval", Kind::Duration, "5m"),
    flag("termination-drain-duration", Kind::Duration, "5s"),
    from_variable(
        "exit-on-zero-active-connections",
        Kind::Bool,
        "false",
        "EXIT_ON_ZERO_ACTIVE_CONNECTIONS",
    ),
    from_variable(
        "minimum-drain-duration",
        Kind::Duration,
        "5s",
        "MINIMUM_DRAIN_DURATION",
    ),
    flag("kill-timeout", Kind::Duration, "5s"),
    flag("retry-budget", Kind::Number, "10"),
    flag("retry-initial", Kind::Duration, "200ms"),
    flag("retry-reset", Kind::Duration, "10m"),
    flag("on-clean-exit", Kind::Text, "exit"),
    flag("live-timeout", Kind::Duration, "20s"),
    flag("validate", Kind::Bool, "false"),
    flag("disable-hot-restart", Kind::Bool, "false"),
    flag("no-parent-stand-in", Kind::Bool, "false"),
    flag("base-id", Kind::Text, "0"),
    flag("proxy-user", Kind::Text, ""),
    flag("proxy-oom-score-adj", Kind::Number, ""),
    flag("no-new-privs", Kind::Bool, "false"),
    flag("pre-drain-delay", Kind::Duration, "0s"),
    flag("companion", Kind::Repeated, ""),
    flag("proxy-component-log-level", Kind::Text, ""),
    flag("local-address-ip-version", Kind::Text, ""),
    flag("stat-name-length", Kind::Number, ""),
    flag("legacy-envoy-args", Kind::Bool, "false"),
    flag("drain-inbound-only", Kind::Text, "auto"),
    flag("status-address", Kind::Text, "::"),
    flag("proxy-admin-address", Kind::Text, "127.0.0.1"),
    flag("log-as-json", Kind::Bool, "false"),
    flag("log-output-level", Kind::Text, "info"),
    flag("log-target", Kind::Repeated, "stdout"),
    // History.
    flag("availability-zone", Kind::Legacy, ""),
    flag("discovery-refresh-delay", Kind::Legacy, ""),
    flag("bootstrapv2", Kind::LegacyBool, ""),
    flag("disable-internal-telemetry", Kind::LegacyBool, ""),
    flag("control-plane-bootstrap", Kind::LegacyBool, ""),
    flag("dns-refresh-rate", Kind::Legacy, ""),
    flag("pilot-identity", Kind::Legacy, ""),
    flag("mixer-identity", Kind::Legacy, ""),
    flag("envoy-access-log-service", Kind::Legacy, ""),
    flag("sts-port", Kind::Legacy, ""),
    flag("token-manager-plugin", Kind::Legacy, ""),
    flag("outlier-log-path", Kind::Legacy, ""),
    flag("mesh-config", Kind::Legacy, ""),
    flag("profiling", Kind::LegacyBool, ""),
    flag("log-rotate", Kind::Legacy, ""),
    flag("log-rotate-max-age", Kind::Legacy, ""),
    flag("log-rotate-max-size", Kind::Legacy, ""),
    flag("log-rotate-max-backups", Kind::Legacy, ""),
    flag("log-stacktrace-level", Kind::Legacy, ""),
    flag("log-caller", Kind::Legacy, ""),
    flag("vklog", Kind::Legacy, ""),
    flag("lightstep-address", Kind::Gone, ""),
    flag("lightstep-access-token", Kind::Gone, ""),
    flag("lightstep-secure", Kind::GoneBool, ""),
    flag("lightstep-cacert-path", Kind::Gone, ""),
];
