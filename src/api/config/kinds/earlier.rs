//! Kinds that are gone, and that people have objects of.

use super::later::later;
use super::{Kind, MIXER};

/// A kind that the first releases had for an adapter or a template, by the collection that pilot asked for.
macro_rules! legacy {
    ($kind:literal $plural:literal $(, instead $instead:ident)?) => {
        Kind {
            instead: legacy!($($instead)?),
            ..later(
                MIXER,
                $kind,
                $plural,
                concat!("istio/config/v1alpha2/legacy/", $plural),
            )
        }
    };
    () => { None };
    ($instead:ident) => { Some($instead) };
}

/// Parts that do the work of removed kinds today.
pub(super) const POLICY: &str = "AuthorizationPolicy";
pub(super) const RATE_LIMITS: &str = "EnvoyFilter with a filter that limits rates";
pub(super) const PEERS_AND_ORIGINS: &str =
    "PeerAuthentication for peers, RequestAuthentication for origins";
pub(super) const PEERS_AND_ORIGINS_OF_ROOT: &str =
    "PeerAuthentication for peers, RequestAuthentication for origins, both in the root namespace";
pub(super) const MIXER_PARTS: &str = "AuthorizationPolicy for checks, EnvoyFilter for quotas, Envoy's own metrics and the mesh's accessLogFile for reports";
pub(super) const REQUEST_ATTRIBUTES: &str =
    "nothing, for it gave attributes of requests to Mixer alone";
pub(super) const MIXER_SCHEMA: &str = "nothing, because only Mixer had adapters and templates";
const LOG: &str = "the mesh's accessLogFile";
const TRACES: &str = "the mesh's enableTracing";
const METRICS: &str = "Envoy's own metrics";

/// Kinds that releases up to 1.2 had for each of Mixer's adapters and templates, before there were handlers and instances:
/// accepted, and not looked at. A cluster that was moved on has objects of them still.
pub static EARLIER: &[Kind] = &[
    legacy!("apikey" "apikeys", instead POLICY),
    legacy!("authorization" "authorizations", instead POLICY),
    legacy!("bypass" "bypasses"),
    legacy!("checknothing" "checknothings", instead POLICY),
    legacy!("circonus" "circonuses", instead METRICS),
    legacy!("cloudwatch" "cloudwatches", instead METRICS),
    legacy!("denier" "deniers", instead POLICY),
    legacy!("dogstatsd" "dogstatsds", instead METRICS),
    legacy!("edge" "edges"),
    legacy!("fluentd" "fluentds", instead LOG),
    legacy!("kubernetesenv" "kubernetesenvs"),
    legacy!("kubernetes" "kuberneteses"),
    legacy!("listchecker" "listcheckers", instead POLICY),
    legacy!("listentry" "listentries", instead POLICY),
    legacy!("logentry" "logentries", instead LOG),
    legacy!("memquota" "memquotas", instead RATE_LIMITS),
    legacy!("metric" "metrics", instead METRICS),
    legacy!("noop" "noops"),
    legacy!("opa" "opas", instead POLICY),
    legacy!("prometheus" "prometheuses", instead METRICS),
    legacy!("quota" "quotas", instead RATE_LIMITS),
    legacy!("rbac" "rbacs", instead POLICY),
    legacy!("redisquota" "redisquotas", instead RATE_LIMITS),
    legacy!("reportnothing" "reportnothings"),
    legacy!("signalfx" "signalfxs", instead METRICS),
    legacy!("solarwinds" "solarwindses", instead LOG),
    legacy!("stackdriver" "stackdrivers", instead METRICS),
    legacy!("statsd" "statsds", instead METRICS),
    legacy!("stdio" "stdios", instead LOG),
    legacy!("tracespan" "tracespans", instead TRACES),
    legacy!("zipkin" "zipkins", instead TRACES),
];

/// Kinds of an adapter that no release with MCP has: no sink asks for collections of them.
pub(super) static SERVICE_CONTROL: [Kind; 2] = [
    legacy!("servicecontrol" "servicecontrols"),
    legacy!("servicecontrolreport" "servicecontrolreports", instead LOG),
];

/// istioctl installs Istio by them, and repositories hold them beside rules. Gudgeon does not look for them in a cluster.
pub(super) static OPERATORS: [Kind; 6] = [
    later(
        INSTALL,
        "IstioOperator",
        "istiooperators",
        "istio/install/v1alpha1/istiooperators",
    ),
    // That of 1.4, at v1alpha2.
    later(
        INSTALL,
        "IstioControlPlane",
        "istiocontrolplanes",
        "istio/install/v1alpha2/istiocontrolplanes",
    ),
    // Those of other operators.
    later(
        OPERATOR,
        "Istio",
        "istios",
        "istio/operator/v1alpha1/istios",
    ),
    later(
        OPERATOR,
        "IstioCNI",
        "istiocnis",
        "istio/operator/v1alpha1/istiocnis",
    ),
    later(
        OPERATOR,
        "IstioOperator",
        "istiooperators",
        "istio/operator/v1alpha1/istiooperators",
    ),
    later(
        OPERATOR,
        "IstioControlPlane",
        "istiocontrolplanes",
        "istio/operator/v1alpha1/istiocontrolplanes",
    ),
];

/// Rules of releases before 0.8, with the kinds that took their places.
pub(super) const SUCCESSORS: [(&str, &str); 3] = [
    ("RouteRule", "VirtualService"),
    ("EgressRule", "ServiceEntry"),
    ("DestinationPolicy", "DestinationRule"),
];

/// The API group of objects by which istioctl installs.
pub(super) const INSTALL: &str = "install.istio.io";

/// The API group of objects by which operators install.
pub(super) const OPERATOR: &str = "operator.istio.io";

/// The kind that 1.2 and 1.3 had for a release, whose definition their charts install: accepted and not checked. Its fields
/// differ from those of its successor of the same name.
pub(super) static EARLY_POLICY: Kind = Kind {
    instead: Some("AuthorizationPolicy of security.istio.io"),
    ..later(
        RBAC,
        "AuthorizationPolicy",
        "authorizationpolicies",
        "istio/rbac/v1alpha1/authorizationpolicies",
    )
};

/// Authorization until 1.5.
pub(super) const RBAC: &str = "rbac.istio.io";
