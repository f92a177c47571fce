//! The template language: one expression a row, and its value for a pod. Goes through the public API, as a pod would.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::too_many_lines,
    reason = "a test fails where it cannot go on; a table is long"
)]

use std::collections::BTreeMap;

use inject::{Configuration, NativeSidecars, Outcome, Parameters, Request, Sources};
use serde_json::{Value, json};

const VALUES: &str = "global: {hub: h.io/i, tag: 1.5.1, proxy: {image: proxyv2}, none: null, yes: yes, n: 3}\nlist: [a, b]\n";
const MESH: &str = "trustDomain: td\ndefaultConfig:\n  drainDuration: 50s\n  parentShutdownDuration: 90s\n  terminationDrainDuration: 0.5s\n  proxyMetadata: {A: b}\n  concurrency: 2\n";

fn pod() -> Value {
    json!({
        "metadata": {"name": "web-1", "generateName": "web-", "labels": {"app": "shop", "empty": ""}, "annotations": {"a": "b", "e": "",
            "sidecar.istio.io/status": "{\"version\":\"old\",\"containers\":[\"istio-proxy\"]}"},
            "ownerReferences": [{"kind": "StatefulSet", "apiVersion": "apps/v1", "name": "web", "controller": true}]},
        "spec": {
            "serviceAccountName": "acct",
            "initContainers": [{"name": "first"}],
            "containers": [
                {"name": "web", "image": "i:1", "args": ["x"], "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 53, "protocol": "UDP"},
                    {"containerPort": 81, "protocol": "TCP"}, {"containerPort": 82, "protocol": "SCTP"}],
                    "resources": {"limits": {"cpu": "1"}}, "readinessProbe": {"httpGet": {"port": "http", "path": "/"}},
                    "env": [{"name": "E", "value": "v"}]},
                {"name": "istio-proxy", "ports": [{"containerPort": 15090}]},
                {"name": "side", "ports": [{"containerPort": 90}], "livenessProbe": {"tcpSocket": {"port": 90}}},
            ],
        }
    })
}

fn outcome(template: &str, mesh: &str) -> Outcome {
    let config = format!("template: {}\n", Value::from(template));
    let sources = Sources {
        config: Some(&config),
        values: Some(VALUES),
        mesh: Some(mesh),
    };
    let environment = BTreeMap::from([
        ("SET".to_owned(), "x".to_owned()),
        ("EMPTY".to_owned(), String::new()),
    ]);
    let parameters = Parameters {
        environment,
        revision: "canary".to_owned(),
        ..Parameters::default()
    };
    let configuration = match Configuration::load(sources, parameters) {
        Ok((configuration, _)) => configuration,
        // A field that does not exist is found at load.
        Err(broken) if broken.cause.contains("can't evaluate field") => {
            return Outcome::Refused {
                code: 500,
                reason: "template",
                message: broken.cause,
                warnings: Vec::new(),
                pruned: 0,
            };
        }
        Err(broken) => panic!("{template}: {broken}"),
    };
    configuration.inject(
        &Request {
            namespace: "shop-ns".to_owned(),
            ..Request::default()
        },
        &pod(),
    )
}

fn value(expression: &str, mesh: &str) -> Result<String, String> {
    let template = format!(
        "{{{{ $r := {expression} }}}}podRedirectAnnot: {{r: {{{{ toJSON $r | toJSON }}}}}}"
    );
    match outcome(&template, mesh) {
        Outcome::Injected(injected) => Ok(injected.pod["metadata"]["annotations"]["r"]
            .as_str()
            .unwrap()
            .to_owned()),
        Outcome::Refused {
            code: 500, message, ..
        } => Err(message),
        other => panic!("{expression}: {other:?}"),
    }
}

fn check(rows: &[(&str, &str)]) {
    for (expression, wanted) in rows {
        assert_eq!(
            value(expression, MESH).as_deref(),
            Ok(*wanted),
            "{expression}"
        );
    }
}

/// It used to come out as `<func>`, and went into the pod.
#[test]
fn no_object_of_fields_is_printed() {
    for action in [
        "{{ .Spec }}",
        "{{ . | print }}",
        "{{ .Spec.Containers }}",
        "{{ index .Spec.Containers 0 }}",
        "{{ .ProxyConfig | default `x` }}",
        "{{ $spec := .Spec }}{{ $spec }}",
        "{{ print `a` .Spec }}",
        "{{ (.Spec) }}",
        "{{ .Spec | quote }}",
    ] {
        let outcome = outcome(&format!("podRedirectAnnot: {{r: '{action}'}}"), MESH);
        let Outcome::Refused { message, .. } = outcome else {
            panic!("{action}: {outcome:?}");
        };
        let cause =
            "cannot print an object of fields: want one of its fields, or toYaml or structToJSON";
        assert!(message.contains(cause), "{action}: {message}");
    }
}

#[test]
fn a_verb_that_is_not_supported_is_named() {
    for (expression, verb) in [("printf `%T` 1", "%T"), ("printf `%%%5p` 1", "%p")] {
        let message = value(expression, MESH).unwrap_err();
        assert!(
            message.contains(&format!("printf: the verb {verb} is not supported")),
            "{message}"
        );
    }
}

#[test]
fn the_pod_by_gos_names() {
    check(&[
        (".ObjectMeta.Name", r#""web-1""#),
        (".ObjectMeta.Namespace", r#""shop-ns""#),
        (".ObjectMeta.UID", r#""""#),
        ("index .ObjectMeta.Labels `app`", r#""shop""#),
        ("index .ObjectMeta.Labels `nosuch`", r#""""#),
        (".ObjectMeta.Labels.app", r#""shop""#),
        (".ObjectMeta.Labels.nosuch", r#""""#),
        ("eq (index .ObjectMeta.Labels `nosuch`) ``", "true"),
        ("isset .ObjectMeta.Labels `empty`", "true"),
        ("isset .ObjectMeta.Labels `nosuch`", "false"),
        (
            "isset .ObjectMeta.Annotations `sidecar.istio.io/status`",
            "false",
        ),
        (".Spec.ServiceAccountName", r#""acct""#),
        (".Spec.HostNetwork", "false"),
        (".Spec.DNSPolicy", r#""""#),
        (".Spec.Volumes", "[]"),
        ("len .Spec.Containers", "2"),
        (".Spec.SecurityContext", "{}"),
        ("not .Spec.SecurityContext", "true"),
        (".Spec.NodeSelector", "{}"),
        ("(index .Spec.Containers 0).Name", r#""web""#),
        (
            "(index .Spec.Containers 0).Resources.Limits",
            r#"{"cpu":"1"}"#,
        ),
        ("(index .Spec.Containers 1).Resources.Limits", "{}"),
        (
            "index (index .Spec.Containers 1).Resources.Limits `cpu`",
            r#""""#,
        ),
        (
            "(index .Spec.Containers 0).ReadinessProbe.HTTPGet.Port",
            r#""http""#,
        ),
        ("(index .Spec.Containers 1).ReadinessProbe", "{}"),
        (
            "(index .Spec.Containers 1).LivenessProbe.TCPSocket.Port",
            "90",
        ),
        ("(index (index .Spec.Containers 0).Env 0).Value", r#""v""#),
        (
            "(index .Spec.Containers 0).ReadinessProbe",
            r#"{"httpGet":{"port":"http","path":"/"}}"#,
        ),
        (".DeploymentMeta.Name", r#""web""#),
        (".DeploymentMeta.Namespace", r#""shop-ns""#),
        ("index .DeploymentMeta.Labels `app`", r#""shop""#),
        (".TypeMeta.Kind", r#""StatefulSet""#),
        (".TypeMeta.APIVersion", r#""apps/v1""#),
        (".Revision", r#""canary""#),
        (".NativeSidecars", "false"),
        (".ProxyUID", "1337"),
        (".ProxyImage", r#""h.io/i/proxyv2:1.5.1""#),
        (".InboundTrafficPolicyMode", r#""passthrough""#),
        (".CompliancePolicy", r#""""#),
    ]);
}

#[test]
fn the_mesh_and_its_getters() {
    check(&[
        (".MeshConfig.ProxyListenPort", "15001"),
        (".MeshConfig.GetProxyInboundListenPort", "15006"),
        (".MeshConfig.TrustDomain", r#""td""#),
        (".MeshConfig.RootNamespace", r#""istio-system""#),
        (".MeshConfig.EnableTracing", "true"),
        (".MeshConfig.AccessLogFile", r#""/dev/stdout""#),
        (".ProxyConfig.ConfigPath", r#""/etc/istio/proxy""#),
        (".ProxyConfig.ControlPlaneAuthPolicy", r#""NONE""#),
        (".ProxyConfig.ControlPlaneAuthPolicy.String", r#""NONE""#),
        (".ProxyConfig.InterceptionMode", r#""REDIRECT""#),
        (".ProxyConfig.Concurrency", "2"),
        (".ProxyConfig.StatusPort", "15020"),
        (".ProxyConfig.ProxyMetadata", r#"{"A":"b"}"#),
        ("index .ProxyConfig.ProxyMetadata `X`", r#""""#),
        (".ProxyConfig.StatsdUdpAddress", r#""""#),
        (
            ".ProxyConfig.HoldApplicationUntilProxyStarts.GetValue",
            "false",
        ),
        (
            ".ProxyConfig.GetHoldApplicationUntilProxyStarts.GetValue",
            "false",
        ),
        (
            "formatDuration .ProxyConfig.TerminationDrainDuration",
            r#""500ms""#,
        ),
        (
            "formatDuration .ProxyConfig.ParentShutdownDuration",
            r#""1m30s""#,
        ),
        ("formatDuration .ProxyConfig.ConnectTimeout", r#""1s""#),
        (
            "formatDuration .MeshConfig.DefaultConfig.GetTerminationDrainDuration",
            r#""500ms""#,
        ),
        ("formatDuration .ProxyConfig.Tracing", r#""1s""#),
        (
            "protoToJSON .ProxyConfig | fromJSON",
            r#"{"concurrency":2,"drainDuration":"50s","parentShutdownDuration":"90s","proxyMetadata":{"A":"b"},"terminationDrainDuration":"0.500s"}"#,
        ),
    ]);
    for (mesh, formatted) in [
        ("45s", "45s"),
        ("60s", "1m0s"),
        ("3600s", "1h0m0s"),
        ("1m30s", "1m30s"),
    ] {
        let mesh = format!("defaultConfig: {{terminationDrainDuration: {mesh}}}");
        assert_eq!(
            value(
                "formatDuration .ProxyConfig.TerminationDrainDuration",
                &mesh
            ),
            Ok(format!("{formatted:?}"))
        );
    }
}

#[test]
fn tracing_by_getters() {
    let chains = [
        ".ProxyConfig.GetTracing.GetZipkin.GetAddress",
        ".ProxyConfig.GetTracing.GetLightstep.GetAddress",
        ".ProxyConfig.GetTracing.GetLightstep.GetAccessToken",
        ".ProxyConfig.GetTracing.GetLightstep.GetSecure",
        ".ProxyConfig.GetTracing.GetLightstep.GetCacertPath",
        ".ProxyConfig.GetTracing.GetDatadog.GetAddress",
    ];
    let rows = [
        ("", [r#""""#, r#""""#, r#""""#, "false", r#""""#, r#""""#]),
        (
            "{zipkin: {address: 'z:1'}}",
            [r#""z:1""#, r#""""#, r#""""#, "false", r#""""#, r#""""#],
        ),
        (
            "{lightstep: {address: 'l:1', accessToken: t, secure: true, cacertPath: /c}}",
            [r#""""#, r#""l:1""#, r#""t""#, "true", r#""/c""#, r#""""#],
        ),
        (
            "{datadog: {address: 'd:1'}}",
            [r#""""#, r#""""#, r#""""#, "false", r#""""#, r#""d:1""#],
        ),
    ];
    for (tracing, wanted) in rows {
        let mesh = format!("defaultConfig:\n  tracing: {tracing}\n");
        for (chain, wanted) in chains.iter().zip(wanted) {
            assert_eq!(
                value(chain, &mesh).as_deref(),
                Ok(wanted),
                "{tracing} {chain}"
            );
        }
        let is_lightstep = value(
            "(and .ProxyConfig.GetTracing .ProxyConfig.GetTracing.GetLightstep true) | empty | not",
            &mesh,
        );
        assert_eq!(
            is_lightstep,
            Ok(tracing.contains("lightstep").to_string()),
            "{tracing}"
        );
    }
    let zipkin = value("(.ProxyConfig.GetTracing).GetZipkin", "");
    assert_eq!(zipkin.as_deref(), Ok("{}"));
}

#[test]
fn messages_of_the_proxy_by_fields_and_getters() {
    let mesh = "defaultConfig:\n  image: {imageType: distroless}\n  privateKeyProvider: {cryptomb: {pollDelay: 1s, fallback: true}}\n";
    for (expression, without, with) in [
        (
            ".ProxyConfig.GetImage.GetImageType",
            r#""""#,
            r#""distroless""#,
        ),
        (
            ".ProxyConfig.GetPrivateKeyProvider.GetCryptomb",
            "{}",
            r#"{"fallback":true,"pollDelay":"1s"}"#,
        ),
        (
            ".ProxyConfig.GetPrivateKeyProvider.GetCryptomb.GetPollDelay",
            "{}",
            r#""1s""#,
        ),
        (".ProxyConfig.GetPrivateKeyProvider.GetQat", "{}", "{}"),
        (
            ".ProxyConfig.GetProxyHeaders.GetServer.GetDisabled | not",
            "true",
            "true",
        ),
        (".ProxyConfig.ReadinessProbe", "{}", "{}"),
    ] {
        assert_eq!(
            value(expression, "").as_deref(),
            Ok(without),
            "{expression}"
        );
        assert_eq!(value(expression, mesh).as_deref(), Ok(with), "{expression}");
    }
    for (expression, with) in [
        (".ProxyConfig.Image.ImageType", r#""distroless""#),
        (
            ".ProxyConfig.PrivateKeyProvider.Cryptomb.PollDelay",
            r#""1s""#,
        ),
        (".ProxyConfig.PrivateKeyProvider.cryptomb.fallback", "true"),
    ] {
        assert_eq!(value(expression, mesh).as_deref(), Ok(with), "{expression}");
        let absent = value(expression, "").unwrap_err();
        assert!(absent.contains("nil pointer evaluating"), "{absent}");
    }
}

#[test]
fn functions_handle_odd_values_as_sprig_does() {
    check(&[
        ("join `-` (list 1 `b` nil 2)", r#""1-b-2""#),
        ("join `-` (list nil)", r#""""#),
        ("b64dec `YQ==`", r#""a""#),
        ("b64dec \"YQ\\n==\\n\"", r#""a""#),
        ("b64dec `YR==`", r#""a""#),
        ("b64dec `!!`", r#""illegal base64 data at input byte 0""#),
        (
            "b64dec `YWFhYQ`",
            r#""illegal base64 data at input byte 4""#,
        ),
        ("regexMatch `[` `a`", "false"),
        ("regexMatch `a)` `a`", "false"),
        ("regexMatch `^a+$` `aa`", "true"),
    ]);
    for expression in [
        "regexFind `[` `a`",
        "regexReplaceAll `[` `a` `b`",
        r"regexMatch `\p{L}` `a`",
    ] {
        assert!(value(expression, MESH).is_err(), "{expression}");
    }
}

#[test]
fn json_can_be_pasted_into_yaml() {
    let odd = r#""a\x7f\u0080\u0085\u2028\ufffe\uffff""#;
    let wanted = r#"\"a\\u007f\\u0080\\u0085\\u2028\\ufffe\\uffff\""#;
    for function in [
        "toJSON",
        "toJson",
        "structToJSON",
        "protoToJSON",
        "toPrettyJson",
    ] {
        check(&[(&format!("{function} {odd}"), &format!("\"{wanted}\""))]);
    }
    check(&[(
        &format!("toJsonMap (dict `k` {odd})"),
        &format!(r#""{{\"k\":{wanted}}}""#),
    )]);
}

#[test]
fn values_are_a_tree_of_anything() {
    check(&[
        (".Values.global.hub", r#""h.io/i""#),
        (".Values.global.yes", "true"),
        (".Values.global.n", "3"),
        (".Values.nosuch", "{}"),
        (".Values.nosuch.deeper", "{}"),
        (".Values.nosuch.deeper.still", "{}"),
        (".Values.global.nosuch.deeper", "{}"),
        ("(.Values.nosuch).deeper", "{}"),
        ("((.Values.nosuch).deeper).still", "{}"),
        ("printf `%v` .Values.nosuch", r#""<nil>""#),
        ("index .Values `nosuch`", "{}"),
        ("index .Values.list 1", r#""b""#),
        (".Values.list", r#"["a","b"]"#),
        ("default `d` .Values.global.none", r#""d""#),
    ]);
    assert!(
        value(".Values.global.none.deeper", MESH)
            .unwrap_err()
            .contains("nil pointer evaluating interface {}.deeper")
    );
    // Behind a variable it is unknown whether the key existed.
    check(&[("0 }}{{ $x := .Values.global.none }}{{ $r = $x.deeper", "{}")]);
}

#[test]
fn changes_to_a_nested_map_are_visible() {
    check(&[
        (
            "0 }}{{ $m := dict `a` (dict `b` 1) }}{{ $_ := set $m.a `c` 2 }}{{ $r = $m",
            r#"{"a":{"b":1,"c":2}}"#,
        ),
        (
            "0 }}{{ $m := dict }}{{ $_ := set $m `x` (dict) }}{{ $n := merge $m.x (dict `y` 1) }}{{ $r = list $m $n",
            r#"[{"x":{"y":1}},{"y":1}]"#,
        ),
        (
            "0 }}{{ $m := dict `a` (dict `b` (dict)) }}{{ if true }}{{ $_ := set $m.a.b `c` 2 }}{{ end }}{{ $r = $m.a.b.c",
            "2",
        ),
    ]);
}

/// The templates of Istio 1.19 to 1.26 read istiod's variable. The pod's own setting for its proxy takes precedence.
#[test]
fn a_template_that_asks_for_native_sidecars_by_env_hears_of_the_flag() {
    let config = "templates:\n  sidecar: |\n    spec:\n      containers:\n      - name: istio-proxy\n        image: i\n        \
                  env: [{name: N, value: {{ env `ENABLE_NATIVE_SIDECARS` `false` | quote }}}]\n";
    let (configuration, _) = Configuration::load(
        Sources {
            config: Some(config),
            values: None,
            mesh: None,
        },
        Parameters::default(),
    )
    .unwrap();
    for (native, annotation, wanted) in [
        (NativeSidecars::Off, None, "false"),
        (NativeSidecars::Off, Some("true"), "true"),
        (NativeSidecars::On, None, "true"),
        (NativeSidecars::On, Some("false"), "false"),
        (NativeSidecars::Jobs, None, "false"),
    ] {
        let mut pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "web", "image": "i"}]}});
        if let Some(annotation) = annotation {
            pod["metadata"]["annotations"] = json!({"sidecar.istio.io/nativeSidecar": annotation});
        }
        let request = Request {
            native,
            ..Request::default()
        };
        let Outcome::Injected(injected) = configuration.inject(&request, &pod) else {
            panic!("{native:?} {annotation:?}");
        };
        let spec = &injected.pod["spec"];
        let all = ["initContainers", "containers"].map(|list| spec[list].as_array());
        let mut all = all.into_iter().flatten().flatten();
        let proxy = all.find(|one| one["name"] == "istio-proxy").unwrap();
        assert_eq!(
            proxy["env"][0]["value"], wanted,
            "{native:?} {annotation:?}"
        );
    }
}

/// As istiod of 1.6 to 1.8 put them: an application that is held by the proxy's hook has to come after it.
#[test]
fn a_fragment_of_istiod_has_the_proxy_first_where_it_holds_the_application() {
    let fragment = |tag: &str| {
        format!(
            "template: |\n  initContainers:\n  - {{name: istio-init, image: 'i:{tag}'}}\n  - {{name: istio-validation, image: 'i:{tag}'}}\n  \
             containers:\n  - {{name: istio-proxy, image: 'h.io/proxyv2:{tag}'}}\n"
        )
    };
    let names = |tag: &str, mesh: &str, values: &str, of_pod: Option<&str>| {
        let config = fragment(tag);
        let sources = Sources {
            config: Some(&config),
            values: Some(values),
            mesh: Some(mesh),
        };
        let (configuration, _) = Configuration::load(sources, Parameters::default()).unwrap();
        let mut pod = json!({"metadata": {"name": "a"}, "spec": {
            "initContainers": [{"name": "first", "image": "i"}], "containers": [{"name": "web", "image": "i"}]}});
        if let Some(settings) = of_pod {
            pod["metadata"]["annotations"] = json!({"proxy.istio.io/config": settings});
        }
        let Outcome::Injected(injected) = configuration.inject(&Request::default(), &pod) else {
            panic!("{tag} {mesh} {values}");
        };
        let again = configuration.inject(&Request::default(), &injected.pod);
        let is_same = matches!(&again, Outcome::Skipped { reason, .. } if *reason == "unchanged");
        assert!(is_same, "{again:?}");
        let lists = ["initContainers", "containers"].into_iter();
        let names = lists.flat_map(|list| injected.pod["spec"][list].as_array().unwrap());
        let names = names.map(|one| one["name"].as_str().unwrap());
        names.collect::<Vec<_>>().join(" ")
    };
    let (holding, not) = (
        "global: {proxy: {holdApplicationUntilProxyStarts: true}}",
        "{}",
    );
    let first = "istio-validation first istio-init istio-proxy web";
    let last = "istio-validation first istio-init web istio-proxy";
    let holds = "holdApplicationUntilProxyStarts: true";
    assert_eq!(names("1.8.6", "{}", not, None), last);
    assert_eq!(names("1.7.8", "{}", holding, None), first);
    assert_eq!(
        names("1.8.6", &format!("defaultConfig: {{{holds}}}"), not, None),
        first
    );
    assert_eq!(names("1.8.6", "{}", not, Some(holds)), first);
    // Earlier releases keep the fragment's order.
    assert_eq!(
        names("1.5.10", "{}", holding, None),
        "first istio-init istio-validation web istio-proxy"
    );
}

#[test]
fn a_comment_trims_its_own_side() {
    for (template, wanted) in [
        ("a: x {{/* c */}} y", "x  y"),
        ("a: x {{- /* c */}} y", "x y"),
        ("a: x {{/* c */ -}} y", "x y"),
        ("a: x {{- /* c */ -}} y", "xy"),
        ("{{- /* c\n*/}}\n  a: x", "x"),
    ] {
        let template = format!("podRedirectAnnot:\n  k: v\n  {template}");
        match outcome(&template, MESH) {
            Outcome::Injected(injected) => {
                assert_eq!(
                    injected.pod["metadata"]["annotations"]["a"], *wanted,
                    "{template}"
                );
            }
            other => panic!("{template}: {other:?}"),
        }
    }
}

#[test]
fn errors_name_fields_that_do_not_exist() {
    for (expression, cause) in [
        (
            ".Nosuch",
            "can't evaluate field Nosuch in type SidecarTemplateData",
        ),
        (
            ".Spec.Nosuch",
            "can't evaluate field Nosuch in type PodSpec",
        ),
        (
            ".Spec.SecurityContext.FSGroup",
            "nil pointer evaluating *PodSecurityContext.FSGroup",
        ),
        (
            ".ProxyConfig.Nosuch",
            "can't evaluate field Nosuch in type ProxyConfig",
        ),
        (
            ".ProxyConfig.Tracing.Zipkin",
            "nil pointer evaluating *Tracing.Zipkin",
        ),
        ("fail `because`", "because"),
        ("div 1 0", "div: division by zero"),
        ("index .Values.list 7", "out of range"),
    ] {
        let message = value(expression, MESH).unwrap_err();
        assert!(
            message.starts_with("template inject, line 1: ") && message.contains(cause),
            "{expression}: {message}"
        );
    }
}

#[test]
fn functions_of_istio() {
    check(&[
        ("annotation .ObjectMeta `a` `d`", r#""b""#),
        ("annotation .ObjectMeta `e` `d`", r#""""#),
        ("annotation .ObjectMeta `x` `d`", r#""d""#),
        ("annotation .ObjectMeta `x` 15020", r#""15020""#),
        (
            "annotation .ObjectMeta `x` .ProxyConfig.InterceptionMode",
            r#""REDIRECT""#,
        ),
        ("valueOrDefault `` `d`", r#""d""#),
        ("valueOrDefault .Values.nosuch `d`", r#""d""#),
        ("valueOrDefault `v` `d`", r#""v""#),
        ("excludeInboundPort `` `80`", r#""80""#),
        ("excludeInboundPort 0 `80`", r#""80""#),
        ("excludeInboundPort `0` ` 80, 81 `", r#"" 80, 81 ""#),
        ("excludeInboundPort 15020 ``", r#""15020""#),
        ("excludeInboundPort 15020 `15020`", r#""15020""#),
        ("excludeInboundPort 15020 `80,15020`", r#""80,15020""#),
        ("excludeInboundPort 15020 ` 80, 81 ,,`", r#""80,81,15020""#),
        ("excludeInboundPort 80 ` 80`", r#""80,80""#),
        (
            "excludeInboundPort `80` (excludeInboundPort 80 ``)",
            r#""80""#,
        ),
        ("includeInboundPorts .Spec.Containers", r#""80,81,90""#),
        ("applicationPorts .Spec.Containers", r#""80,81,90""#),
        (
            "toJSON .ObjectMeta.Labels",
            r#""{\"app\":\"shop\",\"empty\":\"\"}""#,
        ),
        (
            "toJson .ObjectMeta.Labels",
            r#""{\"app\":\"shop\",\"empty\":\"\"}""#,
        ),
        ("toJSON .Values.nosuch", r#""{}""#),
        ("fromJSON `{\"a\":[1]}`", r#"{"a":[1]}"#),
        ("fromJSON `{`", r#""{}""#),
        (
            "structToJSON (index .Spec.Containers 1).LivenessProbe",
            r#""{\"tcpSocket\":{\"port\":90}}""#,
        ),
        ("structToJSON .Spec.SecurityContext", r#""{}""#),
        (
            "hasKey (fromJSON (structToJSON .Spec)) `terminationGracePeriodSeconds`",
            "false",
        ),
        (
            "toYaml (fromJSON `{\"b\":1,\"a\":[\"yes\"]}`)",
            r#""a:\n- \"yes\"\nb: 1\n""#,
        ),
        ("indent 2 `a\nb\nc`", r#""a\n  b\n  c""#),
        ("nindent 2 `a\nb`", r#""\n  a\n  b""#),
        ("directory `/a/b/c.txt`", r#""/a/b/""#),
        ("directory `c.txt`", r#""""#),
        ("contains `b` `abc`", "true"),
        ("contains `abc` `b`", "false"),
        ("toLower `ABC`", r#""abc""#),
        ("kubevirtInterfaces `eth0`", r#""eth0""#),
        ("excludeInterfaces `eth0`", r#""eth0""#),
        ("env `SET` `d`", r#""x""#),
        ("env `EMPTY` `d`", r#""d""#),
        ("env `NOSUCH` `d`", r#""d""#),
        (
            "render `{{ .Revision }}-{{ len .Spec.Containers }}`",
            r#""canary-2""#,
        ),
        ("omit .ObjectMeta.Labels `app`", r#"{"empty":""}"#),
        ("strdict `a` 1 `b` true", r#"{"a":"1","b":"true"}"#),
        ("index (strdict `a` 1) `x`", r#""""#),
        (
            "mergeMaps (strdict `a` `1`) (strdict `a` `2` `b` `3`)",
            r#"{"a":"2","b":"3"}"#,
        ),
        (
            "toJsonMap (strdict `b` `1`) (strdict `a` `2`)",
            r#""{\"a\":\"2\",\"b\":\"1\"}""#,
        ),
        (
            "omitNil (fromJSON `{\"a\":null,\"b\":{\"c\":null,\"d\":[null,1]}}`)",
            r#"{"b":{"d":[1]}}"#,
        ),
        ("appendMultusNetwork `` `cni`", r#""cni""#),
        ("appendMultusNetwork `a` `cni`", r#""a, cni""#),
        ("appendMultusNetwork `a, cni` `cni`", r#""a, cni""#),
        (
            "appendMultusNetwork `[{\"name\":\"a\"}]` `ns/cni`",
            r#""[{\"name\":\"a\"},{\"name\":\"cni\",\"namespace\":\"ns\"}]""#,
        ),
        (
            "appendMultusNetwork `[{\"name\":\"cni\",\"namespace\":\"ns\"}]` `ns/cni`",
            r#""[{\"name\":\"cni\",\"namespace\":\"ns\"}]""#,
        ),
        ("otelResourceAttributes .ObjectMeta", r#""""#),
    ]);
}

#[test]
fn functions_of_sprig() {
    check(&[
        ("quote `a` 1 .Values.nosuch", r#""\"a\" \"1\"""#),
        // As Go's %q has it, whose escapes a reader of YAML knows.
        ("quote `a\"b\\c'd`", r#""\"a\\\"b\\\\c'd\"""#),
        ("quote `é日😀e\u{301}`", "\"\\\"é日😀e\u{301}\\\"\""),
        (
            "quote `\u{a0}|\u{200d}|\u{ad}|\u{2028}|\u{e000}|\u{feff}`",
            r#""\"\\u00a0|\\u200d|\\u00ad|\\u2028|\\ue000|\\ufeff\"""#,
        ),
        (
            "quote `\u{e0001}\u{10ffff}`",
            r#""\"\\U000e0001\\U0010ffff\"""#,
        ),
        (
            "quote `\u{7}\u{8}\t\n\u{b}\u{c}`",
            r#""\"\\a\\b\\t\\n\\v\\f\"""#,
        ),
        (
            "quote \"\\r\\x01\\x1b\\x7f\"",
            r#""\"\\r\\x01\\x1b\\x7f\"""#,
        ),
        ("squote `a`", r#""'a'""#),
        ("trim ` a `", r#""a""#),
        ("trimAll `$` `$5$`", r#""5""#),
        ("trimPrefix `-` `-a-`", r#""a-""#),
        ("trimSuffix `-` `-a-`", r#""-a""#),
        ("trunc 3 `abcde`", r#""abc""#),
        ("trunc -3 `abcde`", r#""cde""#),
        ("upper `a`", r#""A""#),
        ("lower `A`", r#""a""#),
        ("title `hello world`", r#""Hello World""#),
        ("title `don't a_b é·x 1st`", r#""Don'T A_b É·x 1st""#),
        ("replace `a` `b` `banana`", r#""bbnbnb""#),
        ("repeat 3 `ab`", r#""ababab""#),
        ("hasPrefix `a` `ab`", "true"),
        ("hasSuffix `a` `ab`", "false"),
        ("cat `a` 1 .Values.nosuch `b`", r#""a 1 b""#),
        ("splitList `,` `a,b`", r#"["a","b"]"#),
        ("(split `,` `a,b`)._1", r#""b""#),
        ("join `-` (list 1 2)", r#""1-2""#),
        ("append (list 1) 2", "[1,2]"),
        ("prepend (list 1) 2", "[2,1]"),
        ("first (list 1 2)", "1"),
        ("last (list 1 2)", "2"),
        ("rest (list 1 2 3)", "[2,3]"),
        ("initial (list 1 2 3)", "[1,2]"),
        ("uniq (list 1 2 1)", "[1,2]"),
        ("has 2 (list 1 2)", "true"),
        ("without (list 1 2 3) 1 3", "[2]"),
        ("dict `a` 1 `b`", r#"{"a":1,"b":""}"#),
        ("get (dict `a` 1) `a`", "1"),
        ("get (dict `a` 1) `b`", r#""""#),
        ("set (dict `a` 1) `b` 2", r#"{"a":1,"b":2}"#),
        ("hasKey (dict `a` 1) `a`", "true"),
        ("keys (dict `b` 1 `a` 2)", r#"["a","b"]"#),
        ("values (dict `b` 1 `a` 2)", "[2,1]"),
        ("pick (dict `b` 1 `a` 2) `a`", r#"{"a":2}"#),
        ("merge (dict `a` 1) (dict `a` 2 `b` 3)", r#"{"a":1,"b":3}"#),
        (
            "mergeOverwrite (dict `a` (dict `x` 1)) (dict `a` (dict `x` 2 `y` 3))",
            r#"{"a":{"x":2,"y":3}}"#,
        ),
        ("deepCopy (dict `a` 1)", r#"{"a":1}"#),
        ("coalesce `` 0 `x`", r#""x""#),
        ("empty (list)", "true"),
        ("ternary `y` `n` true", r#""y""#),
        ("default `d` ``", r#""d""#),
        ("toString 1.5", r#""1.5""#),
        ("int `12`", "12"),
        ("int64 1.9", "1"),
        ("float64 `1.5`", "1.5"),
        ("add 1 2 3", "6"),
        ("sub 3 1", "2"),
        ("mul 2 3", "6"),
        ("div 7 2", "3"),
        ("mod 7 2", "1"),
        ("max 1 3 2", "3"),
        ("min 3 1 2", "1"),
        ("until 3", "[0,1,2]"),
        ("untilStep 3 0 -2", "[3,1]"),
        // Go's JSON writes integers without a point.
        ("ceil 1.2", "2"),
        ("floor 1.8", "1"),
        (
            "list 2.0 -0.5 1e6 1e20 1e21 1e-6 1.5e-7",
            "[2,-0.5,1000000,100000000000000000000,1e+21,0.000001,1.5e-7]",
        ),
        ("fromJson `[2.0, 1.50]`", "[2,1.5]"),
        ("toYaml (dict `a` 2.0)", r#""a: 2\n""#),
        ("toPrettyJson 2.0", r#""2""#),
        ("toString 2.0", r#""2""#),
        ("round 1.256 2", "1.26"),
        ("round 123.5555 3 .8", "123.555"),
        ("round 123.5555 3", "123.556"),
        ("round -2.3 0", "-3"),
        ("int `0x10`", "16"),
        ("int64 `-0b11`", "-3"),
        ("add `010` 1", "9"),
        ("int `x`", "0"),
        ("atoi `0x10`", "0"),
        ("atoi `010`", "10"),
        ("printf `%d%% Total` 7", r#""7% Total""#),
        ("b64enc `a`", r#""YQ==""#),
        ("b64dec `YQ==`", r#""a""#),
        (
            "sha256sum ``",
            r#""e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855""#,
        ),
        ("fromJson `[1]`", "[1]"),
        ("toPrettyJson (dict `a` 1)", r#""{\n  \"a\": 1\n}""#),
        ("regexMatch `^a+$` `aaa`", "true"),
        ("regexFind `b+` `abbc`", r#""bb""#),
        (
            "regexReplaceAll `a(x*)b` `-ab-axxb-` `${1}W`",
            r#""-W-xxW-""#,
        ),
        ("semverCompare `>=1.2` `v1.10.0`", "true"),
        ("semverCompare `^1.2.0 || >3` `4.0.0`", "true"),
        ("semverCompare `1.2.3` `1.2.4`", "false"),
        ("semverCompare `!=1.2.3` `1.2.4`", "true"),
        ("semverCompare `>= 1.19-0, < 2` `v1.27.3`", "true"),
        ("tuple 1 2", "[1,2]"),
        ("kindIs `map` (dict)", "true"),
        ("kindIs `string` `x`", "true"),
        ("typeOf 1", r#""int""#),
        ("atoi `7`", "7"),
        ("len `abc`", "3"),
        ("not true", "false"),
        (
            "printf `%05.1f|%-4s|%q` 3.14159 `a` `b`",
            r#""003.1|a   |\"b\"""#,
        ),
    ]);
    // A map that a variable holds is changed by `set`, as in Sprig.
    let Outcome::Injected(injected) = outcome(
        "{{ $d := dict }}{{ $_ := set $d `k` `v` }}podRedirectAnnot: {r: {{ $d.k }}}",
        MESH,
    ) else {
        panic!()
    };
    assert_eq!(injected.pod["metadata"]["annotations"]["r"], "v");
}

#[test]
fn the_language_of_go() {
    let print = |template: &str| match outcome(
        &format!("podRedirectAnnot:\n  r: \"{template}\"\n"),
        MESH,
    ) {
        Outcome::Injected(injected) => injected.pod["metadata"]["annotations"]["r"]
            .as_str()
            .unwrap()
            .to_owned(),
        other => panic!("{template}: {other:?}"),
    };
    for (template, wanted) in [
        (
            "{{ range $i, $c := .Spec.Containers }}{{ $i }}{{ $c.Name }} {{ end }}",
            "0web 1side ",
        ),
        (
            "{{ range $k, $v := .ObjectMeta.Labels }}{{ $k }}={{ $v }} {{ end }}",
            "app=shop empty= ",
        ),
        ("{{ range .Spec.Volumes }}x{{ else }}none{{ end }}", "none"),
        (
            "{{ range .Spec.Containers }}{{ if eq .Name `side` }}{{ break }}{{ end }}{{ .Name }}{{ end }}",
            "web",
        ),
        (
            "{{ range .Spec.Containers }}{{ if eq .Name `web` }}{{ continue }}{{ end }}{{ .Name }}{{ end }}",
            "side",
        ),
        (
            "{{ with .ObjectMeta.Labels }}{{ .app }}{{ end }}{{ with .Spec.SecurityContext }}x{{ else }}none{{ end }}",
            "shopnone",
        ),
        (
            "{{ define `t` }}<{{ . }}>{{ end }}{{ template `t` .ObjectMeta.Name }}",
            "<web-1>",
        ),
        ("{{ block `b` . }}{{ .Revision }}{{ end }}", "canary"),
        ("a {{- /* gone */ -}} b", "ab"),
        (
            "{{ .ObjectMeta.Name | printf `%s-%s` `x` | upper }}",
            "X-WEB-1",
        ),
        (
            "{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ end }}{{ $x }}",
            "2",
        ),
        (
            "{{ if and .Spec.HostNetwork .Nosuch }}x{{ else if or true .Nosuch }}y{{ end }}",
            "y",
        ),
        (
            "{{ range until 3 }}{{ $.Revision }}{{ . }}{{ end }}",
            "canary0canary1canary2",
        ),
        ("{{ .Values.nosuch }}", "<no value>"),
        ("{{ 1.5 }}{{ `raw` }}{{ 'a' }}", "1.5raw97"),
    ] {
        assert_eq!(print(template), wanted, "{template}");
    }
}

/// The mark of each action was put into a sorted list by itself, which took seconds.
#[test]
fn a_long_text_is_rendered_within_the_budget() {
    let template =
        "{{ $x := render (repeat 40000 `{{ 1 }}`) }}podRedirectAnnot: {count: {{ len $x }}}";
    let Outcome::Injected(injected) = outcome_with_loop(template) else {
        panic!("40,000 actions")
    };
    assert_eq!(injected.pod["metadata"]["annotations"]["count"], "40000");
}

#[test]
fn nothing_runs_for_ever() {
    let rows = [
        (
            "{{ range until 100000 }}{{ range until 100000 }}{{ end }}{{ end }}",
            "more than 1000000 steps",
        ),
        ("{{ range 100000000 }}{{ end }}", "more than 1000000 steps"),
        (
            "{{ define `a` }}{{ template `a` }}{{ end }}{{ template `a` }}",
            "calls templates deeper than 100",
        ),
        (
            "{{ define `a` }}{{ if lt (len .) 60 }}{{ template `a` (print . `x`) }}{{ template `a` (print . `y`) }}{{ end }}{{ end }}{{ template `a` `` }}",
            "more than 1000000 steps",
        ),
        (
            "{{ range until 20000 }}{{ repeat 100 `x` }}{{ end }}",
            "prints more than 1048576 bytes",
        ),
        (
            "{{ repeat 1048577 `x` }}",
            "repeat: makes more than 1048576 bytes",
        ),
        (
            "{{ $s := `x` }}{{ range until 40 }}{{ $s = print $s $s }}{{ end }}",
            "makes more",
        ),
        (
            "{{ $s := `x` }}{{ range until 40 }}{{ $s = cat $s $s }}{{ end }}",
            "makes more",
        ),
        (
            "{{ $l := list 1 }}{{ range until 40 }}{{ $l = list $l $l }}{{ end }}{{ $l }}",
            "more than 1000000 steps",
        ),
        (
            "{{ $l := list 1 }}{{ range until 500 }}{{ $l = list $l }}{{ end }}",
            "nested deeper than 100",
        ),
        (
            "{{ $d := dict }}{{ range until 500 }}{{ $d = dict `k` $d }}{{ end }}",
            "nested deeper than 100",
        ),
        ("{{ printf (repeat 1000 `%65535d`) 1 }}", "makes more than"),
        (
            "{{ $s := repeat 1000000 `x` }}{{ range until 100000 }}{{ if eq $s $s }}{{ end }}{{ end }}",
            "more than 1000000 steps",
        ),
        (
            "{{ range until 100000 }}{{ $x := regexMatch `(a|b)*c` `aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa` }}{{ end }}",
            "more than 1000000 steps",
        ),
        ("{{ render `{{ render .Values.loop }}` }}", "deeper"),
        // Values that functions return count, whether they are kept or dropped.
        (
            "{{ range until 100000 }}{{ $x := strdict `a` `b` }}{{ index $x `c` }}{{ end }}",
            "more than",
        ),
        (
            "{{ $b := repeat 1000000 `x` }}{{ range until 100 }}{{ $x := strdict `a` $b }}{{ end }}",
            "strdict: makes more than 25165824 bytes in all",
        ),
        (
            "{{ $l := list }}{{ range until 100 }}{{ $l = append $l (repeat 1000000 `x`) }}{{ end }}",
            "makes more than 25165824 bytes in all",
        ),
        (
            "{{ $x := splitList `,` (repeat 1000000 `,`) }}",
            "more than",
        ),
        ("{{ $x := split `,` (repeat 1000000 `,`) }}", "more than"),
        (
            "{{ $x := fromJSON (printf `[%s{}]` (repeat 300000 `{},`)) }}",
            "more than",
        ),
        (
            "{{ $b := repeat 500000 `x` }}{{ $x := cat $b $b $b }}",
            "cat: makes more than 1048576 bytes",
        ),
        (
            "{{ $x := semverCompare (repeat 100000 `1||`) `1.0.0` }}",
            "semverCompare: wants a constraint of 4096 bytes at most",
        ),
        (
            "{{ $d := dict }}{{ range $i := until 3000 }}{{ $d = set $d (toString $i) $i }}{{ end }}",
            "more than",
        ),
        (
            "{{ range until 10000 }}{{ $x := structToJSON $.Spec }}{{ end }}",
            "more than",
        ),
        (
            "{{ $s := repeat 40000 `{{ 1 }}` }}{{ range until 9 }}{{ $x := render $s }}{{ end }}",
            "more than",
        ),
        // Each letter of a set costs a search.
        (
            "{{ $x := trimAll (repeat 500000 `ab`) `a` }}",
            "trimAll: takes more than 1000000 steps",
        ),
        // Texts within lists are compared, too.
        (
            "{{ $a := repeat 1000000 `x` }}{{ $b := repeat 1000000 `x` }}{{ $one := list $a }}{{ $all := list (list $b) }}{{ range until 1000 }}{{ $x := has $one $all }}{{ end }}",
            "more than 1000000 steps",
        ),
    ];
    for (template, cause) in rows {
        let Outcome::Refused {
            code: 500, message, ..
        } = outcome_with_loop(template)
        else {
            panic!("{template}")
        };
        assert!(
            message.contains(cause)
                || (matches!(cause, "makes more" | "more than")
                    && (message.contains("more than") || message.contains("longer than"))),
            "{template}: {message}"
        );
    }
}

/// A set of letters is looked up: trimming a million letters used to compare each with a million others.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test looks at the clock")]
fn letters_of_a_set_are_looked_up() {
    let template = "{{ $x := trimAll (print (repeat 900000 `b`) `a`) (repeat 900000 `a`) }}";
    let start = std::time::Instant::now();
    outcome_with_loop(template);
    let took = start.elapsed();
    assert!(took < std::time::Duration::from_secs(20), "{took:?}");
}

/// Each reading of a message of the mesh is a copy of it, and counts like one of the pod.
#[test]
fn copies_of_the_mesh_are_charged() {
    let config = |custom_tag: &str| {
        let long = "x".repeat(100_000);
        format!("tracing: {{customTags: {{{custom_tag}: {{literal: {{value: {long}}}}}}}}}\n")
    };
    for path in [
        "$.ProxyConfig.Tracing",
        "$.ProxyConfig.Tracing.CustomTags",
        "$.MeshConfig.DefaultConfig.Tracing",
        "$.MeshConfig.DefaultConfig.GetTracing.GetCustomTags",
    ] {
        let template = |count| {
            format!(
                "{{{{ range until {count} }}}}{{{{ $x := {path} }}}}{{{{ end }}}}containers: [{{name: istio-proxy}}]"
            )
        };
        let mesh = format!("defaultConfig: {{{}}}", config("a").trim_end());
        assert!(matches!(outcome(&template(1), &mesh), Outcome::Injected(_)));
        let Outcome::Refused { message, .. } = outcome(&template(1000), &mesh) else {
            panic!("{path}");
        };
        assert!(
            message.contains("makes more than 25165824 bytes in all"),
            "{path}: {message}"
        );
    }
}

/// `.Values.loop` renders itself.
fn outcome_with_loop(template: &str) -> Outcome {
    let config = format!("template: {}\n", Value::from(template));
    let sources = Sources {
        config: Some(&config),
        values: Some("loop: '{{ render .Values.loop }}'"),
        mesh: None,
    };
    Configuration::load(sources, Parameters::default())
        .unwrap()
        .0
        .inject(&Request::default(), &pod())
}

/// A list of volumes gives the same pod as a map of them, by the built-in template and as stock ones range over it.
#[test]
fn a_list_of_volumes_is_shown_by_name() {
    let stock = "templates:
  sidecar: |
    spec:
      containers:
      - name: istio-proxy
        image: proxy:1
        volumeMounts:
        {{- range $index, $value := fromJSON (index .ObjectMeta.Annotations `sidecar.istio.io/userVolumeMount`) }}
        - name: \"{{ $index }}\"
          {{ toYaml $value | indent 6 }}
        {{- end }}
      volumes:
      {{- range $index, $value := fromJSON (index .ObjectMeta.Annotations `sidecar.istio.io/userVolume`) }}
      - name: \"{{ $index }}\"
        {{ toYaml $value | indent 4 }}
      {{- end }}
";
    let made = |config: Option<&str>, volumes: &str, mounts: &str| {
        let sources = Sources {
            config,
            ..Sources::default()
        };
        let (configuration, _) = Configuration::load(sources, Parameters::default()).unwrap();
        let pod = json!({"metadata": {"name": "web", "annotations": {"sidecar.istio.io/userVolume": volumes, "sidecar.istio.io/userVolumeMount": mounts}},
            "spec": {"containers": [{"name": "web"}]}});
        let Outcome::Injected(first) = configuration.inject(&Request::default(), &pod) else {
            panic!("{:?}", configuration.inject(&Request::default(), &pod));
        };
        let second = configuration.inject(&Request::default(), &first.pod);
        assert!(matches!(second, Outcome::Skipped { .. }), "{second:?}");
        let stored = &first.pod["metadata"]["annotations"]["sidecar.istio.io/userVolume"];
        assert_eq!(stored, volumes);
        first.pod["spec"].clone()
    };
    for config in [None, Some(stock)] {
        let by_name = made(
            config,
            r#"{"a":{"emptyDir":{}},"b":{"secret":{"secretName":"s"}}}"#,
            r#"{"a":{"mountPath":"/a"},"b":{"mountPath":"/b","readOnly":true}}"#,
        );
        let listed = made(
            config,
            r#"[{"name":"a","emptyDir":{}},{"name":"b","secret":{"secretName":"s"}}]"#,
            r#"[{"mountPath":"/a","name":"a"},{"mountPath":"/b","name":"b","readOnly":true}]"#,
        );
        assert_eq!(listed, by_name);
        let names = listed["volumes"].as_array().unwrap().iter();
        let names: Vec<_> = names.map(|one| one["name"].as_str().unwrap()).collect();
        assert!(names.ends_with(&["a", "b"]), "{names:?}");
        made(config, "[]", "[]");
    }
}
