//! Sinks of Istio 1.1 to 1.5, by the collections that they ask for: each is answered, and none ends the stream.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mcp::collections::{Collections, Group};
use mcp::message::{RequestResources, Resources};
use mcp::snapshot::GroupSnapshot;
use mcp::source::{Dialer, Source};
use prost::Message as _;

/// Collections of Pilot in all releases.
const TRAFFIC: [&str; 6] = [
    "istio/networking/v1alpha3/virtualservices",
    "istio/networking/v1alpha3/gateways",
    "istio/networking/v1alpha3/serviceentries",
    "istio/networking/v1alpha3/destinationrules",
    "istio/networking/v1alpha3/envoyfilters",
    "istio/networking/v1alpha3/sidecars",
];
const CLIENTS_OF_MIXER: [&str; 4] = [
    "istio/config/v1alpha2/httpapispecs",
    "istio/config/v1alpha2/httpapispecbindings",
    "istio/mixer/v1/config/client/quotaspecs",
    "istio/mixer/v1/config/client/quotaspecbindings",
];
const SECURITY: [&str; 6] = [
    "istio/authentication/v1alpha1/policies",
    "istio/authentication/v1alpha1/meshpolicies",
    "istio/rbac/v1alpha1/serviceroles",
    "istio/rbac/v1alpha1/servicerolebindings",
    "istio/rbac/v1alpha1/rbacconfigs",
    "istio/rbac/v1alpha1/clusterrbacconfigs",
];
/// Collections of Mixer in all releases, beside those of each adapter and template.
const MIXER: [&str; 6] = [
    "istio/policy/v1beta1/rules",
    "istio/policy/v1beta1/handlers",
    "istio/policy/v1beta1/instances",
    "istio/policy/v1beta1/attributemanifests",
    "istio/config/v1alpha2/adapters",
    "istio/config/v1alpha2/templates",
];
const SYNTHETIC: &str = "istio/networking/v1alpha3/synthetic/serviceentries";

/// The known sinks, each with the collections of one stream.
fn sinks() -> Vec<(&'static str, Vec<&'static str>)> {
    let pilot = |more: &[&'static str]| {
        let all = TRAFFIC.iter().chain(&CLIENTS_OF_MIXER).chain(&SECURITY);
        all.chain(more).copied().collect()
    };
    let legacy = |names: &[&'static str]| MIXER.iter().chain(names).copied().collect();
    vec![
        ("Pilot 1.1", pilot(&[])),
        (
            "Pilot 1.2",
            pilot(&["istio/rbac/v1alpha1/authorizationpolicies"]),
        ),
        ("Pilot 1.3", pilot(&[])),
        (
            "Pilot 1.4",
            pilot(&["istio/security/v1beta1/authorizationpolicies"]),
        ),
        (
            "Pilot 1.5",
            pilot(&[
                "istio/security/v1beta1/authorizationpolicies",
                "istio/security/v1beta1/peerauthentications",
                "istio/security/v1beta1/requestauthentications",
            ]),
        ),
        ("Pilot 1.4 and 1.5, of services", vec![SYNTHETIC]),
        (
            "Mixer 1.1 and 1.2",
            legacy(&[
                "istio/config/v1alpha2/legacy/authorizations",
                "istio/config/v1alpha2/legacy/metrics",
                "istio/config/v1alpha2/legacy/prometheuses",
                "istio/config/v1alpha2/legacy/zipkins",
            ]),
        ),
        ("Mixer 1.3 to 1.5", legacy(&[])),
        (
            "mcpc",
            vec![
                "istio/mesh/v1alpha1/MeshConfig",
                "k8s/core/v1/services",
                "k8s/extensions/v1beta1/ingresses",
            ],
        ),
    ]
}

#[test]
fn requests_of_any_release_are_answered_on_one_stream() {
    let collections = Arc::new(Collections::all());
    for (name, asked) in sinks() {
        let mut source = Source::new(collections.clone(), Dialer::Sink);
        for collection in &asked {
            let request = RequestResources {
                collection: (*collection).to_owned(),
                ..RequestResources::default()
            };
            let outcome = source.request(Duration::ZERO, &request);
            assert!(outcome.is_ok(), "{name}: {collection}: {outcome:?}");
        }
        for group in Group::ALL {
            let mut shelf = GroupSnapshot::new(&collections, group);
            source.snapshot(shelf.snapshot());
        }
        let answered: BTreeSet<String> = std::iter::from_fn(|| source.due())
            .map(|response| {
                let bytes: Bytes = response.pieces().concat().into();
                let read = Resources::decode(bytes).unwrap();
                assert!(read.resources.is_empty());
                read.collection
            })
            .collect();
        let asked: BTreeSet<String> = asked.into_iter().map(str::to_owned).collect();
        assert_eq!(answered, asked, "{name}");
    }
}
