//! Trust domains of the mesh: identities in each of them are the same workloads.

use api::mesh::MeshConfig;

use crate::settings::Settings;

/// Stands for the mesh's own trust domain in rules.
const POINTER: &str = "cluster.local";

/// The mesh's own first, then its aliases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrustDomains(Vec<String>);

impl TrustDomains {
    pub(crate) fn new(mesh: &MeshConfig, settings: &Settings) -> Self {
        let own = match mesh.trust_domain.as_str() {
            "" => &*settings.trust_domain,
            written => written,
        };
        let mut all = vec![own.to_owned()];
        for alias in &mesh.trust_domain_aliases {
            if !alias.is_empty() && !all.contains(alias) {
                all.push(alias.clone());
            }
        }
        Self(all)
    }

    /// Returns the names of all of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// An identity, or the beginning of one, in each trust domain that its own stands for.
    pub(crate) fn spellings(&self, account: &str) -> impl Iterator<Item = String> {
        let parts = account.split_once('/');
        let ours = parts
            .filter(|(domain, _)| *domain == POINTER || self.0.iter().any(|known| known == domain));
        let other = ours.is_none().then(|| account.to_owned());
        let of = ours
            .into_iter()
            .flat_map(|(_, rest)| self.0.iter().map(move |domain| format!("{domain}/{rest}")));
        of.chain(other)
    }
}
