//! The difference of two pods as a JSON Patch (RFC 6902).
//!
//! Operations apply in order to the object exactly as it was sent, so every index is the one at that moment. The order is fixed:
//! elements taken out of lists, elements put in, other fields of the spec, annotations, labels, and last changes within elements
//! that stay (probes). Both ways of injecting end here.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value};

use crate::json_eq::{changed, json_eq, present};
pub(crate) use crate::operation::{Content, Operation};
use crate::pod::{self, PodList};

/// Bytes that a patch has, or more.
const USUAL: usize = 8 << 10;

/// Returns the operations that turn `sent` into `wanted`. Nulls in either count as absent. Elements in `replaced_elements`, by list and by their place in `sent`, are taken out and put in again rather than changed.
#[must_use]
pub(crate) fn diff_replacing<'a>(
    sent: &'a Value,
    wanted: &'a Value,
    replaced_elements: &HashSet<(PodList, usize)>,
) -> Vec<Operation<'a>> {
    let mut patch = PatchBuilder::default();
    let both = |key| Some((pod::object(sent, key)?, pod::object(wanted, key)?));
    if patch.parent(sent, wanted, "spec")
        && let Some((before, after)) = both("spec")
    {
        patch.lists(before, after, replaced_elements);
        patch.fields("/spec", before, after, &PodList::ALL.map(PodList::name));
    }
    if patch.parent(sent, wanted, "metadata")
        && let Some((before, after)) = both("metadata")
    {
        let first = ["annotations", "labels"];
        for key in first {
            patch.field("/metadata", key, before.get(key), after.get(key));
        }
        patch.fields("/metadata", before, after, &first);
    }
    if let (Some(before), Some(after)) = (sent.as_object(), wanted.as_object()) {
        patch.fields("", before, after, &["spec", "metadata"]);
    }
    patch.operations.append(&mut patch.within);
    patch.operations
}

/// The operations as the text that a response carries.
#[must_use]
pub(crate) fn to_text(operations: &[Operation<'_>]) -> Vec<u8> {
    let mut text = Vec::with_capacity(USUAL);
    // Serializing strings and values cannot fail.
    match serde_json::to_writer(&mut text, operations) {
        Ok(()) => text,
        Err(_) => Vec::new(),
    }
}

/// A key as a step of a path.
#[must_use]
pub(crate) fn escape(key: &str) -> Cow<'_, str> {
    if key.contains(['~', '/']) {
        key.replace('~', "~0").replace('/', "~1").into()
    } else {
        key.into()
    }
}

#[derive(Default)]
struct PatchBuilder<'a> {
    operations: Vec<Operation<'a>>,
    /// Changes within elements that stay. They come last, when indices are final.
    within: Vec<Operation<'a>>,
}

impl<'a> PatchBuilder<'a> {
    /// Returns true if `key` is an object on both sides. A key that only the new pod has is added with its first field, as
    /// all further operations expect.
    fn parent(&mut self, sent: &Value, wanted: &'a Value, key: &str) -> bool {
        let path = format!("/{key}");
        match (present(sent.get(key)), present(wanted.get(key))) {
            (Some(Value::Object(_)), Some(Value::Object(_))) => true,
            (None, Some(value)) => {
                self.operations
                    .push(Operation::Add(path, Content::Whole(value)));
                false
            }
            (Some(a), Some(b)) => {
                if a != b {
                    self.operations.push(Operation::Replace(path, b));
                }
                false
            }
            (Some(_), None) => {
                self.operations.push(Operation::Remove(path));
                false
            }
            (None, None) => false,
        }
    }

    fn lists(
        &mut self,
        sent: &'a Map<String, Value>,
        wanted: &'a Map<String, Value>,
        replaced_elements: &HashSet<(PodList, usize)>,
    ) {
        let mut plans = Vec::new();
        for list in PodList::ALL {
            let name = list.name();
            let (before, after) = (items(sent.get(name)), items(wanted.get(name)));
            // A list that is removed, or added as a whole, is not compared by element.
            if present(sent.get(name)).is_some() && present(wanted.get(name)).is_none() {
                self.operations
                    .push(Operation::Remove(format!("/spec/{name}")));
                continue;
            }
            let plan = Plan::by(before, after, "name", |place| {
                replaced_elements.contains(&(list, place))
            });
            plan.remove(&format!("/spec/{name}"), &mut self.operations);
            plans.push((name, before, after, plan));
        }
        for (name, before, after, plan) in plans {
            let path = format!("/spec/{name}");
            let absent = present(sent.get(name)).is_none();
            plan.add(&path, absent, after, &mut self.operations);
            plan.within(&path, before, after, &mut self.within);
        }
    }

    fn fields(
        &mut self,
        path: &str,
        sent: &'a Map<String, Value>,
        wanted: &'a Map<String, Value>,
        except: &[&str],
    ) {
        for key in changed(sent, wanted, except) {
            self.field(path, key, sent.get(key), wanted.get(key));
        }
    }

    fn field(&mut self, path: &str, key: &str, sent: Option<&'a Value>, wanted: Option<&'a Value>) {
        field(path, key, sent, wanted, &mut self.operations);
    }
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn field<'a>(
    path: &str,
    key: &str,
    sent: Option<&'a Value>,
    wanted: Option<&'a Value>,
    operations: &mut Vec<Operation<'a>>,
) {
    let (sent, wanted) = (present(sent), present(wanted));
    match (sent, wanted) {
        (None, None) => return,
        (Some(a), Some(b)) if json_eq(a, b) => return,
        _ => {}
    }
    let here = format!("{path}/{}", escape(key));
    match (sent, wanted) {
        // An empty map has no first entry to be added with.
        (None, Some(Value::Object(entries))) if grows_by_key(&here) && !entries.is_empty() => {
            by_key(&here, entries, operations);
        }
        (None, Some(value)) => operations.push(Operation::Add(here, Content::Whole(value))),
        (Some(_), None) => operations.push(Operation::Remove(here)),
        (Some(a), Some(b)) => changes(&here, a, b, operations),
        (None, None) => {}
    }
}

/// Returns true for maps that are patched key by key, so that the patch is readable.
fn grows_by_key(path: &str) -> bool {
    matches!(path, "/metadata/annotations" | "/metadata/labels")
}

fn by_key<'a>(path: &str, entries: &'a Map<String, Value>, operations: &mut Vec<Operation<'a>>) {
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort_unstable_by_key(|(key, _)| *key);
    let mut first = true;
    for (key, value) in sorted {
        operations.push(if first {
            Operation::Add(path.to_owned(), Content::Map(key, value))
        } else {
            Operation::Add(format!("{path}/{}", escape(key)), Content::Whole(value))
        });
        first = false;
    }
}

/// The changes between two different values.
fn changes<'a>(
    path: &str,
    sent: &'a Value,
    wanted: &'a Value,
    operations: &mut Vec<Operation<'a>>,
) {
    match (sent, wanted) {
        // A handler is one thing: half of one probe and half of another would be seen in between.
        (Value::Object(a), Value::Object(b)) if !path.ends_with("/httpGet") => {
            let changed = changed(a, b, &[]);
            for removed in [true, false] {
                for &key in &changed {
                    if removed == present(b.get(key)).is_none() {
                        field(path, key, a.get(key), b.get(key), operations);
                    }
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            // A list whose elements have keys changes element by element, any other whole.
            match pod::merge_key(path.rsplit('/').next().unwrap_or_default()) {
                Some(key) => list(path, key, a, b, operations),
                None => operations.push(Operation::Replace(path.to_owned(), wanted)),
            }
        }
        _ => operations.push(Operation::Replace(path.to_owned(), wanted)),
    }
}

fn list<'a>(
    path: &str,
    key: &str,
    sent: &'a [Value],
    wanted: &'a [Value],
    operations: &mut Vec<Operation<'a>>,
) {
    let plan = Plan::by(sent, wanted, key, |_| false);
    plan.remove(path, operations);
    plan.add(path, false, wanted, operations);
    plan.within(path, sent, wanted, operations);
}

/// The elements of a list that stay: pairs of old and new index, both rising, as many as possible.
#[derive(Debug)]
struct Plan {
    staying: Vec<(usize, usize)>,
    /// For each old element true if it is removed, for each new one true if it is added.
    goes: Vec<bool>,
    comes: Vec<bool>,
}

impl Plan {
    fn by(before: &[Value], after: &[Value], key: &str, is_fresh: impl Fn(usize) -> bool) -> Self {
        // The nth of a key is paired with the nth: a list may hold a key twice.
        let mut waiting: HashMap<String, VecDeque<usize>> = HashMap::new();
        for (old, element) in before.iter().enumerate() {
            if is_fresh(old) {
                continue;
            }
            waiting
                .entry(pod::identity(element, key))
                .or_default()
                .push_back(old);
        }
        let mut pairs = Vec::new();
        for (new, element) in after.iter().enumerate() {
            let old_place = waiting
                .get_mut(&pod::identity(element, key))
                .and_then(VecDeque::pop_front);
            pairs.extend(old_place.map(|old| (old, new)));
        }
        let staying = rising(&pairs);
        let (mut goes, mut comes) = (vec![true; before.len()], vec![true; after.len()]);
        for (old, new) in &staying {
            if let (Some(goes), Some(comes)) = (goes.get_mut(*old), comes.get_mut(*new)) {
                (*goes, *comes) = (false, false);
            }
        }
        Self {
            staying,
            goes,
            comes,
        }
    }

    /// Removes elements, from the last to the first.
    fn remove(&self, path: &str, operations: &mut Vec<Operation<'_>>) {
        // From the end, so that the other indices stay.
        let going = self
            .goes
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, goes)| **goes);
        operations.extend(going.map(|(index, _)| Operation::Remove(format!("{path}/{index}"))));
    }

    /// Adds elements, from the first to the last; and the list itself if it is absent.
    fn add<'a>(
        &self,
        path: &str,
        mut absent: bool,
        after: &'a [Value],
        operations: &mut Vec<Operation<'a>>,
    ) {
        let coming = after.iter().enumerate();
        let coming = coming.filter(|(index, _)| self.comes.get(*index) == Some(&true));
        // The list has the staying elements and those added before: one at its end is appended by `-`.
        for (length, (index, value)) in (self.staying.len()..).zip(coming) {
            operations.push(match (absent, index == length) {
                (true, _) => Operation::Add(path.to_owned(), Content::List(value)),
                (false, true) => Operation::Add(format!("{path}/-"), Content::Whole(value)),
                (false, false) => Operation::Add(format!("{path}/{index}"), Content::Whole(value)),
            });
            absent = false;
        }
    }

    fn within<'a>(
        &self,
        path: &str,
        before: &'a [Value],
        after: &'a [Value],
        operations: &mut Vec<Operation<'a>>,
    ) {
        for (old, new) in &self.staying {
            if let (Some(a), Some(b)) = (before.get(*old), after.get(*new))
                && !json_eq(a, b)
            {
                changes(&format!("{path}/{new}"), a, b, operations);
            }
        }
    }
}

/// The longest subsequence whose old indices rise; the new ones rise already.
fn rising(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // tails[n]: where the run of n + 1 pairs that ends lowest ends.
    let mut tails: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    let old = |index: &usize| pairs.get(*index).map_or(0, |(old, _)| *old);
    for (index, (this, _)) in pairs.iter().enumerate() {
        // Of the runs of one length the one that ends lowest can still grow most.
        let length = tails.partition_point(|tail| old(tail) < *this);
        before.push(
            length
                .checked_sub(1)
                .and_then(|last| tails.get(last).copied()),
        );
        match tails.get_mut(length) {
            Some(tail) => *tail = index,
            None => tails.push(index),
        }
    }
    let mut next = tails.last().copied();
    let mut longest = Vec::new();
    while let Some(index) = next {
        longest.extend(pairs.get(index).copied());
        next = before.get(index).copied().flatten();
    }
    longest.reverse();
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff<'a>(sent: &'a Value, wanted: &'a Value) -> Vec<Operation<'a>> {
        diff_replacing(sent, wanted, &HashSet::new())
    }
    use serde_json::json;

    fn check(sent: &Value, wanted: &Value) -> Value {
        let operations = diff(sent, wanted);
        let patch = serde_json::from_slice::<Value>(&to_text(&operations)).unwrap();
        let mut applied = sent.clone();
        json_patch::patch(
            &mut applied,
            &serde_json::from_value::<json_patch::Patch>(patch.clone()).unwrap(),
        )
        .unwrap();
        assert_eq!(&applied, wanted, "{patch}");
        patch
    }

    #[test]
    fn parents_come_with_the_first_that_needs_them() {
        let patch = check(
            &json!({}),
            &json!({"metadata": {"annotations": {"a/b": "1", "c~d": "2"}}, "spec": {"volumes": [{"name": "v"}, {"name": "w"}]}}),
        );
        assert_eq!(patch[0]["path"], "/spec");
        let patch = check(
            &json!({"spec": {}, "metadata": {"annotations": null}}),
            &json!({"metadata": {"annotations": {"a/b": "1", "c~d": "2"}}, "spec": {"volumes": [{"name": "v"}, {"name": "w"}]}}),
        );
        assert_eq!(
            patch,
            json!([
                {"op": "add", "path": "/spec/volumes", "value": [{"name": "v"}]},
                {"op": "add", "path": "/spec/volumes/-", "value": {"name": "w"}},
                {"op": "add", "path": "/metadata/annotations", "value": {"a/b": "1"}},
                {"op": "add", "path": "/metadata/annotations/c~0d", "value": "2"},
            ])
        );
    }

    #[test]
    fn indices_are_those_of_the_moment() {
        let sent = json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "x": {"httpGet": {"a": 1}}}, {"name": "c"}, {"name": "d"}], "initContainers": [{"name": "i"}]}});
        let wanted = json!({"spec": {"containers": [{"name": "b", "x": {"httpGet": {"b": 1}}}, {"name": "d"}, {"name": "e"}], "initContainers": []}});
        let patch = check(&sent, &wanted);
        let paths: Vec<_> = patch
            .as_array()
            .unwrap()
            .iter()
            .map(|operation| operation["path"].as_str().unwrap())
            .collect();
        assert_eq!(
            paths,
            [
                "/spec/initContainers/0",
                "/spec/containers/2",
                "/spec/containers/0",
                "/spec/containers/-",
                "/spec/containers/0/x/httpGet"
            ]
        );
    }

    #[test]
    fn nested_lists_change_by_their_keys() {
        let sent = json!({"spec": {"containers": [{"name": "a", "env": [{"name": "A", "value": "1"}, {"name": "B"}], "args": ["x"]}]}});
        let wanted = json!({"spec": {"containers": [{"name": "a", "env": [{"name": "C"}, {"name": "A", "value": "2"}], "args": ["x", "y"]}]}});
        let patch = check(&sent, &wanted);
        assert_eq!(patch.as_array().unwrap().len(), 4, "{patch}");
    }

    #[test]
    fn equal_is_nothing() {
        let pod = json!({"spec": {"containers": [{"name": "a"}], "x": null}});
        assert_eq!(diff(&pod, &pod), []);
        assert_eq!(diff(&json!({}), &json!({})), []);
    }

    proptest::proptest! {
        #[test]
        fn any_order_becomes_any_other(before in proptest::collection::vec(0_u8..6, 0..8), after in proptest::collection::vec(0_u8..6, 0..8)) {
            let pod = |names: &[u8], mark: u8| json!({"spec": {"containers": names.iter().map(|name| json!({"name": name.to_string(), "x": name % mark})).collect::<Vec<_>>()}});
            check(&pod(&before, 2), &pod(&after, 3));
        }
    }
}
