//! Kinds of the mesh's configuration in an API server that have no effect here: kept as written, for pages.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use api::config::{Effect, KINDS, LATER, ServedInstead};
use api::kubernetes::ObjectMeta;
use api::model::ClusterId;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::objects::Problem;
use super::wire::MetadataView as _;
use crate::catalogue::Origin;
use crate::contribution::{Configuration, Refusal};
use crate::kind::{Key, Kind, Resource};
use crate::kubernetes::store::{Change, Changes};

/// A kind without effect, and its possible API versions, the oldest first.
#[derive(Debug)]
pub(super) struct EffectlessKind {
    pub(super) kind: &'static api::config::Kind,
    pub(super) versions: Vec<&'static str>,
}

impl EffectlessKind {
    pub(super) fn api_version(&self) -> String {
        let version = self.versions.last().copied().unwrap_or_default();
        format!("{}/{version}", self.kind.group)
    }
}

/// The group that most are of.
const GROUP: &str = "networking.istio.io";
/// The API versions of these kinds, the oldest first.
const VERSIONS: [&str; 3] = ["v1alpha3", "v1beta1", "v1"];
/// Versions of kinds of later releases: they have none in the table.
const LATER_VERSIONS: [&str; 2] = ["v1alpha1", "v1"];

/// All of these kinds, by group and kind.
static EFFECTLESS: LazyLock<Vec<EffectlessKind>> = LazyLock::new(|| {
    let all = KINDS.iter().chain(LATER);
    let is_read = |kind: &api::config::Kind| Configuration::has(kind.group, kind.plural);
    let effectless = all.filter(|kind| kind.effect == Effect::None && !is_read(kind));
    let mut effectless: Vec<_> = effectless
        .map(|kind| EffectlessKind {
            kind,
            versions: match kind.versions {
                [] if kind.group == GROUP => VERSIONS.to_vec(),
                [] => LATER_VERSIONS.to_vec(),
                all => all.to_vec(),
            },
        })
        .collect();
    effectless.sort_by_key(|effectless| (effectless.kind.group, effectless.kind.kind));
    effectless
});

/// Yields the index, the resource and the possible API versions of each kind.
pub(super) fn resources() -> impl Iterator<Item = (usize, Resource, &'static [&'static str])> {
    EFFECTLESS.iter().enumerate().map(|(at, effectless)| {
        let resource = Resource {
            group: effectless.kind.group,
            version: effectless.versions.last().copied().unwrap_or_default(),
            name: effectless.kind.plural,
        };
        (at, resource, effectless.versions.as_slice())
    })
}

/// An object of one of them.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(from = "RawEffectless")]
pub(super) struct EffectlessObject {
    key: Key,
    stored: Arc<StoredSpec>,
    /// The index of the object's kind, and the findings of the rules. They are read where the object is
    /// decoded, beside the event loop: a list of thousands arrives as one change.
    checked: Option<(usize, Option<Refusal>)>,
}

/// As the server writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawEffectless {
    #[serde(default)]
    api_version: Value,
    #[serde(default)]
    kind: Value,
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<Box<RawValue>>,
}

/// The stored form of an object.
#[derive(Debug)]
pub(super) struct StoredSpec {
    pub(super) created: Option<i64>,
    /// `metadata.resourceVersion`.
    pub(super) version: Box<str>,
    /// The spec as JSON, as the server wrote it; its length if it exceeds the limit: only pages show it.
    spec: Result<Box<str>, usize>,
}

/// A new version with equal content is no change.
impl PartialEq for StoredSpec {
    fn eq(&self, other: &Self) -> bool {
        (&self.created, &self.spec) == (&other.created, &other.spec)
    }
}

impl Eq for StoredSpec {}

/// Bytes of a stored spec; it has no effect and is only shown.
const SPEC: usize = 16 << 10;

impl StoredSpec {
    /// Returns true if the spec is stored.
    pub(super) const fn has_spec(&self) -> bool {
        self.spec.is_ok()
    }

    /// Returns the spec, or the reason why it cannot be shown.
    pub(super) fn spec(&self) -> Result<Value, String> {
        match &self.spec {
            Ok(spec) => serde_json::from_str(spec).map_err(|error| error.to_string()),
            Err(length) => Err(format!(
                "a spec without effect has {length} bytes: more than {SPEC} are not kept"
            )),
        }
    }
}

impl Kind for EffectlessObject {
    /// A placeholder: each kind is read from a resource of its own.
    const RESOURCE: Resource = Resource {
        group: GROUP,
        version: VERSIONS[0],
        name: "*",
    };

    fn key(&self) -> Key {
        self.key.clone()
    }

    fn size(&self) -> usize {
        let spec = self.stored.spec.as_ref().map_or(0, |spec| spec.len());
        let refusal = self.checked.as_ref().and_then(|(_, one)| one.as_ref());
        let refusal = refusal.map_or(0, Refusal::size);
        size_of::<Self>() + size_of::<StoredSpec>() + spec + refusal
    }
}

impl From<RawEffectless> for EffectlessObject {
    fn from(raw: RawEffectless) -> Self {
        let stored = StoredSpec {
            created: raw.metadata.created_at(),
            version: raw.metadata.resource_version.as_str().into(),
            spec: match raw.spec.as_ref().map_or("null", |spec| spec.get()) {
                spec if spec.len() > SPEC => Err(spec.len()),
                spec => Ok(spec.into()),
            },
        };
        let key = raw.metadata.key();
        let checked = index(&raw.api_version, &raw.kind).and_then(|at| {
            let kind = EFFECTLESS.get(at)?;
            Some((at, refusal(kind, &key, &stored)))
        });
        Self {
            key,
            stored: Arc::new(stored),
            checked,
        }
    }
}

/// The index of a kind.
fn index(api_version: &Value, kind: &Value) -> Option<usize> {
    let (group, _) = api_version.as_str()?.split_once('/')?;
    let mut kinds = EFFECTLESS.iter();
    kinds.position(|one| *kind == one.kind.kind && group == one.kind.group)
}

/// An object with the findings of the rules.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CheckedEffectless {
    pub(super) object: Arc<StoredSpec>,
    /// `None`: it is valid, or its spec is not stored.
    pub(super) refusal: Option<Refusal>,
}

/// The objects of these kinds, by the kind's index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectlessObjects(Arc<BTreeMap<(usize, Key), Arc<CheckedEffectless>>>);

impl EffectlessObjects {
    /// Applies the changes of the kind with this index.
    pub(super) fn apply(&mut self, at: usize, changes: Changes<EffectlessObject>) {
        let all = Arc::make_mut(&mut self.0);
        if changes.whole {
            all.retain(|(other, _), _| *other != at);
        }
        for change in changes.changes {
            match change {
                Change::Set(key, object) => {
                    let refusal = match &object.checked {
                        Some((of, refusal)) if *of == at => refusal.clone(),
                        // Each server says of which kind an object is.
                        Some(_) | None => EFFECTLESS
                            .get(at)
                            .and_then(|kind| refusal(kind, &key, &object.stored)),
                    };
                    let object = Arc::clone(&object.stored);
                    let checked = CheckedEffectless { object, refusal };
                    all.insert((at, key), Arc::new(checked));
                }
                Change::Gone(key) => {
                    all.remove(&(at, key));
                }
            }
        }
    }

    /// Iterates over the objects with their kind and key, in the order of the kinds' names.
    pub(super) fn iter(
        &self,
    ) -> impl Iterator<Item = (&'static EffectlessKind, &Key, &CheckedEffectless)> {
        self.0.iter().filter_map(|((at, key), checked)| {
            let effectless = EFFECTLESS.get(*at)?;
            Some((effectless, key, &**checked))
        })
    }

    /// One object, as if the server had it alone.
    #[cfg(test)]
    pub(super) fn of(object: &Value) -> Option<Self> {
        let at = index(&object["apiVersion"], &object["kind"])?;
        let read: EffectlessObject = serde_json::from_str(&object.to_string()).unwrap();
        let mut all = Self::default();
        all.apply(
            at,
            Changes {
                changes: vec![Change::Set(read.key.clone(), Arc::new(read))],
                whole: true,
                freshness: crate::kubernetes::store::Freshness::default(),
            },
        );
        Some(all)
    }

    /// Iterates over the kinds of the objects that the rules accept.
    pub(super) fn accepted(&self) -> impl Iterator<Item = &'static str> {
        let accepted = self
            .iter()
            .filter(|(.., checked)| checked.refusal.is_none());
        accepted.map(|(effectless, ..)| effectless.kind.kind)
    }

    pub(super) fn problems(&self, cluster: &ClusterId) -> impl Iterator<Item = Problem> {
        self.iter().filter_map(move |(effectless, key, checked)| {
            Some(Problem {
                kind: effectless.kind.kind,
                object: key.clone(),
                origin: Some(Origin::of_cluster(cluster, key, &checked.object.version)),
                serving: Some(ServedInstead::Nothing),
                refusal: checked.refusal.clone()?,
                is_unreadable: false,
            })
        })
    }
}

fn refusal(effectless: &EffectlessKind, key: &Key, object: &StoredSpec) -> Option<Refusal> {
    let spec = object.spec().ok()?;
    let (_, findings) = api::config::check(&json!({
        "apiVersion": effectless.api_version(),
        "kind": effectless.kind.kind,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": spec,
    }));
    Refusal::of(&findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(length: usize) -> EffectlessObject {
        let spec = serde_json::json!({"text": "x".repeat(length)});
        let object = serde_json::json!({"metadata": {"name": "a"}, "spec": spec});
        serde_json::from_str(&object.to_string()).unwrap()
    }

    #[test]
    fn kinds_of_all_releases_are_looked_for() {
        let all: Vec<_> = EFFECTLESS
            .iter()
            .map(|effectless| format!("{} {}", effectless.api_version(), effectless.kind.kind))
            .collect();
        for expected in [
            "authentication.istio.io/v1alpha1 MeshPolicy",
            "authentication.istio.io/v1alpha1 Policy",
            "config.istio.io/v1alpha2 rule",
            "extensions.istio.io/v1 WasmPlugin",
            "networking.istio.io/v1 WorkloadGroup",
            "rbac.istio.io/v1alpha1 ClusterRbacConfig",
            "rbac.istio.io/v1alpha1 ServiceRoleBinding",
            "telemetry.istio.io/v1 Telemetry",
        ] {
            assert!(all.iter().any(|one| one == expected), "{expected}: {all:?}");
        }
        for read in [" ServiceEntry", " VirtualService"] {
            assert!(all.iter().all(|one| !one.ends_with(read)), "{all:?}");
        }
    }

    /// Each kind that is watched by name needs RBAC permission to be read.
    #[test]
    fn the_manifest_gives_the_right_to_read_each_of_them() {
        let manifest = include_str!("../../../../build/kubernetes/discovery.yaml");
        let rules: Vec<_> = manifest.split("  - apiGroups: [").collect();
        let effectless = EFFECTLESS
            .iter()
            .map(|one| (one.kind.group, one.kind.plural));
        let typed = Configuration::PLURALS.iter().map(|plural| {
            let mut kinds = KINDS.iter();
            let kind =
                kinds.find(|kind| Configuration::has(kind.group, plural) && kind.plural == *plural);
            (kind.unwrap().group, *plural)
        });
        for (group, plural) in effectless.chain(typed) {
            let of_group = rules
                .iter()
                .find(|rule| rule.starts_with(&format!("{group}]")));
            let rule = of_group.unwrap_or_else(|| panic!("no rule for {group}"));
            let mut names = rule.split(|letter: char| !letter.is_ascii_alphanumeric());
            assert!(names.any(|word| word == plural), "{plural}: {rule}");
        }
    }

    #[test]
    fn a_large_spec_without_effect_is_not_kept() {
        let small = of(SPEC - 11);
        assert_eq!(
            small.stored.spec().unwrap()["text"].as_str().unwrap().len(),
            SPEC - 11
        );
        assert!(small.size() > SPEC);
        let large = of(SPEC - 10);
        let message = "a spec without effect has 16385 bytes: more than 16384 are not kept";
        assert_eq!(large.stored.spec(), Err(message.to_owned()));
        assert!(large.size() < 1024);
    }

    /// Decoding checks the object, so that the event loop has nothing left to do for a list of thousands; the findings count as bytes.
    #[test]
    fn the_verdict_is_read_with_the_object_and_its_findings_count() {
        let of = |spec: Value| -> EffectlessObject {
            let object = json!({
                "apiVersion": "rbac.istio.io/v1alpha1", "kind": "ServiceRole",
                "metadata": {"name": "a", "namespace": "n"}, "spec": spec,
            });
            serde_json::from_str(&object.to_string()).unwrap()
        };
        let refusal = |object: &EffectlessObject| object.checked.as_ref().unwrap().1.clone();
        let good = of(json!({"rules": [{"services": ["*"], "methods": ["GET"]}]}));
        assert_eq!(refusal(&good), None);
        let bad = of(json!({"rules": []}));
        let refused = refusal(&bad).unwrap().size();
        let spec = bad.stored.spec.as_ref().unwrap().len();
        assert!(refused > "spec.rules".len());
        assert_eq!(
            bad.size(),
            size_of::<EffectlessObject>() + size_of::<StoredSpec>() + spec + refused
        );
        // Another kind's list has it checked as that kind.
        let at = index(&json!("rbac.istio.io/v1"), &json!("ServiceRoleBinding")).unwrap();
        let own = index(&json!("rbac.istio.io/v1"), &json!("ServiceRole")).unwrap();
        let (key, good) = (good.key(), Arc::new(good));
        for (at, is_refused) in [(at, true), (own, false)] {
            let mut all = EffectlessObjects::default();
            all.apply(
                at,
                Changes {
                    changes: vec![Change::Set(key.clone(), Arc::clone(&good))],
                    whole: true,
                    freshness: crate::kubernetes::store::Freshness::default(),
                },
            );
            assert_eq!(all.iter().next().unwrap().2.refusal.is_some(), is_refused);
        }
    }
}
