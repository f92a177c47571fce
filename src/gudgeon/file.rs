//! Files that are read while others are served: regular, bounded, and not waited for beyond a deadline.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use sha2::{Digest as _, Sha256};
use sources::{Disk, open_regular};
use tokio::task::spawn_blocking;

use crate::file_writer::open_at_once;

/// Bytes of a file at most: six times the size of a ConfigMap.
pub(crate) const MAX_BYTES: u64 = 6 << 20;

/// Reads all files of flags, one after the other.
static DISK: Mutex<Disk> = Mutex::new(Disk::new());

/// Returns true if reading the file timed out: it should be retried soon.
pub(crate) fn is_hanging(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut
}

/// Reads a regular file on another thread.
///
/// # Errors
/// The error of the system call; the file is too large, not regular, or does not answer.
pub(crate) async fn read(path: &Path) -> io::Result<Vec<u8>> {
    let path = path.to_owned();
    let read = spawn_blocking(move || read_first(&path)).await;
    read.map_err(io::Error::other)?
}

/// Reads a regular file at the start, blocking the thread.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_first(path: &Path) -> io::Result<Vec<u8>> {
    let max = usize::try_from(MAX_BYTES).unwrap_or(usize::MAX);
    let (bytes, _) = with_disk(|disk| disk.read(path, max))?;
    if bytes.len() > max {
        return Err(too_large());
    }
    Ok(bytes)
}

/// Checks that a path exists.
///
/// # Errors
/// The path does not exist, or does not answer.
pub(crate) async fn is_there(path: &Path) -> io::Result<()> {
    let path = path.to_owned();
    let checked = spawn_blocking(move || is_there_first(&path)).await;
    checked.map_err(io::Error::other)?
}

/// Checks that a path exists, at the start, blocking the thread.
///
/// # Errors
/// As [`is_there`].
pub(crate) fn is_there_first(path: &Path) -> io::Result<()> {
    with_disk(|disk| disk.stat(path)).map(drop)
}

fn with_disk<T>(work: impl FnOnce(&mut Disk) -> T) -> T {
    let mut disk = DISK.lock().unwrap_or_else(PoisonError::into_inner);
    disk.begin();
    let done = work(&mut disk);
    disk.rest();
    done
}

fn too_large() -> io::Error {
    io::Error::other("larger than 6 MiB")
}

/// Reads a regular file without a timeout.
///
/// # Errors
/// The error of the system call, or that the file is too large or not regular.
pub(crate) fn read_now(path: &Path) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let mut bytes = Vec::new();
    // One byte more shows that the file is too large.
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|cause| match cause.kind() == io::ErrorKind::WouldBlock {
        true => io::Error::other("it is read by waiting for it"),
        false => cause,
    })?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(too_large());
    }
    Ok(bytes)
}

/// Opens a file of the command line: a shell's pipe may block without limit, a regular file may not.
///
/// # Errors
/// The error of the system call.
pub(crate) fn open_named(path: &Path) -> io::Result<File> {
    match std::fs::metadata(path)?.is_file() {
        true => open_regular(path),
        false => File::open(path),
    }
}

/// Replaces `path` by `bytes` in one step, readable for all: a temporary file beside it, renamed. A device or pipe
/// (`/dev/null`, `/dev/stdout`) is written to instead; a pipe without a reader is an error.
///
/// # Errors
/// The error of the system call; no temporary file stays.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if is_written_to(path) {
        return open_at_once(&mut OpenOptions::new(), path)?.write_all(bytes);
    }
    replace_by(path, |to| to.write_all(bytes))
}

/// Returns true if the path exists and is neither a file nor a directory.
fn is_written_to(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|at| !at.is_file() && !at.is_dir())
}

/// As `replace`, with a callback that writes, for as long as the reader of a pipe takes.
///
/// # Errors
/// The error of the system call or of the callback; no temporary file stays.
pub(crate) fn replace_by(
    path: &Path,
    write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> io::Result<()> {
    if is_written_to(path) {
        return write(&mut OpenOptions::new().write(true).open(path)?);
    }
    let mut name = path
        .file_name()
        .ok_or_else(|| io::Error::other("not a file name"))?
        .to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let new = path.with_file_name(name);
    let result = (|| {
        let mut file = create_new(&new)?;
        let mut buffered = io::BufWriter::new(&mut file);
        write(&mut buffered)?;
        // A drop of the writer would swallow the error of its last write.
        buffered.flush()?;
        drop(buffered);
        // The umask may have kept others from reading it.
        file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
        // The content is on the disk before the name leads to it.
        file.sync_all()?;
        std::fs::rename(&new, path)
    })();
    if result.is_err() {
        // The temporary file may never have been created.
        let _gone = std::fs::remove_file(&new);
    }
    result
}

/// Creates a temporary file. The name may belong to a former process that was killed as it wrote, since the first process of a
/// container always has the same number, or to a link that leads elsewhere: it is removed, and never written through.
fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::remove_file(path)?;
            options.open(path)
        }
        opened => opened,
    }
}

/// SHA-256 in hex.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes)
        .iter()
        .fold(String::with_capacity(64), |mut hex, byte| {
            // Writing to a string cannot fail.
            let _written = write!(hex, "{byte:02x}");
            hex
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_a_sane_size() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("f");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        assert_eq!(
            read_now(&path).unwrap_err().to_string(),
            "not a regular file"
        );
        assert!(read_now(root.path()).is_err());
        let path = root.path().join("large");
        File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert_eq!(
            read_now(&path).unwrap_err().to_string(),
            "larger than 6 MiB"
        );
    }

    #[test]
    fn a_device_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        replace(&link, b"new").unwrap();
        // The pipe has no reader.
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        let error = replace(&pipe, b"new").unwrap_err();
        assert_eq!(error.to_string(), "it has no reader");
        assert!(link.is_symlink());
        assert!(!std::fs::metadata(&link).unwrap().is_file());
    }

    #[test]
    fn replaced_in_one_step() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("ca.pem");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
        assert!(replace(&root.path().join("none/ca.pem"), b"x").is_err());
    }

    /// In a folder that others may write, such a link made this program overwrite any file of its user.
    #[test]
    fn a_link_in_place_of_the_temporary_file_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let (path, other) = (root.path().join("ca.pem"), root.path().join("other"));
        let temporary = root
            .path()
            .join(format!("ca.pem.{}.tmp", std::process::id()));
        std::fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, &temporary).unwrap();
        replace(&path, b"new").unwrap();
        // A file that a former process left behind gives way, too.
        std::fs::write(&temporary, "longer than the new content").unwrap();
        replace(&path, b"newer").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"newer");
        assert_eq!(std::fs::read(&other).unwrap(), b"kept");
        assert!(!path.is_symlink() && !temporary.exists());
    }

    #[test]
    fn hex() {
        assert_eq!(
            sha256(b""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}
