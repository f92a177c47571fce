//! The one place where sources are started, by what the flags ask for.

mod consul;
mod credentials;
mod debug_view;
mod files;
mod ingresses;
mod kubernetes;
mod mcp;
mod memory;
mod own_rules;

use std::sync::{Arc, Mutex, PoisonError};

use api::model::{ClusterId, Registry};
use sources::aggregate::Registries;
use sources::catalogue::ConfigObject;
use sources::contribution::SourceId;
use sources::directory::CoreOrigin;
use sources::kubernetes::{Access, Cluster, ClusterUpdate, Names};
use sources::memory::Memory;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::warn;

use super::hub::Hub;
use super::options::DiscoveryOptions;
use crate::cli::DiscoveryFlags;
use crate::exit::Failure;
use crate::shared::{RuleChannel, Shared};

use debug_view::DebugView;
pub(super) use mcp::McpSources;
use memory::Put;

/// Configuration as it was written, by source.
pub(super) type ConfigObjects = Arc<Mutex<Vec<Arc<ConfigObject>>>>;

/// The started sources, as far as pages and writers ask for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// `None`: that registry is not on.
    memory: Option<Arc<Mutex<Memory>>>,
    directory: ConfigObjects,
    /// The last state of the local API server, with that cluster's name; `None`: that registry is not on.
    cluster: Option<(ClusterId, watch::Receiver<ClusterUpdate>)>,
    /// Rules are read of it, here or by another role.
    of_api_server: bool,
    /// MCP sources, whose rules replace those of a directory and of clusters.
    mcp_sources: Option<Arc<McpSources>>,
}

/// Names as a source of this cluster makes them.
pub(super) fn names(hub: &Hub, cluster: ClusterId) -> Names {
    let DiscoveryOptions { domain, .. } = &hub.options;
    Names {
        cluster,
        domain: Arc::clone(domain),
        trust_domain: hub.trust.domain(),
    }
}

/// Returns the objects of a cluster as they are written. They are made when a client asks: each change of a pod would make all
/// anew.
fn written_in(
    (cluster, updates): &(ClusterId, watch::Receiver<ClusterUpdate>),
) -> impl Iterator<Item = Arc<ConfigObject>> + use<> {
    // The sender of updates waits for a borrowed one. A copy shares all objects.
    let update = updates.borrow().clone();
    update.config_objects(cluster).into_iter().map(Arc::new)
}

/// Returns the access to the API server; `None`: there is none, and services come from elsewhere.
fn cluster_access(flags: &DiscoveryFlags, is_optional: bool) -> Result<Option<Access>, Failure> {
    const WHY: &str = "not in a cluster, and no --kubeconfig";
    let access = kubernetes::access(flags);
    if access.is_none() && !is_optional {
        let message = format!(
            "cannot read services from Kubernetes: {WHY}; --configDir reads them from files"
        );
        return Err(Failure::config(message));
    }
    if access.is_none() {
        warn!("no services are read from Kubernetes: {WHY}");
    }
    Ok(access)
}

impl Sources {
    /// Reads what must be there at the start, and starts all; `loops` has what reads on.
    ///
    /// # Errors
    /// A source that cannot be used, or no source at all.
    pub(super) async fn start(
        shared: &Shared,
        flags: &DiscoveryFlags,
        hub: &Arc<Hub>,
        loops: &mut JoinSet<()>,
    ) -> Result<Self, Failure> {
        let registries = &hub.options.registries;
        let updates = shared.rules().and_then(RuleChannel::take_receiver);
        let is_read_here = updates.is_none();
        let mcp_sources = mcp::start(updates, flags, hub, loops)?;
        let (are_named, counts) = (mcp_sources.are_named(), mcp_sources.own.counts());
        let mut this = Self {
            mcp_sources: Some(Arc::clone(&mcp_sources)),
            ..Self::default()
        };
        // Configuration of MCP sources replaces that of the directory.
        let directory = flags.config_dir.as_ref();
        let directory = directory.filter(|_| !are_named && is_read_here);
        let elsewhere = directory.is_some() || are_named || !is_read_here;
        this.of_api_server = flags.config_dir.is_none();
        // Another role reads rules here, and services only of files.
        let has_services = flags.config_dir.is_some() || are_named;
        for registry in registries {
            match registry {
                Registry::Kubernetes => {
                    let is_optional = has_services || registries.len() > 1;
                    if let Some(access) = cluster_access(flags, is_optional)? {
                        let own = mcp_sources.own.of_clusters();
                        let started =
                            kubernetes::start(shared, &access, flags, hub, !elsewhere, &own, loops);
                        this.cluster = Some(started.await?);
                    }
                }
                Registry::Consul => consul::start(flags, hub, loops)?,
                Registry::External | Registry::Memory => {}
            }
        }
        if flags.config_dir.is_some() && are_named && is_read_here {
            warn!("--configDir is not read: configuration comes from configSources");
        }
        if let Some(directory) = directory {
            let core_origin = match this.cluster {
                Some(_) => CoreOrigin::Cluster,
                None => CoreOrigin::Files,
            };
            let published = Arc::clone(&this.directory);
            files::start(hub, directory, core_origin, published, counts, loops).await?;
        }
        // It is complete at once, so it comes last: what is served begins when nobody is waited for.
        if registries.contains(&Registry::Memory) {
            this.memory = Some(memory::start(hub, loops));
        }
        if !elsewhere && registries.is_empty() {
            return Err(Failure::config(
                "cannot serve anything: no registry, and no --configDir",
            ));
        }
        Ok(this)
    }

    /// The API server that has the objects whose status may be written; `None`: they are in files.
    pub(super) async fn status_cluster(
        &self,
        shared: &Shared,
        flags: &DiscoveryFlags,
    ) -> Option<Cluster> {
        let access = kubernetes::access(flags).filter(|_| self.of_api_server)?;
        shared.cluster(&access).await.ok()
    }

    /// Returns true if the rules of a directory or of clusters count.
    fn own_count(&self) -> bool {
        let mcp_sources = self.mcp_sources.as_ref();
        mcp_sources.is_none_or(|mcp_sources| *mcp_sources.own.counts().borrow())
    }

    /// All configuration that was written, whether or not it is used, with what is known of its source only: that another one
    /// has what it describes.
    pub(super) fn config_objects(&self, hub: &Hub) -> Vec<Arc<ConfigObject>> {
        let mut all = DebugView::new(hub.with_registries(Registries::reports));
        let local = |registry| SourceId {
            registry,
            cluster: hub.options.settings.cluster.clone(),
        };
        // Rows are made and redacted without the locks of their sources, which the event loop takes, too.
        if self.own_count() {
            let directory = self.directory.lock();
            let rows = directory.unwrap_or_else(PoisonError::into_inner).clone();
            all.add(&local(Registry::External), rows);
        }
        if let Some(cluster) = self.cluster.as_ref().filter(|_| self.own_count()) {
            all.add(&local(Registry::Kubernetes), written_in(cluster));
        }
        if let Some(mcp_sources) = &self.mcp_sources {
            mcp_sources.config_objects(&mut all);
        }
        if let Some(memory) = &self.memory {
            let memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
            let rows = memory.config_objects().to_vec();
            drop(memory);
            all.add(&memory::id(), rows);
        }
        all.rows
    }

    /// Configuration from the local API server, read by this role or by the one that reads rules in its place.
    pub(super) fn of_api_server(&self, hub: &Hub) -> Vec<Arc<ConfigObject>> {
        let mut all = DebugView::new(hub.with_registries(Registries::reports));
        if !self.of_api_server {
            return all.rows;
        }
        match (&self.cluster, &self.mcp_sources) {
            (Some(cluster), _) if self.own_count() => {
                let id = SourceId {
                    registry: Registry::Kubernetes,
                    cluster: hub.options.settings.cluster.clone(),
                };
                all.add(&id, written_in(cluster));
            }
            (_, Some(mcp_sources)) if !mcp_sources.are_named() => {
                mcp_sources.config_objects(&mut all);
            }
            _ => {}
        }
        all.rows
    }

    /// The MCP sources, if there is any.
    pub(super) fn mcp_sources(&self) -> Option<&Arc<McpSources>> {
        self.mcp_sources
            .as_ref()
            .filter(|mcp_sources| mcp_sources.are_any())
    }

    /// The MCP sources, which are to follow the mesh configuration, even if none is named yet.
    pub(super) fn all_mcp_sources(&self) -> Option<Arc<McpSources>> {
        self.mcp_sources.clone()
    }

    /// The objects in memory, to read or replace; `None` without `--registries Mock`.
    pub(super) fn put(&self, hub: &Arc<Hub>) -> Option<Put> {
        let memory = self.memory.clone()?;
        let hub = Arc::clone(hub);
        Some(Put { hub, memory })
    }
}
