//! The mesh configuration, as it is served.

fn proxy(rest: &str) -> String {
    format!("{{defaultConfig: {{{rest}}}}}")
}

rows! { "MeshConfig" ""
    ports {
        + "{proxyListenPort: 1}";
        + proxy("proxyAdminPort: 65535");
        - "{proxyListenPort: 0}" => ["proxyListenPort: port 0 is not in 1..65535"];
        - proxy("proxyAdminPort: 65536") => ["defaultConfig.proxyAdminPort: port 65536 is not in 1..65535"];
    }
    status_port {
        + proxy("statusPort: 0");
        + proxy("statusPort: 15020");
        - proxy("statusPort: 65536") => ["defaultConfig.statusPort: port 65536 is not in 1..65535"];
    }
    connect_timeout {
        + "{connectTimeout: 1ms}";
        + "{connectTimeout: 30s}";
        - "{connectTimeout: 30.001s}" => ["connectTimeout: duration 30.001s is more than 30s"];
        - "{connectTimeout: 0s}" => ["connectTimeout: duration 0s is less than 1ms"];
        - "{connectTimeout: 1.0005s}" => ["connectTimeout: duration 1.000500s is not a whole number of milliseconds"];
    }
    protocol_detection_timeout {
        + "{protocolDetectionTimeout: 0s}";
        + "{protocolDetectionTimeout: 5ms}";
        - "{protocolDetectionTimeout: 5500us}" => ["protocolDetectionTimeout: duration 0.005500s is not a whole number of milliseconds"];
    }
    not_empty {
        + proxy("configPath: a, binaryPath: b, serviceCluster: c");
        + proxy("tracingServiceName: CANONICAL_NAME_ONLY");
        - proxy("configPath: ''") => ["defaultConfig.configPath: must not be empty"];
        - proxy("binaryPath: ''") => ["defaultConfig.binaryPath: must not be empty"];
        - proxy("serviceCluster: ''") => ["defaultConfig.serviceCluster: must not be empty"];
    }
    drain_duration {
        + proxy("drainDuration: 59s");
        + proxy("drainDuration: 1h");
        - proxy("drainDuration: 59s, parentShutdownDuration: 59s") => ["defaultConfig.drainDuration: want less than parentShutdownDuration, 59s, got 59s"];
        - proxy("parentShutdownDuration: 45s") => ["defaultConfig.drainDuration: want less than parentShutdownDuration, 45s, got 45s"];
        - proxy("parentShutdownDuration: -1s") => ["defaultConfig.parentShutdownDuration: duration -1s is less than 1ms"];
        - proxy("drainDuration: 3601s") => ["defaultConfig.drainDuration: duration 3601s is more than 1h"];
        - proxy("drainDuration: 1500ms") => ["defaultConfig.drainDuration: duration 1.500s is not a whole number of seconds"];
        - proxy("drainDuration: 0s") => ["defaultConfig.drainDuration: duration 0s is less than 1ms"];
    }
    addresses {
        + proxy("discoveryAddress: 'a.b:1', statsdUdpAddress: '', zipkinAddress: '[::1]:1', tracing: {zipkin: {address: '$(HOST_IP):9411'}}");
        + proxy("envoyMetricsService: {address: '10.0.0.1:1'}, envoyAccessLogService: {address: 'als:1'}");
        + proxy("envoyAccessLogService: {address: ''}");
        + proxy("envoyMetricsService: {address: ''}");
        + proxy("tracing: {}");
        - proxy("discoveryAddress: ''") => ["defaultConfig.discoveryAddress: \"\" is not HOST:PORT"];
        - proxy("statsdUdpAddress: a") => ["defaultConfig.statsdUdpAddress: \"a\" is not HOST:PORT"];
        - proxy("zipkinAddress: 'a:0'") => ["defaultConfig.zipkinAddress: \"a:0\" is not HOST:PORT"];
        - proxy("tracing: {zipkin: {address: 'a b:1'}}") => ["defaultConfig.tracing.zipkin.address: \"a b:1\" is not HOST:PORT"];
        - proxy("tracing: {zipkin: {address: 'a_b.c:9411'}}") => ["defaultConfig.tracing.zipkin.address: \"a_b.c:9411\" is not HOST:PORT"];
        - proxy("tracing: {lightstep: {address: 'a', accessToken: t}}") => ["defaultConfig.tracing.lightstep.address: \"a\" is not HOST:PORT"];
        - proxy("tracing: {zipkin: {}}") => ["defaultConfig.tracing.zipkin.address: \"\" is not HOST:PORT"];
        - proxy("tracing: {zipkin: {address: ''}}") => ["defaultConfig.tracing.zipkin.address: \"\" is not HOST:PORT"];
        - proxy("tracing: {lightstep: {accessToken: a}}") => ["defaultConfig.tracing.lightstep.address: \"\" is not HOST:PORT"];
        - proxy("tracing: {datadog: {}}") => ["defaultConfig.tracing.datadog.address: \"\" is not HOST:PORT"];
        - proxy("tracing: {datadog: {address: ':1'}}") => ["defaultConfig.tracing.datadog.address: \":1\" is not HOST:PORT"];
        - proxy("envoyMetricsService: {address: 'a'}") => ["defaultConfig.envoyMetricsService.address: \"a\" is not HOST:PORT"];
        - proxy("envoyAccessLogService: {address: 'a:70000'}") => ["defaultConfig.envoyAccessLogService.address: \"a:70000\" is not HOST:PORT"];
    }
    lightstep_access_token {
        + proxy("tracing: {lightstep: {address: 'a:1', accessToken: t}}");
        - proxy("tracing: {lightstep: {address: 'a:1'}}") => ["defaultConfig.tracing.lightstep.accessToken: must not be empty"];
    }
    locality_lb_setting {
        + "{localityLbSetting: {distribute: [{from: 'a/*', to: {'a/*': 60, b: 40}}]}}";
        - "{localityLbSetting: {distribute: [{from: a, to: {a: 60, b: 30}}]}}" => ["localityLbSetting.distribute[0].to: weights add up to 90, not 100"];
        - "{localityLbSetting: {failover: [{from: a, to: a}]}}" => ["localityLbSetting.failover[0]: from and to are the same"];
        - "{localityLbSetting: {failover: [{from: 'a/b', to: a}]}}" => ["localityLbSetting.failover[0].from: no / and no * in a region"];
    }
    trust_domain {
        + "{trustDomain: a.b, trustDomainAliases: [c]}";
        + "{trustDomain: ''}";
        - "{trustDomain: a_b}" => ["trustDomain: \"a_b\" is not a DNS name"];
        - "{trustDomain: a/b}" => ["trustDomain: \"a/b\" is not a DNS name"];
        - "{trustDomainAliases: [a, '']}" => ["trustDomainAliases[1]: \"\" is not a DNS name"];
    }
    fields {
        + "{ingressControllerMode: OFF, enableTracing: yes}";
        - "{extensionProviders: [{name: a, zipkin: {}, datadog: {}}, {name: b, envoyExtAuthzHttp: {port: x}}]}" => [
            "warning: extensionProviders[0]: only one of zipkin, datadog may be set",
            "warning: extensionProviders[1].envoyExtAuthzHttp.port: \"x\" is not an integer",
        ];
        - "{extension_providers: 1, default_config: {image: {imageType: 5}, proxy_headers: 1}}" => [
            "warning: extensionProviders: want a list, got 1",
            "warning: defaultConfig.image.imageType: expected a string; quote the value",
            "warning: defaultConfig.proxyHeaders: want an object, got 1",
        ];
        - "{trustDomian: a}" => ["warning: trustDomian: unknown field, did you mean \"trustDomain\"?"];
        - "{mixerCheckServer: a}" => ["warning: mixerCheckServer: deprecated, only releases up to 1.5 have it"];
        - "{accessLogEncoding: XML}" => ["accessLogEncoding: \"XML\" is not one of TEXT, JSON"];
    }
}

#[test]
fn an_empty_file_means_the_defaults() {
    let read = crate::mesh::parse_served("{}").unwrap();
    assert_eq!(read.config, crate::mesh::galley_defaults());
    assert_eq!(
        serde_json::Value::Object(crate::mesh::json(&read.config).unwrap()),
        serde_json::json!({
            "proxyListenPort": 15001, "connectTimeout": "1s", "ingressService": "istio-ingressgateway", "ingressClass": "istio",
            "ingressControllerMode": "STRICT", "enableTracing": true, "rootNamespace": "istio-system",
            "outboundTrafficPolicy": {"mode": "ALLOW_ANY"}, "defaultServiceExportTo": ["*"],
            "defaultVirtualServiceExportTo": ["*"], "defaultDestinationRuleExportTo": ["*"], "dnsRefreshRate": "5s",
            "protocolDetectionTimeout": "0.100s", "trustDomain": "cluster.local", "enableAutoMtls": false,
            "defaultConfig": {
                "configPath": "/etc/istio/proxy", "binaryPath": "/usr/local/bin/envoy", "serviceCluster": "istio-proxy",
                "drainDuration": "45s", "parentShutdownDuration": "60s", "discoveryAddress": "istio-pilot:15010",
                "proxyAdminPort": 15000, "statNameLength": 189,
            },
        })
    );
    let read = crate::mesh::parse_served("defaultConfig: {drainDuration: 2s}").unwrap();
    let proxy = read.config.default_config.unwrap();
    assert_eq!(proxy.drain_duration.unwrap().seconds, 2);
    assert_eq!(proxy.proxy_admin_port, 15000);
}
