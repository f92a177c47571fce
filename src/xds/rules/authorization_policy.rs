//! AuthorizationPolicy: filters in front of a workload's application that let requests and connections in, or do not
//! (discovery.md §18).
//!
//! Policies whose action is CUSTOM come first: a service of the mesh is asked about what they match ([`custom`]).
//!
//! A policy that is tried (`istio.io/dry-run`) decides nothing: the proxy counts what it would have decided, in front of those that
//! do.
//!
//! No policy opens what it cannot decide: of one that lets in, a rule that cannot be made is left out; one that keeps out, keeps
//! out everything then. Either is told at the policy.

mod conditions;
mod custom;
mod decisions;
mod matching;
mod message;
mod operation;
mod server_name;
mod source;

use std::sync::Arc;

use api::model::ObjectRef;
use api::security::authorization_policy::{Action, ActionDetail};
use api::security::{AuthorizationPolicy, Rule as Written};
use envoy_types::pb::envoy::config::listener::v3::Filter;
use envoy_types::pb::envoy::config::rbac::v3::{Permission, Policy, Principal};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use prost::Message as _;

use self::custom::Provider;
pub(crate) use self::custom::{Providers, without_provider};
use self::decisions::{ByTransport, Decisions};
use self::matching::Combined as _;
pub(crate) use self::server_name::by_server_name;
use crate::common::conflict::{Conflict, NOT_ENFORCED_AS_WRITTEN, TOO_LARGE};
use crate::common::trust::TrustDomains;
use crate::scope::Rule;

/// Filters in front of all others: of requests, and of connections that carry something else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filters {
    pub(crate) http: Vec<HttpFilter>,
    pub(crate) tcp: Vec<Filter>,
    /// Filters of connections to ports without a protocol or a service: the proxy reads no requests there; an application may.
    pub(crate) unread: Vec<Filter>,
    /// Reports for proxies that have ports without a protocol.
    pub(crate) of_unread: Vec<Conflict>,
    /// Policies that they are made of.
    pub(crate) from: Vec<ObjectRef>,
}

impl Filters {
    /// No request is let in.
    pub(crate) fn close_to_requests(&mut self) {
        self.http = vec![message::http(message::Rbac::default())];
    }
}

/// The kind of traffic that a filter looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Http,
    Tcp,
    /// Bytes that may be requests: see [`Filters::unread`].
    Unread,
}

/// The reason why nothing can be made of a rule.
#[derive(Debug, PartialEq, Eq)]
enum RuleError {
    /// The rule needs attributes of HTTP requests, and this is a connection.
    OnlyHttp,
    /// The reason in words, behind the field that is to blame.
    Because(String),
}

/// The inputs to the parts of a rule, besides the rule.
#[derive(Clone, Copy, Debug)]
struct RuleContext<'a> {
    transport: Transport,
    action: Action,
    /// True if conditions that connections do not have are left out of a rule that keeps out, so that it keeps out more.
    leaves_out: bool,
    domains: &'a TrustDomains,
    /// The namespace of the policy: service accounts without one are of this.
    namespace: &'a str,
}

impl RuleContext<'_> {
    /// Returns true if the rule denies what it matches, or has it asked about.
    const fn keeps_out(&self) -> bool {
        matches!(self.action, Action::Deny | Action::Custom)
    }

    /// Returns true if a field that only requests have counts here. `given`: the rule has it.
    fn takes_http(&self, given: bool) -> Result<bool, RuleError> {
        match self.transport {
            Transport::Http => Ok(given),
            Transport::Tcp | Transport::Unread
                if given && !(self.keeps_out() && self.leaves_out) =>
            {
                Err(RuleError::OnlyHttp)
            }
            Transport::Tcp | Transport::Unread => Ok(false),
        }
    }
}

/// The parts of the mesh that policies refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyContext<'a> {
    pub(crate) domains: &'a TrustDomains,
    pub(crate) providers: Providers<'a>,
}

/// The filters of a workload that these policies hold for. `max`: bytes that they may have; a workload whose policies
/// come to more is denied everything.
///
/// `tokens`, which read the tokens of requests, are behind the providers and before everything else: a provider is asked about
/// the request as it came, with the token that `jwt_authn` may take out of it, and may itself add a token, whose claims the other
/// policies then look at. So does Istio.
pub(crate) fn filters(
    policies: &[Arc<Rule<AuthorizationPolicy>>],
    tokens: Vec<HttpFilter>,
    context: PolicyContext<'_>,
    max: usize,
    conflicts: &mut Vec<Conflict>,
) -> Filters {
    let mut made = ByTransport::default();
    let mut of_unread = Vec::new();
    let (of_http, of_tcp) = trials(policies, context, max, conflicts);
    for policy in policies.iter().filter(|policy| !policy.object.dry_run) {
        // What is written in few bytes may come to many, but not without end.
        let fits = policy.spec().encoded_len() <= max;
        if fits {
            add(policy, context, &mut made, conflicts, &mut of_unread);
        }
        if !fits || made.bytes() > max {
            let message = format!(
                "denies everything: the policies of one workload come to more than {max} bytes, {} among them",
                policy.from
            );
            let conflict = Conflict::new(TOO_LARGE, policy.from.to_string(), message);
            conflicts.push(conflict.because_of(&policy.from));
            made.close();
            break;
        }
    }
    let ByTransport { http, tcp, unread } = made;
    let (asking, rules) = http.of_requests(context.providers);
    let of_http = asking.into_iter().chain(tokens).chain(of_http).chain(rules);
    let of_connections = |decisions: Decisions| {
        let (asking, rules) = decisions.of_connections(context.providers);
        let all = asking
            .into_iter()
            .chain(of_tcp.iter().cloned())
            .chain(rules);
        all.collect()
    };
    Filters {
        http: of_http.collect(),
        tcp: of_connections(tcp),
        unread: of_connections(unread),
        of_unread,
        from: policies.iter().map(|policy| policy.from.clone()).collect(),
    }
}

/// The filters of policies that are tried: they come before those that are enforced, so that each sees all that providers let in.
fn trials(
    policies: &[Arc<Rule<AuthorizationPolicy>>],
    context: PolicyContext<'_>,
    max: usize,
    conflicts: &mut Vec<Conflict>,
) -> (Vec<HttpFilter>, Vec<Filter>) {
    let mut decisions = ByTransport::default();
    for policy in policies.iter().filter(|policy| policy.object.dry_run) {
        let is_tried = matches!(policy.spec().action(), Action::Allow | Action::Deny);
        if is_tried && policy.spec().encoded_len() <= max {
            add(policy, context, &mut decisions, conflicts, &mut Vec::new());
        }
        if policy.spec().encoded_len() > max || decisions.bytes() > max {
            let message = format!(
                "no policy is tried: those of one workload come to more than {max} bytes, {} among them",
                policy.from
            );
            let conflict = Conflict::new(TOO_LARGE, policy.from.to_string(), message);
            conflicts.push(conflict.because_of(&policy.from));
            return (Vec::new(), Vec::new());
        }
    }
    let of_http = decisions.http.tried().into_iter();
    let of_http = of_http.map(|(rules, prefix)| message::http_shadow(rules, prefix));
    let of_tcp = decisions.tcp.tried().into_iter();
    let of_tcp = of_tcp.map(|(rules, prefix)| message::tcp_shadow(rules, prefix));
    (of_http.collect(), of_tcp.collect())
}

/// The reports about a policy.
struct PolicyReports<'a> {
    policy: &'a ObjectRef,
    conflicts: &'a mut Vec<Conflict>,
    of_unread: &'a mut Vec<Conflict>,
    /// The last rule that denies all connections.
    denies_all_of: Option<usize>,
}

impl PolicyReports<'_> {
    fn report(&mut self, message: String) {
        let conflict = self.conflict(message);
        self.conflicts.push(conflict);
    }

    /// Reports what a rule does to connections, about which its provider cannot be asked.
    fn report_unasked(&mut self, at: usize, transport: Transport) {
        match transport {
            Transport::Http => {}
            Transport::Tcp => {
                self.denies_all_of = Some(at);
                self.report(format!(
                    "spec.rules[{at}] denies connections: its provider checks requests only"
                ));
            }
            Transport::Unread if self.denies_all_of == Some(at) => {}
            Transport::Unread => {
                let conflict = self.conflict(format!(
                    "spec.rules[{at}] denies connections to ports without a protocol or a service, unless the proxy reads them as \
                     requests, and lets in those to TCP ports: its provider checks requests only"
                ));
                self.of_unread.push(conflict);
            }
        }
    }

    fn conflict(&self, message: String) -> Conflict {
        let key = self.policy.to_string();
        Conflict::new(NOT_ENFORCED_AS_WRITTEN, key, message).because_of(self.policy)
    }
}

fn add(
    policy: &Rule<AuthorizationPolicy>,
    context: PolicyContext<'_>,
    made: &mut ByTransport,
    conflicts: &mut Vec<Conflict>,
    of_unread: &mut Vec<Conflict>,
) {
    let spec = policy.spec();
    let mut reports = PolicyReports {
        policy: &policy.from,
        conflicts,
        of_unread,
        denies_all_of: None,
    };
    let (action, provider) = match decision(spec, context.providers) {
        Ok(decision) => decision,
        Err(why) => {
            reports.report(why);
            return made.close();
        }
    };
    if action == Action::Allow {
        // It keeps out what none of its rules lets in, also if it has none.
        for (_, decisions) in made.all() {
            decisions.allow.get_or_insert_default();
        }
    }
    let provider = provider.as_ref();
    let asks_requests_only = provider.is_some_and(|provider| !provider.takes_connections());
    let (namespace, name) = (policy.namespace(), &policy.object.name);
    for (at, rule) in spec.rules.iter().enumerate() {
        for (transport, decisions) in made.all() {
            let context = RuleContext {
                transport,
                action,
                leaves_out: match transport {
                    Transport::Http | Transport::Unread => true,
                    // There are no requests that the provider ought to be asked about.
                    Transport::Tcp => !asks_requests_only,
                },
                domains: context.domains,
                namespace,
            };
            let position = (at, format!("ns[{namespace}]-policy[{name}]-rule[{at}]"));
            add_rule(rule, position, &context, provider, decisions, &mut reports);
        }
    }
}

/// The action of a policy, with the provider that decides it, or the reason why it denies everything.
fn decision<'a>(
    spec: &AuthorizationPolicy,
    providers: Providers<'a>,
) -> Result<(Action, Option<Provider<'a>>), String> {
    let Ok(action) = Action::try_from(spec.action) else {
        return Err("denies everything: spec.action is not known".to_owned());
    };
    let provider = provider(spec, action, providers).map_err(|why| custom::denies_all(&why))?;
    Ok((action, provider))
}

/// Adds what a rule means to one kind of traffic. `at`, `name`: its position in the policy, and the name that Envoy knows it by.
fn add_rule(
    rule: &Written,
    (at, name): (usize, String),
    context: &RuleContext<'_>,
    provider: Option<&Provider<'_>>,
    decisions: &mut Decisions,
    reports: &mut PolicyReports<'_>,
) {
    let policy = match rule_of(rule, context) {
        Ok(policy) => policy,
        // An ALLOW or AUDIT of requests matches no connection (discovery.md §18), nor does a CUSTOM whose provider checks requests.
        Err(RuleError::OnlyHttp) => return,
        Err(RuleError::Because(why)) if context.keeps_out() => {
            let what = match provider {
                None => "denies everything",
                Some(_) => "asks about everything",
            };
            reports.report(format!("spec.rules[{at}] {what}: {why}"));
            everything()
        }
        Err(RuleError::Because(why)) => {
            return reports.report(format!("spec.rules[{at}] matches nothing: {why}"));
        }
    };
    let Some(provider) = provider else {
        return decisions.add(context.action, name, policy);
    };
    if context.transport == Transport::Http || provider.takes_connections() {
        return decisions.add_custom(provider.name(), name, policy);
    }
    reports.report_unasked(at, context.transport);
    decisions.add(Action::Deny, name, policy);
}

/// The provider that is asked; `None`: the policy decides itself.
fn provider<'a>(
    spec: &AuthorizationPolicy,
    action: Action,
    providers: Providers<'a>,
) -> Result<Option<Provider<'a>>, String> {
    if action != Action::Custom {
        return Ok(None);
    }
    let name = match &spec.action_detail {
        Some(ActionDetail::Provider(provider)) => &provider.name,
        None => return Err("spec.provider is missing".to_owned()),
    };
    providers.named(name).map(Some)
}

fn everything() -> Policy {
    Policy {
        permissions: vec![Permission::all(Vec::new())],
        principals: vec![Principal::all(Vec::new())],
        ..Policy::default()
    }
}

/// One of the sources asks for one of the operations, and all conditions hold.
fn rule_of(rule: &Written, context: &RuleContext<'_>) -> Result<Policy, RuleError> {
    let mut permissions = Vec::new();
    let mut principals = Vec::new();
    if !rule.to.is_empty() {
        let all = rule.to.iter();
        let all = all.map(|to| operation::permission(to.operation.as_ref(), context));
        permissions.push(Permission::one_of(all.collect::<Result<_, _>>()?));
    }
    if !rule.from.is_empty() {
        let all = rule.from.iter();
        let all = all.map(|from| source::principal(from.source.as_ref(), context));
        principals.push(Principal::one_of(all.collect::<Result<_, _>>()?));
    }
    for condition in &rule.when {
        conditions::add(condition, context, &mut permissions, &mut principals)?;
    }
    Ok(Policy {
        permissions: vec![Permission::all(permissions)],
        principals: vec![Principal::all(principals)],
        ..Policy::default()
    })
}
