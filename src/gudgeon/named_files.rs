//! The arguments of `-f`: files, stdin, and directories with all that is below them; and the namespace of `-n`.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use api::config::Finding;
use api::config::document::{COMMAND_LINE, Part};
use api::text::is_control;
use serde_json::{Map, Value};

use crate::file;

/// Files of all arguments together at most.
const MAX_FILES: usize = 100_000;
/// Directories within each other.
const MAX_DEPTH: usize = 64;

/// A file that an argument leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundFile {
    pub(crate) path: PathBuf,
    /// The argument is a directory above it: the file may belong to another program.
    pub(crate) below: bool,
}

/// A text, with its name in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedFile {
    pub(crate) name: String,
    pub(crate) text: String,
    /// True if it is below a directory that was named, as of [`FoundFile`].
    pub(crate) below: bool,
}

/// A file that was not read, with the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnreadFile {
    pub(crate) name: String,
    pub(crate) cause: String,
}

/// Lists all files that the arguments name, in order, and each file once. An unreadable path has its error in its place.
/// `is_excluded` is asked of the path of each file and directory below an argument, relative to it.
///
/// # Errors
/// A directory that has no manifests.
pub(crate) fn named(
    arguments: &[String],
    is_excluded: &dyn Fn(&Path) -> bool,
) -> Result<Vec<Result<FoundFile, UnreadFile>>, String> {
    let mut all = Vec::new();
    let mut places = HashSet::new();
    for argument in arguments {
        let path = Path::new(argument);
        if argument == "-" || !path.is_dir() {
            if places.insert(place(path)) {
                all.push(Ok(FoundFile {
                    path: path.to_path_buf(),
                    below: false,
                }));
            }
            continue;
        }
        let mut walk = Walk {
            root: path,
            is_excluded,
            has_excluded: false,
            found: Vec::new(),
            seen: HashSet::new(),
        };
        walk.folder(path, 0);
        if walk.found.is_empty() && !walk.has_excluded {
            return Err(format!(
                "cannot read {argument}: no .yaml, .yml or .json file in it"
            ));
        }
        // Sorted by bytes, as in galley: both must report the same one of two duplicates.
        let bytes = |path: &PathBuf| path.as_os_str().as_encoded_bytes().to_vec();
        walk.found.sort_by_cached_key(|(path, _)| bytes(path));
        for (path, unread) in walk.found {
            match unread {
                Some(unread) => all.push(Err(unread)),
                None if places.insert(place(&path)) => {
                    all.push(Ok(FoundFile { path, below: true }));
                }
                None => {}
            }
        }
        if all.len() > MAX_FILES {
            return Err(format!(
                "cannot read {argument}: more than {MAX_FILES} files"
            ));
        }
    }
    Ok(all)
}

/// The same for all ways that lead to a file.
fn place(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}

struct Walk<'a> {
    root: &'a Path,
    is_excluded: &'a dyn Fn(&Path) -> bool,
    has_excluded: bool,
    found: Vec<(PathBuf, Option<UnreadFile>)>,
    /// Directories that were seen: links may lead back.
    seen: HashSet<PathBuf>,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Path, depth: usize) {
        if !self.seen.insert(place(folder)) {
            return;
        }
        let entries = match fs::read_dir(folder) {
            Ok(entries) if depth < MAX_DEPTH => entries,
            Ok(_) => return self.unread(folder, "too many directories within each other"),
            Err(cause) => return self.unread(folder, &cause.to_string()),
        };
        for entry in entries {
            let path = match entry {
                Ok(entry) => entry.path(),
                Err(cause) => {
                    self.unread(folder, &cause.to_string());
                    continue;
                }
            };
            let hidden = path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            let below = path.strip_prefix(self.root).unwrap_or(&path);
            if hidden || self.found.len() > MAX_FILES {
                continue;
            }
            if (self.is_excluded)(below) {
                self.has_excluded = true;
                continue;
            }
            if path.is_dir() {
                self.folder(&path, depth + 1);
                continue;
            }
            let kind = path.extension().and_then(|extension| extension.to_str());
            // A pipe would be waited for.
            // A link that leads nowhere is listed, so that its error is told.
            if matches!(kind, Some("yaml" | "yml" | "json")) && (path.is_file() || !path.exists()) {
                self.found.push((path, None));
            }
        }
    }

    fn unread(&mut self, folder: &Path, cause: &str) {
        let unread = UnreadFile {
            name: printable(folder),
            cause: cause.to_owned(),
        };
        self.found.push((folder.to_path_buf(), Some(unread)));
    }
}

/// Renders a path on one line, with control characters escaped.
fn printable(path: &Path) -> String {
    let name = path.display().to_string();
    match name.contains(is_control) {
        true => name.escape_debug().to_string(),
        false => name,
    }
}

impl NamedFile {
    pub(crate) fn read(found: &FoundFile) -> Result<Self, UnreadFile> {
        let FoundFile { path, below } = found;
        let name = printable(path);
        let unread = |cause: String| UnreadFile {
            name: name.clone(),
            cause,
        };
        let bytes = match name.as_str() {
            "-" => take(std::io::stdin().lock()).map(Some),
            _ => file::open_named(path).and_then(|file| {
                // A file that is too large is not read at all.
                if file.metadata()?.len() > COMMAND_LINE.bytes as u64 {
                    return Ok(None);
                }
                take(file).map(Some)
            }),
        };
        let bytes = bytes
            .map_err(|cause| unread(cause.to_string()))?
            .filter(|bytes| bytes.len() <= COMMAND_LINE.bytes)
            .ok_or_else(|| {
                let length = api::size::longer_than(COMMAND_LINE.bytes);
                unread(format!("{length}: split it into several files"))
            })?;
        let text = String::from_utf8(bytes).map_err(|_| unread("it is not UTF-8".to_owned()))?;
        Ok(Self {
            name,
            text,
            below: *below,
        })
    }

    /// Returns true if text that is not YAML from this line on may belong to another program: below a directory alone.
    pub(crate) fn skips_text(&self, line: usize) -> bool {
        self.below && is_anothers_text(&self.text, line)
    }

    /// The same of a document that is no object.
    pub(crate) fn skips_value(&self, value: &Value) -> bool {
        self.below && says_no_kind(value)
    }

    /// The same of an object with errors in what a template fills in.
    pub(crate) fn skips_object(&self, part: &Part<'_>, findings: &[Finding]) -> bool {
        self.below && is_filled_in_later(part, findings)
    }
}

/// Returns true if there is no `apiVersion`, which other files with a `kind` lack. One of ours without a kind is a mistake, and so
/// is a misspelled `apiVersion` beside a `kind` and `metadata`.
fn says_no_kind(value: &Value) -> bool {
    let is_set = |key| value.get(key).is_some_and(|field| !field.is_null());
    !(is_set("apiVersion") || is_set("kind") && is_set("metadata"))
}

/// The begin of an action of Helm, and of other templates.
const ACTION: &str = "{{";

/// Returns true if text that is not YAML from this line on may be a template, or holds no object at all. An object of Istio is
/// judged unless an action stands where YAML itself takes none: its author looks for mistakes in it.
fn is_anothers_text(text: &str, line: usize) -> bool {
    if !text.contains("apiVersion") {
        return true;
    }
    // The parser may find one line later what an action has broken.
    let mut before = text.lines().take(line.saturating_add(1));
    match text.lines().any(is_version_of_istio) {
        true => before.any(has_bare_action),
        false => before.any(|line| line.contains(ACTION)),
    }
}

/// Returns true for the line of an `apiVersion` of Istio's, in YAML or JSON.
fn is_version_of_istio(line: &str) -> bool {
    let line = line.trim_start_matches(|letter: char| " \t-{\"'".contains(letter));
    let value = line.strip_prefix("apiVersion");
    value.is_some_and(|value| value.contains("istio.io/"))
}

/// Returns true if an action stands in a line outside of comments and of quoted texts that hold all of it.
fn has_bare_action(line: &str) -> bool {
    let mut before = ' ';
    let mut rest = line;
    while let Some(letter) = rest.chars().next() {
        let is_first = before.is_whitespace() || ":,[{-".contains(before);
        if rest.starts_with(ACTION) {
            return true;
        }
        if letter == '#' && before.is_whitespace() {
            return false;
        }
        let after = rest.get(letter.len_utf8()..).unwrap_or_default();
        rest = match letter {
            '"' | '\'' if is_first => {
                let (text, after) = after.split_once(letter).unwrap_or((after, ""));
                // A quotation that ends within an action is the action's own, and breaks the YAML.
                let action = text.rfind(ACTION).and_then(|begin| text.get(begin..));
                if action.is_some_and(|action| !action.contains("}}")) {
                    return true;
                }
                after
            }
            _ => after,
        };
        before = letter;
    }
    false
}

/// Returns true if an error is about text that a template fills in.
fn is_filled_in_later(part: &Part<'_>, findings: &[Finding]) -> bool {
    let mut errors = findings.iter().filter(|finding| finding.is_error());
    errors.any(|finding| {
        part.text(&finding.path)
            .is_some_and(|text| text.contains(ACTION))
    })
}

fn take(from: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(COMMAND_LINE.bytes as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Sets the namespace of an object that has none.
pub(crate) fn put_namespace(value: &mut Value, namespace: &str) {
    let Some(object) = value.as_object_mut() else {
        return;
    };
    let metadata = object
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        let has_namespace = metadata
            .get("namespace")
            .is_some_and(|has_namespace| !has_namespace.is_null() && has_namespace != "");
        if !has_namespace {
            metadata.insert("namespace".to_owned(), Value::from(namespace));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_count_outside_of_comments_and_quotes() {
        for (line, is_bare) in [
            ("a: {{ .x }}", true),
            ("{{- if .x }}", true),
            ("a: it's {{ .x }}", true),
            ("a: b#{{ .x }}", true),
            ("a: \"{{ .x | default \"y\" }}\"", true),
            ("a: '{{ .x }}' {{ .y }}", true),
            ("# {{ .x }}", false),
            ("a: b # {{ .x }}", false),
            ("a: \"{{ .x }}\"", false),
            ("- '{{ .x }}'", false),
            ("a: {b: '{{x}}', c: [\"{{y}}\"]} # {{z}}", false),
            ("a: {b: {}}", false),
            ("", false),
        ] {
            assert_eq!(has_bare_action(line), is_bare, "{line}");
        }
    }

    #[test]
    fn files_of_a_directory_are_in_the_order_of_their_bytes() {
        let root = tempfile::tempdir().unwrap();
        let names = ["a-b.yaml", "a.yaml", "a/b.yaml", "a0.json"];
        fs::create_dir(root.path().join("a")).unwrap();
        for name in names {
            fs::write(root.path().join(name), "").unwrap();
        }
        let argument = root.path().to_str().unwrap().to_owned();
        let found = named(std::slice::from_ref(&argument), &|_| false)
            .unwrap()
            .into_iter();
        let found: Vec<FoundFile> = found.map(Result::unwrap).collect();
        assert!(found.iter().all(|found| found.below));
        let found: Vec<_> = found
            .iter()
            .map(|found| {
                found
                    .path
                    .strip_prefix(root.path())
                    .unwrap()
                    .to_str()
                    .unwrap()
            })
            .collect();
        assert_eq!(found, names);
        // Excluded are all below a directory, and what is named itself is not.
        let without = |argument: &str, name: &str| {
            let is_excluded = |below: &Path| below == Path::new(name);
            named(&[argument.to_owned()], &is_excluded).map(|found| found.len())
        };
        assert_eq!(without(&argument, "a"), Ok(3));
        assert_eq!(without(&argument, "a/b.yaml"), Ok(3));
        assert_eq!(without(&argument, "b.yaml"), Ok(4));
        let file = format!("{argument}/a.yaml");
        assert_eq!(without(&file, "a.yaml"), Ok(1));
        let folder = format!("{argument}/a");
        assert_eq!(without(&folder, "b.yaml"), Ok(0));
    }
}
