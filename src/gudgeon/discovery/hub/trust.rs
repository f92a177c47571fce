//! The trust domains of the mesh: its `MeshConfig` names them, or else a flag.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::mesh::MeshConfig;
use tokio::sync::watch;

use crate::discovery::identity::TrustDomains;

#[derive(Debug)]
pub(crate) struct Trust {
    /// The domain of a mesh that names none.
    default: Arc<str>,
    /// The identities of clients are checked.
    is_checked: bool,
    own: watch::Sender<Arc<str>>,
    current: Mutex<CurrentDomains>,
}

#[derive(Debug)]
struct CurrentDomains {
    /// The mesh that names the domains.
    mesh: Arc<MeshConfig>,
    domains: TrustDomains,
}

impl Trust {
    pub(super) fn new(default: &Arc<str>, is_checked: bool, mesh: Arc<MeshConfig>) -> Self {
        let domains = domains(&mesh, default);
        Self {
            default: Arc::clone(default),
            is_checked,
            own: watch::Sender::new(Arc::clone(&domains.own)),
            current: Mutex::new(CurrentDomains { mesh, domains }),
        }
    }

    fn current(&self) -> MutexGuard<'_, CurrentDomains> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the domains of the mesh's current configuration.
    pub(super) fn set(&self, mesh: &Arc<MeshConfig>) {
        let mut current = self.current();
        if Arc::ptr_eq(&current.mesh, mesh) {
            return;
        }
        current.mesh = Arc::clone(mesh);
        current.domains = domains(mesh, &self.default);
        let own = Arc::clone(&current.domains.own);
        drop(current);
        self.own.send_if_modified(|domain| {
            let is_other = *domain != own;
            *domain = own;
            is_other
        });
    }

    /// The mesh's own trust domain.
    pub(crate) fn domain(&self) -> Arc<str> {
        Arc::clone(&self.own.borrow())
    }

    /// The mesh's own trust domain, as it changes.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<str>> {
        self.own.subscribe()
    }

    /// Trust domains whose certificates count, whether or not the identities of clients are checked.
    pub(in crate::discovery) fn domains(&self) -> TrustDomains {
        self.current().domains.clone()
    }

    /// Trust domains whose certificates count; `None` if the identities of clients are not checked.
    pub(in crate::discovery) fn checked(&self) -> Option<TrustDomains> {
        self.is_checked.then(|| self.domains())
    }
}

fn domains(mesh: &MeshConfig, default: &Arc<str>) -> TrustDomains {
    let own = match mesh.trust_domain.as_str() {
        "" => Arc::clone(default),
        own => own.into(),
    };
    let aliases = mesh.trust_domain_aliases.iter().cloned().collect();
    TrustDomains { own, aliases }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mesh(domain: &str, alias: &str) -> Arc<MeshConfig> {
        Arc::new(MeshConfig {
            trust_domain: domain.to_owned(),
            trust_domain_aliases: vec![alias.to_owned()],
            ..MeshConfig::default()
        })
    }

    #[test]
    fn the_mesh_names_its_domain_and_the_flag_where_it_names_none() {
        let trust = Trust::new(&"flag".into(), false, mesh("", "a"));
        let mut watched = trust.watch();
        assert_eq!(*trust.domain(), *"flag");
        assert_eq!(trust.checked(), None);
        // Another alias is no other domain: nobody who makes identities is woken.
        trust.set(&mesh("", "b"));
        assert!(!watched.has_changed().unwrap());
        assert_eq!(trust.domains().aliases, ["b".to_owned()].into());
        trust.set(&mesh("own", "b"));
        assert!(watched.has_changed().unwrap());
        assert_eq!(**watched.borrow_and_update(), *"own");
        assert_eq!(*trust.domains().own, *"own");
    }
}
