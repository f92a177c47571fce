//! Settings of a policy that requests alone have, by their paths.

use api::istio::networking::v1alpha3::connection_pool_settings::HttpSettings;
use api::istio::networking::v1alpha3::load_balancer_settings::LbPolicy;
use api::istio::networking::v1alpha3::load_balancer_settings::consistent_hash_lb::HashKey;
use api::istio::networking::v1alpha3::{LoadBalancerSettings, OutlierDetection};

/// The key of a hash that only requests have.
pub(super) fn hash_of_requests(balancer: &LoadBalancerSettings) -> Option<&'static str> {
    let Some(LbPolicy::ConsistentHash(hash)) = &balancer.lb_policy else {
        return None;
    };
    match hash.hash_key.as_ref()? {
        HashKey::HttpHeaderName(_) => Some("loadBalancer.consistentHash.httpHeaderName"),
        HashKey::HttpCookie(_) => Some("loadBalancer.consistentHash.httpCookie"),
        HashKey::HttpQueryParameterName(_) => {
            Some("loadBalancer.consistentHash.httpQueryParameterName")
        }
        HashKey::UseSourceIp(_) => None,
    }
}

/// Settings of a pool that only requests have. Envoy counts connections that wait for one by `http1MaxPendingRequests`, too.
pub(super) fn of_requests(http: &HttpSettings) -> impl Iterator<Item = &'static str> {
    let all = [
        (
            http.http2_max_requests > 0,
            "connectionPool.http.http2MaxRequests",
        ),
        (
            http.max_requests_per_connection > 0,
            "connectionPool.http.maxRequestsPerConnection",
        ),
        (http.max_retries > 0, "connectionPool.http.maxRetries"),
        (
            http.idle_timeout.is_some(),
            "connectionPool.http.idleTimeout",
        ),
        (
            http.h2_upgrade_policy != 0,
            "connectionPool.http.h2UpgradePolicy",
        ),
        (
            http.use_client_protocol,
            "connectionPool.http.useClientProtocol",
        ),
    ];
    let all = all.into_iter();
    all.filter_map(|(is_set, name)| is_set.then_some(name))
        .chain(of_http2(http))
}

/// Settings of a pool that only connections of HTTP/2 have.
pub(super) fn of_http2(http: &HttpSettings) -> impl Iterator<Item = &'static str> {
    let all = [
        (
            http.max_concurrent_streams > 0,
            "connectionPool.http.maxConcurrentStreams",
        ),
        (
            http.http2_keep_alive.is_some(),
            "connectionPool.http.http2KeepAlive",
        ),
    ];
    all.into_iter()
        .filter_map(|(is_set, name)| is_set.then_some(name))
}

/// Outlier detection by responses. Envoy counts a connection that fails as a response of 503, but where failures of its own are told apart
/// from those of responses.
pub(super) fn of_responses(detection: &OutlierDetection) -> impl Iterator<Item = &'static str> {
    let is_split = detection.split_external_local_origin_errors;
    let is_positive = |number: Option<u32>| number.is_some_and(|number| number > 0);
    let five = detection.consecutive_5xx_errors.map(|one| one.value);
    let gateway = detection.consecutive_gateway_errors.map(|one| one.value);
    let codes = &detection.outlier_detection_http_error_codes;
    let all = [
        (
            is_split && is_positive(five),
            "outlierDetection.consecutive5xxErrors",
        ),
        (
            is_split && is_positive(gateway),
            "outlierDetection.consecutiveGatewayErrors",
        ),
        (
            is_split && detection.consecutive_errors > 0,
            "outlierDetection.consecutiveErrors",
        ),
        (
            !codes.is_empty(),
            "outlierDetection.outlierDetectionHttpErrorCodes",
        ),
    ];
    all.into_iter()
        .filter_map(|(is_set, name)| is_set.then_some(name))
}
