//! Properties of any pod: the patch applies, the user's fields remain, a second pass changes nothing, another configuration
//! gives the same result as on the original pod, and equal input gives equal bytes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails where it cannot go on"
)]

use std::sync::LazyLock;

use inject::{Configuration, NativeSidecars, Outcome, Parameters, Request, Sources};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A fragment with every feature.
const FULL: &str = r#"
injectedAnnotations: {by/us: "x"}
addLabels: true
probers: current
template: |
  rewriteAppHTTPProbe: true
  initContainers:
  - {name: istio-init, image: "init:[[ len .Spec.Containers ]]"}
  containers:
  - name: istio-proxy
    args: [--statusPort, "15020", "[[ applicationPorts .Spec.Containers ]]"]
    resources: {limits: {cpu: 1.5}}
    env: [{name: LABELS, value: [[ toJSON (toJSON .ObjectMeta.Labels) ]]}, {name: META, value: [[ toJSON (toJSON .ObjectMeta.Annotations) ]]}]
  volumes: [{name: istio-envoy, emptyDir: {}}]
  imagePullSecrets: [{name: pull}]
  podRedirectAnnot: {net/works: "y"}
"#;

/// Another, which has less and other things, some of them by names that users have.
const OTHER: &str = r"
template: |
  containers: [{name: istio-proxy, image: other}, {name: second}]
  volumes: [{name: certs}, {name: data, emptyDir: {}}]
  imagePullSecrets: [{name: mine}, {name: other}]
";

/// An overlay with every feature.
const OVERLAY: &str = r#"
injectedAnnotations: {by/us: "x"}
rewriteAppHTTPProbe: true
defaultTemplates: [sidecar, more]
templates:
  sidecar: |
    metadata:
      labels: {mesh: "yes"}
      annotations: {templates: both}
    spec:
      initContainers:
      - {name: istio-init, args: [-u, "1337", "{{ len .Spec.Containers }}"]}
      containers:
      - name: istio-proxy
        image: proxy
        args: [--statusPort, "15020", "{{ applicationPorts .Spec.Containers }}"]
        env: [{name: ORDER, value: "{{ range .Spec.InitContainers }}{{ .Name }} {{ end }}{{ range .Spec.Containers }}{{ .Name }} {{ end }}"}, {name: LABELS, value: {{ toJSON .ObjectMeta.Labels | toJSON }}}, {name: META, value: {{ toJSON .ObjectMeta.Annotations | toJSON }}}]
        readinessProbe: {httpGet: {path: /healthz/ready, port: 15020}}
        volumeMounts: [{name: istio-envoy, mountPath: /etc/istio/proxy}]
      volumes: [{name: istio-envoy, emptyDir: {}}, {name: certs, secret: {secretName: s}}]
      imagePullSecrets: [{name: pull}, {name: mine}]
      securityContext: {fsGroup: 7}
  more: |
    spec:
      containers:
      - {name: c0, env: [{name: MORE, value: m}], image: other}
      - {name: last}
"#;

/// A fragment that writes over what users have: annotations of its redirection, and fields of the pod.
const REDIRECT: &str = r#"
probers: current-http
template: |
  rewriteAppHTTPProbe: true
  containers:
  - name: istio-proxy
    image: redirect
    args: [--statusPort, "15020"]
    env: [{name: META, value: [[ toJSON (toJSON .ObjectMeta.Annotations) ]]}]
  dnsConfig: {searches: [mesh]}
  securityContext: {fsGroup: 1337}
  podRedirectAnnot: {net/ports: "[[ annotation .ObjectMeta `net/ports` `80` ]],15020", net/works: "y"}
"#;

/// An overlay that does.
const REPLACING: &str = r#"
rewriteAppHTTPProbe: true
templates:
  sidecar: |
    metadata:
      labels: {mesh: "yes"}
      annotations: {net/ports: "{{ annotation .ObjectMeta `net/ports` `80` }},15090", prometheus.io/port: "15090", net/works: null}
    spec:
      containers: [{name: istio-proxy, image: replacing, args: [--statusPort, "15020"]}]
      dnsConfig: {$patch: replace, nameservers: [192.0.2.1]}
      securityContext: {fsGroup: 1337, fsGroupChangePolicy: OnRootMismatch}
"#;

/// Another, which has less and other things.
const OTHER_OVERLAY: &str = r"
templates:
  sidecar: |
    metadata: {labels: {other: x}}
    spec: {containers: [{name: istio-proxy, image: other}, {name: second}], volumes: [{name: certs, emptyDir: {}}]}
";

fn load(config: &str) -> Configuration {
    Configuration::load(
        Sources {
            config: Some(config),
            ..Sources::default()
        },
        Parameters::default(),
    )
    .unwrap()
    .0
}

fn request() -> Request {
    asking(NativeSidecars::Off)
}

fn asking(native: NativeSidecars) -> Request {
    Request {
        namespace: "ns".to_owned(),
        native,
        ..Request::default()
    }
}

/// The pod after the patch, applied by a library.
fn injected(configuration: &Configuration, pod: &Value) -> Value {
    injected_by(configuration, &request(), pod)
}

fn injected_by(configuration: &Configuration, request: &Request, pod: &Value) -> Value {
    let Outcome::Injected(injected) = configuration.inject(request, pod) else {
        panic!("{pod}")
    };
    let patch: json_patch::Patch = serde_json::from_slice(&injected.patch).unwrap();
    let mut applied = pod.clone();
    json_patch::patch(&mut applied, &patch).unwrap_or_else(|error| {
        panic!(
            "{error}: {pod} {}",
            String::from_utf8_lossy(&injected.patch)
        )
    });
    // A null counts as absent, and may or may not be kept.
    assert_eq!(stripped(&applied), stripped(&injected.pod));
    assert!(!String::from_utf8_lossy(&injected.patch).contains(r#""value":null"#));
    applied
}

fn stripped(value: &Value) -> Value {
    match value {
        Value::Object(entries) => {
            let present = entries.iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                present
                    .map(|(key, value)| (key.clone(), stripped(value)))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(stripped).collect()),
        other => other.clone(),
    }
}

fn is_unchanged(configuration: &Configuration, pod: &Value) -> bool {
    is_unchanged_by(configuration, &request(), pod)
}

fn is_unchanged_by(configuration: &Configuration, request: &Request, pod: &Value) -> bool {
    matches!(
        configuration.inject(request, pod),
        Outcome::Skipped {
            reason: "unchanged",
            ..
        }
    )
}

#[test]
fn every_parent_may_be_absent() {
    for config in [FULL, OVERLAY] {
        parents(&load(config));
    }
}

fn parents(configuration: &Configuration) {
    for mask in 0_u8..64 {
        for absent in [None, Some(Value::Null)] {
            let mut spec = Map::new();
            let mut metadata = Map::new();
            for (bit, key) in [
                "initContainers",
                "containers",
                "volumes",
                "imagePullSecrets",
            ]
            .into_iter()
            .enumerate()
            {
                if mask & (1 << bit) != 0 {
                    spec.insert(key.to_owned(), json!([{"name": format!("{key}-0")}]));
                } else if let Some(absent) = &absent {
                    spec.insert(key.to_owned(), absent.clone());
                }
            }
            if mask & 16 != 0 {
                metadata.insert("annotations".to_owned(), json!({"a/b": "c"}));
            } else if let Some(absent) = &absent {
                metadata.insert("annotations".to_owned(), absent.clone());
            }
            let mut pod = json!({"spec": spec});
            if mask & 32 != 0 {
                pod["metadata"] = Value::Object(metadata);
            }
            let first = injected(configuration, &pod);
            assert!(is_unchanged(configuration, &first), "{first}");
        }
    }
    let first = injected(configuration, &json!({}));
    assert!(is_unchanged(configuration, &first), "{first}");
}

fn is_proxy(value: &Value) -> bool {
    value["name"] == "istio-proxy"
}

/// Asserts that `after` contains all of `pod`, except for probes and the status port, which are rewritten.
fn is_there(pod: &Value, after: &Value, path: &str) -> Result<(), String> {
    match (pod, after) {
        (Value::Null, _) => Ok(()),
        (Value::Object(a), Value::Object(b)) => {
            a.iter().try_for_each(|(key, value)| match b.get(key) {
                _ if key.ends_with("Probe") || value.is_null() => Ok(()),
                Some(other) => is_there(value, other, &format!("{path}.{key}")),
                None => Err(format!("{path}.{key} is gone")),
            })
        }
        (Value::Array(a), Value::Array(b)) => {
            // The user's proxy may move, and no other element.
            let rest: Vec<&Value> = b.iter().filter(|value| !is_proxy(value)).collect();
            let mut rest = rest.into_iter();
            a.iter().enumerate().try_for_each(|(index, value)| {
                let found = if is_proxy(value) {
                    b.iter().find(|other| is_there(value, other, path).is_ok())
                } else {
                    rest.find(|other| is_there(value, other, path).is_ok())
                };
                found
                    .map(drop)
                    .ok_or_else(|| format!("{path}[{index}] is gone"))
            })
        }
        _ if pod == after => Ok(()),
        _ => Err(format!("{path}: {pod} became {after}")),
    }
}

fn probe() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0_u16..3, any::<bool>()).prop_map(|(port, https)| json!({"httpGet": {"path": "/p", "port": port, "scheme": if https { "HTTPS" } else { "HTTP" }}, "timeoutSeconds": port})),
        prop_oneof![Just("http"), Just("nosuch")].prop_map(|name| json!({"httpGet": {"port": name}, "future": {"x": 1.0}})),
        Just(json!({"httpGet": {"port": 1, "host": "h"}})),
        (1_u16..3).prop_map(|port| json!({"tcpSocket": {"port": port}})),
        (1_u16..3).prop_map(|port| json!({"grpc": {"port": port, "service": "s"}, "timeoutSeconds": 5})),
        Just(json!({"exec": {"command": ["x"]}})),
        Just(Value::Null),
    ]
}

fn container(name: String) -> impl Strategy<Value = Value> {
    (
        prop::option::of(probe()),
        prop::option::of(probe()),
        prop::option::of(probe()),
        any::<bool>(),
    )
        .prop_map(move |(live, ready, start, ports)| {
            let mut container =
                json!({"name": name, "image": "i", "x": 1_152_921_504_606_846_977_u64});
            for (key, probe) in [
                ("livenessProbe", live),
                ("readinessProbe", ready),
                ("startupProbe", start),
            ] {
                if let Some(probe) = probe {
                    container[key] = probe;
                }
            }
            if ports {
                container["ports"] = json!([{"name": "http", "containerPort": 80}]);
            }
            container
        })
}

fn containers(prefix: &'static str) -> impl Strategy<Value = Value> {
    prop::collection::vec(Just(()), 0..4)
        .prop_flat_map(move |containers| {
            containers
                .iter()
                .enumerate()
                .map(|(index, ())| container(format!("{prefix}{index}")))
                .collect::<Vec<_>>()
        })
        .prop_map(Value::from)
}

fn texts() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-z~/.]{1,6}", "[ -~é]{0,8}", 0..3).prop_map(|map| json!(map))
}

fn pod() -> impl Strategy<Value = Value> {
    let optional = |strategy: BoxedStrategy<Value>| prop_oneof![2 => strategy.prop_map(Some), 1 => Just(None), 1 => Just(Some(Value::Null))];
    let named = |names: &'static [&'static str]| {
        prop::sample::subsequence(names.to_vec(), 0..=names.len())
            .prop_map(|names| {
                names
                    .iter()
                    .map(|name| json!({"name": name}))
                    .collect::<Value>()
            })
            .boxed()
    };
    (
        optional(containers("c").boxed()),
        optional(containers("i").boxed()),
        optional(named(&["data", "istio-data"])),
        optional(named(&["mine", "pull"])),
        optional(texts().boxed()),
        optional(texts().boxed()),
        prop::option::of(Just(json!({"fsGroup": 7}))),
    )
        .prop_map(
            |(containers, init, volumes, secrets, labels, annotations, context)| {
                let mut pod = json!({"metadata": {"name": "p"}, "spec": {"future": [1.0]}});
                for (key, value) in [
                    ("containers", containers),
                    ("initContainers", init),
                    ("volumes", volumes),
                    ("imagePullSecrets", secrets),
                    ("securityContext", context),
                ] {
                    if let Some(value) = value {
                        pod["spec"][key] = value;
                    }
                }
                for (key, value) in [("labels", labels), ("annotations", annotations)] {
                    if let Some(value) = value {
                        pod["metadata"][key] = value;
                    }
                }
                pod
            },
        )
}

/// A pod with a proxy container of its own, and with Prometheus annotations.
fn overlaid() -> impl Strategy<Value = Value> {
    let proxy = (
        container("istio-proxy".to_owned()),
        any::<bool>(),
        0_usize..3,
    );
    let annotations = prop::sample::subsequence(
        vec![
            ("prometheus.io/port", "80"),
            ("prometheus.io/path", "/m"),
            ("prometheus.io/scrape", "true"),
            ("prometheus.io/port", ""),
            ("prometheus.io/path", ""),
            ("prometheus.io/scrape", ""),
            ("prometheus_io_port", "81"),
            ("prometheus.io-path", "/n"),
            ("prometheus-io-scrape", ""),
        ],
        0..=4,
    );
    (pod(), prop::option::of(proxy), annotations, any::<bool>()).prop_map(
        |(mut pod, proxy, annotations, in_init)| {
            if let Some((mut proxy, auto, place)) = proxy {
                if auto {
                    proxy["image"] = json!("auto");
                }
                let list = if in_init {
                    // One that ends is refused.
                    proxy["restartPolicy"] = json!("Always");
                    "initContainers"
                } else {
                    "containers"
                };
                if !pod["spec"][list].is_array() {
                    pod["spec"][list] = json!([]);
                }
                let list = pod["spec"][list].as_array_mut().unwrap();
                list.insert(place.min(list.len()), proxy);
            }
            for (key, value) in annotations {
                if !pod["metadata"]["annotations"].is_object() {
                    pod["metadata"]["annotations"] = json!({});
                }
                pod["metadata"]["annotations"][key] = json!(value);
            }
            pod
        },
    )
}

/// A mode of interception, whether a CNI plugin does it, and labels and annotations that the template would write.
type Given = (
    Option<&'static str>,
    bool,
    Vec<(&'static str, &'static str, &'static str)>,
);

fn settings() -> impl Strategy<Value = Given> {
    let had = vec![
        ("labels", "security.istio.io/tlsMode", "istio"),
        ("labels", "service.istio.io/canonical-name", "n"),
        ("labels", "service.istio.io/canonical-revision", "r"),
        ("annotations", "istio.io/rev", "own"),
        (
            "annotations",
            "kubectl.kubernetes.io/default-container",
            "c0",
        ),
        (
            "annotations",
            "kubectl.kubernetes.io/default-logs-container",
            "c0",
        ),
    ];
    let all = had.len();
    (
        prop::option::of(prop::sample::select(vec!["NONE", "REDIRECT", "TPROXY"])),
        any::<bool>(),
        // The full set is as likely as any other number: then nothing is left to write.
        prop_oneof![prop::sample::subsequence(had.clone(), 0..=all), Just(had)],
    )
}

/// Adds the defaults of an API server.
fn with_defaults(pod: &Value) -> Value {
    let mut pod = pod.clone();
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            container["terminationMessagePath"] = json!("/dev/termination-log");
            for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
                if container[probe].is_object() {
                    for (key, value) in [
                        ("periodSeconds", 10),
                        ("timeoutSeconds", 1),
                        ("failureThreshold", 3),
                    ] {
                        if container[probe][key].is_null() || container[probe][key] == 0 {
                            container[probe][key] = json!(value);
                        }
                    }
                    if container[probe]["httpGet"].is_object()
                        && container[probe]["httpGet"]["scheme"].is_null()
                    {
                        container[probe]["httpGet"]["scheme"] = json!("HTTP");
                    }
                }
            }
            for port in container["ports"].as_array_mut().into_iter().flatten() {
                port["protocol"] = json!("TCP");
            }
        }
    }
    for volume in pod["spec"]["volumes"].as_array_mut().into_iter().flatten() {
        if volume["secret"].is_object() {
            volume["secret"]["defaultMode"] = json!(420);
        }
    }
    pod["spec"]["restartPolicy"] = json!("Always");
    pod
}

/// Sorts lists by name, since the order of elements is not guaranteed; annotations that were moved to Prometheus' names keep
/// their value.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(entries) => Value::Object(
            entries
                .iter()
                .map(|(key, value)| (key.clone(), sorted(value)))
                .collect(),
        ),
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(sorted).collect();
            items.sort_by_key(|item| item["name"].to_string());
            Value::Array(items)
        }
        other => other.clone(),
    }
}

/// Null and empty as good as absent, texts of objects as these, and ports by their number, as a second configuration finds
/// them.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(entries) => {
            let present = entries.iter().filter(|(_, value)| {
                !value.is_null() && **value != json!([]) && **value != json!({})
            });
            let mut sorted: Vec<_> = present
                .map(|(key, value)| {
                    (
                        key.clone(),
                        if key == "port" && value == "http" {
                            json!(80)
                        } else {
                            plain(value)
                        },
                    )
                })
                .collect();
            sorted.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(sorted.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(plain).collect()),
        Value::String(text) if text.starts_with('{') => {
            serde_json::from_str(text).map_or_else(|_| value.clone(), |object| plain(&object))
        }
        other => other.clone(),
    }
}

/// The built-in template and all of the above; fragments first.
static ALL: LazyLock<Vec<Configuration>> = LazyLock::new(|| {
    let written = [FULL, OTHER, REDIRECT, OVERLAY, OTHER_OVERLAY, REPLACING];
    let built_in = Configuration::load(Sources::default(), Parameters::default());
    let written = written.map(load).into_iter();
    written.chain([built_in.unwrap().0]).collect()
});

/// The number of fragments among them.
const FRAGMENTS: usize = 3;

fn has_own_proxy(pod: &Value) -> bool {
    let lists = ["containers", "initContainers"].into_iter();
    let mut all = lists.filter_map(|list| pod["spec"][list].as_array());
    all.any(|list| list.iter().any(is_proxy))
}

/// Asserts that `to` gives the same of a pod that `from` has injected and of the pod itself, and that neither changes its own
/// result.
fn crosswise(
    (from, to): (usize, usize),
    requests: [&Request; 2],
    pod: &Value,
) -> Result<(), String> {
    let all = &*ALL;
    let first = injected_by(&all[from], requests[0], pod);
    for again in [&first, &with_defaults(&first)] {
        if !is_unchanged_by(&all[from], requests[0], again) {
            let outcome = all[from].inject(requests[0], again);
            return Err(format!("{from} after itself: {outcome:?}"));
        }
    }
    // A fragment takes out what has the proxy's name, and nothing is left of it.
    if from == to || (from < FRAGMENTS && has_own_proxy(pod)) {
        return Ok(());
    }
    let direct = sorted(&plain(&injected_by(&all[to], requests[1], pod)));
    let later = injected_by(&all[to], requests[1], &first);
    if sorted(&plain(&later)) != direct {
        let later = sorted(&plain(&later));
        return Err(format!(
            "{from} then {to}:\nfound  {later}\nwanted {direct}"
        ));
    }
    if !is_unchanged_by(&all[to], requests[1], &later) {
        return Err(format!("{from}, then {to} twice"));
    }
    Ok(())
}

#[test]
fn removing_an_injection_restores_replaced_values() {
    let app = json!({"name": "app", "image": "a", "livenessProbe": {"httpGet": {"path": "/l", "port": 80}, "timeoutSeconds": 3}});
    let proxy =
        json!({"name": "istio-proxy", "image": "auto", "env": [{"name": "X", "value": "1"}]});
    let mut native = proxy.clone();
    native["restartPolicy"] = json!("Always");
    let pods = [
        json!({"spec": {"containers": [app]}}),
        json!({"spec": {"containers": [app, proxy]}}),
        json!({"spec": {"containers": [app], "initContainers": [native]}}),
        json!({"metadata": {"annotations": {"net/ports": "81", "net/works": "mine", "prometheus.io/port": "82"}, "labels": {"mesh": "mine"}},
            "spec": {"containers": [app], "securityContext": {"fsGroup": 5, "runAsUser": 6, "seLinuxOptions": {"user": "u"}},
            "dnsConfig": {"searches": ["mine"], "options": [{"name": "ndots"}]}}}),
        json!({"metadata": {"annotations": {"net/ports": "", "by/us": "mine"}}, "spec": {"containers": [app], "securityContext": {}}}),
    ];
    let requests = [NativeSidecars::Off, NativeSidecars::On].map(asking);
    let mut failures = Vec::new();
    for (index, pod) in pods.iter().enumerate() {
        for from in 0..ALL.len() {
            for to in 0..ALL.len() {
                for (first, second) in [(0, 0), (1, 1), (0, 1), (1, 0)] {
                    let requests = [&requests[first], &requests[second]];
                    if let Err(failure) = crosswise((from, to), requests, pod) {
                        failures.push(format!("pod {index}: {failure}"));
                    }
                }
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{}: {:#?}",
        failures.len(),
        failures.iter().take(9).collect::<Vec<_>>()
    );
}

/// A pod with values of its own where templates write theirs.
fn replaced() -> impl Strategy<Value = Value> {
    let annotations = prop::sample::subsequence(
        vec![
            ("net/ports", "81"),
            ("net/works", ""),
            ("by/us", "mine"),
            ("templates", "mine"),
        ],
        0..=4,
    );
    let context = prop::option::of(prop::sample::select(vec![
        json!({}),
        json!({"fsGroup": 5, "fsGroupChangePolicy": "Always"}),
        json!({"runAsUser": 6, "seLinuxOptions": {"user": "u"}, "future": {"x": 1.0}}),
    ]));
    let dns = prop::option::of(prop::sample::select(vec![
        json!({}),
        json!({"searches": ["mine"], "nameservers": ["192.0.2.7"]}),
        json!({"options": [{"name": "ndots", "value": "2"}]}),
    ]));
    (overlaid(), annotations, any::<bool>(), context, dns).prop_map(
        |(mut pod, annotations, is_labelled, context, dns)| {
            for (map, key, value) in annotations
                .into_iter()
                .map(|(key, value)| ("annotations", key, value))
                .chain(is_labelled.then_some(("labels", "mesh", "mine")))
            {
                if !pod["metadata"][map].is_object() {
                    pod["metadata"][map] = json!({});
                }
                pod["metadata"][map][key] = json!(value);
            }
            for (key, value) in [("securityContext", context), ("dnsConfig", dns)] {
                if let Some(value) = value {
                    pod["spec"][key] = value;
                }
            }
            pod
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_injection_adds_and_only_adds(pod in pod()) {
        let configuration = load(FULL);
        let first = injected(&configuration, &pod);
        prop_assert_eq!(is_there(&pod, &first, "pod"), Ok(()));
        prop_assert_eq!(configuration.inject(&request(), &pod), configuration.inject(&request(), &pod));
        prop_assert!(is_unchanged(&configuration, &first), "{:?}", configuration.inject(&request(), &first));
    }

    #[test]
    fn another_configuration_gives_what_it_would_have_given(pod in pod()) {
        let (full, other) = (load(FULL), load(OTHER));
        let direct = injected(&other, &pod);
        let later = injected(&other, &injected(&full, &pod));
        prop_assert_eq!(plain(&later), plain(&direct));
        let back = injected(&full, &later);
        prop_assert!(is_unchanged(&full, &back));
    }

    #[test]
    fn an_overlay_keeps_what_the_user_wrote(pod in overlaid(), native in any::<bool>()) {
        let configuration = load(OVERLAY);
        let request = asking(if native { NativeSidecars::On } else { NativeSidecars::Off });
        let first = injected_by(&configuration, &request, &pod);
        // A proxy that became an init container is compared there.
        let mut wanted = pod.clone();
        let mut moved = Value::Null;
        if pod["spec"]["containers"].as_array().is_some_and(|list| list.iter().any(is_proxy))
            && first["spec"]["initContainers"].as_array().is_some_and(|list| list.iter().any(is_proxy)) {
            let list = wanted["spec"]["containers"].as_array_mut().unwrap();
            let place = list.iter().position(is_proxy).unwrap();
            moved = list.remove(place);
        }
        for list in ["containers", "initContainers"] {
            for container in wanted["spec"][list].as_array_mut().into_iter().flatten().chain([&mut moved]) {
                if container["image"] == "auto" {
                    container["image"] = json!("proxy");
                }
            }
        }
        if let Some(annotations) = wanted["metadata"]["annotations"].as_object_mut() {
            annotations.retain(|key, _| !key.starts_with("prometheus"));
        }
        prop_assert_eq!(is_there(&wanted, &first, "pod"), Ok(()));
        if !moved.is_null() {
            prop_assert_eq!(is_there(&json!([moved]), &first["spec"]["initContainers"], "moved"), Ok(()));
        }
        prop_assert!(is_unchanged_by(&configuration, &request, &first), "{:?}", configuration.inject(&request, &first));
        let stored = with_defaults(&first);
        prop_assert!(is_unchanged_by(&configuration, &request, &stored), "{:?}", configuration.inject(&request, &stored));
    }

    #[test]
    fn the_built_in_template_keeps_what_the_user_wrote(pod in overlaid(), given in settings(), native in any::<bool>()) {
        let (mode, cni, had) = given;
        let mut pod = pod;
        for (map, key, value) in had {
            if !pod["metadata"][map].is_object() {
                pod["metadata"][map] = json!({});
            }
            pod["metadata"][map][key] = json!(value);
        }
        if let Some(mode) = mode {
            if !pod["metadata"]["annotations"].is_object() {
                pod["metadata"]["annotations"] = json!({});
            }
            pod["metadata"]["annotations"]["sidecar.istio.io/interceptionMode"] = json!(mode);
        }
        let parameters = Parameters { cni, ..Parameters::default() };
        let (configuration, _) = Configuration::load(Sources::default(), parameters).unwrap();
        let request = asking(if native { NativeSidecars::On } else { NativeSidecars::Off });
        let first = injected_by(&configuration, &request, &pod);
        let mut wanted = pod.clone();
        for list in ["containers", "initContainers"] {
            if let Some(list) = wanted["spec"][list].as_array_mut() {
                // A user's fields of the proxy have a property of their own.
                list.retain(|container| !is_proxy(container));
            }
        }
        if let Some(annotations) = wanted["metadata"]["annotations"].as_object_mut() {
            annotations.retain(|key, _| !key.starts_with("prometheus"));
        }
        prop_assert_eq!(is_there(&wanted, &first, "pod"), Ok(()));
        let redirects = first["spec"]["initContainers"].as_array().is_some_and(|list| list.iter().any(|one| one["name"] == "istio-init"));
        prop_assert_eq!(redirects, mode != Some("NONE") && !cni);
        prop_assert!(is_unchanged_by(&configuration, &request, &first), "{:?}", configuration.inject(&request, &first));
        let stored = with_defaults(&first);
        prop_assert!(is_unchanged_by(&configuration, &request, &stored), "{:?}", configuration.inject(&request, &stored));
    }

    #[test]
    fn another_overlay_gives_what_it_would_have_given(pod in overlaid(), native in any::<bool>()) {
        let (full, other) = (load(OVERLAY), load(OTHER_OVERLAY));
        let request = asking(if native { NativeSidecars::On } else { NativeSidecars::Off });
        let direct = injected(&other, &pod);
        let later = injected(&other, &injected_by(&full, &request, &pod));
        prop_assert_eq!(sorted(&plain(&later)), sorted(&plain(&direct)));
    }

    #[test]
    fn metrics_come_back_as_they_were_written(pod in overlaid()) {
        let quiet = Sources { config: Some(OTHER_OVERLAY), mesh: Some("enablePrometheusMerge: false"), ..Sources::default() };
        let (quiet, _) = Configuration::load(quiet, Parameters::default()).unwrap();
        let direct = injected(&quiet, &pod);
        let later = injected(&quiet, &injected(&load(OVERLAY), &pod));
        prop_assert_eq!(sorted(&plain(&later["metadata"])), sorted(&plain(&direct["metadata"])));
    }

    #[test]
    fn from_fragment_to_overlay_and_back(pod in pod()) {
        for (from, to) in [(FULL, OTHER_OVERLAY), (OVERLAY, OTHER)] {
            let (from, to) = (load(from), load(to));
            let direct = sorted(&plain(&injected(&to, &pod)));
            let later = sorted(&plain(&injected(&to, &injected(&from, &pod))));
            prop_assert_eq!(later, direct);
        }
    }

    #[test]
    fn from_any_configuration_to_any_other(pod in replaced(), from in 0_usize..7, to in 0_usize..7, native in any::<[bool; 2]>()) {
        let requests = native.map(|native| asking(if native { NativeSidecars::On } else { NativeSidecars::Off }));
        let [first, second] = &requests;
        prop_assert_eq!(crosswise((from, to), [first, second], &pod), Ok(()));
    }

    #[test]
    fn hostile_annotations_cause_no_panic(status in "\\PC{0,40}", probers in "\\PC{0,40}", inject in "\\PC{0,8}") {
        let pod = json!({"metadata": {"labels": {"sidecar.istio.io/inject": inject}, "annotations": {"sidecar.istio.io/status": status, "sidecar.istio.io/inject": inject}},
            "spec": {"containers": [{"name": "istio-proxy", "env": [{"name": "ISTIO_KUBE_APP_PROBERS", "value": probers}]}, {"name": "a"}]}});
        drop(load(FULL).inject(&request(), &pod));
        drop(load(OVERLAY).inject(&request(), &pod));
    }

    #[test]
    fn any_json_has_an_outcome(text in "[\\[\\]{}\":,a-z0-9 ]{0,60}", output in "\\PC{0,80}") {
        let configuration = load(FULL);
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            drop(configuration.inject(&request(), &value));
            drop(configuration.inject(&request(), &json!({"spec": value, "metadata": value})));
        }
        // Any output of a template is either typed or refused.
        let config = format!("template: {}\n", Value::from(output.as_str()));
        if let Ok((configuration, _)) = Configuration::load(Sources { config: Some(&config), ..Sources::default() }, Parameters::default()) {
            drop(configuration.inject(&request(), &json!({"spec": {"containers": []}})));
        }
    }
}
