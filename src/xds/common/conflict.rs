//! Parts that are left out of the resources, because two services want one place.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use api::model::{ObjectRef, ServiceKey};

/// One thing that was left out, and why. Told by metrics and pages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conflict {
    pub metric: &'static str,
    /// The name in conflict: of a listener, of a cluster, a domain.
    pub key: String,
    pub message: String,
    /// The id of a proxy that it was found for; empty: it is all proxies' alike.
    pub proxy: Arc<str>,
    /// The rules that are to blame, where some are.
    pub objects: Vec<ObjectRef>,
    /// The services that are left out, or parts of them: a source that knows the objects of a service reports the conflict at
    /// those.
    pub services: Vec<ServiceKey>,
    /// The number of conflicts that it stands for: metrics count those that are not listed, too.
    pub occurrences: usize,
}

pub(crate) const TCP_OVER_TCP: &str = "pilot_conflict_outbound_listener_tcp_over_current_tcp";
pub(crate) const TCP_OVER_HTTP: &str = "pilot_conflict_outbound_listener_tcp_over_current_http";
pub(crate) const HTTP_OVER_TCP: &str = "pilot_conflict_outbound_listener_http_over_current_tcp";
/// Ports of HTTP that would take all TLS. Those of ServiceEntries are of no service here: their registry tells of them.
pub const HTTP_OVER_HTTPS: &str = "pilot_conflict_outbound_listener_http_over_https";
/// Services that say another protocol than one before them, at one port of a workload.
pub(crate) const INBOUND_LISTENER: &str = "pilot_conflict_inbound_listener";
pub(crate) const GATEWAY_WITHOUT_ADDRESS: &str = "gudgeon_network_gateways_without_address";
pub(crate) const INVALID_LISTENER: &str = "pilot_invalid_out_listeners";
pub(crate) const DUPLICATE_CLUSTER: &str = "pilot_duplicate_envoy_clusters";
/// Rules make more of something than a proxy is given.
pub(crate) const TOO_LARGE: &str = "gudgeon_rules_too_large";
/// Policies that deny more than written, because they cannot be enforced as written, or do not hold for a Service that they name,
/// because it does not exist or selects no workloads, or are for sidecars and select routers alone.
pub(crate) const NOT_ENFORCED_AS_WRITTEN: &str = "gudgeon_policies_not_enforced_as_written";
/// DestinationRules by which clients speak mutual TLS to servers that take none, or plain text to servers that take nothing else.
pub(crate) const MTLS_CONFLICT: &str = "gudgeon_mutual_tls_conflicts";
/// Patches of EnvoyFilters that cannot be applied as they are written.
pub(crate) const PATCH_NOT_APPLIED: &str = "gudgeon_envoy_filter_patches_not_applied";
/// Patches of EnvoyFilters that change nothing of any connected proxy: another replica may have one that they change.
pub(crate) const PATCH_WITHOUT_MATCH: &str = "gudgeon_envoy_filter_patches_without_match";
/// Routes that are left to another rule, which is not there for it, or contradicts.
pub(crate) const DELEGATE: &str = "gudgeon_delegates_left_out";
/// A part of an object that another one leaves no place for, or that nothing can be made of.
pub const REJECTED_CONFIG: &str = "pilot_total_rejected_configs";
pub(crate) const DUPLICATE_DOMAIN: &str = "pilot_vservice_dup_domain";

/// Conflicts of a part of one rule, or of one service, that are told one by one in one scope: their author knows the fault by then.
const MAX_PER_SUBJECT: usize = 20;
/// Conflicts of one namespace that are listed, whose tenant may write any number of rules.
const MAX_PER_NAMESPACE: usize = 200;

/// The rule or the service that a conflict is counted for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Rule(ObjectRef),
    Service(ServiceKey),
}

impl Subject {
    fn of(conflict: &Conflict) -> Option<Self> {
        let rule = conflict.objects.first().cloned().map(Self::Rule);
        let service = || conflict.services.first().cloned().map(Self::Service);
        rule.or_else(service)
    }

    const fn namespace(&self) -> &Arc<str> {
        match self {
            Self::Rule(rule) => &rule.namespace,
            Self::Service(service) => &service.namespace,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => rule.fmt(to),
            Self::Service(service) => write!(to, "{}/{}", service.namespace, service.hostname),
        }
    }
}

/// A metric, and a part of a rule.
type Cause = (&'static str, Option<Subject>, usize);

#[derive(Clone, Debug, Default)]
struct Count {
    all: usize,
    /// The indices of the conflicts that are listed.
    listed: Vec<usize>,
}

/// The conflicts of one scope: a bounded number for each rule and service, and the number of the others.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    all: Vec<Conflict>,
    by_cause: BTreeMap<Cause, Count>,
    by_namespace: BTreeMap<Arc<str>, usize>,
}

impl Conflicts {
    /// Adds a conflict; `make` builds it only if the limit allows one more.
    pub(crate) fn push(
        &mut self,
        metric: &'static str,
        object: Option<&ObjectRef>,
        make: impl FnOnce() -> (String, String),
    ) {
        if !self.counts((metric, object.cloned().map(Subject::Rule), 0)) {
            return;
        }
        let (key, message) = make();
        let conflict = Conflict::new(metric, key, message);
        self.all.push(match object {
            Some(object) => conflict.because_of(object),
            None => conflict,
        });
    }

    /// One of a part of a rule: each is told by itself, and what is told already is not told again.
    pub(crate) fn add(&mut self, part: usize, conflict: Conflict) {
        let cause = (conflict.metric, Subject::of(&conflict), part);
        // A repeat must not use up the limit, so the look for it comes first. It has the same cause.
        let count_by_cause = self.by_cause.get(&cause);
        let mut listed = count_by_cause.iter().flat_map(|count| &count.listed);
        if !listed.any(|at| self.all.get(*at) == Some(&conflict)) && self.counts(cause) {
            self.all.push(conflict);
        }
    }

    /// Returns true if one more is told: the caller adds it to the list.
    fn counts(&mut self, cause: Cause) -> bool {
        let namespace = cause.1.as_ref().map(|subject| subject.namespace().clone());
        let of_namespace = self.by_namespace.entry(namespace.unwrap_or_default());
        let of_namespace = of_namespace.or_default();
        let of_cause = self.by_cause.entry(cause).or_default();
        // The count of a rule rises beyond its limit: `finish` says how many are not listed.
        of_cause.all += 1;
        let is_listed =
            of_cause.listed.len() < MAX_PER_SUBJECT && *of_namespace < MAX_PER_NAMESPACE;
        if is_listed {
            of_cause.listed.push(self.all.len());
            *of_namespace += 1;
        }
        is_listed
    }

    /// Returns the conflicts, with a count of those beyond the limits.
    pub(crate) fn finish(self) -> Vec<Conflict> {
        let mut all = self.all;
        let mut more: BTreeMap<(&'static str, Option<Subject>), usize> = BTreeMap::new();
        for ((metric, subject, _), count) in self.by_cause {
            let unlisted = count.all - count.listed.len();
            if unlisted > 0 {
                *more.entry((metric, subject)).or_default() += unlisted;
            }
        }
        let mut more = more.into_iter();
        // Tenants write any number of rules, so the summaries have a bound, too.
        let summaries = more.by_ref().take(MAX_PER_NAMESPACE);
        all.extend(
            summaries.map(|((metric, subject), count)| summary(metric, subject.as_ref(), count)),
        );
        if let Some(((metric, _), first)) = more.next() {
            let counts: Vec<usize> = more.map(|(_, count)| count).collect();
            let message = format!(
                "conflicts of {} more rules and services are not listed",
                1 + counts.len()
            );
            let rest = Conflict::new(metric, "rules", message);
            all.push(rest.standing_for(first + counts.iter().sum::<usize>()));
        }
        all
    }
}

impl Extend<Conflict> for Conflicts {
    /// Adds conflicts of the same part of their rules.
    fn extend<T: IntoIterator<Item = Conflict>>(&mut self, all: T) {
        all.into_iter().for_each(|conflict| self.add(0, conflict));
    }
}

/// Says how many conflicts of one subject are not listed.
fn summary(metric: &'static str, subject: Option<&Subject>, count: usize) -> Conflict {
    let name = subject.map(ToString::to_string);
    let name = name.unwrap_or_else(|| "services".to_owned());
    let message = format!("{count} more conflicts of {name} are not listed");
    let conflict = Conflict::new(metric, name, message).standing_for(count);
    match subject {
        Some(Subject::Rule(rule)) => conflict.because_of(rule),
        Some(Subject::Service(service)) => conflict.of_service(service),
        None => conflict,
    }
}

impl Conflict {
    pub(crate) fn new(metric: &'static str, key: impl Into<String>, message: String) -> Self {
        Self {
            metric,
            key: key.into(),
            message,
            proxy: "".into(),
            objects: Vec::new(),
            services: Vec::new(),
            occurrences: 1,
        }
    }

    /// The namespace of the rule or the service that it is told at first.
    pub(crate) fn namespace(&self) -> Arc<str> {
        let subject = Subject::of(self);
        let namespace = subject.as_ref().map(Subject::namespace);
        namespace.cloned().unwrap_or_default()
    }

    /// Returns true if both have one metric, key and message, be it for other proxies.
    pub(crate) fn is_repeat_of(&self, other: &Self) -> bool {
        self.metric == other.metric && self.key == other.key && self.message == other.message
    }

    /// Tells it at the objects of one that says the same, too.
    pub(crate) fn add(&mut self, other: Self) {
        // Both may stand for the same ones: the sum would count those twice.
        self.occurrences = self.occurrences.max(other.occurrences);
        let known = std::mem::take(&mut self.objects);
        let all: BTreeSet<_> = known.into_iter().chain(other.objects).collect();
        self.objects = all.into_iter().collect();
        let known = std::mem::take(&mut self.services);
        let all: BTreeSet<_> = known.into_iter().chain(other.services).collect();
        self.services = all.into_iter().collect();
    }

    pub(crate) fn because_of(mut self, object: &ObjectRef) -> Self {
        self.objects.push(object.clone());
        self
    }

    pub(crate) fn of_service(mut self, service: &ServiceKey) -> Self {
        self.services.push(service.clone());
        self
    }

    pub(crate) fn standing_for(self, occurrences: usize) -> Self {
        Self {
            occurrences,
            ..self
        }
    }

    pub(crate) fn of(self, proxy: &Arc<str>) -> Self {
        Self {
            proxy: proxy.clone(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_rule_are_counted_together() {
        let rule = ObjectRef {
            kind: "EnvoyFilter",
            namespace: "a".into(),
            name: "f".into(),
        };
        let mut conflicts = Conflicts::default();
        for part in 0..2 {
            for at in 0..30 {
                let conflict = Conflict::new(PATCH_NOT_APPLIED, "f", format!("{part} {at}"));
                conflicts.add(part, conflict.because_of(&rule));
            }
        }
        let all = conflicts.finish();
        assert_eq!(all.len(), 41);
        assert_eq!(
            all[40].message,
            "20 more conflicts of EnvoyFilter a/f are not listed"
        );
    }

    #[test]
    fn ten_thousand_conflicts_of_a_tenant_become_a_few() {
        let mut conflicts = Conflicts::default();
        let rule = |name: usize| ObjectRef {
            kind: "VirtualService",
            namespace: "a".into(),
            name: name.to_string().as_str().into(),
        };
        let mut made = 0;
        for name in 0..1000 {
            for host in 0..30 {
                conflicts.push(DUPLICATE_DOMAIN, Some(&rule(name)), || {
                    made += 1;
                    (host.to_string(), "is left out".to_owned())
                });
            }
        }
        conflicts.push(DUPLICATE_DOMAIN, None, || ("b".to_owned(), String::new()));
        assert_eq!(made, MAX_PER_NAMESPACE);
        let all = conflicts.finish();
        assert_eq!(all.len(), 2 * MAX_PER_NAMESPACE + 2);
        let told: Vec<&str> = all.iter().map(|one| one.message.as_str()).collect();
        // Rules have 10 beyond the limit of a rule, or all 30 beyond that of the namespace.
        assert!(told[MAX_PER_NAMESPACE + 1].starts_with("10 more conflicts of "));
        assert!(told[2 * MAX_PER_NAMESPACE].starts_with("30 more conflicts of "));
        assert_eq!(
            told[2 * MAX_PER_NAMESPACE + 1],
            "conflicts of 800 more rules and services are not listed"
        );
        let occurrences: usize = all.iter().map(|one| one.occurrences).sum();
        assert_eq!(occurrences, 1000 * 30 + 1);
        assert!(!all[2 * MAX_PER_NAMESPACE].objects.is_empty());
    }

    /// 30 services whose address an older one has lost 60 domains: 20 of them were told, for all namespaces together.
    #[test]
    fn conflicts_of_services_are_told_in_each_namespace() {
        let mut conflicts = Conflicts::default();
        let services: Vec<_> = (0..30)
            .map(|at| ServiceKey::new("a.example", &format!("n{at}")))
            .collect();
        for service in &services {
            for domain in 0..25 {
                let conflict = Conflict::new(DUPLICATE_DOMAIN, domain.to_string(), String::new());
                conflicts.add(0, conflict.of_service(service));
            }
        }
        let all = conflicts.finish();
        for service in &services {
            let told = all.iter().filter(|one| one.services == [service.clone()]);
            let told: Vec<_> = told.collect();
            assert_eq!(told.len(), MAX_PER_SUBJECT + 1);
            let summary = format!("5 more conflicts of {}/a.example", service.namespace);
            assert!(told[MAX_PER_SUBJECT].message.starts_with(&summary));
        }
        let occurrences: usize = all.iter().map(|one| one.occurrences).sum();
        assert_eq!(occurrences, 30 * 25);
    }
}
