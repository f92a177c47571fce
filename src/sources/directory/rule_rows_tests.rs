//! Each row of the rules and each example, in a directory and as an API server has it: the findings, the notes and the lines equal
//! those of the rule book.

use std::collections::BTreeSet;

use api::config::collections::any_kind_of;
use api::config::{self, Check, Finding};
use serde_json::{Value, json};

use super::entries::{Directory, DirectoryScan};
use crate::catalogue::EntryChange;
use crate::catalogue::{ConfigReport, Refused};
use crate::examples::{Expected, examples, notes};
use crate::kubernetes::config::check_as_stored;

/// The rows of `api::config::rules`, which `api` holds to its own.
const ROWS: &str = include_str!("../../api/tests/rows.jsonl");

pub(crate) struct Row {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) spec: String,
    pub(crate) said: Vec<String>,
}

pub(crate) fn rows() -> impl Iterator<Item = Row> {
    ROWS.lines().map(|line| {
        let row: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        let said = row["said"].as_array().unwrap().iter();
        Row {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
            spec: text("spec"),
            said: said.map(|said| said.as_str().unwrap().to_owned()).collect(),
        }
    })
}

impl Row {
    /// The object in YAML: it begins in the second line, and its spec is the fifth.
    pub(crate) fn text(&self) -> String {
        let Self {
            api_version,
            kind,
            name,
            spec,
            ..
        } = self;
        format!(
            "# The object begins in the second line.\napiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: {name}, namespace: ns}}\nspec: {spec}\n"
        )
    }

    pub(crate) fn value(&self) -> Value {
        let document = config::document::documents(&self.spec).next();
        json!({
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": self.name, "namespace": "ns", "uid": "u", "managedFields": [{}]},
            "spec": document.unwrap().unwrap().parts()[0].value(),
        })
    }

    /// The line of the first error, or else that at which the object begins.
    pub(crate) fn line(&self) -> usize {
        let first = self.said.iter().find(|said| !said.starts_with("warning: "));
        match first {
            Some(first) if first.starts_with("spec") => 5,
            Some(first) if first.starts_with("metadata") => 4,
            Some(_) | None => 2,
        }
    }
}

pub(crate) fn is_refused(said: &[String]) -> bool {
    said.iter().any(|said| !said.starts_with("warning: "))
}

pub(crate) fn words<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Vec<String> {
    findings.into_iter().map(ToString::to_string).collect()
}

/// Messages without their order, which texts and bytes do not share.
pub(crate) fn sorted(mut all: Vec<String>) -> Vec<String> {
    all.sort_unstable();
    all
}

fn scan(text: &str) -> DirectoryScan {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("a.yaml"), text).unwrap();
    Directory::new(root.path(), |_, _| Ok(())).scan().unwrap()
}

/// The findings of an object that has a line, errors first.
type Said = (usize, Vec<String>);

/// Objects of the mesh's kinds that are refused, or have warnings or notes.
fn said(report: &ConfigReport) -> BTreeSet<Said> {
    let is_ours = |one: &&Refused| one.id.core_kind().is_none();
    let errors = report.refused.iter().filter(is_ours);
    let errors = errors.map(|one| (one.origin.line(), words(&*one.findings)));
    let warned = report.warned.iter();
    let warnings = warned.map(|one| {
        (
            one.origin.line(),
            words(one.warnings.iter().chain(&*one.notes)),
        )
    });
    errors.chain(warnings).collect()
}

#[test]
fn rows_in_a_directory_are_judged_as_everything_is() {
    for row in rows() {
        let text = row.text();
        let directory_scan = scan(&text);
        let is_error = |said: &&String| !said.starts_with("warning: ");
        let (errors, mut warnings): (Vec<_>, Vec<_>) = row.said.iter().partition(is_error);
        let noted = words(&notes(&row.value()));
        warnings.extend(&noted);
        let own =
            |all: &[&String]| -> Vec<String> { all.iter().map(|one| (*one).clone()).collect() };
        let all = |of: &dyn Fn(&ConfigReport) -> Vec<String>| of(&directory_scan.report);
        let refused = |report: &ConfigReport| {
            let all = report.refused.iter();
            all.flat_map(|one| words(&*one.findings)).collect()
        };
        let warned = |report: &ConfigReport| {
            let all = report.warned.iter();
            all.flat_map(|one| words(one.warnings.iter().chain(&*one.notes)))
                .collect()
        };
        assert_eq!(all(&refused), own(&errors), "{text}");
        assert_eq!(all(&warned), own(&warnings), "{text}");
        for one in &directory_scan.report.refused {
            assert_eq!(one.origin.line(), row.line(), "{text}");
        }
        let is_unchecked = directory_scan.report.unchecked.len();
        assert_eq!(
            directory_scan.changes.len() + is_unchecked,
            usize::from(errors.is_empty()),
            "{text}"
        );
    }
}

#[test]
fn rows_that_an_api_server_stores_are_judged_as_everything_is() {
    let mut seen = 0;
    for row in rows() {
        let object = row.value();
        let Some((findings, noted)) = check_as_stored(&object) else {
            continue;
        };
        seen += 1;
        assert_eq!(words(&findings), row.said, "{object}");
        assert_eq!(words(&noted), words(&notes(&object)), "{object}");
    }
    assert!(seen > 500, "{seen}");
}

/// The findings of a scan about one object.
fn expected_said(one: &Expected) -> impl Iterator<Item = Said> {
    let is_error = |(_, said): &&(usize, String)| !said.starts_with("warning: ");
    let (errors, mut warnings): (Vec<_>, Vec<_>) = one.said.iter().partition(is_error);
    warnings.extend(&one.notes);
    let line = match (errors.first(), warnings.first()) {
        (Some((line, _)), _) | (None, Some((line, _))) => *line,
        (None, None) => one.line,
    };
    let both = [errors, warnings].into_iter().filter(|all| !all.is_empty());
    both.map(move |all| {
        (
            line,
            all.into_iter().map(|(_, said)| said.clone()).collect(),
        )
    })
}

#[test]
fn examples_in_a_directory_are_judged_as_everything_is() {
    let (mut seen, mut broken, mut unchecked) = (0, 0, 0);
    for example in examples() {
        let directory_scan = scan(&example.text);
        let expected = match example.expected() {
            Ok(expected) => expected,
            Err(malformed) => {
                broken += 1;
                let cause = (
                    malformed.line.max(1),
                    vec![format!("cannot parse: {}", malformed.cause)],
                );
                assert!(
                    said(&directory_scan.report).contains(&cause),
                    "{}",
                    example.name
                );
                continue;
            }
        };
        let (mut names, mut taken) = (BTreeSet::new(), BTreeSet::new());
        let mut all = BTreeSet::new();
        for one in &expected {
            seen += 1;
            let text = |name: &str| one.value[name].as_str().unwrap().to_owned();
            let row = config::kind(&text("apiVersion"), &text("kind")).ok();
            let full = match &*one.namespace {
                "" => one.name.clone(),
                namespace => format!("{namespace}/{}", one.name),
            };
            let id = (row.map(|row| row.collection), full);
            // The second of a name is refused for it.
            if row.is_none() || names.insert(id.clone()) {
                all.extend(expected_said(one));
            }
            if one.accepted {
                taken.insert(id);
            }
        }
        let said = said(&directory_scan.report)
            .into_iter()
            .filter(|(_, said)| {
                let is_beside = |said: &String| {
                    said.starts_with("metadata.name: duplicate of ")
                        || said == "metadata.name: is required"
                };
                !said.iter().any(is_beside)
            });
        assert_eq!(said.collect::<BTreeSet<_>>(), all, "{}", example.name);
        let served = directory_scan
            .changes
            .iter()
            .filter_map(|change| match change {
                EntryChange::Set(id, ..) if id.core_kind().is_none() => Some(id),
                EntryChange::Set(..) | EntryChange::Moved(..) | EntryChange::Gone(_) => None,
            });
        let ids = served.chain(directory_scan.report.unchecked.keys());
        let ids: BTreeSet<_> = ids
            .map(|id| (Some(id.collection), id.name.to_string()))
            .collect();
        assert_eq!(ids, taken, "{}", example.name);
        for id in directory_scan.report.unchecked.keys() {
            unchecked += 1;
            let kind = any_kind_of(id.collection).unwrap();
            assert!(kind.check == Check::Unused && id.kind() == kind.kind);
        }
    }
    assert!(seen > 250 && broken > 0, "{seen} {broken}");
    assert!(unchecked > 30, "{unchecked}");
}

#[test]
fn examples_that_an_api_server_stores_are_judged_as_everything_is() {
    let mut seen = 0;
    for example in examples() {
        for expected in example.expected().unwrap_or_default() {
            let Some((findings, noted)) = check_as_stored(&expected.value) else {
                continue;
            };
            seen += 1;
            let of = |all: &[(usize, String)]| all.iter().map(|(_, said)| said.clone()).collect();
            let (said, expected_notes): (Vec<_>, Vec<_>) =
                (of(&expected.said), of(&expected.notes));
            // The order is that of the document, which the server does not keep.
            assert_eq!(sorted(words(&findings)), sorted(said), "{}", expected.value);
            assert_eq!(words(&noted), expected_notes, "{}", expected.value);
        }
    }
    assert!(seen > 200, "{seen}");
}
