//! Trees, lines and bounds.

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits {
    bytes: 4096,
    depth: 8,
    nodes: 100,
};

/// As JSON-like text, plain scalars without quotes.
fn show(node: &Node) -> String {
    match &node.value {
        Value::Scalar(scalar) if scalar.plain => scalar.text.clone(),
        Value::Scalar(scalar) => format!("{:?}", scalar.text),
        Value::List(items) => {
            format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(","))
        }
        Value::Map(entries) => {
            let entries: Vec<_> = entries
                .iter()
                .map(|(key, value)| format!("{key}:{}", show(value)))
                .collect();
            format!("{{{}}}", entries.join(","))
        }
    }
}

fn read_text(text: &str) -> String {
    read(text, LIMITS)
        .unwrap()
        .as_ref()
        .map(show)
        .unwrap_or_default()
}

fn cause(text: &str) -> String {
    read(text, LIMITS).unwrap_err().to_string()
}

#[test]
fn the_reader_returns_the_written_tree() {
    for (text, tree) in [
        ("", ""),
        ("# only words\n\n", ""),
        ("---\n", "~"),
        ("a: 1\nb: [x, 'y', \"z\"]\n", "{a:1,b:[x,\"y\",\"z\"]}"),
        (
            "{\"a\": {\"b\": \"1\"},\n\t\"c\": true}",
            "{a:{b:\"1\"},c:true}",
        ),
        ("a: &x {k: 1}\nb: *x", "{a:{k:1},b:{k:1}}"),
        (
            "a: &x {k: 1, l: 2}\nb: {<<: *x, l: 3}",
            "{a:{k:1,l:2},b:{l:3,k:1}}",
        ),
        ("b: {<<: [{k: 1}, {k: 2, m: 4}]}", "{b:{k:1,m:4}}"),
        ("a: !!str 5\nb: !!int '5'\nc: !local 5", "{a:\"5\",b:5,c:5}"),
        ("a: |\n  x\n  y\n", "{a:\"x\\ny\\n\"}"),
        ("a:\r\n- b\r\n", "{a:[b]}"),
        ("\u{feff}a: b", "{a:b}"),
        ("1: x\nnull: y", "{1:x,null:y}"),
        // As kubectl reads it: a colon before the end of a flow scalar is a part of it.
        ("[2001:db8::, 10.0.0.1]", "[2001:db8::,10.0.0.1]"),
        ("[2001:db8::]", "[2001:db8::]"),
        ("{a: 2001:db8::, b: [::]}", "{a:2001:db8::,b:[::]}"),
        ("{a: ::}", "{a:::}"),
        ("[\n  2001:db8::,\n  x y::]", "[2001:db8::,x y::]"),
        ("[a: , 'b':, {\"c\":1}]", "[{a:~},{b:~},{c:1}]"),
    ] {
        assert_eq!(read_text(text), tree, "{text}");
    }
}

#[test]
fn comments_may_be_long() {
    let text = format!("a:\n{}  b: 1 # and more\n", "  # words\n".repeat(300));
    assert_eq!(read_text(&text), "{a:{b:1}}");
}

#[test]
fn an_error_has_its_line() {
    for (text, expected) in [
        ("a: 1\nb: 2\na: 3\n", "line 3: the key \"a\" twice"),
        ("a: 1\n---\nb: 2\n", "line 2: more than one document"),
        (
            "a: 1\n? [x]\n: 2\n",
            "line 2: a key that is a list or an object",
        ),
        ("a:\n- &x [*x]\n", "line 2: an alias inside its own anchor"),
        ("a: {<<: 1}\n", "line 1: `<<` wants an object"),
        ("a: {<<: [1]}\n", "line 1: `<<` wants an object"),
    ] {
        assert_eq!(cause(text), expected, "{text}");
    }
    for text in ["a: *.b.c", "[*]", "[\"*\", *]", "{a: &}"] {
        let expected =
            "line 1: an alias (`*`) or an anchor (`&`) that leads nowhere; if it is text, quote it";
        assert_eq!(cause(text), expected, "{text}");
    }
    for (text, line) in [
        ("a: 1\nb: *c\n", 2),
        ("a: [1\nb: 2\n", 2),
        ("a: 1\n  b: 2\n", 2),
    ] {
        assert_eq!(
            read(text, LIMITS).unwrap_err().line,
            line,
            "{}",
            cause(text)
        );
    }
}

#[test]
fn depth_has_a_bound() {
    for (open, close) in [("[", "]"), ("{a: ", "}")] {
        let nested = |levels: usize| format!("{}1{}", open.repeat(levels), close.repeat(levels));
        assert!(read(&nested(8), LIMITS).is_ok());
        assert!(read(&nested(9), LIMITS).is_err());
        assert!(
            read(
                &nested(2000),
                Limits {
                    bytes: 1 << 20,
                    ..LIMITS
                }
            )
            .is_err()
        );
    }
    let blocks: String = (0..9)
        .map(|level| format!("{}a:\n", " ".repeat(level)))
        .collect();
    assert!(read(&blocks, LIMITS).is_err());
    // An alias brings its depth along.
    let text = "a: &x [[[[1]]]]\nb: [[[*x]]]";
    assert!(read(text, LIMITS).is_ok());
    let text = "a: &x [[[[1]]]]\nb: [[[[*x]]]]";
    assert_eq!(cause(text), "line 2: nested too deeply");
}

#[test]
fn size_has_a_bound() {
    assert_eq!(cause(&"a".repeat(4097)), "longer than 4096 bytes");
    assert_eq!(
        cause(&format!("[{}1]", "1,".repeat(99))),
        "line 1: more than 100 values"
    );
}

#[test]
fn an_alias_counts_all_that_it_stands_for() {
    let bomb = "a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b]\n";
    assert_eq!(cause(bomb), "line 2: more than 100 values");
    // Few values, much text.
    let text = format!(
        "a: &a {}\nb: [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n",
        "x".repeat(1000)
    );
    assert_eq!(cause(&text), "line 2: more than 8192 bytes of text");
}

#[test]
fn a_node_tells_its_line() {
    let node = read("a:\n  b:\n  - c\n", LIMITS).unwrap().unwrap();
    let Value::Map(entries) = &node.value else {
        panic!("{node:?}");
    };
    assert_eq!(entries[0].1.line, 2);
    let Value::Map(entries) = &entries[0].1.value else {
        panic!("{node:?}");
    };
    assert_eq!(entries[0].1.line, 3);
}

#[test]
fn scalars_stand_for_what_yaml_says() {
    let plain = |text: &str| Scalar {
        text: text.to_owned(),
        plain: true,
    };
    for (text, meaning) in [
        ("", Plain::Null),
        ("~", Plain::Null),
        ("true", Plain::Bool(true)),
        ("False", Plain::Bool(false)),
        ("yes", Plain::Text),
        ("15000", Plain::Int(15000)),
        ("-7", Plain::Int(-7)),
        ("0x10", Plain::Int(16)),
        ("0o17", Plain::Int(15)),
        ("1.5", Plain::Float(1.5)),
        (".5", Plain::Float(0.5)),
        ("1e3", Plain::Float(1000.0)),
        ("-.inf", Plain::Float(f64::NEG_INFINITY)),
        ("1.2.3", Plain::Text),
        ("e5", Plain::Text),
        (".", Plain::Text),
        ("-", Plain::Text),
        ("+", Plain::Text),
        ("0x", Plain::Text),
        ("1s", Plain::Text),
        ("--1", Plain::Text),
        ("infinity", Plain::Text),
        ("nan", Plain::Text),
    ] {
        assert_eq!(plain(text).plain(), meaning, "{text}");
    }
    let quoted = Scalar {
        text: "5".to_owned(),
        plain: false,
    };
    assert_eq!(quoted.plain(), Plain::Text);
    assert_eq!(quoted.boolean(), None);
    for (text, meaning) in [
        ("yes", Some(true)),
        ("OFF", Some(false)),
        ("n", Some(false)),
        ("maybe", None),
    ] {
        assert_eq!(plain(text).boolean(), meaning, "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_a_tree_or_an_error(text in "([a-c]: |- |[\\[\\]{},]|&x |\\*x|<<: |\n| |'|\"|#|!t |\\||\t|1){0,60}") {
        if let Ok(Some(node)) = read(&text, LIMITS) {
            let _shown = show(&node);
        }
    }

    #[test]
    fn arbitrary_text_does_not_panic(text in "\\PC{0,80}") {
        let _tree = read(&text, LIMITS);
    }
}

/// As kubectl 1.32 decides about the same lines.
#[test]
fn a_tab_is_no_indentation() {
    for text in [
        "a:\n\tb: 1\n",
        "a:\n  \tb: 1\n",
        "a:\n  \tb\n",
        "a:\n- \tb: 1\n",
        "a:\n  -\tb\n",
        "\ta: 1\n",
        "? a\n:\tb\n",
        "a: 1\n---\nb:\n  \tc: 1\n",
    ] {
        let cause = documents(text, LIMITS).find_map(Result::err);
        let cause = cause.unwrap_or_else(|| panic!("{text:?} was read"));
        assert!(
            cause.line > 0 && cause.cause.contains("tab"),
            "{text:?}: {cause}"
        );
    }
    for text in [
        "a:\tb\n",
        "a: b\t# c\n",
        "a: [b,\tc]\n",
        "a: |\n  x\n  \ty\n",
        "a: x\n  \ty\n",
        "a:\t\n  b: \t'x'\n",
        "---\ta\n",
    ] {
        let refused = documents(text, LIMITS).find_map(Result::err);
        assert_eq!(refused, None, "{text:?}");
    }
}
