//! The kinds that an API server has: its own differ by its version, and others come and go.

use std::collections::BTreeSet;

use kube::core::Request;
use kube::core::params::ListParams;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::connect::{Cluster, REQUEST};
use crate::failure::{Action, Failure};
use crate::kind::Resource;
use crate::log_limiter::LogLimiter;
use crate::watcher::Pace;

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    resources: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

impl Cluster {
    /// Names, in the plural, of the kinds that a version of a group has; none where the server does not know it.
    ///
    /// # Errors
    /// It does not say.
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
        match self.exchange(&action, REQUEST).json::<List>(request).await {
            Ok(list) => Ok(list.resources.into_iter().map(|one| one.name).collect()),
            Err(failure) if failure.code() == Some(404) => Ok(BTreeSet::new()),
            Err(failure) => Err(failure),
        }
    }

    /// Whether it has a kind. It is asked until it answers.
    pub(crate) async fn has(&self, resource: Resource, pace: Pace) -> bool {
        let mut backoff = Backoff::new(pace.bounds());
        let mut repeats = LogLimiter::default();
        loop {
            match self.serves(resource.group, resource.version).await {
                Ok(names) => return names.contains(resource.name),
                Err(failure) => {
                    repeats.say(&failure);
                    sleep(backoff.after(&failure, fastrand::f64())).await;
                }
            }
        }
    }

    /// Whether we may list a kind that it has, in all namespaces. It is asked until it answers.
    pub(crate) async fn may_list(&self, resource: Resource, pace: Pace) -> bool {
        let mut backoff = Backoff::new(pace.bounds());
        let mut repeats = LogLimiter::default();
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
            let request = Request::new(resource.path(None)).list(&params);
            let asked = self.exchange(&action, pace.request);
            match asked.json::<IgnoredAny>(request).await {
                Ok(IgnoredAny) => return true,
                Err(failure) if matches!(failure.code(), Some(403 | 404)) => return false,
                Err(failure) => {
                    repeats.say(&failure);
                    sleep(backoff.after(&failure, fastrand::f64())).await;
                }
            }
        }
    }
}
