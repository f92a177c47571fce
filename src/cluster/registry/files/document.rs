//! Text as its documents: YAML, many in one file, or JSON.

use std::iter;

use api::yaml::{self, Limits, Malformed, Node, Value};

/// Of one document, and of a request's body.
pub(in crate::registry) const MAX_BYTES: usize = 4 << 20;
/// In one file.
const MAX_DOCUMENTS: usize = 10_000;

/// Of one document. What a cluster prints has some hundred values for each pod.
const LIMITS: Limits = Limits {
    bytes: MAX_BYTES,
    depth: 96,
    nodes: 500_000,
};

/// Hands over the documents that say something, with the lines of the whole text. One at a time is in memory.
///
/// # Errors
///
/// Of the first that cannot be read: what was handed over before does not count, either.
pub(super) fn each(bytes: &[u8], mut take: impl FnMut(&Node)) -> Result<(), Malformed> {
    let text = std::str::from_utf8(bytes).map_err(|error| whole(error.to_string()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // JSON may be indented by tabs, which YAML refuses.
    if text.trim_start().starts_with(['{', '['])
        && text.len() <= MAX_BYTES
        && let Ok(json) = serde_json::from_str(text)
    {
        take(&Node::of_json(&json));
        return Ok(());
    }
    // Values with their text: they are fewer than bytes, and an escape is at most half as long again as it was written. The rest
    // is for aliases, which are bounded in each document, and would not be in many.
    let most = text.len().saturating_mul(3).saturating_add(MAX_BYTES);
    let (mut found, mut size) = (0_usize, 0_usize);
    for (before, piece) in pieces(text) {
        if is_blank(piece) {
            continue;
        }
        let read = yaml::read(piece, LIMITS).map_err(|malformed| Malformed {
            // What is wrong with all of it is so where it begins.
            line: malformed.line.max(1).saturating_add(before),
            ..malformed
        })?;
        let Some(mut node) = read.filter(|node| !node.is_null()) else {
            continue;
        };
        found = found.saturating_add(1);
        if found > MAX_DOCUMENTS {
            return Err(whole(format!("more than {MAX_DOCUMENTS} documents")));
        }
        size = size.saturating_add(shift(&mut node, before));
        if size > most {
            return Err(Malformed {
                line: node.line,
                cause: format!("aliases of all documents stand for more than {most} bytes"),
            });
        }
        take(&node);
    }
    Ok(())
}

fn whole(cause: String) -> Malformed {
    Malformed { line: 0, cause }
}

/// Cut at its lines `---`, each with the number of lines before it. What follows on such a line belongs to its document.
fn pieces(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = Some((0_usize, text));
    iter::from_fn(move || {
        let (before, text) = rest.take()?;
        let (mut at, mut number) = (0_usize, before);
        for line in text.split_inclusive('\n') {
            let after = line
                .strip_prefix("---")
                .filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
            if after.is_some() {
                let (piece, marked) = text.split_at_checked(at)?;
                rest = marked.strip_prefix("---").map(|next| (number, next));
                return Some((before, piece));
            }
            at = at.saturating_add(line.len());
            number = number.saturating_add(1);
        }
        Some((before, text))
    })
}

/// Nothing but blanks, comments and directives.
fn is_blank(piece: &str) -> bool {
    piece.lines().all(|line| {
        let line = line.trim();
        line.is_empty() || line.starts_with(['#', '%']) || line == "..."
    })
}

/// Moves it so many lines down; returns how much it is: each value counts, and its text.
fn shift(node: &mut Node, by: usize) -> usize {
    node.line = node.line.saturating_add(by);
    let below = match &mut node.value {
        Value::Scalar(scalar) => scalar.text.len(),
        Value::List(items) => items.iter_mut().map(|item| shift(item, by)).sum(),
        Value::Map(entries) => entries
            .iter_mut()
            .map(|(key, value)| shift(value, by).saturating_add(key.len()))
            .sum(),
    };
    below.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Result<Vec<usize>, String> {
        let mut lines = Vec::new();
        each(text.as_bytes(), |node| lines.push(node.line))
            .map_err(|malformed| malformed.to_string())?;
        Ok(lines)
    }

    #[test]
    fn a_text_is_its_documents_with_their_lines() {
        for (text, want) in [
            ("", &[][..]),
            ("# c\n---\n# d\n...\n", &[]),
            ("a: 1", &[1]),
            ("%YAML 1.2\n---\na: 1\n", &[3]),
            ("---\na: 1\n---\n\nb: 2\n---\n", &[2, 5]),
            (
                "\u{feff}a: |\n  ---\n--- {b: 2}\r\n---\r\nc: 3\r\n",
                &[1, 3, 5],
            ),
            ("{\n\t\"a\": 1\n}", &[0]),
            ("--- ~\n--- a: 1\n", &[2]),
        ] {
            assert_eq!(lines(text), Ok(want.to_vec()), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_has_its_line() {
        assert_eq!(
            lines("a: 1\n---\na: 1\na: 2\n"),
            Err("line 4: the key \"a\" twice".to_owned())
        );
        assert!(each(b"a: \xff", |_| {}).is_err());
        let many = "a: 1\n---\n".repeat(MAX_DOCUMENTS + 1);
        assert_eq!(lines(&many), Err("more than 10000 documents".to_owned()));
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert!(
            lines(&deep).unwrap_err().contains("recursion limit"),
            "{:?}",
            lines(&deep)
        );
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned()
            + &('b'..='h')
                .map(|name| {
                    let before = char::from(name as u8 - 1);
                    format!("{name}: &{name} [{}]\n", format!("*{before},").repeat(10))
                })
                .collect::<String>();
        assert!(lines(&bomb).is_err());
    }

    #[test]
    fn each_document_is_bounded_and_not_their_number_of_bytes() {
        let one = format!("a: {}\n---\n", "x".repeat(50_000));
        let many = one.repeat(100);
        assert!(many.len() > MAX_BYTES);
        let begin: Vec<_> = (0..100).map(|at| 1 + 2 * at).collect();
        assert_eq!(lines(&many).map(|lines| lines.len()), Ok(begin.len()));
        let long = "x".repeat(MAX_BYTES + 1);
        let said = |line: usize| Err(format!("line {line}: longer than 4194304 bytes"));
        assert_eq!(lines(&long), said(1));
        assert_eq!(lines(&format!("{many}{long}")), said(200));
        assert_eq!(
            lines(&format!("a: 1\n---\n# {long}\n---\nb: 2\n")),
            Ok(vec![1, 5])
        );
        // All of JSON is one.
        assert_eq!(lines(&format!("{{\"a\": \"{long}\"}}")), said(1));
    }

    #[test]
    fn aliases_of_many_documents_are_bounded_together() {
        let text = "x".repeat(100);
        let bomb = format!("a: &a {text}\nb: [{}]\n---\n", "*a,".repeat(10_000));
        assert_eq!(lines(&bomb.repeat(2)).map(|lines| lines.len()), Ok(2));
        let said = lines(&bomb.repeat(100)).unwrap_err();
        assert!(
            said.contains("aliases of all documents stand for more than"),
            "{said}"
        );
        // Escapes are longer than they are written, and values as many as can be.
        let dense = format!(
            "a: [{}]\nb: \"{}\"\n---\n",
            "0,".repeat(10_000),
            r"\L".repeat(10_000)
        );
        assert_eq!(lines(&dense.repeat(200)).map(|lines| lines.len()), Ok(200));
    }
}
