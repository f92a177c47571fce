//! TCP keepalive, by which a peer that is gone is noticed.

use std::time::Duration;

use api::istio::networking::v1alpha3::connection_pool_settings::tcp_settings::TcpKeepalive as Given;
use envoy_types::pb::envoy::config::core::v3::TcpKeepalive;

use super::wire;

pub(crate) fn keepalive(given: &Given) -> TcpKeepalive {
    let seconds = |given: Option<&api::mesh::Duration>| {
        let seconds = u32::try_from(duration(given?)?.as_secs()).ok()?;
        wire::number(seconds)
    };
    TcpKeepalive {
        // In proto3 a number that is not set is 0; it means the operating system's own count.
        keepalive_probes: wire::number(given.probes).filter(|probes| probes.value > 0),
        keepalive_time: seconds(given.time.as_ref()),
        keepalive_interval: seconds(given.interval.as_ref()),
    }
}

/// Converts a duration that was checked when it was read.
pub(crate) fn duration(duration: &api::mesh::Duration) -> Option<Duration> {
    let seconds = u64::try_from(duration.seconds).ok()?;
    Some(Duration::new(seconds, u32::try_from(duration.nanos).ok()?))
}
