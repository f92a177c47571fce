//! The names in a directory, without the C library's stream: that would bring its `malloc`, which nothing else uses.

use std::ffi::{OsStr, OsString, c_long};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use super::open::{OPEN_DIRECTORY, OPEN_READ, open};

/// Bytes of entries that are read at once. Chosen: one entry takes 280 at most.
const READ_BYTES: usize = 2048;
/// The positions of an entry's length and name in it: `linux_dirent64`.
const LENGTH_AT: usize = 16;
const NAME_AT: usize = 19;

/// Calls `each` with every name but `.` and `..`, in the order of the file system, until it has seen enough.
///
/// # Errors
/// The directory cannot be opened or read.
pub fn names(directory: &Path, each: &mut dyn FnMut(&OsStr) -> bool) -> io::Result<()> {
    // What is no directory any more is refused before it is opened: a FIFO would wait for its other end.
    let file = open(directory, OPEN_READ | OPEN_DIRECTORY, 0)?;
    let mut buffer = [0; READ_BYTES];
    loop {
        let mut rest = fill(&file, &mut buffer)?;
        if rest.is_empty() {
            return Ok(());
        }
        while let Some((name, after)) = entry(rest) {
            rest = after;
            if name != b"." && name != b".." && !each(OsStr::from_bytes(name)) {
                return Ok(());
            }
        }
    }
}

/// Where relative paths begin.
///
/// # Errors
/// It has been removed, or lies outside of the process' root, from where no path leads to it.
pub fn current_directory() -> io::Result<PathBuf> {
    // `PATH_MAX`, which the kernel keeps to.
    let mut bytes = Vec::with_capacity(4096);
    let into: *mut u8 = bytes.as_mut_ptr();
    // SAFETY: the pointer and the length describe the vector's memory.
    let length = unsafe { libc::syscall(libc::SYS_getcwd, into, bytes.capacity()) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has written that many, a NUL the last.
    unsafe { bytes.set_len(length) };
    bytes.pop();
    reachable(bytes)
}

/// The kernel writes `(unreachable)/x` for what lies outside of the root: a relative path, which begins elsewhere.
fn reachable(path: Vec<u8>) -> io::Result<PathBuf> {
    if path.starts_with(b"/") {
        Ok(PathBuf::from(OsString::from_vec(path)))
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}

fn fill<'b>(file: &File, buffer: &'b mut [u8; READ_BYTES]) -> io::Result<&'b [u8]> {
    let into = buffer.as_mut_ptr();
    // SAFETY: the pointer and the length describe the buffer, which outlives the call.
    let read: c_long =
        unsafe { libc::syscall(libc::SYS_getdents64, file.as_raw_fd(), into, READ_BYTES) };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    Ok(buffer.get(..read).unwrap_or_default())
}

/// The name of the first entry, and what follows that.
fn entry(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = bytes.get(LENGTH_AT..)?.first_chunk::<2>()?;
    let (entry, after) = bytes.split_at_checked(usize::from(u16::from_ne_bytes(*length)))?;
    let name = entry.get(NAME_AT..)?.split(|byte| *byte == 0).next()?;
    Some((name, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_directory_is_std_s() {
        assert_eq!(
            current_directory().unwrap(),
            std::env::current_dir().unwrap()
        );
    }

    #[test]
    fn a_directory_outside_of_the_root_is_an_error() {
        assert_eq!(reachable(b"/a".to_vec()).unwrap(), PathBuf::from("/a"));
        for outside in ["(unreachable)/a", "(unreachable)", ""] {
            let error = reachable(outside.into()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{outside}");
        }
    }

    #[test]
    fn every_name_is_told_once_and_no_more_than_wanted() {
        let root = tempfile::tempdir().unwrap();
        let mut expected: Vec<_> = (0..200).map(|n| format!("{n}-{:0100}", 0)).collect();
        for name in &expected {
            File::create(root.path().join(name)).unwrap();
        }
        let mut found = Vec::new();
        names(root.path(), &mut |name| {
            found.push(name.to_str().unwrap().to_owned());
            true
        })
        .unwrap();
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
        let mut calls = 0;
        names(root.path(), &mut |_| {
            calls += 1;
            calls < 3
        })
        .unwrap();
        assert_eq!(calls, 3);
        let file = root.path().join(&expected[0]);
        assert!(names(&file, &mut |_| true).is_err());
        assert!(names(&root.path().join("absent"), &mut |_| true).is_err());
    }
}
