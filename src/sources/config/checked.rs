//! Validates one object as written: its identity, its entry, and all findings.

use std::sync::Arc;

use api::config::document::Part;
use api::config::{self, Check, Finding, Kind, MOST_BYTES, Object};
use api::names::{LONGEST_NAME, is_label};
use api::well_known::LAST_APPLIED;
use api::yaml::Node;
use serde_json::Value as Json;

use super::core_kind::{CoreKind, CoreName, UsabilityCheck};
use super::entry::{Entry, EntryId};

const NAMELESS: &str = "default";
const NAMESPACE: &str = "metadata.namespace";

/// Options that depend on the source of objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckOptions {
    pub(super) usable: UsabilityCheck,
    /// The source is an API server, which sets creation times.
    pub(super) is_server: bool,
    /// All fields of Kubernetes' own kinds are kept, for readers beyond the transforms.
    pub(super) is_whole: bool,
}

/// An object with its findings.
#[derive(Clone, Debug, Default)]
pub(super) struct CheckedObject {
    /// The identity, as far as it is known.
    pub(super) id: EntryId,
    /// `None` if the object is invalid, or never served.
    pub(super) entry: Option<Entry>,
    /// Findings in the order of the text.
    pub(super) findings: Vec<Finding>,
    /// The notes of a valid object: parts that discovery does not serve as they are written.
    pub(super) notes: Vec<Finding>,
    /// An object of a kind with [`Check::Unused`], as JSON.
    pub(super) unchecked: Option<Arc<str>>,
}

/// Validates an object; returns `None` for a kind that is not used here.
pub(super) fn check(value: &Json, options: CheckOptions) -> Option<CheckedObject> {
    check_with(value, options, |_| {})
}

/// Validates an object that is a part of a text; returns `None` for a kind that is not used here.
pub(super) fn check_part(part: &Part<'_>, options: CheckOptions) -> Option<CheckedObject> {
    check_with(&part.value(), options, |findings| {
        part.add_number_findings(findings);
    })
}

/// Validates an object; `complain` adds findings about its fields.
fn check_with(
    value: &Json,
    options: CheckOptions,
    complain: impl FnOnce(&mut Vec<Finding>),
) -> Option<CheckedObject> {
    let text = |name| value.get(name).and_then(Json::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if let Some(plain) = CoreKind::of(api_version, kind) {
        // Nobody else makes anything of them, and what is not there is not shown.
        if plain == CoreKind::Secret && !options.is_whole {
            return None;
        }
        let mut checked = CheckedObject::plain(plain, value, options);
        complain(&mut checked.findings);
        if !checked.findings.is_empty() {
            checked.entry = None;
        }
        return Some(checked);
    }
    if !api_version.is_empty() && !config::is_ours(api_version) {
        return None;
    }
    let row = config::kind(api_version, kind).ok();
    Some(CheckedObject::object(row, value, options, complain))
}

impl CheckedObject {
    fn object(
        row: Option<&'static Kind>,
        value: &Json,
        options: CheckOptions,
        complain: impl FnOnce(&mut Vec<Finding>),
    ) -> Self {
        let (object, mut findings) = config::check_all(value);
        complain(&mut findings);
        let id = match row {
            Some(row) => EntryId {
                collection: row.collection,
                name: name(value, row.cluster),
            },
            None => EntryId::default(),
        };
        let is_unused = row.is_some_and(|row| row.check == Check::Unused);
        let is_nameless = match &object {
            Some(object) => object.name.is_empty(),
            None => is_unused && metadata(value, "name").is_none(),
        };
        if is_nameless {
            // No API server is here to complete the missing fields.
            required(&mut findings);
        }
        let is_placed = row.is_some_and(|row| row.cluster) || namespace(value).is_some();
        if !(is_placed || findings.iter().any(|found| found.path == NAMESPACE)) {
            findings.push(unplaced());
        }
        if findings.len() > 1 {
            Part::new(&Node::of_json(value)).order(&mut findings);
        }
        config::limit(&mut findings);
        let is_broken = findings.iter().any(Finding::is_error);
        let object = object.filter(|_| !is_broken && id.is_whole());
        let created = created(value).filter(|_| options.is_server);
        let unchecked = (is_unused && !is_broken).then(|| value.to_string().into());
        Self {
            id,
            notes: object.as_ref().map(config::notes_of).unwrap_or_default(),
            entry: object.map(|object| slim(object, created)),
            findings,
            unchecked,
        }
    }

    fn plain(plain: CoreKind, value: &Json, options: CheckOptions) -> Self {
        let found = match options.is_server {
            true => plain.given_name(value),
            false => plain.name_of(value),
        };
        let (name, entry) = match found {
            Ok(name) => (name, Self::plain_entry(plain, value, name, options)),
            Err(finding) => (CoreName::default(), Err(finding)),
        };
        let full = match name {
            CoreName {
                namespace: "",
                name,
            } => name.into(),
            CoreName { namespace, name } => format!("{namespace}/{name}").into(),
        };
        let id = EntryId {
            collection: plain.collection(),
            name: full,
        };
        let (entry, findings) = match entry {
            Ok(entry) => (Some(entry), Vec::new()),
            Err(finding) => (None, vec![finding]),
        };
        Self {
            id,
            entry,
            findings,
            ..Self::default()
        }
    }

    fn plain_entry(
        plain: CoreKind,
        value: &Json,
        name: CoreName<'_>,
        options: CheckOptions,
    ) -> Result<Entry, Finding> {
        let json = match options.is_whole {
            true => plain.whole(value, name.namespace),
            false => plain.trimmed(value, name.namespace, options.is_server),
        };
        if json.len() > MOST_BYTES {
            return Err(Finding::error("", "object is too large"));
        }
        (options.usable)(plain, &json).map_err(|cause| Finding::error("", cause))?;
        Ok(Entry::Plain {
            kind: plain,
            json: json.into(),
        })
    }
}

/// A namespace that is none is not the default one: the object would take the place of one that is there.
fn unplaced() -> Finding {
    Finding::error(NAMESPACE, "want a DNS label")
}

fn required(findings: &mut Vec<Finding>) {
    const PATH: &str = "metadata.name";
    if !findings.iter().any(|found| found.path == PATH) {
        findings.push(Finding::error(PATH, "is required"));
    }
}

/// Reduces a valid object to the fields that its resource is encoded from.
fn slim(mut object: Object, created: Option<i64>) -> Entry {
    object.annotations.remove(LAST_APPLIED);
    object.spec = Json::Null;
    // The buffer that the body was written into may have spare capacity.
    object.body = object.body.to_vec().into();
    Entry::Object {
        object: Arc::new(object),
        created,
    }
}

/// A name or a time; longer ones are dropped.
fn metadata<'a>(value: &'a Json, name: &str) -> Option<&'a str> {
    let text = value.get("metadata")?.get(name)?.as_str()?;
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':');
    let is_name = !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(letters);
    is_name.then_some(text)
}

/// The namespace; `None` for one that is no DNS label.
fn namespace(value: &Json) -> Option<&str> {
    match value.get("metadata").and_then(|all| all.get("namespace")) {
        None | Some(Json::Null) => Some(NAMELESS),
        Some(Json::String(text)) if text.is_empty() => Some(NAMELESS),
        Some(Json::String(text)) if is_label(text) => Some(text),
        Some(_) => None,
    }
}

/// Returns the full name; empty if there is none.
fn name(value: &Json, everywhere: bool) -> Arc<str> {
    match (metadata(value, "name"), namespace(value)) {
        (Some(name), _) if everywhere => name.into(),
        (Some(name), Some(namespace)) => format!("{namespace}/{name}").into(),
        (None, _) | (Some(_), None) => Arc::default(),
    }
}

/// Returns the creation time in seconds since 1970.
fn created(value: &Json) -> Option<i64> {
    let time: k8s_openapi::jiff::Timestamp = metadata(value, "creationTimestamp")?.parse().ok()?;
    Some(time.as_second())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check_plain(value: &Json) -> Option<CheckedObject> {
        let usable: UsabilityCheck = |_, json| match json.contains("unusable") {
            true => Err("not usable".to_owned()),
            false => Ok(()),
        };
        let options = CheckOptions {
            usable,
            is_server: true,
            is_whole: false,
        };
        check(value, options)
    }

    fn said(value: &Json) -> (String, bool, Vec<String>) {
        let checked = check_plain(value).unwrap();
        let findings = checked.findings.iter().map(Finding::to_string).collect();
        (checked.id.to_string(), checked.entry.is_some(), findings)
    }

    fn service(metadata: &Json, spec: &Json) -> Json {
        json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": metadata, "spec": spec})
    }

    fn spec() -> Json {
        json!({"hosts": ["web"], "http": [{"route": [{"destination": {"host": "web"}}]}]})
    }

    #[test]
    fn a_good_object_is_kept_as_what_is_sent_of_it() {
        let metadata = json!({"name": "a", "labels": {"l": "1"}, "annotations": {LAST_APPLIED: "{}", "x": "y"},
            "creationTimestamp": "1970-01-01T00:00:07Z"});
        let good = check_plain(&service(&metadata, &spec())).unwrap();
        assert_eq!(good.id.to_string(), "VirtualService default/a");
        let Entry::Object { object, created } = good.entry.unwrap() else {
            panic!("another");
        };
        assert_eq!((created, &object.spec), (Some(7), &Json::Null));
        assert_eq!(object.labels["l"], "1");
        assert_eq!(object.annotations.len(), 1);
        let again = Object::of_resource(object.kind, &object.full_name(), object.body.clone());
        assert_eq!(again.unwrap().spec["hosts"], json!(["web"]));
    }

    #[test]
    fn a_broken_object_keeps_its_name() {
        let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
        let long = "x".repeat(2 << 20);
        for (spec, cause) in [
            (
                json!({"htp": 1}),
                "spec.htp: unknown field, did you mean \"http\"?",
            ),
            (deep, "nested too deeply"),
            (json!(long), "object is too large"),
        ] {
            let (id, good, findings) =
                said(&service(&json!({"name": "a", "namespace": "n"}), &spec));
            assert_eq!((id.as_str(), good), ("VirtualService n/a", false));
            assert!(findings.iter().any(|found| found == cause), "{findings:?}");
        }
        let nameless = said(&service(&json!({"generateName": "a-"}), &spec()));
        assert_eq!(
            nameless,
            (
                "VirtualService ?".to_owned(),
                false,
                vec!["metadata.name: is required".to_owned()]
            )
        );
    }

    #[test]
    fn kinds_are_ours_or_foreign_or_unknown() {
        let of = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
        for (api_version, kind) in [("v1", "Secret"), ("apps/v1", "Deployment")] {
            assert!(check_plain(&of(api_version, kind)).is_none());
        }
        let (id, good, findings) = said(&of("networking.istio.io/v1", "VirtualServce"));
        assert_eq!((id.as_str(), good), ("? ?", false));
        assert!(
            findings[0].starts_with("kind: unrecognized type"),
            "{findings:?}"
        );
        let (_, good, findings) = said(&of("telemetry.istio.io/v1", "Telemetry"));
        assert!(!good && findings.len() == 1 && findings[0].starts_with("warning: "));
        let (_, _, findings) = said(&json!(5));
        assert_eq!(findings, ["expected an object"]);
        let pod = said(&of("v1", "Pod"));
        assert_eq!(pod, ("Pod default/a".to_owned(), true, Vec::new()));
        let node = said(&of("v1", "Node"));
        assert_eq!(node, ("Node a".to_owned(), true, Vec::new()));
        let mut unusable = of("v1", "Service");
        unusable["spec"] = json!({"type": "unusable"});
        let (id, good, findings) = said(&unusable);
        assert_eq!(
            (id.as_str(), good, &findings[0]),
            ("Service default/a", false, &"not usable".to_owned())
        );
        let mut nameless = of("v1", "Service");
        nameless["metadata"] = json!({});
        assert_eq!(said(&nameless).2, ["metadata.name: want a name"]);
        nameless["metadata"]["name"] = json!("a\n");
        assert_eq!(said(&nameless).2, ["metadata.name: want a name"]);
    }

    #[test]
    fn a_namespace_that_is_none_is_not_the_default_one() {
        let pod =
            |metadata: &Json| json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
        for namespace in [
            json!("a_b"),
            json!("a.b"),
            json!("a:b"),
            json!("-a"),
            json!("a/b"),
            json!("x".repeat(64)),
            json!({"a": 1}),
            json!(1),
        ] {
            let metadata = json!({"name": "a", "namespace": namespace});
            let expected = ("Pod ?".to_owned(), false);
            let (id, good, findings) = said(&pod(&metadata));
            assert_eq!((id, good), expected, "{namespace}");
            assert_eq!(findings, ["metadata.namespace: want a DNS label"]);
            let (id, good, findings) = said(&service(&metadata, &spec()));
            assert_eq!((&*id, good), ("VirtualService ?", false), "{namespace}");
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert!(
                findings[0].starts_with("metadata.namespace: "),
                "{findings:?}"
            );
        }
        for metadata in [
            json!({"name": "a"}),
            json!({"name": "a", "namespace": ""}),
            json!({"name": "a", "namespace": null}),
        ] {
            assert_eq!(said(&pod(&metadata)).0, "Pod default/a");
            let (id, good, _) = said(&service(&metadata, &spec()));
            assert_eq!((&*id, good), ("VirtualService default/a", true));
        }
        // What belongs to the whole cluster has none.
        let mut node = pod(&json!({"name": "a", "namespace": "a_b"}));
        node["kind"] = json!("Node");
        assert_eq!(said(&node), ("Node a".to_owned(), true, Vec::new()));
    }
}
