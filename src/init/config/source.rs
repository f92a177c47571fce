//! The source of the proxy's configuration: generated, a template or a file of the user's.

#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::identity::Identity;
use super::layers::{Given, Layer, Layers, MIN_DURATION};
use super::proxy_config::plain_text;
use super::watched::Certificates;
use super::{ConfigError, IpVersion, Launch, Metrics, variables};
use crate::bootstrap::node::{self, NodeDescription, NodeInputs};
use crate::bootstrap::{ControlPlaneTls, Generated, NODE_METADATA, Source, Template, Tracing};
use crate::cli::flags::{FlagKind, PROXY};
use crate::json::{self, Map, Value};
use crate::search;
use crate::values::{self, BaseId, HostPort, duration};

/// The user's documents: at most one of the first two.
#[derive(Debug)]
pub(super) struct Documents {
    custom: Option<PathBuf>,
    template: Option<PathBuf>,
    over: Option<PathBuf>,
}

impl Documents {
    /// The higher layer wins; two of the same layer contradict each other.
    pub(super) fn new(layers: &Layers<'_>) -> Self {
        let custom = layers.given("custom-config-file");
        let template = layers.given("template-file");
        let over = layers.variable("ISTIO_BOOTSTRAP_OVERRIDE");
        if custom.layer == template.layer && custom.layer != Layer::Default {
            let cause = "one of them is the proxy's configuration";
            let origin = template.origin();
            layers.refuse(ConfigError::contradiction(&custom.origin(), &origin, cause));
        }
        let path = |given: Given<'_>, other: Layer| {
            (given.layer > other).then(|| PathBuf::from(given.text))
        };
        Self {
            custom: path(custom, template.layer),
            template: path(template, custom.layer),
            over: over.map(PathBuf::from),
        }
    }

    /// In the order in which they are watched.
    pub(super) fn paths(&self) -> [Option<&Path>; 3] {
        [&self.custom, &self.template, &self.over].map(Option::as_deref)
    }
}

/// The values that a source is made from.
#[derive(Debug)]
pub(super) struct Basis<'a> {
    pub(super) layers: &'a Layers<'a>,
    pub(super) identity: &'a Identity,
    pub(super) launch: &'a Launch,
    pub(super) admin: SocketAddr,
    pub(super) mutual_tls: bool,
    pub(super) metrics: Metrics,
    /// The longest drain and, where it counts connections, the shortest.
    pub(super) drain: (Duration, Option<Duration>),
}

impl Basis<'_> {
    /// Everything is checked, also what the chosen source does not use.
    pub(super) fn source(&self, documents: Documents, warnings: &mut Vec<String>) -> Source {
        let override_file = documents.over;
        let generated = self.generated(warnings);
        if let Some(file) = documents.custom {
            return Source::Custom {
                file,
                override_file,
            };
        }
        if let Some(file) = documents.template {
            let values = self.template_values(generated);
            let template = Box::new(Template { file, values });
            return Source::Template {
                template,
                override_file,
            };
        }
        self.refuse_shared_port(generated.prometheus_port);
        let inputs = Box::new(generated);
        Source::Generated {
            inputs,
            override_file,
        }
    }

    /// Only the generated bootstrap has that listener.
    fn refuse_shared_port(&self, prometheus: u16) {
        let other = if prometheus == self.admin.port() {
            "--proxy-admin-port"
        } else if prometheus == self.layers.port("status-port") {
            "--status-port"
        } else {
            return;
        };
        let cause = "they are the same port";
        let error = ConfigError::contradiction(PROMETHEUS_PORT, other, cause);
        self.layers.refuse(error);
    }

    fn generated(&self, warnings: &mut Vec<String>) -> Generated {
        let layers = self.layers;
        let discovery = layers.parse("discovery-address", values::host_port);
        let discovery = discovery.unwrap_or_default();
        let NodeDescription {
            mut metadata,
            mut stats,
            locality,
            warnings: doubts,
        } = node::describe(&NodeInputs {
            variables: layers.environment.variables(),
            ips: &self.identity.ips,
            role: layers.args.role,
        });
        warnings.extend(doubts);
        self.add_ports(&mut metadata);
        let matcher = &layers.config.stats;
        stats.prefixes.extend_from_slice(&matcher.prefixes);
        stats.suffixes.extend_from_slice(&matcher.suffixes);
        stats.regexes.extend_from_slice(&matcher.regexes);
        let statsd = layers.some("statsd-udp-address");
        Generated {
            node_id: self.identity.node.clone(),
            cluster: self.launch.service_cluster.clone(),
            metadata,
            locality,
            stats,
            admin: self.admin,
            connect_timeout: connect_timeout(layers),
            control_plane_tls: self.control_plane_tls(&discovery),
            discovery,
            delta: variables::delta(layers),
            tracing: tracing(layers, warnings),
            statsd: statsd.and_then(|_| layers.parse("statsd-udp-address", values::socket_address)),
            metrics_service: layers.noted(metrics_service(layers, warnings)).flatten(),
            prometheus_port: prometheus_port(layers),
            prometheus_local: self.metrics.local_only,
            ipv6_only: self.identity.ipv6_only(),
            count_connections: self.drain.1.is_some(),
        }
    }

    /// Names the proxy's own ports where they are not the usual ones, as Istio's agent does: the control plane then leads no
    /// client to them.
    fn add_ports(&self, metadata: &mut Map) {
        const ADMIN: u16 = 15000;
        let (admin, status) = (self.admin.port(), self.layers.port("status-port"));
        if admin != ADMIN || !matches!(status, 0 | 15020 | 15021) {
            let mut config = match metadata.get("PROXY_CONFIG") {
                Some(Value::Object(config)) => config.clone(),
                _ => Map::new(),
            };
            config.insert("proxyAdminPort", admin.into());
            config.insert("statusPort", status.into());
            metadata.insert("PROXY_CONFIG", config.into());
        }
        let prometheus = prometheus_port(self.layers);
        if prometheus != DEFAULT_PROMETHEUS_PORT {
            metadata.insert("ENVOY_PROMETHEUS_PORT", prometheus.into());
        }
    }

    #[inline(never)]
    fn control_plane_tls(&self, discovery: &HostPort) -> Option<ControlPlaneTls> {
        if !self.mutual_tls {
            return None;
        }
        let certificates = Certificates::client(self.layers);
        let name = self.identity.control_plane_name(self.layers, discovery);
        Some(ControlPlaneTls {
            certificate_chain: certificates.chain.into(),
            private_key: certificates.key.into(),
            root_certificate: certificates.root.into(),
            subject_alt_names: vec![name],
        })
    }

    /// The names that a template may use; `epoch` is added at each rendering.
    fn template_values(&self, generated: Generated) -> Vec<(&'static str, Value)> {
        let mut values: Vec<(&str, Value)> = vec![
            ("node-id", generated.node_id.into()),
            ("node-ip", self.identity.ip().to_string().into()),
            (NODE_METADATA, generated.metadata.into()),
            ("discovery-host", generated.discovery.host.into()),
            ("discovery-port", generated.discovery.port.into()),
        ];
        for flag in PROXY.flags().filter(|flag| !flag.kind.is_history()) {
            let value = match self.effective(flag.name) {
                Some(value) => value,
                None => self.as_given(flag.name, flag.kind),
            };
            values.push((flag.name, value));
        }
        values
    }

    /// Returns the value of a flag whose effect differs from its text.
    fn effective(&self, name: &str) -> Option<Value> {
        let launch = self.launch;
        let identity = self.identity;
        Some(match name {
            "ip" => identity.ip().to_string().into(),
            "id" => identity.id.as_str().into(),
            "domain" => identity.domain.as_str().into(),
            "trust-domain" => identity.trust_domain.as_str().into(),
            "proxy-admin-address" => self.admin.ip().to_string().into(),
            "termination-drain-duration" => duration::proto(self.drain.0).into(),
            "minimum-drain-duration" => duration::proto(self.drain.1?).into(),
            "parent-shutdown-duration" => duration::proto(launch.parent_shutdown_time).into(),
            "concurrency" => launch.concurrency.unwrap_or(0).into(),
            "proxy-log-level" => launch.log_level.clone().unwrap_or_default().into(),
            "proxy-component-log-level" => launch
                .component_log_level
                .clone()
                .unwrap_or_default()
                .into(),
            "local-address-ip-version" => match launch.local_address_ip_version {
                Some(IpVersion::V4) => "v4".into(),
                Some(IpVersion::V6) => "v6".into(),
                None => "".into(),
            },
            "base-id" => match launch.base_id {
                BaseId::Fixed(id) => id.into(),
                BaseId::Auto => "auto".into(),
            },
            _ => return None,
        })
    }

    fn as_given(&self, name: &'static str, kind: FlagKind) -> Value {
        let list: Vec<&str> = self.layers.args.flags.list(name).collect();
        let given = self.layers.given(name);
        match kind {
            FlagKind::List | FlagKind::Repeated if !list.is_empty() => list.join(",").into(),
            FlagKind::Bool => self.layers.switch(name).into(),
            FlagKind::Number => match given.text.parse::<i64>() {
                Ok(number) => number.into(),
                Err(_) => given.text.into(),
            },
            // As Envoy reads them.
            FlagKind::Duration => {
                duration::proto(self.layers.duration(name, Duration::ZERO)).into()
            }
            FlagKind::List | FlagKind::Repeated | FlagKind::Text => given.text.into(),
            FlagKind::Legacy | FlagKind::LegacyBool | FlagKind::Gone | FlagKind::GoneBool => {
                Value::Null
            }
        }
    }
}

fn connect_timeout(layers: &Layers<'_>) -> Duration {
    const MAX_TIMEOUT: Duration = Duration::from_secs(30);
    let timeout = layers.duration("connect-timeout", MIN_DURATION);
    if timeout > MAX_TIMEOUT || !timeout.subsec_nanos().is_multiple_of(1_000_000) {
        layers.wrong(
            "connect-timeout",
            "it must be 1ms to 30s, in whole milliseconds",
        );
    }
    timeout
}

#[inline(never)]
fn tracing(layers: &Layers<'_>, warnings: &mut Vec<String>) -> Option<Tracing> {
    let zipkin = collector(layers, "zipkin-address");
    let datadog = collector(layers, "datadog-agent-address");
    if zipkin.is_some() && datadog.is_some() {
        warnings.push("both Zipkin and Datadog are given: Zipkin is traced to".to_owned());
    }
    zipkin
        .map(Tracing::Zipkin)
        .or_else(|| datadog.map(Tracing::Datadog))
}

/// `$(HOST_IP)` is the kubelet's to expand; where it did not, the node's own address is meant.
fn collector(layers: &Layers<'_>, name: &'static str) -> Option<HostPort> {
    const LITERAL: &str = "$(HOST_IP)";
    let given = layers.some(name)?;
    if !search::contains(given, LITERAL) {
        return layers.parse(name, values::host_port);
    }
    let node = layers.variable("HOST_IP").unwrap_or("127.0.0.1");
    let node = match node.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => ["[", &address.to_string(), "]"].concat(),
        Ok(IpAddr::V4(_)) | Err(_) => node.to_owned(),
    };
    let text = search::replace(given, LITERAL, &node);
    layers.parse(name, |_| values::host_port(&text))
}

/// An address, or pilot-agent 1.4's RemoteService in JSON, of which the address counts.
fn metrics_service(
    layers: &Layers<'_>,
    warnings: &mut Vec<String>,
) -> Result<Option<HostPort>, ConfigError> {
    const ADDRESS: &str = "envoy-metrics-service-address";
    const SERVICE: &str = "envoy-metrics-service";
    let address = layers.given(ADDRESS);
    let service = layers.given(SERVICE);
    if service.layer <= address.layer {
        let address = layers.some(ADDRESS);
        return Ok(address.and_then(|_| layers.parse(ADDRESS, values::host_port)));
    }
    let Some(service) = service.some() else {
        return Ok(None);
    };
    let document = json::parse(service.text.as_bytes())
        .map_err(|error| service.wrong(&["it must be JSON: ", &error.to_string()].concat()))?;
    if document.as_object().is_none() {
        return Err(service.wrong("it must be a JSON object"));
    }
    plain_text(&service.origin(), &document, warnings);
    match document.get("address") {
        None => Ok(None),
        Some(Value::String(address)) if address.is_empty() => Ok(None),
        Some(Value::String(address)) => Ok(layers.parse(SERVICE, |_| values::host_port(address))),
        Some(_) => Err(service.wrong("its address must be a text")),
    }
}

const DEFAULT_PROMETHEUS_PORT: u16 = 15090;

#[inline(never)]
fn prometheus_port(layers: &Layers<'_>) -> u16 {
    let Some(text) = layers.variable(PROMETHEUS_PORT) else {
        return DEFAULT_PROMETHEUS_PORT;
    };
    values::port(text).unwrap_or_else(|cause| {
        layers.refuse(ConfigError::value(PROMETHEUS_PORT, text, cause));
        DEFAULT_PROMETHEUS_PORT
    })
}

const PROMETHEUS_PORT: &str = "ENVOY_PROMETHEUS_PORT";
