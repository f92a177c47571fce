//! Sidecar and EnvoyFilter.

pub(super) mod listeners {
    fn listening(rest: &str) -> String {
        format!("{{ingress: [{{port: {{number: 80, name: a, protocol: HTTPS}}, {rest}}}]}}")
    }

    fn egress(first: &str) -> String {
        format!("{{egress: [{{{first}}}, {{hosts: ['*/*']}}]}}")
    }

    fn hosts(hosts: &str) -> String {
        format!("{{egress: [{{hosts: [{hosts}]}}]}}")
    }

    fn selecting(hosts: &str) -> String {
        format!("{{workloadSelector: {{labels: {{a: b}}}}, egress: [{{hosts: [{hosts}]}}]}}")
    }

    rows! { "Sidecar" "x"
        workload_selector {
            + "{workloadSelector: {labels: {a: b}}, outboundTrafficPolicy: {}}";
            - "{workloadSelector: {labels: {}}, outboundTrafficPolicy: {}}" => ["warning: spec.workloadSelector: selects every workload in the namespace"];
        }
        one_part {
            + "{inboundConnectionPool: {http: {}}}";
            - "{}" => ["spec: is empty"];
            - "{inboundConnectionPool: {}}" => ["spec.inboundConnectionPool: needs tcp or http"];
        }
        ingress {
            + listening("bind: 10.0.0.1, defaultEndpoint: '127.0.0.1:8080', connectionPool: {tcp: {}}");
            + listening("defaultEndpoint: 'unix:///a'");
            + listening("defaultEndpoint: '[::1]:80'");
            + listening("defaultEndpoint: ':80'");
            + listening("defaultEndpoint: '127.0.0.7:80'");
            - "{ingress: [{}]}" => ["spec.ingress[0].port: is required"];
            - "{ingress: [{port: {number: 0, name: a.b, protocol: x, targetPort: 1}, bind: a, defaultEndpoint: '10.0.0.1:80', connectionPool: {}}]}" => [
                "spec.ingress[0].port.number: port 0 is not in 1..65535",
                "spec.ingress[0].port.name: \"a.b\" is not a DNS label",
                "spec.ingress[0].port.protocol: \"x\" is not a protocol",
                "spec.ingress[0].port.targetPort: has no effect",
                "spec.ingress[0].bind: \"a\" is not an IP address",
                "spec.ingress[0].defaultEndpoint: \"10.0.0.1:80\" is not [127.0.0.1|0.0.0.0|[::1]|[::]]:PORT",
                "spec.ingress[0].connectionPool: needs tcp or http",
            ];
            - "{ingress: [{port: {number: 80}}, {port: {number: 80}, defaultEndpoint: '127.0.0.1:0'}, {port: {number: 81}, defaultEndpoint: 'unix://a'}]}" => [
                "spec.ingress[1].port.number: duplicate port 80",
                "spec.ingress[1].defaultEndpoint: port 0 is not in 1..65535",
                "spec.ingress[2].defaultEndpoint: \"a\" is not an absolute path or @name",
            ];
        }
        ingress_tls {
            + listening("tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}");
            - "{ingress: [{port: {number: 80, protocol: HTTP}, tls: {mode: AUTO_PASSTHROUGH}}]}" => [
                "spec.ingress[0].tls: needs an HTTPS or TLS port",
                "spec.ingress[0].tls.mode: AUTO_PASSTHROUGH is not allowed here",
            ];
            - listening("tls: {mode: ISTIO_MUTUAL, httpsRedirect: true, subjectAltNames: [a]}") => [
                "spec.ingress[0].tls.mode: ISTIO_MUTUAL is not allowed here",
                "spec.ingress[0].tls.httpsRedirect: not allowed here",
                "spec.ingress[0].tls.subjectAltNames: not allowed here",
            ];
            - listening("tls: {mode: SIMPLE, credentialName: c}") => ["spec.ingress[0].tls.credentialName: not allowed here"];
            - listening("tls: {mode: SIMPLE, credentialNames: [c]}") => ["spec.ingress[0].tls.credentialNames: not allowed here"];
            - listening("tls: {mode: SIMPLE, tlsCertificates: [{serverCertificate: /c, privateKey: /k}]}") => ["spec.ingress[0].tls.tlsCertificates: not allowed here"];
            - listening("tls: {mode: SIMPLE}") => [
                "spec.ingress[0].tls.serverCertificate: is required",
                "spec.ingress[0].tls.privateKey: is required",
            ];
        }
        egress_port {
            + egress("port: {number: 80, name: a, protocol: HTTP}, bind: 10.0.0.1, hosts: ['./*']");
            + egress("port: {number: 0}, bind: 'unix:///a', captureMode: NONE, hosts: ['./*']");
            - egress("hosts: ['./*']") => ["spec.egress[0].port: only the last listener may have no port"];
            - egress("port: {name: a.b, protocol: x, targetPort: 1}, captureMode: IPTABLES, hosts: ['./*']") => [
                "spec.egress[0].bind: port 0 needs unix://PATH",
                "spec.egress[0].port.name: \"a.b\" is not a DNS label",
                "spec.egress[0].port.protocol: \"x\" is not a protocol",
                "spec.egress[0].port.targetPort: has no effect",
                "spec.egress[0].captureMode: DEFAULT or NONE on a unix socket",
            ];
            - "{egress: [{port: {number: 80}, bind: a, hosts: ['*/*']}, {port: {number: 80}, hosts: ['*/*']}, {port: {number: 0}, bind: 'unix:///a', hosts: ['*/*']}, {port: {number: 0}, bind: 'unix:///a', hosts: ['*/*']}, {port: {number: 65536}, hosts: ['*/*']}]}" => [
                "spec.egress[0].bind: \"a\" is not an IP address",
                "spec.egress[1].port.number: duplicate port 80",
                "spec.egress[3].bind: duplicate socket \"unix:///a\"",
                "spec.egress[4].port.number: port 65536 is not in 1..65535",
            ];
        }
        egress_hosts {
            + hosts("'*/*', '~prod/*', '~test/a.b', '~/c.d'");
            + hosts("'*/a.b', './c.d', '~/*', ns/*.e");
            + hosts("'./*', ns/a.b");
            - hosts("") => ["spec.egress[0].hosts: must not be empty"];
            - hosts("foo/bar, a.b, 'a_/b.c', foo/10.0.0.1, foo/*b.c") => [
                "spec.egress[0].hosts[0]: short names are not allowed",
                "spec.egress[0].hosts[1]: \"a.b\" is not NAMESPACE/HOST",
                "spec.egress[0].hosts[2]: \"a_\" is not \".\", \"*\", \"~\" or a namespace",
                "spec.egress[0].hosts[3]: \"10.0.0.1\" is not a host name: its last label is a number",
                "spec.egress[0].hosts[4]: \"*b.c\" is not a host name: a wildcard only as \"*.\"",
            ];
            - hosts("'~*/*', '~a_/b.c'") => [
                "spec.egress[0].hosts[0]: \"~*\" is not \".\", \"*\", \"~\" or a namespace",
                "spec.egress[0].hosts[1]: \"~a_\" is not \".\", \"*\", \"~\" or a namespace",
            ];
            - selecting("'./*', ns/a.b, other/a.b") => ["warning: spec.egress[0].hosts[1]: covered by \"./*\""];
            - selecting("ns/*.b, './a.b'") => ["warning: spec.egress[0].hosts[1]: covered by \"ns/*.b\""];
            - selecting("ns/a.b, './a.b'") => ["warning: spec.egress[0].hosts[1]: covered by \"ns/a.b\""];
            - selecting("ns/a.b, ns/*.b, './a.b', '*/a.b', '*/a.b'") => [
                "warning: spec.egress[0].hosts[0]: covered by \"ns/*.b\"",
                "warning: spec.egress[0].hosts[2]: covered by \"ns/*.b\"",
                "warning: spec.egress[0].hosts[4]: covered by \"*/a.b\"",
            ];
        }
        egress_proxy {
            + "{outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: a.b, subset: v1, port: {number: 80}}}}";
            - "{outboundTrafficPolicy: {egressProxy: {host: '*.b', subset: a_}}}" => [
                "spec.outboundTrafficPolicy.egressProxy: only with ALLOW_ANY",
                "spec.outboundTrafficPolicy.egressProxy.port: is required",
                "spec.outboundTrafficPolicy.egressProxy.host: \"*.b\" is not a host name: \"*\" is not a DNS label",
                "spec.outboundTrafficPolicy.egressProxy.subset: \"a_\" is not a DNS label",
            ];
            - "{outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: a, port: {}}}}" => [
                "spec.outboundTrafficPolicy.egressProxy.port.number: port 0 is not in 1..65535",
            ];
        }
    }
}

pub(super) mod patches {
    fn patch(rest: &str) -> String {
        format!("{{configPatches: [{{{rest}}}]}}")
    }

    fn value(value: &str) -> String {
        patch(&format!(
            "applyTo: CLUSTER, patch: {{operation: MERGE, value: {value}}}"
        ))
    }

    fn place(apply_to: &str, place: &str) -> String {
        patch(&format!(
            "applyTo: {apply_to}, match: {{{place}}}, patch: {{operation: REMOVE}}"
        ))
    }

    fn selecting(selector: &str) -> String {
        format!(
            "{{workloadSelector: {selector}, configPatches: [{{applyTo: CLUSTER, patch: {{operation: REMOVE}}}}]}}"
        )
    }

    rows! { "EnvoyFilter" "x"
        workload_selector {
            + selecting("{labels: {a: b}}");
            + "{targetRefs: [{kind: Service, name: a}], configPatches: [{applyTo: CLUSTER, patch: {operation: REMOVE}}]}";
            - selecting("{}") => ["spec.workloadSelector.labels: must not be empty"];
            - selecting("{labels: {a: '*'}}") => ["spec.workloadSelector.labels.a: no wildcards here"];
            - "{workloadSelector: {labels: {a: b}}, targetRefs: [{kind: Service, name: a}], configPatches: [{applyTo: CLUSTER, patch: {operation: REMOVE}}]}" => [
                "spec: only one of workloadSelector, targetRefs",
            ];
        }
        without_patches {
            + patch("applyTo: CLUSTER, patch: {operation: REMOVE}");
            - "{}" => ["warning: spec: has no effect: it has no configPatches"];
            - "{configPatches: [], priority: 1}" => ["warning: spec: has no effect: it has no configPatches"];
        }
        filters {
            + patch("applyTo: CLUSTER, patch: {operation: REMOVE}");
            - "{filters: [{filterType: HTTP, filterName: a, filterConfig: {}, insertPosition: {index: AFTER, relativeTo: b}}]}" => [
                "warning: spec.filters: deprecated, only releases up to 1.5 have it",
            ];
            - "{filters: [{insertPosition: {index: BEFORE}}]}" => [
                "warning: spec.filters: deprecated, only releases up to 1.5 have it",
                "spec.filters[0].filterType: is required",
                "spec.filters[0].filterName: is required",
                "spec.filters[0].filterConfig: is required",
                "spec.filters[0].insertPosition.relativeTo: is required",
            ];
        }
        config_patches {
            + patch("applyTo: CLUSTER, patch: {operation: ADD, value: {}}, match: {proxy: {proxyVersion: '^1\\.5.*'}}");
            + patch("applyTo: CLUSTER, patch: {operation: REMOVE}");
            - patch("") => ["spec.configPatches[0].applyTo: is required", "spec.configPatches[0].patch: is required"];
            - patch("applyTo: CLUSTER, patch: {}, match: {proxy: {proxyVersion: '('}}") => [
                "spec.configPatches[0].patch.operation: is required",
                "spec.configPatches[0].patch.value: is required",
                "spec.configPatches[0].match.proxy.proxyVersion: not a regular expression: unclosed group",
            ];
        }
        config_patches_match {
            + place("LISTENER_FILTER", "listener: {}");
            + place("HTTP_ROUTE", "routeConfiguration: {}");
            + place("CLUSTER", "cluster: {}");
            + place("HTTP_FILTER", "waypoint: {filter: {name: a}}");
            + place("CLUSTER", "waypoint: {}");
            + patch("applyTo: CLUSTER, patch: {operation: MERGE_AND_REPLACE_LIST, value: {}}");
            - place("HTTP_FILTER", "routeConfiguration: {}") => ["spec.configPatches[0].match.routeConfiguration: match of this kind does not fit applyTo"];
            - place("VIRTUAL_HOST", "cluster: {}") => ["spec.configPatches[0].match.cluster: match of this kind does not fit applyTo"];
            - place("CLUSTER", "listener: {}") => ["spec.configPatches[0].match.listener: match of this kind does not fit applyTo"];
        }
        filter_chain_filter {
            + place("HTTP_FILTER", "listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: a}}}}");
            + place("NETWORK_FILTER", "listener: {filterChain: {filter: {name: a}}}");
            - place("NETWORK_FILTER", "listener: {filterChain: {filter: {subFilter: {}}}}") => [
                "spec.configPatches[0].match.listener.filterChain.filter.name: must not be empty",
                "spec.configPatches[0].match.listener.filterChain.filter.subFilter: only with HTTP_FILTER",
                "spec.configPatches[0].match.listener.filterChain.filter.subFilter.name: must not be empty",
            ];
            - place("HTTP_FILTER", "listener: {filterChain: {filter: {name: x, subFilter: {name: a}}}}") => [
                "spec.configPatches[0].match.listener.filterChain.filter.name: a subFilter needs envoy.filters.network.http_connection_manager",
            ];
            - place("LISTENER", "listener: {filterChain: {filter: {name: x}}}") => [
                "warning: spec.configPatches[0].match.listener.filterChain.filter: has no effect with LISTENER",
            ];
        }
        patch_value {
            + value("{typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, config: 1}}");
            - value("{a: [{typed_config: {}}], typedConfig: {'@type': envoy.X}}") => [
                "spec.configPatches[0].patch.value.a[0].typed_config[\"@type\"]: is required",
                "spec.configPatches[0].patch.value.typedConfig[\"@type\"]: does not start with type.googleapis.com/",
            ];
            - value("{config: {}, name: x, typed_config: {'@type': type.googleapis.com/envoy.config.filter.http.lua.v2.Lua}}") => [
                "warning: spec.configPatches[0].patch.value.config: Envoy does not read config any more, use typed_config",
                "warning: spec.configPatches[0].patch.value.typed_config[\"@type\"]: a type of Envoy's v2 API",
            ];
        }
    }
}
