//! Text of YAML or JSON as the objects in it, each with the lines of its parts.
//!
//! Plain scalars are read as kubectl reads them (`yes` is a boolean), so that a file has one meaning here and there.

mod json;
mod lists;

use std::cell::RefCell;
use std::collections::HashMap;
use std::iter;
use std::mem;

use serde_json::Value as Json;

use super::envelope::MAX_DEPTH;
use super::path::Path;
use crate::finding::Finding;
use crate::yaml::{self, Limits, Malformed, MalformedKind, Node, ResolvedScalar, Scalar, Value};
use lists::DocumentObjects;

/// The limits of a file, and of one document of it.
pub const LIMITS: Limits = Limits {
    bytes: 16 << 20,
    // More than the limit of an object, so that an object that is too deep is refused alone and not with its file.
    depth: 2 * MAX_DEPTH,
    nodes: 200_000,
};

/// The limits of a text on the command line, where one file may hold the configuration of a cluster.
pub const COMMAND_LINE: Limits = Limits {
    bytes: 64 << 20,
    ..LIMITS
};

/// Returns the documents of a text, in order, without blank ones. The first document that cannot be read ends them.
pub fn documents(text: &str) -> impl Iterator<Item = Result<Document, Malformed>> + '_ {
    documents_within(text, LIMITS)
}

/// The same with other limits. Each item of a list is a document.
pub fn documents_within(
    text: &str,
    limits: Limits,
) -> impl Iterator<Item = Result<Document, Malformed>> + '_ {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let json = json::documents(text, limits);
    let yaml = json.is_none().then(|| DocumentObjects::new(text, limits));
    let mut ended = false;
    json.into_iter()
        .flatten()
        .chain(yaml.into_iter().flatten())
        .map(|read| read.map(|node| Document { node }))
        // The first error is passed on and ends the text: behind it nothing is known to be a document.
        .take_while(move |read| !mem::replace(&mut ended, read.is_err()))
}

/// The numbers of values and of objects within an object in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueCount {
    /// All values; a name is one, too.
    pub values: usize,
    /// The objects among them.
    pub objects: usize,
}

/// Counts the values of an object in valid JSON as those of a file are counted.
///
/// # Errors
///
/// They are more than an object of a file may have.
pub fn count_values(json: &str) -> Result<ValueCount, String> {
    let mut count = ValueCount::default();
    let (mut in_text, mut is_escaped, mut in_plain) = (false, false, false);
    for byte in json.bytes() {
        if in_text {
            (in_text, is_escaped) = match byte {
                _ if is_escaped => (true, false),
                b'\\' => (true, true),
                byte => (byte != b'"', false),
            };
            continue;
        }
        let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
        in_text = byte == b'"';
        let begins = in_text || matches!(byte, b'{' | b'[') || (is_plain && !in_plain);
        in_plain = is_plain;
        count.values += usize::from(begins);
        count.objects += usize::from(byte == b'{');
        if count.values > LIMITS.nodes {
            return Err(LIMITS.too_many());
        }
    }
    Ok(count)
}

/// Bytes as text.
///
/// # Errors
///
/// They are not UTF-8: the line of the first that is not.
pub fn utf8(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let lines = before.iter().filter(|byte| **byte == b'\n');
        Malformed {
            line: lines.count().saturating_add(1),
            cause: "it is not UTF-8".to_owned(),
            kind: MalformedKind::Other,
        }
    })
}

/// Returns true if a text has no object, and no list that might be empty.
#[must_use]
pub fn is_blank(text: &str) -> bool {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut tops = yaml::outlines(text, COMMAND_LINE);
    tops.all(|top| top.is_ok_and(|top| top.kind.is_empty()))
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
        let mut parts = Vec::new();
        flatten(&self.node, &mut parts);
        parts
    }
}

fn flatten<'a>(node: &'a Node, parts: &mut Vec<Part<'a>>) {
    match lists::items(node) {
        Ok(Some((_, items))) => items.iter().for_each(|item| flatten(item, parts)),
        // A malformed list was refused as a document.
        Ok(None) | Err(_) => parts.push(Part::new(node)),
    }
}

/// More of them are no more help.
const MAX_ENDLESS: usize = 100;

/// Finds infinities and NaN.
fn endless(node: &Node, path: &mut Path, findings: &mut Vec<Finding>) {
    match &node.value {
        Value::Scalar(scalar) => {
            let is_one =
                matches!(scalar.resolve(), ResolvedScalar::Float(value) if !value.is_finite());
            if is_one && findings.len() < MAX_ENDLESS {
                let cause = format!("{scalar} is not a JSON number; quote the value");
                findings.push(Finding::error(path.as_str(), cause));
            }
        }
        Value::List(items) => {
            for (at, item) in items.iter().enumerate() {
                let length = path.enter_item(at);
                endless(item, path, findings);
                path.back(length);
            }
        }
        Value::Map(entries) => {
            for (name, value) in entries {
                let length = path.enter(name);
                endless(value, path, findings);
                path.back(length);
            }
        }
    }
}

/// One object of a document.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    node: &'a Node,
    /// Indices of the keys of maps that were looked into, by their node.
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

    /// Returns the object as JSON, in the order of the text.
    #[must_use]
    pub fn value(&self) -> Json {
        value(self.node)
    }

    /// Adds the findings that [`Self::value`] hides: it has text in place of the numbers that JSON lacks.
    pub fn add_number_findings(&self, findings: &mut Vec<Finding>) {
        let mut new_findings = Vec::new();
        endless(self.node, &mut Path::default(), &mut new_findings);
        let is_known = |path: &str| findings.iter().any(|finding| finding.path == path);
        new_findings.retain(|one: &Finding| !is_known(&one.path));
        findings.append(&mut new_findings);
    }

    /// The bytes of its texts, and one for each value: aliases make it more than was written.
    #[must_use]
    pub fn size(&self) -> usize {
        size(self.node)
    }

    /// The line where the object begins.
    #[must_use]
    pub fn begin(&self) -> usize {
        self.node.line
    }

    /// Returns the line of the node at a path, or of the nearest written node above it.
    #[must_use]
    pub fn line(&self, path: &str) -> usize {
        let mut line = self.node.line;
        self.walk(path, |_, node| line = node.line);
        line
    }

    /// The text of a scalar that a path leads to.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&'a str> {
        let mut at = self.node;
        let is_there = self.walk(path, |_, node| at = node);
        match &at.value {
            Value::Scalar(scalar) if is_there => Some(&scalar.text),
            Value::Scalar(_) | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// Puts findings into the order of the document.
    pub fn sort(&self, findings: &mut [Finding]) {
        findings.sort_by_cached_key(|finding| {
            let mut place = Vec::new();
            let is_there = self.walk(&finding.path, |at, _| place.push(at));
            // A finding about a missing field comes after those about its object.
            (place, !is_there)
        });
    }

    /// Each step of a path, as far as the tree goes; whether that is all of it.
    fn walk(&self, path: &str, mut step: impl FnMut(usize, &'a Node)) -> bool {
        let mut at = self.node;
        for key in keys(path) {
            let child = match (&at.value, key) {
                (Value::Map(entries), PathStep::Name(name)) => {
                    let place = self.position(at, entries, &name);
                    place.and_then(|index| Some((index, &entries.get(index)?.1)))
                }
                (Value::List(items), PathStep::Index(index)) => {
                    items.get(index).map(|item| (index, item))
                }
                _ => None,
            };
            let Some((index, node)) = child else {
                return false;
            };
            step(index, node);
            at = node;
        }
        true
    }

    /// The number of steps in a path, and the number of them that the tree has.
    #[cfg(test)]
    pub(super) fn steps(&self, path: &str) -> (usize, usize) {
        let mut there = 0;
        self.walk(path, |_, _| there += 1);
        (keys(path).count(), there)
    }

    fn position(&self, node: &Node, entries: &[(String, Node)], name: &str) -> Option<usize> {
        let mut maps = self.maps.borrow_mut();
        // An address is a key here: the part borrows its nodes, so that none moves or goes.
        let places = maps.entry(std::ptr::from_ref(node)).or_insert_with(|| {
            let numbered = entries.iter().enumerate();
            let folded = numbered.clone().map(|(at, (name, _))| (folded(name), at));
            let mut places: HashMap<String, usize> = folded.collect();
            // An exact spelling has precedence.
            places.extend(numbered.map(|(at, (name, _))| (name.clone(), at)));
            places
        });
        places
            .get(name)
            .or_else(|| places.get(&folded(name)))
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

enum PathStep {
    Name(String),
    Index(usize),
}

/// The steps of a path, as far as it can be read.
fn keys(path: &str) -> impl Iterator<Item = PathStep> + '_ {
    let mut rest = path;
    iter::from_fn(move || {
        if let Some(after) = rest.strip_prefix("[\"") {
            let text = rest.strip_prefix('[')?;
            let mut stream = serde_json::Deserializer::from_str(text).into_iter::<String>();
            let name = stream.next()?.ok()?;
            // `after` begins a byte behind `text`, from which the offset counts.
            rest = after
                .get(stream.byte_offset().checked_sub(1)?..)?
                .strip_prefix(']')?;
            return Some(PathStep::Name(name));
        }
        if let Some(after) = rest.strip_prefix('[') {
            let (index, after) = after.split_once(']')?;
            rest = after;
            return index.parse().ok().map(PathStep::Index);
        }
        let text = rest.strip_prefix('.').unwrap_or(rest);
        let end = text.find(['.', '[']).unwrap_or(text.len());
        let (name, after) = text.split_at_checked(end)?;
        rest = after;
        (!name.is_empty()).then(|| PathStep::Name(name.to_owned()))
    })
}

fn size(node: &Node) -> usize {
    let below = match &node.value {
        Value::Scalar(scalar) => scalar.text.len(),
        Value::List(items) => items.iter().map(size).sum(),
        Value::Map(entries) => entries
            .iter()
            .map(|(key, value)| size(value).saturating_add(key.len()))
            .sum(),
    };
    below.saturating_add(1)
}

fn value(node: &Node) -> Json {
    match &node.value {
        Value::Scalar(scalar) => parse_bool(scalar).map_or_else(|| node.to_json(), Json::Bool),
        Value::List(items) => Json::Array(items.iter().map(value).collect()),
        Value::Map(entries) => Json::Object(
            entries
                .iter()
                .map(|(name, node)| (name.clone(), value(node)))
                .collect(),
        ),
    }
}

/// A boolean as kubectl reads it.
fn parse_bool(scalar: &Scalar) -> Option<bool> {
    // A quoted word is text.
    if scalar.resolve() == ResolvedScalar::Text && !scalar.plain {
        return None;
    }
    let is = |spellings: [&str; 3]| {
        spellings
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
mod tests;
