//! Validates an object of an API server like one of a file.

use std::sync::Arc;

use api::config::Finding;
use api::config::document::count_values;
use serde_json::{Map, Value as Json};

use crate::catalogue::checked::{CheckedObject, check_served};
use crate::catalogue::entry_form::{ConfigVersion, EntryForm, of_transforms};
use crate::catalogue::{EntryId, UsabilityCheck};
use crate::kind::{Key, Resource};

/// Returns the place of an object, which does not depend on the version it is read in.
pub(super) fn place(resource: &Resource, key: &Key) -> Arc<str> {
    format!("{resource}/{key}").into()
}

/// Validates the text of an object.
pub(super) fn checked(
    collection: &'static str,
    resource: &Resource,
    key: &Key,
    text: &str,
    usable: UsabilityCheck,
) -> CheckedObject<ConfigVersion> {
    let id = EntryId {
        collection,
        ..EntryId::default()
    };
    let form = EntryForm {
        usable,
        keeps_created: true,
        is_whole: false,
        wanted: of_transforms,
    };
    let read = count_values(text).and_then(|_| {
        // Its bytes were JSON, and so this is how deep it is.
        serde_json::from_str(text).map_err(|_| "nested too deeply".to_owned())
    });
    match read {
        Ok(fields) => {
            let value = with_type(resource, id.kind(), fields);
            let checked = check_served(&value);
            checked
                .and_then(|checked| form.stored(checked, &value))
                .unwrap_or_default()
        }
        Err(cause) => refused(collection, key, &cause),
    }
}

/// The findings and notes of an object that an API server has; `None`: its kind is not watched.
#[cfg(test)]
pub(crate) fn check_as_stored(object: &Json) -> Option<(Vec<Finding>, Vec<Finding>)> {
    let (api_version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    let row = api::config::kind(api_version, kind).ok()?;
    if row.check == api::config::Check::Unused {
        return None;
    }
    let version = api_version.split('/').nth(1)?;
    let resource = Resource {
        group: row.group,
        version: row.versions.iter().find(|known| **known == version)?,
        name: row.plural,
    };
    let metadata = &object["metadata"];
    let text = |name: &str| metadata[name].as_str().unwrap_or_default();
    let key = Key::new(text("namespace"), text("name"));
    let mut stored = object.clone();
    stored.as_object_mut()?.remove("apiVersion");
    stored.as_object_mut()?.remove("kind");
    let usable: UsabilityCheck = |_, _| Ok(());
    let checked = checked(row.collection, &resource, &key, &stored.to_string(), usable);
    let is_good = !checked.findings.iter().any(Finding::is_error);
    assert_eq!(checked.content.is_some(), is_good, "{object}");
    Some((checked.findings, checked.notes))
}

/// An object of which no more is known than its name.
pub(super) fn refused(
    collection: &'static str,
    key: &Key,
    cause: &str,
) -> CheckedObject<ConfigVersion> {
    CheckedObject {
        id: EntryId {
            collection,
            name: key.to_string().into(),
        },
        findings: vec![Finding::error("", cause)],
        ..CheckedObject::default()
    }
}

/// Adds `apiVersion` and `kind`, which the items of a list lack.
fn with_type(resource: &Resource, kind: &str, fields: Map<String, Json>) -> Json {
    let Resource { group, version, .. } = resource;
    let api_version = match *group {
        "" => (*version).to_owned(),
        group => format!("{group}/{version}"),
    };
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    object.extend(fields);
    Json::Object(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As a file that has so many is refused.
    #[test]
    fn an_object_of_too_many_values_is_refused_by_its_name() {
        let resource = Resource {
            group: "networking.istio.io",
            version: "v1",
            name: "virtualservices",
        };
        let metadata = json!({"name": "a", "namespace": "n"});
        let object = json!({"metadata": metadata, "spec": {"hosts": vec!["a"; 200_000]}});
        let (key, usable): (_, UsabilityCheck) = (Key::new("n", "a"), |_, _| Ok(()));
        let collection = "istio/networking/v1alpha3/virtualservices";
        let checked = checked(collection, &resource, &key, &object.to_string(), usable);
        assert_eq!(checked.id.to_string(), "VirtualService n/a");
        assert_eq!(checked.findings[0].to_string(), "more than 200000 values");
        assert!(checked.content.is_none());
    }
}
