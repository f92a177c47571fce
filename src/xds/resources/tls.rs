//! Mutual TLS between sidecars.

use envoy_types::pb::envoy::config::cluster::v3::cluster::TransportSocketMatch;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, SubjectAltNameMatcher,
    TlsCertificate, UpstreamTlsContext, common_tls_context, subject_alt_name_matcher,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher};
use envoy_types::pb::google::protobuf::{Struct, Value, value};

use super::wire;
use crate::node::Files;

/// What mutual TLS of the mesh is negotiated by.
pub(crate) const ALPN: &str = "istio";
const TLS: &str = "envoy.transport_sockets.tls";
const RAW: &str = "envoy.transport_sockets.raw_buffer";

/// What a server presents and asks for.
pub(crate) fn server(files: &Files, http: bool) -> core::TransportSocket {
    let protocols: &[&str] = if http {
        &[ALPN, "h2", "http/1.1"]
    } else {
        &[ALPN]
    };
    let context = DownstreamTlsContext {
        common_tls_context: Some(common(files, protocols, &[])),
        require_client_certificate: wire::boolean(true),
        ..DownstreamTlsContext::default()
    };
    wire::transport_socket(TLS, &context)
}

/// To endpoints that say so with mutual TLS, to the others without. `accounts`, sorted: who may answer; none: anybody with a
/// certificate of the mesh.
pub(crate) fn client(
    files: &Files,
    port: u16,
    host: &str,
    accounts: &[&str],
) -> Vec<TransportSocketMatch> {
    let context = UpstreamTlsContext {
        common_tls_context: Some(common(files, &[ALPN], accounts)),
        sni: format!("outbound_.{port}_._.{host}"),
        ..UpstreamTlsContext::default()
    };
    vec![
        TransportSocketMatch {
            name: "tlsMode-istio".to_owned(),
            r#match: Some(Struct {
                fields: [("tlsMode".to_owned(), text("istio"))].into(),
            }),
            transport_socket: Some(wire::transport_socket(TLS, &context)),
        },
        TransportSocketMatch {
            name: "tlsMode-disabled".to_owned(),
            r#match: Some(Struct::default()),
            transport_socket: Some(wire::transport_socket(RAW, &RawBuffer {})),
        },
    ]
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
        tls_certificates: vec![TlsCertificate {
            certificate_chain: Some(wire::file(&files.chain)),
            private_key: Some(wire::file(&files.key)),
            ..TlsCertificate::default()
        }],
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
