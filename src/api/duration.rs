//! Durations in text: proto JSON's form is a part of Go's, so that one grammar reads both, exactly.

use crate::google::protobuf::Duration;

/// The range that proto JSON allows, in either direction: 10,000 years.
const MAX_SECONDS: i128 = 315_576_000_000;
const NANOS: i128 = 1_000_000_000;

/// The most seconds that Envoy takes: it counts nanoseconds in 64 bits, and refuses all resources of a response that has more.
pub const MAX_ENVOY_SECONDS: u64 = 9_223_372_035;

/// Longest fraction that is parsed; nanoseconds have nine digits.
const MAX_DIGITS: usize = 18;

/// Parses a duration of Go: `1.5s`, `1m0s`, `300ms`, `-2h`, `0`. Returns `None` for other text, and for a duration that is too
/// long.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let (negative, text) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let mut nanos: i128 = 0;
    // Go takes zero alone without a unit.
    let mut rest = if text == "0" { "" } else { text };
    if rest.is_empty() && text != "0" {
        return None;
    }
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() || fraction.len() > MAX_DIGITS {
            return None;
        }
        let (unit, after) = unit(after)?;
        let scale = 10i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let whole: i128 = number(whole)?;
        let fraction: i128 = number(fraction)?;
        // The division comes last, so that no digit of an hour's fraction is lost.
        nanos = whole
            .checked_mul(unit)?
            .checked_add(fraction.checked_mul(unit)? / scale)?
            .checked_add(nanos)?;
        // No part is negative, so a sum beyond the range never comes back into it.
        if nanos > MAX_SECONDS * NANOS {
            return None;
        }
        rest = after;
    }
    let nanos = if negative { -nanos } else { nanos };
    Some(Duration {
        seconds: i64::try_from(nanos / NANOS).ok()?,
        nanos: i32::try_from(nanos % NANOS).ok()?,
    })
}

fn digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

fn number(digits: &str) -> Option<i128> {
    if digits.is_empty() {
        return Some(0);
    }
    digits.parse().ok()
}

/// Longer names first: `ms` is no minute.
fn unit(text: &str) -> Option<(i128, &str)> {
    [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("μs", 1_000),
        ("ms", 1_000_000),
        ("s", NANOS),
        ("m", 60 * NANOS),
        ("h", 3600 * NANOS),
    ]
    .into_iter()
    .find_map(|(name, nanos)| text.strip_prefix(name).map(|rest| (nanos, rest)))
}

/// Formats a duration as Go prints it: `45s`, `1m0s`, `1h0m0s`, `1.5s`, `500ms`, `0s`.
#[must_use]
pub fn go(duration: &Duration) -> String {
    let nanos = nanos(duration);
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let second = NANOS.unsigned_abs();
    if nanos == 0 {
        return "0s".to_owned();
    }
    if nanos < second {
        let (unit, name) = [(1_000_000, "ms"), (1_000, "µs")]
            .into_iter()
            .find(|(unit, _)| nanos >= *unit)
            .unwrap_or((1, "ns"));
        return format!("{sign}{}{name}", decimal(nanos, unit));
    }
    let (hours, minutes) = (nanos / (3600 * second), nanos / (60 * second) % 60);
    let seconds = decimal(nanos % (60 * second), second);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// Formats a duration in the shortest form of proto JSON: `1.5s`.
#[must_use]
pub fn proto(duration: &Duration) -> String {
    let nanos = nanos(duration);
    let sign = if nanos < 0 { "-" } else { "" };
    format!(
        "{sign}{}s",
        decimal(nanos.unsigned_abs(), NANOS.unsigned_abs())
    )
}

/// Formats a duration as proto JSON writes it, with 0, 3, 6 or 9 digits behind the point: `1.500s`.
#[must_use]
pub fn canonical(duration: &Duration) -> String {
    let nanos = nanos(duration);
    let sign = if nanos < 0 { "-" } else { "" };
    let (whole, rest) = (
        nanos.unsigned_abs() / NANOS.unsigned_abs(),
        nanos.unsigned_abs() % NANOS.unsigned_abs(),
    );
    let rest = u32::try_from(rest).unwrap_or_default();
    format!("{sign}{whole}{}s", fraction(rest))
}

/// Nanoseconds behind the point, in groups of three digits.
pub(crate) fn fraction(nanos: u32) -> String {
    let digits = format!("{nanos:09}");
    let mut trimmed = digits.as_str();
    while let Some(shorter) = trimmed.strip_suffix("000") {
        trimmed = shorter;
    }
    if trimmed.is_empty() {
        return String::new();
    }
    format!(".{trimmed}")
}

/// All of it in nanoseconds.
#[must_use]
pub fn nanos(duration: &Duration) -> i128 {
    i128::from(duration.seconds) * NANOS + i128::from(duration.nanos)
}

/// `nanos / unit`, without zeros at the end; `unit` is a power of ten.
fn decimal(nanos: u128, unit: u128) -> String {
    let (whole, rest) = (nanos / unit, nanos % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let fraction = format!("{rest:0width$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_forms_are_read() {
        for (text, seconds, nanos) in [
            ("45s", 45, 0),
            ("1.5s", 1, 500_000_000),
            ("0.000000001s", 0, 1),
            ("1m0s", 60, 0),
            ("1h0m0s", 3600, 0),
            ("1h2m3.5s", 3723, 500_000_000),
            ("300ms", 0, 300_000_000),
            ("1.5h", 5400, 0),
            (".5s", 0, 500_000_000),
            ("5.s", 5, 0),
            ("2us", 0, 2_000),
            ("2µs", 0, 2_000),
            ("7ns", 0, 7),
            ("0", 0, 0),
            ("-1.5s", -1, -500_000_000),
            ("+2s", 2, 0),
        ] {
            assert_eq!(parse(text), Some(Duration { seconds, nanos }), "{text}");
        }
    }

    #[test]
    fn other_texts_than_durations_are_refused() {
        for text in [
            "",
            "s",
            "-",
            "+",
            ".s",
            "5",
            "5 s",
            "5d",
            "1m0",
            "s5",
            "1e3s",
            "--5s",
            "00",
            "９s",
            "315576000001s",
            "99999999999999999999999999999999999999999h",
            "1.0000000000000000000s",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn go_prints_it_so() {
        for (text, printed) in [
            ("0.5s", "500ms"),
            ("45s", "45s"),
            ("60s", "1m0s"),
            ("90s", "1m30s"),
            ("3600s", "1h0m0s"),
            ("1.5s", "1.5s"),
            ("0", "0s"),
            ("1500us", "1.5ms"),
            ("3us", "3µs"),
            ("9ns", "9ns"),
            ("-90.25s", "-1m30.25s"),
        ] {
            assert_eq!(go(&parse(text).unwrap()), printed, "{text}");
        }
    }

    #[test]
    fn digits_behind_the_point_come_in_threes() {
        for (text, written) in [
            ("1h", "3600s"),
            ("300ms", "0.300s"),
            ("-1.5s", "-1.500s"),
            ("1us", "0.000001s"),
            ("1.00000002s", "1.000000020s"),
            ("0", "0s"),
            ("1000s", "1000s"),
        ] {
            assert_eq!(canonical(&parse(text).unwrap()), written, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn either_form_comes_back(all in -3_000_000_000_000_000_000i128..3_000_000_000_000_000_000) {
            let duration = Duration {
                seconds: i64::try_from(all / NANOS).unwrap(),
                nanos: i32::try_from(all % NANOS).unwrap(),
            };
            prop_assert_eq!(parse(&go(&duration)), Some(duration));
            prop_assert_eq!(parse(&proto(&duration)), Some(duration));
            prop_assert_eq!(parse(&canonical(&duration)), Some(duration));
        }

        #[test]
        fn no_text_is_too_much(text in "[-+]?[0-9.hmsuµn]{0,40}") {
            if let Some(duration) = parse(&text) {
                prop_assert_eq!(parse(&proto(&duration)), Some(duration));
            }
        }
    }
}
