//! "Did you mean": the known word that is the fewest edits away.

#![forbid(unsafe_code)]

use super::flags::Table;

/// Characters of a word that is compared. Chosen: the cost is the product of the lengths, and no flag is that long.
const MAX_WORD_LENGTH: usize = 64;
/// Flags that are suggested. Chosen: more are no help.
const MAX_SUGGESTIONS: usize = 5;

/// The nearest of `known`, unless it is so far that naming it would only confuse.
pub(super) fn nearest(
    word: &str,
    known: &mut dyn Iterator<Item = &'static str>,
) -> Option<&'static str> {
    if word.len() > MAX_WORD_LENGTH {
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
    let end = typed.floor_char_boundary(MAX_WORD_LENGTH);
    let typed = typed.get(..end).unwrap_or_default();
    let wanted = words(typed).count();
    let mut said = String::new();
    let (mut named, mut last) = (0, 0);
    let (mut min, mut near) = (usize::MAX, "");
    let mut flags = table.flags();
    loop {
        // History comes last.
        let flag = flags.next().filter(|flag| !flag.kind.is_history());
        let name = flag.map_or("help", |flag| flag.name);
        let (mut same, mut alike) = (0, 0);
        for word in words(typed) {
            // As it is, or with a slip in three letters.
            let unlike = words(name).map(|known| distance(word, known)).min();
            let unlike = unlike.unwrap_or(usize::MAX);
            same += usize::from(unlike == 0);
            alike += usize::from(unlike <= word.len() / 3);
        }
        if wanted > 0 && same == wanted && named < MAX_SUGGESTIONS {
            last = said.len();
            named += 1;
            said.push_str(", --");
            said.push_str(name);
        }
        // A slip comes first, then words in common, then how it begins.
        let distance = distance(typed, name);
        let mut rank = distance;
        if distance > slips(typed) {
            rank += (1 + 2 * (wanted - alike) + usize::from(!name.starts_with(typed))) << 16;
        }
        if rank < min {
            (min, near) = (rank, name);
        }
        if flag.is_none() {
            break;
        }
    }
    if named == 0 {
        said = [", --", near].concat();
    }
    // All but the last, without the first comma.
    let head = said.get(1..last).unwrap_or_default();
    let tail = said.get(last + 1..).unwrap_or_default();
    let or = if last == 0 { "" } else { " or" };
    ["; did you mean", head, or, tail, "?"].concat()
}

/// Returns the words of a name in kebab-case.
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
