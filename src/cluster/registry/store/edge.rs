//! Sources of routers beside rules: certificates, and Ingresses.

use std::sync::Arc;

use api::model::{Credentials, Reason};

use super::super::kubernetes::Ingresses;
use super::effect::Effects;
use super::{Effect, Registries};

impl Registries {
    /// Certificates of the local cluster that Gateways name, in place of those before.
    pub fn set_credentials(&mut self, credentials: Arc<Credentials>) -> Effect {
        let mut effects = Effects::default();
        self.watched = credentials;
        self.credentials(&mut effects);
        effects.finish()
    }

    /// Ingresses of the local API server, in place of those before.
    pub fn set_ingresses(&mut self, ingresses: Arc<Ingresses>) -> Effect {
        let mut effects = Effects::default();
        if self.served_ingresses != ingresses {
            self.served_ingresses = ingresses;
            effects.full(Reason::Config);
        }
        effects.finish()
    }

    /// All Ingresses, by source; of one name in two of them the first counts.
    pub fn ingresses(&self) -> impl Iterator<Item = &Arc<Ingresses>> {
        let of_sources = self.sources.values().map(|source| &source.said.ingresses);
        let all = of_sources.chain([&self.served_ingresses]);
        all.filter(|ingresses| !ingresses.is_empty())
    }

    /// If two places have a certificate of one name, the first one counts.
    pub(super) fn credentials(&mut self, effects: &mut Effects) {
        let of_sources = self.sources.values().map(|source| &source.said.credentials);
        let mut lists = of_sources
            .chain([&self.watched])
            .filter(|all| !all.is_empty());
        let all = match (lists.next(), lists.next()) {
            (None, _) => Arc::default(),
            (Some(only), None) => only.clone(),
            (Some(_), Some(_)) => {
                let of_sources = self.sources.values().map(|source| &source.said.credentials);
                let mut merged = Credentials::new();
                for (key, one) in of_sources.chain([&self.watched]).flat_map(|all| all.iter()) {
                    merged.entry(key.clone()).or_insert_with(|| one.clone());
                }
                Arc::new(merged)
            }
        };
        if self.world.credentials != all {
            self.world.credentials = all;
            effects.full(Reason::Config);
        }
    }
}
