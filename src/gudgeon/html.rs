//! Pages for a browser: one file each, no script, rendered anew for each request. This has their common parts: text, head,
//! and a timeline.

use std::fmt::Write as _;
use std::time::Duration;

use api::text::is_control;

/// Rows of each table; the rest is in the documents.
pub(crate) const ROWS: usize = 500;
/// The period of a timeline.
const SPAN: Duration = Duration::from_secs(3600);

const STYLE: &str = ":root{color-scheme:light dark;--line:#8884;--good:#2a8f5b;--some:#3569b5;--bad:#c8412f}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.05rem;margin:2rem 0 .5rem}
table{border-collapse:collapse;width:100%;font-size:.87rem}
th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
.good{color:var(--good)}.bad{color:var(--bad)}svg{width:100%;height:7rem;display:block}code{font-size:.85em}
.axis{display:flex;justify-content:space-between}.axis,.legend{font-size:.8rem;opacity:.8;margin:.2rem 0}
.legend i{display:inline-block;width:.7rem;height:.7rem;margin:0 .35rem 0 0}.legend span{margin-right:1.2rem;white-space:nowrap}
@media(max-width:40rem){body{margin:1rem auto;padding:0 .75rem}h1,h2,p{overflow-wrap:anywhere}
table{display:block;overflow-x:auto}th,td{min-width:6rem}td.n{min-width:3rem}td:nth-child(n+4):last-child:not(:empty){min-width:14rem}
td:empty{min-width:0}}
";

/// Writes the page up to the first heading.
pub(crate) fn head(page: &mut String, title: &str, style: &str) {
    // Writing to a string cannot fail, here and below.
    let _written = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\">\n<meta http-equiv=\"refresh\" content=\"10\"><title>{title}</title><style>\n{STYLE}{style}\
         </style></head><body>\n"
    );
}

/// Writes the number of rows beyond a table's limit.
pub(crate) fn more(page: &mut String, all: usize) {
    if all > ROWS {
        let _written = writeln!(page, "<tr><td>and {} more</tr>", all - ROWS);
    }
}

/// A bar of a timeline.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) age: Duration,
    /// Height in units of 1/80 of the diagram.
    pub(crate) height: u32,
    /// `good`, `some` or `bad`.
    pub(crate) color: &'static str,
    pub(crate) words: String,
}

/// Writes a table, or `empty` in place of one without rows.
pub(crate) fn table(
    page: &mut String,
    columns: &[&str],
    empty: Option<&str>,
    rows: impl FnOnce(&mut String),
) {
    if let Some(message) = empty {
        let _written = writeln!(page, "<p>{message}</p>");
        return;
    }
    page.push_str("<table><tr>");
    for column in columns {
        let _written = write!(page, "<th>{column}");
    }
    page.push_str("</tr>\n");
    rows(page);
    page.push_str("</table>\n");
}

/// Colours of a picture, by the names of the style's variables, each with its meaning.
pub(crate) fn legend(page: &mut String, meanings: &[(&str, &str)]) {
    page.push_str("<p class=\"legend\">");
    for (color, meaning) in meanings {
        let _written = write!(
            page,
            "<span><i style=\"background:var(--{color})\"></i>{meaning}</span>"
        );
    }
    page.push_str("</p>\n");
}

/// Quarters of the picture above it, which shows the last hour.
pub(crate) fn axis(page: &mut String) {
    page.push_str("<div class=\"axis\">");
    for mark in ["1 h ago", "45 min", "30 min", "15 min", "now"] {
        let _written = write!(page, "<span>{mark}</span>");
    }
    page.push_str("</div>\n");
}

/// The ticks of [`axis`] in a picture of this size.
pub(crate) fn ticks(page: &mut String, width: usize, base: usize) {
    for quarter in 0..=4 {
        let x = width * quarter / 4;
        let _written = write!(
            page,
            "<line x1=\"{x}\" y1=\"{base}\" x2=\"{x}\" y2=\"{}\" stroke=\"currentColor\" stroke-opacity=\".5\" \
             vector-effect=\"non-scaling-stroke\"/>",
            base + 6
        );
    }
}

/// Draws the last hour, now on the right; a sentence if nothing happened in it.
pub(crate) fn timeline(
    page: &mut String,
    label: &str,
    meanings: &[(&str, &str)],
    bars: impl Iterator<Item = Bar>,
) {
    const WIDTH: u128 = 1000;
    let mut bars = bars.filter(|bar| bar.age <= SPAN).peekable();
    if bars.peek().is_none() {
        page.push_str("<p>None.</p>\n");
        return;
    }
    let _written = write!(
        page,
        "<svg viewBox=\"0 0 1000 90\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{label}\"><line x1=\"0\" y1=\"80.5\" \
         x2=\"1000\" y2=\"80.5\" stroke=\"currentColor\" stroke-opacity=\".3\"/>"
    );
    ticks(page, 1000, 80);
    for bar in bars {
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
    axis(page);
    legend(page, meanings);
}

/// Escapes text for HTML: it contains no tag, and ends no quotation.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter if is_control(letter) => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_an_axis_and_a_legend_and_an_empty_one_is_words() {
        let bar = |age| Bar {
            age: Duration::from_secs(age),
            height: 40,
            color: "good",
            words: "a push".to_owned(),
        };
        let drawn = |ages: &[u64]| {
            let mut page = String::new();
            let meanings = [("good", "endpoints"), ("some", "all")];
            timeline(
                &mut page,
                "pushes",
                &meanings,
                ages.iter().copied().map(bar),
            );
            page
        };
        let page = drawn(&[60, 3601]);
        assert_eq!(page.matches("<rect").count(), 1, "{page}");
        for text in [
            ">1 h ago<",
            ">now<",
            "var(--good)\"></i>endpoints",
            "var(--some)\"></i>all",
        ] {
            assert!(page.contains(text), "{text}\n{page}");
        }
        for ages in [&[][..], &[3601]] {
            assert_eq!(drawn(ages), "<p>None.</p>\n");
        }
    }

    /// On a phone: a wide table scrolls in its own box, and the sentences in its last column keep their width.
    #[test]
    fn nothing_is_wider_than_the_screen() {
        let mut page = String::new();
        head(&mut page, "gudgeon", "");
        assert!(
            page.contains(
                "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
            )
        );
        let (_, narrow) = page.split_once("@media(max-width:40rem){").unwrap();
        for rule in [
            "h1,h2,p{overflow-wrap:anywhere}",
            "table{display:block;overflow-x:auto}",
            "th,td{min-width:6rem}",
            "td:nth-child(n+4):last-child:not(:empty){min-width:14rem}",
            "td:empty{min-width:0}",
        ] {
            assert!(narrow.contains(rule), "{rule}");
        }
        assert!(STYLE.contains("svg{width:100%"));
    }

    #[test]
    fn a_table_without_rows_is_words() {
        let drawn = |empty| {
            let mut page = String::new();
            table(&mut page, &["a", "b"], empty, |page| {
                page.push_str("<tr><td>1<td>2</tr>\n");
            });
            page
        };
        assert_eq!(drawn(Some("Nobody.")), "<p>Nobody.</p>\n");
        assert_eq!(
            drawn(None),
            "<table><tr><th>a<th>b</tr>\n<tr><td>1<td>2</tr>\n</table>\n"
        );
    }
}
