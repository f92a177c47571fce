//! The status annotation of an injection.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::pod::{self, ByList, PROXY, PodList};

/// The annotation that lists the injected elements.
pub(crate) const STATUS: &str = "sidecar.istio.io/status";
/// The annotation with the user's version of containers that a template also makes.
pub(crate) const OVERRIDES: &str = "proxy.istio.io/overrides";

/// The injected elements, as the annotation lists them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) version: String,
    /// Names in the template's order.
    pub(crate) lists: ByList<Vec<String>>,
    /// The revision; overlays only.
    pub(crate) revision: Option<String>,
    /// Keys that the pod had not.
    pub(crate) labels: Vec<String>,
    pub(crate) annotations: Vec<String>,
    /// The user's values that others took the place of: see `replaced`.
    pub(crate) replaced: Map<String, Value>,
}

impl Status {
    /// Compact JSON, keys in their order.
    pub(crate) fn to_text(&self) -> String {
        let mut entries = Map::new();
        entries.insert("version".to_owned(), Value::from(self.version.as_str()));
        for (list, names) in self.lists.iter() {
            entries.insert(
                list.name().to_owned(),
                if names.is_empty() {
                    Value::Null
                } else {
                    Value::from(names.clone())
                },
            );
        }
        entries.extend(
            self.revision
                .as_ref()
                .map(|revision| ("revision".to_owned(), Value::from(revision.as_str()))),
        );
        for (key, keys) in [("labels", &self.labels), ("annotations", &self.annotations)] {
            if !keys.is_empty() {
                entries.insert(key.to_owned(), Value::from(keys.clone()));
            }
        }
        if !self.replaced.is_empty() {
            entries.insert("replaced".to_owned(), self.replaced.clone().into());
        }
        Value::Object(entries).to_string()
    }

    /// The keys that `after` has and `before` has not, of labels and annotations; never the two annotations of the injector's own.
    pub(crate) fn note_metadata(&mut self, before: Option<&Value>, after: &Value) {
        for (key, noted) in [
            ("labels", &mut self.labels),
            ("annotations", &mut self.annotations),
        ] {
            let had = before.and_then(|metadata| pod::object(metadata, key));
            let has = after
                .get("metadata")
                .and_then(|metadata| pod::object(metadata, key));
            let is_new = |key: &&String| {
                had.is_none_or(|had| had.get(*key).is_none_or(Value::is_null))
                    && *key != STATUS
                    && *key != OVERRIDES
            };
            let entries = has.into_iter().flatten();
            let keys = entries.filter(|(_, value)| !value.is_null());
            *noted = keys.map(|(key, _)| key).filter(is_new).cloned().collect();
            noted.sort_unstable();
        }
    }

    /// Moves the proxy's name to the list that has it, and drops names of missing elements.
    pub(crate) fn locate(&mut self, pod: &Value) {
        let ByList {
            init_containers: init,
            containers,
            ..
        } = &mut self.lists;
        let mut of_pod = pod::list(pod, PodList::InitContainers).iter();
        if of_pod.any(|one| pod::name(one) == PROXY)
            && let Some(place) = containers.iter().position(|name| name == PROXY)
        {
            let proxy = containers.remove(place);
            // Two templates may make it, one of them among the init containers.
            if !init.contains(&proxy) {
                init.push(proxy);
            }
        }
        for (list, names) in self.lists.iter_mut() {
            let there = pod::list(pod, list).iter().map(pod::name);
            let there: HashSet<&str> = there.collect();
            names.retain(|name| there.contains(name.as_str()));
        }
    }

    /// Returns the status in the pod's annotation; `None` if it is absent, unreadable or empty.
    pub(crate) fn of(pod: &Value) -> Option<Self> {
        let Ok(Value::Object(entries)) = serde_json::from_str(pod::annotation(pod, STATUS)?) else {
            return None;
        };
        let names = |key: &str| -> Vec<String> {
            let items = entries
                .get(key)
                .and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice);
            items
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        let text = |key: &str| entries.get(key).and_then(Value::as_str).map(str::to_owned);
        let status = Self {
            version: text("version").unwrap_or_default(),
            lists: ByList::from_fn(|list| names(list.name())),
            revision: text("revision"),
            labels: names("labels"),
            annotations: names("annotations"),
            replaced: match entries.get("replaced") {
                Some(Value::Object(replaced)) => replaced.clone(),
                _ => Map::new(),
            },
        };
        let lists = status.lists.iter().map(|(_, names)| names);
        let names_something = lists
            .chain([&status.labels, &status.annotations])
            .any(|names| !names.is_empty());
        (names_something || !status.replaced.is_empty()).then_some(status)
    }

    /// The names that Istio used before it wrote a status that can be read. The proxy's is one of containers of both kinds: a
    /// pod has each name once.
    pub(crate) fn legacy() -> Self {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            lists: ByList {
                init_containers: names(&["istio-init", "enable-core-dump", PROXY]),
                containers: names(&[PROXY]),
                volumes: names(&["istio-certs", "istio-envoy"]),
                image_pull_secrets: Vec::new(),
            },
            ..Self::default()
        }
    }

    /// The names of a list as a set, for many lookups: there may be as many as an annotation holds.
    pub(crate) fn names(&self, list: PodList) -> HashSet<&str> {
        self.lists.get(list).iter().map(String::as_str).collect()
    }

    pub(crate) fn has(&self, list: PodList, name: &str) -> bool {
        self.lists.get(list).iter().any(|known| known == name)
    }

    /// The object in a variable that an earlier injection gave its proxy.
    pub(crate) fn stored_variable(&self, pod: &Value, name: &str) -> Option<Map<String, Value>> {
        let lists = PodList::OF_CONTAINERS.into_iter();
        let mut containers = lists
            .filter(|list| self.has(*list, PROXY))
            .flat_map(|list| pod::list(pod, list));
        let proxy = containers.find(|one| pod::name(one) == PROXY)?;
        let env = proxy.get("env")?.as_array()?;
        // Of two variables with one name Kubernetes uses the last.
        let variable = env.iter().rfind(|one| pod::name(one) == name)?;
        serde_json::from_str(variable.get("value")?.as_str()?).ok()
    }

    /// Reports for each element of a list whether it was injected; empty for a list without injected elements.
    ///
    /// A fragment appends and never looks at the user's names, so of elements that share one the last is its own. An overlay
    /// was laid over all that have it.
    pub(crate) fn put_in(&self, list: PodList, elements: &[Value]) -> Vec<bool> {
        let names = self.names(list);
        if names.is_empty() {
            return Vec::new();
        }
        let is_overlay = self.revision.is_some();
        let mut seen = HashSet::new();
        let mut found: Vec<bool> = elements
            .iter()
            .rev()
            .map(|element| {
                let name = pod::name(element);
                names.contains(name) && (seen.insert(name) || is_overlay)
            })
            .collect();
        found.reverse();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(text: &str) -> Option<Status> {
        Status::of(&json!({"metadata": {"annotations": {STATUS: text}}}))
    }

    #[test]
    fn a_status_is_read_as_it_is_written() {
        let status = Status {
            version: "v".to_owned(),
            lists: ByList {
                init_containers: vec!["a".to_owned()],
                volumes: vec!["b".to_owned(), "c".to_owned()],
                ..ByList::default()
            },
            revision: Some("r".to_owned()),
            labels: vec!["l".to_owned()],
            annotations: Vec::new(),
            replaced: Map::from_iter([(
                "labels".to_owned(),
                json!({"m": {"was": "n", "is": "o"}}),
            )]),
        };
        let text = r#"{"version":"v","initContainers":["a"],"containers":null,"volumes":["b","c"],"imagePullSecrets":null,"revision":"r","labels":["l"],"replaced":{"labels":{"m":{"was":"n","is":"o"}}}}"#;
        assert_eq!(status.to_text(), text);
        assert_eq!(of(text), Some(status));
    }

    #[test]
    fn a_fragment_made_the_last_of_elements_that_share_a_name() {
        let elements = ["a", "b", "a", "c", "a"].map(|name| json!({"name": name}));
        let fragment = Status {
            lists: ByList {
                image_pull_secrets: vec!["a".to_owned(), "c".to_owned()],
                ..ByList::default()
            },
            ..Status::default()
        };
        assert_eq!(
            fragment.put_in(PodList::ImagePullSecrets, &elements),
            [false, false, false, true, true]
        );
        assert!(fragment.put_in(PodList::Volumes, &elements).is_empty());
        let overlay = Status {
            revision: Some("default".to_owned()),
            ..fragment
        };
        assert_eq!(
            overlay.put_in(PodList::ImagePullSecrets, &elements),
            [true, false, true, true, true]
        );
    }

    #[test]
    fn a_status_without_containers_is_none() {
        for text in [
            "",
            "{",
            "{}",
            "7",
            "null",
            "[]",
            r#"{"version":"v"}"#,
            r#"{"containers":[]}"#,
            r#"{"containers":{"a":1}}"#,
            r#"{"containers":[1]}"#,
            r#"{"replaced":{}}"#,
            r#"{"replaced":["labels"]}"#,
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(Status::of(&json!({})), None);
    }
}
