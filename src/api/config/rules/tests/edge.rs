//! Gateway, ServiceEntry and WorkloadEntry.

pub(super) mod gateway {
    fn server(rest: &str) -> String {
        format!(
            "{{servers: [{{port: {{number: 80, name: a, protocol: HTTP}}, hosts: ['*'], {rest}}}]}}"
        )
    }

    fn secure(rest: &str) -> String {
        format!(
            "{{servers: [{{port: {{number: 443, name: a, protocol: HTTPS}}, hosts: ['*'], tls: {{{rest}}}}}]}}"
        )
    }

    fn hosts(hosts: &str) -> String {
        format!(
            "{{servers: [{{port: {{number: 80, name: a, protocol: HTTP}}, hosts: [{hosts}]}}]}}"
        )
    }

    fn port(port: &str) -> String {
        format!("{{servers: [{{port: {{{port}}}, hosts: ['*']}}]}}")
    }

    #[test]
    fn the_name_is_a_label() {
        let spec = server("");
        crate::config::rules::tests::good("Gateway", "a-b", &spec);
        let findings = ["metadata.name: \"a.b\" is not a DNS label"];
        crate::config::rules::tests::bad("Gateway", "a.b", &spec, &findings);
    }

    rows! { "Gateway" "x"
        servers {
            + "{servers: [{port: {number: 80, name: a, protocol: HTTP}, hosts: ['*']}, {port: {number: 80, name: b, protocol: HTTP}, hosts: ['*']}]}";
            - "{}" => ["spec.servers: must not be empty"];
            - "{servers: [{port: {number: 80, name: a, protocol: HTTP}, hosts: ['*']}, {port: {number: 81, name: a, protocol: HTTP}, hosts: ['*']}]}" => [
                "spec.servers[1].port.name: duplicate port name \"a\"",
            ];
        }
        servers_hosts {
            + hosts("'*', 10.0.0.1, a.b, '*.b', ns/a.b, ./a.b, '*/*'");
            - hosts("") => ["spec.servers[0].hosts: must not be empty"];
            - hosts("a, 'ns/', '/a.b', 'a.b/c.d', '~/a.b', '*a.b', '*-a.b', a_.b, ns/a") => [
                "spec.servers[0].hosts[0]: short names are not allowed",
                "spec.servers[0].hosts[1]: \"\" is not a host name: it is empty",
                "spec.servers[0].hosts[2]: \"\" is not \".\", \"*\" or a namespace",
                "spec.servers[0].hosts[3]: \"a.b\" is not \".\", \"*\" or a namespace",
                "spec.servers[0].hosts[4]: \"~\" is not \".\", \"*\" or a namespace",
                "spec.servers[0].hosts[5]: \"*a.b\" is not a host name: a wildcard only as \"*.\"",
                "spec.servers[0].hosts[6]: \"*-a.b\" is not a host name: a wildcard only as \"*.\"",
                "spec.servers[0].hosts[7]: \"a_.b\" is not a host name: \"a_\" is not a DNS label",
                "spec.servers[0].hosts[8]: short names are not allowed",
            ];
        }
        servers_port {
            + port("number: 65535, name: a, protocol: TCP");
            - "{servers: [{hosts: ['*']}]}" => ["spec.servers[0].port: is required"];
            - port("number: 0, targetPort: 1") => [
                "spec.servers[0].port.protocol: must not be empty",
                "spec.servers[0].port.name: must not be empty",
                "spec.servers[0].port.number: port 0 is not in 1..65535",
                "spec.servers[0].port.targetPort: has no effect on gateways",
            ];
            - port("number: 1, name: a, protocol: SCTP") => ["spec.servers[0].port.protocol: \"SCTP\" is not a protocol"];
        }
        servers_bind {
            + server("bind: 10.0.0.1");
            + "{servers: [{port: {number: 0, name: a, protocol: HTTP}, hosts: ['*'], bind: 'unix:///a'}]}";
            - server("bind: a") => ["spec.servers[0].bind: \"a\" is not an IP address"];
            - server("bind: 'unix://a'") => [
                "spec.servers[0].port.number: port 80 is not 0 on a unix socket",
                "spec.servers[0].bind: \"a\" is not an absolute path or @name",
            ];
        }
        servers_tls {
            + server("tls: {httpsRedirect: true}");
            + server("tls: {mode: AUTO_PASSTHROUGH}");
            + secure("mode: PASSTHROUGH");
            - server("tls: {mode: SIMPLE, credentialName: c}") => ["spec.servers[0].tls: not allowed on a plain HTTP port"];
            - server("tls: {httpsRedirect: true, privateKey: /k}") => ["spec.servers[0].tls: not allowed on a plain HTTP port"];
            - server("tls: {httpsRedirect: true, credentialName: c}") => ["warning: spec.servers[0].tls.credentialName: has no effect on a plain HTTP port"];
            - port("number: 443, name: a, protocol: HTTPS") => ["spec.servers[0].tls: is required"];
            - "{servers: [{port: {number: 1, name: a, protocol: TCP}, hosts: ['*'], tls: {}}]}" => ["spec.servers[0].tls: not allowed on a TCP port"];
        }
        tls_by_mode {
            + secure("mode: ISTIO_MUTUAL");
            + secure("mode: SIMPLE, serverCertificate: /c, privateKey: /k");
            + secure("mode: MUTUAL, serverCertificate: /c, privateKey: /k, caCertificates: /a, caCrl: /l");
            + secure("mode: OPTIONAL_MUTUAL, credentialName: c");
            + secure("mode: SIMPLE, credentialNames: [c, d], caCrl: /l");
            + secure("mode: SIMPLE, tlsCertificates: [{serverCertificate: /c, privateKey: /k}]");
            - secure("mode: ISTIO_MUTUAL, serverCertificate: /c, privateKey: /k, caCertificates: /a, credentialName: c, credentialNames: [c], tlsCertificates: [{}]") => [
                "spec.servers[0].tls.serverCertificate: not allowed with ISTIO_MUTUAL",
                "spec.servers[0].tls.privateKey: not allowed with ISTIO_MUTUAL",
                "spec.servers[0].tls.caCertificates: not allowed with ISTIO_MUTUAL",
                "spec.servers[0].tls.credentialName: not allowed with ISTIO_MUTUAL",
                "spec.servers[0].tls.credentialNames: not allowed with ISTIO_MUTUAL",
                "spec.servers[0].tls.tlsCertificates: not allowed with ISTIO_MUTUAL",
            ];
            - secure("mode: SIMPLE") => [
                "spec.servers[0].tls.serverCertificate: is required",
                "spec.servers[0].tls.privateKey: is required",
            ];
            - secure("mode: MUTUAL") => [
                "spec.servers[0].tls.serverCertificate: is required",
                "spec.servers[0].tls.privateKey: is required",
                "spec.servers[0].tls.caCertificates: is required",
            ];
            - secure("mode: OPTIONAL_MUTUAL, tlsCertificates: [{}]") => [
                "spec.servers[0].tls.tlsCertificates[0].caCertificates: is required",
                "spec.servers[0].tls.tlsCertificates[0].serverCertificate: is required",
                "spec.servers[0].tls.tlsCertificates[0].privateKey: is required",
            ];
            - secure("mode: SIMPLE, credentialName: c, credentialNames: [d]") => [
                "spec.servers[0].tls: only one of credentialName, credentialNames, serverCertificate and privateKey, tlsCertificates",
            ];
            - secure("mode: SIMPLE, credentialNames: [d], serverCertificate: /c, privateKey: /k") => [
                "spec.servers[0].tls: only one of credentialName, credentialNames, serverCertificate and privateKey, tlsCertificates",
            ];
            - secure("mode: SIMPLE, credentialName: c, serverCertificate: /c, privateKey: /k") => [
                "warning: spec.servers[0].tls.credentialName: is taken, not serverCertificate and privateKey",
            ];
            - secure("mode: PASSTHROUGH, credentialName: c") => ["warning: spec.servers[0].tls.credentialName: has no effect with PASSTHROUGH"];
            - secure("mode: SIMPLE, serverCertificate: /c, privateKey: /k, caCrl: /l") => [
                "spec.servers[0].tls.caCrl: not with SIMPLE unless there is a credentialName",
            ];
        }
        tls_warnings {
            + secure("mode: SIMPLE, credentialName: c, minProtocolVersion: TLSV1_1, cipherSuites: [ECDHE-RSA-AES128-SHA, AES256-SHA]");
            + secure("mode: SIMPLE, credentialName: c, cipherSuites: [ECDHE-ECDSA-AES128-GCM-SHA256, ECDHE-ECDSA-AES256-GCM-SHA384, ECDHE-ECDSA-CHACHA20-POLY1305, ECDHE-ECDSA-AES128-SHA, ECDHE-ECDSA-AES256-SHA, ECDHE-RSA-AES128-GCM-SHA256, ECDHE-RSA-AES256-GCM-SHA384, ECDHE-RSA-CHACHA20-POLY1305, ECDHE-RSA-AES128-SHA, ECDHE-RSA-AES256-SHA, AES128-GCM-SHA256, AES128-GCM-SHA384, AES256-GCM-SHA256, AES256-GCM-SHA384, AES128-SHA, AES256-SHA, DES-CBC3-SHA]");
            + secure("mode: SIMPLE, credentialName: c, minProtocolVersion: TLSV1_2, maxProtocolVersion: TLSV1_2");
            + secure("mode: SIMPLE, credentialName: c, minProtocolVersion: TLSV1_3, maxProtocolVersion: TLS_AUTO");
            - secure("mode: SIMPLE, credentialName: c, httpsRedirect: true, minProtocolVersion: TLSV1_0") => [
                "warning: spec.servers[0].tls.httpsRedirect: has no effect on a port that is not HTTP",
                "warning: spec.servers[0].tls.minProtocolVersion: TLS below 1.2 needs cipherSuites",
            ];
            - "{servers: [{port: {number: 443, name: a, protocol: HTTPS}, hosts: ['10.0.0.1', 'n/::1', a.b], tls: {mode: SIMPLE, credentialName: c}}]}" => [
                "warning: spec.servers[0].hosts[0]: an address is no server name: no client of TLS asks for it",
                "warning: spec.servers[0].hosts[1]: an address is no server name: no client of TLS asks for it",
            ];
            - secure("mode: SIMPLE, credentialName: c, minProtocolVersion: TLSV1_3, maxProtocolVersion: TLSV1_2") => [
                "warning: spec.servers[0].tls.minProtocolVersion: is above maxProtocolVersion: no handshake succeeds",
            ];
            - secure("mode: SIMPLE, credentialName: c, cipherSuites: [AES128-SHA, X, AES128-SHA]") => [
                "warning: spec.servers[0].tls.cipherSuites[1]: \"X\" is not a known cipher suite",
                "warning: spec.servers[0].tls.cipherSuites[2]: is named twice",
            ];
        }
    }
}

pub(super) mod service_entry {
    const PORT: &str = "ports: [{number: 80, name: a, protocol: HTTP}]";

    fn with(rest: &str) -> String {
        format!("{{hosts: [a.b], {PORT}, {rest}}}")
    }

    fn fixed(endpoints: &str) -> String {
        with(&format!("resolution: STATIC, endpoints: [{endpoints}]"))
    }

    /// So many of each.
    fn many(hosts: usize, ports: usize, endpoints: usize) -> String {
        let list = |count: usize, item: &dyn Fn(usize) -> String| {
            (1..=count).map(item).collect::<Vec<_>>().join(", ")
        };
        format!(
            "{{hosts: [{}], ports: [{}], resolution: STATIC, endpoints: [{}]}}",
            list(hosts, &|at| format!("h{at}.a")),
            list(ports, &|at| format!(
                "{{number: {at}, name: p{at}, protocol: HTTP}}"
            )),
            list(endpoints, &|_| "{address: 10.0.0.1}".to_owned()),
        )
    }

    /// So many ports, with so many names of who may answer, each of so many bytes.
    fn named(ports: usize, names: usize, bytes: usize) -> String {
        let ports = (1..=ports).map(|at| format!("{{number: {at}, name: p{at}, protocol: HTTP}}"));
        let ports: Vec<_> = ports.collect();
        let names = vec!["x".repeat(bytes); names].join(", ");
        format!(
            "{{hosts: [a.b], ports: [{}], subjectAltNames: [{names}]}}",
            ports.join(", ")
        )
    }

    /// So many ports and addresses.
    fn at(ports: usize, protocol: &str, addresses: usize) -> String {
        let ports =
            (1..=ports).map(|at| format!("{{number: {at}, name: p{at}, protocol: {protocol}}}"));
        let ports: Vec<_> = ports.collect();
        let addresses = vec!["10.0.0.1"; addresses].join(", ");
        format!(
            "{{hosts: [a.b], ports: [{}], addresses: [{addresses}]}}",
            ports.join(", ")
        )
    }

    rows! { "ServiceEntry" "x"
        too_much {
            + at(64, "TCP", 64);
            + at(64, "GRPC", 65);
            + named(100, 1000, 64);
            + named(1, 1, 1024);
            + many(64, 64, 24);
            - at(64, "TLS", 65) => [
                "spec.addresses: 65 addresses with 64 ports that are not HTTP are 4160 listeners, more than 4096: split the entry",
            ];
            - named(100, 1001, 1) => [
                "spec.subjectAltNames: 1 hosts with 100 ports and 1001 subjectAltNames are 100100 places, more than 100000: split the entry",
            ];
            - named(1, 1, 1025) => ["spec.subjectAltNames[0]: want at most 1024 bytes, got 1025"];
            - fixed(&format!("{{address: 10.0.0.1, network: {}}}", "x".repeat(1025))) => [
                "spec.endpoints[0].network: want at most 1024 bytes, got 1025",
            ];
            - many(65, 64, 0) => ["spec.hosts: 65 hosts with 64 ports are 4160 ports of services, more than 4096: split the entry"];
            - many(64, 64, 25) => [
                "spec.endpoints: 64 hosts with 64 ports and 25 endpoints are 102400 places, more than 100000: split the entry",
            ];
        }
        hosts {
            + "{hosts: ['*.a', b]}";
            - "{}" => ["spec.hosts: must not be empty"];
            - "{hosts: ['*', a_]}" => [
                "spec.hosts[0]: \"*\" is not a host name: it stands for all of them",
                "spec.hosts[1]: \"a_\" is not a host name: \"a_\" is not a DNS label",
            ];
        }
        addresses {
            + with("addresses: [10.0.0.0/8, '::1'], resolution: NONE");
            + with("addresses: [10.0.0.1], resolution: DNS");
            - with("addresses: [a]") => ["spec.addresses[0]: \"a\" is not an IP address or CIDR"];
            - with("addresses: [10.0.0.0/8], resolution: DNS") => ["spec.addresses[0]: a CIDR only with resolution NONE or STATIC"];
        }
        ports {
            + "{hosts: [a], ports: [{number: 1, name: a, protocol: '', targetPort: 0}, {number: 2, name: b, protocol: grpc-web, targetPort: 65535}]}";
            - "{hosts: [a], ports: [{number: 0, name: '', protocol: x, targetPort: 65536}, {number: 1, name: a}, {number: 1, name: a}]}" => [
                "spec.ports[0].number: port 0 is not in 1..65535",
                "spec.ports[0].name: \"\" is not a DNS label",
                "spec.ports[0].protocol: \"x\" is not a protocol",
                "spec.ports[0].targetPort: port 65536 is not in 1..65535",
                "spec.ports[2].number: duplicate port 1",
                "spec.ports[2].name: duplicate port name \"a\"",
            ];
        }
        workload_selector {
            + with("workloadSelector: {labels: {a: b}}, resolution: STATIC");
            - with("workloadSelector: {labels: {a: '*'}}, resolution: STATIC, endpoints: [{address: 10.0.0.1}]") => [
                "spec.workloadSelector: workloadSelector and endpoints exclude each other",
                "spec.workloadSelector.labels.a: no wildcards here",
            ];
            - with("workloadSelector: {}") => [
                "warning: spec.workloadSelector: selects every workload in the namespace",
                "warning: spec.workloadSelector: has no effect with resolution NONE",
            ];
        }
        resolution_none {
            + with("resolution: NONE, endpoints: []");
            - with("endpoints: [{address: 10.0.0.1}]") => ["spec.endpoints: not with resolution NONE"];
        }
        resolution_static {
            + fixed("{address: 10.0.0.1, ports: {a: 8080}}");
            + fixed("{address: 'unix:///a'}");
            - fixed("{address: a.b}, {}, {network: n}") => [
                "spec.endpoints[0].address: \"a.b\" is not an IP address",
                "spec.endpoints[1].address: is required",
                "warning: spec.endpoints[2].address: only the gateways of its network are reached",
            ];
            - fixed("{address: 'unix://a', ports: {a: 1}}") => [
                "spec.endpoints[0].address: \"a\" is not an absolute path or @name",
                "spec.endpoints[0].ports: no ports on a unix socket",
            ];
            - "{hosts: [a], resolution: STATIC, ports: [{number: 1, name: a, protocol: TCP}, {number: 2, name: b, protocol: TCP}], endpoints: [{address: 'unix:///a'}]}" => [
                "spec.ports: a unix socket needs exactly one service port",
            ];
        }
        resolution_dns {
            + with("resolution: DNS");
            + "{hosts: ['*.a.b'], ports: [], resolution: DNS, endpoints: [{address: c.d}, {address: 10.0.0.1}]}";
            + with("resolution: DNS_ROUND_ROBIN, endpoints: [{address: c.d}]");
            + with("workloadSelector: {labels: {a: b}}, resolution: DNS");
            - "{hosts: ['*.a.b'], resolution: DNS}" => ["spec.hosts[0]: a wildcard cannot be resolved without endpoints"];
            - "{hosts: [a.b, '*.a.c'], resolution: DNS_ROUND_ROBIN, workloadSelector: {labels: {a: b}}}" => [
                "spec.hosts[1]: a wildcard cannot be resolved without endpoints",
            ];
            - with("resolution: DNS, endpoints: [{address: c.d}, {network: n}, {}]") => [
                "spec.endpoints[1].address: is required",
                "spec.endpoints[2].address: is required",
            ];
            - with("resolution: DNS_ROUND_ROBIN, endpoints: [{network: n}]") => ["spec.endpoints[0].address: is required"];
            - with("resolution: DNS, endpoints: [{address: 'unix:///a'}]") => [
                "spec.endpoints[0].address: \"unix:///a\" is not a host name: \"unix:///a\" is not a DNS label",
            ];
            - with("resolution: DNS_ROUND_ROBIN, endpoints: [{address: c.d}, {address: e.f}]") => ["spec.endpoints: at most one endpoint with DNS_ROUND_ROBIN"];
        }
        resolution_dynamic_dns {
            + "{hosts: ['*.a.b'], ports: [{number: 443, name: a, protocol: TLS}], resolution: DYNAMIC_DNS}";
            - "{hosts: [a.b], addresses: [10.0.0.1], ports: [{number: 443, name: a, protocol: HTTPS}], resolution: DYNAMIC_DNS, endpoints: [{address: c.d}]}" => [
                "spec.hosts[0]: DYNAMIC_DNS needs a wildcard",
                "spec.addresses: not with resolution DYNAMIC_DNS",
                "spec.ports[0].protocol: DYNAMIC_DNS needs http, http2, grpc or tls",
                "spec.endpoints: not with resolution DYNAMIC_DNS",
            ];
        }
        endpoints {
            + fixed("{address: 10.0.0.1, ports: {a: 65535}, labels: {a/b: c}}");
            - fixed("{address: 10.0.0.1, ports: {b: 0, a.b: 1}, labels: {a: 'b c'}}") => [
                "spec.endpoints[0].ports.b: \"b\" is not a port of the service",
                "spec.endpoints[0].ports.b: port 0 is not in 1..65535",
                "spec.endpoints[0].ports[\"a.b\"]: \"a.b\" is not a DNS label",
                "spec.endpoints[0].labels.a: \"b c\" is not a label value",
            ];
        }
        several_hosts {
            + "{hosts: [a, b], resolution: DNS, ports: [{number: 1, name: a, protocol: TLS}, {number: 2, name: b, protocol: grpc}]}";
            + "{hosts: [a, b], resolution: NONE, ports: [{number: 1, name: a, protocol: TCP}]}";
            - "{hosts: [a, b], resolution: DNS, ports: [{number: 1, name: a, protocol: TCP}]}" => ["spec.ports[0].protocol: several hosts need HTTP or TLS ports"];
        }
        export_to {
            + with("exportTo: ['~']");
            - with("exportTo: ['~', '.']") => ["spec.exportTo[0]: stands only alone"];
        }
    }
}

pub(super) mod workload_entry {
    rows! { "WorkloadEntry" "x"
        workload_entry {
            + "{address: a.b, ports: {http: 80}, labels: {a: b}}";
            + "{address: '::1'}";
            + "{address: 'unix://@a'}";
            - "{}" => ["spec.address: is required"];
            - format!("{{address: a.b, locality: {}}}", "x".repeat(1025)) => [
                "spec.locality: want at most 1024 bytes, got 1025",
            ];
            - "{network: n}" => ["warning: spec.address: only the gateways of its network are reached"];
            - "{address: a_, ports: {a.b: 0}, labels: {'': b}}" => [
                "spec.address: \"a_\" is not a host name: \"a_\" is not a DNS label",
                "spec.ports[\"a.b\"]: \"a.b\" is not a DNS label",
                "spec.ports[\"a.b\"]: port 0 is not in 1..65535",
                "spec.labels[\"\"]: \"\" is not a label key",
            ];
            - "{address: 'unix:///a/', ports: {a: 1}}" => [
                "spec.address: \"/a/\" is not an absolute path or @name",
                "spec.ports: no ports on a unix socket",
            ];
        }
    }
}
