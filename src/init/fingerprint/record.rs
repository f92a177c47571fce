//! The record of a path, and its hash: a tag, the path, its content.

#![forbid(unsafe_code)]

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};

pub(super) type Hash = [u8; 32];

/// A path's content when it was read last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// The key of the path.
    pub(super) key: u64,
    pub(super) hash: Hash,
    /// So many that follow are below this one.
    pub(super) below: usize,
}

/// FNV-1a.
pub(super) fn key(path: &Path) -> u64 {
    let bytes = path.as_os_str().as_bytes();
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |key, byte| {
        (key ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Begins a record's hash.
pub(super) fn tagged(tag: u8, path: &Path) -> Sha256 {
    let mut hash = Sha256::new();
    hash.update([tag]);
    number(&mut hash, path.as_os_str().len());
    hash.update(path.as_os_str().as_bytes());
    hash
}

pub(super) fn number(hash: &mut Sha256, number: usize) {
    hash.update((number as u64).to_le_bytes());
}

pub(super) fn of(tag: u8, path: &Path, numbers: &[u64]) -> Hash {
    let mut hash = tagged(tag, path);
    for number in numbers {
        hash.update(number.to_le_bytes());
    }
    hash.finalize().into()
}

pub(super) fn of_file(path: &Path, length: u64, content: &Hash) -> Hash {
    let mut hash = tagged(b'f', path);
    hash.update(length.to_le_bytes());
    hash.update(content);
    hash.finalize().into()
}
