//! Text as its documents: YAML, many in one file, or JSON.

use api::yaml::{self, Limits, Malformed, Node, Value};

/// Of one file or body.
pub(in crate::registry) const MAX_BYTES: usize = 4 << 20;
/// In one file.
const MAX_DOCUMENTS: usize = 10_000;

/// Of one document. What a cluster prints has some hundred values for each pod.
const LIMITS: Limits = Limits {
    bytes: MAX_BYTES,
    depth: 96,
    nodes: 500_000,
};

/// The documents that say something, with the lines of the whole text.
///
/// # Errors
///
/// Of the first that cannot be read; then none of them is.
pub(super) fn documents(bytes: &[u8]) -> Result<Vec<Node>, Malformed> {
    if bytes.len() > MAX_BYTES {
        return Err(whole(format!("longer than {MAX_BYTES} bytes")));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| whole(error.to_string()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // JSON may be indented by tabs, which YAML refuses.
    if text.trim_start().starts_with(['{', '['])
        && let Ok(json) = serde_json::from_str(text)
    {
        return Ok(vec![Node::of_json(&json)]);
    }
    let mut found = Vec::new();
    for (line, piece) in pieces(text) {
        if is_blank(piece) {
            continue;
        }
        let read = yaml::read(piece, LIMITS).map_err(|malformed| Malformed {
            line: malformed.line.saturating_add(line),
            ..malformed
        })?;
        let Some(mut node) = read.filter(|node| !node.is_null()) else {
            continue;
        };
        if found.len() >= MAX_DOCUMENTS {
            return Err(whole(format!("more than {MAX_DOCUMENTS} documents")));
        }
        shift(&mut node, line);
        found.push(node);
    }
    Ok(found)
}

fn whole(cause: String) -> Malformed {
    Malformed { line: 0, cause }
}

/// Cut at its lines `---`, each with the number of lines before it. What follows on such a line belongs to its document.
fn pieces(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let (mut start, mut before) = (0, 0);
    let mut at = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let marks = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
        if marks {
            found.push((before, text.get(start..at).unwrap_or_default()));
            start = at.saturating_add("---".len());
            before = number;
        }
        at = at.saturating_add(line.len());
    }
    found.push((before, text.get(start..).unwrap_or_default()));
    found
}

/// Nothing but blanks, comments and directives.
fn is_blank(piece: &str) -> bool {
    piece.lines().all(|line| {
        let line = line.trim();
        line.is_empty() || line.starts_with(['#', '%']) || line == "..."
    })
}

fn shift(node: &mut Node, by: usize) {
    node.line = node.line.saturating_add(by);
    match &mut node.value {
        Value::Scalar(_) => {}
        Value::List(items) => items.iter_mut().for_each(|item| shift(item, by)),
        Value::Map(entries) => entries.iter_mut().for_each(|(_, value)| shift(value, by)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Result<Vec<usize>, String> {
        let read = documents(text.as_bytes()).map_err(|malformed| malformed.to_string())?;
        Ok(read.iter().map(|node| node.line).collect())
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
        let long = "x".repeat(MAX_BYTES + 1);
        assert_eq!(lines(&long), Err("longer than 4194304 bytes".to_owned()));
        assert!(documents(b"a: \xff").is_err());
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
}
