//! Pods as large as etcd accepts: any pod that can be created gets a proxy.

use serde_json::{Value, json};

use crate::builtin::{container, own, patched};
use crate::support::{JSON, pod, review};

/// Bytes of a request that etcd accepts, which has more than the pod.
const ETCD: usize = 3 << 19;
/// Bytes of annotations, names and values together: an API server accepts 256 KiB, of which the injection's take some.
const ANNOTATIONS: usize = 252 << 10;
/// Bytes of one environment variable that Linux accepts, with its name and the final NUL.
const VARIABLE: usize = 128 << 10;

/// A pod whose containers have so many bytes of text in `list`: environment variables or arguments.
fn filled(list: &str, bytes: usize) -> Value {
    let mut pod = pod("web");
    // Linux starts no program with a longer one.
    let one = "x".repeat(60 << 10);
    let containers = (0..bytes / one.len() / 4).map(|at| {
        let items = (0..4).map(|of| match list {
            "env" => json!({"name": format!("V{of}"), "value": one}),
            _ => json!(one),
        });
        let items: Vec<Value> = items.collect();
        json!({"name": format!("c{at}"), "image": "web:1", list: items})
    });
    pod["spec"]["containers"] = containers.collect();
    pod
}

/// With annotations of as many bytes as there may be: many short ones, or one.
fn annotated(pod: &mut Value, letter: &str, each: usize) {
    let count = ANNOTATIONS / each;
    let value = letter.repeat((each - "a.example/00000".len()) / letter.len());
    let annotations = (0..count).map(|at| (format!("a.example/{at:05}"), json!(value)));
    pod["metadata"]["annotations"] = annotations.collect::<serde_json::Map<_, _>>().into();
}

#[test]
fn a_pod_as_large_as_etcd_takes_is_injected() {
    let (injector, mut client) = own(&[]);
    let half = ETCD / 2;
    let mut pods = vec![
        ("env", filled("env", ETCD - (64 << 10))),
        ("args", filled("args", ETCD - (64 << 10))),
    ];
    for (what, letter, each) in [
        ("an annotation", "x", 251 << 10),
        ("annotations", "x", 1 << 10),
        ("an annotation that is JSON", "\"", 251 << 10),
        ("annotations that are JSON", "\"", 1 << 10),
        ("an annotation that is HTML", "<", 251 << 10),
        ("annotations that are HTML", "<", 1 << 10),
    ] {
        let mut pod = filled("env", half);
        annotated(&mut pod, letter, each);
        pods.push((what, pod));
    }
    let mut labelled = filled("env", half);
    let labels = (0..3000).map(|at| (format!("a.example/{at:05}"), json!("x".repeat(63))));
    labelled["metadata"]["labels"] = labels.collect::<serde_json::Map<_, _>>().into();
    pods.push(("labels", labelled));
    for (what, pod) in pods {
        let body = review(&pod).to_string();
        let answer = client.request("POST", "/inject", JSON, body.as_bytes());
        let answer = answer.unwrap();
        let text = answer.text();
        let text = text.get(..300).unwrap_or(&text);
        assert_eq!(answer.status, 200, "{what}: {text}");
        let answer = answer.json();
        let status = &answer["response"]["status"];
        assert_eq!(answer["response"]["allowed"], true, "{what}: {status}");
        let injected = patched(&pod, &answer);
        let warnings = answer["response"]["warnings"].to_string();
        let metadata = pod["metadata"].as_object().unwrap();
        for (map, variable) in [
            ("annotations", "ISTIO_METAJSON_ANNOTATIONS"),
            ("labels", "ISTIO_METAJSON_LABELS"),
        ] {
            let is_reported = warnings.contains(&format!("{variable} of istio-proxy is left out"));
            assert_eq!(
                is_reported,
                metadata.contains_key(map),
                "{what}: {warnings}"
            );
        }
        let proxy = container(&injected, "containers", "istio-proxy").unwrap();
        for variable in proxy["env"].as_array().unwrap() {
            let name = variable["name"].as_str().unwrap();
            let value = variable["value"].as_str().unwrap_or_default();
            let bytes = name.len() + value.len() + "=\0".len();
            assert!(bytes <= VARIABLE, "{what}: {name} has {bytes} bytes");
        }
    }
    assert_eq!(injector.metric("gudgeon_panics_total"), Some(0.0));
}
