//! Counts in sentences.

/// `1 object`, `2 objects`: for nouns whose plural is an `s`.
#[must_use]
pub fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    // No count of things in memory is beyond 64 bits.
    let count = count.try_into().unwrap_or(u64::MAX);
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// The suffix of a log line about a repeated event: ` (4 times)`; empty for one occurrence.
#[must_use]
pub fn times(count: u64) -> String {
    match count {
        0 | 1 => String::new(),
        count => format!(" ({count} times)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(counted(0_usize, "object"), "0 objects");
        assert_eq!(counted(1_usize, "object"), "1 object");
        assert_eq!(counted(2_u64, "object"), "2 objects");
        assert_eq!(
            (times(1), times(4)),
            (String::new(), " (4 times)".to_owned())
        );
    }
}
