//! Writes the messages of `/debug/configz` into the `status` of objects, if `PILOT_ENABLE_STATUS` asks for it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use api::config::{Finding, KINDS, Kind, Severity};
use serde_json::{Value, json};
use sources::Key;
use sources::catalogue::ConfigObject;
use sources::kubernetes::{Cluster, WatchTiming};
use sources::reconcile::{DesiredMessages, ObjectMessages, Subject, write_statuses};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::debug::DerivedMessages;
use super::hub::{Hub, LARGE};
use super::sources::Sources;

/// The interval of looks. Chosen: a person who waits does not mind, and a mesh of thousands of rules costs little.
const BETWEEN: Duration = Duration::from_secs(2);
/// From the first snapshot to the first write, and from the last time that a message was found to its end. Some messages come late:
/// keys of tokens are fetched after a start, and replicas know of a change at different times. Without it each restart would take
/// those messages out of all statuses, which another replica does not write again.
const HOLD: Duration = Duration::from_secs(10);
const GROUPS: [&str; 2] = ["networking.istio.io", "security.istio.io"];
/// Messages of an object, and characters of each: a status is read by people.
const MAX_MESSAGES: usize = 50;
const MAX_MESSAGE_LENGTH: usize = 1024;

/// Writes from now on; `cluster`: `None` where no API server has the objects.
pub(super) fn start(
    hub: &Arc<Hub>,
    sources: &Sources,
    cluster: Option<Cluster>,
    loops: &mut JoinSet<()>,
) {
    let Some(cluster) = cluster else {
        warn!("ignoring PILOT_ENABLE_STATUS: files have no status");
        return;
    };
    let (to, mut desired) = watch::channel(DesiredMessages::default());
    loops.spawn(follow(Arc::clone(hub), sources.clone(), to));
    loops.spawn(async move {
        // A first snapshot that is not there yet says that all is well.
        if desired.changed().await.is_ok() {
            sleep(HOLD).await;
            desired.mark_changed();
            let kinds = kinds().collect();
            write_statuses(cluster, kinds, WatchTiming::default(), desired).await;
        }
    });
}

/// The kinds whose status the manifest's role may write.
fn kinds() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().filter(|kind| GROUPS.contains(&kind.group))
}

async fn follow(hub: Arc<Hub>, sources: Sources, to: watch::Sender<DesiredMessages>) {
    hub.current.first().await;
    let mut recent = RecentMessages::default();
    loop {
        if let Some(mut all) = look(&hub, &sources).await {
            recent.hold(&mut all, Instant::now());
            let all = Arc::new(all);
            to.send_if_modified(|messages| {
                let differs = *messages != all;
                *messages = all;
                differs
            });
        }
        if to.is_closed() {
            return;
        }
        // A refused object changes no snapshot, so the look does not wait for one.
        sleep(BETWEEN).await;
    }
}

/// Messages of objects that were found within [`HOLD`].
#[derive(Debug, Default)]
struct RecentMessages(BTreeMap<Subject, RecentOfObject>);

#[derive(Debug, Default)]
struct RecentOfObject {
    content: u64,
    /// Each message, and when it was found the last time.
    found: Vec<(Value, Instant)>,
}

impl RecentMessages {
    /// Adds to each object the messages that were found for the same content within [`HOLD`].
    fn hold(&mut self, all: &mut BTreeMap<Subject, ObjectMessages>, now: Instant) {
        self.0.retain(|subject, _| all.contains_key(subject));
        for (subject, object) in all {
            if object.messages.is_empty() && !self.0.contains_key(subject) {
                continue;
            }
            let recent = self.0.entry(subject.clone()).or_default();
            if std::mem::replace(&mut recent.content, object.content) != object.content {
                recent.found.clear();
            }
            object.messages = recent.merge(std::mem::take(&mut object.messages), now);
        }
        self.0.retain(|_, recent| !recent.found.is_empty());
    }
}

/// Looks beside the loop; `None` after a panic: what was found before stays.
async fn look(hub: &Arc<Hub>, sources: &Sources) -> Option<BTreeMap<Subject, ObjectMessages>> {
    let (this, sources) = (Arc::clone(hub), sources.clone());
    let look = move || {
        let look = || messages_by_object(&this, &sources);
        catch_unwind(AssertUnwindSafe(look)).ok()
    };
    // Each object is hashed, however small the mesh is: never on the loop.
    hub.blocking.run(LARGE, look).await.flatten()
}

impl RecentOfObject {
    /// Takes what is found now, and returns it with what is held. Each message keeps its place as long as it is held: the same
    /// messages in another order would be another status, and be written.
    fn merge(&mut self, messages: Vec<Value>, now: Instant) -> Vec<Value> {
        self.found.retain(|(_, at)| now.duration_since(*at) < HOLD);
        let mut room = MAX_MESSAGES.saturating_sub(messages.len());
        let mut place = 0;
        for message in messages {
            match self.found.iter().position(|(known, _)| *known == message) {
                Some(known) => place = known,
                None => self.found.insert(place, (message, now)),
            }
            if let Some((_, at)) = self.found.get_mut(place) {
                *at = now;
            }
            place += 1;
        }
        let all = self.found.iter().filter(|(_, at)| {
            let is_found = *at == now;
            let has_room = is_found || room > 0;
            room -= usize::from(has_room && !is_found);
            has_room
        });
        all.map(|(message, _)| message.clone()).collect()
    }
}

fn messages_by_object(hub: &Hub, sources: &Sources) -> BTreeMap<Subject, ObjectMessages> {
    let derived = DerivedMessages::of_all_replicas(hub);
    let rows = sources.of_api_server(hub).into_iter();
    rows.filter_map(|object| {
        let subject = subject(&object)?;
        let mut hasher = DefaultHasher::new();
        object.spec.hash(&mut hasher);
        object.revision.hash(&mut hasher);
        // The revision of a served object is not known; its creation tells it from an earlier one of its name.
        object.metadata.to_string().hash(&mut hasher);
        Some((
            subject,
            ObjectMessages {
                content: hasher.finish(),
                generation: Some(object.revision.generation).filter(|known| *known > 0),
                messages: messages(&derived.findings(&object)),
            },
        ))
    })
    .collect()
}

fn subject(object: &ConfigObject) -> Option<Subject> {
    let (group, _) = object.api_version.split_once('/')?;
    let kind = kinds().find(|kind| kind.group == group && kind.kind == &*object.kind)?;
    Some(Subject {
        group: kind.group,
        plural: kind.plural,
        key: Key::new(&object.namespace, &object.name),
    })
}

/// Converts findings to Istio's form: code, level and message of each.
fn messages(findings: &[Finding]) -> Vec<Value> {
    let listed = findings.iter().take(MAX_MESSAGES).map(|finding| {
        let (code, name, level) = match finding.severity {
            Severity::Warning => ("IST0133", "SchemaWarning", "WARNING"),
            Severity::Error => ("IST0106", "SchemaValidationError", "ERROR"),
        };
        let text = match finding.path.as_str() {
            "" => finding.message.clone(),
            path => format!("{path}: {}", finding.message),
        };
        let text = api::text::first_letters(&text, MAX_MESSAGE_LENGTH);
        json!({"type": {"code": code, "name": name}, "level": level, "message": text})
    });
    let mut listed: Vec<Value> = listed.collect();
    if let more @ 1.. = findings.len().saturating_sub(MAX_MESSAGES) {
        let message = format!("{more} more: see /debug/configz");
        let kind = json!({"code": "IST0133", "name": "SchemaWarning"});
        listed.push(json!({"type": kind, "level": "INFO", "message": message}));
    }
    listed
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
        assert_eq!(many.len(), MAX_MESSAGES + 1);
        assert_eq!(
            many[0]["message"].as_str().unwrap().len(),
            MAX_MESSAGE_LENGTH
        );
        assert_eq!(many[50]["message"], "10 more: see /debug/configz");
    }

    /// A snapshot that no proxy has looked at yet has found less than the one before it.
    #[test]
    fn a_message_stays_for_a_while_after_it_was_found() {
        let subject = Subject {
            group: "networking.istio.io",
            plural: "virtualservices",
            key: Key::new("n", "a"),
        };
        let mut recent = RecentMessages::default();
        let start = Instant::now();
        let mut at = |seconds: u64, content: u64, found: &[&str]| {
            let object = ObjectMessages {
                content,
                generation: None,
                messages: found.iter().map(|text| json!(text)).collect(),
            };
            let mut all = BTreeMap::from([(subject.clone(), object)]);
            recent.hold(&mut all, start + Duration::from_secs(seconds));
            let messages = all.remove(&subject).unwrap().messages.into_iter();
            let texts = messages.map(|message| message.as_str().unwrap().to_owned());
            texts.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(at(0, 1, &["spec", "port", "route"]), "spec port route");
        assert_eq!(at(2, 1, &["spec"]), "spec port route");
        assert_eq!(at(4, 1, &["spec", "port"]), "spec port route");
        assert_eq!(at(11, 1, &["spec"]), "spec port");
        assert_eq!(at(14, 1, &["spec"]), "spec");
        assert_eq!(at(15, 1, &[]), "spec");
        // Another content has messages of its own, in the order in which they are found, also where some are new or missing.
        assert_eq!(at(16, 2, &["other"]), "other");
        assert_eq!(at(30, 2, &[]), "");
        assert_eq!(at(31, 3, &["spec", "route"]), "spec route");
        assert_eq!(at(32, 3, &["route"]), "spec route");
        assert_eq!(at(33, 3, &["spec", "port", "route"]), "spec port route");
        assert_eq!(at(34, 3, &["route", "spec"]), "spec port route");
        assert_eq!(at(35, 3, &["first", "route"]), "first spec port route");
    }

    #[test]
    fn an_object_is_found_by_its_kind() {
        let written = |version: &str, kind: &str| ConfigObject {
            api_version: version.into(),
            kind: kind.into(),
            namespace: "n".into(),
            name: "a".into(),
            metadata: Value::Null,
            spec: Value::Null.into(),
            origin: sources::catalogue::Origin::default(),
            is_accepted: true,
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
