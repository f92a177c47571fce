//! The condition of a `status` that has the texts of its messages: Istio's definitions since 1.24 drop them from
//! `validationMessages`, which keep a code and a level there.

use serde_json::{Value, json};

const TYPE: &str = "Accepted";
const INVALID: &str = "Invalid";
const WARNINGS: &str = "Warnings";
/// Bytes of all texts. Chosen: as much as a review says.
const MAX_TEXT_BYTES: usize = 4096;
/// Fields of a message that those definitions drop.
const DROPPED: [&str; 2] = ["message", "path"];

/// Returns true if the server has these messages, whole or as its definition lets them be.
pub(crate) fn has_messages(there: &Value, messages: &[Value]) -> bool {
    let there = there.as_array().map(Vec::as_slice);
    let is_all = there.is_some_and(|there| there.len() == messages.len());
    is_all && there.into_iter().flatten().zip(messages).all(is_stored)
}

fn is_stored((there, message): (&Value, &Value)) -> bool {
    let (Some(there), Some(message)) = (there.as_object(), message.as_object()) else {
        return there == message;
    };
    let mut expected = message.iter();
    let is_there = |(name, value): (&String, &Value)| match there.get(name) {
        Some(stored) => stored == value,
        None => DROPPED.contains(&&**name),
    };
    expected.all(is_there) && there.keys().all(|name| message.contains_key(name))
}

/// Returns the conditions that an object is to have: those of others as they are, and one with these messages.
pub(crate) fn conditions(there: &Value, messages: &[Value], generation: i64) -> Vec<Value> {
    let others = there.as_array().into_iter().flatten();
    let mut conditions: Vec<_> = others.filter(|one| !is_ours(one)).cloned().collect();
    if !messages.is_empty() {
        conditions.push(condition(messages, generation));
    }
    conditions
}

/// Returns true if the server has these conditions, whole or as its definition lets ours be: that of Istio 1.24 drops the
/// generation.
pub(crate) fn has_conditions(there: &[Value], wanted: &[Value]) -> bool {
    let is_stored = |(there, wanted): (&Value, &Value)| {
        let mut less = wanted.clone();
        if let Some(fields) = less.as_object_mut() {
            fields.remove("observedGeneration");
        }
        there == wanted || is_ours(wanted) && *there == less
    };
    there.len() == wanted.len() && there.iter().zip(wanted).all(is_stored)
}

/// Returns true if others have conditions there.
pub(crate) fn has_others(conditions: &[Value]) -> bool {
    conditions.iter().any(|one| !is_ours(one))
}

fn is_ours(condition: &Value) -> bool {
    let field = |name| condition.get(name).and_then(Value::as_str);
    field("type") == Some(TYPE) && matches!(field("reason"), Some(INVALID | WARNINGS))
}

/// Without a time: each replica makes the same one.
fn condition(messages: &[Value], generation: i64) -> Value {
    let level = |message: &Value| message.get("level") == Some(&json!("ERROR"));
    let (status, reason) = match messages.iter().any(level) {
        true => ("False", INVALID),
        false => ("True", WARNINGS),
    };
    json!({
        "type": TYPE, "status": status, "reason": reason, "message": text(messages),
        "observedGeneration": generation.to_string(),
    })
}

/// All texts, or those of the first messages and the number of the others.
fn text(messages: &[Value]) -> String {
    let mut text = String::new();
    for (index, message) in messages.iter().enumerate() {
        let field = |name| message.get(name).and_then(Value::as_str);
        let path = field("path").filter(|path| !path.is_empty());
        let path = path.map(|path| format!("{path}: "));
        let one = path.unwrap_or_default() + field("message").unwrap_or_default();
        let separator = if index == 0 { "" } else { "; " };
        let room = MAX_TEXT_BYTES.saturating_sub(text.len() + separator.len());
        if one.len() <= room {
            text.extend([separator, &one]);
            continue;
        }
        let mut more = messages.len() - index;
        if index == 0 {
            text.push_str(&one[..one.floor_char_boundary(room)]);
            text.push('…');
            more -= 1;
        }
        if more > 0 {
            text.push_str(&format!("; {more} more: see /debug/configz"));
        }
        break;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: &str, text: &str) -> Value {
        json!({"type": {"code": "IST0106"}, "level": level, "path": "spec.a", "message": text})
    }

    #[test]
    fn messages_are_there_whole_or_without_their_texts() {
        let messages = [message("ERROR", "b"), message("WARNING", "c")];
        let dropped = |level| json!({"type": {"code": "IST0106"}, "level": level});
        let more = json!({"type": {"code": "IST0106"}, "level": "ERROR", "documentationUrl": "x"});
        for (there, is_so) in [
            (json!(messages), true),
            (json!([dropped("ERROR"), dropped("WARNING")]), true),
            (json!([message("ERROR", "b"), dropped("WARNING")]), true),
            (json!([message("ERROR", "x"), dropped("WARNING")]), false),
            (json!([dropped("ERROR"), dropped("ERROR")]), false),
            (json!([more, dropped("WARNING")]), false),
            (json!([dropped("ERROR")]), false),
            (json!([{"level": "ERROR"}, {"level": "WARNING"}]), false),
            (json!(["ERROR", 5]), false),
            (json!("none"), false),
            (Value::Null, false),
        ] {
            assert_eq!(has_messages(&there, &messages), is_so, "{there}");
        }
    }

    #[test]
    fn a_condition_stands_beside_those_of_others() {
        let other = json!({"type": TYPE, "status": "True", "reason": "Accepted"});
        let old = json!({"type": TYPE, "status": "True", "reason": WARNINGS, "message": "old"});
        let new = json!({"type": TYPE, "status": "False", "reason": "Invalid",
            "message": "spec.a: b; spec.a: c", "observedGeneration": "3"});
        let messages = [message("WARNING", "b"), message("ERROR", "c")];
        for there in [json!([other, old]), json!([old, other]), json!([other])] {
            let all = conditions(&there, &messages, 3);
            assert_eq!(all, [other.clone(), new.clone()], "{there}");
            assert!(has_others(&all));
            assert_eq!(
                conditions(&there, &[], 3),
                std::slice::from_ref(&other),
                "{there}"
            );
        }
        for there in [json!([old]), json!([]), json!(5), Value::Null] {
            let all = conditions(&there, &messages, 3);
            assert_eq!(all, std::slice::from_ref(&new), "{there}");
            assert!(!has_others(&all));
            assert_eq!(conditions(&there, &[], 3), [] as [Value; 0], "{there}");
        }
        let warned = conditions(&Value::Null, &messages[..1], 3);
        assert_eq!(
            (&warned[0]["status"], &warned[0]["reason"]),
            (&json!("True"), &json!("Warnings"))
        );
    }

    #[test]
    fn a_condition_is_there_with_its_generation_or_without() {
        let other = json!({"type": "Reconciled", "status": "True", "observedGeneration": "3"});
        let wanted = conditions(&json!([other]), &[message("ERROR", "b")], 3);
        let without = |at: usize| {
            let mut there = wanted.clone();
            there[at]
                .as_object_mut()
                .unwrap()
                .remove("observedGeneration");
            there
        };
        assert!(has_conditions(&wanted, &wanted) && has_conditions(&without(1), &wanted));
        assert!(
            !has_conditions(&without(0), &wanted),
            "another's is as it is"
        );
        assert!(!has_conditions(&wanted[..1], &wanted));
        let later = conditions(&json!([other]), &[message("ERROR", "b")], 4);
        assert!(!has_conditions(&wanted, &later));
    }

    #[test]
    fn its_text_is_bounded() {
        let all = |one: &str, count| text(&vec![message("ERROR", one); count]);
        assert_eq!(all("b", 2), "spec.a: b; spec.a: b");
        let exact = "x".repeat(MAX_TEXT_BYTES - "spec.a: ".len());
        assert_eq!(all(&exact, 1).len(), MAX_TEXT_BYTES);
        assert!(all(&exact, 3).ends_with("x; 2 more: see /debug/configz"));
        let long = all(&"ü".repeat(MAX_TEXT_BYTES), 3);
        assert!(long.ends_with("ü…; 2 more: see /debug/configz"), "{long}");
        assert!(all(&"ü".repeat(MAX_TEXT_BYTES), 1).ends_with("ü…"));
        assert!(all("b", 5000).len() < MAX_TEXT_BYTES + 64);
    }
}
