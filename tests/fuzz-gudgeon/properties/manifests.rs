//! What must hold of manifests, whatever their bytes are. Asked by the fuzzer, and by a test with its examples.

use inject::{ConfigurationError, NativeSidecars, Outcome, Parameters, Request, Sources};
use serde_json::Value;

use super::configuration::configuration;
use super::documents::{Piece, pieces};
use super::injector::ActiveConfiguration;
use super::input::Input;
use super::job::inject_all;

/// Nothing is injected, whatever it is.
#[derive(Debug)]
struct Never;

impl ActiveConfiguration for Never {
    fn load(_: Sources<'_>, _: &Parameters) -> Result<(Self, Vec<String>), ConfigurationError> {
        Ok((Self, Vec::new()))
    }

    fn inject(&self, _: &Request, _: &Value) -> Outcome {
        Outcome::Skipped {
            reason: "policy",
            warnings: Vec::new(),
        }
    }

    fn describe(&self) -> Value {
        Value::Null
    }
}

/// What is not injected comes out as it was; what is, comes out the same when it goes in again.
pub(crate) fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let joined: String = pieces(&text)
        .iter()
        .flat_map(|Piece { separator, body }| [*separator, *body])
        .collect();
    assert_eq!(joined, text);
    let once = |engine: &dyn Fn(&[Input]) -> Result<String, String>, text: &str| {
        engine(&[Input {
            name: "f".to_owned(),
            text: text.to_owned(),
        }])
    };
    fn all<E: ActiveConfiguration>(engine: &E, inputs: &[Input]) -> Result<String, String> {
        let mut text = Vec::new();
        inject_all(engine, NativeSidecars::Off, inputs, &mut text)?;
        String::from_utf8(text).map_err(|cause| cause.to_string())
    }
    let never = |inputs: &[Input]| all(&Never, inputs);
    let real = |inputs: &[Input]| all(configuration(), inputs);
    if let Ok(out) = once(&never, &text) {
        assert_eq!(out, text);
    }
    match once(&real, &text) {
        Ok(out) => assert_eq!(once(&real, &out).as_ref(), Ok(&out)),
        Err(message) => assert!(message.starts_with("f: document "), "{message}"),
    }
}
