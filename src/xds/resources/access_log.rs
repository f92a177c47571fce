//! Access logs: the items that a proxy writes of each request and of each connection.

use std::collections::BTreeMap;

use api::istio::mesh::v1alpha1::mesh_config::AccessLogEncoding;
use api::mesh::MeshConfig;
use envoy_types::pb::envoy::config::accesslog::v3 as accesslog;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::access_loggers::file::v3::{
    FileAccessLog, file_access_log,
};
use envoy_types::pb::envoy::extensions::access_loggers::grpc::v3::{
    CommonGrpcAccessLogConfig, HttpGrpcAccessLogConfig, TcpGrpcAccessLogConfig,
};
use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::{
    StderrAccessLog, StdoutAccessLog, stderr_access_log, stdout_access_log,
};
use envoy_types::pb::google::protobuf::Any;
use prost::Name;

use super::log_service;
use crate::common::wire::{self, JsonFileLog, JsonFormat, JsonStreamLog, Object};

/// The items logged of each request, by their names in JSON.
const ITEMS: [(&str, &str); 23] = [
    ("start_time", "%START_TIME%"),
    ("method", "%REQ(:METHOD)%"),
    ("path", "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"),
    ("protocol", "%PROTOCOL%"),
    ("response_code", "%RESPONSE_CODE%"),
    ("response_flags", "%RESPONSE_FLAGS%"),
    (
        "istio_policy_status",
        "%DYNAMIC_METADATA(istio.mixer:status)%",
    ),
    (
        "upstream_transport_failure_reason",
        "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
    ),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    ("duration", "%DURATION%"),
    (
        "upstream_service_time",
        "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%",
    ),
    ("x_forwarded_for", "%REQ(X-FORWARDED-FOR)%"),
    ("user_agent", "%REQ(USER-AGENT)%"),
    ("request_id", "%REQ(X-REQUEST-ID)%"),
    ("authority", "%REQ(:AUTHORITY)%"),
    ("upstream_host", "%UPSTREAM_HOST%"),
    ("upstream_cluster", "%UPSTREAM_CLUSTER%"),
    ("upstream_local_address", "%UPSTREAM_LOCAL_ADDRESS%"),
    ("downstream_local_address", "%DOWNSTREAM_LOCAL_ADDRESS%"),
    ("downstream_remote_address", "%DOWNSTREAM_REMOTE_ADDRESS%"),
    ("requested_server_name", "%REQUESTED_SERVER_NAME%"),
    ("route_name", "%ROUTE_NAME%"),
];

const TEXT: &str = "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% \
%RESPONSE_FLAGS% \"%DYNAMIC_METADATA(istio.mixer:status)%\" \"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" %BYTES_RECEIVED% \
%BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" \
\"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER% %UPSTREAM_LOCAL_ADDRESS% \
%DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%\n";

/// The loggers of requests, and those of connections.
#[derive(Clone, Debug)]
pub(crate) struct AccessLog {
    pub(crate) http: Vec<accesslog::AccessLog>,
    pub(crate) tcp: Vec<accesslog::AccessLog>,
}

impl AccessLog {
    pub(crate) fn new(mesh: &MeshConfig) -> Self {
        let mut http: Vec<_> = file(mesh).into_iter().collect();
        let mut tcp = http.clone();
        if mesh.enable_envoy_access_log_service {
            let request = HttpGrpcAccessLogConfig {
                common_config: Some(common("http_envoy_accesslog")),
                ..HttpGrpcAccessLogConfig::default()
            };
            let connection = TcpGrpcAccessLogConfig {
                common_config: Some(common("tcp_envoy_accesslog")),
            };
            http.push(logger(
                "envoy.access_loggers.http_grpc",
                wire::any(&request),
            ));
            tcp.push(logger(
                "envoy.access_loggers.tcp_grpc",
                wire::any(&connection),
            ));
        }
        Self { http, tcp }
    }
}

fn logger(name: &str, config: Any) -> accesslog::AccessLog {
    accesslog::AccessLog {
        name: name.to_owned(),
        config_type: Some(accesslog::access_log::ConfigType::TypedConfig(config)),
        ..accesslog::AccessLog::default()
    }
}

fn common(name: &str) -> CommonGrpcAccessLogConfig {
    let service = core::grpc_service::EnvoyGrpc {
        cluster_name: log_service::NAME.to_owned(),
        ..core::grpc_service::EnvoyGrpc::default()
    };
    CommonGrpcAccessLogConfig {
        log_name: name.to_owned(),
        grpc_service: Some(core::GrpcService {
            target_specifier: Some(core::grpc_service::TargetSpecifier::EnvoyGrpc(service)),
            ..core::GrpcService::default()
        }),
        transport_api_version: core::ApiVersion::V3.into(),
        ..CommonGrpcAccessLogConfig::default()
    }
}

/// Standard output has loggers of its own: a proxy of another user cannot open it by its name.
fn file(mesh: &MeshConfig) -> Option<accesslog::AccessLog> {
    let path = mesh.access_log_file.as_str();
    if path.is_empty() {
        return None;
    }
    let name = match path {
        "/dev/stdout" => "envoy.access_loggers.stdout",
        "/dev/stderr" => "envoy.access_loggers.stderr",
        _ => "envoy.access_loggers.file",
    };
    let config = match mesh.access_log_encoding() {
        AccessLogEncoding::Json => json(path, &mesh.access_log_format),
        AccessLogEncoding::Text => text(path, &mesh.access_log_format),
    };
    Some(logger(name, config))
}

fn text(path: &str, format: &str) -> Any {
    let format = if format.is_empty() { TEXT } else { format };
    let format = core::SubstitutionFormatString {
        format: Some(core::substitution_format_string::Format::TextFormatSource(
            core::DataSource {
                specifier: Some(core::data_source::Specifier::InlineString(
                    format.to_owned(),
                )),
                ..core::DataSource::default()
            },
        )),
        ..core::SubstitutionFormatString::default()
    };
    match path {
        "/dev/stdout" => wire::any(&StdoutAccessLog {
            access_log_format: Some(stdout_access_log::AccessLogFormat::LogFormat(format)),
        }),
        "/dev/stderr" => wire::any(&StderrAccessLog {
            access_log_format: Some(stderr_access_log::AccessLogFormat::LogFormat(format)),
        }),
        path => wire::any(&FileAccessLog {
            path: path.to_owned(),
            access_log_format: Some(file_access_log::AccessLogFormat::LogFormat(format)),
        }),
    }
}

fn json(path: &str, format: &str) -> Any {
    // A format that is no object of texts was refused with the mesh configuration.
    let format_map: Option<BTreeMap<String, String>> = (!format.is_empty())
        .then(|| api::mesh::json_format(format))
        .flatten();
    let object = match &format_map {
        Some(format_map) => Object::of(
            format_map
                .iter()
                .map(|(name, text)| (name.as_str(), text.as_str())),
        ),
        None => Object::of(ITEMS),
    };
    let format = JsonFormat {
        json_format: Some(object),
    };
    match path {
        "/dev/stdout" | "/dev/stderr" => {
            let type_url = match path {
                "/dev/stdout" => StdoutAccessLog::type_url(),
                _ => StderrAccessLog::type_url(),
            };
            let log = JsonStreamLog {
                log_format: Some(format),
            };
            wire::any_of(type_url, &log)
        }
        path => {
            let log = JsonFileLog {
                path: path.to_owned(),
                log_format: Some(format),
            };
            wire::any_of(FileAccessLog::type_url(), &log)
        }
    }
}
