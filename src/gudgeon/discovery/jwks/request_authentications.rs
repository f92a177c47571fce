//! The sources of keys that RequestAuthentications name.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::config::discovery_notes::MAX_FETCH_TIMEOUT;
use api::duration;
use api::model::Objects;
use api::networking::DiscoveryKind as _;
use api::security::{JwksSource, RequestAuthentication};

use super::{Jwks, MAX_KEY_SETS, MAX_PER_NAMESPACE, WantedKeys};

/// The timeout of one fetch, unless the rule sets another. Source: the default of `jwtRules[].timeout` in Istio's API.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The policies whose keys are fetched.
pub(in crate::discovery) type TokenPolicies = Arc<Objects<RequestAuthentication>>;

/// Kind, namespace and name of a policy.
type PolicyKey = (Arc<str>, Arc<str>, Arc<str>);

impl Jwks {
    /// Returns the notes on policies.
    pub(crate) fn notes(&self) -> BTreeMap<PolicyKey, Vec<String>> {
        let kind: Arc<str> = RequestAuthentication::NAME.into();
        let notes = self.state().notes().into_iter();
        notes
            .map(|((namespace, name), notes)| ((Arc::clone(&kind), namespace, name), notes))
            .collect()
    }
}

/// Sources that rules want keys of, each once, as far as they are fetched.
pub(in crate::discovery) fn wanted_keys(policies: &Objects<RequestAuthentication>) -> WantedKeys {
    let mut all = WantedKeys::default();
    let mut of_namespace = HashMap::<Arc<str>, usize>::new();
    let mut beyond = Vec::new();
    for policy in policies.values() {
        for (at, rule) in policy.spec.jwt_rules.iter().enumerate() {
            let Some(source) = JwksSource::of(rule) else {
                continue;
            };
            let namespace = &policy.namespace;
            let by = (namespace.clone(), policy.name.clone(), at);
            let source_entry = all.wanted.get(&source);
            // A namespace pays for a source once, however many of its rules want it.
            if !source_entry.is_some_and(|one| one.timeouts.contains_key(namespace)) {
                let count = of_namespace.entry(namespace.clone()).or_default();
                let is_beyond = source_entry.is_none() && all.wanted.len() >= MAX_KEY_SETS;
                if *count >= MAX_PER_NAMESPACE || is_beyond {
                    beyond.push((source, by));
                    continue;
                }
                *count += 1;
            }
            let timeout_nanos = rule.timeout.as_ref().map(duration::nanos);
            let timeout_nanos = timeout_nanos.and_then(|nanos| u64::try_from(nanos).ok());
            let timeout = timeout_nanos
                .map_or(TIMEOUT, Duration::from_nanos)
                .min(MAX_FETCH_TIMEOUT);
            let one = all.wanted.entry(source).or_default();
            let longest = one.timeouts.entry(namespace.clone()).or_default();
            *longest = timeout.max(*longest);
            one.by.push(by);
        }
    }
    // Keys that another namespace has fetched are as good.
    for (source, by) in beyond {
        match all.wanted.get_mut(&source) {
            Some(one) => one.by.push(by),
            None => all.left_out.push(by),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use api::google::protobuf;
    use api::model::Configured;
    use api::security::JwtRule;

    use super::*;

    fn policies(all: &[(&str, Vec<(String, i64)>)]) -> Objects<RequestAuthentication> {
        let policies = all.iter().map(|(namespace, sources)| {
            let rules = sources.iter().map(|(url, seconds)| JwtRule {
                jwks_uri: url.clone(),
                timeout: (*seconds > 0).then_some(protobuf::Duration {
                    seconds: *seconds,
                    nanos: 0,
                }),
                ..JwtRule::default()
            });
            let policy = Configured {
                name: "p".into(),
                namespace: (*namespace).into(),
                created: None,
                prefers_close: false,
                dry_run: false,
                spec: RequestAuthentication {
                    jwt_rules: rules.collect(),
                    ..RequestAuthentication::default()
                },
            };
            let key = (policy.namespace.clone(), policy.name.clone());
            (key, Arc::new(policy))
        });
        policies.collect()
    }

    #[test]
    fn each_namespace_wants_a_place_with_a_timeout_of_its_own() {
        let url = |at: usize| format!("https://{at}/keys");
        // One that has as many as it may gets what others fetch.
        let many = (0..=MAX_PER_NAMESPACE + 1).map(|at| (url(at), 900));
        let own = vec![(url(0), 1), (url(0), 3), (url(MAX_PER_NAMESPACE), 0)];
        let all = wanted_keys(&policies(&[("a", many.collect()), ("v", own)]));
        assert_eq!(all.wanted.len(), MAX_PER_NAMESPACE + 1);
        let of = |at: usize| {
            let one = &all.wanted[&JwksSource::Set(url(at).into())];
            let timeouts = one.timeouts.iter();
            let timeouts: Vec<_> = timeouts.map(|(of, time)| (&**of, time.as_secs())).collect();
            (timeouts, one.by.len())
        };
        assert_eq!(of(0), (vec![("a", 60), ("v", 3)], 3));
        assert_eq!(of(1), (vec![("a", 60)], 1));
        assert_eq!(of(MAX_PER_NAMESPACE), (vec![("v", 5)], 2));
        let left_out: Vec<_> = all
            .left_out
            .iter()
            .map(|(of, _, at)| (&**of, *at))
            .collect();
        assert_eq!(left_out, [("a", MAX_PER_NAMESPACE + 1)]);
    }
}
