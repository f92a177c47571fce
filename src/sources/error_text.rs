//! Texts of errors: in one line, of limited length, and without the values that a server or a file has sent.

use api::text::is_control;

/// Characters of an error's text that are logged.
const MAX_CHARACTERS: usize = 500;

/// Cuts a text to one line of limited length, for a log.
pub(crate) fn one_line(text: &str) -> String {
    text.chars()
        .take(MAX_CHARACTERS)
        .map(|character| {
            if is_control(character) {
                ' '
            } else {
                character
            }
        })
        .collect()
}

/// Joins all causes of an error: the outermost is only "client error".
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    let mut source = Some(error);
    while let Some(cause) = source {
        let more = cause.to_string();
        // Most errors quote their source in their own text: a quoted cause is not repeated.
        if !text.contains(&more) {
            let separator = if text.is_empty() { "" } else { ": " };
            text = format!("{text}{separator}{more}");
        }
        source = cause.source();
    }
    one_line(&text)
}

/// Describes a decoding error without the value, which may be a secret.
pub(crate) fn misread(error: &serde_json::Error) -> String {
    let message = error.to_string();
    // serde quotes the value before these words, and the value may be of a Secret. It may also hold the words itself.
    match message.rsplit_once(", expected ") {
        Some((_, expected)) => format!("a value is not {expected}"),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line() {
        let text = format!("a\nb{}", "x".repeat(1000));
        let line = one_line(&text);
        assert!(line.starts_with("a bx"));
        assert_eq!(line.len(), MAX_CHARACTERS);
    }

    #[test]
    fn no_part_of_a_value_is_in_the_text() {
        for (value, text) in [
            (r#""S3CRET""#, "a value is not unit at line 1 column 8"),
            (
                r#""a, expected S3CRET""#,
                "a value is not unit at line 1 column 20",
            ),
        ] {
            let error = serde_json::from_str::<()>(value).unwrap_err();
            assert_eq!(misread(&error), text);
        }
    }
}
