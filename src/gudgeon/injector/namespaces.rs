//! Users and groups of OpenShift's namespaces: a pod may run only as those of its namespace's range, and its proxy runs as the
//! last ones.

use std::sync::OnceLock;

use inject::ProxyIds;
use serde::Deserialize;
use sources::kubernetes::Reader;
use sources::{Key, Kind, Resource};

/// Istio's variable for the platform, which its chart sets.
const VARIABLE: &str = "PLATFORM";
const OPENSHIFT: &str = "openshift";

/// Returns true if the pods are OpenShift's.
pub(super) fn are_openshift() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|platform| platform == OPENSHIFT)
}

/// A Namespace, as much of it as the proxy's user needs.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Raw")]
pub(super) struct Namespace {
    name: Box<str>,
    ids: ProxyIds,
}

impl Kind for Namespace {
    const RESOURCE: Resource = Resource::core("namespaces");

    fn key(&self) -> Key {
        Key::new("", &self.name)
    }
}

#[derive(Deserialize)]
struct Raw {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: Box<str>,
    #[serde(default)]
    annotations: Option<Annotations>,
}

#[derive(Default, Deserialize)]
struct Annotations {
    #[serde(rename = "openshift.io/sa.scc.uid-range")]
    users: Option<String>,
    #[serde(rename = "openshift.io/sa.scc.supplemental-groups")]
    groups: Option<String>,
}

impl From<Raw> for Namespace {
    fn from(raw: Raw) -> Self {
        let Metadata { name, annotations } = raw.metadata;
        let Annotations { users, groups } = annotations.unwrap_or_default();
        Self {
            name,
            ids: ProxyIds::of_namespace(users.as_deref(), groups.as_deref()),
        }
    }
}

/// The known namespaces; empty outside OpenShift, where none are watched.
#[derive(Debug, Default)]
pub(super) struct Namespaces(OnceLock<Reader<Namespace>>);

impl Namespaces {
    pub(super) fn read(&self, reader: Reader<Namespace>) {
        // Once, at the start.
        let _set = self.0.set(reader);
    }

    /// The proxy's, and what its author is warned of.
    pub(super) fn ids(&self, namespace: &str) -> (ProxyIds, Option<String>) {
        let Some(reader) = self.0.get() else {
            return (ProxyIds::default(), None);
        };
        let namespace_ids = reader.get(&Key::new("", namespace));
        let warning = namespace_ids.is_none().then(|| {
            format!("namespace {namespace} is not known yet: the proxy runs as user 1337 and not as one of OpenShift's range for it")
        });
        (
            namespace_ids
                .map(|namespace_ids| namespace_ids.ids)
                .unwrap_or_default(),
            warning,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_decide_and_a_namespace_that_is_not_known_is_told() {
        let namespaces = Namespaces::default();
        assert_eq!(namespaces.ids("web"), (ProxyIds::default(), None));
        let (mut writer, reader) = sources::kubernetes::store();
        namespaces.read(reader);
        let (ids, warning) = namespaces.ids("web");
        assert_eq!(ids, ProxyIds::default());
        assert!(warning.unwrap().starts_with("namespace web is not known"));
        let of = |text: &str| serde_json::from_str::<Namespace>(text).unwrap();
        writer.replace(vec![
            of(r#"{"metadata": {"name": "web", "annotations": {"openshift.io/sa.scc.uid-range": "1000/10", "a": "b"}}}"#),
            of(r#"{"metadata": {"name": "plain", "annotations": null}}"#),
        ]);
        let ids = ProxyIds {
            uid: 1009,
            gid: 1009,
        };
        assert_eq!(namespaces.ids("web"), (ids, None));
        assert_eq!(namespaces.ids("plain"), (ProxyIds::default(), None));
    }
}
