//! The meaning of a request, once its head is there: all that is needed of it, without the bytes that it stood in. Pure.

#![forbid(unsafe_code)]

use std::time::Duration;

use super::limits::PAUSE;
use super::routes::{Peer, Route, Topic, route};
use crate::config::ProbeAction;
use crate::http::{Parsed, Request};
use crate::status::Settings;
use crate::status::probes::Check;
use crate::status::response::Framing;
use crate::status::target::RequestTarget;

/// With this header Prometheus says when it will have lost its patience.
const SCRAPE_TIMEOUT: &str = "x-prometheus-scrape-timeout-seconds";
/// A scrape's time where that is less than a second, of which fractions are not read.
const MIN_SCRAPE: Duration = Duration::from_millis(450);
/// A scrape's time where none is given: pauses have their limit, and bytes.
const FOR_EVER: Duration = Duration::from_hours(24);

/// The meaning of a head, without the bytes that it stood in.
pub(crate) struct ParsedRequest {
    pub(crate) route: Route,
    pub(crate) framing: Framing,
    pub(crate) unread: bool,
    pub(crate) probe: Option<Probe>,
    pub(crate) query: Option<Box<str>>,
    /// For all sources of metrics together.
    pub(crate) patience: Duration,
    /// A probe that says it is kubelet's.
    pub(crate) kubelet: bool,
}

/// The request to an application.
pub(crate) struct Probe {
    pub(crate) check: Check,
    pub(crate) timeout: Duration,
    pub(crate) follow: bool,
}

/// `None`: the head goes on.
pub(crate) fn parse(bytes: &[u8], peer: Peer, settings: &Settings) -> Option<ParsedRequest> {
    let refuse = |status, why| ParsedRequest {
        route: Route::Refused(status, why),
        framing: Framing {
            head_only: false,
            chunks: false,
        },
        unread: true,
        probe: None,
        query: None,
        patience: FOR_EVER,
        kubelet: false,
    };
    match Request::parse(bytes) {
        Parsed::Incomplete => None,
        Parsed::TooLarge => Some(refuse(431, "the request's head is too large")),
        Parsed::Malformed => Some(refuse(400, "not an HTTP request")),
        Parsed::Request(request) => {
            let route = route(&request, peer, settings);
            let about_metrics = route == Route::About(Topic::Metrics);
            Some(ParsedRequest {
                route,
                framing: Framing {
                    head_only: request.method == "HEAD",
                    chunks: request.chunks,
                },
                unread: request.more || request.body,
                probe: probe(route, &request, settings),
                query: request.query.filter(|_| about_metrics).map(Box::from),
                patience: patience(&request),
                kubelet: is_probe(route) && is_kubelet(&request),
            })
        }
    }
}

const fn is_probe(route: Route) -> bool {
    matches!(
        route,
        Route::Alive | Route::About(Topic::Ready) | Route::Probe(_)
    )
}

fn is_kubelet(request: &Request<'_>) -> bool {
    let agent = request.header("user-agent");
    agent.is_some_and(|agent| agent.starts_with(b"kube-probe/"))
}

/// All but a tenth of the time that Prometheus has: the answer is to arrive in it.
fn patience(request: &Request<'_>) -> Duration {
    let given = request
        .header(SCRAPE_TIMEOUT)
        .and_then(|value| std::str::from_utf8(value).ok())
        .and_then(|text| text.split('.').next()?.parse().ok());
    given.map_or(FOR_EVER, |seconds: u32| {
        (Duration::from_millis(900) * seconds).max(MIN_SCRAPE)
    })
}

fn probe(route: Route, request: &Request<'_>, settings: &Settings) -> Option<Probe> {
    match route {
        Route::Forward(port) => {
            let path = match request.query {
                Some(query) => [request.path, "?", query].concat(),
                None => request.path.to_owned(),
            };
            Some(Probe {
                check: Check::Http(RequestTarget::new(
                    request,
                    (port, settings.own),
                    &path,
                    &[],
                )),
                timeout: PAUSE,
                follow: false,
            })
        }
        Route::Probe(index) => {
            let prober = settings.probers.get(index)?;
            let check = match &prober.action {
                ProbeAction::Http(http) => {
                    let port = (http.port, settings.own);
                    let mut target = RequestTarget::new(request, port, &http.path, &http.headers);
                    target.https = http.https;
                    Check::Http(target)
                }
                ProbeAction::Tcp { port } => Check::Tcp { port: *port },
                ProbeAction::Grpc { port, service } => Check::Grpc {
                    port: *port,
                    service: service.clone(),
                },
            };
            Some(Probe {
                check,
                timeout: prober.timeout,
                follow: true,
            })
        }
        Route::Alive | Route::About(_) | Route::Drain | Route::Quit | Route::Refused(..) => None,
    }
}
