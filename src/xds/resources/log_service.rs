//! The service that access logs go to, as the mesh configuration has it.

use api::istio::mesh::v1alpha1::RemoteService;
use api::istio::networking::v1alpha3::ClientTlsSettings;
use api::istio::networking::v1alpha3::client_tls_settings::TlSmode;
use api::mesh::MeshConfig;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::Secret;

use crate::rules::destination_rule::secrets_in_files;

/// The name of the cluster that the loggers go to.
pub(crate) const NAME: &str = "envoy_accesslog_service";

/// The address and the settings of the service.
#[derive(Clone, Debug)]
pub(crate) struct LogService {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) given: RemoteService,
}

impl LogService {
    /// `None` if the service is not enabled, has no address, or has TLS settings that every proxy would refuse.
    pub(crate) fn new(mesh: &MeshConfig) -> Option<Self> {
        if !mesh.enable_envoy_access_log_service {
            return None;
        }
        let service = mesh
            .default_config
            .as_ref()?
            .envoy_access_log_service
            .as_ref()?;
        let (host, port) = service.address.rsplit_once(':')?;
        let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let host = inner.unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port > 0)?;
        let sensible = service.tls_settings.as_ref().is_none_or(is_sensible);
        (!host.is_empty() && sensible).then(|| Self {
            host: host.to_owned(),
            port,
            given: service.clone(),
        })
    }

    /// Secrets of files that its connections use.
    pub(crate) fn secrets_in_files(&self) -> impl Iterator<Item = Secret> {
        self.given.tls_settings.iter().flat_map(secrets_in_files)
    }
}

/// Envoy wants files for a certificate. Secrets are no files.
fn is_sensible(settings: &ClientTlsSettings) -> bool {
    match settings.mode() {
        TlSmode::Disable | TlSmode::IstioMutual => true,
        mode @ (TlSmode::Simple | TlSmode::Mutual) => {
            let own = !settings.client_certificate.is_empty() && !settings.private_key.is_empty();
            settings.credential_name.is_empty() && (mode == TlSmode::Simple || own)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn of(given: &str) -> Option<(String, u16)> {
        let text = format!(
            "enableEnvoyAccessLogService: true\ndefaultConfig: {{envoyAccessLogService: {{{given}}}}}\n"
        );
        let mesh = api::mesh::parse_over(&api::mesh::discovery_defaults(), &text).unwrap();
        LogService::new(&mesh.config).map(|it| (it.host, it.port))
    }

    #[test]
    fn it_is_where_the_mesh_says_and_nowhere_else() {
        let known = |host: &str| Some((host.to_owned(), 15000));
        for (given, host) in [
            ("address: 'logs:15000'", "logs"),
            ("address: '10.0.0.1:15000'", "10.0.0.1"),
            ("address: '[2001:db8::1]:15000'", "2001:db8::1"),
            ("address: 'a:15000', tlsSettings: {mode: SIMPLE}", "a"),
            (
                "address: 'a:15000', tlsSettings: {mode: SIMPLE, subjectAltNames: [b]}",
                "a",
            ),
            (
                "address: 'a:15000', tlsSettings: {mode: ISTIO_MUTUAL, subjectAltNames: [b]}",
                "a",
            ),
            (
                "address: 'a:15000', tlsSettings: {mode: SIMPLE, subjectAltNames: [b], caCertificates: /ca}",
                "a",
            ),
            (
                "address: 'a:15000', tlsSettings: {mode: MUTUAL, clientCertificate: /c, privateKey: /k}",
                "a",
            ),
        ] {
            assert_eq!(of(given), known(host), "{given}");
        }
        for given in [
            "",
            "address: 'a:15000', tlsSettings: {mode: SIMPLE, credentialName: b}",
            "address: 'a:15000', tlsSettings: {mode: MUTUAL}",
        ] {
            assert_eq!(of(given), None, "{given}");
        }
        let mesh = api::mesh::parse_over(
            &api::mesh::discovery_defaults(),
            "defaultConfig: {envoyAccessLogService: {address: 'logs:15000'}}\n",
        );
        assert!(LogService::new(&mesh.unwrap().config).is_none());
    }
}
