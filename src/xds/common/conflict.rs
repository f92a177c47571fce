//! Parts that are left out of the resources, because two services want one place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::model::{ObjectRef, ServiceKey};

/// One thing that was left out, and why. Told by metrics and pages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    pub metric: &'static str,
    /// The name in conflict: of a listener, of a cluster, a domain.
    pub key: String,
    pub message: String,
    /// The id of a proxy that it was found for; empty: it is all proxies' alike.
    pub proxy: Arc<str>,
    /// The rules that are to blame, where some are.
    pub objects: Vec<ObjectRef>,
    /// The services that are left out, or parts of them: whoever knows the objects that they were made of tells it at those.
    pub services: Vec<ServiceKey>,
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
/// because it does not exist or selects no workloads.
pub(crate) const NOT_ENFORCED_AS_WRITTEN: &str = "gudgeon_policies_not_enforced_as_written";
/// DestinationRules by which clients speak mutual TLS to servers that take none, or plain text to servers that take nothing else.
pub(crate) const MTLS_CONFLICT: &str = "gudgeon_mutual_tls_conflicts";
/// Patches of EnvoyFilters that cannot be applied as they are written.
pub(crate) const PATCH_NOT_APPLIED: &str = "gudgeon_envoy_filter_patches_not_applied";
/// Patches of EnvoyFilters that change nothing of any connected proxy: another replica may have one that they change.
pub const PATCH_WITHOUT_MATCH: &str = "gudgeon_envoy_filter_patches_without_match";
/// Routes that are left to another rule, which is not there for it, or contradicts.
pub(crate) const DELEGATE: &str = "gudgeon_delegates_left_out";
/// A part of an object that another one leaves no place for, or that nothing can be made of.
pub const REJECTED_CONFIG: &str = "pilot_total_rejected_configs";
pub(crate) const DUPLICATE_DOMAIN: &str = "pilot_vservice_dup_domain";

/// Conflicts of a part of one rule that are told one by one in one scope: whoever reads so many knows what is wrong.
const MOST_OF_RULE: usize = 20;
/// Conflicts of one namespace that are listed, whose tenant may write any number of rules.
const MOST_OF_NAMESPACE: usize = 200;

/// A metric, and a part of a rule.
type Cause = (&'static str, Option<ObjectRef>, usize);

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: usize,
    listed: usize,
}

/// The conflicts of one scope: a bounded number for each rule, and the number of the others.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    all: Vec<Conflict>,
    by_rule: BTreeMap<Cause, Count>,
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
        if !self.counts((metric, object.cloned(), 0)) {
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
        let cause = (conflict.metric, conflict.objects.first().cloned(), part);
        // A repeat must not use up the limit, so the look for it comes first.
        if !self.all.contains(&conflict) && self.counts(cause) {
            self.all.push(conflict);
        }
    }

    /// Returns true if one more is told.
    fn counts(&mut self, cause: Cause) -> bool {
        let namespace = cause.1.as_ref();
        let namespace = namespace.map_or_else(|| "".into(), |object| object.namespace.clone());
        let of_namespace = self.by_namespace.entry(namespace).or_default();
        let of_rule = self.by_rule.entry(cause).or_default();
        // The count of a rule rises beyond its limit: `finish` says how many are not listed.
        of_rule.all += 1;
        let is_listed = of_rule.listed < MOST_OF_RULE && *of_namespace < MOST_OF_NAMESPACE;
        of_rule.listed += usize::from(is_listed);
        *of_namespace += usize::from(is_listed);
        is_listed
    }

    /// Returns the conflicts, with a count of those beyond the limits.
    pub(crate) fn finish(self) -> Vec<Conflict> {
        let mut all = self.all;
        let mut more: BTreeMap<(&'static str, Option<ObjectRef>), usize> = BTreeMap::new();
        for ((metric, object, _), count) in self.by_rule {
            if count.all > count.listed {
                *more.entry((metric, object)).or_default() += count.all - count.listed;
            }
        }
        let mut more = more.into_iter();
        // Tenants write any number of rules, so the summaries have a bound, too.
        for ((metric, object), count) in more.by_ref().take(MOST_OF_NAMESPACE) {
            let name = object.as_ref().map(ToString::to_string);
            let name = name.unwrap_or_else(|| "services".to_owned());
            let message = format!("{count} more conflicts of {name} are not listed");
            let conflict = Conflict::new(metric, name, message);
            all.push(match &object {
                Some(object) => conflict.because_of(object),
                None => conflict,
            });
        }
        if let Some(((metric, _), _)) = more.next() {
            let message = format!(
                "conflicts of {} more rules are not listed",
                1 + more.count()
            );
            all.push(Conflict::new(metric, "rules", message));
        }
        all
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
        }
    }

    /// Returns true if both have one metric, key and message, be it for other proxies.
    pub(crate) fn is_repeat_of(&self, other: &Self) -> bool {
        self.metric == other.metric && self.key == other.key && self.message == other.message
    }

    /// Tells it at the objects of one that says the same, too.
    pub(crate) fn add(&mut self, other: Self) {
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
        assert_eq!(made, MOST_OF_NAMESPACE);
        let all = conflicts.finish();
        assert_eq!(all.len(), 2 * MOST_OF_NAMESPACE + 2);
        let told: Vec<&str> = all.iter().map(|one| one.message.as_str()).collect();
        // Rules have 10 beyond the limit of a rule, or all 30 beyond that of the namespace.
        assert!(told[MOST_OF_NAMESPACE + 1].starts_with("10 more conflicts of "));
        assert!(told[2 * MOST_OF_NAMESPACE].starts_with("30 more conflicts of "));
        assert_eq!(
            told[2 * MOST_OF_NAMESPACE + 1],
            "conflicts of 800 more rules are not listed"
        );
        assert!(!all[2 * MOST_OF_NAMESPACE].objects.is_empty());
    }
}
