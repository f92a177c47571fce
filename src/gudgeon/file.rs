//! Files that are read while others are served: bounded, and never waited for.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};

/// What a ConfigMap can hold, six times over.
pub(crate) const MAX_BYTES: u64 = 6 << 20;

/// The bytes of a regular file.
///
/// # Errors
/// What the operating system says, or that it is too large or no file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    // A FIFO in its place must not hold up the program.
    #[expect(clippy::cast_possible_wrap, reason = "the flags are the kernel's int")]
    options
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32);
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("larger than 6 MiB"));
    }
    Ok(bytes)
}

/// Leaves `bytes` at `path` in one step, readable for all: a temporary file beside it, renamed. What is no file (`/dev/null`,
/// `/dev/stdout`) is written to, and stays what it is.
///
/// # Errors
/// What the operating system says; no temporary file stays.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|at| !at.is_file() && !at.is_dir()) {
        return OpenOptions::new().write(true).open(path)?.write_all(bytes);
    }
    let mut name = path
        .file_name()
        .ok_or_else(|| io::Error::other("not a file name"))?
        .to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let new = path.with_file_name(name);
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&new)?;
        file.write_all(bytes)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    })();
    if written.is_err() {
        // It may never have been there.
        let _gone = std::fs::remove_file(&new);
    }
    written
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
        assert_eq!(read(&path).unwrap_err().to_string(), "not a regular file");
        assert!(read(root.path()).is_err());
        let path = root.path().join("large");
        std::fs::File::create(&path)
            .unwrap()
            .set_len(MAX_BYTES + 1)
            .unwrap();
        assert_eq!(read(&path).unwrap_err().to_string(), "larger than 6 MiB");
    }

    #[test]
    fn a_device_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        replace(&link, b"new").unwrap();
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

    #[test]
    fn hex() {
        assert_eq!(
            sha256(b""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}
