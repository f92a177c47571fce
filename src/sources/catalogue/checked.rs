//! Validates one object as written: its identity, its content, and all findings.

use std::sync::Arc;

use api::config::document::Part;
use api::config::{self, Check, Finding, Kind, Object, quoted};
use api::names::{MAX_NAME_LENGTH, is_label};
use api::yaml::Node;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value as Json;

use super::config_object::ConfigObject;
use super::core_kind::{CoreKind, CoreName};
use super::entry::EntryId;

const NAMELESS: &str = "default";
const NAMESPACE: &str = "metadata.namespace";

/// The content of a valid object.
#[derive(Debug)]
pub(crate) enum CheckedContent {
    /// An object of one of the mesh's kinds, with its creation time in seconds since 1970.
    Object(Box<Object>, Option<i64>),
    /// An object of a kind that is accepted and neither checked nor served.
    Unused,
    /// An object of one of Kubernetes' own kinds: only its name is checked.
    Core(CoreKind),
}

/// An object with its findings. `C`: its content, as the rules give it or as a reader stores it.
#[derive(Clone, Debug)]
pub(crate) struct CheckedObject<C> {
    /// The identity, as far as it is known.
    pub(crate) id: EntryId,
    /// `None` if the object is invalid, or never served.
    pub(crate) content: Option<C>,
    /// Findings in the order of the text.
    pub(crate) findings: Vec<Finding>,
    /// The notes of a valid object: parts that discovery does not serve as they are written.
    pub(crate) notes: Vec<Finding>,
    /// A refused object as it is written, if its reader shows it.
    pub(crate) written: Option<Arc<ConfigObject>>,
}

impl<C> Default for CheckedObject<C> {
    fn default() -> Self {
        Self {
            id: EntryId::default(),
            content: None,
            findings: Vec::new(),
            notes: Vec::new(),
            written: None,
        }
    }
}

impl<C> CheckedObject<C> {
    pub(crate) fn is_refused(&self) -> bool {
        self.findings.iter().any(Finding::is_error)
    }

    /// Puts the content into the form in which a reader stores it. A content that has none refuses the object.
    pub(crate) fn store<S>(
        self,
        form: impl FnOnce(&EntryId, C) -> Result<S, Finding>,
    ) -> CheckedObject<S> {
        let Self {
            id,
            content,
            mut findings,
            mut notes,
            written,
        } = self;
        let content = match content.map(|content| form(&id, content)) {
            Some(Ok(stored)) => Some(stored),
            Some(Err(finding)) => {
                findings.push(finding);
                notes.clear();
                None
            }
            None => None,
        };
        CheckedObject {
            id,
            content,
            findings,
            notes,
            written,
        }
    }
}

/// Validates an object of an API server; returns `None` for a kind that is not used here.
pub(crate) fn check_served(value: &Json) -> Option<CheckedObject<CheckedContent>> {
    check(value, None)
}

/// Validates an object that is a part of a text; returns `None` for a kind that is not used here. `value`: that of the part.
pub(crate) fn check_part(part: &Part<'_>, value: &Json) -> Option<CheckedObject<CheckedContent>> {
    check(value, Some(part))
}

/// Validates an object. `part`: of a text, which no API server has checked or completed.
fn check(value: &Json, part: Option<&Part<'_>>) -> Option<CheckedObject<CheckedContent>> {
    let text = |name| value.get(name).and_then(Json::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if let Some(core) = CoreKind::of(api_version, kind) {
        return Some(check_core(core, value, part));
    }
    // A version or a kind that is no word is a mistake that a finding must name, and no foreign object.
    if is_word(api_version) && is_word(kind) && !config::is_ours(api_version) {
        return None;
    }
    let row = config::kind(api_version, kind).ok();
    Some(check_configuration(row, value, part))
}

fn check_configuration(
    row: Option<&'static Kind>,
    value: &Json,
    part: Option<&Part<'_>>,
) -> CheckedObject<CheckedContent> {
    let (object, mut findings) = config::check_all(value);
    let created = created(value);
    if let Some(part) = part {
        add_parse_findings(part, &created, &mut findings);
    }
    let id = EntryId {
        collection: row.map(|row| row.collection).unwrap_or_default(),
        name: row.map_or_else(Arc::default, |row| name(value, row.cluster)),
    };
    let is_unused = row.is_some_and(|row| row.check == Check::Unused);
    // An object of a kind that is never served may go without: an IstioOperator of a file has no name.
    if object.as_ref().is_some_and(|object| object.name.is_empty()) {
        // No API server is here to complete the missing fields.
        required(&mut findings);
    }
    let is_placed = row.is_some_and(|row| row.cluster) || namespace(value).is_some();
    // The rules may have refused the namespace already: one finding is enough.
    if !(is_placed || findings.iter().any(|finding| finding.path == NAMESPACE)) {
        findings.push(unplaced());
    }
    if findings.len() > 1 {
        match part {
            Some(part) => part.sort(&mut findings),
            None => Part::new(&Node::of_json(value)).sort(&mut findings),
        }
    }
    config::limit(&mut findings);
    let is_broken = findings.iter().any(Finding::is_error);
    let object = object.filter(|_| !is_broken && id.is_whole());
    let notes = object
        .as_ref()
        .map(config::limited_notes_of)
        .unwrap_or_default();
    let unused = (is_unused && !is_broken).then_some(CheckedContent::Unused);
    let object =
        object.map(|object| CheckedContent::Object(Box::new(object), created.unwrap_or_default()));
    CheckedObject {
        id,
        content: object.or(unused),
        findings,
        notes,
        written: None,
    }
}

fn check_core(
    kind: CoreKind,
    value: &Json,
    part: Option<&Part<'_>>,
) -> CheckedObject<CheckedContent> {
    let core_name = match part {
        Some(_) => kind.name_of(value),
        None => kind.server_name(value),
    };
    let mut findings = Vec::new();
    let name = match core_name {
        Ok(CoreName {
            namespace: "",
            name,
        }) => name.into(),
        Ok(CoreName { namespace, name }) => format!("{namespace}/{name}").into(),
        Err(finding) => {
            findings.push(finding);
            Arc::default()
        }
    };
    if let Some(part) = part {
        add_parse_findings(part, &created(value), &mut findings);
    }
    let is_good = findings.is_empty();
    CheckedObject {
        id: EntryId {
            collection: kind.collection(),
            name,
        },
        content: is_good.then_some(CheckedContent::Core(kind)),
        findings,
        ..CheckedObject::default()
    }
}

/// An invalid namespace does not stand for the default one: the object would take the place of another.
fn unplaced() -> Finding {
    Finding::error(NAMESPACE, "want a DNS label")
}

fn required(findings: &mut Vec<Finding>) {
    const PATH: &str = "metadata.name";
    if !findings.iter().any(|finding| finding.path == PATH) {
        findings.push(Finding::error(PATH, "is required"));
    }
}

/// A name; longer ones are dropped.
fn metadata<'a>(value: &'a Json, name: &str) -> Option<&'a str> {
    let text = value.get("metadata")?.get(name)?.as_str()?;
    Some(text).filter(|text| is_word(text) && !text.contains('/'))
}

/// Returns true if the text may be a kind, version or name. Other text of a document is neither stored nor shown.
fn is_word(text: &str) -> bool {
    let letters =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':' | b'/');
    !text.is_empty() && text.len() <= MAX_NAME_LENGTH && text.bytes().all(letters)
}

/// Returns the namespace; `None` if it is no DNS label.
fn namespace(value: &Json) -> Option<&str> {
    match value.get("metadata").and_then(|all| all.get("namespace")) {
        None | Some(Json::Null) => Some(NAMELESS),
        Some(Json::String(text)) if text.is_empty() => Some(NAMELESS),
        Some(Json::String(text)) if is_label(text) => Some(text),
        Some(_) => None,
    }
}

/// Returns namespace and name, the former empty where objects have none; `None` if one of them is none.
pub(crate) fn named(value: &Json, is_everywhere: bool) -> Option<(&str, &str)> {
    let name = metadata(value, "name")?;
    match is_everywhere {
        true => Some(("", name)),
        false => Some((namespace(value)?, name)),
    }
}

/// Returns the full name; empty if there is none.
fn name(value: &Json, is_everywhere: bool) -> Arc<str> {
    match named(value, is_everywhere) {
        Some(("", name)) => name.into(),
        Some((namespace, name)) => format!("{namespace}/{name}").into(),
        None => Arc::default(),
    }
}

/// Returns the creation time in seconds since 1970.
///
/// # Errors
///
/// It is no time: the text that stands in its place.
fn created(value: &Json) -> Result<Option<i64>, String> {
    match value.pointer("/metadata/creationTimestamp") {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => {
            let time: Timestamp = text.parse().map_err(|_| quoted(text))?;
            Ok(Some(time.as_second()))
        }
        Some(other) => Err(quoted(&other.to_string())),
    }
}

/// Finds an invalid creation time in an object's text: an API server refuses the object, and so do discovery and galley.
#[must_use]
pub fn created_finding(value: &Json) -> Option<Finding> {
    created(value).err().map(|text| no_time(&text))
}

fn no_time(text: &str) -> Finding {
    Finding::error(
        "metadata.creationTimestamp",
        format!("want a time, got {text}"),
    )
}

/// Adds the findings of an API server's own checks, which precede all rules.
fn add_parse_findings(
    part: &Part<'_>,
    created: &Result<Option<i64>, String>,
    findings: &mut Vec<Finding>,
) {
    if let Err(text) = created {
        findings.push(no_time(text));
    }
    part.add_number_findings(findings);
}

#[cfg(test)]
mod tests {
    use api::well_known::LAST_APPLIED;
    use serde_json::json;

    use super::super::core_kind::UsabilityCheck;
    use super::super::entry::Entry;
    use super::super::entry_form::{ConfigVersion, EntryForm, of_transforms};
    use super::*;

    fn check_plain(value: &Json) -> Option<CheckedObject<ConfigVersion>> {
        let usable: UsabilityCheck = |_, json| match json.contains("unusable") {
            true => Err("not usable".to_owned()),
            false => Ok(()),
        };
        let form = EntryForm {
            usable,
            keeps_created: true,
            is_whole: false,
            wanted: of_transforms,
        };
        form.stored(check_served(value)?, value)
    }

    fn said(value: &Json) -> (String, bool, Vec<String>) {
        let checked = check_plain(value).unwrap();
        let findings = checked.findings.iter().map(Finding::to_string).collect();
        let is_entry = matches!(checked.content, Some(ConfigVersion::Entry(_)));
        (checked.id.to_string(), is_entry, findings)
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
        let Some(ConfigVersion::Entry(Entry::Object { object, created })) = good.content else {
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
        // Nothing is served of it, so it needs no name.
        let mut operator = of("install.istio.io/v1alpha1", "IstioOperator");
        operator["metadata"] = json!({});
        let (id, good, findings) = said(&operator);
        assert!(!good && id.ends_with(" ?"), "{id}");
        assert!(
            findings.len() == 1 && findings[0].starts_with("warning: "),
            "{findings:?}"
        );
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
