//! RequestAuthentication: whose tokens are believed, and where requests have them (discovery.md §18).
//!
//! Proxies are given keys and fetch none. A rule without a known key is given a key for which no private key exists, so that its
//! tokens are refused. Each of several rules is a way to be believed; a request without a token passes, without a principal.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use api::config::discovery_notes::{is_header_name, is_one_line, is_output_header};
use api::model::ObjectRef;
use api::security::jwt_rule::Presence;
use api::security::{JwksSource, JwtRule, KeySet, RequestAuthentication};
use envoy_types::pb::envoy::config::core::v3::{DataSource, data_source};
use envoy_types::pb::envoy::config::route::v3::{RouteMatch, route_match::PathSpecifier};
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3::jwt_provider::{
    JwksSourceSpecifier, NormalizePayload,
};
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3::jwt_requirement::RequiresType;
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3::requirement_rule::RequirementType;
use envoy_types::pb::envoy::extensions::filters::http::jwt_authn::v3::{
    JwtAuthentication as Config, JwtClaimToHeader, JwtHeader, JwtProvider, JwtRequirement,
    JwtRequirementOrList, RequirementRule,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use envoy_types::pb::google::protobuf::Empty;
use prost::{Message, Name as _};

use crate::common::conflict::{Conflict, NOT_ENFORCED_AS_WRITTEN, TOO_LARGE};
use crate::common::wire;
use crate::scope::Rule;

/// The filter that reads tokens; what it leaves of them is under this name, too.
pub(crate) const FILTER: &str = "envoy.filters.http.jwt_authn";
/// The key of a token's claims there.
pub(crate) const PAYLOAD: &str = "payload";

/// Claims that are lists in one text, with spaces between (RFC 8693 for the first).
const LISTS: [&str; 2] = ["scope", "permission"];

/// Keys that were fetched, by their sources.
pub(crate) type KeySets = BTreeMap<JwksSource, KeySet>;

/// `envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication`, with providers in order: `envoy-types` holds them in a hash map.
#[derive(Clone, PartialEq, Message)]
struct Authentication {
    #[prost(btree_map = "string, message", tag = "1")]
    providers: BTreeMap<String, JwtProvider>,
    #[prost(message, repeated, tag = "2")]
    rules: Vec<RequirementRule>,
    #[prost(bool, tag = "4")]
    bypass_cors_preflight: bool,
}

/// The tokens that one policy makes a workload believe.
#[derive(Debug, Default)]
struct AcceptedTokens {
    /// One for each of its rules, by name.
    providers: Vec<(String, JwtProvider)>,
    /// A request without a token is refused.
    required: bool,
    bytes: usize,
    conflicts: Vec<Conflict>,
}

/// The tokens of the policies of one state of the mesh, each policy read at its first use: its keys are read once, however many
/// workloads it holds for.
#[derive(Debug, Default)]
pub(crate) struct TokenProviders(Mutex<HashMap<ObjectRef, Arc<AcceptedTokens>>>);

impl TokenProviders {
    fn of(&self, policy: &Rule<RequestAuthentication>, keys: &KeySets) -> Arc<AcceptedTokens> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = all.entry(policy.from.clone());
        entry
            .or_insert_with(|| Arc::new(accepted_tokens(policy, keys)))
            .clone()
    }

    /// The filter of a workload that these policies hold for. `for_router`: routes may ask for what it leaves of a token, so those
    /// that were chosen before are chosen anew; `max`: bytes that it may have.
    ///
    /// # Errors
    ///
    /// It would have more: no request can be told from another, which is told.
    pub(crate) fn filter(
        &self,
        policies: &[Arc<Rule<RequestAuthentication>>],
        keys: &KeySets,
        for_router: bool,
        max: usize,
        conflicts: &mut Vec<Conflict>,
    ) -> Result<Option<HttpFilter>, TooManyTokens> {
        let mut providers = BTreeMap::new();
        let (mut required, mut bytes) = (false, 0_usize);
        for policy in policies {
            let accepted = self.of(policy, keys);
            bytes = bytes.saturating_add(accepted.bytes);
            if bytes > max {
                let message = format!(
                    "denies all requests: the tokens that one workload believes come to more than {max} bytes, those of {} among \
                     them",
                    policy.from
                );
                let conflict = Conflict::new(TOO_LARGE, policy.from.to_string(), message);
                conflicts.push(conflict.because_of(&policy.from));
                return Err(TooManyTokens);
            }
            required |= accepted.required;
            conflicts.extend(accepted.conflicts.iter().cloned());
            let own = accepted.providers.iter().cloned();
            providers.extend(own.map(|(name, provider)| {
                let provider = JwtProvider {
                    clear_route_cache: for_router,
                    ..provider
                };
                (name, provider)
            }));
        }
        Ok((!providers.is_empty()).then(|| filter(providers, required)))
    }
}

/// A workload accepts more tokens than its filter has room for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyTokens;

fn filter(providers: BTreeMap<String, JwtProvider>, required: bool) -> HttpFilter {
    let requirement = |requires_type| JwtRequirement {
        requires_type: Some(requires_type),
    };
    let names = providers.keys();
    let mut ways: Vec<_> = names
        .map(|name| requirement(RequiresType::ProviderName(name.clone())))
        .collect();
    if !required {
        ways.push(requirement(RequiresType::AllowMissing(Empty {})));
    }
    let requires = match ways.pop() {
        // Envoy wants two at least.
        Some(one) if ways.is_empty() => one,
        last => {
            ways.extend(last);
            requirement(RequiresType::RequiresAny(JwtRequirementOrList {
                requirements: ways,
            }))
        }
    };
    let authentication = Authentication {
        providers,
        rules: vec![RequirementRule {
            r#match: Some(RouteMatch {
                path_specifier: Some(PathSpecifier::Prefix("/".to_owned())),
                ..RouteMatch::default()
            }),
            requirement_type: Some(RequirementType::Requires(requires)),
        }],
        // A browser sends no token with a preflight.
        bypass_cors_preflight: true,
    };
    wire::http_filter(FILTER, wire::any_of(Config::type_url(), &authentication))
}

fn accepted_tokens(policy: &Rule<RequestAuthentication>, keys: &KeySets) -> AcceptedTokens {
    let mut tokens = AcceptedTokens::default();
    for (at, rule) in policy.spec().jwt_rules.iter().enumerate() {
        let mut report = |why: &str| {
            let message = format!("spec.jwtRules[{at}]: {why}");
            let conflict = Conflict::new(NOT_ENFORCED_AS_WRITTEN, policy.from.to_string(), message);
            tokens.conflicts.push(conflict.because_of(&policy.from));
        };
        let keys = keys_of(rule, keys).unwrap_or_else(|why| {
            report(why);
            KeySet::of_nobody()
        });
        let Some(provider) = provider(rule, &keys) else {
            report("no token is read: fromHeaders has no valid header");
            continue;
        };
        let (namespace, object) = (policy.namespace(), &policy.object.name);
        let name = format!("ns[{namespace}]-policy[{object}]-rule[{at}]");
        // It is named twice.
        tokens.bytes += provider.encoded_len() + 2 * name.len();
        tokens.required |= rule.presence() == Presence::Required;
        tokens.providers.push((name, provider));
    }
    tokens
}

/// Keys that sign the tokens of a rule; else why none is known.
fn keys_of(rule: &JwtRule, fetched: &KeySets) -> Result<KeySet, &'static str> {
    if !rule.jwks.is_empty() {
        return KeySet::inline(&rule.jwks)
            .map_err(|_| "tokens are refused: jwks has no key that proxies can use");
    }
    let Some(source) = JwksSource::of(rule) else {
        return Err(
            "tokens are refused: neither jwks nor jwksUri says a key, and the issuer is no URL",
        );
    };
    let keys = fetched.get(&source).cloned();
    keys.ok_or(match source {
        JwksSource::Set(_) => "tokens are refused: no keys were fetched from jwksUri yet",
        JwksSource::Discovery(_) => "tokens are refused: no keys of the issuer were fetched yet",
    })
}

/// `None`: tokens are in headers alone, and those are none.
fn provider(rule: &JwtRule, keys: &KeySet) -> Option<JwtProvider> {
    let headers = rule.from_headers.iter();
    let headers = headers.filter(|one| is_header_name(&one.name) && is_one_line(&one.prefix));
    let from_headers: Vec<_> = headers
        .map(|one| JwtHeader {
            name: one.name.clone(),
            value_prefix: one.prefix.clone(),
        })
        .collect();
    let is_elsewhere = !rule.from_params.is_empty() || !rule.from_cookies.is_empty();
    if from_headers.is_empty() && !rule.from_headers.is_empty() && !is_elsewhere {
        // Without any place Envoy would look where it usually does.
        return None;
    }
    let output = &rule.output_payload_to_header;
    let claims = rule.output_claim_to_headers.iter();
    let lists = LISTS.into_iter().map(str::to_owned);
    let lists = lists.chain(rule.space_delimited_claims.iter().cloned());
    Some(JwtProvider {
        issuer: rule.issuer.clone(),
        audiences: rule.audiences.clone(),
        forward: rule.forward_original_token,
        from_headers,
        from_params: rule.from_params.clone(),
        from_cookies: rule.from_cookies.clone(),
        forward_payload_header: if is_output_header(output) {
            output.clone()
        } else {
            String::new()
        },
        claim_to_headers: claims
            .filter(|one| is_output_header(&one.header))
            .map(|one| JwtClaimToHeader {
                header_name: one.header.clone(),
                claim_name: one.claim.clone(),
                ..JwtClaimToHeader::default()
            })
            .collect(),
        payload_in_metadata: PAYLOAD.to_owned(),
        normalize_payload_in_metadata: Some(NormalizePayload {
            space_delimited_claims: lists.collect(),
        }),
        jwks_source_specifier: Some(JwksSourceSpecifier::LocalJwks(DataSource {
            specifier: Some(data_source::Specifier::InlineString(keys.json().to_owned())),
            ..DataSource::default()
        })),
        ..JwtProvider::default()
    })
}
