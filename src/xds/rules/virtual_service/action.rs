//! Actions of a route: it forwards, redirects or answers a request.

use std::time::Duration;

use api::config::discovery_notes::{is_one_line, is_regex};
use api::istio::networking::v1alpha3::http_body::Specifier;
use api::istio::networking::v1alpha3::http_redirect::{RedirectPort, RedirectPortSelection};
use api::istio::networking::v1alpha3::{
    Destination, HttpDirectResponse, HttpRedirect, HttpRetry, HttpRoute, HttpRouteDestination,
    Percent,
};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::route::v3::redirect_action::{
    PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier,
};
use envoy_types::pb::envoy::config::route::v3::route_action::{
    ClusterSpecifier, HostRewriteSpecifier, MaxStreamDuration, RequestMirrorPolicy,
};
use envoy_types::pb::envoy::config::route::v3::weighted_cluster::{
    ClusterWeight, cluster_weight::HostRewriteSpecifier as WeightHost,
};
use envoy_types::pb::envoy::config::route::v3::{
    DirectResponseAction, RedirectAction, RetryPolicy, RouteAction, WeightedCluster,
    retry_policy as route_retry,
};
use envoy_types::pb::envoy::extensions::retry::priority::previous_priorities::v3::PreviousPrioritiesConfig;
use envoy_types::pb::envoy::r#type::matcher::v3::RegexMatchAndSubstitute;
use envoy_types::pb::envoy::r#type::v3::FractionalPercent;

use super::percent::millionths;
use super::{RouteContext, TargetCluster, filters};
use crate::common::regex;
use crate::common::retries;
use crate::common::wire;
use crate::rules::destination_rule::time;

/// In front of a redirect's `uri`: what stands behind takes the place of the prefix that was matched.
const PREFIX: &str = "%PREFIX()%";

/// `None` where Envoy has no such redirect.
pub(super) fn redirect(redirect: &HttpRedirect, port: u16) -> Option<RedirectAction> {
    let texts = [&redirect.uri, &redirect.authority, &redirect.prefix_rewrite];
    texts
        .into_iter()
        .all(|text| is_one_line(text))
        .then_some(())?;
    let code = match redirect.redirect_code {
        0 | 301 => RedirectResponseCode::MovedPermanently,
        302 => RedirectResponseCode::Found,
        303 => RedirectResponseCode::SeeOther,
        307 => RedirectResponseCode::TemporaryRedirect,
        308 => RedirectResponseCode::PermanentRedirect,
        _ => return None,
    };
    let prefix = redirect.uri.strip_prefix(PREFIX);
    let prefix = prefix.unwrap_or(&redirect.prefix_rewrite);
    let path = if !prefix.is_empty() {
        Some(PathRewriteSpecifier::PrefixRewrite(prefix.to_owned()))
    } else if redirect.uri.is_empty() || redirect.uri == PREFIX {
        None
    } else {
        Some(PathRewriteSpecifier::PathRedirect(redirect.uri.clone()))
    };
    Some(RedirectAction {
        host_redirect: redirect.authority.clone(),
        port_redirect: port_redirect(redirect, port),
        response_code: code.into(),
        path_rewrite_specifier: path,
        scheme_rewrite_specifier: Some(&redirect.scheme)
            .filter(|scheme| !scheme.is_empty())
            .map(|scheme| SchemeRewriteSpecifier::SchemeRedirect(scheme.clone())),
        ..RedirectAction::default()
    })
}

/// Returns the port that stands in the location; 0: none of its own.
fn port_redirect(redirect: &HttpRedirect, port: u16) -> u32 {
    let from_request = i32::from(RedirectPortSelection::FromRequestPort);
    let number = match redirect.redirect_port {
        Some(RedirectPort::Port(number)) => number,
        Some(RedirectPort::DerivePort(from)) if from == from_request => port.into(),
        Some(RedirectPort::DerivePort(_)) | None => 0,
    };
    let is_usual = matches!((&*redirect.scheme, number), ("http", 80) | ("https", 443));
    // Without a port Envoy keeps the one that the client wrote behind the host, unless the location has another host.
    if is_usual && !redirect.authority.is_empty() {
        return 0;
    }
    number
}

pub(super) fn direct_response(response: &HttpDirectResponse) -> DirectResponseAction {
    let body = response
        .body
        .as_ref()
        .and_then(|body| body.specifier.as_ref());
    let body = body.map(|body| match body {
        Specifier::String(text) => core::data_source::Specifier::InlineString(text.clone()),
        Specifier::Bytes(bytes) => core::data_source::Specifier::InlineBytes(bytes.clone()),
    });
    DirectResponseAction {
        status: response.status,
        body: body.map(|specifier| core::DataSource {
            specifier: Some(specifier),
            ..core::DataSource::default()
        }),
        ..DirectResponseAction::default()
    }
}

/// Builds the action that routes to one cluster, or to several by weight; `None`: the rule has no destination.
pub(super) fn route_action(
    http: &HttpRoute,
    destinations: &[(&HttpRouteDestination, TargetCluster)],
    context: &RouteContext<'_>,
) -> Option<RouteAction> {
    let grpc = context.grpc;
    let (_, first) = destinations.first()?;
    let is_accepted = http.rewrite.as_ref().is_none_or(|rewrite| {
        let regex = rewrite.uri_regex_rewrite.as_ref();
        let texts = [&rewrite.uri, &rewrite.authority].into_iter();
        let mut texts = texts.chain(regex.map(|regex| &regex.rewrite));
        texts.all(|text| is_one_line(text)) && regex.is_none_or(|regex| is_regex(&regex.r#match))
    });
    is_accepted.then_some(())?;
    let weighted = destinations.iter().filter_map(|(destination, to)| {
        let weight = u32::try_from(destination.weight).ok()?;
        (weight > 0).then(|| cluster_weight(destination, to, weight))
    });
    let weighted: Vec<_> = weighted.collect();
    let timeout = http.timeout.as_ref().map(time);
    let never = wire::duration(Duration::ZERO);
    // Envoy takes no notice of a timeout beside a duration of streams; gRPC's own client knows that alone.
    let durations = match timeout {
        Some(timeout) => grpc.then(|| MaxStreamDuration {
            max_stream_duration: Some(timeout),
            ..MaxStreamDuration::default()
        }),
        None => (!grpc).then(|| MaxStreamDuration {
            max_stream_duration: Some(never),
            grpc_timeout_header_max: Some(never),
            ..MaxStreamDuration::default()
        }),
    };
    let mut action = RouteAction {
        cluster_specifier: Some(if weighted.is_empty() {
            ClusterSpecifier::Cluster(first.cluster.to_string())
        } else {
            ClusterSpecifier::WeightedClusters(WeightedCluster {
                clusters: weighted,
                ..WeightedCluster::default()
            })
        }),
        max_stream_duration: durations,
        timeout: Some(timeout.unwrap_or(never)),
        retry_policy: match &http.retries {
            Some(destination) => retry_policy(destination),
            None => context.retries.cloned(),
        },
        hash_policy: hash_policies(destinations),
        ..RouteAction::default()
    };
    rewrite(&mut action, http);
    // Of one destination alone: weighted ones have their own.
    if let ([(destination, _)], Some(ClusterSpecifier::Cluster(_))) =
        (destinations, &action.cluster_specifier)
        && action.host_rewrite_specifier.is_none()
        && let Some(host) = filters::of_destination(destination)
            .as_deref()
            .and_then(filters::host)
    {
        action.host_rewrite_specifier = Some(HostRewriteSpecifier::HostRewriteLiteral(host));
    }
    Some(action)
}

/// A balancer of a cluster takes those that fit it; each once.
fn hash_policies(
    destinations: &[(&HttpRouteDestination, TargetCluster)],
) -> Vec<envoy_types::pb::envoy::config::route::v3::route_action::HashPolicy> {
    let mut policies = Vec::new();
    for hash in destinations.iter().filter_map(|(_, to)| to.hash.as_ref()) {
        if !policies.contains(hash) {
            policies.push(hash.clone());
        }
    }
    policies
}

fn cluster_weight(
    destination: &HttpRouteDestination,
    to: &TargetCluster,
    weight: u32,
) -> ClusterWeight {
    let mut one = ClusterWeight {
        name: to.cluster.to_string(),
        weight: wire::number(weight),
        ..ClusterWeight::default()
    };
    if let Some(headers) = filters::of_destination(destination) {
        let changes = filters::mutations(&headers);
        one.request_headers_to_add = changes.request.add;
        one.request_headers_to_remove = changes.request.remove;
        one.response_headers_to_add = changes.response.add;
        one.response_headers_to_remove = changes.response.remove;
        one.host_rewrite_specifier = filters::host(&headers).map(WeightHost::HostRewriteLiteral);
    }
    one
}

fn rewrite(action: &mut RouteAction, http: &HttpRoute) {
    let of_headers = filters::of_route(http).as_deref().and_then(filters::host);
    let written = http.rewrite.as_ref();
    let authority = written.map(|rewrite| rewrite.authority.clone());
    let host = authority.filter(|host| !host.is_empty()).or(of_headers);
    action.host_rewrite_specifier = host.map(HostRewriteSpecifier::HostRewriteLiteral);
    let Some(written) = written else {
        return;
    };
    match &written.uri_regex_rewrite {
        Some(regex) => {
            action.regex_rewrite = Some(RegexMatchAndSubstitute {
                pattern: Some(regex::matcher(&regex.r#match)),
                substitution: regex.rewrite.clone(),
            });
        }
        None => action.prefix_rewrite.clone_from(&written.uri),
    }
}

/// `None`: there are no retries.
pub(crate) fn retry_policy(retries: &HttpRetry) -> Option<RetryPolicy> {
    let attempts = u32::try_from(retries.attempts)
        .ok()
        .filter(|times| *times > 0)?;
    // Envoy refuses the routes for none at all, which the mesh may write.
    let base = retries.backoff.as_ref().map(time);
    let base = base.filter(|base| base.seconds > 0 || base.nanos > 0);
    let mut policy = RetryPolicy {
        num_retries: wire::number(attempts),
        per_try_timeout: retries.per_try_timeout.as_ref().map(time),
        retry_back_off: base.map(|base| route_retry::RetryBackOff {
            base_interval: Some(base),
            max_interval: None,
        }),
        ..retries::retries()
    };
    if !retries.retry_on.is_empty() {
        let (names, codes) = retry_conditions(&retries.retry_on);
        policy.retry_on = names.join(",");
        policy.retriable_status_codes = codes;
    }
    let is_false =
        |flag: Option<&api::google::protobuf::BoolValue>| flag.is_some_and(|flag| !flag.value);
    if is_false(retries.retry_ignore_previous_hosts.as_ref()) {
        policy.retry_host_predicate.clear();
        policy.host_selection_retry_max_attempts = 0;
    }
    if retries
        .retry_remote_localities
        .as_ref()
        .is_some_and(|flag| flag.value)
    {
        let config = PreviousPrioritiesConfig {
            // Istio's own value.
            update_frequency: 2,
        };
        policy.retry_priority = Some(route_retry::RetryPriority {
            name: "envoy.retry_priorities.previous_priorities".to_owned(),
            config_type: Some(route_retry::retry_priority::ConfigType::TypedConfig(
                wire::any(&config),
            )),
        });
    }
    Some(policy)
}

/// Names as they are, and numbers as codes of responses, which are a condition by a name of its own.
fn retry_conditions(text: &str) -> (Vec<&str>, Vec<u32>) {
    const BY_CODE: &str = "retriable-status-codes";
    let parts = text.split(',').map(str::trim);
    let (codes, mut names): (Vec<_>, Vec<_>) = parts
        .filter(|part| !part.is_empty())
        .partition(|part| part.parse::<u32>().is_ok());
    let codes: Vec<u32> = codes.iter().filter_map(|code| code.parse().ok()).collect();
    if !codes.is_empty() && !names.contains(&BY_CODE) {
        names.push(BY_CODE);
    }
    (names, codes)
}

/// Copies of requests: where they go, and which share of them.
pub(super) fn mirrored(
    http: &HttpRoute,
) -> impl Iterator<Item = (&Destination, Option<FractionalPercent>)> {
    let one = http.mirror.as_ref().map(|to| {
        let share = match (&http.mirror_percentage, http.mirror_percent) {
            (Some(share), _) => Some(millionths(share)),
            (None, Some(percent)) => Some(millionths(&Percent {
                value: percent.value.into(),
            })),
            (None, None) => None,
        };
        (to, share)
    });
    let more = http.mirrors.iter().filter_map(|mirror| {
        let share = mirror.percentage.as_ref().map(millionths);
        Some((mirror.destination.as_ref()?, share))
    });
    one.into_iter().chain(more)
}

pub(super) fn mirror(cluster: &str, share: Option<FractionalPercent>) -> RequestMirrorPolicy {
    RequestMirrorPolicy {
        cluster: cluster.to_owned(),
        runtime_fraction: share.map(|share| core::RuntimeFractionalPercent {
            default_value: Some(share),
            ..core::RuntimeFractionalPercent::default()
        }),
        ..RequestMirrorPolicy::default()
    }
}
