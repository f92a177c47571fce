//! Manifests of every kind in every version through the built binary: small inputs, and the whole output.

use std::io::Write as _;
use std::process::{Output, Stdio};

use crate::support::{InjectorPlace, TEMPLATE, gudgeon};
use sha2::{Digest as _, Sha256};

/// Each kind, its versions, and how its pod is reached.
const KINDS: [(&str, &[&str], &[&str]); 9] = [
    ("Pod", &["v1"], &[]),
    ("ReplicationController", &["v1"], &["spec", "template"]),
    ("Deployment", APPS, &["spec", "template"]),
    ("DaemonSet", APPS, &["spec", "template"]),
    ("ReplicaSet", APPS, &["spec", "template"]),
    ("StatefulSet", APPS, &["spec", "template"]),
    ("Job", BATCH, &["spec", "template"]),
    (
        "CronJob",
        BATCH,
        &["spec", "jobTemplate", "spec", "template"],
    ),
    (
        "DeploymentConfig",
        &["apps.openshift.io/v1", "v1"],
        &["spec", "template"],
    ),
];
const APPS: &[&str] = &[
    "apps/v1",
    "apps/v1beta2",
    "apps/v1beta1",
    "extensions/v1beta1",
];
const BATCH: &[&str] = &["batch/v1", "batch/v1beta1", "batch/v2alpha1"];

/// Runs it over one text.
fn inject(text: &str) -> Output {
    let place = InjectorPlace::new();
    let mut child = gudgeon()
        .args(["inject", "-f", "-", "--injectConfigFile"])
        .arg(place.path("config"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = text.to_owned();
    let writer = std::thread::spawn(move || {
        // The program may have stopped reading.
        let _gone = stdin.write_all(text.as_bytes());
    });
    let done = child.wait_with_output().unwrap();
    writer.join().unwrap();
    done
}

fn injected(text: &str) -> String {
    let done = inject(text);
    let stderr = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success(), "{stderr}\n{text}");
    assert_eq!(stderr, "", "{text}");
    String::from_utf8(done.stdout).unwrap()
}

/// The status that the injection leaves, as YAML has it.
fn status() -> String {
    let (_, template) = TEMPLATE.split_once("template: |\n").unwrap();
    let text: String = template
        .lines()
        .map(|line| format!("{}\n", &line[2..]))
        .collect();
    let version: String = Sha256::digest(text)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let status = format!(
        "{{\"version\":\"{version}\",\"initContainers\":null,\"containers\":[\"istio-proxy\"],\"volumes\":null,\"imagePullSecrets\":null}}"
    );
    format!("sidecar.istio.io/status: {status:?}\n")
}

/// An object, before and after.
fn object(kind: &str, version: &str, path: &[&str], name: &str) -> (String, String) {
    let mut head = format!("apiVersion: {version}\nkind: {kind}\n");
    if !path.is_empty() {
        head.push_str(&format!(
            "metadata:\n  name: {name}\n  namespace: ns\n  annotations:\n    outer: kept\n"
        ));
    }
    let mut depth = 0;
    for key in path {
        head.push_str(&format!("{}{key}:\n", "  ".repeat(depth)));
        depth += 1;
        if *key == "jobTemplate" {
            head.push_str(&format!(
                "{0}metadata:\n{0}  labels:\n{0}    job: kept\n",
                "  ".repeat(depth)
            ));
        }
    }
    let indent = "  ".repeat(depth);
    let pod = |annotations: &str, more: &str| {
        let text = format!(
            "metadata:\n  labels:\n    app: {name}\n{annotations}spec:\n  containers:\n  - name: web\n    image: web:1\n    args:\n    - \"yes\"\n    - \"0644\"\n  \
             {more}securityContext:\n    runAsUser: 9007199254740993\n"
        );
        text.lines()
            .map(|line| format!("{indent}{line}\n"))
            .collect::<String>()
    };
    let name_line = if path.is_empty() {
        "  name: p\n  namespace: ns\n"
    } else {
        ""
    };
    let with_name = |text: String| {
        text.replacen(
            "metadata:\n  labels",
            &format!("metadata:\n{name_line}  labels"),
            1,
        )
    };
    let before = with_name(format!("{head}{}", pod("", "")));
    let after = with_name(format!(
        "{head}{}",
        pod(
            &format!("  annotations:\n    {}", status()),
            "- name: istio-proxy\n    image: proxy:1\n  "
        )
    ));
    (before, after)
}

#[test]
fn every_kind_in_every_version() {
    let (mut input, mut output, mut count) = (String::new(), String::new(), 0);
    for (kind, versions, path) in KINDS {
        for version in versions {
            let (before, after) = object(kind, version, path, &format!("w{count}"));
            assert_eq!(injected(&before), after, "{kind} {version}");
            input.push_str(&format!("---\n{before}"));
            output.push_str(&format!("---\n{after}"));
            count += 1;
        }
    }
    assert_eq!(count, 26);
    assert_eq!(injected(&input), output, "all in one file");
    let again = inject(&output);
    assert_eq!(
        String::from_utf8(again.stdout).unwrap(),
        output,
        "injecting twice"
    );
    let stderr = String::from_utf8(again.stderr).unwrap();
    assert_eq!(stderr.lines().count(), 26);
    assert!(
        stderr.contains("skipping CronJob ns/w22: unchanged\n"),
        "{stderr}"
    );
}

#[test]
fn the_pod_template_of_a_cron_job() {
    let (before, after) = object(
        "CronJob",
        "batch/v1",
        &["spec", "jobTemplate", "spec", "template"],
        "c",
    );
    let refused = before.replace(
        "          labels:\n            app: c\n",
        "          annotations:\n            sidecar.istio.io/inject: \"false\"\n",
    );
    assert_ne!(refused, before);
    let done = inject(&refused);
    assert_eq!(
        String::from_utf8(done.stdout).unwrap(),
        refused,
        "the pod template's annotation counts"
    );
    assert_eq!(
        String::from_utf8(done.stderr).unwrap(),
        "skipping CronJob ns/c: annotation\n"
    );
    let elsewhere = before.replace(
        "      labels:\n        job: kept\n",
        "      annotations:\n        sidecar.istio.io/inject: \"false\"\n",
    );
    assert_ne!(elsewhere, before, "{before}");
    assert_eq!(
        injected(&elsewhere),
        after.replace(
            "      labels:\n        job: kept\n",
            "      annotations:\n        sidecar.istio.io/inject: \"false\"\n"
        ),
        "the job template's does not"
    );
}

fn listed(text: &str) -> String {
    text.lines()
        .enumerate()
        .map(|(at, line)| format!("{}{line}\n", if at == 0 { "- " } else { "  " }))
        .collect()
}

#[test]
fn a_list_with_a_service_in_it() {
    let service = "apiVersion: v1\nkind: Service\nmetadata:\n  name: s\nspec:\n  ports:\n  - port: 80\n    targetPort: \"8080\"\n";
    let (pod, proxied) = object("Pod", "v1", &[], "p");
    let (job, with_proxy) = object("Job", "batch/v1", &["spec", "template"], "j");
    let head = "apiVersion: v1\nkind: List\nmetadata:\n  resourceVersion: \"\"\nitems:\n";
    let inner = |one: &str, two: &str| format!("{head}{}{}", listed(one), listed(two));
    let text =
        |pod: &str, job: &str| format!("{head}{}{}{}", listed(pod), listed(service), listed(job));
    assert_eq!(injected(&text(&pod, &job)), text(&proxied, &with_proxy));
    // A list in a list; and one without a pod, byte for byte.
    let nested = |pod: &str, job: &str| format!("{head}{}", listed(&inner(pod, job)));
    assert_eq!(injected(&nested(&pod, &job)), nested(&proxied, &with_proxy));
    let odd = format!("{head}{}   # odd\n", listed(service));
    assert_eq!(injected(&odd), odd);
}

#[test]
fn ten_documents_with_comments_blank_ones_and_crlf() {
    let (deployment, with_proxy) = object("Deployment", "apps/v1", &["spec", "template"], "web");
    let (pod, proxied) = object("Pod", "v1", &[], "p");
    let whole = |deployment: &str, pod: &str| {
        [
            "# the first is a comment\n",
            "apiVersion: v1\nkind: Service   # odd   spacing\nmetadata: {name:   web}\n",
            deployment,
            "\n",
            "",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  text: |\n    ---\n    not a document\n",
            pod,
            "- just\n- a list\n",
            "7\n",
            "# the last, too\nkind: Unknown\nport: 0644\n",
        ]
        .join("--- # next\n")
    };
    let (before, after) = (whole(&deployment, &pod), whole(&with_proxy, &proxied));
    assert_eq!(injected(&before), after);
    let windows = |text: &str| text.replace('\n', "\r\n");
    assert_eq!(injected(&windows(&before)), windows(&after));
    // Comments of an injected document are lost, those of others stay; no newline at the end is no newline.
    let commented = before.replace("kind: Deployment", "kind: Deployment # one");
    assert_eq!(injected(&commented), after);
    let open = before.trim_end();
    assert_eq!(injected(open), after.trim_end());
}

#[test]
fn json_in_yaml_out() {
    let text = "{\n\t\"apiVersion\": \"apps/v1\", \"kind\": \"Deployment\",\n\t\"metadata\": {\"name\": \"w\"},\n\t\"spec\": {\"replicas\": 2, \
                \"template\": {\"spec\": {\"containers\": [{\"name\": \"web\", \"x-future\": 1152921504606846977}]}}}\n}\n";
    let expected = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: w\nspec:\n  replicas: 2\n  template:\n    spec:\n      containers:\n      \
         - name: web\n        x-future: 1152921504606846977\n      - name: istio-proxy\n        image: proxy:1\n    metadata:\n      annotations:\n        {}",
        status()
    );
    assert_eq!(injected(text), expected);
    let untouched = "{\"kind\":\t\"Secret\", \"apiVersion\": \"v1\", \"data\": {\"a\": \"b\"} }";
    assert_eq!(injected(untouched), untouched);
}

#[test]
fn documents_without_an_injection_stay_equal_to_the_last_byte() {
    for text in [
        "",
        "\n\n",
        "#",
        "---",
        "---\n---\n...\n",
        "%YAML 1.1\n---\na: 1\n",
        "\u{feff}a: 1",
        "kind: Service\r\napiVersion: v1\r\n---\r\n\r\n---\n# x",
        "a: &a {b: 1}\nc: *a\nd: !!str 7\n",
        "? complex\n: key\n",
        "\"just text\"",
        "{\"items\": []}\n",
    ] {
        assert_eq!(injected(text), text, "{text:?}");
    }
}

#[test]
fn an_unreadable_document_is_named_and_no_output_written() {
    let (good, _) = object("Deployment", "apps/v1", &["spec", "template"], "web");
    let bomb = (b'b'..=b'i').fold("a: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, name| {
        let (name, before) = (char::from(name), char::from(name - 1));
        format!(
            "{text}{name}: &{name} [{}]\n",
            format!("*{before},").repeat(10)
        )
    });
    for (text, message) in [
        (
            format!("{good}---\na: [\n"),
            "-: document 2: cannot read YAML: ",
        ),
        (
            format!(
                "# c\n---\n{good}---\n{}",
                good.replace("image: web:1", "image: []")
            ),
            "-: document 2 (Deployment ns/web): ",
        ),
        (
            format!("{good}---\n{bomb}"),
            "-: document 2: cannot read YAML: ",
        ),
        (
            format!("a: {}1{}", "[".repeat(200), "]".repeat(200)),
            "-: document 1: cannot read YAML: ",
        ),
        (
            format!("a: {}1{}", "[".repeat(300_000), "]".repeat(300_000)),
            "-: document 1: cannot read YAML: ",
        ),
        (
            format!("a: \"{}\"", "x".repeat(6 << 20)),
            "-: document 1: cannot read YAML: ",
        ),
        (
            "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c}\nspec: {}\n".to_owned(),
            "-: document 1 (CronJob c): cannot find spec.jobTemplate.spec.template",
        ),
    ] {
        let done = inject(&text);
        let stderr = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.starts_with(message) && stderr.lines().count() == 1,
            "{message}\n{stderr}"
        );
        assert!(done.stdout.is_empty());
    }
}
