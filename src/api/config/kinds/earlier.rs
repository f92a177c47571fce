//! Kinds that are gone, and that people have objects of.

use super::{Kind, MIXER, later};

/// A kind that the first releases had for an adapter or a template, by the collection that pilot asked for.
macro_rules! legacy {
    ($kind:literal $plural:literal) => {
        later(
            MIXER,
            $kind,
            $plural,
            concat!("istio/config/v1alpha2/legacy/", $plural),
        )
    };
}

/// Kinds that releases up to 1.2 had for each of Mixer's adapters and templates, before there were handlers and instances:
/// accepted, and not looked at. A cluster that was moved on has objects of them still.
pub static EARLIER: &[Kind] = &[
    legacy!("apikey" "apikeys"),
    legacy!("authorization" "authorizations"),
    legacy!("bypass" "bypasses"),
    legacy!("checknothing" "checknothings"),
    legacy!("circonus" "circonuses"),
    legacy!("cloudwatch" "cloudwatches"),
    legacy!("denier" "deniers"),
    legacy!("dogstatsd" "dogstatsds"),
    legacy!("edge" "edges"),
    legacy!("fluentd" "fluentds"),
    legacy!("kubernetesenv" "kubernetesenvs"),
    legacy!("kubernetes" "kuberneteses"),
    legacy!("listchecker" "listcheckers"),
    legacy!("listentry" "listentries"),
    legacy!("logentry" "logentries"),
    legacy!("memquota" "memquotas"),
    legacy!("metric" "metrics"),
    legacy!("noop" "noops"),
    legacy!("opa" "opas"),
    legacy!("prometheus" "prometheuses"),
    legacy!("quota" "quotas"),
    legacy!("rbac" "rbacs"),
    legacy!("redisquota" "redisquotas"),
    legacy!("reportnothing" "reportnothings"),
    legacy!("signalfx" "signalfxs"),
    legacy!("solarwinds" "solarwindses"),
    legacy!("stackdriver" "stackdrivers"),
    legacy!("statsd" "statsds"),
    legacy!("stdio" "stdios"),
    legacy!("tracespan" "tracespans"),
    legacy!("zipkin" "zipkins"),
];

/// istioctl installs Istio by them, and repositories hold them beside rules. Gudgeon does not look for them in a cluster.
pub(super) static OPERATORS: [Kind; 2] = [
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
];

const INSTALL: &str = "install.istio.io";

/// The kind that 1.2 and 1.3 had for a release, whose definition their charts install: accepted, and not looked at. What it says
/// is not what its successor of the same name says.
pub(super) static EARLY_POLICY: Kind = later(
    RBAC,
    "AuthorizationPolicy",
    "authorizationpolicies",
    "istio/rbac/v1alpha1/authorizationpolicies",
);

/// Authorization until 1.5.
pub(super) const RBAC: &str = "rbac.istio.io";

/// The part that today does the work of a kind that is gone; `None`: none does, or it has one of its own.
pub(super) fn replacement(group: &str, kind: &str) -> Option<&'static str> {
    Some(match (group, kind) {
        ("authentication.istio.io", "Policy") => {
            "PeerAuthentication for peers, RequestAuthentication for origins"
        }
        ("authentication.istio.io", "MeshPolicy") => {
            "PeerAuthentication for peers, RequestAuthentication for origins, both in the root namespace"
        }
        (RBAC, "AuthorizationPolicy") => "AuthorizationPolicy of security.istio.io",
        (RBAC, _) => "AuthorizationPolicy",
        (MIXER, "rule" | "handler" | "instance") => {
            "AuthorizationPolicy for checks, EnvoyFilter for quotas, Envoy's own metrics and the mesh's accessLogFile for reports"
        }
        (
            MIXER,
            "apikey" | "authorization" | "checknothing" | "denier" | "listchecker" | "listentry"
            | "opa" | "rbac",
        ) => "AuthorizationPolicy",
        (MIXER, "memquota" | "quota" | "redisquota" | "QuotaSpec" | "QuotaSpecBinding") => {
            "EnvoyFilter with a filter that limits rates"
        }
        (MIXER, "fluentd" | "logentry" | "solarwinds" | "stdio") => "the mesh's accessLogFile",
        (MIXER, "tracespan" | "zipkin") => "the mesh's enableTracing",
        (
            MIXER,
            "circonus" | "cloudwatch" | "dogstatsd" | "metric" | "prometheus" | "signalfx"
            | "stackdriver" | "statsd",
        ) => "Envoy's own metrics",
        _ => return None,
    })
}
