use std::time::Duration;

use super::*;
use crate::kubernetes::fake::{Fake, Fault};
use crate::reconcile::ServiceReference;
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const PACE: WatchTiming = WatchTiming {
    first: Duration::from_millis(5),
    max: Duration::from_millis(100),
    request: Duration::from_millis(300),
    watch: Duration::from_secs(20),
    grace: Duration::from_secs(1),
    steady: Duration::from_millis(100),
};

const ENTRY: &str = "namespace.sidecar-injector.istio.io";

fn base64(text: &str) -> Value {
    serde_json::to_value(ByteString(text.into())).unwrap()
}

/// A configuration with one entry of this program and one of another.
fn configuration(name: &str, bundle: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"a": "b"}},
        "webhooks": [
            {"name": "other.example.com", "clientConfig": {"caBundle": base64("other")}},
            {"name": ENTRY, "failurePolicy": "Fail",
             "clientConfig": {"service": {"name": "s", "namespace": "n"}, "caBundle": base64(bundle)}},
        ],
    })
}

fn bundle(fake: &Fake, name: &str) -> String {
    let object = fake.get(name);
    assert_eq!(
        object["webhooks"][0]["clientConfig"]["caBundle"],
        base64("other")
    );
    let bundle = object["webhooks"][1]["clientConfig"]["caBundle"].clone();
    String::from_utf8(serde_json::from_value::<ByteString>(bundle).unwrap().0).unwrap()
}

struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn run(fake: &Fake, configurations: &[&str]) -> (Running, ReconcilerHandle) {
    let desired = DesiredState {
        configurations: configurations.iter().map(ToString::to_string).collect(),
        entry: "sidecar-injector.istio.io".to_owned(),
    };
    let (reconciler, handle) = WebhookReconciler::new(desired, PACE);
    (
        Running(tokio::spawn(reconciler.run(fake.cluster()))),
        handle,
    )
}

fn file(text: &str) -> CaBundle {
    CaBundle::File(text.into())
}

async fn until(what: impl Fn() -> bool) {
    for _ in 0..1000 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not come to that within 10 s");
}

/// Asserts that no further patch is sent.
async fn quiet(fake: &Fake) {
    let before = fake.count("patch");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(fake.count("patch"), before);
}

/// A new CA signed once the injector's configurations had it, and the API server refused the webhook of galley's.
#[test]
fn a_bundle_is_published_once_all_reconcilers_have_it() {
    let reconcilers = BundleReconcilers::default();
    assert_eq!(reconcilers.have_published(&file("new")), None);
    let desired = DesiredState {
        configurations: vec!["a".to_owned(), "b".to_owned()],
        entry: "sidecar-injector.istio.io".to_owned(),
    };
    let service = ServiceReference {
        namespace: "istio-system".to_owned(),
        name: "istio-galley".to_owned(),
    };
    let validation = Validation::built_in("c", service);
    let (_injector, injector) = WebhookReconciler::new(desired, PACE);
    let (_galley, galley) = WebhookReconciler::of_validation(validation, PACE);
    for handle in [&injector, &galley] {
        reconcilers.add(handle.clone());
        handle.set_bundle(file("old"));
        handle.statuses.each(|status| status.hold(1));
        handle.set_bundle(file("new"));
    }
    let is_published = || reconcilers.have_published(&file("new"));
    assert_eq!(is_published(), Some(false));
    injector.statuses.each(|status| status.hold(2));
    assert_eq!(is_published(), Some(false));
    galley.statuses.each(|status| status.hold(2));
    assert_eq!(is_published(), Some(true));
    // A configuration that is deleted, as desired, has no bundle.
    let gone = |status: &mut ReconcileStatus| status.state = ReconcileState::Gone;
    galley.statuses.each(gone);
    assert_eq!(is_published(), Some(true));
    injector.set_bundle(file("newer"));
    assert_eq!(is_published(), Some(false));
}

#[tokio::test]
async fn the_bundle_is_written_and_mended() {
    let fake = Fake::start().await;
    fake.put(configuration("c", ""));
    let (_running, handle) = run(&fake, &["c"]);
    quiet(&fake).await;
    assert_eq!(handle.statuses()[0].state, ReconcileState::Waiting);
    assert!(!handle.is_in_sync());
    handle.set_bundle(file("ours"));
    until(|| handle.is_in_sync()).await;
    assert_eq!(bundle(&fake, "c"), "ours");
    // A user replaces the bundle, and then changes another field.
    fake.put(configuration("c", "theirs"));
    until(|| bundle(&fake, "c") == "ours").await;
    fake.put(configuration("c", "ours"));
    quiet(&fake).await;
    assert_eq!(fake.count("patch"), 2);
    assert_eq!(fake.count("get"), 0);
    // Another bundle.
    handle.set_bundle(file("newer"));
    assert!(!handle.is_in_sync());
    until(|| handle.is_in_sync()).await;
    assert_eq!(bundle(&fake, "c"), "newer");
    let status = &handle.statuses()[0];
    assert_eq!(status.entries, [ENTRY]);
    assert_eq!(
        (status.attempts, status.retries, &status.error),
        (3, 0, &None)
    );
}

#[tokio::test]
async fn an_equal_bundle_gets_no_request() {
    let fake = Fake::start().await;
    fake.put(configuration("c", "ours"));
    let (_running, handle) = run(&fake, &["c"]);
    handle.set_bundle(file("ours"));
    until(|| handle.is_in_sync() && fake.count("watch") == 1).await;
    quiet(&fake).await;
    assert_eq!(fake.log(), ["list", "watch 11"]);
}

#[tokio::test]
async fn a_conflict_is_read_again_and_tried_at_once() {
    let fake = Fake::start().await;
    fake.put(configuration("c", ""));
    let (_running, handle) = run(&fake, &["c"]);
    until(|| fake.count("watch") == 1).await;
    fake.fail("patch", &[Fault::Status(409, 0), Fault::Status(409, 0)]);
    handle.set_bundle(file("ours"));
    until(|| handle.is_in_sync()).await;
    assert_eq!(
        fake.log(),
        [
            "list", "watch 11", "patch c", "get c", "patch c", "get c", "patch c"
        ]
    );
    let status = &handle.statuses()[0];
    assert_eq!((status.attempts, status.retries), (3, 2));
    assert_eq!(status.failures(ReconcileFailure::Update), 0);
}

#[tokio::test]
async fn conflicts_without_end_are_not_tried_without_a_pause() {
    let fake = Fake::start().await;
    fake.put(configuration("c", ""));
    fake.fail("patch", &vec![Fault::Status(409, 0); 1000]);
    let (_running, handle) = run(&fake, &["c"]);
    handle.set_bundle(file("ours"));
    until(|| handle.statuses()[0].state == ReconcileState::Failing).await;
    let before = fake.count("patch");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let patches = fake.count("patch") - before;
    assert!(patches < 100, "{patches}");
}

#[tokio::test]
async fn other_errors_are_tried_again_for_ever() {
    let fake = Fake::start().await;
    fake.put(configuration("c", ""));
    fake.fail(
        "patch",
        &[
            Fault::Status(403, 0),
            Fault::Status(500, 0),
            Fault::Silence,
            Fault::Cut,
            Fault::Says("{}"),
        ],
    );
    let (_running, handle) = run(&fake, &["c"]);
    handle.set_bundle(file("ours"));
    until(|| handle.statuses()[0].failures(ReconcileFailure::Update) == 1).await;
    let status = &handle.statuses()[0];
    assert_eq!(status.state, ReconcileState::Failing);
    assert_eq!(
        status.error.as_deref(),
        Some(
            "cannot patch mutatingwebhookconfigurations.admissionregistration.k8s.io c: \
             the fake says 403 (403)"
        )
    );
    until(|| handle.is_in_sync()).await;
    let status = &handle.statuses()[0];
    assert_eq!(
        (status.attempts, status.retries, &status.error),
        (6, 5, &None)
    );
    assert_eq!(status.failures(ReconcileFailure::Update), 5);
    assert_eq!(bundle(&fake, "c"), "ours");
}

#[tokio::test]
async fn a_configuration_that_does_not_exist_is_waited_for() {
    let fake = Fake::start().await;
    fake.put(configuration("there", ""));
    let (_running, handle) = run(&fake, &["there", "missing"]);
    handle.set_bundle(file("ours"));
    until(|| handle.statuses()[1].state == ReconcileState::Missing).await;
    until(|| bundle(&fake, "there") == "ours").await;
    assert!(!handle.is_in_sync());
    assert_eq!(
        handle.statuses()[1].failures(ReconcileFailure::ConfigNotFound),
        1
    );
    fake.put(configuration("missing", ""));
    until(|| handle.is_in_sync()).await;
    assert_eq!(bundle(&fake, "missing"), "ours");
    // Away, and back again.
    fake.delete("missing");
    until(|| handle.statuses()[1].state == ReconcileState::Missing).await;
    assert!(handle.statuses()[1].entries.is_empty());
    fake.put(configuration("missing", ""));
    until(|| handle.is_in_sync()).await;
    assert_eq!(
        handle.statuses()[1].failures(ReconcileFailure::ConfigNotFound),
        2
    );
    assert_eq!(fake.count("get"), 0);
}

#[tokio::test]
async fn a_configuration_without_our_entry_is_tried_when_it_changes() {
    let fake = Fake::start().await;
    let without = json!({"metadata": {"name": "c"}, "webhooks": [
        {"name": "other.example.com", "clientConfig": {}}]});
    fake.put(without.clone());
    let (_running, handle) = run(&fake, &["c"]);
    handle.set_bundle(file("ours"));
    until(|| handle.statuses()[0].state == ReconcileState::NoEntry).await;
    fake.put(without);
    quiet(&fake).await;
    let status = &handle.statuses()[0];
    assert_eq!(status.failures(ReconcileFailure::EntryNotFound), 1);
    let error = status.error.clone().unwrap();
    assert!(
        error.starts_with("c has no entry named sidecar-injector.istio.io"),
        "{error}"
    );
    fake.put(configuration("c", ""));
    until(|| handle.is_in_sync()).await;
}

#[tokio::test]
async fn a_server_that_is_away_changes_nothing_that_is_known() {
    let fake = Fake::start().await;
    fake.put(configuration("c", ""));
    let (_running, handle) = run(&fake, &["c"]);
    handle.set_bundle(file("ours"));
    until(|| handle.is_in_sync() && fake.count("watch") == 1).await;
    fake.fail("list", &[Fault::Status(503, 0), Fault::Status(503, 0)]);
    fake.end_watches();
    until(|| handle.statuses()[0].error.is_some()).await;
    assert!(handle.is_in_sync(), "as it was last seen");
    until(|| handle.statuses()[0].error.is_none()).await;
    assert!(handle.is_in_sync());
    assert_eq!(fake.count("patch"), 1);
}

#[tokio::test]
async fn two_reconcilers_do_not_fight_without_pause() {
    let fake = Fake::start().await;
    fake.put(configuration("c", ""));
    let (_one, first) = run(&fake, &["c"]);
    let (_two, second) = run(&fake, &["c"]);
    first.set_bundle(file("first"));
    second.set_bundle(file("second"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    // At the pace of this test the longest wait is a tenth of a second.
    let patches = fake.count("patch");
    assert!(patches < 60, "{patches}");
    until(|| fake.count("patch") >= 6).await;
}

#[tokio::test]
async fn replicas_with_certificates_of_their_own_come_to_rest() {
    let ca = || {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(
            rcgen::DnType::CommonName,
            crate::reconcile::ca_bundle::OWN_CA_NAME,
        );
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().pem()
    };
    let fake = Fake::start().await;
    fake.put(configuration("c", ""));
    let replicas: Vec<_> = (0..4).map(|_| (run(&fake, &["c"]), ca())).collect();
    for ((_, handle), pem) in &replicas {
        handle.set_bundle(CaBundle::Own(pem.clone().into_bytes()));
    }
    until(|| replicas.iter().all(|((_, handle), _)| handle.is_in_sync())).await;
    quiet(&fake).await;
    assert_eq!(bundle(&fake, "c").matches("BEGIN CERTIFICATE").count(), 4);
    for ((_, handle), _) in &replicas {
        assert!(handle.is_in_sync());
    }
    // One after the other, however they met.
    assert_eq!(fake.get("c")["metadata"]["resourceVersion"], "15");
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_counted() {
    let fake = Fake::start().await;
    let (_running, handle) = run(&fake, &["c", "d"]);
    handle.cannot_load();
    for status in handle.statuses() {
        assert_eq!(status.failures(ReconcileFailure::LoadCaBundle), 1);
    }
}
