//! NACKs of proxies for the debug pages, joined to the objects that the refused resources were made from.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::model::{ObjectRef, ServiceKey};
use xds::node::clipped;
use xds::view::Type;

use crate::discovery::hub::Hub;

/// Maximum number of NACKs shown for one object, since proxies choose the messages.
const MAX_SHOWN: usize = 3;

/// Different messages of NACKs that are counted for one object: clients choose the messages, and how many streams they have.
const MAX_MESSAGES: usize = 64;

/// NACKs of one object.
#[derive(Debug, Default)]
struct ObjectNacks {
    /// The type, its message, and whether it names a resource of the object, with the streams that say so.
    by_message: BTreeMap<(Type, String, bool), usize>,
    /// Streams whose messages are beyond that number.
    others: usize,
}

/// NACKs of connected proxies, by the objects and the services that have a part in them.
#[derive(Debug, Default)]
pub(super) struct Nacks(BTreeMap<RefusedPart, ObjectNacks>);

/// The object or the service that a refused resource was made of.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RefusedPart {
    Object(ObjectRef),
    Service(ServiceKey),
}

impl Nacks {
    pub(super) fn now(hub: &Hub) -> Self {
        let mut all = Self::default();
        for session in hub.sessions.all() {
            session.with_stream(|stream| {
                for kind in Type::ALL {
                    for nack in stream.nacks(kind) {
                        let objects = nack.rules.into_iter().map(RefusedPart::Object);
                        let services = nack.services.into_iter().map(RefusedPart::Service);
                        for part in objects.chain(services) {
                            all.add(part, kind, &nack.nack.message, nack.is_named);
                        }
                    }
                }
            });
        }
        all
    }

    fn add(&mut self, part: RefusedPart, kind: Type, message: &str, is_named: bool) {
        let key = (kind, clipped(message).to_owned(), is_named);
        let of_object = self.0.entry(part).or_default();
        let by_message = &mut of_object.by_message;
        if by_message.len() < MAX_MESSAGES || by_message.contains_key(&key) {
            *by_message.entry(key).or_default() += 1;
        } else {
            of_object.others += 1;
        }
    }

    /// Describes the NACKs of one object.
    pub(super) fn of(&self, kind: &str, namespace: &Arc<str>, name: &Arc<str>) -> Vec<String> {
        let kind = api::config::KINDS.iter().find(|row| row.kind == kind);
        let nacks = kind.and_then(|row| {
            self.0.get(&RefusedPart::Object(ObjectRef {
                kind: row.kind,
                namespace: Arc::clone(namespace),
                name: Arc::clone(name),
            }))
        });
        nacks.map(ObjectNacks::lines).unwrap_or_default()
    }

    /// Describes the NACKs of resources of one service.
    pub(super) fn of_service(&self, service: &ServiceKey) -> Vec<String> {
        let nacks = self.0.get(&RefusedPart::Service(service.clone()));
        nacks.map(ObjectNacks::lines).unwrap_or_default()
    }
}

impl ObjectNacks {
    fn lines(&self) -> Vec<String> {
        let first = self.by_message.iter().take(MAX_SHOWN);
        let mut lines: Vec<_> = first
            .map(|((kind, message, is_named), streams)| {
                let streams = api::counted(*streams, "stream");
                let part = match is_named {
                    true => " that it has a part in",
                    false => ", and it may have a part in that",
                };
                format!("{streams} refused {}{part}: {message}", kind.as_str())
            })
            .collect();
        let more = self.by_message.len().saturating_sub(MAX_SHOWN) + self.others;
        if more > 0 {
            lines.push(format!("and {more} other refusals"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nacks_of_an_object_are_counted_and_have_a_bound() {
        let object = |name: &str| {
            RefusedPart::Object(ObjectRef {
                kind: "EnvoyFilter",
                namespace: "n".into(),
                name: name.into(),
            })
        };
        let mut nacks = Nacks::default();
        let of = |nacks: &Nacks, name: &str| nacks.of("EnvoyFilter", &"n".into(), &name.into());
        assert_eq!(of(&nacks, "a"), [""; 0]);
        for _ in 0..2 {
            nacks.add(object("a"), Type::Listener, "script load error", true);
        }
        assert_eq!(
            of(&nacks, "a"),
            ["2 streams refused lds that it has a part in: script load error"]
        );
        nacks.add(object("a"), Type::Cluster, "Invalid duration", false);
        assert_eq!(
            of(&nacks, "a")[0],
            "1 stream refused cds, and it may have a part in that: Invalid duration"
        );
        assert_eq!(of(&nacks, "b"), [""; 0]);
        for at in 0..10_000 {
            nacks.add(
                object("b"),
                Type::Listener,
                &format!("{at:05}{}", "x".repeat(500)),
                true,
            );
        }
        let service = ServiceKey::new("db.example", "n");
        assert_eq!(nacks.of_service(&service), [""; 0]);
        nacks.add(
            RefusedPart::Service(service.clone()),
            Type::Cluster,
            "no",
            true,
        );
        assert_eq!(
            nacks.of_service(&service),
            ["1 stream refused cds that it has a part in: no"]
        );
        let messages = of(&nacks, "b");
        assert_eq!(
            (messages.len(), &*messages[MAX_SHOWN]),
            (MAX_SHOWN + 1, "and 9997 other refusals")
        );
        assert!(messages.iter().all(|message| message.len() < 400));
        let counts = nacks.0.values().map(|of_object| of_object.by_message.len());
        assert_eq!(counts.max(), Some(MAX_MESSAGES));
    }
}
