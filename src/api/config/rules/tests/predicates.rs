//! Predicates that rules of several kinds share, each in an object of one of them.

use super::written::Row;
use super::{PREDICATES, bad, good};

/// A test for each, with what holds and its nearest neighbours that do not; each in an object of the kind before it.
macro_rules! predicates {
    ($($row:ident { $(+ $in:literal $good:expr;)+ $(- $of:literal $bad:expr => $findings:expr;)+ })*) => {
        pub(super) const ROWS: &[(&str, &str)] = &[$((PREDICATES, stringify!($row))),*];

        pub(super) fn rows() -> Vec<Row> {
            vec![$(
                $(Row::new($in, "x", $good, &[""; 0]),)+
                $(Row::new($of, "x", $bad, &$findings),)+
            )*]
        }

        $(
            #[test]
            fn $row() {
                $(good($in, "x", &$good.to_string());)+
                $(bad($of, "x", &$bad.to_string(), &$findings);)+
            }
        )*
    };
}

fn port_of(number: i64) -> String {
    format!("{{hosts: [a.b], ports: [{{number: {number}, name: p, protocol: HTTP}}]}}")
}

fn speaking(protocol: &str) -> String {
    format!("{{hosts: [a.b], ports: [{{number: 1, name: p, protocol: {protocol}}}]}}")
}

fn subset(name: &str) -> String {
    format!("{{host: a, subsets: [{{name: {name}}}]}}")
}

fn host(host: &str) -> String {
    format!("{{host: '{host}'}}")
}

/// The host of an egress proxy, which may be no wildcard.
fn by_proxy(host: &str) -> String {
    format!(
        "{{outboundTrafficPolicy: {{mode: ALLOW_ANY, egressProxy: {{host: '{host}', port: {{number: 1}}}}}}}}"
    )
}

fn bound(address: &str) -> String {
    format!("{{ingress: [{{port: {{number: 1, name: p, protocol: HTTP}}, bind: '{address}'}}]}}")
}

fn addresses(addresses: &str) -> String {
    format!("{{hosts: [a.b], addresses: [{addresses}]}}")
}

fn at(address: &str) -> String {
    format!("{{address: '{address}'}}")
}

fn labelled(labels: &str) -> String {
    format!("{{address: a, labels: {{{labels}}}}}")
}

fn route(rest: &str) -> String {
    format!("{{hosts: [a], http: [{{route: [{{destination: {{host: b}}}}], {rest}}}]}}")
}

fn timeout(time: &str) -> String {
    route(&format!("timeout: {time}"))
}

fn ejecting(percent: i64) -> String {
    format!("{{host: a, trafficPolicy: {{outlierDetection: {{maxEjectionPercent: {percent}}}}}}}")
}

fn aborting(percentage: &str) -> String {
    route(&format!(
        "fault: {{abort: {{httpStatus: 500, percentage: {{value: {percentage}}}}}}}"
    ))
}

fn matching(what: &str) -> String {
    route(&format!("match: [{{{what}}}]"))
}

fn regex_of(text: &str) -> String {
    matching(&format!("uri: {{regex: '{text}'}}"))
}

fn behind(gateways: &str) -> String {
    format!(
        "{{hosts: [a.b], gateways: [{gateways}], http: [{{route: [{{destination: {{host: b}}}}]}}]}}"
    )
}

fn seen_by(namespaces: &str) -> String {
    format!("{{hosts: [a.b], exportTo: [{namespaces}]}}")
}

fn selecting(labels: &str) -> String {
    format!("{{selector: {{matchLabels: {{{labels}}}}}}}")
}

fn allowing(headers: &str) -> String {
    route(&format!("corsPolicy: {{allowHeaders: [{headers}]}}"))
}

fn target(target: &str) -> String {
    format!("{{targetRefs: [{{{target}}}]}}")
}

predicates! {
    port {
        + "ServiceEntry" port_of(1);
        + "ServiceEntry" port_of(65535);
        - "ServiceEntry" port_of(0) => ["spec.ports[0].number: port 0 is not in 1..65535"];
        - "ServiceEntry" port_of(65536) => ["spec.ports[0].number: port 65536 is not in 1..65535"];
    }
    label {
        + "DestinationRule" subset("A-1");
        + "DestinationRule" subset(&"a".repeat(63));
        - "DestinationRule" subset("a_1") => ["spec.subsets[0].name: \"a_1\" is not a DNS label"];
        - "DestinationRule" subset("-a") => ["spec.subsets[0].name: \"-a\" is not a DNS label"];
        - "DestinationRule" subset("a-") => ["spec.subsets[0].name: \"a-\" is not a DNS label"];
        - "DestinationRule" subset(&"a".repeat(64)) => [
            &*format!("spec.subsets[0].name: \"{}\" is not a DNS label", "a".repeat(64)),
        ];
    }
    fqdn {
        + "Sidecar" by_proxy("a");
        + "Sidecar" by_proxy("1.a.");
        + "Sidecar" by_proxy(&"a.".repeat(127));
        - "Sidecar" by_proxy("") => ["spec.outboundTrafficPolicy.egressProxy.host: \"\" is not a host name: it is empty"];
        - "Sidecar" by_proxy("*.a") => [
            "spec.outboundTrafficPolicy.egressProxy.host: \"*.a\" is not a host name: \"*\" is not a DNS label",
        ];
        - "Sidecar" by_proxy("a..") => [
            "spec.outboundTrafficPolicy.egressProxy.host: \"a..\" is not a host name: \"\" is not a DNS label",
        ];
        - "Sidecar" by_proxy("a.1") => [
            "spec.outboundTrafficPolicy.egressProxy.host: \"a.1\" is not a host name: its last label is a number",
        ];
        - "Sidecar" by_proxy(&"a.".repeat(128)) => [
            &*format!(
                "spec.outboundTrafficPolicy.egressProxy.host: \"{}\" is not a host name: it is longer than 255 bytes",
                "a.".repeat(128)
            ),
        ];
    }
    wild {
        + "DestinationRule" host("*");
        + "DestinationRule" host("*.a");
        + "DestinationRule" host("*a.b");
        + "DestinationRule" host("*-a.b");
        + "DestinationRule" host("a");
        - "DestinationRule" host("a.*") => ["spec.host: \"a.*\" is not a host name: \"*\" is not a DNS label"];
        - "DestinationRule" host("a*.b") => ["spec.host: \"a*.b\" is not a host name: \"a*\" is not a DNS label"];
        - "DestinationRule" host("*.") => ["spec.host: \"*.\" is not a host name: \"\" is not a DNS label"];
    }
    ip {
        + "Sidecar" bound("10.0.0.1");
        + "Sidecar" bound("::1");
        - "Sidecar" bound("10.0.0.1/32") => ["spec.ingress[0].bind: \"10.0.0.1/32\" is not an IP address"];
        - "Sidecar" bound("fe80::1%eth0") => ["spec.ingress[0].bind: \"fe80::1%eth0\" is not an IP address"];
        - "Sidecar" bound("10.0.0") => ["spec.ingress[0].bind: \"10.0.0\" is not an IP address"];
    }
    cidr {
        + "ServiceEntry" addresses("10.0.0.1, 10.0.0.0/32, '::/0', '::1/128'");
        - "ServiceEntry" addresses("10.0.0.0/33, '::/129', 10.0.0.0/") => [
            "spec.addresses[0]: \"10.0.0.0/33\" is not an IP address or CIDR",
            "spec.addresses[1]: \"::/129\" is not an IP address or CIDR",
            "spec.addresses[2]: \"10.0.0.0/\" is not an IP address or CIDR",
        ];
    }
    uds {
        + "WorkloadEntry" at("unix:///a/b");
        + "WorkloadEntry" at("unix://@a");
        + "WorkloadEntry" at(&format!("unix:///{}", "a".repeat(106)));
        + "WorkloadEntry" at(&format!("unix://@{}", "a".repeat(106)));
        - "WorkloadEntry" at("unix://a/b") => ["spec.address: \"a/b\" is not an absolute path or @name"];
        - "WorkloadEntry" at("unix:///a/") => ["spec.address: \"/a/\" is not an absolute path or @name"];
        - "WorkloadEntry" at(&format!("unix:///{}", "a".repeat(107))) => [
            &*format!("spec.address: \"/{}\" is longer than 107 bytes: sun_path of sockaddr_un has 108 with the NUL at its end", "a".repeat(107)),
        ];
        - "WorkloadEntry" at(&format!("unix://@{}", "a".repeat(107))) => [
            &*format!("spec.address: \"@{}\" is longer than 107 bytes: sun_path of sockaddr_un has 108 with the NUL at its end", "a".repeat(107)),
        ];
        - "WorkloadEntry" "{address: \"unix:///a\\0b\"}" => ["spec.address: \"/a\\u0000b\" has a NUL in it"];
        - "WorkloadEntry" at("unix://@") => ["spec.address: \"@\" is not an absolute path or @name"];
    }
    dur {
        + "VirtualService" timeout("1ms");
        + "VirtualService" timeout("1.001s");
        - "VirtualService" timeout("0.999ms") => ["spec.http[0].timeout: duration 0.000999s is less than 1ms"];
        - "VirtualService" timeout("-1s") => ["spec.http[0].timeout: duration -1s is less than 1ms"];
        - "VirtualService" timeout("1.0005s") => [
            "spec.http[0].timeout: duration 1.000500s is not a whole number of milliseconds",
        ];
    }
    pct {
        + "DestinationRule" ejecting(0);
        + "DestinationRule" ejecting(100);
        - "DestinationRule" ejecting(101) => ["spec.trafficPolicy.outlierDetection.maxEjectionPercent: 101 is not in 0..100"];
        - "DestinationRule" ejecting(-1) => ["spec.trafficPolicy.outlierDetection.maxEjectionPercent: -1 is not in 0..100"];
    }
    percent {
        + "VirtualService" aborting("0");
        + "VirtualService" aborting("0.0001");
        + "VirtualService" aborting("100");
        - "VirtualService" aborting("0.00005") => [
            "spec.http[0].fault.abort.percentage.value: 0.00005 is neither 0 nor in 0.0001..100",
        ];
        - "VirtualService" aborting("100.5") => [
            "spec.http[0].fault.abort.percentage.value: 100.5 is neither 0 nor in 0.0001..100",
        ];
        - "VirtualService" aborting("-1") => ["spec.http[0].fault.abort.percentage.value: -1 is neither 0 nor in 0.0001..100"];
    }
    labels {
        + "WorkloadEntry" labelled("a: '', A_b.c-1: a_b.C-1, a.b/c: d");
        + "WorkloadEntry" labelled(&format!("{}a/{}: {}", "a.".repeat(126), "b".repeat(63), "c".repeat(63)));
        - "WorkloadEntry" labelled("'': a, a/b/c: d, a_/b: c, a-: b") => [
            "spec.labels[\"\"]: \"\" is not a label key",
            "spec.labels[\"a/b/c\"]: \"a/b/c\" is not a label key",
            "spec.labels[\"a_/b\"]: \"a_/b\" is not a label key",
            "spec.labels.a-: \"a-\" is not a label key",
        ];
        - "WorkloadEntry" labelled(&format!("{}aa/b: c", "a.".repeat(126))) => [
            &*format!("spec.labels[\"{0}aa/b\"]: \"{0}aa/b\" is not a label key", "a.".repeat(126)),
        ];
        - "WorkloadEntry" labelled(&format!("{}: c", "a".repeat(64))) => [
            &*format!("spec.labels.{0}: \"{0}\" is not a label key", "a".repeat(64)),
        ];
        - "WorkloadEntry" labelled(&format!("a: b/c, d: {}", "e".repeat(64))) => [
            "spec.labels.a: \"b/c\" is not a label value",
            &*format!("spec.labels.d: \"{}\" is not a label value", "e".repeat(64)),
        ];
    }
    selector {
        + "PeerAuthentication" "{}";
        + "PeerAuthentication" selecting("a: '', b: c");
        - "PeerAuthentication" selecting("'': b") => ["spec.selector.matchLabels[\"\"]: empty key"];
        - "PeerAuthentication" selecting("a*: b, c: '*'") => [
            "spec.selector.matchLabels[\"a*\"]: no wildcards here",
            "spec.selector.matchLabels.c: no wildcards here",
        ];
        - "PeerAuthentication" "{selector: {}}" => ["warning: spec.selector: selects every workload in the namespace"];
        - "PeerAuthentication" selecting("") => ["warning: spec.selector: selects every workload in the namespace"];
    }
    gwname {
        + "VirtualService" behind("a/b, mesh, c");
        - "VirtualService" behind("a/b/c, a.b/c, '*', /a") => [
            "spec.gateways[0]: \"a/b/c\" is not NAMESPACE/NAME",
            "spec.gateways[1]: \"a.b/c\" is not NAMESPACE/NAME",
            "spec.gateways[2]: \"*\" is not NAMESPACE/NAME",
            "spec.gateways[3]: \"/a\" is not NAMESPACE/NAME",
        ];
        - "VirtualService" behind("a.b") => ["warning: spec.gateways[0]: write NAMESPACE/NAME"];
    }
    export {
        + "ServiceEntry" seen_by("., a");
        + "ServiceEntry" seen_by("'*'");
        + "ServiceEntry" seen_by("'~'");
        - "ServiceEntry" seen_by("a.b, ''") => [
            "spec.exportTo[0]: \"a.b\" is not \".\", \"*\" or a namespace",
            "spec.exportTo[1]: \"\" is not \".\", \"*\" or a namespace",
        ];
        - "ServiceEntry" seen_by("a, a, ., ns") => ["spec.exportTo[1]: duplicate", "spec.exportTo[3]: duplicate"];
        - "ServiceEntry" seen_by("'*', a") => ["spec.exportTo[0]: stands only alone"];
        - "ServiceEntry" seen_by("a, '~'") => ["spec.exportTo[1]: stands only alone"];
        - "DestinationRule" "{host: a, exportTo: ['~']}" => ["spec.exportTo[0]: \"~\" is not \".\", \"*\" or a namespace"];
    }
    proto {
        + "ServiceEntry" speaking("''");
        + "ServiceEntry" speaking("http");
        + "ServiceEntry" speaking("Https");
        + "ServiceEntry" speaking("HTTP2");
        + "ServiceEntry" speaking("HTTP_PROXY");
        + "ServiceEntry" speaking("gRPC");
        + "ServiceEntry" speaking("GRPC-Web");
        + "ServiceEntry" speaking("TCP");
        + "ServiceEntry" speaking("TLS");
        + "ServiceEntry" speaking("UDP");
        + "ServiceEntry" speaking("Mongo");
        + "ServiceEntry" speaking("Redis");
        + "ServiceEntry" speaking("MySQL");
        - "ServiceEntry" speaking("HTTP3") => ["spec.ports[0].protocol: \"HTTP3\" is not a protocol"];
        - "ServiceEntry" speaking("grpc_web") => ["spec.ports[0].protocol: \"grpc_web\" is not a protocol"];
    }
    regex {
        + "VirtualService" regex_of("a+?(b|c){2,1000}");
        + "VirtualService" regex_of(&"a".repeat(1024));
        - "VirtualService" regex_of("") => ["spec.http[0].match[0].uri.regex: not a regular expression: it is empty"];
        - "VirtualService" regex_of(&"a".repeat(1025)) => [
            "spec.http[0].match[0].uri.regex: not a regular expression: it is longer than 1024 bytes",
        ];
        - "VirtualService" regex_of("a++") => [
            "spec.http[0].match[0].uri.regex: not a regular expression: repetition of a repetition",
        ];
        - "VirtualService" regex_of("a(?=b)") => [
            "spec.http[0].match[0].uri.regex: not a regular expression: look-around, including look-ahead and look-behind, is not \
             supported",
        ];
        - "VirtualService" regex_of("(a)\\1") => [
            "spec.http[0].match[0].uri.regex: not a regular expression: backreferences are not supported",
        ];
        - "VirtualService" regex_of("a{1001}") => ["spec.http[0].match[0].uri.regex: not a regular expression: a count over 1000"];
    }
    hdr {
        + "VirtualService" allowing("x-a, X_a, \"a!#$%&'*+.^`|~\"");
        + "VirtualService" allowing("':method', ':scheme', ':authority', ':path', ':status'");
        - "VirtualService" allowing("'a b', 'a:', ':x', ''") => [
            "spec.http[0].corsPolicy.allowHeaders[0]: \"a b\" is not a header name",
            "spec.http[0].corsPolicy.allowHeaders[1]: \"a:\" is not a header name",
            "spec.http[0].corsPolicy.allowHeaders[2]: \":x\" is not a header name",
            "spec.http[0].corsPolicy.allowHeaders[3]: \"\" is not a header name",
        ];
    }
    string_match {
        + "VirtualService" matching("headers: {a: {}, b: {exact: ''}, c: {prefix: x}, d: {regex: x}}");
        - "VirtualService" matching("headers: {a: {prefix: ''}, b: {regex: ''}}") => [
            "spec.http[0].match[0].headers.a.prefix: empty prefix",
            "spec.http[0].match[0].headers.b.regex: not a regular expression: it is empty",
        ];
    }
    targets {
        + "RequestAuthentication" target("kind: Service, name: a");
        + "RequestAuthentication" target("kind: Service, group: core, name: a");
        + "RequestAuthentication" target("kind: ServiceEntry, group: networking.istio.io, name: a");
        + "RequestAuthentication" target("kind: Gateway, group: gateway.networking.k8s.io, name: a");
        + "RequestAuthentication" target("kind: GatewayClass, group: gateway.networking.k8s.io, name: a");
        - "RequestAuthentication" target("kind: Service") => ["spec.targetRefs[0].name: name is required"];
        - "RequestAuthentication" target("kind: Service, name: a, namespace: b") => [
            "spec.targetRefs[0].namespace: no namespace here",
        ];
        - "RequestAuthentication" target("kind: Service, group: networking.istio.io, name: a") => [
            "spec.targetRefs[0]: networking.istio.io/Service cannot be a target",
        ];
        - "RequestAuthentication" "{targetRef: {kind: Gateway, name: a}}" => ["spec.targetRef: /Gateway cannot be a target"];
        - "RequestAuthentication" "{selector: {matchLabels: {a: b}}, targetRef: {kind: Service, name: a}}" => [
            "spec: only one of selector, targetRef, targetRefs",
        ];
        - "RequestAuthentication" "{targetRef: {kind: Service, name: a}, targetRefs: [{kind: Service, name: a}]}" => [
            "spec: only one of selector, targetRef, targetRefs",
        ];
    }
}
