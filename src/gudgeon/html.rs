//! Text in pages for a browser.

/// Text in HTML: nothing in it is a tag or ends a quotation.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}
