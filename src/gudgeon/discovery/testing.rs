//! A hub for unit tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::model::{Labels, Port, Protocol, Registry, Resolution, Service, ServiceKey, Target};
use sources::aggregate::{self, Registries};
use sources::contribution::{Contribution, Ingresses, SourceId, SyncState};
use sources::kubernetes::Names;
use sources::memory::Memory;

use super::hub::{Hub, LARGE};
use super::options::{DiscoveryOptions, Environment};
use crate::cli::DiscoveryFlags;

/// Returns a hub that serves an empty mesh.
pub(super) fn hub() -> Arc<Hub> {
    hub_of(&[])
}

/// Flags as the command line has them.
pub(super) fn flags(flags: &[&str]) -> DiscoveryFlags {
    let args = ["gudgeon", "discovery"].iter().chain(flags);
    let args: Vec<std::ffi::OsString> = args.map(Into::into).collect();
    let crate::cli::Action::Discovery(flags) = crate::cli::parse(&args).unwrap().action else {
        panic!("{args:?}")
    };
    *flags
}

/// One with flags.
pub(super) fn hub_of(flags: &[&str]) -> Arc<Hub> {
    let flags = self::flags(flags);
    let (options, _) = DiscoveryOptions::new(&flags, &Environment::new()).unwrap();
    let settings = aggregate::Settings {
        cluster: options.settings.cluster.clone(),
        trust_domain: Arc::clone(&options.trust_domain),
        order: options.registries.clone(),
        block_http_on_443: options.settings.block_http_on_443,
    };
    let mesh = Arc::new(api::mesh::discovery_defaults());
    let hub = Hub::new(options, Registries::new(settings, mesh, Arc::default()));
    // There is no source to wait for.
    hub.update(|_| api::model::Changes::default());
    hub
}

/// Objects in memory, a source of the hub that is synced.
pub(super) fn memory_of(hub: &Hub) -> (SourceId, Memory) {
    let names = Names {
        cluster: Memory::CLUSTER.into(),
        domain: Arc::clone(&hub.options.domain),
        trust_domain: hub.trust.domain(),
    };
    let id = SourceId {
        registry: Registry::Memory,
        cluster: Memory::CLUSTER.into(),
    };
    hub.set_sync_state(&id, SyncState::Synced);
    (id, Memory::new(names))
}

/// Objects of a mesh whose updates all leave the event loop.
pub(super) fn large_contribution() -> Contribution {
    // An Ingress counts by the length of its text.
    let text = format!("{:64}", "{}");
    let all = (0..LARGE).map(|at| (("n".into(), at.to_string().into()), text.as_str().into()));
    Contribution {
        ingresses: Arc::new(Ingresses::from_iter(all)),
        ..Contribution::default()
    }
}

/// A Kubernetes service with a port of HTTP, and without an address or a selector.
pub(super) fn service(key: ServiceKey) -> Service {
    Service {
        key,
        registry: Registry::Kubernetes,
        ports: vec![Port {
            name: "http".into(),
            number: 80,
            protocol: Protocol::Http,
            target: Target::Number(80),
        }],
        addresses: BTreeMap::new(),
        cluster: "Kubernetes".into(),
        resolution: Resolution::Static,
        mesh_external: false,
        selector: Labels::default(),
        created: None,
        accounts: [].into(),
        prefers_close: false,
        exported_to: Vec::new(),
        balancers: BTreeMap::new(),
    }
}
