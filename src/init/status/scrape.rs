//! What another source of metrics says, on its way into the merged answer: whole lines only. Pure.
//!
//! Fed in pieces of any size; what comes out does not depend on where they were cut. Names are not kept: a family that
//! stands in two sources stands twice in the answer. Ours are `pintle_…`, Envoy's `envoy_…` and `istio_…`, and nothing
//! else is expected to choose these.

#![forbid(unsafe_code)]

/// Bytes of a line without its end, and so of what is held back; ours. Envoy's longest lines, with several long labels,
/// have 1 to 2 kB.
const LINE_BYTES: usize = 16 * 1024;

/// `OpenMetrics`' end of a text; what is merged goes on after it.
const END: &[u8] = b"# EOF";

/// The lines of one source. Dropped when the source breaks: then the last, partial line is left out.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The line that has not ended yet.
    held: Vec<u8>,
    /// It is too long; what comes of it is let go.
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

    /// Lines left out because they were too long.
    #[must_use]
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
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
        if whole_in_piece {
            pass(piece, out);
            return;
        }
        self.hold(piece);
        if self.too_long {
            self.too_long = false;
            self.dropped = self.dropped.saturating_add(1);
        } else {
            pass(&self.held, out);
            self.held.clear();
        }
    }
}

/// One line, without its end.
fn pass(line: &[u8], out: &mut Vec<u8>) {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line != END {
        out.extend_from_slice(line);
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What comes out of pieces, and how many lines were too long.
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
        assert_eq!(whole("a 1\r\nb 2\r\n\r\n"), "a 1\nb 2\n\n");
        assert_eq!(whole("a\rb 1\n"), "a\rb 1\n");
    }

    #[test]
    fn the_end_of_openmetrics_is_left_out() {
        assert_eq!(whole("a 1\n# EOF\n"), "a 1\n");
        assert_eq!(whole("a 1\n# EOF"), "a 1\n");
        assert_eq!(whole("a 1\r\n# EOF\r\nb 2\n"), "a 1\nb 2\n");
        assert_eq!(whole("# EOF is near\n"), "# EOF is near\n");
    }

    #[test]
    fn the_last_line_gets_its_end_when_the_source_ends_and_is_left_out_when_it_breaks() {
        assert_eq!(whole("a 1\nb 2"), "a 1\nb 2\n");
        assert_eq!(passed(&[b"a 1\nb 2"], false).0, "a 1\n");
        assert_eq!(whole(""), "");
    }

    #[test]
    fn a_line_that_is_too_long_is_left_out_and_counted() {
        let (fits, long) = ("x".repeat(LINE_BYTES), "y".repeat(LINE_BYTES + 1));
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
        fn where_it_is_cut_makes_no_difference(
            lines in prop::collection::vec(
                prop_oneof![
                    Just("# EOF".to_owned()),
                    Just("\r".to_owned()),
                    "[a-z# \r]{0,12}",
                    (LINE_BYTES - 2..LINE_BYTES + 3).prop_map(|length| "l".repeat(length)),
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
