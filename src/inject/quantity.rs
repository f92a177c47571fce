//! Quantities of Kubernetes: `100m`, `1.5Gi`, `2e3`.

/// Nano: the unit of the smallest suffix.
const NANO: i128 = 1_000_000_000;

/// Parses a quantity to billionths, rounded away from zero; `None` if it is malformed.
#[must_use]
pub(crate) fn nano(text: &str) -> Option<i128> {
    let (negative, text) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty())
        || fraction.contains('.')
        || whole.len() + fraction.len() > 32
    {
        return None;
    }
    let (base, exponent) = scale(suffix)?;
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let factor = if exponent >= 0 {
        base.checked_pow(exponent.unsigned_abs())?
    } else {
        1
    };
    let divisor = if exponent < 0 {
        base.checked_pow(exponent.unsigned_abs())?
    } else {
        1
    };
    let divisor = divisor.checked_mul(10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
    let scaled = digits.checked_mul(factor)?.checked_mul(NANO)?;
    let rounded = scaled.checked_add(divisor - 1)? / divisor;
    Some(if negative { -rounded } else { rounded })
}

/// The base and exponent that a suffix is.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "" => (10, 0),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (1024, 1),
        "Mi" => (1024, 2),
        "Gi" => (1024, 3),
        "Ti" => (1024, 4),
        "Pi" => (1024, 5),
        "Ei" => (1024, 6),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty()
                || digits.len() > 2
                || !digits.bytes().all(|digit| digit.is_ascii_digit())
            {
                return None;
            }
            (10, exponent.parse().ok()?)
        }
    })
}

/// Whole units, rounded up.
#[must_use]
pub(crate) fn ceil(text: &str) -> Option<i128> {
    nano(text)?
        .checked_add(NANO - 1)
        .map(|nano| nano.div_euclid(NANO))
}

/// Returns true if two texts are the same quantity.
#[must_use]
pub(crate) fn equal(a: &str, b: &str) -> bool {
    a == b || nano(a).is_some_and(|a| Some(a) == nano(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_in_kubernetes() {
        let rows = [
            ("0", Some(0)),
            ("1", Some(NANO)),
            ("100m", Some(NANO / 10)),
            ("0.1", Some(NANO / 10)),
            ("1.5", Some(NANO / 2 * 3)),
            (".5", Some(NANO / 2)),
            ("5.", Some(5 * NANO)),
            ("1k", Some(1000 * NANO)),
            ("1Ki", Some(1024 * NANO)),
            ("1.5Gi", Some(NANO * 1024 * 1024 * 1024 * 3 / 2)),
            ("2e3", Some(2000 * NANO)),
            ("2E-3", Some(NANO / 500)),
            ("12E", Some(12 * NANO * NANO * NANO)),
            ("-1", Some(-NANO)),
            ("+1", Some(NANO)),
            ("1n", Some(1)),
            ("0.1n", Some(1)),
            ("", None),
            ("m", None),
            ("1 m", None),
            ("1.1.1", None),
            ("x", None),
            ("1KB", None),
            ("1e", None),
            ("--1", None),
            ("1e999", None),
            ("١", None),
            (".", None),
            ("1mi", None),
        ];
        for (text, wanted) in rows {
            assert_eq!(nano(text), wanted, "{text}");
        }
        assert_eq!(
            [ceil("1500m"), ceil("10m"), ceil("2"), ceil("0"), ceil("x")],
            [Some(2), Some(1), Some(2), Some(0), None]
        );
        assert!(equal("1000m", "1") && equal("x", "x") && !equal("x", "y") && !equal("1", "1m"));
    }
}
