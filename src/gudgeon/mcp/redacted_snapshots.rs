//! Snapshots for sinks without an identity: the same without fields that hold secrets. Built once for all of them, and again
//! only for changed collections.

use std::collections::HashMap;
use std::sync::Arc;

use api::config::Object;
use api::config::collections::kind_of;
use api::{schema, wire};
use mcp::message;
use mcp::snapshot::{Collection, Origin, Resource, Snapshot};
use mcp::version::Version;
use tokio::sync::watch;
use tokio::task::JoinError;
use tracing::warn;

use super::Snapshots;
use crate::secrets;

/// Objects that are read on the loop: some 50 µs each.
const AT_ONCE: usize = 100;

/// The published snapshots as the sinks of a port or of a dialler get them.
pub(super) struct SinkSnapshots {
    /// The snapshots that are sent.
    pub(super) sent: watch::Receiver<Snapshots>,
    /// The work without which those stay as they are.
    redaction: Option<Redaction>,
}

impl SinkSnapshots {
    /// Makes the snapshots of sinks, the identity of which is known or not.
    pub(super) fn new(published: watch::Receiver<Snapshots>, is_known: bool) -> Self {
        if is_known {
            return Self {
                sent: published,
                redaction: None,
            };
        }
        let (to, sent) = watch::channel(Snapshots::default());
        let redaction = Redaction {
            from: published,
            to,
            redact: Redactor::snapshots,
        };
        Self {
            sent,
            redaction: Some(redaction),
        }
    }

    /// Serves sinks, and redacts what is published for as long. A panic of either is one of the caller: sinks would be sent the
    /// snapshots of before for good.
    pub(super) async fn while_serving(self, serving: impl Future<Output = ()>) {
        let redaction = async {
            if let Some(redaction) = self.redaction {
                redaction.run().await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = serving => {}
            () = redaction => {}
        }
    }
}

/// Redacts snapshots, as long as they are published and sent.
struct Redaction {
    from: watch::Receiver<Snapshots>,
    to: watch::Sender<Snapshots>,
    redact: fn(&mut Redactor, &Snapshots) -> Snapshots,
}

impl Redaction {
    async fn run(self) {
        let Self {
            mut from,
            to,
            redact,
        } = self;
        let mut redactor = Redactor::default();
        // Snapshots that are published already count as a change, too.
        from.mark_changed();
        while from.changed().await.is_ok() {
            let published = from.borrow_and_update().clone();
            if redactor.unread(&published) <= AT_ONCE {
                to.send_replace(redact(&mut redactor, &published));
                continue;
            }
            // Thousands of objects are read again: not for the loop.
            let task = tokio::task::spawn_blocking(move || {
                let snapshots = redact(&mut redactor, &published);
                (redactor, snapshots)
            });
            let (state, snapshots) = match task.await.map_err(JoinError::try_into_panic) {
                Ok(task) => task,
                Err(Ok(panic)) => std::panic::resume_unwind(panic),
                // The runtime is at its end.
                Err(Err(_cancelled)) => return,
            };
            redactor = state;
            to.send_replace(snapshots);
        }
    }
}

/// The version of each resource, and its redacted form, by name.
type Resources = HashMap<Arc<str>, (Version, Arc<Resource>)>;

/// The last redacted version of each collection.
#[derive(Debug, Default)]
struct Redactor {
    collections: HashMap<Arc<str>, Redacted>,
    has_warned: bool,
}

#[derive(Debug)]
struct Redacted {
    of: Arc<Collection>,
    made: Arc<Collection>,
    resources: Resources,
}

impl Redactor {
    /// Objects of collections that are other ones than before.
    fn unread(&self, published: &Snapshots) -> usize {
        let all = published.all().flat_map(|snapshot| snapshot.collections());
        let unread = all.filter(|collection| {
            let redacted = self.collections.get(collection.name());
            let is_known = redacted.is_some_and(|redacted| Arc::ptr_eq(&redacted.of, collection));
            secrets::may_hold(collection.name()) && !is_known
        });
        unread.map(|collection| collection.members().len()).sum()
    }

    fn snapshots(&mut self, published: &Snapshots) -> Snapshots {
        let mut snapshots = Snapshots::default();
        for snapshot in published.all() {
            snapshots.set(Arc::new(self.snapshot(snapshot)));
        }
        snapshots
    }

    fn snapshot(&mut self, snapshot: &Snapshot) -> Snapshot {
        let mut withheld = 0_usize;
        let redacted = snapshot.map(|collection| match secrets::may_hold(collection.name()) {
            true => self.collection(collection, &mut withheld),
            false => Arc::clone(collection),
        });
        if withheld > 0 && !self.has_warned {
            self.has_warned = true;
            warn!(
                "sinks without a certificate are sent {} without the fields that hold secrets",
                api::counted(withheld, "object")
            );
        }
        redacted
    }

    fn collection(
        &mut self,
        collection: &Arc<Collection>,
        withheld: &mut usize,
    ) -> Arc<Collection> {
        let name = collection.name();
        // `Redacted` keeps the collection alive, so no other one can have its address.
        let is_known = |known: &Redacted| Arc::ptr_eq(&known.of, collection);
        if !self.collections.get(name).is_some_and(is_known) {
            let before = self.collections.remove(name);
            let before = before.map(|before| before.resources).unwrap_or_default();
            let redacted = Redacted::new(collection, &before);
            self.collections.insert(Arc::clone(name), redacted);
        }
        let Some(known) = self.collections.get(name) else {
            return Arc::new(Collection::empty(Arc::clone(name)));
        };
        *withheld += known.withheld();
        Arc::clone(&known.made)
    }
}

impl Redacted {
    fn new(of: &Arc<Collection>, before: &Resources) -> Self {
        let mut resources = Resources::with_capacity(of.members().len());
        for member in of.members() {
            let member_before = before.get(&member.name);
            // Versions are hashes of the content: an equal one needs no second redaction.
            let member_before = member_before.filter(|(version, _)| *version == member.version);
            let one = match member_before {
                Some((_, one)) => Arc::clone(one),
                None => redacted(of.name(), member),
            };
            resources.insert(Arc::clone(&member.name), (member.version, one));
        }
        // By name, as they are in the collection.
        let members = of.members().iter();
        let members = members.filter_map(|member| resources.get(&member.name));
        let members = members.map(|(_, one)| Arc::clone(one)).collect();
        Self {
            of: Arc::clone(of),
            made: Arc::new(Collection::of_sorted(Arc::clone(of.name()), members)),
            resources,
        }
    }

    /// Counts the objects that were redacted.
    fn withheld(&self) -> usize {
        let resources = self.resources.values();
        resources
            // Redaction changes the content, and with it the version.
            .filter(|(version, one)| *version != one.version)
            .count()
    }
}

/// The resource without its secrets; itself where it has none.
fn redacted(collection: &str, resource: &Arc<Resource>) -> Arc<Resource> {
    let message::Resource { metadata, body } = resource.message();
    let (metadata, body) = (metadata.unwrap_or_default(), body.unwrap_or_default());
    let (message, value) = match kind_of(collection) {
        Some(kind) => {
            let read = Object::of_resource(kind, &resource.name, body.value);
            (kind.message, read.map(|object| object.spec))
        }
        None => {
            let mesh = &schema::ISTIO_MESH_V1ALPHA1_MESHCONFIG;
            (mesh, wire::decode(mesh, &body.value))
        }
    };
    let value = match value {
        Ok(mut value) => {
            if !secrets::strip_secrets(collection, &mut value) {
                return Arc::clone(resource);
            }
            wire::encode(message, &value)
        }
        // The content is unknown, so nothing of it is sent.
        Err(_) => Vec::new(),
    };
    Arc::new(Resource::new(Origin {
        name: resource.name.to_string(),
        create_time: metadata.create_time,
        labels: metadata.labels,
        annotations: metadata.annotations,
        type_url: body.type_url,
        body: value.into(),
    }))
}

#[cfg(test)]
mod tests {
    use mcp::collections::{Collections, Group};
    use mcp::snapshot::GroupSnapshot;

    use super::*;

    fn published() -> Snapshots {
        let group = GroupSnapshot::new(&Collections::all(), Group::Default).snapshot();
        let mut snapshots = Snapshots::default();
        snapshots.set(group);
        snapshots
    }

    #[tokio::test]
    async fn snapshots_are_redacted_while_they_are_served() {
        let (publish, receiver) = watch::channel(published());
        let snapshots = SinkSnapshots::new(receiver, false);
        let mut sent = snapshots.sent.clone();
        let serving = async {
            let is_sent = |snapshots: &Snapshots| snapshots.default.is_some();
            assert!(sent.wait_for(is_sent).await.is_ok());
            // Nothing more is published, and what was is served.
            drop(publish);
            tokio::task::yield_now().await;
        };
        snapshots.while_serving(serving).await;
        assert!(sent.changed().await.is_err(), "the work ends with it");
    }

    #[tokio::test]
    async fn a_panic_of_the_redaction_ends_those_who_serve() {
        let (_publish, receiver) = watch::channel(published());
        let mut snapshots = SinkSnapshots::new(receiver, false);
        if let Some(redaction) = &mut snapshots.redaction {
            redaction.redact = |_, _| panic!("a mistake");
        }
        let serving = snapshots.while_serving(std::future::pending());
        let ended = tokio::spawn(serving).await;
        assert!(ended.unwrap_err().is_panic());
    }
}
