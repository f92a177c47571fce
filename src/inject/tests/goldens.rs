//! Small inputs and whole outputs: `goldens/*.yaml`, one table. Patches are applied by a library, not by the code under
//! test.
//!
//! A case has `name`, `config` (text) and `pod`, and may have `values`, `mesh` (text), `namespace`, `native`, `path`,
//! `environment`, `parameters` and `manifest`. It expects one of `result` (the pod after the patch), `skipped` (the reason)
//! and `refused` (`code`, `message`), and may name `patch` (the operations) and `warnings`. `base: NAME` takes missing
//! fields from an earlier case, `pod: {of: NAME}` is the result of an earlier case. VERSION stands for the sha256 of the
//! template. A result is injected once more, and must not change.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::too_many_lines,
    reason = "a test reads files, and fails where it cannot go on"
)]

use std::collections::BTreeMap;

use inject::{
    Configuration, NativeSidecars, Origin, Outcome, OuterObject, Parameters, Request, Sources,
    read_yaml, yaml_to_json,
};
use serde_json::{Map, Value, json};

#[test]
fn goldens() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goldens");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let (mut run, mut failures) = (0, Vec::new());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let node = read_yaml(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
            .unwrap();
        let Value::Array(cases) = yaml_to_json(&node) else {
            panic!("{}: want a list", file.display())
        };
        let mut known: BTreeMap<String, Case> = BTreeMap::new();
        for case in cases {
            let case = Case::read(case, &known);
            run += 1;
            if let Err(failure) = case.check() {
                failures.push(format!(
                    "{}: {}: {failure}",
                    file.file_stem().unwrap().display(),
                    case.name
                ));
            }
            known.insert(case.name.clone(), case);
        }
    }
    for failure in &failures {
        eprintln!("{failure}\n");
    }
    assert!(
        failures.is_empty() && run > 0,
        "{} of {run} failed",
        failures.len()
    );
}

struct Case {
    name: String,
    fields: Map<String, Value>,
}

impl Case {
    fn read(case: Value, cases: &BTreeMap<String, Self>) -> Self {
        let Value::Object(own) = case else {
            panic!("a case is an object")
        };
        let mut fields = own.get("base").map_or_else(Map::new, |base| {
            let mut base = cases[base.as_str().unwrap()].fields.clone();
            base.retain(|key, _| {
                !["result", "skipped", "refused", "patch", "warnings"].contains(&key.as_str())
            });
            base
        });
        fields.extend(own);
        let of = fields["pod"]
            .get("of")
            .map(|of| &cases[of.as_str().unwrap()]);
        if let Some(Outcome::Injected(injected)) = of.map(|case| case.outcome(&case.fields["pod"]))
        {
            fields["pod"] = injected.pod;
        }
        let mut case = Self {
            name: fields["name"].as_str().unwrap().to_owned(),
            fields,
        };
        if case.fields["pod"].to_string().contains("VERSION") {
            let any = json!({"spec": {"containers": [{"name": "any"}]}});
            let Outcome::Injected(injected) = case.outcome(&any) else {
                panic!("{}", case.name)
            };
            case.fields["pod"] = named(&case.fields["pod"], &injected.version);
        }
        case
    }

    fn outcome(&self, pod: &Value) -> Outcome {
        self.configuration().inject(&self.request(), pod)
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.fields.get(key).map(|value| value.as_str().unwrap())
    }

    fn configuration(&self) -> Configuration {
        let sources = Sources {
            config: self.text("config"),
            values: self.text("values"),
            mesh: self.text("mesh"),
        };
        let pairs = self
            .fields
            .get("environment")
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        let environment = pairs
            .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()))
            .collect();
        let given = self.fields.get("parameters").cloned().unwrap_or_default();
        let text = |key: &str| given[key].as_str().map(str::to_owned);
        let settings = given["settings"].as_object().into_iter().flatten();
        let parameters = Parameters {
            environment,
            revision: text("revision").unwrap_or_default(),
            proxy_image: text("proxyImage"),
            init_image: text("initImage"),
            discovery_address: text("discoveryAddress"),
            cni: given["cni"] == true,
            settings: settings
                .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()))
                .collect(),
        };
        Configuration::load(sources, parameters)
            .unwrap_or_else(|broken| panic!("{}: {broken}", self.name))
            .0
    }

    fn request(&self) -> Request {
        let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let origin = self
            .fields
            .get("manifest")
            .map_or(Origin::Webhook, |outer| {
                let map = |key: &str| outer[key].as_object().cloned().unwrap_or_default();
                Origin::Manifest(Box::new(OuterObject {
                    api_version: text(outer, "apiVersion"),
                    kind: text(outer, "kind"),
                    name: text(outer, "name"),
                    namespace: text(outer, "namespace"),
                    labels: map("labels"),
                    annotations: map("annotations"),
                }))
            });
        Request {
            namespace: self.text("namespace").unwrap_or("ns").to_owned(),
            native: match self.text("native") {
                Some("on") => NativeSidecars::On,
                Some("jobs") => NativeSidecars::Jobs,
                _ => NativeSidecars::Off,
            },
            proxy_envs: self
                .fields
                .get("path")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(|pair| {
                    let of = |index: usize| pair[index].as_str().unwrap().to_owned();
                    (of(0), of(1))
                })
                .collect(),
            origin,
            ..Request::default()
        }
    }

    fn check(&self) -> Result<(), String> {
        let (configuration, request, pod) =
            (self.configuration(), self.request(), &self.fields["pod"]);
        let outcome = configuration.inject(&request, pod);
        if configuration.inject(&request, pod) != outcome {
            return Err("equal input, other output".to_owned());
        }
        let (found, warnings) = match &outcome {
            Outcome::Skipped { reason, warnings } => (json!({"skipped": reason}), warnings.clone()),
            Outcome::Refused {
                code,
                message,
                warnings,
                ..
            } => (
                json!({"refused": {"code": code, "message": message}}),
                warnings.clone(),
            ),
            Outcome::Injected(injected) => {
                let patch: Value = serde_json::from_slice(&injected.patch).unwrap();
                let operations: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
                assert_eq!(operations.len(), injected.operations);
                let mut applied = pod.clone();
                json_patch::patch(&mut applied, &operations)
                    .map_err(|error| format!("the patch does not apply: {error}\n{patch}"))?;
                same("the pod that was promised", &applied, &injected.pod)?;
                let again = configuration.inject(&request, &applied);
                if !matches!(
                    again,
                    Outcome::Skipped {
                        reason: "unchanged",
                        ..
                    }
                ) {
                    return Err(format!("the second pass changes something: {again:?}"));
                }
                if let Some(wanted) = self.fields.get("patch") {
                    // As text: the order of keys is part of it.
                    let (patch, wanted) = (
                        patch.to_string(),
                        named(wanted, &injected.version).to_string(),
                    );
                    if patch != wanted {
                        return Err(format!("patch:\nfound  {patch}\nwanted {wanted}"));
                    }
                }
                (json!({"result": applied}), injected.warnings.clone())
            }
        };
        let version = match &outcome {
            Outcome::Injected(injected) => injected.version.clone(),
            Outcome::Skipped { .. } | Outcome::Refused { .. } => String::new(),
        };
        for key in ["result", "skipped", "refused"] {
            if let Some(wanted) = self.fields.get(key) {
                same(key, &found, &named(&json!({key: wanted}), &version))?;
            }
        }
        if !["result", "skipped", "refused", "patch"]
            .iter()
            .any(|key| self.fields.contains_key(*key))
        {
            let found = found.to_string();
            let found = if version.is_empty() {
                found
            } else {
                found.replace(&version, "VERSION")
            };
            return Err(format!(
                "expects nothing; found\n{found}\nwarnings {}",
                json!(warnings)
            ));
        }
        let wanted = self
            .fields
            .get("warnings")
            .cloned()
            .unwrap_or_else(|| json!([]));
        same("warnings", &json!(warnings), &wanted)
    }
}

/// With the version where a golden writes VERSION.
fn named(value: &Value, version: &str) -> Value {
    serde_json::from_str(&value.to_string().replace("VERSION", version)).unwrap()
}

fn same(what: &str, found: &Value, wanted: &Value) -> Result<(), String> {
    if found == wanted {
        return Ok(());
    }
    Err(format!("{what}:\nfound  {found}\nwanted {wanted}"))
}
