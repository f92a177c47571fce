//! Property: for any files, the served objects are those of the last documents, except for versions that stay; no panic.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::catalogue::Origin;
use crate::catalogue::one_line::MAX_LETTERS;
use crate::memory::Memory;
use api::config::ServedInstead;

/// A name and a port; no port: not valid.
type Document = (u8, Option<u8>);

#[derive(Clone, Debug)]
enum Edit {
    Documents(Vec<Document>),
    Broken,
    Unreadable,
    Gone,
}

fn edit() -> impl Strategy<Value = (u8, Edit)> {
    let document = (0u8..3, prop::option::weighted(0.7, 1u8..4));
    let edit = prop_oneof![
        6 => prop::collection::vec(document, 0..4).prop_map(Edit::Documents),
        1 => Just(Edit::Broken),
        1 => Just(Edit::Unreadable),
        1 => Just(Edit::Gone),
    ];
    (0u8..3, edit)
}

fn text(documents: &[Document]) -> String {
    let one = |(name, port): &Document| {
        let port = port.unwrap_or(0);
        format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: e{name}}}\n\
             spec: {{hosts: [a.example], ports: [{{number: {port}, name: http}}]}}\n"
        )
    };
    documents.iter().map(one).collect::<Vec<_>>().join("---\n")
}

fn names() -> Names {
    Names {
        cluster: "local".into(),
        domain: "cluster.local".into(),
        trust_domain: "cluster.local".into(),
    }
}

/// A directory with these files, each with bytes or unreadable.
struct Written {
    root: TempDir,
    files: Files,
}

impl Written {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let files = Files::new(root.path(), names(), CoreOrigin::Files);
        Self { root, files }
    }

    /// `None`: there is no such file.
    fn write(&self, file: u8, content: Option<&Result<Vec<u8>, String>>) {
        let path = self.root.path().join(format!("{file}.yaml"));
        // Anew, so that a link is not written through.
        let _gone = fs::remove_file(&path);
        match content {
            Some(Ok(bytes)) => fs::write(path, bytes).unwrap(),
            Some(Err(_)) => symlink("nowhere", path).unwrap(),
            None => {}
        }
    }

    fn read(&mut self) -> Outcome {
        self.files.read().unwrap()
    }
}

/// Documents with every kind of thing in them, to be broken at random.
const EXAMPLES: [&str; 4] = [
    "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a, creationTimestamp: 2026-01-01T00:00:00Z}\n\
     spec: {hosts: [a.example], resolution: STATIC, addresses: [10.0.0.0/8], ports: [{number: 80, name: http, protocol: HTTP}],\n\
     endpoints: [{address: 10.0.0.1, labels: {a: b}, weight: 3, locality: a/b}]}\n---\n\
     apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: w}\nspec: {address: 10.0.0.2}\n",
    "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {clusterIP: 10.0.0.9,\n\
     ports: [{port: 80, targetPort: http}]}}, {apiVersion: v1, kind: Pod, metadata: {name: p, labels: {a: b}},\n\
     status: {podIP: 10.0.0.3, conditions: [{type: Ready, status: 'False'}]}}]}\n",
    "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: s, namespace: x}\nspec:\n  ingress:\n  - &i\n    port: {number: 80, name: http}\n\
     \x20   defaultEndpoint: :80\n---\na: &a [1, 2]\nb: *a\n",
    "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s-1, labels: {kubernetes.io/service-name: s}}\naddressType: IPv4\n\
     endpoints: [{addresses: [10.0.0.4], zone: a}]\nports: [{name: '', port: 8080}]\n---\napiVersion: apps/v1\nkind: Thing\n",
];

/// Names of entries, with the numbers of their ports.
fn served(outcome: &Outcome) -> BTreeMap<String, u32> {
    let entries = outcome.contribution.configuration.service_entries.values();
    let entries = entries.map(|entry| {
        let name = format!("{}/{}", entry.namespace, entry.name);
        (name, entry.spec.ports[0].number)
    });
    entries.collect()
}

/// The objects as written, with places below the directory.
fn shown(outcome: &Outcome) -> Vec<ConfigObject> {
    let written = outcome.written.iter();
    let below = |config_object: &Arc<ConfigObject>| {
        let mut one = (**config_object).clone();
        one.origin = Origin::file(file_name(&one.origin.to_string()));
        for finding in &mut one.findings {
            finding.message = file_name(&finding.message);
        }
        one
    };
    written.map(below).collect()
}

/// The text behind the last `/`.
fn file_name(text: &str) -> String {
    let (_, name) = text.rsplit_once('/').unwrap_or(("", text));
    name.to_owned()
}

/// Each line of the log, whatever it is about, has some bounded text.
fn are_lines(outcome: &Outcome) {
    let rejected = outcome.report.refused.iter();
    for finding in rejected.flat_map(|one| one.findings.iter()) {
        is_one_line(&finding.to_string());
    }
    for message in &outcome.messages {
        is_one_line(&message.text);
    }
}

fn is_one_line(text: &str) {
    assert!(!text.is_empty());
    assert!(!text.contains(char::is_control), "{text:?}");
    assert!(text.chars().count() < 2 * MAX_LETTERS + 100, "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_last_good_version_is_served(edits in prop::collection::vec(edit(), 1..12)) {
        let mut written = Written::new();
        let mut there = BTreeMap::new();
        // The last readable content of each file.
        let mut readable: BTreeMap<u8, Result<Vec<u8>, String>> = BTreeMap::new();
        let mut before = BTreeMap::new();
        for (file, edit) in &edits {
            match edit {
                Edit::Documents(documents) => {
                    let text = Ok(text(documents).into_bytes());
                    readable.insert(*file, text.clone());
                    there.insert(*file, text);
                }
                Edit::Broken => {
                    there.insert(*file, Ok(b"a: [".to_vec()));
                }
                Edit::Unreadable => {
                    there.insert(*file, Err("no".to_owned()));
                }
                Edit::Gone => {
                    readable.remove(file);
                    there.remove(file);
                }
            }
            written.write(*file, there.get(file));
            let outcome = written.read();
            are_lines(&outcome);
            let mut fresh = Written::new();
            for (file, content) in &readable {
                fresh.write(*file, Some(content));
            }
            let fresh = fresh.read();
            let stale: BTreeSet<_> = outcome.report.refused.iter()
                .filter(|one| one.serving == ServedInstead::Old && !one.id.name.is_empty())
                .map(|one| one.id.name.to_string())
                .collect();
            let now = served(&outcome);
            for name in &stale {
                prop_assert_eq!(now.get(name), before.get(name));
            }
            let good = |mut all: BTreeMap<String, u32>| {
                all.retain(|name, _| !stale.contains(name));
                all
            };
            prop_assert_eq!(good(now.clone()), good(served(&fresh)));
            if there == readable && stale.is_empty() {
                prop_assert_eq!(&fresh.contribution, &outcome.contribution);
                prop_assert_eq!(shown(&fresh), shown(&outcome));
            }
            before = now;
        }
    }

    #[test]
    fn any_text_is_read_or_refused(
        example in 0usize..4,
        cuts in prop::collection::vec((0usize..700, "[ -~\n]{0,3}|[0-9]{1,20}|[^ -~]{1,2}"), 0..4),
    ) {
        let mut text = EXAMPLES[example].to_owned();
        for (at, new) in cuts {
            let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
            let to = (at + 1..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(at);
            text.replace_range(at..to, &new);
        }
        let mut memory = Memory::new(names());
        match memory.put(text.as_bytes()) {
            Ok(put) => {
                let again = memory.put(text.as_bytes()).unwrap();
                prop_assert_eq!(again.contribution, put.contribution);
            }
            Err(messages) => {
                prop_assert!(!messages.is_empty());
                messages.iter().for_each(|text| is_one_line(text));
            }
        }
        let mut written = Written::new();
        written.write(0, Some(&Ok(text.into_bytes())));
        let outcome = written.read();
        are_lines(&outcome);
    }

    #[test]
    fn bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(messages) = Memory::new(names()).put(&bytes) {
            messages.iter().for_each(|text| is_one_line(text));
        }
    }
}
