//! An upper bound of the program that RE2 makes of a pattern: Envoy refuses large ones.

/// Instructions that proxies accept if a resource sets `max_program_size`. Source: istiod's bootstrap sets it as high; without it [`USUAL`].
pub const MAX_PROGRAM_SIZE: u32 = 32_768;
/// Instructions that Envoy takes without a word (`re2.max_program_size.error_level`).
pub const USUAL: u32 = 100;

/// Instructions of one letter beyond ASCII, of a class, and of a class of Unicode, as measured with RE2.
const WIDE: u32 = 8;
const CLASS: u32 = 16;
const UNICODE: u32 = 512;

/// An over-estimate for a valid pattern.
#[must_use]
pub fn program_size(pattern: &str) -> u32 {
    size_of(pattern.chars())
}

fn size_of(mut letters: impl Iterator<Item = char> + Clone) -> u32 {
    // Of each group that is open: all of it, and the item that a repetition would repeat.
    let mut groups = vec![(0_u32, 0_u32)];
    while let Some(letter) = letters.next() {
        let size = match letter {
            '(' => {
                groups.push((2, 0));
                continue;
            }
            ')' => {
                let inside = groups.pop().unwrap_or_default().0;
                if groups.is_empty() {
                    groups.push((0, 0));
                }
                inside.saturating_add(2)
            }
            '*' | '+' | '?' | '|' => 2,
            '{' => {
                if let (Some(times), Some((all, last))) =
                    (most_times(&mut letters), groups.last_mut())
                {
                    // RE2 writes the item out as often as the larger bound says, so that nested repetitions
                    // multiply.
                    let more = last.saturating_mul(times.saturating_add(1));
                    *all = all.saturating_add(more);
                    *last = last.saturating_add(more);
                    continue;
                }
                1
            }
            '\\' => match letters.next() {
                Some('p' | 'P') => UNICODE,
                Some(_) | None => CLASS,
            },
            '[' => class_size(&mut letters),
            '.' => CLASS,
            one if one.is_ascii() => 1,
            _ => WIDE,
        };
        if let Some((all, last)) = groups.last_mut() {
            *all = all.saturating_add(size);
            *last = size;
        }
    }
    // The ends of the program.
    groups
        .iter()
        .fold(4, |sum, (all, _)| sum.saturating_add(*all))
}

/// Reads a class behind its `[`.
fn class_size(letters: &mut impl Iterator<Item = char>) -> u32 {
    let mut size = CLASS;
    let mut is_first = true;
    while let Some(letter) = letters.next() {
        // In first place a `]` is a letter of the class.
        if letter == ']' && !is_first {
            break;
        }
        is_first = is_first && letter == '^';
        size = size.saturating_add(match letter {
            '\\' => match letters.next() {
                Some('p' | 'P') => UNICODE,
                Some(_) | None => WIDE,
            },
            _ => WIDE,
        });
    }
    size
}

/// Reads the bounds behind a `{` and returns the larger; `None`, with nothing read, if no repetition begins there. The search
/// ends at the first letter that no bound has: patterns may hold a brace at every second letter, and close none of them.
fn most_times(letters: &mut (impl Iterator<Item = char> + Clone)) -> Option<u32> {
    let mut inside = String::new();
    for letter in letters.clone() {
        match letter {
            '0'..='9' | ',' => inside.push(letter),
            '}' => {
                let bounds = inside.split(',').filter_map(|bound| bound.parse().ok());
                let times = bounds.max()?;
                // Digits and commas are a byte each.
                letters.by_ref().take(inside.len() + 1).for_each(drop);
                return Some(times);
            }
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_repetition_costs_each_of_its_copies() {
        for (pattern, min, max) in [
            ("/x", 2, 10),
            ("/number/[0-9]+", 20, 100),
            ("a{100}", 100, 120),
            (".{1000}", 1000, 20_000),
            ("(a|b){1000}", 3000, 12_000),
            ("([a-z]{10}){100}", 1000, 80_000),
            (r"(\pL\PN){1000}", MAX_PROGRAM_SIZE, u32::MAX),
            ("((a{10}){10}){10}", 1000, 20_000),
            ("a{", 2, 10),
            ("[]a]b", 20, 50),
        ] {
            let size = program_size(pattern);
            assert!((min..=max).contains(&size), "{pattern}: {size}");
        }
        assert!(program_size(&"a".repeat(101)) > USUAL);
    }

    #[test]
    fn a_brace_that_opens_no_repetition_is_read_past_once() {
        for pattern in ["a{", "a{1", "a{1,", "a{b}"] {
            let pattern = pattern.repeat(1000);
            let looked = Cell::new(0);
            let size = size_of(pattern.chars().inspect(|_| looked.set(looked.get() + 1)));
            assert!(size >= 1000, "{size}");
            let max = 12 * pattern.len();
            assert!(looked.get() <= max, "{} of {}", looked.get(), pattern.len());
        }
    }
}
