//! A failure, in one line: `cannot <verb> <object>: <cause>`. Libraries wrap the cause in layers that say "client
//! error" and the like: only the innermost says something, and an operating system's words come without their number.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::io;

/// The longest line of an error, in bytes: a server's words may be in it. Chosen: four lines of a wide terminal.
const MAX_LINE_BYTES: usize = 512;

/// One line.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    /// Makes the failure of a step, written as `<verb> <object>`, from its reason.
    pub(crate) fn new(step: &str, cause: &str) -> Self {
        Self::line(&["cannot ", step, ": ", cause].concat())
    }

    /// Makes the failure of a step from a library's error.
    pub(crate) fn of(step: &str, error: &(dyn Error + 'static)) -> Self {
        Self::new(step, &cause(error))
    }

    /// Any text: control characters become spaces, and what is too long is cut.
    pub(crate) fn line(text: &str) -> Self {
        let mut line = String::new();
        for letter in text.chars() {
            if line.len() >= MAX_LINE_BYTES {
                line.push('…');
                break;
            }
            line.push(if letter.is_control() { ' ' } else { letter });
        }
        Self(line)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The innermost reason.
pub(crate) fn cause(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    loop {
        // An `io::Error` with another error in it has that one's source as its own.
        let inside = innermost
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .map(|inside| inside as &(dyn Error + 'static));
        match inside.or_else(|| innermost.source()) {
            Some(source) => innermost = source,
            None => break,
        }
    }
    let text = innermost.to_string();
    if innermost.is::<io::Error>() {
        let words = text
            .split_once(" (os error")
            .map_or(&*text, |(words, _)| words);
        return words.to_lowercase();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operating_system_error_is_plain_words() {
        let error = io::Error::from_raw_os_error(111);
        let failure = Failure::of("connect to 127.0.0.1:9", &error);
        assert_eq!(
            failure.to_string(),
            "cannot connect to 127.0.0.1:9: connection refused"
        );
    }

    #[test]
    fn the_innermost_cause_is_told() {
        let inner = io::Error::from_raw_os_error(104);
        let error = io::Error::other(io::Error::other(inner));
        let failure = Failure::of("read the answer", &error);
        assert_eq!(
            failure.to_string(),
            "cannot read the answer: connection reset by peer"
        );
    }

    #[test]
    fn it_stays_one_bounded_line() {
        let failure = Failure::new("x", &"a\r\nb".repeat(1000)).to_string();
        assert!(!failure.contains(['\r', '\n']));
        assert!(failure.len() <= MAX_LINE_BYTES + '…'.len_utf8());
    }
}
