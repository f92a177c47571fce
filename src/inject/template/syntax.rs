//! Fixes for the template library, applied to a text before it is parsed.
//!
//! gotmpl 0.6.1 differs from Go's `text/template` in three ways: two silently change pods, and the third ends the process.
//!
//! * Its parser stops at an `end` or `else` without a block, and at the end of the text with a block still open; the
//!   rest is dropped. [`balanced`] finds both.
//! * A comment with one trim marker trims the text on both of its sides. Go trims the marker's own side only.
//!   [`without_comments`] puts an action that prints nothing in the comment's place, which the library trims correctly.
//! * Its parser bounds blocks within each other, and not the `else if`s of a block, each of which is within the one before: 20,000
//!   exhaust the stack. [`balanced`] counts them as blocks.

use std::borrow::Cow;

use super::{Delimiters, Failure};
use crate::value::session::MAX_NESTING;

/// A block that was opened and not closed yet.
struct OpenBlock<'a> {
    keyword: &'a str,
    line: usize,
    has_else: bool,
    /// The depth within the block: each `else if` is within the one before.
    depth: usize,
}

/// Checks that every block has its end, every `end` and `else` their block, and that they are not within each other too deeply.
pub(super) fn balanced(name: &str, text: &str, delimiters: &Delimiters) -> Result<(), Failure> {
    let mut open: Vec<OpenBlock<'_>> = Vec::new();
    let mut outcome = Ok(());
    each_action(text, delimiters, |line, action| {
        if outcome.is_ok() {
            outcome = open_or_close(&mut open, line, action).map_err(|cause| (line, cause));
        }
    });
    let unclosed = open.pop();
    outcome
        .and_then(|()| match unclosed {
            None => Ok(()),
            Some(block) => Err((block.line, format!("{} has no end", block.keyword))),
        })
        .map_err(|(line, cause)| Failure {
            name: name.to_owned(),
            line,
            cause,
            is_unknown_field: false,
        })
}

fn open_or_close<'a>(
    open: &mut Vec<OpenBlock<'a>>,
    line: usize,
    action: &'a str,
) -> Result<(), String> {
    let (keyword, rest) = word(action);
    let depth = open.last().map_or(0, |block| block.depth);
    match keyword {
        "if" | "range" | "with" | "define" | "block" => open.push(OpenBlock {
            keyword,
            line,
            has_else: false,
            depth: depth + 1,
        }),
        "end" => {
            open.pop().ok_or("unexpected end: no block is open")?;
        }
        "else" => {
            let takes_else =
                |block: &&mut OpenBlock<'_>| matches!(block.keyword, "if" | "range" | "with");
            let block = open
                .last_mut()
                .filter(takes_else)
                .ok_or("unexpected else: no if, range or with is open")?;
            if block.has_else {
                return Err(format!(
                    "unexpected else: the {} of line {} has one already",
                    block.keyword, block.line
                ));
            }
            // Behind an `else if` another `else` may follow.
            block.has_else = !matches!(word(rest).0, "if" | "with");
            block.depth += 1;
        }
        _ => {}
    }
    match open.last().map_or(0, |block| block.depth) {
        depth if depth > MAX_NESTING => Err(format!(
            "nested deeper than {MAX_NESTING}, each else counted"
        )),
        _ => Ok(()),
    }
}

/// Returns the word at the beginning of a text, and the rest.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(SPACES);
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    text.split_at(end.unwrap_or(text.len()))
}

/// Passes each action's line and the text between its delimiters and trim markers to `show`.
fn each_action<'a>(text: &'a str, delimiters: &Delimiters, mut show: impl FnMut(usize, &'a str)) {
    let (left, right) = (delimiters.left.as_str(), delimiters.right.as_str());
    let mut line = 1;
    let lines = |text: &str| text.bytes().filter(|byte| *byte == b'\n').count();
    let mut rest = text;
    while let Some((before, action)) = rest.find(left).map(|at| rest.split_at(at)) {
        line += lines(before);
        let (action, after) = action.split_at(length(action, left, right));
        let inside = action.strip_prefix(left).unwrap_or(action);
        let marked = inside
            .strip_prefix('-')
            .filter(|rest| rest.starts_with(SPACES));
        show(line, marked.unwrap_or(inside));
        line += lines(action);
        rest = after;
    }
}

/// The text with an empty string's action in place of each comment, of the same lines.
pub(super) fn without_comments<'a>(text: &'a str, delimiters: &Delimiters) -> Cow<'a, str> {
    let (left, right) = (delimiters.left.as_str(), delimiters.right.as_str());
    if !text.contains("/*") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut ends = CommentEnds::default();
    while let Some(at) = rest.find(left) {
        let (before, action) = rest.split_at(at);
        out.push_str(before);
        match comment(action, left, right, &mut ends) {
            Some(comment) => {
                out.push_str(left);
                out.push_str(if comment.trims_left { "- " } else { "" });
                out.push_str("\"\"");
                out.extend(comment.text.chars().filter(|letter| *letter == '\n'));
                out.push_str(if comment.trims_right { " -" } else { "" });
                out.push_str(right);
                rest = comment.rest;
            }
            None => {
                let (action, after) = action.split_at(length(action, left, right));
                out.push_str(action);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

struct Comment<'a> {
    text: &'a str,
    trims_left: bool,
    trims_right: bool,
    rest: &'a str,
}

const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

/// The next `*/` of a text: comments that do not end where theirs should are not searched for it one by one.
#[derive(Default)]
struct CommentEnds {
    /// The number of bytes from it on. `None`: not searched yet; 0: none is left.
    next: Option<usize>,
}

impl CommentEnds {
    /// Splits a rest of the text at the first `*/`. Rests must not grow from call to call.
    fn split<'a>(&mut self, rest: &'a str) -> Option<(&'a str, &'a str)> {
        let next = match self.next.filter(|next| *next <= rest.len()) {
            Some(next) => next,
            None => rest
                .find("*/")
                .map_or(0, |at| rest.len().saturating_sub(at)),
        };
        self.next = Some(next);
        let (before, from) = rest.split_at_checked(rest.len().saturating_sub(next))?;
        Some((before, from.strip_prefix("*/")?))
    }
}

/// Returns the comment that an action is, if the comment ends.
fn comment<'a>(
    action: &'a str,
    left: &str,
    right: &str,
    ends: &mut CommentEnds,
) -> Option<Comment<'a>> {
    let inside = action.strip_prefix(left)?;
    let marked = inside
        .strip_prefix('-')
        .filter(|rest| rest.starts_with(SPACES));
    let body = marked.unwrap_or(inside).trim_start_matches(SPACES);
    let (text, after) = ends.split(body.strip_prefix("/*")?)?;
    let end = after.trim_start_matches(SPACES);
    let spaced = end.len() < after.len();
    let trimmed = end
        .strip_prefix('-')
        .filter(|_| spaced)
        .and_then(|end| end.strip_prefix(right));
    Some(Comment {
        // With the blanks around it, which may hold lines.
        text: inside.get(..inside.len() - end.len())?,
        trims_left: marked.is_some(),
        trims_right: trimmed.is_some(),
        rest: trimmed.or_else(|| end.strip_prefix(right))?,
    })
    .filter(|comment| comment.text.contains(text))
}

/// Returns the bytes of an action that is no comment, with its delimiters; all bytes, if the action does not end.
fn length(action: &str, left: &str, right: &str) -> usize {
    let mut at = left.len();
    while let Some(rest) = action.get(at..) {
        if rest.starts_with(right) {
            return at + right.len();
        }
        let Some(letter) = rest.chars().next() else {
            break;
        };
        at += match letter {
            // Delimiters within a text or a character end no action.
            '"' | '\'' => quoted(rest, letter),
            '`' => rest
                .get(1..)
                .and_then(|text| text.find('`'))
                .map_or(rest.len(), |end| end + 2),
            other => other.len_utf8(),
        };
    }
    action.len()
}

/// The bytes of a quoted text with escapes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            letter if letter == quote => return at + letter.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn braces() -> Delimiters {
        Delimiters::new("{{", "}}")
    }

    #[test]
    fn comments_trim_their_own_side() {
        let rows = [
            ("a {{/* c */}} b", "a {{\"\"}} b"),
            ("a {{- /* c */}} b", "a {{- \"\"}} b"),
            ("a {{/* c */ -}} b", "a {{\"\" -}} b"),
            ("a {{- /* c\nd */ -}} b", "a {{- \"\"\n -}} b"),
            ("{{ \"{{/*\" }}{{/* c */}}", "{{ \"{{/*\" }}{{\"\"}}"),
            ("{{ `}}{{/* x` }} {{/**/}}", "{{ `}}{{/* x` }} {{\"\"}}"),
            ("{{ '\\'' }}{{/* x */}}", "{{ '\\'' }}{{\"\"}}"),
            ("{{/* }} */}}z", "{{\"\"}}z"),
            // Unterminated actions and non-actions are left to the library.
            ("{{/* c", "{{/* c"),
            ("{{/* c */ x }}", "{{/* c */ x }}"),
            ("a /* b */", "a /* b */"),
        ];
        for (text, wanted) in rows {
            assert_eq!(without_comments(text, &braces()), wanted, "{text}");
        }
    }

    #[test]
    fn blocks_have_their_ends() {
        let rows = [
            ("a{{ end }}b", Some((1, "unexpected end: no block is open"))),
            ("\n{{ if .a }}b", Some((2, "if has no end"))),
            (
                "{{ if .a }}\n{{ range .b }}\n{{ end }}",
                Some((1, "if has no end")),
            ),
            (
                "{{ else }}",
                Some((1, "unexpected else: no if, range or with is open")),
            ),
            (
                "{{ define \"x\" }}{{ else }}{{ end }}",
                Some((1, "unexpected else: no if, range or with is open")),
            ),
            (
                "{{ if .a }}\n{{ else }}\n{{ else }}{{ end }}",
                Some((3, "unexpected else: the if of line 1 has one already")),
            ),
            ("{{ define \"x\" }}", Some((1, "define has no end"))),
            (
                "{{ if .a }}{{ else if .b }}{{ else with .c }}{{ else }}{{ end }}",
                None,
            ),
            (
                "{{ if .a }}{{ range .b }}{{ else }}{{ end }}{{ else }}{{ end }}",
                None,
            ),
            ("{{ block \"x\" . }}{{ end }}{{ with .a }}{{ end }}", None),
            ("{{ .end }}{{ $else := 1 }}{{ \"{{ end }}\" }}", None),
        ];
        for (text, wanted) in rows {
            let failure = balanced("t", text, &braces()).err();
            assert_eq!(
                failure
                    .as_ref()
                    .map(|failure| (failure.line, failure.cause.as_str())),
                wanted,
                "{text}"
            );
        }
    }

    /// 20,000 of them ended the process, at its start or when the file was read again.
    #[test]
    fn the_depth_of_blocks_has_a_bound() {
        let check = |text: &str| balanced("t", text, &braces()).map_err(|failure| failure.cause);
        let too_deep = Err("nested deeper than 100, each else counted".to_owned());
        let chain = |count: usize| {
            format!(
                "{{{{ if .a }}}}{}{{{{ end }}}}",
                "{{ else if .b }}".repeat(count)
            )
        };
        assert_eq!(check(&chain(99)), Ok(()));
        assert_eq!(check(&chain(100)), too_deep);
        assert_eq!(check(&chain(20_000)), too_deep);
        let within = "{{ if .a }}{{ else if .b }}".repeat(50) + &"{{ end }}".repeat(50);
        assert_eq!(check(&within), Ok(()));
        assert_eq!(
            check(&format!("{{{{ with .a }}}}{within}{{{{ end }}}}")),
            too_deep
        );
        // One after the other they are not within each other.
        assert_eq!(check(&within.repeat(200)), Ok(()));
    }

    #[test]
    fn a_comment_without_an_end_is_looked_for_once() {
        for (part, end) in [
            ("{{/*}}", ""),
            ("{{/*}}", "{{ */ x }}"),
            ("{{- /* */ x }}", ""),
        ] {
            let work = |count: usize| {
                let text = part.repeat(count) + end;
                move || assert_eq!(without_comments(&text, &braces()), text)
            };
            crate::growth::assert_linear(32, work(5_000), work(160_000));
        }
    }
}
