//! Containers that the user writes and a template makes, too: the user's fields win, and are recorded for the next pass.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use serde_json::{Map, Value, json};

use crate::merge::{self, Layer};
use crate::output_types;
use crate::pod::{self, PROXY, PodList};
use crate::protected_containers::ProtectedContainers;
use crate::schema::{self, Kind};
use crate::status::{OVERRIDES, Status};
use crate::warnings::Warnings;

/// An image that the template is to choose.
const AUTO: &str = "auto";

/// The user's containers, as they were written, by [`PodList::OF_CONTAINERS`].
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Overrides([Vec<Value>; 2]);

impl Overrides {
    /// Returns the pod's containers that `is_made` selects by name; sorted, since a later pass may find them in another
    /// order.
    pub(crate) fn of(pod: &Value, is_made: impl Fn(&str) -> bool) -> Self {
        Self(PodList::OF_CONTAINERS.map(|list| {
            let own = pod::list(pod, list).iter();
            let own = own.filter(|one| is_made(pod::name(one)));
            let mut own: Vec<Value> = own
                .filter_map(|one| merge::clean(one.clone(), Layer::User))
                .collect();
            own.sort_by(|a, b| pod::name(a).cmp(pod::name(b)));
            own
        }))
    }

    /// Returns the names of all overrides.
    pub(crate) fn names(&self) -> HashSet<&str> {
        self.0.iter().flatten().map(pod::name).collect()
    }

    /// The value of the annotation; `None` if there is nothing to store.
    pub(crate) fn to_text(&self) -> Option<String> {
        let lists = PodList::OF_CONTAINERS.iter().zip(&self.0);
        let entries: Map<String, Value> = lists
            .filter(|(_, own)| !own.is_empty())
            .map(|(list, own)| (list.name().to_owned(), json!(own)))
            .collect();
        (!entries.is_empty()).then(|| Value::Object(entries).to_string())
    }

    /// Returns the overrides that an earlier pass stored and that its status names; malformed ones are dropped.
    pub(crate) fn stored(pod: &Value, earlier: &Status) -> Self {
        let text = pod::annotation(pod, OVERRIDES);
        let Some(Ok(entries @ Value::Object(_))) = text.map(serde_json::from_str::<Value>) else {
            return Self::default();
        };
        let spec = schema::object("PodSpec").map_or(Kind::Any, Kind::Object);
        // Any author can write the annotation: values of other types would make a pod that no server accepts.
        if output_types::shape(&entries, spec, "").is_err() {
            return Self::default();
        }
        // The proxy may be a container here and an init container there.
        let named = PodList::OF_CONTAINERS.map(|list| earlier.names(list));
        let is_named = |one: &&Value| named.iter().any(|names| names.contains(pod::name(one)));
        Self(PodList::OF_CONTAINERS.map(|list| {
            let containers = entries.get(list.name()).and_then(Value::as_array);
            let containers = containers.into_iter().flatten().filter(is_named);
            containers.cloned().collect()
        }))
    }

    /// Takes the overrides of other names than templates give, by name.
    pub(crate) fn withhold(&mut self, of_templates: &BTreeSet<String>) -> BTreeMap<String, Value> {
        let mut withheld = BTreeMap::new();
        for list in &mut self.0 {
            let (stay, others): (Vec<Value>, Vec<Value>) = std::mem::take(list)
                .into_iter()
                .partition(|one| of_templates.contains(pod::name(one)));
            *list = stay;
            for one in others {
                withheld.entry(pod::name(&one).to_owned()).or_insert(one);
            }
        }
        withheld
    }

    /// The stored containers by list and name; each can be taken once.
    pub(crate) fn into_pending(self) -> PendingOverrides {
        let lists = self.0.map(|containers| {
            let mut places: HashMap<String, VecDeque<usize>> = HashMap::new();
            for (place, one) in containers.iter().enumerate() {
                let name = pod::name(one).to_owned();
                places.entry(name).or_default().push_back(place);
            }
            let containers = containers.into_iter().map(Some).collect();
            PendingList { containers, places }
        });
        PendingOverrides(lists)
    }

    /// Lays the user's containers over the template's, except for the template's privileges.
    pub(crate) fn lay(&self, pod: &mut Value, protected: &ProtectedContainers) {
        if self.0.iter().all(Vec::is_empty) {
            return;
        }
        let kind = schema::element_of("containers");
        // The first of a name: in the one list, or else in the other.
        let mut places: HashMap<String, (PodList, usize)> = HashMap::new();
        for list in PodList::OF_CONTAINERS {
            for (place, container) in pod::list(pod, list).iter().enumerate() {
                let name = pod::name(container).to_owned();
                places.entry(name).or_insert((list, place));
            }
        }
        for own in self.0.iter().flatten() {
            let mut own = own.clone();
            protected.take(&mut own);
            if let Some(fields) = own.as_object_mut()
                && fields.get("image").and_then(Value::as_str) == Some(AUTO)
            {
                fields.shift_remove("image");
            }
            if let Some((list, place)) = places.get(pod::name(&own))
                && let Some(containers) = pod::existing_list_mut(pod, *list)
                && let Some(container) = containers.get_mut(*place)
            {
                merge::lay(container, own, kind, Layer::User);
            }
        }
    }

    /// Excludes the traffic of the user that the pod's own proxy container has from redirection; root needs nothing.
    ///
    /// A transparent proxy must be root itself, so that the user has no effect on it, as in Istio since 1.20.
    pub(crate) fn give_user(&self, pod: &mut Value, is_transparent: bool, warnings: &mut Warnings) {
        let Some(user) = self.proxy_id("runAsUser").filter(|user| *user != 0) else {
            return;
        };
        let mut group = None;
        if is_transparent {
            for proxy in pod::proxies_mut(pod) {
                if let Some(context) = pod::object_mut(proxy, "securityContext") {
                    context.insert("runAsUser".to_owned(), json!(0));
                    // Kubelet starts no root beside a user's `true`.
                    context.insert("runAsNonRoot".to_owned(), json!(false));
                    group = context.get("runAsGroup").and_then(Value::as_i64);
                }
            }
            warnings.push(|| {
                format!("runAsUser {user} of {PROXY} has no effect: with TPROXY it must be 0")
            });
        }
        let init = pod::existing_list_mut(pod, PodList::InitContainers);
        for container in init.into_iter().flatten() {
            match pod::name(container) {
                // It validates the CNI plugin's redirection as the proxy's user.
                "istio-validation" if !is_transparent => {
                    if let Some(context) = pod::object_mut(container, "securityContext") {
                        let group = self.proxy_id("runAsGroup");
                        context.insert("runAsUser".to_owned(), json!(user));
                        context.extend(group.map(|group| ("runAsGroup".to_owned(), json!(group))));
                    }
                }
                "istio-validation" | "istio-init" => {}
                _ => continue,
            }
            let args = container.get_mut("args").and_then(Value::as_array_mut);
            let Some(args) = args else { continue };
            let mut after = false;
            for arg in args.iter_mut() {
                if after {
                    *arg = json!(user.to_string());
                }
                after = !after && arg.as_str() == Some("-u");
            }
            // The group, without which istio-iptables takes the user's number: the proxy's traffic is known by it alone.
            if let Some(group) = group
                && !args.iter().any(|arg| arg.as_str() == Some("-g"))
            {
                args.extend([json!("-g"), json!(group.to_string())]);
            }
        }
    }

    fn proxy_id(&self, field: &str) -> Option<i64> {
        let mut own = self.0.iter().flatten();
        let proxy = own.find(|one| pod::name(one) == PROXY)?;
        proxy.get("securityContext")?.get(field)?.as_i64()
    }
}

/// Containers that wait for their places, by [`PodList::OF_CONTAINERS`].
#[derive(Debug)]
pub(crate) struct PendingOverrides([PendingList; 2]);

#[derive(Debug)]
struct PendingList {
    /// Overrides that are not taken yet.
    containers: Vec<Option<Value>>,
    /// By name.
    places: HashMap<String, VecDeque<usize>>,
}

impl PendingOverrides {
    /// The container that was kept for a place, once.
    pub(crate) fn take(&mut self, list: PodList, name: &str) -> Option<Value> {
        let mut lists = PodList::OF_CONTAINERS.iter().zip(&mut self.0);
        let (_, waiting) = lists.find(|(known_list, _)| **known_list == list)?;
        let place = waiting.places.get_mut(name)?.pop_front()?;
        waiting.containers.get_mut(place)?.take()
    }

    /// Appends the remaining overrides to their lists, unless their name is taken.
    pub(crate) fn put_back(self, pod: &mut Value) {
        for (list, waiting) in PodList::OF_CONTAINERS.into_iter().zip(self.0) {
            let mut remaining = waiting.containers.into_iter().flatten().peekable();
            if remaining.peek().is_none() {
                continue;
            }
            let names = pod::list(pod, list).iter();
            let mut names: HashSet<String> = names.map(|one| pod::name(one).to_owned()).collect();
            if let Some(containers) = pod::list_mut(pod, list) {
                containers.extend(remaining.filter(|one| names.insert(pod::name(one).to_owned())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::ByList;

    fn status() -> Status {
        Status {
            lists: ByList {
                containers: vec!["a".to_owned()],
                ..ByList::default()
            },
            ..Status::default()
        }
    }

    #[test]
    fn kept_overrides_are_read_as_they_were_written() {
        let pod = json!({"spec": {"containers": [{"name": "a", "image": "auto", "x": 1.0}, {"name": "b"}]}});
        let own = Overrides::of(&pod, |name| name == "a");
        let text = own.to_text().unwrap();
        assert_eq!(
            text,
            r#"{"containers":[{"name":"a","image":"auto","x":1.0}]}"#
        );
        let pod = json!({"metadata": {"annotations": {OVERRIDES: text}}});
        assert_eq!(Overrides::stored(&pod, &status()), own);
        assert_eq!(
            Overrides::stored(&pod, &Status::default()),
            Overrides::default()
        );
        assert_eq!(Overrides::default().to_text(), None);
    }

    #[test]
    fn texts_without_containers_are_no_overrides() {
        for text in [
            "",
            "7",
            "[]",
            r#"{"containers":"a"}"#,
            r#"{"containers":[{"name":"a","args":1}]}"#,
            r#"{"containers":[{}]}"#,
        ] {
            let pod = json!({"metadata": {"annotations": {OVERRIDES: text}}});
            assert_eq!(
                Overrides::stored(&pod, &status()),
                Overrides::default(),
                "{text}"
            );
        }
    }
}
