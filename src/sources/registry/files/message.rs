//! Messages about files and their objects, and entries for files that cannot be read as they are.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use api::config::Finding;
use serde_json::json;

use super::FileObjectId;
use super::one_line::one_line;
use crate::catalogue::Origin;
use crate::kind::Revision;
use crate::registry::WrittenObject;

/// The kind in messages without an object: a file or directory that cannot be read completely.
const FILE: &str = "File";

/// A message to the author of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Message {
    /// The path below the directory; empty for the directory itself.
    pub file: Arc<str>,
    /// The line; 0 if unknown.
    pub line: usize,
    pub text: String,
    /// Kind, namespace and name of the object that is not used, or not completely. `File` and the path, if no object can be
    /// named.
    pub object: Option<(Arc<str>, String)>,
}

impl Message {
    /// Creates a message; `text` may quote user input and is reduced to one line of limited length.
    pub(in crate::registry) fn new(file: Arc<str>, line: usize, text: &str) -> Self {
        Self {
            file,
            line,
            text: one_line(text),
            object: None,
        }
    }

    pub(super) fn of(self, id: &FileObjectId) -> Self {
        let object = (id.kind.clone(), format!("{}/{}", id.namespace, id.name));
        Self {
            object: Some(object),
            ..self
        }
    }

    /// Attributes the message to the file itself, as it concerns no object.
    pub(super) fn of_file(self) -> Self {
        let name = match &*self.file {
            "" => ".",
            file => file,
        };
        Self {
            object: Some((FILE.into(), name.to_owned())),
            ..self
        }
    }

    /// Renders the message without the file, which is shown beside it.
    fn in_file(&self) -> String {
        if self.line > 0 {
            format!("line {}: {}", self.line, self.text)
        } else {
            self.text.clone()
        }
    }
}

impl Message {
    /// Renders the message with the file as its reader finds it, below this directory; `FILE:LINE: TEXT`.
    #[must_use]
    pub fn below(&self, directory: &Path) -> String {
        let place = match &*self.file {
            "" => directory.to_path_buf(),
            file => directory.join(file),
        };
        let place = place.display();
        match self.line {
            0 => format!("{place}: {}", self.text),
            line => format!("{place}:{line}: {}", self.text),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.file {
            "" => to.write_str(&self.in_file()),
            _ => to.write_str(&self.below(Path::new(""))),
        }
    }
}

/// Yields the files and directories of these messages in the form of objects: pages show there why an object is missing.
pub(super) fn files(messages: &[Message]) -> impl Iterator<Item = Arc<WrittenObject>> {
    let mut all: BTreeMap<&str, Vec<Finding>> = BTreeMap::new();
    for message in messages {
        if let Some((_, name)) = message.object.as_ref().filter(|(kind, _)| **kind == *FILE) {
            let error = Finding::error("", message.in_file());
            all.entry(name).or_default().push(error);
        }
    }
    all.into_iter().map(|(name, messages)| {
        Arc::new(WrittenObject {
            api_version: "".into(),
            kind: FILE.into(),
            namespace: "".into(),
            name: name.into(),
            metadata: json!({"name": name}),
            spec: json!({}).into(),
            origin: Origin::file(name),
            accepted: false,
            findings: messages,
            notes: Vec::new(),
            revision: Revision::default(),
        })
    })
}

pub(super) fn name(path: &Path) -> Arc<str> {
    one_line(&path.to_string_lossy()).into()
}

pub(super) fn message(path: &Path, line: usize, text: &str) -> Message {
    Message::new(name(path), line, text)
}
