//! A cursor: a position in an object while rules check it, with the value, the path to it and the collector of findings.
//!
//! Paths are written out for findings alone. A value of another type than its field counts as absent, because types were checked
//! before. A rule that depends on a second field must hold for every value that an unreadable field may have had: such rules ask
//! whether the field `is_broken`.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use serde_json::Value;

use crate::duration;
use crate::finding::{Finding, Findings, Severity, push_index, push_key};

/// The result of a predicate: `None`, or the message of an error.
pub(super) type Violation = Option<String>;

/// The findings so far.
#[derive(Debug, Default)]
pub(super) struct FindingCollector {
    findings: RefCell<Findings>,
}

impl FindingCollector {
    pub(super) fn into_findings(self) -> Vec<Finding> {
        self.findings.into_inner().into_vec()
    }
}

/// One step of a path, and the path that it goes on from; `None`: the object itself.
#[derive(Clone, Debug)]
struct FieldPath<'a> {
    above: Option<Rc<Self>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Key(&'a str),
    Index(usize),
}

impl<'a> Step<'a> {
    const fn from(self, above: Option<Rc<FieldPath<'a>>>) -> FieldPath<'a> {
        FieldPath { above, step: self }
    }
}

impl FieldPath<'_> {
    fn write(&self, to: &mut String) {
        if let Some(above) = &self.above {
            above.write(to);
        }
        match self.step {
            Step::Root => {}
            Step::Key(key) => push_key(to, key),
            Step::Index(index) => push_index(to, index),
        }
    }
}

/// A place; cheap to copy.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    value: Option<&'a Value>,
    path: FieldPath<'a>,
    /// Its path as the places below it share it. Most have none below, and a rule looks at hundreds.
    shared: OnceCell<Rc<FieldPath<'a>>>,
    out: &'a FindingCollector,
}

impl<'a> Cursor<'a> {
    /// A field of the object itself.
    pub(super) fn root(name: &'static str, value: &'a Value, out: &'a FindingCollector) -> Self {
        Self::new(Some(value), Step::Key(name).from(None), out)
    }

    /// The object itself.
    pub(super) fn top(value: &'a Value, out: &'a FindingCollector) -> Self {
        Self::new(Some(value), Step::Root.from(None), out)
    }

    const fn new(value: Option<&'a Value>, path: FieldPath<'a>, out: &'a FindingCollector) -> Self {
        Self {
            value,
            path,
            shared: OnceCell::new(),
            out,
        }
    }

    fn below(&self, value: Option<&'a Value>, step: Step<'a>) -> Self {
        let above = self.shared.get_or_init(|| Rc::new(self.path.clone()));
        Self::new(value, step.from(Some(Rc::clone(above))), self.out)
    }

    pub(super) fn get(&self, name: &'a str) -> Self {
        self.below(self.field(name), Step::Key(name))
    }

    fn field(&self, name: &str) -> Option<&'a Value> {
        self.value.and_then(|value| value.get(name))
    }

    /// The place that several names lead to.
    pub(super) fn to<const N: usize>(&self, names: [&'a str; N]) -> Self {
        names
            .into_iter()
            .fold(self.clone(), |at, name| at.get(name))
    }

    pub(super) fn value(&self) -> Option<&'a Value> {
        self.value.filter(|value| !value.is_null())
    }

    /// Returns true if the field is present, be it as an empty list or map.
    pub(super) fn is_set(&self) -> bool {
        self.value().is_some()
    }

    /// Absent, or a text, list or map with nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        match self.value() {
            None => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::Object(entries)) => entries.is_empty(),
            Some(Value::Null | Value::Bool(_) | Value::Number(_)) => false,
        }
    }

    /// Returns true if the field is present and invalid.
    pub(super) fn is_broken(&self) -> bool {
        self.value.is_some_and(Value::is_null)
    }

    /// Returns true if no part of the value is unreadable.
    pub(super) fn is_readable(&self) -> bool {
        fn is_readable(value: &Value) -> bool {
            match value {
                Value::Null => false,
                Value::Array(items) => items.iter().all(is_readable),
                Value::Object(entries) => entries.values().all(is_readable),
                Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
            }
        }
        self.value.is_none_or(is_readable)
    }

    pub(super) fn text(&self) -> &'a str {
        self.value.and_then(Value::as_str).unwrap_or_default()
    }

    /// Absent is 0, as in protobuf; those of 64 bits are text.
    pub(super) fn number(&self) -> i64 {
        match self.value {
            Some(Value::Number(number)) => number
                .as_i64()
                // Beyond all bounds of rules.
                .or_else(|| number.as_u64().map(|_| i64::MAX))
                .unwrap_or_default(),
            Some(Value::String(digits)) => digits.parse().unwrap_or(i64::MAX),
            _ => 0,
        }
    }

    /// Returns the number as it was written, also beyond the range of [`Self::number`].
    pub(super) fn digits(&self) -> String {
        match self.value {
            Some(Value::String(digits)) => digits.clone(),
            _ => self.number().to_string(),
        }
    }

    pub(super) fn float(&self) -> f64 {
        match self.value {
            Some(Value::Number(number)) => number.as_f64().unwrap_or_default(),
            Some(Value::String(digits)) => digits.parse().unwrap_or_default(),
            _ => 0.0,
        }
    }

    pub(super) fn flag(&self) -> bool {
        self.value.and_then(Value::as_bool).unwrap_or_default()
    }

    /// A duration in nanoseconds.
    pub(super) fn nanos(&self) -> Option<i128> {
        duration::parse(self.value?.as_str()?).map(|read| duration::nanos(&read))
    }

    pub(super) fn list(&self) -> &'a [Value] {
        match self.value {
            Some(Value::Array(items)) => items,
            _ => &[],
        }
    }

    /// The texts of a list.
    pub(super) fn texts(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.list().iter().filter_map(Value::as_str)
    }

    pub(super) fn items(&self) -> impl Iterator<Item = Self> + use<'a> {
        let this = self.clone();
        self.list()
            .iter()
            .enumerate()
            .map(move |(index, value)| this.below(Some(value), Step::Index(index)))
    }

    /// The entries of a map, each at its place.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, Self)> + use<'a> {
        let this = self.clone();
        let entries = match self.value {
            Some(Value::Object(entries)) => Some(entries),
            _ => None,
        };
        entries.into_iter().flatten().map(move |(key, value)| {
            let at = this.below(Some(value), Step::Key(key));
            (key.as_str(), at)
        })
    }

    /// Returns the same entries sorted by key, for findings about pairs of entries: keys of a map have no order.
    pub(super) fn sorted_entries(&self) -> Vec<(&'a str, Self)> {
        let mut entries: Vec<_> = self.entries().collect();
        entries.sort_unstable_by_key(|(key, _)| *key);
        entries
    }

    fn push_finding(&self, severity: Severity, finding: impl FnOnce(String) -> Finding) {
        let mut findings = self.out.findings.borrow_mut();
        findings.add(severity, || {
            let mut path = String::new();
            self.path.write(&mut path);
            finding(path)
        });
    }

    pub(super) fn fail(&self, message: impl Into<String>) {
        self.push_finding(Severity::Error, |path| Finding::error(path, message));
    }

    pub(super) fn warn(&self, message: impl Into<String>) {
        self.push_finding(Severity::Warning, |path| Finding::warning(path, message));
    }

    pub(super) fn deprecated(&self, instead: &str) {
        self.push_finding(Severity::Warning, |path| Finding::deprecated(path, instead));
    }

    pub(super) fn unreachable(&self, why: &str) {
        self.push_finding(Severity::Warning, |path| Finding::unreachable(path, why));
    }

    /// Adds the violation of a predicate as a finding; returns true if there is none.
    pub(super) fn check(&self, wrong: Violation) -> bool {
        match wrong {
            None => true,
            Some(message) => {
                self.fail(message);
                false
            }
        }
    }

    /// The same for a text that may be absent or empty.
    pub(super) fn check_text(&self, predicate: fn(&str) -> Violation) -> bool {
        self.is_empty() || self.check(predicate(self.text()))
    }

    pub(super) fn required(&self) -> bool {
        self.check((!self.is_set()).then(|| "is required".to_owned()))
    }

    /// The same for a text, where absent and empty are one.
    pub(super) fn required_text(&self) -> bool {
        self.check(self.is_empty().then(|| "is required".to_owned()))
    }

    pub(super) fn not_empty(&self) -> bool {
        self.check(self.is_empty().then(|| "must not be empty".to_owned()))
    }

    /// The names of its fields that are set and not empty; none of those that could not be read.
    pub(super) fn set_fields(&self, names: &[&'static str]) -> Vec<&'static str> {
        let set = names.iter().filter(|name| self.has(name));
        set.copied().collect()
    }

    /// Returns true if a field is set and not empty.
    pub(super) fn has(&self, name: &str) -> bool {
        self.field(name).is_some_and(|value| match value {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(_) | Value::Bool(_) | Value::Number(_) => true,
        })
    }

    /// One of its fields could not be read: it may be there or not, and may say anything.
    pub(super) fn any_broken(&self, names: &[&'static str]) -> bool {
        let mut fields = names.iter().filter_map(|name| self.field(name));
        fields.any(Value::is_null)
    }

    /// For sure none of its fields is there.
    pub(super) fn lacks(&self, names: &[&'static str]) -> bool {
        !names.iter().any(|name| self.has(name)) && !self.any_broken(names)
    }

    /// Two fields that cannot both be there.
    pub(super) fn apart(&self, one: &'static str, other: &'static str) -> bool {
        let both = self.has(one) && self.has(other);
        self.check(both.then(|| format!("{one} and {other} exclude each other")))
    }
}
