//! Conditions of a rule: its `when`.

use api::security::Condition;
use envoy_types::pb::envoy::config::rbac::v3::{Permission, Principal, permission, principal};

use super::matching::{
    Pattern, add as values, add_by_sign, header, identifier, metadata, port, range, rule,
};
use super::{RuleContext, RuleError, source};
use crate::common::metadata_value::{list_with, text};

/// Adds a condition to the side of a policy that can ask for it.
pub(super) fn add(
    condition: &Condition,
    context: &RuleContext<'_>,
    permissions: &mut Vec<Permission>,
    principals: &mut Vec<Principal>,
) -> Result<(), RuleError> {
    let key = condition.key.as_str();
    let given = (&*condition.values, &*condition.not_values);
    if given.0.is_empty() && given.1.is_empty() {
        return Err(RuleError::Because(format!("{key:?} has no values")));
    }
    if key.starts_with("request.") && !context.takes_http(true)? {
        return Ok(());
    }
    if let Some(inside) = key.strip_prefix("request.headers") {
        let name = one_in_brackets(inside, key)?;
        return values(principals, given, |value| {
            Ok(identifier(principal::Identifier::Header(header(
                name, value, false,
            ))))
        });
    }
    if let Some(inside) = key.strip_prefix("request.auth.claims") {
        let path = in_brackets(inside, key)?;
        return values(principals, given, |value| Ok(source::claim(&path, value)));
    }
    if let Some(rest) = key.strip_prefix("experimental.") {
        let at = rest.find('[').unwrap_or(rest.len());
        let (filter, inside) = rest.split_at(at);
        let name = one_in_brackets(inside, key)?;
        return values(principals, given, |value| Ok(left_by(filter, name, value)));
    }
    match key {
        "source.ip" => values(principals, given, source::direct_address),
        "remote.ip" => values(principals, given, source::remote_address),
        "source.namespace" => add_by_sign(principals, given, |value, sign| {
            source::namespace(value, sign, context)
        }),
        "source.principal" => values(principals, given, |value| source::workload(value, context)),
        "source.serviceAccount" => add_by_sign(principals, given, |value, sign| {
            source::service_account(value, sign, context)
        }),
        "source.trustDomain" => values(principals, given, source::trust_domain),
        "request.auth.principal" => values(principals, given, source::request_principal),
        "request.auth.audiences" => values(principals, given, |value| {
            Ok(source::claim(&["aud"], value))
        }),
        "request.auth.presenter" => values(principals, given, |value| {
            Ok(source::claim(&["azp"], value))
        }),
        "destination.ip" => values(permissions, given, |value| {
            Ok(rule(permission::Rule::DestinationIp(range(value)?)))
        }),
        "destination.port" => values(permissions, given, port),
        "connection.sni" => values(permissions, given, |value| {
            let matcher = Pattern::of(value).matcher();
            Ok(rule(permission::Rule::RequestedServerName(matcher)))
        }),
        _ => Err(RuleError::Because(format!("unknown key {key:?}"))),
    }
}

/// Matches the text that a filter of this name left under a key, or with `[x]` a list that has it.
fn left_by(filter: &str, name: &str, value: &str) -> Principal {
    let inside = value
        .strip_prefix('[')
        .and_then(|one| one.strip_suffix(']'));
    let matcher = |value: &str| text(Pattern::of(value).matcher());
    let matcher = match inside {
        Some(inside) => list_with(matcher(inside)),
        None => matcher(value),
    };
    metadata(filter, &[name], matcher)
}

/// `[a][b]`.
fn in_brackets<'a>(inside: &'a str, key: &str) -> Result<Vec<&'a str>, RuleError> {
    let inner = inside
        .strip_prefix('[')
        .and_then(|one| one.strip_suffix(']'));
    let parts: Vec<_> = inner.into_iter().flat_map(|all| all.split("][")).collect();
    if parts.is_empty() || parts.iter().any(|part| part.is_empty()) {
        return Err(RuleError::Because(format!("unknown key {key:?}")));
    }
    Ok(parts)
}

/// A name that Envoy takes.
fn one_in_brackets<'a>(inside: &'a str, key: &str) -> Result<&'a str, RuleError> {
    match *in_brackets(inside, key)? {
        [one] if api::config::discovery_notes::is_header_name(one) => Ok(one),
        _ => Err(RuleError::Because(format!(
            "{key:?} names nothing that can be asked for"
        ))),
    }
}
