//! The default retry policy of requests.

use envoy_types::pb::envoy::config::route::v3::{RetryPolicy, retry_policy};
use envoy_types::pb::envoy::extensions::retry::host::previous_hosts::v3::PreviousHostsPredicate;

use super::wire;

const RETRY_ON: &str = "connect-failure,refused-stream,unavailable,cancelled,resource-exhausted,retriable-status-codes";

/// The policy of requests for which no rule has another.
pub(crate) fn retries() -> RetryPolicy {
    RetryPolicy {
        retry_on: RETRY_ON.to_owned(),
        num_retries: wire::number(2),
        retriable_status_codes: vec![503],
        retry_host_predicate: vec![retry_policy::RetryHostPredicate {
            name: "envoy.retry_host_predicates.previous_hosts".to_owned(),
            config_type: Some(retry_policy::retry_host_predicate::ConfigType::TypedConfig(
                wire::any(&PreviousHostsPredicate {}),
            )),
        }],
        host_selection_retry_max_attempts: 5,
        ..RetryPolicy::default()
    }
}
