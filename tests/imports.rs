//! Who knows whom, read off the sources: modules by their `mod` lines, edges by every `use` (with its groups) and by every
//! path in the code that begins with `crate`, `self`, `super`, a child module or a module that was imported by name.
//!
//! What is for tests only, a file or an item, is left out. A room is a folder below the crate's root, or a file in it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// From a room to a room: the first place where that is written.
pub(crate) type Edges = BTreeMap<(String, String), String>;

/// A module's path below the crate's root.
type Module = Vec<String>;

/// The sources of a crate as a build without tests has them.
struct Crate<'a> {
    files: BTreeMap<Module, &'a (PathBuf, String)>,
    modules: BTreeMap<Module, &'a Path>,
}

impl<'a> Crate<'a> {
    /// `sources`: their paths below `lib.rs`'s folder, and their texts.
    fn new(sources: &'a [(PathBuf, String)]) -> Self {
        let files: BTreeMap<Module, &(PathBuf, String)> = sources
            .iter()
            .map(|source| (module_of(&source.0), source))
            .collect();
        let modules = reached(&files)
            .into_iter()
            .map(|module| (module.clone(), files[&module].0.as_path()))
            .collect();
        Self { files, modules }
    }

    fn read(&self, module: &Module) -> Reader<'_> {
        Reader::of(module, &self.modules, &self.files[module].1)
    }

    /// The module that a path leads into.
    fn target(&self, path: &[String]) -> &[String] {
        let length = leading(path, &self.modules);
        self.modules.get_key_value(&path[..length]).unwrap().0
    }
}

/// The edges between rooms of the crate with these sources, given by their paths below `lib.rs`'s folder.
#[allow(
    dead_code,
    reason = "the crates of the control plane have rooms of another kind"
)]
pub(crate) fn edges(sources: &[(PathBuf, String)]) -> Edges {
    let of = Crate::new(sources);
    let mut edges = Edges::new();
    for (module, path) in &of.modules {
        for (target, written) in of.read(module).found {
            let rooms = (room(path), room(of.modules[of.target(&target)]));
            if rooms.0 != rooms.1 {
                let place = format!("{}: {written}", path.display());
                edges.entry(rooms).or_insert(place);
            }
        }
    }
    edges
}

/// The modules at the crate's root.
#[allow(dead_code, reason = "the init has rooms of another kind")]
pub(crate) fn top_modules(sources: &[(PathBuf, String)]) -> BTreeSet<String> {
    let modules = Crate::new(sources).modules;
    modules
        .into_keys()
        .filter_map(|module| module.into_iter().next())
        .collect()
}

/// For each folder, by its path, the edges between the modules in it; that of the crate's root is empty. A name that one module
/// gives away (`pub use`) leads to the module that declares it.
#[allow(dead_code, reason = "the init has rooms of another kind")]
pub(crate) fn siblings(sources: &[(PathBuf, String)]) -> BTreeMap<String, Edges> {
    let of = Crate::new(sources);
    let readers: Vec<_> = of.modules.keys().map(|one| (one, of.read(one))).collect();
    let names: BTreeMap<&Module, &BTreeMap<String, Module>> = readers
        .iter()
        .map(|(module, reader)| (*module, &reader.imports))
        .collect();
    let mut folders: BTreeMap<String, Edges> = BTreeMap::new();
    for (module, reader) in &readers {
        for (path, written) in &reader.found {
            let target = declared(path, &of, &names);
            let pairs = module.iter().zip(&target);
            let shared = pairs.take_while(|(one, other)| one == other).count();
            let (Some(from), Some(to)) = (module.get(shared), target.get(shared)) else {
                continue;
            };
            let folder = folders.entry(module[..shared].join("/")).or_default();
            let place = format!("{}: {written}", of.modules[*module].display());
            folder.entry((from.clone(), to.clone())).or_insert(place);
        }
    }
    folders
}

/// The module that declares what a path names: modules on the way may only pass it on.
fn declared(
    path: &[String],
    of: &Crate<'_>,
    names: &BTreeMap<&Module, &BTreeMap<String, Module>>,
) -> Module {
    /// A name that is passed on more often goes in a circle.
    const MAX_LINKS: usize = 10;
    let mut path = path.to_vec();
    for _ in 0..MAX_LINKS {
        let module = of.target(&path).to_vec();
        let rest = &path[module.len()..];
        let next = rest.first().and_then(|name| names[&module].get(name));
        let Some(next) = next.filter(|next| !path.starts_with(next)) else {
            break;
        };
        path = next.iter().chain(&rest[1..]).cloned().collect();
    }
    of.target(&path).to_vec()
}

/// The number of a path's first names that are a module.
fn leading(path: &[String], modules: &BTreeMap<Module, &Path>) -> usize {
    let lengths = (0..=path.len()).rev();
    let mut known = lengths.filter(|length| modules.contains_key(&path[..*length]));
    known.next().unwrap()
}

/// A circle among the edges, if there is one.
pub(crate) fn circle<'a>(edges: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<&'a str> {
    let mut left: BTreeSet<_> = edges.collect();
    // Who knows nobody that is left is in no circle.
    loop {
        let knowing: BTreeSet<_> = left.iter().map(|(from, _)| *from).collect();
        let before = left.len();
        left.retain(|(_, to)| knowing.contains(to));
        if left.len() == before {
            break;
        }
    }
    let mut walk = Vec::new();
    let Some((mut room, _)) = left.first().copied() else {
        return walk;
    };
    while !walk.contains(&room) {
        walk.push(room);
        room = left.iter().find(|(from, _)| *from == room).unwrap().1;
    }
    let begin = walk.iter().position(|known| *known == room).unwrap();
    walk.split_off(begin)
}

fn module_of(path: &Path) -> Module {
    let mut parts: Module = path
        .with_extension("")
        .iter()
        .map(|part| part.to_str().unwrap().to_owned())
        .collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib")) {
        parts.pop();
    }
    parts
}

fn room(path: &Path) -> String {
    let folder = path.parent().unwrap();
    let room = if folder.as_os_str().is_empty() {
        path.with_extension("")
    } else {
        folder.to_path_buf()
    };
    room.to_str().unwrap().to_owned()
}

/// The modules that a build without tests has.
fn reached(files: &BTreeMap<Module, &(PathBuf, String)>) -> BTreeSet<Module> {
    let mut reached = BTreeSet::from([Module::new()]);
    let mut open = vec![Module::new()];
    while let Some(module) = open.pop() {
        let tokens = without_tests(&tokens(&files[&module].1));
        for words in tokens.windows(3) {
            if words[0] == "mod" && words[2] == ";" {
                let child = joined(&module, &words[1]);
                assert!(files.contains_key(&child), "{child:?} has no file");
                if reached.insert(child.clone()) {
                    open.push(child);
                }
            }
        }
    }
    reached
}

fn joined(module: &[String], name: &str) -> Module {
    let mut path = module.to_vec();
    path.push(name.to_owned());
    path
}

/// Names and signs, `::` being one of them; no comments, no literals.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let mut length = first.len_utf8();
        if rest.starts_with("//") {
            length = rest.find('\n').unwrap_or(rest.len());
        } else if let Some(literal) = literal(rest) {
            length = literal;
        } else if is_name(first) {
            length = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            tokens.push(rest[..length].to_owned());
        } else if !first.is_whitespace() {
            length = if rest.starts_with("::") { 2 } else { length };
            tokens.push(rest[..length].to_owned());
        }
        rest = &rest[length..];
    }
    tokens
}

fn is_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// The length of the string, raw string or character that `text` begins with.
fn literal(text: &str) -> Option<usize> {
    let marks = text.trim_start_matches(['b', 'r']);
    let prefix = text.len() - marks.len();
    let hashes = marks.len() - marks.trim_start_matches('#').len();
    let raw = text[..prefix].contains('r');
    if raw && marks[hashes..].starts_with('"') {
        let end = format!("\"{}", "#".repeat(hashes));
        let body = prefix + hashes + 1;
        return Some(body + text[body..].find(&end)? + end.len());
    }
    let quote = marks.chars().next().filter(|_| prefix <= 1 && !raw)?;
    let mut inside = marks.char_indices().skip(1);
    if quote == '\'' {
        // A character; or a lifetime, which has no second quote so near.
        let (_, first) = inside.next()?;
        if first != '\\' {
            let (at, _) = inside.next().filter(|(_, c)| *c == '\'')?;
            return Some(prefix + at + 1);
        }
        inside.next();
    } else if quote != '"' {
        return None;
    }
    while let Some((at, c)) = inside.next() {
        if c == '\\' {
            inside.next();
        } else if c == quote {
            return Some(prefix + at + 1);
        }
    }
    None
}

/// Without the items that `#[cfg(test)]` or `#[cfg(any(test, …))]` stands before.
fn without_tests(tokens: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let end = attribute(&tokens[at..]);
        let text = tokens[at..at + end].concat();
        if text.starts_with("#[cfg(test") || text.starts_with("#[cfg(any(test") {
            at += end;
            while let end @ 1.. = attribute(&tokens[at..]) {
                at += end;
            }
            at += item(&tokens[at..]);
        } else {
            kept.extend_from_slice(&tokens[at..at + end.max(1)]);
            at += end.max(1);
        }
    }
    kept
}

/// The length of the attribute that `tokens` begin with; 0: they begin with none.
fn attribute(tokens: &[String]) -> usize {
    if tokens.len() > 1 && tokens[0] == "#" && tokens[1] == "[" {
        1 + group(&tokens[1..])
    } else {
        0
    }
}

/// The length of the group that `tokens` begin with.
fn group(tokens: &[String]) -> usize {
    let mut depth = 0_i32;
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// The length of an item: to its `;`, or to the end of its braces, which those of a `use` are not.
fn item(tokens: &[String]) -> usize {
    let mut at = 0;
    let mut is_use = false;
    while at < tokens.len() {
        match tokens[at].as_str() {
            ";" => return at + 1,
            "{" if !is_use => return at + group(&tokens[at..]),
            "(" | "[" | "{" => at += group(&tokens[at..]),
            word => {
                is_use |= word == "use";
                at += 1;
            }
        }
    }
    at
}

/// Reads one module's file.
struct Reader<'a> {
    modules: &'a BTreeMap<Module, &'a Path>,
    /// Where the reader is: the file's module, and those that are written out inside of it.
    module: Module,
    /// Modules that were imported by name.
    names: BTreeMap<String, Module>,
    /// What the file's own module imports, by the name that it has there.
    imports: BTreeMap<String, Module>,
    /// Paths from the crate's root that are spoken of, each with what is written.
    found: Vec<(Module, String)>,
}

impl<'a> Reader<'a> {
    fn of(module: &[String], modules: &'a BTreeMap<Module, &'a Path>, text: &str) -> Self {
        let mut reader = Self {
            modules,
            module: module.to_vec(),
            names: BTreeMap::new(),
            imports: BTreeMap::new(),
            found: Vec::new(),
        };
        let tokens = without_tests(&tokens(text));
        // Names first: a `use` may stand below the code that uses its name.
        reader.read(&tokens, true);
        reader.read(&tokens, false);
        reader
    }

    fn read(&mut self, tokens: &[String], uses: bool) {
        let file = self.module.clone();
        let mut at = 0;
        let mut depth = 0_u32;
        // The depths at which modules inside of the file end.
        let mut ends = Vec::new();
        while at < tokens.len() {
            let word = tokens[at].as_str();
            let next = tokens.get(at + 1).map_or("", String::as_str);
            let mut length = 1;
            if word == "use" {
                length = item(&tokens[at..]);
                if uses {
                    self.tree(&[], &tokens[at + 1..at + length - 1]);
                }
            } else if word == "mod" && tokens.get(at + 2).is_some_and(|sign| sign == "{") {
                self.module.push(next.to_owned());
                ends.push(depth);
                length = 2;
            } else if word == "{" {
                depth += 1;
            } else if word == "}" {
                depth -= 1;
                if ends.last() == Some(&depth) {
                    ends.pop();
                    self.module.pop();
                }
            } else if next == "::" && word.starts_with(is_name) {
                let mut path = vec![word.to_owned()];
                while tokens.get(at + length).is_some_and(|sign| sign == "::") {
                    let Some(name) = tokens.get(at + length + 1) else {
                        break;
                    };
                    length += 2;
                    if !name.starts_with(is_name) {
                        length -= 1;
                        break;
                    }
                    path.push(name.clone());
                }
                // A part of a longer path that began with a type is none of a module.
                let begins = at == 0 || tokens[at - 1] != "::";
                if !uses && begins {
                    self.path(&path);
                }
            }
            at += length;
        }
        self.module = file;
    }

    /// What stands between `use` and `;`, or in one place of a group.
    fn tree(&mut self, before: &[String], tokens: &[String]) {
        let mut path = before.to_vec();
        let mut alias = None;
        let mut at = 0;
        while at < tokens.len() {
            match tokens[at].as_str() {
                "::" | "*" => at += 1,
                "as" => {
                    alias = tokens.get(at + 1).cloned();
                    at += 2;
                }
                "{" => {
                    let end = at + group(&tokens[at..]);
                    let mut begin = at + 1;
                    let mut place = begin;
                    while place < end {
                        if tokens[place] == "," || place == end - 1 {
                            if begin < place {
                                self.tree(&path, &tokens[begin..place]);
                            }
                            begin = place + 1;
                        }
                        place += match tokens[place].as_str() {
                            "{" => group(&tokens[place..]),
                            _ => 1,
                        };
                    }
                    return;
                }
                name => {
                    path.push(name.to_owned());
                    at += 1;
                }
            }
        }
        // `a::{self}` is `a`.
        if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
            path.pop();
        }
        let Some(whole) = self.path(&path) else {
            return;
        };
        let Some(name) = alias.or_else(|| path.last().cloned()) else {
            return;
        };
        if self.modules.contains_key(&self.module) {
            self.imports.insert(name.clone(), whole.clone());
        }
        if self.modules.contains_key(&whole) {
            self.names.insert(name, whole);
        }
    }

    /// Notes a path, and returns it from the crate's root; `None`: it is another crate's, or begins with a type.
    fn path(&mut self, path: &[String]) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let mut module = self.module.clone();
        let mut rest = rest;
        match first.as_str() {
            "crate" => module.clear(),
            "self" => {}
            "super" => {
                module.pop();
                while let Some(("super", after)) = rest.split_first().map(|(n, a)| (n.as_str(), a))
                {
                    module.pop();
                    rest = after;
                }
            }
            name => {
                let child = joined(&module, name);
                module = match self.names.get(name) {
                    Some(known) => known.clone(),
                    None if self.modules.contains_key(&child) => child,
                    None => return None,
                };
            }
        }
        module.extend(rest.iter().cloned());
        self.found.push((module.clone(), path.join("::")));
        Some(module)
    }
}
