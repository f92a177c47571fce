//! Requests to an application, for a probe or for its metrics, and the ends of its redirects. Pure.

#![forbid(unsafe_code)]

use crate::config::is_reserved;
use crate::http::{Request, request_head};
use crate::search;
use crate::values::name_and_port;

/// Redirects followed at most, as Go's client and so kubelet does.
pub(crate) const REDIRECTS: u8 = 10;
/// The headers of a scrape.
pub(crate) const ACCEPT: &[u8] = b"Accept: text/plain\r\n";
/// The agent's own hosts: probes go to loopback, whatever the pod's address is.
const LOCAL: &str = "127.0.0.1 [::1] ::1 localhost";
/// Not passed on, in small letters: they belong to one connection, or the agent sets them.
const NOT_PASSED_ON: &str = "connection keep-alive proxy-connection proxy-authorization te trailer transfer-encoding \
    upgrade content-length expect istio-app-probe-port host";

/// One request to an application, and what is needed for the next after a redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestTarget {
    pub(crate) https: bool,
    pub(crate) port: u16,
    /// Ports to which no redirect may lead.
    own: [u16; 3],
    /// With its query.
    pub(crate) path: String,
    /// The value of `Host`.
    host: String,
    /// GET or HEAD.
    method: &'static str,
    /// `Host` left out, each line with its end.
    headers: Vec<u8>,
    redirects: u8,
}

/// The target of a redirect.
#[derive(Debug)]
pub(crate) enum Redirect {
    Follow(RequestTarget),
    /// To another host, or to Envoy or the agent: the application is there, and that is what was asked.
    Elsewhere,
    TooMany,
    /// The location cannot be understood.
    Malformed,
}

impl RequestTarget {
    /// The request's headers go along, but for those that `configured` replaces.
    #[must_use]
    pub(crate) fn new(
        request: &Request<'_>,
        (port, own): (u16, [u16; 3]),
        path: &str,
        configured: &[(String, String)],
    ) -> Self {
        let replaced = |name: &str| {
            configured
                .iter()
                .any(|(new, _)| new.eq_ignore_ascii_case(name))
        };
        let mut headers = Vec::with_capacity(256);
        let mut line = |name: &str, value: &[u8]| {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                headers.extend_from_slice(part);
            }
        };
        for (name, value) in request.headers() {
            let stays = search::is_one_of(&name.to_ascii_lowercase(), NOT_PASSED_ON);
            if !stays && !replaced(name) {
                line(name, value);
            }
        }
        for (name, value) in configured {
            if !name.eq_ignore_ascii_case("host") {
                line(name, value.as_bytes());
            }
        }
        let named = configured
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("host"));
        let host = match named {
            Some((_, host)) => host.clone(),
            None => host_with_port(request.header("host").unwrap_or_default(), port),
        };
        Self {
            https: false,
            port,
            own,
            path: path.to_owned(),
            host,
            method: if request.method == "HEAD" {
                "HEAD"
            } else {
                "GET"
            },
            headers,
            redirects: 0,
        }
    }

    /// A page of metrics. `Host` has the port: frameworks redirect to what it says.
    #[must_use]
    pub(crate) fn metrics((port, own): (u16, [u16; 3]), path: &str) -> Self {
        Self {
            https: false,
            port,
            own,
            path: path.to_owned(),
            host: host_with_port(b"localhost", port),
            method: "GET",
            headers: ACCEPT.to_vec(),
            redirects: 0,
        }
    }

    /// Whether the answer has no body.
    #[must_use]
    pub(crate) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// The bytes to send.
    #[must_use]
    pub(crate) fn bytes(&self) -> Vec<u8> {
        request_head(self.method, &[&self.path], &self.host, &self.headers)
    }

    /// Returns the consequence of an answer with this `location`.
    #[must_use]
    pub(crate) fn redirect(mut self, location: &str) -> Redirect {
        let location = location.split('#').next().unwrap_or_default().trim();
        if location.bytes().any(|byte| byte <= b' ' || byte == 0x7f) || location.is_empty() {
            return Redirect::Malformed;
        }
        self.redirects = self.redirects.saturating_add(1);
        if self.redirects > REDIRECTS {
            return Redirect::TooMany;
        }
        let absolute = match search::split_once(location, "://") {
            Some((scheme, rest)) if scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => {
                if scheme.eq_ignore_ascii_case("https") {
                    self.https = true;
                } else if scheme.eq_ignore_ascii_case("http") {
                    self.https = false;
                } else {
                    return Redirect::Elsewhere;
                }
                Some(rest)
            }
            _ => location.strip_prefix("//"),
        };
        match absolute {
            Some(rest) => self.move_to(rest),
            None => {
                self.path = resolve(&self.path, location);
                Redirect::Follow(self)
            }
        }
    }

    /// `rest` is `host[:port][/path]`.
    fn move_to(mut self, rest: &str) -> Redirect {
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let host_at = search::behind_last(authority, b'@');
        let authority = authority.get(host_at..).unwrap_or_default();
        let (name, port) = name_and_port(authority);
        let (own, _) = name_and_port(&self.host);
        if name != own && !search::is_one_of(name, LOCAL) {
            return Redirect::Elsewhere;
        }
        let port = match port.map(str::parse) {
            Some(Ok(port)) => port,
            Some(Err(_)) => return Redirect::Malformed,
            None if self.https => 443,
            None => 80,
        };
        // From loopback Envoy takes orders, and the agent, too; or a probe would come round to itself.
        if port != self.port && is_reserved(port, &self.own) {
            return Redirect::Elsewhere;
        }
        self.port = port;
        self.path = match path {
            path if path.starts_with('/') => path.to_owned(),
            query => ["/", query].concat(),
        };
        self.host = authority.to_owned();
        Redirect::Follow(self)
    }
}

/// A path relative to another: a browser's rules, without dot segments, which servers resolve as well.
fn resolve(base: &str, location: &str) -> String {
    let path = base.split('?').next().unwrap_or_default();
    if location.starts_with('/') {
        location.to_owned()
    } else if location.starts_with('?') {
        [path, location].concat()
    } else {
        let folder = path.get(..search::behind_last(path, b'/'));
        let folder = folder.filter(|folder| !folder.is_empty());
        [folder.unwrap_or("/"), location].concat()
    }
}

/// kubelet's `Host` names the pod and the status port: the pod stays, the port becomes the application's.
fn host_with_port(host: &[u8], port: u16) -> String {
    let host = std::str::from_utf8(host).unwrap_or_default();
    let (name, _) = name_and_port(host);
    let name = if name.is_empty() { "127.0.0.1" } else { name };
    [name, ":", &port.to_string()].concat()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::wildcard_enum_match_arm, reason = "a test names what it wants")]

    use super::*;
    use crate::http::Parsed;

    const PROBE: &str = "GET /app-health/app/readyz HTTP/1.1\r\nHost: 10.0.0.7:15020\r\nUser-Agent: kube-probe/1.35\r\nAccept: */*\r\nConnection: close\r\nX-Mine: kubelet\r\n\r\n";

    fn target(configured: &[(&str, &str)]) -> RequestTarget {
        let Parsed::Request(request) = Request::parse(PROBE.as_bytes()) else {
            panic!()
        };
        let configured: Vec<_> = configured
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let own = crate::status::tests::settings().own;
        RequestTarget::new(&request, (8080, own), "/ready?full", &configured)
    }

    #[test]
    fn kubelets_headers_go_along_and_configured_ones_win() {
        let bytes = target(&[("x-mine", "configured"), ("X-New", "1")]).bytes();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "GET /ready?full HTTP/1.1\r\nHost: 10.0.0.7:8080\r\nUser-Agent: kube-probe/1.35\r\nAccept: */*\r\nx-mine: configured\r\nX-New: 1\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn a_configured_host_wins() {
        let bytes = target(&[("host", "shop.example")]).bytes();
        assert!(
            String::from_utf8(bytes)
                .unwrap()
                .contains("\r\nHost: shop.example\r\n")
        );
    }

    fn followed(location: &str) -> String {
        match target(&[]).redirect(location) {
            Redirect::Follow(target) => {
                let scheme = if target.https { "https" } else { "http" };
                format!("{scheme} {} {}", target.port, target.path)
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn redirects_to_the_same_host_are_followed() {
        for (location, expected) in [
            ("/login", "http 8080 /login"),
            ("login", "http 8080 /login"),
            ("?again", "http 8080 /ready?again"),
            ("/login#top", "http 8080 /login"),
            ("http://10.0.0.7:8080/login", "http 8080 /login"),
            ("http://127.0.0.1:9090/x?y", "http 9090 /x?y"),
            ("http://localhost", "http 80 /"),
            ("https://10.0.0.7/x", "https 443 /x"),
            ("HTTPS://[::1]:8443/x", "https 8443 /x"),
            ("//10.0.0.7:81/x", "http 81 /x"),
            ("http://10.0.0.7?q", "http 80 /?q"),
            ("http://user:pw@10.0.0.7:81/", "http 81 /"),
            ("http://127.0.0.1:15000/quitquitquit", "Elsewhere"),
            ("https://[::1]:15000/", "Elsewhere"),
            ("//localhost:14090/stats/prometheus", "Elsewhere"),
            ("http://10.0.0.7:14020/app-health/app/readyz", "Elsewhere"),
            ("http://10.0.0.7:15001/", "Elsewhere"),
            ("http://shop.example/login", "Elsewhere"),
            ("ftp://10.0.0.7/", "Elsewhere"),
            ("http://10.0.0.7:99999/", "Malformed"),
            ("", "Malformed"),
            ("/a b", "Malformed"),
        ] {
            assert_eq!(followed(location), expected, "{location}");
        }
    }

    #[test]
    fn redirects_end_after_ten() {
        let mut target = target(&[]);
        for _ in 0..REDIRECTS {
            target = match target.redirect("/again") {
                Redirect::Follow(target) => target,
                other => panic!("{other:?}"),
            };
        }
        assert!(matches!(target.redirect("/again"), Redirect::TooMany));
    }

    proptest::proptest! {
        #[test]
        fn no_location_makes_it_panic(location in ".{0,60}") {
            drop(target(&[]).redirect(&location));
        }
    }
}
