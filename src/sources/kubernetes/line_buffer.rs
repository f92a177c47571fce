//! A watch is a stream of lines without an end. A line has a bound; the stream has none.

use super::failure::Cause;

/// The capacity that an empty buffer may keep: one large object must not hold its memory for ever.
const MAX_IDLE_CAPACITY: usize = 16 << 10;

#[derive(Debug)]
pub(crate) struct LineBuffer {
    max: usize,
    buffer: Vec<u8>,
    /// The offset of the next line; the bytes before it have been taken.
    begin: usize,
    /// Bytes that have been searched for the end of a line.
    searched: usize,
}

impl LineBuffer {
    pub(crate) const fn new(max: usize) -> Self {
        Self {
            max,
            buffer: Vec::new(),
            begin: 0,
            searched: 0,
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole line, without its end; empty ones are left out.
    ///
    /// # Errors
    /// It is longer than the bound, whether its end has come or not.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, Cause> {
        loop {
            let rest = self.buffer.get(self.searched..).unwrap_or_default();
            let Some(newline) = rest.iter().position(|&byte| byte == b'\n') else {
                self.rest();
                if self.buffer.len() > self.max {
                    return Err(Cause::TooLarge(self.max));
                }
                return Ok(None);
            };
            // `searched` is never before `begin`, so that `end - begin` cannot underflow.
            let (begin, end) = (self.begin, self.searched + newline);
            (self.begin, self.searched) = (end + 1, end + 1);
            if end - begin > self.max {
                return Err(Cause::TooLarge(self.max));
            }
            let line = self.buffer.get(begin..end).unwrap_or_default();
            if !line.is_empty() {
                return Ok(Some(line.to_vec()));
            }
        }
    }

    /// Frees the bytes of returned lines, once per chunk.
    fn rest(&mut self) {
        self.buffer.drain(..self.begin);
        self.begin = 0;
        self.searched = self.buffer.len();
        if self.buffer.is_empty() && self.buffer.capacity() > MAX_IDLE_CAPACITY {
            self.buffer = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The lines do not depend on the chunks' boundaries.
        #[test]
        fn lines_do_not_depend_on_chunks(
            lines in prop::collection::vec("[a-z]{0,20}", 0..20),
            cuts in prop::collection::vec(1..9_usize, 1..200),
        ) {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let mut reader = LineBuffer::new(20);
            let (mut found, mut rest, mut cuts) = (Vec::new(), text.as_bytes(), cuts.iter().cycle());
            while !rest.is_empty() {
                let (chunk, more) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                rest = more;
                reader.push(chunk);
                while let Some(line) = reader.next().unwrap() {
                    found.push(String::from_utf8(line).unwrap());
                }
            }
            let expected: Vec<String> = lines.into_iter().filter(|line| !line.is_empty()).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_line_without_an_end_is_an_error_at_its_bound() {
        let mut reader = LineBuffer::new(8);
        reader.push(b"12345678");
        assert!(matches!(reader.next(), Ok(None)));
        reader.push(b"9");
        assert!(matches!(reader.next(), Err(Cause::TooLarge(8))));
        let mut reader = LineBuffer::new(8);
        reader.push(b"ok\n123456789\n");
        assert_eq!(reader.next().unwrap().unwrap(), b"ok");
        assert!(matches!(reader.next(), Err(Cause::TooLarge(8))));
    }

    #[test]
    fn the_memory_of_a_long_line_is_given_back() {
        let mut reader = LineBuffer::new(1 << 20);
        reader.push(&[b'x'; 1 << 20]);
        reader.push(b"\n");
        assert_eq!(reader.next().unwrap().unwrap().len(), 1 << 20);
        assert!(reader.next().unwrap().is_none());
        assert!(reader.buffer.capacity() <= MAX_IDLE_CAPACITY);
    }

    #[test]
    fn a_chunk_of_short_lines_is_moved_once() {
        let mut reader = LineBuffer::new(1 << 20);
        let lines = 1 << 20;
        reader.push(&b"\n".repeat(lines));
        reader.push(&b"x\n".repeat(lines));
        // Moving the rest for each line would take minutes.
        let mut found = 0;
        while reader.next().unwrap().is_some() {
            found += 1;
        }
        assert_eq!(found, lines);
    }
}
