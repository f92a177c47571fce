//! Writes the messages of `/debug/configz` into the `status` of objects, if `PILOT_ENABLE_STATUS` asks for it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use api::config::{Finding, KINDS, Kind, Severity};
use serde_json::{Value, json};
use sources::registry::WrittenObject;
use sources::{
    Cluster, DesiredMessages, Key, ObjectMessages, Subject, WatchTiming, write_statuses,
};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::warn;

use super::debug::DerivedMessages;
use super::hub::Hub;
use super::sources::Sources;

/// Between two looks. Chosen: a person who waits for it does not mind, and a mesh of thousands of rules costs little.
const BETWEEN: Duration = Duration::from_secs(2);
const GROUPS: [&str; 2] = ["networking.istio.io", "security.istio.io"];
/// Messages of an object, and characters of each: a status is read by people.
const MOST_MESSAGES: usize = 50;
const LONGEST: usize = 1024;

/// Writes from now on; `cluster`: `None` where no API server has the objects.
pub(super) fn start(hub: &Arc<Hub>, sources: &Sources, cluster: Option<Cluster>) {
    let Some(cluster) = cluster else {
        warn!("ignoring PILOT_ENABLE_STATUS: files have no status");
        return;
    };
    let (to, told) = watch::channel(DesiredMessages::default());
    tokio::spawn(follow(Arc::clone(hub), sources.clone(), to));
    tokio::spawn(async move {
        // A first snapshot that is not there yet says that all is well.
        let mut told = told;
        if told.changed().await.is_ok() {
            told.mark_changed();
            let kinds = kinds().collect();
            write_statuses(cluster, kinds, WatchTiming::default(), told).await;
        }
    });
}

/// The kinds whose status the manifest's role may write.
fn kinds() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().filter(|kind| GROUPS.contains(&kind.group))
}

async fn follow(hub: Arc<Hub>, sources: Sources, to: watch::Sender<DesiredMessages>) {
    let mut snapshots = hub.current.watch();
    hub.current.first().await;
    loop {
        snapshots.mark_unchanged();
        let now: DesiredMessages = Arc::new(messages_by_object(&hub, &sources));
        to.send_if_modified(|known| {
            let differs = *known != now;
            *known = now;
            differs
        });
        if to.is_closed() {
            return;
        }
        // What is refused changes no snapshot: it is looked for all the same.
        sleep(BETWEEN).await;
    }
}

fn messages_by_object(hub: &Hub, sources: &Sources) -> BTreeMap<Subject, ObjectMessages> {
    let told = DerivedMessages::now(hub);
    let rows = sources.of_api_server(hub).into_iter();
    rows.filter_map(|written| {
        let subject = subject(&written)?;
        let mut hasher = DefaultHasher::new();
        written.spec.hash(&mut hasher);
        written.revision.hash(&mut hasher);
        // Of an object that is used the revision is not known, and its creation tells it from an earlier one of its name.
        written.metadata.to_string().hash(&mut hasher);
        Some((
            subject,
            ObjectMessages {
                content: hasher.finish(),
                generation: Some(written.revision.generation).filter(|known| *known > 0),
                messages: messages(&told.findings(&written)),
            },
        ))
    })
    .collect()
}

fn subject(written: &WrittenObject) -> Option<Subject> {
    let (group, _) = written.api_version.split_once('/')?;
    let kind = kinds().find(|kind| kind.group == group && kind.kind == &*written.kind)?;
    Some(Subject {
        group: kind.group,
        plural: kind.plural,
        key: Key::new(&written.namespace, &written.name),
    })
}

/// As Istio's types have them: the code and the level of each, and what it says.
fn messages(findings: &[Finding]) -> Vec<Value> {
    let shown = findings.iter().take(MOST_MESSAGES).map(|found| {
        let (code, name, level) = match found.severity {
            Severity::Warning => ("IST0133", "SchemaWarning", "WARNING"),
            Severity::Error => ("IST0106", "SchemaValidationError", "ERROR"),
        };
        let text = match found.path.as_str() {
            "" => found.message.clone(),
            path => format!("{path}: {}", found.message),
        };
        let text = api::text::first_letters(&text, LONGEST);
        json!({"type": {"code": code, "name": name}, "level": level, "message": text})
    });
    let mut shown: Vec<Value> = shown.collect();
    if let more @ 1.. = findings.len().saturating_sub(MOST_MESSAGES) {
        let words = format!("{more} more: see /debug/configz");
        let kind = json!({"code": "IST0133", "name": "SchemaWarning"});
        shown.push(json!({"type": kind, "level": "INFO", "message": words}));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_a_level_and_are_bounded() {
        assert_eq!(messages(&[]), [] as [Value; 0]);
        let warning = json!({
            "type": {"code": "IST0133", "name": "SchemaWarning"}, "level": "WARNING", "message": "spec.a: b",
        });
        let error = json!({
            "type": {"code": "IST0106", "name": "SchemaValidationError"}, "level": "ERROR", "message": "spec.a: b",
        });
        let findings = [
            Finding::error("spec.a", "b"),
            Finding::warning("spec.a", "b"),
        ];
        assert_eq!(messages(&findings), [error, warning]);
        let long = Finding::warning("", "x".repeat(5000));
        let many = messages(&vec![long; 60]);
        assert_eq!(many.len(), MOST_MESSAGES + 1);
        assert_eq!(many[0]["message"].as_str().unwrap().len(), LONGEST);
        assert_eq!(many[50]["message"], "10 more: see /debug/configz");
    }

    #[test]
    fn an_object_is_found_by_its_kind() {
        let written = |version: &str, kind: &str| WrittenObject {
            api_version: version.into(),
            kind: kind.into(),
            namespace: "n".into(),
            name: "a".into(),
            metadata: Value::Null,
            spec: Value::Null.into(),
            origin: sources::Origin::default(),
            accepted: true,
            findings: Vec::new(),
            notes: Vec::new(),
            revision: sources::Revision::default(),
        };
        let plural = |version, kind| subject(&written(version, kind)).map(|one| one.plural);
        let known = plural("networking.istio.io/v1alpha3", "VirtualService");
        assert_eq!(known, Some("virtualservices"));
        let known = plural("security.istio.io/v1", "PeerAuthentication");
        assert_eq!(known, Some("peerauthentications"));
        assert_eq!(plural("v1", "Pod"), None);
        assert_eq!(plural("networking.k8s.io/v1", "Ingress"), None);
    }
}
