//! What is wrong with an object, in its own status, where those who have written it look. Written only where it is not there
//! already, so that replicas and restarts write nothing.

use api::config::Finding;
use kube::core::Request;
use kube::core::params::{Patch, PatchParams};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;

use super::seen::Seen;
use crate::connect::{Cluster, REQUEST};
use crate::failure::{Action, Failure};
use crate::kind::{Key, Resource};
use crate::repeats::Repeats;

/// What waits to be written. What is beyond is left out until its object is another.
pub(super) const WAITING: usize = 1000;
/// The object was written meanwhile, and says the same.
const TRIES: usize = 5;

/// Something to be written.
#[derive(Debug)]
pub(super) struct Note {
    resource: Resource,
    key: Key,
    /// What it is said of.
    content: (usize, u64),
    version: Box<str>,
    /// `null`: nothing is wrong any more.
    messages: Json,
}

impl Note {
    /// `None`: it is there already.
    pub(super) fn new(
        resource: Resource,
        key: &Key,
        seen: &Seen,
        findings: &[Finding],
    ) -> Option<Self> {
        let errors = findings.iter().filter(|finding| finding.is_error());
        let messages: Vec<_> = errors
            .map(|found| json!({"level": "Error", "path": found.path, "message": found.message}))
            .collect();
        let messages = match messages.is_empty() {
            true => Json::Null,
            false => Json::Array(messages),
        };
        let there = seen.messages.as_ref();
        let there =
            there.map(|there| serde_json::from_str(there.get()).unwrap_or(Json::Bool(true)));
        (there.unwrap_or(Json::Null) != messages).then(|| Self {
            resource,
            key: key.clone(),
            content: seen.content,
            version: seen.version.clone(),
            messages,
        })
    }

    fn action(&self, verb: &'static str) -> Action {
        Action {
            verb,
            resource: format!("{}/status", self.resource),
            name: Some(self.key.name.to_string()),
        }
    }

    fn request(&self) -> Request {
        let namespace = Some(&*self.key.namespace).filter(|namespace| !namespace.is_empty());
        Request::new(self.resource.path(namespace))
    }

    async fn write(mut self, cluster: &Cluster) -> Result<(), Failure> {
        for _ in 0..TRIES {
            let patch = json!({
                "metadata": {"resourceVersion": self.version},
                "status": {"validationMessages": self.messages},
            });
            let request = self.request().patch_subresource(
                "status",
                &self.key.name,
                &PatchParams::default(),
                &Patch::Merge(patch),
            );
            let action = self.action("patch");
            let answer = cluster
                .exchange(&action, REQUEST)
                .json::<Json>(request)
                .await;
            match answer {
                Ok(_) => return Ok(()),
                Err(failure) if failure.code() == Some(409) => {}
                Err(failure) => return Err(failure),
            }
            let request = self
                .request()
                .get(&self.key.name, &kube::core::params::GetParams::default());
            let action = self.action("get");
            let now: Seen = cluster.exchange(&action, REQUEST).json(request).await?;
            // Of another object something else is said.
            if now.content != self.content {
                return Ok(());
            }
            self.version = now.version;
        }
        Ok(())
    }
}

/// Writes one after the other, for as long as there is somebody who sends them.
pub(super) async fn run(cluster: Cluster, mut notes: mpsc::Receiver<Note>) {
    let mut repeats = Repeats::default();
    while let Some(note) = notes.recv().await {
        match note.write(&cluster).await {
            Ok(()) => drop(repeats.forget()),
            // It is gone, or has no status of its own.
            Err(failure) if failure.code() == Some(404) => tracing::debug!("{failure}"),
            Err(failure) => {
                if let Some(count) = repeats.worth_saying(&failure.to_string()) {
                    tracing::warn!("{failure}{}", crate::repeats::times(count));
                }
            }
        }
    }
}
