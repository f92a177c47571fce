//! Each row of the rules and each example, as a file and as an API server's object: the messages equal the rules' findings,
//! and the object is used if the rules accept it.

use serde_json::{Value, json};

use super::files::{Item, items};
use super::kubernetes::{check_as_served, usable};
use crate::catalogue::Origin;
use crate::config::Directory;
use crate::examples::{CORE_EXAMPLES, Expected, examples};

/// The rows of `api::config::rules`, which `api` holds to its own.
const ROWS: &str = include_str!("../../api/tests/rows.jsonl");

struct Row {
    api_version: String,
    kind: String,
    name: String,
    spec: String,
    said: Vec<String>,
}

fn rows() -> impl Iterator<Item = Row> {
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

fn is_refused(said: &[String]) -> bool {
    said.iter().any(|said| !said.starts_with("warning: "))
}

#[test]
fn files_are_judged_as_everything_is() {
    for Row {
        api_version,
        kind,
        name,
        spec,
        said,
    } in rows()
    {
        let text = format!(
            "# The object begins in the second line.\napiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: {name}, namespace: ns}}\nspec: {spec}\n"
        );
        let read = items(text.as_bytes(), &Origin::file("a.yaml")).unwrap();
        let [item] = &read[..] else {
            panic!("{text}: {read:?}");
        };
        let (written, line, is_good) = match item {
            Item::Good(object) => (object.written(), object.line(), true),
            Item::Bad {
                written, origin, ..
            } => (written.as_ref(), origin.line(), false),
            Item::Foreign(kind) => panic!("{kind}"),
        };
        let written = written.unwrap();
        assert_eq!(written.messages, said, "{text}");
        assert_eq!(written.accepted, !is_refused(&said), "{text}");
        assert_eq!(is_good, written.accepted, "{text}");
        // An error leads to its line; the whole spec is on the fifth.
        let first = said.iter().find(|said| !said.starts_with("warning: "));
        let expected = match first {
            Some(first) if first.starts_with("spec") => 5,
            Some(first) if first.starts_with("metadata") => 4,
            Some(_) | None => 2,
        };
        assert_eq!(line, expected, "{text}");
        assert_eq!(written.origin.to_string(), format!("a.yaml:{line}"));
    }
}

#[test]
fn an_api_servers_objects_are_judged_as_everything_is() {
    for Row {
        api_version,
        kind,
        name,
        spec,
        said,
    } in rows()
    {
        let document = api::config::document::documents(&spec).next();
        let spec = document.unwrap().unwrap().parts()[0].value();
        let object = json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": name, "namespace": "ns", "uid": "u", "managedFields": [{}]},
            "spec": spec,
        });
        let (accepted, messages) = check_as_served(&object);
        assert_eq!(messages, said, "{object}");
        assert_eq!(accepted, !is_refused(&said), "{object}");
    }
}

/// The findings alone.
fn words(expected: &Expected) -> Vec<String> {
    expected.said.iter().map(|(_, said)| said.clone()).collect()
}

#[test]
fn examples_in_files_are_judged_as_everything_is() {
    let (mut seen, mut broken) = (0, 0);
    for example in examples() {
        let read = items(example.text.as_bytes(), &Origin::file("a.yaml"));
        let (read, expected) = match (read, example.expected()) {
            (Ok(read), Ok(expected)) => (read, expected),
            (read, expected) => {
                broken += 1;
                assert_eq!(read.err(), expected.err(), "{}", example.name);
                continue;
            }
        };
        let ours = read.iter().filter(|item| match item {
            Item::Good(object) => object.written().is_some(),
            Item::Bad { .. } => true,
            Item::Foreign(_) => false,
        });
        let ours: Vec<_> = ours.collect();
        assert_eq!(ours.len(), expected.len(), "{}: {read:?}", example.name);
        for (item, expected) in ours.into_iter().zip(expected) {
            seen += 1;
            let (written, line) = match item {
                Item::Good(object) => (object.written(), expected.line),
                Item::Bad {
                    written, origin, ..
                } => (written.as_ref(), origin.line()),
                Item::Foreign(_) => continue,
            };
            assert_eq!(line, expected.line, "{}", example.name);
            let Some(written) = written else {
                // A nameless object is reported for its file.
                let Item::Bad { cause, .. } = item else {
                    panic!("{}", example.name);
                };
                let mut errors = words(&expected).into_iter();
                let first = errors.find(|said| !said.starts_with("warning: "));
                assert!(cause.contains(&first.unwrap()), "{}: {cause}", example.name);
                continue;
            };
            assert_eq!(written.messages, words(&expected), "{}", example.name);
            assert_eq!(written.accepted, expected.accepted, "{}", example.name);
            let name = (&*written.namespace, &*written.name);
            assert_eq!(name, (expected.namespace.as_str(), expected.name.as_str()));
        }
    }
    assert!(seen > 50 && broken > 0, "{seen} {broken}");
}

#[test]
fn examples_in_an_api_server_are_judged_as_everything_is() {
    let mut seen = 0;
    for example in examples() {
        for expected in example.expected().unwrap_or_default() {
            // Skips examples with findings outside of the spec: an API server has checked those fields itself.
            let own = |said: &str| !said.trim_start_matches("warning: ").starts_with("spec");
            if words(&expected).iter().any(|said| own(said)) {
                continue;
            }
            seen += 1;
            let (accepted, messages) = check_as_served(&expected.value);
            assert_eq!(messages, words(&expected), "{}", expected.value);
            assert_eq!(accepted, expected.accepted, "{}", expected.value);
        }
    }
    assert!(seen > 40, "{seen}");
}

/// Both readers of files, that of discovery and that of galley and of all roles together, take what an API server takes.
#[test]
fn kubernetes_own_kinds_are_judged_alike_by_both_readers_of_files() {
    let mut others = Vec::new();
    for (text, refused) in CORE_EXAMPLES {
        let read = items(text.as_bytes(), &Origin::file("a.yaml")).unwrap();
        let by_discovery = match &read[..] {
            [Item::Good(_)] => None,
            [Item::Bad { cause, .. }] => Some(cause.clone()),
            other => panic!("{text}: {other:?}"),
        };
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("a.yaml"), text).unwrap();
        let mut directory = Directory::new(root.path(), usable).with_whole_objects();
        let scan = directory.scan().unwrap();
        let rejected = scan.report.rejected.iter().map(ToString::to_string);
        let by_galley = rejected.reduce(|all, one| all + "; " + &one);
        assert_eq!(by_galley.is_none(), scan.changes.len() == 1, "{text}");
        for said in [&by_discovery, &by_galley] {
            let is_as_expected = match (said, refused) {
                (None, None) => true,
                (Some(said), Some(refused)) => said.contains(refused),
                (Some(_), None) | (None, Some(_)) => false,
            };
            if !is_as_expected {
                others.push(format!("{text}: {said:?}"));
            }
        }
    }
    assert!(others.is_empty(), "{others:#?}");
}
