//! The actions of a VirtualService's rule: redirect, rewrite, direct response, retries, faults, CORS.

use super::cursor::{Cursor, Violation};
use super::{parts, predicates as is};
use crate::config::grpc_status::grpc_status;
use crate::finding::quoted;

pub(super) fn redirect(at: &Cursor<'_>) {
    let known = ["uri", "authority", "scheme", "port", "derivePort"];
    at.apart("uri", "prefixRewrite");
    if at.lacks(&known) && at.lacks(&["prefixRewrite"]) {
        at.fail("needs uri, authority, scheme or port");
    }
    let code = at.get("redirectCode");
    let number = code.number();
    if number != 0 && !(300..=399).contains(&number) {
        code.fail(format!("{number} is neither 0 nor in 300..399"));
    }
    let scheme = at.get("scheme");
    if !matches!(scheme.text(), "" | "http" | "https") {
        scheme.fail(format!(
            "{} is neither http nor https",
            quoted(scheme.text())
        ));
    }
    let authority = at.get("authority");
    if !authority.text().chars().all(is::letter_of_authority) {
        authority.fail(format!(
            "{} is not a host: it has characters that RFC 3986 allows in none",
            quoted(authority.text())
        ));
    }
    let port = at.get("port");
    parts::port(&port);
    let has_port = |text: &str| {
        let port = text.rsplit_once(':').map(|(_, port)| port);
        port.is_some_and(|port| {
            !port.is_empty() && port.bytes().all(|letter| letter.is_ascii_digit())
        })
    };
    if port.is_set() && !authority.text().starts_with('[') && has_port(authority.text()) {
        port.warn("authority has a port of its own: locations get both");
    }
    let uri = at.get("uri");
    if uri.text().rfind(PREFIX).is_some_and(|at| at > 0) {
        uri.warn(format!(
            "{PREFIX} stands for a part of the path only where the uri begins"
        ));
    }
}

/// A redirect replaces this by the rest of the path behind the matched prefix.
const PREFIX: &str = "%PREFIX()%";

pub(super) fn rewrite(at: &Cursor<'_>) {
    at.apart("uri", "uriRegexRewrite");
    if at.lacks(&["uri", "uriRegexRewrite", "authority"]) {
        at.fail("needs uri, uriRegexRewrite or authority");
    }
    parts::authority(&at.get("authority"));
    let by_regex = at.get("uriRegexRewrite");
    if by_regex.is_set() {
        let pattern = by_regex.get("match");
        let violation = super::regex::regex(pattern.text());
        let is_valid = violation.is_none();
        pattern.check(violation);
        let by = by_regex.get("rewrite");
        // Groups of a pattern that is refused, perhaps for its length, are not counted.
        if by.not_empty() && is_valid {
            by.check(super::regex::substitution(by.text(), pattern.text()));
        }
    }
}

pub(super) fn direct_response(at: &Cursor<'_>) {
    const MAX_BODY_BYTES: usize = 1 << 20;
    const MUCH: usize = 100 << 10;
    let status = at.get("status");
    status.check(is::within(status.number(), 200, 599));
    let body = at.get("body");
    let text = body.get("string").text().len();
    let encoded = body.get("bytes").text().trim_end_matches('=').len();
    // Four letters of base64 are three bytes.
    let length = text.max(encoded / 4 * 3 + (encoded % 4).saturating_sub(1));
    if length > MAX_BODY_BYTES {
        body.fail("body is over 1 MiB");
    } else if length > MUCH {
        body.warn("body is over 100 KiB");
    }
}

const RETRY_ON: [&str; 16] = [
    "5xx",
    "gateway-error",
    "reset",
    "reset-before-request",
    "connect-failure",
    "retriable-4xx",
    "refused-stream",
    "retriable-status-codes",
    "retriable-headers",
    "envoy-ratelimited",
    "http3-post-connect-failure",
    "cancelled",
    "deadline-exceeded",
    "internal",
    "resource-exhausted",
    "unavailable",
];

pub(super) fn retries(at: &Cursor<'_>) {
    let attempts = at.get("attempts");
    attempts.check(is::not_negative(attempts.number()));
    let settings = ["perTryTimeout", "retryOn", "retryRemoteLocalities"];
    let are_off = attempts.number() == 0 && !attempts.is_broken();
    if are_off && !at.set_fields(&settings).is_empty() {
        at.fail("retries are off (attempts 0)");
    } else if are_off {
        let idle = at.set_fields(&["backoff", "retryIgnorePreviousHosts"]);
        if !idle.is_empty() {
            let idle = idle.join(" and ");
            at.warn(format!("no effect of {idle}: retries are off (attempts 0)"));
        }
    }
    parts::duration(&at.get("perTryTimeout"));
    parts::duration(&at.get("backoff"));
    let on = at.get("retryOn");
    if on.is_empty() {
        return;
    }
    for condition in on.text().split(',').map(str::trim) {
        let digits = condition.bytes().all(|letter| letter.is_ascii_digit());
        let status = condition.parse::<u16>().ok().filter(|_| digits);
        let is_status = status.is_some_and(|status| (100..=599).contains(&status));
        if !is_status && !RETRY_ON.contains(&condition) {
            on.fail(format!("{} is not a retry condition", quoted(condition)));
        }
    }
}

pub(super) fn fault(at: &Cursor<'_>) {
    let (abort, delay) = (at.get("abort"), at.get("delay"));
    if at.lacks(&["abort", "delay"]) {
        at.fail("needs abort or delay");
    }
    for part in [&abort, &delay] {
        let value = part.to(["percentage", "value"]);
        value.check(is::percent(value.float()));
    }
    parts::pct(&delay.get("percent"));
    parts::duration(&delay.get("fixedDelay"));
    let exponential = delay.get("exponentialDelay");
    if exponential.is_set() {
        exponential.fail("not supported");
    }
    if !abort.is_set() {
        return;
    }
    let (status, grpc, http2) = (
        abort.get("httpStatus"),
        abort.get("grpcStatus"),
        abort.get("http2Error"),
    );
    if status.is_set() {
        status.check(is::within(status.number(), 200, 599));
    }
    if grpc.is_set() && grpc_status(grpc.text()).is_none() {
        grpc.fail(format!("{} is not a gRPC status", quoted(grpc.text())));
    }
    if http2.is_set() {
        http2.fail("not supported");
    }
    let kinds = [status, grpc, http2];
    if !kinds.iter().any(|kind| kind.is_set() || kind.is_broken()) {
        abort.warn("aborts nothing without httpStatus or grpcStatus");
    }
}

const METHODS: [&str; 10] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE", "*",
];

pub(super) fn cors(at: &Cursor<'_>) {
    parts::each(&at.get("allowOrigin"), origin);
    for one in at.get("allowOrigins").items() {
        let kinds = ["exact", "prefix", "regex"];
        if one.lacks(&kinds) {
            one.fail("must not be empty");
        } else {
            parts::regex_of(&one.get("regex"));
        }
    }
    for method in at.get("allowMethods").items() {
        if !METHODS.contains(&method.text()) {
            method.fail(format!("{} is not a method", quoted(method.text())));
        }
    }
    for name in ["allowHeaders", "exposeHeaders"] {
        for header in at.get(name).items() {
            if header.text() != "*" {
                header.check(is::header(header.text()));
            }
        }
    }
    let age = at.get("maxAge");
    parts::duration(&age);
    const MILLI: i128 = 1_000_000;
    // `Access-Control-Max-Age` has whole seconds; `parts::duration` has found all other mistakes.
    let millis = age.nanos().filter(|nanos| *nanos > 0 && nanos % MILLI == 0);
    if let Some(nanos) = millis.filter(|nanos| nanos % (1000 * MILLI) != 0) {
        age.fail(format!(
            "duration {} is not whole seconds",
            is::seconds(nanos)
        ));
    }
}

/// `*`, or `[http[s]://]FQDN[:PORT]`.
fn origin(text: &str) -> Violation {
    let rest = ["http://", "https://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme))
        .unwrap_or(text);
    let holds = text == "*"
        || match rest.split_once(':') {
            None => is::fqdn(rest).is_none(),
            Some((host, port)) => {
                let number = port.parse::<u16>().is_ok_and(|port| port > 0);
                is::fqdn(host).is_none() && number && !port.starts_with('+')
            }
        };
    (!holds).then(|| format!("{} is not an origin", quoted(text)))
}
