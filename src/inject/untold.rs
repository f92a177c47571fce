//! Labels and annotations of a pod that the proxy is not told, because no variable holds them.

use std::collections::BTreeMap;

use api::counted;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::engine::Job;
use crate::pod;

/// Bytes that any variable holds, however they are escaped: a sixth of the 128 KiB that Linux takes.
const SHORT: usize = 21_000;

impl Job<'_> {
    /// Says it where the built-in template had to leave something out. Other templates leave out what they want to.
    pub(crate) fn warn_of_untold(&mut self, made: &Value) {
        if !self.configuration.is_built_in() {
            return;
        }
        for (map, one, variable) in [
            ("labels", "label", "ISTIO_METAJSON_LABELS"),
            ("annotations", "annotation", "ISTIO_METAJSON_ANNOTATIONS"),
        ] {
            let count = untold(self.sent, made, map, variable);
            if count > 0 {
                self.warnings.push(format!(
                    "{variable} of {} lacks {} of the pod: Linux starts no program with a variable of over 128 KiB",
                    pod::PROXY,
                    counted(count, one)
                ));
            }
        }
    }
}

fn untold(sent: &Value, made: &Value, map: &str, variable: &str) -> usize {
    let said = sent.get("metadata").and_then(|all| pod::object(all, map));
    let said = || said.into_iter().flatten().filter(|(name, _)| is_told(name));
    let bytes = |value: &Value| value.as_str().map_or(0, str::len);
    let all: usize = said().map(|(name, value)| name.len() + bytes(value)).sum();
    if all <= SHORT {
        return 0;
    }
    let variables = pod::proxy(made).and_then(|proxy| proxy.get("env")?.as_array());
    let mut variables = variables.into_iter().flatten();
    let told = variables.find(|one| pod::name(one) == variable);
    let told = told.and_then(|one| one.get("value")?.as_str());
    let told: BTreeMap<String, IgnoredAny> = told
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    said().filter(|(name, _)| !told.contains_key(*name)).count()
}

/// Others are left out of any proxy's variables, and no proxy misses them.
fn is_told(name: &str) -> bool {
    name != "kubectl.kubernetes.io/last-applied-configuration"
        && !name.contains("seccomp.security.alpha.kubernetes.io/")
}
