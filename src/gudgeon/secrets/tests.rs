use api::config::Finding;
use serde_json::json;

use super::*;

#[test]
fn secrets_go_and_the_rest_stays() {
    let mut value = json!({
        "tls": {"privateKey": "/etc/certs/key.pem", "credentialName": "web"},
        "http": [{"headers": {"request": {"set": {"Authorization": "Bearer abc", "x-api-key": "abc", "x": "y"}}}}],
        "params": {"url": "https://u:abc@h", "n": 1},
        "client_secret": {"a": "abc"},
        "accessToken": "/abc", "header": {"key": "authorization", "value": "abc"}, "items": [{"apiKey": "/abc"}, {"clientSecret": "/etc/oauth"}],
        "pem": "-----BEGIN PRIVATE KEY-----abc",
        "privateKey": "abc",
        "mutual": "abc",
        "oauth": {"clientId": "me", "endpointParams": {"a": "abc"}},
        "password": null,
        "tokens": ["kept"],
        "jwtRules": [
            {"issuer": "i", "jwks": "{\"keys\":[{\"kty\":\"RSA\",\"n\":\"1\",\"e\":\"AQAB\",\"d\":\"abc\",\"p\":\"abc\"},\"abc\"],\"abc\":1}"},
            {"jwks": "abc"},
            {"jwks": "[\"abc\"]"},
            {"jwksUri": "https://keys"},
            {"jwksUri": "https://me:abc@other/keys?token=abc&version=2"},
            {"jwksUri": "https://me:a abc\"abc@blank/keys"},
            {"jwksUri": " https://me:a abc@behind/keys"},
        ],
        "annotations": {LAST_APPLIED: "{\"spec\":{\"token\":\"abc\",\"hosts\":[\"a.example\"]}}"},
        "metadata": {"annotations": {LAST_APPLIED: "abc"}},
    });
    redact(&mut value);
    let text = value.to_string();
    assert!(!text.contains("abc"), "{text}");
    for part in [
        "/etc/certs/key.pem",
        "/etc/oauth",
        "\"credentialName\":\"web\"",
        "\"x\":\"y\"",
        "kept",
        "AQAB",
        "https://keys",
        "https://…@other/keys?token=…&version=2",
        "https://…@blank/keys",
        "https://…@behind/keys",
        "a.example",
        "\"password\":null",
        "\"issuer\":\"i\"",
        "\"clientId\":\"me\"",
    ] {
        assert!(text.contains(part), "{part} {text}");
    }
}

#[test]
fn an_unknown_sink_receives_no_secret_and_every_condition() {
    let rsa = r#"{"keys":[{"kty":"RSA","n":"1","e":"AQAB"}]}"#;
    let mixed = r#"{"keys":[{"kty":"RSA","n":"1","d":"abc"},{"kty":"oct","k":"abc"}]}"#;
    let rows = [
        (
            HANDLERS,
            json!({"compiledAdapter": "redis", "params": {"password": "abc", "n": 1}, "connection": {"address": "a:1"}}),
            json!({"compiledAdapter": "redis", "connection": {"address": "a:1"}}),
        ),
        (
            HANDLERS,
            json!({"connection": {"authentication": {"tls": {"oauth": {"clientId": "me", "endpointParams": {"a": "abc"}}}}}}),
            json!({"connection": {"authentication": {"tls": {"oauth": {"clientId": "me"}}}}}),
        ),
        (
            "istio/security/v1beta1/requestauthentications",
            json!({"jwtRules": [{"issuer": "i", "jwks": mixed}, {"jwks": rsa}, {"jwks": "abc"},
                {"jwks": r#"{"keys":[{"kty":"oct","k":"abc"}]}"#}]}),
            json!({"jwtRules": [{"issuer": "i", "jwks": r#"{"keys":[{"kty":"RSA","n":"1"}]}"#}, {"jwks": rsa},
                {"jwks": NO_KEYS}, {"jwks": NO_KEYS}]}),
        ),
        (
            ROUTES,
            json!({"http": [{"match": [{"headers": {"cookie": {"exact": "user"}}}],
                "headers": {"request": {"set": {"Authorization": "abc", "x": "y"}, "remove": ["authorization"]}}}]}),
            json!({"http": [{"match": [{"headers": {"cookie": {"exact": "user"}}}],
                "headers": {"request": {"set": {"x": "y"}, "remove": ["authorization"]}}}]}),
        ),
        (
            FILTERS,
            json!({"configPatches": [{"patch": {"value": {"private_key": {"inline_string": "abc"}, "code": {"inline_string": "lua"}}}}]}),
            json!({"configPatches": [{"patch": {"value": {"code": {"inline_string": "lua"}}}}]}),
        ),
        (
            FILTERS,
            json!({"providers": {"a": {"issuer": "i", "local_jwks": {"inline_string": mixed}},
                "b": {"localJwks": {"inlineString": r#"{"keys":[{"kty":"oct","k":"abc"}]}"#}},
                "c": {"local_jwks": {"inline_bytes": "YWJj"}}, "d": {"local_jwks": {"filename": "/keys"}},
                "e": {"local_jwks": {"inline_string": rsa}}}}),
            json!({"providers": {"a": {"issuer": "i", "local_jwks": {"inline_string": r#"{"keys":[{"kty":"RSA","n":"1"}]}"#}},
                "b": {"localJwks": {"inlineString": NO_KEYS}},
                "c": {"local_jwks": {"inline_string": NO_KEYS}}, "d": {"local_jwks": {"filename": "/keys"}},
                "e": {"local_jwks": {"inline_string": rsa}}}}),
        ),
        (
            FILTERS,
            json!({"basic": {"users": {"inline_string": "u:abc"}}, "other": {"users": {"filename": "/users"}},
                "tls": {"session_ticket_keys": {"keys": [{"inline_bytes": "abc"}]}, "certificate_chain": {"inline_string": "pem"}},
                "pkcs12": {"inline_bytes": "abc"}, "redis": {"auth_password": {"inline_string": "abc"}}}),
            json!({"basic": {}, "other": {"users": {"filename": "/users"}},
                "tls": {"certificate_chain": {"inline_string": "pem"}}, "redis": {}}),
        ),
        (
            FILTERS,
            json!({"add": [{"header": {"key": "Authorization", "value": "Basic abc"}}, {"header": {"key": "x", "value": "y"}}],
                "password": "/abc", "private_key": "/etc/certs/key.pem", "access_token": "/9j"}),
            json!({"add": [{"header": {"key": "Authorization"}}, {"header": {"key": "x", "value": "y"}}],
                "private_key": "/etc/certs/key.pem"}),
        ),
        (
            MESH,
            json!({"defaultConfig": {"tracing": {"lightstep": {"address": "a:1", "accessToken": "abc"}}}}),
            json!({"defaultConfig": {"tracing": {"lightstep": {"address": "a:1"}}}}),
        ),
    ];
    for (collection, mut value, left) in rows {
        assert!(may_hold(collection) && strip_secrets(collection, &mut value));
        assert_eq!(value, left, "{collection}");
        assert!(!strip_secrets(collection, &mut value), "{collection}");
    }
}

#[test]
fn an_unknown_sink_receives_paths_of_keys() {
    let mut path = json!({"value": {"privateKey": "/etc/certs/key.pem"}});
    assert!(!strip_secrets(FILTERS, &mut path));
}

#[test]
fn a_finding_redacts_the_secret() {
    for (path, message, redacted) in [
        (
            "spec.jwtRules[0].jwks",
            "\"abc\" is no JSON",
            "\"…\" is no JSON",
        ),
        (
            "spec.http[0].headers.set[\"authorization\"]",
            "got \"abc\"",
            "got \"…\"",
        ),
        ("spec.params.password", "\"abc", "\"…"),
        (
            "spec.jwtRules[0].jwksUri",
            "\"https://me:abc@a:x/b\" is none",
            "\"https://…@a:x/b\" is none",
        ),
        (
            "spec.jwtRules[0].jwksUri",
            "\"https://a:x/b?token=abc&c=d\", did you mean \"b\"?",
            "\"https://a:x/b?token=…&c=d\", did you mean \"b\"?",
        ),
        (
            "spec.jwtRules[0].jwksUri",
            r#"not one: "https://me:a abc\"abc@a:x/b""#,
            "not one: \"https://…@a:x/b\"",
        ),
        (
            "spec.connection.authentication.mutual",
            "want an object, got \"abc\"",
            "want an object, got \"…\"",
        ),
        (
            "spec.connection.authentication.tls.oauth",
            "want an object, got \"abc\"",
            "want an object, got \"…\"",
        ),
        (
            "spec.connection.authentication.tls.oauth.endpointParams.a",
            "want a string, got \"abc\"",
            "want a string, got \"…\"",
        ),
        (
            "spec.connection.authentication.tls.authHeader",
            "\"PLAN\" is none",
            "\"PLAN\" is none",
        ),
        ("spec.hosts[0]", "\"a_b\" is not", "\"a_b\" is not"),
    ] {
        let found = redact_finding(&Finding::error(path, message));
        assert_eq!(
            (found.path.as_str(), found.message.as_str()),
            (path, redacted)
        );
    }
}

#[test]
fn a_message_does_not_quote_the_secret() {
    for (text, redacted) in [
        (
            "spec.jwtRules[0].jwks: \"abc\" is no key",
            "spec.jwtRules[0].jwks: \"…\" is no key",
        ),
        (
            "spec.hosts[0]: \"abc\" is no host",
            "spec.hosts[0]: \"abc\" is no host",
        ),
        ("no path", "no path"),
        (
            "a.yaml:8: Zipkin n/p: spec.a: \"http://me:abc@c\" is none",
            "a.yaml:8: Zipkin n/p: spec.a: \"http://…@c\" is none",
        ),
        (
            "spec.rules[0].when[0].notValues: want a list, got \"abc\"",
            "spec.rules[0].when[0].notValues: want a list, got \"…\"",
        ),
        (
            "a.yaml:8: AuthorizationPolicy n/p: spec.rules[0].when[0].values[0]: \"abc\" is none",
            "a.yaml:8: AuthorizationPolicy n/p: spec.rules[0].when[0].values[0]: \"…\" is none",
        ),
        (
            "token.yaml:8: Gateway n/p: spec.values[0]: \"abc\" is none",
            "token.yaml:8: Gateway n/p: spec.values[0]: \"abc\" is none",
        ),
    ] {
        assert_eq!(redact_text(text), redacted);
    }
}

#[test]
fn a_finding_shows_the_name_that_it_suggests() {
    for (path, message) in [
        (
            "spec.servers[0].tls.privatekey",
            "unknown field, did you mean \"privateKey\"?",
        ),
        (
            "spec.http[0].match[0].headers.authorization.prefx",
            "unknown field, did you mean \"prefix\"?",
        ),
        (
            "spec.configPatches[0].patch.value.credentials.client_idd",
            "unknown field of envoy.A, did you mean \"client_id\"?",
        ),
    ] {
        let found = Finding::error(path, message);
        assert_eq!(redact_finding(&found).message, message, "{path}");
    }
    let quoting = r#"want an object, got "abc, did you mean \"abc\"?""#;
    let found = redact_finding(&Finding::error("spec.params.password", quoting));
    assert_eq!(found.message, "want an object, got \"…\"");
}

#[test]
fn a_condition_shows_values_that_have_a_form() {
    let value = "spec.rules[0].when[0].notValues[0]";
    for (path, message, redacted) in [
        (
            value,
            "\"10.0.0.0/99\" is not an IP address or CIDR",
            "\"10.0.0.0/99\" is not an IP address or CIDR",
        ),
        (
            value,
            "port \"65536\" is not in 0..65535",
            "port \"65536\" is not in 0..65535",
        ),
        (value, "\"abc\" is none", "\"…\" is none"),
        (
            value,
            r#"want an object, got "abc\" is not an IP address or CIDR""#,
            "want an object, got \"…\"",
        ),
        (
            value,
            "\"abc\", not port \"1\" is not in 0..65535",
            "\"…\", not port \"1\" is not in 0..65535",
        ),
        (
            "spec.params.password",
            "\"abc\" is not an IP address or CIDR",
            "\"…\" is not an IP address or CIDR",
        ),
    ] {
        let found = redact_finding(&Finding::error(path, message));
        assert_eq!(found.message, redacted, "{path}");
        let line = redact_text(&format!("a.yaml:8: A n/p: {path}: {message}"));
        assert_eq!(line, format!("a.yaml:8: A n/p: {path}: {redacted}"));
    }
}

#[test]
fn a_second_finding_of_a_line_redacts_the_secret() {
    let line = "spec.hosts[0]: \"b\" is no host; spec.jwtRules[0].jwks: \"abc\" is no key";
    assert!(!redact_text(line).contains("abc"));
}

#[test]
fn a_quoted_url_without_slashes_has_no_credentials() {
    let keys = "spec.jwtRules[0].jwksUri";
    let cut = format!("\"{}…\" is none", "S3CRET".repeat(40));
    for (path, message, redacted) in [
        (keys, r#""me:S3CRET@a/x" is none"#, r#""…@a/x" is none"#),
        (
            keys,
            r#""http:/me:S3CRET@a/x" is none"#,
            r#""…@a/x" is none"#,
        ),
        (keys, r#""/me:S3CRET@a/x" is none"#, r#""…@a/x" is none"#),
        (keys, r#""S3CRET@a/x" is none"#, r#""…@a/x" is none"#),
        (keys, &cut, r#""…" is none"#),
        (keys, r#""a.example/x" is none"#, r#""a.example/x" is none"#),
        (
            keys,
            r#""https://a/x@b" is none"#,
            r#""https://a/x@b" is none"#,
        ),
        (
            "spec.address",
            r#""me:S3CRET@a/x" is none"#,
            r#""…@a/x" is none"#,
        ),
        (
            "spec.address",
            r#""/me:S3CRET@a/x" is none"#,
            r#""…@a/x" is none"#,
        ),
        (
            "spec.subjectAltNames[0]",
            r#""mailto:ops@example.com" is none"#,
            r#""mailto:ops@example.com" is none"#,
        ),
        (
            "spec.hosts[0]",
            r#""ops@example.com" is none"#,
            r#""ops@example.com" is none"#,
        ),
    ] {
        let found = redact_finding(&Finding::error(path, message));
        assert_eq!(found.message, redacted, "{path}");
        let line = redact_text(&format!("a.yaml:8: A n/p: {path}: {message}"));
        assert_eq!(line, format!("a.yaml:8: A n/p: {path}: {redacted}"));
    }
}

#[test]
fn prose_and_code_lose_the_credentials_of_urls_alone() {
    let lua = "local h = \"https://a.example/x?b=c\"\n-- https://wiki.example\n-- by ops@example.com\nlocal token = \"&\"";
    for (text, redacted) in [
        (
            "see https://wiki.example, or ask ops@example.com",
            "see https://wiki.example, or ask ops@example.com",
        ),
        (lua, lua),
        (
            "see https://wiki.example\nops@example.com",
            "see https://wiki.example\nops@example.com",
        ),
        (
            "as \"https://me:abc@c/x?token=abc&b=c\" or https://d?token=abc\nsays",
            "as \"https://…@c/x?token=…&b=c\" or https://d?token=…\nsays",
        ),
        (
            "https://me:a abc\"abc@c/x?token=a abc",
            "https://…@c/x?token=…",
        ),
    ] {
        let mut value = json!({ "inlineCode": text });
        redact(&mut value);
        assert_eq!(value, json!({ "inlineCode": redacted }));
    }
}
