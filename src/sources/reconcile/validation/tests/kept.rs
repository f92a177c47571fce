//! A reconciler beside the fake API server.

use std::time::Duration;

use tokio::task::JoinHandle;

use super::*;
use crate::kubernetes::WatchTiming;
use crate::kubernetes::fake::{Fake, Fault};
use crate::reconcile::reconcile_status::ReconcileState;
use crate::reconcile::webhook_reconciler::{ReconcilerHandle, WebhookReconciler};

const KIND: &str = "validatingwebhookconfigurations";

const PACE: WatchTiming = WatchTiming {
    first: Duration::from_millis(5),
    max: Duration::from_millis(100),
    request: Duration::from_millis(300),
    watch: Duration::from_secs(20),
    grace: Duration::from_secs(1),
    steady: Duration::from_millis(100),
};

struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn run(fake: &Fake, validation: Validation) -> (Running, ReconcilerHandle) {
    let (reconciler, handle) = WebhookReconciler::of_validation(validation, PACE);
    handle.set_bundle(CaBundle::File(PEM.into()));
    (
        Running(tokio::spawn(reconciler.run(fake.cluster()))),
        handle,
    )
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not come to that within 10 s: {what}");
}

fn entry_of(fake: &Fake) -> Option<Value> {
    let object = fake.find_in(KIND, "istio-galley")?;
    Some(object["webhooks"][0].clone())
}

fn policy(fake: &Fake) -> String {
    let entry = entry_of(fake).unwrap_or_default();
    entry["failurePolicy"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn writes(fake: &Fake) -> usize {
    fake.count("create") + fake.count("patch") + fake.count("delete")
}

/// A Service with an endpoint that is ready, and the kind that is refused.
fn ready(fake: &Fake) {
    fake.set_api_group("/apis/discovery.k8s.io/v1", &["endpointslices"]);
    fake.set_api_group("/apis/networking.istio.io/v1", &["gateways", "sidecars"]);
    fake.put_in(
        "endpointslices",
        json!({"metadata": {"name": "istio-galley-x", "namespace": "istio-system"},
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}]}),
    );
}

#[tokio::test]
async fn made_with_ignore_and_fails_once_it_was_seen_to_refuse() {
    let fake = Fake::start().await;
    fake.set_api_group("/apis/discovery.k8s.io/v1", &["endpointslices"]);
    fake.put_in(
        "clusterroles",
        json!({"metadata": {"name": "istio-galley-istio-system", "uid": "u-1"}}),
    );
    let (_running, handle) = run(&fake, built_in());
    until("it is there", || handle.is_in_sync()).await;
    assert_eq!(policy(&fake), "Ignore");
    let object = fake.find_in(KIND, "istio-galley").unwrap();
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "u-1");
    let waits = || handle.statuses()[0].waits.clone().unwrap_or_default();
    until("it says why", || waits().contains("no endpoint")).await;
    ready(&fake);
    until("it says what comes next", || {
        waits() == "the webhook did not refuse an invalid Gateway"
    })
    .await;
    assert_eq!(policy(&fake), "Ignore");
    fake.denies();
    until("it fails", || policy(&fake) == "Fail").await;
    until("it is known", || {
        handle.statuses()[0].policy == Some("Fail")
    })
    .await;
    assert_eq!(handle.statuses()[0].waits, None);
    // Dry runs created nothing.
    assert_eq!(
        fake.find_in("gateways", "istio-system/gudgeon-refuse-me"),
        None
    );
    let queries = fake.paths();
    assert!(
        queries
            .contains(&"/apis/networking.istio.io/v1/namespaces/istio-system/gateways".to_owned())
    );
}

/// Istiod's webhook, or another galley's, refuses the probe as well: that does not prove that this one can be reached.
#[tokio::test]
async fn the_refusal_of_another_webhook_does_not_make_it_fail() {
    let fake = Fake::start().await;
    ready(&fake);
    fake.another_denies();
    let (_running, handle) = run(&fake, built_in());
    let waits = || handle.statuses()[0].waits.clone().unwrap_or_default();
    until("it says who refused", || {
        waits().contains(
            "another webhook refused the invalid Gateway, not istio-system/istio-galley: ",
        )
    })
    .await;
    assert_eq!(policy(&fake), "Ignore");
    fake.denies();
    until("it fails", || policy(&fake) == "Fail").await;
}

#[tokio::test]
async fn nothing_is_probed_before_the_configuration_leads_here() {
    let fake = Fake::start().await;
    ready(&fake);
    fake.denies();
    // Without a bundle nothing is written.
    let (reconciler, handle) = WebhookReconciler::of_validation(built_in(), PACE);
    let _running = Running(tokio::spawn(reconciler.run(fake.cluster())));
    until("it says why", || {
        let waits = handle.statuses()[0].waits.clone().unwrap_or_default();
        waits == "istio-galley does not lead to this webhook yet"
    })
    .await;
    assert_eq!(fake.count("create"), 0);
    handle.set_bundle(CaBundle::File(PEM.into()));
    until("it fails", || policy(&fake) == "Fail").await;
}

#[tokio::test]
async fn endpoints_do_where_there_are_no_slices_and_no_gateways_are_none_to_refuse() {
    let fake = Fake::start().await;
    let (_running, handle) = run(&fake, built_in());
    until("it is there", || handle.is_in_sync()).await;
    fake.put_in(
        "endpoints",
        json!({"metadata": {"name": "istio-galley", "namespace": "istio-system"}, "subsets": [{"notReadyAddresses": [{"ip": "10.0.0.1"}]}]}),
    );
    let before = fake.count("get istio-system/istio-galley");
    until("it was looked at", || {
        fake.count("get istio-system/istio-galley") > before + 1
    })
    .await;
    assert_eq!(policy(&fake), "Ignore");
    // A server without slices is asked for them once.
    assert_eq!(fake.request_count("endpointslices"), 1);
    fake.put_in(
        "endpoints",
        json!({"metadata": {"name": "istio-galley", "namespace": "istio-system"}, "subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]}),
    );
    until("it fails", || policy(&fake) == "Fail").await;
}

/// Roles of old charts have a right to Endpoints, and not to EndpointSlices.
#[tokio::test]
async fn endpoints_do_where_slices_are_forbidden() {
    let fake = Fake::start().await;
    ready(&fake);
    fake.denies();
    fake.forbid(&["endpointslices"]);
    fake.put_in(
        "endpoints",
        json!({"metadata": {"name": "istio-galley", "namespace": "istio-system"}, "subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]}),
    );
    let (_running, _handle) = run(&fake, built_in());
    until("it fails", || policy(&fake) == "Fail").await;
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_never_refuses_is_reported_after_a_minute() {
    let statuses =
        crate::reconcile::reconcile_status::ReconcileStatuses::new(&["istio-galley".to_owned()]);
    let fake = Fake::start().await;
    let refusal = WebhookProbe {
        cluster: fake.cluster(),
        service: service(),
        within: Duration::from_secs(20),
        configuration: "istio-galley".to_owned(),
        statuses: statuses.clone(),
    };
    let (seen, _) = tokio::sync::watch::channel(false);
    let _running = Running(tokio::spawn(refusal.run(seen)));
    let begin = tokio::time::Instant::now();
    let is_overdue = || statuses.all()[0].overdue;
    while !is_overdue() && begin.elapsed() < Duration::from_secs(120) {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(is_overdue());
    assert!(begin.elapsed() >= Duration::from_secs(60));
    assert!(statuses.all()[0].waits.is_some());
    // Another replica has seen it.
    statuses.of("istio-galley", |status| status.policy = Some("Fail"));
    while is_overdue() && begin.elapsed() < Duration::from_secs(180) {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(!is_overdue());
}

#[tokio::test]
async fn changed_or_deleted_configurations_are_restored() {
    let fake = Fake::start().await;
    ready(&fake);
    fake.denies();
    let (_running, handle) = run(&fake, built_in());
    until("it fails", || {
        policy(&fake) == "Fail" && handle.is_in_sync()
    })
    .await;
    let good = entry_of(&fake);
    for (field, value) in [("caBundle", Value::Null), ("caBundle", base64("other"))] {
        let mut object = fake.find_in(KIND, "istio-galley").unwrap();
        object["webhooks"][0]["clientConfig"][field] = value;
        fake.put_in(KIND, object);
        until("it is mended", || entry_of(&fake) == good).await;
    }
    let mut object = fake.find_in(KIND, "istio-galley").unwrap();
    object["webhooks"][0]["failurePolicy"] = json!("Ignore");
    fake.put_in(KIND, object);
    until("it is mended", || entry_of(&fake) == good).await;
    fake.delete_in(KIND, "istio-galley");
    until("it is back", || policy(&fake) == "Fail").await;
    // A new CA.
    handle.set_bundle(CaBundle::File(b"new".to_vec()));
    let bundle = || entry_of(&fake).unwrap_or_default()["clientConfig"]["caBundle"].clone();
    until("the new one is there", || bundle() == base64("new")).await;
}

#[tokio::test]
async fn replicas_agree_and_rest() {
    let fake = Fake::start().await;
    let replicas: Vec<_> = (0..3).map(|_| run(&fake, built_in())).collect();
    until("all see it", || {
        replicas.iter().all(|(_, handle)| handle.is_in_sync())
    })
    .await;
    ready(&fake);
    fake.denies();
    until("it fails", || {
        replicas.iter().all(|(_, handle)| {
            let status = handle.statuses().remove(0);
            status.policy == Some("Fail") && status.waits.is_none()
        })
    })
    .await;
    let before = (writes(&fake), fake.find_in(KIND, "istio-galley"));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((writes(&fake), fake.find_in(KIND, "istio-galley")), before);
}

#[tokio::test]
async fn one_that_is_refused_goes_on_and_counts() {
    let fake = Fake::start().await;
    fake.fail(
        "create",
        &[Fault::Status(403, 0), Fault::Status(500, 0), Fault::Silence],
    );
    let (_running, handle) = run(&fake, built_in());
    until("it is there", || handle.is_in_sync()).await;
    let status = handle.statuses().remove(0);
    let refusals: Vec<_> = status.refusals.into_iter().collect();
    assert_eq!(
        refusals,
        [("Forbidden", 1), ("InternalError", 1), ("Unreachable", 1)]
    );
    assert_eq!(status.written, 1);
    // 403 on every request is logged, and not fatal.
    let fake = Fake::start().await;
    fake.forbid(&[KIND]);
    let (running, handle) = run(&fake, built_in());
    until("it is said", || {
        let error = handle.statuses()[0].error.clone().unwrap_or_default();
        error.contains("no right to the verb \"list\"")
    })
    .await;
    assert_eq!(handle.statuses()[0].refusals.get("Forbidden"), Some(&1));
    fake.forbid(&[]);
    until("it is there", || handle.is_in_sync()).await;
    assert!(!running.0.is_finished());
}

#[tokio::test]
async fn a_server_that_is_away_is_waited_for() {
    let fake = Fake::start().await;
    fake.away(true);
    let (_running, handle) = run(&fake, built_in());
    until("it is noticed", || handle.statuses()[0].error.is_some()).await;
    fake.away(false);
    until("it is there", || handle.is_in_sync()).await;
    fake.away(true);
    handle.set_bundle(CaBundle::File(b"new".to_vec()));
    until("it fails", || {
        handle.statuses()[0].state == ReconcileState::Failing
    })
    .await;
    fake.away(false);
    until("it is there", || handle.is_in_sync()).await;
}

#[tokio::test]
async fn fields_that_the_server_drops_are_not_sent_for_ever() {
    let fake = Fake::start().await;
    let text = FILE.replace(
        "  rules:",
        "  matchConditions: [{name: a, expression: b}]\n  rules:",
    );
    let wanted = of_file(&text);
    let mut object = wanted.object.clone();
    object["webhooks"][0]
        .as_object_mut()
        .unwrap()
        .remove("matchConditions");
    fake.put_in(KIND, object.clone());
    // The fake responds like an old server, which drops unknown fields.
    object["metadata"]["resourceVersion"] = json!("12");
    let answer: &'static str = Box::leak(object.to_string().into_boxed_str());
    fake.fail("patch", &vec![Fault::Says(answer); 100]);
    let (_running, handle) = run(&fake, wanted);
    until("it is said", || {
        let error = handle.statuses()[0].error.clone().unwrap_or_default();
        error.contains("drops fields of")
    })
    .await;
    let before = fake.count("patch");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(fake.count("patch"), before);
}

#[tokio::test]
async fn unregistered_is_deleted_and_stays_so() {
    let fake = Fake::start().await;
    fake.put_in(KIND, built_in().object);
    let (_running, handle) = run(&fake, built_in().unregistered());
    until("it is gone", || {
        handle.statuses()[0].state == ReconcileState::Gone
    })
    .await;
    assert_eq!(fake.find_in(KIND, "istio-galley"), None);
    fake.put_in(KIND, built_in().object);
    until("it is gone again", || {
        fake.find_in(KIND, "istio-galley").is_none()
    })
    .await;
    assert_eq!(fake.count("create"), 0);
}
