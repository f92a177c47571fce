//! The arguments of `-f`: files, directories, stdin.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::file;

/// Bytes of one input, by the contract for files on the command line.
const MAX_BYTES: usize = 64 << 20;
/// Bytes of all inputs together. Each is kept until the end: output that is too large to be kept is produced a second time,
/// and a pipe can be read only once.
const ALL_BYTES: usize = 2 * MAX_BYTES;
/// Bytes that are read and checked at once.
const CHUNK_BYTES: u64 = 64 << 10;
/// Files of one directory.
const MAX_FILES: usize = 10_000;

/// A text, with its name in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Input {
    /// Reads all inputs that the arguments name, in order.
    ///
    /// # Errors
    /// The first input that cannot be read.
    pub(crate) fn read_all(arguments: &[String]) -> Result<Vec<Self>, String> {
        Self::read_within(arguments, ALL_BYTES)
    }

    pub(super) fn read_within(arguments: &[String], max: usize) -> Result<Vec<Self>, String> {
        let mut inputs = Inputs {
            read: Vec::new(),
            max,
            room: max,
        };
        for argument in arguments {
            if argument == "-" {
                inputs.add("-".to_owned(), std::io::stdin().lock())?;
                continue;
            }
            let path = Path::new(argument);
            if path.is_dir() {
                for file in manifests(path)? {
                    inputs.file(&file)?;
                }
            } else {
                inputs.file(path)?;
            }
        }
        Ok(inputs.read)
    }
}

/// The inputs so far, and the bytes that are left.
struct Inputs {
    read: Vec<Input>,
    max: usize,
    room: usize,
}

impl Inputs {
    fn file(&mut self, path: &Path) -> Result<(), String> {
        let name = path.display().to_string();
        let file =
            file::open_named(path).map_err(|cause| format!("cannot read {name}: {cause}"))?;
        self.add(name, file)
    }

    fn add(&mut self, name: String, from: impl std::io::Read) -> Result<(), String> {
        let mut from = from;
        let mut bytes = Vec::new();
        loop {
            let before = bytes.len();
            from.by_ref()
                .take(CHUNK_BYTES)
                .read_to_end(&mut bytes)
                .map_err(|cause| format!("cannot read {name}: {cause}"))?;
            let chunk = bytes.get(before..).unwrap_or_default();
            // A device or a binary file shows at once.
            if chunk.contains(&0) {
                return Err(format!("cannot read {name}: it is no text"));
            }
            if bytes.len() > MAX_BYTES {
                let max = MAX_BYTES >> 20;
                return Err(format!("cannot read {name}: larger than {max} MiB"));
            }
            if bytes.len() > self.room {
                let max = self.max >> 20;
                return Err(format!(
                    "cannot read {name}: all inputs together are larger than {max} MiB"
                ));
            }
            if chunk.is_empty() {
                break;
            }
        }
        let text =
            String::from_utf8(bytes).map_err(|_| format!("cannot read {name}: it is not UTF-8"))?;
        self.room -= text.len();
        self.read.push(Input { name, text });
        Ok(())
    }
}

/// The manifests of a directory, sorted, without those of the directories in it.
fn manifests(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let cannot = |cause: std::io::Error| format!("cannot read {}: {cause}", folder.display());
    let mut manifests = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        let kind = path.extension().and_then(|extension| extension.to_str());
        // A pipe would be waited for.
        // A link that leads nowhere is listed, so that its error is told.
        if matches!(kind, Some("yaml" | "yml" | "json")) && (path.is_file() || !path.exists()) {
            manifests.push(path);
        }
        if manifests.len() > MAX_FILES {
            return Err(format!(
                "cannot read {}: more than {MAX_FILES} manifests",
                folder.display()
            ));
        }
    }
    manifests.sort_unstable();
    Ok(manifests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_input_is_refused() {
        let mut inputs = Inputs {
            read: Vec::new(),
            max: ALL_BYTES,
            room: ALL_BYTES,
        };
        let endless = inputs.add("yes".to_owned(), std::io::repeat(b'y'));
        assert_eq!(
            endless,
            Err("cannot read yes: larger than 64 MiB".to_owned())
        );
        let nothing = inputs.add("zero".to_owned(), std::io::repeat(0));
        assert_eq!(nothing, Err("cannot read zero: it is no text".to_owned()));
    }

    #[test]
    fn all_inputs_together_have_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.yaml", "b.yaml", "c.yaml"] {
            std::fs::write(folder.path().join(name), "#".repeat(1 << 20)).unwrap();
        }
        let folder = [folder.path().to_str().unwrap().to_owned()];
        assert_eq!(Input::read_within(&folder, 3 << 20).unwrap().len(), 3);
        let cause = Input::read_within(&folder, 2 << 20).unwrap_err();
        assert!(
            cause.ends_with("c.yaml: all inputs together are larger than 2 MiB"),
            "{cause}"
        );
    }
}
