//! What must hold of a review, whatever its bytes are. Asked by the fuzzer, and by a test with its examples.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use inject::{Outcome, Request};
use serde_json::Value;

use super::configuration::configuration;
use super::review::{AdmissionRequest, AdmissionResponse, ReadOptions};

/// As the injector reads one, and as a webhook does that looks at every key.
const OPTIONS: [ReadOptions; 2] = [
    ReadOptions {
        values: 100_000,
        memory: usize::MAX,
        strict: false,
    },
    ReadOptions {
        values: 500_000,
        memory: usize::MAX,
        strict: true,
    },
];

pub(crate) fn check(bytes: &[u8]) {
    let [(plain, _), (strict, read)] = OPTIONS.map(|options| {
        let (request, read) = AdmissionRequest::read(bytes, options);
        answered(
            bytes,
            &request,
            &read.clone().map_err(|flaw| flaw.to_string()),
        );
        (request, read)
    });
    if read.is_ok() {
        assert_eq!(plain.object, strict.object);
    }
}

/// A review is answered in its version with its uid, and a patch is a list of operations.
fn answered(bytes: &[u8], request: &AdmissionRequest, read: &Result<(), String>) {
    let (response, warnings) = decided(request, read);
    let answer = request.answer(&response, &warnings);
    let answer: Value = serde_json::from_slice(&answer).expect("an answer is JSON");
    let text = |value: &Value, path: &str| {
        value
            .pointer(path)
            .and_then(Value::as_str)
            .map(ToOwned::to_owned)
    };
    assert_eq!(text(&answer, "/kind").as_deref(), Some("AdmissionReview"));
    assert_eq!(
        text(&answer, "/response/uid").as_deref(),
        Some(request.uid.as_str())
    );
    let allowed = answer.pointer("/response/allowed").and_then(Value::as_bool);
    assert_eq!(
        allowed,
        Some(!matches!(response, AdmissionResponse::Refused { .. }))
    );
    if let Some(patch) = text(&answer, "/response/patch") {
        let patch = STANDARD.decode(patch).expect("a patch is base64");
        let patch: Value = serde_json::from_slice(&patch).expect("a patch is JSON");
        assert!(
            patch
                .as_array()
                .is_some_and(|operations| !operations.is_empty())
        );
    }
    // Of a field that is passed over only the end is looked for: a text in it may be no text.
    let whole = serde_json::from_slice::<Value>(bytes);
    if let (Ok(()), Ok(whole)) = (read, whole) {
        assert_eq!(text(&answer, "/apiVersion"), text(&whole, "/apiVersion"));
        let uid = text(&whole, "/request/uid").unwrap_or_default();
        assert_eq!(uid, request.uid);
    }
}

/// The injector's response, and its warnings.
fn decided(
    request: &AdmissionRequest,
    read: &Result<(), String>,
) -> (AdmissionResponse, Vec<String>) {
    match read {
        Err(message) => {
            assert!(!message.is_empty());
            let response = AdmissionResponse::Refused {
                code: 400,
                message: message.clone(),
                causes: Vec::new(),
            };
            (response, Vec::new())
        }
        Ok(()) if request.passes_by().is_some() => (AdmissionResponse::Unchanged, Vec::new()),
        Ok(()) => {
            let inject = Request {
                namespace: request.namespace.clone(),
                ..Request::default()
            };
            match configuration().inject(&inject, &request.object) {
                Outcome::Skipped { warnings, .. } => (AdmissionResponse::Unchanged, warnings),
                Outcome::Injected(injected) => {
                    (AdmissionResponse::Patch(injected.patch), injected.warnings)
                }
                Outcome::Refused {
                    code,
                    message,
                    warnings,
                    ..
                } => {
                    let causes = Vec::new();
                    let response = AdmissionResponse::Refused {
                        code,
                        message,
                        causes,
                    };
                    (response, warnings)
                }
            }
        }
    }
}
