//! One API server whose watches panic.

use std::sync::Arc;

use tokio::sync::Notify;

use super::source::{Source, endpoints, fake, settings};
use crate::contribution::SyncState;
use crate::kubernetes::fake::Lie;
use crate::kubernetes::index::source::{ClusterSettings, run_with, watch_all};

/// An empty state would be sent to every proxy.
#[tokio::test]
async fn objects_stay_until_all_are_listed_again_after_a_panic() {
    let fake = fake("10.0.0.1").await;
    let panic = Arc::new(Notify::new());
    let panics = Arc::clone(&panic);
    let settings = ClusterSettings {
        configuration: false,
        ..settings()
    };
    let cluster = fake.cluster();
    let mut source = Source::of(|trust_domain, to| {
        run_with(
            cluster,
            settings,
            trust_domain,
            to,
            move |cluster, settings, trust_domain, to| {
                let panics = Arc::clone(&panics);
                async move {
                    tokio::select! {
                        () = watch_all(cluster, settings, trust_domain, to) => {}
                        () = panics.notified() => panic!("as a client that panics"),
                    }
                }
            },
        )
    });
    let before = source.synced().await;
    assert_eq!(endpoints(&before, "a"), ["10.0.0.1 -"]);
    fake.lies("list", "services", Some(Lie::Status(500)));
    panic.notify_one();
    let is_away = |error: Option<&str>| error.is_some_and(|error| error.contains("500"));
    let away = source
        .until(|update| is_away(update.error.as_deref()))
        .await;
    assert_eq!(away.contribution, before.contribution);
    assert_eq!(away.counts, before.counts);
    assert!(matches!(away.sync_state, SyncState::Stale { .. }) && away.lost.is_some());
    fake.lies("list", "services", None);
    let after = source.synced().await;
    assert_eq!(after.contribution, before.contribution);
    assert_eq!((after.error, after.lost), (None, None));
}
