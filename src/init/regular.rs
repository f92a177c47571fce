//! Opening and reading files that somebody else named: regular ones only, of a limited size, without waiting.
//!
//! Opening a FIFO waits for its other end, opening a device may wait or act, a terminal becomes the agent's own, and reading
//! the kernel's own files (`/proc/kmsg`), which count as regular, waits for data. So the kind is checked first, the file is
//! opened without blocking, and the kind is checked again: the path may lead elsewhere by then.
//!
//! Nothing bounds a file system that does not answer (a network's, or FUSE whose daemon hangs): Linux has no
//! open or stat that gives up there, O_NONBLOCK means nothing to it, and once the daemon has taken a request no signal but
//! KILL ends the wait. Such a file must not be watched, nor the proxy's configuration: PID 1 would stand still until the
//! file system answers. KILL works meanwhile, so the kubelet, whose liveness probe fails, can restart the container.

#![forbid(unsafe_code)]

use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;

/// Opens `path` to be read, if it leads to a regular file.
///
/// # Errors
/// It is of another kind, or cannot be opened.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    open_with(path, sys::OPEN_READ)
}

/// As `open`, to be changed as well; never creates it.
///
/// # Errors
/// As for `open`.
pub(crate) fn open_to_change(path: &Path) -> io::Result<File> {
    open_with(path, sys::OPEN_READ_WRITE)
}

/// All of `path`, if it is a regular file of at most `max` bytes.
///
/// # Errors
/// As for `open`; `FileTooLarge`; `WouldBlock` for a file of the kernel's own that has nothing to say yet.
pub(crate) fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    sys::read_whole(&mut open(path)?, max)
}

fn open_with(path: &Path, flags: sys::OpenFlags) -> io::Result<File> {
    check(&fs::metadata(path)?)?;
    let file = sys::open(path, flags | sys::OPEN_WITHOUT_WAITING, 0)?;
    check(&file.metadata()?)?;
    Ok(file)
}

fn check(found: &Metadata) -> io::Result<()> {
    if found.is_file() {
        Ok(())
    } else {
        Err(sys::error("not a regular file".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    #[test]
    fn only_regular_files_are_opened_and_none_is_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let made = Command::new("mkfifo").arg(at("fifo")).status().unwrap();
        assert!(made.success());
        let _socket = UnixListener::bind(at("socket")).unwrap();
        symlink(at("loop"), at("loop")).unwrap();
        symlink(at("nothing"), at("dangling")).unwrap();
        symlink("/dev/zero", at("device")).unwrap();
        symlink(at("fifo"), at("link")).unwrap();
        for name in ["fifo", "socket", "loop", "dangling", "device", "link", "."] {
            let read = read(&at(name), 10);
            assert!(read.is_err(), "{name}: {read:?}");
            assert!(open_to_change(&at(name)).is_err(), "{name}");
        }
        fs::write(at("file"), "0123456789").unwrap();
        assert_eq!(read(&at("file"), 10).unwrap(), b"0123456789");
        let error = read(&at("file"), 9).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_huge_file_is_not_read_beyond_the_limit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        let error = read(file.path(), 4096).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
