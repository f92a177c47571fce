//! Argument lists and variables in, configurations or refusals out.

use super::*;
use crate::bootstrap::{self, Generated, Tracing};
use crate::cli::{self, Subcommand};
use crate::environment::Environment;
use crate::json::Value;
use crate::log::{Level, LogTarget};
use crate::supervisor::CleanExit;

fn words(line: &str) -> Vec<cli::Word> {
    let words = line.split_whitespace();
    cli::words(words.map(|word| if word == "''" { "" } else { word }))
}

fn configured(line: &str, variables: &[(&str, &str)], host: &HostFacts) -> Result<Config, String> {
    let mut arguments = words("pintle proxy");
    arguments.extend(words(line));
    let Ok(Subcommand::Proxy(args)) = cli::parse(&arguments) else {
        return Err(format!("usage: {line}"));
    };
    let environment = environment(variables);
    Config::new(&args, environment, host).map_err(|error| {
        assert_eq!(error.code(), 78);
        error.to_string()
    })
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    let word = |text: &str| cli::words([text])[0];
    let variables = variables.iter().map(|(n, v)| (word(n), word(v)));
    Environment::new(variables.collect())
}

fn config(line: &str, variables: &[(&str, &str)]) -> Config {
    configured(line, variables, &HostFacts::default()).unwrap()
}

fn refused(line: &str, variables: &[(&str, &str)]) -> String {
    configured(line, variables, &HostFacts::default()).unwrap_err()
}

fn generated(config: &Config) -> &Generated {
    match &config.source {
        Source::Generated { inputs, .. } => inputs,
        Source::Template { .. } | Source::Custom { .. } => panic!("{:?}", config.source),
    }
}

const POD: [(&str, &str); 3] = [
    ("POD_NAME", "p1"),
    ("POD_NAMESPACE", "ns1"),
    ("INSTANCE_IP", "10.1.2.3"),
];

const SIDECAR_1_1_5: &str = "sidecar --domain ns1.svc.cluster.local --configPath /etc/istio/proxy \
    --binaryPath /usr/local/bin/envoy --serviceCluster app.ns1 --drainDuration 45s --parentShutdownDuration 1m0s \
    --discoveryAddress istio-pilot.istio-system:15011 --zipkinAddress zipkin.istio-system:9411 --connectTimeout 10s \
    --proxyAdminPort 15000 --concurrency 2 --controlPlaneAuthPolicy MUTUAL_TLS --statusPort 15020 \
    --applicationPorts 80,81";

#[test]
fn injector_1_1_5_sidecar() {
    let config = config(SIDECAR_1_1_5, &POD);
    let inputs = generated(&config);
    assert_eq!(
        inputs.node_id,
        "sidecar~10.1.2.3~p1.ns1~ns1.svc.cluster.local"
    );
    assert_eq!(inputs.cluster, "app.ns1");
    assert_eq!(inputs.discovery.port, 15011);
    assert_eq!(inputs.connect_timeout, Duration::from_secs(10));
    assert!(matches!(&inputs.tracing, Some(Tracing::Zipkin(zipkin)) if zipkin.port == 9411));
    let tls = inputs.control_plane_tls.as_ref().unwrap();
    assert_eq!(
        tls.subject_alt_names,
        ["spiffe://cluster.local/ns/istio-system/sa/istio-pilot-service-account"]
    );
    assert_eq!(config.launch.concurrency, Some(2));
    assert_eq!(config.launch.log_level.as_deref(), Some("warning"));
    assert_eq!(config.status, Some("[::]:15020".parse().unwrap()));
    assert_eq!(config.application_ports, [80, 81]);
    assert_eq!(config.watch.required.len(), 3);
    assert!(config.policy.wait_for_certificates);
    assert!(config.drain.inbound_only && !config.drain.fail_healthcheck);
    assert_eq!(config.warnings, [""; 0]);
}

#[test]
fn injector_1_1_5_gateway() {
    let config = config(
        "router --domain ns1.svc.cluster.local --log_output_level default:debug --drainDuration 45s \
         --parentShutdownDuration 1m0s --connectTimeout 10s --serviceCluster istio-ingressgateway --zipkinAddress \
         zipkin:9411 --proxyAdminPort 15000 --statusPort 15020 --controlPlaneAuthPolicy NONE --discoveryAddress \
         istio-pilot:15010",
        &POD,
    );
    assert_eq!(config.role, Role::Router);
    assert_eq!(config.log.level, Level::Debug);
    assert!(generated(&config).control_plane_tls.is_none());
    assert!(!config.drain.inbound_only && config.drain.fail_healthcheck);
    assert_eq!(config.watch.paths.len(), 3);
    assert!(config.watch.required.is_empty());
}

#[test]
fn the_flag_says_which_listeners_drain_whatever_the_role() {
    for role in ["sidecar", "router", "sidecar --customConfigFile /c.json"] {
        for (said, expected) in [("true", true), ("false", false)] {
            let config = config(&format!("{role} --drain-inbound-only {said}"), &POD);
            assert_eq!(config.drain.inbound_only, expected, "{role} {said}");
        }
    }
    let auto = config("sidecar --drain-inbound-only auto", &POD);
    assert!(auto.drain.inbound_only);
    let custom = config("sidecar --customConfigFile /c.json", &POD);
    assert!(!custom.drain.inbound_only, "there is no xDS");
}

#[test]
fn control_plane_pods() {
    let config = config(
        "--domain ns1.svc.cluster.local --serviceCluster istio-pilot --templateFile \
         /etc/istio/proxy/envoy_pilot.yaml.tmpl --controlPlaneAuthPolicy NONE --controlPlaneBootstrap=true",
        &POD,
    );
    let Source::Template { template, .. } = &config.source else {
        panic!("{:?}", config.source);
    };
    let value = |name: &str| {
        let found = template.values.iter().find(|(n, _)| *n == name);
        found.map(|(_, value)| value.clone()).unwrap()
    };
    assert_eq!(value("service-cluster"), "istio-pilot");
    assert_eq!(value("node-ip"), "10.1.2.3");
    assert_eq!(value("proxy-admin-port"), Value::from(15000_u16));
    assert_eq!(value("parent-shutdown-duration"), "60s");
    assert_eq!(value("validate"), Value::from(false));
    assert_eq!(value("discovery-host"), "istio-pilot");
    assert_eq!(value("discovery-port"), Value::from(15010_u16));
    assert!(value("node-metadata").as_object().is_some());
    assert!(config.watch.paths.contains(&template.file));
    assert!(!config.drain.inbound_only);
    assert_eq!(config.warnings.len(), 1);
}

#[test]
fn injector_1_5_sidecar() {
    let config = config(
        "sidecar --domain ns1.svc.cluster.local --configPath /etc/istio/proxy --binaryPath /usr/local/bin/envoy \
         --serviceCluster app.ns1 --drainDuration 45s --parentShutdownDuration 1m0s --discoveryAddress \
         istiod.istio-system.svc:15012 --zipkinAddress zipkin.istio-system:9411 --proxyLogLevel=warning \
         --proxyComponentLogLevel=misc:error --connectTimeout 10s --proxyAdminPort 15000 --concurrency 2 \
         --controlPlaneAuthPolicy NONE --dnsRefreshRate 300s --statusPort 15020 --trust-domain=cluster.local \
         --controlPlaneBootstrap=false --stsPort=15463 --tokenManagerPlugin GoogleTokenExchange",
        &POD,
    );
    assert_eq!(
        config.launch.component_log_level.as_deref(),
        Some("misc:error")
    );
    assert_eq!(config.warnings.len(), 4);
}

#[test]
fn nothing_given() {
    let config = config("", &[]);
    assert_eq!(
        generated(&config).node_id,
        "sidecar~127.0.0.1~.~.svc.cluster.local"
    );
    assert_eq!(config.admin, "127.0.0.1:15000".parse().unwrap());
    assert_eq!(config.status, None);
    assert_eq!(config.policy.retry_budget, 10);
    assert_eq!(
        config.policy.rescan_interval,
        Some(Duration::from_secs(300))
    );
    assert_eq!(config.policy.exit_on_zero, None);
    assert_eq!(config.policy.on_clean_exit, CleanExit::Exit);
    assert_eq!(config.launch.concurrency, None);
    assert_eq!(config.launch.base_id, BaseId::Fixed(0));
    assert_eq!(config.log.targets, [LogTarget::Stdout]);
    assert_eq!(config.launch.local_address_ip_version, None);
}

#[test]
fn a_higher_layer_wins() {
    let proxy_config = r#"{"drainDuration":"20s","proxyAdminPort":16000,"controlPlaneAuthPolicy":1,
        "terminationDrainDuration":"9s","tracing":{"zipkin":{"address":"z:1"}},"concurrency":3,"unheard":1,
        "proxyMetadata":{"POD_NAME":"meta","MINIMUM_DRAIN_DURATION":"1s"},
        "proxyStatsMatcher":{"inclusionPrefixes":["a"]}}"#;
    let set = [("PROXY_CONFIG", proxy_config), ("POD_NAMESPACE", "ns1")];
    let from_config = config("", &set);
    assert_eq!(from_config.launch.drain_time, Duration::from_secs(20));
    assert_eq!(from_config.admin.port(), 16000);
    assert_eq!(from_config.launch.concurrency, Some(3));
    assert_eq!(from_config.policy.termination_drain, Duration::from_secs(9));
    assert!(from_config.policy.wait_for_certificates);
    let inputs = generated(&from_config);
    assert_eq!(
        inputs.node_id,
        "sidecar~127.0.0.1~meta.ns1~ns1.svc.cluster.local"
    );
    assert!(inputs.stats.prefixes.contains(&"a".to_owned()));
    assert_eq!(
        from_config.warnings,
        [
            "PROXY_CONFIG has unknown keys: unheard",
            "MINIMUM_DRAIN_DURATION means nothing without --exit-on-zero-active-connections",
        ]
    );

    let more = [
        set[0],
        set[1],
        ("POD_NAME", "own"),
        ("TERMINATION_DRAIN_DURATION_SECONDS", "7"),
    ];
    let from_variables = config("", &more);
    assert_eq!(
        from_variables.policy.termination_drain,
        Duration::from_secs(7)
    );
    assert!(generated(&from_variables).node_id.contains("~own.ns1~"));
    let from_flags = config(
        "--drainDuration 30s --terminationDrainDuration 3s --concurrency 4",
        &more,
    );
    assert_eq!(from_flags.launch.drain_time, Duration::from_secs(30));
    assert_eq!(from_flags.policy.termination_drain, Duration::from_secs(3));
    assert_eq!(from_flags.launch.concurrency, Some(4));
}

/// Releases since 1.17 say a drain alone.
#[test]
fn a_parent_that_nobody_gave_an_end_outlives_its_drain() {
    let said = |text: &str| [("PROXY_CONFIG", format!(r#"{{"drainDuration":"{text}"}}"#))];
    for (drain, parent) in [
        ("20s", 60),
        ("45s", 60),
        ("59s", 60),
        ("60s", 75),
        ("2m0s", 135),
        ("1h", 3615),
    ] {
        let by_flag = config(&format!("--drainDuration {drain}"), &[]);
        let [(name, text)] = said(drain);
        let by_variable = config("", &[(name, &text)]);
        for config in [by_flag, by_variable] {
            let parent = Duration::from_secs(parent);
            assert_eq!(config.launch.parent_shutdown_time, parent, "{drain}");
            assert_eq!(config.policy.parent_shutdown, parent, "{drain}");
        }
    }
    let template = config("--drainDuration 2m --template-file /t", &[]);
    let Source::Template { template, .. } = template.source else {
        panic!("{:?}", template.source);
    };
    let parent = ("parent-shutdown-duration", Value::from("135s".to_owned()));
    assert!(template.values.contains(&parent));
    assert!(refused("--drainDuration 2m --parentShutdownDuration 1m", &[]).contains("120s"));
}

#[test]
fn the_longest_drain_that_nobody_gave_gives_way_to_the_shortest() {
    const ZERO: (&str, &str) = ("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "true");
    const SHORTEST: (&str, &str) = ("MINIMUM_DRAIN_DURATION", "15s");
    const LONGEST: &str = "TERMINATION_DRAIN_DURATION_SECONDS";
    let drain = |variables: &[_]| {
        let policy = config("", variables).policy;
        let seconds = |duration: Duration| duration.as_secs();
        (
            seconds(policy.termination_drain),
            policy.exit_on_zero.map(seconds),
        )
    };
    assert_eq!(drain(&[ZERO, SHORTEST]), (15, Some(15)));
    assert_eq!(drain(&[ZERO, SHORTEST, (LONGEST, "x")]), (15, Some(15)));
    assert_eq!(drain(&[ZERO, SHORTEST, (LONGEST, "20")]), (20, Some(15)));
    assert_eq!(
        drain(&[ZERO, ("MINIMUM_DRAIN_DURATION", "2s")]),
        (5, Some(2))
    );
    assert_eq!(drain(&[ZERO]), (5, Some(5)));
    assert_eq!(drain(&[ZERO, (LONGEST, "3")]), (3, Some(3)));
    assert_eq!(drain(&[SHORTEST]), (5, None));
    let said = refused("", &[ZERO, SHORTEST, (LONGEST, "5")]);
    assert!(said.contains("--termination-drain-duration, 5s"), "{said}");
}

/// A line, and what is said of it.
const REFUSED_FLAGS: &[(&str, &str)] = &[
    (
        "--drain-duration 5x",
        "cannot use --drain-duration \"5x\": unknown unit: h, m, s, ms, us or ns",
    ),
    (
        "--drain-duration 1500ms",
        "cannot use --drain-duration \"1500ms\": it must be whole seconds, at most 1h",
    ),
    (
        "--drain-duration 2h",
        "cannot use --drain-duration \"2h\": it must be whole seconds, at most 1h",
    ),
    (
        "--drain-duration 0s",
        "cannot use --drain-duration \"0s\": it must be at least 0.001s",
    ),
    (
        "--parentShutdownDuration 45s",
        "cannot use --parent-shutdown-duration \"45s\": it must be longer than --drain-duration, 45s",
    ),
    (
        "--config-path=",
        "cannot use --config-path \"\": it must not be empty",
    ),
    (
        "--service-cluster=",
        "cannot use --service-cluster \"\": it must not be empty",
    ),
    (
        "--discovery-address=",
        "cannot use --discovery-address \"\": host:port is expected",
    ),
    (
        "--connect-timeout 31s",
        "cannot use --connect-timeout \"31s\": it must be 1ms to 30s, in whole milliseconds",
    ),
    (
        "--statsdUdpAddress statsd:8125",
        "cannot use --statsd-udp-address \"statsd:8125\": Envoy takes no name for statsd: give the address, ip:port",
    ),
    (
        "--proxyAdminPort 0",
        "cannot use --proxy-admin-port \"0\": the port must be 1 to 65535",
    ),
    (
        "--proxyAdminPort 65536",
        "cannot use --proxy-admin-port \"65536\": out of range, 0 to 65535",
    ),
    (
        "--concurrency -1",
        "cannot use --concurrency \"-1\": out of range, 0 to 65535",
    ),
    (
        "--concurrency ''",
        "cannot use --concurrency \"\": not a whole number",
    ),
    (
        "--base-id 268435456",
        "cannot use --base-id \"268435456\": 0 to 268435455 or auto",
    ),
    (
        "--proxy-oom-score-adj 1001",
        "cannot use --proxy-oom-score-adj \"1001\": out of range, -1000 to 1000",
    ),
    (
        "--companion 'x",
        "cannot use --companion \"'x\": a quote is not closed",
    ),
    (
        "--companion x\\",
        "cannot use --companion \"x\\\": a backslash is its last character",
    ),
    (
        "--companion ''",
        "cannot use --companion \"\": the command is empty",
    ),
    (
        "--companion 1 --companion 2 --companion 3 --companion 4 --companion 5 --companion 6 --companion 7 \
         --companion 8 --companion 9",
        "cannot use --companion \"9\": at most 8 companions",
    ),
    (
        "--validate=maybe",
        "cannot use --validate \"maybe\": true or false",
    ),
    (
        "--control-plane-auth-policy TLS",
        "cannot use --control-plane-auth-policy \"TLS\": NONE or MUTUAL_TLS",
    ),
    (
        "--status-port 15000",
        "cannot use --status-port with --proxy-admin-port: they are the same port",
    ),
    (
        "--custom-config-file a --template-file b",
        "cannot use --custom-config-file with --template-file: one of them is the proxy's configuration",
    ),
    (
        "--status-port 15090",
        "cannot use ENVOY_PROMETHEUS_PORT with --status-port: they are the same port",
    ),
    (
        "--exit-on-zero-active-connections --minimum-drain-duration 6s --termination-drain-duration 5s",
        "cannot use --minimum-drain-duration \"6s\": it must not be longer than --termination-drain-duration, 5s",
    ),
    (
        "--id a~b",
        "cannot use --id \"a~b\": ~ separates the parts of the node id",
    ),
    ("--ip host", "cannot use --ip \"host\": not an IP address"),
    (
        "--application-ports 80,x",
        "cannot use --application-ports \"x\": the port must be 1 to 65535",
    ),
    (
        "--rescan-interval 1ms",
        "cannot use --rescan-interval \"1ms\": it must be 0 or at least 1s",
    ),
    (
        "--retry-initial 0",
        "cannot use --retry-initial \"0\": it must be at least 0.001s",
    ),
    (
        "--log-target ''",
        "cannot use --log-target \"\": it must not be empty",
    ),
];

#[test]
fn refusals_name_flag_and_value() {
    for (line, expected) in REFUSED_FLAGS {
        assert_eq!(refused(line, &[]), *expected, "{line}");
    }
}

/// A variable, its value, and how what is said of it begins.
const REFUSED_VARIABLES: &[(&str, &str, &str)] = &[
    (
        "PROXY_CONFIG",
        "drainDuration: 5s",
        "cannot read PROXY_CONFIG: it must be JSON, not YAML: ",
    ),
    (
        "PROXY_CONFIG",
        "[]",
        "cannot read PROXY_CONFIG: it must be a JSON object",
    ),
    (
        "PROXY_CONFIG",
        r#"{"drainDuration":"5x"}"#,
        "cannot use PROXY_CONFIG drainDuration \"5x\": ",
    ),
    (
        "PROXY_CONFIG",
        r#"{"drainDuration":[]}"#,
        "cannot read PROXY_CONFIG: drainDuration: ",
    ),
    (
        "PROXY_CONFIG",
        r#"{"configPath":"/a\u0000b"}"#,
        "cannot read PROXY_CONFIG: configPath: it holds a NUL byte",
    ),
    (
        "PROXY_CONFIG",
        r#"{"proxyMetadata":{"POD_NAME":"a\u0000b"}}"#,
        "cannot read PROXY_CONFIG: proxyMetadata.POD_NAME: it holds a NUL byte",
    ),
    (
        "PROXY_CONFIG",
        r#"{"proxyMetadata":{"POD_NAME":[]}}"#,
        "cannot read PROXY_CONFIG: proxyMetadata.POD_NAME: a text or a number ",
    ),
    (
        "PROXY_CONFIG",
        r#"{"tracing":{"lightstep":{}}}"#,
        "cannot read PROXY_CONFIG: tracing.lightstep: ",
    ),
    (
        "INSTANCE_IP",
        "nowhere",
        "cannot use INSTANCE_IP \"nowhere\": not an IP address",
    ),
    (
        "MINIMUM_DRAIN_DURATION",
        "5",
        "cannot use MINIMUM_DRAIN_DURATION \"5\": a unit is missing",
    ),
    (
        "ENVOY_PROMETHEUS_PORT",
        "15000",
        "cannot use ENVOY_PROMETHEUS_PORT with --proxy-admin-port: they are the same port",
    ),
];

#[test]
fn refusals_name_variable_and_value() {
    for (name, value, expected) in REFUSED_VARIABLES {
        let error = refused("", &[(name, value)]);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn doubtful_variables_only_warn() {
    let config = config(
        "",
        &[
            ("TERMINATION_DRAIN_DURATION_SECONDS", "5s"),
            ("TERMINATION_GRACE_PERIOD_SECONDS", "long"),
            ("ISTIO_CPU_LIMIT", "many"),
        ],
    );
    assert_eq!(config.policy.termination_drain, Duration::from_secs(5));
    assert_eq!(config.grace_period, None);
    assert_eq!(config.launch.concurrency, None);
    assert_eq!(config.warnings.len(), 3);
}

#[test]
fn concurrency_comes_from_the_limit() {
    let host = HostFacts {
        cpu_limit: || Some(4),
        ..HostFacts::default()
    };
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], u32);
    let table: [Row<'_>; 4] = [
        ("", &[], 4),
        ("--concurrency 0", &[], 4),
        ("", &[("ISTIO_CPU_LIMIT", "1500m")], 2),
        ("--concurrency 1", &[("ISTIO_CPU_LIMIT", "2")], 1),
    ];
    for (line, variables, expected) in table {
        let config = configured(line, variables, &host).unwrap();
        assert_eq!(config.launch.concurrency, Some(expected), "{line}");
    }
}

#[test]
fn a_host_that_has_only_a_loopback() {
    let host = |address: &str| HostFacts {
        addresses: vec![address.parse().unwrap()],
        ..HostFacts::default()
    };
    let six = configured("", &[], &host("::1")).unwrap();
    assert_eq!(six.admin, "[::1]:15000".parse().unwrap());
    assert!(six.launch.service_node.starts_with("sidecar~::1~"));
    let four = configured("", &[], &host("127.0.0.1")).unwrap();
    assert_eq!(four.admin, "127.0.0.1:15000".parse().unwrap());
    // Where the pod's address is known, the loopback's says nothing.
    let given = configured("--ip fd00::5", &[], &host("127.0.0.1")).unwrap();
    assert_eq!(given.admin, "[::1]:15000".parse().unwrap());
}

#[test]
fn a_host_without_ipv4() {
    let host = HostFacts {
        addresses: vec!["fd00::1".parse().unwrap()],
        ..HostFacts::default()
    };
    let config = configured("", &[], &host).unwrap();
    assert_eq!(config.admin, "[::1]:15000".parse().unwrap());
    assert_eq!(config.launch.local_address_ip_version, Some(IpVersion::V6));
    assert!(generated(&config).ipv6_only);
    assert!(config.launch.service_node.starts_with("sidecar~fd00::1~"));
}

#[test]
fn what_is_watched() {
    let names = |config: &Config| {
        let names = config
            .watch
            .paths
            .iter()
            .map(|path| path.to_str().unwrap_or("?"));
        names.map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    let certificates = "/etc/certs/cert-chain.pem /etc/certs/key.pem /etc/certs/root-cert.pem";
    assert_eq!(
        names(&config("", &[("ISTIO_META_TLS_SERVER_KEY", " ")])),
        certificates
    );
    let ingress = config("ingress --watch /a,/b --watch /a", &[]);
    let expected = format!(
        "{certificates} /etc/istio/ingress-certs/tls.crt /etc/istio/ingress-certs/tls.key /a /b"
    );
    assert_eq!(names(&ingress), expected);
    let own = config("", &[("ISTIO_META_TLS_CLIENT_KEY", "/k")]);
    assert_eq!(names(&own), format!("{certificates} /k"));
    let custom = config(
        "--customConfigFile /c.json --watch-certificates=false --controlPlaneAuthPolicy MUTUAL_TLS",
        &[("ISTIO_BOOTSTRAP_OVERRIDE", "/o.json")],
    );
    assert_eq!(names(&custom), "/c.json /o.json");
    assert!(custom.watch.required.is_empty() && !custom.policy.wait_for_certificates);
    assert!(matches!(custom.source, Source::Custom { .. }));
}

#[test]
fn the_flag_beats_the_template_variable() {
    let set = [("ISTIO_BOOTSTRAP", "/from-variable")];
    let file = |line: &str| match config(line, &set).source {
        Source::Template { template, .. } => template.file,
        Source::Custom { file, .. } => file,
        Source::Generated { .. } => PathBuf::new(),
    };
    assert_eq!(file(""), PathBuf::from("/from-variable"));
    assert_eq!(file("--templateFile ''"), PathBuf::from("/from-variable"));
    assert_eq!(file("--templateFile /t"), PathBuf::from("/t"));
    assert_eq!(file("--customConfigFile /c"), PathBuf::from("/c"));
}

#[test]
fn collectors() {
    let line = "--datadogAgentAddress $(HOST_IP):8126";
    for (node, expected) in [
        ("10.0.0.9", "10.0.0.9"),
        ("fd00::9", "fd00::9"),
        ("", "127.0.0.1"),
    ] {
        let config = config(line, &[("HOST_IP", node)]);
        let Some(Tracing::Datadog(agent)) = &generated(&config).tracing else {
            panic!("{node}");
        };
        assert_eq!(agent.host, expected);
    }
    let service = config(r#"--envoyMetricsService {"address":"m:1"}"#, &[]);
    assert_eq!(
        generated(&service).metrics_service.as_ref().map(|m| m.port),
        Some(1)
    );
    let none = config(r#"--envoyMetricsService {"address":""}"#, &[]);
    assert_eq!(generated(&none).metrics_service, None);
    for (line, cause) in [
        ("--envoy-metrics-service 7", "it must be a JSON object"),
        ("--envoy-metrics-service []", "it must be a JSON object"),
        (
            "--envoy-metrics-service {\"address\":7}",
            "its address must be a text",
        ),
    ] {
        assert!(refused(line, &[]).contains(cause), "{line}");
    }
    assert!(refused("--envoyMetricsService {", &[]).contains("it must be JSON"));
}

#[test]
fn the_rest() {
    let config = config(
        "--exit-on-zero-active-connections --termination-drain-duration 3s --proxy-user 1337 --base-id auto \
         --log-target stderr --log-target /l --proxyLogLevel info,misc:error --proxyComponentLogLevel rbac:debug \
         --disable-hot-restart --statNameLength 189 -- --skip-hot-restart-parent-stats",
        &[],
    );
    assert_eq!(config.policy.exit_on_zero, Some(Duration::from_secs(3)));
    assert!(generated(&config).count_connections);
    assert_eq!(
        config.launch.user,
        Some(User {
            uid: 1337,
            gid: 1337
        })
    );
    assert_eq!(config.launch.base_id, BaseId::Auto);
    assert_eq!(
        config.log.targets,
        [LogTarget::Stderr, LogTarget::File("/l".into())]
    );
    assert_eq!(config.launch.log_level.as_deref(), Some("info"));
    assert_eq!(
        config.launch.component_log_level.as_deref(),
        Some("misc:error,rbac:debug")
    );
    assert_eq!(config.launch.max_obj_name_len, Some(189));
    assert!(config.launch.skip_parent_stats && !config.policy.hot_restart);
}

#[test]
fn the_control_plane_s_name() {
    let table = [
        (
            "pilot:1",
            "spiffe://cluster.local/ns/ns1/sa/istio-pilot-service-account",
        ),
        (
            "pilot.mesh:1",
            "spiffe://cluster.local/ns/mesh/sa/istio-pilot-service-account",
        ),
        (
            "pilot.mesh.svc:1",
            "spiffe://cluster.local/ns/istio-system/sa/istio-pilot-service-account",
        ),
        (
            "pilot:1 --trust-domain a@b",
            "spiffe://a.b/ns/ns1/sa/istio-pilot-service-account",
        ),
    ];
    for (address, expected) in table {
        let line = format!("--controlPlaneAuthPolicy MUTUAL_TLS --discoveryAddress {address}");
        let config = config(&line, &POD);
        let tls = generated(&config).control_plane_tls.as_ref().unwrap();
        assert_eq!(tls.subject_alt_names, [expected]);
    }
}

#[test]
fn a_file_of_the_user_s_may_use_any_port() {
    let config = config("--custom-config-file /c --status-port 15090", &[]);
    assert_eq!(config.status.map(|status| status.port()), Some(15090));
}

#[test]
fn keys_that_nothing_here_can_do_are_said() {
    for (key, text) in [
        (
            "tracing.stackdriver",
            r#"{"tracing":{"stackdriver":{},"sampling":1}}"#,
        ),
        // Releases with an Envoy that knew the flag had no such variable.
        ("statNameLength", r#"{"statNameLength":256}"#),
        (
            "runtimeValues",
            r#"{"runtimeValues":{"re2.max_program_size.error_level":"1024"}}"#,
        ),
        (
            "envoyAccessLogService.address",
            r#"{"envoyAccessLogService":{"address":"als:1"}}"#,
        ),
        ("extraStatTags", r#"{"extraStatTags":["a"]}"#),
        ("caCertificatesPem", r#"{"caCertificatesPem":["x"]}"#),
        ("fileFlushInterval", r#"{"fileFlushInterval":"1s"}"#),
        ("privateKeyProvider", r#"{"privateKeyProvider":{"qat":{}}}"#),
        (
            "readinessProbe",
            r#"{"readinessProbe":{"periodSeconds":1}}"#,
        ),
    ] {
        let config = config("", &[("PROXY_CONFIG", text)]);
        assert_eq!(
            config.warnings,
            [format!("PROXY_CONFIG {key} means nothing here")]
        );
        assert_eq!(config.launch.max_obj_name_len, None);
    }
}

#[test]
fn tls_that_is_not_done_where_it_was_asked_for_is_said() {
    const SAID: &str = " asks for TLS, which is not done: it goes in plain text";
    for (part, mode, is_said) in [
        ("tracing", r#""SIMPLE""#, true),
        ("envoyMetricsService", r#""MUTUAL""#, true),
        ("envoyMetricsService", "2", true),
        ("envoyMetricsService", "0", false),
        ("envoyMetricsService", "null", false),
        ("tracing", r#""DISABLE""#, false),
    ] {
        let text = format!(r#"{{"{part}":{{"tlsSettings":{{"mode":{mode}}}}}}}"#);
        let warnings = config("", &[("PROXY_CONFIG", &text)]).warnings;
        let expected = is_said.then(|| format!("PROXY_CONFIG {part}{SAID}"));
        assert_eq!(warnings, Vec::from_iter(expected), "{text}");
    }
    let flag = config(
        r#"--envoyMetricsService {"address":"m:1","tlsSettings":{"mode":"MUTUAL"}}"#,
        &[],
    );
    assert_eq!(flag.warnings, [format!("--envoy-metrics-service{SAID}")]);
    let none = r#"--envoyMetricsService {"address":"m:1","tlsSettings":{}}"#;
    assert_eq!(config(none, &[]).warnings, [""; 0]);
}

#[test]
fn probes_that_the_injector_took_from_the_application() {
    const PROBERS: &str = "ISTIO_KUBE_APP_PROBERS";
    const SCRAPE: &str = "ISTIO_PROMETHEUS_ANNOTATIONS";
    let set = [
        (PROBERS, r#"{"/app-health/c/livez":{"port":80}}"#),
        (SCRAPE, r#"{"scrape":"true","port":"8080"}"#),
    ];
    for (role, scraped) in [("sidecar", 1), ("router", 0), ("ingress", 0)] {
        let config = config(role, &set);
        assert_eq!(config.probers.len(), 1, "{role}");
        assert_eq!(config.scrape.len(), scraped, "{role}");
    }
    let neither = config("", &[(PROBERS, ""), (SCRAPE, " ")]);
    assert!(neither.probers.is_empty() && neither.scrape.is_empty());
    for (variable, wrong) in [(PROBERS, "{"), (SCRAPE, "{"), (SCRAPE, r#"{"port":"81"}"#)] {
        let said = refused("--proxyAdminPort 82 --statusPort 81", &[(variable, wrong)]);
        assert!(said.contains(variable), "{said}");
    }
    for (port, flags) in [("82", "--proxyAdminPort 82"), ("http", "")] {
        let annotations = format!(r#"{{"port":"{port}"}}"#);
        let config = config(flags, &[(SCRAPE, &annotations)]);
        assert!(config.scrape.is_empty());
        assert!(config.warnings.concat().contains(port));
    }
    // Where there is no application nobody reads it.
    assert!(config("router", &[(SCRAPE, "{")]).scrape.is_empty());
}

#[test]
fn without_a_status_port_what_stands_on_it_is_said() {
    let set = [
        (
            "ISTIO_KUBE_APP_PROBERS",
            r#"{"/app-health/c/livez":{"port":80}}"#,
        ),
        (
            "ISTIO_PROMETHEUS_ANNOTATIONS",
            r#"{"scrape":"true","port":"8080"}"#,
        ),
    ];
    let said = |line: &str| config(line, &set).warnings;
    let names = |names: &[&str]| {
        let said = names.iter();
        let said = said.map(|name| format!("{name} means nothing without --status-port"));
        said.collect::<Vec<_>>()
    };
    let (probers, scrape) = (set[0].0, set[1].0);
    let all = names(&[probers, scrape, "--application-ports"]);
    assert_eq!(said("--applicationPorts 80"), all);
    assert_eq!(said("router"), names(&[probers]));
    assert_eq!(said("--applicationPorts 80 --statusPort 15020"), [""; 0]);
    assert_eq!(config("", &[(set[0].0, "{}")]).warnings, [""; 0]);
    // A command waits for the ports.
    let arguments = words("pintle run --applicationPorts 80 -- true");
    let Ok(Subcommand::Proxy(args)) = cli::parse(&arguments) else {
        panic!("usage");
    };
    let run = Config::new(&args, environment(&[]), &HostFacts::default()).unwrap();
    assert_eq!(run.warnings, [""; 0]);
}

proptest::proptest! {
    #[test]
    fn any_value_is_survived(
        flag in 0..cli::flags::PROXY.flags().count(),
        value in ".{0,12}|[0-9a-z:.,~/$()-]{0,16}",
        proxy_config in ".{0,8}|\\{\"[a-zA-Z]{1,12}\":[0-9\"\\[\\]{}]{1,4}\\}",
    ) {
        let flag = cli::flags::PROXY.flags().nth(flag).unwrap().name;
        let line = ["pintle", "proxy", &format!("--{flag}={value}")];
        if let Ok(Subcommand::Proxy(args)) = cli::parse(&cli::words(line)) {
            let set = environment(&[("PROXY_CONFIG", &proxy_config), ("POD_NAME", &value)]);
            drop(Config::new(&args, set, &HostFacts::default()));
        }
    }
}

#[test]
fn nothing_of_a_proxy_config_is_passed_over_in_silence() {
    for (text, cause) in [
        (r#"{"tracing": 7}"#, "tracing: it must be an object"),
        (
            r#"{"proxyMetadata": ["A=b"]}"#,
            "proxyMetadata: it must be an object",
        ),
        (
            r#"{"envoyMetricsService": "a:1"}"#,
            "envoyMetricsService: it must be an object",
        ),
        (
            r#"{"proxyStatsMatcher": true}"#,
            "proxyStatsMatcher: it must be an object",
        ),
        (
            r#"{"proxyStatsMatcher": {"inclusionPrefixes": "a"}}"#,
            "proxyStatsMatcher.inclusionPrefixes: it must be a list of texts",
        ),
        (
            r#"{"proxyStatsMatcher": {"inclusionRegexps": ["a", 7]}}"#,
            "proxyStatsMatcher.inclusionRegexps: it must be a list of texts",
        ),
    ] {
        let said = refused("", &[("PROXY_CONFIG", text)]);
        assert!(said.contains(cause), "{text}: {said}");
    }
    config(
        "",
        &[(
            "PROXY_CONFIG",
            r#"{"tracing": null, "proxyStatsMatcher": {"inclusionSuffixes": null}}"#,
        )],
    );
}

/// As pilot-agent 1.2 to 1.6: a suffix behind the trust domain.
#[test]
fn pilot_identity_is_the_name_that_the_control_plane_must_have() {
    let names = |line: &str| {
        let line = format!("--controlPlaneAuthPolicy MUTUAL_TLS {line}");
        let config = config(&line, &POD);
        let tls = generated(&config).control_plane_tls.clone();
        tls.unwrap().subject_alt_names
    };
    for (line, expected) in [
        (
            "",
            "spiffe://cluster.local/ns/ns1/sa/istio-pilot-service-account",
        ),
        (
            "--pilotIdentity ns/x/sa/pilot",
            "spiffe://cluster.local/ns/x/sa/pilot",
        ),
        (
            "--pilotIdentity=pilot --trust-domain a@b",
            "spiffe://a.b/pilot",
        ),
        ("--pilot-identity spiffe://td/pilot", "spiffe://td/pilot"),
    ] {
        assert_eq!(names(line), [expected], "{line}");
    }
    assert!(config("--pilotIdentity x", &POD).warnings.is_empty());
}

#[test]
fn addresses_of_one_link_are_nobodys() {
    let host = HostFacts {
        addresses: ["fe80::1", "10.0.0.7", "169.254.1.1", "fd00::7", "febf::1"]
            .map(|address| address.parse().unwrap())
            .to_vec(),
        ..HostFacts::default()
    };
    let of = |line: &str| {
        let config = configured(line, &[], &host).unwrap();
        let ips = generated(&config).metadata.get("INSTANCE_IPS").unwrap();
        ips.as_str().unwrap().to_owned()
    };
    assert_eq!(of(""), "10.0.0.7,fd00::7");
    // Who asks for one gets it.
    assert_eq!(of("--ip fe80::9"), "fe80::9,10.0.0.7,fd00::7");
}

#[test]
fn a_proxy_names_its_ports_that_are_not_the_usual_ones() {
    let of = |line: &str, variables: &[(&str, &str)], key: &str| {
        let config = config(line, variables);
        generated(&config).metadata.get(key).map(Value::compact)
    };
    for (line, said) in [
        ("", None),
        ("--proxyAdminPort 15000 --statusPort 15020", None),
        ("--statusPort 15021", None),
        (
            "--proxyAdminPort 16000",
            Some(r#"{"proxyAdminPort":16000,"statusPort":0}"#),
        ),
        (
            "--statusPort 9",
            Some(r#"{"proxyAdminPort":15000,"statusPort":9}"#),
        ),
    ] {
        assert_eq!(of(line, &[], "PROXY_CONFIG").as_deref(), said, "{line}");
    }
    let more = [
        (
            "ISTIO_METAJSON_A",
            r#"{"PROXY_CONFIG":{"a":1,"statusPort":1}}"#,
        ),
        ("ENVOY_PROMETHEUS_PORT", "9"),
    ];
    let said = of("--statusPort 8", &more, "PROXY_CONFIG");
    let expected = r#"{"a":1,"proxyAdminPort":15000,"statusPort":8}"#;
    assert_eq!(said.as_deref(), Some(expected));
    let said = of("", &more, "ENVOY_PROMETHEUS_PORT");
    assert_eq!(said.as_deref(), Some("9"));
    assert_eq!(of("", &[], "ENVOY_PROMETHEUS_PORT"), None);
}

#[test]
fn variables_without_a_flag_are_honoured_or_warned_about() {
    let none = config("", &[]);
    assert_eq!(none.metrics, Metrics::default());
    assert!(none.launch.extra.is_empty());
    let all = [
        ("METRICS_LOCALHOST_ACCESS_ONLY", "true"),
        ("PILOT_AGENT_MERGE_ENVOY_STATS", "false"),
        ("ISTIO_ENVOY_ENABLE_CORE_DUMP", "true"),
        ("ENVOY_SKIP_DEPRECATED_LOGS", "true"),
    ];
    let asked = config("-- --log-path x", &all);
    let expected = Metrics {
        local_only: true,
        without_proxy: true,
    };
    assert_eq!(asked.metrics, expected);
    assert!(generated(&asked).prometheus_local);
    let flags = [
        "--enable-core-dump",
        "--skip-deprecated-logs",
        "--log-path",
        "x",
    ];
    assert_eq!(asked.launch.extra, flags);
    // Envoy refuses a flag that stands twice.
    let twice = config("-- --enable-core-dump", &all);
    let flags = ["--skip-deprecated-logs", "--enable-core-dump"];
    assert_eq!(twice.launch.extra, flags);
    for (name, value) in all {
        let opposite = if value == "true" { "false" } else { "true" };
        let config = config("", &[(name, opposite)]);
        assert_eq!(config.metrics, Metrics::default(), "{name}");
        assert!(config.launch.extra.is_empty(), "{name}");
        let said = refused("", &[(name, "often")]);
        assert_eq!(said, format!("cannot use {name} \"often\": true or false"));
    }
    let warned = config(
        "",
        &[
            ("ENVOY_STATUS_PORT", "15021"),
            ("DISABLE_ENVOY", "false"),
            // What is done in any case.
            ("REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", "true"),
        ],
    );
    assert_eq!(warned.warnings, ["ENVOY_STATUS_PORT means nothing here"]);
}

/// Each was silent, and the user of one waited for an effect that did not come.
#[test]
fn variables_without_effect_say_why() {
    for (name, value, reason) in [
        ("SDS_ENABLED", "true", ": certificates are read from files"),
        (
            "OUTPUT_CERTS",
            "/etc/istio-output-certs",
            ": certificates are read from files",
        ),
        (
            "PROXY_XDS_VIA_AGENT",
            "true",
            ": the proxy speaks to the control plane itself",
        ),
        ("DNS_AGENT", "DNS-TLS", ": names are not resolved here"),
        (
            "STACKDRIVER_TRACING_ENABLED",
            "1",
            ": use --zipkin-address or --datadog-agent-address",
        ),
        (
            "ENABLE_PROBE_KEEPALIVE_CONNECTIONS",
            "T",
            ": a probe has a connection of its own",
        ),
        ("FILE_DEBOUNCE_DURATION", "1s", ": use --cert-debounce"),
        ("ISTIO_AUTO_MTLS_ENABLED", "true", ""),
    ] {
        let said = [name, " means nothing here", reason].concat();
        assert_eq!(config("", &[(name, value)]).warnings, [said]);
        for unset in ["", "false", "0"] {
            assert!(config("", &[(name, unset)]).warnings.is_empty(), "{name}");
        }
    }
}

/// An injector of 1.6 sets three that have one reason.
#[test]
fn variables_with_one_reason_share_a_line() {
    let set = [
        ("PILOT_CERT_PROVIDER", "istiod"),
        ("CA_ADDR", "istiod:15012"),
        ("JWT_POLICY", "third-party-jwt"),
    ];
    let said = "CA_ADDR, JWT_POLICY, PILOT_CERT_PROVIDER mean nothing here: certificates are read from files";
    assert_eq!(config("", &set).warnings, [said]);
}

#[test]
fn the_shortest_drain_alone_says_that_it_has_no_effect() {
    let without = " means nothing without --exit-on-zero-active-connections";
    let flag = ["--minimum-drain-duration", without].concat();
    assert_eq!(config("--minimumDrainDuration 1s", &[]).warnings, [flag]);
    let variable = ["MINIMUM_DRAIN_DURATION", without].concat();
    assert_eq!(
        config("", &[("MINIMUM_DRAIN_DURATION", "1s")]).warnings,
        [variable]
    );
    let both = "--minimumDrainDuration 1s --exit-on-zero-active-connections";
    assert!(config(both, &[]).warnings.is_empty());
}

#[test]
fn the_trust_domain_comes_from_its_variable_too() {
    let name = |line: &str| {
        let line = ["--control-plane-auth-policy MUTUAL_TLS ", line].concat();
        let config = config(&line, &[("TRUST_DOMAIN", "example.org")]);
        generated(&config)
            .control_plane_tls
            .as_ref()
            .unwrap()
            .subject_alt_names[0]
            .clone()
    };
    assert!(
        name("").starts_with("spiffe://example.org/"),
        "{}",
        name("")
    );
    let other = name("--trust-domain example.com");
    assert!(other.starts_with("spiffe://example.com/"), "{other}");
}

/// Istio's own variable, given to the container or by the mesh.
#[test]
fn ads_is_by_delta_where_the_variable_says_so() {
    let rendered = |set: &[(&str, &str)]| {
        let config = config("", set);
        let rendered = bootstrap::render(&config.source, 0, bootstrap::Override::InFile);
        String::from_utf8(rendered.unwrap().document.unwrap()).unwrap()
    };
    let in_mesh = r#"{"proxyMetadata": {"ISTIO_DELTA_XDS": "true"}}"#;
    for (set, kind) in [
        (&[][..], "GRPC"),
        (&[("ISTIO_DELTA_XDS", "true")], "DELTA_GRPC"),
        (&[("ISTIO_DELTA_XDS", "false")], "GRPC"),
        (&[("PROXY_CONFIG", in_mesh)], "DELTA_GRPC"),
        (
            &[("PROXY_CONFIG", in_mesh), ("ISTIO_DELTA_XDS", "false")],
            "GRPC",
        ),
    ] {
        let said = format!("\"api_type\": \"{kind}\"");
        assert!(rendered(set).contains(&said), "{set:?}");
    }
    let said = refused("", &[("ISTIO_DELTA_XDS", "often")]);
    assert_eq!(said, "cannot use ISTIO_DELTA_XDS \"often\": true or false");
}

/// An application listens on no address that the host does not have.
#[test]
fn the_pods_address_is_one_of_the_hosts() {
    let pod = |line: &str, address: &str| {
        let host = HostFacts {
            addresses: vec![address.parse().unwrap()],
            ..HostFacts::default()
        };
        configured(line, &[], &host).unwrap().pod
    };
    let own = Some([10, 0, 0, 7].into());
    assert_eq!(pod("", "10.0.0.7"), own);
    assert_eq!(pod("--ip 10.0.0.7", "10.0.0.7"), own);
    assert_eq!(pod("--ip 10.0.0.8", "10.0.0.7"), None);
    assert_eq!(pod("", "127.0.0.1"), None);
}

#[test]
fn a_template_has_the_drain_that_is_in_force() {
    let said = |line: &str, variables: &[(&str, &str)]| {
        let config = config(&["--template-file /t ", line].concat(), variables);
        let Source::Template { template, .. } = config.source else {
            panic!("{:?}", config.source);
        };
        ["termination-drain-duration", "minimum-drain-duration"].map(|name| {
            let found = template.values.iter().find(|(known, _)| *known == name);
            found.unwrap().1.as_str().unwrap().to_owned()
        })
    };
    let zero = "--exit-on-zero-active-connections";
    assert_eq!(said("", &[]), ["5s", "5s"]);
    assert_eq!(
        said(&[zero, " --minimum-drain-duration 8s"].concat(), &[]),
        ["8s", "8s"]
    );
    assert_eq!(
        said(&[zero, " --termination-drain-duration 3s"].concat(), &[]),
        ["3s", "3s"]
    );
    let seconds = [("TERMINATION_DRAIN_DURATION_SECONDS", "-1")];
    assert_eq!(said("", &seconds), ["0s", "5s"]);
}
