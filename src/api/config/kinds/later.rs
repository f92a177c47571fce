//! Kinds of later releases.

use super::effect::{DryRun, Effect};
use super::{Check, Kind};
use crate::schema::Message;

static NOTHING: Message = Message {
    name: "",
    fields: &[],
};

/// A kind that is accepted and not looked at. Nothing is served in its collection, which names its objects all the same.
pub(super) const fn later(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    collection: &'static str,
) -> Kind {
    Kind {
        group,
        versions: &[],
        kind,
        plural,
        cluster: false,
        collection,
        message: &NOTHING,
        check: Check::Unused,
        verbatim: false,
        effect: Effect::None,
        rule: None,
        notes: None,
        selector: None,
        dry_run: DryRun::Unread,
        instead: None,
    }
}

/// Kinds that releases after 1.5 brought: accepted, and not looked at.
pub static LATER: &[Kind] = &[
    later(
        "networking.istio.io",
        "WorkloadGroup",
        "workloadgroups",
        "istio/networking/v1alpha3/workloadgroups",
    ),
    later(
        "networking.istio.io",
        "ProxyConfig",
        "proxyconfigs",
        "istio/networking/v1beta1/proxyconfigs",
    ),
    later(
        "telemetry.istio.io",
        "Telemetry",
        "telemetries",
        "istio/telemetry/v1alpha1/telemetries",
    ),
    later(
        "extensions.istio.io",
        "WasmPlugin",
        "wasmplugins",
        "istio/extensions/v1alpha1/wasmplugins",
    ),
    later(
        "extensions.istio.io",
        "TrafficExtension",
        "trafficextensions",
        "istio/extensions/v1alpha1/trafficextensions",
    ),
];
