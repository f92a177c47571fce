//! Validates an object of an API server like one of a file.

use std::sync::Arc;

use api::config::Finding;
use serde_json::{Map, Value as Json};

use crate::config::checked::{CheckOptions, CheckedObject, check};
use crate::config::core_kind::UsabilityCheck;
use crate::config::entry::EntryId;
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
) -> CheckedObject {
    let id = EntryId {
        collection,
        ..EntryId::default()
    };
    let options = CheckOptions {
        usable,
        is_server: true,
        is_whole: false,
    };
    match serde_json::from_str(text) {
        Ok(fields) => check(&whole(resource, id.kind(), fields), options).unwrap_or_default(),
        // Its bytes were JSON, and so this is how deep it is.
        Err(_) => CheckedObject {
            id: EntryId {
                name: key.to_string().into(),
                ..id
            },
            entry: None,
            findings: vec![Finding::error("", "nested too deeply")],
        },
    }
}

/// Adds `apiVersion` and `kind`, which the items of a list lack.
fn whole(resource: &Resource, kind: &str, fields: Map<String, Json>) -> Json {
    let Resource { group, version, .. } = resource;
    let api_version = match *group {
        "" => (*version).to_owned(),
        group => format!("{group}/{version}"),
    };
    let mut whole = Map::new();
    whole.insert("apiVersion".to_owned(), api_version.into());
    whole.insert("kind".to_owned(), kind.into());
    whole.extend(fields);
    Json::Object(whole)
}
