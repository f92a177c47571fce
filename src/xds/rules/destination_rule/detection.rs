//! When an endpoint that fails is left out.

use api::istio::networking::v1alpha3::OutlierDetection as Detection;
use envoy_types::pb::envoy::config::cluster::v3::cluster::CommonLbConfig;
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, OutlierDetection};
use envoy_types::pb::envoy::r#type::v3::Percent;

use super::{positive, time};
use crate::common::wire;

/// Rates of success are never a reason: nobody says which.
pub(super) fn detect(cluster: &mut Cluster, written: &Detection) {
    let enforced = |count: u32| wire::number(if count > 0 { 100 } else { 0 });
    let mut detection = OutlierDetection {
        interval: written.interval.as_ref().map(time),
        base_ejection_time: written.base_ejection_time.as_ref().map(time),
        max_ejection_percent: positive(written.max_ejection_percent).and_then(wire::number),
        enforcing_success_rate: wire::number(0),
        ..OutlierDetection::default()
    };
    if let Some(errors) = written.consecutive_5xx_errors {
        detection.consecutive_5xx = wire::number(errors.value);
        detection.enforcing_consecutive_5xx = enforced(errors.value);
    }
    let gateway = written
        .consecutive_gateway_errors
        .map(|errors| errors.value);
    // Istio 1.1 to 1.5 counted errors of gateways alone by this name.
    let earlier = positive(written.consecutive_errors)
        .filter(|_| gateway.is_none() && written.consecutive_5xx_errors.is_none());
    if let Some(errors) = gateway.or(earlier) {
        detection.consecutive_gateway_failure = wire::number(errors);
        detection.enforcing_consecutive_gateway_failure = enforced(errors);
    }
    if earlier.is_some() {
        detection.enforcing_consecutive_5xx = wire::number(0);
    }
    if written.split_external_local_origin_errors {
        detection.split_external_local_origin_errors = true;
        detection.enforcing_local_origin_success_rate = wire::number(0);
        if let Some(failures) = written.consecutive_local_origin_failures {
            detection.consecutive_local_origin_failure = wire::number(failures.value);
            detection.enforcing_consecutive_local_origin_failure = enforced(failures.value);
        }
    }
    cluster.outlier_detection = Some(detection);
    let usual = cluster.common_lb_config.take().unwrap_or_default();
    cluster.common_lb_config = Some(CommonLbConfig {
        healthy_panic_threshold: Some(Percent {
            value: f64::from(written.min_health_percent),
        }),
        ..usual
    });
}
