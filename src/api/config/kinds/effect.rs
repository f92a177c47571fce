//! The effect of a kind in this release, and the notes on kinds and fields without one.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::{Check, Kind, MIXER};
use crate::config::{Finding, FindingKind, MAX_FINDINGS, Object, Severity, limit, read_message};
use crate::model::{DRY_RUN, is_dry_run};

/// A part of gudgeon that acts on objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Discovery,
}

impl Role {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Discovery => "discovery",
        }
    }
}

/// Difference that valid objects of a kind make in this release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A role serves something else because of them. Fields that it reads over stand below `spec`, as `ingress.tls`.
    Enforced {
        by: Role,
        without: &'static [&'static str],
    },
    /// Objects of another kind use them.
    Read,
    /// No role acts on them.
    None,
}

impl Effect {
    /// The text of tables and documents.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforced { without: [], .. } => "enforced",
            Self::Enforced { .. } => "enforced in part",
            Self::Read => "read",
            Self::None => "none",
        }
    }

    /// As [`Effect::as_str`], of one object with these notes: a kind is enforced in part for fields that few objects have, and an
    /// object that proxies try, or that holds for none of them, is not enforced at all.
    #[must_use]
    pub fn of_object<'a>(self, notes: impl IntoIterator<Item = &'a Finding>) -> &'static str {
        let kinds: BTreeSet<FindingKind> = notes.into_iter().map(|note| note.kind).collect();
        let has = |kind| kinds.contains(&kind);
        let holds_for_none = has(FindingKind::HoldsForNone) && !has(FindingKind::HoldsForWorkloads);
        match self {
            Self::Enforced { .. } if kinds.is_empty() => "enforced",
            Self::Enforced { .. } if holds_for_none || has(FindingKind::Untried) => "none",
            Self::Enforced { .. } if has(FindingKind::Tried) => "tried",
            Self::Enforced { .. } | Self::Read | Self::None => self.as_str(),
        }
    }
}

/// The effect of [`DRY_RUN`] on objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DryRun {
    /// Proxies try the policy, and do not enforce it.
    Tried,
    /// The policy is enforced all the same.
    Ignored,
    /// The annotation is none of this kind.
    Unread,
}

/// Warnings of fields of a valid object that make no difference in this release, or another than they say; none of a kind that
/// [`Check::Unused`] has one for. The spec is as it was written.
#[must_use]
pub fn notes(kind: &'static Kind, spec: &Json) -> Vec<Finding> {
    notes_of_spec(kind, &read_message(kind.message, spec, Severity::Warning).0)
}

/// As [`notes`], of a spec in one spelling.
fn notes_of_spec(kind: &'static Kind, spec: &Json) -> Vec<Finding> {
    let without = match kind.effect {
        Effect::None if kind.check == Check::Unused => return Vec::new(),
        Effect::None => return vec![Finding::warning("kind", without_effect(kind))],
        Effect::Enforced { without, .. } => without,
        Effect::Read => &[],
    };
    let mut notes = kind.notes.map_or_else(Vec::new, |notes| notes(spec));
    for path in without {
        unused(path, spec, "spec", &mut notes);
    }
    notes
}

/// As [`notes`], with those on the annotations of the object.
#[must_use]
pub fn notes_of(object: &Object) -> Vec<Finding> {
    let mut notes = notes_of_spec(object.kind, &object.spec);
    let dry_run = object.annotations.get(DRY_RUN).map(String::as_str);
    notes.extend(dry_run_note(object.kind, &object.spec, dry_run));
    notes
}

/// As [`notes_of`], to be kept with the object: as many as [`limit`] leaves, among them those by which
/// [`Effect::of_object`] goes.
#[must_use]
pub fn limited_notes_of(object: &Object) -> Vec<Finding> {
    let mut notes = notes_of(object);
    if notes.len() > MAX_FINDINGS {
        // The sort is stable: others stay in order.
        notes.sort_by_key(|note| !decides_effect(note.kind) && note.path != dry_run_path());
    }
    limit(&mut notes);
    notes
}

/// Returns true for the kinds of notes by which [`Effect::of_object`] goes.
const fn decides_effect(kind: FindingKind) -> bool {
    match kind {
        FindingKind::HoldsForNone
        | FindingKind::HoldsForWorkloads
        | FindingKind::Tried
        | FindingKind::Untried => true,
        FindingKind::General
        | FindingKind::Deprecated
        | FindingKind::Unreachable
        | FindingKind::OneofConflict
        | FindingKind::Omitted(_) => false,
    }
}

/// Warns of a policy that an annotation keeps from being enforced, or that is enforced in spite of its annotation.
#[must_use]
pub fn dry_run_note(kind: &'static Kind, spec: &Json, annotation: Option<&str>) -> Option<Finding> {
    let annotation = annotation?.trim();
    if annotation.is_empty() {
        return None;
    }
    match kind.dry_run {
        DryRun::Tried => {}
        DryRun::Ignored if is_dry_run(Some(annotation)) => {
            let text = format!("has no effect on a {}: it is enforced", kind.kind);
            return Some(Finding::warning(dry_run_path(), text));
        }
        DryRun::Ignored | DryRun::Unread => return None,
    }
    let action = spec.get("action").and_then(Json::as_str);
    let (kind, message) = match (is_dry_run(Some(annotation)), action) {
        (true, None | Some("ALLOW" | "DENY")) => (
            FindingKind::Tried,
            "the policy is tried and not enforced: proxies leave what they would decide in metadata of RBAC under istio_dry_run_, \
             and in statistics of pods with the annotation sidecar.istio.io/statsInclusionSuffixes: shadow_allowed,shadow_denied",
        ),
        (true, _) => (
            FindingKind::Untried,
            "the policy is neither enforced nor tried: policies that ALLOW or DENY are tried",
        ),
        (false, _) if matches!(annotation, "0" | "f" | "F" | "false" | "FALSE" | "False") => {
            return None;
        }
        (false, _) => (
            FindingKind::General,
            "is neither true nor false: the policy is enforced",
        ),
    };
    Some(Finding::warning(dry_run_path(), message).of_kind(kind))
}

fn dry_run_path() -> String {
    format!("metadata.annotations[{DRY_RUN}]")
}

/// In one sentence, of a kind with [`Effect::None`]: it names the part that takes the kind's place today.
#[must_use]
pub fn without_effect(kind: &Kind) -> String {
    let Kind {
        group,
        kind,
        instead,
        ..
    } = kind;
    let instead = instead.map_or_else(String::new, |instead| format!("; in its place: {instead}"));
    if *group == MIXER {
        return format!("{kind} belonged to Mixer and is not used{instead}");
    }
    format!(
        "{kind} has no effect in this release: it is accepted, and gudgeon discovery does not enforce it{instead}"
    )
}

/// A field at the end of a path, and in each item of a list on its way.
fn unused(path: &str, value: &Json, place: &str, findings: &mut Vec<Finding>) {
    let (name, rest) = path
        .split_once('.')
        .map_or((path, None), |(name, rest)| (name, Some(rest)));
    let Some(value) = value.get(name).filter(|value| !value.is_null()) else {
        return;
    };
    let place = format!("{place}.{name}");
    match (rest, value) {
        (None, _) => {
            findings.push(Finding::warning(place, "has no effect in this release"));
        }
        (Some(rest), Json::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                unused(rest, item, &format!("{place}[{at}]"), findings);
            }
        }
        (Some(rest), Json::Object(_)) => unused(rest, value, &place, findings),
        (Some(_), _) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{kind, named};

    #[test]
    fn a_policy_that_is_tried_says_so() {
        let note_text = |action: Option<&str>, written: &str| {
            let object = json!({
                "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
                "metadata": {"name": "p", "namespace": "n", "annotations": {"istio.io/dry-run": written}},
                "spec": {"action": action.unwrap_or("ALLOW"), "provider": {"name": "a"}, "rules": [{}]},
            });
            let mut object = crate::config::read(&object).0.unwrap();
            if action.is_none() {
                object.spec = json!({"rules": [{}]});
            }
            let found = notes_of(&object).into_iter();
            let texts = found.map(|note| format!("{}: {}", note.path, note.message));
            texts.collect::<Vec<_>>().join("; ")
        };
        for (action, written, part) in [
            (
                None,
                "true",
                "metadata.annotations[istio.io/dry-run]: the policy is tried and not enforced",
            ),
            (Some("DENY"), "1", "tried and not enforced"),
            (Some("CUSTOM"), "true", "neither enforced nor tried"),
            (Some("AUDIT"), "true", "neither enforced nor tried"),
            (
                Some("DENY"),
                "yes",
                "is neither true nor false: the policy is enforced",
            ),
            (Some("DENY"), "false", ""),
            (Some("DENY"), "", ""),
        ] {
            let text = note_text(action, written);
            assert!(
                text.contains(part) && text.is_empty() == part.is_empty(),
                "{written}: {text}"
            );
        }
        for name in ["PeerAuthentication", "RequestAuthentication"] {
            let other = kind("security.istio.io/v1", name).unwrap();
            let note = dry_run_note(other, &json!({}), Some("true")).unwrap();
            let text = format!("has no effect on a {name}: it is enforced");
            assert!(note.to_string().ends_with(&text), "{note}");
            assert_eq!(dry_run_note(other, &json!({}), Some("false")), None);
        }
        let other = kind("networking.istio.io/v1", "VirtualService").unwrap();
        assert_eq!(dry_run_note(other, &json!({}), Some("true")), None);
    }

    /// They live as long as the object, so that an object of 1 MiB must not have 40 MiB of them.
    #[test]
    fn kept_notes_have_a_bound_and_keep_the_effect() {
        let object = json!({
            "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
            "metadata": {"name": "p", "namespace": "n", "annotations": {"istio.io/dry-run": "true"}},
            "spec": {"rules": [{"to": [{"operation": {"paths": vec!["a"; 5000]}}]}]},
        });
        let object = crate::config::read(&object).0.unwrap();
        assert_eq!(notes_of(&object).len(), 5001);
        let findings = limited_notes_of(&object);
        let last = findings.last().unwrap().message.as_str();
        assert_eq!((findings.len(), last), (101, "… and 4901 more"));
        assert!(findings.capacity() < 200, "{}", findings.capacity());
        assert_eq!(object.kind.effect.of_object(&findings), "tried");
        // The note by which it goes comes last.
        let object = json!({
            "apiVersion": "security.istio.io/v1", "kind": "RequestAuthentication",
            "metadata": {"name": "r", "namespace": "n"},
            "spec": {
                "targetRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "g"},
                "jwtRules": vec![json!({"issuer": "i"}); 150],
            },
        });
        let object = crate::config::read(&object).0.unwrap();
        let (all, kept) = (notes_of(&object), limited_notes_of(&object));
        assert!(all.len() > 101, "{}", all.len());
        let effects = [all, kept].map(|notes| object.kind.effect.of_object(&notes));
        assert_eq!(effects, ["none", "none"]);
    }

    #[test]
    fn the_effect_of_an_object_is_that_of_its_notes() {
        let effect = |kind: &str, group: &str, annotation: &str, spec: Json| {
            let object = json!({
                "apiVersion": group, "kind": kind, "spec": spec,
                "metadata": {"name": "p", "namespace": "n", "annotations": {"istio.io/dry-run": annotation}},
            });
            let object = crate::config::read(&object).0.unwrap();
            object.kind.effect.of_object(&notes_of(&object))
        };
        let policy = |annotation, spec| {
            effect(
                "AuthorizationPolicy",
                "security.istio.io/v1",
                annotation,
                spec,
            )
        };
        let service = json!({"kind": "Service", "name": "a"});
        let gateway = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "a"});
        for (annotation, spec, want) in [
            ("", json!({"rules": [{}]}), "enforced"),
            ("true", json!({"rules": [{}]}), "tried"),
            ("true", json!({"action": "AUDIT", "rules": [{}]}), "none"),
            ("no", json!({"rules": [{}]}), "enforced"),
            (
                "",
                json!({"targetRefs": [service], "rules": [{}]}),
                "enforced",
            ),
            (
                "",
                json!({"targetRefs": [service, gateway], "rules": [{}]}),
                "enforced",
            ),
            (
                "true",
                json!({"targetRefs": [gateway], "rules": [{}]}),
                "none",
            ),
        ] {
            assert_eq!(
                policy(annotation, spec.clone()),
                want,
                "{annotation} {spec}"
            );
        }
        let patches = json!([{"applyTo": "CLUSTER", "patch": {"operation": "REMOVE"}}]);
        let filter = |spec| effect("EnvoyFilter", "networking.istio.io/v1alpha3", "", spec);
        assert_eq!(filter(json!({"configPatches": patches})), "enforced");
        assert_eq!(
            filter(json!({"configPatches": patches, "targetRefs": [gateway]})),
            "none"
        );
    }

    #[test]
    fn a_note_names_the_kind_or_the_field_without_effect() {
        let note_texts = |api_version: &str, name: &str, spec: Json| -> Vec<String> {
            let kind = kind(api_version, name).unwrap();
            let notes = notes(kind, &spec).into_iter();
            notes
                .map(|note| {
                    assert!(!note.is_error());
                    format!("{}: {}", note.path, note.message)
                })
                .collect()
        };
        let security = "security.istio.io/v1";
        let networking = "networking.istio.io/v1";
        let of_peers = "PeerAuthentication for peers, RequestAuthentication for origins";
        for (api_version, name, instead) in [
            (
                "authentication.istio.io/v1alpha1",
                "MeshPolicy",
                &*format!("{of_peers}, both in the root namespace"),
            ),
            ("authentication.istio.io/v1alpha1", "Policy", of_peers),
            (
                "rbac.istio.io/v1alpha1",
                "ClusterRbacConfig",
                "AuthorizationPolicy",
            ),
            (
                "rbac.istio.io/v1alpha1",
                "ServiceRole",
                "AuthorizationPolicy",
            ),
        ] {
            let text = format!(
                "kind: {name} has no effect in this release: it is accepted, and gudgeon discovery does not enforce it; \
                 in its place: {instead}"
            );
            assert_eq!(note_texts(api_version, name, json!({})), [text]);
            assert_eq!(
                named(api_version.split_once('/').unwrap().0, name)
                    .unwrap()
                    .effect,
                Effect::None
            );
        }
        assert_eq!(
            note_texts("config.istio.io/v1alpha2", "handler", json!({})),
            [
                "kind: handler belonged to Mixer and is not used; in its place: AuthorizationPolicy for checks, EnvoyFilter for \
                 quotas, Envoy's own metrics and the mesh's accessLogFile for reports"
            ]
        );
        // It has a warning of its own.
        assert_eq!(
            note_texts("telemetry.istio.io/v1", "Telemetry", json!({})),
            [""; 0]
        );
        let none = [""; 0];
        assert_eq!(
            note_texts(networking, "WorkloadEntry", json!({"address": "10.0.0.1"})),
            none
        );
        let entry = json!({
            "hosts": ["a.b"], "exportTo": ["."],
            "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
        });
        assert_eq!(note_texts(networking, "ServiceEntry", entry), none);
        let sidecar = json!({
            "ingress": [{"port": {"number": 1}}, {"tls": {"mode": "SIMPLE"}}],
            "egress": [{"hosts": ["./*"]}], "outbound_traffic_policy": {"mode": "ALLOW_ANY"},
            "inbound_connection_pool": {"tcp": {"maxConnections": 1}},
        });
        assert_eq!(note_texts(networking, "Sidecar", sidecar), none);
        let policy = json!({"targetRef": {"kind": "Service", "name": "a"}});
        assert_eq!(
            note_texts(security, "AuthorizationPolicy", policy),
            [
                "spec.targetRef: holds for all ports of the workloads that the Service selects: there are no waypoints"
            ]
        );
        let policy = json!({"targetRefs": [{"kind": "Service", "name": "a"}, {"group": "networking.istio.io", "kind": "ServiceEntry", "name": "a"}]});
        assert_eq!(
            note_texts(security, "RequestAuthentication", policy),
            [
                "spec.targetRefs[0]: holds for all ports of the workloads that the Service selects: there are no waypoints",
                "spec.targetRefs[1]: holds for no proxy: there is no ServiceEntry to enforce it; a selector finds workloads",
            ]
        );
        // Below fields that are no lists, too, and wherever a policy stands.
        let policy = json!({"tls": {"mode": "SIMPLE", "credentialName": "a"}});
        let rule = json!({
            "host": "a", "exportTo": ["."], "trafficPolicy": {"port_level_settings": [policy]},
            "subsets": [{"name": "b", "trafficPolicy": policy}],
        });
        let texts = [
            "trafficPolicy.portLevelSettings[0]",
            "subsets[0].trafficPolicy",
        ]
        .map(|place| {
            format!("spec.{place}.tls.credentialName: counts at routers alone: sidecars want a workloadSelector for it")
        });
        assert_eq!(note_texts(networking, "DestinationRule", rule), texts);
        let routes =
            json!({"hosts": ["a"], "tcp": [{}], "http": [{"match": [{"statPrefix": "b"}]}]});
        assert_eq!(note_texts(networking, "VirtualService", routes), none);
    }
}
