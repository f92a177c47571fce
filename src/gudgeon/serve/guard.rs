//! Access to pages that are for local users only.
//!
//! A browser on this host may be led to them by a page elsewhere: such requests show in `Origin`, and in `Host` if the
//! page's own name was made to resolve to loopback.

use std::net::{IpAddr, Ipv4Addr};

use hyper::header::{HOST, HeaderName, ORIGIN};
use hyper::http::uri::Authority;
use hyper::{Request, StatusCode};

use super::{Answer, text};
use crate::cli::DebugAccess;

/// The source address of connections that Envoy passes through from outside of the pod. Its IPv6 counterpart, `::6`, is no
/// loopback address.
const PASS_THROUGH: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);
const LOCAL_ONLY: &str = "for this host only: see --debugAddr";
const FOREIGN: &str = "only a Host and an Origin of localhost are allowed";
const FOREIGN_PAGE: &str = "a page of another Origin may read and change nothing";

/// Checks access to a page.
///
/// # Errors
/// The response to a refused request.
#[expect(clippy::result_large_err, reason = "it is an answer, and sent as one")]
pub(crate) fn guard<B>(
    request: &Request<B>,
    peer: IpAddr,
    access: DebugAccess,
) -> Result<(), Answer> {
    let refused = |message| Err(text(StatusCode::FORBIDDEN, message));
    if access == DebugAccess::Open {
        return match is_of_same_origin(request) {
            true => Ok(()),
            false => refused(FOREIGN_PAGE),
        };
    }
    if !is_local(peer) {
        return refused(LOCAL_ONLY);
    }
    let origins = values(request, ORIGIN).map(|origin| page_of(origin).unwrap_or_default());
    let has_host = hosts(request).next().is_some();
    if has_host && hosts(request).chain(origins).all(means_this_host) {
        Ok(())
    } else {
        refused(FOREIGN)
    }
}

/// Returns true if an address is of this host, and none that Envoy passes on what came from outside by.
pub(crate) fn is_local(address: IpAddr) -> bool {
    // A dual-stack socket shows an IPv4 client as `::ffff:127.0.0.1`.
    let address = address.to_canonical();
    address.is_loopback() && address != PASS_THROUGH
}

/// Returns the header's values; one that is not UTF-8 becomes empty, which is not this host.
fn values<B>(request: &Request<B>, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = request.headers().get_all(name).into_iter();
    values.map(|value| value.to_str().unwrap_or_default().trim())
}

/// Returns the hosts that the request names: HTTP/2 sends `:authority` in place of `Host`, and HTTP/1.1 may have both. A client
/// could choose the one that is looked at, so all of them count.
fn hosts<B>(request: &Request<B>) -> impl Iterator<Item = &str> {
    let authorities = request.uri().authority().into_iter().map(Authority::as_str);
    values(request, HOST).chain(authorities)
}

/// The authority of an origin.
fn page_of(origin: &str) -> Option<&str> {
    origin.split_once("://").map(|(_, authority)| authority)
}

/// Returns true if the request comes from a page of this listener, or has no `Origin`, as from a client that is no browser.
fn is_of_same_origin<B>(request: &Request<B>) -> bool {
    let has_host = hosts(request).next().is_some();
    values(request, ORIGIN).all(|origin| {
        // `Origin: null`, as a sandboxed page sends it, has no authority and is foreign.
        let page = page_of(origin).filter(|_| has_host);
        page.is_some_and(|page| hosts(request).all(|host| host.eq_ignore_ascii_case(page)))
    })
}

/// Returns true if `host[:port]` can only mean this host.
fn means_this_host(text: &str) -> bool {
    let Ok(authority) = text.parse::<Authority>() else {
        return false;
    };
    let host = authority.host();
    let has_port = authority.port_u16().is_some();
    // Browsers send no userinfo; `authority.host()` would skip it, and a port that is no number.
    if text.contains('@') || (!has_port && text != host) {
        return false;
    }
    let address = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    match address.unwrap_or(host).parse() {
        Ok(address) => is_local(address),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, uri: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn may(request: &Request<()>, peer: &str, access: DebugAccess) -> bool {
        let found = guard(request, peer.parse().unwrap(), access);
        assert!(
            found
                .as_ref()
                .err()
                .is_none_or(|answer| answer.status() == StatusCode::FORBIDDEN)
        );
        found.is_ok()
    }

    /// Envoy's inbound pass-through connects from 127.0.0.6 and from ::6.
    #[test]
    fn clients_of_the_pod_are_local() {
        let request = asked("GET", "/debug", &[("host", "localhost")]);
        for (peer, local) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("127.0.0.6", false),
            ("::ffff:127.0.0.6", false),
            ("::6", false),
            ("10.0.0.7", false),
            ("fe80::1", false),
        ] {
            assert_eq!(may(&request, peer, DebugAccess::Local), local, "{peer}");
            assert!(may(&request, peer, DebugAccess::Open), "{peer}");
        }
    }

    #[test]
    fn a_request_names_no_host_but_this_one() {
        for (uri, headers, allowed) in [
            ("/debug", &[("host", "localhost")][..], true),
            ("http://localhost/debug", &[], true),
            ("/debug", &[("host", "LOCALHOST:8080")], true),
            ("/debug", &[("host", "127.0.0.1:8080")], true),
            ("/debug", &[("host", "127.9.9.9")], true),
            ("/debug", &[("host", "[::1]:8080")], true),
            ("http://localhost/debug", &[("host", "localhost")], true),
            (
                "/debug",
                &[("host", "localhost:80"), ("origin", "http://localhost:80")],
                true,
            ),
            // Some programs that fetch what others name send no Host.
            ("/debug", &[], false),
            ("/debug", &[("origin", "http://localhost")], false),
            // DNS rebinding: a page's own name resolves to 127.0.0.1, so the browser sends no Origin.
            ("/debug", &[("host", "evil.example:8080")], false),
            ("/debug", &[("host", "localhost.evil.example")], false),
            ("/debug", &[("host", "127.0.0.1.evil.example")], false),
            ("/debug", &[("host", "localhost:x@evil.example")], false),
            ("/debug", &[("host", "evil@localhost")], false),
            ("/debug", &[("host", "localhost:x")], false),
            ("/debug", &[("host", "127.0.0.6:8080")], false),
            ("/debug", &[("host", "10.0.0.7")], false),
            ("/debug", &[("host", "[::6]")], false),
            ("/debug", &[("host", "")], false),
            (
                "/debug",
                &[("host", "localhost"), ("host", "evil.example")],
                false,
            ),
            ("http://evil.example/debug", &[("host", "localhost")], false),
            (
                "/debug",
                &[("host", "localhost"), ("origin", "http://evil.example")],
                false,
            ),
            (
                "/debug",
                &[("host", "localhost"), ("origin", "null")],
                false,
            ),
        ] {
            let request = asked("GET", uri, headers);
            assert_eq!(
                may(&request, "127.0.0.1", DebugAccess::Local),
                allowed,
                "{uri} {headers:?}"
            );
            // An open listener still refuses pages of other origins.
            let open = allowed || headers.iter().all(|(name, _)| *name != "origin");
            assert_eq!(
                may(&request, "127.0.0.1", DebugAccess::Open),
                open,
                "{uri} {headers:?}"
            );
        }
    }

    /// A listener that is open to all clients stays closed to other origins' pages in a browser.
    #[test]
    fn another_page_sees_and_changes_nothing_even_where_everybody_may_look() {
        let host = ("host", "discovery.example:9090");
        for (headers, allowed) in [
            (&[host][..], true),
            (&[host, ("origin", "http://discovery.example:9090")], true),
            (&[host, ("origin", "http://evil.example")], false),
            (&[host, ("origin", "null")], false),
            (&[("origin", "http://evil.example")], false),
        ] {
            for (method, uri) in [("POST", "/debug/adsz?push=1"), ("GET", "/debug/configz")] {
                let asked = asked(method, uri, headers);
                assert_eq!(
                    may(&asked, "10.0.0.7", DebugAccess::Open),
                    allowed,
                    "{method} {headers:?}"
                );
            }
        }
    }

    /// HTTP/2 names the host in `:authority`: pages of the listener itself used to be refused there.
    #[test]
    fn a_page_of_the_listener_is_its_own_over_http2_too() {
        let own = ("origin", "https://discovery.example:9090");
        let uri = "https://discovery.example:9090/debug/configz";
        for (headers, allowed) in [
            (&[][..], true),
            (&[own], true),
            (&[("host", "DISCOVERY.example:9090"), own], true),
            (&[("origin", "https://evil.example")], false),
            (&[("origin", "null")], false),
            // A request that names two hosts is of the same origin as neither.
            (&[("host", "evil.example"), own], false),
            (
                &[("host", "evil.example"), ("origin", "http://evil.example")],
                false,
            ),
        ] {
            let asked = asked("GET", uri, headers);
            assert_eq!(
                may(&asked, "10.0.0.7", DebugAccess::Open),
                allowed,
                "{headers:?}"
            );
        }
    }
}
