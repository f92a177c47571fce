//! Bounds on a peer's words that are kept.

/// Bytes of a NACK's message that are stored.
pub(crate) const WORDS: usize = 4096;

/// Bytes of a name that are stored.
pub(crate) const NAME: usize = 256;
