//! Names of SDS secrets: certificates that servers of Gateways name, and which of them a proxy may have: those of its own namespace that one of its
//! Gateways names, or a rule for its connections.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::model::{
    ClusterId, Configured, Credential, Credentials, Labels, ROOT_SUFFIX, World, selects,
};
use api::networking::server_tls_settings::TlSmode;
use api::networking::{Gateway, ServerTlsSettings};

use super::Merged;

/// The prefix of the name of an object of the cluster.
const KUBERNETES: &str = "kubernetes://";

/// Secrets that a proxy may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProxySecrets<'a> {
    pub(crate) all: &'a Credentials,
    pub(crate) namespace: &'a Arc<str>,
    /// The client is on this machine or authenticated.
    pub(crate) is_trusted: bool,
}

/// Names of certificates.
pub(super) fn names(settings: &ServerTlsSettings) -> Vec<&str> {
    match settings.mode() {
        TlSmode::Simple | TlSmode::Mutual | TlSmode::OptionalMutual => {}
        TlSmode::IstioMutual | TlSmode::Passthrough | TlSmode::AutoPassthrough => {
            return Vec::new();
        }
    }
    let one = Some(&settings.credential_name).filter(|name| !name.is_empty());
    let all = one.into_iter().chain(&settings.credential_names);
    all.map(String::as_str).collect()
}

fn requests_client_certificate(settings: &ServerTlsSettings) -> bool {
    matches!(settings.mode(), TlSmode::Mutual | TlSmode::OptionalMutual)
}

/// The name of the root, where certificates have names.
pub(super) fn root_name(settings: &ServerTlsSettings) -> Option<String> {
    let own = &settings.ca_cert_credential_name;
    if !own.is_empty() && !names(settings).is_empty() {
        return Some(own.clone());
    }
    names(settings).first().map(|name| (*name).to_owned())
}

/// Objects of a namespace that the servers of a Gateway name, be they there or not.
pub(crate) fn named(gateway: &Gateway, namespace: &str) -> BTreeSet<String> {
    let written = gateway
        .servers
        .iter()
        .filter_map(|server| server.tls.as_ref());
    let all = written.flat_map(|tls| {
        let root = root_name(tls).filter(|_| requests_client_certificate(tls));
        let pairs = names(tls).into_iter().map(str::to_owned);
        let roots = root.into_iter().flat_map(|root| roots_of(&root));
        pairs.chain(roots)
    });
    all.filter_map(|written| object_of(&written, namespace))
        .collect()
}

/// Namespaces of the pods of a cluster that listen for a Gateway, and its own. One for everybody is looked for where it is, and not
/// in every namespace of the cluster.
pub(crate) fn namespaces_of(
    gateway: &Configured<Gateway>,
    world: &World,
    cluster: Option<&ClusterId>,
) -> BTreeSet<Arc<str>> {
    let selector: Labels = (gateway.spec.selector.iter())
        .map(|(name, value)| (name.as_str().into(), value.as_str().into()))
        .collect();
    let mut namespaces = BTreeSet::from([gateway.namespace.clone()]);
    if let Some(cluster) = cluster.filter(|_| !selector.is_empty()) {
        let pods = world.workloads.iter();
        let pods =
            pods.filter(|(key, pod)| key.cluster == *cluster && selects(&selector, &pod.labels));
        namespaces.extend(pods.map(|(key, _)| key.namespace.clone()));
    }
    namespaces
}

/// The object of a namespace that a name means; `None`: it is of another one.
pub(crate) fn object_of(credential_name: &str, namespace: &str) -> Option<String> {
    let name = credential_name
        .strip_prefix(KUBERNETES)
        .unwrap_or(credential_name);
    match name.split_once('/') {
        None => Some(name.to_owned()),
        Some((of, name)) => (of == namespace).then(|| name.to_owned()),
    }
}

/// Objects that may have the root of this name.
pub(crate) fn roots_of(name: &str) -> [String; 2] {
    let bare = name.strip_suffix(ROOT_SUFFIX).unwrap_or(name).to_owned();
    [format!("{bare}{ROOT_SUFFIX}"), bare]
}

impl<'a> ProxySecrets<'a> {
    /// The name of an object of the proxy's namespace; else why it has none.
    fn own<'n>(&self, credential_name: &'n str) -> Result<&'n str, String> {
        let name = credential_name
            .strip_prefix(KUBERNETES)
            .unwrap_or(credential_name);
        let name = match name.split_once('/') {
            None => name,
            Some((namespace, name)) if *namespace == **self.namespace => name,
            Some(_) => {
                return Err(format!("secret {name} is not of the proxy's namespace"));
            }
        };
        if !self.is_trusted {
            return Err(format!(
                "secret {name} is not given to a stream that is neither of this machine nor of a certificate for its namespace"
            ));
        }
        Ok(name)
    }

    fn get(&self, name: &str) -> Option<&'a Credential> {
        let key = (self.namespace.clone(), name.into());
        self.all.get(&key).map(|one| &**one)
    }

    /// The resource name of a certificate, or the reason why the proxy cannot have it.
    pub(crate) fn pair(&self, credential_name: &str) -> Result<String, String> {
        let name = self.own(credential_name)?;
        let credential = self.get(name).filter(|one| one.pair.is_some());
        // `by_resource_name` takes a name that ends so for a root's.
        if credential.is_none() || name.ends_with(ROOT_SUFFIX) {
            let namespace = self.namespace;
            return Err(format!(
                "there is no certificate in secret {namespace}/{name}"
            ));
        }
        Ok(format!("{KUBERNETES}{name}"))
    }

    /// Returns the resource name of a root, of an object of its own or beside the certificate, or why the proxy cannot have it.
    pub(crate) fn root(&self, credential_name: &str) -> Result<String, String> {
        let name = self.own(credential_name)?;
        let name = name.strip_suffix(ROOT_SUFFIX).unwrap_or(name);
        if self.root_of(name).is_none() {
            let namespace = self.namespace;
            return Err(format!(
                "there is no root in secret {namespace}/{name}{ROOT_SUFFIX} or {namespace}/{name}"
            ));
        }
        Ok(format!("{KUBERNETES}{name}{ROOT_SUFFIX}"))
    }

    fn root_of(&self, name: &str) -> Option<&'a Arc<[u8]>> {
        let own = self.get(&format!("{name}{ROOT_SUFFIX}"));
        let own = own.and_then(|one| one.root.as_ref());
        own.or_else(|| self.get(name)?.root.as_ref())
    }

    /// The secret of a resource name.
    pub(crate) fn by_resource_name(&self, name: &str) -> Option<Secret<'a>> {
        let name = name.strip_prefix(KUBERNETES).filter(|_| self.is_trusted)?;
        if let Some(of) = name.strip_suffix(ROOT_SUFFIX) {
            return self.root_of(of).map(|root| Secret::Root(root));
        }
        let (chain, key) = self.get(name)?.pair.as_ref()?;
        Some(Secret::Pair(chain, key))
    }
}

/// The content of one secret.
pub(crate) enum Secret<'a> {
    Pair(&'a [u8], &'a [u8]),
    Root(&'a [u8]),
}

impl Merged {
    /// Names by which a router asks for what its servers name, as far as it may have it.
    pub(crate) fn secrets(&self, secrets: ProxySecrets<'_>) -> BTreeSet<String> {
        let servers = self.by_port.values().flatten();
        let settings = servers.filter_map(|server| server.spec()?.tls.as_ref());
        let all = settings.flat_map(|tls| {
            let pairs = names(tls).into_iter();
            let pairs = pairs.filter_map(move |name| secrets.pair(name).ok());
            let root = root_name(tls).filter(|_| requests_client_certificate(tls));
            let root = root.and_then(|root| secrets.root(&root).ok());
            pairs.chain(root)
        });
        all.collect()
    }
}
