//! What the person who made a pod is told.

use serde_json::Value;

/// What a response may carry of warnings.
const MAX_WARNINGS: usize = 16;
pub(crate) const MAX_WARNING: usize = 256;

/// A pod that may ask elsewhere for names.
pub(crate) fn dns_policy(pod: &Value) -> Option<String> {
    let policy = pod.get("spec")?.get("dnsPolicy")?.as_str()?;
    let usual = policy.is_empty() || policy == "ClusterFirst";
    (!usual).then(|| format!("dnsPolicy {policy:?}: the proxy may not find its control plane; ClusterFirst is expected"))
}

/// A field that no pod has where the template says it.
pub(crate) fn pruned(path: &str) -> String {
    format!("field {path} of the template is not known to Kubernetes there and was left out")
}

/// As many, and as long, as a response may carry.
pub(crate) fn capped(mut warnings: Vec<String>) -> Vec<String> {
    warnings.truncate(MAX_WARNINGS);
    for warning in &mut warnings {
        let end = (0..=MAX_WARNING.min(warning.len()))
            .rev()
            .find(|end| warning.is_char_boundary(*end))
            .unwrap_or_default();
        warning.truncate(end);
    }
    warnings
}
