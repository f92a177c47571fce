//! Secrets of users and operators are neither logged nor shown: values of annotations, the environment, keys.

use crate::support::{Injector, InjectorPlace, gudgeon, pod, review, until};
use serde_json::{Value, json};

/// A secret that only the user may see.
const SECRET: &str = "hunter2-xyzzy";

const TEMPLATE: &str = r#"policy: enabled
template: |
  containers:
  - name: istio-proxy
    image: proxy:1
    # a-remark-of-the-template
    [[- $how := index .ObjectMeta.Annotations "how" ]]
    [[- $secret := index .ObjectMeta.Annotations "secret" ]]
    [[- if eq $how "fail" ]]
    [[ fail $secret ]]
    [[- else if eq $how "environment" ]]
    [[ fail (env "A_TOKEN" "") ]]
    [[- else if eq $how "yaml" ]]
    x: [[ $secret ]]: :
    [[- else if eq $how "type" ]]
    ports: [{containerPort: [[ $secret ]]}]
    [[- else if eq $how "prune" ]]
    [[ index .ObjectMeta.Annotations "secret" ]]: 7
    [[- else if eq $how "number" ]]
    tty: [[ index .ObjectMeta.Annotations "number" ]]
    [[- else if eq $how "twice" ]]
  - name: [[ $secret ]]
  - name: [[ $secret ]]
    [[- end ]]
"#;

fn asked(how: &str, more: &[(&str, &str)]) -> Value {
    let mut pod = pod("web");
    let mut annotations = json!({"how": how, "secret": SECRET});
    for (name, value) in more {
        annotations[*name] = json!(value);
    }
    pod["metadata"]["annotations"] = annotations;
    review(&pod)
}

fn started(level: &str) -> Injector {
    let place = InjectorPlace::new();
    place.write("config", TEMPLATE);
    let mut arguments = place.arguments();
    arguments.extend(["--log_output_level".to_owned(), level.to_owned()]);
    let mut command = gudgeon();
    command.env("A_TOKEN", SECRET);
    place.start_as(command, &arguments)
}

#[test]
fn no_value_is_logged_or_shown() {
    let injector = started("info");
    let mut client = injector.client();
    let dirty = format!("80,{SECRET}");
    let config = format!("proxyMetadata: {{A: [{SECRET}]}}\n");
    let quoted = format!("it's \"{SECRET}\"");
    for (how, more) in [
        ("", &[][..]),
        ("fail", &[]),
        ("environment", &[]),
        ("yaml", &[]),
        ("type", &[]),
        ("prune", &[]),
        ("twice", &[]),
        ("", &[("status.sidecar.istio.io/port", SECRET)]),
        ("", &[("status.sidecar.istio.io/port", quoted.as_str())]),
        (
            "",
            &[(
                "traffic.sidecar.istio.io/includeInboundPorts",
                dirty.as_str(),
            )],
        ),
        ("", &[("proxy.istio.io/config", config.as_str())]),
        ("", &[("proxy.istio.io/config", "statusPort: 87654321")]),
        (
            "",
            &[(
                "sidecar.istio.io/userVolumeMount",
                "{\"a\":{\"readOnly\":87654321}}",
            )],
        ),
        ("number", &[("number", "87654321")]),
        ("", &[("inject.istio.io/templates", SECRET)]),
        ("", &[("sidecar.istio.io/inject", SECRET)]),
    ] {
        let answer = client.review(&asked(how, more)).unwrap();
        // The pod's author gets the full message.
        if answer["response"]["allowed"] == false && how != "environment" {
            let message = answer["response"]["status"]["message"].as_str().unwrap();
            let quotes_value = message.contains(SECRET) || message.contains("87654321");
            assert!(quotes_value, "{how} {more:?}: {message}");
        }
    }
    until("a line for each", || injector.logged("uid 5b7c") == 16);
    let key = injector.place.read("key.pem");
    let key = key.lines().nth(1).unwrap();
    let mut output = injector.log().join("\n");
    for path in ["/debug", "/debug/inject", "/debug/config", "/metrics"] {
        output.push_str(&injector.get(path).text());
    }
    for secret in [SECRET, "87654321", "xyzzy", "a-remark-of-the-template", key] {
        let line = output.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret}");
    }
    // The errors themselves are shown.
    for part in [
        "annotation 'status.sidecar.istio.io/port'",
        "annotation 'traffic.sidecar.istio.io/includeInboundPorts'",
        "want a number from 0 to 65535",
        "annotation 'proxy.istio.io/config': config invalid: line 1: proxyMetadata.A: expected a string",
        "containers[0].ports[0].containerPort: want a number",
        "mapping values are not allowed in this context",
        "template inject, line 10",
    ] {
        assert!(injector.logged(part) > 0, "{part}: {:?}", injector.log());
    }
    let decisions = injector.get("/debug/inject").json();
    assert_eq!(decisions[0]["reason"], "annotation");
    assert_eq!(decisions[0]["warnings"].as_array().unwrap().len(), 1);
}

#[test]
fn debug_log_lines_show_secrets() {
    let injector = started("debug");
    let mut client = injector.client();
    client.review(&asked("fail", &[])).unwrap();
    until("it is logged", || injector.logged(SECRET) == 1);
    let line = injector
        .log()
        .into_iter()
        .find(|line| line.contains(SECRET))
        .unwrap();
    assert!(line.contains("\tdebug\t"), "{line}");
}

/// A template prints a value of the environment or of the values file before there is a pod, and an error quotes the output.
#[test]
fn no_value_is_logged_when_a_configuration_is_loaded() {
    let printing = |container: &str| {
        format!(
            "policy: enabled\ntemplates:\n  sidecar: |\n    spec:\n      containers: {container}\n"
        )
    };
    let of_environment =
        "[{name: istio-proxy, env: [{name: A, value: {{ env \"A_TOKEN\" \"\" }}: :}]}]";
    let place = InjectorPlace::new();
    place.write("config", &printing(of_environment));
    place.write("values", &format!("global: {{token: {SECRET}}}\n"));
    let mut arguments = place.arguments();
    let values = place.path("values").to_str().unwrap().to_owned();
    arguments.extend(["--injectValues".to_owned(), values]);
    let mut command = gudgeon();
    command.env("A_TOKEN", SECRET);
    let injector = place.start_as(command, &arguments);
    injector
        .place
        .write("config", &printing("{{ .Values.global.token }}"));
    until("the output is warned about", || {
        injector.logged("spec.containers: want a list, got \"…\"") == 1
    });
    let annotated = format!(
        "policy: enabled\ninjectedAnnotations: {{status.sidecar.istio.io/port: {SECRET}}}\n"
    );
    injector.place.write("config", &annotated);
    let cause = "injectedAnnotations: invalid value '…' for annotation 'status.sidecar.istio.io/port': statusPort invalid";
    until("the file is broken", || injector.logged(cause) == 1);
    let mut output = injector.log().join("\n");
    for path in ["/debug", "/debug/config"] {
        output.push_str(&injector.get(path).text());
    }
    let line = output.lines().find(|line| line.contains(SECRET));
    assert_eq!(line, None);
    for part in ["template sidecar: its output is no YAML: line 2", cause] {
        assert!(output.contains(part), "{part}: {output}");
    }
}

#[test]
fn no_value_is_printed_when_the_start_fails() {
    let place = InjectorPlace::new();
    place.write(
        "config",
        &format!("injectedAnnotations: {{sidecar.istio.io/proxyCPU: {SECRET}}}\n"),
    );
    let output = gudgeon().args(place.arguments()).output().unwrap();
    assert_eq!(output.status.code(), Some(78));
    let error = String::from_utf8(output.stdout).unwrap();
    assert!(
        error.contains("proxyCPU invalid: want a quantity"),
        "{error}"
    );
    assert!(!error.contains(SECRET), "{error}");
}
