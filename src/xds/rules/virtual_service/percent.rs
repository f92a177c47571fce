//! Shares of requests.

use api::istio::networking::v1alpha3::Percent;
use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, fractional_percent};

/// Percent, of which four places behind the point count.
pub(super) fn millionths(percent: &Percent) -> FractionalPercent {
    let parts = (percent.value.clamp(0.0, 100.0) * 10_000.0).round();
    FractionalPercent {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to a million, or not a number, which becomes 0"
        )]
        numerator: parts as u32,
        denominator: fractional_percent::DenominatorType::Million.into(),
    }
}
