//! Versions and constraints: `semverCompare`, by the rules of Masterminds' semver, which Sprig uses.

use gotmpl::{TemplateError, Value};
use semver::{BuildMetadata, Prerelease, Version};

use super::{Function, string, wrong};

pub(super) const ROWS: &[Function] = &[Function("semverCompare", 2, 2, |args| {
    satisfies(string(args, 0)?, string(args, 1)?).map(Value::Bool)
})];

/// Bytes of a constraint at most: charts have one or two dozens.
const MAX_CONSTRAINT_BYTES: usize = 4096;

/// The operators before a version; longer ones come before their prefixes.
const OPERATORS: [&str; 11] = ["!=", ">=", "=>", "<=", "=<", "~>", "=", ">", "<", "~", "^"];

/// The first part of a version that a constraint leaves open, by a wildcard or by omission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenPart {
    Nothing,
    Patch,
    Minor,
    All,
}

/// One comparison of a constraint.
#[derive(Debug)]
struct Bound<'a> {
    operator: &'a str,
    /// Open parts are 0.
    wanted: Version,
    open: OpenPart,
}

/// Alternatives with `||` between, in each of them bounds with blanks or commas between.
fn satisfies(constraint: &str, version: &str) -> Result<bool, TemplateError> {
    if constraint.len() > MAX_CONSTRAINT_BYTES {
        return Err(wrong(format!(
            "wants a constraint of {MAX_CONSTRAINT_BYTES} bytes at most"
        )));
    }
    // All alternatives are parsed before one is checked: an error is one in any order.
    let alternatives = constraint.split("||").map(|alternative| {
        bounds(alternative)
            .ok_or_else(|| wrong(format!("improper constraint: {}", alternative.trim())))
    });
    let alternatives: Vec<_> = alternatives.collect::<Result<_, _>>()?;
    let Some((version, _, false)) = read(version) else {
        return Err(wrong(format!("{version}: no version")));
    };
    let mut alternatives = alternatives.iter();
    Ok(alternatives.any(|bounds| bounds.iter().all(|bound| bound.holds(&version))))
}

/// The bounds of an alternative, of which there is one at least.
fn bounds(alternative: &str) -> Option<Vec<Bound<'_>>> {
    let mut bounds = Vec::new();
    let mut rest = alternative.trim();
    loop {
        let operator = OPERATORS.into_iter().find(|known| rest.starts_with(known));
        let operator = operator.unwrap_or_default();
        let (number, after) = word(rest.strip_prefix(operator)?.trim_start());
        let (wanted, open, _) = read(number)?;
        rest = after.trim_start();
        let upper = rest.strip_prefix('-').filter(|_| operator.is_empty());
        // `1.2 - 1.4`: a hyphen with blanks on both sides is a range, not a prerelease.
        if let Some(upper) = upper.filter(|upper| upper.starts_with(char::is_whitespace)) {
            let (number, after) = word(upper.trim_start());
            let (highest, highest_open, _) = read(number)?;
            bounds.push(Bound {
                operator: ">=",
                wanted,
                open,
            });
            bounds.push(Bound {
                operator: "<=",
                wanted: highest,
                open: highest_open,
            });
            rest = after.trim_start();
        } else {
            bounds.push(Bound {
                operator,
                wanted,
                open,
            });
        }
        if rest.is_empty() {
            return Some(bounds);
        }
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
}

/// Returns the text up to the next blank or comma, and the rest.
fn word(text: &str) -> (&str, &str) {
    let end = text.find(|letter: char| letter == ',' || letter.is_whitespace());
    text.split_at(end.unwrap_or(text.len()))
}

/// Parses a version as users write it: with a `v`, with wildcards, with less than three numbers. Returns the open part, and
/// true if a wildcard made it so.
fn read(text: &str) -> Option<(Version, OpenPart, bool)> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (text, build) = match text.split_once('+') {
        Some((text, build)) => (text, Some(build)),
        None => (text, None),
    };
    // Two builds of a version are equal.
    if build.is_some_and(|build| build.is_empty() || BuildMetadata::new(build).is_err()) {
        return None;
    }
    let (numbers, prerelease) = match text.split_once('-') {
        Some((_, "")) => return None,
        Some((numbers, prerelease)) => (numbers, Prerelease::new(prerelease).ok()?),
        None => (text, Prerelease::EMPTY),
    };
    let mut parts = [None; 3];
    let mut wild = false;
    let mut components = numbers.split('.');
    for (part, component) in parts.iter_mut().zip(&mut components) {
        match component {
            "x" | "X" | "*" => wild = true,
            number if number.bytes().all(|digit| digit.is_ascii_digit()) => {
                *part = Some(number.parse().ok()?);
            }
            _ => return None,
        }
    }
    if components.next().is_some() {
        return None;
    }
    let (open, major, minor, patch) = match parts {
        [None, ..] => (OpenPart::All, 0, 0, 0),
        [Some(major), None, _] => (OpenPart::Minor, major, 0, 0),
        [Some(major), Some(minor), None] => (OpenPart::Patch, major, minor, 0),
        [Some(major), Some(minor), Some(patch)] => (OpenPart::Nothing, major, minor, patch),
    };
    let mut version = Version::new(major, minor, patch);
    version.pre = prerelease;
    Some((version, open, wild))
}

impl Bound<'_> {
    fn holds(&self, version: &Version) -> bool {
        let Self {
            operator,
            wanted,
            open,
        } = self;
        let exact = *open == OpenPart::Nothing;
        // A prerelease satisfies only a constraint that names one.
        if !version.pre.is_empty() && wanted.pre.is_empty() && !(*operator == "!=" && exact) {
            return false;
        }
        match *operator {
            "!=" => self.differs(version),
            ">" if *open == OpenPart::Minor => version.major > wanted.major,
            ">" if *open == OpenPart::Patch => {
                (version.major, version.minor) > (wanted.major, wanted.minor)
            }
            ">" => version > wanted,
            "<" => version < wanted,
            ">=" | "=>" => version >= wanted,
            "<=" | "=<" if exact => version <= wanted,
            "<=" | "=<" if *open == OpenPart::Minor => version.major <= wanted.major,
            "<=" | "=<" => (version.major, version.minor) <= (wanted.major, wanted.minor),
            "^" => version >= wanted && self.is_compatible(version),
            "~" | "~>" => self.is_near(version),
            _ if exact => version == wanted,
            _ => self.is_near(version),
        }
    }

    fn differs(&self, version: &Version) -> bool {
        let wanted = &self.wanted;
        match self.open {
            OpenPart::Minor => version.major != wanted.major,
            OpenPart::Patch => {
                (version.major, version.minor, &version.pre)
                    != (wanted.major, wanted.minor, &wanted.pre)
            }
            OpenPart::Nothing | OpenPart::All => version != wanted,
        }
    }

    /// `~`: the fixed parts must be equal, except for the last number.
    fn is_near(&self, version: &Version) -> bool {
        let wanted = &self.wanted;
        let any = (wanted.major, wanted.minor, wanted.patch) == (0, 0, 0)
            && matches!(self.open, OpenPart::Nothing | OpenPart::All);
        let is_same = version.major == wanted.major
            && (self.open == OpenPart::Minor || version.minor == wanted.minor);
        version >= wanted && (any || is_same)
    }

    /// `^`: the first number that is not 0 stays.
    fn is_compatible(&self, version: &Version) -> bool {
        let wanted = &self.wanted;
        if self.open == OpenPart::All {
            return true;
        }
        if version.major != wanted.major || wanted.major > 0 || self.open == OpenPart::Minor {
            return version.major == wanted.major;
        }
        if version.minor != wanted.minor || wanted.minor > 0 || self.open == OpenPart::Patch {
            return version.minor == wanted.minor;
        }
        version.patch == wanted.patch
    }
}

#[cfg(test)]
mod tests {
    use super::satisfies;

    #[test]
    fn constraints_and_who_satisfies_them() {
        let rows: &[(&str, &[&str], &[&str])] = &[
            // Operators, with blanks and without.
            (
                ">= 1.20.0",
                &["1.20.0", "v1.21"],
                &["1.19.9", "1.21.0-rc.1"],
            ),
            (">=1.20.0", &["1.20.0"], &["1.19.9"]),
            ("  >=   1.20 ", &["1.20.0", "2"], &["1.19.9"]),
            ("=>1.2.3", &["1.2.3", "1.2.4"], &["1.2.2"]),
            ("< 1.2.3", &["1.2.2"], &["1.2.3", "1.2.3-rc.1"]),
            ("<= 1.2.3", &["1.2.3"], &["1.2.4"]),
            ("=< 1.2.3", &["1.2.3"], &["1.2.4"]),
            ("> 1.2.3", &["1.2.4"], &["1.2.3"]),
            ("1.2.3", &["1.2.3", "v1.2.3+build"], &["1.2.4"]),
            ("= v1.2.3", &["1.2.3"], &["1.2.4"]),
            ("!= 1.2.3", &["1.2.4", "1.2.3-rc.1"], &["1.2.3"]),
            // Constraints of Helm's charts, with the versions that they are asked of.
            (
                ">=1.19-0",
                &["1.19.0", "1.19.0-gke.1", "1.30.2-eks-1b", "v1.27.3+k3s1"],
                &["1.18.20-gke.2"],
            ),
            (
                ">= 1.19-0 < 1.25-0",
                &["1.24.9", "1.24.9-gke.1"],
                &["1.25.0", "1.25.0-alpha.1", "1.18.0"],
            ),
            // And, or.
            (">=1.2, <1.4", &["1.3.0"], &["1.4.0", "1.1.9"]),
            (">=1.2 <1.4", &["1.3.0"], &["1.4.0", "1.1.9"]),
            (">= 1.2 , < 1.4", &["1.3.0"], &["1.4.0"]),
            (">=1,<2||>= 3", &["1.9.0", "3.0.0"], &["2.0.0"]),
            (
                "<1 || =2.0.0 || ^3.1",
                &["0.9.0", "2.0.0", "3.2.0"],
                &["1.0.0", "3.0.0"],
            ),
            // Parts that are open.
            ("1.2", &["1.2.0", "1.2.9"], &["1.3.0", "1.1.9"]),
            ("1.2.x", &["1.2.0", "1.2.9"], &["1.3.0"]),
            ("1.X", &["1.0.0", "1.9.9"], &["2.0.0", "0.9.0"]),
            ("*", &["0.0.0", "7.1.2"], &["1.0.0-rc.1"]),
            ("*-0", &["7.1.2", "1.0.0-rc.1"], &[]),
            ("> 11", &["12.0.0"], &["11.1.0", "10.0.0"]),
            ("> 11.1", &["11.2.0", "12.0.0"], &["11.1.5", "10.9.0"]),
            ("<= 11", &["11.9.9", "1.0.0"], &["12.0.0"]),
            ("<= 11.1", &["11.1.9", "10.9.9"], &["11.2.0", "12.0.0"]),
            ("!= 1.x", &["2.1.0", "0.1.0"], &["1.1.0"]),
            ("!= 1.2.*", &["1.3.0"], &["1.2.7"]),
            // Near, and compatible.
            ("~1.2.3", &["1.2.3", "1.2.9"], &["1.3.0", "1.2.2"]),
            ("~> 1.2", &["1.2.0", "1.2.9"], &["1.3.0"]),
            ("~1", &["1.0.0", "1.9.0"], &["2.0.0"]),
            ("^ 1.2.3", &["1.2.3", "1.9.0"], &["2.0.0", "1.2.2"]),
            ("^0.2.3", &["0.2.9"], &["0.3.0", "0.2.2", "1.0.0"]),
            ("^0.0.3", &["0.0.3"], &["0.0.4"]),
            // From, to.
            ("1.2 - 1.4.5", &["1.2.0", "1.4.5"], &["1.1.9", "1.4.6"]),
        ];
        for (constraint, yes, no) in rows {
            for (versions, wanted) in [(yes, true), (no, false)] {
                for version in *versions {
                    assert_eq!(
                        satisfies(constraint, version).ok(),
                        Some(wanted),
                        "{constraint}: {version}"
                    );
                }
            }
        }
    }

    #[test]
    fn errors_name_malformed_constraints_and_versions() {
        for constraint in [
            "", " ", "x1", "1.2.3.4", ">", ">= ", ">1,", ",1", "1 ||", "=>=1", "1-", "1+", "1.2 -",
            "1 -2", "> 1 - 2", ">1<2", "latest", "-1", "1..2",
        ] {
            let message = satisfies(constraint, "1.0.0").unwrap_err().to_string();
            assert!(
                message.contains("improper constraint: "),
                "{constraint}: {message}"
            );
        }
        for version in ["", "latest", "1.x", "*", "1.2.3.4", "1.2.3-", "-1"] {
            let message = satisfies(">=1", version).unwrap_err().to_string();
            assert!(message.contains("no version"), "{version}: {message}");
        }
    }
}
