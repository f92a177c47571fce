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
        add(&mut parts, (paths.0, &[]), path(matches_more))?;
        add(&mut parts, (&[], paths.1), path(matches_less))?;
    }
    Ok(Permission::all(parts))
}

/// Without the query. `{*}` is one segment, `{**}` all that follow. A client may write an escape in small letters and in capitals,
/// and Envoy keeps it so: where more may be kept out than is written, either is meant.
fn path(is_either: bool) -> impl Fn(&str) -> Result<Permission, RuleError> {
    move |value| {
        let matcher = if value.contains("{*}") || value.contains("{**}") {
            checked(&template(value, is_either))?
        // Only an escape has two spellings: all other values need no regular expression.
        } else if is_either && with_escapes(value) != regex::quoted(value) {
            checked(&match Pattern::of(value) {
                Pattern::Exact(text) => with_escapes(text),
                Pattern::Prefix(text) => format!("{}.*", with_escapes(text)),
                Pattern::Suffix(text) => format!(".*{}", with_escapes(text)),
                Pattern::Anything => ".*".to_owned(),
            })?
        } else {
            Pattern::of(value).matcher()
        };
        Ok(rule(permission::Rule::UrlPath(PathMatcher {
            rule: Some(path_matcher::Rule::Path(matcher)),
        })))
    }
}

/// The expression that means a text, with its escapes (`%C3`) in small letters and in capitals.
fn with_escapes(text: &str) -> String {
    let mut parts = text.split('%');
    let mut out = regex::quoted(parts.next().unwrap_or_default());
    for part in parts {
        let escape = part.get(..2).filter(|digits| {
            let is_escape = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            // An escape of digits alone has one spelling.
            is_escape && digits.bytes().any(|digit| digit.is_ascii_alphabetic())
        });
        match escape {
            Some(digits) => {
                out.push_str(&format!("(?i:%{digits})"));
                out.push_str(&regex::quoted(part.get(2..).unwrap_or_default()));
            }
            None => {
                out.push('%');
                out.push_str(&regex::quoted(part));
            }
        }
    }
    out
}

fn template(value: &str, is_either: bool) -> String {
    let segments = value.split('/').map(|segment| match segment {
        "{*}" => "[^/]+".to_owned(),
        "{**}" => ".*".to_owned(),
        other if is_either => with_escapes(other),
        other => regex::quoted(other),
    });
    segments.collect::<Vec<_>>().join("/")
}
