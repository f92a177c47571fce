//! Properties of all that arrives at the status port and of all that it passes on, for fuzzing and for tests.

#![forbid(unsafe_code)]

use super::Settings;
use super::metrics::scrape::{LINE_BYTES, Lines};
use super::probes::Check;
use super::server::request::{ParsedRequest, parse};
use super::server::routes::{Peer, Route};
use super::target::{Redirect, RequestTarget};
use crate::config::{Metrics, ProbeAction, Prober, ScrapeTarget};
use crate::http::{Parsed, Request};

fn settings() -> Settings {
    let timeout = std::time::Duration::from_secs(1);
    Settings {
        application_ports: vec![8080],
        probers: vec![Prober {
            path: "/app-health/app/readyz".to_owned(),
            action: ProbeAction::Tcp { port: 8080 },
            timeout,
        }],
        scrape: vec![ScrapeTarget {
            port: 9090,
            path: "/metrics".to_owned(),
        }],
        metrics: Metrics::default(),
        admin: ([127, 0, 0, 1], 15000).into(),
        node: None,
        pod: None,
        own: [15000, 14090, 14020],
    }
}

/// Checks the meaning of a request to the status port, and the part of it that is passed on.
pub(crate) fn request(pieces: &[&[u8]]) {
    crate::http::properties::request(pieces);
    let whole = pieces.concat();
    let settings = settings();
    for peer in [Peer::Loopback, Peer::Elsewhere] {
        let request = parse(&whole, peer, &settings);
        let parsed = Request::parse(&whole);
        assert_eq!(request.is_none(), matches!(parsed, Parsed::Incomplete));
        let Some(request) = request else {
            return;
        };
        judge(&request, peer);
        if !matches!(parsed, Parsed::Request(_)) {
            assert!(matches!(request.route, Route::Refused(400 | 431, _)));
        }
    }
}

fn judge(request: &ParsedRequest, peer: Peer) {
    let order = matches!(request.route, Route::Drain | Route::Quit);
    assert!(peer == Peer::Loopback || !order);
    let asks = matches!(request.route, Route::Forward(_) | Route::Probe(_));
    assert_eq!(asks, request.probe.is_some());
    if let Some(Check::Http(target)) = request.probe.as_ref().map(|probe| &probe.check) {
        assert_eq!(target.port, 8080);
        assert_one_request(target);
    }
}

/// Asserts that an application is sent one head and nothing after it, whatever it was made of.
fn assert_one_request(target: &RequestTarget) {
    let bytes = target.bytes();
    let ends = bytes
        .windows(4)
        .filter(|bytes| bytes == b"\r\n\r\n")
        .count();
    assert!(ends == 1 && bytes.ends_with(b"\r\n\r\n"), "{bytes:?}");
    let breaks = bytes.iter().filter(|byte| b"\r\n".contains(byte)).count();
    let pairs = bytes.windows(2).filter(|bytes| bytes == b"\r\n").count();
    assert_eq!(breaks, 2 * pairs, "{bytes:?}");
    assert!(!bytes.contains(&0), "{bytes:?}");
    let line = bytes
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    assert_eq!(
        line.iter().filter(|byte| **byte == b' ').count(),
        2,
        "{line:?}"
    );
}

/// A redirect's location, once and again.
pub(crate) fn redirect(location: &[u8]) {
    let head = b"GET /x HTTP/1.1\r\nHost: 10.0.0.7:15020\r\nA: b\r\n\r\n";
    let Parsed::Request(request) = Request::parse(head) else {
        return;
    };
    let location = String::from_utf8_lossy(location);
    let own = settings().own;
    let mut target = RequestTarget::new(&request, (8080, own), "/ready?full", &[]);
    let longest = target.path.len().saturating_add(location.len());
    for _ in 0..12 {
        target = match target.redirect(&location) {
            Redirect::Follow(next) => next,
            Redirect::Elsewhere | Redirect::TooMany | Redirect::Malformed => return,
        };
        assert!(target.path.starts_with('/'));
        assert!(!own.contains(&target.port));
        assert_one_request(&target);
        assert!(target.path.len() <= longest.saturating_mul(12));
    }
    assert!(location.is_empty(), "redirects without an end");
}

/// Another source's metrics.
pub(crate) fn metrics(pieces: &[&[u8]]) {
    let whole = pieces.concat();
    let (text, dropped) = passed(pieces);
    assert_eq!(
        (&text, dropped),
        (&passed(&[&whole]).0, passed(&[&whole]).1)
    );
    // What has passed once passes again as it is.
    assert_eq!(passed(&[&text]), (text.clone(), 0));
}

fn passed(pieces: &[&[u8]]) -> (Vec<u8>, u64) {
    let (mut lines, mut out) = (Lines::default(), Vec::new());
    for piece in pieces {
        let before = out.len();
        lines.feed(piece, &mut out);
        let grown = out.len().saturating_sub(before);
        assert!(grown <= piece.len().saturating_add(LINE_BYTES));
        assert!(lines.held() <= LINE_BYTES);
    }
    lines.finish(&mut out);
    assert!(out.is_empty() || out.ends_with(b"\n"));
    assert!(std::str::from_utf8(&out).is_ok());
    (out, lines.dropped())
}
