//! Variables of pilot-agent's that have no flag, and those that nothing here can honour.

#![forbid(unsafe_code)]

use std::ffi::OsStr;

use super::layers::Layers;
use super::{ConfigError, Metrics};
use crate::cli::Word;
use crate::values;

/// A variable of the proxy, and its flag.
const PROXY_FLAGS: [(&str, &str); 2] = [
    ("ISTIO_ENVOY_ENABLE_CORE_DUMP", "--enable-core-dump"),
    ("ENVOY_SKIP_DEPRECATED_LOGS", "--skip-deprecated-logs"),
];

/// Variables of some pilot-agent (1.1 to 1.24) without effect here, sorted, and behind an equals sign the key of a reason. The
/// user of one of these expects an effect that does not come. Left out are variables that only tests of pilot-agent set,
/// `FILE_MOUNTED_CERTS`, which asks for what is done, and `PLUGINS` and `DNS_SERVER`, which an application of `run` may have.
const WITHOUT_EFFECT: &str = "\
    BOOTSTRAP_XDS_AGENT=xds CA_ADDR=files CA_PROVIDER=files CA_ROOT_CA=files CLOUD_PLATFORM COMPLIANCE_POLICY \
    CREDENTIAL_FETCHER_TYPE=files CREDENTIAL_IDENTITY_PROVIDER=files DISABLE_ENVOY DNS_ADDR=dns DNS_AGENT=dns \
    DNS_FORWARD_PARALLEL=dns DNS_PROXY_ADDR=dns ECC_CURVE=files ECC_SIGNATURE_ALGORITHM=files \
    ENABLE_INGRESS_GATEWAY_SDS=files ENABLE_PROBE_KEEPALIVE_CONNECTIONS=probes ENVOY_READINESS_CHECK_TIMEOUT \
    ENVOY_SECURE_MERGED_METRICS_PORT ENVOY_SECURE_METRICS_PORT ENVOY_STATUS_PORT ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL \
    FILE_DEBOUNCE_DURATION=debounce GCP_METADATA=files GCP_QUOTA_PROJECT GKE_CLUSTER_URL=files GRPC_XDS_BOOTSTRAP=xds \
    HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED INGRESS_GATEWAY_FALLBACK_SECRET=files INITIAL_BACKOFF_MSEC=files \
    ISTIOD_SAN ISTIO_AUTO_MTLS_ENABLED ISTIO_META_CERT_SIGNER=files ISTIO_META_DNS_CAPTURE=dns JWT_POLICY=files \
    OUTPUT_CERTS=files PEER_METADATA_DISCOVERY PILOT_CERT_PROVIDER=files PKCS8_KEY=files PROV_CERT=files \
    PROXY_CONFIG_XDS_AGENT=xds PROXY_XDS_DEBUG_VIA_AGENT=xds PROXY_XDS_DEBUG_VIA_AGENT_PORT=xds PROXY_XDS_VIA_AGENT=xds \
    SDS_ENABLED=files SDS_UDS_PATH=files SECRET_GRACE_PERIOD_RATIO=files SECRET_GRACE_PERIOD_RATIO_JITTER=files \
    SECRET_ROTATION_CHECK_INTERVAL=files SECRET_TTL=files SECRET_WATCHER_RESYNC_PERIOD=files SKIP_PARSE_TOKEN=files \
    STACKDRIVER_TRACING_ENABLED=traces STALED_CONNECTION_RECYCLE_RUN_INTERVAL=files USE_EXTERNAL_WORKLOAD_SDS=files \
    USE_TOKEN_FOR_CSR=files WASM_HTTP_REQUEST_MAX_RETRIES=xds WASM_HTTP_REQUEST_TIMEOUT=xds WASM_INSECURE_REGISTRIES=xds \
    WASM_MODULE_EXPIRY=xds WASM_PURGE_INTERVAL=xds WORKLOAD_IDENTITY_SOCKET_FILE=files WORKLOAD_RSA_KEY_SIZE=files \
    XDS_AUTH_PROVIDER=files XDS_ROOT_CA=files";

/// The end of the warning, by the key in the list.
fn reason(key: &str) -> &'static str {
    match key {
        "files" => ": certificates are read from files",
        "xds" => ": the proxy speaks to the control plane itself",
        "dns" => ": names are not resolved here",
        "traces" => ": use --zipkin-address or --datadog-agent-address",
        "probes" => ": a probe has a connection of its own",
        "debounce" => ": use --cert-debounce",
        _ => "",
    }
}

pub(super) fn metrics(layers: &Layers<'_>) -> Metrics {
    let is = |name, value| switch(layers, name) == Some(value);
    Metrics {
        local_only: is("METRICS_LOCALHOST_ACCESS_ONLY", true),
        without_proxy: is("PILOT_AGENT_MERGE_ENVOY_STATS", false),
    }
}

/// Returns whether ADS is by delta: Istio's agent has this variable, too.
pub(super) fn delta(layers: &Layers<'_>) -> bool {
    switch(layers, "ISTIO_DELTA_XDS") == Some(true)
}

/// Returns the proxy's further arguments: those that variables ask for, then those typed after `--`. Envoy refuses a flag that
/// stands twice.
pub(super) fn proxy_flags(layers: &Layers<'_>) -> Vec<Word> {
    let typed = &layers.args.extra;
    let mut flags: Vec<Word> = Vec::new();
    for (variable, flag) in PROXY_FLAGS {
        let flag = Word::from(flag.as_ref());
        if switch(layers, variable) == Some(true) && !typed.contains(&flag) {
            flags.push(flag);
        }
    }
    flags.extend_from_slice(typed);
    flags
}

/// Names those that are set to more than "false" or none, as a default is: in one line for each reason, because injectors set
/// several of some.
pub(super) fn warn_of_those_without_effect(layers: &Layers<'_>, warnings: &mut Vec<String>) {
    let known: Vec<(&str, &str)> = WITHOUT_EFFECT.split(' ').map(named).collect();
    let mut found: Vec<(&str, &str)> = Vec::new();
    // Not a look-up for each of sixty names: a pod has a few hundred variables where each service has some.
    for (name, _) in layers.environment.variables() {
        let at = known.binary_search_by(|(known, _)| OsStr::new(known).cmp(name));
        let Some((name, key)) = at.ok().and_then(|at| known.get(at)) else {
            continue;
        };
        let value = layers.variable(name).unwrap_or("0");
        if values::switch(value) != Ok(false) {
            found.push((key, name));
        }
    }
    found.sort_unstable();
    for all in found.chunk_by(|(key, _), (next, _)| key == next) {
        let names: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
        let verb = if names.len() == 1 { " means" } else { " mean" };
        let key = all.first().map_or("", |(key, _)| key);
        warnings.push([&names.join(", "), verb, " nothing here", reason(key)].concat());
    }
}

fn named(entry: &str) -> (&str, &str) {
    entry.split_once('=').unwrap_or((entry, ""))
}

fn switch(layers: &Layers<'_>, name: &str) -> Option<bool> {
    let text = layers.variable(name)?;
    let switch = values::switch(text).map_err(|cause| ConfigError::value(name, text, cause));
    layers.noted(switch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_without_effect_are_sorted_and_have_reasons() {
        let known: Vec<_> = WITHOUT_EFFECT.split(' ').map(named).collect();
        assert!(known.is_sorted());
        for (name, key) in known {
            assert_eq!(reason(key).is_empty(), key.is_empty(), "{name}={key}");
        }
    }
}
