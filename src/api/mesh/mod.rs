//! The mesh configuration: text over defaults, checked.

mod defaults;
mod networks;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json};

use crate::config::document::Part;
use crate::config::rules::mesh::{self as rules, MeshConfigUse};
use crate::config::{Finding, Severity, limit, read_message};
use crate::overlay;
use crate::read::{self, Read};
use crate::schema::{self, Message, Typed};
use crate::yaml::{self, Limits, Node};

pub use crate::google::protobuf::Duration;
pub use crate::istio::mesh::v1alpha1::*;
pub use crate::read::Invalid;
pub use defaults::{
    discovery as discovery_defaults, galley as galley_defaults, mesh_config as defaults,
    proxy_config as proxy_defaults,
};
pub use networks::parse as parse_networks;

impl Typed for MeshConfig {
    const MESSAGE: &'static Message = &schema::ISTIO_MESH_V1ALPHA1_MESHCONFIG;
}

impl Typed for MeshNetworks {
    const MESSAGE: &'static Message = &schema::ISTIO_MESH_V1ALPHA1_MESHNETWORKS;
}

impl Typed for ProxyConfig {
    const MESSAGE: &'static Message = &schema::ISTIO_MESH_V1ALPHA1_PROXYCONFIG;
}

/// A ConfigMap holds 1 MiB at most.
const LIMITS: Limits = Limits {
    bytes: 1 << 20,
    depth: 128,
    nodes: 100_000,
};

/// A pod's author writes less, and aliases of a few bytes may stand for as many values as are allowed.
const POD_LIMITS: Limits = Limits {
    nodes: 2_000,
    ..LIMITS
};

/// A configuration, and the warnings of reading it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed<T> {
    pub config: T,
    /// The fields of the text as proto JSON, without those that it is laid over.
    pub written: Map<String, Json>,
    pub warnings: Vec<String>,
}

impl<T: Clone> Parsed<T> {
    /// A text that says nothing.
    fn unchanged(base: &T) -> Self {
        Self {
            config: base.clone(),
            written: Map::new(),
            warnings: Vec::new(),
        }
    }
}

/// A mesh configuration from YAML or JSON, over [`defaults()`]. Empty text is the defaults.
///
/// # Errors
///
/// A text that is malformed, of a wrong type or not valid, with its path.
pub fn parse(text: &str) -> Result<Parsed<MeshConfig>, Invalid> {
    over(&defaults(), text, LIMITS, |merged, written| {
        rules::check(merged, written, MeshConfigUse::Own)
    })
}

/// As [`parse`], over the defaults of a role that makes resources of it: values that Envoy would refuse are invalid.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_over(base: &MeshConfig, text: &str) -> Result<Parsed<MeshConfig>, Invalid> {
    over(base, text, LIMITS, |merged, written| {
        rules::check(merged, written, MeshConfigUse::Discovery)
    })
}

/// As [`parse`], over [`galley_defaults()`] and by the rules of a configuration that is handed on: those that all releases
/// have. Warnings name one field each.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_served(text: &str) -> Result<Parsed<MeshConfig>, Invalid> {
    let base = galley_defaults();
    let Some(node) = document(text, LIMITS)? else {
        return Ok(Parsed::unchanged(&base));
    };
    let parsed = over_tree(&base, &served_part(&node), |merged, written| {
        rules::check(merged, written, MeshConfigUse::Served)
    })?;
    Ok(Parsed {
        warnings: warnings(&node),
        ..parsed
    })
}

/// Fields whose messages have grown with the releases: a sink could interpret fields in them that were not checked.
const UNSERVED: [&str; 2] = ["extensionProviders", "serviceScopeConfigs"];
/// The same of `defaultConfig`.
const UNSERVED_OF_PROXY: [&str; 4] = [
    "image",
    "privateKeyProvider",
    "proxyHeaders",
    "readinessProbe",
];

/// Returns a configuration without the fields that are not served: errors in them are warnings.
fn served_part(node: &Node) -> Node {
    let mut served = node.clone();
    let yaml::Value::Map(fields) = &mut served.value else {
        return served;
    };
    leave_out(fields, MeshConfig::MESSAGE, &UNSERVED);
    for (name, proxy) in fields {
        if let yaml::Value::Map(fields) = &mut proxy.value
            && is_one_of(MeshConfig::MESSAGE, name, &["defaultConfig"])
        {
            leave_out(fields, ProxyConfig::MESSAGE, &UNSERVED_OF_PROXY);
        }
    }
    served
}

fn leave_out(fields: &mut Vec<(String, Node)>, message: &'static Message, names: &[&str]) {
    fields.retain(|(name, _)| !is_one_of(message, name, names));
}

/// Returns true if a name, in either spelling, is that of one of the fields.
fn is_one_of(message: &'static Message, name: &str, fields: &[&str]) -> bool {
    let field = message.field(name);
    field.is_some_and(|field| fields.contains(&field.json))
}

/// The text of a pod's `proxy.istio.io/config` over the mesh's own.
///
/// # Errors
///
/// As [`parse`]; the rules check the result.
pub fn parse_proxy(base: &ProxyConfig, text: &str) -> Result<Parsed<ProxyConfig>, Invalid> {
    over(base, text, POD_LIMITS, rules::proxy)
}

/// The fields of the `defaultConfig` of a mesh configuration that [`parse`] takes, as proto JSON and as the text says them.
///
/// # Errors
///
/// As [`parse`].
pub fn written_defaults(text: &str) -> Result<Map<String, Json>, Invalid> {
    let Some(node) = document(text, LIMITS)? else {
        return Ok(Map::new());
    };
    let read =
        read::tree(MeshConfig::MESSAGE, &node).map_err(|finding| Invalid::at(finding, &node))?;
    let mut fields = read.fields;
    match fields.remove("defaultConfig") {
        Some(Json::Object(written)) => Ok(written),
        _ => Ok(Map::new()),
    }
}

/// Merges the fields that two texts wrote of one ProxyConfig: `later` laid over `earlier`.
#[must_use]
pub fn written_over(earlier: &Map<String, Json>, later: Map<String, Json>) -> Map<String, Json> {
    let mut merged = earlier.clone();
    overlay::lay(ProxyConfig::MESSAGE, &mut merged, later);
    merged
}

/// Returns a message as proto JSON: lowerCamel names, without unset fields.
///
/// # Errors
///
/// The message is nested too deeply, which only a message that was made by hand can be.
pub fn json(message: &impl Typed) -> Result<Map<String, Json>, Invalid> {
    read::to_json(message)
}

/// The fields of [`proxy_defaults`] that have another default in Istio's own agents: left out they would mean something else
/// to one of them.
const DEFAULTS_OF_OURS: [&str; 4] = [
    "concurrency",
    "controlPlaneAuthPolicy",
    "discoveryAddress",
    "tracing",
];

/// Returns a ProxyConfig as proto JSON without the values of [`proxy_defaults`], so that it has the user's choices alone. Fields
/// for which another agent has other defaults stay if `written` has them.
///
/// # Errors
///
/// As [`json`].
pub fn chosen(
    config: &ProxyConfig,
    written: &Map<String, Json>,
) -> Result<Map<String, Json>, Invalid> {
    let usual = json(&proxy_defaults())?;
    let mut fields = json(config)?;
    fields.retain(|name, value| {
        usual.get(name) != Some(value)
            || (DEFAULTS_OF_OURS.contains(&name.as_str()) && written.contains_key(name))
    });
    Ok(fields)
}

/// The items of `accessLogFormat` with the encoding JSON: name and format. `None` for a text that [`parse`] refuses.
#[must_use]
pub fn json_format(format: &str) -> Option<BTreeMap<String, String>> {
    rules::json_format(format).ok()
}

/// Returns the names of the fields at the top of a mesh configuration, as they are written; none of a text that [`parse`] refuses.
#[must_use]
pub fn written_fields(text: &str) -> BTreeSet<String> {
    let node = document(text, LIMITS).ok().flatten();
    match node.map(|node| node.value) {
        Some(yaml::Value::Map(fields)) => fields.into_iter().map(|(name, _)| name).collect(),
        Some(yaml::Value::Scalar(_) | yaml::Value::List(_)) | None => BTreeSet::new(),
    }
}

fn document(text: &str, limits: Limits) -> Result<Option<Node>, Invalid> {
    let Some(node) = yaml::read_core(text, limits)?.filter(|node| !node.is_null()) else {
        return Ok(None);
    };
    // As `kubectl get -o yaml` writes it. No configuration of ours has a kind.
    let is_config_map = match &node.value {
        yaml::Value::Map(fields) => fields
            .iter()
            .any(|(name, value)| name == "kind" && value.to_json() == "ConfigMap"),
        yaml::Value::Scalar(_) | yaml::Value::List(_) => false,
    };
    if is_config_map {
        return Err(Invalid::at(
            Finding::error(
                "kind",
                "this is a ConfigMap; give the text of its data.mesh, or of data.meshNetworks for the networks",
            ),
            &node,
        ));
    }
    Ok(Some(node))
}

/// Lays a text over a message. `rules` check the result together with the written text.
fn over<T: Typed>(
    base: &T,
    text: &str,
    limits: Limits,
    rules: impl Fn(&Json, &Json) -> Vec<Finding>,
) -> Result<Parsed<T>, Invalid> {
    match document(text, limits)? {
        Some(node) => over_tree(base, &node, rules),
        None => Ok(Parsed::unchanged(base)),
    }
}

fn over_tree<T: Typed>(
    base: &T,
    node: &Node,
    rules: impl Fn(&Json, &Json) -> Vec<Finding>,
) -> Result<Parsed<T>, Invalid> {
    let Read {
        fields,
        mut warnings,
    } = read::tree(T::MESSAGE, node).map_err(|finding| Invalid::at(finding, node))?;
    let mut merged = json(base)?;
    overlay::lay(T::MESSAGE, &mut merged, fields.clone());
    let (merged, written) = (Json::Object(merged), Json::Object(fields));
    let mut findings = rules(&merged, &written);
    // In the order of the text, because only the first error is reported.
    Part::new(node).sort(&mut findings);
    if let Some(first) = findings.iter().position(Finding::is_error) {
        return Err(Invalid::at(findings.swap_remove(first), node));
    }
    limit(&mut findings);
    warnings.extend(lines(node, &findings));
    Ok(Parsed {
        config: read::typed(&merged)?,
        written: if let Json::Object(fields) = written {
            fields
        } else {
            Map::new()
        },
        warnings,
    })
}

/// Warnings about fields, each with its line.
fn warnings(node: &Node) -> Vec<String> {
    let value = read::written(MeshConfig::MESSAGE, node);
    let (_, mut findings) = read_message(MeshConfig::MESSAGE, &value, Severity::Warning);
    limit(&mut findings);
    lines(node, &findings)
}

fn lines(node: &Node, findings: &[Finding]) -> Vec<String> {
    let part = Part::new(node);
    let lines = findings.iter().map(|finding| {
        format!(
            "line {}: {}: {}",
            part.line(&finding.path),
            finding.path,
            finding.message
        )
    });
    lines.collect()
}
