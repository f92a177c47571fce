//! The pods of the goldens, created through the webhook and read back: the server must keep what the injector made.
//!
//! Another webhook comes after it, gives an image to each container without one (a golden has only the fields it needs), and
//! changes each pod elsewhere: so the injector is called again for all injected pods, and must leave them alone.

use std::collections::BTreeSet;

use inject::Outcome;
use serde_json::{Value, json};

use crate::cases::{Case, cases, change, environment, hex, images};
use crate::second;
use crate::server::{
    Asked, Entry, Hook, TEMPLATE, create, namespace, of_run, place, try_kubectl, until,
};
use crate::support::{Injector, gudgeon};

const HOOK: &str = "goldens";
/// Cases whose injected pod a server refuses: a port with a number for a name, a request beyond its limit, a mount of a
/// volume that is not there.
const NO_PODS: [&str; 4] = [
    "coercions",
    "threads by the limit",
    "service account and token",
    "the service account is mounted already",
];
/// Without any webhook.
const PLAIN: &str = "goldens-plain";

/// The webhook after the injector: images, and always a field that no template reads.
fn after(pod: &Value) -> Value {
    let mut operations = images(pod);
    let always = json!({"op": "add", "path": "/spec/enableServiceLinks", "value": false});
    operations.as_array_mut().unwrap().push(always);
    operations
}

/// Returns the path at which `stored` lacks something of `meant`; defaults that the server filled in do not count, also not
/// those in the JSON that a variable or an annotation holds: the injector sees a pod with its defaults.
fn lost(path: &str, meant: &Value, stored: &Value) -> Option<String> {
    let nothing = |value: &Value| match value {
        Value::Null => true,
        Value::Bool(yes) => !yes,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Number(_) => false,
    };
    match (meant, stored) {
        (Value::Object(meant), Value::Object(stored)) => meant.iter().find_map(|(key, value)| {
            let path = format!("{path}/{key}");
            lost(&path, value, stored.get(key).unwrap_or(&Value::Null))
        }),
        (Value::Array(meant), Value::Array(stored)) if meant.len() == stored.len() => {
            let pairs = meant.iter().zip(stored).enumerate();
            pairs
                .into_iter()
                .find_map(|(at, (meant, stored))| lost(&format!("{path}/{at}"), meant, stored))
        }
        _ if meant == stored || (nothing(meant) && nothing(stored)) => None,
        (Value::String(meant), Value::String(stored))
            if path.contains("/resources/") && amount(meant) == amount(stored) =>
        {
            None
        }
        (Value::String(text), Value::String(other)) if text.starts_with('{') => {
            let (Ok(inner), Ok(other)) = (serde_json::from_str(text), serde_json::from_str(other))
            else {
                return Some(format!("{path}: meant {meant}, kept {stored}"));
            };
            lost(path, &inner, &other)
        }
        _ => Some(format!("{path}: meant {meant}, kept {stored}")),
    }
}

/// A quantity in thousandths, however it is written: the server writes it its own way.
fn amount(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "m" => 1.0,
        "" => 1e3,
        "Mi" => 1e3 * f64::from(1 << 20),
        "Gi" => 1e3 * f64::from(1 << 30),
        _ => return None,
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small, and positive"
    )]
    digits
        .parse::<f64>()
        .ok()
        .map(|number| (number * factor).round() as u64)
}

/// Returns the cases whose pods this server accepts and keeps unchanged, without webhooks.
fn valid(cases: &[Case]) -> BTreeSet<&str> {
    namespace(PLAIN, "none");
    let refused = |case: &Case| {
        let mut pod = case.pod.clone();
        pod["metadata"]["namespace"] = json!(PLAIN);
        let answer = create(&pod, &["--dry-run=server"]);
        if !answer.done {
            return Some(answer.err);
        }
        lost("", &pod, &answer.objects()[0])
    };
    let mut valid = BTreeSet::new();
    for case in cases {
        match refused(case) {
            Some(why) => eprintln!("{}: no pod of this server: {}", case.name, why.trim_end()),
            None => {
                valid.insert(case.name());
            }
        }
    }
    valid
}

/// The configuration of a case is in use.
fn configure(injector: &Injector, case: &Case) {
    let texts = [
        ("config", case.text("config").unwrap_or("policy: enabled\n")),
        ("values", case.text("values").unwrap_or("{}")),
        ("mesh", case.text("mesh").unwrap_or("{}")),
    ];
    for (name, text) in texts {
        // Write changed files only: each write is a reload.
        if injector.place.read(name) != text {
            injector.place.write(name, text);
        }
    }
    until("the configuration is in use", || {
        let page = injector.get("/debug/config").json();
        texts.iter().all(|(name, text)| {
            let path = injector.place.path(name);
            let mut files = page["files"].as_array().unwrap().iter();
            let file = files.find(|file| file["path"] == path.to_str().unwrap());
            file.is_some_and(|file| file["sha256"] == hex(text) && file["valid"] == true)
        })
    });
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn all_that_are_pods() {
    let cases = cases();
    // Settings of a manifest's owner do not apply to webhooks; native sidecars are newer than this server.
    let for_webhooks = |case: &&Case| {
        !["manifest", "native", "parameters", "path"]
            .iter()
            .any(|key| case.fields.contains_key(*key))
    };
    let valid = valid(&cases);
    let asked = asked(&cases);
    let (mut injected, mut skipped, mut refused, mut failures) = (0, 0, 0, Vec::new());
    for case in cases.iter().filter(for_webhooks) {
        if !valid.contains(case.name()) {
            continue;
        }
        let outcome = case.meant();
        if let Outcome::Injected(injected) = &outcome
            && restarts(&injected.pod)
        {
            eprintln!(
                "{}: this server does not know a container's restartPolicy",
                case.name
            );
            continue;
        }
        // Another webhook completes these containers, and only istio-proxy's own override is kept.
        if let Outcome::Injected(injected) = &outcome
            && has_no_image(&injected.pod)
        {
            eprintln!("{}: a container without an image is no pod's", case.name);
            continue;
        }
        configure(&asked.0.injector, case);
        match outcome {
            Outcome::Injected(_) => injected += 1,
            Outcome::Skipped { .. } => skipped += 1,
            Outcome::Refused { .. } => refused += 1,
        }
        if let Err(failure) = check(&asked.0, case, &outcome) {
            failures.push(format!("{}: {failure}", case.name));
        }
    }
    eprintln!(
        "goldens: {injected} injected, {skipped} skipped, {refused} refused, of {}",
        cases.len()
    );
    assert!(
        failures.is_empty(),
        "{} failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(
        injected >= 50 && skipped >= 8 && refused >= 12,
        "fewer than there were"
    );
}

fn has_no_image(pod: &Value) -> bool {
    let lists = ["initContainers", "containers"].map(|list| pod["spec"][list].as_array());
    let mut all = lists.into_iter().flatten().flatten();
    all.any(|one| one["image"].is_null() && one["name"] != "istio-proxy")
}

fn restarts(pod: &Value) -> bool {
    let lists = ["initContainers", "containers"].map(|list| pod["spec"][list].as_array());
    let mut all = lists.into_iter().flatten().flatten();
    all.any(|container| container.get("restartPolicy").is_some())
}

/// The injector, asked about all namespaces that a golden names; and the one that comes after it.
fn asked(cases: &[Case]) -> (Asked, Hook) {
    let namespaces: BTreeSet<&str> = cases.iter().map(|case| case.namespace.as_str()).collect();
    for name in namespaces {
        namespace(name, HOOK);
    }
    let place = place(TEMPLATE);
    place.write("values", "{}");
    place.write("mesh", "{}");
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let (values, mesh) = (path("values"), path("mesh"));
    let mut arguments = place.arguments();
    arguments.extend(["--injectValues", &values, "--meshConfig", &mesh].map(ToOwned::to_owned));
    let mut program = gudgeon();
    program.envs(cases.iter().flat_map(environment));
    let injector = place.start_as(program, &arguments);
    let asked = Asked::with(HOOK, injector, "/inject");
    let ca = of_run("ca.crt");
    let entry = Entry {
        name: "after.example.com",
        port: second::serve(after),
        path: "/",
        ca: Some(&ca),
        hook: HOOK,
    };
    // Webhooks are asked by the order of these names.
    let hook = Hook::new("goldens-after", &[entry]);
    until("the other is asked", || {
        let answer = create(&crate::server::pod(HOOK, "first"), &["--dry-run=server"]);
        answer
            .objects()
            .first()
            .is_some_and(|pod| pod["spec"]["enableServiceLinks"] == false)
    });
    (asked, hook)
}

fn check(asked: &Asked, case: &Case, outcome: &Outcome) -> Result<(), String> {
    let before = asked.answered();
    let answer = create(&case.pod, &[]);
    let answered = (asked.answered().0 - before.0, asked.answered().1 - before.1);
    let (warnings, expected) = match outcome {
        Outcome::Refused { code, message, .. } => {
            let kind = if *code == 400 {
                "BadRequest"
            } else {
                "InternalError"
            };
            if answer.done || !answer.err.contains(kind) || !answer.err.contains(message) {
                return Err(format!(
                    "refused with {code} {message:?}; kubectl says {answer:?}"
                ));
            }
            return Ok(());
        }
        Outcome::Skipped { warnings, .. } => (warnings, (0.0, 2.0)),
        Outcome::Injected(injected) => (&injected.warnings, (1.0, 1.0)),
    };
    if NO_PODS.contains(&case.name.as_str()) {
        let refused = answer.err.contains("is invalid: spec.containers[");
        return if refused {
            Ok(())
        } else {
            Err(format!("kubectl says {answer:?}"))
        };
    }
    if !answer.done {
        return Err(format!("kubectl says {answer:?}"));
    }
    let mut meant = match outcome {
        Outcome::Injected(injected) => injected.pod.clone(),
        Outcome::Skipped { .. } | Outcome::Refused { .. } => case.pod.clone(),
    };
    let others = after(&meant);
    change(&mut meant, others);
    let name = case.name();
    let stored = crate::server::stored_pod(&case.namespace, name);
    if let Some(lost) = lost("", &meant, &stored) {
        return Err(lost);
    }
    if answered != expected {
        let again = match case.outcome(&stored) {
            Outcome::Injected(again) => String::from_utf8(again.patch).unwrap(),
            other @ (Outcome::Skipped { .. } | Outcome::Refused { .. }) => format!("{other:?}"),
        };
        return Err(format!(
            "answered with a patch and without: {answered:?}, want {expected:?}; once more: {again}"
        ));
    }
    let mut wanted: Vec<&str> = warnings.iter().map(String::as_str).collect();
    wanted.sort_unstable();
    wanted.dedup();
    if answer.warnings() != wanted {
        return Err(format!(
            "warnings: {:?}, want {wanted:?}",
            answer.warnings()
        ));
    }
    let again = try_kubectl(
        &["delete", "pod", name, "-n", &case.namespace, "--wait=false"],
        "",
    );
    if !again.done {
        return Err(format!("kubectl says {again:?}"));
    }
    Ok(())
}

#[test]
fn a_missing_or_changed_field_counts_as_lost() {
    let meant = json!({"a": "", "b": [{"c": 1}], "resources": {"limits": {"cpu": "0.1"}}});
    let stored = json!({"b": [{"c": 1, "d": 2}], "resources": {"limits": {"cpu": "100m"}}});
    assert_eq!(lost("", &meant, &stored), None);
    for (meant, stored) in [
        (json!({"a": 1}), json!({})),
        (json!({"a": [1]}), json!({"a": [1, 2]})),
        (json!({"a": "x"}), json!({"a": "y"})),
        (
            json!({"resources": {"cpu": "1"}}),
            json!({"resources": {"cpu": "100m"}}),
        ),
    ] {
        assert!(lost("", &meant, &stored).is_some(), "{meant} {stored}");
    }
}
