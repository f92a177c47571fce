//! One path of an Ingress as a route.

use std::cmp::Reverse;

use serde_json::{Value, json};

use super::room::{PartPath, Rank, SharedPart};
use super::{Context, Finding};
use crate::Key;
use api::kubernetes::{Backend, IngressPath, IngressRule, PortOrName};

/// The requests that a path matches.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Match {
    Exact(String),
    Prefix(String),
    /// A path and all paths below it, but no path that merely begins with the same characters.
    Below(String),
    Anything,
}

impl Match {
    fn of(path: &IngressPath) -> Self {
        let text = &*path.path;
        if text.is_empty() {
            return Self::Anything;
        }
        match &*path.path_type {
            "Exact" => Self::Exact(text.to_owned()),
            "Prefix" => match text.trim_end_matches('/') {
                "" => Self::Prefix("/".to_owned()),
                path => Self::Below(path.to_owned()),
            },
            _ => {
                // No type, or the implementation's own: Galley's older reading, in which both endings mean a
                // prefix.
                let prefix = text.strip_suffix(".*");
                match prefix.or_else(|| text.strip_suffix("/*")) {
                    Some("") => Self::Prefix("/".to_owned()),
                    Some(prefix) => Self::Prefix(prefix.to_owned()),
                    None => Self::Exact(text.to_owned()),
                }
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route<'a> {
    of: &'a Key,
    part_path: PartPath,
    path: Match,
    host: String,
    port: u16,
}

impl<'a> Route<'a> {
    /// The order of matching: exact paths first, then longer prefixes, and last the route that matches any path.
    fn rank(&self) -> Rank {
        match &self.path {
            Match::Exact(path) => (0, Reverse(path.len())),
            Match::Prefix(path) => (1, Reverse(path.len())),
            // With its slash.
            Match::Below(path) => (1, Reverse(path.len().saturating_add(1))),
            Match::Anything => (2, Reverse(0)),
        }
    }

    pub(super) fn part(&self) -> SharedPart<'a> {
        SharedPart {
            of: self.of,
            path: self.part_path,
            rank: self.rank(),
            value: self.json(),
        }
    }

    fn json(&self) -> Value {
        let mut json = json!({
            "route": [{
                "destination": {"host": self.host, "port": {"number": self.port}},
                "weight": 100,
            }],
        });
        let uris = match &self.path {
            Match::Exact(path) => json!([{"uri": {"exact": path}}]),
            Match::Prefix(path) => json!([{"uri": {"prefix": path}}]),
            // Envoy compares a prefix letter by letter: `/shop` would match `/shopping`.
            Match::Below(path) => json!([
                {"uri": {"exact": path}},
                {"uri": {"prefix": format!("{path}/")}},
            ]),
            Match::Anything => return json,
        };
        if let Some(route) = json.as_object_mut() {
            route.insert("match".to_owned(), uris);
        }
        json
    }
}

/// The routes of a rule, in its order.
pub(super) fn routes<'a>(
    ingress: &'a Key,
    rule_at: usize,
    rule: &IngressRule,
    context: Context<'_>,
    findings: &mut Vec<Finding>,
) -> Vec<Route<'a>> {
    let mut routes = Vec::new();
    for (at, path) in rule.http.paths.iter().enumerate() {
        match destination(ingress, &path.backend, context.port) {
            Ok((service, port)) => routes.push(Route {
                of: ingress,
                part_path: PartPath::Route {
                    rule: rule_at,
                    path: at,
                },
                path: Match::of(path),
                host: format!(
                    "{service}.{}.svc.{}",
                    ingress.namespace, context.settings.domain
                ),
                port,
            }),
            Err(message) => findings.push(Finding {
                ingress: ingress.clone(),
                path: format!("spec.rules[{rule_at}].http.paths[{at}].backend"),
                message,
            }),
        }
    }
    routes
}

/// The name and the port of the Service that a backend names.
fn destination<'a>(
    ingress: &Key,
    backend: &'a Backend,
    port: &dyn Fn(&Key, &str) -> Option<u16>,
) -> Result<(&'a str, u16), String> {
    let (service, written) = match (&backend.service, &backend.service_name) {
        (Some(service), _) => {
            let port = match (&*service.port.name, service.port.number) {
                ("", 0) => None,
                ("", number) => Some(PortOrName::Port(number)),
                (name, _) => Some(PortOrName::Name(name.to_owned())),
            };
            (service.name.as_str(), port)
        }
        (None, Some(service)) => (service.as_str(), backend.service_port.clone()),
        (None, None) => ("", None),
    };
    if service.is_empty() {
        return Err("a backend that is no Service is not served".to_owned());
    }
    // Ingresses share the VirtualService of a host: a name that its rules refuse would cost all of them their routes.
    for part in [service, &ingress.namespace] {
        if !api::names::is_label(part) {
            return Err(format!("{} is not a DNS label", api::config::quoted(part)));
        }
    }
    let number = match written {
        None | Some(PortOrName::Port(0)) => {
            return Err(format!("the port of Service {service} is missing"));
        }
        Some(PortOrName::Port(number)) => number,
        // The older shape writes numbers in quotes, too.
        Some(PortOrName::Name(name)) => match name.parse() {
            Ok(number) if number > 0 => number,
            _ => {
                let key = Key::new(&*ingress.namespace, service);
                port(&key, &name)
                    .ok_or_else(|| format!("Service {key} has no port named {name:?}"))?
            }
        },
    };
    Ok((service, number))
}
