//! TLS that a rule wants of connections, in place of the mesh's.

use api::config::discovery_notes::is_sni;
use api::istio::networking::v1alpha3::ClientTlsSettings;
use api::istio::networking::v1alpha3::client_tls_settings::TlSmode;
use api::istio::networking::v1alpha3::traffic_policy::{ProxyProtocol, proxy_protocol};
use api::model::Registry;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::proxy_protocol_config::Version;
use envoy_types::pb::envoy::config::core::v3::{TransportSocket, UpstreamHttpProtocolOptions};

use super::Purpose;
use super::credentials::{self, NamedSecrets, client_files};
use crate::common::tls::{self, Root, SYSTEM, SYSTEM_ROOTS};
use crate::common::upstream_http::{UpstreamHttp, is_http2, speaking};
use crate::finish::ClusterParts;

/// A program with gRPC in it refuses a cluster with files, and says so: that is better than to call it in plain text.
///
/// # Errors
///
/// A certificate that it names is not to be had.
pub(super) fn secure(
    parts: &mut ClusterParts,
    settings: &ClientTlsSettings,
    purpose: &Purpose<'_>,
) -> Result<(), String> {
    let by_name = purpose.secrets;
    let by_name = by_name.map(|secrets| credentials::named_secrets(settings, secrets));
    let by_name = by_name.transpose()?.flatten();
    // A rule's TLS holds for all endpoints, whatever their labels ask for.
    parts.cluster.transport_socket_matches.clear();
    parts.cluster.transport_socket = match settings.mode() {
        TlSmode::Disable => None,
        TlSmode::IstioMutual => Some(mutual(settings, purpose)),
        TlSmode::Simple | TlSmode::Mutual => {
            let mut settings = with_names_of_entry(settings, purpose);
            // Envoy refuses the whole cluster for it.
            if !is_sni(&settings.sni) {
                settings.sni.clear();
            }
            let speaks_http2 = parts.http.as_ref().is_some_and(is_http2);
            if settings.sni.is_empty() && !purpose.grpc {
                name_by_host(parts, &settings);
            }
            Some(of_service(&settings, purpose, by_name, speaks_http2))
        }
    };
    Ok(())
}

/// The mesh's mutual TLS, with the names that a rule sets.
fn mutual(settings: &ClientTlsSettings, purpose: &Purpose<'_>) -> TransportSocket {
    let own = Some(&settings.sni).filter(|name| !name.is_empty() && is_sni(name));
    let of_mesh = || tls::server_name(purpose.port, purpose.subset, purpose.host);
    let sni = own.cloned().unwrap_or_else(of_mesh);
    let accounts: Vec<&str> = if settings.subject_alt_names.is_empty() {
        purpose.accounts.iter().map(|account| &**account).collect()
    } else {
        let names = settings.subject_alt_names.iter();
        names.map(String::as_str).collect()
    };
    if purpose.grpc {
        tls::mutual_of_provider(sni, &accounts)
    } else {
        tls::mutual(purpose.files, sni, &accounts, purpose.oldest_tls)
    }
}

/// TLS of a service that has certificates of its own.
fn of_service(
    settings: &ClientTlsSettings,
    purpose: &Purpose<'_>,
    by_name: Option<NamedSecrets>,
    speaks_http2: bool,
) -> TransportSocket {
    let alpn: &[&str] = if speaks_http2 { &["h2"] } else { &[] };
    let (pair, root) = client_files(settings);
    if purpose.grpc {
        let compares = !settings.subject_alt_names.is_empty();
        let root = match &*settings.ca_certificates {
            "" | SYSTEM if !compares => Root::OfGrpc,
            "" | SYSTEM => Root::File(SYSTEM_ROOTS),
            root => Root::File(root),
        };
        let pair = pair.map(|pair| (pair.chain, pair.key));
        return tls::service(settings, pair, root, alpn);
    }
    let names = by_name.unwrap_or_else(|| NamedSecrets {
        pair: pair.map(|pair| pair.name()),
        root: root.map(|root| root.name()),
    });
    let timeout = purpose.initial_fetch_timeout;
    tls::service_by_name(settings, &names.pair, &names.root, timeout, alpn)
}

/// As in Istio, the names that a ServiceEntry lists are those of its servers, unless the rule lists others.
fn with_names_of_entry(settings: &ClientTlsSettings, purpose: &Purpose<'_>) -> ClientTlsSettings {
    let mut settings = settings.clone();
    if purpose.registry == Registry::External && settings.subject_alt_names.is_empty() {
        let names = purpose.accounts.iter();
        settings.subject_alt_names = names.map(|name| (**name).to_owned()).collect();
    }
    settings
}

/// Has connections say the host of their request, and servers prove that name, unless the rule names others. Routes of requests
/// lead to ports of any protocol; connections without requests say no name, and nothing is compared there.
fn name_by_host(parts: &mut ClusterParts, settings: &ClientTlsSettings) {
    // Envoy requires a protocol among these options; HTTP/1 is what it speaks without them.
    let http = parts
        .http
        .get_or_insert_with(|| speaking(UpstreamHttp::Http1));
    http.upstream_http_protocol_options = Some(UpstreamHttpProtocolOptions {
        // Envoy sends no server name by itself.
        auto_sni: true,
        // Without it any certificate of the root would do, and a root of the system signs everybody's.
        auto_san_validation: credentials::checks(settings) && settings.subject_alt_names.is_empty(),
        ..UpstreamHttpProtocolOptions::default()
    });
}

/// Makes connections of the cluster begin with a PROXY protocol header that names the client, whatever protocol follows.
pub(super) fn announce(cluster: &mut Cluster, protocol: &ProxyProtocol) {
    let version = match protocol.version() {
        proxy_protocol::Version::V1 => Version::V1,
        proxy_protocol::Version::V2 => Version::V2,
    };
    for socket in &mut cluster.transport_socket_matches {
        socket.transport_socket = Some(tls::announced(socket.transport_socket.take(), version));
    }
    // Without a socket connections are plain, and get one that begins with the header alone.
    if cluster.transport_socket_matches.is_empty() || cluster.transport_socket.is_some() {
        cluster.transport_socket = Some(tls::announced(cluster.transport_socket.take(), version));
    }
}
