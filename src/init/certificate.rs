//! The end of a certificate's validity: the one field that the agent reads, for a warning and a metric.
//!
//! PEM, base64 and just enough DER to walk from the start of a certificate to its validity (RFC 5280 §4.1). Nothing is
//! verified: whether a certificate is any good is Envoy's to say. What cannot be read has no expiry.

#![forbid(unsafe_code)]

/// Bytes of a PEM file. Chosen: a bundle of all public roots is a quarter of it.
pub(crate) const MAX_PEM_BYTES: u64 = 1 << 20;

/// The beginning of a line that begins or ends a block; its label and `-----` follow.
const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
/// The labels that OpenSSL and BoringSSL, which Envoy uses, take for a certificate. Of a trusted one, OpenSSL's own form,
/// more follows in the same block.
const TRUSTED: &[u8] = b"TRUSTED CERTIFICATE-----";
const LABELS: [&[u8]; 3] = [b"CERTIFICATE-----", b"X509 CERTIFICATE-----", TRUSTED];

/// Tags of DER.
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// `[0]`, which a certificate of version 1 lacks.
const VERSION: u8 = 0xa0;

/// The earliest notAfter of the certificates in a PEM file, in seconds since 1970 (0 where it is before that): of those that
/// have ended at `now`, and of the others.
pub(crate) fn expiry(pem: &[u8], now: u64) -> [Option<u64>; 2] {
    let mut earliest = [None; 2];
    if pem.len() as u64 > MAX_PEM_BYTES {
        return earliest;
    }
    let mut block = None;
    for line in pem.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii();
        if let Some(label) = line.strip_prefix(BEGIN) {
            let trusted = label == TRUSTED;
            block = LABELS.contains(&label).then(|| Base64::new(trusted));
        } else if line.starts_with(END) {
            if let Some(time) = block.take().and_then(|block| block.not_after()) {
                let [ended, to_come] = &mut earliest;
                let first = if time <= now { ended } else { to_come };
                *first = Some(first.map_or(time, |first: u64| first.min(time)));
            }
        } else {
            block = block.and_then(|block| block.with(line));
        }
    }
    earliest
}

/// The bytes decoded so far.
#[derive(Default)]
struct Base64 {
    bytes: Vec<u8>,
    /// The lowest `held` of them are not in `bytes` yet.
    bits: u32,
    held: u32,
    trusted: bool,
}

impl Base64 {
    fn new(trusted: bool) -> Self {
        Self {
            trusted,
            ..Self::default()
        }
    }

    fn not_after(&self) -> Option<u64> {
        not_after(&self.bytes, self.trusted)
    }

    fn with(mut self, line: &[u8]) -> Option<Self> {
        for byte in line {
            let six = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                b'=' => continue,
                _ => return None,
            };
            self.bits = self.bits << 6 | u32::from(six);
            self.held += 6;
            if self.held >= 8 {
                self.held -= 8;
                let [byte, ..] = (self.bits >> self.held).to_le_bytes();
                self.bytes.push(byte);
            }
        }
        Some(self)
    }
}

fn not_after(der: &[u8], trusted: bool) -> Option<u64> {
    let (certificate, more) = tagged(der, SEQUENCE)?;
    if !trusted && !more.is_empty() {
        return None;
    }
    let (mut rest, _) = tagged(certificate, SEQUENCE)?;
    if let Some((_, behind)) = tagged(rest, VERSION) {
        rest = behind;
    }
    // The serial number, the algorithm and the issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        (_, rest) = tagged(rest, tag)?;
    }
    let (validity, _) = tagged(rest, SEQUENCE)?;
    let (_, _, rest) = element(validity)?;
    let (tag, time, _) = element(rest)?;
    unix_seconds(tag, time)
}

/// Content and what follows it, if it is the one that is expected.
fn tagged(der: &[u8], expected: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = element(der)?;
    (tag == expected).then_some((content, rest))
}

/// Tag, content and what follows.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, length], rest) = der.split_first_chunk()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        // So many bytes hold the length; three are enough for a whole file.
        0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length & 3))?;
            let length = bytes
                .iter()
                .fold(0, |length, byte| length << 8 | usize::from(*byte));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`: RFC 5280 §4.1.2.5 allows no other form.
fn unix_seconds(tag: u8, text: &[u8]) -> Option<u64> {
    let digits = text.strip_suffix(b"Z")?;
    let mut pairs = digits.chunks(2).map(|pair| match pair {
        [ten @ b'0'..=b'9', one @ b'0'..=b'9'] => Some(u64::from((ten - b'0') * 10 + (one - b'0'))),
        _ => None,
    });
    let mut next = || pairs.next()?;
    let century = match (tag, digits.len()) {
        (UTC_TIME, 12) => None,
        (GENERALIZED_TIME, 14) => Some(next()?),
        _ => return None,
    };
    let year = next()?;
    let century = century.unwrap_or(if year < 50 { 20 } else { 19 });
    let days = days(century * 100 + year, next()?, next()?)?;
    let (hour, minute, second) = (next()?, next()?, next()?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some(seconds.saturating_sub(DAYS_TO_1970 * 24 * 60 * 60))
}

const DAYS_TO_1970: u64 = days_before(1970);

/// Days between 1 January of year 0 and that of `year`; a year 0 would be a leap year.
const fn days_before(year: u64) -> u64 {
    year * 365 + year.div_ceil(4) - year.div_ceil(100) + year.div_ceil(400)
}

/// Days since 1 January of year 0.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let february = 28 + days_before(year + 1) - days_before(year) - 365;
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut days = days_before(year) + day.checked_sub(1)?;
    for (number, length) in (1..).zip(months) {
        if number == month {
            return (day <= length).then_some(days);
        }
        days += length;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // openssl ca -enddate 270301123456Z
    const LEAF: &str = "\
-----BEGIN CERTIFICATE-----
MIH7MIGuoAMCAQICAQEwBQYDK2VwMA8xDTALBgNVBAMMBGxlYWYwHhcNMjYwMTAx
MDAwMDAwWhcNMjcwMzAxMTIzNDU2WjAPMQ0wCwYDVQQDDARsZWFmMCowBQYDK2Vw
AyEAXlBCqDdBPs6sb5FWp/QJuLnfp/ku0+7mFSGQpmb/uAyjLzAtMAwGA1UdEwQF
MAMBAf8wHQYDVR0OBBYEFMmSTqKfqVzsb/xt6up7zlJ/2E/VMAUGAytlcANBAPFM
ohkzHaXoh8zWc7xOfcGtnEk9GEhuz+wG/Xu4T/6dhlLiw2BQTz3rnu6eIFK4Xpka
G/dKk+lyHLSIeCdGngs=
-----END CERTIFICATE-----
";

    // openssl ca -enddate 260630000000Z
    const INTERMEDIATE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBCzCBvqADAgECAgECMAUGAytlcDAXMRUwEwYDVQQDDAxpbnRlcm1lZGlhdGUw
HhcNMjUwMTAxMDAwMDAwWhcNMjYwNjMwMDAwMDAwWjAXMRUwEwYDVQQDDAxpbnRl
cm1lZGlhdGUwKjAFBgMrZXADIQBg2VCJe7re+G52yuHFOlnLOnK3vimta9xrchI0
4ah+PaMvMC0wDAYDVR0TBAUwAwEB/zAdBgNVHQ4EFgQU+bIuzC5jJRM7Bvn8YbKN
XzulimowBQYDK2VwA0EAFYq/Geys+vXMbPakoF+YqldHocZBiAZzGeD7KOChZ0jU
TaXY6TseRWssU1PmQMFV3wRWw3gAiAItpAqSJ8nNDw==
-----END CERTIFICATE-----
";

    // openssl ca -enddate 20500101000000Z
    const LATE: &str = "\
-----BEGIN CERTIFICATE-----
MIH9MIGwoAMCAQICAQMwBQYDK2VwMA8xDTALBgNVBAMMBGxhdGUwIBcNMjYwMTAx
MDAwMDAwWhgPMjA1MDAxMDEwMDAwMDBaMA8xDTALBgNVBAMMBGxhdGUwKjAFBgMr
ZXADIQDtHFFfBg0SW7IMRzKKLeCBiv9vZgxq9XHRz8DHcYheoqMvMC0wDAYDVR0T
BAUwAwEB/zAdBgNVHQ4EFgQUr/xWiykh2PdkUDKpfsRAt7++iMswBQYDK2VwA0EA
6L645lNv6iBweTmC3/HJQRutJOu5DGm4ua6V88v/C5JqtO7RWGwI9F3Vq5QtBksP
8Dh/0ImgwUYXtYp/gNReDQ==
-----END CERTIFICATE-----
";

    // openssl x509 -req -days 1000, without extensions
    const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIHYMIGLAhRLGPUrDXiV2kF4tjR166fl00Iz1DAFBgMrZXAwDzENMAsGA1UEAwwE
bGVhZjAeFw0yNjExMjEwNzI3NTdaFw0yOTA4MTcwNzI3NTdaMA8xDTALBgNVBAMM
BGxlYWYwKjAFBgMrZXADIQBeUEKoN0E+zqxvkVan9Am4ud+n+S7T7uYVIZCmZv+4
DDAFBgMrZXADQQCDOsOb2Umi9nUVE0oHjGyJVhT5z0y73WJwTnFZJKXE+uFQsRzs
Vjn+ABv9fv9ixcHTlddWKjnv6pAKnDkDiAEC
-----END CERTIFICATE-----
";

    fn earliest(pem: &[u8]) -> Option<u64> {
        let [ended, to_come] = expiry(pem, 0);
        assert_eq!(ended, None);
        to_come
    }

    #[test]
    fn the_end_of_one_certificate() {
        let table = [
            (LEAF, 1_803_904_496),
            (INTERMEDIATE, 1_782_777_600),
            // Its year is past 2049, so it is a GeneralizedTime.
            (LATE, 2_524_608_000),
            (VERSION_1, 1_881_646_077),
        ];
        for (pem, expected) in table {
            assert_eq!(earliest(pem.as_bytes()), Some(expected), "{pem}");
            let windows = pem.replace('\n', "\r\n");
            assert_eq!(earliest(windows.as_bytes()), Some(expected));
        }
    }

    #[test]
    fn the_earliest_end_of_a_chain() {
        let chain = [LEAF, INTERMEDIATE, LATE].concat();
        assert_eq!(earliest(chain.as_bytes()), Some(1_782_777_600));
        let chain = [INTERMEDIATE, LEAF].concat();
        assert_eq!(earliest(chain.as_bytes()), Some(1_782_777_600));
    }

    #[test]
    fn one_that_has_ended_does_not_hide_the_next() {
        let chain = [LEAF, INTERMEDIATE, LATE, VERSION_1].concat();
        for (now, expected) in [
            (1_782_777_599, [None, Some(1_782_777_600)]),
            (1_782_777_600, [Some(1_782_777_600), Some(1_803_904_496)]),
            (2_000_000_000, [Some(1_782_777_600), Some(2_524_608_000)]),
            (2_524_608_000, [Some(1_782_777_600), None]),
        ] {
            assert_eq!(expiry(chain.as_bytes(), now), expected, "{now}");
        }
    }

    /// `openssl x509 -trustout` writes such a block: the uses that the certificate is trusted for stand behind it.
    #[test]
    fn a_certificate_is_one_by_any_of_its_names() {
        let old = LEAF.replace(" CERTIFICATE", " X509 CERTIFICATE");
        assert_eq!(earliest(old.as_bytes()), Some(1_803_904_496));
        let trusted = INTERMEDIATE.replace(" CERTIFICATE", " TRUSTED CERTIFICATE");
        assert_eq!(earliest(trusted.as_bytes()), Some(1_782_777_600));
        let more = trusted.replace("\n-----END", "\nMAwwCgYIKwYBBQUHAwE=\n-----END");
        assert_eq!(earliest(more.as_bytes()), Some(1_782_777_600));
    }

    #[test]
    fn other_pem_blocks_are_passed_over() {
        let key = LEAF.replace("CERTIFICATE", "PRIVATE KEY");
        let cut = INTERMEDIATE.replace("-----END CERTIFICATE-----\n", "");
        let broken = INTERMEDIATE.replace("MII", "M!I");
        let short = INTERMEDIATE.replace("MIIB", "MIIC");
        let more = INTERMEDIATE.replace("\n-----END", "\nAAAA\n-----END");
        for other in [&key, &cut, &broken, &short, &more, "Subject: CN=\u{fc}\n"] {
            assert_eq!(earliest(other.as_bytes()), None, "{other}");
            let both = [other, LEAF].concat();
            assert_eq!(earliest(both.as_bytes()), Some(1_803_904_496), "{other}");
        }
        assert_eq!(earliest(b""), None);
        assert_eq!(
            earliest(b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"),
            None
        );
    }

    #[test]
    fn a_file_of_more_than_a_megabyte_is_not_read() {
        let mut pem = LEAF.as_bytes().to_vec();
        pem.resize(usize::try_from(MAX_PEM_BYTES).unwrap(), b'\n');
        assert_eq!(earliest(&pem), Some(1_803_904_496));
        pem.push(b'\n');
        assert_eq!(earliest(&pem), None);
    }

    #[test]
    fn times() {
        let table = [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "691231235959Z", Some(0)),
            (UTC_TIME, "500101000000Z", Some(0)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "991231235959Z", Some(946_684_799)),
            (UTC_TIME, "000229120000Z", Some(951_825_600)),
            (GENERALIZED_TIME, "20000301000000Z", Some(951_868_800)),
            (GENERALIZED_TIME, "21000228235959Z", Some(4_107_542_399)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (GENERALIZED_TIME, "00000101000000Z", Some(0)),
            (GENERALIZED_TIME, "21000229000000Z", None),
            (UTC_TIME, "010229000000Z", None),
            (UTC_TIME, "260431000000Z", None),
            (UTC_TIME, "260400000000Z", None),
            (UTC_TIME, "260001000000Z", None),
            (UTC_TIME, "261301000000Z", None),
            (UTC_TIME, "260101240000Z", None),
            (UTC_TIME, "260101006000Z", None),
            (UTC_TIME, "260101000060Z", None),
            (UTC_TIME, "260101000000", None),
            (UTC_TIME, "2601010000Z", None),
            (UTC_TIME, "260101000000+0000", None),
            (UTC_TIME, "2601010000:0Z", None),
            (UTC_TIME, "20260101000000Z", None),
            (GENERALIZED_TIME, "260101000000Z", None),
            (GENERALIZED_TIME, "20260101000000.5Z", None),
            (INTEGER, "260101000000Z", None),
            (UTC_TIME, "Z", None),
            (UTC_TIME, "", None),
        ];
        for (tag, text, expected) in table {
            assert_eq!(unix_seconds(tag, text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut expected = DAYS_TO_1970;
        for year in 1970..=9999 {
            for month in 1..=12 {
                let mut day = 1;
                while let Some(days) = days(year, month, day) {
                    assert_eq!(days, expected, "{year}-{month}-{day}");
                    expected += 1;
                    day += 1;
                }
                assert!((29..=32).contains(&day), "{year}-{month}");
            }
        }
    }

    #[test]
    fn lengths() {
        assert_eq!(element(b"\x02\x01ab"), Some((2, &b"a"[..], &b"b"[..])));
        assert_eq!(
            element(b"\x02\x83\0\0\x01ab"),
            Some((2, &b"a"[..], &b"b"[..]))
        );
        let wrong: [&[u8]; 8] = [
            b"",
            b"\x02",
            b"\x02\x01",
            b"\x02\x80\0\0",
            b"\x02\x81",
            b"\x02\x82\x01",
            b"\x02\x84\0\0\0\x01a",
            b"\x02\xff",
        ];
        for der in wrong {
            assert_eq!(element(der), None, "{der:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), tag in any::<u8>()) {
            expiry(&bytes, 0);
            not_after(&bytes, true);
            unix_seconds(tag, &bytes);
            let begin = b"-----BEGIN TRUSTED CERTIFICATE-----\n";
            expiry(&[begin, &bytes[..], b"\n-----END"].concat(), 0);
        }

        #[test]
        fn a_certificate_with_wrong_bytes_is_survived(
            wrong in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            end in any::<prop::sample::Index>(),
        ) {
            for pem in [LEAF, INTERMEDIATE, LATE, VERSION_1] {
                let mut text = pem.as_bytes().to_vec();
                let body = pem.lines().filter(|line| !line.starts_with('-'));
                let mut der = body
                    .fold(Base64::default(), |block, line| block.with(line.as_bytes()).unwrap())
                    .bytes;
                for (index, byte) in &wrong {
                    *index.get_mut(&mut text) = *byte;
                    *index.get_mut(&mut der) = *byte;
                }
                expiry(&text, 0);
                not_after(&der, false);
                der.truncate(end.index(der.len()));
                not_after(&der, false);
            }
        }
    }
}
