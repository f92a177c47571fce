//! Probes that the webhook works: one of its endpoints is ready, and it refused an invalid object.
//!
//! The probe is an empty Gateway, created by a dry run, so that nothing is stored if it passes. Other webhooks may refuse it,
//! too, which proves nothing of this one: only a refusal that repeats the probe's token counts.

use std::time::Duration;

use api::backoff::{Backoff, Bounds};
use api::log_repeats::LogRepeatLimiter;
use api::text::cut;
use api::times;
use api::well_known::PROBE;
use kube::core::Request;
use kube::core::params::{GetParams, ListParams, PostParams};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::ServiceReference;
use crate::kind::{ENDPOINT_SLICES, Resource};
use crate::kubernetes::{Action, Cause, Cluster, Failure, MaxAge, ServedKinds};
use crate::reconcile::probe_token::ProbeToken;
use crate::reconcile::reconcile_status::ReconcileStatuses;

/// The name of the probe's object, which never exists.
const NAME: &str = "gudgeon-refuse-me";
/// The API server's words for a webhook's refusal.
const DENIED: &str = "denied the request";
/// Bytes of another webhook's message that are shown.
const SHOWN_BYTES: usize = 256;
const GROUP: &str = "networking.istio.io";
/// The oldest first.
const VERSIONS: [&str; 3] = ["v1alpha3", "v1beta1", "v1"];
const GATEWAYS: &str = "gateways";
/// The interval of probes, until a refusal is overdue.
const AGAIN: Duration = Duration::from_secs(1);
/// The time after which a missing refusal is a warning: nothing is enforced yet.
const OVERDUE: Duration = Duration::from_secs(60);
/// The interval from then on. Chosen: a Service that has no endpoint for so long may never get one, and its first is seen in time.
const AGAIN_OVERDUE: Duration = Duration::from_secs(10);
/// Until EndpointSlices are asked for again where the server has none, or the account has no right to them.
const WITHOUT_SLICES: Duration = Duration::from_secs(300);
/// The same after a failure, with jitter: an API server that is back must not wait for a refusal of its own. A server that
/// asks for a longer wait gets it.
const BOUNDS: Bounds = Bounds {
    first: AGAIN,
    max: AGAIN,
};

const ENDPOINTS: Resource = Resource::core("endpoints");

#[derive(Deserialize)]
struct Slices {
    #[serde(default)]
    items: Vec<ReadySlice>,
}

#[derive(Deserialize)]
struct ReadySlice {
    #[serde(default)]
    endpoints: Option<Vec<Endpoint>>,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(default)]
    conditions: Conditions,
}

#[derive(Default, Deserialize)]
struct Conditions {
    #[serde(default)]
    ready: Option<bool>,
}

#[derive(Deserialize)]
struct ReadyEndpoints {
    #[serde(default)]
    subsets: Option<Vec<ReadySubset>>,
}

#[derive(Deserialize)]
struct ReadySubset {
    #[serde(default)]
    addresses: Option<Vec<IgnoredAny>>,
}

/// Probes until a refusal was seen.
#[derive(Clone)]
pub(crate) struct WebhookProbe {
    pub(crate) cluster: Cluster,
    pub(crate) service: ServiceReference,
    /// The deadline of a response.
    pub(crate) within: Duration,
    pub(crate) configuration: String,
    pub(crate) statuses: ReconcileStatuses,
}

/// Returns the interval of probes, for as long as they have been without a refusal.
const fn interval(since: Duration) -> Duration {
    if since.as_secs() < OVERDUE.as_secs() {
        AGAIN
    } else {
        AGAIN_OVERDUE
    }
}

/// The resource that tells of the Service's endpoints.
#[derive(Clone, Copy, Debug, Default)]
struct EndpointsResource {
    /// EndpointSlices were not there, and are not asked for before then.
    without_slices_until: Option<Instant>,
}

impl EndpointsResource {
    fn has_slices(self, now: Instant) -> bool {
        self.without_slices_until.is_none_or(|until| until <= now)
    }

    fn lacks_slices(&mut self, now: Instant) {
        self.without_slices_until = Some(now + WITHOUT_SLICES);
    }
}

/// The outcome of one try.
enum ProbeOutcome {
    Refused,
    /// Nothing is installed that could be refused, so nothing invalid can pass either.
    NoKind,
    /// The condition that is not met yet.
    Waiting(String),
}

impl WebhookProbe {
    /// Sends true once, and ends.
    pub(crate) async fn run(self, refused: watch::Sender<bool>) {
        let mut repeats = LogRepeatLimiter::default();
        let mut backoff = Backoff::new(BOUNDS);
        let begin = Instant::now();
        let token = ProbeToken::random();
        let mut endpoints = EndpointsResource::default();
        let because = loop {
            let mut wait = interval(begin.elapsed());
            let message = match self.outcome(&token, &mut endpoints).await {
                Ok(ProbeOutcome::Refused) => break "the webhook refused an invalid Gateway",
                Ok(ProbeOutcome::NoKind) => {
                    break "no Gateway kind is installed that it could refuse";
                }
                Ok(ProbeOutcome::Waiting(message)) => {
                    backoff.reset();
                    message
                }
                Err(failure) => {
                    wait = wait.max(failure.wait(&mut backoff, fastrand::f64()));
                    let message = failure.to_string();
                    if let Some(count) = repeats.observe(&message) {
                        tracing::warn!("{message}{}: trying again", times(count));
                    }
                    message
                }
            };
            self.note(&message, begin.elapsed() >= OVERDUE);
            tokio::time::sleep(wait).await;
        };
        tracing::info!(
            "{because}: failurePolicy of {} is now Fail",
            self.configuration
        );
        self.statuses.of(&self.configuration, |status| {
            status.waits = None;
            status.overdue = false;
        });
        refused.send_replace(true);
    }

    /// Notes the missing condition; `late`: it should have been met by now.
    fn note(&self, message: &str, late: bool) {
        let mut is_news = false;
        self.statuses.of(&self.configuration, |status| {
            // Another replica may have seen it.
            let overdue = late && status.policy != Some("Fail");
            is_news = overdue && !status.overdue;
            status.overdue = overdue;
            status.waits = Some(message.to_owned());
        });
        if is_news {
            tracing::warn!(
                "failurePolicy of {} is still Ignore: invalid objects pass while the webhook does not respond: {message}",
                self.configuration
            );
        }
    }

    async fn outcome(
        &self,
        token: &ProbeToken,
        endpoints: &mut EndpointsResource,
    ) -> Result<ProbeOutcome, Failure> {
        let mut is_entered = false;
        self.statuses
            .of(&self.configuration, |status| is_entered = status.is_entered);
        if !is_entered {
            return Ok(ProbeOutcome::Waiting(format!(
                "{} does not lead to this webhook yet",
                self.configuration
            )));
        }
        let ServiceReference { namespace, name } = &self.service;
        if !self.is_ready(endpoints).await? {
            return Ok(ProbeOutcome::Waiting(format!(
                "no endpoint of {namespace}/{name} is ready"
            )));
        }
        let served = ServedKinds::new(self.cluster.clone());
        let newest = served.newest(GROUP, &VERSIONS, GATEWAYS, MaxAge::Fixed(Duration::ZERO));
        let Some(version) = newest.await? else {
            return Ok(ProbeOutcome::NoKind);
        };
        let message = self.try_it(version, token).await?;
        Ok(message.map_or(ProbeOutcome::Refused, ProbeOutcome::Waiting))
    }

    async fn is_ready(&self, endpoints: &mut EndpointsResource) -> Result<bool, Failure> {
        if endpoints.has_slices(Instant::now()) {
            match self.has_ready_slice().await {
                // Not served, or not for us: roles of old charts have Endpoints alone.
                Err(failure) if matches!(failure.code(), Some(403 | 404)) => {
                    endpoints.lacks_slices(Instant::now());
                }
                ready => return ready,
            }
        }
        self.has_ready_address().await
    }

    async fn has_ready_slice(&self) -> Result<bool, Failure> {
        let ServiceReference { namespace, name } = &self.service;
        let action = action("list", ENDPOINT_SLICES, None);
        let params = ListParams {
            label_selector: Some(format!("kubernetes.io/service-name={name}")),
            ..ListParams::default()
        };
        let request = Request::new(ENDPOINT_SLICES.path(Some(namespace))).list(&params);
        let asked = self.cluster.exchange(&action, self.within);
        let slices: Slices = asked.json(request).await?;
        let all = slices.items.into_iter().filter_map(|slice| slice.endpoints);
        // An endpoint without a condition is ready.
        Ok(all.flatten().any(|one| one.conditions.ready != Some(false)))
    }

    async fn has_ready_address(&self) -> Result<bool, Failure> {
        let ServiceReference { namespace, name } = &self.service;
        let action = action("get", ENDPOINTS, Some(format!("{namespace}/{name}")));
        let request =
            Request::new(ENDPOINTS.path(Some(namespace))).get(name, &GetParams::default());
        match self
            .cluster
            .exchange(&action, self.within)
            .json::<ReadyEndpoints>(request)
            .await
        {
            Ok(endpoints) => {
                let all = endpoints.subsets.into_iter().flatten();
                let mut addresses = all.filter_map(|subset| subset.addresses);
                Ok(addresses.any(|addresses| !addresses.is_empty()))
            }
            Err(failure) if failure.code() == Some(404) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the reason why this webhook has not refused an invalid object; `None`: it has.
    async fn try_it(
        &self,
        version: &'static str,
        token: &ProbeToken,
    ) -> Result<Option<String>, Failure> {
        let gateways = Resource {
            group: GROUP,
            version,
            name: GATEWAYS,
        };
        let ServiceReference {
            namespace,
            name: service,
        } = &self.service;
        let object = json!({"apiVersion": format!("{GROUP}/{version}"), "kind": "Gateway",
            "metadata": {"name": NAME, "namespace": namespace, "annotations": {PROBE: token.as_str()}}, "spec": {}});
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let action = action("create", gateways, Some(format!("{namespace}/{NAME}")));
        let request = Request::new(gateways.path(Some(namespace)))
            .create(&params, object.to_string().into_bytes());
        match self
            .cluster
            .exchange(&action, self.within)
            .json::<IgnoredAny>(request)
            .await
        {
            Ok(IgnoredAny) => Ok(Some(
                "the webhook did not refuse an invalid Gateway".to_owned(),
            )),
            Err(Failure {
                cause: Cause::Status { message, .. },
                ..
            }) if message.contains(DENIED) => {
                let is_ours = message.contains(&token.repeated_by(namespace, service));
                Ok((!is_ours).then(|| {
                    let message = cut(&message, SHOWN_BYTES);
                    format!("another webhook refused the invalid Gateway, not {namespace}/{service}: {message}")
                }))
            }
            Err(failure) => Err(failure),
        }
    }
}

fn action(verb: &'static str, resource: Resource, name: Option<String>) -> Action {
    Action {
        verb,
        resource: resource.to_string(),
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overdue_refusal_is_probed_for_less_often() {
        for (since, seconds) in [(0, 1), (59, 1), (60, 10), (86_400, 10)] {
            let interval = interval(Duration::from_secs(since));
            assert_eq!(interval, Duration::from_secs(seconds), "{since}");
        }
    }

    #[test]
    fn slices_that_are_not_there_are_asked_for_again_after_a_while() {
        let mut endpoints = EndpointsResource::default();
        let now = Instant::now();
        assert!(endpoints.has_slices(now));
        endpoints.lacks_slices(now);
        let almost = Duration::from_millis(1);
        assert!(!endpoints.has_slices(now + WITHOUT_SLICES - almost));
        assert!(endpoints.has_slices(now + WITHOUT_SLICES));
    }
}
