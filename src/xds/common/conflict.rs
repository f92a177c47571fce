//! What was left out of the resources, because two services want one place.

use std::sync::Arc;

use api::model::{ObjectRef, ServiceKey};

/// One thing that was left out, and why. Told by metrics and pages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    pub metric: &'static str,
    /// What is in two minds: the name of a listener, of a cluster, a domain.
    pub key: String,
    pub message: String,
    /// The id of a proxy that it was found for; empty: it is all proxies' alike.
    pub proxy: Arc<str>,
    /// The rule that is to blame, where one is.
    pub object: Option<ObjectRef>,
    /// The service that is left out, or a part of it: whoever knows the objects that it was made of tells it at those.
    pub service: Option<ServiceKey>,
}

pub(crate) const TCP_OVER_TCP: &str = "pilot_conflict_outbound_listener_tcp_over_current_tcp";
pub(crate) const TCP_OVER_HTTP: &str = "pilot_conflict_outbound_listener_tcp_over_current_http";
pub(crate) const HTTP_OVER_TCP: &str = "pilot_conflict_outbound_listener_http_over_current_tcp";
pub(crate) const HTTP_OVER_HTTPS: &str = "pilot_conflict_outbound_listener_http_over_https";
pub(crate) const GATEWAY_WITHOUT_ADDRESS: &str = "gudgeon_network_gateways_without_address";
pub(crate) const INVALID_LISTENER: &str = "pilot_invalid_out_listeners";
pub(crate) const DUPLICATE_CLUSTER: &str = "pilot_duplicate_envoy_clusters";
/// Rules make more of something than a proxy is given.
pub(crate) const TOO_LARGE: &str = "gudgeon_rules_too_large";
/// Policies that keep out more than they say, because they cannot be enforced as they are written.
pub(crate) const NOT_ENFORCED_AS_WRITTEN: &str = "gudgeon_policies_not_enforced_as_written";
/// Patches of EnvoyFilters that cannot be applied as they are written.
pub(crate) const PATCH_NOT_APPLIED: &str = "gudgeon_envoy_filter_patches_not_applied";
/// Routes that are left to another rule, which is not there for it, or contradicts.
pub(crate) const DELEGATE: &str = "gudgeon_delegates_left_out";
/// A part of an object that another one leaves no place for, or that nothing can be made of.
pub const REJECTED_CONFIG: &str = "pilot_total_rejected_configs";
pub(crate) const DUPLICATE_DOMAIN: &str = "pilot_vservice_dup_domain";

impl Conflict {
    pub(crate) fn new(metric: &'static str, key: impl Into<String>, message: String) -> Self {
        Self {
            metric,
            key: key.into(),
            message,
            proxy: "".into(),
            object: None,
            service: None,
        }
    }

    pub(crate) fn because_of(self, object: &ObjectRef) -> Self {
        Self {
            object: Some(object.clone()),
            ..self
        }
    }

    pub(crate) fn of_service(self, service: &ServiceKey) -> Self {
        Self {
            service: Some(service.clone()),
            ..self
        }
    }

    pub(crate) fn of(self, proxy: &Arc<str>) -> Self {
        Self {
            proxy: proxy.clone(),
            ..self
        }
    }
}
