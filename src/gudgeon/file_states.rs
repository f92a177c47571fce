//! The files that a role follows: whether their present content is in use, for metrics and the page.

mod metrics;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::html::escaped;

pub(crate) use metrics::FileMetrics;

/// A file, or files that are read together, by the name that metrics have for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileState {
    pub(crate) path: PathBuf,
    /// The cause for which the present content is not used; the last good one is, if there was any.
    pub(crate) error: Option<String>,
    /// The file, which is optional, was removed, and its last good content is not used any more.
    pub(crate) is_gone: bool,
    /// Contents that were read, and could be used or not.
    pub(crate) good: u64,
    pub(crate) broken: u64,
    /// The end of a certificate that is served.
    pub(crate) not_after: Option<SystemTime>,
}

/// The result of reading a changed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReloadResult {
    /// The content is in use.
    Used,
    /// The content cannot be used, or read.
    Broken,
}

impl ReloadResult {
    /// The value of the label `result`.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Used => "ok",
            Self::Broken => "broken",
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct FileStates(Mutex<BTreeMap<&'static str, FileState>>);

impl FileStates {
    fn all(&self) -> MutexGuard<'_, BTreeMap<&'static str, FileState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, name: &'static str, state: FileState) {
        self.all().insert(name, state);
    }

    pub(crate) fn get(&self) -> BTreeMap<&'static str, FileState> {
        self.all().clone()
    }

    /// The part of a page.
    pub(crate) fn draw(&self, page: &mut String) {
        let all = self.all();
        if all.is_empty() {
            return;
        }
        page.push_str("<h2>Files</h2><table><tr><th>file<th>path<th>state</tr>\n");
        for (name, state) in &*all {
            let (class, words) = match &state.error {
                None if state.is_gone => ("bad", "not there".to_owned()),
                None => ("good", "in use".to_owned()),
                Some(cause) if state.is_gone || state.good == 0 => {
                    ("bad", format!("not in use: {}", escaped(cause)))
                }
                Some(cause) => (
                    "bad",
                    format!("the last good content is in use: {}", escaped(cause)),
                ),
            };
            let path = state.path.display().to_string();
            // Writing to a string cannot fail.
            let _written = writeln!(
                page,
                "<tr><td>{name}<td>{}<td class=\"{class}\">{words}</tr>",
                escaped(&path)
            );
        }
        page.push_str("</table>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_a_file_whose_content_is_not_in_use() {
        let states = FileStates::default();
        let draw = || {
            let mut page = String::new();
            states.draw(&mut page);
            page
        };
        assert_eq!(draw(), "");
        let good = FileState {
            path: "/etc/mesh".into(),
            good: 1,
            ..FileState::default()
        };
        states.put("meshConfig", good.clone());
        assert!(draw().contains("<td>meshConfig<td>/etc/mesh<td class=\"good\">in use</tr>"));
        let broken = FileState {
            error: Some("line 1: <a>".to_owned()),
            broken: 1,
            ..good
        };
        states.put("meshConfig", broken.clone());
        let row = "<td class=\"bad\">the last good content is in use: line 1: &lt;a&gt;</tr>";
        assert!(draw().contains(row), "{}", draw());
        assert_eq!(
            states.get(),
            BTreeMap::from([("meshConfig", broken.clone())])
        );
        let broken_anew = FileState {
            is_gone: true,
            ..broken
        };
        states.put("meshConfig", broken_anew.clone());
        let row = "<td class=\"bad\">not in use: line 1: &lt;a&gt;</tr>";
        assert!(draw().contains(row), "{}", draw());
        let gone = FileState {
            error: None,
            ..broken_anew
        };
        states.put("meshConfig", gone);
        let row = "<td class=\"bad\">not there</tr>";
        assert!(draw().contains(row), "{}", draw());
    }
}
