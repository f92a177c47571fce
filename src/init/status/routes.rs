//! Which request means what, and who may ask. Pure.

#![forbid(unsafe_code)]

use super::Settings;
use crate::http::Request;

/// With this header a request is passed on to a port of the application (pilot-agent 1.1.0's snapshots).
const PORT_HEADER: &str = "istio-app-probe-port";

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// `/healthz/live`
    Alive,
    /// Needs to know whether the proxy is ready.
    About(Topic),
    /// `/drain`
    Drain,
    /// `/quitquitquit`
    Quit,
    /// The prober of that index in `Settings::probers`.
    Probe(usize),
    /// To this port of the application.
    Forward(u16),
    /// Refused, and why.
    Refused(u16, &'static str),
}

/// What is told about the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// `/healthz/ready`
    Ready,
    /// `/status`
    Status,
    /// `/`
    Page,
    /// `/stats/prometheus`, `/metrics`
    Metrics,
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Loopback,
    Elsewhere,
}

/// What a request means.
#[must_use]
pub(super) fn route(request: &Request<'_>, peer: Peer, settings: &Settings) -> Route {
    if let Some(port) = request.header(PORT_HEADER) {
        return forward(port, request, settings);
    }
    let route = match request.path {
        "/healthz/live" => Route::Alive,
        "/healthz/ready" => Route::About(Topic::Ready),
        "/status" => Route::About(Topic::Status),
        "/" => Route::About(Topic::Page),
        "/stats/prometheus" | "/metrics" => Route::About(Topic::Metrics),
        "/drain" => return order(request, peer, Route::Drain),
        "/quitquitquit" => return order(request, peer, Route::Quit),
        path => {
            let known = settings
                .probers
                .iter()
                .position(|prober| prober.path == path);
            match known {
                Some(index) => Route::Probe(index),
                None => return Route::Refused(404, "not found"),
            }
        }
    };
    if matches!(request.method, "GET" | "HEAD") {
        route
    } else {
        Route::Refused(405, "only GET and HEAD are allowed")
    }
}

/// The application's ports are nobody's business but the application's, unless they were named.
fn forward(port: &[u8], request: &Request<'_>, settings: &Settings) -> Route {
    let port = std::str::from_utf8(port)
        .ok()
        .and_then(|text| text.trim().parse().ok());
    match port {
        None => Route::Refused(400, "istio-app-probe-port is not a port"),
        Some(port) if !settings.application_ports.contains(&port) => Route::Refused(
            403,
            "istio-app-probe-port is not one of --application-ports",
        ),
        Some(_) if request.body => Route::Refused(413, "a probe has no body"),
        Some(_) if !matches!(request.method, "GET" | "HEAD") => {
            Route::Refused(405, "only GET and HEAD are allowed")
        }
        Some(port) => Route::Forward(port),
    }
}

/// Orders are taken from the pod only. A browser that is led to them by a page elsewhere sends no POST from loopback in
/// any pod, but it may on a desk: what comes from a web page says so.
fn order(request: &Request<'_>, peer: Peer, route: Route) -> Route {
    if peer != Peer::Loopback || request.header("origin").is_some() {
        Route::Refused(403, "only requests from localhost are allowed")
    } else if request.method == "POST" {
        route
    } else {
        Route::Refused(405, "only POST is allowed")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::wildcard_enum_match_arm, reason = "a test names what it wants")]

    use super::*;
    use crate::http::Parsed;

    fn routed(head: &str, peer: Peer) -> Route {
        let settings = Settings {
            application_ports: vec![8080],
            ..super::super::tests::settings()
        };
        let head = [head, "\r\n\r\n"].concat();
        match Request::parse(head.as_bytes()) {
            Parsed::Request(request) => route(&request, peer, &settings),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn paths_methods_and_peers() {
        let refused =
            |status| move |route: Route| matches!(route, Route::Refused(s, _) if s == status);
        let is = |expected| move |route: Route| route == expected;
        let ready = Route::About(Topic::Ready);
        for (head, local, elsewhere) in [
            ("GET /healthz/ready HTTP/1.1", Ok(ready), Ok(ready)),
            ("HEAD /healthz/ready?x=y HTTP/1.0", Ok(ready), Ok(ready)),
            (
                "GET /healthz/live HTTP/1.1",
                Ok(Route::Alive),
                Ok(Route::Alive),
            ),
            ("POST /healthz/live HTTP/1.1", Err(405), Err(405)),
            (
                "GET / HTTP/1.1",
                Ok(Route::About(Topic::Page)),
                Ok(Route::About(Topic::Page)),
            ),
            ("GET /healthz HTTP/1.1", Err(404), Err(404)),
            ("GET /healthz/ready/ HTTP/1.1", Err(404), Err(404)),
            ("POST /drain HTTP/1.1", Ok(Route::Drain), Err(403)),
            ("POST /quitquitquit HTTP/1.1", Ok(Route::Quit), Err(403)),
            (
                "POST /quitquitquit HTTP/1.1\r\nOrigin: http://evil.example",
                Err(403),
                Err(403),
            ),
            ("GET /quitquitquit HTTP/1.1", Err(405), Err(403)),
            (
                "GET /app-health/app/readyz HTTP/1.1",
                Ok(Route::Probe(0)),
                Ok(Route::Probe(0)),
            ),
            ("GET /app-health/app/livez HTTP/1.1", Err(404), Err(404)),
            (
                "GET /x HTTP/1.1\r\nIstio-App-Probe-Port: 8080",
                Ok(Route::Forward(8080)),
                Ok(Route::Forward(8080)),
            ),
            (
                "GET /x HTTP/1.1\r\nistio-app-probe-port: 22",
                Err(403),
                Err(403),
            ),
            (
                "GET /x HTTP/1.1\r\nistio-app-probe-port: ssh",
                Err(400),
                Err(400),
            ),
            (
                "POST /x HTTP/1.1\r\nistio-app-probe-port: 8080\r\nContent-Length: 3",
                Err(413),
                Err(413),
            ),
            (
                "POST /x HTTP/1.1\r\nistio-app-probe-port: 8080",
                Err(405),
                Err(405),
            ),
        ] {
            for (peer, expected) in [(Peer::Loopback, local), (Peer::Elsewhere, elsewhere)] {
                let found = routed(head, peer);
                let good = match expected {
                    Ok(route) => is(route)(found),
                    Err(status) => refused(status)(found),
                };
                assert!(good, "{head} from {peer:?}: {found:?}");
            }
        }
    }
}
