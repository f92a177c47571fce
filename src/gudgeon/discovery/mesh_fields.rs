//! Fields of the mesh configuration that no role reads: an operator who moves a mesh over sees which of its settings do nothing.

use std::collections::BTreeSet;

use api::mesh::{self, MeshConfig};
use serde_json::{Map, Value as Json};

/// Fields that some role reads, each with the crate that does. Those of other names have no effect.
const READ: [(&str, &str); 37] = [
    ("accessLogEncoding", "xds"),
    ("accessLogFile", "xds"),
    ("accessLogFormat", "xds"),
    ("authPolicy", "xds"),
    ("configSources", "gudgeon"),
    ("connectTimeout", "xds"),
    ("defaultConfig", "inject"),
    ("defaultDestinationRuleExportTo", "xds"),
    ("defaultHttpRetryPolicy", "xds"),
    ("defaultServiceExportTo", "xds"),
    ("defaultVirtualServiceExportTo", "xds"),
    ("dnsRefreshRate", "xds"),
    ("enableAutoMtls", "xds"),
    ("enableEnvoyAccessLogService", "xds"),
    ("enablePrometheusMerge", "inject"),
    ("enableSdsTokenMount", "inject"),
    ("enableTracing", "xds"),
    ("extensionProviders", "xds"),
    ("h2UpgradePolicy", "xds"),
    ("inboundClusterStatName", "xds"),
    ("inboundTrafficPolicy", "inject"),
    ("ingressClass", "transform"),
    ("ingressControllerMode", "transform"),
    ("ingressSelector", "transform"),
    ("localityLbSetting", "xds"),
    ("meshMTLS", "xds"),
    ("outboundClusterStatName", "xds"),
    ("outboundTrafficPolicy", "xds"),
    ("pathNormalization", "xds"),
    ("protocolDetectionTimeout", "xds"),
    ("proxyHttpPort", "xds"),
    ("proxyListenPort", "xds"),
    ("rootNamespace", "xds"),
    ("sdsUdsPath", "inject"),
    ("tcpKeepalive", "xds"),
    ("trustDomain", "gudgeon"),
    ("trustDomainAliases", "gudgeon"),
];

/// Parts of those that have no effect for all that, by their paths.
const IDLE_PARTS: [(&str, &str); 19] = [
    ("defaultConfig", "availabilityZone"),
    ("defaultConfig", "caCertificatesPem"),
    ("defaultConfig", "discoveryRefreshDelay"),
    ("defaultConfig", "extraStatTags"),
    ("defaultConfig", "fileFlushInterval"),
    ("defaultConfig", "fileFlushMinSizeKb"),
    ("defaultConfig", "gatewayTopology.forwardClientCertDetails"),
    ("defaultConfig", "gatewayTopology.proxyProtocol"),
    ("defaultConfig", "privateKeyProvider"),
    ("defaultConfig", "proxyHeaders"),
    ("defaultConfig", "readinessProbe"),
    ("defaultConfig", "runtimeValues"),
    ("defaultConfig", "sds"),
    ("defaultConfig", "statNameLength"),
    ("defaultConfig", "statsCompression"),
    ("defaultConfig", "tracingServiceName"),
    ("meshMTLS", "cipherSuites"),
    ("meshMTLS", "ecdhCurves"),
    ("outboundTrafficPolicy", "tls"),
];

/// Fields of a provider that have an effect: it is asked whether a request is allowed.
const OF_PROVIDERS: [&str; 3] = ["envoyExtAuthzGrpc", "envoyExtAuthzHttp", "name"];

/// Names the fields that are written and that no role reads, in one line; `None`: there are none.
pub(super) fn idle(mesh: &MeshConfig) -> Option<String> {
    // Fails only of a message that was made by hand.
    let (fields, usual) = (mesh::json(mesh), mesh::json(&mesh::discovery_defaults()));
    let all = names(&fields.unwrap_or_default(), &usual.unwrap_or_default());
    let all: Vec<String> = all.into_iter().collect();
    (!all.is_empty()).then(|| {
        let all = all.join(", ");
        format!("fields of the mesh configuration that have no effect in this release: {all}")
    })
}

/// Returns the names of the fields that no role reads and whose values differ from the defaults (`usual`).
fn names(written: &Map<String, Json>, usual: &Map<String, Json>) -> BTreeSet<String> {
    let mut idle = BTreeSet::new();
    let written = written.iter();
    for (name, value) in written.filter(|(name, value)| usual.get(*name) != Some(value)) {
        if !READ.iter().any(|(read, _)| read == name) {
            idle.insert(name.clone());
        }
        let parts = IDLE_PARTS.iter().filter(|(of, _)| of == name);
        let is_written = |path: &str| {
            let at = |value: Option<&Json>| {
                let mut names = path.split('.');
                names.try_fold(value?.clone(), |value, name| value.get(name).cloned())
            };
            let written = at(Some(value));
            written.is_some() && written != at(usual.get(name))
        };
        let parts = parts.filter(|(_, part)| is_written(part));
        idle.extend(parts.map(|(of, part)| format!("{of}.{part}")));
        let providers = value.as_array().filter(|_| name == "extensionProviders");
        let fields = providers.into_iter().flatten().filter_map(Json::as_object);
        let fields = fields.flat_map(Map::keys);
        let fields = fields.filter(|field| !OF_PROVIDERS.contains(&field.as_str()));
        idle.extend(fields.map(|field| format!("{name}.{field}")));
    }
    idle
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use api::schema::ISTIO_MESH_V1ALPHA1_MESHCONFIG;
    use serde_json::json;

    use super::*;

    fn of(text: &str) -> Option<String> {
        let parsed = mesh::parse_over(&mesh::discovery_defaults(), text).unwrap();
        assert_eq!(parsed.warnings, [""; 0], "{text}");
        idle(&parsed.config)
    }

    /// Returns true if code without its tests and comments has `mesh.FIELD`, on one line or on two.
    fn reads(text: &str, field: &str) -> bool {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines = text.lines().map(str::trim);
        let code = lines.filter(|line| !line.starts_with("//"));
        let code: String = code.collect::<Vec<_>>().join(" ").replace(" .", ".");
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let read = format!("mesh.{field}");
        code.match_indices(&read).any(|(at, _)| {
            let (before, behind) = (&code[..at], &code[at + read.len()..]);
            !before.ends_with(is_letter) && !behind.starts_with(is_letter)
        })
    }

    fn has(folder: &Path, field: &str) -> bool {
        std::fs::read_dir(folder).unwrap().any(|entry| {
            let path = entry.unwrap().path();
            let is_test = path.ends_with("tests") || path.ends_with("tests.rs");
            match path.is_dir() {
                _ if is_test => false,
                true => has(&path, field),
                false => std::fs::read_to_string(&path).is_ok_and(|text| reads(&text, field)),
            }
        })
    }

    #[test]
    fn a_field_is_read_where_the_mesh_has_it() {
        for text in [
            "mesh.trust_domain.clone()",
            "f(&self.mesh.trust_domain)",
            "let a = mesh\n    .trust_domain\n    .as_ref();",
        ] {
            assert!(reads(text, "trust_domain"), "{text}");
        }
        for text in [
            "hub.trust.domain()",
            "mesh.trust_domain_aliases",
            "of_mesh.trust_domain",
            "// mesh.trust_domain",
            "#[cfg(test)]\nmod tests {\n    mesh.trust_domain",
        ] {
            assert!(!reads(text, "trust_domain"), "{text}");
        }
    }

    #[test]
    fn each_field_is_read_by_a_crate_or_logged() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let fields = ISTIO_MESH_V1ALPHA1_MESHCONFIG.fields;
        for field in fields {
            let written = Map::from_iter([(field.json.to_owned(), json!("x"))]);
            let unread = names(&written, &Map::new());
            let Some((_, by)) = READ.iter().find(|(name, _)| *name == field.json) else {
                assert_eq!(unread, BTreeSet::from([field.json.to_owned()]));
                continue;
            };
            assert!(unread.is_empty(), "{}", field.json);
            let name = field.name.replace("mTLS", "m_tls");
            assert!(has(&sources.join(by), &name), "{by} reads {name}");
        }
        for (name, _) in READ {
            assert!(fields.iter().any(|field| field.json == name), "{name}");
        }
        for (name, _) in IDLE_PARTS {
            assert!(READ.iter().any(|(read, _)| *read == name), "{name}");
        }
    }

    /// The init names them in the pod's log; discovery names them once for all pods.
    #[test]
    fn parts_that_the_init_calls_meaningless_are_told() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let text = std::fs::read_to_string(sources.join("init/config/proxy_config.rs")).unwrap();
        let keys = text.split_once("const KEYS: &str = \"").unwrap().1;
        let keys = keys.split_once("\";").unwrap().0.split_ascii_whitespace();
        let meaningless = keys.filter_map(|entry| entry.strip_suffix('='));
        let parts: Vec<&str> = meaningless.filter(|path| !path.contains('.')).collect();
        assert!(parts.len() > 5, "{parts:?}");
        for part in parts {
            assert!(IDLE_PARTS.contains(&("defaultConfig", part)), "{part}");
        }
    }

    #[test]
    fn fields_that_no_role_reads_are_logged_in_one_line() {
        for text in [
            "{}",
            "{enableTracing: false, rootNamespace: mesh, defaultConfig: {concurrency: 2}}",
            "meshMTLS: {minProtocolVersion: TLSV1_3}",
            "proxyInboundListenPort: 15006",
            "defaultConfig: {gatewayTopology: {numTrustedProxies: 2}}",
            "extensionProviders: [{name: a, envoyExtAuthzGrpc: {service: a.b, port: 80}}]",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        for (text, names) in [
            (
                "{tlsDefaults: {minProtocolVersion: TLSV1_3}, serviceSettings: [{hosts: [a]}], verifyCertificateAtClient: true}",
                "serviceSettings, tlsDefaults, verifyCertificateAtClient",
            ),
            ("defaultProviders: {tracing: [zipkin]}", "defaultProviders"),
            (
                "defaultConfig: {gatewayTopology: {numTrustedProxies: 2, forwardClientCertDetails: SANITIZE, proxyProtocol: {}}}",
                "defaultConfig.gatewayTopology.forwardClientCertDetails, defaultConfig.gatewayTopology.proxyProtocol",
            ),
            (
                "defaultConfig: {caCertificatesPem: [a], extraStatTags: [b], proxyHeaders: {server: {disabled: true}}}",
                "defaultConfig.caCertificatesPem, defaultConfig.extraStatTags, defaultConfig.proxyHeaders",
            ),
            (
                "defaultConfig: {readinessProbe: {httpGet: {port: 1}}, runtimeValues: {a: b}, statNameLength: 100, \
                 privateKeyProvider: {cryptomb: {pollDelay: 1s}}, tracingServiceName: CANONICAL_NAME_ONLY}",
                "defaultConfig.privateKeyProvider, defaultConfig.readinessProbe, defaultConfig.runtimeValues, \
                 defaultConfig.statNameLength, defaultConfig.tracingServiceName",
            ),
            ("proxyInboundListenPort: 15106", "proxyInboundListenPort"),
            (
                "meshMTLS: {minProtocolVersion: TLSV1_3, cipherSuites: [a], ecdhCurves: [P-256]}",
                "meshMTLS.cipherSuites, meshMTLS.ecdhCurves",
            ),
            (
                "extensionProviders: [{name: a, zipkin: {}}, {name: b, zipkin: {}}, {name: c, prometheus: {}}]",
                "extensionProviders.prometheus, extensionProviders.zipkin",
            ),
        ] {
            let line = of(text).unwrap();
            let (begin, fields) = line.split_once(": ").unwrap();
            let want = "fields of the mesh configuration that have no effect in this release";
            assert_eq!((begin, fields), (want, names), "{text}");
        }
    }

    /// As the charts of 1.1 to 1.8 render them with their own values.
    #[test]
    fn the_charts_of_istio_are_logged_in_one_line() {
        const PROXY: &str = "defaultConfig: {connectTimeout: 10s, configPath: /etc/istio/proxy, binaryPath: /usr/local/bin/envoy, \
            serviceCluster: istio-proxy, drainDuration: 45s, parentShutdownDuration: 1m0s, proxyAdminPort: 15000, concurrency: 2, \
            tracing: {zipkin: {address: 'zipkin.istio-system:9411'}}, controlPlaneAuthPolicy: NONE, \
            discoveryAddress: 'istio-pilot.istio-system:15010'}\n";
        const COMMON: &str = "enableTracing: true\naccessLogFile: /dev/stdout\naccessLogFormat: ''\naccessLogEncoding: TEXT\n\
            disablePolicyChecks: true\ntrustDomain: ''\noutboundTrafficPolicy: {mode: ALLOW_ANY}\n";
        let of_1_1 = "mixerReportServer: istio-telemetry.istio-system.svc.cluster.local:9091\ningressService: istio-ingressgateway\n\
            dnsRefreshRate: 5s\nsdsUdsPath: ''\nenableSdsTokenMount: false\nsdsUseK8sSaJwt: false\nrootNamespace: istio-system\n\
            configSources: [{address: 'istio-galley.istio-system.svc:9901'}]\n";
        let of_1_4 = "reportBatchMaxEntries: 100\nreportBatchMaxTime: 1s\nenableEnvoyAccessLogService: false\n\
            sidecarToTelemetrySessionAffinity: false\ndisableMixerHttpReports: true\nprotocolDetectionTimeout: 100ms\n\
            localityLbSetting: {enabled: true}\nenableAutoMtls: false\n";
        let of_1_6 = "enablePrometheusMerge: false\ningressControllerMode: STRICT\ningressClass: istio\ntrustDomainAliases: []\n\
            certificates: []\npolicyCheckFailOpen: false\n";
        let of_1_8 = "trustDomain: cluster.local\ndefaultConfig: {meshId: cluster.local, tracing: {zipkin: {address: \
            'zipkin.istio-system:9411'}}, proxyMetadata: {}, discoveryAddress: 'istiod.istio-system.svc:15012'}\n\
            enablePrometheusMerge: true\nrootNamespace: istio-system\n";
        let first = format!("{COMMON}{PROXY}{of_1_1}");
        let batched = format!("{first}{of_1_4}");
        for (text, count) in [
            (first.clone(), 3),
            (batched.clone(), 6),
            (format!("{batched}{of_1_6}"), 6),
            (of_1_8.to_owned(), 0),
        ] {
            let line = of(&text).unwrap_or_default();
            let names = line.split_once(": ").map_or("", |(_, names)| names);
            let found = names.split(", ").filter(|name| !name.is_empty()).count();
            assert_eq!(found, count, "{line}");
            assert_eq!(line.lines().count(), usize::from(count > 0), "{line}");
        }
    }
}
