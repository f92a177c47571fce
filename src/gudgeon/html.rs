//! Pages for a browser: one file each, no script, drawn anew for each look. Here is what all of them have: text, head, and a
//! timeline.

use std::fmt::Write as _;
use std::time::Duration;

/// Rows of each table; the rest is in the documents.
pub(crate) const ROWS: usize = 500;
/// What a timeline shows.
const SPAN: Duration = Duration::from_secs(3600);

const STYLE: &str = ":root{color-scheme:light dark;--line:#8884;--good:#2a8f5b;--some:#3569b5;--bad:#c8412f}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.05rem;margin:2rem 0 .5rem}
table{border-collapse:collapse;width:100%;font-size:.87rem}
th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
.good{color:var(--good)}.bad{color:var(--bad)}svg{width:100%;height:7rem;display:block}code{font-size:.85em}
";

/// All before the first heading.
pub(crate) fn head(page: &mut String, title: &str, style: &str) {
    // Writing to a string cannot fail, here and below.
    let _written = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\">\n<meta http-equiv=\"refresh\" content=\"10\"><title>{title}</title><style>\n{STYLE}{style}\
         </style></head><body>\n"
    );
}

/// What a table has beyond its rows.
pub(crate) fn more(page: &mut String, all: usize) {
    if all > ROWS {
        let _written = writeln!(page, "<tr><td>and {} more</tr>", all - ROWS);
    }
}

/// Something that happened.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) age: Duration,
    /// Of 80.
    pub(crate) height: u32,
    /// `good`, `some` or `bad`.
    pub(crate) color: &'static str,
    pub(crate) words: String,
}

/// The last hour, now on the right.
pub(crate) fn timeline(page: &mut String, label: &str, bars: impl Iterator<Item = Bar>) {
    const WIDTH: u128 = 1000;
    let _written = write!(
        page,
        "<svg viewBox=\"0 0 1000 90\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{label}\"><line x1=\"0\" y1=\"80.5\" \
         x2=\"1000\" y2=\"80.5\" stroke=\"currentColor\" stroke-opacity=\".3\"/>"
    );
    for bar in bars.filter(|bar| bar.age <= SPAN) {
        let left = WIDTH - (bar.age.as_millis() * WIDTH / SPAN.as_millis()).min(WIDTH);
        let _written = write!(
            page,
            "<rect x=\"{left}\" y=\"{}\" width=\"3\" height=\"{}\" fill=\"var(--{})\"><title>{}</title></rect>",
            80_u32.saturating_sub(bar.height),
            bar.height,
            bar.color,
            escaped(&bar.words)
        );
    }
    page.push_str("</svg>\n");
}

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
