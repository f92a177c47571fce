//! A pattern of `--exclude`, for paths below a directory.

use std::path::Path;

/// The part of a pattern that stands for any number of directories.
const ANY_FOLDERS: &str = "**";

/// One of `--exclude`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Glob {
    /// The patterns of each directory, and last that of the file.
    parts: Vec<String>,
    /// The pattern has no slash: it is that of a name, at any depth.
    is_name: bool,
}

impl Glob {
    /// # Errors
    /// A pattern that no path below a directory has, or that means more elsewhere than it does here.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let cannot = |why: &str| {
            let quoted = api::config::quoted(text);
            Err(format!("cannot use --exclude {quoted}: {why}"))
        };
        if text.contains(['[', ']', '{', '}', '\\']) {
            return cannot("want *, ? and ** alone");
        }
        if text.starts_with('/') {
            return cannot("want a name, or a path below the directory that is named");
        }
        let path = text.trim_start_matches("./").trim_end_matches('/');
        let parts: Vec<String> = path.split('/').map(ToOwned::to_owned).collect();
        if parts.iter().any(|part| matches!(&**part, "" | "." | "..")) {
            return cannot("want a name, or a path below the directory that is named");
        }
        Ok(Self {
            is_name: parts.len() == 1,
            parts,
        })
    }

    /// Returns true for a file or directory of this pattern. Each is asked for after the directories above it.
    pub(super) fn has(&self, below: &Path) -> bool {
        let path: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
        let path: Vec<&str> = path.iter().map(|part| &**part).collect();
        match (self.is_name, path.split_last()) {
            (true, Some((name, _))) => self.has_path(&[name]),
            (true, None) => false,
            (false, _) => self.has_path(&path),
        }
    }

    fn has_path(&self, path: &[&str]) -> bool {
        // True at a place if the parts of the pattern so far match so many parts of the path.
        let mut reached = vec![false; path.len().saturating_add(1)];
        if let Some(first) = reached.first_mut() {
            *first = true;
        }
        for part in &self.parts {
            let mut next = Vec::with_capacity(reached.len());
            let is_any = part == ANY_FOLDERS;
            next.push(is_any && reached.first().copied().unwrap_or_default());
            for (name, both) in path.iter().zip(reached.windows(2)) {
                let [before, here] = both else { continue };
                let so_far = next.last().copied().unwrap_or_default();
                next.push(match is_any {
                    true => so_far || *here,
                    false => *before && matches(part, name),
                });
            }
            reached = next;
        }
        reached.last().copied().unwrap_or_default()
    }
}

/// `*` stands for any letters, `?` for one.
fn matches(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.chars(), name.chars());
    // Behind the last `*`: the pattern, and the letters that it has not taken.
    let mut again = None;
    loop {
        let mut rest = pattern.clone();
        match (rest.next(), name.clone().next()) {
            (Some('*'), _) => {
                again = Some((rest.clone(), name.clone()));
                pattern = rest;
                continue;
            }
            (None, None) => return true,
            (Some('?'), Some(_)) => {}
            (Some(want), Some(letter)) if want == letter => {}
            (_, _) => {
                // The star takes one letter more.
                let Some((behind, letters)) = &mut again else {
                    return false;
                };
                if letters.next().is_none() {
                    return false;
                }
                pattern = behind.clone();
                name = letters.clone();
                continue;
            }
        }
        pattern = rest;
        name.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_globs() {
        for (glob, has, has_not) in [
            (
                "a.yaml",
                &["a.yaml", "d/a.yaml"][..],
                &["b.yaml", "a.yaml/b"][..],
            ),
            ("*.json", &["a.json", "d/e/.json"], &["a.json5", "json"]),
            ("?.y*l", &["a.yaml", "a.yl"], &["ab.yaml", ".yaml"]),
            ("*a*b", &["ab", "xaxaxb", "aabab"], &["ba", "abc", ""]),
            ("d/*", &["d/a"], &["d/e/a", "x/d/a", "d"]),
            ("d/**", &["d/a", "d/e/a"], &["x/d/a"]),
            (
                "**/d/*.yaml",
                &["d/a.yaml", "x/y/d/a.yaml"],
                &["d/e/a.yaml"],
            ),
            ("d/**/a", &["d/a", "d/e/f/a"], &["d/b", "a"]),
            ("./d/e/", &["d/e"], &["d", "e"]),
        ] {
            let read = Glob::read(glob).unwrap();
            for path in has {
                assert!(read.has(Path::new(path)), "{glob} {path}");
            }
            for path in has_not {
                assert!(!read.has(Path::new(path)), "{glob} {path}");
            }
        }
        for glob in ["", "/a", "a//b", "../a", "a/.", "[ab]", "{a,b}", "a\\b"] {
            let begin = "cannot use --exclude ";
            assert!(Glob::read(glob).unwrap_err().starts_with(begin), "{glob}");
        }
    }

    /// Each star is tried at each letter once for the last one only.
    #[test]
    fn many_stars_end() {
        let glob = Glob::read(&"*a".repeat(200)).unwrap();
        assert!(!glob.has(Path::new(&"a".repeat(199))));
        assert!(!glob.has(Path::new(&("a".repeat(20_000) + "b"))));
    }
}
