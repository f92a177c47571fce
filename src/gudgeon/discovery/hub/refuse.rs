//! Streams that are refused: counted, logged within bounds, and kept for the page.

use tracing::warn;
use xds::node::clipped;

use super::Hub;
use crate::discovery::refused_streams::{RefusalReason, RefusedStream};
use crate::grpc::Address;

impl Hub {
    /// Counts and logs a stream of this peer that is refused for this cause.
    pub(in crate::discovery) fn refuse(&self, peer: &Address, reason: RefusalReason, cause: &str) {
        self.metrics.stream_refused(reason);
        if let Some(more) = self.log_rate_limiters.refused.suffix_if_allowed() {
            warn!("refused a stream of {peer}: {cause:.1000}{more}");
        }
        self.refused.add(RefusedStream {
            at: self.clock.now(),
            peer: peer.clone(),
            reason,
            message: clipped(cause).to_owned(),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::discovery::refused_streams::REMEMBERED;
    use crate::discovery::testing::hub;

    #[test]
    fn the_last_ones_are_kept_and_cut() {
        let hub = hub();
        let peer = Address::Ip((Ipv4Addr::LOCALHOST, 1).into());
        for number in 0..100 {
            let message = format!("{number}{}", "é".repeat(1000));
            hub.refuse(&peer, RefusalReason::Node, &message);
        }
        let refusals = hub.refused.newest();
        assert_eq!(refusals.len(), REMEMBERED);
        assert!(refusals[0].message.starts_with("99é") && refusals[0].message.len() <= 256);
    }
}
