//! The mesh configuration: text over defaults, checked.

mod defaults;
mod networks;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use crate::duration;
use crate::overlay;
use crate::place::line_of;
use crate::read::Reader;
use crate::schema::{self, Message};
use crate::yaml::{self, Limits, Node, Value};

pub use crate::istio::mesh::v1alpha1::*;
pub use crate::read::Invalid;
pub use defaults::{
    discovery as discovery_defaults, mesh_config as defaults, proxy_config as proxy_defaults,
};
pub use networks::parse as parse_networks;
pub use pbjson_types::Duration;

const PROXY: &Message = &schema::ISTIO_MESH_V1ALPHA1_PROXYCONFIG;

/// A ConfigMap holds 1 MiB at most.
const LIMITS: Limits = Limits {
    bytes: 1 << 20,
    depth: 128,
    nodes: 100_000,
};

/// What was read, and what the reader should know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed<T> {
    pub config: T,
    pub warnings: Vec<String>,
}

/// A mesh configuration from YAML or JSON, over [`defaults()`]. Empty text is the defaults.
///
/// # Errors
///
/// What is malformed, of a wrong type or not valid, with its path.
pub fn parse(text: &str) -> Result<Parsed<MeshConfig>, Invalid> {
    parse_over(&defaults(), text)
}

/// As [`parse`], over the defaults of a role.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_over(base: &MeshConfig, text: &str) -> Result<Parsed<MeshConfig>, Invalid> {
    let node = document(text)?;
    let mesh = &schema::ISTIO_MESH_V1ALPHA1_MESHCONFIG;
    let parsed: Parsed<MeshConfig> = over(mesh, base, node.as_ref())?;
    rules::whole(&parsed.config).map_err(|mut invalid| {
        invalid.line = node.as_ref().map_or(0, |node| line_of(node, &invalid.path));
        invalid
    })?;
    if let Some(proxy) = &parsed.config.default_config {
        let place = node
            .as_ref()
            .and_then(|node| find(node, mesh, "default_config"));
        drains_in_time(proxy, place, "defaultConfig.drainDuration")?;
    }
    Ok(parsed)
}

/// The text of a pod's `proxy.istio.io/config` over the mesh's own.
///
/// # Errors
///
/// As [`parse`]; judged is what comes out.
pub fn parse_proxy(base: &ProxyConfig, text: &str) -> Result<Parsed<ProxyConfig>, Invalid> {
    let node = document(text)?;
    let parsed: Parsed<ProxyConfig> = over(PROXY, base, node.as_ref())?;
    drains_in_time(&parsed.config, node.as_ref(), "drainDuration")?;
    Ok(parsed)
}

/// A message as proto JSON: lowerCamel names, what is unset left out.
///
/// # Errors
///
/// Of a message that was made by hand: a number that no enumeration has, a duration of two signs.
pub fn json(message: &impl Serialize) -> Result<Map<String, Json>, Invalid> {
    match serde_json::to_value(message) {
        Ok(Json::Object(fields)) => Ok(fields),
        Ok(_) => Err(whole("want an object".to_owned())),
        Err(error) => Err(whole(error.to_string())),
    }
}

/// A ProxyConfig as proto JSON without what equals [`proxy_defaults`], so that it says what somebody chose.
///
/// # Errors
///
/// As [`json`].
pub fn chosen(config: &ProxyConfig) -> Result<Map<String, Json>, Invalid> {
    let usual = json(&proxy_defaults())?;
    let mut fields = json(config)?;
    fields.retain(|name, value| usual.get(name) != Some(value));
    Ok(fields)
}

/// The variant of the proxy's image, such as `distroless`: the one thing that is looked for in a message that is not checked.
#[must_use]
pub fn image_type(image: &pbjson_types::Struct) -> Option<String> {
    ["imageType", "image_type"].into_iter().find_map(|name| {
        let pbjson_types::value::Kind::StringValue(text) = image.fields.get(name)?.kind.as_ref()?
        else {
            return None;
        };
        Some(text.clone())
    })
}

/// The items of `accessLogFormat` with the encoding JSON: name and format. `None` for what [`parse`] refuses.
#[must_use]
pub fn json_format(format: &str) -> Option<BTreeMap<String, String>> {
    rules::json_format(format).ok()
}

fn document(text: &str) -> Result<Option<Node>, Invalid> {
    let node = yaml::read(text, LIMITS)?;
    Ok(node.filter(|node| !node.is_null()))
}

fn over<T: Serialize + DeserializeOwned>(
    message: &'static Message,
    base: &T,
    node: Option<&Node>,
) -> Result<Parsed<T>, Invalid> {
    let mut fields = json(base)?;
    let mut reader = Reader::new(rules::RULES);
    if let Some(node) = node {
        overlay::lay(message, &mut fields, reader.message(message, node)?);
    }
    let config =
        serde_json::from_value(Json::Object(fields)).map_err(|error| whole(error.to_string()))?;
    Ok(Parsed {
        config,
        warnings: reader.warning().into_iter().collect(),
    })
}

/// The value of a field as the text has it.
fn find<'tree>(node: &'tree Node, message: &Message, name: &str) -> Option<&'tree Node> {
    let Value::Map(entries) = &node.value else {
        return None;
    };
    entries
        .iter()
        .find(|(key, _)| message.field(key).is_some_and(|field| field.name == name))
        .map(|(_, value)| value)
}

/// Envoy drains while its parent is still there. `given`: the text of it, for the line.
fn drains_in_time(proxy: &ProxyConfig, given: Option<&Node>, path: &str) -> Result<(), Invalid> {
    let (Some(drain), Some(parent)) = (&proxy.drain_duration, &proxy.parent_shutdown_duration)
    else {
        return Ok(());
    };
    if duration::nanos(drain) < duration::nanos(parent) {
        return Ok(());
    }
    let place = given.and_then(|node| {
        find(node, PROXY, "drain_duration")
            .or_else(|| find(node, PROXY, "parent_shutdown_duration"))
    });
    Err(Invalid {
        path: path.to_owned(),
        line: place.map_or(0, |node| node.line),
        cause: format!(
            "want less than parentShutdownDuration, {}, got {}",
            duration::go(parent),
            duration::go(drain)
        ),
    })
}

fn whole(cause: String) -> Invalid {
    Invalid {
        path: String::new(),
        line: 0,
        cause,
    }
}
