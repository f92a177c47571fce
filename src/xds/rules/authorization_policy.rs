//! AuthorizationPolicy: filters in front of a workload's application that let requests and connections in, or do not
//! (discovery.md §18).
//!
//! No policy opens what it cannot decide: of one that lets in, a rule that cannot be made is left out; one that keeps out,
//! keeps out everything then. Whatever is so is told at the policy.

mod conditions;
mod matching;
mod message;
mod operation;
mod source;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::model::ObjectRef;
use api::security::authorization_policy::Action;
use api::security::{AuthorizationPolicy, Rule as Written};
use envoy_types::pb::envoy::config::listener::v3::Filter;
use envoy_types::pb::envoy::config::rbac::v3::{Permission, Policy, Principal, rbac};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use prost::Message as _;

use self::matching::Combined as _;
use crate::common::conflict::{Conflict, NOT_ENFORCED_AS_WRITTEN, TOO_LARGE};
use crate::common::trust::TrustDomains;
use crate::scope::Rule;

/// Filters in front of all others: of requests, and of connections that carry something else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filters {
    pub(crate) http: Vec<HttpFilter>,
    pub(crate) tcp: Vec<Filter>,
    /// Policies that they are made of.
    pub(crate) from: Vec<ObjectRef>,
}

impl Filters {
    /// No request is let in.
    pub(crate) fn close_to_requests(&mut self) {
        self.http = vec![message::http(message::Rules::default())];
    }
}

/// What a filter looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Http,
    Tcp,
}

/// Why nothing can be made of a rule.
#[derive(Debug, PartialEq, Eq)]
enum Unfit {
    /// It asks for what only requests have, and this is a connection.
    OnlyHttp,
    /// In words, behind the field that is to blame.
    Because(String),
}

/// What the parts of a rule are made with.
#[derive(Clone, Copy, Debug)]
struct Context<'a> {
    transport: Transport,
    /// What connections do not have is left out of a rule that keeps out, so that it keeps out more.
    leaves_out: bool,
    domains: &'a TrustDomains,
    /// Of the policy: service accounts without a namespace are of this one.
    namespace: &'a str,
}

impl Context<'_> {
    /// Whether a field that only requests have counts here. `given`: the rule has it.
    fn takes_http(&self, given: bool) -> Result<bool, Unfit> {
        match self.transport {
            Transport::Http => Ok(given),
            Transport::Tcp if given && !self.leaves_out => Err(Unfit::OnlyHttp),
            Transport::Tcp => Ok(false),
        }
    }
}

/// Policies of Envoy's by name: an object's rule each.
type Named = BTreeMap<String, Policy>;

/// The decisions of one transport, in the order in which they are made.
#[derive(Debug, Default)]
struct Decisions {
    /// Nothing is let in at all.
    closed: bool,
    deny: Named,
    /// `None`: no policy lets anything in by name, so everything is.
    allow: Option<Named>,
    audit: Named,
    bytes: usize,
}

impl Decisions {
    fn add(&mut self, action: Action, name: String, policy: Policy) {
        self.bytes = self.bytes.saturating_add(name.len() + policy.encoded_len());
        let all = match action {
            Action::Deny => &mut self.deny,
            Action::Allow => self.allow.get_or_insert_default(),
            Action::Audit => &mut self.audit,
            Action::Custom => return self.closed = true,
        };
        all.insert(name, policy);
    }

    fn rules(self) -> Vec<message::Rules> {
        let rules = |action: rbac::Action, policies| message::Rules {
            action: action.into(),
            policies,
        };
        if self.closed {
            return vec![rules(rbac::Action::Allow, Named::new())];
        }
        let deny = (!self.deny.is_empty()).then(|| rules(rbac::Action::Deny, self.deny));
        let allow = self.allow.map(|allow| rules(rbac::Action::Allow, allow));
        let audit = (!self.audit.is_empty()).then(|| rules(rbac::Action::Log, self.audit));
        [deny, allow, audit].into_iter().flatten().collect()
    }
}

/// The filters of a workload that these policies hold for. `most`: bytes that they may have; beyond that nothing is let in.
pub(crate) fn filters(
    policies: &[Arc<Rule<AuthorizationPolicy>>],
    domains: &TrustDomains,
    most: usize,
    told: &mut Vec<Conflict>,
) -> Filters {
    let (mut http, mut tcp) = (Decisions::default(), Decisions::default());
    for policy in policies {
        // What is written in few bytes may come to many, but not without end.
        let fits = policy.spec().encoded_len() <= most;
        if fits {
            add(policy, domains, (&mut http, &mut tcp), told);
        }
        if !fits || http.bytes.max(tcp.bytes) > most {
            let message = format!(
                "nothing is let in: the policies of one workload come to more than {most} bytes, {} among them",
                policy.from
            );
            let conflict = Conflict::new(TOO_LARGE, policy.from.to_string(), message);
            told.push(conflict.because_of(&policy.from));
            (http.closed, tcp.closed) = (true, true);
            break;
        }
    }
    Filters {
        http: http.rules().into_iter().map(message::http).collect(),
        tcp: tcp.rules().into_iter().map(message::tcp).collect(),
        from: policies.iter().map(|policy| policy.from.clone()).collect(),
    }
}

fn add(
    policy: &Rule<AuthorizationPolicy>,
    domains: &TrustDomains,
    (http, tcp): (&mut Decisions, &mut Decisions),
    told: &mut Vec<Conflict>,
) {
    let spec = policy.spec();
    let mut tell = |words: &str| {
        let message = format!("{}: {words}", policy.from);
        let key = format!("{}: {words}", policy.from);
        let conflict = Conflict::new(NOT_ENFORCED_AS_WRITTEN, key, message);
        told.push(conflict.because_of(&policy.from));
    };
    let action = match Action::try_from(spec.action) {
        Ok(Action::Custom) => {
            tell("nothing is let in: no provider is asked in this release");
            Action::Custom
        }
        Ok(action) => action,
        Err(_) => {
            tell("nothing is let in: spec.action is not known");
            Action::Custom
        }
    };
    if action == Action::Custom {
        (http.closed, tcp.closed) = (true, true);
        return;
    }
    if action == Action::Allow {
        // It keeps out what none of its rules lets in, also if it has none.
        http.allow.get_or_insert_default();
        tcp.allow.get_or_insert_default();
    }
    for (at, rule) in spec.rules.iter().enumerate() {
        let (namespace, object) = (policy.namespace(), &policy.object.name);
        let name = format!("ns[{namespace}]-policy[{object}]-rule[{at}]");
        for (transport, decisions) in [(Transport::Http, &mut *http), (Transport::Tcp, &mut *tcp)] {
            let context = Context {
                transport,
                leaves_out: action == Action::Deny,
                domains,
                namespace,
            };
            match rule_of(rule, &context) {
                Ok(made) => decisions.add(action, name.clone(), made),
                Err(Unfit::OnlyHttp) => {}
                Err(Unfit::Because(words)) if action == Action::Deny => {
                    tell(&format!("spec.rules[{at}] keeps out everything: {words}"));
                    decisions.add(action, name.clone(), everything());
                }
                Err(Unfit::Because(words)) => {
                    tell(&format!("spec.rules[{at}] matches nothing: {words}"));
                }
            }
        }
    }
}

fn everything() -> Policy {
    Policy {
        permissions: vec![Permission::all(Vec::new())],
        principals: vec![Principal::all(Vec::new())],
        ..Policy::default()
    }
}

/// One of the sources asks for one of the operations, and all conditions hold.
fn rule_of(rule: &Written, context: &Context<'_>) -> Result<Policy, Unfit> {
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
