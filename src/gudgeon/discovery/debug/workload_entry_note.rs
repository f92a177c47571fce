//! A note on WorkloadEntries that a Service's selector matches.

use api::config::Finding;
use api::networking::{DiscoveryKind as _, WorkloadEntry};
use sources::catalogue::ConfigObject;

use super::selecting_services::SelectingServices;

/// Returns a warning for a WorkloadEntry that a Service's selector matches: such a Service takes it in Istio since 1.7.
pub(super) fn note_selected_by_service(
    object: &ConfigObject,
    services: &SelectingServices,
) -> Option<Finding> {
    if *object.kind != *WorkloadEntry::NAME {
        return None;
    }
    let spec = object.spec.value();
    let labels = spec.get("labels")?.as_object()?.iter();
    let labels =
        labels.filter_map(|(name, value)| Some((name.as_str().into(), value.as_str()?.into())));
    let service = services.first(&object.namespace, &labels.collect())?;
    let words = format!(
        "is no endpoint of {}, whose selector matches it: Services take pods alone, and ServiceEntries with a workloadSelector \
         take WorkloadEntries",
        service.key.hostname
    );
    Some(Finding::warning("spec.labels", words))
}
