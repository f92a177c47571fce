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
        "password": null,
        "tokens": ["kept"],
        "jwtRules": [
            {"issuer": "i", "jwks": "{\"keys\":[{\"kty\":\"RSA\",\"n\":\"1\",\"e\":\"AQAB\",\"d\":\"abc\",\"p\":\"abc\"},\"abc\"],\"abc\":1}"},
            {"jwks": "abc"},
            {"jwks": "[\"abc\"]"},
            {"jwksUri": "https://keys"},
            {"jwksUri": "https://me:abc@other/keys?token=abc&version=2"},
        ],
        "annotations": {LAST_APPLIED: "{\"spec\":{\"token\":\"abc\",\"hosts\":[\"a.example\"]}}"},
        "metadata": {"annotations": {LAST_APPLIED: "abc"}},
    });
    hide(&mut value);
    let text = value.to_string();
    assert!(!text.contains("abc"), "{text}");
    for kept in [
        "/etc/certs/key.pem",
        "/etc/oauth",
        "\"credentialName\":\"web\"",
        "\"x\":\"y\"",
        "kept",
        "AQAB",
        "https://keys",
        "https://…@other/keys?token=…&version=2",
        "a.example",
        "\"password\":null",
        "\"issuer\":\"i\"",
    ] {
        assert!(text.contains(kept), "{kept} {text}");
    }
}

#[test]
fn what_is_wrong_with_a_secret_is_said_without_it() {
    for (path, message, shown) in [
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
        ("spec.hosts[0]", "\"a_b\" is not", "\"a_b\" is not"),
    ] {
        let found = finding(&Finding::error(path, message));
        assert_eq!((found.path.as_str(), found.message.as_str()), (path, shown));
    }
}

#[test]
fn what_is_wrong_with_a_secret_does_not_quote_it() {
    for (text, said) in [
        (
            "spec.jwtRules[0].jwks: \"abc\" is no key",
            "spec.jwtRules[0].jwks: \"…\" is no key",
        ),
        (
            "spec.hosts[0]: \"abc\" is no host",
            "spec.hosts[0]: \"abc\" is no host",
        ),
        ("no path", "no path"),
    ] {
        assert_eq!(words(text), said);
    }
}
