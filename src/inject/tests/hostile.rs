//! Pods of hostile authors: their text becomes no shell, no line of a template, no privilege, and no work beyond its size.
//! Beside each attack stands a harmless pod.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::disallowed_methods,
    clippy::unreachable,
    reason = "a test fails where it cannot go on"
)]

#[allow(dead_code, reason = "other tests need the rest")]
#[path = "../../api/tests/support/growth.rs"]
mod growth;

use std::time::Duration;

use inject::{Configuration, Injected, NativeSidecars, Outcome, Parameters, Request, Sources};
use serde_json::{Map, Value, json};

fn built_in(settings: &[(&str, &str)], values: Option<&str>) -> Configuration {
    let sources = Sources {
        values,
        ..Sources::default()
    };
    let settings = settings.iter();
    let parameters = Parameters {
        settings: settings
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..Parameters::default()
    };
    Configuration::load(sources, parameters).unwrap().0
}

fn load(config: &str) -> Configuration {
    let sources = Sources {
        config: Some(config),
        ..Sources::default()
    };
    Configuration::load(sources, Parameters::default())
        .unwrap()
        .0
}

fn request() -> Request {
    Request {
        namespace: "ns".to_owned(),
        ..Request::default()
    }
}

fn injected(configuration: &Configuration, pod: &Value) -> Injected {
    match configuration.inject(&request(), pod) {
        Outcome::Injected(injected) => *injected,
        other => panic!("{other:?}: {pod}"),
    }
}

fn refused(configuration: &Configuration, pod: &Value) -> String {
    match configuration.inject(&request(), pod) {
        Outcome::Refused {
            code: 400, message, ..
        } => message,
        other => panic!("{other:?}: {pod}"),
    }
}

fn container<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    let lists = ["initContainers", "containers"].into_iter();
    let mut all = lists.flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
    all.find(|container| container["name"] == name)
}

fn annotated(annotations: &Value) -> Value {
    json!({"metadata": {"name": "web", "annotations": annotations}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}})
}

#[test]
fn core_dumps_are_the_administrators_to_allow() {
    let asks = annotated(&json!({"sidecar.istio.io/enableCoreDump": "true"}));
    let silent = annotated(&json!({}));
    let values = Some("global: {proxy: {enableCoreDump: true}}");
    let rows = [
        (built_in(&[], None), &asks, false),
        (built_in(&[("coreDump", "false")], None), &asks, false),
        (built_in(&[("coreDump", "true")], None), &asks, true),
        (built_in(&[], values), &asks, true),
        (built_in(&[("coreDump", "true")], None), &silent, false),
        (built_in(&[], values), &silent, false),
    ];
    for (configuration, pod, wanted) in rows {
        let injection = injected(&configuration, pod);
        let core_dump = container(&injection.pod, "enable-core-dump");
        assert_eq!(core_dump.is_some(), wanted);
        let is_reported = injection
            .warnings
            .iter()
            .any(|warning| warning.contains("sidecar.istio.io/enableCoreDump has no effect"));
        assert_eq!(
            is_reported,
            pod == &asks && !wanted,
            "{:?}",
            injection.warnings
        );
        if let Some(core_dump) = core_dump {
            assert_eq!(core_dump["command"], json!(["sysctl"]));
            let wanted = json!(["-w", "kernel.core_pattern=/var/lib/istio/core.proxy"]);
            assert_eq!(core_dump["args"], wanted);
        }
    }
}

/// No text of a pod's author reaches an argument of a privileged container, even through paths.
#[test]
fn no_word_of_the_author_runs_beside_rights() {
    let configuration = built_in(&[("coreDump", "true")], None);
    let annotations = json!({"sidecar.istio.io/enableCoreDump": "true", "proxy.istio.io/config": "configPath: /of/the/author"});
    let injection = injected(&configuration, &annotated(&annotations));
    let dump = container(&injection.pod, "enable-core-dump").unwrap();
    assert_eq!(dump["securityContext"]["privileged"], true);
    assert!(!dump.to_string().contains("author"), "{dump}");
    for path in [
        "/a; id", "/a\\nb", "/$(id)", "/`id`", "/a && b", "/\\u2028", "/a'b", "/a|b",
    ] {
        let annotations = json!({"sidecar.istio.io/enableCoreDump": "true", "proxy.istio.io/config": format!("configPath: \"{path}\"")});
        let message = refused(&configuration, &annotated(&annotations));
        assert!(
            message.contains("config invalid: configPath: "),
            "{message}"
        );
    }
}

/// A status is an annotation, too: what it says was there before the injection is refused as if it stood there.
#[test]
fn no_status_brings_back_what_no_annotation_may_say() {
    let stock = "containers: [{name: istio-proxy, image: p, args: ['{{ index .ObjectMeta.Annotations `traffic.sidecar.istio.io/excludeInboundPorts` }}']}]";
    let configurations = [
        built_in(&[], None),
        load(&format!("template: |\n  {stock}\n")),
        load(&format!(
            "templates:\n  sidecar: |\n    spec:\n      {stock}\n"
        )),
    ];
    let earlier = |key: &str, was: &str| {
        let replaced = json!({"annotations": {key: {"was": was, "is": "80"}}});
        let status = json!({"containers": ["istio-proxy"], "replaced": replaced});
        annotated(&json!({key: "80", "sidecar.istio.io/status": status.to_string()}))
    };
    for configuration in &configurations {
        for key in [
            "traffic.sidecar.istio.io/excludeInboundPorts",
            "traffic.sidecar.istio.io/excludeOutboundPorts",
        ] {
            for value in ["81'], securityContext: {privileged: true}, x: ['", "65536"] {
                let direct = refused(configuration, &annotated(&json!({key: value})));
                assert!(direct.contains(key), "{direct}");
                assert_eq!(refused(configuration, &earlier(key, value)), direct);
            }
            for value in ["81\n  privileged: true", "81\u{2028}"] {
                let message = refused(configuration, &earlier(key, value));
                assert!(
                    message.ends_with("it holds a control character"),
                    "{message}"
                );
            }
            let injection = injected(configuration, &earlier(key, "81"));
            assert_eq!(injection.pod["metadata"]["annotations"][key], "81");
        }
        let key = "readiness.status.sidecar.istio.io/failureThreshold";
        let direct = refused(configuration, &annotated(&json!({key: "a: b"})));
        assert!(direct.contains(key), "{direct}");
        for value in ["a: b", "81"] {
            let injection = injected(configuration, &earlier(key, value));
            assert_eq!(injection.pod["metadata"]["annotations"][key], "80");
        }
    }
}

/// Stock templates since 1.13 range over an annotation that nobody checks.
#[test]
fn no_json_of_the_author_begins_a_line() {
    let configuration = load(
        "templates:
  sidecar: |
    spec:
      containers:
      - name: istio-proxy
        env:
        {{- range $key, $value := fromJSON (index .ObjectMeta.Annotations `apm.datadoghq.com/env`) }}
        - name: {{ $key }}
          value: \"{{ $value }}\"
        {{- end }}
",
    );
    let of = |text: &str| annotated(&json!({"apm.datadoghq.com/env": text}));
    let injection = injected(&configuration, &of(r#"{"DD_ENV": "prod, a: b"}"#));
    let env = &container(&injection.pod, "istio-proxy").unwrap()["env"];
    assert_eq!(env[0], json!({"name": "DD_ENV", "value": "prod, a: b"}));
    for text in [
        r#"{"A": "b\"\n    securityContext: {privileged: true}\n    x: \""}"#,
        r#"{"A\n    securityContext: {privileged: true}\n    ports:\n    - x": "b"}"#,
        r#"{"A": "b\u2028"}"#,
        r#"{"A": {"b": ["\u0085"]}}"#,
    ] {
        let Outcome::Refused { message, .. } = configuration.inject(&request(), &of(text)) else {
            panic!("{text}");
        };
        assert!(
            message.contains("it holds a control character"),
            "{message}"
        );
    }
}

/// Lines as in Istio 1.1.5: text of a pod without quotes, or in quotes without escaping.
const LINES: &str = r#"template: |
  initContainers:
  [[ if eq (annotation .ObjectMeta `sidecar.istio.io/enableCoreDump` "false") "true" -]]
  - name: enable-core-dump
    args: ["-c", "sysctl -w kernel.core_pattern=[[ .ProxyConfig.ConfigPath ]]/core"]
    securityContext: {privileged: true}
  [[ end -]]
  - name: istio-init
    image: init
  containers:
  - name: istio-proxy
    image: [[ annotation .ObjectMeta `sidecar.istio.io/proxyImage` "proxy:1" ]]
    args:
    - --configPath
    - [[ .ProxyConfig.ConfigPath ]]
    - --serviceCluster
    - [[ valueOrDefault (index .ObjectMeta.Labels "app") "none" ]].[[ valueOrDefault .DeploymentMeta.Namespace "default" ]]
    - --owner
    - [[ .TypeMeta.Kind ]]/[[ .DeploymentMeta.Name ]]
    - --first
    - [[ range $i, $c := .Spec.Containers ]][[ $c.Name ]][[ end ]]
    - --account
    - [[ .Spec.ServiceAccountName ]]
    env:
    [[- range $key, $value := .ProxyConfig.ProxyMetadata ]]
    - name: [[ $key ]]
      value: "[[ $value ]]"
    [[- end ]]
  podRedirectAnnot:
    networks: '[[ appendMultusNetwork (index .ObjectMeta.Annotations "k8s.v1.cni.cncf.io/networks") "default/istio-cni" ]]'
"#;

#[test]
fn no_word_of_the_author_is_a_line_of_the_template() {
    let configuration = load(LINES);
    let line = "x\n  - name: evil\n    image: evil\n    securityContext: {privileged: true}";
    let quoted = json!(line).to_string();
    let mut pods = vec![
        annotated(&json!({"proxy.istio.io/config": format!("configPath: {quoted}")})),
        annotated(&json!({"proxy.istio.io/config": format!("serviceCluster: {quoted}")})),
        annotated(&json!({"proxy.istio.io/config": format!("proxyMetadata: {{A: {quoted}}}")})),
        annotated(&json!({"proxy.istio.io/config": format!("proxyMetadata: {{{quoted}: A}}")})),
        annotated(&json!({"proxy.istio.io/config": "configPath: |\n  x\n  - y\n"})),
        annotated(&json!({"sidecar.istio.io/proxyImage": line})),
        annotated(&json!({"x\ny": ""})),
    ];
    for (place, value) in [
        ("/metadata/name", json!(line)),
        ("/metadata/namespace", json!(line)),
        ("/metadata/labels", json!({"app": line})),
        ("/metadata/labels", json!({"app": "a\u{2028}b"})),
        ("/spec/serviceAccountName", json!(line)),
        ("/spec/containers/0/name", json!(line)),
    ] {
        let mut pod = annotated(&json!({}));
        pod["metadata"]["labels"] = json!({});
        pod["metadata"]["namespace"] = json!("ns");
        pod["spec"]["serviceAccountName"] = json!("me");
        *pod.pointer_mut(place).unwrap() = value;
        pods.push(pod);
    }
    let mut owned = annotated(&json!({}));
    owned["metadata"]["generateName"] = json!("web-");
    owned["metadata"]["ownerReferences"] =
        json!([{"kind": line, "apiVersion": "apps/v1", "name": "x", "controller": true}]);
    pods.push(owned);
    // A container that an earlier pass kept is one of the pod's again before a template sees it.
    let overrides = json!({"containers": [{"name": line}]}).to_string();
    let status = json!({"containers": ["istio-proxy", line]}).to_string();
    pods.push(annotated(
        &json!({"proxy.istio.io/overrides": overrides, "sidecar.istio.io/status": status}),
    ));
    for pod in pods {
        let message = refused(&configuration, &pod);
        assert!(message.contains("control character"), "{message}");
    }
    // Only this template reads these annotations.
    let networks = json!({"k8s.v1.cni.cncf.io/networks": "a'\n  evil: 'b"});
    let outcome = configuration.inject(&request(), &annotated(&networks));
    let Outcome::Refused { message, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(message.contains("control character"), "{message}");
    // Harmless values pass.
    let annotations = json!({"proxy.istio.io/config": "configPath: /x\nproxyMetadata: {A: \"{'b': [1 2]}\"}", "note": "a\nb",
        "k8s.v1.cni.cncf.io/networks": "[\n  {\"name\": \"a\"}\n]\n"});
    let pod = injected(&configuration, &annotated(&annotations)).pod;
    let proxy = container(&pod, "istio-proxy").unwrap();
    assert_eq!(proxy["args"][1], "/x");
    assert_eq!(
        proxy["env"],
        json!([{"name": "A", "value": "{'b': [1 2]}"}])
    );
    assert_eq!(
        pod["metadata"]["annotations"]["networks"],
        r#"[{"name":"a"},{"name":"istio-cni","namespace":"default"}]"#
    );
}

/// A container with every field that an author could abuse beside a template's privileges.
fn evil(name: &str) -> Value {
    json!({"name": name, "image": "evil", "command": ["sh"], "args": ["-c", "evil"], "workingDir": "/evil", "restartPolicy": "Always",
        "env": [{"name": "BASH_ENV", "value": "$(evil)"}], "envFrom": [{"configMapRef": {"name": "evil"}}],
        "securityContext": {"seLinuxOptions": {"type": "evil"}}, "volumeMounts": [{"name": "evil", "mountPath": "/bin"}],
        "volumeDevices": [{"name": "evil", "devicePath": "/dev/x"}], "lifecycle": {"postStart": {"exec": {"command": ["evil"]}}},
        "startupProbe": {"exec": {"command": ["evil"]}}, "livenessProbe": {"exec": {"command": ["evil"]}},
        "readinessProbe": {"httpGet": {"port": 80, "path": "/evil"}}, "stdin": true, "future": "evil",
        "resources": {"limits": {"cpu": "7"}}})
}

const GUARDED: [&str; 2] = ["istio-init", "enable-core-dump"];

#[test]
fn names_lend_no_rights() {
    let configuration = built_in(&[("coreDump", "true")], None);
    let asks = json!({"sidecar.istio.io/enableCoreDump": "true"});
    let honest = injected(&configuration, &annotated(&asks)).pod;
    for native in [NativeSidecars::Off, NativeSidecars::On] {
        let asking = Request {
            native,
            ..request()
        };
        let mut pod = annotated(&asks);
        pod["spec"]["initContainers"] = GUARDED.map(evil).into_iter().collect();
        let Outcome::Injected(injection) = configuration.inject(&asking, &pod) else {
            panic!()
        };
        for name in GUARDED {
            let mut wanted = container(&honest, name).unwrap().clone();
            // Resource limits are no privilege.
            wanted["resources"]["limits"]["cpu"] = json!("7");
            assert_eq!(container(&injection.pod, name), Some(&wanted));
            let mut warnings = injection.warnings.iter();
            assert!(
                warnings.any(|warning| warning.starts_with(&format!(
                    "container {name:?} is the template's: the pod's image, command"
                ))),
                "{:?}",
                injection.warnings
            );
        }
        // A second pass finds the user's fields, and has the same result.
        let again = configuration.inject(&asking, &injection.pod);
        assert!(
            matches!(
                again,
                Outcome::Skipped {
                    reason: "unchanged",
                    ..
                }
            ),
            "{again:?}"
        );
        // By a configuration that makes none of them they are the user's again.
        let other = load("templates: {sidecar: 'spec: {containers: [{name: istio-proxy}]}'}");
        let back = injected(&other, &injection.pod).pod;
        for name in GUARDED {
            assert_eq!(container(&back, name), Some(&evil(name)));
        }
    }
    // The proxy is the user's as before.
    let mut pod = annotated(&json!({}));
    pod["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .push(evil("istio-proxy"));
    let injected_pod = injected(&configuration, &pod).pod;
    let proxy = container(&injected_pod, "istio-proxy").unwrap();
    assert_eq!(proxy["image"], "evil");
    assert_eq!(proxy["env"][0]["name"], "BASH_ENV");
}

/// No pod has two containers of one name: the application's would have lost its image to the init container.
#[test]
fn an_application_is_not_called_as_an_init_container_of_the_template() {
    let configuration = built_in(&[("coreDump", "true")], None);
    let asks = json!({"sidecar.istio.io/enableCoreDump": "true"});
    for name in GUARDED {
        let mut pod = annotated(&asks);
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        containers.push(json!({"name": name, "image": "mine"}));
        assert_eq!(
            refused(&configuration, &pod),
            format!(
                "spec.containers[1]: {name} is an init container of the template: want another name"
            )
        );
        // Where the template makes none, the name is free.
        pod["metadata"]["annotations"] = json!({"sidecar.istio.io/interceptionMode": "NONE"});
        let injected_pod = injected(&configuration, &pod).pod;
        assert_eq!(container(&injected_pod, name).unwrap()["image"], "mine");
    }
}

/// API servers refuse two mounts at one path, and say only which element of the proxy's list it is.
#[test]
fn a_path_is_mounted_once() {
    let configuration = built_in(&[], None);
    for (name, value, path) in [
        (
            "proxy.istio.io/config",
            "configPath: /etc/certs",
            "/etc/certs",
        ),
        (
            "sidecar.istio.io/userVolumeMount",
            r#"{"v": {"mountPath": "/etc/istio/proxy"}}"#,
            "/etc/istio/proxy",
        ),
    ] {
        let message = refused(&configuration, &annotated(&json!({name: value})));
        let says = format!(
            "istio-proxy would have two mounts at {path:?}, which API servers refuse: want another configPath"
        );
        assert!(message.starts_with(&says), "{message}");
    }
    for (name, value) in [
        ("proxy.istio.io/config", "configPath: /etc/certs2"),
        (
            "sidecar.istio.io/userVolumeMount",
            r#"{"v": {"mountPath": "/v"}}"#,
        ),
    ] {
        injected(&configuration, &annotated(&json!({name: value})));
    }
}

#[test]
fn a_template_of_ones_own_lends_none_either() {
    let configuration = load(
        r"templates:
  sidecar: |
    spec:
      initContainers:
      - {name: setup, image: t, securityContext: {capabilities: {add: [SYS_ADMIN]}}}
      - {name: plain, image: t, args: [t]}
      containers:
      - {name: istio-proxy, image: t}
      - {name: web, env: [{name: T, value: t}], volumeMounts: [{name: t, mountPath: /t}]}
      volumes: [{name: t, emptyDir: {}}]
",
    );
    let mut pod = annotated(&json!({}));
    pod["spec"]["containers"] = json!([evil("web")]);
    pod["spec"]["initContainers"] = json!([evil("setup"), evil("plain")]);
    let injected_pod = injected(&configuration, &pod).pod;
    assert_eq!(
        container(&injected_pod, "setup").unwrap(),
        &json!({"name": "setup", "image": "t", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}, "resources": {"limits": {"cpu": "7"}}})
    );
    let plain = container(&injected_pod, "plain").unwrap();
    assert_eq!(
        (&plain["image"], &plain["args"]),
        (&json!("t"), &json!(["t"]))
    );
    for gone in ["command", "securityContext", "volumeMounts"] {
        assert_eq!(plain.get(gone), None, "{gone}");
    }
    // This container has no privileges, so all other fields are the user's.
    assert_eq!(plain["env"], evil("plain")["env"]);
    // A container to which the template only adds fields is the user's.
    let web = container(&injected_pod, "web").unwrap();
    assert_eq!(
        (&web["image"], &web["command"]),
        (&json!("evil"), &json!(["sh"]))
    );
    assert_eq!(web["volumeMounts"].as_array().unwrap().len(), 2);
    assert_eq!(web["env"].as_array().unwrap().len(), 2);
}

/// An earlier pass is known by an annotation that any author can write, and the version is in every pod.
#[test]
fn an_annotation_grants_no_rights() {
    let of_fragment = load(
        r"template: |
  initContainers:
  - {name: istio-init, image: t, args: [t], securityContext: {capabilities: {add: [NET_ADMIN]}}}
  containers:
  - {name: istio-proxy, image: t}
",
    );
    let asks = json!({"sidecar.istio.io/enableCoreDump": "true"});
    for (configuration, names) in [
        (built_in(&[("coreDump", "true")], None), &GUARDED[..]),
        (of_fragment, &GUARDED[..1]),
    ] {
        let honest = injected(&configuration, &annotated(&asks)).pod;
        for name in names {
            for (key, value) in evil(name).as_object().unwrap() {
                if key == "name" {
                    continue;
                }
                let mut claimed = honest.clone();
                let all = claimed["spec"]["initContainers"].as_array_mut().unwrap();
                let one = all.iter_mut().find(|one| &one["name"] == name).unwrap();
                let is_set = one.get(key).is_some();
                if key == "resources" || (is_set && ["image", "args"].contains(&key.as_str())) {
                    // A change of these fields shows in any comparison.
                    continue;
                }
                match (one.get_mut(key), value) {
                    (Some(Value::Object(known)), Value::Object(more)) => known.extend(more.clone()),
                    _ => one[key] = value.clone(),
                }
                let injected_pod = injected(&configuration, &claimed).pod;
                assert_eq!(
                    container(&injected_pod, name),
                    container(&honest, name),
                    "{key}"
                );
            }
        }
        // Defaults of the API server do not make a container differ.
        let mut stored = honest.clone();
        for one in stored["spec"]["initContainers"].as_array_mut().unwrap() {
            one["terminationMessagePath"] = json!("/dev/termination-log");
            one["terminationMessagePolicy"] = json!("File");
            one["imagePullPolicy"] = json!("IfNotPresent");
            one["volumeMounts"] = json!([{"name": "kube-api-access-x", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]);
        }
        let again = configuration.inject(&request(), &stored);
        assert!(
            matches!(
                again,
                Outcome::Skipped {
                    reason: "unchanged",
                    ..
                }
            ),
            "{again:?}"
        );
    }
}

fn many<T>(count: usize, one: impl Fn(usize) -> T) -> Vec<T> {
    (0..count).map(one).collect()
}

fn entries(count: usize, value: impl Fn(usize) -> Value) -> Value {
    Value::Object(Map::from_iter(many(count, |i| (format!("k{i}"), value(i)))))
}

/// A way to make a pod large, by its name.
type Growing = (&'static str, fn(usize) -> Value);

fn spec(list: &str, items: Vec<Value>) -> Value {
    let mut pod = annotated(&json!({}));
    pod["spec"][list] = Value::Array(items);
    pod
}

fn of_container(name: &str, field: &str, items: Vec<Value>) -> Value {
    let mut pod = annotated(&json!({}));
    let mut one = json!({"name": name, "image": "i"});
    one[field] = Value::Array(items);
    pod["spec"]["containers"].as_array_mut().unwrap().push(one);
    pod
}

fn port(i: usize) -> Value {
    json!({"name": format!("p{i}"), "containerPort": i % 60000 + 1})
}

/// Names that annotations hold, and a pod that has them.
fn named(count: usize, annotation: &str) -> Value {
    let names = many(count, |i| format!("c{i}"));
    let containers = names.iter().map(|name| json!({"name": name}));
    let mut pod = spec("containers", containers.collect());
    let status =
        json!({"version": "v", "containers": names, "labels": names, "annotations": names});
    let list: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    let overrides = json!({"containers": list});
    pod["metadata"]["annotations"] = match annotation {
        "status" => json!({"sidecar.istio.io/status": status.to_string()}),
        _ => {
            json!({"sidecar.istio.io/status": json!({"containers": names}).to_string(), "proxy.istio.io/overrides": overrides.to_string()})
        }
    };
    pod["metadata"]["labels"] = entries(count, |_| json!("x"));
    pod
}

const GROWING: [Growing; 30] = [
    ("containers", |n| {
        spec(
            "containers",
            many(
                n,
                |i| json!({"name": format!("c{i}"), "ports": [port(i)], "livenessProbe": {"httpGet": {"port": format!("p{i}")}}}),
            ),
        )
    }),
    ("containers of one name", |n| {
        spec("containers", many(n, |_| json!({"name": "c"})))
    }),
    ("containers called as the proxy", |n| {
        spec("containers", many(n, |_| json!({"name": "istio-proxy"})))
    }),
    ("init containers", |n| {
        spec(
            "initContainers",
            many(n, |i| json!({"name": format!("c{i}")})),
        )
    }),
    ("ephemeral containers", |n| {
        spec(
            "ephemeralContainers",
            many(n, |i| json!({"name": format!("c{i}")})),
        )
    }),
    ("volumes", |n| {
        spec(
            "volumes",
            many(n, |i| json!({"name": format!("v{i}"), "emptyDir": {}})),
        )
    }),
    ("volumes of one name", |n| {
        spec(
            "volumes",
            many(n, |_| json!({"name": "istio-envoy", "emptyDir": {}})),
        )
    }),
    ("pull secrets", |n| {
        spec(
            "imagePullSecrets",
            many(n, |i| json!({"name": format!("s{i}")})),
        )
    }),
    ("host aliases", |n| {
        spec(
            "hostAliases",
            many(
                n,
                |i| json!({"ip": format!("10.0.{}.{}", i / 256, i % 256), "hostnames": ["a"]}),
            ),
        )
    }),
    ("tolerations", |n| {
        spec("tolerations", many(n, |i| json!({"key": format!("t{i}")})))
    }),
    ("node selector", |n| {
        let mut pod = annotated(&json!({}));
        pod["spec"]["nodeSelector"] = entries(n, |_| json!("x"));
        pod
    }),
    ("owners", |n| {
        let mut pod = annotated(&json!({}));
        pod["metadata"]["generateName"] = json!("web-");
        pod["metadata"]["ownerReferences"] =
            Value::Array(many(n, |_| json!({"kind": "ReplicaSet", "name": "a"})));
        pod
    }),
    ("variables", |n| {
        of_container(
            "c",
            "env",
            many(n, |i| json!({"name": format!("E{i}"), "value": "x"})),
        )
    }),
    ("mounts", |n| {
        of_container(
            "c",
            "volumeMounts",
            many(n, |i| json!({"name": "v", "mountPath": format!("/{i}")})),
        )
    }),
    ("ports", |n| of_container("c", "ports", many(n, port))),
    ("the proxy's variables", |n| {
        of_container(
            "istio-proxy",
            "env",
            many(n, |i| json!({"name": format!("E{i}"), "value": "x"})),
        )
    }),
    ("the proxy's variables of one name", |n| {
        of_container(
            "istio-proxy",
            "env",
            many(n, |i| json!({"name": "E", "value": i.to_string()})),
        )
    }),
    ("the proxy's mounts", |n| {
        of_container(
            "istio-proxy",
            "volumeMounts",
            many(n, |i| json!({"name": "v", "mountPath": format!("/{i}")})),
        )
    }),
    ("the proxy's ports", |n| {
        of_container("istio-proxy", "ports", many(n, port))
    }),
    ("the proxy's ports of one number", |n| {
        of_container(
            "istio-proxy",
            "ports",
            many(n, |i| json!({"name": format!("p{i}"), "containerPort": 1})),
        )
    }),
    ("the proxy's arguments", |n| {
        of_container(
            "istio-proxy",
            "args",
            many(n, |i| json!(format!("--a={i}"))),
        )
    }),
    ("what is the template's", |n| {
        let mut one = json!({"name": "istio-init"});
        one["env"] = Value::Array(many(n, |i| json!({"name": format!("E{i}")})));
        spec("initContainers", vec![one])
    }),
    ("annotations", |n| annotated(&entries(n, |_| json!("x")))),
    ("labels", |n| {
        let mut pod = annotated(&json!({}));
        pod["metadata"]["labels"] = entries(n, |_| json!("x"));
        pod
    }),
    ("names in a status", |n| named(n, "status")),
    ("kept containers", |n| named(n, "overrides")),
    ("originals of probes", |n| {
        let mut pod = spec(
            "containers",
            many(
                n,
                |i| json!({"name": format!("c{i}"), "livenessProbe": {"httpGet": {"path": format!("/app-health/c{i}/livez"), "port": 1}}}),
            ),
        );
        let all = many(n, |i| {
            (
                format!("/app-health/c{i}/livez"),
                json!({"httpGet": {"port": 2}}),
            )
        });
        let text = Value::Object(Map::from_iter(all)).to_string();
        let proxy = json!({"name": "istio-proxy", "env": [{"name": "ISTIO_KUBE_APP_PROBERS", "value": text}]});
        pod["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .push(proxy);
        pod["metadata"]["annotations"] =
            json!({"sidecar.istio.io/status": "{\"containers\":[\"istio-proxy\"]}"});
        pod
    }),
    ("variables of the proxy's configuration", |n| {
        let all = entries(n, |_| json!("x"));
        annotated(&json!({"proxy.istio.io/config": json!({"proxyMetadata": all}).to_string()}))
    }),
    ("volumes by annotation", |n| {
        let all = entries(n / 4, |_| json!({"emptyDir": {}}));
        annotated(&json!({"sidecar.istio.io/userVolume": all.to_string()}))
    }),
    ("one deep list", |n| {
        spec(
            "tolerations",
            many(n, |i| json!({"a": {"b": {"c": [i, {"d": {}}]}}})),
        )
    }),
];

/// Measures one review, in the time of the processor: a machine that is busy lengthens it by no more than its caches.
fn once(configuration: &Configuration, request: &Request, pod: &Value) -> (Duration, Outcome) {
    let start = growth::cpu_time();
    let outcome = configuration.inject(request, pod);
    (growth::cpu_time().saturating_sub(start), outcome)
}

/// Ten times the input takes about ten times as long: quadratic work would take a hundred times.
const TIMES: u32 = 30;
/// Shorter durations are too small to measure.
const MIN_MEASURED: Duration = Duration::from_millis(2);
/// Rounds, of which the shortest counts: other tests run at the same time.
const ROUNDS: usize = 25;

/// Returns both outcomes, and the durations if the second exceeds the bound.
fn grows(
    configuration: &Configuration,
    asked: [(&Request, &Value); 2],
) -> ([Outcome; 2], Option<String>) {
    let mut best = [Duration::MAX; 2];
    for round in 1.. {
        let [(one, first), (ten, last)] =
            asked.map(|(request, pod)| once(configuration, request, pod));
        best = [best[0].min(one), best[1].min(ten)];
        let slow = best[1] > best[0].max(MIN_MEASURED) * TIMES;
        if !slow || round == ROUNDS {
            return ([first, last], slow.then(|| format!("{best:?}")));
        }
    }
    unreachable!()
}

#[test]
fn a_review_grows_with_its_pod() {
    let fragment = "template: |\n  rewriteAppHTTPProbe: true\n  initContainers: [{name: istio-init, image: i}]\n  \
        containers: [{name: istio-proxy, image: p, args: [--statusPort, \"15020\"]}]\n  volumes: [{name: istio-envoy, emptyDir: {}}]\n  \
        imagePullSecrets: [{name: s}]\n";
    let mut slow = Vec::new();
    for (of, configuration) in [
        ("built-in", built_in(&[], None)),
        ("fragment", load(fragment)),
    ] {
        let asking = request();
        for (what, grown) in GROWING {
            let pods = [300, 3_000].map(grown);
            let (outcomes, took) = grows(&configuration, pods.each_ref().map(|pod| (&asking, pod)));
            slow.extend(took.map(|took| format!("{of}: {what}: {took}")));
            // The same pods once more, as the server sends them to a second pass.
            if let [Outcome::Injected(first), Outcome::Injected(last)] = &outcomes {
                let pods = [(&asking, &first.pod), (&asking, &last.pod)];
                let (_, took) = grows(&configuration, pods);
                slow.extend(took.map(|took| format!("{of}: {what}, second pass: {took}")));
            }
        }
        let pairs = [300, 3_000].map(|n| Request {
            proxy_envs: many(n, |i| (format!("k{i}"), "v".to_owned())),
            ..request()
        });
        let pod = annotated(&json!({}));
        let (_, took) = grows(
            &configuration,
            pairs.each_ref().map(|request| (request, &pod)),
        );
        slow.extend(took.map(|took| format!("{of}: pairs of the path: {took}")));
    }
    assert!(slow.is_empty(), "{slow:#?}");
}

/// Issue 21: 40,000 names in each annotation, 1.7 MB, took 29 s.
#[test]
fn annotations_have_kubernetes_bound() {
    let configuration = built_in(&[], None);
    let names = many(40_000, |i| format!("c{i}"));
    let list: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    let pod = annotated(
        &json!({"sidecar.istio.io/status": json!({"containers": names}).to_string(),
        "proxy.istio.io/overrides": json!({"containers": list}).to_string()}),
    );
    let message = refused(&configuration, &pod);
    assert!(message.starts_with("metadata.annotations: "), "{message}");
    assert!(
        message.ends_with(" bytes together, want 262144 at most"),
        "{message}"
    );
    let fits = annotated(&json!({"note": "x".repeat(200_000)}));
    injected(&configuration, &fits);
    // Alone it fits, and the API server would refuse it with the status.
    let full = annotated(&json!({"note": "x".repeat((256 << 10) - "note".len())}));
    let message = refused(&configuration, &full);
    assert!(
        message.ends_with(" bytes together with those of the injection, want 262144 at most"),
        "{message}"
    );
}

/// Variables that a proxy can do without are left out, and a pod whose proxy could not start is refused.
#[test]
fn no_other_text_of_a_pod_keeps_a_proxy_from_starting() {
    let configuration = built_in(&[], None);
    let long = "x".repeat(140_000);
    let mut pod = annotated(&json!({}));
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": 80}});
    pod["spec"]["containers"][0]["livenessProbe"] = probe(&long);
    pod["spec"]["containers"][0]["readinessProbe"] = probe("/ready");
    let done = injected(&configuration, &pod);
    let web = container(&done.pod, "web").unwrap();
    assert_eq!(web["livenessProbe"], probe(&long));
    assert_eq!(
        web["readinessProbe"]["httpGet"]["path"],
        "/app-health/web/readyz"
    );
    let proxy = container(&done.pod, "istio-proxy").unwrap();
    let variables = proxy["env"].as_array().unwrap();
    let probers = variables
        .iter()
        .find(|one| one["name"] == "ISTIO_KUBE_APP_PROBERS");
    let probers = probers.unwrap()["value"].as_str().unwrap();
    assert_eq!(
        probers,
        "{\"/app-health/web/readyz\":{\"httpGet\":{\"path\":\"/ready\",\"port\":80}}}"
    );
    let left = "container web: livenessProbe would make ISTIO_KUBE_APP_PROBERS longer than ";
    let is_told = done.warnings.iter().any(|one| one.starts_with(left));
    assert!(is_told, "{:?}", done.warnings);
    let again = configuration.inject(&request(), &done.pod);
    assert!(matches!(again, Outcome::Skipped { .. }), "{again:?}");
    for (annotation, value, name) in [
        (
            "prometheus.io/path",
            long.clone(),
            "ISTIO_PROMETHEUS_ANNOTATIONS of istio-proxy",
        ),
        (
            "traffic.sidecar.istio.io/includeInboundPorts",
            "10000,".repeat(24_000) + "1",
            "-b of istio-init",
        ),
        (
            "traffic.sidecar.istio.io/includeOutboundIPRanges",
            "10.0.0.0/8,".repeat(12_800) + "::/0",
            "-i of istio-init",
        ),
        (
            "proxy.istio.io/config",
            format!("proxyMetadata: {{A: {long}}}"),
            "A of istio-proxy",
        ),
        (
            "sidecar.istio.io/componentLogLevel",
            format!("a:{long}"),
            "--proxyComponentLogLevel of istio-proxy",
        ),
    ] {
        let pod = annotated(&json!({"prometheus.io/scrape": "true", annotation: value}));
        let message = refused(&configuration, &pod);
        let starts = format!("{name} would have 14");
        assert!(message.starts_with(&starts), "{message}");
    }
}

/// Linux starts no program with a variable of more than 128 KiB, its name and the byte at its end counted. Half of that fits.
#[test]
fn no_annotation_keeps_a_proxy_from_starting() {
    let env = "[{name: A, value: b}, {name: ISTIO_METAJSON_ANNOTATIONS, value: '{{ toJSON .ObjectMeta.Annotations }}'},
        {name: ISTIO_METAJSON_LABELS, value: '{{ toJSON .ObjectMeta.Labels }}'}]";
    let made = format!("[{{name: istio-proxy, image: p, env: {env}}}]");
    let configurations = [
        ("built-in", built_in(&[], None)),
        (
            "fragment",
            load(&format!("template: |\n  containers: {made}\n")),
        ),
        (
            "overlay",
            load(&format!(
                "templates:\n  sidecar: |\n    spec: {{containers: {made}}}\n"
            )),
        ),
        (
            "native",
            load(&format!(
                "templates:\n  sidecar: |\n    spec: {{initContainers: {made}}}\n"
            )),
        ),
    ];
    // The longest value that fits into the variable, without name, key, quotes, braces, `=` and the final byte.
    let room = (128 << 10) - "ISTIO_METAJSON_ANNOTATIONS={\"note\":\"\"}\0".len();
    let own = json!([{"name": "ISTIO_METAJSON_ANNOTATIONS", "value": "x".repeat(room + 100)}]);
    for (of, configuration) in configurations {
        for (map, variable, more, fits) in [
            ("annotations", "ISTIO_METAJSON_ANNOTATIONS", 0, true),
            ("annotations", "ISTIO_METAJSON_ANNOTATIONS", 1, false),
            ("annotations", "ISTIO_METAJSON_ANNOTATIONS", 100_000, false),
            ("labels", "ISTIO_METAJSON_LABELS", 100_000, false),
        ] {
            let mut pod = annotated(&json!({}));
            pod["metadata"][map] = json!({"note": "x".repeat(room + more)});
            // The template does not touch the user's own container.
            pod["spec"]["containers"][0]["env"] = own.clone();
            let injected = injected(&configuration, &pod);
            let proxy = container(&injected.pod, "istio-proxy").unwrap();
            let names: Vec<&Value> = proxy["env"]
                .as_array()
                .unwrap()
                .iter()
                .map(|one| &one["name"])
                .collect();
            assert_eq!(
                names.iter().any(|name| **name == variable),
                fits,
                "{of}, {map}, {more}: {names:?}"
            );
            assert!(names.len() >= 2, "{of}: {names:?}");
            let warnings = injected
                .warnings
                .iter()
                .filter(|one| one.starts_with(&format!("{variable} of istio-proxy is left out: ")));
            assert_eq!(
                warnings.count(),
                usize::from(!fits),
                "{of}: {:?}",
                injected.warnings
            );
            assert_eq!(container(&injected.pod, "web").unwrap()["env"], own, "{of}");
            let again = configuration.inject(&request(), &injected.pod);
            assert!(matches!(again, Outcome::Skipped { .. }), "{of}: {again:?}");
        }
    }
}
