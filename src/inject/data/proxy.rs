//! The proxy's configuration.

use api::mesh::ProxyConfig;
use gotmpl::Value;

use super::message;

/// The proxy's configuration, and how templates see it.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    pub(crate) config: ProxyConfig,
    pub(crate) value: Value,
}

/// What a configuration is to templates.
pub(crate) fn proxy_config(config: ProxyConfig) -> Result<Proxy, api::mesh::Invalid> {
    let fields = api::mesh::json(&config)?;
    let shown = api::mesh::chosen(&config)?;
    let kind = &api::schema::ISTIO_MESH_V1ALPHA1_PROXYCONFIG;
    let value = message(kind, fields, Some(shown));
    Ok(Proxy { config, value })
}
