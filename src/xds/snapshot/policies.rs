//! Filters of policies: what stands in front of all others where a proxy takes requests and connections.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::model::ObjectRef;
use api::security::authorization_policy::Action;

use super::{Conflict, Snapshot};
use crate::common::conflict::NOT_ENFORCED_AS_WRITTEN;
use crate::node::Kind;
use crate::resources::proxy::Proxy;
use crate::rules::authorization_policy::{self, Filters, PolicyContext, Providers};
use crate::rules::peer_authentication::{MtlsMode, MtlsModes};
use crate::scope::ProxyRules;
use crate::scope::policies::WorkloadPolicies;

/// Bytes that all filters of policies in one proxy's listeners may have. Chosen: a thousand rules of a few values each, on ten
/// ports.
const POLICY_BYTES: usize = 8 << 20;

/// Bytes that they come to in a router's chains: of tokens, of policies, and of those that are tried.
pub(super) const CHAIN_BYTES: usize = 3 * POLICY_BYTES;

/// The filters of policies that hold for the workload of a proxy, a sidecar or a router. `chains`: the number of its chains that
/// have them, among which they share [`POLICY_BYTES`]. Chains of a router are anybody's who writes Gateways: they do not count, and
/// have [`CHAIN_BYTES`].
pub(super) fn filters(
    snapshot: &Arc<Snapshot>,
    proxy: &Proxy,
    rules: &ProxyRules,
    chains: usize,
) -> Filters {
    let base = &snapshot.base;
    let policies = base.policies.of(&proxy.node.namespace, &proxy.labels);
    if proxy.node.grpc || policies.is_empty() {
        return Filters::default();
    }
    let max = POLICY_BYTES / chains.max(1);
    let mut lost = Vec::new();
    let keys = &snapshot.world.key_sets;
    let for_router = proxy.node.kind == Kind::Router;
    let tokens = base
        .tokens
        .filter(&policies.requests, keys, for_router, max, &mut lost);
    let context = PolicyContext {
        domains: &base.trust_domains,
        providers: Providers {
            mesh: &snapshot.world.mesh,
            service_ports: rules.service_ports(),
        },
    };
    let authorization = &policies.authorization;
    let is_readable = tokens.is_ok();
    let tokens = Vec::from_iter(tokens.ok().flatten());
    let mut filters = authorization_policy::filters(authorization, tokens, context, max, &mut lost);
    if !is_readable {
        filters.close_to_requests();
    }
    lost.extend(asked_by_derived_headers(&policies));
    let of_tokens = policies.requests.iter().map(|policy| &policy.from);
    let unread = of_tokens.clone().map(unread_tokens);
    filters.of_unread.extend(unread);
    drop(filters.from.splice(..0, of_tokens.cloned()));
    snapshot.caches.report(lost, &proxy.node.id);
    filters
}

/// CUSTOM policies that go by headers which are made of claims: their providers are asked before tokens are read, so that such a header
/// is the client's own then.
fn asked_by_derived_headers(policies: &WorkloadPolicies) -> Vec<Conflict> {
    let rules = policies.requests.iter();
    let rules = rules.flat_map(|policy| &policy.spec().jwt_rules);
    let derived: BTreeSet<String> = rules
        .flat_map(|rule| {
            let of_claims = rule.output_claim_to_headers.iter().map(|one| &one.header);
            of_claims.chain([&rule.output_payload_to_header])
        })
        .map(|name| name.to_ascii_lowercase())
        .collect();
    let is_derived = |key: &str| {
        let name = key.strip_prefix("request.headers[");
        let name = name.and_then(|rest| rest.strip_suffix(']'));
        name.is_some_and(|name| derived.contains(&name.to_ascii_lowercase()))
    };
    let custom = policies.authorization.iter();
    let custom = custom.filter(|policy| policy.spec().action() == Action::Custom);
    let custom = custom.filter(|policy| {
        let mut conditions = policy.spec().rules.iter().flat_map(|rule| &rule.when);
        !policy.object.dry_run && conditions.any(|condition| is_derived(&condition.key))
    });
    custom
        .map(|policy| {
            let message = "asks by a header that is made of claims only after that: the client decides whether the provider is asked";
            not_enforced_as_written(&policy.from, message)
        })
        .collect()
}

fn not_enforced_as_written(policy: &ObjectRef, message: &str) -> Conflict {
    let key = policy.to_string();
    Conflict::new(NOT_ENFORCED_AS_WRITTEN, key, message.to_owned()).because_of(policy)
}

fn unread_tokens(policy: &ObjectRef) -> Conflict {
    let message = "does not check the tokens of requests to ports without a protocol that the proxy does not read as requests: those \
                   behind mutual TLS, and those that do not begin as requests do";
    not_enforced_as_written(policy, message)
}

/// Policies that hold for a workload whose connections no proxy has: nothing is intercepted, and no Sidecar has ingress for it.
pub(super) fn unenforced(
    snapshot: &Snapshot,
    proxy: &Proxy,
    mtls_modes: &MtlsModes,
) -> Vec<Conflict> {
    let policies = snapshot
        .base
        .policies
        .of(&proxy.node.namespace, &proxy.labels);
    let authorization = policies.authorization.iter().map(|rule| &rule.from);
    let requests = policies.requests.iter().map(|rule| &rule.from);
    let is_strict = mtls_modes.of_server(None) == MtlsMode::Strict;
    let peers = mtls_modes.from().filter(|_| is_strict);
    let all = authorization.chain(requests).chain(peers);
    all.map(|policy| {
        let message = "is not enforced: the proxy intercepts nothing (INTERCEPTION_MODE NONE), and no Sidecar has ingress for it";
        not_enforced_as_written(policy, message)
    })
    .collect()
}
