//! Certificates in files of a proxy: secrets that it asks for by name, though it has the files itself.
//!
//! Envoy 1.40 refuses a whole listener or cluster for one file that it names and that is not there, reads it again in no case, and
//! a proxy that starts with a refusal is never ready: one rule of a tenant would keep all that see it from starting. Of a secret
//! it closes its own chain or cluster alone, takes a pair up as soon as its files are moved into their directory, and where that was
//! not there either, or the file is a root, when it starts again (pintle has it do so at a change of the files that it
//! watches). `path_config_source` is no way: Envoy refuses the resource where that file is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::model::ObjectRef;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, secret,
};

use crate::common::{tls, wire};
use crate::finish::Draft;
use crate::view::{self, Resource};

/// A certificate with its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilePair<'a> {
    pub(crate) chain: &'a str,
    pub(crate) key: &'a str,
}

/// The signer of the certificates of peers, and the list of those that it takes back; empty: there is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRoot<'a> {
    pub(crate) root: &'a str,
    pub(crate) crl: &'a str,
}

impl FilePair<'_> {
    /// Returns the name by which Istio's agent calls it.
    pub(crate) fn name(&self) -> String {
        view::name_in_files(view::PAIR, &[self.chain, self.key])
    }

    pub(crate) fn secret(&self) -> Secret {
        let pair = tls::pair((self.chain, self.key));
        Secret {
            name: self.name(),
            r#type: Some(secret::Type::TlsCertificate(pair)),
        }
    }
}

impl FileRoot<'_> {
    /// Returns the name by which Istio's agent calls it.
    pub(crate) fn name(&self) -> String {
        match self.crl {
            "" => view::name_in_files(view::ROOT, &[self.root]),
            crl => view::name_in_files(view::ROOT, &[self.root, crl]),
        }
    }

    pub(crate) fn secret(&self) -> Secret {
        let validation = CertificateValidationContext {
            trusted_ca: Some(wire::file(self.root)),
            crl: (!self.crl.is_empty()).then(|| wire::file(self.crl)),
            ..CertificateValidationContext::default()
        };
        Secret {
            name: self.name(),
            r#type: Some(secret::Type::ValidationContext(validation)),
        }
    }
}

/// Secrets by name, each with the objects that name it.
#[derive(Debug, Default)]
pub(crate) struct FileSecrets(BTreeMap<String, (Secret, BTreeSet<ObjectRef>)>);

impl FileSecrets {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn add(&mut self, secrets: impl IntoIterator<Item = Secret>, from: &[ObjectRef]) {
        for secret in secrets {
            let name = secret.name.clone();
            let (_, all) = self.0.entry(name).or_insert((secret, BTreeSet::new()));
            all.extend(from.iter().cloned());
        }
    }

    /// Adds objects to those that name a secret, where it is one of these.
    pub(crate) fn also_of(&mut self, name: &str, from: &[ObjectRef]) {
        if let Some((_, all)) = self.0.get_mut(name) {
            all.extend(from.iter().cloned());
        }
    }

    pub(crate) fn resources(self) -> impl Iterator<Item = Arc<Resource>> {
        self.0.into_iter().map(|(name, (message, from))| {
            let draft = Draft {
                from: from.into_iter().collect(),
                ..Draft::new(name, message)
            };
            Arc::new(draft.finish())
        })
    }
}
