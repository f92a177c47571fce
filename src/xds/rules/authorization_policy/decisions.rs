//! The decisions that policies come to, for each kind of traffic, and the filters that make them.

use std::collections::BTreeMap;

use api::security::authorization_policy::Action;
use envoy_types::pb::envoy::config::listener::v3::Filter;
use envoy_types::pb::envoy::config::rbac::v3::{Policy, rbac};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use prost::Message as _;

use super::custom::{Provider, Providers};
use super::{Transport, message};

/// Policies of Envoy's by name: an object's rule each.
pub(super) type NamedPolicies = BTreeMap<String, Policy>;

/// The decisions of one transport, in the order in which they are made.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    /// True if a policy denies everything.
    pub(super) closed: bool,
    /// Policies about which a provider is asked, by its name.
    custom: BTreeMap<String, NamedPolicies>,
    deny: NamedPolicies,
    /// `None`: no policy allows requests by name, so all are allowed.
    pub(super) allow: Option<NamedPolicies>,
    audit: NamedPolicies,
    pub(super) bytes: usize,
}

impl Decisions {
    pub(super) fn add(&mut self, action: Action, name: String, policy: Policy) {
        self.bytes = self.bytes.saturating_add(name.len() + policy.encoded_len());
        let all = match action {
            Action::Deny => &mut self.deny,
            Action::Allow => self.allow.get_or_insert_default(),
            Action::Audit => &mut self.audit,
            // See `add_custom`.
            Action::Custom => return self.closed = true,
        };
        all.insert(name, policy);
    }

    pub(super) fn add_custom(&mut self, provider: &str, name: String, policy: Policy) {
        self.bytes = self.bytes.saturating_add(name.len() + policy.encoded_len());
        let of_provider = self.custom.entry(provider.to_owned()).or_default();
        of_provider.insert(name, policy);
    }

    /// Returns the filters' rules, without the policies that providers are asked about.
    fn rules(self) -> Vec<message::Rbac> {
        // Envoy's filter that allows and has no policies denies everything.
        if self.closed {
            return vec![rules(rbac::Action::Allow, NamedPolicies::new())];
        }
        let deny = (!self.deny.is_empty()).then(|| rules(rbac::Action::Deny, self.deny));
        let allow = self.allow.map(|allow| rules(rbac::Action::Allow, allow));
        let audit = (!self.audit.is_empty()).then(|| rules(rbac::Action::Log, self.audit));
        // A DENY stands above every ALLOW; AUDIT decides nothing and logs what is let in.
        [deny, allow, audit].into_iter().flatten().collect()
    }
}

/// The decisions of a workload's policies.
#[derive(Debug, Default)]
pub(super) struct ByTransport {
    pub(super) http: Decisions,
    pub(super) tcp: Decisions,
    pub(super) unread: Decisions,
}

impl ByTransport {
    pub(super) fn all(&mut self) -> [(Transport, &mut Decisions); 3] {
        [
            (Transport::Http, &mut self.http),
            (Transport::Tcp, &mut self.tcp),
            (Transport::Unread, &mut self.unread),
        ]
    }

    /// Denies everything.
    pub(super) fn close(&mut self) {
        for (_, decisions) in self.all() {
            decisions.closed = true;
        }
    }

    /// Returns the bytes of the largest.
    pub(super) fn bytes(&self) -> usize {
        self.http.bytes.max(self.tcp.bytes).max(self.unread.bytes)
    }
}

impl Decisions {
    /// Returns the filters of requests that ask providers, and those that decide.
    pub(super) fn of_requests(
        mut self,
        providers: Providers<'_>,
    ) -> (Vec<HttpFilter>, Vec<HttpFilter>) {
        let asking = self.asked(providers);
        let asking = asking.flat_map(|(provider, rules)| provider.http(rules));
        let asking = asking.collect();
        (
            asking,
            self.rules().into_iter().map(message::http).collect(),
        )
    }

    /// Returns the filters of connections that ask providers, and those that decide.
    pub(super) fn of_connections(mut self, providers: Providers<'_>) -> (Vec<Filter>, Vec<Filter>) {
        let asking = self.asked(providers);
        let asking = asking.flat_map(|(provider, rules)| provider.tcp(rules));
        let asking = asking.collect();
        (asking, self.rules().into_iter().map(message::tcp).collect())
    }

    /// Takes the providers in the order of their names, each with the rules of the shadow that refuses what the policy matches:
    /// `ext_authz` asks where that is its result. None where a policy denies everything anyway.
    fn asked<'a>(
        &mut self,
        providers: Providers<'a>,
    ) -> impl Iterator<Item = (Provider<'a>, message::Rbac)> + use<'a> {
        let custom = std::mem::take(&mut self.custom);
        let custom = if self.closed { BTreeMap::new() } else { custom };
        custom.into_iter().filter_map(move |(name, policies)| {
            let provider = providers.named(&name).ok()?;
            Some((provider, rules(rbac::Action::Deny, policies)))
        })
    }

    /// The policies in dry run, each with the prefix of its statistics.
    pub(super) fn tried(self) -> Vec<(message::Rbac, &'static str)> {
        let deny = (!self.deny.is_empty()).then(|| rules(rbac::Action::Deny, self.deny));
        let allow = self.allow.map(|allow| rules(rbac::Action::Allow, allow));
        let deny = deny.map(|deny| (deny, "istio_dry_run_deny_"));
        let allow = allow.map(|allow| (allow, "istio_dry_run_allow_"));
        deny.into_iter().chain(allow).collect()
    }
}

fn rules(action: rbac::Action, policies: NamedPolicies) -> message::Rbac {
    message::Rbac {
        action: action.into(),
        policies,
    }
}
