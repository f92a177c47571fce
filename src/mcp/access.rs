//! The access list: identities of certificates that may connect, or that may not.

use std::collections::BTreeSet;

use api::yaml::{self, Limits, Node, Value};

const LIMITS: Limits = Limits {
    bytes: 1 << 20,
    depth: 8,
    nodes: 100_000,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessList {
    is_black: bool,
    identities: BTreeSet<String>,
}

impl AccessList {
    /// Allows every identity.
    pub fn everyone() -> Self {
        Self {
            is_black: true,
            identities: BTreeSet::new(),
        }
    }

    /// Allows no identity.
    pub fn nobody() -> Self {
        Self {
            is_black: false,
            identities: BTreeSet::new(),
        }
    }

    /// Returns true if no identity at all is allowed.
    pub fn is_nobody(&self) -> bool {
        !self.is_black && self.identities.is_empty()
    }

    /// Parses a list in YAML. An empty text lists no identity, and so allows none.
    ///
    /// # Errors
    ///
    /// Malformed text, with its line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let at = |line: usize, cause: &str| format!("line {line}: {cause}");
        let node = yaml::read_core(text, LIMITS).map_err(|error| at(error.line, &error.cause))?;
        let mut list = Self {
            is_black: false,
            identities: BTreeSet::new(),
        };
        let Some(node) = node.filter(|node| !node.is_null()) else {
            return Ok(list);
        };
        let Value::Map(fields) = &node.value else {
            return Err(at(node.line, "expected isBlackList and allowed"));
        };
        let mut seen = BTreeSet::new();
        for (name, field) in fields {
            // YAML's check of repeated keys compares exactly, so `Allowed` beside `allowed` is found below.
            let lower = name.to_ascii_lowercase();
            match &*lower {
                "isblacklist" => list.is_black = boolean(field)?,
                "allowed" => list.identities = identities(field)?,
                _ => return Err(at(field.line, &format!("unknown field {name:?}"))),
            }
            if !seen.insert(lower) {
                return Err(at(field.line, &format!("{name} is written twice")));
            }
        }
        Ok(list)
    }

    /// Returns true if a certificate with these identities may connect.
    pub fn allows<'a>(&self, identities: impl IntoIterator<Item = &'a str>) -> bool {
        let mut identities = identities.into_iter();
        let is_listed = identities.any(|one| self.identities.contains(one));
        is_listed != self.is_black
    }
}

fn boolean(node: &Node) -> Result<bool, String> {
    let value = match &node.value {
        Value::Scalar(_) if node.is_null() => Some(false),
        Value::Scalar(scalar) => scalar.boolean(),
        Value::List(_) | Value::Map(_) => None,
    };
    value.ok_or_else(|| format!("line {}: isBlackList: expected true or false", node.line))
}

fn identities(node: &Node) -> Result<BTreeSet<String>, String> {
    if node.is_null() {
        return Ok(BTreeSet::new());
    }
    let wrong = |line: usize| format!("line {line}: allowed: expected a list of identities");
    let Value::List(members) = &node.value else {
        return Err(wrong(node.line));
    };
    let mut identities = BTreeSet::new();
    for member in members {
        match &member.value {
            Value::Scalar(scalar) if !member.is_null() => {
                identities.insert(scalar.text.clone());
            }
            Value::Scalar(_) | Value::List(_) | Value::Map(_) => {
                return Err(wrong(member.line));
            }
        }
    }
    Ok(identities)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "spiffe://x/ns/n/sa/a";
    const B: &str = "spiffe://x/ns/n/sa/b";

    #[test]
    fn a_white_list_allows_and_a_black_list_refuses() {
        let white = AccessList::parse(&format!("allowed:\n- {A}\n")).unwrap();
        let black = format!("isBlackList: true\nallowed: [\"{A}\"]\n");
        let black = AccessList::parse(&black).unwrap();
        for (identities, by_white, by_black) in [
            (vec![A], true, false),
            (vec![B], false, true),
            (vec![B, A], true, false),
            (vec![], false, true),
        ] {
            assert_eq!(white.allows(identities.clone()), by_white, "{identities:?}");
            assert_eq!(black.allows(identities.clone()), by_black, "{identities:?}");
            assert!(AccessList::everyone().allows(identities.clone()));
            assert!(!AccessList::nobody().allows(identities));
        }
    }

    #[test]
    fn keys_are_read_in_any_case() {
        let list = AccessList::parse(&format!("ISBLACKLIST: true\nAllowed: ['{A}']"));
        assert!(!list.unwrap().allows([A]));
    }

    #[test]
    fn an_empty_list_allows_nobody() {
        for text in [
            "",
            "---\n",
            "{}",
            "null",
            "allowed:\n",
            "isBlackList:\nallowed: []",
        ] {
            let list = AccessList::parse(text).unwrap();
            assert!(!list.allows([A]) && list.is_nobody(), "{text}");
        }
    }

    #[test]
    fn an_invalid_list_is_reported_with_its_line() {
        for (text, message) in [
            ("- a", "line 1: expected isBlackList and allowed"),
            ("x: 1", "line 1: unknown field \"x\""),
            (
                "\nisBlackList: maybe",
                "line 2: isBlackList: expected true or false",
            ),
            (
                "isBlackList: {}",
                "line 1: isBlackList: expected true or false",
            ),
            (
                "allowed: a",
                "line 1: allowed: expected a list of identities",
            ),
            (
                "allowed:\n- a\n- {}",
                "line 3: allowed: expected a list of identities",
            ),
            (
                "allowed: []\nALLOWED: []",
                "line 2: ALLOWED is written twice",
            ),
            ("allowed:\n- !x a", "line 2: cannot use the tag \"!x\""),
        ] {
            assert_eq!(AccessList::parse(text).unwrap_err(), message, "{text}");
        }
        assert!(AccessList::parse("a: [").is_err());
    }
}
