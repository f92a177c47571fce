//! Each row of the rules, as a file has it and as an API server does: what is said of it is what the rules say, and so is whether
//! it is used.

use serde_json::{Value, json};

use super::files::{Item, items};
use super::kubernetes::judged;

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
        let read = items(text.as_bytes(), &"a.yaml".into()).unwrap();
        let [item] = &read[..] else {
            panic!("{text}: {read:?}");
        };
        let (written, line, is_good) = match item {
            Item::Good(object) => (object.written(), object.line(), true),
            Item::Bad { written, line, .. } => (written.as_ref(), *line, false),
            Item::Foreign(kind) => panic!("{kind}"),
        };
        let written = written.unwrap();
        assert_eq!(written.messages, said, "{text}");
        assert_eq!(written.accepted, !is_refused(&said), "{text}");
        assert_eq!(is_good, written.accepted, "{text}");
        // An error leads to its line; all of a spec is on the fifth.
        let first = said.iter().find(|said| !said.starts_with("warning: "));
        let expected = match first {
            Some(first) if first.starts_with("spec") => 5,
            Some(first) if first.starts_with("metadata") => 4,
            Some(_) | None => 2,
        };
        assert_eq!(line, expected, "{text}");
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
        let (accepted, messages) = judged(&object);
        assert_eq!(messages, said, "{object}");
        assert_eq!(accepted, !is_refused(&said), "{object}");
    }
}
