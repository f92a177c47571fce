//! Each row of the rules and each example, as a file, as an API server's object and as one that is received: the messages equal the
//! rules' findings and notes, and the object is used if the rules accept it.

use std::sync::Arc;

use api::config::document::COMMAND_LINE;
use api::config::{self, Finding, Object};
use api::yaml::Malformed;

use super::received::ReceivedObjects;
use crate::catalogue::source_catalogue::SourceEntry;
use crate::catalogue::text::read;
use crate::catalogue::{ConfigObject, Origin};
use crate::directory::Directory;
use crate::directory::rule_rows_tests::{is_refused, rows, sorted, words};
use crate::directory::{FileVersion, stored};
use crate::examples::{CORE_EXAMPLES, Expected, examples, notes};
use crate::kubernetes::{as_served, usable};

/// The objects of a text, as discovery stores them.
fn entries(text: &str) -> Result<Vec<SourceEntry<FileVersion>>, Malformed> {
    let origin = Origin::file("a.yaml");
    let read = read(text.as_bytes(), COMMAND_LINE, |object, checked| {
        stored(object, checked, &origin)
    });
    Ok(read?.entries)
}

/// The object as pages show it, whether or not it is used.
fn config_object(entry: &SourceEntry<FileVersion>) -> Option<&ConfigObject> {
    let used = entry.checked.content.as_ref();
    let used = used.and_then(|version| version.written.as_ref());
    used.or(entry.checked.written.as_ref()).map(|one| &**one)
}

#[test]
fn files_are_judged_as_everything_is() {
    for row in rows() {
        let text = row.text();
        let read = entries(&text).unwrap();
        let [entry] = &read[..] else {
            panic!("{text}: {read:?}");
        };
        let written = config_object(entry).unwrap();
        assert_eq!(words(&written.findings), row.said, "{text}");
        assert_eq!(words(&written.notes), words(&notes(&row.value())), "{text}");
        assert_eq!(written.is_accepted, !is_refused(&row.said), "{text}");
        let is_good = entry.checked.content.is_some();
        assert_eq!(is_good, written.is_accepted, "{text}");
        // An error leads to its line.
        assert_eq!(written.origin.line(), row.line(), "{text}");
        assert_eq!(written.origin.to_string(), format!("a.yaml:{}", row.line()));
    }
}

#[test]
fn an_api_servers_objects_are_judged_as_everything_is() {
    for row in rows() {
        let object = row.value();
        let Some(config_object) = as_served(&object) else {
            panic!("{object}");
        };
        assert_eq!(words(&config_object.findings), row.said, "{object}");
        assert_eq!(
            words(&config_object.notes),
            words(&notes(&object)),
            "{object}"
        );
        assert_eq!(
            config_object.is_accepted,
            !is_refused(&row.said),
            "{object}"
        );
    }
}

/// The findings alone.
fn finding_texts(expected: &Expected) -> Vec<String> {
    expected.said.iter().map(|(_, text)| text.clone()).collect()
}

fn noted(expected: &Expected) -> Vec<String> {
    expected
        .notes
        .iter()
        .map(|(_, text)| text.clone())
        .collect()
}

#[test]
fn examples_in_files_are_judged_as_everything_is() {
    let (mut seen, mut broken) = (0, 0);
    for example in examples() {
        let (read, expected) = match (entries(&example.text), example.expected()) {
            (Ok(read), Ok(expected)) => (read, expected),
            (read, expected) => {
                broken += 1;
                assert_eq!(read.err(), expected.err(), "{}", example.name);
                continue;
            }
        };
        let ours = read.iter().filter(|entry| {
            let is_used = entry.checked.content.is_some();
            entry.checked.id.core_kind().is_none() && (config_object(entry).is_some() || !is_used)
        });
        let ours: Vec<_> = ours.collect();
        assert_eq!(ours.len(), expected.len(), "{}: {read:?}", example.name);
        for (entry, expected) in ours.into_iter().zip(expected) {
            seen += 1;
            let Some(written) = config_object(entry) else {
                // A nameless object is reported for its file.
                let mut errors = finding_texts(&expected).into_iter();
                let first = errors.find(|text| !text.starts_with("warning: ")).unwrap();
                let found = words(&entry.checked.findings);
                assert!(found.contains(&first), "{}: {found:?}", example.name);
                continue;
            };
            assert_eq!(written.origin.line(), expected.line, "{}", example.name);
            assert_eq!(
                words(&written.findings),
                finding_texts(&expected),
                "{}",
                example.name
            );
            assert_eq!(words(&written.notes), noted(&expected), "{}", example.name);
            assert_eq!(written.is_accepted, expected.accepted, "{}", example.name);
            let name = (&*written.namespace, &*written.name);
            assert_eq!(name, (expected.namespace.as_str(), expected.name.as_str()));
        }
    }
    assert!(seen > 250 && broken > 0, "{seen} {broken}");
}

#[test]
fn examples_in_an_api_server_are_judged_as_everything_is() {
    let mut seen = 0;
    for example in examples() {
        for expected in example.expected().unwrap_or_default() {
            // Skips examples with errors outside of the spec: an API server has checked those fields itself.
            let is_own = |text: &String| {
                let path = text.strip_prefix("warning: ").unwrap_or(text);
                !path.starts_with("spec") && !path.starts_with("kind: ")
            };
            let findings = finding_texts(&expected);
            if findings.iter().any(is_own) {
                continue;
            }
            let Some(config_object) = as_served(&expected.value) else {
                continue;
            };
            seen += 1;
            assert_eq!(
                words(&config_object.findings),
                findings,
                "{}",
                expected.value
            );
            assert_eq!(
                words(&config_object.notes),
                noted(&expected),
                "{}",
                expected.value
            );
            assert_eq!(
                config_object.is_accepted, expected.accepted,
                "{}",
                expected.value
            );
        }
    }
    assert!(seen > 200, "{seen}");
}

/// Bytes say less than the text did: of warnings those of rules are left.
#[test]
fn examples_that_are_received_are_judged_as_everything_is() {
    let mut seen = 0;
    for example in examples() {
        for expected in example.expected().unwrap_or_default() {
            let Some(object) = config::read(&expected.value)
                .0
                .filter(|_| expected.accepted)
            else {
                continue;
            };
            let (kind, full) = (object.kind, object.full_name());
            let sent_as = Object::of_resource(kind, &full, object.body.clone()).unwrap();
            // A message that is present but empty encodes to no bytes.
            if sent_as.spec != object.spec {
                continue;
            }
            seen += 1;
            let mut received = ReceivedObjects::default();
            let place = (&kind.collection.into(), &full.into());
            let origin = Origin::Source("mcp://x".into());
            received
                .set(place, &Arc::new(object), None, origin)
                .unwrap();
            let config_object = received.config_objects().next().unwrap();
            assert!(
                config_object.is_accepted && !config_object.findings.iter().any(Finding::is_error)
            );
            assert_eq!(
                sorted(words(&config_object.notes)),
                sorted(noted(&expected)),
                "{}",
                example.name
            );
            let findings = finding_texts(&expected);
            for found in words(&config_object.findings) {
                assert!(findings.contains(&found), "{}: {found}", example.name);
            }
        }
    }
    assert!(seen > 150, "{seen}");
}

/// Both readers of files, that of discovery and that of galley and of all roles together, take what an API server takes.
#[test]
fn kubernetes_own_kinds_are_judged_alike_by_both_readers_of_files() {
    let mut others = Vec::new();
    for (text, refused) in CORE_EXAMPLES {
        let read = entries(text).unwrap();
        let [entry] = &read[..] else {
            panic!("{text}: {read:?}");
        };
        let by_discovery = words(&entry.checked.findings);
        let by_discovery = by_discovery
            .into_iter()
            .reduce(|all, one| all + "; " + &one);
        assert_eq!(by_discovery.is_none(), entry.checked.content.is_some());
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("a.yaml"), text).unwrap();
        let mut directory = Directory::new(root.path(), usable).with_all_fields();
        let scan = directory.scan().unwrap();
        let lines = scan.report.refused.iter().map(ToString::to_string);
        let by_galley = lines.reduce(|all, one| all + "; " + &one);
        assert_eq!(by_galley.is_none(), scan.changes.len() == 1, "{text}");
        for outcome in [&by_discovery, &by_galley] {
            let is_as_expected = match (outcome, refused) {
                (None, None) => true,
                (Some(cause), Some(refused)) => cause.contains(refused),
                (Some(_), None) | (None, Some(_)) => false,
            };
            if !is_as_expected {
                others.push(format!("{text}: {outcome:?}"));
            }
        }
    }
    assert!(others.is_empty(), "{others:#?}");
}
