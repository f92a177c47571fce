//! Kinds of the mesh's configuration in an API server that have no effect here: kept as they are written, for those who look
//! at them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::custom::{GROUP, VERSIONS};
use super::wire::RawMetadata;
use crate::kind::{Key, Kind, Resource};
use crate::store::{Change, Changes};

const SECURITY: &str = "security.istio.io";

/// How many kinds there are.
pub(super) const OTHERS: usize = 9;

/// Group, kind, and how it is called in paths, by its place among them.
const fn kind(at: usize) -> (&'static str, &'static str, &'static str) {
    match at {
        0 => (GROUP, "DestinationRule", "destinationrules"),
        1 => (GROUP, "EnvoyFilter", "envoyfilters"),
        2 => (GROUP, "Gateway", "gateways"),
        3 => (GROUP, "ProxyConfig", "proxyconfigs"),
        4 => (GROUP, "VirtualService", "virtualservices"),
        5 => (GROUP, "WorkloadGroup", "workloadgroups"),
        6 => (SECURITY, "AuthorizationPolicy", "authorizationpolicies"),
        7 => (SECURITY, "PeerAuthentication", "peerauthentications"),
        _ => (SECURITY, "RequestAuthentication", "requestauthentications"),
    }
}

/// An object of one of them, by its place among the kinds.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(from = "Raw")]
pub(super) struct Other<const AT: usize> {
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

impl<const AT: usize> Kind for Other<AT> {
    const RESOURCE: Resource = Resource {
        group: kind(AT).0,
        version: VERSIONS[0],
        name: kind(AT).2,
    };

    fn key(&self) -> Key {
        self.key.clone()
    }
}

#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    metadata: RawMetadata,
    #[serde(default)]
    spec: Option<Box<RawValue>>,
}

impl<const AT: usize> From<Raw> for Other<AT> {
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
    pub(super) fn apply<const AT: usize>(&mut self, changes: Changes<Other<AT>>) {
        let all = Arc::make_mut(&mut self.0);
        if changes.whole {
            all.retain(|(at, _), _| *at != AT);
        }
        for change in changes.changes {
            match change {
                Change::Set(key, object) => {
                    all.insert((AT, key), Arc::clone(&object.plain));
                }
                Change::Gone(key) => {
                    all.remove(&(AT, key));
                }
            }
        }
    }

    /// Group, kind, and which one it is, in the order of the kinds' names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str, &Key, &Plain)> {
        self.0.iter().map(|((at, key), plain)| {
            let (group, kind, _) = kind(*at);
            (group, kind, key, &**plain)
        })
    }
}
