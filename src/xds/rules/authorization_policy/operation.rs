//! Operations that a rule is for: its `to`.

use api::security::Operation;
use api::security::authorization_policy::Action;
use envoy_types::pb::envoy::config::rbac::v3::{Permission, permission};
use envoy_types::pb::envoy::r#type::matcher::v3::{PathMatcher, path_matcher};

use super::matching::{Combined as _, Pattern, add, any_host, checked, header, host, port, rule};
use super::{RuleContext, RuleError};
use crate::common::regex;

pub(super) fn permission(
    operation: Option<&Operation>,
    context: &RuleContext<'_>,
) -> Result<Permission, RuleError> {
    let Some(operation) = operation else {
        return Err(RuleError::Because("an operation is missing".to_owned()));
    };
    let mut parts = Vec::new();
    add(&mut parts, (&operation.ports, &operation.not_ports), port)?;
    let hosts = (&*operation.hosts, &*operation.not_hosts);
    let methods = (&*operation.methods, &*operation.not_methods);
    let paths = (&*operation.paths, &*operation.not_paths);
    let is_given = |(values, not_values): (&[String], &[String])| {
        !(values.is_empty() && not_values.is_empty())
    };
    if context.takes_http([hosts, methods, paths].into_iter().any(is_given))? {
        // Whatever a rule matches less of, it lets in less, or keeps out more.
        let (matches_more, matches_less) = match context.action {
            Action::Deny | Action::Custom => (true, false),
            Action::Allow => (false, true),
            Action::Audit => (false, false),
        };
        let host_of = |is_any: bool| {
            move |value: &str| Ok(if is_any { any_host(value) } else { host(value) })
        };
        add(&mut parts, (hosts.0, &[]), host_of(matches_more))?;
        add(&mut parts, (&[], hosts.1), host_of(matches_less))?;
        add(&mut parts, methods, |value| {
            Ok(rule(permission::Rule::Header(header(
                ":method", value, false,
            ))))
        })?;
        add(&mut parts, paths, path)?;
    }
    Ok(Permission::all(parts))
}

/// Without the query. `{*}` is one segment, `{**}` all that follow.
fn path(value: &str) -> Result<Permission, RuleError> {
    let matcher = if value.contains("{*}") || value.contains("{**}") {
        checked(&template(value))?
    } else {
        Pattern::of(value).matcher()
    };
    Ok(rule(permission::Rule::UrlPath(PathMatcher {
        rule: Some(path_matcher::Rule::Path(matcher)),
    })))
}

fn template(value: &str) -> String {
    let segments = value.split('/').map(|segment| match segment {
        "{*}" => "[^/]+".to_owned(),
        "{**}" => ".*".to_owned(),
        other => regex::quoted(other),
    });
    segments.collect::<Vec<_>>().join("/")
}
