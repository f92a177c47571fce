//! Filters for requests on their way: headers, faults, CORS.

use std::borrow::Cow;
use std::collections::BTreeMap;

use api::config::discovery_notes::{MAX_HEADERS, grpc_status, is_header_name, is_header_value};
use api::istio::networking::v1alpha3::headers::HeaderOperations;
use api::istio::networking::v1alpha3::http_fault_injection::{
    Abort, Delay, abort::ErrorType, delay::HttpDelayType,
};
use api::istio::networking::v1alpha3::{
    CorsPolicy as Written, Headers, HttpFaultInjection, HttpRoute, HttpRouteDestination, Percent,
    cors_policy,
};
use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use envoy_types::pb::envoy::config::core::v3::{
    HeaderValue, HeaderValueOption, RuntimeFractionalPercent,
};
use envoy_types::pb::envoy::config::route::v3::Route;
use envoy_types::pb::envoy::extensions::filters::common::fault::v3::{FaultDelay, fault_delay};
use envoy_types::pb::envoy::extensions::filters::http::cors::v3::CorsPolicy;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::{
    FaultAbort, HttpFault, fault_abort,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher};

use super::matching;
use super::percent::millionths;
use crate::common::regex;
use crate::common::wire;
use crate::rules::destination_rule::time;

/// Changes of the headers of one message.
#[derive(Debug, Default)]
pub(super) struct HeaderMutations {
    pub(super) add: Vec<HeaderValueOption>,
    pub(super) remove: Vec<String>,
}

/// Changes of the headers of a request and of its response.
#[derive(Debug, Default)]
pub(super) struct RouteHeaderMutations {
    pub(super) request: HeaderMutations,
    pub(super) response: HeaderMutations,
}

/// Changes as Istio 1.1 and older wrote them, in fields of their own.
struct OldHeaders<'a> {
    append: [&'a BTreeMap<String, String>; 2],
    remove: &'a [String],
}

impl OldHeaders<'_> {
    fn add_to(&self, message: &mut Option<HeaderOperations>) {
        if self.remove.is_empty() && self.append.iter().all(|map| map.is_empty()) {
            return;
        }
        let operations = message.get_or_insert_default();
        for (name, value) in self.append.iter().copied().flatten() {
            // The newer field counts.
            operations
                .add
                .entry(name.clone())
                .or_insert_with(|| value.clone());
        }
        operations.remove.extend_from_slice(self.remove);
    }
}

fn with_old<'a>(
    headers: Option<&'a Headers>,
    request: &OldHeaders<'_>,
    response: &OldHeaders<'_>,
) -> Option<Cow<'a, Headers>> {
    let mut all = headers.cloned().unwrap_or_default();
    request.add_to(&mut all.request);
    response.add_to(&mut all.response);
    match headers {
        Some(headers) if *headers == all => Some(Cow::Borrowed(headers)),
        None if all == Headers::default() => None,
        _ => Some(Cow::Owned(all)),
    }
}

/// The changes of all requests of a route and of their responses.
pub(super) fn of_route(http: &HttpRoute) -> Option<Cow<'_, Headers>> {
    with_old(
        http.headers.as_ref(),
        &OldHeaders {
            append: [&http.append_request_headers, &http.append_headers],
            remove: &http.remove_request_headers,
        },
        &OldHeaders {
            append: [&http.append_response_headers, &BTreeMap::new()],
            remove: &http.remove_response_headers,
        },
    )
}

/// The changes of those that go to one destination.
pub(super) fn of_destination(to: &HttpRouteDestination) -> Option<Cow<'_, Headers>> {
    let none = BTreeMap::new();
    with_old(
        to.headers.as_ref(),
        &OldHeaders {
            append: [&to.append_request_headers, &none],
            remove: &to.remove_request_headers,
        },
        &OldHeaders {
            append: [&to.append_response_headers, &none],
            remove: &to.remove_response_headers,
        },
    )
}

pub(super) fn mutations(headers: &Headers) -> RouteHeaderMutations {
    let of = |operations: Option<&HeaderOperations>| {
        operations.map_or_else(HeaderMutations::default, |operations| HeaderMutations {
            add: options(&operations.set, HeaderAppendAction::OverwriteIfExistsOrAdd)
                .chain(options(
                    &operations.add,
                    HeaderAppendAction::AppendIfExistsOrAdd,
                ))
                .take(MAX_HEADERS)
                .collect(),
            remove: operations
                .remove
                .iter()
                .filter(|name| !is_host(name) && is_header_name(name))
                .take(MAX_HEADERS)
                .cloned()
                .collect(),
        })
    };
    RouteHeaderMutations {
        request: of(headers.request.as_ref()),
        response: of(headers.response.as_ref()),
    }
}

/// Envoy refuses the names of others, and values with operators that it does not know.
fn is_accepted(name: &str, value: &str) -> bool {
    !is_host(name) && is_header_name(name) && is_header_value(value)
}

fn options(
    headers_by_name: &BTreeMap<String, String>,
    how: HeaderAppendAction,
) -> impl Iterator<Item = HeaderValueOption> {
    let headers = headers_by_name
        .iter()
        .filter(|(name, value)| is_accepted(name, value));
    headers.map(move |(name, value)| HeaderValueOption {
        header: Some(HeaderValue {
            key: name.clone(),
            value: value.clone(),
            ..HeaderValue::default()
        }),
        append_action: how.into(),
        ..HeaderValueOption::default()
    })
}

/// Envoy changes it by a field of its own, and refuses whoever does it by its name.
fn is_host(name: &str) -> bool {
    name.starts_with(':') || name.eq_ignore_ascii_case("host")
}

/// The host that requests are to have.
pub(super) fn host(headers: &Headers) -> Option<String> {
    let request = headers.request.as_ref()?;
    let mut hosts = request
        .set
        .iter()
        .chain(&request.add)
        .filter(|(name, _)| name.as_str() == ":authority" || name.eq_ignore_ascii_case("host"));
    hosts.next().map(|(_, host)| host.clone())
}

pub(super) fn headers(route: &mut Route, headers: &Headers) {
    let RouteHeaderMutations { request, response } = mutations(headers);
    route.request_headers_to_add.extend(request.add);
    // The route's and the destination's together: Envoy refuses the routes for more.
    route.request_headers_to_add.truncate(MAX_HEADERS);
    route.request_headers_to_remove.extend(request.remove);
    route.request_headers_to_remove.truncate(MAX_HEADERS);
    route.response_headers_to_add.extend(response.add);
    route.response_headers_to_add.truncate(MAX_HEADERS);
    route.response_headers_to_remove.extend(response.remove);
    route.response_headers_to_remove.truncate(MAX_HEADERS);
}

/// Configures the connection manager's filters for this route. A program with gRPC in it has none, and refuses their
/// configuration.
pub(super) fn add(route: &mut Route, http: &HttpRoute, grpc: bool) {
    if grpc {
        return;
    }
    let filters = &mut route.typed_per_filter_config;
    if let Some(cors) = &http.cors_policy {
        let config = wire::any(&self::cors(cors));
        filters.insert("envoy.filters.http.cors".to_owned(), config);
    }
    if let Some(fault) = http.fault.as_ref().and_then(fault) {
        let config = wire::any(&fault);
        filters.insert("envoy.filters.http.fault".to_owned(), config);
    }
}

fn fault(written: &HttpFaultInjection) -> Option<HttpFault> {
    let fault = HttpFault {
        delay: written.delay.as_ref().and_then(delay),
        abort: written.abort.as_ref().and_then(abort),
        ..HttpFault::default()
    };
    (fault.delay.is_some() || fault.abort.is_some()).then_some(fault)
}

/// Whole percent, as Istio 1.0 had it, where nothing else is said.
fn share(percentage: Option<&Percent>, percent: i32) -> Percent {
    let whole = || Percent {
        value: percent.into(),
    };
    percentage.cloned().unwrap_or_else(whole)
}

fn delay(delay: &Delay) -> Option<FaultDelay> {
    let Some(HttpDelayType::FixedDelay(fixed)) = &delay.http_delay_type else {
        return None;
    };
    let share = share(delay.percentage.as_ref(), delay.percent);
    Some(FaultDelay {
        percentage: Some(millionths(&share)),
        fault_delay_secifier: Some(fault_delay::FaultDelaySecifier::FixedDelay(time(fixed))),
    })
}

fn abort(abort: &Abort) -> Option<FaultAbort> {
    let error = match abort.error_type.as_ref()? {
        ErrorType::HttpStatus(status) => {
            fault_abort::ErrorType::HttpStatus(u32::try_from(*status).ok()?)
        }
        ErrorType::GrpcStatus(name) => fault_abort::ErrorType::GrpcStatus(grpc_status(name)?),
        // Envoy's fault filter knows no such abort.
        ErrorType::Http2Error(_) => return None,
    };
    let share = share(abort.percentage.as_ref(), abort.percent);
    Some(FaultAbort {
        percentage: Some(millionths(&share)),
        error_type: Some(error),
        ..FaultAbort::default()
    })
}

fn cors(policy: &Written) -> CorsPolicy {
    let exactly = |origin: &String| StringMatcher {
        match_pattern: Some(string_matcher::MatchPattern::Exact(origin.clone())),
        ..StringMatcher::default()
    };
    let any = || StringMatcher {
        match_pattern: Some(string_matcher::MatchPattern::SafeRegex(regex::matcher(
            ".*",
        ))),
        ..StringMatcher::default()
    };
    let origins = if policy.allow_origins.is_empty() {
        policy.allow_origin.iter().map(exactly).collect()
    } else {
        let origins = policy.allow_origins.iter();
        let origins = origins.filter(|origin| matching::has_fitting_regex(origin));
        origins
            .map(|origin| matching::text(origin).unwrap_or_else(any))
            .collect()
    };
    CorsPolicy {
        allow_origin_string_match: origins,
        allow_methods: policy.allow_methods.join(","),
        allow_headers: policy.allow_headers.join(","),
        expose_headers: policy.expose_headers.join(","),
        max_age: policy
            .max_age
            .as_ref()
            .map_or_else(String::new, |age| age.seconds.to_string()),
        allow_credentials: policy
            .allow_credentials
            .as_ref()
            .and_then(|allow| wire::boolean(allow.value)),
        filter_enabled: Some(RuntimeFractionalPercent {
            default_value: Some(millionths(&Percent { value: 100.0 })),
            ..RuntimeFractionalPercent::default()
        }),
        forward_not_matching_preflights: match policy.unmatched_preflights() {
            cors_policy::UnmatchedPreflights::Unspecified => None,
            cors_policy::UnmatchedPreflights::Forward => wire::boolean(true),
            cors_policy::UnmatchedPreflights::Ignore => wire::boolean(false),
        },
        ..CorsPolicy::default()
    }
}
