//! The format of an access log, which discovery hands to Envoy as it is written: for one command operator that Envoy does not
//! have, it refuses every listener.
//!
//! The operators and their parameters are those of Envoy 1.40.0. The program itself was asked, with a listener for each word of
//! capitals in its binary, in each form of an operator; its documentation ("Substitution Formatter") names no
//! other. The content of a parameter (a header's name, an expression) is not looked at.

use crate::finding::quoted;

/// Why Envoy would refuse the format.
pub(crate) fn fault(format: &str) -> Option<String> {
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        let from = rest.get(at..).unwrap_or_default();
        if let Some(after) = from.strip_prefix("%%") {
            rest = after;
            continue;
        }
        let Some((operator, after)) = Operator::read(from) else {
            return Some(format!(
                "{} begins no command operator; a percent sign is written %%",
                quoted(from)
            ));
        };
        if let Some(why) = operator.fault() {
            let command = from.get(..from.len().saturating_sub(after.len()));
            return Some(format!("{}: {why}", quoted(command.unwrap_or_default())));
        }
        rest = after;
    }
    None
}

/// `%NAME%`, `%NAME(PARAMETER)%`, `%NAME:LENGTH%` or `%NAME(PARAMETER):LENGTH%`.
struct Operator<'a> {
    name: &'a str,
    has_parameter: bool,
    has_length: bool,
}

impl<'a> Operator<'a> {
    /// Reads the operator at the beginning of a text; returns it with the rest.
    fn read(text: &'a str) -> Option<(Self, &'a str)> {
        let inner = text.strip_prefix('%')?;
        let end = inner.find(|letter: char| {
            !(letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_')
        })?;
        let (name, after) = inner.split_at_checked(end)?;
        if name.is_empty() {
            return None;
        }
        let (parameter, (has_length, after)) = match after.strip_prefix('(') {
            None => ("", Self::end(after)?),
            // It ends at the first parenthesis that ends the operator, and on its line.
            Some(inside) => inside
                .lines()
                .next()?
                .match_indices(')')
                .find_map(|(at, _)| {
                    let (parameter, after) = inside.split_at_checked(at)?;
                    Some((parameter, Self::end(after.strip_prefix(')')?)?))
                })?,
        };
        let operator = Self {
            name,
            has_parameter: !parameter.is_empty(),
            has_length,
        };
        Some((operator, after))
    }

    /// Reads `%` or `:LENGTH%`; returns true for a length, with the rest.
    fn end(text: &'a str) -> Option<(bool, &'a str)> {
        let Some(length) = text.strip_prefix(':') else {
            return Some((false, text.strip_prefix('%')?));
        };
        // Not up to a percent sign, which may be far away for each of many parentheses.
        let end = length.find(|letter: char| !letter.is_ascii_digit())?;
        let (digits, after) = length.split_at_checked(end)?;
        let after = after.strip_prefix('%')?;
        digits.parse::<u64>().is_ok().then_some((true, after))
    }

    fn fault(&self) -> Option<String> {
        let name = self.name;
        let group = GROUPS
            .iter()
            .find(|group| group.names.binary_search(&name).is_ok());
        let Some(group) = group else {
            return Some(format!("Envoy 1.40 has no command operator {name}"));
        };
        match group.parameter {
            Parameter::None if self.has_parameter => {
                return Some(format!("{name} takes no parameter"));
            }
            Parameter::Wanted if !self.has_parameter => {
                return Some(format!("{name} wants a parameter in parentheses"));
            }
            Parameter::None | Parameter::Allowed | Parameter::Wanted => {}
        }
        (self.has_length && !group.length).then(|| format!("{name} takes no length"))
    }
}

/// Operators that are written alike.
struct OperatorGroup {
    /// In order.
    names: &'static [&'static str],
    parameter: Parameter,
    /// True if the operators take a maximum length, `%OPERATOR:N%`.
    length: bool,
}

enum Parameter {
    None,
    Allowed,
    Wanted,
}

const GROUPS: [OperatorGroup; 5] = [
    OperatorGroup {
        names: &ALONE,
        parameter: Parameter::None,
        length: false,
    },
    OperatorGroup {
        names: &WITH_OR_WITHOUT,
        parameter: Parameter::Allowed,
        length: false,
    },
    OperatorGroup {
        names: &["PATH", "QUERY_PARAMS"],
        parameter: Parameter::Allowed,
        length: true,
    },
    OperatorGroup {
        names: &["CLUSTER_METADATA", "COMMON_DURATION", "UPSTREAM_METADATA"],
        parameter: Parameter::Wanted,
        length: false,
    },
    OperatorGroup {
        names: &WITH,
        parameter: Parameter::Wanted,
        length: true,
    },
];

const WITH: [&str; 17] = [
    "CEL",
    "COALESCE",
    "DYNAMIC_METADATA",
    "ENVIRONMENT",
    "FILTER_STATE",
    "METADATA",
    "QUERY_PARAM",
    "REQ",
    "REQUEST_HEADER",
    "RESP",
    "RESPONSE_HEADER",
    "RESPONSE_TRAILER",
    "STREAM_INFO_REQ",
    "TRAILER",
    "TYPED_CEL",
    "UPSTREAM_FILTER_STATE",
    "XFCC_VALUE",
];

const WITH_OR_WITHOUT: [&str; 17] = [
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_PEER_CERT_V_END",
    "DOWNSTREAM_PEER_CERT_V_START",
    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "EMIT_TIME",
    "EMIT_TIME_LOCAL",
    "GRPC_STATUS",
    "REQUESTED_SERVER_NAME",
    "RESPONSE_CODE_DETAILS",
    "START_TIME",
    "START_TIME_LOCAL",
    "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_PEER_CERT_V_END",
    "UPSTREAM_PEER_CERT_V_START",
    "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
];

const ALONE: [&str; 125] = [
    "ACCESS_LOG_TYPE",
    "BYTES_RECEIVED",
    "BYTES_RETRANSMITTED",
    "BYTES_SENT",
    "CONNECTION_ID",
    "CONNECTION_TERMINATION_DETAILS",
    "CUSTOM_FLAGS",
    "DOWNSTREAM_CX_RTT",
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
    "DOWNSTREAM_DETECTED_CLOSE_TYPE",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID",
    "DOWNSTREAM_DIRECT_LOCAL_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
    "DOWNSTREAM_DIRECT_REMOTE_PORT",
    "DOWNSTREAM_HANDSHAKE_DURATION",
    "DOWNSTREAM_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_HEADER_BYTES_SENT",
    "DOWNSTREAM_LOCAL_ADDRESS",
    "DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID",
    "DOWNSTREAM_LOCAL_CLOSE_REASON",
    "DOWNSTREAM_LOCAL_DNS_SAN",
    "DOWNSTREAM_LOCAL_EMAIL_SAN",
    "DOWNSTREAM_LOCAL_IP_SAN",
    "DOWNSTREAM_LOCAL_OTHERNAME_SAN",
    "DOWNSTREAM_LOCAL_PORT",
    "DOWNSTREAM_LOCAL_SUBJECT",
    "DOWNSTREAM_LOCAL_URI_SAN",
    "DOWNSTREAM_PEER_CERT",
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1",
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256",
    "DOWNSTREAM_PEER_CHAIN_SERIALS",
    "DOWNSTREAM_PEER_DNS_SAN",
    "DOWNSTREAM_PEER_EMAIL_SAN",
    "DOWNSTREAM_PEER_FINGERPRINT_1",
    "DOWNSTREAM_PEER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_IP_SAN",
    "DOWNSTREAM_PEER_ISSUER",
    "DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_ISSUER_SERIAL",
    "DOWNSTREAM_PEER_OTHERNAME_SAN",
    "DOWNSTREAM_PEER_SERIAL",
    "DOWNSTREAM_PEER_SUBJECT",
    "DOWNSTREAM_PEER_URI_SAN",
    "DOWNSTREAM_REMOTE_ADDRESS",
    "DOWNSTREAM_REMOTE_PORT",
    "DOWNSTREAM_TLS_CIPHER",
    "DOWNSTREAM_TLS_GROUP",
    "DOWNSTREAM_TLS_SESSION_ID",
    "DOWNSTREAM_TLS_VERSION",
    "DOWNSTREAM_TRANSPORT_FAILURE_REASON",
    "DOWNSTREAM_WIRE_BYTES_RECEIVED",
    "DOWNSTREAM_WIRE_BYTES_SENT",
    "DURATION",
    "FILTER_CHAIN_NAME",
    "GRPC_STATUS_NUMBER",
    "HOSTNAME",
    "LISTENER_NAME",
    "LOCAL_REPLY_BODY",
    "PACKETS_RETRANSMITTED",
    "PROTOCOL",
    "REQUEST_DURATION",
    "REQUEST_HEADERS_BYTES",
    "REQUEST_TX_DURATION",
    "RESPONSE_CODE",
    "RESPONSE_DURATION",
    "RESPONSE_FLAGS",
    "RESPONSE_FLAGS_LONG",
    "RESPONSE_HEADERS_BYTES",
    "RESPONSE_TRAILERS_BYTES",
    "RESPONSE_TX_DURATION",
    "ROUNDTRIP_DURATION",
    "ROUTE_NAME",
    "ROUTE_RESOLUTION_COUNT",
    "ROUTE_RESOLUTION_TIME_US",
    "SPAN_ID",
    "STREAM_ID",
    "TLS_JA3_FINGERPRINT",
    "TLS_JA4_FINGERPRINT",
    "TRACE_ID",
    "UNIQUE_ID",
    "UPSTREAM_CLUSTER",
    "UPSTREAM_CLUSTER_RAW",
    "UPSTREAM_CONNECTION_ID",
    "UPSTREAM_CONNECTION_IDS_ATTEMPTED",
    "UPSTREAM_CONNECTION_POOL_READY_DURATION",
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
    "UPSTREAM_DETECTED_CLOSE_TYPE",
    "UPSTREAM_HEADER_BYTES_RECEIVED",
    "UPSTREAM_HEADER_BYTES_SENT",
    "UPSTREAM_HOST",
    "UPSTREAM_HOSTS_ATTEMPTED",
    "UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT",
    "UPSTREAM_HOST_NAME",
    "UPSTREAM_HOST_NAMES_ATTEMPTED",
    "UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT",
    "UPSTREAM_HOST_NAME_WITHOUT_PORT",
    "UPSTREAM_LOCAL_ADDRESS",
    "UPSTREAM_LOCAL_CLOSE_REASON",
    "UPSTREAM_LOCAL_DNS_SAN",
    "UPSTREAM_LOCAL_IP_SAN",
    "UPSTREAM_LOCAL_PORT",
    "UPSTREAM_LOCAL_URI_SAN",
    "UPSTREAM_PEER_CERT",
    "UPSTREAM_PEER_DNS_SAN",
    "UPSTREAM_PEER_IP_SAN",
    "UPSTREAM_PEER_ISSUER",
    "UPSTREAM_PEER_SUBJECT",
    "UPSTREAM_PEER_URI_SAN",
    "UPSTREAM_PROTOCOL",
    "UPSTREAM_REMOTE_ADDRESS",
    "UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID",
    "UPSTREAM_REMOTE_PORT",
    "UPSTREAM_REQUEST_ATTEMPT_COUNT",
    "UPSTREAM_SERVER_NAME",
    "UPSTREAM_TLS_CIPHER",
    "UPSTREAM_TLS_GROUP",
    "UPSTREAM_TLS_SESSION_ID",
    "UPSTREAM_TLS_VERSION",
    "UPSTREAM_TRANSPORT_FAILURE_REASON",
    "UPSTREAM_WIRE_BYTES_RECEIVED",
    "UPSTREAM_WIRE_BYTES_SENT",
    "VIRTUAL_CLUSTER_NAME",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_their_groups() {
        let mut all: Vec<_> = GROUPS.iter().flat_map(|group| group.names).collect();
        assert!(GROUPS.iter().all(|group| group.names.is_sorted()));
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!((all.len(), count), (164, 164));
    }

    /// Each was shown to Envoy 1.40.0, which took it.
    #[test]
    fn a_format_is_text_with_operators() {
        for format in [
            "",
            "plain",
            "%%",
            "100%% of %%PROTOCOL%%",
            "%PROTOCOL%x%PROTOCOL%",
            "%PROTOCOL()%",
            "%START_TIME()%",
            "%START_TIME(%Y%m)%",
            "%START_TIME(100%)%",
            "%START_TIME(a)b)%",
            "%START_TIME(a):5)%",
            "%REQ(a):3%",
            "%REQ(a):0%",
            "%REQ(a):18446744073709551615%",
            "%REQ(%PROTOCOL%)%",
            "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
            "%DYNAMIC_METADATA(a:b):10%",
            "%METADATA(DYNAMIC:a:b):5%",
            "%COALESCE({\"operators\":[\"PROTOCOL\"]}):5%",
            "%PATH(NQ):5%\n%PATH:5%\r\n",
            "%TYPED_CEL(a)% %CEL(a):5%",
            "[%START_TIME%] \"%REQ(:METHOD)% %PROTOCOL%\" %RESPONSE_CODE% %RESPONSE_FLAGS% %UPSTREAM_HOST%\n",
        ] {
            assert_eq!(fault(format), None, "{format}");
        }
    }

    /// Each was shown to Envoy 1.40.0, which refused it.
    #[test]
    fn an_error_says_why_envoy_refuses_a_format() {
        for (format, message) in [
            (
                "a %FOO% b",
                "\"%FOO%\": Envoy 1.40 has no command operator FOO",
            ),
            (
                "%REQ_WITHOUT_QUERY(:PATH):9%",
                "\"%REQ_WITHOUT_QUERY(:PATH):9%\": Envoy 1.40 has no command operator REQ_WITHOUT_QUERY",
            ),
            ("%1%", "\"%1%\": Envoy 1.40 has no command operator 1"),
            ("%REQ%", "\"%REQ%\": REQ wants a parameter in parentheses"),
            (
                "%REQ():5%",
                "\"%REQ():5%\": REQ wants a parameter in parentheses",
            ),
            (
                "%RESPONSE_CODE(a)%",
                "\"%RESPONSE_CODE(a)%\": RESPONSE_CODE takes no parameter",
            ),
            ("%PROTOCOL:0%", "\"%PROTOCOL:0%\": PROTOCOL takes no length"),
            (
                "%START_TIME(a):5%",
                "\"%START_TIME(a):5%\": START_TIME takes no length",
            ),
            (
                "%UPSTREAM_METADATA(a):5%",
                "\"%UPSTREAM_METADATA(a):5%\": UPSTREAM_METADATA takes no length",
            ),
        ] {
            assert_eq!(fault(format).as_deref(), Some(message), "{format}");
        }
        for (format, part) in [
            ("%", "%"),
            ("%%%", "%"),
            ("%PROTOCOL%%", "%"),
            ("50% of %PROTOCOL%", "% of %PROTOCOL%"),
            ("%PROTOCOL", "%PROTOCOL"),
            ("%PROTOCOL(", "%PROTOCOL("),
            ("%protocol%", "%protocol%"),
            ("%A-B%", "%A-B%"),
            ("%é%", "%é%"),
            ("%PROTOCOL:5:6%", "%PROTOCOL:5:6%"),
            ("%START_TIME(%Y", "%START_TIME(%Y"),
            ("%START_TIME(%Y)%m)%", "%"),
            ("%REQ(a):%", "%REQ(a):%"),
            ("%REQ(a):x%", "%REQ(a):x%"),
            ("%REQ(a):+1%", "%REQ(a):+1%"),
            ("%REQ(a):5:6%", "%REQ(a):5:6%"),
            ("%REQ(a) %", "%REQ(a) %"),
            ("%REQ(a\nb)%", "%REQ(a\nb)%"),
            (
                "%REQ(a):18446744073709551616%",
                "%REQ(a):18446744073709551616%",
            ),
        ] {
            let message = format!(
                "{} begins no command operator; a percent sign is written %%",
                quoted(part)
            );
            assert_eq!(fault(format), Some(message), "{format}");
        }
    }

    /// No parenthesis of them ends the operator, and the percent sign that would is never there.
    #[test]
    fn an_operator_without_an_end_takes_its_length_not_its_square() {
        let work = |count: usize| {
            let format = format!("%REQ({}", "):".repeat(count));
            move || assert!(fault(&format).is_some())
        };
        crate::growth::assert_linear(32, work(5_000), work(160_000));
    }
}
