//! An error in words of its own. `io::Error::other` of a text brings the code that shows any text to a programmer, 3 kB.

use std::error::Error;
use std::fmt;
use std::io;

struct Said(String);

/// An error that says `what`, and has no number.
#[must_use]
pub fn said(what: &str) -> io::Error {
    io::Error::other(Said(what.to_owned()))
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Said {}
