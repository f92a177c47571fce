//! Kinds that are gone, and that people have objects of.

use super::{Kind, MIXER, later};

/// Kinds that releases up to 1.2 had for each of Mixer's adapters and templates, before there were handlers and instances:
/// accepted, and not looked at. A cluster that was moved on has objects of them still.
pub static EARLIER: &[Kind] = &[
    later(MIXER, "apikey", "apikeys"),
    later(MIXER, "authorization", "authorizations"),
    later(MIXER, "bypass", "bypasses"),
    later(MIXER, "checknothing", "checknothings"),
    later(MIXER, "circonus", "circonuses"),
    later(MIXER, "cloudwatch", "cloudwatches"),
    later(MIXER, "denier", "deniers"),
    later(MIXER, "dogstatsd", "dogstatsds"),
    later(MIXER, "edge", "edges"),
    later(MIXER, "fluentd", "fluentds"),
    later(MIXER, "kubernetesenv", "kubernetesenvs"),
    later(MIXER, "kubernetes", "kuberneteses"),
    later(MIXER, "listchecker", "listcheckers"),
    later(MIXER, "listentry", "listentries"),
    later(MIXER, "logentry", "logentries"),
    later(MIXER, "memquota", "memquotas"),
    later(MIXER, "metric", "metrics"),
    later(MIXER, "noop", "noops"),
    later(MIXER, "opa", "opas"),
    later(MIXER, "prometheus", "prometheuses"),
    later(MIXER, "quota", "quotas"),
    later(MIXER, "rbac", "rbacs"),
    later(MIXER, "redisquota", "redisquotas"),
    later(MIXER, "reportnothing", "reportnothings"),
    later(MIXER, "signalfx", "signalfxs"),
    later(MIXER, "solarwinds", "solarwindses"),
    later(MIXER, "stackdriver", "stackdrivers"),
    later(MIXER, "statsd", "statsds"),
    later(MIXER, "stdio", "stdios"),
    later(MIXER, "tracespan", "tracespans"),
    later(MIXER, "zipkin", "zipkins"),
];

/// istioctl installs Istio by them, and repositories hold them beside rules. Gudgeon does not look for them in a cluster.
pub(super) static OPERATORS: [Kind; 2] = [
    later(INSTALL, "IstioOperator", "istiooperators"),
    // That of 1.4, at v1alpha2.
    later(INSTALL, "IstioControlPlane", "istiocontrolplanes"),
];

const INSTALL: &str = "install.istio.io";

/// The kind that 1.2 and 1.3 had for a release, whose definition their charts install: accepted, and not looked at. What it says
/// is not what its successor of the same name says.
pub(super) static EARLY_POLICY: Kind = later(RBAC, "AuthorizationPolicy", "authorizationpolicies");

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
