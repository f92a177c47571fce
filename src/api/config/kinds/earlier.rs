//! Kinds that are gone, and that people have objects of.

use super::{Kind, MIXER, later};

/// What releases up to 1.2 had for each of Mixer's adapters and templates, before there were handlers and instances: accepted,
/// and not looked at. A cluster that was moved on has objects of them still.
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

/// istioctl installs Istio by it, and repositories hold it beside rules. Gudgeon does not look for it in a cluster.
pub(super) static OPERATOR: Kind = later("install.istio.io", "IstioOperator", "istiooperators");
