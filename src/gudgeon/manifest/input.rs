//! What `-f` names: files, directories, stdin.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::file;

/// All of one input, as the contract has it for files on the command line.
const MAX_BYTES: usize = 64 << 20;
/// Read and looked at in one go.
const CHUNK_BYTES: u64 = 64 << 10;
/// Files of one directory.
const MAX_FILES: usize = 10_000;

/// A text and what it is called in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Input {
    /// Everything that the arguments name, in order.
    ///
    /// # Errors
    /// The first that cannot be read.
    pub(crate) fn read_all(arguments: &[String]) -> Result<Vec<Self>, String> {
        let mut inputs = Vec::new();
        for argument in arguments {
            if argument == "-" {
                inputs.push(Self::read("-".to_owned(), std::io::stdin().lock())?);
                continue;
            }
            let path = Path::new(argument);
            if path.is_dir() {
                for file in manifests(path)? {
                    inputs.push(Self::file(&file)?);
                }
            } else {
                inputs.push(Self::file(path)?);
            }
        }
        Ok(inputs)
    }

    fn file(path: &Path) -> Result<Self, String> {
        let name = path.display().to_string();
        let file =
            file::open_named(path).map_err(|cause| format!("cannot read {name}: {cause}"))?;
        Self::read(name, file)
    }

    fn read(name: String, from: impl std::io::Read) -> Result<Self, String> {
        let mut from = from;
        let mut bytes = Vec::new();
        loop {
            let before = bytes.len();
            from.by_ref()
                .take(CHUNK_BYTES)
                .read_to_end(&mut bytes)
                .map_err(|cause| format!("cannot read {name}: {cause}"))?;
            let chunk = bytes.get(before..).unwrap_or_default();
            // A device or an image says so at once.
            if chunk.contains(&0) {
                return Err(format!("cannot read {name}: it is no text"));
            }
            if bytes.len() > MAX_BYTES {
                let most = MAX_BYTES >> 20;
                return Err(format!("cannot read {name}: larger than {most} MiB"));
            }
            if chunk.is_empty() {
                break;
            }
        }
        let text =
            String::from_utf8(bytes).map_err(|_| format!("cannot read {name}: it is not UTF-8"))?;
        Ok(Self { name, text })
    }
}

/// The manifests of a directory, sorted, without those of the directories in it.
fn manifests(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let cannot = |cause: std::io::Error| format!("cannot read {}: {cause}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        let kind = path.extension().and_then(|extension| extension.to_str());
        // A pipe would be waited for.
        if matches!(kind, Some("yaml" | "yml" | "json")) && (path.is_file() || !path.exists()) {
            found.push(path);
        }
        if found.len() > MAX_FILES {
            return Err(format!(
                "cannot read {}: more than {MAX_FILES} manifests",
                folder.display()
            ));
        }
    }
    found.sort_unstable();
    Ok(found)
}
