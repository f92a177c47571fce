//! One client of each cluster: roles and tasks that name the same cluster share its connections and its credentials.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sources::kubernetes::{Access, CannotConnect, Cluster};
use tracing::info;

/// Clients by the way that they connect. A clone shares them.
#[derive(Clone, Default)]
pub(crate) struct Clusters(Arc<Mutex<Vec<(Access, Cluster)>>>);

impl fmt::Debug for Clusters {
    /// Omits the clients, which have credentials.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Clusters({})", self.all().len())
    }
}

impl Clusters {
    fn all(&self) -> MutexGuard<'_, Vec<(Access, Cluster)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, access: &Access) -> Option<Cluster> {
        let all = self.all();
        let known = all.iter().find(|(known, _)| known == access);
        known.map(|(_, cluster)| cluster.clone())
    }

    /// Returns the client of a cluster; the first call makes it.
    ///
    /// # Errors
    /// No client can be built.
    pub(crate) async fn open(&self, access: &Access) -> Result<Cluster, CannotConnect> {
        if let Some(cluster) = self.known(access) {
            return Ok(cluster);
        }
        let cluster = Cluster::open(access).await?;
        // Another task may have opened it meanwhile: its client is the one that all use.
        if let Some(first) = self.known(access) {
            return Ok(first);
        }
        info!("using the API server {}", cluster.address());
        self.all().push((access.clone(), cluster.clone()));
        Ok(cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each webhook's reconciler used to open a client of its own beside that of its role.
    #[tokio::test]
    async fn a_cluster_has_one_client_however_many_open_it_at_once() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("config");
        let config = "{apiVersion: v1, kind: Config, current-context: a,
            clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}],
            contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {}}]}";
        std::fs::write(&file, config).unwrap();
        let access = Access::Kubeconfig {
            file: Some(file),
            context: None,
        };
        let clusters = Clusters::default();
        let other = clusters.clone();
        let opened = tokio::join!(clusters.open(&access), other.open(&access));
        assert!(opened.0.is_ok() && opened.1.is_ok());
        assert!(other.open(&access).await.is_ok());
        assert_eq!(clusters.all().len(), 1);
        let none = Access::Kubeconfig {
            file: Some(root.path().join("none")),
            context: None,
        };
        assert!(clusters.open(&none).await.is_err());
        assert_eq!(clusters.all().len(), 1);
    }
}
