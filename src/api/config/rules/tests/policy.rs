//! AuthorizationPolicy.

fn from(source: &str) -> String {
    format!("{{rules: [{{from: [{{source: {{{source}}}}}]}}]}}")
}

fn to(operation: &str) -> String {
    format!("{{rules: [{{to: [{{operation: {{{operation}}}}}]}}]}}")
}

fn asked(when: &str) -> String {
    format!("{{rules: [{{when: [{{{when}}}]}}]}}")
}

fn deny(rule: &str) -> String {
    format!("{{action: DENY, rules: [{rule}]}}")
}

fn custom(rule: &str) -> String {
    format!("{{action: CUSTOM, provider: {{name: p}}, rules: [{rule}]}}")
}

rows! { "AuthorizationPolicy" "x"
    selector_and_targets {
        + "{targetRefs: [{kind: Service, name: a}, {kind: ServiceEntry, group: networking.istio.io, name: a}, {kind: GatewayClass, group: gateway.networking.k8s.io, name: a}]}";
        - "{selector: {}, targetRefs: [{kind: Pod, group: core, namespace: n}]}" => [
            "spec: only one of selector, targetRef, targetRefs",
            "warning: spec.selector: selects every workload in the namespace",
            "spec.targetRefs[0]: core/Pod cannot be a target",
            "spec.targetRefs[0].name: name is required",
            "spec.targetRefs[0].namespace: no namespace here",
        ];
    }
    rules {
        + "{}";
        + "{action: DENY, rules: [{}]}";
        + custom("{from: [{source: {ipBlocks: [10.0.0.0/8]}}], when: [{key: 'request.headers[a]', values: [b]}]}");
        - "{action: DENY}" => ["spec.rules: never matches; add an empty rule"];
        - "{action: CUSTOM, rules: []}" => [
            "spec.provider.name: must not be empty",
            "spec.rules: never matches; add an empty rule",
        ];
        - "{provider: {name: p}}" => ["spec.provider: only with CUSTOM"];
        - custom("{from: [{source: {namespaces: [a], notPrincipals: [b], requestPrincipals: [c], trustDomains: [d]}}, {source: {notServiceAccounts: [e]}}], when: [{key: source.principal, values: [a]}, {key: 'request.auth.claims[a]', values: [b]}]}") => [
            "spec.rules[0].from[0].source.namespaces: not supported with CUSTOM",
            "spec.rules[0].from[0].source.notPrincipals: not supported with CUSTOM",
            "spec.rules[0].from[0].source.requestPrincipals: not supported with CUSTOM",
            "spec.rules[0].from[0].source.trustDomains: not supported with CUSTOM",
            "spec.rules[0].from[1].source.notServiceAccounts: not supported with CUSTOM",
            "spec.rules[0].when[0].key: not supported with CUSTOM",
            "spec.rules[0].when[1].key: not supported with CUSTOM",
        ];
        - custom("{when: [{key: source.namespace, values: [a]}, {key: source.serviceAccount, values: [a]}, {key: source.trustDomain, values: [a]}, {key: request.auth.audiences, values: [a]}, {key: connection.sni, values: [a]}]}") => [
            "spec.rules[0].when[0].key: not supported with CUSTOM",
            "spec.rules[0].when[1].key: not supported with CUSTOM",
            "spec.rules[0].when[2].key: not supported with CUSTOM",
            "spec.rules[0].when[3].key: not supported with CUSTOM",
        ];
    }
    rules_each {
        + "{rules: [{}]}";
        - "{rules: [null, {from: []}, {to: []}]}" => [
            "spec.rules[0]: must not be null",
            "spec.rules[1].from: must not be empty",
            "spec.rules[2].to: must not be empty",
        ];
    }
    from_source {
        + from("principals: ['*'], namespaces: [a], ipBlocks: [10.0.0.0/8], remoteIpBlocks: ['::1']");
        + from("serviceAccounts: [a, b/c], trustDomains: ['*.a', 'b*', c]");
        + from(&format!("serviceAccounts: [{}]", (0..16).map(|at| format!("a{at}")).collect::<Vec<_>>().join(", ")));
        + from(&format!("serviceAccounts: ['{}']", "a".repeat(320)));
        - "{rules: [{from: [{}]}]}" => ["spec.rules[0].from[0].source: is required"];
        - from("") => [
            "spec.rules[0].from[0].source: needs one of principals, notPrincipals, requestPrincipals, notRequestPrincipals, namespaces, notNamespaces, ipBlocks, notIpBlocks, remoteIpBlocks, notRemoteIpBlocks, serviceAccounts, notServiceAccounts, trustDomains, notTrustDomains",
        ];
        - from("principals: [''], ipBlocks: [a], notIpBlocks: [b], remoteIpBlocks: [c], notRemoteIpBlocks: [10.0.0.1/33]") => [
            "spec.rules[0].from[0].source.principals[0]: must not be empty",
            "spec.rules[0].from[0].source.ipBlocks[0]: \"a\" is not an IP address or CIDR",
            "spec.rules[0].from[0].source.notIpBlocks[0]: \"b\" is not an IP address or CIDR",
            "spec.rules[0].from[0].source.remoteIpBlocks[0]: \"c\" is not an IP address or CIDR",
            "spec.rules[0].from[0].source.notRemoteIpBlocks[0]: \"10.0.0.1/33\" is not an IP address or CIDR",
        ];
        - from("serviceAccounts: ['a*', a/b/c, a/], namespaces: [n]") => [
            "spec.rules[0].from[0].source: serviceAccounts and namespaces exclude each other",
            "spec.rules[0].from[0].source.serviceAccounts[0]: no wildcards in \"a*\"",
            "spec.rules[0].from[0].source.serviceAccounts[1]: \"a/b/c\" is not NAME or NAMESPACE/NAME",
            "spec.rules[0].from[0].source.serviceAccounts[2]: \"a/\" is not NAME or NAMESPACE/NAME",
        ];
        - from(&format!("serviceAccounts: [{}]", "a, ".repeat(17))) => ["spec.rules[0].from[0].source.serviceAccounts: more than 16"];
        - from(&format!("serviceAccounts: [{}]", "a".repeat(321))) => [
            &*format!("spec.rules[0].from[0].source.serviceAccounts[0]: \"{}…\" is longer than 320 characters", "a".repeat(256)),
        ];
        - from("trustDomains: ['a*b', '*a*', 'a/b']") => [
            "spec.rules[0].from[0].source.trustDomains[0]: \"a*b\": one * at most, first or last, no /",
            "spec.rules[0].from[0].source.trustDomains[1]: \"*a*\": one * at most, first or last, no /",
            "spec.rules[0].from[0].source.trustDomains[2]: \"a/b\": one * at most, first or last, no /",
        ];
    }
    to_operation {
        + to("ports: ['0', '65535'], paths: ['/a/{*}/b/{**}', '/x*'], methods: [GET]");
        - "{rules: [{to: [{}]}]}" => ["spec.rules[0].to[0].operation: is required"];
        - to("methods: []") => [
            "spec.rules[0].to[0].operation: needs one of hosts, notHosts, ports, notPorts, methods, notMethods, paths, notPaths",
        ];
        - to("ports: ['65536', 'x'], notPorts: ['+1'], hosts: [''], paths: ['/a{*}', '/{**}/{*}'], notPaths: ['/{a}', '/{**}/{**}']") => [
            "spec.rules[0].to[0].operation.ports[0]: port \"65536\" is not in 0..65535",
            "spec.rules[0].to[0].operation.ports[1]: port \"x\" is not in 0..65535",
            "spec.rules[0].to[0].operation.notPorts[0]: port \"+1\" is not in 0..65535",
            "spec.rules[0].to[0].operation.hosts[0]: must not be empty",
            "spec.rules[0].to[0].operation.paths[0]: {*} and {**} only as whole segments in \"/a{*}\"",
            "spec.rules[0].to[0].operation.paths[1]: nothing of the kind after {**} in \"/{**}/{*}\"",
            "spec.rules[0].to[0].operation.notPaths[0]: {*} and {**} only as whole segments in \"/{a}\"",
            "spec.rules[0].to[0].operation.notPaths[1]: nothing of the kind after {**} in \"/{**}/{**}\"",
        ];
        - to("paths: ['/admin/{*}/*', '*/{*}'], notPaths: ['/{**}/b*', '/a*/{*}']") => [
            "spec.rules[0].to[0].operation.paths[0]: no * beside {*} and {**} in \"/admin/{*}/*\"",
            "spec.rules[0].to[0].operation.paths[1]: no * beside {*} and {**} in \"*/{*}\"",
            "spec.rules[0].to[0].operation.notPaths[0]: no * beside {*} and {**} in \"/{**}/b*\"",
            "spec.rules[0].to[0].operation.notPaths[1]: no * beside {*} and {**} in \"/a*/{*}\"",
        ];
    }
    when {
        + asked("key: source.ip, values: [10.0.0.0/8], notValues: ['::1']");
        + asked("key: 'request.auth.claims[a][b]', values: [x]");
        + asked("key: 'experimental.envoy.filters.network.mysql_proxy[db.t]', values: ['[x]']");
        + asked("key: destination.port, values: ['0']");
        - asked("") => [
            "spec.rules[0].when[0]: values or notValues must not be empty",
            "spec.rules[0].when[0].key: is required",
        ];
        - asked("key: remote.ip, values: [a, '']") => [
            "spec.rules[0].when[0].values[0]: \"a\" is not an IP address or CIDR",
            "spec.rules[0].when[0].values[1]: must not be empty",
        ];
        - asked("key: destination.port, notValues: ['65536']") => ["spec.rules[0].when[0].notValues[0]: port \"65536\" is not in 0..65535"];
        - asked("key: a, values: [b]") => ["spec.rules[0].when[0].key: unknown key \"a\""];
        - asked("key: request.headers, values: [b]") => ["spec.rules[0].when[0].key: unknown key \"request.headers\""];
        - asked("key: 'request.headers[a][b]', values: [b]") => ["spec.rules[0].when[0].key: unknown key \"request.headers[a][b]\""];
        - asked("key: 'request.auth.claims[]', values: [b]") => ["spec.rules[0].when[0].key: unknown key \"request.auth.claims[]\""];
        - asked("key: 'source.ip[a]', values: [10.0.0.1]") => [
            "spec.rules[0].when[0].key: unknown key \"source.ip[a]\"",
        ];
        - asked("key: destination.namespace, values: [b]") => ["spec.rules[0].when[0].key: not supported any more, use the namespace of the policy"];
        - asked("key: 'destination.labels[a]', values: [b]") => ["spec.rules[0].when[0].key: not supported any more, use the selector of the policy"];
    }
    deny_of_tcp {
        + deny("{to: [{operation: {paths: [/a], ports: ['80']}}]}");
        + deny("{from: [{source: {namespaces: [a]}}]}");
        + deny("{}");
        + deny("{from: [{source: {principals: [a]}}], to: [{operation: {paths: [/a], ports: ['80']}}]}");
        - deny("{from: [{source: {principals: [a]}}], to: [{operation: {methods: [GET]}}]}") => ["warning: spec.rules[0]: denies all TCP traffic of the clients that it names; name the ports"];
        - deny("{to: [{operation: {paths: [/a]}}]}") => ["warning: spec.rules[0]: denies all TCP traffic in its scope; name the ports"];
        - deny("{from: [{source: {notRequestPrincipals: ['*']}}]}") => ["warning: spec.rules[0]: denies all TCP traffic in its scope; name the ports"];
        - deny("{when: [{key: 'request.headers[a]', values: [b]}]}") => ["warning: spec.rules[0]: denies all TCP traffic in its scope; name the ports"];
    }
}
