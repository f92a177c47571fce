//! `PROXY_CONFIG`: Istio's ProxyConfig as JSON, turned into flags' values.

#![forbid(unsafe_code)]

use super::ConfigError;
use crate::bootstrap::StatsInclusion;
use crate::cli::flags::PROXY;
use crate::cli::kebab;
use crate::json::{self, Map, Value};
use crate::search;

/// The settings of a `ProxyConfig` that mean something here.
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

/// The value at `key` or `key.key`.
fn found<'v>(document: &'v Map, pointer: &str) -> Option<&'v Value> {
    let mut keys = pointer.split('.');
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
            let has_parts = search::is_one_of(key, PARTS);
            if has_parts && !matches!(value, Value::Object(_) | Value::Null) {
                return Err(wrong(&[key, ": it must be an object"].concat()));
            }
        }
        config.stats = stats(document.get("proxyStatsMatcher"))?;
        config.metadata = metadata(document.get("proxyMetadata"))?;
        if found(&document, "tracing.lightstep").is_some() {
            return Err(wrong(
                "tracing.lightstep: Envoy has no Lightstep tracer any more",
            ));
        }
        for entry in KEYS.split(' ') {
            let (key, flag) = entry.split_once('=').unwrap_or((entry, entry));
            let Some(value) = found(&document, key) else {
                continue;
            };
            if let "" | TLS = flag {
                let origin = ["PROXY_CONFIG ", key].concat();
                if flag == TLS {
                    plain_text(&origin, value, &mut config.warnings);
                } else if *value != Value::Null {
                    config
                        .warnings
                        .push([&origin, " means nothing here"].concat());
                }
                continue;
            }
            let text = scalar(key, value)?;
            if let Some(flag) = PROXY.find(&kebab(flag)) {
                config
                    .values
                    .push((flag.name, key, policy(flag.name, text)));
            }
        }
        Ok(config)
    }

    fn warn_of_unknown(&mut self, document: &Map) {
        let known = |key: &str| {
            // The first of a path.
            let is_key = |entry: &str| entry.split(['.', '=']).next() == Some(key);
            KEYS.split(' ').any(is_key) || search::is_one_of(key, IGNORED)
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

/// Warns where a service asks for TLS: nothing here has settings for that.
#[inline(never)]
pub(super) fn plain_text(origin: &str, service: &Value, warnings: &mut Vec<String>) {
    let tls = service.get("tlsSettings");
    let none = match tls.and_then(|tls| tls.get("mode")) {
        None | Some(Value::Null) => true,
        Some(Value::String(mode)) => mode == "DISABLE",
        Some(Value::Number(mode)) => mode.as_str() == "0",
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => false,
    };
    if !none {
        let cause = " asks for TLS, which is not done: it goes in plain text";
        warnings.push([origin, cause].concat());
    }
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
const PARTS: &str = "envoyMetricsService proxyMetadata proxyStatsMatcher tracing";

/// In the place of a flag: a service that may ask for TLS.
const TLS: &str = "TLS";

/// Keys that stand for a flag: of the same name, or of the one behind the equals sign. Where nothing is behind it the effect of
/// the key is missed, and that is said: releases with an Envoy that knew `statNameLength`, say, had no `PROXY_CONFIG`.
const KEYS: &str = "configPath binaryPath serviceCluster drainDuration parentShutdownDuration terminationDrainDuration \
    discoveryAddress connectTimeout statsdUdpAddress proxyAdminPort statusPort controlPlaneAuthPolicy \
    customConfigFile proxyBootstrapTemplatePath=template-file concurrency zipkinAddress \
    tracing.zipkin.address=zipkin-address tracing.datadog.address=datadog-agent-address envoyMetricsServiceAddress \
    envoyMetricsService.address=envoy-metrics-service-address \
    envoyMetricsService=TLS tracing=TLS \
    caCertificatesPem= envoyAccessLogService.address= extraStatTags= fileFlushInterval= fileFlushMinSizeKb= \
    privateKeyProvider= readinessProbe= runtimeValues= statNameLength= tracing.openCensusAgent= tracing.stackdriver=";

/// Fields of a ProxyConfig that no init could act on.
const IGNORED: &str = "availabilityZone discoveryRefreshDelay gatewayTopology \
    holdApplicationUntilProxyStarts image interceptionMode meshId proxyHeaders proxyMetadata proxyStatsMatcher sds \
    statsCompression tracingServiceName tracing";
