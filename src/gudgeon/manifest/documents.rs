//! A file as its documents, each with the line that separates it from the one before.

use api::yaml::{self, Limits};
use serde_json::Value;

use super::out::Out;
use crate::admission::strict;

/// The limits of one document: bytes, depth, and values after aliases.
const LIMITS: Limits = Limits {
    bytes: 6 << 20,
    depth: 128,
    nodes: 1_000_000,
};

/// A document with its separator; all pieces together are the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    /// The line `---`, or what of it is no content; a byte order mark at the very beginning.
    pub(crate) separator: &'a str,
    pub(crate) body: &'a str,
}

impl Piece<'_> {
    /// Returns true if there are only blank lines, comments and directives.
    pub(super) fn is_blank(&self) -> bool {
        self.body.lines().all(|line| {
            stands_for_nothing(line) || line.trim().starts_with('%') || line.trim() == "..."
        })
    }

    /// Ends the line of the text before the body.
    pub(super) fn begin(&self, out: &mut Out<'_>) {
        if !self.separator.is_empty() && !self.separator.ends_with(['\n', '\u{feff}']) {
            out.push_str("\n");
        }
    }

    /// Writes `text` in the body's place, with the ends of lines that the body has.
    pub(super) fn replace(&self, text: &str, out: &mut Out<'_>) {
        let windows = self
            .body
            .lines()
            .zip(self.body.split('\n'))
            .next()
            .is_some_and(|(_, first)| first.ends_with('\r'));
        if windows {
            out.push_str(&text.replace('\n', "\r\n"));
        } else {
            out.push_str(text);
        }
    }
}

/// Cuts a file at its lines `---`. From a line `...` to the next `---` there are only directives of the document that follows:
/// they are part of the separator.
pub(crate) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mark, rest) = match text.strip_prefix('\u{feff}') {
        Some(rest) => text.split_at(text.len() - rest.len()),
        None => ("", text),
    };
    let mut separator = mark;
    let (mut start, mut at) = (0, 0);
    // The position of the line `...` that ends a document.
    let mut ended = None;
    for line in rest.split_inclusive('\n') {
        let here = at;
        at += line.len();
        if line.trim_end() == "..." {
            ended.get_or_insert(here);
            continue;
        }
        let Some(after) = line.strip_prefix("---") else {
            // Content: the YAML parser reports its errors.
            if ended.is_some() && !line.starts_with('%') && !stands_for_nothing(line) {
                ended = None;
            }
            continue;
        };
        if !after.is_empty() && !after.starts_with([' ', '\t', '\r', '\n']) {
            continue;
        }
        let from = ended.take().unwrap_or(here);
        let body = rest.get(start..from).unwrap_or_default();
        // Before a `---` that begins the file there is no document.
        if !(pieces.is_empty() && body.is_empty() && separator.is_empty()) {
            pieces.push(Piece { separator, body });
        }
        // Content may follow on the same line.
        let content = after.trim();
        let end = if content.is_empty() || content.starts_with('#') {
            at
        } else {
            here + "---".len()
        };
        separator = rest.get(from..end).unwrap_or_default();
        start = end;
    }
    let body = rest.get(start..).unwrap_or_default();
    if !(body.is_empty() && separator.is_empty()) {
        pieces.push(Piece { separator, body });
    }
    pieces
}

fn stands_for_nothing(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

/// Ensures that the following text begins a document.
pub(super) fn separate(out: &mut Out<'_>, next: &str) {
    if !out.ends_line() {
        out.push_str("\n");
    }
    let begins = next
        .trim_start_matches('\u{feff}')
        .lines()
        .find(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .is_none_or(|line| line.starts_with("---"));
    if !begins {
        out.push_str("---\n");
    }
}

/// Parses the object of a document; `None` if there is none.
pub(super) fn read(text: &str) -> Result<Option<Value>, String> {
    // JSON may be indented by tabs, which YAML refuses.
    if text.trim_start().starts_with('{')
        && text.len() <= LIMITS.bytes
        // This parse bounds the depth, which `strict` leaves to its caller.
        && serde_json::from_str::<Value>(text).is_ok()
    {
        return strict(text).map(Some).map_err(|cause| cause.to_string());
    }
    let node = yaml::read(text, LIMITS).map_err(|cause| cause.to_string())?;
    let Some(node) = node else { return Ok(None) };
    Ok(Some(inject::yaml_to_json(&node)).filter(Value::is_object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<(&str, &str)> {
        let found = pieces(text);
        let again: String = found
            .iter()
            .flat_map(|piece| [piece.separator, piece.body])
            .collect();
        assert_eq!(again, text);
        found
            .iter()
            .map(|piece| (piece.separator, piece.body))
            .collect()
    }

    #[test]
    fn a_file_is_its_pieces() {
        assert_eq!(cut(""), []);
        assert_eq!(cut("a: 1"), [("", "a: 1")]);
        assert_eq!(cut("---\na: 1\n"), [("---\n", "a: 1\n")]);
        assert_eq!(
            cut("# c\n---\na: |\n  ---\n--- # d\n\n---\r\nb: 2\r\n---"),
            [
                ("", "# c\n"),
                ("---\n", "a: |\n  ---\n"),
                ("--- # d\n", "\n"),
                ("---\r\n", "b: 2\r\n"),
                ("---", "")
            ]
        );
        assert_eq!(
            cut("--- {a: 1}\n---x: 1\n"),
            [("---", " {a: 1}\n---x: 1\n")]
        );
        assert_eq!(
            cut("a: 1\n...\n# c\n%YAML 1.1\n--- # d\nb: 2\n...\n"),
            [
                ("", "a: 1\n"),
                ("...\n# c\n%YAML 1.1\n--- # d\n", "b: 2\n...\n")
            ]
        );
        assert_eq!(
            cut("a: 1\n...\nb: 2\n---\nc: 3\n"),
            [("", "a: 1\n...\nb: 2\n"), ("---\n", "c: 3\n")]
        );
        assert_eq!(cut("\u{feff}a: 1\n"), [("\u{feff}", "a: 1\n")]);
        assert_eq!(
            cut("\u{feff}---\na: 1\n"),
            [("\u{feff}", ""), ("---\n", "a: 1\n")]
        );
    }

    #[test]
    fn other_documents_than_objects_are_skipped() {
        for text in ["", "# c\n", "- 1\n", "text", "~"] {
            assert_eq!(read(text), Ok(None), "{text}");
        }
        assert!(read("a: [").is_err());
        for twice in [r#"{"a": 1, "b": {"c": 2, "c": 3}}"#, "a: 1\na: 2\n"] {
            let cause = read(twice).unwrap_err();
            assert!(cause.contains(" twice"), "{cause}");
        }
        assert_eq!(
            read("{\n\t\"a\": 1.10\n}").unwrap().unwrap().to_string(),
            r#"{"a":1.10}"#
        );
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned()
            + &('b'..='h')
                .map(|name| {
                    let before = char::from(name as u8 - 1);
                    let list = format!("*{before},").repeat(10);
                    format!("{name}: &{name} [{list}]\n")
                })
                .collect::<String>();
        assert!(read(&bomb).is_err());
        assert!(read(&"[".repeat(5000)).is_err());
        assert!(read(&format!("a: {}", "x".repeat(6 << 20))).is_err());
    }
}
