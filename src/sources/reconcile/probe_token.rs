//! The token of a probe: a webhook that refuses the probe repeats it, so that the refusal differs from another webhook's.

use api::well_known::PROBE;
use serde_json::Value;

/// The number of hexadecimal digits of a token.
const DIGITS: usize = 32;

/// A token, which the probe's object carries as an annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeToken(String);

impl ProbeToken {
    pub(crate) fn random() -> Self {
        Self(format!("{:0DIGITS$x}", fastrand::u128(..)))
    }

    /// Returns the token of an object. Any author may write the annotation, and text of another form is no token.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
        let annotations = object.get("metadata")?.get("annotations")?;
        let text = annotations.get(PROBE)?.as_str()?;
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_token = text.len() == DIGITS && text.bytes().all(is_digit);
        is_token.then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the words by which the webhook of a Service says that it has seen the token. The Service is in them, because
    /// another installation of this program would repeat the token, too.
    #[must_use]
    pub fn repeated_by(&self, namespace: &str, service: &str) -> String {
        format!("probe {} reached {namespace}/{service}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_is_32_digits_and_nothing_else_is_repeated() {
        let of =
            |value: Value| ProbeToken::of(&json!({"metadata": {"annotations": {PROBE: value}}}));
        let token = ProbeToken::random();
        assert_eq!(of(json!(token.as_str())), Some(token.clone()));
        assert_ne!(ProbeToken::random(), token);
        for text in [
            "",
            "0",
            &"A".repeat(32),
            &"g".repeat(32),
            &"0".repeat(33),
            &"é".repeat(16),
        ] {
            assert_eq!(of(json!(text)), None, "{text}");
        }
        assert_eq!(of(json!(12)), None);
        for object in [
            json!({}),
            json!(null),
            json!({"metadata": {"annotations": []}}),
        ] {
            assert_eq!(ProbeToken::of(&object), None, "{object}");
        }
        let digits = "0123456789abcdef0123456789abcdef";
        assert_eq!(
            of(json!(digits)).unwrap().repeated_by("ns", "galley"),
            format!("probe {digits} reached ns/galley")
        );
    }
}
