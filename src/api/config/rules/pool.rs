//! Connection pools, as DestinationRule and Sidecar have them.

use super::cursor::Cursor;
use super::{parts, predicates as is};

pub(super) fn check(at: &Cursor<'_>) {
    if at.lacks(&["tcp", "http"]) {
        at.fail("needs tcp or http");
    }
    let (tcp, http) = (at.get("tcp"), at.get("http"));
    counts(&tcp, &["maxConnections"]);
    parts::duration(&tcp.get("connectTimeout"));
    parts::duration(&tcp.get("maxConnectionDuration"));
    let idle = tcp.get("idleTimeout");
    parts::duration_or_none(&idle);
    parts::duration_bound(&idle);
    parts::duration(&tcp.to(["tcpKeepalive", "time"]));
    parts::duration(&tcp.to(["tcpKeepalive", "interval"]));
    counts(
        &http,
        &[
            "http1MaxPendingRequests",
            "http2MaxRequests",
            "maxRequestsPerConnection",
            "maxRetries",
            "maxConcurrentStreams",
        ],
    );
    parts::duration(&http.get("idleTimeout"));
    let pings = http.get("http2KeepAlive");
    if pings.is_set() {
        for name in ["interval", "timeout"] {
            let duration = pings.get(name);
            if duration.required() {
                parts::duration(&duration);
            }
        }
    }
    if http.get("useClientProtocol").flag() && http.get("h2UpgradePolicy").text() == "UPGRADE" {
        http.fail("useClientProtocol and h2UpgradePolicy UPGRADE exclude each other");
    }
}

fn counts(at: &Cursor<'_>, names: &[&'static str]) {
    for name in names {
        let count = at.get(name);
        count.check(is::not_negative(count.number()));
    }
}
