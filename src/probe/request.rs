//! The request that is passed on, from the head that was meant for a plain server. What belongs to one connection only
//! (RFC 9110 §7.6.1) stays behind.

#![forbid(unsafe_code)]

use std::net::SocketAddr;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::{Authority, PathAndQuery};
use hyper::{Method, Uri};

use crate::failure::Failure;

/// Headers in a request. Chosen: as many as hyper accepts in an answer.
const MAX_HEADERS: usize = 100;
const STEP: &str = "read the request";

/// A request without a body; no `Host` and nothing hop-by-hop is left in the headers.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) path: PathAndQuery,
    /// The Host header's value, or the address where there is none.
    pub(crate) authority: Authority,
    /// As it was written: HTTP/1.1 sends that.
    pub(crate) host: HeaderValue,
    pub(crate) headers: HeaderMap,
}

impl Request {
    /// For HTTP/1.1: the path alone, and `Host`.
    pub(crate) fn for_http1(self) -> hyper::Request<Empty> {
        let mut request = hyper::Request::new(Empty::new());
        *request.method_mut() = self.method;
        *request.uri_mut() = Uri::from(self.path);
        let headers = request.headers_mut();
        // First, as every client does.
        headers.insert(header::HOST, self.host);
        headers.extend(self.headers);
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        request
    }

    /// For HTTP/2: everything in the URI.
    pub(crate) fn for_http2(self) -> Result<hyper::Request<Empty>, Failure> {
        let uri = Uri::builder()
            .scheme("https")
            .authority(self.authority)
            .path_and_query(self.path)
            .build()
            .map_err(|error| Failure::of(STEP, &error))?;
        let mut request = hyper::Request::new(Empty::new());
        *request.method_mut() = self.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers;
        Ok(request)
    }
}

/// No body.
pub(crate) type Empty = http_body_util::Empty<hyper::body::Bytes>;

/// Parses one whole head.
pub(crate) fn parse(head: &[u8], address: SocketAddr) -> Result<Request, Failure> {
    let mut space = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut space);
    let status = parsed
        .parse(head)
        .map_err(|error| Failure::of(STEP, &error))?;
    if status.is_partial() || parsed.version != Some(1) {
        return Err(Failure::new(STEP, "not a whole head of HTTP/1.1"));
    }
    let method = Method::from_bytes(parsed.method.unwrap_or_default().as_bytes())
        .map_err(|error| Failure::of(STEP, &error))?;
    if method == Method::CONNECT {
        return Err(Failure::new(STEP, "CONNECT is no probe"));
    }
    let path = parsed.path.unwrap_or_default();
    if !path.starts_with('/') {
        return Err(Failure::new(STEP, "its target does not begin with /"));
    }
    let path = PathAndQuery::try_from(path).map_err(|error| Failure::of(STEP, &error))?;
    let (mut headers, mut hosts) = (HeaderMap::new(), Vec::new());
    // Into a new map, in their order: a map from which something was removed has another one.
    let dropped = hop_by_hop(parsed.headers);
    for given in parsed.headers.iter() {
        let name = HeaderName::from_bytes(given.name.as_bytes());
        let name = name.map_err(|error| Failure::of(STEP, &error))?;
        let value = HeaderValue::from_bytes(given.value);
        let value = value.map_err(|error| Failure::of(STEP, &error))?;
        if name == header::HOST {
            hosts.push(value);
        } else if !dropped.contains(&name) {
            headers.append(name, value);
        }
    }
    let host = the_host(hosts, address)?;
    let authority = Authority::try_from(host.as_bytes())
        .map_err(|error| Failure::of("use the Host header", &error))?;
    Ok(Request {
        method,
        path,
        authority,
        host,
        headers,
    })
}

/// The headers that stay behind.
fn hop_by_hop(headers: &[httparse::Header<'_>]) -> Vec<HeaderName> {
    let mut dropped = vec![
        header::CONNECTION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        // There is no body.
        header::CONTENT_LENGTH,
        header::EXPECT,
        // These are no standard, and common.
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
        HeaderName::from_static("http2-settings"),
    ];
    let named = headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("connection"))
        .filter_map(|header| str::from_utf8(header.value).ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok());
    dropped.extend(named);
    dropped
}

/// The one that is given, or the address.
fn the_host(given: Vec<HeaderValue>, address: SocketAddr) -> Result<HeaderValue, Failure> {
    if given.len() > 1 {
        return Err(Failure::new(STEP, "it has two Host headers"));
    }
    match given.into_iter().find(|value| !value.is_empty()) {
        Some(value) => Ok(value),
        None => HeaderValue::try_from(address.to_string())
            .map_err(|error| Failure::of("name the host", &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(head: &str) -> Result<Request, Failure> {
        parse(head.as_bytes(), "127.0.0.1:8443".parse().unwrap())
    }

    #[test]
    fn method_path_and_headers_are_kept() {
        let request = parsed(
            "GET /healthz?x=1&y=%20 HTTP/1.1\r\nHost: foo:8443\r\nUser-Agent: kube-probe/1.30\r\n\
             X-Twice: a\r\nX-Twice: b\r\n\r\n",
        )
        .unwrap();
        assert_eq!(request.method, Method::GET);
        assert_eq!(request.path, "/healthz?x=1&y=%20");
        assert_eq!(request.authority, "foo:8443");
        assert_eq!(request.headers.len(), 3);
        let twice: Vec<_> = request.headers.get_all("x-twice").iter().collect();
        assert_eq!(twice, ["a", "b"]);
    }

    #[test]
    fn connection_headers_are_dropped() {
        let request = parsed(
            "GET / HTTP/1.1\r\nConnection: close, X-Mine, Host\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\n\
             Transfer-Encoding: chunked\r\nContent-Length: 7\r\nUpgrade: h2c\r\nProxy-Connection: close\r\n\
             Accept: */*\r\nHost: foo\r\n\r\n",
        )
        .unwrap();
        assert_eq!(request.headers.keys().collect::<Vec<_>>(), ["accept"]);
        assert_eq!(request.authority, "foo");
        let sent = request.for_http1();
        assert_eq!(sent.headers().get("connection").unwrap(), "close");
        assert_eq!(sent.headers().get("host").unwrap(), "foo");
    }

    #[test]
    fn without_a_host_it_is_the_address() {
        let request = parsed("GET / HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(request.authority, "127.0.0.1:8443");
        let request = parsed("GET / HTTP/1.1\r\nHost:\r\n\r\n").unwrap();
        assert_eq!(request.authority, "127.0.0.1:8443");
    }

    #[test]
    fn http2_gets_the_host_as_authority() {
        let request = parsed("GET /a?b HTTP/1.1\r\nHost: foo:8443\r\n\r\n").unwrap();
        let sent = request.for_http2().unwrap();
        assert_eq!(sent.uri(), "https://foo:8443/a?b");
        assert!(sent.headers().is_empty());
    }

    #[test]
    fn malformed_heads_are_refused() {
        for head in [
            "\r\n\r\n",
            "GET\r\n\r\n",
            "GET / HTTP/1.0\r\n\r\n",
            "GET / HTTP/2\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n",
            "GET foo HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET https://foo/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
            "GET / HTTP/1.1\r\nX: \0\r\n\r\n",
        ] {
            let failure = parsed(head).unwrap_err().to_string();
            assert!(failure.starts_with("cannot "), "{head:?}: {failure}");
        }
        let many = format!(
            "GET / HTTP/1.1\r\n{}\r\n",
            "X: 1\r\n".repeat(MAX_HEADERS + 1)
        );
        assert!(parsed(&many).is_err());
    }
}
