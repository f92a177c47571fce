//! Collections that a sink may ask for: those of kinds, two that are made here, and those of older releases that stay empty.

use super::kinds::{EARLIER, KINDS, Kind, all_kinds};
use crate::schema;
use crate::well_known::TYPE_URL_PREFIX;

/// The mesh configuration, as one resource.
pub const MESH: &str = "istio/mesh/v1alpha1/MeshConfig";

/// ServiceEntries made of Services.
pub const SYNTHETIC: &str = "istio/networking/v1alpha3/synthetic/serviceentries";

/// Collections of Kubernetes' own objects, which are not served.
const KUBERNETES: [&str; 6] = [
    "k8s/core/v1/namespaces",
    "k8s/core/v1/services",
    "k8s/core/v1/endpoints",
    "k8s/core/v1/pods",
    "k8s/core/v1/nodes",
    "k8s/extensions/v1beta1/ingresses",
];

/// The collection of the kind that 1.2 had for a release, before it came as `istio/security/v1beta1/authorizationpolicies`. Pilot
/// of 1.2 asks for it.
const EARLY_POLICIES: &str = "istio/rbac/v1alpha1/authorizationpolicies";

const SERVICE_ENTRIES: &str = "istio/networking/v1alpha3/serviceentries";

/// The kind that a collection is of; `None` for those that no object is written for.
#[must_use]
pub fn kind_of(collection: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|row| row.collection == collection)
}

/// As [`kind_of`], also for collections that stay empty, and for the one of the entries that are made of Services.
#[must_use]
pub fn any_kind_of(collection: &str) -> Option<&'static Kind> {
    let collection = match collection {
        SYNTHETIC => SERVICE_ENTRIES,
        other => other,
    };
    all_kinds().find(|row| row.collection == collection)
}

/// Every collection that can have something in it.
pub fn served() -> impl Iterator<Item = &'static str> {
    KINDS
        .iter()
        .map(|row| row.collection)
        .chain([MESH, SYNTHETIC])
}

/// Collections that a sink may ask for and that never have anything in them.
pub fn always_empty() -> impl Iterator<Item = String> {
    let legacy = EARLIER.iter().map(|row| row.collection.to_owned());
    KUBERNETES
        .iter()
        .chain([&EARLY_POLICIES])
        .map(|name| (*name).to_owned())
        .chain(legacy)
}

/// Returns true if a sink may ask for the collection and always gets nothing.
#[must_use]
pub fn is_always_empty(collection: &str) -> bool {
    KUBERNETES.contains(&collection)
        || collection == EARLY_POLICIES
        || EARLIER.iter().any(|row| row.collection == collection)
}

/// Returns true if a sink may ask for the collection.
#[must_use]
pub fn is_known(collection: &str) -> bool {
    served().any(|known| known == collection) || is_always_empty(collection)
}

/// The type URL of the bodies in a collection; `None` for a collection that stays empty.
#[must_use]
pub fn type_url_of(collection: &str) -> Option<String> {
    let message = match collection {
        MESH => &schema::ISTIO_MESH_V1ALPHA1_MESHCONFIG,
        SYNTHETIC => &schema::ISTIO_NETWORKING_V1ALPHA3_SERVICEENTRY,
        other => return kind_of(other).map(Kind::type_url),
    };
    Some(format!("{TYPE_URL_PREFIX}{}", message.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn served_collections_have_a_type_and_empty_ones_have_none() {
        assert_eq!(served().count(), KINDS.len() + 2);
        for collection in served() {
            assert!(is_known(collection) && !is_always_empty(collection));
            assert!(type_url_of(collection).is_some(), "{collection}");
        }
        for collection in [
            "k8s/core/v1/pods",
            "istio/rbac/v1alpha1/authorizationpolicies",
            "k8s/extensions/v1beta1/ingresses",
            "istio/config/v1alpha2/legacy/zipkins",
            "istio/config/v1alpha2/legacy/apikeys",
        ] {
            assert!(is_known(collection) && is_always_empty(collection));
            assert!(type_url_of(collection).is_none());
        }
        assert_eq!(always_empty().count(), 6 + 1 + 31);
        assert!(always_empty().all(|collection| is_always_empty(&collection)));
        for collection in [
            "",
            "istio/config/v1alpha2/legacy/",
            "istio/networking/v1alpha3/gateway",
        ] {
            assert!(!is_known(collection));
        }
    }

    #[test]
    fn a_collection_leads_to_its_kind() {
        let row = kind_of("istio/mixer/v1/config/client/quotaspecs").unwrap();
        assert_eq!(row.kind, "QuotaSpec");
        assert_eq!(
            type_url_of(SYNTHETIC).unwrap(),
            "type.googleapis.com/istio.networking.v1alpha3.ServiceEntry"
        );
        assert!(kind_of(MESH).is_none());
        let unused = "istio/config/v1alpha2/legacy/listcheckers";
        assert!(kind_of(unused).is_none());
        assert_eq!(any_kind_of(unused).unwrap().kind, "listchecker");
    }
}
