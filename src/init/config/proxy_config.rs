//! `PROXY_CONFIG`: Istio's ProxyConfig as JSON, turned into flags' values.

#![forbid(unsafe_code)]

use super::ConfigError;
use crate::bootstrap::StatsInclusion;
use crate::cli::flags::PROXY;
use crate::cli::kebab;
use crate::json::{self, Map, Value};
use crate::search;

/// What it says, as far as it means something here.
#[derive(Debug, Default)]
pub(super) struct ProxyConfig {
    /// Flag, key and value; of two for one flag the later counts.
    pub(super) values: Vec<(&'static str, &'static str, String)>,
    /// `proxyMetadata`: variables for those that are not set.
    pub(super) metadata: Vec<(String, String)>,
    /// `proxyStatsMatcher`.
    pub(super) stats: StatsInclusion,
    pub(super) warnings: Vec<String>,
}

/// What is at `key` or `key/key`.
fn found<'v>(document: &'v Map, pointer: &str) -> Option<&'v Value> {
    let mut keys = pointer.split('/');
    let first = document.get(keys.next()?)?;
    keys.try_fold(first, |value, key| value.get(key))
}

impl ProxyConfig {
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        let wrong = |cause: &str| ConfigError::unreadable("PROXY_CONFIG", cause);
        let document = match json::parse(text.as_bytes()) {
            Ok(Value::Object(document)) => document,
            Ok(_) => return Err(wrong("it must be a JSON object")),
            Err(error) => {
                return Err(wrong(
                    &["it must be JSON, not YAML: ", &error.to_string()].concat(),
                ));
            }
        };
        let mut config = Self::default();
        config.warn_of_unknown(&document);
        for (key, value) in &document {
            let has_parts = PARTS.contains(&key.as_str());
            if has_parts && !matches!(value, Value::Object(_) | Value::Null) {
                return Err(wrong(&[key, ": it must be an object"].concat()));
            }
        }
        config.warn_of_meaningless(&document);
        config.stats = stats(document.get("proxyStatsMatcher"))?;
        config.metadata = metadata(document.get("proxyMetadata"))?;
        if found(&document, "tracing/lightstep").is_some() {
            return Err(wrong(
                "tracing.lightstep: Envoy has no Lightstep tracer any more",
            ));
        }
        for entry in KEYS.split(' ') {
            let (key, flag) = entry.split_once('=').unwrap_or((entry, entry));
            let Some(value) = found(&document, key) else {
                continue;
            };
            let text = scalar(key, value)?;
            if let Some(flag) = PROXY.find(&kebab(flag)) {
                config
                    .values
                    .push((flag.name, key, policy(flag.name, text)));
            }
        }
        Ok(config)
    }

    fn warn_of_meaningless(&mut self, document: &Map) {
        for key in MEANINGLESS.split(' ') {
            if found(document, key).is_some_and(|value| *value != Value::Null) {
                let key = search::replace(key, "/", ".");
                let warning = ["PROXY_CONFIG ", &key, " means nothing here"];
                self.warnings.push(warning.concat());
            }
        }
        for key in ["envoyMetricsService", "tracing"] {
            let origin = ["PROXY_CONFIG ", key].concat();
            self.warnings
                .extend(document.get(key).and_then(|part| plain_text(&origin, part)));
        }
    }

    fn warn_of_unknown(&mut self, document: &Map) {
        let known = |key: &str| {
            // The first of a path.
            let is_key = |entry: &str| entry.split(['/', '=']).next() == Some(key);
            let lists = [KEYS, MEANINGLESS, IGNORED];
            lists.iter().any(|list| list.split(' ').any(is_key))
        };
        let unknown: Vec<&str> = document
            .iter()
            .map(|(key, _)| key.as_str())
            .filter(|key| !known(key))
            .collect();
        if !unknown.is_empty() {
            self.warnings
                .push(["PROXY_CONFIG has unknown keys: ", &unknown.join(", ")].concat());
        }
    }
}

/// A warning where a service is to be reached by TLS, for which nothing here has settings.
pub(super) fn plain_text(origin: &str, service: &Value) -> Option<String> {
    let mode = service.get("tlsSettings")?.get("mode")?;
    let none = match mode {
        Value::Null => true,
        Value::String(mode) => mode == "DISABLE",
        Value::Number(mode) => mode.as_str() == "0",
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    };
    let cause = " asks for TLS, which is not done: it goes in plain text";
    (!none).then(|| [origin, cause].concat())
}

/// Protobuf's JSON writes the enumeration as a name or as a number.
fn policy(flag: &str, text: String) -> String {
    match (flag, text.as_str()) {
        ("control-plane-auth-policy", "0") => "NONE".to_owned(),
        ("control-plane-auth-policy", "1") => "MUTUAL_TLS".to_owned(),
        _ => text,
    }
}

fn scalar(key: &str, value: &Value) -> Result<String, ConfigError> {
    let wrong = |cause| ConfigError::unreadable("PROXY_CONFIG", &[key, ": ", cause].concat());
    match value {
        // No argument and no variable of a process holds one, but JSON can.
        Value::String(text) if text.contains('\0') => Err(wrong("it holds a NUL byte")),
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.as_str().to_owned()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Null => Ok(String::new()),
        Value::Array(_) | Value::Object(_) => Err(wrong("a text or a number is expected")),
    }
}

fn metadata(value: Option<&Value>) -> Result<Vec<(String, String)>, ConfigError> {
    let mut variables = Vec::new();
    for (name, value) in value.and_then(Value::as_object).into_iter().flatten() {
        // Neither can stand in an environment.
        if !name.is_empty() && !name.contains(['=', '\0']) {
            let key = ["proxyMetadata.", name].concat();
            variables.push((name.clone(), scalar(&key, value)?));
        }
    }
    Ok(variables)
}

fn stats(value: Option<&Value>) -> Result<StatsInclusion, ConfigError> {
    let texts = |key: &str| -> Result<Vec<String>, ConfigError> {
        let list = value.and_then(|value| value.get(key));
        let texts = match list {
            None | Some(Value::Null) => Some(Vec::new()),
            Some(list) => list.as_array().and_then(|list| {
                let texts = list.iter().map(|text| text.as_str().map(str::to_owned));
                texts.collect()
            }),
        };
        let cause = ["proxyStatsMatcher.", key, ": it must be a list of texts"];
        texts.ok_or_else(|| ConfigError::unreadable("PROXY_CONFIG", &cause.concat()))
    };
    Ok(StatsInclusion {
        prefixes: texts("inclusionPrefixes")?,
        suffixes: texts("inclusionSuffixes")?,
        regexes: texts("inclusionRegexps")?,
    })
}

/// Keys with keys of their own below them that mean something here.
const PARTS: &[&str] = &[
    "envoyMetricsService",
    "proxyMetadata",
    "proxyStatsMatcher",
    "tracing",
];

/// Keys that stand for a flag: of the same name, or of the one behind the equals sign.
const KEYS: &str = "configPath binaryPath serviceCluster drainDuration parentShutdownDuration terminationDrainDuration \
    discoveryAddress connectTimeout statsdUdpAddress proxyAdminPort statusPort controlPlaneAuthPolicy \
    customConfigFile proxyBootstrapTemplatePath=template-file concurrency zipkinAddress \
    tracing/zipkin/address=zipkin-address tracing/datadog/address=datadog-agent-address envoyMetricsServiceAddress \
    envoyMetricsService/address=envoy-metrics-service-address";

/// Keys whose effect is missed: each is warned about. Releases with an Envoy that knew `statNameLength` had no `PROXY_CONFIG`.
const MEANINGLESS: &str = "caCertificatesPem envoyAccessLogService/address extraStatTags fileFlushInterval fileFlushMinSizeKb \
    privateKeyProvider readinessProbe runtimeValues statNameLength tracing/openCensusAgent tracing/stackdriver";

/// Of a ProxyConfig, but nothing that an init could do.
const IGNORED: &str = "availabilityZone discoveryRefreshDelay envoyAccessLogService gatewayTopology \
    holdApplicationUntilProxyStarts image interceptionMode meshId proxyHeaders proxyMetadata proxyStatsMatcher sds \
    statsCompression tracingServiceName tracing";
