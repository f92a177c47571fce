//! Decides whether a pod is injected: the first row that applies.

use serde_json::Value;

use crate::pod;
use crate::selector::Selector;

/// Namespaces without which there is no cluster, or no mesh.
pub(crate) const IGNORED: [&str; 4] = [
    "kube-system",
    "kube-public",
    "kube-node-lease",
    "local-path-storage",
];

/// The label and annotation of a pod that enables or disables the injection.
pub(crate) const INJECT: &str = "sidecar.istio.io/inject";

/// The annotation by which kubelet marks the API server's copy of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The policy for pods without a label or annotation of their own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Policy {
    pub(crate) enabled: bool,
    pub(crate) never: Vec<Selector>,
    pub(crate) always: Vec<Selector>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) inject: bool,
    pub(crate) reason: &'static str,
    /// The inject value, where it is not understood or has no effect.
    pub(crate) warning: Option<String>,
}

/// Decides. Without a policy (manifests) a pod without label and annotation is injected.
#[must_use]
pub(crate) fn decide(pod: &Value, namespace: &str, policy: Option<&Policy>) -> Decision {
    let decided = |inject, reason| Decision {
        inject,
        reason,
        warning: None,
    };
    let own = own_value(pod);
    if let Some((reason, cause)) = never_injected(pod, namespace) {
        return Decision {
            inject: false,
            reason,
            warning: own.and_then(|(place, value)| no_effect(place, value, cause)),
        };
    }
    if let Some((place, value)) = own {
        return parse_annotation(value, place);
    }
    let Some(policy) = policy else {
        return decided(true, "policy");
    };
    let labels = pod
        .get("metadata")
        .and_then(|metadata| pod::object(metadata, "labels"));
    // As in Istio, never counts before always.
    if policy.never.iter().any(|selector| selector.matches(labels)) {
        return decided(false, "never selector");
    }
    if policy
        .always
        .iter()
        .any(|selector| selector.matches(labels))
    {
        return decided(true, "always selector");
    }
    decided(policy.enabled, "policy")
}

/// Returns the reason and its explanation for a pod that is not injected, whatever its label and annotation say.
fn never_injected(pod: &Value, namespace: &str) -> Option<(&'static str, &'static str)> {
    if pod.pointer("/spec/hostNetwork").and_then(Value::as_bool) == Some(true) {
        // Redirection would change the routing of the node and not of the pod, as Istio says.
        return Some(("host network", "the pod is on its node's network"));
    }
    if is_of_windows(pod) {
        // Proxy and redirection are Linux's, and the API server refuses a pod of Windows that has fields of Linux.
        return Some(("windows", "the pod is of Windows nodes"));
    }
    if pod::annotation(pod, MIRROR).is_some() {
        // Its node runs what the manifest says, and API servers refuse a copy with the tokens and secrets of a template.
        return Some(("mirror pod", "the pod is the copy of a static one"));
    }
    let is_ignored = IGNORED.contains(&namespace);
    is_ignored.then_some(("ignored namespace", "no pod of this namespace is injected"))
}

/// Returns true for a pod of Windows nodes. Before `os` existed, the node selector alone told.
fn is_of_windows(pod: &Value) -> bool {
    [
        "/spec/os/name",
        "/spec/nodeSelector/kubernetes.io~1os",
        "/spec/nodeSelector/beta.kubernetes.io~1os",
    ]
    .into_iter()
    .any(|path| pod.pointer(path).and_then(Value::as_str) == Some("windows"))
}

/// The pod's own inject value, and its place: the label counts before the annotation.
fn own_value(pod: &Value) -> Option<(&'static str, &str)> {
    let places = [
        ("label", pod::label(pod, INJECT)),
        ("annotation", pod::annotation(pod, INJECT)),
    ];
    let mut values = places
        .into_iter()
        .filter_map(|(place, value)| Some((place, value?)));
    values.find(|(_, value)| !value.is_empty())
}

/// Warns of a value that enables the injection of a pod which is never injected.
fn no_effect(place: &'static str, value: &str, cause: &str) -> Option<String> {
    let asks = parse_annotation(value, place).inject;
    asks.then(|| format!("{place} {INJECT}: {value:?} has no effect: {cause}"))
}

fn parse_annotation(value: &str, reason: &'static str) -> Decision {
    let lower = value.to_ascii_lowercase();
    let inject = matches!(lower.as_str(), "y" | "yes" | "true" | "on");
    let understood = inject || matches!(lower.as_str(), "n" | "no" | "false" | "off");
    let warning = (!understood).then(|| {
        format!("{reason} {INJECT}: {value:?} is not understood and means no; say true or false")
    });
    Decision {
        inject,
        reason,
        warning,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;
    use serde_json::json;

    fn policy(enabled: bool) -> Policy {
        let selector = |text: &str| Selector::read(&yaml::read(text).unwrap().unwrap()).unwrap();
        Policy {
            enabled,
            never: vec![
                selector("matchLabels: {}"),
                selector("matchLabels: {never: ''}"),
            ],
            always: vec![
                selector("matchLabels: {always: x}"),
                selector("matchExpressions: [{key: sure, operator: Exists}]"),
            ],
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table")]
    fn the_first_row_that_applies() {
        let rows = [
            (
                json!({"spec": {"hostNetwork": true}, "metadata": {"labels": {"sidecar.istio.io/inject": "true"}}}),
                "ns",
                true,
                false,
                "host network",
            ),
            (
                json!({"spec": {"os": {"name": "windows"}}, "metadata": {"labels": {"sidecar.istio.io/inject": "true"}}}),
                "ns",
                true,
                false,
                "windows",
            ),
            (
                json!({"spec": {"nodeSelector": {"kubernetes.io/os": "windows"}}}),
                "ns",
                true,
                false,
                "windows",
            ),
            (
                json!({"spec": {"nodeSelector": {"beta.kubernetes.io/os": "windows"}}}),
                "ns",
                true,
                false,
                "windows",
            ),
            (
                json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "0f", "kubernetes.io/config.source": "file"}}}),
                "ns",
                true,
                false,
                "mirror pod",
            ),
            (
                json!({"spec": {"os": {"name": "linux"}, "nodeSelector": {"kubernetes.io/os": "linux"}}}),
                "ns",
                true,
                true,
                "policy",
            ),
            (
                json!({"spec": {"hostNetwork": false}}),
                "kube-system",
                true,
                false,
                "ignored namespace",
            ),
            (json!({}), "kube-public", true, false, "ignored namespace"),
            (
                json!({}),
                "kube-node-lease",
                true,
                false,
                "ignored namespace",
            ),
            (
                json!({}),
                "local-path-storage",
                true,
                false,
                "ignored namespace",
            ),
            (
                json!({"metadata": {"labels": {"sidecar.istio.io/inject": "false"}, "annotations": {"sidecar.istio.io/inject": "true"}}}),
                "ns",
                true,
                false,
                "label",
            ),
            (
                json!({"metadata": {"labels": {"sidecar.istio.io/inject": ""}, "annotations": {"sidecar.istio.io/inject": "Yes"}}}),
                "ns",
                false,
                true,
                "annotation",
            ),
            (
                json!({"metadata": {"labels": {"sidecar.istio.io/inject": "true", "never": ""}}}),
                "ns",
                false,
                true,
                "label",
            ),
            (
                json!({"metadata": {"labels": {"never": "", "always": "x"}}}),
                "ns",
                true,
                false,
                "never selector",
            ),
            (
                json!({"metadata": {"labels": {"never": "no", "always": "x"}}}),
                "ns",
                false,
                true,
                "always selector",
            ),
            (
                json!({"metadata": {"labels": {"sure": ""}, "annotations": {"sidecar.istio.io/inject": ""}}}),
                "ns",
                false,
                true,
                "always selector",
            ),
            (json!({}), "ns", true, true, "policy"),
            (json!({"metadata": null}), "ns", false, false, "policy"),
        ];
        for (pod, namespace, enabled, inject, reason) in rows {
            let decision = decide(&pod, namespace, Some(&policy(enabled)));
            assert_eq!(
                (decision.inject, decision.reason),
                (inject, reason),
                "{pod} {namespace} {enabled}"
            );
        }
        assert!(decide(&json!({"metadata": {"labels": {"never": ""}}}), "ns", None).inject);
    }

    #[test]
    fn a_pod_that_asks_in_vain_is_warned() {
        let of_windows = json!({"os": {"name": "windows"}});
        let of_host = json!({"hostNetwork": true});
        for (spec, namespace, key, value, warning) in [
            (
                &of_windows,
                "ns",
                "labels",
                "true",
                Some(
                    "label sidecar.istio.io/inject: \"true\" has no effect: the pod is of Windows nodes",
                ),
            ),
            (
                &of_host,
                "ns",
                "annotations",
                "Yes",
                Some(
                    "annotation sidecar.istio.io/inject: \"Yes\" has no effect: the pod is on its node's network",
                ),
            ),
            (
                &json!({}),
                "kube-system",
                "labels",
                "true",
                Some(
                    "label sidecar.istio.io/inject: \"true\" has no effect: no pod of this namespace is injected",
                ),
            ),
            (&of_windows, "ns", "labels", "false", None),
            (&of_windows, "ns", "labels", "", None),
            (&json!({}), "ns", "labels", "true", None),
        ] {
            let pod = json!({"metadata": {key: {"sidecar.istio.io/inject": value}}, "spec": spec});
            let decision = decide(&pod, namespace, Some(&policy(true)));
            assert_eq!(decision.warning.as_deref(), warning, "{pod}");
        }
        // The label is what would count.
        let both = json!({"metadata": {"labels": {"sidecar.istio.io/inject": "no"}, "annotations": {"sidecar.istio.io/inject": "true"}},
            "spec": of_windows});
        assert_eq!(decide(&both, "ns", None).warning, None);
    }

    #[test]
    fn values_are_read_in_any_case() {
        for (value, inject, understood) in [
            ("y", true, true),
            ("Y", true, true),
            ("yes", true, true),
            ("YES", true, true),
            ("true", true, true),
            ("True", true, true),
            ("on", true, true),
            ("oN", true, true),
            ("n", false, true),
            ("No", false, true),
            ("FALSE", false, true),
            ("off", false, true),
            ("1", false, false),
            ("enabled", false, false),
            (" true", false, false),
        ] {
            for (key, reason) in [("labels", "label"), ("annotations", "annotation")] {
                let decision = decide(
                    &json!({"metadata": {key: {"sidecar.istio.io/inject": value}}}),
                    "ns",
                    Some(&policy(!inject)),
                );
                assert_eq!(
                    (decision.inject, decision.reason, decision.warning.is_none()),
                    (inject, reason, understood),
                    "{value}"
                );
            }
        }
    }
}
