//! Decodes the events of a watch, line by line.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::items::{self, ObjectHead, Unreadable};
use crate::error_text::{misread, one_line};
use crate::kind::{Key, Kind};
use crate::kubernetes::answer::ApiStatus;
use crate::kubernetes::failure::Cause;

#[derive(Deserialize)]
struct WatchEvent<'a> {
    #[serde(rename = "type")]
    what: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The change of an event.
pub(super) enum DecodedChange<K> {
    Set(K),
    Unreadable(Unreadable),
    Gone(Key),
    /// Bookmarks and unknown types of events: only their version is used.
    None,
}

/// An event, decoded.
pub(super) struct DecodedEvent<K> {
    pub(super) change: DecodedChange<K>,
    pub(super) version: Box<str>,
}

/// A value is not quoted: it may be of a Secret, and as long as an object.
fn malformed(error: &serde_json::Error) -> Cause {
    Cause::Malformed(one_line(&misread(error)))
}

impl<K: Kind> DecodedEvent<K> {
    pub(super) fn read(line: &[u8]) -> Result<Self, Cause> {
        let event: WatchEvent<'_> =
            serde_json::from_slice(line).map_err(|error| malformed(&error))?;
        let object = event.object.get();
        if event.what == "ERROR" {
            let status: ApiStatus =
                serde_json::from_str(object).map_err(|error| malformed(&error))?;
            return Err(status.cause(None, None));
        }
        let ObjectHead { metadata } =
            serde_json::from_str(object).map_err(|error| malformed(&error))?;
        let change = match &*event.what {
            "ADDED" | "MODIFIED" => match items::object::<K>(object) {
                Ok(object) => DecodedChange::Set(object),
                Err(wrong) => DecodedChange::Unreadable(wrong),
            },
            "DELETED" => DecodedChange::Gone(metadata.key()),
            _ => DecodedChange::None,
        };
        Ok(Self {
            change,
            version: metadata.resource_version,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::Pod;

    #[test]
    fn an_error_quotes_no_value() {
        let words = "x".repeat(10_000);
        for line in [
            format!(r#"{{"type":"ADDED","object":{{"metadata":"{words}"}}}}"#),
            format!(r#"{{"type":"ERROR","object":{{"code":"{words}"}}}}"#),
            format!(r#"{{"type":{{"{words}":1}},"object":{{}}}}"#),
        ] {
            let Err(cause) = DecodedEvent::<Pod>::read(line.as_bytes()) else {
                panic!("{line}")
            };
            let cause = cause.to_string();
            assert!(!cause.contains("xx"), "{cause}");
        }
    }
}
