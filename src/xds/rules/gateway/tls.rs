//! TLS that ends at a server of a Gateway.

use std::collections::BTreeSet;
use std::time::Duration;

use api::config::discovery_notes::{client_root, is_certificate_hash, is_cipher_suite, is_key_pin};
use api::istio::networking::v1alpha3::ServerTlsSettings;
use api::networking::server_tls_settings::{TlSmode, TlsProtocol};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::common_tls_context::{
    CombinedCertificateValidationContext, ValidationContextType,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, SdsSecretConfig, Secret,
    TlsParameters, tls_parameters,
};

use super::secrets::{self, ProxySecrets};
use super::{Merged, ServerHandling};
use crate::common::{tls, wire};
use crate::node::Files;
use crate::rules::file_secrets::{FilePair, FileRoot, FileSecrets};

/// Paths of certificates in a router's own pod, for Gateways that name no others.
const CERTIFICATE: &str = "/etc/istio/ingress-certs/tls.crt";
const KEY: &str = "/etc/istio/ingress-certs/tls.key";
const CLIENT_ROOT: &str = "/etc/istio/ingress-ca-certs/ca-chain.cert.pem";

/// Certificates that a router can have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouterCertificates<'a> {
    /// Files of the mesh's, where the proxy is.
    pub(crate) files: &'a Files,
    pub(crate) are_missing: bool,
    /// By name.
    pub(crate) secrets: ProxySecrets<'a>,
    /// The time for which it waits for those.
    pub(crate) initial_fetch_timeout: Duration,
}

fn or<'a>(path: &'a str, usual: &'a str) -> &'a str {
    if path.is_empty() { usual } else { path }
}

/// The socket that ends TLS, or the reason why it cannot.
pub(crate) fn socket(
    settings: &ServerTlsSettings,
    ends: ServerHandling,
    own: RouterCertificates<'_>,
) -> Result<core::TransportSocket, String> {
    let mode = settings.mode();
    let of_mesh = mode == TlSmode::IstioMutual;
    if of_mesh && own.are_missing {
        return Err("the proxy has no certificates of the mesh".to_owned());
    }
    let verifies = match mode {
        TlSmode::Mutual | TlSmode::OptionalMutual | TlSmode::IstioMutual => true,
        TlSmode::Simple | TlSmode::Passthrough | TlSmode::AutoPassthrough => false,
    };
    let mut context = CommonTlsContext {
        alpn_protocols: alpn(ends, of_mesh),
        tls_params: Some(parameters(settings)),
        tls_certificate_sds_secret_configs: own.certificates(settings)?,
        ..CommonTlsContext::default()
    };
    if of_mesh {
        // The mesh's own files are there: `are_missing` said otherwise above.
        context.tls_certificates = vec![tls::pair((&own.files.chain, &own.files.key))];
    }
    if verifies {
        context.validation_context_type = Some(own.validation_context(settings)?);
    }
    let socket = DownstreamTlsContext {
        common_tls_context: Some(context),
        require_client_certificate: wire::boolean(verifies && mode != TlSmode::OptionalMutual),
        ..DownstreamTlsContext::default()
    };
    Ok(tls::socket(&socket))
}

impl RouterCertificates<'_> {
    fn by_name(&self, name: &str) -> SdsSecretConfig {
        SdsSecretConfig {
            name: name.to_owned(),
            sds_config: Some(wire::ads(self.initial_fetch_timeout)),
        }
    }

    /// The certificates of a server that are secrets: those that it names, else those of its files. A file that is missing closes
    /// this chain alone then, and not the listener (`file_secrets`).
    fn certificates(&self, settings: &ServerTlsSettings) -> Result<Vec<SdsSecretConfig>, String> {
        let names = secrets::names(settings);
        if names.is_empty() && settings.mode() != TlSmode::IstioMutual {
            let pairs = file_pairs(settings).into_iter();
            return Ok(pairs.map(|pair| self.by_name(&pair.name())).collect());
        }
        let names = names.into_iter();
        names
            .map(|name| Ok(self.by_name(&self.secrets.pair(name)?)))
            .collect()
    }

    /// The root that signs the certificates of clients, and the names that these have to have.
    fn validation_context(
        &self,
        settings: &ServerTlsSettings,
    ) -> Result<ValidationContextType, String> {
        let validation = validation(settings)?;
        let root = match secrets::root_name(settings) {
            Some(root) => Some(self.secrets.root(&root)?),
            None if settings.mode() == TlSmode::IstioMutual => {
                mesh_root(settings, self.files).map(|root| root.name())
            }
            None => Some(file_root(settings).name()),
        };
        Ok(match root {
            Some(root) => {
                let combined = CombinedCertificateValidationContext {
                    default_validation_context: Some(validation),
                    validation_context_sds_secret_config: Some(self.by_name(&root)),
                    ..CombinedCertificateValidationContext::default()
                };
                ValidationContextType::CombinedValidationContext(combined)
            }
            None => ValidationContextType::ValidationContext(CertificateValidationContext {
                trusted_ca: Some(wire::file(&self.files.root)),
                ..validation
            }),
        })
    }
}

/// The certificates of a server that names them by their files.
fn file_pairs(settings: &ServerTlsSettings) -> Vec<FilePair<'_>> {
    let several = settings.tls_certificates.iter().map(|one| FilePair {
        chain: &one.server_certificate,
        key: &one.private_key,
    });
    let several: Vec<_> = several.collect();
    if !several.is_empty() {
        return several;
    }
    vec![FilePair {
        chain: or(&settings.server_certificate, CERTIFICATE),
        key: or(&settings.private_key, KEY),
    }]
}

/// The roots that stand beside several certificates.
fn pair_roots(settings: &ServerTlsSettings) -> impl Iterator<Item = &str> {
    let pairs = settings.tls_certificates.iter();
    pairs.map(|one| one.ca_certificates.as_str())
}

fn file_root(settings: &ServerTlsSettings) -> FileRoot<'_> {
    FileRoot {
        root: or(
            client_root(&settings.ca_certificates, pair_roots(settings)),
            CLIENT_ROOT,
        ),
        crl: &settings.ca_crl,
    }
}

/// The mesh's own root, where a server names a list of certificates that count no more. The proxy waits for the root; a list that
/// is not there closes the server alone.
fn mesh_root<'a>(settings: &'a ServerTlsSettings, files: &'a Files) -> Option<FileRoot<'a>> {
    (!settings.ca_crl.is_empty()).then_some(FileRoot {
        root: &files.root,
        crl: &settings.ca_crl,
    })
}

/// Secrets that name files of a proxy for a server's TLS.
pub(crate) fn in_files(settings: &ServerTlsSettings, files: &Files) -> Vec<Secret> {
    let by_files = match settings.mode() {
        TlSmode::Simple | TlSmode::Mutual | TlSmode::OptionalMutual => {
            secrets::names(settings).is_empty()
        }
        TlSmode::IstioMutual => {
            let root = mesh_root(settings, files);
            return root.iter().map(FileRoot::secret).collect();
        }
        TlSmode::Passthrough | TlSmode::AutoPassthrough => false,
    };
    if !by_files {
        return Vec::new();
    }
    let pairs = file_pairs(settings).into_iter().map(|pair| pair.secret());
    let root = (settings.mode() != TlSmode::Simple).then(|| file_root(settings).secret());
    pairs.chain(root).collect()
}

impl Merged {
    /// Secrets that routers have in files, each with the objects that name it.
    pub(crate) fn files(&self, files: &Files) -> FileSecrets {
        let mut all = FileSecrets::default();
        for server in self.by_port.values().flatten() {
            let tls = server.spec().and_then(|server| server.tls.as_ref());
            let ends = matches!(server.handling, ServerHandling::Https | ServerHandling::Tls);
            if let Some(tls) = tls.filter(|_| ends) {
                all.add(in_files(tls, files), std::slice::from_ref(server.from()));
            }
        }
        all
    }
}

fn alpn(ends: ServerHandling, of_mesh: bool) -> Vec<String> {
    let all: &[&str] = match ends {
        // As a sidecar's: the name of the mesh would stand for HTTP/1.
        ServerHandling::Https => &["h2", "http/1.1"],
        ServerHandling::Tls if of_mesh => &[tls::ALPN],
        // As in Istio: clients of gRPC end a connection that agrees on no protocol.
        ServerHandling::Tls => &["h2", "http/1.1"],
        ServerHandling::Http
        | ServerHandling::Passthrough
        | ServerHandling::AutoPassthrough
        | ServerHandling::Tcp => &[],
    };
    all.iter().map(|name| (*name).to_owned()).collect()
}

/// The checks of a client's certificate beyond its root.
///
/// # Errors
///
/// Envoy refuses it; without it, more clients would be let in.
fn validation(settings: &ServerTlsSettings) -> Result<CertificateValidationContext, String> {
    let names = settings.subject_alt_names.iter();
    if !settings
        .verify_certificate_spki
        .iter()
        .all(|pin| is_key_pin(pin))
    {
        return Err("tls.verifyCertificateSpki has no hash of a key".to_owned());
    }
    let mut hashes = settings.verify_certificate_hash.iter();
    if !hashes.all(|hash| is_certificate_hash(hash)) {
        return Err("tls.verifyCertificateHash has no hash of a certificate".to_owned());
    }
    Ok(CertificateValidationContext {
        match_typed_subject_alt_names: names.flat_map(|name| tls::of_any_kind(name)).collect(),
        verify_certificate_spki: settings.verify_certificate_spki.clone(),
        verify_certificate_hash: settings.verify_certificate_hash.clone(),
        ..CertificateValidationContext::default()
    })
}

fn parameters(written: &ServerTlsSettings) -> TlsParameters {
    let version = |written: TlsProtocol, usual| match written {
        TlsProtocol::TlsAuto => usual,
        TlsProtocol::Tlsv10 => tls_parameters::TlsProtocol::TlSv10,
        TlsProtocol::Tlsv11 => tls_parameters::TlsProtocol::TlSv11,
        TlsProtocol::Tlsv12 => tls_parameters::TlsProtocol::TlSv12,
        TlsProtocol::Tlsv13 => tls_parameters::TlsProtocol::TlSv13,
    };
    let min = version(
        written.min_protocol_version(),
        tls_parameters::TlsProtocol::TlSv12,
    );
    let max = version(
        written.max_protocol_version(),
        tls_parameters::TlsProtocol::TlsAuto,
    );
    let suites = written.cipher_suites.iter();
    let suites = suites.filter(|suite| is_cipher_suite(suite));
    let mut known = BTreeSet::new();
    TlsParameters {
        tls_minimum_protocol_version: min.into(),
        tls_maximum_protocol_version: max.into(),
        cipher_suites: suites
            .filter(|suite| known.insert(*suite))
            .cloned()
            .collect(),
        ..TlsParameters::default()
    }
}
