//! Objects of kinds that a reader of files does not read, by file: they are no mistakes, and their author may wonder.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::config;

use crate::catalogue::{ConfigObject, CoreKind, Message, Origin};

/// Kinds of a file that are named, at most.
const MAX_NAMED: usize = 20;

/// The number of such objects, by place, and by version and kind.
#[derive(Debug, Default)]
pub(crate) struct UnreadKinds {
    kinds: BTreeMap<Arc<str>, BTreeMap<String, usize>>,
    /// Those that pages show, by place.
    written: BTreeMap<Arc<str>, Vec<Arc<ConfigObject>>>,
}

impl UnreadKinds {
    /// Replaces those of a place.
    pub(crate) fn put(&mut self, place: &Arc<str>, kinds: BTreeMap<String, usize>) {
        match kinds.is_empty() {
            true => drop(self.kinds.remove(place)),
            false => drop(self.kinds.insert(Arc::clone(place), kinds)),
        }
    }

    /// Replaces those of a place that pages show.
    pub(crate) fn put_objects(&mut self, place: &Arc<str>, objects: Vec<Arc<ConfigObject>>) {
        match objects.is_empty() {
            true => drop(self.written.remove(place)),
            false => drop(self.written.insert(Arc::clone(place), objects)),
        }
    }

    pub(crate) fn remove(&mut self, place: &str) {
        self.kinds.remove(place);
        self.written.remove(place);
    }

    /// Iterates over the objects that pages show, by place.
    pub(crate) fn config_objects(&self) -> impl Iterator<Item = &Arc<ConfigObject>> {
        self.written.values().flatten()
    }

    /// Returns the messages about them, by place. `origin` gives the origin of a place.
    pub(crate) fn messages(&self, origin: impl Fn(&str) -> Origin) -> Vec<Message> {
        let mut messages = Vec::new();
        for (place, kinds) in &self.kinds {
            let mut report = |text: &str| messages.push(Message::new(origin(place), text));
            let (of_cluster, foreign): (Vec<_>, Vec<_>) =
                kinds.iter().partition(|(kind, _)| is_of_cluster(kind));
            for (kind, count) in foreign.into_iter().take(MAX_NAMED) {
                let api_version = kind.split_once(' ').map_or("", |(version, _)| version);
                report(&match config::unread_api(api_version) {
                    Some(why) => format!("{count} of {kind} not used: {}", why.message),
                    None => format!("discovery does not serve {kind}: {count} not used"),
                });
            }
            let count: usize = of_cluster.into_iter().map(|(_, count)| count).sum();
            match count {
                0 => {}
                1 => report("1 object of Kubernetes is not used: the API server has it"),
                count => report(&format!(
                    "{count} objects of Kubernetes are not used: the API server has them"
                )),
            }
        }
        messages
    }
}

/// Returns true for a kind that discovery reads of files unless an API server has its objects. `kind`: with its version.
fn is_of_cluster(kind: &str) -> bool {
    let core = kind.split_once(' ');
    let core = core.and_then(|(api_version, kind)| CoreKind::of(api_version, kind));
    core.is_some_and(|core| core != CoreKind::IngressClass)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_the_gateway_api_are_told_with_their_cause() {
        let mut unread = UnreadKinds::default();
        let kinds = [
            ("gateway.networking.k8s.io/v1 HTTPRoute", 2),
            ("apps/v1 Deployment", 1),
        ];
        let kinds = kinds.map(|(kind, count)| (kind.to_owned(), count));
        unread.put(&"a.yaml".into(), kinds.into());
        let messages = unread.messages(|_| Origin::default());
        let messages: Vec<_> = messages.iter().map(ToString::to_string).collect();
        assert_eq!(messages.len(), 2);
        assert!(messages[0].ends_with("discovery does not serve apps/v1 Deployment: 1 not used"));
        let cause = "gudgeon does not read Gateway API objects; they have no effect";
        assert!(
            messages[1].ends_with(&format!(
                "2 of gateway.networking.k8s.io/v1 HTTPRoute not used: {cause}"
            )),
            "{messages:?}"
        );
    }
}
