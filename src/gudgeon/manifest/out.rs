//! The output, piece by piece, and the state that the next piece depends on.

use std::io::{self, Write};

/// Bytes of output that are kept in memory: larger output is produced a second time, directly to its destination.
const BUFFERED_BYTES: usize = 16 << 20;

/// A writer that remembers its end.
pub(super) struct Out<'a> {
    to: &'a mut dyn Write,
    last: Option<char>,
    failed: io::Result<()>,
}

impl<'a> Out<'a> {
    pub(super) fn new(to: &'a mut dyn Write) -> Self {
        Self {
            to,
            last: None,
            failed: Ok(()),
        }
    }

    pub(super) fn push_str(&mut self, text: &str) {
        if self.failed.is_ok() && !text.is_empty() {
            self.last = text.chars().next_back();
            self.failed = self.to.write_all(text.as_bytes());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    pub(super) fn ends_line(&self) -> bool {
        self.last == Some('\n')
    }

    /// # Errors
    /// A write has failed.
    pub(super) fn finish(self) -> io::Result<()> {
        self.failed
    }
}

/// The whole output, unless it is too large.
#[derive(Debug)]
pub(super) struct BufferedOutput(Option<Vec<u8>>);

impl BufferedOutput {
    pub(super) const fn new() -> Self {
        Self(Some(Vec::new()))
    }

    /// `None`: it was too much.
    pub(super) fn whole(self) -> Option<Vec<u8>> {
        self.0
    }
}

impl Write for BufferedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.take().and_then(|mut buffer| {
            buffer.extend_from_slice(bytes);
            (buffer.len() <= BUFFERED_BYTES).then_some(buffer)
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
