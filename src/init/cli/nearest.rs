//! "Did you mean": the known word that is the fewest edits away.

#![forbid(unsafe_code)]

use super::flags::Table;

/// Characters of a word that is compared. Chosen: the cost is the product of the lengths, and no flag is that long.
const LONGEST: usize = 64;
/// Flags that are suggested. Chosen: more are no help.
const MOST: usize = 5;

/// The nearest of `known`, unless it is so far that naming it would only confuse.
pub(super) fn nearest(
    word: &str,
    known: &mut dyn Iterator<Item = &'static str>,
) -> Option<&'static str> {
    if word.len() > LONGEST {
        return None;
    }
    let (distance, near) = known
        .map(|candidate| (distance(word, candidate), candidate))
        .min_by_key(|(distance, _)| *distance)?;
    (distance <= slips(word)).then_some(near)
}

/// The flags that an unknown one may have meant, as the end of a sentence: all that have every word of it, so that
/// `--drain` names what there is for a drain; else the one that a slip of the finger is from it; else the one with most
/// words in common. Some flag is always named.
#[cold]
pub(super) fn did_you_mean(table: Table, typed: &str) -> String {
    let typed: String = typed.chars().take(LONGEST).collect();
    let known = table.flags().filter(|flag| !flag.kind.is_history());
    let known: Vec<&str> = known.map(|flag| flag.name).chain(["help"]).collect();
    // How many of its words are in the name, as they are or with a slip in three letters.
    let shared = |name: &str, exact: bool| {
        let is_in = |word: &&str| {
            let most = if exact { 0 } else { word.len() / 3 };
            words(name).any(|known| distance(word, known) <= most)
        };
        words(&typed).filter(is_in).count()
    };
    let typed_words = words(&typed).count();
    let mut near: Vec<&str> = Vec::new();
    if typed_words > 0 {
        near.extend(
            known
                .iter()
                .filter(|name| shared(name, true) == typed_words),
        );
        near.truncate(MOST);
    }
    if near.is_empty() {
        let rank = |name: &&&str| {
            let distance = distance(&typed, name);
            let slip = distance <= slips(&typed);
            let unlike = if slip {
                0
            } else {
                typed_words - shared(name, false)
            };
            (
                !slip,
                unlike,
                !slip && !name.starts_with(typed.as_str()),
                distance,
            )
        };
        near.extend(known.iter().min_by_key(rank));
    }
    let mut said = String::new();
    let last = near.len().saturating_sub(1);
    for (at, name) in near.into_iter().enumerate() {
        said.push_str(match at {
            0 => "; did you mean --",
            _ if at == last => " or --",
            _ => ", --",
        });
        said.push_str(name);
    }
    said.push('?');
    said
}

/// Of a name in kebab-case.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split('-').filter(|word| !word.is_empty())
}

/// Edits that a person makes by mistake.
const fn slips(word: &str) -> usize {
    word.len() / 3 + 1
}

/// Levenshtein's distance in bytes.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = i;
        let mut before = i + 1;
        for (cell, b) in row.iter_mut().skip(1).zip(right.bytes()) {
            let cost = diagonal + usize::from(a != b);
            diagonal = *cell;
            before = cost.min(diagonal + 1).min(before + 1);
            *cell = before;
        }
        // The first column is the length of what was read of `left`.
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        let table = [
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("proxy", "proxy", 0),
            ("porxy", "proxy", 2),
        ];
        for (left, right, expected) in table {
            assert_eq!(distance(left, right), expected, "{left} {right}");
        }
    }

    #[test]
    fn far_words_are_not_named() {
        let known = ["proxy", "init", "version"];
        assert_eq!(nearest("prox", &mut known.into_iter()), Some("proxy"));
        assert_eq!(nearest("inti", &mut known.into_iter()), Some("init"));
        assert_eq!(nearest("collateral", &mut known.into_iter()), None);
        assert_eq!(nearest(&"x".repeat(1000), &mut known.into_iter()), None);
    }

    /// Every command has its table, and every unknown flag is answered with a flag.
    #[test]
    fn an_unknown_flag_names_what_may_have_been_meant() {
        use super::super::flags::{INIT, PROBE, PROXY, REQUEST, STATUS, VERSION, WAIT};
        let table = [
            (INIT, "grup", "group"),
            (INIT, "verbos", "verbose"),
            (
                WAIT,
                "timeout",
                "timeout-seconds or --request-timeout-millis",
            ),
            (WAIT, "period", "period-millis"),
            (WAIT, "timout-second", "timeout-seconds"),
            (PROBE, "ur", "url"),
            (PROBE, "hlep", "help"),
            (STATUS, "port", "status-port"),
            (STATUS, "follow-watch", "watch"),
            (REQUEST, "port", "debug-port"),
            (VERSION, "outputs", "output"),
            (
                PROXY,
                "drain",
                "drain-duration, --termination-drain-duration, --minimum-drain-duration, --pre-drain-delay or \
                 --drain-inbound-only",
            ),
            (PROXY, "discovery", "discovery-address"),
            (PROXY, "discovry", "discovery-address"),
            (PROXY, "disc", "discovery-address"),
            (
                PROXY,
                "log-level",
                "proxy-log-level, --proxy-component-log-level or --log-output-level",
            ),
            (
                PROXY,
                "level-log",
                "proxy-log-level, --proxy-component-log-level or --log-output-level",
            ),
            (PROXY, "confg-path", "config-path"),
            (PROXY, "drain-time", "drain-duration"),
            (
                PROXY,
                "proxy-admin",
                "proxy-admin-port or --proxy-admin-address",
            ),
        ];
        for (flags, typed, expected) in table {
            let said = did_you_mean(flags, typed);
            assert_eq!(said, format!("; did you mean --{expected}?"), "{typed}");
        }
        for flags in [INIT, PROBE, PROXY, REQUEST, STATUS, VERSION, WAIT] {
            for typed in ["", "-", "x", "utterly-else", "ü", &"long-".repeat(200)] {
                assert!(
                    did_you_mean(flags, typed).starts_with("; did you mean --"),
                    "{typed}"
                );
            }
        }
    }
}
