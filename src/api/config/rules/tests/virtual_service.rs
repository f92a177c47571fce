//! VirtualService as a whole, and its rules for TLS and TCP.

fn with(rest: &str) -> String {
    format!("{{http: [{{route: [{{destination: {{host: x}}}}]}}], {rest}}}")
}

fn tls(rest: &str) -> String {
    format!("{{hosts: ['*.foo.com', a.org, 10.0.0.1], tls: [{{{rest}}}]}}")
}

fn tcp(rest: &str) -> String {
    format!("{{hosts: [a], tcp: [{{{rest}}}]}}")
}

const TO: &str = "route: [{destination: {host: x}}]";

rows! { "VirtualService" "x"
    hosts_empty {
        + with("hosts: [a], gateways: [mesh], tcp: [{route: [{destination: {host: x}}]}]");
        - with("exportTo: ['*']") => ["warning: spec.hosts: without hosts it only serves as a delegate"];
        - "{gateways: [a/b], http: [{delegate: {name: d}}], tls: [{match: [{sniHosts: [a]}], route: [{destination: {host: x}}]}], tcp: [{route: [{destination: {host: x}}]}]}" => [
            "warning: spec.hosts: without hosts it only serves as a delegate",
            "spec.gateways: not in a delegate",
            "spec.http[0].delegate: not in a delegate",
            "spec.tls: not in a delegate",
            "spec.tcp: not in a delegate",
        ];
    }
    hosts_each {
        + with("hosts: [a.b, '*.c', 10.0.0.1, '::1']");
        + with("hosts: ['*'], gateways: [a/b]");
        + with("hosts: [outbound_.80_._.a.b, outbound_.80_.v1_.a.c], gateways: [a/b]");
        - with("hosts: ['*'], gateways: [mesh, a/b]") => ["spec.hosts[0]: \"*\" cannot be bound to the mesh gateway"];
        - with("hosts: ['*']") => ["spec.hosts[0]: \"*\" cannot be bound to the mesh gateway"];
        - with("hosts: [a_b]") => ["spec.hosts[0]: \"a_b\" is not a host name: \"a_b\" is not a DNS label"];
        - with("hosts: [outbound_.80_._.a]") => ["spec.hosts[0]: \"outbound_.80_._.a\" is not a host name: \"outbound_\" is not a DNS label"];
        - with("hosts: [outbound_.+80_._.a], gateways: [a/b]") => ["spec.hosts[0]: \"outbound_.+80_._.a\" is not a host name: \"outbound_\" is not a DNS label"];
        - with("hosts: [outbound_.0_._.a], gateways: [a/b]") => ["spec.hosts[0]: \"outbound_.0_._.a\" is not a host name: \"outbound_\" is not a DNS label"];
    }
    hosts_overlap {
        + with("hosts: ['*.foo.com', foo.com, 10.0.0.1, 10.0.0.2]");
        + with("hosts: ['2001:db8::1', '2001:db8::2']");
        - with("hosts: [foo.com, '*.com', foo.com]") => [
            "spec.hosts[1]: overlaps with \"foo.com\"",
            "spec.hosts[2]: overlaps with \"foo.com\"",
        ];
        - with("hosts: ['*.com', foo.com]") => ["spec.hosts[1]: overlaps with \"*.com\""];
        - with("hosts: [10.0.0.1, 10.0.0.1]") => ["spec.hosts[1]: overlaps with \"10.0.0.1\""];
        - with("hosts: ['2001:db8::1', '2001:DB8:0::1']") => ["spec.hosts[1]: overlaps with \"2001:db8::1\""];
    }
    gateways_each {
        + with("hosts: [a], gateways: [mesh, ns/b, gw]");
        - with("hosts: [a], gateways: [a/b/c, a.b]") => [
            "spec.gateways[0]: \"a/b/c\" is not NAMESPACE/NAME",
            "warning: spec.gateways[1]: write NAMESPACE/NAME",
        ];
    }
    export_to {
        + with("hosts: [a], exportTo: ['.', other]");
        + with("hosts: [a], exportTo: ['*']");
        - with("hosts: [a], exportTo: ['.', ns, '*', '~', a_b]") => [
            "spec.exportTo[1]: duplicate",
            "spec.exportTo[2]: stands only alone",
            "spec.exportTo[3]: \"~\" is not \".\", \"*\" or a namespace",
            "spec.exportTo[4]: \"a_b\" is not \".\", \"*\" or a namespace",
        ];
    }
    one_of_http_tls_tcp {
        + with("hosts: [a]");
        - "{hosts: [a]}" => ["spec: needs http, tls or tcp"];
        - "{hosts: [a], http: []}" => ["spec: needs http, tls or tcp"];
    }
    tls_each {
        + tls(&format!("match: [{{sniHosts: ['*.bar.foo.com', x.foo.com, a.org], destinationSubnets: [10.0.0.0/8], port: 443, sourceLabels: {{a: b}}, gateways: [mesh], sourceNamespace: ns}}], {TO}"));
        + "{hosts: [outbound_.80_._.a.b], gateways: [a/b], tls: [{match: [{sniHosts: [outbound_.80_._.a.b]}], route: [{destination: {host: x}}]}]}";
        - tls("match: []") => ["spec.tls[0].route: must not be empty", "spec.tls[0].match: must not be empty"];
        - tls(&format!("match: [{{}}], {TO}")) => ["spec.tls[0].match[0].sniHosts: must not be empty"];
        - tls(&format!("match: [{{sniHosts: [b.org, '*', 'a_', 10.0.0.1]}}], {TO}")) => [
            "spec.tls[0].match[0].sniHosts[0]: \"b.org\" is not covered by hosts",
            "spec.tls[0].match[0].sniHosts[1]: \"*\" is not covered by hosts",
            "spec.tls[0].match[0].sniHosts[2]: \"a_\" is not a host name: \"a_\" is not a DNS label",
            "warning: spec.tls[0].match[0].sniHosts[3]: an IP address is not sent as SNI",
        ];
        - "{hosts: [a.b], tls: [{match: [{sniHosts: [10.0.0.1]}], route: [{destination: {host: x}}]}]}" => [
            "warning: spec.tls[0].match[0].sniHosts[0]: an IP address is not sent as SNI",
        ];
        - tls(&format!("match: [{{sniHosts: [a.org], destinationSubnets: [x], port: 65536, sourceLabels: {{-a: b}}, gateways: ['/'], sourceNamespace: a.b}}], {TO}")) => [
            "spec.tls[0].match[0].destinationSubnets[0]: \"x\" is not an IP address or CIDR",
            "spec.tls[0].match[0].port: port 65536 is not in 1..65535",
            "spec.tls[0].match[0].sourceLabels.-a: \"-a\" is not a label key",
            "spec.tls[0].match[0].gateways[0]: \"/\" is not NAMESPACE/NAME",
            "spec.tls[0].match[0].sourceNamespace: \"a.b\" is not a DNS label",
        ];
    }
    tcp_each {
        + tcp(&format!("match: [{{destinationSubnets: [10.0.0.1], port: 0, sourceSubnet: '::/0', sourceLabels: {{a/b: ''}}, gateways: [a/b], sourceNamespace: ns}}], {TO}"));
        - tcp("match: []") => ["spec.tcp[0].route: must not be empty"];
        - tcp("match: [{sourceSubnet: x, destinationSubnets: [''], port: 70000, sourceLabels: {a: 'b c'}, gateways: ['*'], sourceNamespace: a_b}], route: [{}, {destination: {host: '*'}, weight: 100}]") => [
            "spec.tcp[0].match[0].sourceSubnet: \"x\" is not an IP address or CIDR",
            "spec.tcp[0].match[0].destinationSubnets[0]: \"\" is not an IP address or CIDR",
            "spec.tcp[0].match[0].port: port 70000 is not in 1..65535",
            "spec.tcp[0].match[0].sourceLabels.a: \"b c\" is not a label value",
            "spec.tcp[0].match[0].gateways[0]: \"*\" is not NAMESPACE/NAME",
            "spec.tcp[0].match[0].sourceNamespace: \"a_b\" is not a DNS label",
            "spec.tcp[0].route[0].destination: is required",
            "spec.tcp[0].route[1].destination.host: \"*\" is not a host name: it stands for all of them",
        ];
    }
    route_weights {
        + "{hosts: [a], http: [{route: [{destination: {host: x}, weight: 75}, {destination: {host: y}, weight: 25}]}]}";
        + "{hosts: [a], http: [{route: [{destination: {host: x}, weight: 0}]}]}";
        + tcp("route: [{destination: {host: x}, weight: 100}, {destination: {host: y}}]");
        - "{hosts: [a], http: [{route: [{destination: {host: x}, weight: 75}, {destination: {host: y}, weight: 20}]}]}" => ["spec.http[0].route: weights add up to 95, not 100"];
        - tcp("route: [{destination: {host: x}}, {destination: {host: y}}]") => ["spec.tcp[0].route: weights add up to 0, not 100"];
        - tls("match: [{sniHosts: [a.org]}], route: [{destination: {host: x}, weight: 60}, {destination: {host: y}, weight: 60}]") => ["spec.tls[0].route: weights add up to 120, not 100"];
    }
    never_reached {
        + "{hosts: [a], http: [{match: [{uri: {prefix: /}}], delegate: {name: d}}, {redirect: {uri: /}}]}";
        + "{hosts: [a], http: [{match: [{uri: {exact: /a}}, {uri: {exact: /b}}], redirect: {uri: /}}, {match: [{uri: {exact: /a}}, {uri: {exact: /c}}], redirect: {uri: /}}, {redirect: {uri: /}}]}";
        + "{hosts: [a], http: [{match: [{uri: {prefix: /}, method: {exact: GET}}, {uri: {regex: '.*a'}}, {uri: {exact: /}}, {uri: {prefix: /}, port: 1}], redirect: {uri: /}}, {redirect: {uri: /}}]}";
        - "{hosts: [a], http: [{redirect: {uri: /}}, {match: [{port: 1}], redirect: {uri: /}}]}" => ["warning: spec.http[1]: never reached: http[0] has no match"];
        - "{hosts: [a], http: [{match: [{}], redirect: {uri: /}}, {redirect: {uri: /}}]}" => ["warning: spec.http[1]: never reached: http[0] has no match"];
        - "{hosts: [a], http: [{match: [{port: 1}, {uri: {prefix: /}, name: b}], redirect: {uri: /}}, {redirect: {uri: /}}]}" => ["warning: spec.http[1]: never reached: http[0] matches every path"];
        - "{hosts: [a], http: [{match: [{uri: {prefix: ''}}], redirect: {uri: /}}, {match: [{uri: {prefix: /x}}], redirect: {uri: /}}]}" => ["warning: spec.http[1]: never reached: http[0] matches every path"];
        - "{hosts: [a], http: [{match: [{uri: {regex: '.*'}, ignoreUriCase: true}], redirect: {uri: /}}, {redirect: {uri: /}}]}" => [
            "warning: spec.http[0].match[0].ignoreUriCase: has no effect on a regex",
            "warning: spec.http[1]: never reached: http[0] matches every path",
        ];
        - "{hosts: [a], http: [{match: [{uri: {exact: /a}, port: 1}, {port: 2}], redirect: {uri: /}}, {match: [{port: 1, uri: {exact: /a}, name: n}], redirect: {uri: /}}]}" => [
            "warning: spec.http[1]: never reached: its matches stand in earlier rules",
        ];
        - "{hosts: [a], tcp: [{match: [{destinationSubnets: ['2001:db8::/32']}], route: [{destination: {host: x}}]}, {match: [{destinationSubnets: ['2001:DB8:0::1/32']}], route: [{destination: {host: x}}]}]}" => ["warning: spec.tcp[1]: never reached: its matches stand in earlier rules"];
        - "{hosts: [a], tcp: [{route: [{destination: {host: x}}]}, {route: [{destination: {host: x}}]}]}" => ["warning: spec.tcp[1]: never reached: tcp[0] has no match"];
    }
}

#[test]
fn three_faults_are_three_findings_in_the_order_of_the_text() {
    super::bad(
        "VirtualService",
        "x",
        "{http: [{timeout: 0s, route: [{destination: {host: ''}}]}], hosts: [a_]}",
        &[
            "spec.http[0].timeout: duration 0s is less than 1ms",
            "spec.http[0].route[0].destination.host: \"\" is not a host name: it is empty",
            "spec.hosts[0]: \"a_\" is not a host name: \"a_\" is not a DNS label",
        ],
    );
}
