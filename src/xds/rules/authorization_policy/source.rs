//! Sources that a rule is for: its `from`.

use api::security::Source;
use envoy_types::pb::envoy::config::rbac::v3::{Principal, principal};
use envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

use super::matching::{
    Combined as _, Pattern, Sign, add, add_by_sign, checked, identifier, identity, metadata, range,
    string,
};
use super::{RuleContext, RuleError};
use crate::common::metadata_value::{list_with, text};
use crate::common::regex::quoted;
use crate::rules::request_authentication::{FILTER as TOKENS, PAYLOAD};

/// Places where the principal of a token can be divided into issuer and subject. Chosen: an issuer is a URL with few.
const MAX_DIVISIONS: usize = 32;

/// The prefix of every identity.
const SCHEME: &str = "spiffe://";

pub(super) fn principal(
    source: Option<&Source>,
    context: &RuleContext<'_>,
) -> Result<Principal, RuleError> {
    let Some(source) = source else {
        return Err(RuleError::Because("a source is missing".to_owned()));
    };
    let mut parts = Vec::new();
    add(
        &mut parts,
        (&source.principals, &source.not_principals),
        |value| workload(value, context),
    )?;
    add_by_sign(
        &mut parts,
        (&source.namespaces, &source.not_namespaces),
        |value, sign| namespace(value, sign, context),
    )?;
    add_by_sign(
        &mut parts,
        (&source.service_accounts, &source.not_service_accounts),
        |value, sign| service_account(value, sign, context),
    )?;
    add(
        &mut parts,
        (&source.trust_domains, &source.not_trust_domains),
        trust_domain,
    )?;
    add(
        &mut parts,
        (&source.ip_blocks, &source.not_ip_blocks),
        direct_address,
    )?;
    add(
        &mut parts,
        (&source.remote_ip_blocks, &source.not_remote_ip_blocks),
        remote_address,
    )?;
    let of_requests = (&*source.request_principals, &*source.not_request_principals);
    if context.takes_http(!(of_requests.0.is_empty() && of_requests.1.is_empty()))? {
        add(&mut parts, of_requests, request_principal)?;
    }
    Ok(Principal::all(parts))
}

/// `TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT`.
pub(super) fn workload(value: &str, context: &RuleContext<'_>) -> Result<Principal, RuleError> {
    let value = value.strip_prefix(SCHEME).unwrap_or(value);
    let one = |matcher: StringMatcher| Ok(identity(matcher));
    match Pattern::of(value) {
        Pattern::Anything => one(string(MatchPattern::Prefix(SCHEME.to_owned()))),
        pattern @ Pattern::Suffix(_) => {
            one(checked(&format!("{SCHEME}{}", pattern.expression(".")))?)
        }
        Pattern::Prefix(prefix) => Ok(of_domains(prefix, context, MatchPattern::Prefix)),
        Pattern::Exact(exact) => Ok(of_domains(exact, context, MatchPattern::Exact)),
    }
}

/// Returns the identity in each trust domain that the written one stands for.
fn of_domains(
    account: &str,
    context: &RuleContext<'_>,
    pattern: impl Fn(String) -> MatchPattern,
) -> Principal {
    let names = context.domains.spellings(account);
    let all = names.map(|name| identity(string(pattern(format!("{SCHEME}{name}")))));
    Principal::one_of(all.collect())
}

pub(super) fn namespace(
    value: &str,
    sign: Sign,
    context: &RuleContext<'_>,
) -> Result<Principal, RuleError> {
    // As in Istio, each asterisk stands for any letters, wherever it is.
    let between: Vec<_> = value.split('*').map(quoted).collect();
    let namespace = between.join("[^/]*");
    in_trust_domains(&format!("ns/{namespace}/.+"), sign, context)
}

/// `ACCOUNT` in the policy's namespace, or `NAMESPACE/ACCOUNT`.
pub(super) fn service_account(
    value: &str,
    sign: Sign,
    context: &RuleContext<'_>,
) -> Result<Principal, RuleError> {
    let (namespace, account) = value.split_once('/').unwrap_or((context.namespace, value));
    let (namespace, account) = (quoted(namespace), quoted(account));
    in_trust_domains(&format!("ns/{namespace}/sa/{account}"), sign, context)
}

/// Returns the identities whose part behind the trust domain fits `expression`. A rule that lets in holds for the mesh's own trust
/// domains: another mesh may have the same root, and namespaces of the same names. A rule that keeps out holds for all of them.
fn in_trust_domains(
    expression: &str,
    sign: Sign,
    context: &RuleContext<'_>,
) -> Result<Principal, RuleError> {
    let matches_more_to_keep_out = context.keeps_out() == (sign == Sign::Is);
    if matches_more_to_keep_out {
        let any = checked(&format!("{SCHEME}[^/]+/{expression}"))?;
        return Ok(identity(any));
    }
    let own = context.domains.iter().map(|domain| {
        let one = checked(&format!("{SCHEME}{}/{expression}", quoted(domain)))?;
        Ok(identity(one))
    });
    Ok(Principal::one_of(own.collect::<Result<_, _>>()?))
}

pub(super) fn trust_domain(value: &str) -> Result<Principal, RuleError> {
    let domain = Pattern::of(value).expression("[^/]");
    Ok(identity(checked(&format!("{SCHEME}{domain}/.+"))?))
}

pub(super) fn direct_address(value: &str) -> Result<Principal, RuleError> {
    Ok(identifier(principal::Identifier::DirectRemoteIp(range(
        value,
    )?)))
}

pub(super) fn remote_address(value: &str) -> Result<Principal, RuleError> {
    Ok(identifier(principal::Identifier::RemoteIp(range(value)?)))
}

/// Issuer and subject of a token, with `/` between them. Both may have more of those: each is a way to divide the value.
pub(super) fn request_principal(value: &str) -> Result<Principal, RuleError> {
    let claim = |name: &str, matcher| metadata(TOKENS, &[PAYLOAD, name], text(matcher));
    let both = |issuer: Pattern<'_>, subject: Pattern<'_>| {
        let issuer = claim("iss", issuer.matcher());
        Principal::all(vec![issuer, claim("sub", subject.matcher())])
    };
    let pattern = Pattern::of(value);
    let (Pattern::Exact(written) | Pattern::Prefix(written) | Pattern::Suffix(written)) = pattern
    else {
        return Ok(both(Pattern::Anything, Pattern::Anything));
    };
    if written.matches('/').count() > MAX_DIVISIONS {
        let message = format!("{value:?} has more than {MAX_DIVISIONS} slashes");
        return Err(RuleError::Because(message));
    }
    let divisions = written.match_indices('/').filter_map(|(at, _)| {
        let (issuer, subject) = (written.get(..at)?, written.get(at + 1..)?);
        // At its open end nothing may be written yet.
        Some(match pattern {
            Pattern::Prefix(_) if subject.is_empty() => {
                both(Pattern::Exact(issuer), Pattern::Anything)
            }
            Pattern::Prefix(_) => both(Pattern::Exact(issuer), Pattern::Prefix(subject)),
            Pattern::Suffix(_) if issuer.is_empty() => {
                both(Pattern::Anything, Pattern::Exact(subject))
            }
            Pattern::Suffix(_) => both(Pattern::Suffix(issuer), Pattern::Exact(subject)),
            Pattern::Exact(_) | Pattern::Anything => {
                both(Pattern::Exact(issuer), Pattern::Exact(subject))
            }
        })
    });
    let mut ways: Vec<_> = divisions.collect();
    // The open end may begin within the issuer, or end within the subject: then no slash divides them.
    match pattern {
        Pattern::Prefix(_) => ways.push(both(Pattern::Prefix(written), Pattern::Anything)),
        Pattern::Suffix(_) => ways.push(both(Pattern::Anything, Pattern::Suffix(written))),
        Pattern::Exact(_) | Pattern::Anything => {}
    }
    if ways.is_empty() {
        // No token has such a principal.
        return Ok(Principal::all(Vec::new()).not());
    }
    Ok(Principal::one_of(ways))
}

/// A claim of a token: a text, or a list that has it.
pub(super) fn claim(path: &[&str], value: &str) -> Principal {
    let path: Vec<&str> = [PAYLOAD].iter().chain(path).copied().collect();
    let matcher = || text(Pattern::of(value).matcher());
    let alone = metadata(TOKENS, &path, matcher());
    let listed = metadata(TOKENS, &path, list_with(matcher()));
    Principal::one_of(vec![alone, listed])
}
