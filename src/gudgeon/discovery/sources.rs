//! The one place where sources are started, by what the flags ask for.

mod consul;
mod files;
mod kubernetes;
mod memory;

use std::sync::{Arc, Mutex, PoisonError};

use api::model::{ClusterId, Registry};
use cluster::registry::kubernetes::Names;
use cluster::registry::{Memory, Standing, Written};

use super::hub::Hub;
use super::options::Options;
use crate::cli::DiscoveryFlags;
use crate::exit::Failure;

pub(super) use memory::Put;

/// Configuration as it was written, by source.
pub(super) type Shelf = Arc<Mutex<Vec<Arc<Written>>>>;

/// All of them, as far as others ask.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// `None`: that registry is not on.
    memory: Option<Arc<Mutex<Memory>>>,
    directory: Shelf,
    cluster: Shelf,
}

/// Names as a source of this cluster makes them.
pub(super) fn names(hub: &Hub, cluster: ClusterId) -> Names {
    let Options { domain, .. } = &hub.options;
    Names {
        cluster,
        domain: Arc::clone(domain),
        trust_domain: hub.trust_domain(),
    }
}

impl Sources {
    /// Reads what must be there at the start, and starts all.
    ///
    /// # Errors
    /// What a source lacks.
    pub(super) async fn start(flags: &DiscoveryFlags, hub: &Arc<Hub>) -> Result<Self, Failure> {
        let registries = &hub.options.registries;
        let mut this = Self::default();
        if registries.contains(&Registry::Memory) {
            this.memory = Some(memory::start(hub));
        }
        for registry in registries {
            match registry {
                Registry::Kubernetes => {
                    kubernetes::start(flags, hub, Arc::clone(&this.cluster)).await?;
                }
                Registry::Consul => consul::start(flags, hub)?,
                Registry::External | Registry::Memory => {}
            }
        }
        if let Some(directory) = &flags.config_dir {
            let kubernetes = !registries.contains(&Registry::Kubernetes);
            let shelf = Arc::clone(&this.directory);
            files::start(hub, directory, kubernetes, shelf)?;
        }
        if flags.config_dir.is_none() && registries.is_empty() {
            return Err(Failure::config(
                "cannot serve anything: no registry, and no --configDir",
            ));
        }
        Ok(this)
    }

    /// All configuration that was written, whether or not it is used.
    pub(super) fn written(&self) -> Vec<Arc<Written>> {
        let mut all = Vec::new();
        for shelf in [&self.directory, &self.cluster] {
            let shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(shelf.iter().cloned());
        }
        if let Some(memory) = &self.memory {
            let memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(memory.written().iter().cloned());
        }
        all
    }

    /// What requests put into memory.
    pub(super) fn memory(&self) -> Option<&Arc<Mutex<Memory>>> {
        self.memory.as_ref()
    }
}

/// A source that was read.
pub(super) const SYNCED: Standing = Standing::Synced;
