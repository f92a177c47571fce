//! `--companion`: a command line, split into words as a shell or a unit file of systemd would split it.
//!
//! Blanks separate. `'…'` is literal. In `"…"` a backslash takes `"` and `\`, and is itself before anything else. Outside
//! quotes a backslash takes the next character, whichever. Pieces that touch are one word, and `''` is an empty one.
//! That is all: `$`, `*`, `~`, `#`, `;`, `|`, `>` and `&` are characters like any other; a user of a shell names it
//! (`sh -c '…'`).

#![forbid(unsafe_code)]

use std::ffi::OsString;

use super::ConfigError;
use super::layers::Layers;

/// Companions; each costs a process and a line of `/status`. Chosen: a sidecar has one or two helpers.
const COMPANIONS: usize = 8;
/// Words of one command. Chosen: longer ones belong in a script.
const WORDS: usize = 64;
/// Bytes of one command, since the log shows it. Chosen: a page of memory.
const BYTES: usize = 4096;

/// A further process beside the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompanionCommand {
    /// The program and its arguments; at least one, and the first is not empty.
    pub words: Vec<OsString>,
    /// As it was typed.
    pub text: String,
}

pub(super) fn companions(layers: &Layers<'_>) -> Vec<CompanionCommand> {
    let wrong = |text, cause| layers.refuse(ConfigError::value("--companion", text, cause));
    let mut companions = Vec::new();
    if let Some(one_too_many) = layers.args.flags.list("companion").nth(COMPANIONS) {
        wrong(one_too_many, "at most 8 companions");
        return companions;
    }
    for text in layers.args.flags.list("companion") {
        match split(text) {
            Ok(words) => companions.push(CompanionCommand {
                words: words.into_iter().map(OsString::from).collect(),
                text: text.to_owned(),
            }),
            Err(cause) => wrong(text, cause),
        }
    }
    companions
}

/// The words of a command; at least one.
fn split(text: &str) -> Result<Vec<String>, &'static str> {
    if text.len() > BYTES {
        return Err("at most 4096 bytes");
    }
    if text.contains('\0') {
        return Err("it must not contain NUL");
    }
    let mut words = Vec::new();
    let mut rest = text.chars();
    // What is read of a word; `None` between words, for `''` is one.
    let mut word: Option<String> = None;
    while let Some(next) = rest.next() {
        if next.is_ascii_whitespace() {
            words.extend(word.take());
            continue;
        }
        let word = word.get_or_insert_default();
        match next {
            '\'' | '"' => quoted(word, &mut rest, next)?,
            '\\' => word.push(rest.next().ok_or("a backslash is its last character")?),
            _ => word.push(next),
        }
    }
    words.extend(word);
    if words.first().is_none_or(String::is_empty) {
        return Err("the command is empty");
    }
    if words.len() > WORDS {
        return Err("at most 64 words");
    }
    Ok(words)
}

/// Reads until the closing `quote`.
fn quoted(
    word: &mut String,
    rest: &mut std::str::Chars<'_>,
    quote: char,
) -> Result<(), &'static str> {
    while let Some(next) = rest.next() {
        if next == quote {
            return Ok(());
        }
        let escape = quote == '"' && next == '\\';
        match rest.clone().next() {
            Some(escaped @ ('"' | '\\')) if escape => {
                word.push(escaped);
                rest.next();
            }
            _ => word.push(next),
        }
    }
    Err("a quote is not closed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_split_as_a_shell_would_without_expanding_anything() {
        for (text, expected) in [
            ("agent", &["agent"][..]),
            (" agent\t--port  80\n", &["agent", "--port", "80"]),
            ("sh -c 'a \"b\" \\ c'", &["sh", "-c", "a \"b\" \\ c"]),
            (r#"a "b c" "d\"e" "f\\g""#, &["a", "b c", "d\"e", "f\\g"]),
            (r#"a "\n \$x \'""#, &["a", r"\n \$x \'"]),
            (r"a b\ c \\ \' \n", &["a", "b c", "\\", "'", "n"]),
            (r#"a '' "" x''y"#, &["a", "", "", "xy"]),
            (r#"--a='b c'"d e"\ f"#, &["--a=b cd e f"]),
            (
                "a $HOME ${x} *.c ~ #x > f | g; h & `i`",
                &[
                    "a", "$HOME", "${x}", "*.c", "~", "#x", ">", "f", "|", "g;", "h", "&", "`i`",
                ],
            ),
            ("ä 'ö ü'", &["ä", "ö ü"]),
        ] {
            assert_eq!(
                split(text).as_deref(),
                Ok(expected
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .as_slice()),
                "{text}"
            );
        }
    }

    #[test]
    fn texts_that_are_no_command_are_refused() {
        let long = "x".repeat(BYTES + 1);
        let many = "x ".repeat(WORDS + 1);
        for (text, cause) in [
            ("", "the command is empty"),
            (" \t ", "the command is empty"),
            ("'' x", "the command is empty"),
            ("a 'b", "a quote is not closed"),
            ("a \"b\\\"", "a quote is not closed"),
            ("a \"b' c", "a quote is not closed"),
            ("a \\", "a backslash is its last character"),
            ("a\0b", "it must not contain NUL"),
            (&long, "at most 4096 bytes"),
            (&many, "at most 64 words"),
        ] {
            assert_eq!(split(text), Err(cause), "{text:?}");
        }
        assert_eq!(
            split(&"x ".repeat(WORDS)).map(|words| words.len()),
            Ok(WORDS)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_split_or_refused(text in ".{0,60}") {
            if let Ok(words) = split(&text) {
                prop_assert!(!words.is_empty() && words.len() <= WORDS);
                prop_assert!(!words.iter().any(|word| word.contains('\0')));
            }
        }

        /// Each way of quoting gives the words back.
        #[test]
        fn quoted_words_come_back(words in prop::collection::vec("[^\0]{1,12}", 1..6)) {
            let way = |quote: fn(&str) -> String| {
                let text = words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
                split(&text)
            };
            let single = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
            let double = |word: &str| format!("\"{}\"", word.replace('\\', r"\\").replace('"', "\\\""));
            let bare = |word: &str| word.chars().flat_map(|c| ['\\', c]).collect();
            prop_assert_eq!(way(single).unwrap(), words.clone());
            prop_assert_eq!(way(double).unwrap(), words.clone());
            prop_assert_eq!(way(bare).unwrap(), words.clone());
        }
    }
}
