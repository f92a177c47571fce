//! The calls themselves, made by the thread that may hang in each of them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Instant;

use rustix::fs::OFlags;

use super::path_trace::{TraceStep, passes};
use super::{Call, DiskTimeout, FileKind, Job, Name, Progress, Reply};

impl Job {
    pub(super) fn work(&self, progress: &Progress, buffer: &mut [u8]) -> io::Result<Reply> {
        progress.at(&self.path);
        if !matches!(self.call, Call::Same(_)) && passes(&self.path, &self.hanging) {
            return Err(DiskTimeout::Hangs.into());
        }
        match &self.call {
            Call::Stat => fs::metadata(&self.path).map(Reply::Stat),
            Call::List(max) => self.list(*max, progress).map(Reply::List),
            Call::Read(max) => self.read(*max, progress, buffer),
            Call::Same(steps) => Ok(Reply::Same(steps.iter().all(TraceStep::is_same))),
        }
    }

    fn list(&self, max: usize, progress: &Progress) -> io::Result<Vec<Name>> {
        let begin = Instant::now();
        let mut names = Vec::new();
        let mut count = 0_usize;
        for entry in fs::read_dir(&self.path)? {
            progress.goes_on();
            let entry = entry?;
            self.goes_on(begin)?;
            count = count.saturating_add(1);
            if count > max {
                return Err(io::Error::other(format!("more than {max} names")));
            }
            let name = entry.file_name();
            // kubelet keeps the files of a volume below `..data` and links to them: they would be read twice.
            if !name.as_encoded_bytes().starts_with(b".") {
                names.push(name);
            }
        }
        names.sort();
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            self.goes_on(begin)?;
            if let Some(is) = self.is(&self.path.join(&name), progress) {
                entries.push(Name { name, is });
            }
        }
        Ok(entries)
    }

    /// Unless it takes too long in all, however fast each call is.
    fn goes_on(&self, begin: Instant) -> io::Result<()> {
        match begin.elapsed() > self.within {
            true => Err(DiskTimeout::Slow(self.within).into()),
            false => Ok(()),
        }
    }

    /// `None`: it is gone meanwhile.
    fn is(&self, path: &Path, progress: &Progress) -> Option<FileKind> {
        progress.at(path);
        if self.hanging.contains(path) || passes(path, &self.hanging) {
            return Some(FileKind::Unknown(DiskTimeout::Hangs.to_string()));
        }
        let is_link = fs::symlink_metadata(path).ok()?.is_symlink();
        let Ok(data) = fs::metadata(path) else {
            return Some(FileKind::Dangling);
        };
        let folder = match is_link && data.is_file() {
            true => fs::canonicalize(path).ok(),
            false => None,
        };
        let folder = folder.as_deref().and_then(Path::parent);
        Some(FileKind::Known(data, folder.map(Path::to_path_buf)))
    }

    fn read(&self, max: usize, progress: &Progress, buffer: &mut [u8]) -> io::Result<Reply> {
        let begin = Instant::now();
        let mut file = open_regular(&self.path)?;
        let data = file.metadata()?;
        let mut bytes = Vec::new();
        while bytes.len() <= max {
            progress.goes_on();
            let count = match file.read(buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::other("it is read by waiting for it"));
                }
                Err(error) => return Err(error),
            };
            let room = max.saturating_add(1).saturating_sub(bytes.len());
            bytes.extend_from_slice(buffer.get(..count.min(room)).unwrap_or_default());
            self.goes_on(begin)?;
        }
        Ok(Reply::Read(bytes, data))
    }
}

/// Opens a regular file, or fails: a pipe without a writer would block, and a device is not even opened.
///
/// # Errors
/// The error of the system call, or that the file is not regular.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let irregular = || io::Error::other("not a regular file");
    if !fs::metadata(path)?.is_file() {
        return Err(irregular());
    }
    // A pipe may take the file's place in this moment: without NONBLOCK its open would wait for a writer.
    let mut options = OpenOptions::new();
    #[expect(clippy::cast_possible_wrap, reason = "the flags are the kernel's int")]
    let file = options
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32)
        .open(path)?;
    // The path may lead to another file than a moment ago.
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(irregular()),
    }
}
