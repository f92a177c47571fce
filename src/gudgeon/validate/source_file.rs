//! Files as their objects: each is decoded and validated, and known by its kind and name from then on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use api::config::document::{self, COMMAND_LINE, Part};
use api::config::{self, Check, Finding, Kind};
use serde_json::Value;
use sources::catalogue::created_finding;

use super::report::{Report, Subject};
use crate::named_files::{NamedFile, put_namespace};

/// The namespace of what names none.
const NAMELESS: &str = "default";

/// The path of an object's name.
const NAME: &str = "metadata.name";

/// The objects so far.
pub(super) struct SourceFile<'a> {
    /// The namespace of objects that name none.
    namespace: Option<&'a str>,
    /// The first place of each object.
    places: HashMap<(&'static str, &'static str, String), String>,
    pub(super) report: Report,
}

impl<'a> SourceFile<'a> {
    pub(super) fn new(namespace: Option<&'a str>, report: Report) -> Self {
        Self {
            namespace,
            places: HashMap::new(),
            report,
        }
    }

    /// Reads all documents up to a malformed one.
    pub(super) fn read(&mut self, file: &NamedFile) {
        let mut is_empty = true;
        for document in document::documents_within(&file.text, COMMAND_LINE) {
            is_empty = false;
            match document {
                Ok(document) => {
                    for part in document.parts() {
                        self.part(file, &part);
                    }
                }
                Err(malformed) if file.skips_text(malformed.line) => {
                    let line = malformed.line.max(1);
                    self.report.skipped_text(&file.name, line, &malformed.cause);
                }
                Err(malformed) => {
                    self.report
                        .malformed(&file.name, malformed.line.max(1), &malformed.cause);
                }
            }
        }
        if is_empty && !file.below && document::is_blank(&file.text) {
            self.report
                .malformed(&file.name, 1, "there is no object in it");
        }
    }

    /// Below a directory may be the values of a chart, a `package.json`, notes or a template: they are counted, and are no
    /// mistake.
    fn part(&mut self, file: &NamedFile, part: &Part<'_>) {
        let value = part.value();
        if let Some(unread) = unread(&value) {
            let subject = Subject::of(&value);
            self.report.object(&file.name, part, &subject, &[unread]);
            return;
        }
        if is_anothers(&value) || file.skips_value(&value) {
            self.report.skipped();
            return;
        }
        self.object(file, part, value);
    }

    fn object(&mut self, file: &NamedFile, part: &Part<'_>, mut value: Value) {
        if let Some(namespace) = self.namespace {
            put_namespace(&mut value, namespace);
        }
        let (object, mut findings) = config::check_all(&value);
        part.add_number_findings(&mut findings);
        if file.skips_object(part, &findings) {
            self.report.skipped();
            return;
        }
        findings.extend(created_finding(&value));
        let mut subject = Subject::of(&value);
        let named = match &object {
            Some(object) => {
                subject.namespace.clone_from(&object.namespace);
                // No API server is here to complete the missing name.
                if object.name.is_empty() && !findings.iter().any(|finding| finding.path == NAME) {
                    findings.push(Finding::error(NAME, "is required"));
                }
                Some((object.kind, object.full_name()))
            }
            None => {
                set_namespace(&mut subject, &value);
                unused(&value).map(|kind| (kind, subject.full_name()))
            }
        };
        if let Some((kind, full_name)) = named.filter(|_| !subject.name.is_empty()) {
            let here = format!("{}:{}", file.name, part.begin());
            findings.extend(self.duplicate(kind, full_name, here));
        }
        if let Some(object) = object
            && !findings.iter().any(Finding::is_error)
        {
            findings.extend(config::notes_of(&object));
        }
        // The count of omitted findings comes last, so the sort comes first.
        part.sort(&mut findings);
        config::limit(&mut findings);
        self.report.object(&file.name, part, &subject, &findings);
    }

    /// Remembers the place of an object; the finding about one that has the name of another of its kind.
    fn duplicate(&mut self, kind: &Kind, full_name: String, here: String) -> Option<Finding> {
        match self.places.entry((kind.group, kind.kind, full_name)) {
            Entry::Occupied(first) => {
                let message = format!("duplicate of {}", first.get());
                Some(Finding::error(NAME, message))
            }
            Entry::Vacant(place) => {
                place.insert(here);
                None
            }
        }
    }
}

/// Returns the kind of an object that is accepted and not checked, as later releases and Mixer have them.
fn unused(value: &Value) -> Option<&'static Kind> {
    let text = |name| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let kind = config::kind(text("apiVersion"), text("kind")).ok()?;
    (kind.check == Check::Unused).then_some(kind)
}

/// Warns of an object that has no effect beside those of ours.
fn unread(value: &Value) -> Option<Finding> {
    let version = value.get("apiVersion").and_then(Value::as_str);
    config::unread_api(version?)
}

/// Returns true if `apiVersion` is of another program's group.
fn is_anothers(value: &Value) -> bool {
    value
        .get("apiVersion")
        .and_then(Value::as_str)
        .is_some_and(|version| !version.is_empty() && !config::is_ours(version))
}

/// Sets the namespace of an object that was not decoded by the same rule.
fn set_namespace(subject: &mut Subject, value: &Value) {
    let version = value.get("apiVersion").and_then(Value::as_str);
    match config::kind(version.unwrap_or_default(), &subject.kind) {
        Ok(kind) if kind.cluster => subject.namespace.clear(),
        Ok(_) if subject.namespace.is_empty() => subject.namespace.push_str(NAMELESS),
        Ok(_) | Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cli::ReportFormat;
    use crate::secrets::redact_text;

    /// A finding's severity, path and message, as discovery and galley say them.
    fn finding_text(row: &Value) -> String {
        let text = |name: &str| row[name].as_str().unwrap_or_default();
        let warning = match text("severity") {
            "error" => "",
            severity => &format!("{severity}: "),
        };
        let place = match text("path") {
            "" => String::new(),
            path => format!("{path}: "),
        };
        format!("{warning}{place}{}", text("message"))
    }

    fn row_line(row: &Value) -> usize {
        usize::try_from(row["line"].as_u64().unwrap()).unwrap()
    }

    /// The line of a finding about an object whose kind, metadata and spec are one line each.
    fn line_of(finding: &str) -> usize {
        let path = finding.strip_prefix("warning: ").unwrap_or(finding);
        let begins = |(name, _): &(&str, usize)| path.starts_with(name);
        let lines = [("kind: ", 2), ("metadata", 3), ("spec", 4)];
        lines.into_iter().find(begins).map_or(1, |(_, line)| line)
    }

    /// Covers kinds with and without rules, and an object that is too large.
    #[test]
    fn objects_without_a_namespace_are_in_the_default_one() {
        let large = "x".repeat(1600 << 10);
        let objects = [
            ("telemetry.istio.io/v1", "Telemetry", "name: a", "{}"),
            (
                "networking.istio.io/v1alpha3",
                "EnvoyFilter",
                "name: b",
                &large,
            ),
            (
                "networking.istio.io/v1",
                "VirtualService",
                "name: c",
                "{x: 1}",
            ),
            (
                "telemetry.istio.io/v1",
                "Telemetry",
                "{name: d, namespace: own}",
                "{}",
            ),
            (
                "authentication.istio.io/v1alpha1",
                "MeshPolicy",
                "{name: e, namespace: own}",
                &large,
            ),
            ("networking.istio.io/v1", "Unknown", "name: f", "{}"),
        ];
        let text: Vec<String> = objects
            .iter()
            .map(|(version, kind, metadata, spec)| {
                let metadata = match metadata.starts_with('{') {
                    true => (*metadata).to_owned(),
                    false => format!("{{{metadata}}}"),
                };
                format!("apiVersion: {version}\nkind: {kind}\nmetadata: {metadata}\nspec: {spec}\n")
            })
            .collect();
        let file = NamedFile {
            name: "a.yaml".to_owned(),
            text: text.join("---\n"),
            below: false,
        };
        let places = |namespace: Option<&str>| -> Vec<String> {
            let mut source_file = SourceFile::new(namespace, Report::new(ReportFormat::Json));
            source_file.read(&file);
            let rows: Vec<Value> = serde_json::from_str(&source_file.report.answer()).unwrap();
            let mut places: Vec<String> = rows
                .iter()
                .map(|row| {
                    let text = |name: &str| row[name].as_str().unwrap().to_owned();
                    format!("{}/{}", text("namespace"), text("name"))
                })
                .collect();
            places.dedup();
            places
        };
        let all = ["default/a", "default/b", "default/c", "own/d", "/e", "/f"];
        assert_eq!(places(None), all);
        assert_eq!(places(Some("n"))[..5], ["n/a", "n/b", "n/c", "own/d", "/e"]);
    }

    /// Discovery and galley refuse the one of files, too, and do not read the other.
    #[test]
    fn creation_times_and_objects_of_the_gateway_api_are_looked_at() {
        let findings = |text: &str| -> Vec<String> {
            let file = NamedFile {
                name: "a.yaml".to_owned(),
                text: text.to_owned(),
                below: true,
            };
            let mut source_file = SourceFile::new(None, Report::new(ReportFormat::Json));
            source_file.read(&file);
            let rows: Vec<Value> = serde_json::from_str(&source_file.report.answer()).unwrap();
            rows.iter()
                .map(|row| format!("{} {}: {}", row["kind"], row["name"], finding_text(row)))
                .collect()
        };
        let rule = |created: &str| {
            format!(
                "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: a, creationTimestamp: {created}}}\nspec: {{host: a}}\n"
            )
        };
        assert_eq!(
            findings(&rule("yesterday")),
            [r#""DestinationRule" "a": metadata.creationTimestamp: want a time, got "yesterday""#]
        );
        for created in ["2026-01-01T00:00:00Z", "'2026-01-01T00:00:00Z'", "null"] {
            assert_eq!(findings(&rule(created)), [""; 0], "{created}");
        }
        let route = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: web, namespace: demo}\nspec: {}\n";
        assert_eq!(
            findings(route),
            [
                r#""HTTPRoute" "web": warning: kind: gudgeon does not read Gateway API objects; they have no effect"#
            ]
        );
        assert_eq!(
            findings(&route.replace("gateway.networking.k8s.io", "apps")),
            [""; 0]
        );
    }

    /// Each row of the rules, and what discovery does not serve of it.
    #[test]
    fn every_row_is_judged_as_everywhere() {
        for line in include_str!("../../api/tests/rows.jsonl").lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            let text = |name: &str| row[name].as_str().unwrap();
            let (version, kind, name, spec) =
                (text("apiVersion"), text("kind"), text("name"), text("spec"));
            let file = NamedFile {
                name: "a.yaml".to_owned(),
                text: format!(
                    "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}, namespace: ns}}\nspec: {spec}\n"
                ),
                below: false,
            };
            let mut source_file = SourceFile::new(None, Report::new(ReportFormat::Json));
            source_file.read(&file);
            let rows: Vec<Value> = serde_json::from_str(&source_file.report.answer()).unwrap();
            let document = document::documents(&file.text).next();
            let notes = crate::examples::notes(&document.unwrap().unwrap().parts()[0].value());
            let findings = row["said"].as_array().unwrap().iter();
            let findings = findings.map(|finding| finding.as_str().unwrap().to_owned());
            let mut expected: Vec<_> = findings
                .chain(notes.iter().map(Finding::to_string))
                .map(|finding| (line_of(&finding), redact_text(&finding)))
                .collect();
            let mut found: Vec<_> = rows
                .iter()
                .map(|row| (row_line(row), finding_text(row)))
                .collect();
            expected.sort();
            found.sort();
            assert_eq!(found, expected, "{}", file.text);
        }
    }

    /// Each example has the findings of discovery and of galley: in the same words, at the same lines.
    #[test]
    fn every_example_is_judged_as_everywhere() {
        let (mut seen, mut broken) = (0, 0);
        for example in crate::examples::examples() {
            let file = NamedFile {
                name: "a.yaml".to_owned(),
                text: example.text.clone(),
                below: false,
            };
            let mut source_file = SourceFile::new(None, Report::new(ReportFormat::Json));
            source_file.read(&file);
            let rows: Vec<Value> = serde_json::from_str(&source_file.report.answer()).unwrap();
            let reported: Vec<_> = rows
                .iter()
                .map(|row| (row_line(row), finding_text(row)))
                .collect();
            let expected = match example.expected() {
                Ok(expected) => expected,
                Err(malformed) => {
                    broken += 1;
                    let last = (malformed.line.max(1), malformed.cause);
                    assert_eq!(reported.last(), Some(&last), "{}", example.name);
                    continue;
                }
            };
            // A second object of a name is refused for it, and has no notes.
            let is_duplicate = |(_, finding): &&(usize, String)| {
                finding.starts_with("metadata.name: duplicate of ")
            };
            let (duplicates, mut found): (Vec<_>, Vec<_>) = reported.iter().partition(is_duplicate);
            let mut names = BTreeSet::new();
            let mut expected: Vec<_> = expected
                .iter()
                .flat_map(|one| {
                    let group = one.value["apiVersion"].as_str().unwrap().split('/').next();
                    let key = (group, &one.value["kind"], &one.namespace, &one.name);
                    let is_first = names.insert(format!("{key:?}"));
                    let notes = one.notes.iter().filter(move |_| is_first);
                    one.said.iter().chain(notes)
                })
                .map(|(line, finding)| (*line, redact_text(finding)))
                .collect();
            seen += expected.len();
            expected.sort();
            found.sort();
            // An object without a name is none of the expected ones.
            found.retain(|(_, finding)| finding != "metadata.name: is required");
            let expected: Vec<_> = expected.iter().collect();
            assert_eq!(found, expected, "{}: {duplicates:?}", example.name);
        }
        assert!(seen > 100 && broken > 0, "{seen} {broken}");
    }

    /// As Istio's own manifests have dashboards.
    #[test]
    fn text_left_of_its_key_hides_no_object() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: dash}\ndata:\n  a.json: '{\n  \"annotations\": {\n}\n'\n---\n\
                    apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: v}\nspec: {htp: []}\n";
        let (answer, _) = report_on(text, false);
        let count = "2 objects, 0 valid, 1 invalid";
        assert!(answer.starts_with(count), "{answer}");
    }

    /// Discovery and galley refuse the second one of files, whatever is checked of its kind.
    #[test]
    fn a_second_object_of_a_kind_without_effect_is_a_duplicate() {
        let kinds = [
            ("telemetry.istio.io/v1", "Telemetry"),
            ("config.istio.io/v1alpha2", "logentry"),
            ("networking.istio.io/v1", "WorkloadGroup"),
        ];
        let object = |(version, kind): (&str, &str), name: &str| {
            format!(
                "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}, namespace: x}}\n"
            )
        };
        for kind in kinds {
            let text = [object(kind, "a"), object(kind, "b"), object(kind, "a")].join("---\n");
            let (answer, findings) = report_on(&text, false);
            assert_eq!(
                answer,
                "3 objects, 2 valid, 1 invalid, 3 warnings, 0 skipped\n"
            );
            assert_eq!(findings, 4);
        }
        // The same name in several kinds is no duplicate.
        let text = kinds.map(|kind| object(kind, "a")).join("---\n");
        let (answer, _) = report_on(&text, false);
        assert!(answer.starts_with("3 objects, 3 valid, "), "{answer}");
        // Nothing is served of them, so no name is missed.
        let text = "apiVersion: install.istio.io/v1alpha1\nkind: IstioOperator\nspec: {}\n";
        let (answer, _) = report_on(&format!("{text}---\n{text}"), false);
        assert!(answer.starts_with("2 objects, 2 valid, "), "{answer}");
    }

    /// The last line of the report on a file, and the findings before it.
    fn report_on(text: &str, below: bool) -> (String, usize) {
        let file = NamedFile {
            name: "a.yaml".to_owned(),
            text: text.to_owned(),
            below,
        };
        let mut json = SourceFile::new(None, Report::new(ReportFormat::Json));
        json.read(&file);
        let rows: Vec<Value> = serde_json::from_str(&json.report.answer()).unwrap();
        let mut source_file = SourceFile::new(None, Report::new(ReportFormat::Text));
        source_file.read(&file);
        (source_file.report.answer(), rows.len())
    }

    /// A repository of many things can be checked as it is; a file that was named is taken at its word.
    #[test]
    fn other_files_than_objects_are_skipped_below_directories_only() {
        for text in [
            "kind: feature\narea: traffic\n",
            "{\"rating\": 1}\n{\"rating\": 2}\n",
            "a: [\n",
            "apiVersion: null\nkind: rule\n",
        ] {
            let (answer, findings) = report_on(text, true);
            assert_eq!(findings, 0, "{text}");
            assert!(!answer.contains(" 0 skipped"), "{text}: {answer}");
            assert_ne!(report_on(text, false).1, 0, "{text}");
        }
        for text in [
            "apiVersion: networking.istio.io/v1\nmetadata: {name: a}\n",
            "apiVersion: networking.istio.io/v1\nkind: [\n",
        ] {
            assert_ne!(report_on(text, true).1, 0, "{text}");
        }
    }

    /// A file of a template names its kind, too; an action alone makes one of it.
    #[test]
    fn broken_objects_of_istio_are_no_templates_without_an_action() {
        let object = "apiVersion: networking.istio.io/v1\nkind: VirtualService\n";
        let twice = "spec: {hosts: [a.com], hosts: [b.com]}\n";
        for (text, is_skipped) in [
            (format!("# {{{{ see docs }}}}\n{object}{twice}"), false),
            (
                format!(
                    "{object}metadata: {{annotations: {{x: \"{{{{y}}}}\"}}}}\nspec:\n\thosts: []\n"
                ),
                false,
            ),
            (
                format!("{object}x: '{{{{y}}}}' # {{{{z}}}}\n{twice}"),
                false,
            ),
            (format!("{{{{ if .x }}}}\n{object}{twice}"), true),
            (format!("{object}x: it's {{{{ .x }}}}\n{twice}"), true),
            (
                format!("{object}x: \"{{{{ .x | default \"y\" }}}}\"\n{twice}"),
                true,
            ),
            // Another program's object is not judged.
            (
                format!("# {{{{ see docs }}}}\napiVersion: apps/v1\nkind: Deployment\n{twice}"),
                true,
            ),
        ] {
            let (answer, findings) = report_on(&text, true);
            assert_eq!(findings == 0, is_skipped, "{text}");
            assert_eq!(answer.contains(" 1 skipped"), is_skipped, "{text}");
            assert_ne!(report_on(&text, false).1, 0, "{text}");
        }
    }

    #[test]
    fn one_that_is_nested_too_deeply_does_not_hide_the_next() {
        let object = |name: &str, spec: &str| {
            format!(
                "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{name: {name}}}\nspec: {spec}\n"
            )
        };
        let deep = "[".repeat(100) + &"]".repeat(100);
        let file = NamedFile {
            name: "a.yaml".to_owned(),
            text: [object("a", &deep), object("b", "{serverz: []}")].join("---\n"),
            below: false,
        };
        let mut source_file = SourceFile::new(None, Report::new(ReportFormat::Json));
        source_file.read(&file);
        let rows: Vec<Value> = serde_json::from_str(&source_file.report.answer()).unwrap();
        let row = |row: &Value| {
            let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
            format!("{} {} {}", row["line"], text("name"), text("message"))
        };
        let reported: Vec<String> = rows.iter().map(row).collect();
        let expected = [
            "1 a nested too deeply",
            "9 b must not be empty",
            "9 b unknown field, did you mean \"servers\"?",
        ];
        assert_eq!(reported, expected);
    }

    /// The count of further findings has no place, and comes last.
    #[test]
    fn the_rest_of_many_faults_is_counted_last() {
        let hosts: String = (0..150).map(|at| format!("  - a_{at}\n")).collect();
        let service = format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata:\n  name: a\nspec:\n  hosts:\n{hosts}  http:\n  - route:\n    - destination:\n        host: x\n"
        );
        let file = NamedFile {
            name: "a.yaml".to_owned(),
            text: format!("{service}---\n{service}"),
            below: false,
        };
        let mut source_file = SourceFile::new(None, Report::new(ReportFormat::Json));
        source_file.read(&file);
        let rows: Vec<Value> = serde_json::from_str(&source_file.report.answer()).unwrap();
        let row = |at: usize| {
            let row: &Value = &rows[at];
            (
                row["line"].as_u64().unwrap(),
                row["path"].as_str().unwrap(),
                row["message"].as_str().unwrap(),
            )
        };
        assert_eq!(rows.len(), 202);
        assert_eq!((row(0).0, row(0).1), (7, "spec.hosts[0]"));
        assert_eq!(row(100), (1, "", "… and 50 more"));
        // The second object of the name has one more finding, in its place.
        let second = service.lines().count() as u64 + 2;
        assert_eq!(
            row(101),
            (second + 3, "metadata.name", "duplicate of a.yaml:1")
        );
        assert_eq!(row(201), (second, "", "… and 51 more"));
    }
}
