//! The table of flags: what the normaliser knows of them, and their defaults.
//!
//! Names are kebab-case; the normaliser brings pilot-agent's other spellings here. A table is a text: as an array of
//! structures it weighed three times as much.

#![forbid(unsafe_code)]

/// One flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    pub name: &'static str,
    pub kind: FlagKind,
    /// As it would be typed; "" means none.
    pub default: &'static str,
    /// The variable that stands in for the flag; "" where there is none.
    pub variable: &'static str,
}

/// The form of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagKind {
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
    /// A flag of some pilot-agent, without meaning here: accepted with a warning.
    Legacy,
    /// The same, true or false.
    LegacyBool,
    /// A flag of some pilot-agent that no Envoy can honour any more: refused unless it asks for nothing.
    Gone,
    /// The same, true or false.
    GoneBool,
}

impl FlagKind {
    /// By its letter in a table.
    const fn of(letter: u8) -> Self {
        match letter {
            b'b' => Self::Bool,
            b'n' => Self::Number,
            b'd' => Self::Duration,
            b'l' => Self::List,
            b'r' => Self::Repeated,
            b'L' => Self::Legacy,
            b'B' => Self::LegacyBool,
            b'G' => Self::Gone,
            b'H' => Self::GoneBool,
            _ => Self::Text,
        }
    }

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

/// Flags, a line for each: its name, the letter of its kind, its default and its variable, with one blank between; what
/// is missing is none.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    text: &'static str,
    /// In the order of the names: a start looks for ninety of them.
    lines: &'static [Line],
}

/// The beginning of a line, and the lengths of its parts.
#[derive(Clone, Copy, Debug)]
struct Line {
    begin: u16,
    name: u8,
    kind: u8,
    default: u8,
    variable: u8,
}

/// A table of a text, with its lines taken apart and sorted when it is compiled.
macro_rules! table {
    ($text:expr) => {{
        const TEXT: &str = $text;
        const LINES: [Line; count(TEXT.as_bytes())] = sorted(TEXT.as_bytes());
        Table {
            text: TEXT,
            lines: &LINES,
        }
    }};
}

#[allow(
    clippy::indexing_slicing,
    reason = "of a constant: it would not compile"
)]
const fn count(text: &[u8]) -> usize {
    let (mut at, mut lines) = (0, 0);
    while at < text.len() {
        if text[at] == b'\n' {
            lines += 1;
        }
        at += 1;
    }
    lines
}

/// By insertion; a table that does not fit 16 bits does not compile.
#[allow(
    clippy::indexing_slicing,
    reason = "of a constant: it would not compile"
)]
const fn sorted<const LINES: usize>(text: &[u8]) -> [Line; LINES] {
    assert!(text.len() <= u16::MAX as usize);
    let mut lines = [Line {
        begin: 0,
        name: 0,
        kind: 0,
        default: 0,
        variable: 0,
    }; LINES];
    let (mut begin, mut known) = (0, 0);
    while begin < text.len() {
        let mut place = known;
        while place > 0 && is_before(text, begin, lines[place - 1].begin as usize) {
            lines[place] = lines[place - 1];
            place -= 1;
        }
        let (line, end) = taken_apart(text, begin);
        lines[place] = line;
        known += 1;
        begin = end + 1;
    }
    lines
}

/// A line and where it ends; a part that does not fit 8 bits does not compile.
#[allow(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "of a constant: it would not compile, and the lengths are asserted"
)]
const fn taken_apart(text: &[u8], begin: usize) -> (Line, usize) {
    let (mut parts, mut part, mut at) = ([0_usize; 4], 0, begin);
    while text[at] != b'\n' {
        if text[at] == b' ' {
            part += 1;
        } else {
            parts[part] += 1;
            assert!(parts[part] <= u8::MAX as usize);
        }
        at += 1;
    }
    assert!(parts[0] > 0 && parts[1] == 1);
    let line = Line {
        begin: begin as u16,
        name: parts[0] as u8,
        kind: text[begin + parts[0] + 1],
        default: parts[2] as u8,
        variable: parts[3] as u8,
    };
    (line, at)
}

/// Whether the name in the one line comes before that in the other. A blank, which ends a name, is less than all in one.
#[allow(
    clippy::indexing_slicing,
    reason = "of a constant: it would not compile"
)]
const fn is_before(text: &[u8], one: usize, other: usize) -> bool {
    let mut at = 0;
    while text[one + at] == text[other + at] && text[one + at] != b' ' {
        at += 1;
    }
    text[one + at] < text[other + at]
}

impl Table {
    /// In the order of the table.
    pub fn flags(self) -> impl Iterator<Item = Flag> {
        let lines = self.text.split_terminator('\n');
        lines.filter_map(move |line| self.find(line.split(' ').next()?))
    }

    /// The flag of that kebab-case name.
    #[must_use]
    pub fn find(self, name: &str) -> Option<Flag> {
        let find = |line: &Line| self.part(line.begin.into(), line.name).cmp(name);
        let place = self.lines.binary_search_by(find).ok()?;
        self.lines.get(place).map(|line| self.flag(line))
    }

    fn flag(self, line: &Line) -> Flag {
        let begin = usize::from(line.begin);
        let default_at = begin + usize::from(line.name) + 3;
        let variable_at = default_at + usize::from(line.default) + 1;
        Flag {
            name: self.part(begin, line.name),
            kind: FlagKind::of(line.kind),
            default: self.part(default_at, line.default),
            variable: self.part(variable_at, line.variable),
        }
    }

    fn part(self, at: usize, length: u8) -> &'static str {
        let end = at + usize::from(length);
        // Where there is no such part, it may lie behind the text.
        self.text.get(at..end).unwrap_or_default()
    }
}

/// `pintle init`.
pub const INIT: Table = table!("group b\nverbose b\n");

/// `pintle version`.
pub const VERSION: Table = table!("short b\noutput t\n");

/// `pintle request`.
pub const REQUEST: Table = table!("debug-port n\n");

/// `pintle wait`.
pub const WAIT: Table =
    table!("url t\ntimeout-seconds n\nperiod-millis n\nrequest-timeout-millis n\n");

/// `pintle probe`.
pub const PROBE: Table = table!("url t\n");

/// `pintle status`.
pub const STATUS: Table = table!("status-port n\nurl t\njson b\nwatch b\n");

/// `pintle drain` and `pintle quit`.
pub const ORDER: Table = table!("status-port n\n");

/// Writes the flags of `proxy` down in two texts: the table, and what `--help` says of each, a line for a flag.
macro_rules! flags_of_proxy {
    ($($flag:literal => $help:literal,)* history: $($history:literal,)*) => {
        /// `pintle proxy`, in the order of `--help`.
        pub const PROXY: Table =
            table!(concat!($($flag, "\n",)* $($history, "\n",)*));
        /// The flags of `PROXY` that are not history, described in its order. The default is added where the text does
        /// not end with one.
        pub(super) const PROXY_HELP: &str = concat!($($help, "\n",)*);
    };
}

flags_of_proxy! {
    // pilot-agent 1.1.5.
    "serviceregistry t Kubernetes" => "registry: Kubernetes, Consul or another; decides id and domain",
    "ip t  INSTANCE_IP" => "address of the proxy (default: INSTANCE_IP, else the host's first)",
    "id t" => "second part of the node id (default: POD_NAME.POD_NAMESPACE)",
    "domain t" => "DNS domain (default: POD_NAMESPACE.svc.cluster.local)",
    "trust-domain t  TRUST_DOMAIN" => "SPIFFE trust domain (default: TRUST_DOMAIN, else cluster.local)",
    "pilot-identity t" => "the control plane's SPIFFE id is spiffe://TRUST-DOMAIN/this (default: as its service account)",
    "status-port n 0" => "port for probes, metrics and status; 0: off",
    "application-ports l" => "ports that must have a listener for readiness; a list",
    "config-path t /etc/istio/proxy" => "where bootstraps are written",
    "binary-path t /usr/local/bin/envoy" => "the proxy",
    "service-cluster t istio-proxy" => "service cluster of the node",
    "drain-duration d 45s" => "how long a parent drains at a hot restart",
    "parent-shutdown-duration d 1m0s" => "when a parent is ended after a hot restart (default 1m0s, or 15s after the drain)",
    "discovery-address t istio-pilot:15010" => "control plane, xDS over gRPC",
    "zipkin-address t" => "collector of Zipkin traces",
    "datadog-agent-address t" => "agent for Datadog traces",
    "connect-timeout d 1s" => "connect timeout of the control plane's cluster",
    "statsd-udp-address t" => "statsd sink; no name, an address",
    "envoy-metrics-service-address t" => "metrics service",
    "envoy-metrics-service t" => "the same as a RemoteService in JSON; its address counts",
    "proxy-admin-port n 15000" => "the proxy's admin port",
    "control-plane-auth-policy t NONE" => "NONE or MUTUAL_TLS towards the control plane",
    "custom-config-file t" => "used as -c, nothing is generated",
    "proxy-log-level t warning" => "the proxy's log level",
    "concurrency n 0" => "worker threads; 0: ISTIO_CPU_LIMIT, else the cgroup's CPU limit",
    "template-file t  ISTIO_BOOTSTRAP" => "JSON bootstrap with $-names in it; also ISTIO_BOOTSTRAP",
    // pintle's own, and those of later pilot-agents.
    "watch l" => "further files or directories that count as configuration; a list",
    "watch-certificates b true" => "false: certificates come another way, SDS say",
    "cert-debounce d 10s" => "from the first change to the re-hash",
    "rescan-interval d 5m" => "re-hash without any event; 0: off",
    "termination-drain-duration d 5s" => "longest drain (default 5s; TERMINATION_DRAIN_DURATION_SECONDS)",
    "exit-on-zero-active-connections b false EXIT_ON_ZERO_ACTIVE_CONNECTIONS" =>
        "end the drain when no connection is left (default false; a variable of that name)",
    "minimum-drain-duration d 5s MINIMUM_DRAIN_DURATION" =>
        "shortest drain with the flag above (default 5s; MINIMUM_DRAIN_DURATION)",
    "kill-timeout d 5s" => "from SIGTERM to SIGKILL of a proxy process",
    "retry-budget n 10" => "crash restarts until the agent gives up",
    "retry-initial d 200ms" => "first delay before a crash restart, doubled each time, up to 1h",
    "retry-reset d 10m" => "an epoch that ran this long refills the budget",
    "on-clean-exit t exit" => "exit, restart or idle when the last proxy exits 0 by itself",
    "live-timeout d 20s" => "longest wait for an epoch to be LIVE before the next starts",
    "proxy-hang-timeout d 0s" => "kill a LIVE proxy whose admin port is silent for so long; 0: off",
    "validate b false" => "try a new bootstrap with --mode validate before it replaces an epoch",
    "disable-hot-restart b false" => "stop, then start; never two processes",
    "no-parent-stand-in b false" => "do not answer for a parent that died while it drained",
    "base-id t 0" => "names the proxy's shared memory; auto finds a free one",
    "proxy-user t" => "the proxy runs as this user (default: as the agent)",
    "proxy-oom-score-adj n" => "set on the proxy processes, -1000 to 1000 (default: as the agent)",
    "no-new-privs b false" => "set on the proxy processes",
    "pre-drain-delay d 0s" => "between \"not ready\" and the drain",
    "companion r" => "a further process, kept running beside the proxy; repeatable",
    "proxy-component-log-level t" => "the proxy's --component-log-level",
    "local-address-ip-version t" => "the proxy's flag of that name (default: v6 on a host without IPv4, else none)",
    "stat-name-length n" => "the proxy's --max-obj-name-len, before Envoy 1.11",
    "legacy-envoy-args b false" => "the exact argv of pilot-agent 1.1.5",
    "drain-inbound-only t auto" => "true, false or auto: sidecars with a generated bootstrap",
    "status-address t ::" => "where the status port listens (default ::, or 0.0.0.0)",
    "proxy-admin-address t 127.0.0.1" =>
        "where the admin port listens (default 127.0.0.1; ::1 on a host without IPv4)",
    "log-as-json b false" => "log lines as JSON",
    "log-output-level t info" => "debug, info, warn, error or none; scopes as in default:info",
    "log-target r stdout" => "stdout, stderr or a file; repeatable",
    history:
    "availability-zone L",
    "discovery-refresh-delay L",
    "bootstrapv2 B",
    "disable-internal-telemetry B",
    "control-plane-bootstrap B",
    "dns-refresh-rate L",
    "mixer-identity L",
    "envoy-access-log-service L",
    "sts-port L",
    "token-manager-plugin L",
    "outlier-log-path L",
    "mesh-config L",
    "profiling B",
    "log-rotate L",
    "log-rotate-max-age L",
    "log-rotate-max-size L",
    "log-rotate-max-backups L",
    "log-stacktrace-level L",
    "log-caller L",
    "vklog L",
    "lightstep-address G",
    "lightstep-access-token G",
    "lightstep-secure H",
    "lightstep-cacert-path G",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_flag() {
        for table in [INIT, VERSION, REQUEST, WAIT, PROBE, STATUS, ORDER, PROXY] {
            for line in table.text.split_terminator('\n') {
                let parts: Vec<&str> = line.split(' ').collect();
                assert!((2..=4).contains(&parts.len()), "{line}");
                assert!(
                    "tbndlrLBGH".contains(parts[1]) && parts[1].len() == 1,
                    "{line}"
                );
                let kinds = table.flags().filter(|flag| flag.name == parts[0]).count();
                assert_eq!(kinds, 1, "{line}");
                let flag = table.find(parts[0]).unwrap();
                let part = |at: usize| parts.get(at).copied().unwrap_or_default();
                assert_eq!(
                    (flag.name, flag.kind, flag.default, flag.variable),
                    (
                        parts[0],
                        FlagKind::of(parts[1].as_bytes()[0]),
                        part(2),
                        part(3)
                    )
                );
            }
            for wrong in ["", " ", "ip t", "i", "url t", "\n", "ip\n"] {
                assert!(table.find(wrong).is_none(), "{wrong}");
            }
        }
    }
}
