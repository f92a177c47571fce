//! Documents, lists, words and lines.

use super::*;
use serde_json::json;

fn all(text: &str) -> Vec<Document> {
    documents(text).collect::<Result<_, _>>().unwrap()
}

fn values(text: &str) -> Vec<Json> {
    all(text)
        .iter()
        .flat_map(|document| document.parts().iter().map(Part::value).collect::<Vec<_>>())
        .collect()
}

fn cause(text: &str) -> String {
    let last = documents(text).last().unwrap();
    last.unwrap_err().to_string()
}

#[test]
fn documents_lists_and_json_are_objects() {
    for (text, objects) in [
        ("", vec![]),
        ("# words\n---\n---\n", vec![]),
        (
            "a: 1\n---\n# b\n---\nb: 2\n...\n",
            vec![json!({"a": 1}), json!({"b": 2})],
        ),
        (
            "\u{feff}a: &x [1]\n---\nb: 2",
            vec![json!({"a": [1]}), json!({"b": 2})],
        ),
        (
            "apiVersion: v1\nkind: List\nitems: [{a: 1}, {apiVersion: v1, kind: List, items: [{b: 2}]}]",
            vec![json!({"a": 1}), json!({"b": 2})],
        ),
        (
            "{\"a\": {\"b\": [1, \"\\u00e9\\/\"]}}",
            vec![json!({"a": {"b": [1, "é/"]}})],
        ),
        (
            "{\n\t\"a\"\t:\t[\t1\t]\n,\"c\": \"\\ud83d\\ude00\\\\ud83d\\t\"}",
            vec![json!({"a": [1], "c": "😀\\ud83d\t"})],
        ),
        (
            "{\"a\": 1}{\"b\": 2}\n\n [3] {\n\t\"c\": \"\\t\"}",
            vec![
                json!({"a": 1}),
                json!({"b": 2}),
                json!([3]),
                json!({"c": "\t"}),
            ],
        ),
    ] {
        assert_eq!(values(text), objects, "{text}");
    }
}

#[test]
fn a_string_of_json_has_every_character() {
    for odd in ["", "\t"] {
        let all: String = ('\0'..=char::MAX).collect();
        let all = json!({ "a": all });
        assert!(values(&format!("{odd}{all}{odd}")) == [all], "{odd:?}");
    }
}

#[test]
fn words_are_booleans_as_kubectl_has_them() {
    assert_eq!(
        values("[yes, No, ON, off, true, TRUE, y, 'yes', !!str no, ~, 1.5, 0x10]"),
        [json!([
            true, false, true, false, true, true, "y", "yes", "no", null, 1.5, 16
        ])]
    );
}

#[test]
fn a_malformed_document_is_reported_with_its_line() {
    for (text, expected) in [
        ("a: 1\n---\nb: 1\nb: 2\n", "line 4: the key \"b\" twice"),
        ("a: 1\nb: !x 1\n", "line 2: cannot use the tag \"!x\""),
        ("a: !!set {x: ~}\n", "line 1: cannot use the tag \"!!set\""),
        ("a: !!int x\n", "line 1: \"x\" does not match its tag"),
        ("a: !!str {x: 1}\n", "line 1: cannot use the tag \"!!str\""),
        ("a: !!map [1]\n", "line 1: cannot use the tag \"!!map\""),
        (
            "kind: List\napiVersion: v1\nitems: {a: 1}\n",
            "line 3: items: expected a list",
        ),
        (
            "kind: List\napiVersion: v1\nitem: []\n",
            "line 1: items: is required",
        ),
        (
            "kind: List\napiVersion: v1\nitems:\n- {kind: List, apiVersion: v1, items: x}\n",
            "line 4: items: expected a list",
        ),
        ("{\"a\": 1,\n\t\"a\": 2}", "line 2: the key \"a\" twice"),
        (
            "{\"a\": 1}\n{\"b\": 1}\n{\n\"c\": 1,\n\"c\": 2} {}",
            "line 5: the key \"c\" twice",
        ),
    ] {
        assert_eq!(cause(text), expected, "{text}");
    }
    assert!(cause("a: [\n---\n").starts_with("line "));
    // Nothing comes after it.
    let list = "kind: List\napiVersion: v1\n";
    assert_eq!(
        documents(&format!("{list}---\n{list}---\na: 1\n")).count(),
        1
    );
    // What stands before it is read.
    let first = documents("a: 1\n---\nb: [\n").next().unwrap();
    assert_eq!(first.unwrap().parts()[0].value(), json!({"a": 1}));
}

#[test]
fn numbers_that_json_does_not_have_are_found() {
    let text = "a: [1, .inf]\nb: {'c.d': -.INF, e: .nan, f: '.inf', g: 1e999}\n";
    let document = &all(text)[0];
    let part = &document.parts()[0];
    let mut findings = vec![Finding::error("b.e", "not a number")];
    part.add_number_findings(&mut findings);
    let messages: Vec<_> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "b.e: not a number",
            "a[1]: .inf is not a JSON number; quote the value",
            "b[\"c.d\"]: -.INF is not a JSON number; quote the value",
        ]
    );
    // As kubectl reads it: the short name of a commit may look so.
    assert_eq!(part.value()["b"]["g"], "1e999");
}

#[test]
fn values_that_follow_each_other_have_their_lines() {
    let all = all("{\"a\": 1}\n{\n \"b\": {\n\"c\": [1]}}{\"d\":\n1}\n");
    let lines = |at: usize, path: &str| {
        let document: &Document = &all[at];
        document.parts()[0].line(path)
    };
    assert_eq!(
        [lines(0, "a"), lines(1, ""), lines(1, "b.c"), lines(2, "d")],
        [1, 2, 4, 5]
    );
}

#[test]
fn bombs_are_refused_before_they_are_made() {
    let mut bomb = String::from("a: &a [x,x,x,x,x,x,x,x,x,x]\n");
    for (name, before) in ('b'..='h').zip('a'..) {
        bomb += &format!("{name}: &{name} [{}]\n", format!("*{before},").repeat(10));
    }
    assert_eq!(
        cause(&bomb),
        "line 5: more than 200000 values in one document: split it into several, with `---` between them"
    );
    assert!(cause(&"[".repeat(200)).contains("nested too deeply"));
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    // Deeper than an object may be: that is said of the object.
    assert_eq!(values(&deep(128)).len(), 1);
    assert!(documents(&deep(129)).any(|read| read.is_err()));
    let long = format!("a: {}", "x".repeat(16 << 20));
    assert_eq!(
        cause(&long),
        "longer than 16 MiB: split it into several files"
    );
    let many = |count: usize| format!("[{}]", "1,".repeat(count));
    assert_eq!(values(&many(199_999)).len(), 1);
    assert_eq!(
        cause(&many(200_000)),
        "line 1: more than 200000 values in one document: split it into several, with `---` between them"
    );
    // Each document has its own account.
    assert_eq!(
        values(&format!("{}\n---\n{}", many(150_000), many(150_000))).len(),
        2
    );
}

#[test]
fn a_path_leads_to_its_line_or_to_what_is_above_it() {
    let text = "metadata:\n  labels:\n    a/b: x\n    'q\"]': y\n  a_b: z\nspec:\n  http:\n  - match: []\n  - route:\n    - weight: 1\n";
    let document = &all(text)[0];
    let part = &document.parts()[0];
    for (path, line) in [
        ("", 1),
        ("kind", 1),
        ("metadata.name", 2),
        ("metadata.labels[\"a/b\"]", 3),
        ("metadata.labels[\"q\\\"]\"].x", 4),
        ("metadata.aB", 5),
        ("spec.http", 8),
        ("spec.http[0].match", 8),
        ("spec.http[1].route[0].weight", 10),
        ("spec.http[1].route[0].destination.host", 10),
        ("spec.http[7]", 8),
        ("spec.http[x", 8),
    ] {
        assert_eq!(part.line(path), line, "{path}");
    }
    let of = |path: &str| Finding::error(path, "x");
    let mut findings = [
        of("spec.http[1]"),
        of("spec.http[0].match"),
        of("metadata.aB"),
        of("spec"),
        of("spec.http[1].route"),
        of("kind"),
        of(""),
        of("metadata.labels[\"a/b\"]"),
    ];
    part.sort(&mut findings);
    let paths: Vec<_> = findings
        .iter()
        .map(|finding| finding.path.as_str())
        .collect();
    assert_eq!(
        paths,
        [
            "",
            "kind",
            "metadata.labels[\"a/b\"]",
            "metadata.aB",
            "spec",
            "spec.http[0].match",
            "spec.http[1]",
            "spec.http[1].route",
        ]
    );
}

#[test]
fn many_findings_in_a_wide_map_cost_no_square() {
    let text: String = (0..20_000).map(|at| format!("k{at}: 1\n")).collect();
    let document = &all(&text)[0];
    let part = &document.parts()[0];
    let mut findings: Vec<_> = (0..20_000)
        .rev()
        .map(|at| Finding::error(format!("k{at}"), "x"))
        .collect();
    part.sort(&mut findings);
    assert!(
        findings
            .iter()
            .enumerate()
            .all(|(at, finding)| part.line(&finding.path) == at + 1)
    );
}

/// An object with about so many values.
fn service(name: &str, hosts: usize) -> String {
    let hosts: Vec<_> = (0..hosts).map(|at| format!("h{at}.a.b")).collect();
    let hosts = hosts.join(", ");
    format!(
        "- apiVersion: networking.istio.io/v1\n  kind: VirtualService\n  metadata: {{name: {name}}}\n  spec:\n    hosts: [{hosts}]\n"
    )
}

/// As kubectl writes it: what it is comes last.
fn list(count: usize, hosts: usize) -> String {
    let items: String = (0..count)
        .map(|at| service(&format!("s{at}"), hosts))
        .collect();
    format!(
        "apiVersion: v1\nitems:\n{items}kind: List\nmetadata:\n  resourceVersion: \"\"\n---\na: 1\n"
    )
}

#[test]
fn a_list_is_read_item_by_item() {
    let read = all(&list(30, 10));
    assert_eq!(read.len(), 31);
    for (at, document) in read.iter().take(30).enumerate() {
        let [part] = &document.parts()[..] else {
            panic!("{at}");
        };
        assert_eq!(part.begin(), 3 + 5 * at);
        assert_eq!(part.line("spec.hosts[7]"), 3 + 5 * at + 4);
        assert_eq!(part.value()["metadata"]["name"], format!("s{at}"));
    }
    assert_eq!(read[30].parts()[0].value(), json!({"a": 1}));
    // The same as JSON, and as JSON that is not YAML as it stands.
    let items: Vec<_> = read
        .iter()
        .take(30)
        .map(|one| one.parts()[0].value())
        .collect();
    for odd in ["", "\t", "\u{7f}\u{7f}"] {
        let list = json!({"apiVersion": "v1", "items": items, "kind": "List", "x": odd});
        assert_eq!(values(&list.to_string()), items, "{odd:?}");
        let two = format!("{{\n}}{list:#}\n{list:#}");
        let read = all(&two);
        assert_eq!(read.len(), 61, "{odd:?}");
        let parts = read[60].parts();
        let line = two.lines().count()
            - two
                .lines()
                .rev()
                .position(|line| line.contains("h9.a.b"))
                .unwrap();
        assert_eq!(parts[0].line("spec.hosts[9]"), line);
    }
}

#[test]
fn a_list_may_have_more_values_than_an_object() {
    let text = list(3, 70_000);
    assert_eq!(documents(&text).filter(Result::is_ok).count(), 4);
    let hosts = vec!["a\u{7f}"; 70_000];
    let item = json!({"kind": "A", "apiVersion": "b/v1", "hosts": hosts});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [item, item, item]});
    assert_eq!(
        documents(&list.to_string()).filter(Result::is_ok).count(),
        3
    );
}

#[test]
fn an_item_has_the_bound_of_a_document() {
    let large = service("large", 200_000);
    let head = "apiVersion: v1\nkind: List\nitems:\n";
    let text = format!("{head}{}{large}", service("small", 1));
    let mut read = documents(&text);
    assert_eq!(read.next().unwrap().unwrap().parts().len(), 1);
    let cause = read.next().unwrap().unwrap_err().to_string();
    assert_eq!(
        cause,
        "line 13: more than 200000 values in one item of a list"
    );
    assert!(read.next().is_none());
    // Copies that wait for an alias are there as long as the document.
    let anchored: String = (0..300)
        .map(|at| format!("- &a{at} [{}]\n", "1,".repeat(1000)))
        .collect();
    assert!(cause_of_last(&format!("{head}{anchored}")).contains("more than 200000 values"));
    // So is a list that is no list of Kubernetes.
    let text = format!("items:\n{}kind: Stock\n", "- {a: 1}\n".repeat(100_000));
    assert!(cause_of_last(&text).contains("more than 200000 values in one document"));
}

fn cause_of_last(text: &str) -> String {
    documents(text).last().unwrap().unwrap_err().to_string()
}

#[test]
fn items_of_a_typed_list_are_of_its_kind() {
    let ours = "networking.istio.io/v1";
    for (text, objects) in [
        (
            "apiVersion: networking.istio.io/v1\nitems:\n- metadata: {name: a}\n- {kind: Gateway, apiVersion: x/v1}\nkind: VirtualServiceList\n",
            vec![
                json!({"apiVersion": ours, "kind": "VirtualService", "metadata": {"name": "a"}}),
                json!({"kind": "Gateway", "apiVersion": "x/v1"}),
            ],
        ),
        (
            "{kind: VirtualServiceList, apiVersion: networking.istio.io/v1, items: }",
            vec![],
        ),
        (
            "{kind: VirtualServiceList, apiVersion: networking.istio.io/v1, items: &x [{a: 1}]}",
            vec![json!({"apiVersion": ours, "kind": "VirtualService", "a": 1})],
        ),
        (
            "{kind: PodList, apiVersion: v1, items: [{metadata: {name: a}}]}",
            vec![json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}})],
        ),
        (
            "{\"kind\": \"PodList\", \"apiVersion\": \"v1\", \"items\":\t[{\"a\": 1}]}",
            vec![json!({"apiVersion": "v1", "kind": "Pod", "a": 1})],
        ),
        (
            "{kind: List, apiVersion: v1, items: [{kind: PodList, apiVersion: v1, items: [{a: 1}]}, ~]}",
            vec![
                json!({"apiVersion": "v1", "kind": "Pod", "a": 1}),
                json!(null),
            ],
        ),
        // Whose names end so, and that are none.
        (
            "{kind: AllowList, apiVersion: a.b/v1, spec: {}}\n---\n{kind: PriceList, items: [1]}",
            vec![
                json!({"kind": "AllowList", "apiVersion": "a.b/v1", "spec": {}}),
                json!({"kind": "PriceList", "items": [1]}),
            ],
        ),
    ] {
        assert_eq!(values(text), objects, "{text}");
    }
    for (text, expected) in [
        (
            "kind: GatewayList\napiVersion: networking.istio.io/v1\nitem: []\n",
            "line 1: items: is required",
        ),
        (
            "kind: GatewayList\napiVersion: networking.istio.io/v1\nitems: {a: 1}\n",
            "line 3: items: expected a list",
        ),
        (
            "kind: List\napiVersion: v1\nitems:\n- a: 1\n- a: [\nb: 1\n",
            "line 5: unclosed bracket '['",
        ),
    ] {
        assert_eq!(documents(text).count(), 1, "{text}");
        assert_eq!(cause(text), expected, "{text}");
    }
}

#[test]
fn many_lists_without_items_cost_nothing() {
    let text = "{kind: List, apiVersion: v1, items: []}\n---\n".repeat(100_000);
    assert_eq!(documents(&text).count(), 0);
}

#[test]
fn text_that_is_no_text_has_its_line() {
    assert_eq!(utf8(b"a: 1"), Ok("a: 1"));
    let error = utf8(b"a: 1\nb: 2\n\xff\n").unwrap_err();
    assert_eq!(error.to_string(), "line 3: it is not UTF-8");
}

#[test]
fn an_object_is_as_large_as_its_aliases_make_it() {
    let size = |text: &str| {
        let document = documents(text).next().unwrap().unwrap();
        document.parts()[0].size()
    };
    assert_eq!(size("a: bc"), 1 + 1 + 2 + 1);
    assert_eq!(size("a: &a [bc]\nd: *a"), 1 + 2 * (1 + 1 + 2 + 1));
}

/// The same number for both ways to an object.
#[test]
fn values_of_json_are_counted_as_those_of_a_file() {
    let cases = [
        (r#"{"a": "b"}"#, 3),
        (
            r#"{"a\\": "\\\"{[1,", "b": [-1.5e+3, true,null ,{}, [ ]]}"#,
            10,
        ),
        ("7", 1),
        ("[]", 1),
        (r#"["",""]"#, 3),
    ];
    for (text, count) in cases {
        assert_eq!(count_values(text).unwrap().values, count, "{text}");
        let read = |nodes| {
            let limits = Limits { nodes, ..LIMITS };
            documents_within(text, limits).all(|read| read.is_ok())
        };
        assert!(read(count) && !read(count - 1), "{text}");
    }
    let many = |count: usize| format!("[{}]", vec!["1"; count - 1].join(","));
    let count = count_values(&many(200_000)).unwrap();
    assert_eq!((count.values, count.objects), (200_000, 0));
    assert_eq!(count_values(cases[1].0).unwrap().objects, 2);
    let message = "more than 200000 values".to_owned();
    assert_eq!(count_values(&many(200_001)), Err(message));
}
