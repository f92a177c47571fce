//! Properties of the admin port's answers, for fuzzing and for tests: the places where they are cut make no difference to their
//! meaning.

#![forbid(unsafe_code)]

use super::call::{Endpoint, Knowledge};
use super::ready::{Gathered, ListenerScan, take};
use super::ready::{LINE_BYTES, Ports};
use crate::config::DrainCall;
use crate::http::properties::answer;
use crate::supervisor::Epoch;

/// One endpoint of every kind.
const ENDPOINTS: [Endpoint; 9] = [
    Endpoint::LiveStats,
    Endpoint::ServerInfo,
    Endpoint::FailHealthcheck,
    Endpoint::Drain,
    Endpoint::DrainOlder,
    Endpoint::DrainPlain,
    Endpoint::Connections,
    Endpoint::ReadyStats,
    Endpoint::Listeners,
];

/// Feeds an answer to all requests.
pub(crate) fn reply(pieces: &[&[u8]]) {
    let whole = pieces.concat();
    assert_eq!(meaning(pieces), meaning(&[&whole]));
    assert_eq!(missing(pieces), missing(&[&whole]));
}

fn meaning(pieces: &[&[u8]]) -> String {
    let (done, response) = answer(pieces, Endpoint::LiveStats.limit());
    if done.is_none() {
        return String::new();
    }
    let mut said = String::new();
    for hot_restart in [false, true] {
        let knowledge = Knowledge {
            hot_restart,
            skip_generation: !hot_restart,
            drain: DrainCall {
                inbound_only: false,
                fail_healthcheck: false,
            },
            prometheus_port: 15090,
        };
        for endpoint in ENDPOINTS {
            let step = endpoint.judge(Epoch(0), &response, &knowledge);
            let mut gathered = Gathered::default();
            let next = take(&mut gathered, endpoint, Epoch(0), &response, &knowledge);
            said += &format!("{step:?} {next:?} {gathered:?}\n");
        }
    }
    said
}

/// `/listeners`, as a body.
fn missing(pieces: &[&[u8]]) -> Option<u16> {
    let mut scan = ListenerScan::new(&Ports {
        wanted: vec![8080, 9090],
        all: true,
    });
    for piece in pieces {
        scan.feed(piece);
        assert!(scan.held() <= LINE_BYTES);
    }
    scan.missing()
}
