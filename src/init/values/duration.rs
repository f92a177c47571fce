//! Go's durations: `1h2m3.5s`, `500ms`, `0`. Whole nanoseconds, never negative.

#![forbid(unsafe_code)]

use std::time::Duration;

/// As proto JSON wants it.
pub(crate) use crate::supervisor::decimal_seconds as proto;

const NO_UNIT: &str = "a unit is missing, as in 5s";
const TOO_LONG: &str = "too long";
/// Go's longest, 2562047h47m16.854775807s.
const MAX_NANOS: u64 = i64::MAX.unsigned_abs();

pub(crate) fn parse(text: &str) -> Result<Duration, &'static str> {
    if text.starts_with('-') {
        return Err("negative");
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err("not a duration, as 5s, 1m0s or 500ms are");
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (nanos, after) = component(rest)?;
        total = total.checked_add(nanos).ok_or(TOO_LONG)?;
        rest = after;
    }
    if total > MAX_NANOS {
        return Err(TOO_LONG);
    }
    Ok(Duration::from_nanos(total))
}

/// One number with its unit, in nanoseconds, and what follows.
fn component(text: &str) -> Result<(u64, &str), &'static str> {
    let (whole, after) = digits(text);
    let (fraction, after) = match after.strip_prefix('.') {
        Some(after) => digits(after),
        None => ("", after),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err("not a duration, as 5s, 1m0s or 500ms are");
    }
    let end = after
        .find(|c: char| c.is_ascii_digit() || c == '.')
        .unwrap_or(after.len());
    let (name, after) = after.split_at_checked(end).ok_or(NO_UNIT)?;
    let unit = match name {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "" => return Err(NO_UNIT),
        _ => return Err("unknown unit: h, m, s, ms, us or ns"),
    };
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().map_err(|_| TOO_LONG)?
    };
    let nanos = whole.checked_mul(unit).ok_or(TOO_LONG)?;
    let nanos = nanos.checked_add(part_of(fraction, unit)).ok_or(TOO_LONG)?;
    Ok((nanos, after))
}

/// `0.fraction` of a unit; what is below a nanosecond is dropped, as Go does.
fn part_of(fraction: &str, unit: u64) -> u64 {
    // 18 digits of an hour are far below a nanosecond. From the last one, a tenth of what was there is added to each, and
    // what a division drops would not have reached the next one.
    let digits = fraction.bytes().take(18).rev();
    digits.fold(0, |part, digit| {
        (u64::from(digit.saturating_sub(b'0')) * unit + part) / 10
    })
}

fn digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn as_go_reads_them() {
        let table: &[(&str, Option<u64>)] = &[
            ("0", Some(0)),
            ("0s", Some(0)),
            ("45s", Some(45_000_000_000)),
            ("1m0s", Some(60_000_000_000)),
            ("1h2m3.5s", Some(3_723_500_000_000)),
            ("500ms", Some(500_000_000)),
            ("1us", Some(1_000)),
            ("1\u{b5}s", Some(1_000)),
            ("1ns", Some(1)),
            (".5s", Some(500_000_000)),
            ("5.s", Some(5_000_000_000)),
            ("+5s", Some(5_000_000_000)),
            ("0.000000000000000000009h", Some(0)),
            ("0.3333333333333333333333h", Some(1_199_999_999_999)),
            ("2562047h47m16.854775807s", Some(MAX_NANOS)),
            ("2562047h47m16.854775808s", None),
            ("9999999999999999999999s", None),
            ("9999999999h", None),
            ("-5s", None),
            ("", None),
            ("5", None),
            ("s", None),
            (".s", None),
            ("5x", None),
            ("5 s", None),
            ("1m 5s", None),
            ("1.2.3s", None),
            ("\u{664}s", None),
            ("1d", None),
        ];
        for (text, nanos) in table {
            let expected = nanos.map(Duration::from_nanos);
            assert_eq!(parse(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn as_protobuf_writes_them() {
        let table = [(1500, "1.5s"), (90_000, "90s"), (1, "0.001s"), (0, "0s")];
        for (millis, expected) in table {
            assert_eq!(proto(Duration::from_millis(millis)), expected);
        }
    }

    proptest! {
        #[test]
        fn written_durations_read_back(nanos in 0..=MAX_NANOS) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&proto(duration)), Ok(duration));
        }

        #[test]
        fn any_text_is_survived(text in ".{0,24}|[0-9.hmsnu]{0,24}") {
            let _ = parse(&text);
        }
    }
}
