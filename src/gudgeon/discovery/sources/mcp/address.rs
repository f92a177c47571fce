//! Addresses of sources, and the way to dial them, from the mesh configuration and flags.

use std::path::PathBuf;

use api::config::KINDS;
use api::config::collections::SYNTHETIC;
use api::istio::mesh::v1alpha1::{ConfigSource, Resource};
use api::istio::networking::v1alpha3::ClientTlsSettings;
use api::istio::networking::v1alpha3::client_tls_settings::TlSmode;
use api::url::quotation_without_credentials;
use tracing::warn;

use super::{SERVICES, SourceName};
use crate::grpc::DialAddress;
use crate::mcp::{CredentialFiles, WantedSource};

/// Groups of kinds that discovery asks for.
const GROUPS: [&str; 4] = [
    "networking.istio.io",
    "security.istio.io",
    "authentication.istio.io",
    "rbac.istio.io",
];
/// The id of discovery as a sink of configuration.
pub(super) const ID: &str = "gudgeon-discovery";
/// The files of a workload's certificates, as the mesh mounts them.
const MESH: [&str; 3] = [
    "/etc/certs/cert-chain.pem",
    "/etc/certs/key.pem",
    "/etc/certs/root-cert.pem",
];

/// The least limit of a response: what says nothing but its collection and its version fits.
const MIN_RECEIVED_BYTES: usize = 1024;

/// # Errors
/// A limit with which no source could ever be heard.
pub(super) fn received(bytes: usize) -> Result<usize, String> {
    match bytes >= MIN_RECEIVED_BYTES {
        true => Ok(bytes),
        false => Err(format!(
            "cannot use --mcpMaxMsgSize {bytes}: want {MIN_RECEIVED_BYTES} bytes or more"
        )),
    }
}

/// # Errors
/// A source that cannot be used.
pub(super) fn named(source: &ConfigSource, received: usize) -> Result<SourceName, String> {
    match source.address.strip_prefix("fs://") {
        Some(path) if path.starts_with('/') => {
            Ok(SourceName::Folder(PathBuf::from(path), collections()))
        }
        Some(_) => Err(format!(
            "{:?}: want fs:///DIRECTORY",
            quotation_without_credentials(&source.address)
        )),
        None => parse(source, received).map(SourceName::Dialled),
    }
}

/// A warning about settings of a source that have no effect.
fn unused(source: &ConfigSource) -> Option<String> {
    source.tls_settings.as_ref()?;
    let why = match source.address.split_once("://")?.0 {
        "fs" => "a directory is read without a connection",
        "unix" => "a unix socket is dialled without TLS",
        _ => return None,
    };
    let address = quotation_without_credentials(&source.address);
    Some(format!(
        "configSources {address:?}: tlsSettings has no effect: {why}"
    ))
}

/// Returns the sources that the mesh configuration names.
///
/// # Errors
/// A source that cannot be used.
pub(super) fn all(sources: &[ConfigSource], received: usize) -> Result<Vec<SourceName>, String> {
    for warning in sources.iter().filter_map(unused) {
        warn!("{warning}");
    }
    let wanted = sources.iter().map(|source| named(source, received));
    wanted.collect()
}

/// The collections that discovery asks for.
pub(super) fn collections() -> Vec<String> {
    let kinds = KINDS.iter().filter(|kind| GROUPS.contains(&kind.group));
    kinds.map(|kind| kind.collection.to_owned()).collect()
}

fn parse(source: &ConfigSource, received: usize) -> Result<WantedSource, String> {
    let address = source.address.as_str();
    let wrong = |cause: &str| format!("{:?}: {cause}", quotation_without_credentials(address));
    let (scheme, rest) = address.split_once("://").unwrap_or(("mcp", address));
    let place = match scheme {
        "unix" if rest.starts_with('/') => Some(DialAddress::Unix(PathBuf::from(rest))),
        "mcp" | "mcps" => DialAddress::parse(rest),
        _ => None,
    };
    let place = place.ok_or_else(|| {
        wrong("want mcp://HOST:PORT, mcps://HOST:PORT, fs:///DIRECTORY or unix:///PATH")
    })?;
    let tls = match (scheme, &source.tls_settings) {
        ("unix", _) | ("mcp", None) => None,
        (_, Some(settings)) => files(settings).map_err(|cause| wrong(&cause))?,
        (_, None) => Some(of_the_mesh(&ClientTlsSettings::default())),
    };
    if scheme == "mcps" && tls.is_none() {
        return Err(wrong("tlsSettings.mode is DISABLE"));
    }
    let services = source
        .subscribed_resources
        .contains(&(Resource::ServiceRegistry as i32));
    let mut collections = collections();
    if services {
        collections.push(SYNTHETIC.to_owned());
    }
    Ok(WantedSource {
        place,
        named: source.address.clone(),
        tls,
        id: if services { SERVICES } else { ID }.to_owned(),
        collections,
        received,
    })
}

fn files(settings: &ClientTlsSettings) -> Result<Option<CredentialFiles>, String> {
    let given = |path: &str, field: &str| match path {
        "" => Err(format!("tlsSettings.{field} is required")),
        path => Ok(PathBuf::from(path)),
    };
    let skips = settings
        .insecure_skip_verify
        .is_some_and(|skips| skips.value);
    let mut files = of_the_mesh(settings);
    match settings.mode() {
        TlSmode::Disable => return Ok(None),
        TlSmode::IstioMutual => {}
        mode @ (TlSmode::Simple | TlSmode::Mutual) => {
            files.pair = None;
            if mode == TlSmode::Mutual {
                let chain = given(&settings.client_certificate, "clientCertificate")?;
                files.pair = Some((chain, given(&settings.private_key, "privateKey")?));
            }
            files.roots = match skips {
                true => None,
                false => Some(given(&settings.ca_certificates, "caCertificates")?),
            };
        }
    }
    Ok(Some(files))
}

fn of_the_mesh(settings: &ClientTlsSettings) -> CredentialFiles {
    let [chain, key, roots] = MESH.map(PathBuf::from);
    CredentialFiles {
        roots: Some(roots),
        pair: Some((chain, key)),
        names: settings.subject_alt_names.clone(),
        server: Some(settings.sni.clone()).filter(|sni| !sni.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> ConfigSource {
        let mesh = format!("configSources: [{text}]");
        let mesh = api::mesh::parse_over(&api::mesh::discovery_defaults(), &mesh).unwrap();
        mesh.config.config_sources[0].clone()
    }

    fn read(text: &str) -> Result<WantedSource, String> {
        parse(&source(text), 1)
    }

    #[test]
    fn a_directory_and_a_socket_need_no_tls() {
        let unused = |text: &str| unused(&source(text));
        for address in ["fs:///conf", "unix:///run/mcp"] {
            let text = format!("{{address: '{address}', tlsSettings: {{mode: ISTIO_MUTUAL}}}}");
            let warning = unused(&text).unwrap();
            let message = format!("configSources \"{address}\": tlsSettings has no effect: ");
            assert!(warning.starts_with(&message), "{warning}");
        }
        // A refused address has the warning, too.
        let text = "{address: 'fs://me:S3CRET@a', tlsSettings: {mode: ISTIO_MUTUAL}}";
        let warning = unused(text).unwrap();
        assert!(warning.contains("\"fs://…@a\""), "{warning}");
        for text in [
            "{address: 'fs:///conf'}",
            "{address: 'unix:///run/mcp'}",
            "{address: 'a:1', tlsSettings: {mode: ISTIO_MUTUAL}}",
            "{address: 'mcps://a:1', tlsSettings: {mode: ISTIO_MUTUAL}}",
        ] {
            assert_eq!(unused(text), None, "{text}");
        }
    }

    #[test]
    fn addresses_and_their_tls() {
        for (text, place, tls) in [
            ("address: 'mcp://a:1'", "a:1", None),
            ("address: 'a:1'", "a:1", None),
            ("address: 'unix:///run/mcp'", "unix:///run/mcp", None),
            (
                "address: 'mcp://a:1', tlsSettings: {mode: DISABLE}",
                "a:1",
                None,
            ),
            ("address: 'mcps://a:1'", "a:1", Some(MESH[2])),
            (
                "address: 'mcp://a:1', tlsSettings: {mode: ISTIO_MUTUAL}",
                "a:1",
                Some(MESH[2]),
            ),
            (
                "address: 'mcp://a:1', tlsSettings: {mode: SIMPLE, caCertificates: /r}",
                "a:1",
                Some("/r"),
            ),
        ] {
            let text = format!("{{{text}}}");
            let wanted = read(&text).unwrap();
            assert_eq!(wanted.place.to_string(), place, "{text}");
            let roots = wanted.tls.map(|files| files.roots.unwrap());
            assert_eq!(roots, tls.map(PathBuf::from), "{text}");
            assert!(!wanted.collections.iter().any(|one| one == SYNTHETIC));
        }
        let services = read("{address: 'a:1', subscribedResources: [SERVICE_REGISTRY]}").unwrap();
        assert_eq!(services.id, SERVICES);
        assert_eq!(
            services.collections.last().map(String::as_str),
            Some(SYNTHETIC)
        );
        let skips =
            "{address: 'a:1', tlsSettings: {mode: SIMPLE, insecureSkipVerify: true, sni: b}}";
        let files = read(skips).unwrap().tls.unwrap();
        assert_eq!(
            (files.roots, files.pair, files.server.as_deref()),
            (None, None, Some("b"))
        );
    }

    #[test]
    fn an_address_that_cannot_be_dialled_is_an_error() {
        for (text, message) in [
            (
                "address: 'http://a:1'",
                "\"http://a:1\": want mcp://HOST:PORT",
            ),
            ("address: 'mcp://a'", "\"mcp://a\": want mcp://HOST:PORT"),
            (
                "address: 'mcp://me:S3CRET@a:1'",
                "\"mcp://…@a:1\": want mcp://HOST:PORT",
            ),
            (
                "address: 'me:S3CRET@a:1'",
                "\"…@a:1\": want mcp://HOST:PORT",
            ),
            ("address: 'unix://a'", "\"unix://a\": want mcp://HOST:PORT"),
            ("address: ''", "\"\": want mcp://HOST:PORT"),
            (
                "address: 'mcps://a:1', tlsSettings: {mode: DISABLE}",
                "\"mcps://a:1\": tlsSettings.mode is DISABLE",
            ),
            (
                "address: 'a:1', tlsSettings: {mode: SIMPLE}",
                "\"a:1\": tlsSettings.caCertificates is required",
            ),
            (
                "address: 'a:1', tlsSettings: {mode: MUTUAL, caCertificates: /r}",
                "\"a:1\": tlsSettings.clientCertificate is required",
            ),
        ] {
            let error = read(&format!("{{{text}}}")).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
