//! A cache of parsed outputs of templates. The replicas of one workload make a template print the same text, because the
//! container itself asks for the differences between them (name, address); the outputs for two workloads differ in a few words.
//! So the last few texts are not parsed again.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::output_types::TypingReport;
use crate::text_slots::{self, TextSlot};

/// Texts that are remembered, the one used last first.
const CAPACITY: usize = 8;
/// Longer ones are not: stock templates print a tenth of it.
const MAX_BYTES: usize = 64 << 10;

/// A value that contains texts.
pub(crate) trait TextTree {
    /// The text at the end of a trail.
    fn text_mut(&mut self, trail: &[usize]) -> Option<&mut String>;
}

impl TextTree for Value {
    fn text_mut(&mut self, trail: &[usize]) -> Option<&mut String> {
        match (self, trail) {
            (Self::String(text), []) => Some(text),
            (Self::Array(items), [index, trail @ ..]) => items.get_mut(*index)?.text_mut(trail),
            (Self::Object(entries), [index, trail @ ..]) => {
                entries.values_mut().nth(*index)?.text_mut(trail)
            }
            (
                Self::Null
                | Self::Bool(_)
                | Self::Number(_)
                | Self::String(_)
                | Self::Array(_)
                | Self::Object(_),
                _,
            ) => None,
        }
    }
}

/// The value parsed from a text and the fields that were pruned; `None` for an empty text.
type Parsed<T> = Option<(T, Vec<String>)>;

struct CachedText<T> {
    text: String,
    slots: Vec<TextSlot>,
    read: Parsed<T>,
}

pub(crate) struct RenderCache<T>(Mutex<VecDeque<CachedText<T>>>);

impl<T> Default for RenderCache<T> {
    fn default() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }
}

impl<T> fmt::Debug for RenderCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RenderCache")
    }
}

impl<T: Clone + TextTree> RenderCache<T> {
    /// The parsed value of `text`, from the cache or by `read`. An error is not cached.
    pub(crate) fn get<E>(
        &self,
        text: String,
        read: impl FnOnce(&str) -> Result<Option<(T, TypingReport)>, E>,
    ) -> Result<Parsed<T>, E> {
        if text.len() > MAX_BYTES {
            return Ok(read(&text)?.map(|(value, report)| (value, report.pruned)));
        }
        if let Some(cached) = self.get_cached(&text) {
            return Ok(cached);
        }
        // The lock is not held while a text is parsed: two pods may parse the same one, and neither waits.
        let mut slots = Vec::new();
        let read = read(&text)?.map(|(mut value, report)| {
            slots = found(&text, &report, &mut value);
            (value, report.pruned)
        });
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        texts.truncate(CAPACITY - 1);
        texts.push_front(CachedText {
            text,
            slots,
            read: read.clone(),
        });
        Ok(read)
    }

    fn get_cached(&self, text: &str) -> Option<Parsed<T>> {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (place, read) = texts
            .iter()
            .enumerate()
            .find_map(|(place, cached)| Some((place, cached.with(text)?)))?;
        let found = texts.remove(place)?;
        texts.push_front(found);
        Some(read)
    }
}

impl<T: Clone + TextTree> CachedText<T> {
    /// The parsed value of a text that differs from this one in its slots only.
    fn with(&self, text: &str) -> Option<Parsed<T>> {
        let differences = text_slots::differences(&self.text, &self.slots, text)?;
        let mut read = self.read.clone();
        for (number, value) in differences {
            let (made, _) = read.as_mut()?;
            *made.text_mut(&self.slots.get(number)?.trail)? = value;
        }
        Some(read)
    }
}

/// The slots of a text, in their order.
fn found<T: TextTree>(text: &str, report: &TypingReport, made: &mut T) -> Vec<TextSlot> {
    let mut slots: Vec<TextSlot> = Vec::new();
    for scalar in &report.texts {
        let value = made.text_mut(&scalar.trail);
        slots.extend(value.and_then(|value| TextSlot::at(text, scalar, value)));
    }
    slots.sort_unstable_by_key(TextSlot::begin);
    slots
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fragment::Fragment;
    use crate::output_error::OutputError;
    use crate::{layer, yaml};
    use proptest::prelude::*;
    use serde_json::json;

    /// The parsed value of a template's text, without a cache.
    fn fresh<T>(
        text: &str,
        read: fn(&yaml::Node, &mut TypingReport) -> Result<T, OutputError>,
    ) -> Result<Option<(T, TypingReport)>, OutputError> {
        let Some(node) = yaml::read(text).map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let mut report = TypingReport::default();
        read(&node, &mut report).map(|value| Some((value, report)))
    }

    #[test]
    fn the_last_texts_are_known() {
        let cache = RenderCache::default();
        let mut reads = 0;
        let mut get = |text: &str| {
            let got = cache.get(text.to_owned(), |text| {
                reads += 1;
                if text == "bad" {
                    return Err(());
                }
                Ok(Some((json!(text.len()), TypingReport::default())))
            });
            (got.map(|read| read.unwrap().0), reads)
        };
        assert_eq!(get("a"), (Ok(json!(1)), 1));
        for length in 2..=CAPACITY {
            assert_eq!(get(&"b".repeat(length)), (Ok(json!(length)), length));
            assert_eq!(get("a"), (Ok(json!(1)), length));
        }
        // With one more text, the least recently used one is evicted.
        assert_eq!(get("c"), (Ok(json!(1)), CAPACITY + 1));
        assert_eq!(get("a"), (Ok(json!(1)), CAPACITY + 1));
        assert_eq!(get("bb"), (Ok(json!(2)), CAPACITY + 2));
        for more in 3..5 {
            assert_eq!(get("bad"), (Err(()), CAPACITY + more));
        }
        let long = "d".repeat(MAX_BYTES + 1);
        for more in 5..7 {
            assert_eq!(get(&long), (Ok(json!(MAX_BYTES + 1)), CAPACITY + more));
        }
    }

    /// Counts the texts that are parsed; each result must equal that of a parse without cache.
    fn reads<T: Clone + TextTree + PartialEq + fmt::Debug>(
        texts: &[String],
        read: fn(&yaml::Node, &mut TypingReport) -> Result<T, OutputError>,
    ) -> usize {
        let cache = RenderCache::default();
        let mut reads = 0;
        for text in texts {
            let wanted =
                fresh(text, read).map(|read| read.map(|(value, report)| (value, report.pruned)));
            let cached = cache.get(text.clone(), |text| {
                reads += 1;
                fresh(text, read)
            });
            assert_eq!(cached, wanted, "{text}");
        }
        reads
    }

    /// A template's text with three words in it.
    fn overlay_text(quoted: &str, plain: &str, label: &str) -> String {
        format!(
            "metadata:\n  labels:\n    a: {label}\n    b: {}\nspec:\n  future: {plain}\n  containers:\n  - name: p\n    image: {label} # why\n    \
             args: [--a, {label}, {}]\n    env:\n    - {{name: A, value: {}}}\n    - name: B\n      value: |\n        {}\n    - {{name: C, value: {label}}}\n",
            json!(quoted),
            json!(quoted),
            json!(json!({"app": quoted}).to_string()),
            json!({"app": quoted}),
        )
    }

    #[test]
    fn texts_that_differ_in_words_are_known() {
        let texts = ["web", "other", "a b", "x\"y\\z", "#:", ""];
        let texts: Vec<String> = texts.map(|word| overlay_text(word, "same", "v1")).into();
        assert_eq!(reads(&texts, layer::read), 1);
        let texts = ["v1", "web-2", "a.b/c_d", "1", "true", "0x1F"];
        let texts: Vec<String> = texts.map(|word| overlay_text("same", "same", word)).into();
        assert_eq!(reads(&texts, layer::read), 1);
        // A text that would not be one word, and one in a place that wants no text.
        let others = [
            "null", "~", "''", "a: b", "[x]", "", "é", "- b", "&a b", "*a", "!!int 3", "a\n   c",
        ];
        let texts: Vec<String> = others.map(|word| overlay_text("same", "same", word)).into();
        assert!(reads(&texts, layer::read) >= others.len() - 1);
        let texts: Vec<String> = ["a", "b"].map(|word| overlay_text("x", word, "y")).into();
        assert_eq!(reads(&texts, layer::read), 2);
    }

    #[test]
    fn names_numbers_and_aliases_are_read() {
        let rows = [
            (
                "containers:\n- {name: \"a\"}\n- {name: b}\n",
                "\"a\"",
                "\"b\"",
            ),
            ("containers:\n- {name: a, tty: yes}\n", "yes", "no"),
            (
                "containers:\n- {name: a, livenessProbe: {httpGet: {port: http}}}\n",
                "http",
                "8080",
            ),
            (
                "containers:\n- {name: a, image: &i \"x\", tty: true, workingDir: *i}\n",
                "\"x\"",
                "\"y\"",
            ),
            (
                "containers:\n- &c {name: a, image: \"x\"}\nvolumes:\n- *c\n",
                "\"x\"",
                "\"y\"",
            ),
            (
                "volumes:\n- {name: a, configMap: {\"name\": \"x\"}}\n",
                "\"x\"",
                "\"y\"",
            ),
            ("podRedirectAnnot: {\"a\": x}\n", "\"a\"", "\"b\""),
        ];
        for (text, one, other) in rows {
            let texts = [text.to_owned(), text.replace(one, other)];
            assert_eq!(reads(&texts, Fragment::read), 2, "{text}");
        }
        let text = "podRedirectAnnot: {a: x, b: \"c\"}\nsecurityContext: {seLinuxOptions: {user: u}}\ndnsConfig:\n  searches:\n  - d\n";
        let rows = [
            ("a: x", "a: y"),
            ("\"c\"", "\"\\\\d\\\"\""),
            ("user: u", "user: v"),
            ("- d", "- other.$(NAME)"),
        ];
        let mut texts = vec![text.to_owned()];
        texts.extend(rows.map(|(one, other)| text.replace(one, other)));
        assert_eq!(reads(&texts, Fragment::read), 1);
    }

    fn word() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => "[a-z0-9][a-zA-Z0-9./_-]{0,8}",
            2 => "[ -~]{0,8}",
            1 => "[ -~\t\n\r\u{85}\u{2028}é]{0,6}",
            1 => Just("null".to_owned()),
            1 => "[a-z ]{1000,1100}",
        ]
    }

    proptest! {
        #[test]
        fn render_cache_does_not_change_output(
            parts in prop::collection::vec((word(), word(), word()), 2..6)
        ) {
            let texts: Vec<String> = parts
                .iter()
                .map(|(quoted, plain, label)| overlay_text(quoted, plain, label))
                .collect();
            reads(&texts, layer::read);
        }

        #[test]
        fn all_changes_are_read(
            at in 0..600_usize, length in 0..4_usize, put in "[ -~\n]{0,4}", parts in (word(), word())
        ) {
            let text = overlay_text(&parts.0, "f", "l");
            let Some((begin, end)) = text.split_at_checked(at.min(text.len())) else { return Ok(()) };
            let Some(end) = end.get(length.min(end.len())..) else { return Ok(()) };
            let texts = [text.clone(), format!("{begin}{put}{end}"), overlay_text(&parts.1, "f", "l")];
            reads(&texts, layer::read);
        }
    }
}
