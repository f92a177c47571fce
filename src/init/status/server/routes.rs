//! The meaning of each request, and the peers that may send it. Pure.

#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr};

use crate::http::Request;
use crate::status::Settings;
use crate::values::name_and_port;

/// With this header a request is passed on to a port of the application (pilot-agent 1.1.0's snapshots).
const PORT_HEADER: &str = "istio-app-probe-port";
/// From here (and from `::6`, which is no loopback address) Envoy passes on what came to the pod from outside.
const PASS_THROUGH: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);
pub(crate) const ONLY_POST: &str = "only POST is allowed";

const LOCAL_ONLY: &str = "only requests from localhost are allowed";

/// The way to serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
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

/// A subject of answers about the agent.
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

/// The origin of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Loopback,
    Elsewhere,
}

impl Peer {
    #[must_use]
    pub(crate) fn at(address: IpAddr) -> Self {
        if address.is_loopback() && address != PASS_THROUGH {
            Self::Loopback
        } else {
            Self::Elsewhere
        }
    }
}

/// Returns the meaning of a request.
#[must_use]
pub(crate) fn route(request: &Request<'_>, peer: Peer, settings: &Settings) -> Route {
    if let Some(port) = request.header(PORT_HEADER) {
        return forward(port, request, settings);
    }
    let route = match request.path {
        "/healthz/live" => Route::Alive,
        "/healthz/ready" => Route::About(Topic::Ready),
        "/status" => Route::About(Topic::Status),
        "/" => Route::About(Topic::Page),
        "/stats/prometheus" | "/metrics"
            if settings.metrics.local_only && peer != Peer::Loopback =>
        {
            return Route::Refused(403, LOCAL_ONLY);
        }
        "/stats/prometheus" | "/metrics" => Route::About(Topic::Metrics),
        "/drain" => return local_post(request, peer, Route::Drain),
        "/quitquitquit" => return local_post(request, peer, Route::Quit),
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

/// `istio-app-probe-port`: only ports that `--application-ports` names are reachable this way.
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
        Some(_) if !matches!(request.method, "GET" | "HEAD") => Route::Refused(
            405,
            "istio-app-probe-port passes on GET and HEAD only, as kubelet probes",
        ),
        Some(_) if request.body => Route::Refused(
            413,
            "istio-app-probe-port passes on no body: a probe has none",
        ),
        Some(port) => Route::Forward(port),
    }
}

/// Orders are taken from the pod only. A browser there may be led to them by a page elsewhere: what comes from it says so
/// in `Origin`, and in `Host` where the page's own name was made to mean loopback.
fn local_post(request: &Request<'_>, peer: Peer, route: Route) -> Route {
    if peer != Peer::Loopback {
        return Route::Refused(403, LOCAL_ONLY);
    }
    if request.method != "POST" {
        return Route::Refused(405, ONLY_POST);
    }
    let foreign = |(name, value): (&str, &[u8])| {
        let value = std::str::from_utf8(value).unwrap_or_default().trim();
        if name.eq_ignore_ascii_case("host") {
            !is_local(value)
        } else {
            let page = crate::search::split_once(value, "://").map(|(_, authority)| authority);
            name.eq_ignore_ascii_case("origin") && !page.is_some_and(is_local)
        }
    };
    let elsewhere = request.authority.is_some_and(|named| !is_local(named));
    if elsewhere || request.headers().any(foreign) {
        return Route::Refused(403, "only a Host and an Origin of localhost are allowed");
    }
    route
}

/// Whether `host[:port]` can only mean this host.
fn is_local(authority: &str) -> bool {
    let (name, port) = name_and_port(authority);
    let address = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let local = match address.unwrap_or(name).parse() {
        Ok(address) => Peer::at(address) == Peer::Loopback,
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    };
    local && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::wildcard_enum_match_arm, reason = "a test names what it wants")]

    use super::*;
    use crate::config::Metrics;
    use crate::http::Parsed;

    /// Envoy's inbound pass-through connects from 127.0.0.6 and from ::6.
    #[test]
    fn addresses_of_the_pod() {
        for (address, local) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("127.0.0.6", false),
            ("::6", false),
            ("10.0.0.7", false),
            ("fe80::1", false),
        ] {
            let peer = Peer::at(address.parse().unwrap());
            assert_eq!(peer == Peer::Loopback, local, "{address}");
        }
    }

    #[test]
    fn an_order_names_no_host_but_this_one() {
        for (lines, allowed) in [
            ("POST /drain HTTP/1.0", true),
            ("POST /drain HTTP/1.1\r\nHost: localhost", true),
            ("POST /drain HTTP/1.1\r\nHost: LOCALHOST:15020", true),
            ("POST /drain HTTP/1.1\r\nHost: 127.0.0.1:15020", true),
            ("POST /drain HTTP/1.1\r\nHost: 127.9.9.9", true),
            ("POST /drain HTTP/1.1\r\nHost: [::1]:15020", true),
            (
                "POST http://localhost/drain HTTP/1.1\r\nHost: localhost",
                true,
            ),
            (
                "POST /drain HTTP/1.1\r\nHost: localhost:15020\r\nOrigin: http://localhost:15020",
                true,
            ),
            // DNS rebinding: a page's own name resolves to 127.0.0.1, so the browser sends no Origin.
            ("POST /drain HTTP/1.1\r\nHost: evil.example:15020", false),
            (
                "POST /drain HTTP/1.1\r\nHost: localhost.evil.example",
                false,
            ),
            (
                "POST /drain HTTP/1.1\r\nHost: 127.0.0.1.evil.example",
                false,
            ),
            (
                "POST /drain HTTP/1.1\r\nHost: localhost:x@evil.example",
                false,
            ),
            ("POST /drain HTTP/1.1\r\nHost: 127.0.0.6:15020", false),
            ("POST /drain HTTP/1.1\r\nHost: 10.0.0.7", false),
            ("POST /drain HTTP/1.1\r\nHost: [::6]", false),
            ("POST /drain HTTP/1.1\r\nHost:", false),
            (
                "POST /drain HTTP/1.1\r\nHost: localhost\r\nHost: evil.example",
                false,
            ),
            (
                "POST http://evil.example/drain HTTP/1.1\r\nHost: localhost",
                false,
            ),
            (
                "POST /drain HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example",
                false,
            ),
            (
                "POST /drain HTTP/1.1\r\nHost: localhost\r\nOrigin: null",
                false,
            ),
        ] {
            let found = routed(lines, Peer::Loopback);
            let good = if allowed {
                found == Route::Drain
            } else {
                matches!(found, Route::Refused(403, _))
            };
            assert!(good, "{lines}: {found:?}");
        }
    }

    #[test]
    fn refused_requests_say_why() {
        for (method, more, status, why) in [
            ("POST", "", 405, "passes on GET and HEAD only"),
            (
                "POST",
                "\r\nContent-Length: 3",
                405,
                "passes on GET and HEAD only",
            ),
            ("GET", "\r\nContent-Length: 3", 413, "passes on no body"),
        ] {
            let head = format!("{method} /x HTTP/1.1\r\nistio-app-probe-port: 8080{more}");
            match routed(&head, Peer::Elsewhere) {
                Route::Refused(found, said) => {
                    assert!(
                        found == status && said.contains(why),
                        "{head}: {found} {said}"
                    );
                }
                other => panic!("{head}: {other:?}"),
            }
        }
    }

    fn routed(head: &str, peer: Peer) -> Route {
        let settings = Settings {
            application_ports: vec![8080],
            ..crate::status::tests::settings()
        };
        let head = [head, "\r\n\r\n"].concat();
        match Request::parse(head.as_bytes()) {
            Parsed::Request(request) => route(&request, peer, &settings),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn metrics_may_be_for_the_pod_only() {
        let settings = |local_only| Settings {
            metrics: Metrics {
                local_only,
                without_proxy: false,
            },
            ..crate::status::tests::settings()
        };
        for path in ["/metrics", "/stats/prometheus"] {
            let head = format!("GET {path} HTTP/1.1\r\n\r\n");
            let Parsed::Request(request) = Request::parse(head.as_bytes()) else {
                panic!("{head}");
            };
            let told = Route::About(Topic::Metrics);
            for (local_only, peer, expected) in [
                (false, Peer::Elsewhere, told),
                (true, Peer::Loopback, told),
                (true, Peer::Elsewhere, Route::Refused(403, LOCAL_ONLY)),
            ] {
                assert_eq!(route(&request, peer, &settings(local_only)), expected);
            }
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
