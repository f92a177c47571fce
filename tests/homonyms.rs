//! Types of one name: whoever looks for one of them finds another.

use std::collections::BTreeSet;

/// The types that a file declares, also in functions and modules within it.
fn declared_types(code: &str) -> Vec<String> {
    const KEYWORDS: [&str; 5] = ["struct", "enum", "union", "trait", "type"];
    let name = |line: &str| {
        let declaration = line.trim_start();
        let is_indented = declaration.len() < line.len();
        let declaration = match declaration.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
            Some(rest) => rest,
            None => declaration,
        };
        let mut tokens = declaration.trim_start().splitn(2, ' ');
        let keyword = tokens.next()?;
        // An indented `type` belongs to a trait.
        let is_type = KEYWORDS.contains(&keyword) && !(is_indented && keyword == "type");
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
        let name: String = tokens
            .next()?
            .chars()
            .take_while(|letter| is_part(*letter))
            .collect();
        (is_type && !name.is_empty()).then_some(name)
    };
    code.lines().filter_map(name).collect()
}

/// The names that two or more types have in these texts of one crate.
pub(crate) fn homonyms(codes: impl Iterator<Item = impl AsRef<str>>) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    let mut twice = BTreeSet::new();
    for code in codes {
        for name in declared_types(code.as_ref()) {
            if !known.insert(name.clone()) {
                twice.insert(name);
            }
        }
    }
    twice
}
