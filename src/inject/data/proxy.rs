//! The proxy's configuration.

use api::mesh::ProxyConfig;
use gotmpl::Value;
use serde_json::{Map, Value as Json};

use super::message;

/// The proxy's configuration, and how templates see it.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    pub(crate) config: ProxyConfig,
    /// Fields that mesh and pod set explicitly.
    pub(crate) written: Map<String, Json>,
    pub(crate) value: Value,
}

/// Reads a configuration as templates see it; `written` has the fields that were set explicitly.
pub(crate) fn proxy_config(
    config: ProxyConfig,
    written: Map<String, Json>,
) -> Result<Proxy, api::mesh::Invalid> {
    let fields = api::mesh::json(&config)?;
    let printed = api::mesh::chosen(&config, &written)?;
    let kind = &api::schema::ISTIO_MESH_V1ALPHA1_PROXYCONFIG;
    let value = message(kind, fields, Some(printed));
    Ok(Proxy {
        config,
        written,
        value,
    })
}
