//! Certificates that rules name: which there are, and by which names a proxy asks for them (discovery.md §15, §16). Those of files
//! have names, too ([`file_secrets`](crate::rules::file_secrets)).

use std::collections::BTreeSet;

use api::istio::networking::v1alpha3::ClientTlsSettings;
use api::istio::networking::v1alpha3::client_tls_settings::TlSmode;
use api::networking::DestinationRule;

use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::Secret;

use super::{EffectivePolicy, ServicePolicies, policies};
use crate::common::tls::{SYSTEM, SYSTEM_ROOTS};
use crate::rules::file_secrets::{FilePair, FileRoot};
use crate::rules::gateway::secrets::{ProxySecrets, object_of, roots_of};

/// Secrets that a rule asks for by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedSecrets {
    pub(crate) pair: Option<String>,
    /// The name of the root that servers are checked against; `None`: they are not checked.
    pub(crate) root: Option<String>,
}

impl NamedSecrets {
    /// Returns all names.
    pub(crate) fn names(self) -> impl Iterator<Item = String> {
        self.pair.into_iter().chain(self.root)
    }
}

/// The name, where TLS begins that has one.
fn name(tls: &ClientTlsSettings) -> Option<&str> {
    let has_own = matches!(tls.mode(), TlSmode::Simple | TlSmode::Mutual);
    (has_own && !tls.credential_name.is_empty()).then_some(&tls.credential_name)
}

/// Returns the certificate of a client that has one in files, and the root by which it checks servers.
pub(crate) fn client_files(
    tls: &ClientTlsSettings,
) -> (Option<FilePair<'_>>, Option<FileRoot<'_>>) {
    let has_pair = match tls.mode() {
        // SIMPLE presents no certificate, whatever files the rule names.
        TlSmode::Simple => false,
        TlSmode::Mutual => !tls.client_certificate.is_empty(),
        TlSmode::Disable | TlSmode::IstioMutual => return (None, None),
    };
    let pair = has_pair.then_some(FilePair {
        chain: &tls.client_certificate,
        key: &tls.private_key,
    });
    let root = checks(tls).then_some(FileRoot {
        root: match &*tls.ca_certificates {
            // Envoy 1.40 checks no server by `system_root_certs`: a file has the system's roots.
            "" | SYSTEM => SYSTEM_ROOTS,
            root => root,
        },
        crl: &tls.ca_crl,
    });
    (pair, root)
}

/// The secrets of these files.
pub(crate) fn secrets_in_files(tls: &ClientTlsSettings) -> impl Iterator<Item = Secret> {
    let (pair, root) = client_files(tls);
    let pair = pair.map(|pair| pair.secret());
    pair.into_iter().chain(root.map(|root| root.secret()))
}

/// Returns true if servers are checked.
pub(super) fn checks(tls: &ClientTlsSettings) -> bool {
    let skips = tls.insecure_skip_verify.as_ref();
    !skips.is_some_and(|skips| skips.value)
}

/// Secrets that TLS to a server names, or the reason why it cannot have them. `None`: it names none.
pub(super) fn named_secrets(
    tls: &ClientTlsSettings,
    secrets: ProxySecrets<'_>,
) -> Result<Option<NamedSecrets>, String> {
    let Some(name) = name(tls) else {
        return Ok(None);
    };
    let pair = (tls.mode() == TlSmode::Mutual).then(|| secrets.pair(name));
    let root = checks(tls).then(|| secrets.root(name));
    Ok(Some(NamedSecrets {
        pair: pair.transpose()?,
        root: root.transpose()?,
    }))
}

impl ServicePolicies {
    /// Returns true if the names of certificates in the rules count for sidecars: a rule that says which workloads it is for is
    /// for those of its own namespace, and no other rule gives them the secrets there.
    pub(crate) fn are_for_sidecars(&self) -> bool {
        let mut rules = self.rules.iter();
        rules.all(|rule| {
            let spec = rule.spec();
            spec.workload_selector.is_some() || !has_credentials(spec)
        })
    }
}

impl EffectivePolicy<'_> {
    /// Names that a cluster of this policy asks for; none where it cannot be had.
    pub(crate) fn credentials(&self, secrets: ProxySecrets<'_>) -> NamedSecrets {
        let asked = self.tls.map(|tls| named_secrets(tls, secrets));
        let credentials = asked.and_then(Result::ok).flatten();
        credentials.unwrap_or_default()
    }

    /// Secrets of the files that a cluster of this policy asks for.
    pub(crate) fn secrets_in_files(
        &self,
        secrets: Option<ProxySecrets<'_>>,
    ) -> impl Iterator<Item = Secret> {
        let by_name = |tls: &&ClientTlsSettings| secrets.is_some() && name(tls).is_some();
        let tls = self.tls.filter(|tls| !by_name(tls));
        tls.into_iter().flat_map(secrets_in_files)
    }
}

fn all(rule: &DestinationRule) -> impl Iterator<Item = &ClientTlsSettings> {
    let all = policies(rule).flat_map(|policy| {
        let of_ports = policy.port_level_settings.iter();
        let of_ports = of_ports.map(|port| &port.tls);
        of_ports.chain([&policy.tls])
    });
    all.flatten()
}

/// Returns true if a rule has clients read certificates in files.
pub(crate) fn has_client_files(rule: &DestinationRule) -> bool {
    all(rule).any(|tls| matches!(tls.mode(), TlSmode::Simple | TlSmode::Mutual))
}

/// Returns true if a rule names certificates.
pub(crate) fn has_credentials(rule: &DestinationRule) -> bool {
    all(rule).any(|tls| name(tls).is_some())
}

/// Objects of a namespace that a rule names, be they there or not.
pub(crate) fn named_by(rule: &DestinationRule, namespace: &str) -> BTreeSet<String> {
    let names = all(rule).filter_map(|tls| Some((tls, object_of(name(tls)?, namespace)?)));
    let objects = names.flat_map(|(tls, name)| {
        let roots = checks(tls).then(|| roots_of(&name));
        let pair = (tls.mode() == TlSmode::Mutual).then_some(name);
        pair.into_iter().chain(roots.into_iter().flatten())
    });
    objects.collect()
}
