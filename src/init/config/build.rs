//! `Config::new`: every value from its layer, checked, and the contradictions between them.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::identity::Identity;
use super::layers::{Layer, Layers, MIN_DURATION};
use super::source::{self, Documents};
use super::{
    Config, ConfigError, DrainCall, HostFacts, IpVersion, Launch, companion, policy, probers,
    scrape, variables, watched,
};
use crate::bootstrap::Source;
use crate::cli::{ProxyArgs, skips_parent_stats};
use crate::environment::Environment;
use crate::log::{Level, LogConfig, LogTarget};
use crate::values::{self, BaseId, Role, User, duration};

const HOUR: Duration = Duration::from_secs(3600);
/// By how many seconds a parent outlives its drain where only that is given, and it is long: as with the defaults.
const AFTER_DRAIN: u64 = 15;

impl Config {
    /// Makes the configuration of `pintle proxy`.
    ///
    /// # Errors
    /// A value that is malformed, out of range or contradicts another; the error names it.
    pub fn new(
        args: &ProxyArgs,
        environment: Environment,
        host: &HostFacts,
    ) -> Result<Self, ConfigError> {
        let layers = Layers::new(args, environment);
        let mut warnings = args.warnings.clone();
        warnings.extend_from_slice(&layers.config.warnings);
        let identity = Identity::new(&layers, host);
        let documents = Documents::new(&layers);
        let mutual_tls = mutual_tls(&layers);
        let watch = watched::watch(&layers, mutual_tls, documents.paths(), &mut warnings);
        let admin = admin(&layers, &identity);
        let status = status(&layers, admin);
        let companions = companion::companions(&layers);
        let mut policy = policy::policy(&layers, !watch.required.is_empty(), admin, &mut warnings);
        policy.companions = u8::try_from(companions.len()).unwrap_or(u8::MAX);
        policy.command = !args.command.is_empty();
        let launch = launch(&layers, &identity, host, &mut warnings);
        policy.parent_shutdown = launch.parent_shutdown_time;
        let metrics = variables::metrics(&layers);
        variables::warn_of_those_without_effect(&layers, &mut warnings);
        let basis = source::Basis {
            layers: &layers,
            identity: &identity,
            launch: &launch,
            admin,
            mutual_tls,
            metrics,
            drain: (policy.termination_drain, policy.exit_on_zero),
        };
        let source = basis.source(documents, &mut warnings);
        let mut config = Self {
            role: args.role,
            drain: drain(&layers, &source),
            policy,
            source,
            launch,
            companions,
            command: args.command.iter().map(OsString::from).collect(),
            watch,
            admin,
            log: log(&layers),
            grace_period: grace_period(&layers, &mut warnings),
            status,
            application_ports: application_ports(&layers),
            probers: probers::probers(&layers),
            // A hint and no more: what is no address is none.
            node: layers
                .environment
                .get("HOST_IP")
                .ok()
                .flatten()
                .and_then(|ip| ip.parse().ok()),
            pod: Some(identity.ip()).filter(|ip| !ip.is_loopback() && host.addresses.contains(ip)),
            scrape: scrape::targets(&layers, admin, status, &mut warnings),
            metrics,
            warnings,
        };
        config.warn_of_unserved();
        layers.error().map_or(Ok(config), Err)
    }

    /// Warns of what has no effect without a status port.
    fn warn_of_unserved(&mut self) {
        // A command waits for the ports.
        let ports = !self.application_ports.is_empty() && self.command.is_empty();
        for (name, is_given) in [
            ("ISTIO_KUBE_APP_PROBERS", !self.probers.is_empty()),
            ("ISTIO_PROMETHEUS_ANNOTATIONS", !self.scrape.is_empty()),
            ("--application-ports", ports),
        ] {
            if is_given && self.status.is_none() {
                self.warnings
                    .push([name, " means nothing without --status-port"].concat());
            }
        }
    }
}

fn mutual_tls(layers: &Layers<'_>) -> bool {
    layers
        .parse("control-plane-auth-policy", |text| match text {
            "MUTUAL_TLS" => Ok(true),
            "NONE" => Ok(false),
            _ => Err("NONE or MUTUAL_TLS"),
        })
        .unwrap_or_default()
}

fn admin(layers: &Layers<'_>, identity: &Identity) -> SocketAddr {
    let given = layers.given("proxy-admin-address");
    let address = if given.layer == Layer::Default && identity.ipv6_only() {
        IpAddr::V6(Ipv6Addr::LOCALHOST)
    } else {
        layers.address("proxy-admin-address")
    };
    let port = layers.port("proxy-admin-port");
    if port == 0 {
        layers.wrong("proxy-admin-port", "the port must be 1 to 65535");
    }
    SocketAddr::new(address, port)
}

fn status(layers: &Layers<'_>, admin: SocketAddr) -> Option<SocketAddr> {
    let address = layers.address("status-address");
    let port = layers.port("status-port");
    if port == admin.port() {
        let origin = layers.given("status-port").origin();
        layers.refuse(ConfigError::contradiction(
            &origin,
            "--proxy-admin-port",
            "they are the same port",
        ));
    }
    (port != 0).then_some(SocketAddr::new(address, port))
}

fn launch(
    layers: &Layers<'_>,
    identity: &Identity,
    host: &HostFacts,
    warnings: &mut Vec<String>,
) -> Launch {
    let (drain_time, parent_shutdown_time) = hand_over(layers);
    let (log_level, component_log_level) = proxy_levels(layers);
    let extra = variables::proxy_flags(layers);
    Launch {
        binary: layers.required("binary-path").into(),
        directory: layers.required("config-path").into(),
        drain_time,
        parent_shutdown_time,
        service_cluster: layers.required("service-cluster").to_owned(),
        service_node: identity.node.clone(),
        max_obj_name_len: optional_number(layers, "stat-name-length", 0, i64::from(u32::MAX))
            .and_then(|length| u32::try_from(length).ok())
            .filter(|length| *length > 0),
        local_address_ip_version: ip_version(layers, identity),
        legacy_args: layers.switch("legacy-envoy-args"),
        log_level,
        component_log_level,
        concurrency: concurrency(layers, host, warnings),
        base_id: layers
            .parse("base-id", values::base_id)
            .unwrap_or(BaseId::Auto),
        disable_hot_restart: layers.switch("disable-hot-restart"),
        skip_parent_stats: skips_parent_stats(&extra),
        extra: extra.iter().map(OsString::from).collect(),
        user: user(layers),
        oom_score_adj: optional_number(layers, "proxy-oom-score-adj", -1000, 1000)
            .and_then(|score| i32::try_from(score).ok()),
        no_new_privs: layers.switch("no-new-privs"),
    }
}

/// The drain and the parent's end at a hot restart: Envoy takes whole seconds.
fn hand_over(layers: &Layers<'_>) -> (Duration, Duration) {
    let seconds = |name| {
        let duration = layers.duration(name, MIN_DURATION);
        if duration.subsec_nanos() != 0 || duration > HOUR {
            layers.wrong(name, "it must be whole seconds, at most 1h");
        }
        duration
    };
    let drain = seconds("drain-duration");
    let mut parent = seconds("parent-shutdown-duration");
    if parent <= drain {
        if layers.given("parent-shutdown-duration").layer == Layer::Default {
            parent = Duration::from_secs(drain.as_secs().saturating_add(AFTER_DRAIN));
        } else {
            let drain = duration::proto(drain);
            layers.wrong(
                "parent-shutdown-duration",
                &["it must be longer than --drain-duration, ", &drain].concat(),
            );
        }
    }
    (drain, parent)
}

/// Both levels for Envoy; components may stand in either flag.
fn proxy_levels(layers: &Layers<'_>) -> (Option<String>, Option<String>) {
    let levels = layers.parse("proxy-log-level", values::proxy_log_level);
    let (level, mut components) = levels.unwrap_or_default();
    if let Some(more) = layers.some("proxy-component-log-level") {
        if !components.is_empty() {
            components.push(',');
        }
        components.push_str(more);
    }
    let some = |text: String| (!text.is_empty()).then_some(text);
    (some(level), some(components))
}

fn ip_version(layers: &Layers<'_>, identity: &Identity) -> Option<IpVersion> {
    layers
        .parse("local-address-ip-version", |text| match text {
            "v4" => Ok(Some(IpVersion::V4)),
            "v6" => Ok(Some(IpVersion::V6)),
            "" => Ok(identity.ipv6_only().then_some(IpVersion::V6)),
            _ => Err("v4 or v6"),
        })
        .flatten()
}

/// 0 is the default: what the pod or the cgroup grants.
fn concurrency(layers: &Layers<'_>, host: &HostFacts, warnings: &mut Vec<String>) -> Option<u32> {
    const VARIABLE: &str = "ISTIO_CPU_LIMIT";
    /// More threads than any machine has; Envoy would try to start them all.
    const MAX_THREADS: i64 = 65535;
    let given = u32::try_from(layers.number("concurrency", 0..=MAX_THREADS)).unwrap_or(0);
    if given > 0 {
        return Some(given);
    }
    if let Some(text) = layers.variable(VARIABLE) {
        match values::cpus(text) {
            Some(0) => {}
            Some(cpus) => return Some(cpus),
            None => warnings.push(ConfigError::doubt(VARIABLE, text, "not a number of CPUs")),
        }
    }
    (host.cpu_limit)()
}

fn user(layers: &Layers<'_>) -> Option<User> {
    layers.some("proxy-user")?;
    layers.parse("proxy-user", values::user)
}

fn optional_number(layers: &Layers<'_>, name: &'static str, low: i64, high: i64) -> Option<i64> {
    layers.some(name)?;
    Some(layers.number(name, low..=high))
}

/// Envoy closes inbound listeners only where xDS marks them, so auto means: a sidecar with the generated bootstrap. Other
/// documents are read for each epoch, and what they say of xDS tells nothing about the marks.
fn drain(layers: &Layers<'_>, source: &Source) -> DrainCall {
    let sidecar = layers.args.role == Role::Sidecar;
    let generated = matches!(source, Source::Generated { .. });
    let inbound_only = layers.parse("drain-inbound-only", |text| match text {
        "auto" => Ok(sidecar && generated),
        _ => values::switch(text).map_err(|_| "auto, true or false"),
    });
    DrainCall {
        inbound_only: inbound_only.unwrap_or_default(),
        fail_healthcheck: !sidecar,
    }
}

fn log(layers: &Layers<'_>) -> LogConfig {
    let flags = &layers.args.flags;
    if flags.list("log-target").any(str::is_empty) {
        let cause = "it must not be empty";
        layers.refuse(ConfigError::value("--log-target", "", cause));
    }
    LogConfig {
        level: layers
            .parse("log-output-level", values::log_level)
            .unwrap_or(Level::Info),
        json: layers.switch("log-as-json"),
        ..flags.log(LogTarget::Stdout)
    }
}

fn grace_period(layers: &Layers<'_>, warnings: &mut Vec<String>) -> Option<Duration> {
    const VARIABLE: &str = "TERMINATION_GRACE_PERIOD_SECONDS";
    let text = layers.variable(VARIABLE)?;
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(u64::from(seconds)));
    }
    warnings.push(ConfigError::doubt(
        VARIABLE,
        text,
        "not a number of seconds",
    ));
    None
}

fn application_ports(layers: &Layers<'_>) -> Vec<u16> {
    let mut ports = Vec::new();
    for text in layers.args.flags.list("application-ports") {
        match values::port(text) {
            Err(cause) => {
                layers.refuse(ConfigError::value("--application-ports", text, cause));
            }
            Ok(port) if !ports.contains(&port) => ports.push(port),
            Ok(_) => {}
        }
    }
    ports
}
