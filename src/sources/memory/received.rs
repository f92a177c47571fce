//! Configuration that a source sends object by object, as by the Mesh Configuration Protocol: each object once, in its last good
//! version, with the source as its origin.

use std::sync::Arc;

use api::config::{self, Finding, Object};
use serde_json::{Value, json};

use crate::catalogue::{Candidate, Catalogue, CatalogueChange, ConfigObject, Content, Origin};
use crate::contribution::{AnyConfigured, Configuration, ObjectKey};
use crate::kind::Revision;

/// Objects by the collection and the name under which they are sent.
#[derive(Debug)]
struct InCollections;

impl Content for InCollections {
    type Location = (Arc<str>, Arc<str>);
    /// Kind, and namespace and name.
    type Id = (&'static str, ObjectKey);
    /// `None`: discovery does not act on the kind.
    type Version = Option<AnyConfigured>;
    type Findings = ReceivedVersion;
}

/// The last version of an object, good or not.
#[derive(Clone, Debug)]
struct ReceivedVersion {
    object: Arc<Object>,
    /// The reason for a refusal.
    cause: Option<String>,
}

/// All objects of sources that send them one by one.
#[derive(Debug, Default)]
pub struct ReceivedObjects {
    catalogue: Catalogue<InCollections>,
    configuration: Configuration,
}

impl ReceivedObjects {
    /// Returns the configuration in last good versions.
    #[must_use]
    pub const fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Iterates over the objects in their last versions; true: it is good.
    pub fn all(&self) -> impl Iterator<Item = (&Object, bool)> {
        let all = self.candidates();
        all.map(|one| (&*one.findings.object, one.version.is_some()))
    }

    /// Iterates over the kinds of the objects that are served, each as often as there are objects of it.
    pub fn served_kinds(&self) -> impl Iterator<Item = &'static str> {
        self.catalogue.all().map(|((kind, _), _)| *kind)
    }

    /// Iterates over the objects as they came last. A page makes rows of them once it has left the lock of their owner.
    pub fn last_versions(&self) -> impl Iterator<Item = LastVersion> {
        self.candidates().map(|one| LastVersion {
            received: one.findings.clone(),
            origin: one.origin.clone(),
        })
    }

    #[cfg(test)]
    pub(crate) fn config_objects(&self) -> impl Iterator<Item = ConfigObject> {
        self.last_versions().map(LastVersion::config_object)
    }

    fn candidates(&self) -> impl Iterator<Item = &Candidate<InCollections>> {
        self.catalogue.places().flat_map(|(_, all)| all)
    }

    /// Puts an object that came or changed under its collection and name. `created`: in seconds since 1970.
    ///
    /// # Errors
    ///
    /// Its body is not of the kind's message; its last good version stays.
    pub fn set(
        &mut self,
        place: (&Arc<str>, &Arc<str>),
        object: &Arc<Object>,
        created: Option<i64>,
        origin: Origin,
    ) -> Result<(), String> {
        let (version, cause) = match AnyConfigured::of(object, created) {
            Ok(version) => (Some(version), None),
            Err(cause) => (None, Some(cause)),
        };
        let id = (object.kind.kind, key(object));
        let last = ReceivedVersion {
            object: Arc::clone(object),
            cause: cause.clone(),
        };
        let candidate = Candidate::new(Some(id), origin, version, last);
        let place = (Arc::clone(place.0), Arc::clone(place.1));
        self.catalogue.put(&place, vec![candidate]);
        self.apply();
        cause.map_or(Ok(()), Err)
    }

    /// Removes an object.
    pub fn remove(&mut self, collection: &Arc<str>, name: &Arc<str>) {
        let place = (Arc::clone(collection), Arc::clone(name));
        self.catalogue.remove(&place);
        self.apply();
    }

    fn apply(&mut self) {
        for change in self.catalogue.reconcile().changes {
            match change {
                CatalogueChange::Set(_, Some(object), _) => self.configuration.set(object),
                CatalogueChange::Set(_, None, _) | CatalogueChange::Moved(..) => {}
                CatalogueChange::Gone((kind, key)) => self.configuration.remove(kind, &key),
            }
        }
    }
}

fn key(object: &Object) -> ObjectKey {
    (
        object.namespace.as_str().into(),
        object.name.as_str().into(),
    )
}

/// The last version of an object, and its origin.
#[derive(Clone, Debug)]
pub struct LastVersion {
    received: ReceivedVersion,
    origin: Origin,
}

impl LastVersion {
    /// Returns the object as it is written, with its findings.
    #[must_use]
    pub fn config_object(self) -> ConfigObject {
        config_object(&self.received, self.origin)
    }
}

fn config_object(received: &ReceivedVersion, origin: Origin) -> ConfigObject {
    let ReceivedVersion { object, cause } = received;
    let (namespace, name) = key(object);
    let version = object.kind.versions.last().copied().unwrap_or_default();
    let decoded = decoded(object);
    let (findings, notes) = match cause {
        Some(cause) => (vec![Finding::error("", cause)], Vec::new()),
        None => {
            let mut findings = config::check_rules(&decoded);
            findings.retain(|finding| !finding.is_error());
            (findings, config::limited_notes_of(&decoded))
        }
    };
    ConfigObject {
        api_version: format!("{}/{version}", object.kind.group).into(),
        kind: object.kind.kind.into(),
        namespace,
        name,
        metadata: metadata(object),
        spec: decoded.spec.into(),
        origin,
        is_accepted: cause.is_none(),
        findings,
        notes,
        revision: Revision::default(),
    }
}

/// An object with its spec, of its body: that was valid when it came.
fn decoded(object: &Object) -> Object {
    let read = Object::of_resource(object.kind, &object.full_name(), object.body.clone());
    Object {
        spec: read.map(|read| read.spec).unwrap_or_default(),
        ..object.clone()
    }
}

fn metadata(object: &Object) -> Value {
    let mut metadata = json!({"name": object.name});
    if let Value::Object(fields) = &mut metadata {
        if !object.namespace.is_empty() {
            fields.insert("namespace".to_owned(), json!(object.namespace));
        }
        let texts = [
            ("labels", &object.labels),
            ("annotations", &object.annotations),
        ];
        for (name, texts) in texts.into_iter().filter(|(_, texts)| !texts.is_empty()) {
            fields.insert(name.to_owned(), json!(texts));
        }
    }
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::model::DISTRIBUTION;

    fn object(kind: &str, spec: &Value) -> Arc<Object> {
        let written = json!({
            "apiVersion": "networking.istio.io/v1", "kind": kind,
            "metadata": {"name": "a", "namespace": "n", "annotations": {DISTRIBUTION: "PreferClose"}},
            "spec": spec,
        });
        Arc::new(config::read(&written).0.unwrap())
    }

    fn entry(host: &str) -> Arc<Object> {
        let port = json!({"number": 80, "name": "http", "protocol": "HTTP"});
        object(
            "ServiceEntry",
            &json!({"hosts": [host], "ports": [port], "resolution": "DNS"}),
        )
    }

    fn set(
        all: &mut ReceivedObjects,
        object: &Arc<Object>,
        created: Option<i64>,
        source: &str,
    ) -> Result<(), String> {
        let (collection, name) = ("entries".into(), "n/a".into());
        let origin = Origin::Source(source.into());
        all.set((&collection, &name), object, created, origin)
    }

    #[test]
    fn objects_come_change_and_go() {
        let mut all = ReceivedObjects::default();
        set(&mut all, &entry("a.example"), Some(7), "mcp://x").unwrap();
        let before = all.configuration().clone();
        let [one] = &before.service_entries.values().collect::<Vec<_>>()[..] else {
            panic!("{before:?}")
        };
        assert_eq!(
            (&*one.namespace, &*one.name, one.created),
            ("n", "a", Some(7))
        );
        assert!(one.prefers_close);
        set(&mut all, &entry("a.example"), Some(7), "mcp://x").unwrap();
        assert!(before.is_same(all.configuration()));
        let config_object = all.config_objects().next().unwrap();
        assert!(config_object.is_accepted && config_object.spec.value()["hosts"][0] == "a.example");
        // Bytes that are no such thing; the version before stays.
        let mut broken = (*entry("a.example")).clone();
        broken.body = vec![0xff].into();
        let broken = Arc::new(broken);
        assert!(set(&mut all, &broken, None, "mcp://x").is_err());
        assert!(before.is_same(all.configuration()));
        let config_object = all.config_objects().next().unwrap();
        assert!(!config_object.is_accepted && !config_object.findings.is_empty());
        assert_eq!(&*config_object.api_version, "networking.istio.io/v1");
        assert!(all.all().all(|(_, is_good)| !is_good));
        all.remove(&"entries".into(), &"n/a".into());
        assert!(
            all.configuration().service_entries.is_empty() && all.config_objects().next().is_none()
        );
        // What it was is forgotten with it.
        assert!(set(&mut all, &broken, None, "mcp://x").is_err());
        assert_eq!(*all.configuration(), Configuration::default());
    }

    #[test]
    fn the_origin_is_the_source_of_the_last_version() {
        let mut all = ReceivedObjects::default();
        for source in ["mcp://x", "mcp://y"] {
            set(&mut all, &entry("a.example"), None, source).unwrap();
            let config_object = all.config_objects().next().unwrap();
            assert_eq!(config_object.origin, Origin::Source(source.into()));
        }
    }

    /// A kind that discovery does not act on is there to be looked at.
    #[test]
    fn kinds_without_effect_are_written_and_no_configuration() {
        let role = json!({
            "apiVersion": "rbac.istio.io/v1alpha1", "kind": "ServiceRole",
            "metadata": {"name": "a", "namespace": "n"}, "spec": {"rules": []},
        });
        let role = Arc::new(config::read(&role).0.unwrap());
        let mut all = ReceivedObjects::default();
        set(&mut all, &role, None, "mcp://x").unwrap();
        assert_eq!(*all.configuration(), Configuration::default());
        assert!(all.config_objects().all(|one| one.is_accepted));
        assert!(all.all().map(|(one, _)| one.kind.kind).eq(["ServiceRole"]));
    }
}
