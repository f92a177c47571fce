//! `.EstimatedConcurrency`: how many threads a proxy should have, as templates of Istio 1.11 to 1.17 ask for it.

use serde_json::Value;

use crate::pod;
use crate::quantity;

/// Threads if the mesh configuration has no number: the default of those releases, whose own test data has it beside any
/// limit of the processor.
const USUAL: i64 = 2;

/// Returns the threads of the proxy's configuration. An explicit 0 asks for the proxy's share of the processor: its limit,
/// else its request, each by the pod's annotation, else by the values; 0 if none of them is set.
pub(crate) fn estimated(configured: Option<i64>, pod: &Value, values: &Value) -> i64 {
    match configured {
        None => USUAL,
        Some(number) if number > 0 => number,
        Some(_) => share(pod, values),
    }
}

fn share(pod: &Value, values: &Value) -> i64 {
    let by_annotation = ["proxyCPULimit", "proxyCPU"]
        .into_iter()
        .find_map(|name| pod::annotation(pod, &format!("sidecar.istio.io/{name}")));
    let of_values = |kind: &str| {
        // YAML reads `2` as a number and `500m` as text.
        let cpu = values.pointer(&format!("/global/proxy/resources/{kind}/cpu"))?;
        Some(cpu.as_str().map_or_else(|| cpu.to_string(), str::to_owned))
    };
    let quantity = by_annotation
        .map(str::to_owned)
        .or_else(|| of_values("limits"))
        .or_else(|| of_values("requests"));
    let threads = quantity.as_deref().and_then(quantity::ceil);
    threads
        .and_then(|threads| threads.try_into().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn threads_by_who_says_them() {
        let limit = |text: &str| json!({"metadata": {"annotations": {"sidecar.istio.io/proxyCPULimit": text}}});
        let request = json!({"metadata": {"annotations": {"sidecar.istio.io/proxyCPU": "2500m"}}});
        let values = json!({"global": {"proxy": {"resources": {"limits": {"cpu": 4}, "requests": {"cpu": "1"}}}}});
        let none = json!({});
        let rows = [
            (None, &limit("8"), &values, 2),
            (Some(3), &limit("8"), &values, 3),
            (Some(0), &limit("1500m"), &values, 2),
            (Some(0), &request, &values, 3),
            (Some(0), &none, &values, 4),
            (Some(0), &none, &none, 0),
            (Some(0), &limit("x"), &none, 0),
        ];
        for (setting, pod, values, wanted) in rows {
            assert_eq!(estimated(setting, pod, values), wanted, "{setting:?} {pod}");
        }
    }
}
