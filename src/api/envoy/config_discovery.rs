//! Extensions whose configuration Envoy would ask discovery for, which serves none: their listeners would answer nothing but
//! errors.

use serde_json::Value as Json;

/// The message that says where the configuration of an extension comes from.
pub(super) const SOURCE: &str = "envoy.config.core.v3.ExtensionConfigSource";

/// The message of a value that asks discovery.
pub(super) const NOT_SERVED: &str =
    "discovery serves no extension configuration: write it in typed_config";

/// Discovery's cluster in the bootstrap of a proxy.
const DISCOVERY: &str = "xds-grpc";

/// Returns true if Envoy would ask discovery; else it reads a file, or asks another server.
pub(super) fn asks_discovery(source: &Json) -> bool {
    let Some(source) = field(source, "config_source", "configSource") else {
        return true;
    };
    if ["path", "path_config_source", "pathConfigSource"]
        .iter()
        .any(|name| is_set(source.get(name)))
    {
        return false;
    }
    let Some(server) = field(source, "api_config_source", "apiConfigSource") else {
        return true;
    };
    let services = field(server, "grpc_services", "grpcServices").and_then(Json::as_array);
    services.into_iter().flatten().any(|service| {
        let envoy = field(service, "envoy_grpc", "envoyGrpc");
        let cluster = envoy.and_then(|envoy| field(envoy, "cluster_name", "clusterName"));
        cluster.and_then(Json::as_str) == Some(DISCOVERY)
    })
}

fn field<'a>(value: &'a Json, name: &str, json_name: &str) -> Option<&'a Json> {
    let field_value = value.get(name).or_else(|| value.get(json_name));
    field_value.filter(|one| is_set(Some(one)))
}

fn is_set(value: Option<&Json>) -> bool {
    value.is_some_and(|value| !value.is_null())
}
