//! Messages without what they quote of a pod or of the environment: for the log and the page.
//!
//! Whoever made the pod is told what was wrong with which words. Operators read the same without them: a value that is in
//! the wrong place may be a password.

use std::borrow::Cow;

use serde_json::Value;

use crate::hidden::{HIDDEN, quoted};

/// Shorter values are only looked for between quotation marks: they are in every sentence.
const SHORT: usize = 4;
/// Of the environment only what is long enough to be a secret.
const TOKEN: usize = 8;

/// What must not be read again.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    /// Each as it is and as it is quoted; the longest first, so that none is left in pieces.
    values: Vec<(String, String)>,
}

impl Secrets {
    /// The values of a pod's annotations, and of the environment.
    pub(super) fn of(object: &Value) -> Self {
        let annotations = object
            .get("metadata")
            .and_then(|metadata| metadata.get("annotations"))
            .and_then(Value::as_object);
        let mut values: Vec<String> = annotations
            .into_iter()
            .flat_map(|annotations| annotations.values())
            .filter_map(Value::as_str)
            .filter(|value| !value.is_empty())
            .map(ToOwned::to_owned)
            .collect();
        values.extend(
            std::env::vars_os()
                .filter_map(|(_, value)| value.into_string().ok())
                .filter(|value| value.len() >= TOKEN),
        );
        values.sort_unstable_by_key(|value| std::cmp::Reverse(value.len()));
        let quoted = |value: &str| {
            let quoted = format!("{value:?}");
            let inner = quoted
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'));
            inner.unwrap_or_default().to_owned()
        };
        let values = values.into_iter().map(|value| {
            let quoted = quoted(&value);
            (value, quoted)
        });
        Self {
            values: values.collect(),
        }
    }

    /// The text without them, and without what is quoted of them; `all`: without anything that is quoted with `"`.
    pub(super) fn hide(&self, text: &str, all: bool) -> String {
        let mut text = Cow::Borrowed(text);
        for (value, quoted) in &self.values {
            let single = format!("'{value}'");
            for form in [value, quoted] {
                if form.len() >= SHORT && text.contains(form.as_str()) {
                    text = text.replace(form.as_str(), HIDDEN).into();
                }
            }
            if text.contains(&single) {
                text = text.replace(&single, &format!("'{HIDDEN}'")).into();
            }
        }
        let is_known = |inner: &str| self.values.iter().any(|(_, quoted)| quoted.contains(inner));
        quoted(&text, |inner| all || is_known(inner))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_stay_and_values_go() {
        let pod = json!({"metadata": {"annotations": {"a": "80,abc", "b": "it's \"so\"\n", "c": "x", "d": "true", "e": ""}}});
        let secrets = Secrets::of(&pod);
        for (text, all, shown) in [
            (
                "nothing of it, \"quoted\" or not",
                false,
                "nothing of it, \"quoted\" or not",
            ),
            (
                "nothing of it, \"quoted\" or not",
                true,
                "nothing of it, \"…\" or not",
            ),
            (
                "invalid value '80,abc' for annotation 'a': ports invalid: got \"abc\"",
                false,
                "invalid value '…' for annotation 'a': ports invalid: got \"…\"",
            ),
            (
                "invalid value 'it's \"so\"\n' for annotation 'b'",
                false,
                "invalid value '…' for annotation 'b'",
            ),
            ("got \"it's \\\"so\\\"\\n\" there", false, "got \"…\" there"),
            ("invalid value 'x' for x", false, "invalid value '…' for x"),
            (
                "template line 4: true it is",
                true,
                "template line 4: … it is",
            ),
            ("an end \"that never", false, "an end \"…"),
            ("", true, ""),
        ] {
            assert_eq!(secrets.hide(text, all), shown, "{text}");
        }
    }
}
