//! Text of YAML or JSON as the objects in it, each with the lines of its parts.
//!
//! Plain words are what kubectl makes of them (`yes` is a boolean), so that a file means here what it means there.

mod json;

use std::cell::RefCell;
use std::collections::HashMap;
use std::iter;
use std::mem;

use serde_json::Value as Json;

use super::envelope::MOST_DEPTH;
use super::finding::Finding;
use super::path::Path;
use crate::yaml::{self, Limits, Malformed, Node, Plain, Scalar, Value};

/// A file, and what one document of it may become.
pub const LIMITS: Limits = Limits {
    bytes: 16 << 20,
    // Beyond what an object may have, so that one that is too deep is refused alone and not with its file.
    depth: 2 * MOST_DEPTH,
    nodes: 200_000,
};

/// The documents of a text, in order; blank ones are left out. What cannot be read ends it.
pub fn documents(text: &str) -> impl Iterator<Item = Result<Document, Malformed>> + '_ {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let json = json::documents(text);
    let yaml = json.is_none().then(|| yaml::documents(text, LIMITS));
    let mut ended = false;
    json.into_iter()
        .flatten()
        .chain(yaml.into_iter().flatten())
        .filter(|read| !read.as_ref().is_ok_and(Node::is_null))
        .map(|read| {
            let node = read?;
            items(&node)?;
            Ok(Document { node })
        })
        .take_while(move |read| !mem::replace(&mut ended, read.is_err()))
}

/// Whether each List has items: one that lost them in a typing error would pass for something of somebody else.
fn items(node: &Node) -> Result<(), Malformed> {
    if !is_list(node) {
        return Ok(());
    }
    let wrong = |line, cause: &str| {
        let cause = format!("items: {cause}");
        Err(Malformed { line, cause })
    };
    match field(node, "items") {
        None => wrong(node.line, "is required"),
        Some(Node {
            value: Value::List(all),
            ..
        }) => all.iter().try_for_each(items),
        Some(none) if none.is_null() => Ok(()),
        Some(other) => wrong(other.line, "expected a list"),
    }
}

/// One document of a text.
#[derive(Clone, Debug)]
pub struct Document {
    node: Node,
}

impl Document {
    /// The object, or those of a List, which may hold further ones.
    #[must_use]
    pub fn parts(&self) -> Vec<Part<'_>> {
        let mut found = Vec::new();
        flatten(&self.node, &mut found);
        found
    }
}

fn flatten<'a>(node: &'a Node, found: &mut Vec<Part<'a>>) {
    if !is_list(node) {
        return found.push(Part::new(node));
    }
    if let Some(Value::List(items)) = field(node, "items").map(|items| &items.value) {
        items.iter().for_each(|item| flatten(item, found));
    }
}

/// Whether it says that it is Kubernetes' List of any objects.
fn is_list(node: &Node) -> bool {
    let is = |name: &str, text: &str| matches!(field(node, name).map(|node| &node.value), Some(Value::Scalar(scalar)) if scalar.text == text);
    is("kind", "List") && is("apiVersion", "v1")
}

/// More of them are no more help.
const MOST_ENDLESS: usize = 100;

/// Infinities, and what is no number.
fn endless(node: &Node, path: &mut Path, found: &mut Vec<Finding>) {
    match &node.value {
        Value::Scalar(scalar) => {
            let is_one = matches!(scalar.plain(), Plain::Float(value) if !value.is_finite());
            if is_one && found.len() < MOST_ENDLESS {
                let cause = format!("{scalar} is no number of JSON; quote the value");
                found.push(Finding::error(path.as_str(), cause));
            }
        }
        Value::List(items) => {
            for (at, item) in items.iter().enumerate() {
                let length = path.enter_item(at);
                endless(item, path, found);
                path.back(length);
            }
        }
        Value::Map(entries) => {
            for (name, value) in entries {
                let length = path.enter(name);
                endless(value, path, found);
                path.back(length);
            }
        }
    }
}

fn field<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    match &node.value {
        Value::Map(entries) => entries
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, node)| node),
        Value::List(_) | Value::Scalar(_) => None,
    }
}

/// One object of a document.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    node: &'a Node,
    /// Of maps that were asked for: where their keys are.
    maps: RefCell<HashMap<*const Node, HashMap<String, usize>>>,
}

impl<'a> Part<'a> {
    /// A tree as one object.
    #[must_use]
    pub fn new(node: &'a Node) -> Self {
        Self {
            node,
            maps: RefCell::default(),
        }
    }

    /// As JSON, in the order of the text.
    #[must_use]
    pub fn value(&self) -> Json {
        value(self.node)
    }

    /// Adds what [`Self::value`] cannot show: numbers that JSON does not have are text there, which nobody wrote.
    pub fn complain(&self, findings: &mut Vec<Finding>) {
        let mut found = Vec::new();
        endless(self.node, &mut Path::default(), &mut found);
        let is_known = |path: &str| findings.iter().any(|known| known.path == path);
        found.retain(|one: &Finding| !is_known(&one.path));
        findings.append(&mut found);
    }

    /// Where it begins.
    #[must_use]
    pub fn begin(&self) -> usize {
        self.node.line
    }

    /// The line of what a path leads to, or of the nearest written thing above it.
    #[must_use]
    pub fn line(&self, path: &str) -> usize {
        let mut line = self.node.line;
        self.walk(path, |_, node| line = node.line);
        line
    }

    /// Puts findings into the order of the document.
    pub fn order(&self, findings: &mut [Finding]) {
        findings.sort_by_cached_key(|finding| {
            let mut place = Vec::new();
            let is_there = self.walk(&finding.path, |at, _| place.push(at));
            // What is missing comes after what it is missing in.
            (place, !is_there)
        });
    }

    /// Each step of a path, as far as the tree goes; whether that is all of it.
    fn walk(&self, path: &str, mut step: impl FnMut(usize, &Node)) -> bool {
        let mut at = self.node;
        for key in keys(path) {
            let found = match (&at.value, key) {
                (Value::Map(entries), Key::Name(name)) => {
                    let found = self.position(at, entries, &name);
                    found.and_then(|index| Some((index, &entries.get(index)?.1)))
                }
                (Value::List(items), Key::Index(index)) => {
                    items.get(index).map(|item| (index, item))
                }
                _ => None,
            };
            let Some((index, node)) = found else {
                return false;
            };
            step(index, node);
            at = node;
        }
        true
    }

    /// How many steps of a path there are, and how many of them the tree has.
    #[cfg(test)]
    pub(super) fn steps(&self, path: &str) -> (usize, usize) {
        let mut there = 0;
        self.walk(path, |_, _| there += 1);
        (keys(path).count(), there)
    }

    fn position(&self, node: &Node, entries: &[(String, Node)], name: &str) -> Option<usize> {
        let mut maps = self.maps.borrow_mut();
        let known = maps.entry(std::ptr::from_ref(node)).or_insert_with(|| {
            let written = entries.iter().enumerate();
            let folded = written.clone().map(|(at, (name, _))| (folded(name), at));
            let mut known: HashMap<String, usize> = folded.collect();
            // What is written exactly so goes first.
            known.extend(written.map(|(at, (name, _))| (name.clone(), at)));
            known
        });
        known
            .get(name)
            .or_else(|| known.get(&folded(name)))
            .copied()
    }
}

/// `workload_selector` is `workloadSelector`; no exact key has this form.
fn folded(name: &str) -> String {
    let letters = name.chars().filter(|letter| *letter != '_');
    iter::once('\0')
        .chain(letters.flat_map(char::to_lowercase))
        .collect()
}

enum Key {
    Name(String),
    Index(usize),
}

/// The steps of a path, as far as it can be read.
fn keys(path: &str) -> impl Iterator<Item = Key> + '_ {
    let mut rest = path;
    iter::from_fn(move || {
        if let Some(after) = rest.strip_prefix("[\"") {
            let text = rest.strip_prefix('[')?;
            let mut stream = serde_json::Deserializer::from_str(text).into_iter::<String>();
            let name = stream.next()?.ok()?;
            rest = after
                .get(stream.byte_offset().checked_sub(1)?..)?
                .strip_prefix(']')?;
            return Some(Key::Name(name));
        }
        if let Some(after) = rest.strip_prefix('[') {
            let (index, after) = after.split_once(']')?;
            rest = after;
            return index.parse().ok().map(Key::Index);
        }
        let text = rest.strip_prefix('.').unwrap_or(rest);
        let end = text.find(['.', '[']).unwrap_or(text.len());
        let (name, after) = text.split_at_checked(end)?;
        rest = after;
        (!name.is_empty()).then(|| Key::Name(name.to_owned()))
    })
}

fn value(node: &Node) -> Json {
    match &node.value {
        Value::Scalar(scalar) => word(scalar).map_or_else(|| node.to_json(), Json::Bool),
        Value::List(items) => Json::Array(items.iter().map(value).collect()),
        Value::Map(entries) => Json::Object(
            entries
                .iter()
                .map(|(name, node)| (name.clone(), value(node)))
                .collect(),
        ),
    }
}

/// What kubectl takes for a boolean.
fn word(scalar: &Scalar) -> Option<bool> {
    if scalar.plain() == Plain::Text && !scalar.plain {
        return None;
    }
    let is = |words: [&str; 3]| {
        words
            .iter()
            .any(|word| scalar.text.eq_ignore_ascii_case(word))
    };
    if is(["yes", "on", "true"]) {
        Some(true)
    } else if is(["no", "off", "false"]) {
        Some(false)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn all(text: &str) -> Vec<Document> {
        documents(text).collect::<Result<_, _>>().unwrap()
    }

    fn values(text: &str) -> Vec<Json> {
        all(text)
            .iter()
            .flat_map(|document| document.parts().iter().map(Part::value).collect::<Vec<_>>())
            .collect()
    }

    fn cause(text: &str) -> String {
        let last = documents(text).last().unwrap();
        last.unwrap_err().to_string()
    }

    #[test]
    fn documents_lists_and_json_are_objects() {
        for (text, objects) in [
            ("", vec![]),
            ("# words\n---\n---\n", vec![]),
            (
                "a: 1\n---\n# b\n---\nb: 2\n...\n",
                vec![json!({"a": 1}), json!({"b": 2})],
            ),
            (
                "\u{feff}a: &x [1]\n---\nb: 2",
                vec![json!({"a": [1]}), json!({"b": 2})],
            ),
            (
                "apiVersion: v1\nkind: List\nitems: [{a: 1}, {apiVersion: v1, kind: List, items: [{b: 2}]}]",
                vec![json!({"a": 1}), json!({"b": 2})],
            ),
            (
                "{\"a\": {\"b\": [1, \"\\u00e9\\/\"]}}",
                vec![json!({"a": {"b": [1, "é/"]}})],
            ),
            (
                "{\n\t\"a\"\t:\t[\t1\t]\n,\"c\": \"\\ud83d\\ude00\\\\ud83d\\t\"}",
                vec![json!({"a": [1], "c": "😀\\ud83d\t"})],
            ),
            (
                "{\"a\": 1}{\"b\": 2}\n\n [3] {\n\t\"c\": \"\\t\"}",
                vec![
                    json!({"a": 1}),
                    json!({"b": 2}),
                    json!([3]),
                    json!({"c": "\t"}),
                ],
            ),
        ] {
            assert_eq!(values(text), objects, "{text}");
        }
    }

    #[test]
    fn a_string_of_json_has_every_character() {
        for odd in ["", "\t"] {
            let all: String = ('\0'..=char::MAX).collect();
            let all = json!({ "a": all });
            assert!(values(&format!("{odd}{all}{odd}")) == [all], "{odd:?}");
        }
    }

    #[test]
    fn words_are_booleans_as_kubectl_has_them() {
        assert_eq!(
            values("[yes, No, ON, off, true, TRUE, y, 'yes', !!str no, ~, 1.5, 0x10]"),
            [json!([
                true, false, true, false, true, true, "y", "yes", "no", null, 1.5, 16
            ])]
        );
    }

    #[test]
    fn what_cannot_be_read_says_its_line() {
        for (text, expected) in [
            ("a: 1\n---\nb: 1\nb: 2\n", "line 4: the key \"b\" twice"),
            ("a: 1\nb: !x 1\n", "line 2: cannot use the tag \"!x\""),
            ("a: !!set {x: ~}\n", "line 1: cannot use the tag \"!!set\""),
            ("a: !!int x\n", "line 1: \"x\" is not what its tag says"),
            ("a: !!str {x: 1}\n", "line 1: cannot use the tag \"!!str\""),
            ("a: !!map [1]\n", "line 1: cannot use the tag \"!!map\""),
            (
                "kind: List\napiVersion: v1\nitems: {a: 1}\n",
                "line 3: items: expected a list",
            ),
            (
                "kind: List\napiVersion: v1\nitem: []\n",
                "line 1: items: is required",
            ),
            (
                "kind: List\napiVersion: v1\nitems:\n- {kind: List, apiVersion: v1, items: x}\n",
                "line 4: items: expected a list",
            ),
            ("{\"a\": 1,\n\t\"a\": 2}", "line 2: the key \"a\" twice"),
            (
                "{\"a\": 1}\n{\"b\": 1}\n{\n\"c\": 1,\n\"c\": 2} {}",
                "line 5: the key \"c\" twice",
            ),
        ] {
            assert_eq!(cause(text), expected, "{text}");
        }
        assert!(cause("a: [\n---\n").starts_with("line "));
        // Nothing comes after it.
        let list = "kind: List\napiVersion: v1\n";
        assert_eq!(
            documents(&format!("{list}---\n{list}---\na: 1\n")).count(),
            1
        );
        // What stands before it is read.
        let first = documents("a: 1\n---\nb: [\n").next().unwrap();
        assert_eq!(first.unwrap().parts()[0].value(), json!({"a": 1}));
    }

    #[test]
    fn numbers_that_json_does_not_have_are_found() {
        let text = "a: [1, .inf]\nb: {'c.d': -.INF, e: .nan, f: '.inf', g: 1e999}\n";
        let document = &all(text)[0];
        let part = &document.parts()[0];
        let mut findings = vec![Finding::error("b.e", "not a number")];
        part.complain(&mut findings);
        let said: Vec<_> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "b.e: not a number",
                "a[1]: .inf is no number of JSON; quote the value",
                "b[\"c.d\"]: -.INF is no number of JSON; quote the value",
            ]
        );
        // As kubectl reads it: the short name of a commit may look so.
        assert_eq!(part.value()["b"]["g"], "1e999");
    }

    #[test]
    fn values_that_follow_each_other_have_their_lines() {
        let all = all("{\"a\": 1}\n{\n \"b\": {\n\"c\": [1]}}{\"d\":\n1}\n");
        let lines = |at: usize, path: &str| {
            let document: &Document = &all[at];
            document.parts()[0].line(path)
        };
        assert_eq!(
            [lines(0, "a"), lines(1, ""), lines(1, "b.c"), lines(2, "d")],
            [1, 2, 4, 5]
        );
    }

    #[test]
    fn bombs_are_refused_before_they_are_made() {
        let mut bomb = String::from("a: &a [x,x,x,x,x,x,x,x,x,x]\n");
        for (name, before) in ('b'..='h').zip('a'..) {
            bomb += &format!("{name}: &{name} [{}]\n", format!("*{before},").repeat(10));
        }
        assert_eq!(cause(&bomb), "line 5: more than 200000 values");
        assert!(cause(&"[".repeat(200)).contains("recursion limit"));
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        // Deeper than an object may be: that is said of the object.
        assert_eq!(values(&deep(128)).len(), 1);
        assert!(documents(&deep(129)).any(|read| read.is_err()));
        let long = format!("a: {}", "x".repeat(16 << 20));
        assert_eq!(cause(&long), "longer than 16777216 bytes");
        let many = |count: usize| format!("[{}]", "1,".repeat(count));
        assert_eq!(values(&many(199_999)).len(), 1);
        assert_eq!(cause(&many(200_000)), "line 1: more than 200000 values");
        // Each document has its own account.
        assert_eq!(
            values(&format!("{}\n---\n{}", many(150_000), many(150_000))).len(),
            2
        );
    }

    #[test]
    fn a_path_leads_to_its_line_or_to_what_is_above_it() {
        let text = "metadata:\n  labels:\n    a/b: x\n    'q\"]': y\n  a_b: z\nspec:\n  http:\n  - match: []\n  - route:\n    - weight: 1\n";
        let document = &all(text)[0];
        let part = &document.parts()[0];
        for (path, line) in [
            ("", 1),
            ("kind", 1),
            ("metadata.name", 2),
            ("metadata.labels[\"a/b\"]", 3),
            ("metadata.labels[\"q\\\"]\"].x", 4),
            ("metadata.aB", 5),
            ("spec.http", 8),
            ("spec.http[0].match", 8),
            ("spec.http[1].route[0].weight", 10),
            ("spec.http[1].route[0].destination.host", 10),
            ("spec.http[7]", 8),
            ("spec.http[x", 8),
        ] {
            assert_eq!(part.line(path), line, "{path}");
        }
        let of = |path: &str| Finding::error(path, "x");
        let mut findings = [
            of("spec.http[1]"),
            of("spec.http[0].match"),
            of("metadata.aB"),
            of("spec"),
            of("spec.http[1].route"),
            of("kind"),
            of(""),
            of("metadata.labels[\"a/b\"]"),
        ];
        part.order(&mut findings);
        let paths: Vec<_> = findings
            .iter()
            .map(|finding| finding.path.as_str())
            .collect();
        assert_eq!(
            paths,
            [
                "",
                "kind",
                "metadata.labels[\"a/b\"]",
                "metadata.aB",
                "spec",
                "spec.http[0].match",
                "spec.http[1]",
                "spec.http[1].route",
            ]
        );
    }

    #[test]
    fn many_findings_in_a_wide_map_cost_no_square() {
        let text: String = (0..20_000).map(|at| format!("k{at}: 1\n")).collect();
        let document = &all(&text)[0];
        let part = &document.parts()[0];
        let mut findings: Vec<_> = (0..20_000)
            .rev()
            .map(|at| Finding::error(format!("k{at}"), "x"))
            .collect();
        part.order(&mut findings);
        assert!(
            findings
                .iter()
                .enumerate()
                .all(|(at, found)| part.line(&found.path) == at + 1)
        );
    }
}
