//! The table of kinds: names, collections, messages, rules, the extent of the checks and the effect of each kind are read
//! here. A new kind is a `.proto` file, a row and a file of rules; a kind that discovery acts on has a file of notes and a line
//! of [`discovery_kinds`](crate::discovery_kinds), too. No code matches
//! the name of a kind to find its properties.

mod earlier;
mod effect;
mod later;
mod selector;

use serde_json::Value as Json;

use super::discovery_notes::{self, SpecNotes};
use super::{Finding, rules};
use crate::did_you_mean::nearest;
use crate::schema::{self, Message};
use crate::well_known::TYPE_URL_PREFIX;

pub use earlier::EARLIER;
use effect::DryRun;
pub use effect::{Effect, Role, dry_run_note, limited_notes_of, notes, notes_of, without_effect};
pub use later::LATER;
pub use selector::SelectorField;

/// The depth to which an object is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Fields and rules.
    Full,
    /// Fields alone: Mixer's checks of references and expressions are not repeated here.
    Fields,
    /// Not at all: a kind of later releases, which nothing here uses.
    Unused,
}

/// A kind of object.
#[derive(Debug)]
pub struct Kind {
    pub group: &'static str,
    /// The oldest first. All are one type and one collection; empty where any will do.
    pub versions: &'static [&'static str],
    pub kind: &'static str,
    pub plural: &'static str,
    /// The kind is cluster-scoped: its objects have no namespace.
    pub cluster: bool,
    /// Nothing is served in that of a kind with [`Check::Unused`].
    pub collection: &'static str,
    /// The message of the kind's spec.
    pub message: &'static Message,
    pub check: Check,
    /// Served as a Struct, its keys as written.
    pub verbatim: bool,
    pub effect: Effect,
    /// Its rules beyond its types.
    pub(super) rule: Option<rules::Rule>,
    /// Notes on the parts of a valid object that discovery serves otherwise than written.
    pub(super) notes: Option<SpecNotes>,
    /// The selector of workloads that `analyze` reports where it finds none; a ServiceEntry's is reported as one without endpoints.
    pub selector: Option<SelectorField>,
    /// The effect of the annotation `istio.io/dry-run` on its objects.
    dry_run: DryRun,
    /// The part that today does the work of a kind without an effect; `None`: none does, or it has one of its own.
    instead: Option<&'static str>,
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        (self.group, self.kind) == (other.group, other.kind)
    }
}

impl Eq for Kind {}

impl Kind {
    /// The type URL in the body of a resource.
    #[must_use]
    pub fn type_url(&self) -> String {
        let name = match self.verbatim {
            true => "google.protobuf.Struct",
            false => self.message.name,
        };
        format!("{TYPE_URL_PREFIX}{name}")
    }

    /// Findings of this kind's rules about a spec, in no particular order; none about values that could not be read.
    pub(super) fn check_rules(&self, namespace: &str, name: &str, spec: &Json) -> Vec<Finding> {
        let rule = self.rule.into_iter();
        rule.flat_map(|rule| rules::check(rule, namespace, name, spec))
            .collect()
    }
}

/// Mixer's own.
const MIXER: &str = "config.istio.io";

/// All groups with kinds of ours end so.
const OURS: &str = ".istio.io";

macro_rules! kinds {
    ($($group:literal $versions:expr, $prefix:literal: {$(
        $kind:literal $plural:literal $message:ident $check:ident $scope:ident $form:ident $effect:ident $($file:ident::$rule:ident)?
        $(, notes $notes:ident)? $(, selector $selector:literal $(or $of_routers:ident)?)? $(, without $without:literal)* $(, dry_run $dry_run:ident)? $(, instead $instead:ident)?
    )*})*) => {
        &[$($(Kind {
            group: $group,
            versions: &$versions,
            kind: $kind,
            plural: $plural,
            cluster: kinds!($scope),
            collection: concat!($prefix, $plural),
            message: &schema::$message,
            check: Check::$check,
            verbatim: kinds!($form),
            effect: kinds!($effect $($without)*),
            rule: kinds!(rule $($file::$rule)?),
            notes: kinds!(notes $($notes)?),
            selector: kinds!(selector $($selector $($of_routers)?)?),
            dry_run: kinds!(dry_run $($dry_run)?),
            instead: kinds!(instead $($instead)?),
        },)*)*]
    };
    (rule) => { None };
    (rule $file:ident::$rule:ident) => { Some(rules::$file::$rule) };
    (notes) => { None };
    (notes $file:ident) => { Some(discovery_notes::$file::notes) };
    (selector) => { None };
    (selector $labels:literal) => { Some(SelectorField::new($labels, None)) };
    (selector $labels:literal $note:ident) => { Some(SelectorField::new($labels, Some(discovery_notes::$note))) };
    (dry_run) => { DryRun::Unread };
    (dry_run $dry_run:ident) => { DryRun::$dry_run };
    (instead) => { None };
    (instead $instead:ident) => { Some(earlier::$instead) };
    (cluster) => { true };
    (namespaced) => { false };
    (verbatim) => { true };
    (typed) => { false };
    (none) => { Effect::None };
    (read) => { Effect::Read };
    (enforced $($without:literal)*) => { Effect::Enforced { by: Role::Discovery, without: &[$($without),*] } };
}

/// Kinds that are served and checked.
pub static KINDS: &[Kind] = TABLE;

const TABLE: &[Kind] = kinds! {
    "networking.istio.io" ["v1alpha3", "v1beta1", "v1"], "istio/networking/v1alpha3/": {
        "VirtualService" "virtualservices" ISTIO_NETWORKING_V1ALPHA3_VIRTUALSERVICE Full namespaced typed enforced virtual_service::check, notes virtual_service
        "DestinationRule" "destinationrules" ISTIO_NETWORKING_V1ALPHA3_DESTINATIONRULE Full namespaced typed enforced destination_rule::check, notes destination_rule, selector "workloadSelector.matchLabels"
        "Gateway" "gateways" ISTIO_NETWORKING_V1ALPHA3_GATEWAY Full namespaced typed enforced gateway::check, notes gateway, without "servers.defaultEndpoint"
        "ServiceEntry" "serviceentries" ISTIO_NETWORKING_V1ALPHA3_SERVICEENTRY Full namespaced typed enforced service_entry::check, notes service_entry
        "Sidecar" "sidecars" ISTIO_NETWORKING_V1ALPHA3_SIDECAR Full namespaced typed enforced sidecar::check, notes sidecar, selector "workloadSelector.labels" or SIDECAR_OF_ROUTERS
        "WorkloadEntry" "workloadentries" ISTIO_NETWORKING_V1ALPHA3_WORKLOADENTRY Full namespaced typed read workload_entry::check
    }
    "networking.istio.io" ["v1alpha3"], "istio/networking/v1alpha3/": {
        "EnvoyFilter" "envoyfilters" ISTIO_NETWORKING_V1ALPHA3_ENVOYFILTER Full namespaced typed enforced envoy_filter::check, notes envoy_filter, selector "workloadSelector.labels", without "filters"
    }
    "security.istio.io" ["v1beta1", "v1"], "istio/security/v1beta1/": {
        "AuthorizationPolicy" "authorizationpolicies" ISTIO_SECURITY_V1BETA1_AUTHORIZATIONPOLICY Full namespaced typed enforced authorization::check, notes authorization, selector "selector.matchLabels", dry_run Tried
        "PeerAuthentication" "peerauthentications" ISTIO_SECURITY_V1BETA1_PEERAUTHENTICATION Full namespaced typed enforced security::peer, selector "selector.matchLabels" or PEERS_OF_ROUTERS, dry_run Ignored
        "RequestAuthentication" "requestauthentications" ISTIO_SECURITY_V1BETA1_REQUESTAUTHENTICATION Full namespaced typed enforced security::request, notes request_authentication, selector "selector.matchLabels", dry_run Ignored
    }
    "authentication.istio.io" ["v1alpha1"], "istio/authentication/v1alpha1/": {
        "Policy" "policies" ISTIO_AUTHENTICATION_V1ALPHA1_POLICY Full namespaced typed none authentication::policy, instead PEERS_AND_ORIGINS
        "MeshPolicy" "meshpolicies" ISTIO_AUTHENTICATION_V1ALPHA1_POLICY Full cluster typed none authentication::mesh_policy, instead PEERS_AND_ORIGINS_OF_ROOT
    }
    "rbac.istio.io" ["v1alpha1"], "istio/rbac/v1alpha1/": {
        "ServiceRole" "serviceroles" ISTIO_RBAC_V1ALPHA1_SERVICEROLE Full namespaced typed none rbac::role, instead POLICY
        "ServiceRoleBinding" "servicerolebindings" ISTIO_RBAC_V1ALPHA1_SERVICEROLEBINDING Full namespaced typed none rbac::binding, instead POLICY
        "RbacConfig" "rbacconfigs" ISTIO_RBAC_V1ALPHA1_RBACCONFIG Full namespaced typed none rbac::old_config, instead POLICY
        "ClusterRbacConfig" "clusterrbacconfigs" ISTIO_RBAC_V1ALPHA1_RBACCONFIG Full cluster typed none rbac::config, instead POLICY
    }
    "config.istio.io" ["v1alpha2"], "istio/config/v1alpha2/": {
        "HTTPAPISpec" "httpapispecs" ISTIO_MIXER_V1_CONFIG_CLIENT_HTTPAPISPEC Full namespaced typed none mixer::api, instead REQUEST_ATTRIBUTES
        "HTTPAPISpecBinding" "httpapispecbindings" ISTIO_MIXER_V1_CONFIG_CLIENT_HTTPAPISPECBINDING Full namespaced typed none mixer::api_binding, instead REQUEST_ATTRIBUTES
        "adapter" "adapters" ISTIO_MIXER_ADAPTER_MODEL_V1BETA1_INFO Fields namespaced verbatim none, instead MIXER_SCHEMA
        "template" "templates" ISTIO_MIXER_ADAPTER_MODEL_V1BETA1_TEMPLATE Fields namespaced verbatim none, instead MIXER_SCHEMA
    }
    "config.istio.io" ["v1alpha2"], "istio/mixer/v1/config/client/": {
        "QuotaSpec" "quotaspecs" ISTIO_MIXER_V1_CONFIG_CLIENT_QUOTASPEC Full namespaced typed none mixer::quota, instead RATE_LIMITS
        "QuotaSpecBinding" "quotaspecbindings" ISTIO_MIXER_V1_CONFIG_CLIENT_QUOTASPECBINDING Full namespaced typed none mixer::quota_binding, instead RATE_LIMITS
    }
    "config.istio.io" ["v1alpha2"], "istio/policy/v1beta1/": {
        "rule" "rules" ISTIO_POLICY_V1BETA1_RULE Fields namespaced typed none, instead MIXER_PARTS
        "handler" "handlers" ISTIO_POLICY_V1BETA1_HANDLER Fields namespaced typed none, instead MIXER_PARTS
        "instance" "instances" ISTIO_POLICY_V1BETA1_INSTANCE Fields namespaced typed none, instead MIXER_PARTS
        "attributemanifest" "attributemanifests" ISTIO_POLICY_V1BETA1_ATTRIBUTEMANIFEST Fields namespaced typed none, instead MIXER_SCHEMA
    }
};

/// Kinds that a user may mean today: without those of [`EARLIER`].
fn current() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().chain(LATER)
}

/// All that is known, checked or not.
pub(super) fn all_kinds() -> impl Iterator<Item = &'static Kind> {
    let gone = EARLIER.iter().chain(&earlier::SERVICE_CONTROL);
    let gone = gone.chain(&earlier::OPERATORS);
    current().chain(gone).chain([&earlier::EARLY_POLICY])
}

/// The row of a kind, for constants: a name without one does not compile.
#[allow(
    clippy::indexing_slicing,
    clippy::panic,
    reason = "evaluated by the compiler alone"
)]
pub(crate) const fn row(name: &str) -> &'static Kind {
    const fn is_same(one: &[u8], other: &[u8]) -> bool {
        let mut at = 0;
        while at < one.len() && at < other.len() && one[at] == other[at] {
            at += 1;
        }
        at == one.len() && at == other.len()
    }
    let mut at = 0;
    while !is_same(TABLE[at].kind.as_bytes(), name.as_bytes()) {
        at += 1;
        assert!(at < TABLE.len(), "no kind has this name");
    }
    &TABLE[at]
}

/// The row of a kind, in whichever version it is written.
#[must_use]
pub fn named(group: &str, kind: &str) -> Option<&'static Kind> {
    let mut all = all_kinds();
    all.find(|row| row.group == group && row.kind == kind)
}

/// In one sentence, of a kind with [`Check::Unused`].
pub(super) fn unchecked(kind: &Kind) -> String {
    match kind.group {
        MIXER | earlier::RBAC => without_effect(kind),
        earlier::INSTALL => format!(
            "{} is not used by gudgeon and was not checked: istioctl installs by it, and its meshConfig and values are files of their own here",
            kind.kind
        ),
        earlier::OPERATOR => format!(
            "{} is not used by gudgeon and was not checked: an operator installs by it, and its meshConfig and values are files of their own here",
            kind.kind
        ),
        _ => format!("{} is not used by gudgeon and was not checked", kind.kind),
    }
}

/// Returns true if objects of this apiVersion are Istio's.
#[must_use]
pub fn is_ours(api_version: &str) -> bool {
    group_of(api_version).ends_with(OURS)
}

/// Groups of the Gateway API, whose objects stand beside ours and would do the same.
const GATEWAY_API: [&str; 2] = ["gateway.networking.k8s.io", "gateway.networking.x-k8s.io"];

/// Kinds of the Gateway API by their full names, because some share a name with ours. Objects of kinds beyond these are not counted:
/// authors of files could choose any number of names.
static GATEWAY_API_KINDS: [&str; 14] = [
    "BackendLBPolicy.gateway.networking.k8s.io",
    "BackendTLSPolicy.gateway.networking.k8s.io",
    "GRPCRoute.gateway.networking.k8s.io",
    "Gateway.gateway.networking.k8s.io",
    "GatewayClass.gateway.networking.k8s.io",
    "HTTPRoute.gateway.networking.k8s.io",
    "ListenerSet.gateway.networking.k8s.io",
    "ReferenceGrant.gateway.networking.k8s.io",
    "TCPRoute.gateway.networking.k8s.io",
    "TLSRoute.gateway.networking.k8s.io",
    "UDPRoute.gateway.networking.k8s.io",
    "XBackendTrafficPolicy.gateway.networking.x-k8s.io",
    "XListenerSet.gateway.networking.x-k8s.io",
    "XMesh.gateway.networking.x-k8s.io",
];

/// The full name of a kind of the Gateway API.
#[must_use]
pub fn unread_kind(group: &str, kind: &str) -> Option<&'static str> {
    let mut all = GATEWAY_API_KINDS.iter();
    let row = all.find(|name| name.split_once('.') == Some((kind, group)));
    row.copied()
}

/// Warns of an object of another API by which people tell gateways where requests go: nothing here reads it.
#[must_use]
pub fn unread_api(api_version: &str) -> Option<Finding> {
    let text = "gudgeon does not read Gateway API objects; they have no effect";
    GATEWAY_API
        .contains(&group_of(api_version))
        .then(|| Finding::warning("kind", text))
}

fn group_of(api_version: &str) -> &str {
    api_version
        .split_once('/')
        .map_or("", |(group, _version)| group)
}

/// The kind of an object. One of later releases is found, too: see [`Check::Unused`].
///
/// # Errors
///
/// A kind that does not exist, with the nearest that does.
pub fn kind(api_version: &str, kind: &str) -> Result<&'static Kind, Finding> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_it = |row: &&Kind| {
        row.group == group
            && row.kind == kind
            && (row.versions.is_empty() || row.versions.contains(&version))
    };
    if let Some(row) = all_kinds().find(is_it) {
        return Ok(row);
    }
    let mut earlier = earlier::SUCCESSORS.iter();
    let successor = earlier.find(|(name, _)| group == MIXER && *name == kind);
    let wanted = successor.map_or(kind, |(_, successor)| successor);
    let suggestion = match current().find(|row| row.kind == wanted) {
        Some(row) => match row.versions.first() {
            Some(version) => Some(format!("{}/{version} {wanted}", row.group)),
            None => Some(format!("{} {wanted}", row.group)),
        },
        None => nearest(
            kind,
            current()
                .filter(|row| row.group == group)
                .chain(current())
                .map(|row| row.kind),
        )
        .map(str::to_owned),
    };
    let mut message = format!("unrecognized type {} {}", short(api_version), short(kind));
    match (successor, suggestion) {
        (Some(_), Some(suggestion)) => message.push_str(&format!(", {suggestion} took its place")),
        (None, Some(suggestion)) => message.push_str(&format!(", did you mean \"{suggestion}\"?")),
        (_, None) => {}
    }
    Err(Finding::error("kind", message))
}

fn short(name: &str) -> String {
    const MAX_SHOWN: usize = 128;
    name.chars()
        .take(MAX_SHOWN)
        .flat_map(char::escape_debug)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_is_found_in_all_its_versions_and_only_there() {
        for row in KINDS {
            for version in row.versions {
                let found = kind(&format!("{}/{version}", row.group), row.kind).unwrap();
                assert_eq!(found, row);
            }
            let other = format!("{}/v9", row.group);
            assert!(kind(&other, row.kind).is_err());
            assert!(is_ours(&other));
        }
        assert_eq!(KINDS.len(), 26);
        let collections: BTreeSet<_> = all_kinds().map(|row| row.collection).collect();
        assert_eq!(collections.len(), all_kinds().count());
        assert!(!collections.contains(""));
    }

    #[test]
    fn kinds_without_effect_name_what_replaces_them() {
        let silent = KINDS.iter().filter(|row| row.effect == Effect::None);
        for row in silent {
            assert!(row.instead.is_some(), "{}", row.kind);
        }
    }

    #[test]
    fn messages_are_called_as_their_kinds_with_few_exceptions() {
        let others = [
            ("MeshPolicy", "istio.authentication.v1alpha1.Policy"),
            ("ClusterRbacConfig", "istio.rbac.v1alpha1.RbacConfig"),
            ("rule", "istio.policy.v1beta1.Rule"),
            ("handler", "istio.policy.v1beta1.Handler"),
            ("instance", "istio.policy.v1beta1.Instance"),
            (
                "attributemanifest",
                "istio.policy.v1beta1.AttributeManifest",
            ),
            ("adapter", "istio.mixer.adapter.model.v1beta1.Info"),
            ("template", "istio.mixer.adapter.model.v1beta1.Template"),
        ];
        for row in KINDS {
            let (_, last) = row.message.name.rsplit_once('.').unwrap();
            match others.iter().find(|(kind, _)| *kind == row.kind) {
                Some((_, message)) => assert_eq!(row.message.name, *message),
                None => assert_eq!(last, row.kind),
            }
        }
        let of = |api_version, name| kind(api_version, name).unwrap().type_url();
        assert_eq!(
            of("networking.istio.io/v1", "Gateway"),
            "type.googleapis.com/istio.networking.v1alpha3.Gateway"
        );
        assert_eq!(
            of("config.istio.io/v1alpha2", "adapter"),
            "type.googleapis.com/google.protobuf.Struct"
        );
    }

    #[test]
    fn kinds_that_are_gone_are_known_by_what_they_belonged_to() {
        for row in EARLIER {
            assert_eq!(kind("config.istio.io/v1alpha2", row.kind).unwrap(), row);
            let prefix = format!("{} belonged to Mixer and is not used", row.kind);
            assert!(unchecked(row).starts_with(&prefix));
            let collection = format!("istio/config/v1alpha2/legacy/{}", row.plural);
            assert!(super::super::collections::is_always_empty(&collection));
        }
        assert_eq!(EARLIER.len(), 31);
        for row in &earlier::SERVICE_CONTROL {
            assert_eq!(kind("config.istio.io/v1alpha2", row.kind).unwrap(), row);
            assert!(unchecked(row).contains("belonged to Mixer and is not used"));
            assert!(!super::super::collections::is_known(row.collection));
        }
    }

    #[test]
    fn later_kinds_are_known_and_unused() {
        for (api_version, name) in [
            ("networking.istio.io/v1beta1", "ProxyConfig"),
            ("telemetry.istio.io/v1", "Telemetry"),
            ("extensions.istio.io/v1alpha1", "WasmPlugin"),
            ("install.istio.io/v1alpha1", "IstioOperator"),
            ("install.istio.io/v1alpha2", "IstioControlPlane"),
            ("operator.istio.io/v1alpha1", "Istio"),
            ("operator.istio.io/v1alpha1", "IstioCNI"),
            ("operator.istio.io/v1alpha1", "IstioOperator"),
            ("operator.istio.io/v1alpha1", "IstioControlPlane"),
            ("rbac.istio.io/v1alpha1", "AuthorizationPolicy"),
        ] {
            assert_eq!(kind(api_version, name).unwrap().check, Check::Unused);
        }
        for (api_version, whose) in [
            ("install.istio.io/v1alpha1", "istioctl installs by it"),
            ("operator.istio.io/v1alpha1", "an operator installs by it"),
        ] {
            let text = unchecked(kind(api_version, "IstioOperator").unwrap());
            let end = format!("{whose}, and its meshConfig and values are files of their own here");
            assert!(text.ends_with(&end), "{text}");
        }
    }

    /// Two releases had a kind of its name before it.
    #[test]
    fn the_first_authorization_policy_is_told_from_its_successor() {
        let first = kind("rbac.istio.io/v1alpha1", "AuthorizationPolicy").unwrap();
        assert_eq!(
            unchecked(first),
            "AuthorizationPolicy has no effect in this release: it is accepted, and gudgeon discovery does not enforce it; in its \
             place: AuthorizationPolicy of security.istio.io"
        );
        assert_eq!(named("rbac.istio.io", "AuthorizationPolicy"), Some(first));
        let now = kind("security.istio.io/v1beta1", "AuthorizationPolicy").unwrap();
        assert_eq!(row("AuthorizationPolicy"), now);
        assert_ne!(first, now);
    }

    #[test]
    fn an_unknown_kind_is_told_what_it_may_have_meant() {
        for (api_version, name, want) in [
            (
                "networking.istio.io/v1",
                "VirtualServise",
                "unrecognized type networking.istio.io/v1 VirtualServise, did you mean \"VirtualService\"?",
            ),
            (
                "networking.istio.io/v1alpha2",
                "Gateway",
                "unrecognized type networking.istio.io/v1alpha2 Gateway, did you mean \"networking.istio.io/v1alpha3 Gateway\"?",
            ),
            (
                "security.istio.io/v1",
                "Sidecar",
                "unrecognized type security.istio.io/v1 Sidecar, did you mean \"networking.istio.io/v1alpha3 Sidecar\"?",
            ),
            (
                "config.istio.io/v1alpha2",
                "Rule",
                "unrecognized type config.istio.io/v1alpha2 Rule, did you mean \"rule\"?",
            ),
            (
                "install.istio.io/v1alpha1",
                "IstioOperators",
                "unrecognized type install.istio.io/v1alpha1 IstioOperators",
            ),
            ("v1", "Pods", "unrecognized type v1 Pods"),
            (
                "config.istio.io/v1alpha2",
                "RouteRule",
                "unrecognized type config.istio.io/v1alpha2 RouteRule, networking.istio.io/v1alpha3 VirtualService took its place",
            ),
            (
                "config.istio.io/v1alpha2",
                "EgressRule",
                "unrecognized type config.istio.io/v1alpha2 EgressRule, networking.istio.io/v1alpha3 ServiceEntry took its place",
            ),
            (
                "config.istio.io/v1alpha2",
                "DestinationPolicy",
                "unrecognized type config.istio.io/v1alpha2 DestinationPolicy, networking.istio.io/v1alpha3 DestinationRule took its place",
            ),
        ] {
            let finding = kind(api_version, name).unwrap_err();
            assert_eq!(finding.message, want);
            assert_eq!(finding.path, "kind");
        }
        assert!(!is_ours("v1") && !is_ours("apps/v1") && !is_ours("istio.io/v1"));
    }

    #[test]
    fn kinds_of_the_gateway_api_have_full_names() {
        for name in GATEWAY_API_KINDS {
            let (kind, group) = name.split_once('.').unwrap();
            assert!(GATEWAY_API.contains(&group));
            assert_eq!(unread_kind(group, kind), Some(name));
        }
        assert!(GATEWAY_API_KINDS.is_sorted());
        assert_eq!(unread_kind("networking.istio.io", "Gateway"), None);
        assert_eq!(unread_kind(GATEWAY_API[0], "Mine"), None);
    }

    #[test]
    fn objects_of_the_gateway_api_are_said_to_be_unread() {
        for group in GATEWAY_API {
            let note = unread_api(&format!("{group}/v1")).unwrap();
            assert!(!note.is_error() && !is_ours(&format!("{group}/v1")));
            let text = "gudgeon does not read Gateway API objects; they have no effect";
            assert_eq!((note.path.as_str(), note.message.as_str()), ("kind", text));
        }
        for other in [
            "v1",
            "networking.istio.io/v1",
            "gateway.example/v1",
            "gateway.networking.k8s.io",
        ] {
            assert_eq!(unread_api(other), None, "{other}");
        }
    }
}
