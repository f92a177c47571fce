//! What must hold of a mesh configuration, whatever its bytes are. Asked by the fuzzer, and by a test with its examples.

use api::config::{Severity, read_message};
use api::schema::Typed;
use api::wire::encode;

pub(crate) fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match api::mesh::parse(&text) {
        Ok(parsed) => {
            holds(&parsed);
            let proxy = parsed.config.default_config.expect("defaults have one");
            let again = api::mesh::parse_proxy(&proxy, "").expect("what was read is valid");
            assert_eq!(again.config, proxy);
        }
        Err(invalid) => is_one_line(&invalid, &text),
    }
    match api::mesh::parse_proxy(&api::mesh::proxy_defaults(), &text) {
        Ok(parsed) => {
            holds(&parsed);
            api::mesh::chosen(&parsed.config, &serde_json::Map::new()).expect("it has JSON");
        }
        Err(invalid) => is_one_line(&invalid, &text),
    }
}

/// It comes back from JSON and from the wire.
fn holds<T: Typed + PartialEq + std::fmt::Debug>(parsed: &api::mesh::Parsed<T>) {
    let json = api::mesh::json(&parsed.config).expect("it has JSON").into();
    let (read, findings) = read_message(T::MESSAGE, &json, Severity::Error);
    assert!(
        findings.iter().all(|found| !found.is_error()),
        "{findings:?}"
    );
    assert_eq!(read, json);
    let back = T::decode(encode(T::MESSAGE, &read).as_slice()).expect("its JSON is read");
    assert!(back == parsed.config, "{:?}", parsed.config);
    let back = T::decode(parsed.config.encode_to_vec().as_slice()).expect("its bytes are read");
    assert!(back == parsed.config, "{:?}", parsed.config);
    assert!(parsed.warnings.len() <= 1);
    for warning in &parsed.warnings {
        assert!(warning.chars().all(|letter| letter >= ' '), "{warning:?}");
        assert!(warning.len() < 100_000, "{}", warning.len());
    }
}

/// For the log, with a line that the text has.
fn is_one_line(invalid: &api::mesh::Invalid, text: &str) {
    let shown = invalid.to_string();
    assert!(!invalid.cause.is_empty());
    assert!(shown.chars().all(|letter| letter >= ' '), "{shown:?}");
    assert!(shown.len() < 100_000, "{}", shown.len());
    let lines = text.split(['\n', '\r']).count();
    assert!(invalid.line <= lines + 1, "{shown} of {lines}");
}
