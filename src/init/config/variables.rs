//! Variables of pilot-agent's that have no flag, and those that nothing here can honour.

#![forbid(unsafe_code)]

use super::layers::Layers;
use super::{ConfigError, Metrics};
use crate::cli::Word;
use crate::values;

/// A variable of the proxy, and its flag.
const PROXY_FLAGS: [(&str, &str); 2] = [
    ("ISTIO_ENVOY_ENABLE_CORE_DUMP", "--enable-core-dump"),
    ("ENVOY_SKIP_DEPRECATED_LOGS", "--skip-deprecated-logs"),
];

/// The user of one of these expects an effect that does not come.
const OTHERS: &str = "COMPLIANCE_POLICY DISABLE_ENVOY ENVOY_SECURE_MERGED_METRICS_PORT ENVOY_SECURE_METRICS_PORT \
    ENVOY_STATUS_PORT ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL";

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

pub(super) fn warn_of_others(layers: &Layers<'_>, warnings: &mut Vec<String>) {
    for name in OTHERS.split(' ') {
        let value = layers.variable(name).unwrap_or("0");
        if values::switch(value) != Ok(false) {
            warnings.push([name, " means nothing here"].concat());
        }
    }
}

fn switch(layers: &Layers<'_>, name: &str) -> Option<bool> {
    let text = layers.variable(name)?;
    let switch = values::switch(text).map_err(|cause| ConfigError::value(name, text, cause));
    layers.noted(switch)
}
