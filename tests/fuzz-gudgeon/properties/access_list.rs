//! What must hold of an access list, whatever its bytes are. Asked by the fuzzer, and by a test with its examples.

use std::collections::BTreeSet;

use api::yaml::{self, Limits, Node, Value};
use mcp::access::AccessList;

const LIMITS: Limits = Limits {
    bytes: 1 << 20,
    depth: 8,
    nodes: 100_000,
};

pub(crate) fn check(bytes: &[u8]) {
    is_accepted(bytes);
}

/// Whether it says who may connect.
pub(crate) fn is_accepted(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let read = AccessList::parse(&text);
    assert_eq!(read, AccessList::parse(&text));
    let list = match read {
        Ok(list) => list,
        Err(cause) => {
            assert!(
                !cause.contains(['\n', '\r']) && cause.len() < 100_000,
                "{cause:?}"
            );
            let line = cause
                .strip_prefix("line ")
                .and_then(|rest| rest.split_once(": "));
            let line: usize = line.expect("a line").0.parse().expect("a number");
            let lines = text.split(['\n', '\r']).count();
            assert!(line <= lines + 1, "{cause} of {lines}");
            return false;
        }
    };
    let (is_black, identities) = written(&text);
    let mut other = String::from("?");
    while identities.contains(&other) {
        other.push('?');
    }
    for one in &identities {
        let one = one.as_str();
        assert_eq!(list.allows([one]), !is_black, "{one:?}");
        assert_eq!(list.allows([&*other, one]), !is_black, "{one:?}");
    }
    assert_eq!(list.allows([&*other]), is_black);
    assert_eq!(list.allows([]), is_black);
    // The same list in other words.
    let allowed: Vec<_> = identities.iter().rev().collect();
    let again = serde_json::json!({"ALLOWED": allowed, "isblacklist": is_black}).to_string();
    let again = in_ascii(&again);
    assert_eq!(AccessList::parse(&again).as_ref(), Ok(&list), "{again}");
    true
}

/// JSON has characters as they are that YAML has as escapes only.
fn in_ascii(json: &str) -> String {
    json.chars()
        .map(|letter| match letter {
            ' '..='~' => letter.to_string(),
            _ => format!("\\U{:08x}", u32::from(letter)),
        })
        .collect()
}

/// What it says, read once more.
fn written(text: &str) -> (bool, BTreeSet<String>) {
    let node = yaml::read(text, LIMITS).expect("it was read");
    let field = |name: &str| {
        let Some(Value::Map(fields)) = node.as_ref().map(|node| &node.value) else {
            return None;
        };
        let mut fields = fields.iter();
        fields
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    };
    let is_black = match field("isBlackList").map(|node| &node.value) {
        Some(Value::Scalar(scalar)) => scalar.boolean() == Some(true),
        _ => false,
    };
    let identities = match field("allowed").map(|node| &node.value) {
        Some(Value::List(members)) => members.iter().map(scalar).collect(),
        _ => BTreeSet::new(),
    };
    (is_black, identities)
}

fn scalar(node: &Node) -> String {
    match &node.value {
        Value::Scalar(scalar) => scalar.text.clone(),
        Value::List(_) | Value::Map(_) => panic!("it was accepted"),
    }
}
