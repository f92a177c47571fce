//! Trees, lines and bounds.

use granit_parser::{BorrowedInput, Parser, StrInput};
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
fn a_template_is_told() {
    for (text, line) in [
        ("a: 1\nhost: {{ .Values.host }}\n", 2),
        ("{{- if .Values.on }}\na: 1\n{{- end }}\n", 1),
        ("a:\n  {{- toYaml .Values.a | nindent 2 }}\n", 2),
        ("a: {{ include \"b\" . }}-c\n", 1),
    ] {
        let expected = format!("line {line}: it is a template: render it first");
        assert_eq!(cause(text), expected, "{text}");
    }
    assert_eq!(read_text("a: '{{ b }}'"), "{a:\"{{ b }}\"}");
    // Another line is wrong.
    let other = cause("a: '{{ b }}'\nc: *d\n");
    assert!(!other.contains("template"), "{other}");
    // In quotes it is text, and another fault of its line is told.
    let twice = cause("a: '{{ b }}'\na: '{{ c }}'\n");
    assert!(twice.contains("twice"), "{twice}");
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
        ("", ResolvedScalar::Null),
        ("~", ResolvedScalar::Null),
        ("true", ResolvedScalar::Bool(true)),
        ("False", ResolvedScalar::Bool(false)),
        ("yes", ResolvedScalar::Text),
        ("15000", ResolvedScalar::Int(15000)),
        ("-7", ResolvedScalar::Int(-7)),
        ("0x10", ResolvedScalar::Int(16)),
        ("0o17", ResolvedScalar::Int(15)),
        ("1.5", ResolvedScalar::Float(1.5)),
        (".5", ResolvedScalar::Float(0.5)),
        ("1e3", ResolvedScalar::Float(1000.0)),
        ("-.inf", ResolvedScalar::Float(f64::NEG_INFINITY)),
        ("1.2.3", ResolvedScalar::Text),
        ("e5", ResolvedScalar::Text),
        (".", ResolvedScalar::Text),
        ("-", ResolvedScalar::Text),
        ("+", ResolvedScalar::Text),
        ("0x", ResolvedScalar::Text),
        ("1s", ResolvedScalar::Text),
        ("--1", ResolvedScalar::Text),
        ("infinity", ResolvedScalar::Text),
        ("nan", ResolvedScalar::Text),
    ] {
        assert_eq!(plain(text).resolve(), meaning, "{text}");
    }
    let quoted = Scalar {
        text: "5".to_owned(),
        plain: false,
    };
    assert_eq!(quoted.resolve(), ResolvedScalar::Text);
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

/// Values as libyaml gives them for the same text.
#[test]
fn lines_of_a_quoted_scalar_may_begin_left_of_its_key() {
    for (text, tree) in [
        ("a: '{\n\"x\": [\n}\n'\n", r#"{a:"{ \"x\": [ } "}"#),
        ("a: \"{\nx\n}\n\"\nb: 1\n", r#"{a:"{ x } ",b:1}"#),
        ("a:\n  b: 'x\ny'\n", r#"{a:{b:"x y"}}"#),
        ("a:\n  b: 'x\n\n\n y\n\n'\n", r#"{a:{b:"x\n\ny\n"}}"#),
        ("a:\n- 'x\n y''\nz'\n- w\n", r#"{a:["x y' z",w]}"#),
        ("a: \"x\\\ny\\\n  z\"\n", r#"{a:"xyz"}"#),
        ("a: \"x\\n\\\n\ny\"\n", r#"{a:"x\n\ny"}"#),
        ("a: \"x\\\r\ny\"\n", r#"{a:"xy"}"#),
        ("a: \"x\\\n\ty\"\n", r#"{a:"xy"}"#),
        ("a: 'x\n\ty'\n", r#"{a:"x y"}"#),
        ("a: 'x\n\t\n \tz'\n", r#"{a:"x\nz"}"#),
        ("a: 'x\r\ny\r\n\r\nz'\r\nb: 1\r\n", r#"{a:"x y\nz",b:1}"#),
        (
            "a: 'x\n# no comment\ny # z\n'\n",
            r#"{a:"x # no comment y # z "}"#,
        ),
        ("a: 'x\n---y\n'\n", r#"{a:"x ---y "}"#),
        ("a: 'x\nb: y\n- c\n'\n", r#"{a:"x b: y - c "}"#),
        ("a:\n    'x\ny'\n", r#"{a:"x y"}"#),
        (
            "a: {b: 'x\ny', c: \"u\nv\"}\nd: 1\n",
            r#"{a:{b:"x y",c:"u v"},d:1}"#,
        ),
        (
            "a: \"\n\\\"\n\\\\\n\"\nb: 'x\\\ny'\n",
            r#"{a:" \" \\ ",b:"x\\ y"}"#,
        ),
        ("a: ''\nb: ''''\nc: '\n'\n", r#"{a:"",b:"'",c:" "}"#),
        (
            "a:\n- - b: 'x\ny\n'\n    c: 2\n",
            r#"{a:[[{b:"x y ",c:2}]]}"#,
        ),
        ("k: &a 'x\ny'\nl: *a\n", r#"{k:"x y",l:"x y"}"#),
        ("a: \"é\nü\"\n", r#"{a:"é ü"}"#),
        // Quotes that are letters.
        ("a: b 'c\nd: 'e'\n", r#"{a:b 'c,d:"e"}"#),
        ("a: &it's b\nc: *it's\n", "{a:b,c:b}"),
        ("a: # it's\n  b\nc: d\n", "{a:b,c:d}"),
    ] {
        assert_eq!(read_text(text), tree, "{text}");
    }
}

#[test]
fn a_document_indicator_ends_a_quoted_scalar() {
    for text in [
        "a: 'x\n---\n'\n",
        "a: 'x\n-- y\n--- z'\n",
        "a: \"x\n...\n\"\n",
        "a:\n  b: \"x\\\n---\n\"\n",
        "'x\n---'\n'",
    ] {
        assert!(read(text, LIMITS).is_err(), "{text:?}");
    }
}

#[test]
fn a_line_behind_a_quoted_scalar_keeps_its_number() {
    let text = "a: '{\n\"x\": 1\n}\n'\nb: 1\nb: 2\n";
    assert_eq!(cause(text), "line 6: the key \"b\" twice");
    assert_eq!(cause("a: 'x\ny\n").split(':').next(), Some("line 1"));
}

#[test]
fn quoted_scalars_take_linear_time() {
    let limits = Limits {
        bytes: 4 << 20,
        nodes: 1 << 20,
        ..LIMITS
    };
    let many: String = (0..100_000).map(|at| format!("k{at}: 'x\ny'\n")).collect();
    assert!(read(&many, limits).is_ok());
    let deep = format!("{}'{}'", " ".repeat(1 << 20), "\nx".repeat(1 << 20));
    assert!(read(&deep, limits).is_ok());
    let open = format!("a: '{}", "x\n".repeat(1 << 20));
    assert!(read(&open, limits).is_err());
    let short = format!("a: [{}]", "'', ".repeat(200_000));
    assert!(read(&short, limits).is_ok());
}

/// The events of a text with the lines and bytes where they begin, if the parser takes all of it.
fn events<'a>(input: impl BorrowedInput<'a>) -> Option<Vec<String>> {
    let parser = Parser::with_options(input, documents::options(LIMITS));
    let events = parser.map(|event| {
        let (event, span) = event.ok()?;
        let (line, byte) = (span.start.line(), span.start.byte_offset());
        Some(format!("{line} {byte:?} {event:?}"))
    });
    events.collect()
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
    fn text_of_yaml_1_2_is_read_as_the_parser_reads_it(
        text in "(a|[a-c]: |- |\n|\n |  |'|''|\"|\\\\|#| #|&a'|\\*a'|!t'|\\{|\\}|, |\\||>|\t|\r\n|---\n){0,40}"
    ) {
        if let Some(expected) = events(StrInput::new(&text)) {
            prop_assert_eq!(events(input::Text::new(&text)), Some(expected));
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
