//! Outlier detection: when an endpoint that fails is left out.

use std::collections::BTreeSet;

use api::config::discovery_notes::is_status;
use api::istio::networking::v1alpha3::OutlierDetection as Detection;
use api::model::Protocol;
use envoy_types::pb::envoy::config::cluster::v3::OutlierDetection;
use envoy_types::pb::envoy::config::cluster::v3::cluster::CommonLbConfig;
use envoy_types::pb::envoy::config::common::matcher::v3::{
    HttpHeadersMatch, MatchPredicate, match_predicate,
};
use envoy_types::pb::envoy::config::route::v3::{HeaderMatcher, header_matcher};
use envoy_types::pb::envoy::extensions::upstreams::http::v3::http_protocol_options;
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher};
use envoy_types::pb::envoy::r#type::v3::Percent;

use super::{positive, time};
use crate::common::upstream_http::{UpstreamHttp, speaking};
use crate::common::wire;
use crate::finish::ClusterParts;

/// Success rates never eject an endpoint: no rule sets one. `grpc`: the client is proxyless gRPC.
pub(super) fn detect(
    parts: &mut ClusterParts,
    written: &Detection,
    protocol: Protocol,
    grpc: bool,
) {
    let cluster = &mut parts.cluster;
    let enforced = |count: u32| wire::number(if count > 0 { 100 } else { 0 });
    let mut detection = OutlierDetection {
        interval: written.interval.as_ref().map(time),
        base_ejection_time: written.base_ejection_time.as_ref().map(time),
        max_ejection_percent: positive(written.max_ejection_percent).and_then(wire::number),
        enforcing_success_rate: wire::number(0),
        // Envoy counts the endpoint that is to go, so that its usual 10 % would eject none of nine. As in the time of Istio 1.5
        // one goes in any case; gRPC counts those alone that are gone (gRFC A50), and does the same by itself.
        always_eject_one_host: if grpc { None } else { wire::boolean(true) },
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
    // Envoy enforces 5xx by itself, and the older field counted errors of gateways alone.
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
        // Envoy's own 50 % would send requests to endpoints that were ejected; nothing written means 0.
        healthy_panic_threshold: Some(Percent {
            value: f64::from(written.min_health_percent),
        }),
        ..usual
    });
    let codes = written.outlier_detection_http_error_codes.iter();
    let codes: BTreeSet<u32> = codes.copied().filter(|code| is_status(*code)).collect();
    if !codes.is_empty() && (protocol.is_http() || protocol.is_auto()) {
        let http = parts
            .http
            // Envoy requires a protocol among these options; HTTP/1 is what it speaks without them.
            .get_or_insert_with(|| speaking(UpstreamHttp::Http1));
        http.outlier_detection = Some(http_protocol_options::OutlierDetection {
            error_matcher: Some(any_of(&codes)),
        });
    }
}

/// Responses that count as errors, in place of all with 5xx.
fn any_of(codes: &BTreeSet<u32>) -> MatchPredicate {
    use match_predicate::Rule;
    let status = |code: u32| HeaderMatcher {
        name: ":status".to_owned(),
        header_match_specifier: Some(header_matcher::HeaderMatchSpecifier::StringMatch(
            StringMatcher {
                match_pattern: Some(string_matcher::MatchPattern::Exact(code.to_string())),
                ..StringMatcher::default()
            },
        )),
        ..HeaderMatcher::default()
    };
    let rules = codes.iter().map(|code| MatchPredicate {
        rule: Some(Rule::HttpResponseHeadersMatch(HttpHeadersMatch {
            headers: vec![status(*code)],
        })),
    });
    let mut rules: Vec<_> = rules.collect();
    match rules.len() {
        // Envoy wants two of them at least.
        0 | 1 => rules.pop().unwrap_or_default(),
        _ => MatchPredicate {
            rule: Some(Rule::OrMatch(match_predicate::MatchSet { rules })),
        },
    }
}
