//! A source whose task was gone kept its last objects in effect for good, and discovery called itself ready.

use std::sync::Arc;
use std::time::Duration;

use api::istio::mesh::v1alpha1::ConfigSource;
use serde_json::json;
use sources::catalogue::{Entry, EntryChange, EntryId, Origin};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{Event, Metadata, Subscriber, span};

use super::start;
use crate::discovery::testing::{flags, hub_of};
use crate::exit::{Exit, Failure};
use crate::shared::{RuleUpdate, first_panic};

const ENTRIES: &str = "istio/networking/v1alpha3/serviceentries";

/// A runtime on which tasks with sockets, or with watches of files, panic.
fn without_sockets() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

async fn end(mut loops: JoinSet<()>) -> Failure {
    let ended = timeout(Duration::from_secs(20), first_panic(&mut loops)).await;
    ended.expect("it serves on")
}

#[test]
fn a_panic_of_a_link_ends_the_role() {
    without_sockets().block_on(async {
        let mut loops = JoinSet::new();
        let flags = flags(&["--mcpServerAddrs", "127.0.0.1:1"]);
        let _sources = start(None, &flags, &hub_of(&[]), &mut loops).unwrap();
        assert_eq!(end(loops).await.exit, Exit::System);
    });
}

#[test]
fn a_panic_of_a_directory_that_is_named_later_ends_the_role() {
    let root = tempfile::tempdir().unwrap();
    without_sockets().block_on(async {
        let mut loops = JoinSet::new();
        let sources = start(None, &flags(&[]), &hub_of(&[]), &mut loops).unwrap();
        sources.configure(&[ConfigSource {
            address: format!("fs://{}", root.path().display()),
            ..ConfigSource::default()
        }]);
        assert_eq!(end(loops).await.exit, Exit::System);
    });
}

/// A log that panics at the line about changed objects.
struct PanickingLog;

impl Subscriber for PanickingLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "gudgeon::discovery::hub::updates"
    }

    fn event(&self, _: &Event<'_>) {
        panic!("as an update of the hub that panics");
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// In `gudgeon all` galley accepted rules that proxies were never sent.
#[tokio::test]
async fn a_panic_of_the_receiver_of_rules_ends_the_role() {
    let (rules, updates) = mpsc::channel(1);
    let mut loops = JoinSet::new();
    let hub = hub_of(&[]);
    let _sources = start(Some(updates), &flags(&[]), &hub, &mut loops).unwrap();
    let (object, found) = api::config::read(&json!({
        "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": "a", "namespace": "n"},
        "spec": {"hosts": ["a.example"], "resolution": "DNS", "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}]},
    }));
    assert!(found.is_empty(), "{found:?}");
    let id = EntryId {
        collection: ENTRIES,
        name: "n/a".into(),
    };
    let entry = Entry::Object {
        object: Arc::new(object.unwrap()),
        created: None,
    };
    let update = RuleUpdate {
        changes: vec![EntryChange::Set(id, entry, Origin::file("a.yaml"))],
        is_whole: true,
        report: Arc::default(),
        is_complete: true,
    };
    let _log = tracing::subscriber::set_default(PanickingLog);
    rules.send(update).await.unwrap();
    assert_eq!(end(loops).await.exit, Exit::System);
}
