//! What whoever wrote a file should know, and the files that a program cannot read as they are.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use super::Id;
use crate::registry::Written;

/// Of one message.
pub(super) const MAX_LETTERS: usize = 1000;

/// In the place of a kind, for what has none: a file or folder that cannot be read, or not all of it.
const FILE: &str = "File";

/// Something that whoever wrote a file should know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Message {
    /// Below the directory; empty for all of it.
    pub file: Arc<str>,
    /// 0: nowhere in particular.
    pub line: usize,
    pub text: String,
    /// The object that is not used, or not all of it: its kind, its namespace and name. Where nothing can be named but the
    /// file: `File` and its path.
    pub object: Option<(Arc<str>, String)>,
}

impl Message {
    /// What was written somewhere is quoted here: one line of it, and not all of it.
    pub(in crate::registry) fn new(file: Arc<str>, line: usize, text: &str) -> Self {
        Self {
            file,
            line,
            text: one_line(text),
            object: None,
        }
    }

    pub(super) fn of(self, id: &Id) -> Self {
        let object = (id.kind.clone(), format!("{}/{}", id.namespace, id.name));
        Self {
            object: Some(object),
            ..self
        }
    }

    /// Nothing in the file can be named that this is about.
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

    /// Without the file, where that is shown beside it.
    fn in_file(&self) -> String {
        if self.line > 0 {
            format!("line {}: {}", self.line, self.text)
        } else {
            self.text.clone()
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(to, "{}: ", self.file)?;
        }
        to.write_str(&self.in_file())
    }
}

/// The files and folders that these messages are about, as those who look at objects see them: they find there why something
/// that they wrote is missing.
pub(super) fn files(messages: &[Message]) -> impl Iterator<Item = Arc<Written>> {
    let mut all: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for message in messages {
        if let Some((_, name)) = message.object.as_ref().filter(|(kind, _)| **kind == *FILE) {
            all.entry(name).or_default().push(message.in_file());
        }
    }
    all.into_iter().map(|(name, messages)| {
        Arc::new(Written {
            api_version: "".into(),
            kind: FILE.into(),
            namespace: "".into(),
            name: name.into(),
            metadata: json!({"name": name}),
            spec: json!({}).into(),
            source: name.into(),
            accepted: false,
            messages,
        })
    })
}

pub(super) fn name(path: &Path) -> Arc<str> {
    one_line(&path.to_string_lossy()).into()
}

pub(super) fn message(path: &Path, line: usize, text: &str) -> Message {
    Message::new(name(path), line, text)
}

/// For logs and pages.
pub(super) fn one_line(text: &str) -> String {
    let shown = |letter: char| if letter.is_control() { ' ' } else { letter };
    let mut letters = text.chars().map(shown);
    let mut line: String = letters.by_ref().take(MAX_LETTERS).collect();
    if letters.next().is_some() {
        line.push('…');
    }
    line
}
