//! The pairs in the webhook's path: variables for the pod's proxy.

/// Encodes a slash in a value of the path.
const SLASH: &str = "--slash--";

/// `/inject/cluster/C/net/N` as pairs; a last key without a value is ignored.
pub(super) fn pairs(path: &str) -> Vec<(String, String)> {
    let rest = path.strip_prefix("/inject/").unwrap_or_default();
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let mut parts = rest.split('/');
    let mut found = Vec::new();
    while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
        if !key.is_empty() {
            found.push((decoded(key), decoded(value).replace(SLASH, "/")));
        }
    }
    found
}

/// Decodes percent-encoding; a malformed escape stays.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}
