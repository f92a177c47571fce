//! The HTTP that connections of a cluster speak.

use api::model::Protocol;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::{
    HttpProtocolOptions, http_protocol_options,
};

use super::wire;

/// Concurrent streams of one connection, as Envoy's own default.
const MAX_STREAMS: u32 = 1_073_741_824;

/// Returns the HTTP version of a cluster: HTTP/2 where the port declares it, the client's version where the port declares
/// nothing.
pub(crate) fn options(protocol: Protocol) -> Option<HttpProtocolOptions> {
    if protocol.is_http2() {
        Some(speaking(UpstreamHttp::Http2))
    } else if protocol.is_auto() {
        Some(speaking(UpstreamHttp::Clients))
    } else {
        None
    }
}

/// The HTTP version of a cluster's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamHttp {
    Http1,
    Http2,
    /// The version that the client speaks.
    Clients,
}

pub(crate) fn speaking(spoken: UpstreamHttp) -> HttpProtocolOptions {
    use http_protocol_options::explicit_http_config::ProtocolConfig;
    use http_protocol_options::{
        ExplicitHttpConfig, UpstreamProtocolOptions, UseDownstreamHttpConfig,
    };
    let http2 = core::Http2ProtocolOptions {
        max_concurrent_streams: wire::number(MAX_STREAMS),
        ..core::Http2ProtocolOptions::default()
    };
    let explicit = |config| {
        UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
            protocol_config: Some(config),
        })
    };
    let http1 = core::Http1ProtocolOptions::default;
    let options = match spoken {
        UpstreamHttp::Http1 => explicit(ProtocolConfig::HttpProtocolOptions(http1())),
        UpstreamHttp::Http2 => explicit(ProtocolConfig::Http2ProtocolOptions(http2)),
        UpstreamHttp::Clients => {
            UpstreamProtocolOptions::UseDownstreamProtocolConfig(UseDownstreamHttpConfig {
                http_protocol_options: Some(http1()),
                http2_protocol_options: Some(http2),
                ..UseDownstreamHttpConfig::default()
            })
        }
    };
    HttpProtocolOptions {
        upstream_protocol_options: Some(options),
        ..HttpProtocolOptions::default()
    }
}

/// Returns true if the options allow HTTP/2 alone.
pub(crate) fn is_http2(options: &HttpProtocolOptions) -> bool {
    use http_protocol_options::UpstreamProtocolOptions;
    use http_protocol_options::explicit_http_config::ProtocolConfig;
    matches!(
        &options.upstream_protocol_options,
        Some(UpstreamProtocolOptions::ExplicitHttpConfig(explicit))
            if matches!(explicit.protocol_config, Some(ProtocolConfig::Http2ProtocolOptions(_)))
    )
}
