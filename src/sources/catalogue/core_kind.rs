//! Objects of Kubernetes' own kinds, from which other objects are made. Fields that no transform reads are dropped on
//! arrival.

use api::config::Finding;
use api::names::{self, MAX_NAME_LENGTH};
use api::well_known::LAST_APPLIED;
use serde_json::{Map, Value as Json};

/// A kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CoreKind {
    Endpoints,
    EndpointSlice,
    Ingress,
    IngressClass,
    Namespace,
    Node,
    Pod,
    /// Read only if routers get certificates from it; no page shows its content.
    Secret,
    Service,
}

/// Checks an object by its JSON; an error gives the reason why it cannot be used.
pub type UsabilityCheck = fn(CoreKind, &str) -> Result<(), String>;

/// The fields of a kind that are stored.
struct StoredFields {
    core: CoreKind,
    kind: &'static str,
    versions: &'static [&'static str],
    collection: &'static str,
    /// Fields of `metadata` that are stored besides names and labels.
    metadata: &'static [&'static str],
    /// Top-level fields that are stored; for a field that is stored in part, its subfields.
    fields: &'static [(&'static str, &'static [&'static str])],
}

/// The name of an object of Kubernetes' own kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoreName<'a> {
    /// Empty for a cluster-scoped kind.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

const NAME: &str = "metadata.name";
const DEFAULT_NAMESPACE: &str = "default";
const ANNOTATIONS: &str = "annotations";
const VERSION: &str = "resourceVersion";

const ROWS: [StoredFields; 9] = [
    StoredFields {
        core: CoreKind::Endpoints,
        kind: "Endpoints",
        versions: &["v1"],
        collection: "k8s/core/v1/endpoints",
        metadata: &[VERSION],
        fields: &[("subsets", &[])],
    },
    StoredFields {
        core: CoreKind::EndpointSlice,
        kind: "EndpointSlice",
        versions: &["discovery.k8s.io/v1"],
        collection: "k8s/discovery.k8s.io/v1/endpointslices",
        metadata: &[VERSION],
        fields: &[("addressType", &[]), ("endpoints", &[]), ("ports", &[])],
    },
    StoredFields {
        core: CoreKind::Ingress,
        kind: "Ingress",
        versions: &[
            "networking.k8s.io/v1",
            "networking.k8s.io/v1beta1",
            "extensions/v1beta1",
        ],
        collection: "k8s/extensions/v1beta1/ingresses",
        metadata: &[ANNOTATIONS],
        fields: &[("spec", &[])],
    },
    StoredFields {
        core: CoreKind::IngressClass,
        kind: "IngressClass",
        versions: &["networking.k8s.io/v1"],
        collection: "k8s/networking.k8s.io/v1/ingressclasses",
        metadata: &[ANNOTATIONS],
        fields: &[("spec", &[])],
    },
    StoredFields {
        core: CoreKind::Namespace,
        kind: "Namespace",
        versions: &["v1"],
        collection: "k8s/core/v1/namespaces",
        metadata: &[ANNOTATIONS],
        fields: &[],
    },
    StoredFields {
        core: CoreKind::Node,
        kind: "Node",
        versions: &["v1"],
        collection: "k8s/core/v1/nodes",
        metadata: &[],
        fields: &[],
    },
    StoredFields {
        core: CoreKind::Pod,
        kind: "Pod",
        versions: &["v1"],
        collection: "k8s/core/v1/pods",
        metadata: &[],
        fields: &[
            ("spec", &["nodeName", "serviceAccountName"]),
            ("status", &["podIP"]),
        ],
    },
    StoredFields {
        core: CoreKind::Secret,
        kind: "Secret",
        versions: &["v1"],
        collection: "k8s/core/v1/secrets",
        metadata: &[],
        fields: &[],
    },
    StoredFields {
        core: CoreKind::Service,
        kind: "Service",
        versions: &["v1"],
        collection: "k8s/core/v1/services",
        metadata: &[ANNOTATIONS, VERSION],
        fields: &[("spec", &["type", "clusterIP", "externalName", "ports"])],
    },
];

impl CoreKind {
    pub const ALL: [Self; 9] = [
        Self::Endpoints,
        Self::EndpointSlice,
        Self::Ingress,
        Self::IngressClass,
        Self::Namespace,
        Self::Node,
        Self::Pod,
        Self::Secret,
        Self::Service,
    ];

    fn row(self) -> Option<&'static StoredFields> {
        ROWS.iter().find(|row| row.core == self)
    }

    pub(crate) fn of(api_version: &str, kind: &str) -> Option<Self> {
        let is_it = |row: &&StoredFields| row.kind == kind && row.versions.contains(&api_version);
        ROWS.iter().find(is_it).map(|row| row.core)
    }

    pub(super) fn of_collection(collection: &str) -> Option<Self> {
        let row = ROWS.iter().find(|row| row.collection == collection);
        row.map(|row| row.core)
    }

    #[must_use]
    pub fn kind(self) -> &'static str {
        self.row().map(|row| row.kind).unwrap_or_default()
    }

    /// Returns the collection's name in this program. It is never offered to sinks.
    #[must_use]
    pub fn collection(self) -> &'static str {
        self.row().map(|row| row.collection).unwrap_or_default()
    }

    /// Returns true if the kind is cluster-scoped.
    #[must_use]
    pub fn is_everywhere(self) -> bool {
        matches!(self, Self::IngressClass | Self::Namespace | Self::Node)
    }

    /// Returns the name of an object that a user has written. An object without a namespace is in the default one.
    ///
    /// # Errors
    ///
    /// An API server would refuse the name or the namespace.
    pub(crate) fn name_of(self, object: &Json) -> Result<CoreName<'_>, Finding> {
        let core_name = self.server_name(object)?;
        let name = core_name.name;
        let (is_taken, wanted) = match self {
            Self::Service => (
                names::is_rfc_1035_label(name),
                "a DNS label that begins with a letter (RFC 1035)",
            ),
            Self::Namespace => (names::is_lower_label(name), "a DNS label (RFC 1123)"),
            Self::Endpoints
            | Self::EndpointSlice
            | Self::Ingress
            | Self::IngressClass
            | Self::Node
            | Self::Pod
            | Self::Secret => (names::is_subdomain(name), "a DNS subdomain (RFC 1123)"),
        };
        if !is_taken {
            let cause = format!("want {wanted}, got {name:?}");
            return Err(Finding::error(NAME, cause));
        }
        Ok(core_name)
    }

    /// Returns the name of an object of an API server, which has checked the names of the kind.
    ///
    /// # Errors
    ///
    /// It has no name, or no namespace that is one.
    pub(super) fn server_name(self, object: &Json) -> Result<CoreName<'_>, Finding> {
        let metadata = |field| object.get("metadata").and_then(|all| all.get(field));
        // Other text of an object is not shown.
        let name = metadata("name").and_then(Json::as_str);
        let Some(name) = name.filter(|name| is_word(name)) else {
            return Err(Finding::error(NAME, "want a name"));
        };
        let namespace = match metadata("namespace") {
            _ if self.is_everywhere() => "",
            None | Some(Json::Null) => DEFAULT_NAMESPACE,
            Some(Json::String(text)) if text.is_empty() => DEFAULT_NAMESPACE,
            Some(Json::String(text)) if names::is_lower_label(text) => text,
            // An invalid namespace does not stand for the default one: the object would take the place of another.
            Some(_) => return Err(Finding::error("metadata.namespace", "want a DNS label")),
        };
        Ok(CoreName { namespace, name })
    }

    /// Returns the whole object as JSON, without the copies of it that `kubectl` and an API server put into it.
    pub(super) fn whole(self, value: &Json, namespace: &str) -> String {
        let mut whole = value.clone();
        if let Some(Json::Object(metadata)) = whole.get_mut("metadata") {
            metadata.remove("managedFields");
            if let Some(Json::Object(annotations)) = metadata.get_mut(ANNOTATIONS) {
                annotations.remove(LAST_APPLIED);
            }
            if self.is_everywhere() {
                metadata.remove("namespace");
            } else {
                metadata.insert("namespace".to_owned(), namespace.into());
            }
        }
        whole.to_string()
    }

    /// Returns the stored fields as JSON. `created` keeps the creation time.
    pub(super) fn trimmed(self, value: &Json, namespace: &str, created: bool) -> String {
        let mut trimmed = Map::new();
        let Some(row) = self.row() else {
            return String::new();
        };
        let mut metadata = Map::new();
        if let Some(written) = value.get("metadata") {
            let always = ["name", "labels"];
            let time = created.then_some("creationTimestamp");
            for name in always.iter().chain(row.metadata).copied().chain(time) {
                copy(written, name, &mut metadata);
            }
        }
        if let Some(Json::Object(annotations)) = metadata.get_mut(ANNOTATIONS) {
            annotations.remove(LAST_APPLIED);
        }
        if !self.is_everywhere() {
            metadata.insert("namespace".to_owned(), namespace.into());
        }
        trimmed.insert("metadata".to_owned(), Json::Object(metadata));
        for (field, parts) in row.fields {
            let field_value = value.get(*field);
            match field_value {
                Some(Json::Object(_)) if !parts.is_empty() => {
                    let mut part = Map::new();
                    for name in *parts {
                        copy(field_value.unwrap_or(&Json::Null), name, &mut part);
                    }
                    trimmed.insert((*field).to_owned(), Json::Object(part));
                }
                _ => copy(value, field, &mut trimmed),
            }
        }
        Json::Object(trimmed).to_string()
    }
}

/// Returns true for text that may be a name, if not one of its kind.
fn is_word(text: &str) -> bool {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    !text.is_empty() && text.len() <= MAX_NAME_LENGTH && text.bytes().all(letters)
}

/// Copies a field unless it is missing or null.
fn copy(from: &Json, name: &str, to: &mut Map<String, Json>) {
    if let Some(value) = from.get(name).filter(|value| !value.is_null()) {
        to.insert(name.to_owned(), value.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_has_its_row() {
        for kind in CoreKind::ALL {
            let row = kind.row().unwrap();
            assert_eq!(CoreKind::of_collection(row.collection), Some(kind));
            for version in row.versions {
                assert_eq!(CoreKind::of(version, row.kind), Some(kind));
            }
            assert!(!kind.kind().is_empty() && !kind.collection().is_empty());
        }
        assert_eq!(CoreKind::of("v2", "Pod"), None);
    }

    #[test]
    fn names_are_those_that_an_api_server_takes() {
        let said = |kind: CoreKind, metadata: &Json| {
            let object = json!({"metadata": metadata});
            match kind.name_of(&object) {
                Ok(CoreName { namespace, name }) => format!("{namespace}/{name}"),
                Err(finding) => finding.to_string(),
            }
        };
        let label = "metadata.name: want a DNS label that begins with a letter (RFC 1035), got ";
        let subdomain = "metadata.name: want a DNS subdomain (RFC 1123), got ";
        for (kind, name, expected) in [
            (CoreKind::Service, "web", "default/web".to_owned()),
            (CoreKind::Service, "Web.x", format!("{label}\"Web.x\"")),
            (CoreKind::Service, "1web", format!("{label}\"1web\"")),
            (CoreKind::Namespace, "1web", "/1web".to_owned()),
            (
                CoreKind::Namespace,
                "a.b",
                "metadata.name: want a DNS label (RFC 1123), got \"a.b\"".to_owned(),
            ),
            (CoreKind::Pod, "a.b", "default/a.b".to_owned()),
            (CoreKind::Pod, "A.b", format!("{subdomain}\"A.b\"")),
            (CoreKind::Endpoints, "a_b", format!("{subdomain}\"a_b\"")),
            (CoreKind::Node, "10.0.0.1", "/10.0.0.1".to_owned()),
            (
                CoreKind::Secret,
                "a\n",
                "metadata.name: want a name".to_owned(),
            ),
        ] {
            assert_eq!(said(kind, &json!({"name": name})), expected);
        }
        for (namespace, expected) in [
            (json!(null), "default/a"),
            (json!(""), "default/a"),
            (json!("shop"), "shop/a"),
            (json!("Shop"), "metadata.namespace: want a DNS label"),
            (json!("a.b"), "metadata.namespace: want a DNS label"),
            (json!(1), "metadata.namespace: want a DNS label"),
        ] {
            let metadata = json!({"name": "a", "namespace": namespace});
            assert_eq!(said(CoreKind::Pod, &metadata), expected);
            assert_eq!(said(CoreKind::Node, &metadata), "/a");
        }
        for metadata in [json!({}), json!({"name": 1}), json!(null)] {
            let nameless = "metadata.name: want a name";
            assert_eq!(said(CoreKind::Pod, &metadata), nameless);
        }
    }

    #[test]
    fn unread_fields_are_left_out() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "labels": {"l": "1"}, "annotations": {"x": "y"}, "resourceVersion": "7",
                "managedFields": [{}], "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "n", "containers": [{"image": "i"}]},
            "status": {"podIP": "10.0.0.1", "phase": "Running"},
        });
        assert_eq!(
            CoreKind::Pod.trimmed(&pod, "shop", false),
            r#"{"metadata":{"name":"a","labels":{"l":"1"},"namespace":"shop"},"spec":{"nodeName":"n"},"status":{"podIP":"10.0.0.1"}}"#
        );
        let service = json!({
            "metadata": {"name": "a", "annotations": {LAST_APPLIED: "{}", "x": "y"}, "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"ports": [{"port": 80}], "selector": {"app": "a"}, "clusterIP": null},
            "status": {"loadBalancer": {}},
        });
        assert_eq!(
            CoreKind::Service.trimmed(&service, "shop", true),
            r#"{"metadata":{"name":"a","annotations":{"x":"y"},"resourceVersion":"7","creationTimestamp":"2026-01-01T00:00:00Z","namespace":"shop"},"spec":{"ports":[{"port":80}]}}"#
        );
        assert_eq!(
            CoreKind::Service.whole(&service, "shop"),
            r#"{"metadata":{"name":"a","annotations":{"x":"y"},"resourceVersion":"7","creationTimestamp":"2026-01-01T00:00:00Z","namespace":"shop"},"spec":{"ports":[{"port":80}],"selector":{"app":"a"},"clusterIP":null},"status":{"loadBalancer":{}}}"#
        );
        // Nothing of it is kept.
        let secret = json!({"metadata": {"name": "a"}, "data": {"tls.key": "eA=="}, "stringData": {"x": "y"}, "type": "t"});
        assert_eq!(
            CoreKind::Secret.trimmed(&secret, "d", false),
            r#"{"metadata":{"name":"a","namespace":"d"}}"#
        );
        // A value of the wrong type is kept: the decoder refuses it later.
        let odd = json!({"metadata": {"name": "a"}, "spec": 5});
        assert_eq!(
            CoreKind::Service.trimmed(&odd, "d", false),
            r#"{"metadata":{"name":"a","namespace":"d"},"spec":5}"#
        );
        assert_eq!(
            CoreKind::Node.trimmed(&odd, "d", false),
            r#"{"metadata":{"name":"a"}}"#
        );
    }
}
