//! The text of another source of metrics, on its way into the merged answer: whole lines only. Pure.
//!
//! Fed in pieces of any size; what comes out does not depend on where they were cut. One line that is no metric (the
//! page of a wrong path, say) would make Prometheus refuse the whole answer, so such lines are left out; so is what only
//! `OpenMetrics` has, for some applications answer in that whatever they are asked for. Names are not kept: a family
//! that stands in two sources stands twice in the answer. The agent's are `pintle_…`, Envoy's `envoy_…` and `istio_…`, and
//! an application has no reason to choose these.

#![forbid(unsafe_code)]

use super::syntax::{is_comment, sample};

/// Bytes of a line without its end, and so of what is held back. Chosen: Envoy's longest lines, with several long labels,
/// have 1 to 2 kB.
pub(crate) const LINE_BYTES: usize = 16 * 1024;

/// The lines of one source. Dropped when the source breaks: then the last, partial line is left out.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The line that has not ended yet.
    held: Vec<u8>,
    /// It is too long; the rest of it is dropped.
    too_long: bool,
    dropped: u64,
}

impl Lines {
    /// Takes a piece; the lines that end in it go to `out`, each with a plain line feed.
    ///
    /// `out` grows by at most the piece and one line that was held back.
    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            match piece.strip_suffix(b"\n") {
                Some(piece) => self.end_line(piece, out),
                None => self.hold(piece),
            }
        }
    }

    /// The source has ended as it should: its last line may lack its end.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.held.is_empty() || self.too_long {
            self.end_line(&[], out);
        }
    }

    /// Lines left out because they are too long, or no metrics. What only `OpenMetrics` has is not counted.
    #[must_use]
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Bytes held back.
    #[cfg(any(test, fuzzing))]
    pub(crate) const fn held(&self) -> usize {
        self.held.len()
    }

    fn hold(&mut self, piece: &[u8]) {
        if self.held.len().saturating_add(piece.len()) > LINE_BYTES {
            self.too_long = true;
            self.held.clear();
        }
        if !self.too_long {
            self.held.extend_from_slice(piece);
        }
    }

    /// `piece` is the rest of a line.
    fn end_line(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        let whole_in_piece = self.held.is_empty() && !self.too_long && piece.len() <= LINE_BYTES;
        let passes = if whole_in_piece {
            pass(piece, out)
        } else {
            self.hold(piece);
            !self.too_long && pass(&self.held, out)
        };
        self.held.clear();
        self.too_long = false;
        self.dropped = self.dropped.saturating_add((!passes).into());
    }
}

/// One line, without its end; false if it is left out for what it is.
fn pass(line: &[u8], out: &mut Vec<u8>) -> bool {
    let mut line = line;
    while let Some(rest) = line.strip_suffix(b"\r") {
        line = rest;
    }
    let Ok(text) = std::str::from_utf8(line) else {
        return false;
    };
    let kept = if text.is_empty() {
        text
    } else if text.starts_with('#') {
        if !is_comment(text) {
            return true;
        }
        text
    } else {
        match sample(text) {
            Some(sample) => sample,
            None => return false,
        }
    };
    out.extend_from_slice(kept.as_bytes());
    out.push(b'\n');
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the text that comes out of pieces, and the number of lines that were too long.
    fn passed(pieces: &[&[u8]], ends: bool) -> (String, u64) {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        for piece in pieces {
            let before = out.len();
            lines.feed(piece, &mut out);
            assert!(out.len() - before <= piece.len() + LINE_BYTES);
            assert!(lines.held.len() <= LINE_BYTES);
            assert!(lines.held.capacity() <= 2 * LINE_BYTES);
        }
        if ends {
            lines.finish(&mut out);
            assert!(lines.held.is_empty());
        }
        assert!(out.is_empty() || out.ends_with(b"\n"));
        (String::from_utf8(out).unwrap(), lines.dropped())
    }

    fn whole(text: &str) -> String {
        passed(&[text.as_bytes()], true).0
    }

    #[test]
    fn lines_pass_as_they_are() {
        let text = "# HELP a b\n# TYPE a counter\na{x=\"y\"} 1\n\nb 2 1234\n";
        assert_eq!(whole(text), text);
    }

    #[test]
    fn line_ends_become_plain() {
        assert_eq!(whole("a 1\r\r\nb 2\r\r\r\n"), "a 1\nb 2\n");
        assert_eq!(whole("a 1\r\nb 2\r\n\r\n"), "a 1\nb 2\n\n");
    }

    #[test]
    fn the_end_of_openmetrics_is_left_out() {
        assert_eq!(whole("a 1\n# EOF\n"), "a 1\n");
        assert_eq!(whole("a 1\n# EOF"), "a 1\n");
        assert_eq!(whole("a 1\r\n# EOF\r\nb 2\n"), "a 1\nb 2\n");
        // Not what is before an exemplar, and not within: Prometheus would refuse the whole answer.
        assert_eq!(whole("a 1\r # {id=\"x\"} 0.5\nb 2\n"), "b 2\n");
        assert_eq!(whole("a 1\r2\na{x=\"\r\"} 1\n"), "a{x=\"\r\"} 1\n");
        assert_eq!(whole("# EOF is near\n"), "# EOF is near\n");
    }

    #[test]
    fn lines_that_only_openmetrics_has_are_left_out() {
        let text = "# TYPE a unknown\n# TYPE b counter\n# UNIT b seconds\nb_total 1 # {id=\"}\"} 0.5 1.5\n# TYPE c\n";
        let expected = "# TYPE b counter\n# UNIT b seconds\nb_total 1\n";
        assert_eq!(passed(&[text.as_bytes()], true), (expected.to_owned(), 0));
        assert_eq!(whole("a{b=\" # {\"} 1\n"), "a{b=\" # {\"} 1\n");
        assert_eq!(whole("a{b=\" # {\"} 1 7  # {} 2\n"), "a{b=\" # {\"} 1 7\n");
    }

    #[test]
    fn comments_about_what_has_no_name_are_left_out() {
        let good = "# HELP a\n#\tHELP  a_1:b x - y\n# HELP \"a.b\" x\n#  TYPE a gauge\n#HELP 9bad x\n# HELPS 9bad x\n# help -\n";
        assert_eq!(passed(&[good.as_bytes()], true), (good.to_owned(), 0));
        for bad in [
            "# HELP 9bad x",
            "# HELP bad-name x",
            "# HELP  ",
            "# HELP \"a x",
            "# TYPE 9bad counter",
            "# TYPE my.dotted.metric counter",
            "# TYPE a  counter",
            // Prometheus reads nothing behind it.
            "#\0",
            "# a\0b",
        ] {
            assert_eq!(whole(bad), "", "{bad}");
        }
    }

    #[test]
    fn the_last_line_gets_its_end_when_the_source_ends_and_is_left_out_when_it_breaks() {
        assert_eq!(whole("a 1\nb 2"), "a 1\nb 2\n");
        assert_eq!(passed(&[b"a 1\nb 2"], false).0, "a 1\n");
        assert_eq!(whole(""), "");
    }

    #[test]
    fn all_that_the_text_format_has_passes() {
        for good in [
            "a 1",
            "a:b_c9 -1.5e+10",
            "_a\t-.5",
            "a +Inf 1234567890123",
            "a Inf",
            "a -infinity",
            "a{} NaN",
            "a nan 1",
            "a 1.7976931348623157e+308",
            "a 5.E-0324",
            "a{b=\"\\\"}\",_c1=\"\\\\\"}1",
            "a{b=\"x y\",c=\"}\",} .5 01",
            "a { b = \"ä\" } 1 ",
            "{\"a.b\",c=\"d\"} 1",
            "# anything",
            "#",
        ] {
            assert_eq!(passed(&[good.as_bytes()], true), ([good, "\n"].concat(), 0));
        }
    }

    #[test]
    fn a_line_that_is_no_metric_is_left_out_and_counted() {
        for bad in [
            "<!DOCTYPE html>",
            "  <p>404 not found</p>",
            "not found",
            "Hello world 404",
            "a",
            "a b",
            "a 1 2 3",
            "a{b=\"c\"}",
            "{\"a\": 1}",
            "{\"a\": {}, 1 }",
            "- 1",
            "404 1",
            " a 1",
            "build_version 1.2.3",
            "my.dotted.metric 5",
            "foo-bar 1",
            "lab{a=b} 1",
            "lab2{a=\"x\" b=\"y\"} 2",
            "lab3{a:b=\"x\"} 2",
            "lab4{1=\"x\"} 2",
            "lab5{\"x\"} 2",
            "lab6{a=\"x} 2",
            "lab7{a=\"x\\\"} 2",
            "lab8{,} 2",
            "{a=\"b\"} 1",
            "{\"a\",\"b\"} 1",
            "hexy 0x1p3x",
            // Go reads it, and Prometheus does not let Go.
            "a 0x1p-2",
            "a 1_000",
            "a 1e",
            "a .",
            "a e5",
            "a -NaN",
            "a infinit",
            "a 1e309",
            "a 2e308",
            "a 1 1.5",
            "a 1 9223372036854775808",
            "a 1 -1",
            "a 1 +1",
            "9a{\"x\"} 1",
            " {\"x\"} 1",
            "a 1 # x",
        ] {
            assert_eq!(
                passed(&[bad.as_bytes(), b"\na 1\n"], true),
                ("a 1\n".to_owned(), 1),
                "{bad}"
            );
        }
        assert_eq!(
            passed(&[b"a{b=\"\xff\"} 1\na 1"], true),
            ("a 1\n".to_owned(), 1)
        );
    }

    #[test]
    fn a_line_that_is_too_long_is_left_out_and_counted() {
        let line = |length: usize| ["a{b=\"", &*"x".repeat(length - 9), "\"} 1"].concat();
        let (fits, long) = (line(LINE_BYTES), line(LINE_BYTES + 1));
        let text = [&*fits, &long, "a 1"].join("\n");
        let expected = ([&*fits, "\na 1\n"].concat(), 1);
        assert_eq!(passed(&[text.as_bytes()], true), expected);
        let bytes: Vec<_> = text.as_bytes().chunks(1).collect();
        assert_eq!(passed(&bytes, true), expected);
        assert_eq!(passed(&[long.as_bytes()], true), (String::new(), 1));
        assert_eq!(passed(&[long.as_bytes()], false).0, "");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Lines of interest, cut anywhere.
        #[test]
        fn cuts_make_no_difference(
            lines in prop::collection::vec(
                prop_oneof![
                    Just("# EOF".to_owned()),
                    Just("\r".to_owned()),
                    "[a-z# \r]{0,12}",
                    "[a-z]{1,4} [0-9]{1,4}\r?",
                    (LINE_BYTES - 4..LINE_BYTES + 3).prop_map(|length| ["l 1", &*"2".repeat(length)].concat()),
                ],
                0..8,
            ),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
            ends in any::<bool>(),
        ) {
            let text = lines.join("\n");
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|at| &text.as_bytes()[at[0]..at[1]]).collect();
            prop_assert_eq!(passed(&pieces, ends), passed(&[text.as_bytes()], ends));
        }
    }
}
