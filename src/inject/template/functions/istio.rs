//! Functions of Istio's templates.

use std::collections::BTreeMap;

use gotmpl::{TemplateError, Value};
use serde_json::Value as Json;

use super::{Function, MANY, arg, json, list_of, maps, object, printed, session, string, wrong};
use crate::data;
use crate::template::Template;
use crate::yaml;
use crate::yaml_safe::{self, is_control};

pub(super) const ROWS: &[Function] = &[
    Function("formatDuration", 1, 1, |args| match arg(args, 0) {
        // Istio's answer where there is no duration.
        Value::Nil => Ok(Value::from("1s")),
        value => walked(value, data::GO_DURATION),
    }),
    Function("annotation", 3, 3, annotation),
    Function("valueOrDefault", 2, 2, |args| match arg(args, 0) {
        Value::Nil => Ok(arg(args, 1).clone()),
        Value::String(text) if text.is_empty() => Ok(arg(args, 1).clone()),
        value => Ok(value.clone()),
    }),
    Function("excludeInboundPort", 2, 2, exclude_inbound_port),
    Function("includeInboundPorts", 1, 1, |args| {
        ports(list_of(args, 0)?, "")
    }),
    Function("applicationPorts", 1, 1, |args| {
        ports(list_of(args, 0)?, crate::pod::PROXY)
    }),
    Function("toJSON", 1, 1, to_json_map),
    Function("toJsonMap", 0, MANY, |args| {
        let mut made = BTreeMap::new();
        for map in args {
            made.extend(maps::entries(map)?);
        }
        Ok(Value::from(yaml::json(&json(&Value::from(made))?)))
    }),
    Function("fromJSON", 1, 1, |args| {
        let Some(found) = maps::tree(string(args, 0)?)? else {
            return Ok(Value::from("{}"));
        };
        // Templates paste the strings, and no other check sees those of an annotation that only a template knows.
        yaml_safe::strings(&found).map_err(|cause| wrong(format!("in JSON: {cause}")))?;
        object::charged_of_json(&found)
    }),
    Function("structToJSON", 1, 1, to_json_map),
    Function("protoToJSON", 1, 1, to_json_map),
    Function("toYaml", 1, 1, |args| {
        Ok(Value::from(yaml::print(&json(arg(args, 0))?)))
    }),
    Function("directory", 1, 1, |args| {
        let path = string(args, 0)?;
        Ok(Value::from(
            path.rfind('/')
                .and_then(|at| path.get(..=at))
                .unwrap_or_default(),
        ))
    }),
    Function("kubevirtInterfaces", 1, 1, |args| Ok(arg(args, 0).clone())),
    Function("excludeInterfaces", 1, 1, |args| Ok(arg(args, 0).clone())),
    Function("env", 2, 2, |args| {
        let found = session::with(|session| {
            session
                .environment
                .get(string(args, 0).unwrap_or_default())
                .cloned()
        })?;
        Ok(found
            .filter(|value| !value.is_empty())
            .map_or_else(|| arg(args, 1).clone(), Value::from))
    }),
    Function("render", 1, 1, |args| {
        Template::render_within(string(args, 0)?)
    }),
    Function("appendMultusNetwork", 2, 2, |args| {
        append_network(string(args, 0)?, string(args, 1)?).map(Value::from)
    }),
    Function("otelResourceAttributes", 0, MANY, |_| Ok(Value::from(""))),
];

/// Compact JSON, keys sorted; nil is an empty object.
pub(super) fn to_json_map(args: &[Value]) -> Result<Value, TemplateError> {
    Ok(Value::from(match json(arg(args, 0))? {
        Json::Null => "{}".to_owned(),
        value => yaml::json(&value),
    }))
}

/// A field of an object.
fn walked(value: &Value, name: &str) -> Result<Value, TemplateError> {
    match object::walk(value, &[Value::from(name)]) {
        Some(result) => result.map(|(value, _)| value),
        None => Err(wrong(format!("wants an object, got {}", value.type_name()))),
    }
}

fn annotation(args: &[Value]) -> Result<Value, TemplateError> {
    let meta = arg(args, 0);
    let annotations = match meta {
        Value::Map(map) => map.get("Annotations").cloned().unwrap_or(Value::Nil),
        other => walked(other, "Annotations")?,
    };
    if let Value::Map(entries) = annotations
        && let Some(value) = entries.get(string(args, 1)?)
    {
        return Ok(value.clone());
    }
    printed(arg(args, 2)).map(Value::from)
}

fn exclude_inbound_port(args: &[Value]) -> Result<Value, TemplateError> {
    let port = printed(arg(args, 0))?.trim().to_owned();
    let list = string(args, 1)?;
    // Port 0 is no port: there is nothing to exclude.
    if port.is_empty() || port == "0" || list.split(',').any(|element| element == port) {
        return Ok(Value::from(list));
    }
    session::charge_elements(list.len() / 2, session::ELEMENT_BYTES)?;
    let mut elements: Vec<&str> = list
        .split(',')
        .map(str::trim)
        .filter(|element| !element.is_empty())
        .collect();
    elements.push(&port);
    Ok(Value::from(elements.join(",")))
}

/// The TCP ports of all containers but one.
fn ports(containers: &[Value], except: &str) -> Result<Value, TemplateError> {
    let mut found = Vec::new();
    for container in containers {
        session::charge(1)?;
        if !except.is_empty() && walked(container, "Name")?.as_str() == Some(except) {
            continue;
        }
        let Value::List(ports) = walked(container, "Ports")? else {
            continue;
        };
        for port in ports.iter() {
            session::charge(1)?;
            if !matches!(walked(port, "Protocol")?.as_str(), Some("UDP" | "SCTP")) {
                session::charge_allocated(session::ENTRY_BYTES)?;
                found.push(printed(&walked(port, "ContainerPort")?)?);
            }
        }
    }
    Ok(Value::from(found.join(",")))
}

/// Appends a network to the annotation of Multus, which is a list in JSON or with commas.
///
/// Templates paste the result into YAML, and this is the only check of the pod author's text: a line break ends no element
/// of a list.
fn append_network(old: &str, network: &str) -> Result<String, TemplateError> {
    let old = old.trim_matches(is_control);
    if old.trim().is_empty() {
        return Ok(network.to_owned());
    }
    let (namespace, name) = network
        .split_once('/')
        .map_or((None, network), |(namespace, name)| (Some(namespace), name));
    if let Some(Json::Array(mut items)) = maps::tree(old)? {
        let same = |item: &Json| {
            let item_name = item.get("name").and_then(Json::as_str);
            item_name == Some(network)
                || (item_name == Some(name)
                    && item.get("namespace").and_then(Json::as_str) == namespace)
        };
        let is_there = items.iter().any(same);
        if is_there && !old.chars().any(is_control) {
            return Ok(old.to_owned());
        }
        if !is_there {
            let mut item = serde_json::Map::new();
            item.insert("name".to_owned(), Json::from(name));
            item.extend(namespace.map(|namespace| ("namespace".to_owned(), Json::from(namespace))));
            items.push(Json::Object(item));
        }
        return Ok(yaml::json(&Json::Array(items)));
    }
    if old.chars().any(is_control) {
        return Err(wrong("the networks hold a control character"));
    }
    if old.split(',').any(|listed| listed.trim() == network) {
        return Ok(old.to_owned());
    }
    Ok(format!("{old}, {network}"))
}
