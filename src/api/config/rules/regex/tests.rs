//! Patterns that RE2 takes and refuses. The rows were put to RE2 itself (google-re2 1.1.20251105).

use proptest::prelude::*;

use super::*;

const GOOD: &[&str] = &[
    "a",
    ".*",
    "^/v[0-9]+/(a|b)?$",
    "a+?",
    "(a+)+",
    "a{3}",
    "a{1,1000}",
    "a{2,}",
    "(?i)x",
    "(?:x)*",
    "(?P<n>x)",
    "/{id}/x",
    "a{",
    "a{,5}",
    "a{x}",
    "[]a]",
    "[^]a]",
    "[[]",
    "[[:alpha:]_]",
    "[a&&b]",
    "\\Q(*\\E+",
    "\\/\\.",
    "\\bx\\B",
    "\\d\\pL\\p{Greek}",
    "\\x41\\x{41}",
    "é",
    "\\C",
    "\\<",
    "[\\]\\[]",
    "(?is-m:x)",
    // A brace that counts nothing is a letter.
    "\\b{start}",
    "\\0",
    "\\012",
    "\\12",
    "\\777",
    "[\\0-\\07]",
    "\\x{10FFFF}",
    "\\pN\\PL\\p{Lu}\\P{Nd}\\p{^Cyrillic}\\p{Any}",
    "[\\p{Han}\\pZ]",
    "[[:^digit:][:word:]]",
    "[[:]",
    "[[:alpha]",
    // A dash is a letter behind a class, and before the bracket that closes.
    "[\\w-.]+",
    "/[^\\s-/]+",
    "[\\w-/]+",
    "[\\d-a]",
    "[\\pL-x]",
    "[[:alpha:]-z]",
    "[+--]",
    "[!--]",
    "[%--]",
    "[a-]",
    "[-a]",
    "[--]",
    "[--a]",
    "[a-c-e]",
    "[]-a]",
    "[^-]",
    "[a~~!--]",
    "[[.a.]]",
    "[[=a=]]",
    "[\\-\\[\\]^]",
    // A repetition behind a flag or an empty literal is one of what stands before.
    "a(?i)?",
    "a(?i)+",
    "a*(?i)*",
    "a+\\Q\\E+",
    "^*",
    "\\b+",
    "(|a)*",
    "()?",
    "(?)",
    "(?ii)a",
    "(?i-i)a",
    "(?-i)a",
    "(?U)a+",
    "(?P<1a>x)",
    "(?<n>x)",
    "(?P<é>x)",
    "(?P<n>a)(?P<n>b)",
    // Too long for a number, and with a zero before it.
    "a{99999999999}",
    "a{01}",
    "a{1,02}",
    "(a{0}){1000}",
    "(a{500}|b{500}){2,}",
    "(a{1000})*",
    "\\_",
    "\\Q\\",
    "\\x{0000000041}",
    "\\x{D800}",
    "a|",
    "|",
];

#[test]
fn regex_is_what_re2_takes() {
    let long = [format!("{}{}", "(".repeat(500), ")".repeat(500))];
    let rows = GOOD.iter().copied();
    for good in rows.chain(long.iter().map(String::as_str)) {
        assert_eq!(regex(good), None, "{good}");
    }
}

const BAD: &[&str] = &[
    "",
    "*",
    "(",
    ")",
    "[",
    "a**",
    "a++",
    "a{2}{3}",
    "a{1001}",
    "(a{100}){11}",
    "(?=a)",
    "(?!a)",
    "(?<=a)b",
    "(a)\\1",
    "\\k<n>",
    "a{3,2}",
    "\\",
    "[b-a]",
    "(?x)a",
    "(?u)a",
    "\\y",
    "\\u0041",
    "\\U00000041",
    "\\u{41}",
    "[a\\u0041]",
    "[\\u0041-z]",
    "\\p{Nonsense}",
    "\\p{greek}",
    "\\p{Letter}",
    "\\p{sc=Greek}",
    "\\pX",
    "[\\p{Nonsense}]",
    "[[:foo:]]",
    "[[:Alpha:]]",
    "\\8",
    "\\1",
    "\\18",
    "[\\7]",
    "(a)[\\1]",
    // A class ends no range, nor does a literal stand in one.
    "[--\\d]",
    "[--#]",
    "[a-\\d]",
    "[a-[:alpha:]]",
    "[\\Qa\\E]",
    "[\\C]",
    "[\\b]",
    "[\\A]",
    "[^]",
    "[]",
    "[a-",
    "[[:alpha:]",
    "(|*)",
    "a|*",
    "(*)",
    "(?i)*",
    "\\Q\\E*",
    "(?-)a",
    "(?i-)a",
    "(?-i-m)a",
    "(?i",
    "(?",
    "(?P=n)",
    "(?P<>x)",
    "(?P<a b>x)",
    "(?P<a",
    "a{2,}{2}",
    "a?{2}",
    "a{2}??",
    "(a{500}|b{501}){2}",
    "(a{501,}){2}",
    "\\x4",
    "\\x{}",
    "\\x{+41}",
    "\\x+1",
    "\\x{110000}",
    "\\p",
    "\\p{Greek",
    "\\Z",
    "\\é",
    "[\\p]",
];

#[test]
fn regex_is_not_what_re2_refuses() {
    let long = ["a".repeat(1025), "(".repeat(500)];
    let rows = BAD.iter().copied();
    for bad in rows.chain(long.iter().map(String::as_str)) {
        assert!(regex(bad).is_some(), "{bad}");
    }
    assert_eq!(regex("").unwrap(), "not a regular expression: it is empty");
    assert_eq!(
        regex("a++").unwrap(),
        "not a regular expression: repetition of a repetition"
    );
    assert!(
        regex("(?=a)")
            .unwrap()
            .starts_with("not a regular expression: look-around"),
        "{:?}",
        regex("(?=a)")
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Texts of the letters that mean something, and of some of more than one byte.
    #[test]
    fn any_text_is_a_pattern_or_not(text in "[\\\\\\[\\](){}^|*+?:<>,.=!QEpPxLidmsU019a\u{e9}\u{1F600}-]{0,30}") {
        regex(&text);
    }

    #[test]
    fn a_literal_is_a_pattern(text in "[^\\\\]{0,60}") {
        prop_assert_eq!(regex(&format!("\\Q{text}\\E")), None);
        let class: String = text.chars().map(|letter| format!("\\x{{{:x}}}", u32::from(letter))).collect();
        prop_assert_eq!(regex(&format!("[-{class}-]")), None);
    }
}

/// The rows were put to Envoy 1.40 (`--mode validate`).
#[test]
fn envoy_takes_letters_of_one_byte() {
    for good in [
        "a",
        "\\xff",
        "\\x{0ff}",
        "\\377",
        "[^\\x00-\\xff]",
        "\\p{Greek}",
        "[[:^ascii:]]",
        "\\Q\\x{100}\\E",
        // Text means its bytes.
        "α",
        "α{2}",
        "(?i)α",
        "[α]",
        "[а-я]",
        "[a-α]",
        "[é-\\xe9]",
        "(?P<e>a)",
    ] {
        assert!(regex(good).is_none() && is_of_bytes(good), "{good}");
    }
    for bad in [
        "\\x{100}",
        "\\x{10FFFF}",
        "\\777",
        "[\\400]",
        "[^\\x00-\\x{10FFFF}]",
        "[\\x41-\\x{200}]",
        "(?i)\\x{212a}",
        "(\\x{100})?",
        "[\\xd0-é]",
        "[\\xe9-é]",
        "(?P<é>a)",
        "(?P<名>a)",
    ] {
        assert!(regex(bad).is_none() && !is_of_bytes(bad), "{bad}");
    }
}

/// Each expression has its part thousands of times, none of which ends.
#[test]
fn an_unclosed_part_is_looked_for_once() {
    for part in ["a{", "a{1", "[[:a]"] {
        let work = |count: usize| {
            let text = part.repeat(count);
            move || assert!(read(&text, MAX_CODE_POINT).is_ok())
        };
        crate::growth::assert_linear(32, work(5_000), work(160_000));
    }
}
