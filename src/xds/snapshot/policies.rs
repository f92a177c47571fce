//! Filters of policies: what stands in front of all others where a proxy takes requests and connections.

use std::sync::Arc;

use api::model::World;

use super::{Snapshot, is_same};
use crate::node::Kind;
use crate::resources::proxy::Proxy;
use crate::rules::authorization_policy::{self, Filters, Providers, Surroundings};
use crate::scope::ProxyRules;

/// Bytes that all filters of policies in one proxy's listeners may have. Chosen: a thousand rules of a few values each, on ten
/// ports.
const POLICY_BYTES: usize = 8 << 20;

/// The filters of policies that hold for the workload of a proxy, a sidecar or a router. `chains`: the number of its chains that
/// have them, among which they share [`POLICY_BYTES`].
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
    let most = POLICY_BYTES / chains.max(1);
    let mut lost = Vec::new();
    let keys = &snapshot.world.key_sets;
    let for_router = proxy.node.kind == Kind::Router;
    let tokens = base
        .tokens
        .filter(&policies.requests, keys, for_router, most, &mut lost);
    let surroundings = Surroundings {
        domains: &base.trust_domains,
        providers: Providers {
            mesh: &snapshot.world.mesh,
            service_ports: rules.service_ports(),
        },
    };
    let authorization = &policies.authorization;
    let mut filters = authorization_policy::filters(authorization, surroundings, most, &mut lost);
    match tokens {
        Ok(tokens) => drop(filters.http.splice(..0, tokens)),
        Err(_) => filters.close_to_requests(),
    }
    let of_tokens = policies.requests.iter().map(|policy| policy.from.clone());
    drop(filters.from.splice(..0, of_tokens));
    snapshot.made.tell(lost, &proxy.node.id);
    filters
}

/// Reports whether the same policies hold in both, by the same keys.
pub(super) fn are_same(one: &World, other: &World) -> bool {
    is_same(&one.authorization_policies, &other.authorization_policies)
        && is_same(&one.request_authentications, &other.request_authentications)
        && is_same(&one.key_sets, &other.key_sets)
        && is_same(&one.peer_authentications, &other.peer_authentications)
        && one.earlier_peer_authentications == other.earlier_peer_authentications
}
