//! Secrets that a router is given. Nothing of them is kept beside what streams have, and nothing of them is printed.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::model::{CredentialKey, Labels, World, selects};
use api::networking::Server;

use envoy_types::pb::envoy::config::core::v3::{DataSource, data_source};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret as Message, TlsCertificate, secret,
};
use prost::Message as _;

use super::proxy::ProxyView;
use crate::node::Kind;
use crate::rules::gateway::secrets::{RouterSecrets, Secret, named};
use crate::settings::Settings;
use crate::view::{Resource, Set};

fn inline(bytes: &[u8]) -> Option<DataSource> {
    Some(DataSource {
        specifier: Some(data_source::Specifier::InlineBytes(bytes.to_vec())),
        ..DataSource::default()
    })
}

fn resource(name: &str, secret: &Secret<'_>) -> Resource {
    let message = Message {
        name: name.to_owned(),
        r#type: Some(match secret {
            Secret::Pair(chain, key) => secret::Type::TlsCertificate(TlsCertificate {
                certificate_chain: inline(chain),
                private_key: inline(key),
                ..TlsCertificate::default()
            }),
            Secret::Root(root) => secret::Type::ValidationContext(CertificateValidationContext {
                trusted_ca: inline(root),
                ..CertificateValidationContext::default()
            }),
        }),
    };
    Resource::new(name, message.encode_to_vec())
}

/// Names of Secrets that Gateways of a world want, each in the namespaces of the pods that they select and in their own.
#[must_use]
pub fn named_credentials(world: &World, settings: &Settings) -> BTreeSet<CredentialKey> {
    let mut wanted = BTreeSet::new();
    for gateway in world.gateways.values() {
        let spec = &gateway.spec;
        let is_by_name = |server: &Server| {
            let tls = server.tls.as_ref();
            tls.is_some_and(|tls| {
                !tls.credential_name.is_empty() || !tls.credential_names.is_empty()
            })
        };
        if !spec.servers.iter().any(is_by_name) {
            continue;
        }
        let selector: Labels = (spec.selector.iter())
            .map(|(name, value)| (name.as_str().into(), value.as_str().into()))
            .collect();
        let mut namespaces = BTreeSet::from([gateway.namespace.clone()]);
        // One for everybody is looked for where it is, and not in every namespace of the cluster.
        if !selector.is_empty() && !settings.gateways_of_own_namespace {
            let pods = world.workloads.iter();
            let pods = pods.filter(|(key, pod)| {
                key.cluster == settings.cluster && selects(&selector, &pod.labels)
            });
            namespaces.extend(pods.map(|(key, _)| key.namespace.clone()));
        }
        for namespace in namespaces {
            let names = named(spec, &namespace).into_iter();
            wanted.extend(names.map(|name| (namespace.clone(), Arc::from(name))));
        }
    }
    wanted
}

impl ProxyView {
    pub(super) fn credentials(&self) -> RouterSecrets<'_> {
        let node = &self.proxy.node;
        RouterSecrets {
            all: &self.snapshot.world.credentials,
            namespace: &node.namespace,
            is_trusted: node.kind == Kind::Router && !node.grpc && node.router.may_have_secrets,
        }
    }

    /// All that its Gateways name.
    pub(super) fn secrets(&self) -> Arc<Set> {
        let secrets = self.credentials();
        let names = self.merged.secrets(secrets).into_iter();
        let all = names.filter_map(|name| Some(Arc::new(resource(&name, &secrets.asked(&name)?))));
        Arc::new(all.collect())
    }
}
