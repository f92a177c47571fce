//! Redacts messages for the log and the page: quotations of a pod or of the environment.
//!
//! The response to the pod's author quotes the wrong values. Operators read the same without them: a misplaced value may be
//! a password.

use std::borrow::Cow;

use api::redact::{REDACTED, redact_quoted_if};
use serde_json::Value;

/// Shorter values are redacted between quotation marks only: they occur in any sentence.
const MIN_UNQUOTED_LENGTH: usize = 4;
/// Bytes of a message that are redacted and kept: four times what a decision keeps of one.
const REDACTED_BYTES: usize = 4 << 10;
/// Bytes of an environment variable's value at least: shorter ones are not redacted.
const MIN_SECRET_BYTES: usize = 8;

/// The values to redact.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    /// Each value plain and quoted; the longest first, so that none is redacted in part.
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
                .filter(|value| value.len() >= MIN_SECRET_BYTES),
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

    /// Returns the text without the values, and without quotations of them; `all`: without anything that is quoted with `"`.
    ///
    /// Only the first [`REDACTED_BYTES`] bytes are processed and returned, so that a message that quotes a whole pod costs no
    /// more than another: the whole pod may be in it, once for each of its annotations.
    pub(super) fn redact(&self, text: &str, all: bool) -> String {
        let mut text = Cow::Borrowed(self.beginning(text));
        for (value, quoted) in &self.values {
            let single = format!("'{value}'");
            for form in [value, quoted] {
                if form.len() >= MIN_UNQUOTED_LENGTH && text.contains(form.as_str()) {
                    text = text.replace(form.as_str(), REDACTED).into();
                }
            }
            if text.contains(&single) {
                text = text.replace(&single, &format!("'{REDACTED}'")).into();
            }
        }
        let is_known = |inner: &str| self.values.iter().any(|(_, quoted)| quoted.contains(inner));
        redact_quoted_if(&text, |inner| all || is_known(inner))
    }
}

impl Secrets {
    /// The beginning of a text; where it is cut, no value stays in pieces.
    fn beginning<'a>(&self, text: &'a str) -> &'a str {
        if text.len() <= REDACTED_BYTES {
            return text;
        }
        let cut = api::text::cut(text, REDACTED_BYTES);
        let begin = |value: &str| {
            let first = (MIN_UNQUOTED_LENGTH..=2 * MIN_SECRET_BYTES)
                .rev()
                .find_map(|end| value.get(..end))?;
            cut.find(first)
        };
        // A value that begins within the text is whole and redacted, or the text is cut before it.
        let values = self.values.iter();
        let values = values.filter(|(value, _)| !cut.contains(value.as_str()));
        let torn = values.flat_map(|(value, quoted)| [begin(value), begin(quoted)]);
        let end = torn.flatten().min().unwrap_or(cut.len());
        cut.get(..end).unwrap_or_default()
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
        for (text, all, redacted) in [
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
            assert_eq!(secrets.redact(text, all), redacted, "{text}");
        }
    }

    #[test]
    fn a_message_without_end_costs_no_more() {
        let many = (0..20_000).map(|at| (format!("k{at}"), json!(format!("{at:05}"))));
        let many: serde_json::Map<_, _> = many.collect();
        let secrets = Secrets::of(&json!({"metadata": {"annotations": many}}));
        let text = "x".repeat(5 << 20);
        assert_eq!(secrets.redact(&text, false).len(), REDACTED_BYTES);
    }

    #[test]
    fn a_cut_message_contains_no_piece_of_a_value() {
        let secret = "s3cret-".repeat(400);
        let secrets = Secrets::of(&json!({"metadata": {"annotations": {"a": secret}}}));
        let text = format!(
            "{}got {secret} there",
            "x ".repeat(REDACTED_BYTES / 2 - 100)
        );
        let redacted = secrets.redact(&text, false);
        assert!(!redacted.contains("s3cret"), "{redacted}");
        assert!(redacted.ends_with("got "), "{redacted}");
    }
}
