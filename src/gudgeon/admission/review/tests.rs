//! Reviews as a table.

use super::*;

fn read(text: &str) -> (AdmissionRequest, Result<(), String>) {
    let options = ReadOptions {
        values: 100_000,
        memory: usize::MAX,
        strict: false,
    };
    let (question, read) = AdmissionRequest::read(text.as_bytes(), options);
    (question, read.map_err(|flaw| flaw.to_string()))
}

fn answered(question: &AdmissionRequest, says: &AdmissionResponse, warnings: &[String]) -> Value {
    serde_json::from_slice(&question.answer(says, warnings)).unwrap()
}

fn refused(message: String) -> AdmissionResponse {
    AdmissionResponse::Refused {
        code: 400,
        message,
        causes: Vec::new(),
    }
}

const HEAD: &str = r#""apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview""#;

#[test]
fn both_versions_are_answered_in_kind() {
    for version in ["v1", "v1beta1"] {
        let (question, result) = read(&format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/{version}","request":{{"uid":"u-\u00fc\"1","kind":
            {{"group":"","version":"v1","kind":"Pod"}},"resource":{{"group":"","version":"v1","resource":"pods"}},"namespace":
            "ns","operation":"CREATE","userInfo":{{"a":[1]}},"object":{{"n":1152921504606846977,"f":1.0}},"oldObject":null,
            "dryRun":true}}}}"#
        ));
        assert_eq!(result, Ok(()));
        assert_eq!(question.passes_by(), None);
        assert!(question.dry_run);
        assert_eq!(
            question.object.to_string(),
            r#"{"n":1152921504606846977,"f":1.0}"#
        );
        let answer = answered(&question, &AdmissionResponse::Unchanged, &[]);
        assert_eq!(
            answer.to_string(),
            format!(
                r#"{{"apiVersion":"admission.k8s.io/{version}","kind":"AdmissionReview","response":{{"uid":"u-ü\"1","allowed":true}}}}"#
            )
        );
        let answer = answered(&question, &AdmissionResponse::Patch(b"[]".to_vec()), &[]);
        assert_eq!(answer["response"]["patch"], "W10=");
        assert_eq!(answer["response"]["patchType"], "JSONPatch");
        let says = AdmissionResponse::Refused {
            code: 500,
            message: "m".into(),
            causes: Vec::new(),
        };
        let answer = answered(&question, &says, &[]);
        assert_eq!(answer["response"]["allowed"], false);
        assert_eq!(
            answer["response"]["status"],
            json!({"message": "m", "reason": "InternalError", "code": 500})
        );
        assert!(answer["response"].get("patch").is_none());
    }
}

#[test]
fn a_refusal_of_an_unreadable_review_has_its_uid() {
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let cases = [
        ("", "EOF", ""),
        ("[]", "an AdmissionReview", ""),
        ("7", "an AdmissionReview", ""),
        ("{\"request\":{\"uid\":\"u\"}}", "kind \"\"", "u"),
        (&format!("{{{HEAD}}}"), "no request", ""),
        (&format!("{{{HEAD},\"request\":null}}"), "no request", ""),
        (&format!("{{{HEAD},\"request\":7}}"), "AdmissionRequest", ""),
        (
            &format!("{{{HEAD},\"request\":{{\"uid\":\"u\",\"object\":"),
            "EOF",
            "u",
        ),
        (
            &format!("{{{HEAD},\"request\":{{\"uid\":\"u\",\"kind\":7}}}}"),
            "request.kind",
            "u",
        ),
        (
            &format!("{{{HEAD},\"request\":{{\"uid\":7}}}}"),
            "expected a string",
            "",
        ),
        (
            &format!("{{{HEAD},\"request\":{{\"uid\":\"u\"}}}} x"),
            "trailing",
            "u",
        ),
        (
            "{\"apiVersion\":\"admission.k8s.io/v2\",\"kind\":\"AdmissionReview\",\"request\":{\"uid\":\"u\"}}",
            "apiVersion \"admission.k8s.io/v2\"",
            "u",
        ),
        (
            &format!(
                "{{{HEAD},\"request\":{{\"uid\":\"u\",\"other\":{}}}}}",
                deep(127)
            ),
            "nested too deeply (deeper than 128)",
            "u",
        ),
        (
            &format!(
                "{{{HEAD},\"request\":{{\"uid\":\"u\",\"object\":{}}}}}",
                deep(100_000)
            ),
            "nested too deeply (deeper than 128)",
            "u",
        ),
        (
            &format!(
                "{{{HEAD},\"request\":{{\"object\":[{}1],\"uid\":\"u\"}}}}",
                "1,".repeat(100_000)
            ),
            "more than 100000 values",
            "u",
        ),
    ];
    for (text, cause, uid) in cases {
        let (question, result) = read(text);
        let message = result.expect_err(text);
        assert!(message.contains(cause), "{message}");
        assert_eq!(question.uid, uid, "{message}");
        let answer = answered(&question, &refused(message), &[]);
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(answer["response"]["uid"], uid);
        assert_eq!(answer["response"]["status"]["reason"], "BadRequest");
    }
}

/// A validating webhook reads the object alone: `oldObject` and unknown fields are skipped.
#[test]
fn limits_hold_for_the_fields_beside_the_object() {
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let many = format!("[{}1]", "1,".repeat(100_000));
    let strict = ReadOptions {
        values: 100_000,
        memory: usize::MAX,
        strict: true,
    };
    let read = |request: &str| {
        let text = format!(r#"{{{HEAD},"request":{{"uid":"u",{request},"operation":"UPDATE"}}}}"#);
        let (question, read) = AdmissionRequest::read(text.as_bytes(), strict);
        assert_eq!((&*question.uid, &*question.operation), ("u", "UPDATE"));
        read.map(|()| question.object.to_string())
    };
    for much in [&deep(100_000), &many] {
        for name in ["oldObject", "options", "userInfo", "other"] {
            for request in [
                format!(r#""object":{{"a":1}},"{name}":{much}"#),
                format!(r#""{name}":{{"a":{much}}},"object":{{"a":1}}"#),
            ] {
                assert_eq!(read(&request), Ok(r#"{"a":1}"#.to_owned()), "{name}");
            }
        }
        // No kind has such a name.
        let named = format!(r#""kind":{much},"object":{{"a":1}}"#);
        assert_eq!(read(&named), Ok(r#"{"a":1}"#.to_owned()));
        // The last one counts, as it does in the text that the API server reads.
        assert!(read(&format!(r#""object":{{"a":1}},"object":{much}"#)).is_err());
        let last = format!(r#""object":{much},"object":{{"a":1}}"#);
        assert_eq!(read(&last), Ok(r#"{"a":1}"#.to_owned()));
    }
    assert_eq!(read(&format!(r#""object":{}"#, deep(128))), Ok(deep(128)));
    let flaw = read(&format!(r#""object":{}"#, deep(129))).unwrap_err();
    assert_eq!(flaw.cause(), "nested too deeply (deeper than 128)");
}

/// A validating webhook skips objects that it does not validate; the injector still gets its errors.
#[test]
fn objects_that_are_not_validated_may_exceed_the_limits() {
    let deep = format!("{}{}", "[".repeat(130), "]".repeat(130));
    let many = format!("[{}1]", "1,".repeat(100_000));
    let kind = r#""kind":{"group":"g","version":"v1","kind":"K"}"#;
    let deleted = r#""metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}"#;
    for much in [&deep, &many] {
        for (request, is_read) in [
            (
                format!(r#""operation":"DELETE","oldObject":{{"a":{much}}}"#),
                true,
            ),
            (
                format!(r#""object":{{"a":{much}}},"operation":"CONNECT""#),
                true,
            ),
            (
                format!(r#""operation":"UPDATE","subResource":"status","object":{{"a":{much}}}"#),
                true,
            ),
            (
                format!(r#""operation":"UPDATE","object":{{"a":{much},{deleted}}}"#),
                true,
            ),
            (
                format!(
                    r#""operation":"UPDATE","object":{{"a":{much}}},"oldObject":{{{deleted}}}"#
                ),
                false,
            ),
            (
                format!(r#""operation":"CREATE","object":{{"a":{much}}}"#),
                false,
            ),
            (
                format!(r#""operation":"UPDATE","object":{{"a":{much},{deleted}}},"uid":7"#),
                false,
            ),
        ] {
            let text = format!(r#"{{{HEAD},"request":{{"uid":"u",{kind},{request}}}}}"#);
            let read = |strict| {
                let values = 100_000;
                AdmissionRequest::read(
                    text.as_bytes(),
                    ReadOptions {
                        values,
                        memory: usize::MAX,
                        strict,
                    },
                )
            };
            let (question, result) = read(true);
            assert_eq!(result.is_ok(), is_read, "{result:?}");
            assert_eq!((&*question.uid, &*question.object_kind.name), ("u", "K"));
            assert!(read(false).1.is_err());
        }
    }
    // A text that is no review, or is malformed later on, remains an error.
    let text = format!(r#"{{"kind":"X","request":{{"operation":"DELETE","oldObject":{deep}}}}}"#);
    let options = ReadOptions {
        values: 100_000,
        memory: usize::MAX,
        strict: true,
    };
    assert!(AdmissionRequest::read(text.as_bytes(), options).1.is_err());
    let text = format!(r#"{{{HEAD},"request":{{"operation":"DELETE","oldObject":{deep}}} x"#);
    assert!(AdmissionRequest::read(text.as_bytes(), options).1.is_err());
}

/// 1.5 MiB of `{"a":1}` used to take more than 200 MB before it was refused.
#[test]
fn an_object_is_measured_before_it_is_taken_in() {
    let read = |object: &str, memory: usize| {
        let strict = ReadOptions {
            values: 500_000,
            memory,
            strict: true,
        };
        let text =
            format!(r#"{{{HEAD},"request":{{"uid":"u","operation":"UPDATE","object":{object}}}}}"#);
        let (question, read) = AdmissionRequest::read(text.as_bytes(), strict);
        (question.object, read.map_err(|flaw| flaw.to_string()))
    };
    let of = |length: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(length - 8));
    let deleted = r#""metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}"#;
    assert_eq!(read(&of(MAX_BYTES), usize::MAX).1, Ok(()));
    let indented = format!("{}{}", " ".repeat(MAX_BYTES), of(MAX_BYTES));
    assert_eq!(read(&indented, usize::MAX).1, Ok(()));
    let large = of(MAX_BYTES + 1);
    let error = "cannot read review: object is too large".to_owned();
    assert_eq!(read(&large, usize::MAX), (Value::Null, Err(error)));
    let (reviewed, outcome) = read(&format!("{{\"b\":{large},{deleted}}}"), usize::MAX);
    assert_eq!(outcome, Ok(()), "{reviewed}");
    let many = format!("[{}]", [r#"{"a":1}"#; 100_000].join(","));
    let (reviewed, outcome) = read(&many, 128 << 20);
    assert_eq!(reviewed, Value::Null);
    let error = outcome.unwrap_err();
    assert!(
        error.contains("take 197 MiB of memory, 128 MiB at most"),
        "{error}"
    );
}

#[test]
fn as_deep_as_it_goes() {
    let deep = format!("{}{}", "[".repeat(126), "]".repeat(126));
    let (_, result) = read(&format!(
        "{{{HEAD},\"request\":{{\"uid\":\"u\",\"other\":{deep}}}}}"
    ));
    assert_eq!(result, Ok(()), "128 in all");
    let (_, result) = read(&format!(
        "{{{HEAD},\"request\":{{\"uid\":\"{}\"}}}}",
        "[".repeat(500)
    ));
    assert_eq!(result, Ok(()), "a bracket in a text is none");
}

#[test]
fn reviews_of_other_objects_than_new_pods_pass() {
    for (request, reason) in [
        (r#"{"object":{}}"#, None),
        (r#"{"operation":"CREATE","object":{}}"#, None),
        (r#"{"operation":"UPDATE","object":{}}"#, Some("operation")),
        (r#"{"operation":"DELETE"}"#, Some("operation")),
        (r#"{"subResource":"exec","object":{}}"#, Some("kind")),
        (
            r#"{"kind":{"group":"apps","version":"v1","kind":"Deployment"},"object":{}}"#,
            Some("kind"),
        ),
        (
            r#"{"kind":{"group":"","version":"v2","kind":"Pod"},"object":{}}"#,
            Some("kind"),
        ),
        (
            r#"{"resource":{"version":"v1","resource":"services"},"object":{}}"#,
            Some("kind"),
        ),
        (
            r#"{"resource":{"version":"v1","resource":"pods"},"kind":null,"object":{}}"#,
            None,
        ),
        (r#"{"object":null}"#, Some("no object")),
        ("{}", Some("no object")),
    ] {
        let (question, result) = read(&format!("{{{HEAD},\"request\":{request}}}"));
        assert_eq!(result, Ok(()), "{request}");
        assert_eq!(question.passes_by(), reason, "{request}");
    }
}

#[test]
fn warnings_are_short() {
    let question = AdmissionRequest::default();
    let many: Vec<String> = (0..20).map(|_| "ü".repeat(200)).collect();
    let answer = answered(&question, &AdmissionResponse::Unchanged, &many);
    let warnings = answer["response"]["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 20);
    assert_eq!(warnings[0].as_str().unwrap().len(), 256);
    assert!(
        answered(&question, &AdmissionResponse::Unchanged, &[])["response"]
            .get("warnings")
            .is_none()
    );
}
