//! The state of the role as JSON documents, without secrets.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use api::config::collections::{self, MESH, SYNTHETIC};
use api::config::{Finding, Kind, Object};
use api::schema;
use api::wire;
use mcp::collections::{Collections, Group};
use mcp::message;
use mcp::snapshot::{Collection, Resource};
use serde_json::{Map, Value, json};
use sources::catalogue::Refused;

use super::admin_state::AdminState;
use super::engine::GalleyEngine;
use super::peers;
use super::state_snapshot::StateSnapshot;
use crate::{log, secrets};

const SERVICE_ENTRIES: &str = "istio/networking/v1alpha3/serviceentries";

/// Objects with findings that a document lists at most.
const MAX_OBJECTS: usize = 10_000;

/// Builds the document without the resources. Thousands of refused objects take a while, so it is not for the event loop.
pub(super) fn document(admin: &AdminState) -> Value {
    let mut document = match &admin.engine {
        Some(engine) => served(engine, &engine.state_snapshot()),
        // Nothing is served, so there are no findings.
        None => json!({
            "session": null, "source": {"kind": null, "synced": true, "stale_since": null},
            "snapshots": {}, "collections": [], "rejected": [], "warnings": [],
        }),
    };
    if let Value::Object(fields) = &mut document {
        let statuses = admin.peers.stream_statuses();
        fields.insert(
            "peers".to_owned(),
            statuses.iter().map(peers::debug_view).collect(),
        );
        if let Some(webhook) = &admin.webhook {
            fields.insert("webhook".to_owned(), webhook.json());
        }
        fields.insert(
            "ready".to_owned(),
            json!(admin.readiness.why_not_ready().is_none()),
        );
    }
    document
}

fn served(engine: &GalleyEngine, current: &StateSnapshot) -> Value {
    let time = |at: Duration| log::stamp(engine.clock.wall(at));
    let session = &current.session;
    let mut snapshots = Map::new();
    let mut all = Vec::new();
    for published in &current.published {
        let snapshot = &published.snapshot;
        let resources = snapshot.collections().map(|one| one.members().len());
        let one = json!({
            "published": time(published.at),
            "version": snapshot.version().to_string(),
            "count": resources.sum::<usize>(),
            "publishes": current.count(snapshot.group()),
        });
        snapshots.insert(snapshot.group().as_str().to_owned(), one);
        let listed = snapshot.collections().filter(|one| is_listed(one));
        all.extend(listed.map(|one| {
            json!({
                "name": &**one.name(),
                "version": one.version().to_string(),
                "count": one.members().len(),
                "bytes": one.bytes(),
                "effect": effect(one),
            })
        }));
    }
    let refused: Vec<Value> = current.refused().take(MAX_OBJECTS).map(refused).collect();
    let warnings: Vec<Value> = current
        .warned()
        .take(MAX_OBJECTS)
        .map(|one| {
            // A refused object has no effect to show.
            let kind = collections::any_kind_of(one.id.collection).filter(|_| one.is_accepted);
            json!({
                "collection": one.id.collection, "name": &*one.id.name, "origin": one.origin.to_string(),
                "effect": kind.map(|kind| kind.effect.of_object(one.warnings.iter().chain(&*one.notes))),
                "warnings": findings(one.warnings.iter().chain(&*one.notes)),
            })
        })
        .collect();
    json!({
        "session": {
            "id": session.number,
            "state": session.state.as_str(),
            "since": time(session.since),
            "reason": session.reason.to_string(),
            "buffered": session.buffered,
        },
        "source": {
            "kind": engine.settings.source,
            "synced": current.complete,
            "stale_since": current.stale.as_ref().map(|(since, _)| time(*since)),
            "error": current.stale.as_ref().map(|(_, why)| why),
        },
        "snapshots": snapshots,
        "collections": all,
        "rejected": refused,
        "rejected_count": current.refused().count(),
        "warnings": warnings,
    })
}

/// Returns the effect of the kind in gudgeon discovery; `None` if the collection has no kind.
pub(super) fn effect(collection: &Collection) -> Option<&'static str> {
    kind_of(collection.name()).map(|kind| kind.effect.as_str())
}

/// The kind of the objects of a collection.
fn kind_of(collection: &str) -> Option<&'static Kind> {
    collections::kind_of(match collection {
        SYNTHETIC => SERVICE_ENTRIES,
        other => other,
    })
}

/// Returns false for collections that are always empty.
pub(super) fn is_listed(collection: &Collection) -> bool {
    !collections::is_always_empty(collection.name())
}

fn refused(one: &Refused) -> Value {
    json!({
        "collection": one.id.collection,
        "name": &*one.id.name,
        "origin": one.origin.to_string(),
        "state": one.serving.as_str(),
        "errors": findings(&*one.findings),
    })
}

fn findings<'a>(all: impl IntoIterator<Item = &'a Finding>) -> Value {
    let one = |finding: &Finding| json!({"path": finding.path, "message": finding.message});
    all.into_iter().map(one).collect()
}

/// The resources of a collection, as text; `None`: there is no such collection. Thousands of them take a while, so it is not
/// for the loop; and one after the other, so that they are in memory once.
pub(super) fn resources(engine: &GalleyEngine, name: &str) -> Option<String> {
    let collections = Collections::all();
    let (name, group) = collections.find(name)?;
    let snapshots = engine.snapshots().borrow().clone();
    let snapshot = match group {
        Group::Default => snapshots.default,
        Group::SyntheticServiceEntry => snapshots.synthetic,
    };
    let collection = snapshot.and_then(|snapshot| snapshot.get(name).cloned());
    let members = collection.iter().flat_map(|one| one.members());
    let version = collection.as_ref().map(|one| one.version().to_string());
    let (quoted, version) = (json!(&**name), json!(version));
    let current = engine.state_snapshot();
    let noted = current.warned().filter(|one| *one.id.collection == **name);
    let noted: BTreeMap<&str, _> = noted.map(|one| (&*one.id.name, one)).collect();
    let kind = kind_of(name);
    let mut text = format!("{{\"collection\": {quoted}, \"version\": {version}, \"resources\": [");
    for (at, one) in members.enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let mut document = resource(name, one);
        let notes = noted.get(&*one.name).into_iter();
        let notes = notes.flat_map(|one| one.warnings.iter().chain(&*one.notes));
        let effect = kind.map(|kind| kind.effect.of_object(notes));
        if let Value::Object(fields) = &mut document {
            fields.insert("effect".to_owned(), json!(effect));
        }
        // Writing to a string cannot fail.
        let _written = write!(text, "{comma}\n{document:#}");
    }
    text.push_str("\n]}\n");
    Some(text)
}

fn resource(collection: &str, resource: &Resource) -> Value {
    let message::Resource { metadata, body } = resource.message();
    let metadata = metadata.unwrap_or_default();
    let created = metadata.create_time.and_then(|time| {
        let since = Duration::from_secs(u64::try_from(time.seconds).ok()?);
        std::time::UNIX_EPOCH.checked_add(since).map(log::stamp)
    });
    let any = body.unwrap_or_default();
    let fields = body_of(collection, &resource.name, any.value);
    let mut document = json!({
        "metadata": {
            "name": metadata.name,
            "createTime": created,
            "version": metadata.version,
            "labels": metadata.labels,
            "annotations": metadata.annotations,
        },
    });
    let body = match fields {
        // As proto JSON has a Struct in an Any.
        Some(fields) if any.type_url.ends_with("/google.protobuf.Struct") => {
            json!({"@type": any.type_url, "value": fields})
        }
        Some(Value::Object(mut fields)) => {
            fields.insert("@type".to_owned(), any.type_url.into());
            Value::Object(fields)
        }
        _ => json!({"@type": any.type_url}),
    };
    if let Value::Object(fields) = &mut document {
        fields.insert("body".to_owned(), body);
    }
    secrets::redact(&mut document);
    document
}

fn body_of(collection: &str, name: &str, body: bytes::Bytes) -> Option<Value> {
    if collection == MESH {
        return wire::decode(&schema::ISTIO_MESH_V1ALPHA1_MESHCONFIG, &body).ok();
    }
    let kind = kind_of(collection)?;
    if kind.verbatim {
        // As encoded: with the names as written, and with nulls.
        return wire::decode_struct(&body).ok().map(Value::Object);
    }
    let object = Object::of_resource(kind, name, body).ok()?;
    Some(object.spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configz_shows_unconverted_objects_as_written() {
        let spec = json!({"description": null, "session_based": true, "templates": ["a"], "config": "QQ=="});
        let (object, findings) = api::config::check(&json!({
            "apiVersion": "config.istio.io/v1alpha2", "kind": "adapter",
            "metadata": {"name": "a", "namespace": "n"}, "spec": spec,
        }));
        assert_eq!(findings, []);
        let made = mcp::objects::resource(&object.unwrap(), None);
        let rendered = resource("istio/config/v1alpha2/adapters", &made);
        assert_eq!(
            rendered["body"],
            json!({"@type": "type.googleapis.com/google.protobuf.Struct", "value": spec})
        );
    }
}
