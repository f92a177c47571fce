//! Kinds of the mesh's configuration in an API server that have no effect here: kept as they are written, for those who look
//! at them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::custom::{GROUP, Raw, VERSIONS};
use crate::kind::{Key, Kind, Resource};
use crate::store::{Change, Changes};

const SECURITY: &str = "security.istio.io";

/// Group, kind, and how it is called in paths.
const KINDS: [(&str, &str, &str); 9] = [
    (GROUP, "DestinationRule", "destinationrules"),
    (GROUP, "EnvoyFilter", "envoyfilters"),
    (GROUP, "Gateway", "gateways"),
    (GROUP, "ProxyConfig", "proxyconfigs"),
    (GROUP, "VirtualService", "virtualservices"),
    (GROUP, "WorkloadGroup", "workloadgroups"),
    (SECURITY, "AuthorizationPolicy", "authorizationpolicies"),
    (SECURITY, "PeerAuthentication", "peerauthentications"),
    (SECURITY, "RequestAuthentication", "requestauthentications"),
];

/// Where each of them stands in the API, with its place among them.
pub(super) fn resources() -> impl Iterator<Item = (usize, Resource)> {
    KINDS.iter().enumerate().map(|(at, (group, _, name))| {
        let version = VERSIONS[0];
        let resource = Resource {
            group,
            version,
            name,
        };
        (at, resource)
    })
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
            let (group, kind, _) = *KINDS.get(*at)?;
            Some((group, kind, key, &**plain))
        })
    }
}
