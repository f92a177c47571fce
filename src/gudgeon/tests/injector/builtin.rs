//! The program without a configuration: its own template, with the parameters that flags give.

use std::process::Output;

use crate::support::{Client, Injector, InjectorPlace, JSON, client_config, pod, review, run};
use serde_json::{Value, json};

const POD: &str = r#"apiVersion: v1
kind: Pod
metadata: {name: web, namespace: ns, labels: {app: web}, annotations: {sidecar.istio.io/enableCoreDump: "true"}}
spec:
  containers:
  - name: web
    image: web:1
    readinessProbe: {httpGet: {path: /, port: 80}}
"#;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn output_of(done: &Output) -> String {
    text(&done.stdout) + &text(&done.stderr)
}

/// One that makes its certificate and has no configuration.
pub(crate) fn own(more: &[&str]) -> (Injector, Client) {
    let place = InjectorPlace::new();
    let ca = place.path("ca.pem").to_str().unwrap().to_owned();
    let mut arguments: Vec<String> = [
        "injector",
        "--selfSigned",
        "--port=0",
        "--monitoringPort=0",
        "--drainDuration=0s",
    ]
    .map(ToOwned::to_owned)
    .to_vec();
    arguments.extend(["--caOut".to_owned(), ca]);
    arguments.extend(more.iter().map(|&word| word.to_owned()));
    let injector = place.start_with(&arguments);
    let trust = injector.place.read("ca.pem");
    let client = Client::try_connect(injector.address(), client_config(&trust, &[])).unwrap();
    (injector, client)
}

/// The pod after the patch of an answer.
pub(crate) fn patched(pod: &Value, answer: &Value) -> Value {
    use base64::Engine as _;
    let patch = answer["response"]["patch"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"));
    let patch = base64::engine::general_purpose::STANDARD
        .decode(patch)
        .unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    let mut pod = pod.clone();
    json_patch::patch(&mut pod, &patch).unwrap();
    pod
}

pub(crate) fn container<'a>(pod: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    pod["spec"][list]
        .as_array()?
        .iter()
        .find(|container| container["name"] == name)
}

fn variable(container: &Value, name: &str) -> Option<String> {
    let all = container["env"].as_array()?;
    let found: Vec<_> = all
        .iter()
        .filter(|variable| variable["name"] == name)
        .collect();
    assert!(found.len() <= 1, "{name} twice: {found:?}");
    found.first()?["value"].as_str().map(ToOwned::to_owned)
}

#[test]
fn it_works_at_once() {
    let (injector, mut client) = own(&["--proxyImage=proxy:own", "--initImage=init:own"]);
    let pod = pod("web");
    let injected = patched(&pod, &client.review(&review(&pod)).unwrap());
    assert_eq!(
        container(&injected, "containers", "istio-proxy").unwrap()["image"],
        "proxy:own"
    );
    assert_eq!(
        container(&injected, "initContainers", "istio-init").unwrap()["image"],
        "init:own"
    );
    assert_eq!(
        injector.get("/debug/config").json()["templates"][0]["name"],
        "sidecar"
    );
    assert_eq!(injector.logged("ignoring --"), 0);
}

/// The administrator allows core dumps, and the pod asks for them.
#[test]
fn core_dumps_by_flag() {
    let mut pod = pod("web");
    pod["metadata"]["annotations"] = json!({"sidecar.istio.io/enableCoreDump": "true"});
    for (more, wanted) in [
        (&[][..], false),
        (&["--coreDump=false"], false),
        (&["--coreDump"], true),
    ] {
        let (_injector, mut client) = own(more);
        let answer = client.review(&review(&pod)).unwrap();
        let injected = patched(&pod, &answer);
        let found = container(&injected, "initContainers", "enable-core-dump");
        assert_eq!(found.is_some(), wanted, "{more:?}");
        let warnings = answer["response"]["warnings"].to_string();
        assert_eq!(warnings.contains("--coreDump"), !wanted, "{warnings}");
        let silent = patched(
            &self::pod("web"),
            &client.review(&review(&self::pod("web"))).unwrap(),
        );
        assert_eq!(
            container(&silent, "initContainers", "enable-core-dump"),
            None
        );
    }
    let done = run(&[
        "injector",
        "--selfSigned",
        "--port=0",
        "--monitoringPort=-1",
        "--coreDump=maybe",
    ]);
    assert_eq!(done.status.code(), Some(78), "{}", output_of(&done));
    assert!(
        output_of(&done).contains("coreDump invalid"),
        "{}",
        output_of(&done)
    );
}

/// Between the passes the pod gets the annotations that API servers before 1.27 add for each seccompProfile.
#[test]
fn a_second_pass_does_not_see_what_the_server_wrote() {
    let (_injector, mut client) = own(&[]);
    let mut pod = pod("web");
    pod["metadata"]["annotations"] = json!({"kept": "yes"});
    let profile = json!({"seccompProfile": {"type": "RuntimeDefault"}});
    pod["spec"]["securityContext"] = profile.clone();
    pod["spec"]["containers"][0]["securityContext"] = profile;
    let mut injected = patched(&pod, &client.review(&review(&pod)).unwrap());
    let proxy = container(&injected, "containers", "istio-proxy").unwrap();
    let annotations = variable(proxy, "ISTIO_METAJSON_ANNOTATIONS");
    assert_eq!(annotations.as_deref(), Some("{\"kept\":\"yes\"}"));
    for name in ["pod", "web", "istio-proxy"] {
        let prefix = if name == "pod" { "" } else { "container." };
        let name = format!("{prefix}seccomp.security.alpha.kubernetes.io/{name}");
        injected["metadata"]["annotations"][name] = json!("runtime/default");
    }
    let again = client.review(&review(&injected)).unwrap();
    assert_eq!(again["response"]["allowed"], true);
    assert!(again["response"]["patch"].is_null(), "{again}");
}

#[test]
fn pairs_of_the_path_are_variables() {
    let (_injector, mut client) = own(&[]);
    let pod = pod("web");
    let body = review(&pod).to_string();
    let mut ask = |path: &str| {
        let answer = client.request("POST", path, JSON, body.as_bytes()).unwrap();
        let injected = patched(&pod, &answer.json());
        container(&injected, "containers", "istio-proxy")
            .unwrap()
            .clone()
    };
    let plain = ask("/inject");
    assert_eq!(
        variable(&plain, "ISTIO_META_CLUSTER_ID").as_deref(),
        Some("Kubernetes")
    );
    assert_eq!(variable(&plain, "ISTIO_META_NETWORK"), None);
    let proxy = ask("/inject/cluster/c1/net/a--slash--b/foo/bar/last?timeout=10s");
    for (name, value) in [
        ("ISTIO_META_CLUSTER_ID", Some("c1")),
        ("ISTIO_META_NETWORK", Some("a/b")),
        ("FOO", Some("bar")),
        ("LAST", None),
    ] {
        assert_eq!(variable(&proxy, name).as_deref(), value, "{name}");
    }
}

/// The API server would refuse the pod for such a label. Without it, a selector for the label does not match the pod.
#[test]
fn the_author_of_a_pod_is_warned_of_an_invalid_network() {
    let (_injector, mut client) = own(&[]);
    let pod = pod("web");
    let body = review(&pod).to_string();
    for (path, label, findings) in [
        ("/inject/net/n1", json!("n1"), None),
        (
            "/inject/net/a--slash--b",
            Value::Null,
            Some(
                "label topology.istio.io/network is left out, because no label can hold such a text, \
                 which istio-proxy has in ISTIO_META_NETWORK: \"a/b\"",
            ),
        ),
    ] {
        let answer = client.request("POST", path, JSON, body.as_bytes());
        let answer = answer.unwrap().json();
        let injected = patched(&pod, &answer);
        assert_eq!(
            injected["metadata"]["labels"]["topology.istio.io/network"],
            label
        );
        let warnings = answer["response"]["warnings"].as_array();
        let warnings: Vec<_> = warnings
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        assert_eq!(warnings, findings.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn native_sidecars_by_flag() {
    for (word, always, job) in [
        ("off", false, false),
        ("on", true, true),
        ("jobs", false, true),
        ("auto", false, false),
    ] {
        let injector = InjectorPlace::new().start(&["--nativeSidecars", word]);
        let mut client = injector.client();
        for policy in ["Always", "OnFailure"] {
            let mut pod = pod("web");
            pod["spec"]["restartPolicy"] = json!(policy);
            assert_eq!(
                client.review(&review(&pod)).unwrap()["response"]["allowed"],
                true
            );
        }
        let decisions = injector.get("/debug/inject").json();
        assert_eq!(decisions[1]["native"], always, "{word}");
        assert_eq!(decisions[0]["native"], job, "{word}");
    }
}

#[test]
fn a_template_to_start_from() {
    let place = InjectorPlace::new();
    place.write("pod.yaml", POD);
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let (manifest, emitted) = (path("pod.yaml"), path("emitted"));
    for flags in [
        &[][..],
        &[
            "--hub=example.com/mesh",
            "--tag=7",
            "--statusPort=15021",
            "--rewriteAppProbe=false",
        ],
        &[
            "--cni",
            "--proxyImage=p:1",
            "--includeIPRanges=10.0.0.0/8",
            "--sidecarProxyUID=2000",
            "--coreDump",
        ],
    ] {
        let direct = run(&[&["inject", "-f", &manifest], flags].concat());
        assert!(direct.status.success(), "{}", output_of(&direct));
        let done = run(&[&["inject", "--emitTemplate", "-o", &emitted], flags].concat());
        assert!(
            done.status.success() && done.stdout.is_empty(),
            "{}",
            output_of(&done)
        );
        let text = run(&[&["inject", "--emitTemplate"], flags].concat()).stdout;
        assert_eq!(text, place.read("emitted").into_bytes());
        let by_file = run(&["inject", "-f", &manifest, "--injectConfigFile", &emitted]);
        assert_eq!(
            by_file.stdout,
            direct.stdout,
            "{flags:?}: {}",
            output_of(&by_file)
        );
    }
    let dumps = run(&["inject", "-f", &manifest, "--coreDump"]);
    assert!(text(&dumps.stdout).contains("name: enable-core-dump\n"));
    let none = run(&["inject", "-f", &manifest]);
    assert!(!text(&none.stdout).contains("name: enable-core-dump\n"));
    assert!(
        text(&none.stderr).contains("--coreDump"),
        "{}",
        output_of(&none)
    );
    let direct = text(
        &run(&[
            "inject",
            "-f",
            &manifest,
            "--hub=example.com/mesh",
            "--tag=7",
        ])
        .stdout,
    );
    assert_eq!(
        direct
            .matches("image: example.com/mesh/proxyv2:7\n")
            .count(),
        2,
        "{direct}"
    );
}

#[test]
fn parameters_are_validated() {
    let place = InjectorPlace::new();
    place.write("pod.yaml", POD);
    let manifest = place.path("pod.yaml").to_str().unwrap().to_owned();
    for (name, value) in [
        ("includeIPRanges", "10.0.0.0/99"),
        ("excludeIPRanges", "*"),
        ("includeInboundPorts", "http"),
        ("excludeInboundPorts", "*"),
        ("imagePullPolicy", "Sometimes"),
        ("statusPort", "70000"),
        ("readinessInitialDelaySeconds", "-1"),
        ("readinessPeriodSeconds", "x"),
        ("readinessFailureThreshold", "1.5"),
        ("sidecarProxyUID", "root"),
        ("rewriteAppProbe", "maybe"),
        ("coreDump", "2"),
    ] {
        let done = run(&["inject", "-f", &manifest, &format!("--{name}={value}")]);
        assert_eq!(done.status.code(), Some(78), "{name}: {}", output_of(&done));
        let message = text(&done.stderr);
        assert!(
            message.contains(name) && message.contains(value),
            "{name}: {message}"
        );
        assert!(
            done.stdout.is_empty() && message.lines().count() == 1,
            "{message}"
        );
    }
    for flags in [&["--hub=h"][..], &["--tag=t"]] {
        let done = run(&[&["inject", "-f", &manifest], flags].concat());
        assert_eq!(done.status.code(), Some(64), "{}", output_of(&done));
    }
}
