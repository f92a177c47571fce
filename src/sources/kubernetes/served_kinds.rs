//! The kinds that an API server has: its own differ by its version, and others come and go.

mod answer_cell;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::backoff::Backoff;
use api::log_repeats::LogRepeatLimiter;
use kube::core::Request;
use kube::core::params::ListParams;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::connect::{Cluster, REQUEST};
use super::failure::{Action, Failure};
use super::watcher::{ServerRecovery, WatchTiming};
use crate::kind::Resource;
use answer_cell::AnswerCell;
pub(crate) use answer_cell::MaxAge;

#[derive(Deserialize)]
struct ApiResourceList {
    #[serde(default)]
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
struct ApiResource {
    name: String,
}

#[derive(Deserialize)]
struct ApiGroupList {
    #[serde(default)]
    groups: Vec<ApiGroup>,
}

#[derive(Deserialize)]
struct ApiGroup {
    #[serde(default)]
    versions: Vec<ApiGroupVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiGroupVersion {
    group_version: String,
}

type GroupVersion = (&'static str, &'static str);

/// The plural names of the kinds in one version of a group.
type KindsCell = Arc<AnswerCell<BTreeSet<String>>>;

/// Versions of groups, such as `networking.istio.io/v1`; `None`: the account may not read them.
type GroupVersions = Option<BTreeSet<String>>;

/// The kinds of a server, with a cache shared by all look-ups at about the same time.
#[derive(Clone, Debug)]
pub(crate) struct ServedKinds {
    cluster: Cluster,
    /// The list of groups spares most further requests: a server lacks most groups.
    groups: Arc<AnswerCell<GroupVersions>>,
    answers: Arc<Mutex<BTreeMap<GroupVersion, KindsCell>>>,
}

impl ServedKinds {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            groups: Arc::default(),
            answers: Arc::default(),
        }
    }

    /// Returns the newest version in which the server has the kind, by answers that are at most so old. `versions`: the oldest
    /// first.
    ///
    /// # Errors
    /// The request failed.
    pub(crate) async fn newest(
        &self,
        group: &'static str,
        versions: &[&'static str],
        plural: &str,
        max: MaxAge,
    ) -> Result<Option<&'static str>, Failure> {
        for &version in versions.iter().rev() {
            if self.has((group, version), plural, max).await? {
                return Ok(Some(version));
            }
        }
        Ok(None)
    }

    /// Returns the time for which look-ups by answers of that age ask for no groups.
    pub(crate) async fn remaining(&self, max: MaxAge) -> Duration {
        self.groups.remaining(max).await
    }

    async fn has(
        &self,
        (group, version): GroupVersion,
        plural: &str,
        max: MaxAge,
    ) -> Result<bool, Failure> {
        let has_version = |served: &GroupVersions| {
            let version = format!("{group}/{version}");
            served.as_ref().map(|served| served.contains(&version))
        };
        let groups = self.cluster.group_versions();
        // `None`: the version's own answer is the only one that tells of its group.
        if self.groups.read(max, groups, has_version).await? == Some(false) {
            return Ok(false);
        }
        let cell = {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(answers.entry((group, version)).or_default())
        };
        let kinds = self.cluster.serves(group, version);
        cell.read(max, kinds, |plurals| plurals.contains(plural))
            .await
    }
}

impl Cluster {
    /// Returns the versions of all groups; `None` if the account may not read them.
    ///
    /// # Errors
    /// The request failed.
    async fn group_versions(&self) -> Result<GroupVersions, Failure> {
        let read = self.discover::<ApiGroupList>("/apis".to_owned()).await;
        match read {
            Ok(list) => {
                let versions = list.groups.into_iter().flat_map(|group| group.versions);
                Ok(Some(
                    versions.map(|version| version.group_version).collect(),
                ))
            }
            Err(failure) if matches!(failure.code(), Some(403 | 404)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the plural names of the kinds in a version of a group; none if the server does not have it.
    ///
    /// # Errors
    /// The request failed.
    async fn serves(&self, group: &str, version: &str) -> Result<BTreeSet<String>, Failure> {
        let path = format!("/apis/{group}/{version}");
        match self.discover::<ApiResourceList>(path).await {
            Ok(list) => Ok(list.resources.into_iter().map(|one| one.name).collect()),
            Err(failure) if failure.code() == Some(404) => Ok(BTreeSet::new()),
            Err(failure) => Err(failure),
        }
    }

    async fn discover<T: DeserializeOwned + Send + 'static>(
        &self,
        path: String,
    ) -> Result<T, Failure> {
        let action = Action {
            verb: "get",
            resource: path.clone(),
            name: None,
        };
        let request = http::Request::get(path)
            .body(Vec::new())
            .map_err(kube::core::request::Error::BuildRequest);
        self.exchange(&action, REQUEST).json::<T>(request).await
    }

    /// Returns true if the server has kinds in a version of a group.
    ///
    /// # Errors
    /// The request failed.
    pub async fn has_group(&self, group: &str, version: &str) -> Result<bool, Failure> {
        Ok(!self.serves(group, version).await?.is_empty())
    }

    /// Returns true if the server has the kind. Retries until the server answers.
    pub(crate) async fn has(
        &self,
        resource: Resource,
        pace: WatchTiming,
        recovery: &ServerRecovery,
    ) -> bool {
        let mut pauses = recovery.pauses();
        let mut backoff = Backoff::new(pace.bounds());
        let mut repeats = LogRepeatLimiter::default();
        loop {
            pauses.begin();
            match self.serves(resource.group, resource.version).await {
                Ok(names) => return names.contains(resource.name),
                Err(failure) => {
                    failure.warn(&mut repeats);
                    let pause = failure.wait(&mut backoff, fastrand::f64());
                    pauses.after(&failure, pause).await;
                }
            }
        }
    }

    /// Returns true if the account may list the kind in all namespaces. Retries until the server answers.
    pub(crate) async fn may_list(
        &self,
        resource: Resource,
        pace: WatchTiming,
        recovery: &ServerRecovery,
    ) -> bool {
        let mut pauses = recovery.pauses();
        let mut backoff = Backoff::new(pace.bounds());
        let mut repeats = LogRepeatLimiter::default();
        let action = Action {
            verb: "list",
            resource: resource.to_string(),
            name: None,
        };
        let params = ListParams {
            limit: Some(1),
            ..ListParams::default()
        };
        loop {
            pauses.begin();
            let request = Request::new(resource.path(None)).list(&params);
            let asked = self.exchange(&action, pace.request);
            match asked.json::<IgnoredAny>(request).await {
                Ok(IgnoredAny) => return true,
                Err(failure) if matches!(failure.code(), Some(403 | 404)) => return false,
                Err(failure) => {
                    failure.warn(&mut repeats);
                    let pause = failure.wait(&mut backoff, fastrand::f64());
                    pauses.after(&failure, pause).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep, timeout};

    use super::*;
    use crate::kubernetes::fake::{Fake, Fault};

    const NETWORKING: &str = "networking.istio.io";
    const SECURITY: &str = "security.istio.io";
    const VERSIONS: [&str; 2] = ["v1beta1", "v1"];
    const LONG: MaxAge = MaxAge::Fixed(Duration::from_secs(3600));

    async fn fake() -> (Fake, ServedKinds) {
        let fake = Fake::start().await;
        fake.set_api_group("/apis/networking.istio.io/v1", &["gateways"]);
        fake.set_api_group(
            "/apis/networking.istio.io/v1beta1",
            &["gateways", "sidecars"],
        );
        fake.set_api_group("/apis/security.istio.io/v1", &["peerauthentications"]);
        let served = ServedKinds::new(fake.cluster());
        (fake, served)
    }

    #[tokio::test]
    async fn the_newest_version_is_found_by_one_request_of_each() {
        let (fake, served) = fake().await;
        for (plural, version) in [
            ("gateways", Some("v1")),
            ("sidecars", Some("v1beta1")),
            ("nothing", None),
        ] {
            let found = served.newest(NETWORKING, &VERSIONS, plural, LONG).await;
            assert_eq!(found, Ok(version), "{plural}");
        }
        // The groups, and both versions.
        assert_eq!(fake.count("get"), 3);
        let found = served.newest(
            NETWORKING,
            &VERSIONS,
            "gateways",
            MaxAge::Fixed(Duration::ZERO),
        );
        assert_eq!(found.await, Ok(Some("v1")));
        assert_eq!(fake.count("get"), 5);
    }

    /// Every eight seconds discovery asked for each version of each group that its server lacks.
    #[tokio::test]
    async fn one_request_tells_of_all_groups_that_are_not_there() {
        let (fake, served) = fake().await;
        for group in ["rbac.istio.io", "config.istio.io", "telemetry.istio.io"] {
            let found = served.newest(group, &VERSIONS, "gateways", LONG).await;
            assert_eq!(found, Ok(None), "{group}");
        }
        assert_eq!(fake.paths(), ["/apis"]);
    }

    #[tokio::test]
    async fn versions_are_asked_for_where_the_groups_may_not_be_read() {
        for refused in [403, 404] {
            let (fake, served) = fake().await;
            fake.fail("get", &[Fault::Status(refused, 0)]);
            let found = served.newest(NETWORKING, &VERSIONS, "sidecars", LONG).await;
            assert_eq!(found, Ok(Some("v1beta1")), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_silent_answer_about_one_group_holds_up_no_other() {
        let (fake, served) = fake().await;
        let groups = served.newest("none.example.com", &["v1"], "gateways", LONG);
        assert_eq!(groups.await, Ok(None));
        fake.fail("get", &[Fault::Silence]);
        let first = {
            let served = served.clone();
            tokio::spawn(async move { served.newest(NETWORKING, &["v1"], "gateways", LONG).await })
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while fake.count("get") == 1 {
            assert!(Instant::now() < deadline);
            sleep(Duration::from_millis(5)).await;
        }
        let other = served.newest(SECURITY, &["v1"], "peerauthentications", LONG);
        let found = timeout(Duration::from_secs(10), other).await.unwrap();
        assert_eq!(found, Ok(Some("v1")));
        assert!(!first.is_finished());
        first.abort();
    }

    #[tokio::test]
    async fn a_failure_serves_all_who_waited_for_it_and_nobody_after() {
        let (fake, served) = fake().await;
        fake.fail("get", &[Fault::Status(500, 0)]);
        let look = || served.newest(NETWORKING, &["v1"], "gateways", LONG);
        let (one, two, three) = tokio::join!(look(), look(), look());
        assert!(
            one.is_err() && one == two && two == three,
            "{one:?} {two:?} {three:?}"
        );
        assert_eq!(fake.count("get"), 1);
        assert_eq!(look().await, Ok(Some("v1")));
        assert_eq!(fake.count("get"), 3);
    }
}
