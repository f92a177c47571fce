//! Checked against serde_json's own value, which is no part of the program.

use std::ops::Index;

use proptest::prelude::*;

use super::parse::is_too_large;
use super::{Map, Value, parse};

/// A value as it is written in serde_json's macro.
macro_rules! json {
    ($($token:tt)+) => {
        $crate::json::parse(serde_json::json!($($token)+).to_string().as_bytes()).unwrap()
    };
}
pub(crate) use json;

impl Index<&str> for Map {
    type Output = Value;

    fn index(&self, key: &str) -> &Value {
        self.get(key).unwrap()
    }
}

impl PartialEq<&str> for Value {
    fn eq(&self, text: &&str) -> bool {
        self.as_str() == Some(text)
    }
}

fn read(text: &str) -> Value {
    parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: impl AsRef<[u8]>) -> String {
    parse(text.as_ref()).unwrap_err().to_string()
}

#[test]
fn a_number_stays_the_text_that_it_was() {
    for number in [
        "0",
        "-0",
        "1.50",
        "-0.0",
        "1e-7",
        "1E300",
        "0.1000000000000000055511151231257827",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775808",
        "-123456789012345678901234567890",
        "1.7976931348623157e+308",
        "2.2250738585072014e-308",
    ] {
        assert_eq!(read(number).compact(), number);
        let list = read(&["[", number, ",{\"a\":", number, "}]"].concat());
        assert_eq!(
            list.compact(),
            ["[", number, ",{\"a\":", number, "}]"].concat()
        );
    }
}

#[test]
fn only_a_whole_number_is_one() {
    for (text, number) in [
        ("0", Some(0)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("-1", None),
        ("-0", None),
        ("1.0", None),
        ("1e1", None),
        ("\"1\"", None),
    ] {
        assert_eq!(read(text).as_u64(), number, "{text}");
    }
}

#[test]
fn no_key_makes_a_number_of_an_object() {
    for inner in ["\"7\"", "7", "1.5", "{\"a\":1.5}", "\"x\""] {
        let text = ["{\"$serde_json::private::Number\":", inner, ",\"b\":[1.5]}"].concat();
        assert_eq!(read(&text).compact(), text);
        let alone = ["{\"$serde_json::private::Number\":", inner, "}"].concat();
        assert_eq!(read(&alone).compact(), alone);
    }
}

#[test]
fn the_last_of_equal_keys_counts_and_keys_are_sorted() {
    let value = read(r#"{"b":1,"a":2,"":0,"b":3,"a":4,"b":5,"é":1,"aa":6}"#);
    assert_eq!(value.compact(), r#"{"":0,"a":4,"aa":6,"b":5,"é":1}"#);
    let mut map = Map::new();
    for (key, number) in [("b", 1_u16), ("a", 2), ("c", 3), ("b", 4)] {
        map.insert(key, number.into());
    }
    map.insert_new("a", Value::Null);
    map.insert_new("0", Value::Null);
    map.extend(vec![
        ("c".to_owned(), 5_u16.into()),
        ("d".to_owned(), true.into()),
    ]);
    assert_eq!(
        Value::Object(map).compact(),
        r#"{"0":null,"a":2,"b":4,"c":5,"d":true}"#
    );
}

#[test]
fn every_escape_is_read_and_the_shortest_written() {
    let value = read(r#""\"\\\/\b\f\n\r\t\u0000\u001F\u007f\u00e9\uD83D\uDE00é""#);
    assert_eq!(
        value,
        "\"\\/\u{8}\u{c}\n\r\t\0\u{1f}\u{7f}\u{e9}\u{1f600}\u{e9}"
    );
    assert_eq!(
        value.compact(),
        "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\u{7f}\u{e9}\u{1f600}\u{e9}\""
    );
}

#[test]
fn people_get_a_line_for_each_entry() {
    let value = read(r#"{"a":[1,[],{}],"b":{"c":null,"[":"{"},"d":[]}"#);
    let expected = r#"{
  "a": [
    1,
    [],
    {}
  ],
  "b": {
    "[": "{",
    "c": null
  },
  "d": []
}"#;
    assert_eq!(value.pretty(), expected);
}

#[test]
fn a_deep_document_is_not_mostly_blanks() {
    let zeros = vec!["0"; 100_000].join(",");
    let text = ["[".repeat(100), zeros, "]".repeat(100)].concat();
    let pretty = read(&text).pretty();
    assert!(pretty.len() < 5 << 20, "{} bytes", pretty.len());
    assert_eq!(read(&pretty).compact(), text);
}

#[test]
fn faults_have_a_place() {
    for (text, expected) in [
        ("", "EOF while parsing a value at line 1 column 0"),
        ("{", "EOF while parsing an object at line 1 column 1"),
        ("[1", "EOF while parsing a list at line 1 column 2"),
        ("{\"a", "EOF while parsing a string at line 1 column 3"),
        ("{\n \"a\" 1}", "expected `:` at line 2 column 6"),
        ("{a: 1}", "key must be a string at line 1 column 2"),
        ("[1 2]", "expected `,` or `]` at line 1 column 4"),
        ("{\"a\":1 2", "expected `,` or `}` at line 1 column 8"),
        ("x", "expected value at line 1 column 1"),
        ("1\n2", "trailing characters at line 2 column 1"),
        ("[1,\n 01]", "invalid number at line 2 column 3"),
        ("[1e999]", "number out of range at line 1 column 6"),
        ("[-1e309, 2]", "number out of range at line 1 column 7"),
    ] {
        assert_eq!(refusal(text), expected, "{text}");
    }
    for (text, start) in [
        (&b"\"\xff\""[..], "invalid unicode code point at line 1"),
        (b"\"\\ud800\"", ""),
        (b"\"\\udc00\"", "lone "),
        (b"\"\\x\"", "invalid escape at line 1 column 3"),
        (b"\"\\u12", "EOF while parsing a string at line 1"),
        (b"\"\t\"", "control character"),
        (b"[1,]", "expected value at line 1 column 4"),
        (b"{\"a\":1,}", "key must be a string at line 1 column 8"),
        (b"nul", ""),
        (b"{} \xff", ""),
        (b"1\xff", ""),
        (b"\xef\xbb\xbf{}", "expected value at line 1 column "),
    ] {
        let said = refusal(text);
        assert!(
            said.starts_with(start) && said.contains(" at line 1 column "),
            "{said}"
        );
    }
}

#[test]
fn depth_is_limited() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = |levels: usize| [&open.repeat(levels), "1", &close.repeat(levels)].concat();
        let deepest = nested(127);
        assert_eq!(read(&deepest).compact(), deepest);
        assert!(refusal(nested(128)).starts_with("recursion limit exceeded at line 1 column "));
        let endless = open.repeat(1 << 20);
        assert!(
            refusal(&endless).starts_with("EOF while parsing"),
            "not a stack"
        );
        let closed = nested(1 << 20);
        assert!(refusal(closed).starts_with("recursion limit exceeded"));
    }
}

#[test]
fn many_keys_in_no_order_take_no_square_of_the_time() {
    let keys = (0..300_000_u32).map(|number| {
        let number = number.wrapping_mul(2_654_435_761);
        format!("\"{number}\":0")
    });
    let text = ["{", &keys.collect::<Vec<_>>().join(","), "}"].concat();
    assert_eq!(read(&text).as_object().unwrap().len(), 300_000);
}

#[test]
fn the_largest_double_is_the_largest_number() {
    for (number, too_large) in [
        ("1.7976931348623157e308", false),
        ("-1.7976931348623157E+308", false),
        ("1.7976931348623159e308", true),
        ("17976931348623157e292", false),
        ("0.00017976931348623157e312", false),
        ("0.00018e312", true),
        ("10e307", false),
        ("10e308", true),
        ("0e999", false),
        ("0.000e99999999999999999999", false),
        ("1e99999999999999999999", true),
        ("1e-99999999999999999999", false),
        ("1e+9223372036854775807", true),
        ("0.1e-9223372036854775808", false),
    ] {
        assert_eq!(is_too_large(number), too_large, "{number}");
        assert_eq!(number.parse::<f64>().unwrap().is_infinite(), too_large);
    }
}

/// Any document, as serde_json knows it.
fn document() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        ".{0,8}".prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        let key = prop_oneof!["[ab\"\\\\]{0,2}", any::<String>()];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
            prop::collection::vec((key, inner), 0..8)
                .prop_map(|entries| serde_json::Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// Whether both readers take `text` for the same, or neither takes it.
fn is_same(text: &[u8]) -> bool {
    match (parse(text), serde_json::from_slice(text)) {
        (Ok(parsed), Ok(expected)) => is_equal(&parsed, &expected),
        (Err(_), Err(_)) => true,
        (Ok(_), Err(_)) => false,
        // serde_json may keep numbers that have no double.
        (Err(error), Ok(_)) => error.to_string().starts_with("number out of range"),
    }
}

fn is_equal(parsed: &Value, expected: &serde_json::Value) -> bool {
    match (parsed, expected) {
        (Value::Number(parsed), serde_json::Value::Number(expected)) => {
            let parsed: f64 = parsed.as_str().parse().unwrap();
            // serde_json's is not always the nearest one.
            (parsed - expected.as_f64().unwrap()).abs() <= (parsed.abs() * 1e-15).max(1e-305)
        }
        (Value::Array(parsed), serde_json::Value::Array(expected)) => {
            let mut pairs = parsed.iter().zip(expected);
            parsed.len() == expected.len()
                && pairs.all(|(parsed, expected)| is_equal(parsed, expected))
        }
        (Value::Object(parsed), serde_json::Value::Object(expected)) => {
            let mut pairs = parsed.iter().zip(expected);
            parsed.len() == expected.len()
                && pairs.all(|(parsed, expected)| {
                    parsed.0 == *expected.0 && is_equal(&parsed.1, expected.1)
                })
        }
        _ => parsed.compact() == *expected.to_string(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn documents_are_written_as_serde_json_writes_them(document in document()) {
        let text = document.to_string();
        let value = read(&text);
        prop_assert_eq!(value.compact(), text);
        prop_assert_eq!(value.pretty(), format!("{document:#}"));
        prop_assert_eq!(&read(&value.pretty()), &value);
        prop_assert_eq!(read(&value.compact()), value);
    }

    #[test]
    fn texts_that_serde_json_refuses_are_refused(
        text in prop_oneof![
            any::<Vec<u8>>(),
            "[\\[\\]{}\",:0-9eE.+ \\\\ubntrfalsdc\n-]{0,24}".prop_map(String::into_bytes),
            "\"(\\\\u[dD][89abcdefCD][0-9a-f]{2}|\\\\[a-z\"/]|[a-z]){0,4}\"".prop_map(String::into_bytes),
            "-?[0-9]{0,3}(\\.[0-9]{0,3})?([eE][+-]?[0-9]{0,3})?".prop_map(String::into_bytes),
        ],
    ) {
        prop_assert!(is_same(&text));
    }

    #[test]
    fn a_broken_document_is_survived(document in document(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut text = document.to_string().into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        prop_assert!(is_same(&text));
        text.truncate(at);
        prop_assert!(is_same(&text));
    }

    #[test]
    fn a_number_is_too_large_when_its_double_is(digits in "[0-9]{1,20}", fraction in "[0-9]{0,20}", exponent in -340..340) {
        let whole = digits.trim_start_matches('0');
        let number = format!("{}.{fraction}0e{exponent}", if whole.is_empty() { "0" } else { whole });
        let double: f64 = number.parse().unwrap();
        // At the very edge what rounds down to the largest may be refused.
        prop_assert!(is_too_large(&number) == double.is_infinite() || double == f64::MAX, "{}", number);
    }
}
