//! Labels by which the mesh knows a workload; the pod's own labels stay.

use api::names::{MAX_LABEL_LENGTH, is_label_value};
use api::text::first_letters;
pub(crate) use api::well_known::NETWORK;
use serde_json::{Value, json};

use crate::data::Owner;
use crate::pod;
use crate::warnings::no_label;

/// The labels that an injection adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Labels {
    None,
    /// The only label of Istio 1.4.
    TlsMode,
    All,
}

/// The label of the injector's revision.
pub(crate) const REVISION: &str = "istio.io/rev";

/// Sets those of the labels, and of `others`, that the pod has not. Returns a warning for each of `others` that no label can hold.
pub(crate) fn add(
    pod: &mut Value,
    which: Labels,
    owner: &Owner,
    others: &[(&'static str, &str)],
) -> Vec<String> {
    let label = |names: [&str; 2]| {
        names
            .into_iter()
            .filter_map(|name| pod::label(pod, name))
            // An empty label counts as missing.
            .find(|value| !value.is_empty())
    };
    let name = label(["app.kubernetes.io/name", "app"]).unwrap_or(&owner.name);
    let revision = label(["app.kubernetes.io/version", "version"]).unwrap_or("latest");
    let all = [
        ("security.istio.io/tlsMode", "istio".to_owned()),
        ("service.istio.io/canonical-name", canonical(name)),
        ("service.istio.io/canonical-revision", revision.to_owned()),
    ];
    let count = match which {
        Labels::None => 0,
        Labels::TlsMode => 1,
        Labels::All => all.len(),
    };
    // The API server refuses a pod with an invalid label; the network is in the proxy's environment, too.
    let (good, bad): (Vec<_>, Vec<_>) = others
        .iter()
        .copied()
        .partition(|(_, value)| is_label_value(value));
    let bad = bad.into_iter();
    let bad = bad.filter(|(key, _)| pod::label(pod, key).is_none());
    let left_out = bad.map(|(key, value)| no_label(pod, key, value)).collect();
    let others = good.into_iter().map(|(key, value)| (key, value.to_owned()));
    let wanted: Vec<_> = all.into_iter().take(count).chain(others).collect();
    if wanted.is_empty() || pod::object_mut(pod, "metadata").is_none() {
        return left_out;
    }
    let Some(labels) = pod
        .get_mut("metadata")
        .and_then(|metadata| pod::object_mut(metadata, "labels"))
    else {
        return left_out;
    };
    for (key, value) in wanted {
        labels.entry(key).or_insert_with(|| json!(value));
    }
    left_out
}

/// Cuts a name to a valid value of a label.
pub(crate) fn canonical(name: &str) -> String {
    let short = first_letters(name, MAX_LABEL_LENGTH);
    short.trim_matches(['-', '_', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_that_no_label_holds_is_no_label() {
        for (network, is_label) in [
            ("n1", true),
            ("a.b-c_D", true),
            ("n/1", false),
            ("-n", false),
            ("n.", false),
            (&*"n".repeat(63), true),
            (&*"n".repeat(64), false),
        ] {
            let mut pod = json!({"metadata": {}});
            let owner = Owner::default();
            let warnings = add(&mut pod, Labels::None, &owner, &[(NETWORK, network)]);
            let found = pod::label(&pod, NETWORK).is_some();
            assert_eq!(
                (found, warnings.is_empty()),
                (is_label, is_label),
                "{network}"
            );
        }
    }

    #[test]
    fn a_network_that_is_left_out_is_said() {
        let long = "/".repeat(300);
        for (pod, network, part) in [
            (json!({}), "n/1", Some("such a text: \"n/1\"")),
            (
                json!({"spec": {"containers": [{"name": "istio-proxy", "env": [{"name": "ISTIO_META_NETWORK", "value": "n/1"}]}]}}),
                "n/1",
                Some("such a text, which istio-proxy has in ISTIO_META_NETWORK: \"n/1\""),
            ),
            (
                json!({}),
                &*long,
                Some("label topology.istio.io/network is left out"),
            ),
            // The pod's own label stays, and no warning is due.
            (
                json!({"metadata": {"labels": {NETWORK: "n2"}}}),
                "n/1",
                None,
            ),
        ] {
            let mut pod = pod;
            let owner = Owner::default();
            let warnings = add(&mut pod, Labels::None, &owner, &[(NETWORK, network)]);
            assert_eq!(warnings.len(), part.into_iter().count(), "{warnings:?}");
            assert!(
                warnings
                    .iter()
                    .all(|warning| warning.contains(part.unwrap())),
                "{warnings:?}"
            );
        }
    }
}
