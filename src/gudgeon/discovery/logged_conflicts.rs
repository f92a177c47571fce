//! Conflicts that were logged: each once for as long as it lasts, for whichever proxy.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use xds::node::clipped;
use xds::snapshot::Conflict;

use crate::secrets::redact_text;

/// A conflict that nobody finds for so long is over. Chosen: a new snapshot has none until proxies ask for what it makes of them,
/// and the last one has its answer a second after the debounce.
const OVER: Duration = Duration::from_secs(10);

/// Conflicts that were logged, by their hashes: objects may make many, and their texts are long.
#[derive(Debug, Default)]
pub(super) struct LoggedConflicts(BTreeMap<u64, Option<Duration>>);

impl LoggedConflicts {
    /// Returns the conflicts among `all` that were not logged yet.
    pub(super) fn new_conflicts<'a>(
        &mut self,
        now: Duration,
        all: &'a [Conflict],
    ) -> Vec<&'a Conflict> {
        let mut standing = BTreeMap::new();
        let mut news = Vec::new();
        for conflict in all {
            let hash = hash(conflict);
            if standing.insert(hash, None).is_none() && !self.0.contains_key(&hash) {
                news.push(conflict);
            }
        }
        for (hash, missing) in std::mem::take(&mut self.0) {
            let since = missing.unwrap_or(now);
            if now.saturating_sub(since) < OVER {
                standing.entry(hash).or_insert(Some(since));
            }
        }
        self.0 = standing;
        news
    }

    /// Returns the time at which the first of the missing conflicts is over.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let missing = self.0.values().filter_map(|since| *since);
        missing.min().map(|since| since + OVER)
    }
}

fn hash(conflict: &Conflict) -> u64 {
    let mut hasher = DefaultHasher::new();
    (conflict.metric, &conflict.key, &conflict.message).hash(&mut hasher);
    hasher.finish()
}

/// Describes a conflict in one line: the object that lost, and the reason.
pub(super) fn describe(conflict: &Conflict) -> String {
    let Conflict {
        metric,
        key,
        message,
        proxy,
        objects,
        services,
        occurrences: _,
    } = conflict;
    let what = match (objects.as_slice(), services.as_slice()) {
        ([object, ..], _) => object.to_string(),
        ([], [service, ..]) => format!("service {}/{}", service.namespace, service.hostname),
        ([], []) => key.clone(),
    };
    let at = match *what == **key {
        true => String::new(),
        false => format!(" {key}:"),
    };
    let found = match &**proxy {
        "" => String::new(),
        proxy => format!(", found for {}", clipped(proxy)),
    };
    let line = format!("{what}:{at} {message} ({metric}{found})");
    redact_text(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict(key: &str) -> Conflict {
        Conflict {
            metric: "m",
            key: key.to_owned(),
            message: format!("{key} is left out"),
            proxy: "".into(),
            objects: Vec::new(),
            services: Vec::new(),
            occurrences: 1,
        }
    }

    #[test]
    fn each_conflict_is_logged_once_for_as_long_as_it_stands() {
        let mut logged = LoggedConflicts::default();
        let (a, b) = (conflict("a"), conflict("b"));
        let second = Duration::from_secs;
        let mut news = |at: u64, all: &[&Conflict]| {
            let all: Vec<Conflict> = all.iter().map(|one| (*one).clone()).collect();
            let news = logged.new_conflicts(second(at), &all);
            let keys = news.iter().map(|one| one.key.clone());
            (keys.collect::<Vec<_>>().join(" "), logged.deadline())
        };
        assert_eq!(news(0, &[&a]), ("a".to_owned(), None));
        // Another proxy has found the same.
        let other = Conflict {
            proxy: "sidecar~x".into(),
            ..a.clone()
        };
        assert_eq!(news(1, &[&a, &other, &b]), ("b".to_owned(), None));
        // A new snapshot, whose proxies have not asked yet.
        assert_eq!(news(100, &[]), (String::new(), Some(second(110))));
        assert_eq!(news(105, &[&a]), (String::new(), Some(second(110))));
        assert_eq!(news(110, &[&a]), (String::new(), None));
        // The other one is over, and comes back.
        assert_eq!(news(111, &[&a, &b]), ("b".to_owned(), None));
        assert_eq!(news(200, &[]), (String::new(), Some(second(210))));
        assert_eq!(news(210, &[]), (String::new(), None));
    }

    #[test]
    fn a_line_names_what_lost_once() {
        let mut one = conflict("AuthorizationPolicy n/p");
        one.message = "denies everything".to_owned();
        assert_eq!(
            describe(&one),
            "AuthorizationPolicy n/p: denies everything (m)"
        );
        // What it quotes may be a secret.
        one.message = "spec.rules[0].when[0].values[0]: \"hunter2\" is left out".to_owned();
        assert_eq!(
            describe(&one),
            "AuthorizationPolicy n/p: spec.rules[0].when[0].values[0]: \"…\" is left out (m)"
        );
        one.message = "denies everything".to_owned();
        one.key = "0.0.0.0_9000".to_owned();
        one.services = vec![api::model::ServiceKey::new("b.n", "n")];
        one.proxy = "sidecar~x".into();
        assert_eq!(
            describe(&one),
            "service n/b.n: 0.0.0.0_9000: denies everything (m, found for sidecar~x)"
        );
    }
}
