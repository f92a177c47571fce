//! The kinds that an API server has: its own differ by its version, and others come and go.

use std::collections::BTreeSet;

use api::backoff::Backoff;
use api::log_repeats::LogRepeatLimiter;
use kube::core::Request;
use kube::core::params::ListParams;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::connect::{Cluster, REQUEST};
use super::failure::{Action, Failure};
use super::watcher::{ServerRecovery, WatchTiming};
use crate::kind::Resource;

#[derive(Deserialize)]
struct ApiResourceList {
    #[serde(default)]
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
struct ApiResource {
    name: String,
}

impl Cluster {
    /// Returns the plural names of the kinds in a version of a group; none if the server does not have it.
    ///
    /// # Errors
    /// The request failed.
    pub(crate) async fn serves(
        &self,
        group: &str,
        version: &str,
    ) -> Result<BTreeSet<String>, Failure> {
        let path = format!("/apis/{group}/{version}");
        let action = Action {
            verb: "get",
            resource: path.clone(),
            name: None,
        };
        let request = http::Request::get(path)
            .body(Vec::new())
            .map_err(kube::core::request::Error::BuildRequest);
        match self
            .exchange(&action, REQUEST)
            .json::<ApiResourceList>(request)
            .await
        {
            Ok(list) => Ok(list.resources.into_iter().map(|one| one.name).collect()),
            Err(failure) if failure.code() == Some(404) => Ok(BTreeSet::new()),
            Err(failure) => Err(failure),
        }
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
