//! Moments in text, as RFC 3339 writes them and proto JSON takes them over.

use crate::google::protobuf::Timestamp;

const DAY: i64 = 86_400;
/// The range that proto JSON allows: the years 1 to 9999.
const FIRST: i64 = -62_135_596_800;
const LAST: i64 = 253_402_300_799;

/// `2020-01-02T03:04:05.678Z`, or with an offset. `None` for any other text.
#[must_use]
pub fn parse(text: &str) -> Option<Timestamp> {
    let (date, time) = text.split_once(['T', 't'])?;
    let (year, month, day) = match date.split('-').collect::<Vec<_>>().as_slice() {
        [year, month, day] => (digits(year, 4)?, digits(month, 2)?, digits(day, 2)?),
        _ => return None,
    };
    let zone = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at_checked(zone)?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let (hour, minute, second) = match clock.split(':').collect::<Vec<_>>().as_slice() {
        [hour, minute, second] => (digits(hour, 2)?, digits(minute, 2)?, digits(second, 2)?),
        _ => return None,
    };
    let fits = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !fits || fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    // Digits behind the point begin with tenths, so zeros are added at the end.
    let nanos = digits(&format!("{fraction:0<9}"), 9)?;
    let seconds = days(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset(zone)?;
    Some(Timestamp {
        seconds: Some(seconds).filter(|seconds| (FIRST..=LAST).contains(seconds))?,
        nanos: i32::try_from(nanos).ok()?,
    })
}

/// Formats a timestamp as proto JSON writes it: in UTC, with 0, 3, 6 or 9 digits behind the point.
#[must_use]
pub fn text(moment: &Timestamp) -> String {
    // Rounded down before 1970, too: the second of a day is never negative.
    let (day, second) = (
        moment.seconds.div_euclid(DAY),
        moment.seconds.rem_euclid(DAY),
    );
    let (year, month, day) = date(day);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let fraction = crate::duration::fraction(moment.nanos.unsigned_abs());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// Exactly so many.
fn digits(text: &str, length: usize) -> Option<i64> {
    let fits = text.len() == length && text.bytes().all(|digit| digit.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

/// East of Greenwich, in seconds.
fn offset(zone: &str) -> Option<i64> {
    let (sign, clock) = match zone.split_at_checked(1)? {
        ("Z" | "z", "") => return Some(0),
        ("+", clock) => (1, clock),
        ("-", clock) => (-1, clock),
        _ => return None,
    };
    let (hour, minute) = clock.split_once(':')?;
    let (hour, minute) = (digits(hour, 2)?, digits(minute, 2)?);
    (hour < 24 && minute < 60).then_some(sign * (hour * 3600 + minute * 60))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Since 1970. Years begin in March here, so that the leap day is the last; 400 of them have 146,097 days.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let in_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year * 365 + year / 4 - year / 100 + in_year - 719_468
}

/// The way back.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let (era, in_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn moments_are_read_and_written() {
        for (given, seconds, nanos, written) in [
            ("1970-01-01T00:00:00Z", 0, 0, "1970-01-01T00:00:00Z"),
            (
                "2000-02-29t23:59:59.5z",
                951_868_799,
                500_000_000,
                "2000-02-29T23:59:59.500Z",
            ),
            (
                "2020-01-01T01:00:00+01:00",
                1_577_836_800,
                0,
                "2020-01-01T00:00:00Z",
            ),
            (
                "1969-12-31T23:59:59.000001Z",
                -1,
                1_000,
                "1969-12-31T23:59:59.000001Z",
            ),
            ("0001-01-01T00:00:00Z", FIRST, 0, "0001-01-01T00:00:00Z"),
            (
                "9999-12-31T23:59:59.999999999Z",
                LAST,
                999_999_999,
                "9999-12-31T23:59:59.999999999Z",
            ),
        ] {
            let read = parse(given).unwrap();
            assert_eq!((read.seconds, read.nanos), (seconds, nanos), "{given}");
            assert_eq!(text(&read), written);
        }
        for given in [
            "",
            "2020-01-01",
            "2020-01-01T00:00:00",
            "2021-02-29T00:00:00Z",
            "2020-13-01T00:00:00Z",
            "2020-01-01T24:00:00Z",
            "2020-01-01T00:00:00.Z",
            "2020-01-01T00:00:00+1:00",
            "2020-1-01T00:00:00Z",
            "0001-01-01T00:00:00+01:00",
            "２020-01-01T00:00:00Z",
            "2020-01-01T00:00:00.1234567890Z",
        ] {
            assert_eq!(parse(given), None, "{given}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_written_timestamp_is_read(seconds in FIRST..=LAST, nanos in 0..1_000_000_000i32) {
            let moment = Timestamp { seconds, nanos };
            prop_assert_eq!(parse(&text(&moment)), Some(moment));
        }

        #[test]
        fn no_text_is_too_much(given in "[-0-9T:.Z+é]{0,40}") {
            if let Some(moment) = parse(&given) {
                prop_assert_eq!(parse(&text(&moment)), Some(moment));
            }
        }

        #[test]
        fn no_moment_is_too_much(seconds: i64, nanos: i32) {
            let written = text(&Timestamp { seconds, nanos });
            prop_assert!(written.ends_with('Z'));
        }
    }
}
