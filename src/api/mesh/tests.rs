//! Mesh configurations as people write them, and as generators do.

use proptest::prelude::*;

use super::*;
use crate::duration;
use crate::schema::{FieldKind, Shape};

fn read(text: &str) -> MeshConfig {
    let parsed = parse(text).unwrap();
    assert_eq!(parsed.warnings, Vec::<String>::new(), "{text}");
    parsed.config
}

fn cause(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

fn proxy(config: MeshConfig) -> ProxyConfig {
    config.default_config.unwrap()
}

#[test]
fn settings_that_mean_something_else_in_discovery_are_warned_of() {
    let text = "outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS}\noutboundClusterStatName: '%FOO%_%SERVICE%'\n\
                extensionProviders:\n- {name: a, envoyExtAuthzGrpc: {service: s.n, port: 80}}\n\
                - {name: a, envoyExtAuthzHttp: {service: '', port: 70000}}\n";
    let read = parse_over(&discovery_defaults(), text).unwrap();
    assert_eq!(
        read.warnings,
        [
            "line 1: outboundTrafficPolicy.mode: is served as ALLOW_ANY: names of unknown hosts are not resolved",
            "line 2: outboundClusterStatName: \"%FOO%\" is not replaced: gudgeon knows %SERVICE%, %SERVICE_FQDN%, \
             %SERVICE_NAME%, %SERVICE_PORT%, %SERVICE_PORT_NAME%, %SUBSET_NAME%",
            "line 5: extensionProviders[1].name: \"a\" is named twice: the first counts",
            "line 5: extensionProviders[1].envoyExtAuthzHttp.service: names no service: policies with this provider deny \
             all requests and connections",
            "line 5: extensionProviders[1].envoyExtAuthzHttp.port: port 70000 is not in 1..65535: policies with this provider deny \
             all requests and connections",
        ]
    );
    assert_eq!(parse(text).unwrap().warnings, [""; 0]);
}

#[test]
fn a_config_map_is_told_from_what_it_holds() {
    let text = "apiVersion: v1\ndata:\n  mesh: |\n    trustDomain: a\nkind: ConfigMap\nmetadata: {name: istio}\n";
    let message = "line 5: kind: this is a ConfigMap; give the text of its data.mesh, or of data.meshNetworks for the networks";
    assert_eq!(cause(text), message);
    assert_eq!(parse_served(text).unwrap_err().to_string(), message);
}

#[test]
fn nothing_is_the_defaults() {
    for text in [
        "",
        "# nothing\n",
        "---\n",
        "{}",
        "null",
        "defaultConfig: {}\n",
        "trustDomain:\n",
    ] {
        assert_eq!(read(text), defaults(), "{text}");
    }
    let printed = serde_json::to_string(&json(&defaults()).unwrap()).unwrap();
    for part in [
        r#""proxyListenPort":15001"#,
        r#""proxyInboundListenPort":15006"#,
        r#""connectTimeout":"1s""#,
        r#""rootNamespace":"istio-system""#,
        r#""enablePrometheusMerge":true"#,
        r#""discoveryAddress":"istio-pilot:15010""#,
        r#""parentShutdownDuration":"60s""#,
        r#""serviceCluster":"istio-proxy""#,
        r#""statNameLength":189"#,
    ] {
        assert!(printed.contains(part), "{part} in {printed}");
    }
}

#[test]
fn omitted_fields_keep_their_defaults() {
    let config = read(
        "defaultConfig:\n  statusPort: 15021\n  drainDuration: 1m0s\n  parentShutdownDuration: 2m\n",
    );
    let proxy = proxy(config);
    assert_eq!(proxy.status_port, 15021);
    assert_eq!(proxy.proxy_admin_port, 15000);
    assert_eq!(proxy.drain_duration.unwrap().seconds, 60);
    assert_eq!(proxy.termination_drain_duration.unwrap().seconds, 5);
}

#[test]
fn written_values_win_even_if_they_are_zero() {
    let config = read(
        "enableTracing: false\naccessLogFile: \"\"\nenablePrometheusMerge: false\nproxyHttpPort: 0\n\
         protocolDetectionTimeout: 0s\ndefaultConfig:\n  tracingServiceName: APP_LABEL_AND_NAMESPACE\n  concurrency: 0\n  statsdUdpAddress: ''\n",
    );
    assert!(!config.enable_tracing);
    assert_eq!(config.access_log_file, "");
    assert!(!config.enable_prometheus_merge.unwrap().value);
    let proxy = proxy(config);
    assert_eq!(proxy.concurrency.unwrap().value, 0);
    assert_eq!(
        proxy.cluster_name,
        Some(proxy_config::ClusterName::TracingServiceName(0))
    );
}

/// As the chart of 1.1 renders it.
#[test]
fn a_file_of_istio_1_1_is_read() {
    let config = read(
        r#"disablePolicyChecks: false
enableTracing: true
accessLogFile: "/dev/stdout"
accessLogFormat: ""
accessLogEncoding: 'TEXT'
mixerCheckServer: istio-policy.istio-system.svc.cluster.local:9091
mixerReportServer: istio-telemetry.istio-system.svc.cluster.local:9091
policyCheckFailOpen: false
ingressService: istio-ingressgateway
connectTimeout: 10s
sdsUdsPath: "unix:/var/run/sds/uds_path"
enableSdsTokenMount: true
sdsUseK8sSaJwt: false
trustDomain:
outboundTrafficPolicy:
  mode: ALLOW_ANY
localityLbSetting:
  {}
rootNamespace: istio-system
configSources:
- address: istio-galley.istio-system.svc:9901
  tlsSettings:
    mode: ISTIO_MUTUAL
defaultConfig:
  connectTimeout: 10s
  configPath: "/etc/istio/proxy"
  binaryPath: "/usr/local/bin/envoy"
  serviceCluster: istio-proxy
  drainDuration: 45s
  parentShutdownDuration: 1m0s
  proxyAdminPort: 15000
  concurrency: 2
  tracing:
    lightstep:
      address: lightstep.example:443
      accessToken: abc
      secure: true
      cacertPath: /etc/lightstep/cacert.pem
  controlPlaneAuthPolicy: MUTUAL_TLS
  discoveryAddress: istio-pilot.istio-system:15011
"#,
    );
    assert!(config.enable_sds_token_mount);
    assert_eq!(config.sds_uds_path, "unix:/var/run/sds/uds_path");
    let proxy = proxy(config);
    assert_eq!(proxy.control_plane_auth_policy, 1);
    assert_eq!(proxy.concurrency.unwrap().value, 2);
    let Some(tracing::Tracer::Lightstep(lightstep)) = proxy.tracing.unwrap().tracer else {
        panic!("lightstep");
    };
    assert!(lightstep.secure);
    assert_eq!(lightstep.access_token, "abc");
}

#[test]
fn a_file_of_today_is_read() {
    let config = read(
        r#"accessLogFile: /dev/stdout
defaultProviders:
  metrics:
  - prometheus
discoverySelectors:
- matchLabels: {mesh: "yes"}
  matchExpressions:
  - {key: app, operator: In, values: [a, b]}
enablePrometheusMerge: true
meshMTLS: {minProtocolVersion: TLSV1_3}
defaultConfig:
  discoveryAddress: istiod.istio-system.svc:15012
  holdApplicationUntilProxyStarts: yes
  image: {imageType: distroless}
  proxyMetadata: {ISTIO_META_DNS_CAPTURE: "true"}
  tracing:
    sampling: 12.5
    datadog: {address: "$(HOST_IP):8126"}
rootNamespace: null
trustDomain: cluster.local
"#,
    );
    assert_eq!(config.trust_domain, "cluster.local");
    assert_eq!(config.root_namespace, "istio-system");
    let proxy = proxy(config);
    assert!(proxy.hold_application_until_proxy_starts.unwrap().value);
    assert_eq!(proxy.proxy_metadata["ISTIO_META_DNS_CAPTURE"], "true");
    assert!((proxy.tracing.unwrap().sampling - 12.5).abs() < f64::EPSILON);
}

#[test]
fn unknown_fields_are_named_in_one_warning() {
    let parsed =
        parse("a: 1\ndefaultConfig:\n  bé: [2]\n  statusPort: 15021\n\"c\\n\": {d: 1}\n").unwrap();
    assert_eq!(proxy(parsed.config).status_port, 15021);
    assert_eq!(
        parsed.warnings,
        [r#"unknown fields are ignored: a, defaultConfig["bé"], ["c\n"]"#]
    );
    let many: String = (0..20).map(|at| format!("x{at}: 1\n")).collect();
    let warnings = parse(&many).unwrap().warnings;
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].ends_with("x15 and 4 more"), "{warnings:?}");
}

/// Text and what is said of it.
const WRONG: &[(&str, &str)] = &[
    ("5", "line 1: want an object, got 5"),
    ("- a", "line 1: want an object, got a list"),
    (
        "trustDomain: 5",
        "line 1: trustDomain: expected a string; quote the value",
    ),
    ("trustDomain: [a]", "line 1: trustDomain: expected a string"),
    (
        "enable_tracing: 'true'",
        "line 1: enableTracing: expected true or false",
    ),
    (
        "proxyListenPort: x",
        "line 1: proxyListenPort: \"x\" is not an integer",
    ),
    (
        "proxyListenPort: 1.5",
        "line 1: proxyListenPort: 1.5 is not an integer",
    ),
    (
        "proxyListenPort: 0",
        "line 1: proxyListenPort: port 0 is not in 1..65535",
    ),
    (
        "proxyListenPort: 65536",
        "line 1: proxyListenPort: port 65536 is not in 1..65535",
    ),
    (
        "proxyListenPort: 3000000000",
        "line 1: proxyListenPort: 3000000000 is not in -2147483648..2147483647",
    ),
    (
        "\ndefaultConfig:\n  statusPort: -1",
        "line 3: defaultConfig.statusPort: port -1 is not in 1..65535",
    ),
    (
        "defaultConfig: {concurrency: -1}",
        "line 1: defaultConfig.concurrency: -1 is less than 0",
    ),
    (
        "defaultConfig: {interceptionMode: tproxy}",
        "line 1: defaultConfig.interceptionMode: \"tproxy\" is not one of REDIRECT, TPROXY, NONE",
    ),
    (
        "configSources: [{}, {address: [1]}]",
        "line 1: configSources[1].address: expected a string",
    ),
    (
        "defaultConfig: {proxyMetadata: {A: 1}}",
        "line 1: defaultConfig.proxyMetadata.A: expected a string; quote the value",
    ),
    (
        "connectTimeout: 5",
        "line 1: connectTimeout: expected a duration such as \"1.5s\"",
    ),
    (
        "connectTimeout: 999us",
        "line 1: connectTimeout: duration 0.000999s is less than 1ms",
    ),
    (
        "connectTimeout: -1s",
        "line 1: connectTimeout: duration -1s is less than 1ms",
    ),
    (
        "defaultConfig: {discoveryAddress: istiod}",
        "line 1: defaultConfig.discoveryAddress: \"istiod\" is not HOST:PORT",
    ),
    (
        "defaultConfig: {tracing: {zipkin: {address: 'a:0'}}}",
        "line 1: defaultConfig.tracing.zipkin.address: \"a:0\" is not HOST:PORT",
    ),
    (
        "defaultConfig: {tracing: {zipkin: {}, datadog: {}}}",
        "line 1: defaultConfig.tracing: only one of zipkin, datadog may be set",
    ),
    (
        "defaultConfig: {configPath: a, config_path: b}",
        "line 1: defaultConfig.configPath: written twice",
    ),
    (
        "defaultConfig:\n  drainDuration: 2m\n  parentShutdownDuration: 1m\n",
        "line 2: defaultConfig.drainDuration: want less than parentShutdownDuration, 1m0s, got 2m0s",
    ),
    (
        "default_config:\n  parent_shutdown_duration: 45s\n",
        "line 2: defaultConfig.drainDuration: want less than parentShutdownDuration, 45s, got 45s",
    ),
    ("a: 1\na: 2", "line 2: the key \"a\" twice"),
    (
        "trustDomain: a\nrootNamespace: !x b",
        "line 2: cannot use the tag \"!x\"",
    ),
    (
        "proxyListenPort: !!int x",
        "line 1: \"x\" does not match its tag",
    ),
    // Only releases up to 1.1 had it, and numbers of enums are as closed as their names.
    (
        "outboundTrafficPolicy: {mode: VIRTUAL_SERVICE_ONLY}",
        "line 1: outboundTrafficPolicy.mode: \"VIRTUAL_SERVICE_ONLY\" is not one of REGISTRY_ONLY, ALLOW_ANY, ALLOW_ANY_DYNAMIC_DNS",
    ),
    (
        "outboundTrafficPolicy: {mode: 2}",
        "line 1: outboundTrafficPolicy.mode: \"2\" is not one of REGISTRY_ONLY, ALLOW_ANY, ALLOW_ANY_DYNAMIC_DNS",
    ),
];

#[test]
fn tags_of_the_core_are_no_surprise() {
    let config =
        read("trustDomain: !!str 'true'\nproxyListenPort: !!int 1234\ndefaultConfig: !!map {}");
    assert_eq!(config.trust_domain, "true");
    assert_eq!(config.proxy_listen_port, 1234);
    assert!(parse_networks("networks: !x {}").is_err());
}

#[test]
fn errors_name_the_path_of_the_field() {
    for (text, expected) in WRONG {
        assert_eq!(cause(text), *expected, "{text}");
    }
}

#[test]
fn addresses_are_host_and_port() {
    let address = |text: &str| {
        let text = serde_json::json!({"defaultConfig": {"discoveryAddress": text}}).to_string();
        parse(&text).is_ok()
    };
    for text in [
        "istiod.istio-system.svc:15012",
        "127.0.0.1:1",
        "[::1]:65535",
        "$(HOST_IP):8126",
        "localhost:80",
        "a.b.:80",
        "1.2.3.4x:1",
    ] {
        assert!(address(text), "{text}");
    }
    for text in [
        "",
        ":1",
        "a:",
        "a:b",
        "a:+1",
        "a:65536",
        "::1:80",
        "[::1:80",
        "[x]:80",
        "a b:1",
        "-a:1",
        "a-:1",
        "a..b:1",
        "1.2.3:1",
        "1.2.3.4.5:1",
        "$():1",
        "$(A B):1",
        "http://a:1",
        "a:1/x",
        "_x.y:1",
        "a_b:1",
    ] {
        assert!(!address(text), "{text}");
    }
}

/// Resolvers know names with underscores, and no agent starts with one.
#[test]
fn roles_that_start_proxies_want_addresses_of_agents() {
    for text in [
        "discoveryAddress: 'a_b:1'",
        "envoyMetricsServiceAddress: 'm_x:1'",
        "envoyMetricsService: {address: 'm_x:1'}",
        "envoyAccessLogService: {address: 'a_x:1'}",
        "tracing: {zipkin: {address: 'z_x:1'}}",
    ] {
        let of_mesh = format!("defaultConfig: {{{text}}}");
        assert!(cause(&of_mesh).ends_with("is not HOST:PORT"), "{text}");
        let of_pod = parse_proxy(&proxy_defaults(), text).unwrap_err();
        assert!(of_pod.to_string().ends_with("is not HOST:PORT"), "{text}");
        assert!(
            parse_over(&discovery_defaults(), &of_mesh).is_ok(),
            "{text}"
        );
    }
    let variable = "discoveryAddress: '$(A_B):1'";
    assert!(parse_proxy(&proxy_defaults(), variable).is_ok());
}

#[test]
fn a_pod_lays_its_own_over_the_mesh() {
    let mesh = read(
        "defaultConfig:\n  concurrency: 2\n  proxyMetadata: {A: a, B: b}\n  tracing:\n    sampling: 5\n    zipkin: {address: 'z:1'}\n",
    );
    let base = proxy(mesh);
    let parsed = parse_proxy(
        &base,
        "concurrency: 0\nproxy_metadata: {B: x, C: c}\ntracing: {datadog: {address: 'd:1'}}\nstrange: 1\n",
    )
    .unwrap();
    assert_eq!(parsed.warnings, ["unknown fields are ignored: strange"]);
    let config = parsed.config;
    assert_eq!(config.concurrency.unwrap().value, 0);
    let metadata: Vec<_> = config.proxy_metadata.into_iter().collect();
    assert_eq!(
        metadata,
        [("A", "a"), ("B", "x"), ("C", "c")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
    let tracing = config.tracing.unwrap();
    // Another field of its group took its place.
    assert!(matches!(tracing.tracer, Some(tracing::Tracer::Datadog(_))));
    assert!((tracing.sampling - 5.0).abs() < f64::EPSILON);
    let wrong = parse_proxy(&base, "a: 1\ndrainDuration: 0s").unwrap_err();
    assert_eq!((wrong.path.as_str(), wrong.line), ("drainDuration", 2));
    // Of a pod's own, Istio holds it against nothing.
    assert!(parse_proxy(&base, "drainDuration: 60s").is_ok());
    assert_eq!(parse_proxy(&base, "").unwrap().config, base);
}

#[test]
fn chosen_values_differ_from_defaults() {
    let usual = proxy_defaults();
    assert_eq!(chosen(&usual, &Map::new()).unwrap(), Map::new());
    let rows = [
        (
            "concurrency: 3\nstatusPort: 15020",
            serde_json::json!({"concurrency": 3}),
        ),
        // Istio's agents have another default, so that it counts that somebody wrote ours.
        (
            "discovery_address: istio-pilot:15010\ndrainDuration: 45s\ncontrolPlaneAuthPolicy: NONE",
            serde_json::json!({"discoveryAddress": "istio-pilot:15010"}),
        ),
        ("concurrency: 0", serde_json::json!({"concurrency": 0})),
    ];
    for (text, wanted) in rows {
        let config = parse_proxy(&usual, text).unwrap().config;
        let written = parse_proxy(&usual, text).unwrap().written;
        assert_eq!(
            Json::Object(chosen(&config, &written).unwrap()),
            wanted,
            "{text}"
        );
    }
}

/// A few aliases stand for as many values as one likes, and each pod is read anew.
#[test]
fn a_pods_text_has_few_values() {
    let line = |of: &str| format!("{of}: [{}]", ["*a"; 40].join(", "));
    let text = format!(
        "a: &a [{}]\n{}\n{}",
        ["1"; 40].join(", "),
        line("b"),
        line("c")
    );
    let wrong = parse_proxy(&proxy_defaults(), &text).unwrap_err();
    assert!(wrong.to_string().contains("2000"), "{wrong}");
}

#[test]
fn written_defaults_hold_for_all_proxies() {
    let written =
        written_defaults("defaultConfig: {concurrency: 2, proxy_metadata: {A: b}}").unwrap();
    assert_eq!(
        Json::Object(written.clone()),
        serde_json::json!({"concurrency": 2, "proxyMetadata": {"A": "b"}})
    );
    let pod = parse_proxy(&proxy_defaults(), "proxyMetadata: {C: d}\nstatusPort: 1")
        .unwrap()
        .written;
    assert_eq!(
        Json::Object(written_over(&written, pod)),
        serde_json::json!({"concurrency": 2, "proxyMetadata": {"A": "b", "C": "d"}, "statusPort": 1})
    );
    for none in ["", "trustDomain: x", "defaultConfig:"] {
        assert!(written_defaults(none).unwrap().is_empty(), "{none}");
    }
}

#[test]
fn numbers_on_the_wire_are_istios() {
    // Key, then value: `number << 3 | wire type`.
    let bytes = |key: u32| {
        let mut out = Vec::new();
        prost::encoding::encode_varint(key.into(), &mut out);
        out
    };
    let mesh = |config: MeshConfig| prost::Message::encode_to_vec(&config);
    let port = MeshConfig {
        proxy_inbound_listen_port: 1,
        ..MeshConfig::default()
    };
    assert_eq!(mesh(port), [bytes(65 << 3), vec![1]].concat());
    let token = MeshConfig {
        enable_sds_token_mount: true,
        ..MeshConfig::default()
    };
    assert_eq!(mesh(token), [bytes(23 << 3), vec![1]].concat());
    let proxy = ProxyConfig {
        status_port: 1,
        ..ProxyConfig::default()
    };
    assert_eq!(
        prost::Message::encode_to_vec(&proxy),
        [bytes(26 << 3), vec![1]].concat()
    );
    let nested = MeshConfig {
        default_config: Some(ProxyConfig::default()),
        ..MeshConfig::default()
    };
    assert_eq!(mesh(nested), [bytes(14 << 3 | 2), vec![0]].concat());
}

/// Any valid text of a message, by its table.
struct Generator(u64);

impl Generator {
    fn below(&mut self, max: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % max
    }

    fn message(&mut self, message: &'static Message) -> (Json, Json) {
        let (mut one, mut other) = (Map::new(), Map::new());
        let mut groups = Vec::new();
        for field in message.fields {
            let taken = field.oneof.is_some() && groups.contains(&field.oneof);
            // Of two fields that contradict each other, the first.
            let against = field.name == "failover" && one.contains_key("distribute");
            // A tracer is where it is.
            let is_tracer = message.name.contains(".Tracing.");
            let wanted = field.name == "access_token" || is_tracer && field.name == "address";
            if taken || against || !wanted && self.below(3) > 0 {
                continue;
            }
            groups.push(field.oneof);
            let mut parts = Vec::new();
            for at in 0..match field.shape {
                Shape::One => 1,
                Shape::List | Shape::Map(_) => 1 + self.below(2),
            } {
                parts.push(match field.name {
                    "address"
                    | "zipkin_address"
                    | "discovery_address"
                    | "statsd_udp_address"
                    | "envoy_metrics_service_address" => both("a.b:1"),
                    "drain_duration" => both("3s"),
                    "time" | "interval" => both("7s"),
                    "probes" => both(1 + self.below(127)),
                    "connect_timeout" | "protocol_detection_timeout" => both("2.250s"),
                    "trust_domain" | "trust_domain_aliases" => both("a.b"),
                    "access_log_format" => both("{}"),
                    "distribute" => both(
                        serde_json::json!({"from": format!("a{at}/*"), "to": {"a/*": 1, "b": 99}}),
                    ),
                    "failover" => both(serde_json::json!({"from": "a", "to": "b"})),
                    "parent_shutdown_duration" => both("1m0s"),
                    _ => self.value(field.kind),
                });
            }
            let (left, right): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
            let shaped = |parts: Vec<Json>| match field.shape {
                Shape::One => parts[0].clone(),
                Shape::List => Json::Array(parts),
                Shape::Map(_) => Json::Object(
                    parts
                        .into_iter()
                        .enumerate()
                        .map(|(at, part)| (format!("k é{at}"), part))
                        .collect(),
                ),
            };
            one.insert(field.json.to_owned(), shaped(left));
            other.insert(field.name.to_owned(), shaped(right));
        }
        (Json::Object(one), Json::Object(other))
    }

    fn value(&mut self, kind: FieldKind) -> (Json, Json) {
        match kind {
            FieldKind::Message(message) => self.message(message),
            FieldKind::Wrapper(kind) => self.value(*kind),
            FieldKind::Bool => both(true),
            FieldKind::Int32 | FieldKind::Int64 | FieldKind::Uint32 | FieldKind::Uint64 => {
                both(1 + self.below(60_000))
            }
            FieldKind::Float | FieldKind::Double => {
                both(1.0 + f64::from(u16::try_from(self.below(1000)).unwrap()) / 7.0)
            }
            FieldKind::Enum(kinds) => {
                // The first is not written where it stands alone.
                let min = usize::from(kinds.values.len() > 1);
                let at = self.below((kinds.values.len() - min) as u64);
                let (name, number) = kinds.values[min + usize::try_from(at).unwrap()];
                (Json::from(name), Json::from(number))
            }
            FieldKind::Duration => {
                let nanos = i128::from(1_000_000 + self.below(1 << 40));
                let read = duration::parse(&format!("{nanos}ns")).unwrap();
                (duration::proto(&read).into(), duration::go(&read).into())
            }
            FieldKind::Struct | FieldKind::Any => both(serde_json::json!({"a": ["b", null, true]})),
            FieldKind::String | FieldKind::Bytes | FieldKind::Timestamp => {
                let texts = [
                    "x", "15000", "true", "a: b", " # ", "ü\n\"\\", "null", "\u{7}{{",
                ];
                both(texts[usize::try_from(self.below(texts.len() as u64)).unwrap()])
            }
        }
    }
}

fn both(value: impl Into<Json>) -> (Json, Json) {
    let value = value.into();
    (value.clone(), value)
}

/// Returns true if `whole` has all that `part` has.
fn contains(whole: &Json, part: &Json) -> bool {
    match (whole, part) {
        (Json::Object(whole), Json::Object(part)) => part
            .iter()
            .all(|(key, part)| whole.get(key).is_some_and(|whole| contains(whole, part))),
        (Json::Array(whole), Json::Array(part)) => {
            whole.len() == part.len()
                && whole
                    .iter()
                    .zip(part)
                    .all(|(whole, part)| contains(whole, part))
        }
        // proto JSON writes large numbers as text, and fractions of a second in groups of three.
        (Json::String(whole), Json::Number(part)) => *whole == part.to_string(),
        (Json::String(whole), Json::String(part)) => {
            whole == part
                || duration::parse(whole).is_some_and(|whole| Some(whole) == duration::parse(part))
        }
        (whole, part) => whole == part,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_fields_come_back_in_both_spellings(seed in 1u64..) {
        let (camel, snake) = Generator(seed).message(&schema::ISTIO_MESH_V1ALPHA1_MESHCONFIG);
        let read = parse(&camel.to_string()).map_err(|error| TestCaseError::fail(format!("{error} in {camel}")))?;
        prop_assert_eq!(&read.warnings, &Vec::<String>::new());
        let printed = Json::Object(json(&read.config).unwrap());
        prop_assert!(contains(&printed, &camel), "{} in {}", camel, printed);
        let other = parse(&snake.to_string()).map_err(|error| TestCaseError::fail(format!("{error} in {snake}")))?;
        prop_assert_eq!(&other.config, &read.config);
        // On the wire, and as its own text.
        let wire = prost::Message::encode_to_vec(&read.config);
        prop_assert_eq!(&<MeshConfig as prost::Message>::decode(wire.as_slice()).unwrap(), &read.config);
        prop_assert_eq!(&read::typed::<MeshConfig>(&printed).unwrap(), &read.config);
    }

    #[test]
    fn no_text_makes_it_panic(text in "(defaultConfig: |proxyListenPort: |tracing: |- |\\{|\\}|\n|  |0x1|1e999|-1|'|5s|\\[|\\]|,|: |null|&a |\\*a){0,40}") {
        let _parsed = parse(&text);
    }
}

#[test]
fn discovery_has_defaults_of_its_own() {
    let read = parse_over(&discovery_defaults(), "connectTimeout: 3s\n").unwrap();
    let config = read.config;
    assert_eq!(config.connect_timeout.unwrap().seconds, 3);
    assert_eq!(config.access_log_file, "");
    assert_eq!(config.proxy_listen_port, 15001);
    assert_eq!(
        config.protocol_detection_timeout.unwrap().nanos,
        100_000_000
    );
    assert_eq!(config.dns_refresh_rate.unwrap().seconds, 5);
    assert_eq!(config.outbound_traffic_policy.unwrap().mode, 1);
    assert!(config.enable_tracing);
    // What is empty says nothing of what is in it.
    let read = parse_over(&discovery_defaults(), "outboundTrafficPolicy: {}\n").unwrap();
    assert_eq!(read.config.outbound_traffic_policy.unwrap().mode, 1);
    let text = "outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n";
    let read = parse_over(&discovery_defaults(), text).unwrap();
    assert_eq!(read.config.outbound_traffic_policy.unwrap().mode, 0);
    assert_eq!(defaults().access_log_file, "/dev/stdout");
}

#[test]
fn fields_that_contradict_each_other_are_refused() {
    for (text, message) in [
        (
            "accessLogEncoding: JSON\naccessLogFormat: '[1]'\n",
            "line 2: accessLogFormat: not an object of strings: \
             invalid type: sequence, expected a map at line 1 column 0",
        ),
        (
            "trustDomain: a/b\n",
            "line 1: trustDomain: \"a/b\" is not a DNS name",
        ),
        (
            "localityLbSetting:\n  distribute:\n  - from: a\n    to: {a: 50, b: 49}\n",
            "line 4: localityLbSetting.distribute[0].to: weights add up to 99, not 100",
        ),
        (
            "localityLbSetting:\n  distribute:\n  - from: a\n    to: {a: 100, b: 0}\n",
            "line 4: localityLbSetting.distribute[0].to.b: 0 is not in 1..100",
        ),
        (
            "localityLbSetting: {distribute: [{to: {a: 100}}]}\n",
            "line 1: localityLbSetting.distribute[0].from: \"\" has an empty part",
        ),
        (
            "localityLbSetting: {failover: [{from: a, to: a}]}\n",
            "line 1: localityLbSetting.failover[0]: from and to are the same",
        ),
        (
            "localityLbSetting: {failover: [{from: a/b, to: a}]}\n",
            "line 1: localityLbSetting.failover[0].from: no / and no * in a region",
        ),
        (
            "localityLbSetting: {failover: [{from: b, to: a}], distribute: [{from: a, to: {a: 100}}]}\n",
            "line 1: localityLbSetting: distribute and failover exclude each other",
        ),
    ] {
        assert_eq!(cause(text), message, "{text}");
    }
    let text = "accessLogEncoding: JSON\naccessLogFormat: '{\"a\": \"%DURATION%\"}'\n";
    read(text);
}

/// A proxy may be without a status port, and a drain is held against what the file says itself (galley.md §3.8).
#[test]
fn all_roles_judge_the_times_and_ports_of_proxies_alike() {
    let verdicts = |text: &str| {
        let discovery = parse_over(&discovery_defaults(), text);
        [parse(text), discovery, parse_served(text)].map(|read| match read {
            Ok(_) => String::new(),
            Err(wrong) => wrong.to_string(),
        })
    };
    for text in [
        "defaultConfig: {statusPort: 0}",
        "defaultConfig: {terminationDrainDuration: 0s}",
        "defaultConfig: {drainDuration: 61s}",
        "defaultConfig: {drainDuration: 1s, parentShutdownDuration: 2s}",
    ] {
        assert_eq!(verdicts(text), [""; 3], "{text}");
    }
    for (text, why) in [
        (
            "{statusPort: 65536}",
            "statusPort: port 65536 is not in 1..65535",
        ),
        (
            "{drainDuration: 1.5s}",
            "drainDuration: duration 1.500s is not a whole number of seconds",
        ),
        (
            "{drainDuration: 500ms}",
            "drainDuration: duration 0.500s is not a whole number of seconds",
        ),
        (
            "{drainDuration: 61s, parentShutdownDuration: 60s}",
            "drainDuration: want less than parentShutdownDuration, 1m0s, got 1m1s",
        ),
        (
            "{parentShutdownDuration: 45s}",
            "drainDuration: want less than parentShutdownDuration, 45s, got 45s",
        ),
    ] {
        let why = format!("line 1: defaultConfig.{why}");
        let text = format!("defaultConfig: {text}");
        assert_eq!(verdicts(&text), [&*why; 3], "{text}");
    }
}

/// A proxy that is started with them ends at once. Discovery and galley start none, and judge what is said of every proxy alone.
#[test]
fn proxies_have_settings_that_pintle_accepts() {
    for (text, message) in [
        (
            "{drainDuration: 1.5s}",
            "drainDuration: duration 1.500s is not a whole number of seconds",
        ),
        (
            "{drainDuration: 500ms}",
            "drainDuration: duration 0.500s is not a whole number of seconds",
        ),
        (
            "{parentShutdownDuration: 61.5s}",
            "parentShutdownDuration: duration 61.500s is not a whole number of seconds",
        ),
        (
            "{parentShutdownDuration: 3601s}",
            "parentShutdownDuration: duration 3601s is more than 1h",
        ),
        (
            "{connectTimeout: 40s}",
            "connectTimeout: duration 40s is more than 30s",
        ),
        (
            "{connectTimeout: 0.0015s}",
            "connectTimeout: duration 0.001500s is not a whole number of milliseconds",
        ),
        (
            "{connectTimeout: 0s}",
            "connectTimeout: duration 0s is less than 1ms",
        ),
        (
            "{statusPort: 15000}",
            "statusPort: port 15000 is that of the proxy's administration",
        ),
        (
            "{proxyAdminPort: 15020}",
            "statusPort: port 15020 is that of the proxy's administration",
        ),
        (
            "{statusPort: 15090}",
            "statusPort: port 15090 is that of the proxy's metrics",
        ),
        (
            "{proxyAdminPort: 15090}",
            "proxyAdminPort: port 15090 is that of the proxy's metrics",
        ),
        (
            "{concurrency: 65536}",
            "concurrency: 65536 is more than 65535",
        ),
    ] {
        let whole = format!("{{defaultConfig: {text}}}");
        assert_eq!(cause(&whole), format!("line 1: defaultConfig.{message}"));
        let wrong = parse_proxy(&proxy_defaults(), text).unwrap_err();
        assert_eq!(wrong.to_string(), format!("line 1: {message}"));
        let is_general = text.contains("connectTimeout: 0s") || text.contains("drainDuration");
        let of_discovery = parse_over(&discovery_defaults(), &whole);
        assert_eq!(of_discovery.is_ok(), !is_general, "{text}");
    }
    for text in [
        "{drainDuration: 1s, parentShutdownDuration: 1h, connectTimeout: 30s, concurrency: 65535}",
        "{connectTimeout: 1ms, statusPort: 15000, proxyAdminPort: 15020}",
    ] {
        parse(&format!("{{defaultConfig: {text}}}")).unwrap();
        parse_proxy(&proxy_defaults(), text).unwrap();
    }
}

/// Texts that galley serves and that roles which work by them refuse, each with its message.
const STRICTER: &[(&str, &str)] = &[
    (
        "{proxyInboundListenPort: 0}",
        "proxyInboundListenPort: port 0 is not in 1..65535",
    ),
    (
        "{proxyHttpPort: -1}",
        "proxyHttpPort: port -1 is not in 1..65535",
    ),
    (
        "{dnsRefreshRate: 1ms}",
        "dnsRefreshRate: duration 0.001s is not more than 1ms",
    ),
    (
        "{dnsRefreshRate: 0s}",
        "dnsRefreshRate: duration 0s is not more than 1ms",
    ),
    (
        "{rdsRefreshDelay: 0s}",
        "rdsRefreshDelay: duration 0s is less than 1ms",
    ),
    (
        "{sdsRefreshDelay: 0s}",
        "sdsRefreshDelay: duration 0s is less than 1ms",
    ),
    (
        "{reportBatchMaxTime: 0s}",
        "reportBatchMaxTime: duration 0s is less than 1ms",
    ),
    ("{ca: {address: ''}}", "ca.address: \"\" is not HOST:PORT"),
    (
        "{ca: {address: 'a:1', requestTimeout: 0s}}",
        "ca.requestTimeout: duration 0s is less than 1ms",
    ),
    (
        "{accessLogEncoding: JSON, accessLogFormat: '{\"a\": {\"b\": \"c\"}}'}",
        "accessLogFormat: not an object of strings: invalid type: map, expected a string at line 1 column 6",
    ),
    (
        "{localityLbSetting: {failover: [{to: a}]}}",
        "localityLbSetting.failover[0].from: must not be empty",
    ),
    (
        "{tcpKeepalive: {time: 32768s}}",
        "tcpKeepalive.time: duration 32768s is not in 1s..32767s",
    ),
    (
        "{tcpKeepalive: {interval: 40000s}}",
        "tcpKeepalive.interval: duration 40000s is not in 1s..32767s",
    ),
    (
        "{tcpKeepalive: {time: 0s}}",
        "tcpKeepalive.time: duration 0s is not in 1s..32767s",
    ),
    (
        "{tcpKeepalive: {interval: -1s}}",
        "tcpKeepalive.interval: duration -1s is not in 1s..32767s",
    ),
    (
        "{tcpKeepalive: {time: 500ms}}",
        "tcpKeepalive.time: duration 0.500s is not a whole number of seconds",
    ),
    (
        "{tcpKeepalive: {interval: 1500ms}}",
        "tcpKeepalive.interval: duration 1.500s is not a whole number of seconds",
    ),
    (
        "{tcpKeepalive: {probes: 128}}",
        "tcpKeepalive.probes: 128 is not in 0..127",
    ),
    (
        "{defaultConfig: {envoyAccessLogService: {address: 'a:1', tcpKeepalive: {time: 500ms}}}}",
        "defaultConfig.envoyAccessLogService.tcpKeepalive.time: duration 0.500s is not a whole number of seconds",
    ),
    (
        "{defaultConfig: {envoyMetricsService: {address: 'a:1', tcpKeepalive: {probes: 200}}}}",
        "defaultConfig.envoyMetricsService.tcpKeepalive.probes: 200 is not in 0..127",
    ),
    (
        "{defaultConfig: {terminationDrainDuration: 0.0001s}}",
        "defaultConfig.terminationDrainDuration: duration 0.000100s is less than 1ms",
    ),
    (
        "{defaultConfig: {concurrency: -1}}",
        "defaultConfig.concurrency: -1 is less than 0",
    ),
    (
        "{defaultConfig: {statNameLength: -1}}",
        "defaultConfig.statNameLength: -1 is less than 0",
    ),
];

/// Galley's sinks know best what they take beyond the rules that all releases have.
#[test]
fn discovery_checks_more_than_galley() {
    for (text, message) in STRICTER {
        assert_eq!(cause(text), format!("line 1: {message}"), "{text}");
        let wrong = parse_over(&discovery_defaults(), text).unwrap_err();
        assert_eq!(wrong.to_string(), format!("line 1: {message}"), "{text}");
        assert!(parse_served(text).is_ok(), "{text}");
    }
    for text in [
        "{proxyHttpPort: 0, dnsRefreshRate: 1.000001ms}",
        "{tcpKeepalive: {}}",
        "{tcpKeepalive: {time: 1s, interval: 1s, probes: 0}}",
        "{tcpKeepalive: {time: 32767s, interval: 32767s, probes: 127}}",
    ] {
        parse(text).unwrap();
    }
}

/// Envoy refuses all listeners, or all clusters, for one value that it does not take: so discovery refuses the file.
#[test]
fn settings_of_resources_are_those_that_envoy_accepts() {
    let log = "accessLogFile: /dev/stdout\n";
    for (text, message) in [
        (
            "proxyListenPort: 15006\n".to_owned(),
            "line 1: proxyListenPort: port 15006 is the proxy's own: it listens on 15000, 15006, 15020, 15021, 15090",
        ),
        (
            format!("{log}accessLogFormat: '%FOO%'\n"),
            "line 2: accessLogFormat: \"%FOO%\": Envoy 1.40 has no command operator FOO",
        ),
        (
            format!(
                "{log}accessLogEncoding: JSON\naccessLogFormat: '{{\"a\": \"b\", \"c\": \"100%\"}}'\n"
            ),
            "line 3: accessLogFormat: item \"c\": \"%\" begins no command operator; a percent sign is written %%",
        ),
        (
            "dnsRefreshRate: 9223372036s\n".to_owned(),
            "line 1: dnsRefreshRate: duration 9223372036s is more than 9223372035s",
        ),
        (
            "protocolDetectionTimeout: 9223372036s\n".to_owned(),
            "line 1: protocolDetectionTimeout: duration 9223372036s is more than 9223372035s",
        ),
    ] {
        let wrong = parse_over(&discovery_defaults(), &text).unwrap_err();
        assert_eq!(wrong.to_string(), message, "{text}");
        // Whoever makes no resources of it has proxies that may listen elsewhere, and be another Envoy.
        assert!(parse(&text).is_ok(), "{text}");
        assert!(parse_served(&text).is_ok(), "{text}");
    }
    for port in [15000, 15006, 15020, 15021, 15090] {
        let text = format!("proxyListenPort: {port}\n");
        assert!(parse_over(&discovery_defaults(), &text).is_err(), "{text}");
    }
    for text in [
        "proxyListenPort: 15002\nproxyHttpPort: 15020\n",
        "dnsRefreshRate: 9223372035s\nprotocolDetectionTimeout: 9223372035s\n",
        "accessLogFormat: '%FOO%'\n",
        "accessLogFile: a\naccessLogFormat: '[%START_TIME(%s)%] %REQ(:AUTHORITY):9%'\n",
        "accessLogFile: a\naccessLogEncoding: JSON\naccessLogFormat: '{\"100%\": \"%DURATION%\"}'\n",
    ] {
        parse_over(&discovery_defaults(), text).unwrap();
    }
    for text in [
        "defaultServiceExportTo: ['x y']",
        "defaultDestinationRuleExportTo: ['']",
        "defaultVirtualServiceExportTo: [q/w]",
        "rootNamespace: A B",
    ] {
        assert!(parse_over(&discovery_defaults(), text).is_err(), "{text}");
    }
    for text in [
        "defaultServiceExportTo: ['.', '*']\ndefaultVirtualServiceExportTo: ['~']\ndefaultDestinationRuleExportTo: [a, b]\n",
        "rootNamespace: ''\noutboundClusterStatName: '100%_%SERVICE_NAME%_%SERVICE_PORT%%'\n",
    ] {
        let read = parse_over(&discovery_defaults(), text).unwrap();
        assert_eq!(read.warnings, [""; 0], "{text}");
    }
    // They are judged as strictly as anywhere.
    for text in [
        "defaultConfig: {statusPort: -1}",
        "defaultConfig: {drainDuration: 2m, parentShutdownDuration: 1m}",
    ] {
        assert!(parse_over(&discovery_defaults(), text).is_err(), "{text}");
    }
}
