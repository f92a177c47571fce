//! Mutual TLS between sidecars.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use api::config::discovery_notes::is_sni;
use api::istio::networking::v1alpha3::ClientTlsSettings;
use envoy_types::pb::envoy::config::cluster::v3::cluster::TransportSocketMatch;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;
use envoy_types::pb::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateProviderPluginInstance, CertificateValidationContext, CommonTlsContext,
    DownstreamTlsContext, SdsSecretConfig, SubjectAltNameMatcher, TlsCertificate, TlsParameters,
    UpstreamTlsContext, common_tls_context, subject_alt_name_matcher, tls_parameters::TlsProtocol,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher};
use envoy_types::pb::google::protobuf::{Struct, Value, value};

use super::wire;
use crate::cluster_names;
use crate::node::Files;
use crate::version::Version;

/// The ALPN protocol by which the mesh negotiates mutual TLS.
pub(crate) const ALPN: &str = "istio";
const TLS: &str = "envoy.transport_sockets.tls";
const ANNOUNCED: &str = "envoy.transport_sockets.upstream_proxy_protocol";
const RAW: &str = "envoy.transport_sockets.raw_buffer";

/// The transport socket of a server that presents its certificate and requires the client's. `oldest`: of the TLS that it takes.
pub(crate) fn server(files: &Files, http: bool, oldest: TlsProtocol) -> core::TransportSocket {
    // Where the mesh's own name is agreed on, Envoy takes any request for HTTP/1. Without it the first bytes say what is spoken.
    let protocols: &[&str] = if http { &["h2", "http/1.1"] } else { &[ALPN] };
    let context = DownstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_params: (oldest != TlsProtocol::TlsAuto).then(|| TlsParameters {
                tls_minimum_protocol_version: oldest.into(),
                ..TlsParameters::default()
            }),
            ..common(files, protocols, &[])
        }),
        require_client_certificate: wire::boolean(true),
        ..DownstreamTlsContext::default()
    };
    wire::transport_socket(TLS, &context)
}

/// The reason why clients call an endpoint in plain text although its labels ask for mutual TLS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PlaintextReason {
    /// The proxy at this address has no certificates.
    Proxy(IpAddr),
    /// The policies that hold for the endpoint, by name and with what they select and say: a policy that is narrowed has other
    /// endpoints.
    Policies(String),
}

impl fmt::Display for PlaintextReason {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proxy(address) => address.fmt(to),
            Self::Policies(policies) => to.write_str(policies),
        }
    }
}

/// Builds the transport sockets of a cluster of the mesh: mutual TLS to endpoints whose labels ask for it, plain text to the
/// others. `accounts`, sorted: the accounts that may answer; empty: any certificate of the mesh. `oldest`: the oldest TLS that
/// servers take.
///
/// `plain`: the reasons why some endpoints are called in plain text though their labels ask for mutual TLS. Envoy keeps a
/// connection for as long as it is of use, and an endpoint whose metadata changes keeps its connections: where the reasons
/// differ the cluster does, so that all connections are made anew. One more endpoint for a policy's reason changes nothing.
pub(crate) fn client(
    files: &Files,
    (port, subset, host): (u16, &str, &str),
    (accounts, oldest): (&[&str], TlsProtocol),
    plaintext: &BTreeSet<PlaintextReason>,
) -> Vec<TransportSocketMatch> {
    let secured = mutual(files, server_name(port, subset, host), accounts, oldest);
    let reasons: Vec<_> = plaintext.iter().map(ToString::to_string).collect();
    let version = Version::of(reasons.join(",").as_bytes());
    // No endpoint has this mode: the entry changes the cluster's bytes and nothing else.
    let marker = (!plaintext.is_empty()).then(|| TransportSocketMatch {
        name: format!("tlsMode-plain-{version}"),
        r#match: Some(Struct {
            fields: [("tlsMode".to_owned(), text("plain"))].into(),
        }),
        transport_socket: Some(wire::transport_socket(RAW, &RawBuffer {})),
    });
    let usual = [
        TransportSocketMatch {
            name: "tlsMode-istio".to_owned(),
            r#match: Some(Struct {
                fields: [("tlsMode".to_owned(), text("istio"))].into(),
            }),
            transport_socket: Some(secured),
        },
        // Envoy takes the first match, and an empty one matches every endpoint: it stands last.
        TransportSocketMatch {
            name: "tlsMode-disabled".to_owned(),
            r#match: Some(Struct::default()),
            transport_socket: Some(wire::transport_socket(RAW, &RawBuffer {})),
        },
    ];
    marker.into_iter().chain(usual).collect()
}

/// Builds a transport socket with mutual TLS of the mesh. `sni`: the name of the server that the client says.
pub(crate) fn mutual(
    files: &Files,
    sni: String,
    accounts: &[&str],
    oldest: TlsProtocol,
) -> core::TransportSocket {
    let context = UpstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            // Clients speak 1.2 at most where nothing else is said (envoy/extensions/transport_sockets/tls/v3/common.proto).
            tls_params: (oldest == TlsProtocol::TlSv13).then(|| TlsParameters {
                tls_maximum_protocol_version: oldest.into(),
                ..TlsParameters::default()
            }),
            ..common(files, &[ALPN], accounts)
        }),
        sni,
        ..UpstreamTlsContext::default()
    };
    wire::transport_socket(TLS, &context)
}

/// The name of one port's server in the mesh.
pub(crate) fn server_name(port: u16, subset: &str, host: &str) -> String {
    let name = cluster_names::by_server_name(port, subset, host);
    // Envoy refuses the cluster for a longer one, and sidecars do not ask for it.
    if is_sni(&name) { name } else { String::new() }
}

/// Builds the socket of [`mutual`] for proxyless gRPC. It takes no names of files: its bootstrap has providers of certificates,
/// which Istio calls so, and it takes accounts as a field that Envoy has given up (gRFC A29).
pub(crate) fn mutual_of_provider(sni: String, accounts: &[&str]) -> core::TransportSocket {
    let provided = |name: &str| CertificateProviderPluginInstance {
        instance_name: "default".to_owned(),
        certificate_name: name.to_owned(),
    };
    let accounts = accounts.iter().map(|account| StringMatcher {
        match_pattern: Some(string_matcher::MatchPattern::Exact((*account).to_owned())),
        ..StringMatcher::default()
    });
    #[allow(deprecated, reason = "gRPC knows no other")]
    let validation = CertificateValidationContext {
        ca_certificate_provider_instance: Some(provided("ROOTCA")),
        match_subject_alt_names: accounts.collect(),
        ..CertificateValidationContext::default()
    };
    let validation = common_tls_context::ValidationContextType::ValidationContext(validation);
    let context = UpstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_certificate_provider_instance: Some(provided("default")),
            validation_context_type: Some(validation),
            ..CommonTlsContext::default()
        }),
        sni,
        ..UpstreamTlsContext::default()
    };
    wire::transport_socket(TLS, &context)
}

/// The system's roots in Debian and distroless images. A proxy without this file refuses the clusters that want it, and no
/// others.
pub(crate) const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The word of `caCertificates` that asks for them.
pub(crate) const SYSTEM: &str = "system";

/// The roots that a server is checked with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Root<'a> {
    File(&'a str),
    /// Those that a program with gRPC finds by itself, by `system_root_certs`. Envoy 1.40 takes that field, and checks no server
    /// where it stands alone.
    OfGrpc,
}

/// Builds a transport socket to a service outside of the mesh, or by the mesh's files. `own`: the client's certificate and key;
/// `None`: without.
pub(crate) fn service(
    settings: &ClientTlsSettings,
    own: Option<(&str, &str)>,
    root: Root<'_>,
    alpn: &[&str],
) -> core::TransportSocket {
    let skips = settings.insecure_skip_verify.as_ref();
    let checks = !skips.is_some_and(|skips| skips.value);
    let (file, of_grpc) = match root {
        Root::File(file) => (Some(file), None),
        Root::OfGrpc => (None, Some(Default::default())),
    };
    let validation = CertificateValidationContext {
        trusted_ca: file.filter(|_| checks).map(wire::file),
        system_root_certs: of_grpc.filter(|_| checks),
        // Envoy refuses a revocation list, or names to match, without a root that checks the certificate.
        crl: (checks && !settings.ca_crl.is_empty()).then(|| wire::file(&settings.ca_crl)),
        ..of_names(settings, checks)
    };
    let common = CommonTlsContext {
        tls_certificates: own.map(pair).into_iter().collect(),
        validation_context_type: Some(
            common_tls_context::ValidationContextType::ValidationContext(validation),
        ),
        ..CommonTlsContext::default()
    };
    to_service(settings, common, alpn)
}

/// Builds the socket of [`service`] with secrets by name: a certificate with its key, and a root. Without a root the server is
/// not checked.
pub(crate) fn service_by_name(
    settings: &ClientTlsSettings,
    own: &Option<String>,
    root: &Option<String>,
    initial_fetch_timeout: Duration,
    alpn: &[&str],
) -> core::TransportSocket {
    use common_tls_context::{CombinedCertificateValidationContext, ValidationContextType};
    let config = |name: &String| SdsSecretConfig {
        name: name.clone(),
        sds_config: Some(wire::ads(initial_fetch_timeout)),
    };
    let names = of_names(settings, root.is_some());
    let validation = match root {
        Some(root) => {
            ValidationContextType::CombinedValidationContext(CombinedCertificateValidationContext {
                default_validation_context: Some(names),
                validation_context_sds_secret_config: Some(config(root)),
                ..CombinedCertificateValidationContext::default()
            })
        }
        None => ValidationContextType::ValidationContext(names),
    };
    let common = CommonTlsContext {
        tls_certificate_sds_secret_configs: own.iter().map(config).collect(),
        validation_context_type: Some(validation),
        ..CommonTlsContext::default()
    };
    to_service(settings, common, alpn)
}

/// Names that a server's certificate is to have.
fn of_names(settings: &ClientTlsSettings, checks: bool) -> CertificateValidationContext {
    // Envoy refuses names to match where no root checks the certificate.
    let names = settings.subject_alt_names.iter().filter(|_| checks);
    CertificateValidationContext {
        match_typed_subject_alt_names: names.flat_map(|name| of_any_kind(name)).collect(),
        ..CertificateValidationContext::default()
    }
}

fn to_service(
    settings: &ClientTlsSettings,
    common: CommonTlsContext,
    alpn: &[&str],
) -> core::TransportSocket {
    let context = UpstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            alpn_protocols: alpn.iter().map(|&name| name.to_owned()).collect(),
            ..common
        }),
        sni: settings.sni.clone(),
        ..UpstreamTlsContext::default()
    };
    wire::transport_socket(TLS, &context)
}

/// A connection that begins with PROXY's line, inside which `socket` speaks; none: without TLS.
pub(crate) fn announced(
    socket: Option<core::TransportSocket>,
    version: core::proxy_protocol_config::Version,
) -> core::TransportSocket {
    let announced = ProxyProtocolUpstreamTransport {
        config: Some(core::ProxyProtocolConfig {
            version: version.into(),
            ..core::ProxyProtocolConfig::default()
        }),
        transport_socket: Some(
            // Envoy requires an inner socket, also for plain text.
            socket.unwrap_or_else(|| wire::transport_socket(RAW, &RawBuffer {})),
        ),
        ..ProxyProtocolUpstreamTransport::default()
    };
    wire::transport_socket(ANNOUNCED, &announced)
}

pub(crate) fn pair((chain, key): (&str, &str)) -> TlsCertificate {
    TlsCertificate {
        certificate_chain: Some(wire::file(chain)),
        private_key: Some(wire::file(key)),
        ..TlsCertificate::default()
    }
}

/// A name of each kind that it may be.
pub(crate) fn of_any_kind(name: &str) -> [SubjectAltNameMatcher; 2] {
    use subject_alt_name_matcher::SanType;
    // A rule does not say which kind of name it means, and Envoy's matcher takes one kind each. A matcher of a kind that the
    // text cannot be would cost its memory for nothing.
    let (kinds, text) = match name.parse::<IpAddr>() {
        // Some certificates have an address as the name of a host. Envoy compares addresses as it writes them itself.
        Ok(address) => ([SanType::IpAddress, SanType::Dns], address.to_string()),
        Err(_) if name.contains('@') => ([SanType::Uri, SanType::Email], name.to_owned()),
        Err(_) => ([SanType::Uri, SanType::Dns], name.to_owned()),
    };
    kinds.map(|kind| SubjectAltNameMatcher {
        san_type: kind.into(),
        ..exactly(&text)
    })
}

/// The transport socket of a server with this context.
pub(crate) fn socket(context: &DownstreamTlsContext) -> core::TransportSocket {
    wire::transport_socket(TLS, context)
}

fn text(text: &str) -> Value {
    Value {
        kind: Some(value::Kind::StringValue(text.to_owned())),
    }
}

fn common(files: &Files, protocols: &[&str], accounts: &[&str]) -> CommonTlsContext {
    let validation = CertificateValidationContext {
        trusted_ca: Some(wire::file(&files.root)),
        match_typed_subject_alt_names: accounts.iter().map(|account| exactly(account)).collect(),
        ..CertificateValidationContext::default()
    };
    CommonTlsContext {
        tls_certificates: vec![pair((&files.chain, &files.key))],
        alpn_protocols: protocols.iter().map(|&name| name.to_owned()).collect(),
        validation_context_type: Some(
            common_tls_context::ValidationContextType::ValidationContext(validation),
        ),
        ..CommonTlsContext::default()
    }
}

fn exactly(account: &str) -> SubjectAltNameMatcher {
    SubjectAltNameMatcher {
        san_type: subject_alt_name_matcher::SanType::Uri.into(),
        matcher: Some(StringMatcher {
            match_pattern: Some(string_matcher::MatchPattern::Exact(account.to_owned())),
            ..StringMatcher::default()
        }),
        ..SubjectAltNameMatcher::default()
    }
}
