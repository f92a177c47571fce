//! Kinds of the mesh's configuration in an API server that have no effect here: kept as they are written, for those who look
//! at them.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use api::config::{Effect, KINDS, LATER};
use serde::Deserialize;
use serde_json::Value;

use super::custom::{GROUP, Raw, VERSIONS};
use crate::kind::{Key, Kind, Resource};
use crate::store::{Change, Changes};

/// Groups that an API server has them of.
const GROUPS: [&str; 2] = [GROUP, "security.istio.io"];

/// All of them, by group and kind.
static INERT: LazyLock<Vec<&'static api::config::Kind>> = LazyLock::new(|| {
    let all = KINDS.iter().chain(LATER);
    let mut inert: Vec<_> = all
        .filter(|kind| GROUPS.contains(&kind.group) && kind.effect == Effect::None)
        .collect();
    inert.sort_by_key(|kind| (kind.group, kind.kind));
    inert
});

/// Where each of them stands in the API, with its place among them.
pub(super) fn resources() -> impl Iterator<Item = (usize, Resource)> {
    INERT.iter().enumerate().map(|(at, kind)| {
        let version = VERSIONS[0];
        let resource = Resource {
            group: kind.group,
            version,
            name: kind.plural,
        };
        (at, resource)
    })
}

/// Those that say who may do what, by their names in paths: whether there are any has to be known before anything is served.
pub(super) fn of_security() -> impl Iterator<Item = &'static str> {
    let security = INERT.iter().filter(|kind| kind.is_security());
    security.map(|kind| kind.plural)
}

/// An object of one of them.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(from = "Raw")]
pub(super) struct Other {
    key: Key,
    plain: Arc<Plain>,
}

/// What is kept of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plain {
    pub(super) created: Option<i64>,
    /// JSON, as the server wrote it.
    spec: Box<str>,
}

impl Plain {
    /// What it says, or why that cannot be shown.
    pub(super) fn spec(&self) -> Result<Value, String> {
        serde_json::from_str(&self.spec).map_err(|error| error.to_string())
    }
}

impl Kind for Other {
    /// For all of them; each is read by its own.
    const RESOURCE: Resource = Resource {
        group: GROUP,
        version: VERSIONS[0],
        name: "*",
    };

    fn key(&self) -> Key {
        self.key.clone()
    }
}

impl From<Raw> for Other {
    fn from(raw: Raw) -> Self {
        let plain = Plain {
            created: raw.metadata.created(),
            spec: raw
                .spec
                .map_or_else(|| "null".into(), |spec| spec.get().into()),
        };
        Self {
            key: raw.metadata.key(),
            plain: Arc::new(plain),
        }
    }
}

/// All objects of these kinds, by the kind's place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others(Arc<BTreeMap<(usize, Key), Arc<Plain>>>);

impl Others {
    /// What the kind at this place says.
    pub(super) fn apply(&mut self, at: usize, changes: Changes<Other>) {
        let all = Arc::make_mut(&mut self.0);
        if changes.whole {
            all.retain(|(other, _), _| *other != at);
        }
        for change in changes.changes {
            match change {
                Change::Set(key, object) => {
                    all.insert((at, key), Arc::clone(&object.plain));
                }
                Change::Gone(key) => {
                    all.remove(&(at, key));
                }
            }
        }
    }

    /// Group, kind, and which one it is, in the order of the kinds' names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str, &Key, &Plain)> {
        self.0.iter().filter_map(|((at, key), plain)| {
            let kind = INERT.get(*at)?;
            Some((kind.group, kind.kind, key, &**plain))
        })
    }

    /// Objects that say who may do what: the kind, and which one it is.
    pub fn security(&self) -> impl Iterator<Item = (&'static str, &Key)> {
        let kinds = INERT.iter().enumerate();
        let kinds = kinds.filter(|(_, kind)| kind.is_security());
        kinds.flat_map(|(at, kind)| {
            let first = (at, Key::new("", ""));
            let all = self
                .0
                .range(first..)
                .take_while(move |((other, _), _)| *other == at);
            all.map(|((_, key), _)| (kind.kind, key))
        })
    }
}
