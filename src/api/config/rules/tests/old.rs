//! Kinds of the releases to 1.5.

pub(super) mod policy {
    #[test]
    fn the_policy_of_a_namespace_is_called_default() {
        let findings = ["spec.targets: not in the policy default"];
        crate::config::rules::tests::bad("Policy", "default", "{targets: [{name: a}]}", &findings);
        crate::config::rules::tests::good("Policy", "default", "{peers: [{mtls: {}}]}");
    }

    rows! { "Policy" "x"
        policy {
            + "{targets: [{name: a, ports: [{number: 80}, {name: http}]}], peers: [{mtls: {}}, {jwt: {issuer: i}}], origins: [{jwt: {issuer: j, audiences: [a], jwtHeaders: [h], jwtParams: [p], jwksUri: 'http://a'}}]}";
            - "{}" => ["spec.targets: must not be empty"];
            - "{targets: [{name: a.b, ports: [{}, {name: a_}]}], peers: [{jwt: {audiences: [''], jwtHeaders: [''], jwtParams: ['']}}], origins: [{}, {jwt: {issuer: i}}, {jwt: {issuer: i, jwksUri: x}}]}" => [
                "spec.targets[0].name: \"a.b\" is not a DNS label",
                "spec.targets[0].ports[0].number: port 0 is not in 1..65535",
                "spec.targets[0].ports[1].name: \"a_\" is not a DNS label",
                "spec.peers[0].jwt.issuer: must not be empty",
                "spec.peers[0].jwt.audiences[0]: must not be empty",
                "spec.peers[0].jwt.jwtHeaders[0]: must not be empty",
                "spec.peers[0].jwt.jwtParams[0]: must not be empty",
                "spec.origins[0].jwt: is required",
                "spec.origins[2].jwt.issuer: duplicate issuer \"i\"",
                "spec.origins[2].jwt.jwksUri: \"x\" is not an http or https URL",
            ];
        }
    }
}

pub(super) mod mesh_policy {
    #[test]
    fn mesh_policy_must_be_named_default() {
        let findings = ["metadata.name: \"x\" is not \"default\""];
        crate::config::rules::tests::bad("MeshPolicy", "x", "{}", &findings);
    }

    rows! { "MeshPolicy" "default"
        mesh_policy {
            + "{peers: [{mtls: {}}]}";
            - "{targets: [{name: a}], origins: [{jwt: {}}]}" => [
                "spec.targets: not for the whole mesh",
                "spec.origins[0].jwt.issuer: must not be empty",
            ];
        }
    }
}

pub(super) mod role {
    rows! { "ServiceRole" "x"
        service_role {
            + "{rules: [{services: ['*'], methods: [GET], ports: [80], constraints: [{key: a, values: [b]}]}]}";
            - "{}" => ["spec.rules: must not be empty"];
            - "{rules: [{methods: [a], notMethods: [b], ports: [0], notPorts: [65536], constraints: [{}, {key: destination.port, values: ['1']}]}]}" => [
                "spec.rules[0]: methods and notMethods exclude each other",
                "spec.rules[0]: ports and notPorts exclude each other",
                "spec.rules[0].ports[0]: port 0 is not in 1..65535",
                "spec.rules[0].notPorts[0]: port 65536 is not in 1..65535",
                "spec.rules[0].constraints[0].key: must not be empty",
                "spec.rules[0].constraints[0].values: must not be empty",
                "spec.rules[0].constraints[1].key: not beside ports or notPorts",
            ];
        }
    }
}

pub(super) mod binding {
    rows! { "ServiceRoleBinding" "x"
        service_role_binding {
            + "{subjects: [{user: '*'}, {names: [a], properties: {source.ip: b}}], roleRef: {kind: ServiceRole, name: r}}";
            + "{subjects: [{properties: {source.principal: '*'}}], role: r}";
            + "{subjects: [{user: a}], actions: [{services: [a]}]}";
            + "{subjects: [{names: ['a*'], notNames: ['*b']}], role: r}";
            + "{subjects: [{notNames: [a], notGroups: [b], notNamespaces: [c], notIps: [d], properties: {source.principal: x, 'request.auth.claims[groups]': x, source.namespace: x, source.ip: x}}], role: r}";
            - "{}" => ["spec: exactly one of roleRef, role, actions", "spec.subjects: must not be empty"];
            - "{subjects: [{}, {properties: {}}, {names: ['*'], notNames: ['*']}], roleRef: {}, role: /}" => [
                "spec: exactly one of roleRef, role, actions",
                "spec.subjects[0]: must not be empty",
                "spec.subjects[1]: must not be empty",
                "spec.subjects[2].names[0]: \"*\" alone is not a name",
                "spec.subjects[2].notNames[0]: \"*\" alone is not a name",
                "spec.roleRef.kind: \"\" is not \"ServiceRole\"",
                "spec.roleRef.name: must not be empty",
                "spec.role: \"/\" is not the name of a role",
            ];
            - "{subjects: [{names: [a], groups: [b], namespaces: [c], ips: [d], properties: {source.principal: x, 'request.auth.claims[groups]': x, source.namespace: x, source.ip: x}}], role: r}" => [
                "spec.subjects[0].properties[\"source.principal\"]: not beside names",
                "spec.subjects[0].properties[\"request.auth.claims[groups]\"]: not beside groups",
                "spec.subjects[0].properties[\"source.namespace\"]: not beside namespaces",
                "spec.subjects[0].properties[\"source.ip\"]: not beside ips",
            ];
            - "{subjects: [{user: a}], actions: [{ports: [0]}]}" => ["spec.actions[0].ports[0]: port 0 is not in 1..65535"];
        }
    }
}

pub(super) mod cluster_config {
    #[test]
    fn cluster_rbac_config_must_be_named_default() {
        let findings = ["metadata.name: \"x\" is not \"default\""];
        crate::config::rules::tests::bad("ClusterRbacConfig", "x", "{}", &findings);
    }

    rows! { "ClusterRbacConfig" "default"
        cluster_rbac_config {
            + "{mode: ON_WITH_INCLUSION, inclusion: {namespaces: [a]}}";
            + "{mode: 'ON'}";
            - "{mode: ON_WITH_INCLUSION}" => ["spec.inclusion: is required"];
            - "{mode: ON_WITH_EXCLUSION, inclusion: {}}" => ["spec.exclusion: is required"];
        }
    }
}

pub(super) mod config {
    // Every one of them is deprecated: what passes still has its warning.
    #[test]
    fn a_good_one_has_its_warning_only() {
        let findings = ["warning: spec: deprecated, use ClusterRbacConfig"];
        crate::config::rules::tests::bad("RbacConfig", "default", "{mode: 'ON'}", &findings);
    }

    #[test]
    fn rbac_config_warns_and_requires_exclusion() {
        let findings = [
            "warning: spec: deprecated, use ClusterRbacConfig",
            "spec.exclusion: is required",
        ];
        let spec = "{mode: ON_WITH_EXCLUSION}";
        crate::config::rules::tests::bad("RbacConfig", "default", spec, &findings);
    }

    pub(in crate::config::rules::tests) const ROWS: &[(&str, &str)] =
        &[("RbacConfig", "rbac_config")];
}

pub(super) mod api {
    rows! { "HTTPAPISpec" "x"
        http_api_spec {
            + "{attributes: {attributes: {a: {stringValue: b}, c: {boolValue: false}, d: {durationValue: 1ms}, e: {stringMapValue: {entries: {f: ''}}}}}, patterns: [{httpMethod: GET, uriTemplate: /a}, {httpMethod: GET, regex: a}], apiKeys: [{query: k}]}";
            - "{}" => ["spec.patterns: must not be empty"];
            - "{attributes: {}, patterns: [{attributes: {attributes: {a: {}, b: {stringValue: ''}, c: {durationValue: 0s}, d: {durationValue: 1500us}, e: {stringMapValue: {}}, f: {bytesValue: ''}}}}], apiKeys: [{}, {header: ''}]}" => [
                "spec.attributes.attributes: must not be empty",
                "spec.patterns[0]: needs uriTemplate or regex",
                "spec.patterns[0].httpMethod: must not be empty",
                "spec.patterns[0].attributes.attributes.a: must not be empty",
                "spec.patterns[0].attributes.attributes.b.stringValue: must not be empty",
                "spec.patterns[0].attributes.attributes.c.durationValue: duration 0s is less than 1ms",
                "spec.patterns[0].attributes.attributes.d.durationValue: duration 0.001500s is not a whole number of milliseconds",
                "spec.patterns[0].attributes.attributes.e.stringMapValue.entries: must not be empty",
                "spec.patterns[0].attributes.attributes.f.bytesValue: must not be empty",
                "spec.apiKeys[0]: must not be empty",
                "spec.apiKeys[1].header: must not be empty",
            ];
        }
    }
}

pub(super) mod api_binding {
    rows! { "HTTPAPISpecBinding" "x"
        http_api_spec_binding {
            + "{services: [{name: a, namespace: b, domain: c.d, labels: {e: f}}, {service: '*'}], apiSpecs: [{name: a, namespace: b}]}";
            - "{}" => ["spec.services: must not be empty", "spec.apiSpecs: must not be empty"];
            - "{services: [{}, {name: a, service: b}, {name: a.b, namespace: a_, domain: '*', labels: {-a: b}}, {service: s, namespace: n, domain: d}], apiSpecs: [{namespace: a.b}]}" => [
                "spec.services[0]: exactly one of name and service",
                "spec.services[1]: exactly one of name and service",
                "spec.services[2].name: \"a.b\" is not a DNS label",
                "spec.services[2].namespace: \"a_\" is not a DNS label",
                "spec.services[2].domain: \"*\" is not a host name: \"*\" is not a DNS label",
                "spec.services[2].labels.-a: \"-a\" is not a label key",
                "spec.services[3].namespace: not beside service",
                "spec.services[3].domain: not beside service",
                "spec.apiSpecs[0].name: must not be empty",
                "spec.apiSpecs[0].namespace: \"a.b\" is not a DNS label",
            ];
        }
    }
}

pub(super) mod quota_binding {
    rows! { "QuotaSpecBinding" "x"
        quota_spec_binding {
            + "{services: [{name: a}], quotaSpecs: [{name: q}]}";
            - "{services: [{name: a}]}" => ["spec.quotaSpecs: must not be empty"];
        }
    }
}

pub(super) mod quota {
    rows! { "QuotaSpec" "x"
        quota_spec {
            + "{rules: [{match: [{clause: {a: {exact: b}}}], quotas: [{quota: q, charge: 1}]}]}";
            - "{}" => ["spec.rules: must not be empty"];
            - "{rules: [{}, {match: [{clause: {a: {}, b: {prefix: ''}}}], quotas: [{}]}]}" => [
                "spec.rules[0].quotas: must not be empty",
                "spec.rules[1].match[0].clause.a: must not be empty",
                "spec.rules[1].match[0].clause.b: must not be empty",
                "spec.rules[1].quotas[0].quota: must not be empty",
                "spec.rules[1].quotas[0].charge: 0 is not over 0",
            ];
        }
    }
}
