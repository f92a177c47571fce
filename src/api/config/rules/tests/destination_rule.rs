//! DestinationRule.

fn policy(rest: &str) -> String {
    format!("{{host: a, trafficPolicy: {{{rest}}}}}")
}

fn balanced(rest: &str) -> String {
    policy(&format!("outlierDetection: {{}}, loadBalancer: {{{rest}}}"))
}

fn by_locality(rest: &str) -> String {
    balanced(&format!("localityLbSetting: {{{rest}}}"))
}

const AT: &str = "spec.trafficPolicy";
const FAILOVER: &str = "{loadBalancer: {localityLbSetting: {failover: [{from: a, to: b}]}}}";
const UNDETECTED: &str = "without outlierDetection a region takes over only from one without ready endpoints; in Istio it has no effect";
const NO_KEY: &str = "warning: spec.trafficPolicy.loadBalancer.consistentHash: has no effect: no hash key is set; want one of \
                      httpHeaderName, httpCookie, httpQueryParameterName, useSourceIp";

rows! { "DestinationRule" "x"
    host {
        + "{host: '*.a.b'}";
        - "{}" => ["spec.host: must not be empty"];
        - "{host: 'a_'}" => ["spec.host: \"a_\" is not a host name: \"a_\" is not a DNS label"];
    }
    subsets {
        + "{host: a, subsets: [{name: v1, labels: {v: '1'}, trafficPolicy: {tls: {}}}, {name: v2}]}";
        - "{host: a, subsets: [null, {}, {name: a.b}, {name: v1, labels: {-a: b}, trafficPolicy: {}}, {name: v1}]}" => [
            "spec.subsets[0]: must not be null",
            "spec.subsets[1].name: must not be empty",
            "spec.subsets[2].name: \"a.b\" is not a DNS label",
            "spec.subsets[3].labels.-a: \"-a\" is not a label key",
            "spec.subsets[3].trafficPolicy: needs at least one setting",
            "spec.subsets[4].name: duplicate subset \"v1\"",
        ];
    }
    export_to {
        + "{host: a, exportTo: [b, '.']}";
        + "{host: a, workloadSelector: {matchLabels: {a: b}}, exportTo: ['.']}";
        - "{host: a, exportTo: [b, b]}" => ["spec.exportTo[1]: duplicate"];
        - "{host: a, workloadSelector: {matchLabels: {a: b}}, exportTo: ['*']}" => ["spec.exportTo[0]: only the own namespace with workloadSelector"];
    }
    workload_selector {
        + "{host: a, workloadSelector: {matchLabels: {a: b}}}";
        - "{host: a, workloadSelector: {}}" => ["warning: spec.workloadSelector: selects every workload in the namespace"];
        - "{host: a, workloadSelector: {matchLabels: {'': b, c: 'd*'}}}" => [
            "spec.workloadSelector.matchLabels[\"\"]: empty key",
            "spec.workloadSelector.matchLabels.c: no wildcards here",
        ];
    }
    traffic_policy {
        + policy("tls: {}, portLevelSettings: [{port: {number: 80}, tls: {}}]");
        + policy("retryBudget: {budgetInterval: 9223372035s}");
        - policy("") => ["spec.trafficPolicy: needs at least one setting"];
        - policy("retryBudget: {budgetInterval: 9223372035.001s}, connectionPool: {tcp: {connectTimeout: 9223372036s}}") => [
            "spec.trafficPolicy.retryBudget.budgetInterval: duration 9223372035.001s is more than 9223372035s",
            "spec.trafficPolicy.connectionPool.tcp.connectTimeout: duration 9223372036s is more than 9223372035s",
        ];
        - balanced("consistentHash: {httpCookie: {name: c, ttl: 9223372036s}}, warmupDurationSecs: 9223372036s") => [
            "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.ttl: duration 9223372036s is more than 9223372035s",
            "spec.trafficPolicy.loadBalancer.warmupDurationSecs: duration 9223372036s is more than 9223372035s",
        ];
        - policy("portLevelSettings: [{port: {number: 80}, tls: {}}, {port: {number: 81}, tls: {}}, {port: {number: 80}, tls: {}}]") => [
            "warning: spec.trafficPolicy.portLevelSettings[2]: has no effect: an earlier entry is for port 80",
        ];
        - policy("tunnel: {targetHost: a, targetPort: 1}, proxyProtocol: {}") => ["spec.trafficPolicy: tunnel and proxyProtocol exclude each other"];
        - policy("portLevelSettings: [{}, {port: {}, tls: {}}]") => [
            "spec.trafficPolicy.portLevelSettings[0]: needs at least one setting",
            "spec.trafficPolicy.portLevelSettings[0].port: is required",
            "spec.trafficPolicy.portLevelSettings[1].port.number: port 0 is not in 1..65535",
        ];
    }
    connection_pool {
        + policy("connectionPool: {tcp: {maxConnections: 0, connectTimeout: 1s, maxConnectionDuration: 1s, idleTimeout: 0s, tcpKeepalive: {time: 1s, interval: 1s}}, http: {maxRetries: 1, idleTimeout: 1s, useClientProtocol: true, h2UpgradePolicy: DEFAULT}}");
        + policy("connectionPool: {http: {http2KeepAlive: {interval: 15s, timeout: 5s}}}");
        - policy("connectionPool: {http: {http2KeepAlive: {interval: 0s}}}") => [
            &*format!("{AT}.connectionPool.http.http2KeepAlive.timeout: is required"),
            &*format!("{AT}.connectionPool.http.http2KeepAlive.interval: duration 0s is less than 1ms"),
        ];
        - policy("connectionPool: {}") => ["spec.trafficPolicy.connectionPool: needs tcp or http"];
        - policy("connectionPool: {tcp: {maxConnections: -1, connectTimeout: 0s, maxConnectionDuration: 0s, idleTimeout: 0.5ms, tcpKeepalive: {time: 0s, interval: 0s}}, http: {http1MaxPendingRequests: -1, http2MaxRequests: -1, maxRequestsPerConnection: -1, maxRetries: -1, maxConcurrentStreams: -1, idleTimeout: 0s}}") => [
            &*format!("{AT}.connectionPool.tcp.maxConnections: -1 is less than 0"),
            &*format!("{AT}.connectionPool.tcp.connectTimeout: duration 0s is less than 1ms"),
            &*format!("{AT}.connectionPool.tcp.maxConnectionDuration: duration 0s is less than 1ms"),
            &*format!("{AT}.connectionPool.tcp.idleTimeout: duration 0.000500s is less than 1ms"),
            &*format!("{AT}.connectionPool.tcp.tcpKeepalive.time: duration 0s is less than 1ms"),
            &*format!("{AT}.connectionPool.tcp.tcpKeepalive.interval: duration 0s is less than 1ms"),
            &*format!("{AT}.connectionPool.http.http1MaxPendingRequests: -1 is less than 0"),
            &*format!("{AT}.connectionPool.http.http2MaxRequests: -1 is less than 0"),
            &*format!("{AT}.connectionPool.http.maxRequestsPerConnection: -1 is less than 0"),
            &*format!("{AT}.connectionPool.http.maxRetries: -1 is less than 0"),
            &*format!("{AT}.connectionPool.http.maxConcurrentStreams: -1 is less than 0"),
            &*format!("{AT}.connectionPool.http.idleTimeout: duration 0s is less than 1ms"),
        ];
        - policy("connectionPool: {http: {useClientProtocol: true, h2UpgradePolicy: UPGRADE}}") => [
            "spec.trafficPolicy.connectionPool.http: useClientProtocol and h2UpgradePolicy UPGRADE exclude each other",
        ];
    }
    outlier_detection {
        + policy("outlierDetection: {consecutiveErrors: 0, consecutive5xxErrors: 5}");
        + policy("outlierDetection: {outlierDetectionHttpErrorCodes: [429]}, retryBudget: {budgetInterval: 10s}");
        + policy("outlierDetection: {}, loadBalancer: {zoneAwareLbSetting: {enabled: true, minClusterSize: 3}}");
        + policy("outlierDetection: {interval: 1s, baseEjectionTime: 1ms, maxEjectionPercent: 100, minHealthPercent: 0, consecutive5xxErrors: 5, consecutiveLocalOriginFailures: 3, splitExternalLocalOriginErrors: true}");
        - policy("outlierDetection: {interval: 0s, baseEjectionTime: 0s, maxEjectionPercent: 101, minHealthPercent: -1, consecutiveLocalOriginFailures: 3}") => [
            "spec.trafficPolicy.outlierDetection.interval: duration 0s is less than 1ms",
            "spec.trafficPolicy.outlierDetection.baseEjectionTime: duration 0s is less than 1ms",
            "spec.trafficPolicy.outlierDetection.maxEjectionPercent: 101 is not in 0..100",
            "spec.trafficPolicy.outlierDetection.minHealthPercent: -1 is not in 0..100",
            "spec.trafficPolicy.outlierDetection.consecutiveLocalOriginFailures: has no effect without splitExternalLocalOriginErrors",
        ];
        - policy("outlierDetection: {consecutiveErrors: -1, consecutive5xxErrors: 1, consecutiveGatewayErrors: 1}") => [
            "spec.trafficPolicy.outlierDetection: consecutiveErrors and consecutive5xxErrors exclude each other",
            "spec.trafficPolicy.outlierDetection: consecutiveErrors and consecutiveGatewayErrors exclude each other",
            "spec.trafficPolicy.outlierDetection.consecutiveErrors: -1 is less than 0",
        ];
        - policy("outlierDetection: {consecutiveErrors: 5}") => [
            "warning: spec.trafficPolicy.outlierDetection.consecutiveErrors: deprecated, use consecutive5xxErrors or consecutiveGatewayErrors",
        ];
    }
    load_balancer {
        + balanced("consistentHash: {useSourceIp: true, minimumRingSize: 0, ringHash: {}}");
        + balanced("consistentHash: {useSourceIp: true, maglev: {}}");
        + balanced("consistentHash: {useSourceIp: true, maglev: {tableSize: 0}}");
        + balanced("consistentHash: {httpCookie: {name: c, ttl: 0s, attributes: [{name: a}, {name: b}]}, maglev: {tableSize: 65537}}, warmup: {duration: 1s, minimumPercent: 100, aggression: 1}");
        - balanced("consistentHash: {httpCookie: {attributes: [{}, {name: a}, {name: a}]}, minimumRingSize: 1, ringHash: {}}") => [
            "spec.trafficPolicy.loadBalancer.consistentHash: minimumRingSize and ringHash exclude each other",
            "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.name: must not be empty",
            "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.attributes[0].name: must not be empty",
            "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.attributes[2].name: duplicate attribute \"a\"",
        ];
        - balanced("consistentHash: {useSourceIp: true, maglev: {tableSize: 18446744073709551615}}") => [
            "spec.trafficPolicy.loadBalancer.consistentHash.maglev.tableSize: 18446744073709551615 is not a prime below 5000011",
        ];
        - balanced("consistentHash: {}") => [NO_KEY];
        - balanced("consistentHash: {useSourceIp: false, ringHash: {}}") => [NO_KEY];
        - balanced("consistentHash: {httpHeaderName: ''}") => [NO_KEY];
        - balanced("consistentHash: {useSourceIp: true, minimumRingSize: 1}") => [
            "warning: spec.trafficPolicy.loadBalancer.consistentHash.minimumRingSize: deprecated, use ringHash.minimumRingSize",
        ];
        - balanced("consistentHash: {useSourceIp: true, maglev: {tableSize: 65538}}, warmup: {}") => [
            "spec.trafficPolicy.loadBalancer.consistentHash.maglev.tableSize: 65538 is not a prime below 5000011",
            "spec.trafficPolicy.loadBalancer.warmup.duration: is required",
        ];
        - balanced("consistentHash: {useSourceIp: true, minimumRingSize: '1', maglev: {tableSize: '5000011'}}, warmup: {duration: 0s, minimumPercent: 101, aggression: 0.5}") => [
            "spec.trafficPolicy.loadBalancer.consistentHash: minimumRingSize and maglev exclude each other",
            "spec.trafficPolicy.loadBalancer.consistentHash.maglev.tableSize: 5000011 is not a prime below 5000011",
            "spec.trafficPolicy.loadBalancer.warmup.duration: duration 0s is less than 1ms",
            "spec.trafficPolicy.loadBalancer.warmup.minimumPercent: 101 is not in 0..100",
            "spec.trafficPolicy.loadBalancer.warmup.aggression: 0.5 is less than 1",
        ];
    }
    locality_lb_setting {
        + by_locality("distribute: [{from: a/b/*, to: {a/b/c: 75, a/c: 25}}, {from: '*', to: {'*': 100}}]");
        // Keys have no order.
        + by_locality("distribute: [{from: a, to: {'*': 25, b: 75}}, {from: b, to: {b: 75, '*': 25}}]");
        + by_locality("failover: [{from: a, to: b}], failoverPriority: [x]");
        // A subset inherits the detection of its rule.
        + format!("{{host: a, subsets: [{{name: s, trafficPolicy: {FAILOVER}}}], trafficPolicy: {{outlierDetection: {{}}}}}}");
        - by_locality("distribute: [{from: a, to: {b: 100}}], failover: [{from: a, to: a}, {from: a/b, to: '*'}]") => [
            "spec.trafficPolicy.loadBalancer.localityLbSetting: distribute and failover exclude each other",
            "spec.trafficPolicy.loadBalancer.localityLbSetting.failover[0]: from and to are the same",
            "spec.trafficPolicy.loadBalancer.localityLbSetting.failover[1].from: no / and no * in a region",
            "spec.trafficPolicy.loadBalancer.localityLbSetting.failover[1].to: no / and no * in a region",
        ];
        - by_locality("failover: [{from: a, to: b}], failoverPriority: [a, topology.kubernetes.io/zone]") => [
            "spec.trafficPolicy.loadBalancer.localityLbSetting: failover and failoverPriority exclude each other",
        ];
        - by_locality("failover: [{from: a, to: b}], failoverPriority: ['topology.istio.io/subzone=a']") => [
            "spec.trafficPolicy.loadBalancer.localityLbSetting: failover and failoverPriority exclude each other",
        ];
        - by_locality("failover: [{from: a, to: b}], failoverPriority: [topology.kubernetes.io/region]") => [
            "spec.trafficPolicy.loadBalancer.localityLbSetting: failover and failoverPriority exclude each other",
        ];
        - by_locality("distribute: [{from: '*', to: {a: 0, b: 75}}, {from: a//b, to: {a/b: 50, a: 50}}, {from: c/d, to: {c/*: 1, c/d/e: 99}}, {from: c, to: {x: 101}}]") => [
            "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].from: \"*\" only once and last",
            "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to: weights add up to 75, not 100",
            "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to.a: 0 is not in 1..100",
            "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[1].from: \"a//b\" has an empty part",
            "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[1].to[\"a/b\"]: overlaps with \"a\"",
            "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[2].to[\"c/d/e\"]: overlaps with \"c/*\"",
            "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[3].from: overlaps with \"c/d\"",
            "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[3].to: weights add up to 101, not 100",
            "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[3].to.x: 101 is not in 1..100",
        ];
        - by_locality("distribute: [{from: a/*/b, to: {'*/a': 50, 'b*': 25, 'c/d*': 25}}]") => [
            "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].from: \"*\" only once and last",
            "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to[\"*/a\"]: \"*\" only once and last",
            "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to[\"b*\"]: \"*\" stands for a whole part",
            "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to[\"c/d*\"]: \"*\" stands for a whole part",
        ];
        - policy("loadBalancer: {localityLbSetting: {failover: [{from: a, to: b}]}}") => [
            &*format!("warning: {AT}.loadBalancer.localityLbSetting.failover: {UNDETECTED}"),
        ];
        // A port inherits nothing.
        - format!("{{host: a, subsets: [{{name: s, trafficPolicy: {FAILOVER}}}]}}") => [
            &*format!("warning: spec.subsets[0].trafficPolicy.loadBalancer.localityLbSetting.failover: {UNDETECTED}"),
        ];
        - policy("outlierDetection: {}, portLevelSettings: [{port: {number: 80}, loadBalancer: {localityLbSetting: {failover: [{from: a, to: b}]}}}]") => [
            &*format!("warning: {AT}.portLevelSettings[0].loadBalancer.localityLbSetting.failover: {UNDETECTED}"),
        ];
    }
    tls {
        + policy("tls: {mode: MUTUAL, clientCertificate: /c, privateKey: /k, caCertificates: /a}");
        + policy("tls: {mode: SIMPLE, caCertificates: /a, subjectAltNames: [a]}");
        + policy("tls: {mode: MUTUAL, credentialName: c, insecureSkipVerify: true}");
        - policy("tls: {mode: MUTUAL}") => [
            "spec.trafficPolicy.tls.clientCertificate: is required",
            "spec.trafficPolicy.tls.privateKey: is required",
        ];
        - policy("tls: {mode: SIMPLE, credentialName: c, clientCertificate: /c, privateKey: /k, caCertificates: /a, caCrl: /l}") => [
            "spec.trafficPolicy.tls.clientCertificate: not beside credentialName",
            "spec.trafficPolicy.tls.privateKey: not beside credentialName",
            "spec.trafficPolicy.tls.caCertificates: not beside credentialName",
            "spec.trafficPolicy.tls.caCrl: not beside credentialName",
        ];
        - policy("tls: {mode: SIMPLE, insecureSkipVerify: true, credentialName: c, subjectAltNames: [a]}") => [
            "spec.trafficPolicy.tls.credentialName: not beside insecureSkipVerify",
            "spec.trafficPolicy.tls.subjectAltNames: not beside insecureSkipVerify",
        ];
        - policy("tls: {insecureSkipVerify: true, caCertificates: /a}") => ["spec.trafficPolicy.tls.caCertificates: not beside insecureSkipVerify"];
    }
    tunnel {
        + policy("tunnel: {protocol: POST, targetHost: 10.0.0.1, targetPort: 80}");
        - policy("tunnel: {protocol: GET}") => [
            "spec.trafficPolicy.tunnel.targetHost: \"\" is not a host name: it is empty",
            "spec.trafficPolicy.tunnel.targetPort: port 0 is not in 1..65535",
            "spec.trafficPolicy.tunnel.protocol: \"GET\" is neither CONNECT nor POST",
        ];
    }
}
