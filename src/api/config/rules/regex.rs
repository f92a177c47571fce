//! REGEX: patterns as RE2 takes them, which is what Envoy runs.
//!
//! The grammar is the one of Rust's `regex`; where RE2 takes more (a brace that counts nothing is a letter) the text is
//! rewritten first, and where it takes less (stacked repetition, large counts, names of classes) the tree is searched.

use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{AssertionKind, Flag, Flags};
use regex_syntax::ast::{
    Ast, ClassSet, ClassSetItem, ClassUnicodeKind, FlagsItemKind, GroupKind, HexLiteralKind,
    Literal, LiteralKind, RepetitionKind, RepetitionRange, Visitor, visit,
};

use super::at::Wrong;
use super::unicode::is_class;

const LONGEST: usize = 1024;
const MOST_REPEATS: u32 = 1000;
/// Groups within each other.
const DEEPEST: u32 = 250;

/// REGEX.
pub(super) fn regex(text: &str) -> Wrong {
    let reason = if text.is_empty() {
        "it is empty".to_owned()
    } else if text.len() > LONGEST {
        format!("it is longer than {LONGEST} bytes")
    } else {
        fault(text)?
    };
    Some(format!("not a regular expression: {reason}"))
}

fn fault(text: &str) -> Option<String> {
    let text = as_rust(text);
    let parsed = ParserBuilder::new()
        .nest_limit(DEEPEST)
        .octal(true)
        .build()
        .parse(&text);
    match parsed {
        Err(error) => Some(error.kind().to_string()),
        Ok(tree) => visit(&tree, Search::default()).err().map(str::to_owned),
    }
}

/// RE2's own letters in the words of the other grammar.
fn as_rust(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut in_class = false;
    while let Some(letter) = rest.chars().next() {
        let after = rest.get(letter.len_utf8()..).unwrap_or_default();
        let mut taken = letter.len_utf8();
        match letter {
            '\\' => {
                let (known, length) = escape(rest);
                out.push_str(&known);
                taken = length;
            }
            '[' if in_class && named(after) == 0 => out.push_str("\\["),
            '[' if !in_class => {
                in_class = true;
                out.push('[');
                // A bracket that stands first is a letter.
                let not = after.starts_with('^');
                let first = after.strip_prefix('^').unwrap_or(after);
                if not {
                    out.push('^');
                    taken += 1;
                }
                if first.starts_with(']') {
                    out.push_str("\\]");
                    taken += 1;
                }
            }
            '[' => {
                let end = named(after);
                out.push('[');
                out.push_str(after.get(..end).unwrap_or_default());
                taken += end;
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(letter);
            }
            '{' if !in_class && !counts(after) => out.push_str("\\{"),
            letter => out.push(letter),
        }
        rest = rest.get(taken..).unwrap_or_default();
    }
    out
}

/// How long `:alpha:]` is after a bracket in a class, whether there is such a class or not; 0: the bracket is a letter.
fn named(after: &str) -> usize {
    let name = after.strip_prefix(':').and_then(|name| name.find(":]"));
    name.map_or(0, |length| length + ":".len() + ":]".len())
}

/// An escape, and how much of the text it is.
fn escape(text: &str) -> (String, usize) {
    if let Some(literal) = text.strip_prefix("\\Q") {
        let (literal, length) = match literal.split_once("\\E") {
            Some((literal, _)) => (literal, literal.len() + 4),
            None => (literal, text.len()),
        };
        return (regex_syntax::escape(literal), length);
    }
    let next = text.chars().nth(1);
    let mut length = 1 + next.map_or(0, char::len_utf8);
    let named = text.get(length..).filter(|rest| rest.starts_with('{'));
    if let (Some('p' | 'P' | 'x'), Some(rest)) = (next, named) {
        length += rest.find('}').map_or(0, |at| at + 1);
    }
    let known = match next {
        Some('C') => "(?:.)".to_owned(),
        Some('<' | '>') => text.get(1..length).unwrap_or_default().to_owned(),
        _ => text.get(..length).unwrap_or_default().to_owned(),
    };
    (known, length)
}

/// Whether what follows a brace is a count: `3}`, `3,}`, `3,5}`.
fn counts(text: &str) -> bool {
    let Some((inside, _)) = text.split_once('}') else {
        return false;
    };
    let digits = |text: &str| text.bytes().all(|letter| letter.is_ascii_digit());
    let (least, most) = inside.split_once(',').unwrap_or((inside, ""));
    !least.is_empty() && digits(least) && digits(most)
}

/// Looks for what RE2 does not take.
#[derive(Default)]
struct Search {
    /// Of the repetitions that are open: how often all of them together repeat.
    repeats: Vec<u32>,
}

impl Visitor for Search {
    type Output = ();
    type Err = &'static str;

    fn finish(self) -> Result<(), Self::Err> {
        Ok(())
    }

    fn visit_pre(&mut self, tree: &Ast) -> Result<(), Self::Err> {
        match tree {
            Ast::Repetition(repetition) => {
                if matches!(*repetition.ast, Ast::Repetition(_)) {
                    return Err("repetition of a repetition");
                }
                let count = match &repetition.op.kind {
                    RepetitionKind::Range(
                        RepetitionRange::Exactly(count)
                        | RepetitionRange::AtLeast(count)
                        | RepetitionRange::Bounded(_, count),
                    ) => *count,
                    RepetitionKind::ZeroOrOne
                    | RepetitionKind::ZeroOrMore
                    | RepetitionKind::OneOrMore => 1,
                };
                let above = self.repeats.last().copied().unwrap_or(1);
                let all = above.saturating_mul(count.max(1));
                if all > MOST_REPEATS {
                    return Err("a count over 1000");
                }
                self.repeats.push(all);
                Ok(())
            }
            Ast::Flags(set) => flags(&set.flags),
            Ast::Group(group) => match &group.kind {
                GroupKind::NonCapturing(set) => flags(set),
                GroupKind::CaptureIndex(_) | GroupKind::CaptureName { .. } => Ok(()),
            },
            Ast::Assertion(assertion) => match assertion.kind {
                AssertionKind::WordBoundary
                | AssertionKind::NotWordBoundary
                | AssertionKind::StartLine
                | AssertionKind::EndLine
                | AssertionKind::StartText
                | AssertionKind::EndText => Ok(()),
                AssertionKind::WordBoundaryStart
                | AssertionKind::WordBoundaryEnd
                | AssertionKind::WordBoundaryStartAngle
                | AssertionKind::WordBoundaryEndAngle
                | AssertionKind::WordBoundaryStartHalf
                | AssertionKind::WordBoundaryEndHalf => Err("unknown word boundary"),
            },
            Ast::ClassBracketed(class) => match class.kind {
                ClassSet::Item(_) => Ok(()),
                ClassSet::BinaryOp(_) => Err("operators between classes"),
            },
            Ast::Literal(letter) => literal(letter),
            Ast::ClassUnicode(class) => unicode(&class.kind),
            Ast::Empty(_)
            | Ast::Dot(_)
            | Ast::ClassPerl(_)
            | Ast::Alternation(_)
            | Ast::Concat(_) => Ok(()),
        }
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Self::Err> {
        match item {
            ClassSetItem::Literal(letter) => literal(letter),
            ClassSetItem::Range(range) => {
                literal(&range.start)?;
                literal(&range.end)
            }
            ClassSetItem::Unicode(class) => unicode(&class.kind),
            // All other brackets within brackets were made letters.
            ClassSetItem::Bracketed(_) => Err("unknown class of characters"),
            ClassSetItem::Empty(_)
            | ClassSetItem::Ascii(_)
            | ClassSetItem::Perl(_)
            | ClassSetItem::Union(_) => Ok(()),
        }
    }

    fn visit_post(&mut self, tree: &Ast) -> Result<(), Self::Err> {
        if matches!(tree, Ast::Repetition(_)) {
            self.repeats.pop();
        }
        Ok(())
    }
}

/// By number RE2 has `\x41`, `\x{41}`, and octal; one octal digit alone, but 0, is a reference back.
fn literal(letter: &Literal) -> Result<(), &'static str> {
    match letter.kind {
        LiteralKind::Octal => {
            let digits = letter.span.end.offset - letter.span.start.offset - 1;
            match digits == 1 && letter.c != '\0' {
                true => Err("backreferences are not supported"),
                false => Ok(()),
            }
        }
        LiteralKind::HexFixed(HexLiteralKind::UnicodeShort | HexLiteralKind::UnicodeLong)
        | LiteralKind::HexBrace(HexLiteralKind::UnicodeShort | HexLiteralKind::UnicodeLong) => {
            Err("unknown escape sequence")
        }
        LiteralKind::HexFixed(HexLiteralKind::X)
        | LiteralKind::HexBrace(HexLiteralKind::X)
        | LiteralKind::Verbatim
        | LiteralKind::Meta
        | LiteralKind::Superfluous
        | LiteralKind::Special(_) => Ok(()),
    }
}

fn unicode(kind: &ClassUnicodeKind) -> Result<(), &'static str> {
    let is_known = match kind {
        ClassUnicodeKind::OneLetter(letter) => is_class(letter.encode_utf8(&mut [0; 4])),
        ClassUnicodeKind::Named(name) => is_class(name),
        ClassUnicodeKind::NamedValue { .. } => false,
    };
    match is_known {
        true => Ok(()),
        false => Err("unknown class of Unicode"),
    }
}

/// Only `i m s U` are RE2's.
fn flags(flags: &Flags) -> Result<(), &'static str> {
    let known = flags.items.iter().all(|item| match &item.kind {
        FlagsItemKind::Negation => true,
        FlagsItemKind::Flag(flag) => match flag {
            Flag::CaseInsensitive | Flag::MultiLine | Flag::DotMatchesNewLine | Flag::SwapGreed => {
                true
            }
            Flag::Unicode | Flag::CRLF | Flag::IgnoreWhitespace => false,
        },
    });
    if known { Ok(()) } else { Err("unknown flag") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regex_is_what_re2_takes() {
        for good in [
            "a",
            ".*",
            "^/v[0-9]+/(a|b)?$",
            "a+?",
            "(a+)+",
            "a{3}",
            "a{1,1000}",
            "a{2,}",
            "(?i)x",
            "(?:x)*",
            "(?P<n>x)",
            "/{id}/x",
            "a{",
            "a{,5}",
            "a{x}",
            "[]a]",
            "[^]a]",
            "[[]",
            "[[:alpha:]_]",
            "[a&&b]",
            "\\Q(*\\E+",
            "\\/\\.",
            "\\bx\\B",
            "\\d\\pL\\p{Greek}",
            "\\x41\\x{41}",
            "é",
            "\\C",
            "\\<",
            "[\\]\\[]",
            "(?is-m:x)",
            // A brace that counts nothing is a letter.
            "\\b{start}",
            "\\0",
            "\\012",
            "\\12",
            "\\777",
            "[\\0-\\07]",
            "\\x{10FFFF}",
            "\\pN\\PL\\p{Lu}\\P{Nd}\\p{^Cyrillic}\\p{Any}",
            "[\\p{Han}\\pZ]",
            "[[:^digit:][:word:]]",
            "[[:]",
            "[[:alpha]",
        ] {
            assert_eq!(regex(good), None, "{good}");
        }
    }

    #[test]
    fn regex_is_not_what_re2_refuses() {
        for bad in [
            "",
            "*",
            "(",
            ")",
            "[",
            "a**",
            "a++",
            "a{2}{3}",
            "a{1001}",
            "(a{100}){11}",
            "(?=a)",
            "(?!a)",
            "(?<=a)b",
            "(a)\\1",
            "\\k<n>",
            "a{3,2}",
            "\\",
            "[b-a]",
            "(?x)a",
            "(?u)a",
            "\\y",
            "\\u0041",
            "\\U00000041",
            "\\u{41}",
            "[a\\u0041]",
            "[\\u0041-z]",
            "\\p{Nonsense}",
            "\\p{greek}",
            "\\p{Letter}",
            "\\p{sc=Greek}",
            "\\pX",
            "[\\p{Nonsense}]",
            "[[:foo:]]",
            "[[:Alpha:]]",
            "\\8",
            "\\1",
            "\\18",
            "[\\7]",
            "(a)[\\1]",
            &"a".repeat(1025),
            &"(".repeat(500),
        ] {
            assert!(regex(bad).is_some(), "{bad}");
        }
        assert_eq!(regex("").unwrap(), "not a regular expression: it is empty");
        assert_eq!(
            regex("a++").unwrap(),
            "not a regular expression: repetition of a repetition"
        );
        assert!(
            regex("(?=a)")
                .unwrap()
                .starts_with("not a regular expression: look-around"),
            "{:?}",
            regex("(?=a)")
        );
    }
}
