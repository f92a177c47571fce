//! The agent beside the proxy starts with what is injected: pintle's own readers get the arguments and variables of the container.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails where it cannot go on"
)]

use std::ffi::OsStr;

use inject::{Configuration, Injected, Outcome, Parameters, Request, Sources};
use pintle::cli::{self, Subcommand, Word};
use pintle::config::{Config, HostFacts};
use pintle::environment::Environment;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The values of variables that kubelet takes from fields of the pod.
const OF_FIELDS: [(&str, &str); 3] = [
    ("POD_NAME", "web"),
    ("POD_NAMESPACE", "ns"),
    ("INSTANCE_IP", "10.1.2.3"),
];

fn word(text: &str) -> Word {
    Box::leak(Box::<OsStr>::from(OsStr::new(text)))
}

/// Reads a command line and variables as the agent does.
fn agent(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Config, String> {
    let arguments: Vec<Word> = ["pintle"]
        .iter()
        .chain(arguments)
        .map(|text| word(text))
        .collect();
    let variables = variables
        .iter()
        .map(|(name, value)| (word(name), word(value)));
    match cli::parse(&arguments) {
        Ok(Subcommand::Proxy(args)) => Config::new(
            &args,
            Environment::new(variables.collect()),
            &HostFacts::default(),
        )
        .map_err(|error| error.to_string()),
        other => Err(format!("{other:?}")),
    }
}

fn proxy(pod: &Value) -> &Value {
    let containers = pod["spec"]["containers"].as_array().unwrap();
    containers
        .iter()
        .find(|one| one["name"] == "istio-proxy")
        .unwrap()
}

/// Starts the agent of an injected pod.
fn start(pod: &Value) -> Result<Config, String> {
    let proxy = proxy(pod);
    let arguments = proxy["args"].as_array().unwrap().iter();
    let arguments: Vec<&str> = arguments.map(|one| one.as_str().unwrap()).collect();
    let variables = proxy["env"].as_array().unwrap().iter();
    let variables =
        variables.filter_map(|one| Some((one["name"].as_str()?, one["value"].as_str()?)));
    agent(
        &arguments,
        &OF_FIELDS.into_iter().chain(variables).collect::<Vec<_>>(),
    )
}

fn built_in(mesh: Option<&str>) -> Result<Configuration, String> {
    let sources = Sources {
        mesh,
        ..Sources::default()
    };
    let loaded = Configuration::load(sources, Parameters::default());
    loaded
        .map(|(configuration, _)| configuration)
        .map_err(|error| error.cause)
}

fn inject(configuration: &Configuration, pod: &Value) -> Result<Injected, String> {
    let request = Request {
        namespace: "ns".to_owned(),
        ..Request::default()
    };
    match configuration.inject(&request, pod) {
        Outcome::Injected(injected) => Ok(*injected),
        Outcome::Refused { message, .. } => Err(message),
        other @ Outcome::Skipped { .. } => panic!("{other:?}: {pod}"),
    }
}

fn annotated(annotations: &Value) -> Value {
    json!({"metadata": {"name": "web", "annotations": annotations}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}})
}

fn probed(field: &str, probe: &Value) -> Value {
    let mut pod = annotated(&json!({}));
    let container = &mut pod["spec"]["containers"][0];
    match field {
        "preStop" | "postStart" => container["lifecycle"] = json!({field: probe}),
        _ => container[field] = probe.clone(),
    }
    pod
}

/// Injects a pod with the probe. It goes to the agent, which starts with it, or stays with a warning, and the agent would not start.
fn assert_agreed(configuration: &Configuration, field: &str, probe: &Value) {
    let pod = probed(field, probe);
    let injected = inject(configuration, &pod).unwrap();
    let started = start(&injected.pod).unwrap_or_else(|cause| panic!("{probe}: {cause}"));
    let container = &injected.pod["spec"]["containers"][0];
    let is_left = *container == pod["spec"]["containers"][0];
    assert_eq!(started.probers.is_empty(), is_left, "{probe}");
    let mut warnings = injected.warnings.iter();
    let is_told = warnings.any(|warning| warning.contains("the proxy would not start"));
    assert_eq!(is_told, is_left, "{probe}: {:?}", injected.warnings);
    if is_left {
        let probers = json!({"/app-health/web/livez": probe}).to_string();
        let refused = agent(
            &["proxy", "sidecar"],
            &[("ISTIO_KUBE_APP_PROBERS", &probers)],
        );
        assert!(refused.is_err(), "{probe}");
    }
}

#[test]
fn the_agent_starts_with_the_probes_that_it_gets() {
    let configuration = built_in(None).unwrap();
    let header = |name: &str, value: &str| json!({"httpGet": {"port": 80, "httpHeaders": [{"name": name, "value": value}]}});
    for probe in [
        json!({"httpGet": {"port": 80, "path": "/health"}}),
        json!({"httpGet": {"port": 80, "path": "/health\n"}}),
        json!({"httpGet": {"port": 80, "path": "/a\tb"}}),
        json!({"httpGet": {"port": 80, "path": "no slash é\u{85}"}}),
        json!({"httpGet": {"port": 80, "path": null, "scheme": null, "httpHeaders": null}}),
        json!({"httpGet": {"port": 80, "scheme": "HTTPS"}}),
        json!({"httpGet": {"port": 80, "scheme": "FTP"}}),
        header("Authorization", "Bearer x"),
        header("Authorization", "Bearer x\n"),
        header("Content-Length", "5"),
        header("Host", "a b"),
        header("A B", "x"),
        header("", "x"),
        json!({"tcpSocket": {"port": 80}}),
    ] {
        for field in [
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "preStop",
            "postStart",
        ] {
            assert_agreed(&configuration, field, &probe);
        }
    }
    for service in [json!(null), json!("a.B"), json!("a\n")] {
        let probe = json!({"grpc": {"port": 80, "service": service}, "timeoutSeconds": 3});
        assert_agreed(&configuration, "livenessProbe", &probe);
    }
}

/// Five probes for each of sixty containers are more than an agent takes.
#[test]
fn the_agent_starts_with_as_many_probes_as_there_are() {
    let probe = json!({"httpGet": {"port": 80}});
    let container = |at: usize| {
        json!({"name": format!("a{at}"), "image": "i", "livenessProbe": probe, "readinessProbe": probe, "startupProbe": probe,
            "lifecycle": {"preStop": probe, "postStart": probe}})
    };
    let mut pod = annotated(&json!({}));
    pod["spec"]["containers"] = (0..60).map(container).collect();
    let injected = inject(&built_in(None).unwrap(), &pod).unwrap();
    assert_eq!(start(&injected.pod).unwrap().probers.len(), 256);
}

/// Injects a pod by a configuration. A proxy that would not start is told of.
fn assert_starts(configuration: &Configuration, annotations: &Value) -> bool {
    let Ok(injected) = inject(configuration, &annotated(annotations)) else {
        return false;
    };
    let started = start(&injected.pod);
    let mut warnings = injected.warnings.iter();
    let is_told = warnings.any(|warning| warning.contains("the proxy may not start"));
    assert!(
        started.is_ok() || is_told,
        "{annotations}: {:?}",
        started.map(drop)
    );
    started.is_ok()
}

/// Says an address in each of the ways in which the agent gets one. Returns true if it starts with all of them.
fn assert_address(address: &str) -> bool {
    let quoted = json!(address);
    let fields = [
        format!("discoveryAddress: {quoted}"),
        format!("envoyMetricsServiceAddress: {quoted}"),
        format!("statsdUdpAddress: {quoted}"),
        format!("tracing: {{zipkin: {{address: {quoted}}}}}"),
        format!("tracing: {{datadog: {{address: {quoted}}}}}"),
    ];
    let configuration = built_in(None).unwrap();
    let annotation = json!({"sidecar.istio.io/discoveryAddress": address});
    let mut starts = assert_starts(&configuration, &annotation);
    for field in fields {
        let of_mesh = built_in(Some(&format!("defaultConfig: {{{field}}}")));
        let of_pod = assert_starts(&configuration, &json!({"proxy.istio.io/config": field}));
        let of_mesh = of_mesh.is_ok_and(|mesh| assert_starts(&mesh, &json!({})));
        if !field.starts_with("statsd") {
            assert_eq!(of_mesh, of_pod, "{field}");
            starts &= of_pod;
        }
    }
    starts
}

#[test]
fn the_agent_starts_with_the_addresses_that_it_gets() {
    for address in ["a:1", "a.b-c.:15010", "1.2.3.4:1", "1.2.3.4x:65535"] {
        assert!(assert_address(address), "{address}");
    }
    for address in [
        "a_b:1", "a b:1", "_a:1", "a", "a:0", "a:+1", "-a:1", "::1:1", "1.2.3:1", "a..b:1",
    ] {
        assert!(!assert_address(address), "{address}");
    }
}

#[test]
fn the_agent_starts_without_a_drain() {
    let no_drain = json!({"proxy.istio.io/config": "terminationDrainDuration: 0s"});
    assert!(assert_starts(&built_in(None).unwrap(), &no_drain));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_agent_agrees_about_any_probe(
        path in "[a /\\t\\n\u{7f}\u{85}é%#]{0,3}",
        scheme in "|HTTP|HTTPS|https|FTP",
        name in "[A_~ :é]{0,2}",
        value in "[a \\t\\r\\n\u{0}\u{85}é\"]{0,3}",
        service in "[a.\\t\\n\u{85}é]{0,3}",
        timeout in 0..3,
    ) {
        let configuration = built_in(None).unwrap();
        let http = json!({"httpGet": {"path": path, "port": 80, "scheme": scheme, "httpHeaders": [{"name": name, "value": value}]}, "timeoutSeconds": timeout});
        assert_agreed(&configuration, "livenessProbe", &http);
        let grpc = json!({"grpc": {"port": 80, "service": service}, "timeoutSeconds": timeout});
        assert_agreed(&configuration, "readinessProbe", &grpc);
    }

    #[test]
    fn the_agent_agrees_about_any_address(host in "[a1_.\\-:\\[\\]]{0,5}", port in "|0|1|65535|65536|01|a") {
        assert_address(&format!("{host}:{port}"));
    }
}
