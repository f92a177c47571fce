//! Objects of a cluster as JSON, from a reader that is no API server.

use serde::de::DeserializeOwned;
use std::sync::Arc;

use super::objects::Objects;
use super::stored_kind::StoredKind;
use super::wire::{EndpointSlice, Endpoints, Namespace, Node, Pod, Service};
use crate::catalogue::CoreKind;
use crate::contribution::credential_of;
use crate::kind::Key;

/// Checks that an object can be used for services: `Ok` also for kinds that have nothing to do with them.
///
/// # Errors
/// The reason why the JSON is no object of the kind.
pub fn usable(kind: CoreKind, json: &str) -> Result<(), String> {
    if kind == CoreKind::Secret {
        return credential_of(json).map(drop);
    }
    Objects::each(kind, &mut CheckUsable(json))
}

/// An action for the type of a kind.
trait Act {
    fn of<K: StoredKind + DeserializeOwned>(&mut self) -> Result<(), String>;
}

struct CheckUsable<'a>(&'a str);

impl Act for CheckUsable<'_> {
    fn of<K: StoredKind + DeserializeOwned>(&mut self) -> Result<(), String> {
        read::<K>(self.0).map(drop)
    }
}

struct Set<'a>(&'a mut Objects, &'a str);

impl Act for Set<'_> {
    fn of<K: StoredKind + DeserializeOwned>(&mut self) -> Result<(), String> {
        self.0.set(Arc::new(read::<K>(self.1)?));
        Ok(())
    }
}

struct Delete<'a>(&'a mut Objects, Key);

impl Act for Delete<'_> {
    fn of<K: StoredKind + DeserializeOwned>(&mut self) -> Result<(), String> {
        self.0.delete::<K>(&self.1);
        Ok(())
    }
}

fn read<K: DeserializeOwned>(json: &str) -> Result<K, String> {
    serde_json::from_str(json).map_err(|error| {
        // The place is one in the JSON of this program.
        let text = error.to_string();
        let (cause, _) = text.rsplit_once(" at line ").unwrap_or((&text, ""));
        cause.to_owned()
    })
}

impl Objects {
    /// Adds or updates one object. Ignores kinds that have nothing to do with services.
    ///
    /// # Errors
    /// The reason why the JSON is no object of the kind; then the last version stays.
    pub fn set_json(&mut self, kind: CoreKind, json: &str) -> Result<(), String> {
        Self::each(kind, &mut Set(self, json))
    }

    /// Deletes an object: `NAMESPACE/NAME`, or `NAME` of a cluster-scoped one.
    pub fn delete_named(&mut self, kind: CoreKind, name: &str) {
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        // Deleting decodes nothing that could be invalid.
        let _always = Self::each(kind, &mut Delete(self, Key::new(namespace, name)));
    }

    fn each(kind: CoreKind, act: &mut impl Act) -> Result<(), String> {
        match kind {
            CoreKind::Service => act.of::<Service>(),
            CoreKind::EndpointSlice => act.of::<EndpointSlice>(),
            CoreKind::Endpoints => act.of::<Endpoints>(),
            CoreKind::Pod => act.of::<Pod>(),
            CoreKind::Node => act.of::<Node>(),
            CoreKind::Namespace => act.of::<Namespace>(),
            CoreKind::Ingress | CoreKind::IngressClass | CoreKind::Secret => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Names;
    use super::*;

    #[test]
    fn objects_come_change_and_go_as_json() {
        let mut objects = Objects::new(Names {
            cluster: "c".into(),
            domain: "cluster.local".into(),
            trust_domain: "cluster.local".into(),
        });
        let service = |port: u16| {
            format!(
                r#"{{"metadata":{{"name":"web","namespace":"shop"}},"spec":{{"clusterIP":"10.0.0.1","ports":[{{"name":"http","port":{port}}}]}}}}"#
            )
        };
        objects.set_json(CoreKind::Service, &service(80)).unwrap();
        let ports = |objects: &mut Objects| {
            let contribution = objects.contribution();
            let all = contribution.services.values();
            all.map(|service| service.ports[0].number)
                .collect::<Vec<_>>()
        };
        assert_eq!(ports(&mut objects), [80]);
        objects.set_json(CoreKind::Service, &service(81)).unwrap();
        assert_eq!(ports(&mut objects), [81]);
        let wrong = r#"{"metadata":{"name":"web","namespace":"shop"},"spec":7}"#;
        assert!(usable(CoreKind::Service, wrong).is_err());
        assert!(objects.set_json(CoreKind::Service, wrong).is_err());
        assert_eq!(ports(&mut objects), [81]);
        objects.set_json(CoreKind::Ingress, "{}").unwrap();
        objects.delete_named(CoreKind::Service, "shop/web");
        assert!(ports(&mut objects).is_empty());
    }
}
