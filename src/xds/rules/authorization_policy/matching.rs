//! Values of a policy as Envoy's matchers: `x*` is a prefix, `*x` a suffix, `*` anything that is there.

use std::net::IpAddr;

use api::config::regex_size::MAX_PROGRAM_SIZE;
use api::model::Network;
use envoy_types::pb::envoy::config::core::v3::CidrRange;
use envoy_types::pb::envoy::config::rbac::v3::{
    MetadataSource, Permission, Principal, SourcedMetadata, permission, principal,
};
use envoy_types::pb::envoy::config::route::v3::HeaderMatcher;
use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{MetadataMatcher, StringMatcher, ValueMatcher};

use super::RuleError;
use crate::common::{metadata_value, regex, wire};

pub(super) const fn rule(rule: permission::Rule) -> Permission {
    Permission { rule: Some(rule) }
}

pub(super) const fn identifier(identifier: principal::Identifier) -> Principal {
    Principal {
        identifier: Some(identifier),
    }
}

/// A condition that can be combined of several.
pub(super) trait Combined: Sized {
    /// All of them; none is anything.
    fn all(parts: Vec<Self>) -> Self;
    /// One of them at least.
    fn one_of(parts: Vec<Self>) -> Self;
    fn not(self) -> Self;
}

/// The one of them, or several in what holds several.
fn joined<T>(mut parts: Vec<T>, several: impl FnOnce(Vec<T>) -> T) -> T {
    match parts.pop() {
        Some(one) if parts.is_empty() => one,
        last => {
            parts.extend(last);
            several(parts)
        }
    }
}

impl Combined for Permission {
    fn all(parts: Vec<Self>) -> Self {
        if parts.is_empty() {
            return rule(permission::Rule::Any(true));
        }
        joined(parts, |rules| {
            rule(permission::Rule::AndRules(permission::Set { rules }))
        })
    }

    fn one_of(parts: Vec<Self>) -> Self {
        joined(parts, |rules| {
            rule(permission::Rule::OrRules(permission::Set { rules }))
        })
    }

    fn not(self) -> Self {
        rule(permission::Rule::NotRule(Box::new(self)))
    }
}

impl Combined for Principal {
    fn all(parts: Vec<Self>) -> Self {
        if parts.is_empty() {
            return identifier(principal::Identifier::Any(true));
        }
        joined(parts, |ids| {
            identifier(principal::Identifier::AndIds(principal::Set { ids }))
        })
    }

    fn one_of(parts: Vec<Self>) -> Self {
        joined(parts, |ids| {
            identifier(principal::Identifier::OrIds(principal::Set { ids }))
        })
    }

    fn not(self) -> Self {
        identifier(principal::Identifier::NotId(Box::new(self)))
    }
}

/// Adds what a list of values and its not-form ask for.
pub(super) fn add<M: Combined>(
    parts: &mut Vec<M>,
    values: (&[String], &[String]),
    matcher: impl Fn(&str) -> Result<M, RuleError>,
) -> Result<(), RuleError> {
    add_by_sign(parts, values, |value, _| matcher(value))
}

/// A rule asks that a value matches, or that it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Is,
    IsNot,
}

/// As [`add`], for values whose matcher differs by their sign.
pub(super) fn add_by_sign<M: Combined>(
    parts: &mut Vec<M>,
    (values, not_values): (&[String], &[String]),
    matcher: impl Fn(&str, Sign) -> Result<M, RuleError>,
) -> Result<(), RuleError> {
    let of = |values: &[String], sign| -> Result<M, RuleError> {
        let all = values.iter().map(|value| matcher(value, sign));
        Ok(M::one_of(all.collect::<Result<_, _>>()?))
    };
    if !values.is_empty() {
        parts.push(of(values, Sign::Is)?);
    }
    if !not_values.is_empty() {
        parts.push(of(not_values, Sign::IsNot)?.not());
    }
    Ok(())
}

/// The condition of a value on a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern<'a> {
    Anything,
    Exact(&'a str),
    Prefix(&'a str),
    Suffix(&'a str),
}

impl<'a> Pattern<'a> {
    pub(super) fn of(value: &'a str) -> Self {
        match (value, value.strip_prefix('*'), value.strip_suffix('*')) {
            ("*", ..) => Self::Anything,
            // As in Istio: the asterisk in front comes first, and one behind it stands for itself.
            (_, Some(suffix), _) => Self::Suffix(suffix),
            (_, None, Some(prefix)) => Self::Prefix(prefix),
            (exact, None, None) => Self::Exact(exact),
        }
    }

    /// The matcher of this pattern; [`Self::Anything`] matches each text that is not empty.
    pub(super) fn matcher(self) -> StringMatcher {
        string(match self {
            Self::Anything => return regular(".+"),
            Self::Exact(text) => MatchPattern::Exact(text.to_owned()),
            Self::Prefix(text) => MatchPattern::Prefix(text.to_owned()),
            Self::Suffix(text) => MatchPattern::Suffix(text.to_owned()),
        })
    }

    /// Returns the pattern as a part of a regular expression; `letter`: the letters of a wildcard.
    pub(super) fn expression(self, letter: &str) -> String {
        match self {
            Self::Anything => format!("{letter}+"),
            Self::Exact(text) => regex::quoted(text),
            Self::Prefix(text) => format!("{}{letter}*", regex::quoted(text)),
            Self::Suffix(text) => format!("{letter}*{}", regex::quoted(text)),
        }
    }
}

pub(super) fn string(pattern: MatchPattern) -> StringMatcher {
    StringMatcher {
        match_pattern: Some(pattern),
        ..StringMatcher::default()
    }
}

/// Returns the matcher of an expression that is known to be small.
fn regular(expression: &str) -> StringMatcher {
    string(MatchPattern::SafeRegex(regex::matcher(expression)))
}

/// Returns the matcher of an expression that Envoy takes, or the reason why it would not.
pub(super) fn checked(expression: &str) -> Result<StringMatcher, RuleError> {
    if regex::fits(expression) {
        return Ok(regular(expression));
    }
    Err(RuleError::Because(format!(
        "a value is too long: its pattern has more than {MAX_PROGRAM_SIZE} instructions"
    )))
}

pub(super) fn header(name: &str, value: &str, ignore_case: bool) -> HeaderMatcher {
    let pattern = Pattern::of(value);
    if pattern == Pattern::Anything {
        return header_of(name, HeaderMatchSpecifier::PresentMatch(true));
    }
    let matcher = StringMatcher {
        ignore_case,
        ..pattern.matcher()
    };
    header_of(name, HeaderMatchSpecifier::StringMatch(matcher))
}

const HOST: &str = ":authority";

/// The host of a request, as written.
pub(super) fn host(value: &str) -> Permission {
    rule(permission::Rule::Header(header(HOST, value, true)))
}

/// The host of a request that is kept out: also with a port, which routes take no notice of, and with the dot behind it that
/// means the same name. A value that has a port itself is meant as it is.
pub(super) fn any_host(value: &str) -> Permission {
    let written = host(value);
    let (name, is_whole) = match Pattern::of(value) {
        Pattern::Exact(name) => (name, true),
        Pattern::Suffix(name) => (name, false),
        Pattern::Anything | Pattern::Prefix(_) => return written,
    };
    // The colons of an address stand in brackets.
    if name.rsplit(']').next().unwrap_or(name).contains(':') {
        return written;
    }
    let of = |pattern: MatchPattern| {
        let matcher = StringMatcher {
            ignore_case: true,
            ..string(pattern)
        };
        let specifier = HeaderMatchSpecifier::StringMatch(matcher);
        rule(permission::Rule::Header(header_of(HOST, specifier)))
    };
    let at_the_end = |text: String| match is_whole {
        true => of(MatchPattern::Exact(text)),
        false => of(MatchPattern::Suffix(text)),
    };
    let before_a_port = |text: String| match is_whole {
        true => of(MatchPattern::Prefix(text)),
        false => of(MatchPattern::Contains(text)),
    };
    Permission::one_of(vec![
        written,
        before_a_port(format!("{name}:")),
        at_the_end(format!("{name}.")),
        before_a_port(format!("{name}.:")),
    ])
}

fn header_of(name: &str, specifier: HeaderMatchSpecifier) -> HeaderMatcher {
    HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(specifier),
        ..HeaderMatcher::default()
    }
}

/// The URI in the certificate of the peer. Envoy asks names of hosts and the subject, too, which never begin with the scheme that
/// each matcher begins with. Its principal `mtls_authenticated` asks the URI alone, but never matches a session that is resumed:
/// such a one would pass every DENY and no ALLOW.
pub(super) fn identity(matcher: StringMatcher) -> Principal {
    identifier(principal::Identifier::Authenticated(
        principal::Authenticated {
            principal_name: Some(matcher),
        },
    ))
}

/// Bits in front of an address of IPv4 that is written as one of IPv6, `::ffff:10.0.0.1`.
const BEFORE_MAPPED: u8 = 96;

/// An address, or a range of them.
pub(super) fn range(value: &str) -> Result<CidrRange, RuleError> {
    let (address, prefix) = match value.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (value, None),
    };
    let read = || {
        let address: IpAddr = address.parse().ok()?;
        let prefix = match prefix {
            Some(prefix) => prefix.parse().ok()?,
            None => wire::all_bits(address),
        };
        let network = Network::new(address, prefix)?;
        // Envoy takes an address of IPv4 for one, however it came.
        let mapped = address.to_canonical();
        match prefix.checked_sub(BEFORE_MAPPED) {
            Some(rest) if mapped != address => Network::new(mapped, rest),
            _ => Some(network),
        }
    };
    match read() {
        Some(network) => Ok(wire::range(network.first(), network.prefix())),
        None => Err(RuleError::Because(format!(
            "{value:?} is not an IP address or CIDR"
        ))),
    }
}

pub(super) fn port(value: &str) -> Result<Permission, RuleError> {
    match value.parse::<u16>() {
        Ok(port) => Ok(rule(permission::Rule::DestinationPort(port.into()))),
        Err(_) => Err(RuleError::Because(format!("{value:?} is not a port"))),
    }
}

/// A value that another filter left beside a request.
pub(super) fn metadata(filter: &str, path: &[&str], value: ValueMatcher) -> Principal {
    identifier(principal::Identifier::SourcedMetadata(SourcedMetadata {
        metadata_matcher: Some(MetadataMatcher {
            filter: filter.to_owned(),
            path: metadata_value::path(path),
            value: Some(value),
            invert: false,
        }),
        metadata_source: MetadataSource::Dynamic.into(),
    }))
}
