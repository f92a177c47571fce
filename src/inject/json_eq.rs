//! Equality and differences of two JSON values. One is usually derived from the other, so keys are in the same order, and
//! the comparison seldom looks a key up.

use serde_json::{Map, Value};

/// Null is as good as absent.
pub(crate) fn present(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| !value.is_null())
}

/// The keys, sorted, whose values differ.
pub(crate) fn changed<'a>(
    a: &'a Map<String, Value>,
    b: &'a Map<String, Value>,
    except: &[&str],
) -> Vec<&'a str> {
    let differ = |key: &str, a: Option<&Value>, b: Option<&Value>| match (present(a), present(b)) {
        _ if except.contains(&key) => false,
        (Some(a), Some(b)) => !json_eq(a, b),
        (a, b) => a.is_some() != b.is_some(),
    };
    let mut keys: Vec<&str> = Vec::new();
    let (mut of_a, mut of_b) = (a.iter().peekable(), b.iter().peekable());
    // The new pod is derived from the old one: entries are in the same order, up to an added or removed one.
    while let (Some(&(key, a)), Some(&(other, b))) = (of_a.peek(), of_b.peek())
        && key == other
    {
        if differ(key, Some(a), Some(b)) {
            keys.push(key);
        }
        _ = (of_a.next(), of_b.next());
    }
    keys.extend(
        of_a.filter_map(|(key, a)| differ(key, Some(a), b.get(key)).then_some(key.as_str())),
    );
    keys.extend(of_b.filter_map(|(key, b)| {
        (!a.contains_key(key) && differ(key, None, Some(b))).then_some(key.as_str())
    }));
    keys.sort_unstable();
    keys
}

/// Returns true if two values are equal; takes a fast path if their keys are in the same order.
pub(crate) fn json_eq(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            if a.len() != b.len() {
                return false;
            }
            for ((key, value), (other_key, other)) in a.iter().zip(b) {
                if key != other_key {
                    // The keys are in another order: maps compare by looking them up.
                    return a == b;
                }
                if !json_eq(value, other) {
                    return false;
                }
            }
            true
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| json_eq(a, b))
        }
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn keys_whose_values_differ() {
        let a = json!({"d": 1, "b": {"x": 1, "y": 2}, "n": null, "c": 2, "g": 3, "e": [1]});
        let b = json!({"d": 1, "b": {"y": 2, "x": 1}, "m": null, "e": [2], "c": 2, "a": 4});
        let keys = changed(a.as_object().unwrap(), b.as_object().unwrap(), &[]);
        assert_eq!(keys, ["a", "e", "g"]);
        let keys = changed(a.as_object().unwrap(), b.as_object().unwrap(), &["e", "x"]);
        assert_eq!(keys, ["a", "g"]);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), (0..3).prop_map(Value::from)];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::vec(("[a-c]", inner), 0..4)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_is_what_looking_for_keys_finds(a in value(), b in value()) {
            prop_assert_eq!(json_eq(&a, &b), a == b);
            prop_assert!(json_eq(&a, &a));
            if let (Some(a), Some(b)) = (a.as_object(), b.as_object()) {
                let mut keys: Vec<&str> = a.keys().chain(b.keys()).map(String::as_str).collect();
                keys.sort_unstable();
                keys.dedup();
                keys.retain(|key| present(a.get(*key)) != present(b.get(*key)));
                prop_assert_eq!(changed(a, b, &[]), keys);
            }
        }
    }
}
