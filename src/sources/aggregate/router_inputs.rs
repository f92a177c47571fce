//! Sources of routers beside rules: certificates, and Ingresses.

use std::sync::Arc;

use api::model::{ChangedKind, Changes, Credentials};

use super::Registries;
use super::differ::differ_all;
use crate::contribution::Ingresses;

impl Registries {
    /// Certificates of the local cluster that Gateways name, in place of those before.
    pub fn set_credentials(&mut self, credentials: Arc<Credentials>) -> Changes {
        let mut changes = Changes::default();
        self.watched = credentials;
        self.credentials(&mut changes);
        changes
    }

    /// Ingresses of the local API server, in place of those before.
    pub fn set_ingresses(&mut self, ingresses: Arc<Ingresses>) -> Changes {
        let mut changes = Changes::default();
        let differ = differ_all(&self.served_ingresses, &ingresses);
        if !differ.is_empty() {
            self.served_ingresses = ingresses;
        }
        for key in differ {
            changes.add(ChangedKind::Ingress, &key);
        }
        changes
    }

    /// All Ingresses, by source; of one name in two of them the first counts.
    pub fn ingresses(&self) -> impl Iterator<Item = &Arc<Ingresses>> {
        let of_sources = self
            .sources
            .values()
            .map(|source| &source.contribution.ingresses);
        let all = of_sources.chain([&self.served_ingresses]);
        all.filter(|ingresses| !ingresses.is_empty())
    }

    /// If two places have a certificate of one name, the first one counts.
    pub(super) fn credentials(&mut self, changes: &mut Changes) {
        let of_sources = self
            .sources
            .values()
            .map(|source| &source.contribution.credentials);
        let mut lists = of_sources
            .chain([&self.watched])
            .filter(|all| !all.is_empty());
        let all = match (lists.next(), lists.next()) {
            (None, _) => Arc::default(),
            (Some(only), None) => only.clone(),
            (Some(_), Some(_)) => {
                let of_sources = self
                    .sources
                    .values()
                    .map(|source| &source.contribution.credentials);
                let mut merged = Credentials::new();
                for (key, one) in of_sources.chain([&self.watched]).flat_map(|all| all.iter()) {
                    merged.entry(key.clone()).or_insert_with(|| one.clone());
                }
                Arc::new(merged)
            }
        };
        let differ = differ_all(&self.world.credentials, &all);
        if !differ.is_empty() {
            self.world.credentials = all;
        }
        for key in differ {
            changes.add(ChangedKind::Credential, &key);
        }
    }
}
